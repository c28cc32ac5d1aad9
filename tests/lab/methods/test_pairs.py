"""The systems that learn one code per document from pairs: LSSH, CMFH and CCQ, and how they prepare rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import sparse

from crossbyte._not_fitted import NotFitted
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.data.synthetic import Pairs, make_pairs
from crossbyte.errors import InvalidInput, NotFinite
from crossbyte.lab.methods import ccq, cmfh, lssh
from crossbyte.lab.methods.ccq import CCQ
from crossbyte.lab.methods.cmfh import CMFH
from crossbyte.lab.methods.dense_preparation import CentredPreparation
from crossbyte.lab.methods.lssh import LSSH
from crossbyte.lab.methods.method import Method, Side
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.chance import chance_mean_average_precision
from crossbyte.metrics.ranks import nearest_ties_by_column
from crossbyte.model.space import sparse as mapping
from crossbyte.model.space.sparse import SparseWeights
from support import oracles

Array = NDArray[Any]
SIDES: tuple[Side, Side] = ("image", "text")
N_TRAIN = 300
SMALL: dict[str, Callable[..., Method]] = {
    "lssh": lambda **options: LSSH(**{"n_atoms": 48, "max_iter": 6, **options}),
    "cmfh": lambda **options: CMFH(**options),
    "ccq": lambda **options: CCQ(**{"max_iter": 8, **options}),
}
every_system = pytest.mark.parametrize("key", sorted(SMALL))


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as entered:
        yield entered


@pytest.fixture(scope="module")
def pairs() -> Pairs:
    return make_pairs(400, 20, 14, n_classes=4, n_topics=8, noise=0.2, sparse_text=False, random_state=3)


@pytest.fixture(scope="module")
def worded() -> Pairs:
    return make_pairs(400, 20, 60, n_classes=4, n_topics=8, noise=0.2, random_state=3)


def fitted(key: str, pairs: Pairs, **options: Any) -> Method:
    return SMALL[key](**{"n_bits": 16, **options}).fit(pairs.images[:N_TRAIN], pairs.texts[:N_TRAIN])


def map_of(model: Method, pairs: Pairs, asked: Side, items: Array, labels: Array) -> float:
    """MAP@20 of the held-out rows of one side, items in a random order so that ties mean nothing."""
    other: Side = "text" if asked == "image" else "image"
    rows = pairs.images if asked == "image" else pairs.texts
    order = np.random.default_rng(0).permutation(len(items))
    distances = model.distances(other, model.queries(asked, rows[N_TRAIN:]), items[order])
    found = labels[order][nearest_ties_by_column(distances, 20)]
    return mean_average_precision(found == pairs.labels[N_TRAIN:, None], 20)


def chance_of(labels: Array, asked: Array) -> float:
    return chance_mean_average_precision([(labels == label).mean() for label in asked], 20, len(labels))


# --- what every one of them must do ---------------------------------------------------------------------


@every_system
def test_finds_documents_of_the_same_class(key: str) -> None:
    """Eight classes far apart on both sides: the answer is known, and nearly all of it must be found."""
    rng = np.random.default_rng(0)
    labels = np.arange(400) % 8
    images, texts = (
        (2 * rng.standard_normal((8, d))[labels] + 0.3 * rng.standard_normal((400, d))).astype(np.float32)
        for d in (20, 14)
    )
    apart = Pairs(images, texts, labels)
    model = fitted(key, apart)
    for asked in SIDES:
        items = model.training_items("text" if asked == "image" else "image")
        assert map_of(model, apart, asked, items, labels[:N_TRAIN]) > 0.9
    assert chance_of(labels[:N_TRAIN], labels[N_TRAIN:]) < 0.25


@every_system
def test_finds_unseen_documents_from_one_side_or_both(key: str, pairs: Pairs) -> None:
    model = fitted(key, pairs)
    images, texts, labels = pairs.images[N_TRAIN:], pairs.texts[N_TRAIN:], pairs.labels[N_TRAIN:]
    chance = chance_of(labels, labels)
    for asked in SIDES:
        other: Side = "text" if asked == "image" else "image"
        alone = model.side_items(other, texts if other == "text" else images)
        together = model.pair_items(other, images, texts)
        assert map_of(model, pairs, asked, alone, labels) > chance + 0.15
        assert map_of(model, pairs, asked, together, labels) > chance + 0.15


@every_system
def test_same_seed_same_codes_whatever_the_threads_and_the_labels(key: str, pairs: Pairs) -> None:
    first, again = fitted(key, pairs), fitted(key, pairs, n_jobs=2)
    labelled = SMALL[key](n_bits=16).fit(
        pairs.images[:N_TRAIN], pairs.texts[:N_TRAIN], pairs.labels[:N_TRAIN]
    )
    other = fitted(key, pairs, random_state=1)
    for side in SIDES:
        items = first.training_items(side)
        assert np.array_equal(items, again.training_items(side))
        assert np.array_equal(items, labelled.training_items(side))
        assert not np.array_equal(items, other.training_items(side))
    assert np.array_equal(first.queries("text", pairs.texts), again.queries("text", pairs.texts))


@every_system
def test_writes_to_no_argument(key: str, pairs: Pairs, worded: Pairs) -> None:
    for given in (pairs, worded):
        images = given.images[:N_TRAIN].copy()
        texts = given.texts[:N_TRAIN].copy()
        for array in (images, texts if isinstance(texts, np.ndarray) else texts.data):
            array.setflags(write=False)
        model = SMALL[key](n_bits=8).fit(images, texts)
        queries, items = model.queries("image", images), model.pair_items("text", images, texts)
        for array in (queries, items):
            array.setflags(write=False)
        model.side_items("text", texts)
        model.distances("text", queries, items)


@every_system
@pytest.mark.parametrize("n_bits", [1, 11, 40])
def test_any_length_of_code(key: str, n_bits: int, pairs: Pairs) -> None:
    model = fitted(key, pairs, n_bits=n_bits)
    items = model.training_items("text")
    assert len(items) == N_TRAIN
    assert len(np.unique(items, axis=0)) > (1 if n_bits == 1 else 4)
    assert n_bits > 1 or len(np.unique(items, axis=0)) == 2
    distances = model.distances("text", model.queries("image", pairs.images), items)
    assert distances.shape == (len(pairs.images), N_TRAIN) and distances.dtype == np.float32
    assert np.isfinite(distances).all()


@every_system
def test_sparse_texts_are_the_same_texts(key: str, worded: Pairs) -> None:
    dense = worded._replace(texts=worded.texts.toarray())
    one, other = fitted(key, worded), fitted(key, dense)
    items = [model.training_items("text") for model in (one, other)]
    # Sums are rounded in another order, and a value near a border may fall on the other side.
    assert (items[0] == items[1]).all(axis=1).mean() > 0.9
    for asked in SIDES:
        assert map_of(one, worded, asked, items[0], worded.labels[:N_TRAIN]) > 0.5


@every_system
def test_texts_without_a_word_are_coded(key: str, worded: Pairs) -> None:
    texts = sparse.csr_matrix(worded.texts[:N_TRAIN]).tolil()
    texts[5] = 0
    model = SMALL[key](n_bits=16).fit(worded.images[:N_TRAIN], texts.tocsr())
    items = model.training_items("text")
    assert np.isfinite(model.distances("text", model.queries("text", texts.tocsr()[5:6]), items)).all()


@every_system
def test_a_query_does_not_depend_on_its_batch(key: str, pairs: Pairs) -> None:
    model = fitted(key, pairs)
    for side, rows in zip(SIDES, (pairs.images, pairs.texts), strict=True):
        batch = model.queries(side, rows[N_TRAIN:])
        assert np.array_equal(batch[7:8], model.queries(side, rows[N_TRAIN + 7 : N_TRAIN + 8]))
        assert len(model.queries(side, rows[:0])) == 0


@every_system
def test_fewer_pairs_than_words_and_dimensions(key: str, pairs: Pairs) -> None:
    model = SMALL[key](n_bits=32).fit(pairs.images[:6], pairs.texts[:6])
    distances = model.distances(
        "image", model.queries("text", pairs.texts[:6]), model.training_items("image")
    )
    assert (distances.argmin(axis=1) == np.arange(6)).mean() >= 0.5


@every_system
def test_refuses_what_it_cannot_use(key: str, pairs: Pairs) -> None:
    with pytest.raises(NotFitted, match="call fit"):
        SMALL[key]().queries("image", pairs.images)
    with pytest.raises(NotFitted, match="call fit"):
        SMALL[key]().training_items("image")
    with pytest.raises(InvalidInput, match="one text per image"):
        SMALL[key]().fit(pairs.images[:10], pairs.texts[:9])
    with pytest.raises(NotFinite, match="row 0"):
        SMALL[key]().fit(np.full((10, 3), np.nan), pairs.texts[:10])
    model = fitted(key, pairs)
    with pytest.raises(InvalidInput, match="features"):
        model.queries("text", pairs.texts[:, :3])
    with pytest.raises(InvalidInput, match="one text per image"):
        model.pair_items("text", pairs.images[:10], pairs.texts[:9])
    with pytest.raises(InvalidInput, match="learns from pairs"):
        SMALL[key](similarity="labels")


@pytest.mark.parametrize("key", ["cmfh", "lssh"])
def test_training_pairs_are_coded_as_new_ones_would_be(key: str, pairs: Pairs) -> None:
    model = fitted(key, pairs)
    again = model.pair_items("text", pairs.images[:N_TRAIN], pairs.texts[:N_TRAIN])
    assert np.array_equal(again, model.training_items("text"))
    assert np.array_equal(model.side_items("text", pairs.texts), model.queries("text", pairs.texts))


@pytest.mark.parametrize(
    ("system", "wrong"),
    [
        (CMFH, {"image_share": 1.0}),
        (CMFH, {"projection_weight": 0.0}),
        (CMFH, {"shrinkage": 0.0}),
        (CMFH, {"max_iter": 0}),
        (LSSH, {"sparsity": 1.5}),
        (LSSH, {"alignment": 0.0}),
        (LSSH, {"n_atoms": 0}),
        (CCQ, {"text_weight": -1.0}),
        (CCQ, {"ridge": 0.0}),
        (CCQ, {"n_bits": 0}),
    ],
)
def test_refuses_weights_without_a_minimum(system: type[Method], wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        system(**wrong)


# --- CMFH ------------------------------------------------------------------------------------------------

CMFH_WEIGHTS = [cmfh.Weights(0.5, 100.0, 0.01), cmfh.Weights(0.2, 0.3, 2.0)]


class Factorization:
    """A small CMFH problem on its way, and its objective as the paper writes it."""

    def __init__(self, weights: cmfh.Weights, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.X, self.Y = rng.standard_normal((40, 6)), rng.standard_normal((40, 5)) * 0.3
        both = np.hstack([self.X, self.Y])
        self.Z, self.weights = both, weights
        self.products = cmfh.Products(both.T @ both, 6)
        random = [rng.standard_normal(shape) for shape in ((4, 6), (4, 5), (6, 4), (5, 4), (11, 4))]
        W = random[4]
        self.factors = cmfh.Factors((random[0], random[1]), (random[2], random[3]), W, self.products.gram @ W)

    def value(self, V: Array, U: tuple[Array, Array], P: tuple[Array, Array]) -> float:
        a, mu, gamma = self.weights
        total = a * ((self.X - V @ U[0]) ** 2).sum() + (1 - a) * ((self.Y - V @ U[1]) ** 2).sum()
        total += mu * (((V - self.X @ P[0]) ** 2).sum() + ((V - self.Y @ P[1]) ** 2).sum())
        return float(total + gamma * sum((part**2).sum() for part in (V, *U, *P)))

    def of(self, factors: cmfh.Factors) -> float:
        return self.value(self.Z @ factors.W, factors.U, factors.P)


def gradient(function: Callable[[Array], float], at: Array, step: float = 1e-5) -> Array:
    """Central differences, entry by entry."""
    slopes = np.empty(at.shape)
    for index in np.ndindex(at.shape):
        moved = at.astype(np.float64)
        moved[index] += step
        above = function(moved)
        moved[index] -= 2 * step
        slopes[index] = (above - function(moved)) / (2 * step)
    return slopes


@pytest.mark.parametrize("weights", CMFH_WEIGHTS)
def test_cmfh_measures_the_objective_of_the_paper(weights: cmfh.Weights) -> None:
    problem = Factorization(weights)
    expected = problem.of(problem.factors)
    assert cmfh.objective(problem.factors, problem.products, weights) == pytest.approx(expected)


@pytest.mark.parametrize("weights", CMFH_WEIGHTS)
@pytest.mark.parametrize("seed", range(3))
def test_no_cmfh_update_raises_the_objective(weights: cmfh.Weights, seed: int) -> None:
    problem = Factorization(weights, seed)
    factors, values = problem.factors, [problem.of(problem.factors)]
    inverses = cmfh.projection_inverses(problem.products, weights)
    updates = (cmfh.update_map, weights), (cmfh.update_bases, weights), (cmfh.update_projections, inverses)
    for _ in range(5):
        for update, given in updates:
            factors = update(factors, problem.products, given)
            values.append(problem.of(factors))
    assert (np.diff(values) <= 1e-9 * np.abs(values[1:])).all()


@pytest.mark.parametrize("weights", CMFH_WEIGHTS)
def test_cmfh_updates_leave_no_gradient(weights: cmfh.Weights) -> None:
    problem = Factorization(weights)
    factors = cmfh.update_map(problem.factors, problem.products, weights)
    _, U, P = problem.Z @ factors.W, factors.U, factors.P
    # V itself is free here: that it is a product Z W is a result, not a restriction
    assert np.abs(gradient(lambda V: problem.value(V, U, P), problem.Z @ factors.W)).max() < 1e-4
    factors = cmfh.update_bases(factors, problem.products, weights)
    V, U = problem.Z @ factors.W, factors.U
    assert np.abs(gradient(lambda part: problem.value(V, (part, U[1]), P), U[0])).max() < 1e-4
    assert np.abs(gradient(lambda part: problem.value(V, (U[0], part), P), U[1])).max() < 1e-4
    inverses = cmfh.projection_inverses(problem.products, weights)
    P = cmfh.update_projections(factors, problem.products, inverses).P
    assert np.abs(gradient(lambda part: problem.value(V, U, (part, P[1])), P[0])).max() < 1e-4
    assert np.abs(gradient(lambda part: problem.value(V, U, (P[0], part)), P[1])).max() < 1e-4


def test_cmfh_bits_are_balanced_by_centring(pairs: Pairs) -> None:
    """Without it all codes would coincide; a shift of the features changes no code."""
    shifted = pairs._replace(images=pairs.images + 50.0, texts=pairs.texts - 20.0)
    items = fitted("cmfh", pairs).training_items("text")
    shares = np.unpackbits(items, axis=1).mean(axis=0)
    assert (shares > 0.2).all() and (shares < 0.8).all()
    # the shift costs float32 features a few of their digits
    assert (items == fitted("cmfh", shifted).training_items("text")).all(axis=1).mean() > 0.95


def test_cmfh_says_how_it_went_and_what_is_too_wide() -> None:
    rng = np.random.default_rng(0)
    model = CMFH(n_bits=4).fit(rng.random((30, 5)), rng.random((30, 4)))
    assert 1 < model.details["rounds"] <= 60
    wide = sparse.random_array((3, 9000), density=0.01, rng=rng, format="csr")
    with pytest.raises(InvalidInput, match="reduce the features"):
        CMFH(n_bits=4).fit(rng.random((3, 5)), wide)


# --- LSSH ------------------------------------------------------------------------------------------------


def test_an_lssh_round_lowers_the_objective(workers: Workers) -> None:
    """With an absolute penalty; the published ratio moves with the data and has no objective of its own."""
    weights = SparseWeights(0.2, 0.5, 1.0)
    images, texts = oracles.paired_rows(np.random.default_rng(0), 120, (12, 10))
    X, Y = DenseRows(images), DenseRows(texts)
    state = mapping.initial_state(X, Y, 24, 8, weights, np.random.default_rng(1), workers)
    values = []
    for _ in range(4):
        S, A = state.S.toarray().astype(float), state.text_points.astype(float)
        value = ((images - S @ state.B) ** 2).sum() + weights.sparsity * np.abs(S).sum()
        value += weights.alignment * ((A - S @ state.R) ** 2).sum()
        values.append(value + weights.text_weight * ((texts - A @ state.U) ** 2).sum())
        state = lssh.update_all_blocks(state, X, Y, weights, workers)
    assert (np.diff(values) < 0).all()


def test_lssh_text_map_is_the_minimum_without_an_image() -> None:
    rng, weights = np.random.default_rng(0), SparseWeights(0.2, 0.7, 1.3)
    U, y = rng.standard_normal((8, 5)), rng.standard_normal(5)

    def value(a: Array) -> float:
        return float(0.7 * ((y - a @ U) ** 2).sum() + 1.3 * (a**2).sum())

    assert np.abs(gradient(value, y @ lssh.text_projection(U, weights))).max() < 1e-7


def test_lssh_codes_a_pair_by_the_minimum_over_its_latent_row(pairs: Pairs, workers: Workers) -> None:
    model = fitted("lssh", pairs)
    assert isinstance(model, LSSH) and model._learned is not None
    images, texts = pairs.images[N_TRAIN : N_TRAIN + 4], pairs.texts[N_TRAIN : N_TRAIN + 4]
    B, U, R = model._learned
    X = model._prepare("image", images, workers)
    Y = model._prepare("text", texts, workers).dense().astype(float)
    s = mapping.image_lasso(X, B, model._weights, workers).toarray().astype(float)
    latent = model._pair_bit_values(images, texts, workers).astype(float)

    def value(A: Array) -> float:
        fit = model.text_weight * ((Y - A @ U) ** 2).sum()
        return float(fit + model.alignment * ((A - s @ R) ** 2).sum())

    assert np.abs(gradient(value, latent, 1e-4)).max() < 1e-4


def test_lssh_learns_from_a_sample_and_codes_all(pairs: Pairs) -> None:
    model = fitted("lssh", pairs, max_pairs=80)
    assert model.details["n_learned_from"] == 80
    assert len(model.training_items("image")) == N_TRAIN
    assert map_of(model, pairs, "text", model.training_items("image"), pairs.labels[:N_TRAIN]) > 0.6


# --- CCQ -------------------------------------------------------------------------------------------------


class Composite:
    """A small CCQ problem on its way, and its objective by naive loops."""

    def __init__(self, workers: Workers, seed: int = 0, n_bits: int = 12) -> None:
        rng = np.random.default_rng(seed)
        latent = rng.standard_normal((90, 3))
        images, texts = (
            latent @ rng.standard_normal((3, d)) + 0.3 * rng.standard_normal((90, d)) for d in (7, 5)
        )
        self.pairs, self.weights = ccq.Pairs(images, texts), ccq.Weights(2.0, 0.01)
        self.sizes = [256, 16][: -(-n_bits // 8)]
        self.state = ccq.initial_state(self.pairs, 4, self.sizes, 2.0, rng, workers)

    def of(self, state: ccq.State) -> float:
        decoded = oracles.decode(state.codewords, state.codes)
        errors = [
            ((rows - decoded @ R.T) ** 2).sum() for rows, R in zip(self.pairs, state.rotations, strict=True)
        ]
        return float(errors[0] + 2.0 * errors[1] + 0.01 * (state.codewords**2).sum())


def test_ccq_measures_the_objective_of_the_paper(workers: Workers) -> None:
    problem = Composite(workers)
    found = ccq.objective(problem.state, problem.pairs, problem.weights, workers)
    assert found == pytest.approx(problem.of(problem.state), rel=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_no_ccq_update_raises_the_objective(seed: int, workers: Workers) -> None:
    problem = Composite(workers, seed)
    state, values = problem.state, [problem.of(problem.state)]
    for _ in range(4):
        state = ccq.update_rotations(state, problem.pairs, workers)
        values.append(problem.of(state))
        targets = ccq.blend_targets(state.rotations, problem.pairs, 2.0)
        state = ccq.update_codewords(state, targets, problem.weights, workers)
        values.append(problem.of(state))
        state = ccq.update_codes(state, targets, problem.sizes, workers)
        values.append(problem.of(state))
    assert (np.diff(values) <= 1e-6 * np.abs(values[1:])).all()
    assert (state.codes[:, 1] < 16).all()


def test_ccq_rotations_are_orthonormal_and_best(workers: Workers) -> None:
    problem = Composite(workers)
    state = ccq.update_rotations(problem.state, problem.pairs, workers)
    best, rng = problem.of(state), np.random.default_rng(0)
    for R in state.rotations:
        assert np.allclose(R.T @ R, np.eye(4))
    for _ in range(20):
        turned = [np.linalg.qr(R + 0.05 * rng.standard_normal(R.shape))[0] for R in state.rotations]
        signs = [np.sign((new * R).sum(axis=0)) for new, R in zip(turned, state.rotations, strict=True)]
        near = state._replace(rotations=(turned[0] * signs[0], turned[1] * signs[1]))
        assert problem.of(near) > best


def test_ccq_words_reach_the_closed_form(workers: Workers) -> None:
    """The paper's (T B')(B B' + τ I)⁻¹, here with one-hot rows."""
    problem = Composite(workers)
    targets = ccq.blend_targets(problem.state.rotations, problem.pairs, 2.0)
    state = ccq.update_codewords(problem.state, targets, problem.weights, workers, max_iter=500)
    hot = np.zeros((90, 2, 256))
    for m in (0, 1):
        hot[np.arange(90), m, state.codes[:, m]] = 1.0
    flat = hot.reshape(90, -1)
    exact = np.linalg.solve(flat.T @ flat + 0.01 / 3.0 * np.eye(512), flat.T @ targets)
    best = problem.of(state._replace(codewords=exact.reshape(2, 256, 4)))
    before = problem.of(problem.state)
    assert best <= problem.of(state) < best + 1e-3 * (before - best) + 1e-4 * best


def test_ccq_codes_are_greedy(workers: Workers) -> None:
    problem = Composite(workers)
    targets = ccq.blend_targets(problem.state.rotations, problem.pairs, 2.0)
    codes = ccq.encode_greedily(problem.state.codewords, targets, problem.sizes, workers)
    for target, code in zip(targets[:20].astype(float), codes, strict=False):
        rest = target
        for m, size in enumerate(problem.sizes):
            nearest = ((problem.state.codewords[m, :size] - rest) ** 2).sum(axis=1).argmin()
            assert nearest == code[m]
            rest = rest - problem.state.codewords[m, nearest]


def test_ccq_regression_leaves_no_gradient() -> None:
    rng = np.random.default_rng(0)
    X, points = rng.standard_normal((30, 4)), rng.standard_normal((30, 3))
    found = ccq.fit_regressor(X, points, 0.1)

    def value(W: Array) -> float:
        return float(((points - X @ W) ** 2).sum() + 0.1 * (W**2).sum())

    assert np.abs(gradient(value, found)).max() < 1e-6


def test_ccq_distances_are_those_to_the_decoded_items(pairs: Pairs) -> None:
    model = fitted("ccq", pairs, n_bits=20)
    assert isinstance(model, CCQ)
    items, points = model.training_items("text"), model.queries("image", pairs.images[:9])
    decoded = oracles.decode(model._codewords, items[:, :-4])
    expected = ((points[:, None].astype(float) - decoded) ** 2).sum(axis=2)
    assert np.allclose(model.distances("text", points, items), expected, atol=1e-5)


def test_ccq_items_with_one_code_are_equally_far(pairs: Pairs) -> None:
    model = fitted("ccq", pairs, n_bits=3)
    items = model.training_items("text")
    distances = model.distances("text", model.queries("image", pairs.images[:9]), items)
    for code in np.unique(items, axis=0):
        same = (items == code).all(axis=1)
        assert (distances[:, same] == distances[:, same][:, :1]).all()


def test_ccq_says_its_quantization_error(pairs: Pairs) -> None:
    short, long = (fitted("ccq", pairs, n_bits=n_bits).details for n_bits in (4, 16))
    for side in SIDES:
        assert 0 < long["quantization_error"][side] < short["quantization_error"][side] < 1
    assert (short["n_dims"], long["n_dims"]) == (4, 14)


# --- preparation -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [None, 3, 99])
@pytest.mark.parametrize("unit", [False, True])
def test_centring_of_sparse_rows_is_that_of_dense_ones(n_components: int | None, unit: bool) -> None:
    rng = np.random.default_rng(0)
    rows = rng.random((60, 8)) * (rng.random((60, 8)) < 0.5)
    dense = CentredPreparation.fit(rows, unit=unit, n_components=n_components)
    kept = CentredPreparation.fit(sparse.csr_array(rows), unit=unit, n_components=n_components)
    assert dense.n_dims == (3 if n_components == 3 else 8)
    assert np.allclose(dense.apply(rows), kept.apply(sparse.csr_array(rows)))


def test_centring_keeps_the_units_of_the_data() -> None:
    rows = np.random.default_rng(0).random((50, 4)) * 1e-20
    assert np.allclose(CentredPreparation.fit(rows).apply(rows) * 1e20, (rows - rows.mean(axis=0)) * 1e20)
    assert np.allclose(np.linalg.norm(CentredPreparation.fit(rows, unit=True).apply(rows), axis=1), 1.0)


def test_centring_leaves_empty_rows_zero_only_at_unit_length() -> None:
    rows = np.random.default_rng(0).random((50, 4))
    rows[3] = 0.0
    assert np.allclose(CentredPreparation.fit(rows).apply(rows)[3], -rows.mean(axis=0))
    assert not CentredPreparation.fit(rows, unit=True).apply(rows)[3].any()


def test_centring_refuses_rows_of_another_width() -> None:
    rows = np.random.default_rng(0).random((50, 4))
    with pytest.raises(InvalidInput, match="texts: expected 4 features as in training, got 3"):
        CentredPreparation.fit(rows, name="texts").apply(rows[:, :3])
