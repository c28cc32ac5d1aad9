"""STMH: no block raises the objective, each is the minimum that it claims, and topics stay alive."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows, Preparation, PreparedRows
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import registry
from crossbyte.lab.methods import stmh as updates
from crossbyte.lab.methods.stmh import STMH, State, Weights, initial_state, initial_topics

SMOOTHING = 1e-3
WEIGHTS = [Weights(0.5, 0.5, 0.5, 1.0), Weights(0.5, 0.5, 0.5, 1e-4), Weights(3.0, 8.0, 0.7, 0.1)]
each_weights = pytest.mark.parametrize("weights", WEIGHTS)


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as found:
        yield found


def unit(n: int, d: int, seed: int) -> PreparedRows:
    rows = np.random.default_rng(seed).standard_normal((n, d))
    return DenseRows((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))


def prepared(n: int, workers: Workers, thin: bool = True) -> tuple[PreparedRows, PreparedRows]:
    pairs = make_pairs(n, 12, 20, n_classes=4, words_per_text=8, random_state=0)
    texts = pairs.texts if thin else pairs.texts.toarray()
    images, texts = (
        Preparation.fit(raw, None, name, workers).apply(raw, workers)
        for raw, name in ((pairs.images, "images"), (texts, "texts"))
    )
    return images, texts


def any_state(X: PreparedRows, Y: PreparedRows, n_topics: int, workers: Workers, seed: int = 0) -> State:
    """A state that no update has made."""
    rng, (n, d) = np.random.default_rng(seed), X.shape
    B = rng.standard_normal((n_topics, d))
    F, R = rng.standard_normal((n_topics, Y.shape[1])), rng.standard_normal((n_topics, n_topics))
    G = updates.choose_members(rng.standard_normal((n, n_topics)))
    return State(F, B, R, G, rng.standard_normal((n, n_topics)), updates.project_rows(X, B.T, workers))


def blocks(
    X: PreparedRows, Y: PreparedRows, weights: Weights, workers: Workers
) -> list[Callable[[State], State]]:
    """The updates of a round, in order."""
    return [
        partial(updates.update_topics, Y=Y, weights=weights, workers=workers),
        partial(updates.update_concepts, X=X, weights=weights, workers=workers),
        partial(updates.update_latent, X=X, weights=weights),
        partial(updates.update_link, weights=weights),
        partial(updates.update_members, Y=Y, weights=weights, workers=workers),
    ]


def fitted(n_bits: int, images: Any, texts: Any, **parameters: Any) -> STMH:
    method = STMH(n_bits=n_bits, **parameters)
    return method.fit(images, texts)


def samples(n: int, n_words: int = 20) -> tuple[Any, Any]:
    pairs = make_pairs(n, 12, n_words, n_classes=4, words_per_text=8, random_state=1)
    return pairs.images, pairs.texts


def bits(codes: Any, n_bits: int) -> Any:
    return np.unpackbits(codes, axis=1)[:, :n_bits]


# The objective and its blocks


def test_the_objective_is_the_sum_that_is_written(workers: Workers) -> None:
    for thin in (True, False):
        X, Y = prepared(30, workers, thin)
        state, (r1, r2, lam, gamma) = any_state(X, Y, 6, workers), WEIGHTS[2]
        x, y = X.dense().astype(float), Y.dense().astype(float)
        expected = gamma * sum((part**2).sum() for part in (state.F, state.B, state.R, state.V))
        for i in range(30):
            expected += r1 * np.sqrt(((x[i] - state.V[i] @ state.B) ** 2).sum() + SMOOTHING**2)
            expected += r2 * sum(((y[i] - state.F[j]) ** 2).sum() for j in np.flatnonzero(state.G[i]))
            expected += lam * ((state.G[i] - state.V[i] @ state.R) ** 2).sum()
        assert updates.objective(state, X, Y, WEIGHTS[2], workers) == pytest.approx(expected, rel=1e-6)


@each_weights
@pytest.mark.parametrize("thin", [True, False], ids=["sparse", "dense"])
@pytest.mark.parametrize("n_topics", [1, 5, 16])
def test_no_block_raises_the_objective(weights: Weights, thin: bool, n_topics: int, workers: Workers) -> None:
    X, Y = prepared(90, workers, thin)
    start = initial_state(X, Y, n_topics, weights, np.random.default_rng(0), workers)
    for state in (start, any_state(X, Y, n_topics, workers)):
        values = [updates.objective(state, X, Y, weights, workers)]
        for update in blocks(X, Y, weights, workers) * 5:
            state = update(state)
            values.append(updates.objective(state, X, Y, weights, workers))
        assert (np.diff(values) <= 1e-8 * np.abs(values[:-1])).all()
        assert values[-1] < values[0]


def test_a_round_is_its_blocks_in_order(workers: Workers) -> None:
    X, Y = prepared(40, workers)
    state, weights = any_state(X, Y, 6, workers), WEIGHTS[0]
    found = updates.update_all_blocks(state, X, Y, weights, workers)
    for update in blocks(X, Y, weights, workers):
        state = update(state)
    for left, right in zip(state, found, strict=True):
        np.testing.assert_array_equal(left, right)


def majorant(state: State, x: Any, lengths: Any, weights: Weights) -> float:
    """Everything of the objective that B and V are in, with a quadratic in place of the loss."""
    squares = ((x - state.V @ state.B) ** 2).sum(axis=1) + SMOOTHING**2
    loss = ((squares + lengths**2) / (2 * lengths)).sum()
    link = ((state.G - state.V @ state.R) ** 2).sum()
    shrunk = (state.B**2).sum() + (state.V**2).sum()
    return float(weights.image * loss + weights.link * link + weights.shrinkage * shrunk)


@each_weights
def test_the_quadratic_lies_above_the_loss_and_touches_it(weights: Weights, workers: Workers) -> None:
    X, Y = prepared(40, workers)
    state, x = any_state(X, Y, 6, workers), X.dense().astype(float)
    lengths = updates.image_residuals(state, X)
    rest = majorant(state, x, lengths, weights) - updates.objective(state, X, Y, weights, workers)
    for seed in range(1, 5):
        other = any_state(X, Y, 6, workers, seed)
        state = state._replace(V=other.V, B=other.B, XB=other.XB)
        above = majorant(state, x, lengths, weights) - updates.objective(state, X, Y, weights, workers)
        assert above > rest - 1e-9


@each_weights
@pytest.mark.parametrize("name", ["B", "V"])
def test_concepts_and_latent_rows_are_the_minimum_of_the_quadratic(
    weights: Weights, name: str, workers: Workers
) -> None:
    X, Y = unit(12, 5, 0), unit(12, 4, 1)
    state, x = any_state(X, Y, 3, workers), X.dense().astype(float)
    lengths = updates.image_residuals(state, X)
    if name == "B":
        state = updates.update_concepts(state, X, weights, workers)
    else:
        state = updates.update_latent(state, X, weights)
    at: Any = getattr(state, name)

    def value(flat: Any) -> float:
        return majorant(state._replace(**{name: flat.reshape(at.shape)}), x, lengths, weights)

    slopes = optimize.approx_fprime(at.ravel(), value, 1e-6)
    assert np.abs(slopes).max() < 1e-3
    np.testing.assert_allclose(state.XB, x @ state.B.T, atol=1e-12)


@each_weights
def test_latent_rows_are_those_that_are_solved_one_by_one(weights: Weights, workers: Workers) -> None:
    X, Y = prepared(25, workers)
    state = any_state(X, Y, 6, workers)
    found = updates.update_latent(state, X, weights).V
    lengths, (r1, _, lam, gamma) = updates.image_residuals(state, X), weights
    for i, x in enumerate(X.dense().astype(float)):
        w = r1 / (2 * lengths[i])
        inner = w * state.B @ state.B.T + lam * state.R @ state.R.T + gamma * np.eye(6)
        pull = w * state.B @ x + lam * state.R @ state.G[i]
        np.testing.assert_allclose(found[i], np.linalg.solve(inner, pull), rtol=1e-6, atol=1e-8)


def test_badly_explained_images_count_less(workers: Workers) -> None:
    """One image unlike all others: the concepts of squared errors follow it, those of lengths hardly do."""
    x = np.tile([1.0, 0.0, 0.0], (40, 1))
    x[0] = [0.0, 30.0, 0.0]
    X, Y, weights = DenseRows(x.astype(np.float32)), unit(40, 3, 0), Weights(1.0, 1.0, 1.0, 1e-6)
    state = any_state(X, Y, 1, workers)._replace(V=np.ones((40, 1)))
    for _ in range(60):
        state = updates.update_concepts(state, X, weights, workers)
    assert x.mean(axis=0)[1] > 0.7
    assert state.B[0, 0] == pytest.approx(1.0, abs=0.05)
    assert abs(state.B[0, 1]) < 0.05


@each_weights
@pytest.mark.parametrize("n_topics", [1, 2, 5, 6])
def test_no_other_choice_of_topics_is_cheaper(weights: Weights, n_topics: int, workers: Workers) -> None:
    X, Y = prepared(20, workers)
    state = updates.update_members(any_state(X, Y, n_topics, workers), Y, weights, workers)
    n_ones, y = max(1, n_topics // 2), Y.dense().astype(float)

    def cost(i: int, g: Any) -> float:
        distances = ((y[i] - state.F) ** 2).sum(axis=1)
        return float(weights.text * g @ distances + weights.link * ((g - state.V[i] @ state.R) ** 2).sum())

    for i in range(20):
        every = [
            np.isin(np.arange(n_topics), chosen) * 1.0 for chosen in combinations(range(n_topics), n_ones)
        ]
        assert any(np.array_equal(state.G[i], g) for g in every)
        assert cost(i, state.G[i]) <= min(cost(i, g) for g in every) + 1e-5


def test_the_first_of_equally_cheap_topics_are_taken() -> None:
    np.testing.assert_array_equal(updates.choose_members(np.zeros((1, 5))), [[1, 1, 0, 0, 0]])
    np.testing.assert_array_equal(updates.choose_members(np.array([[2.0, 1.0, 1.0, 1.0]])), [[0, 1, 1, 0]])
    np.testing.assert_array_equal(updates.choose_members(np.array([[7.0]])), [[1]])
    many = np.random.default_rng(0).integers(0, 3, (4, 128)).astype(float)
    for row, chosen in zip(many, updates.choose_members(many), strict=True):
        order = sorted(range(128), key=row.tolist().__getitem__)
        assert sorted(order[:64]) == list(np.flatnonzero(chosen))


def test_a_topic_is_the_mean_of_its_texts_and_the_mean_of_all_without_any(workers: Workers) -> None:
    X, Y = prepared(30, workers)
    state = any_state(X, Y, 5, workers)
    state.G[:, 3] = 0.0
    F = updates.update_topics(state, Y, WEIGHTS[2], workers).F
    members = np.flatnonzero(state.G[:, 0])
    shrunk = len(members) / (len(members) + 0.1 / 8.0)
    np.testing.assert_allclose(F[0], shrunk * Y.dense()[members].mean(axis=0), atol=1e-6)
    assert not F[3].any()


# The start


def test_topics_start_apart_and_each_has_texts(workers: Workers) -> None:
    _, Y = prepared(200, workers)
    F = initial_topics(Y, 16, WEIGHTS[0], np.random.default_rng(0), workers)
    np.testing.assert_allclose(np.linalg.norm(F, axis=1), 1.0)
    assert (F @ F.T - 2 * np.eye(16)).max() < 0.9
    share = updates.choose_members(updates.topic_costs(Y, F, WEIGHTS[0], workers)).mean(axis=0)
    assert share.min() > 0.1 and share.max() < 0.9


def test_a_topic_that_no_text_would_have_starts_at_a_text(
    monkeypatch: pytest.MonkeyPatch, workers: Workers
) -> None:
    rows = np.array([[1.0, 0.1], [1.0, 0.2], [1.0, -0.1], [0.9, 0.9]])
    Y = DenseRows((rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32))
    opposite = np.array([[1.0, 0.0], [1.0, 0.0], [-1.0, 0.0], [-1.0, 0.0]])
    monkeypatch.setattr("crossbyte.lab.methods.stmh.basis_in_span", lambda *_: opposite)
    F = initial_topics(Y, 4, WEIGHTS[0], np.random.default_rng(0), workers)
    np.testing.assert_array_equal(F[:2], opposite[:2])
    np.testing.assert_allclose(F[2:], Y.dense()[[3, 1]])  # the farthest from their topics
    assert updates.choose_members(updates.topic_costs(Y, F, WEIGHTS[0], workers)).any(axis=0).all()


def test_a_topic_that_loses_its_texts_can_win_others(workers: Workers) -> None:
    X, Y = prepared(90, workers)
    state = initial_state(X, Y, 6, WEIGHTS[2], np.random.default_rng(0), workers)
    costs = updates.topic_costs(Y, state.F, WEIGHTS[2], workers)
    costs[:, 2] = np.inf
    state = state._replace(G=updates.choose_members(costs))
    assert not state.G[:, 2].any()
    for _ in range(3):
        state = updates.update_all_blocks(state, X, Y, WEIGHTS[2], workers)
    assert 0 < state.G[:, 2].sum() < 90


@pytest.mark.parametrize("n", [2, 3, 5])
@pytest.mark.parametrize("n_bits", [1, 3, 16])
def test_few_documents_are_enough(n: int, n_bits: int) -> None:
    rng = np.random.default_rng(n)
    images, texts = rng.standard_normal((n, 4)), rng.standard_normal((n, 3))
    codes = bits(fitted(n_bits, images, texts).training_items("text"), n_bits)
    assert (codes.sum(axis=1) == max(1, n_bits // 2)).all()
    if n_bits == 16:
        assert len(np.unique(codes, axis=0)) > 1


def test_texts_on_a_line_have_the_two_codes_that_they_can_have() -> None:
    rng = np.random.default_rng(0)
    side = np.repeat([-1.0, 1.0], 30)
    images = side[:, None] + 0.1 * rng.standard_normal((60, 4))
    method = fitted(8, images, side[:, None] * [[1.0, 2.0]])
    codes = method.training_items("text")
    assert len(np.unique(codes, axis=0)) == 2
    assert (method.queries("text", side[:, None] * [[1.0, 2.0]]) == codes).all()
    assert (method.queries("image", images) == codes).mean() > 0.95


# The system


@pytest.mark.parametrize("n_bits", [8, 9])
def test_training_documents_keep_their_topics_and_queries_follow_the_rules(n_bits: int) -> None:
    images, texts = samples(200)
    method, n_ones = fitted(n_bits, images, texts), n_bits // 2
    assert method._topics is not None and method._image_map is not None
    with Workers(1) as workers:
        y = method._preparations["text"].apply(texts, workers).dense().astype(float)
        x = method._preparations["image"].apply(images, workers).dense().astype(float)
    distances = ((y[:, None] - method._topics) ** 2).sum(axis=2)
    from_image = x @ method._image_map
    text, image = (bits(method.queries(*query), n_bits) for query in (("text", texts), ("image", images)))
    pair = bits(method.pair_items("text", images, texts), n_bits)
    cost = 0.5 * distances - 2 * 0.5 * from_image
    for codes, values in ((text, distances), (image, -from_image), (pair, cost)):
        assert (codes.sum(axis=1) == n_ones).all()
        ones = np.where(codes == 1, values, -np.inf).max(axis=1)
        others = np.where(codes == 0, values, np.inf).min(axis=1)
        assert (ones <= others + 1e-6).all()
    above = from_image > np.median(from_image, axis=1, keepdims=True)
    assert (above == image).mean() > 0.999
    learned = bits(method.training_items("image"), n_bits)
    assert (learned.sum(axis=1) == n_ones).all()
    assert (learned == text).mean() > 0.9


def test_the_updates_have_the_weights_that_the_system_has() -> None:
    method = STMH(image_weight=2.0, text_weight=3.0, link_weight=4.0, shrinkage=5.0)
    assert method._weights == Weights(image=2.0, text=3.0, link=4.0, shrinkage=5.0)


def test_an_image_is_mapped_as_the_source_says(workers: Workers) -> None:
    X, Y = unit(10, 5, 0), unit(10, 4, 1)
    state, (r1, _, _, gamma) = any_state(X, Y, 3, workers), WEIGHTS[2]
    F1 = state.B.T
    expected = F1 @ np.linalg.inv(F1.T @ F1 + gamma / r1 * np.eye(3)) @ state.R
    np.testing.assert_allclose(updates.image_to_topic_map(state, WEIGHTS[2]), expected, rtol=1e-6)


def test_the_kept_objective_never_rises_and_says_when_to_stop() -> None:
    images, texts = samples(300)
    values = fitted(16, images, texts, tolerance=0.0, text_weight=4.0).details["objective"]
    assert len(values) == 11 and (np.diff(values) <= 1e-9 * values[0]).all()
    early = fitted(16, images, texts, tolerance=1e9).details
    assert len(early["objective"]) == 2
    assert 0.0 <= early["changed_bits"] < 0.5


def test_the_units_of_the_features_do_not_matter() -> None:
    images, texts = samples(150)
    one = fitted(16, images, texts)
    other = fitted(16, images * 2.0**20, texts * 2.0**-9)
    np.testing.assert_array_equal(one.training_items("text"), other.training_items("text"))
    np.testing.assert_array_equal(one.queries("image", images), other.queries("image", images * 2.0**20))


def test_shrinking_keeps_images_from_only_knowing_the_training_documents() -> None:
    images, texts = samples(600, 60)
    gaps = []
    for shrinkage in (1.0, 1e-4):
        method = fitted(32, images[:400], texts[:400], shrinkage=shrinkage)
        distances = method.distances(
            "text", method.queries("image", images[400:]), method.queries("text", texts[400:])
        )
        gaps.append(distances.mean() - np.diag(distances).mean())
    assert gaps[0] > 1.0
    assert gaps[0] > gaps[1]


def test_sparse_texts_are_coded_as_the_same_dense_ones_and_seeds_differ() -> None:
    images, texts = samples(150, 30)
    thin, dense = (fitted(16, images, each) for each in (texts, texts.toarray()))
    wrong = bits(thin.training_items("text"), 16) != bits(dense.training_items("text"), 16)
    assert wrong.mean() < 0.02  # centred on the fly, rounding falls otherwise
    other = fitted(16, images, texts, random_state=1)
    assert (other.training_items("text") != thin.training_items("text")).any()


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_row_is_coded_by_itself_whatever_the_threads(n_jobs: int) -> None:
    images, texts = samples(120)
    one, method = fitted(20, images, texts), fitted(20, images, texts, n_jobs=n_jobs)
    pair = method.pair_items("image", images, texts)
    np.testing.assert_array_equal(pair, one.pair_items("image", images, texts))
    for i in (0, 7, 119):
        rows = slice(i, i + 1)
        np.testing.assert_array_equal(
            method.queries("text", texts[rows]), method.queries("text", texts)[rows]
        )
        np.testing.assert_array_equal(method.pair_items("text", images[rows], texts[rows]), pair[rows])
    assert method.queries("image", images[:0]).shape == (0, 3)
    empty = method.queries("text", sparse.csr_array((1, texts.shape[1])))
    assert bits(empty, 20).sum() == 10


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("image_weight", 0.0),
        ("text_weight", -1.0),
        ("link_weight", float("nan")),
        ("shrinkage", 0.0),
        ("tolerance", -0.1),
        ("max_iter", 0),
    ],
)
def test_what_has_no_minimum_is_refused(name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name):
        registry.make_method("stmh", 8, parameters={name: value})
