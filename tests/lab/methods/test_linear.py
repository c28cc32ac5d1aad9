"""Linear hashing systems: right answers that are known, exact steps, and the algebra they rest on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import linalg, sparse

from crossbyte._not_fitted import NotFitted
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import cmssh, cvh, hashing, qch, registry
from crossbyte.lab.methods.labels import (
    LowRankSimilarity,
    PairSimilarity,
    SignedPairs,
    draw_signed_pairs,
    label_affinity,
    label_similarity,
    solve_related_directions,
)
from crossbyte.lab.methods.method import Method
from crossbyte.lab.methods.regression import PairedRows
from crossbyte.metrics.ranks import partner_ranks_ties_by_column, recall_at
from crossbyte.model.space.cca import canonical_correlation, second_moments

SIDES = ("image", "text")
LEARNING = ["cmssh", "cvh", "qch", "cca-itq"]
TAUGHT = [
    ("cmssh", "pairs"),
    ("cmssh", "labels"),
    ("cvh", "pairs"),
    ("cvh", "labels"),
    ("qch", "pairs"),
    ("qch", "labels"),
    ("cca-itq", "pairs"),
    ("random", "pairs"),
]


def related(n: int, dims: tuple[int, int] = (20, 14), rank: int = 8, seed: int = 0) -> tuple[Any, Any]:
    """Images and texts that are both linear in the same few hidden values, with some noise."""
    rng = np.random.default_rng(seed)
    hidden = np.random.default_rng(seed + 1).standard_normal((n, rank))
    return tuple(
        hidden @ rng.standard_normal((rank, d)) + 0.3 * np.random.default_rng(d).standard_normal((n, d))
        for d in dims
    )  # type: ignore[return-value]


def classes(n: int, seed: int = 0) -> tuple[Any, Any, Any]:
    """Images and texts around six centres each, and their (n, 6) labels."""
    rng = np.random.default_rng(seed)
    labels = np.eye(6, dtype=np.uint8)[np.arange(n) % 6]
    images, texts = (labels @ rng.standard_normal((6, d)) for d in (16, 10))
    noise = [0.7 * rng.standard_normal(side.shape) for side in (images, texts)]
    return images + noise[0], texts + noise[1], labels


def fitted(key: str, n_bits: int, *data: Any, **options: Any) -> Method:
    return registry.make_method(key, n_bits, **options).fit(*data)


def crossed(method: Method, images: Any, texts: Any) -> list[Any]:
    """Distances of image queries to text items, and the other way round, with random order within ties."""
    shuffle = 0.5 * np.random.default_rng(0).random((images.shape[0], texts.shape[0]))
    queries = method.queries("image", images), method.queries("text", texts)
    items = method.side_items("text", texts), method.side_items("image", images)
    return [
        method.distances("text", queries[0], items[0]) + shuffle,
        method.distances("image", queries[1], items[1]) + shuffle,
    ]


# Right answers


@pytest.mark.parametrize("key", LEARNING)
@pytest.mark.parametrize("n_bits", [16, 40])
def test_partners_are_found_far_above_chance(key: str, n_bits: int) -> None:
    images, texts = related(500)
    method = fitted(key, n_bits, images[:400], texts[:400])
    for distances in crossed(method, images[400:], texts[400:]):
        assert recall_at(partner_ranks_ties_by_column(distances), 10) > 0.4  # chance is 0.1


@pytest.mark.parametrize(("key", "similarity"), [pair for pair in TAUGHT if pair[0] in LEARNING])
def test_documents_of_the_same_class_are_found_far_above_chance(key: str, similarity: str) -> None:
    images, texts, labels = classes(600)
    method = fitted(key, 8, images[:450], texts[:450], labels[:450], similarity=similarity)
    same = labels[450:] @ labels[450:].T > 0
    for distances in crossed(method, images[450:], texts[450:]):
        first = np.argsort(distances, axis=1)[:, :10]
        assert np.take_along_axis(same, first, axis=1).mean() > 0.5  # chance is 1/6


def test_partners_of_sparse_texts_are_found() -> None:
    pairs = make_pairs(700, 24, 60, noise=0.2, words_per_text=20, random_state=3)
    for key in LEARNING:
        method = fitted(key, 24, pairs.images[:600], pairs.texts[:600])
        for distances in crossed(method, pairs.images[600:], pairs.texts[600:]):
            assert recall_at(partner_ranks_ties_by_column(distances), 10) > 0.2, key


def test_cvh_is_better_by_rotations_where_bits_pass_the_rank() -> None:
    images, texts = related(500)
    recalls = []
    for beyond_rank in ("eigenvectors", "rotations"):
        parameters = {"beyond_rank": beyond_rank}
        method = fitted("cvh", 64, images[:400], texts[:400], parameters=parameters)
        distances = crossed(method, images[400:], texts[400:])[1]
        recalls.append(recall_at(partner_ranks_ties_by_column(distances), 5))
    assert recalls[1] > recalls[0] + 0.1


def test_random_codes_know_nothing_and_half_their_bits_are_set() -> None:
    images, texts = related(400)
    method = fitted("random", 20, images, texts)
    for distances in crossed(method, images, texts):
        assert recall_at(partner_ranks_ties_by_column(distances), 100) == pytest.approx(0.25, abs=0.08)
    for side in SIDES:
        bits = np.unpackbits(method.training_items(side), axis=1)[:, :20]
        assert bits.mean() == pytest.approx(0.5, abs=0.03)
        assert len(np.unique(bits, axis=0)) > 395


# The contract


@pytest.mark.parametrize(("key", "similarity"), TAUGHT)
def test_the_same_seed_gives_the_same_codes_whatever_the_threads_and_the_batch(
    key: str, similarity: str
) -> None:
    data = classes(200)
    one, two = (fitted(key, 20, *data, seed=3, similarity=similarity, n_jobs=n) for n in (1, 2))
    for side, rows in zip(SIDES, data[:2], strict=True):
        codes = one.queries(side, rows)
        np.testing.assert_array_equal(codes, two.queries(side, rows))
        np.testing.assert_array_equal(codes, one.training_items(side))
        np.testing.assert_array_equal(codes[7:8], one.queries(side, rows[7:8]))
        assert one.queries(side, rows[:0]).shape == (0, 3)


@pytest.mark.parametrize("key", ["cmssh", "qch", "cca-itq", "random"])
def test_another_seed_gives_other_codes(key: str) -> None:
    data = related(300)
    codes = [fitted(key, 24, *data, seed=seed).training_items("image") for seed in (0, 1)]
    assert (codes[0] != codes[1]).any()


@pytest.mark.parametrize(("key", "similarity"), TAUGHT)
def test_arguments_are_not_written_to(key: str, similarity: str) -> None:
    data = classes(120)
    before = [part.copy() for part in data]
    for part in data:
        part.setflags(write=False)
    method = fitted(key, 12, *data, similarity=similarity)
    crossed(method, *data[:2])
    for part, copy in zip(data, before, strict=True):
        np.testing.assert_array_equal(part, copy)


@pytest.mark.parametrize(("key", "similarity"), TAUGHT)
@pytest.mark.parametrize("n_bits", [1, 3, 50])
def test_one_bit_and_more_bits_than_dimensions(key: str, similarity: str, n_bits: int) -> None:
    images, texts, labels = classes(90)
    method = fitted(key, n_bits, images, texts[:, :2], labels, similarity=similarity)
    for side in SIDES:
        codes = method.training_items(side)
        assert codes.shape == (90, -(-n_bits // 8))
        # Nothing is set beyond the last bit.
        assert not np.unpackbits(codes, axis=1)[:, n_bits:].any()
    distances = method.distances("text", method.queries("image", images), method.training_items("text"))
    assert distances.shape == (90, 90)
    assert distances.max() <= n_bits


@pytest.mark.parametrize(("key", "similarity"), TAUGHT)
def test_sparse_texts_are_coded_as_the_same_dense_ones(key: str, similarity: str) -> None:
    pairs = make_pairs(150, 10, 30, n_classes=4, random_state=1)
    labels = np.eye(4)[pairs.labels]
    dense = fitted(key, 6, pairs.images, pairs.texts.toarray(), labels, similarity=similarity)
    thin = fitted(key, 6, pairs.images, pairs.texts, labels, similarity=similarity)
    for side, rows in zip(SIDES, (pairs.images, pairs.texts), strict=True):
        differing = np.bitwise_count(dense.training_items(side) ^ thin.training_items(side)).sum()
        assert differing < 0.02 * 150 * 6  # centred on the fly, rounding falls otherwise
        np.testing.assert_array_equal(thin.queries(side, rows), thin.training_items(side))


def test_two_halves_that_are_known_have_one_code_with_cca_itq() -> None:
    images, texts = related(300)
    method = fitted("cca-itq", 16, images, texts)
    codes = method.pair_items("image", images, texts)
    np.testing.assert_array_equal(codes, method.pair_items("text", images, texts))
    side = np.diag(method.distances("image", method.queries("image", images), method.training_items("text")))
    both = np.diag(method.distances("image", method.queries("image", images), codes))
    assert both.mean() < side.mean()


def test_every_system_declares_the_relations_of_the_papers_table() -> None:
    relations = {
        "cmssh": ("inter-modality",),
        "cvh": ("intra-document", "inter-document"),
        "qch": ("inter-modality",),
    }
    for key, expected in relations.items():
        about = registry.about_method(key)
        assert (about.relations, about.codes, about.coding) == (expected, "separate", "hash")
        assert about.in_paper
    assert registry.about_method("qch").reconstructed


def test_what_cannot_be_done_is_refused() -> None:
    images, texts, labels = classes(60)
    with pytest.raises(NotFitted):
        registry.make_method("cvh", 8).queries("image", images)
    with pytest.raises(InvalidInput, match="labels"):
        fitted("qch", 8, images, texts, similarity="labels")
    with pytest.raises(InvalidInput, match="features"):
        fitted("cmssh", 8, images, texts).queries("image", texts)
    with pytest.raises(InvalidInput, match="equal"):
        fitted("cvh", 8, np.ones((5, 3)), texts[:5])
    with pytest.raises(InvalidInput, match="one text per image"):
        fitted("cca-itq", 8, images, texts).pair_items("image", images, texts[:5])
    wrong = [("cvh", "ridge", 0.0), ("cvh", "beyond_rank", "noise"), ("cmssh", "step", "two")]
    for key, name, value in [*wrong, ("cmssh", "n_pairs", 1), ("qch", "max_iter", -1)]:
        with pytest.raises(InvalidInput, match=name):
            registry.make_method(key, 8, parameters={name: value})


# Similarities


def test_signed_pairs_of_documents_are_balanced_and_right() -> None:
    pairs = draw_signed_pairs(7, 60, np.random.default_rng(0))
    alike = pairs.signs > 0
    assert alike.sum() == (~alike).sum() == 30
    np.testing.assert_array_equal(pairs.left[alike], pairs.right[alike])
    assert np.ptp(np.bincount(pairs.left[alike])) <= 1
    assert (pairs.left[~alike] != pairs.right[~alike]).all()


def test_signed_pairs_of_labels_are_right_and_each_as_likely_as_any_other() -> None:
    labels = np.array([[1, 1, 0], [1, 1, 0], [1, 0, 0], [0, 0, 1], [0, 0, 0]], dtype=bool)
    pairs = draw_signed_pairs(5, 40_000, np.random.default_rng(0), labels)
    shared = (labels[pairs.left] & labels[pairs.right]).any(axis=1)
    np.testing.assert_array_equal(shared, pairs.signs > 0)
    assert pairs.signs.sum() == 0
    counts = np.zeros((5, 5))
    np.add.at(counts, (pairs.left[shared], pairs.right[shared]), 1)
    seen = counts[counts > 0]  # 3 × 3 pairs by the first two labels, and one by the third
    assert len(seen) == 10
    np.testing.assert_allclose(seen, 2000, rtol=0.1)


def test_labels_without_both_kinds_of_pairs_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="share no label"):
        draw_signed_pairs(4, 10, rng, np.ones((4, 1), dtype=bool))
    with pytest.raises(InvalidInput, match="with labels"):
        draw_signed_pairs(4, 10, rng, np.zeros((4, 2), dtype=bool))


def test_products_with_similarities_are_those_of_the_whole_matrix() -> None:
    rng = np.random.default_rng(0)
    labels = rng.random((50, 4)) < 0.4
    unit = labels / np.sqrt(np.maximum(labels.sum(axis=1), 1))[:, None]
    S = 2 * unit @ unit.T - 1
    similarity, values = label_similarity(labels), rng.standard_normal((50, 3))
    np.testing.assert_allclose(similarity.times(values), S @ values, atol=1e-12)
    X, Y = (rng.standard_normal((50, d)).astype(np.float32) for d in (5, 6))
    H = np.eye(50) - 1 / 50
    with Workers(1) as workers:
        sides = DenseRows(X), DenseRows(Y)
        np.testing.assert_allclose(similarity.cross(*sides, workers), X.T @ S @ Y, atol=1e-5)
        centred = similarity.centre().cross(*sides, workers)
        np.testing.assert_allclose(centred, X.T @ H @ S @ H @ Y, atol=1e-5)
    affinity = label_affinity(labels)
    assert linalg.eigvalsh(affinity.factors @ affinity.factors.T)[-1] == pytest.approx(1.0)


def test_related_directions_are_canonical_ones_where_every_document_is_like_itself_alone() -> None:
    sides = [DenseRows((side - side.mean(axis=0)).astype(np.float32)) for side in related(200)]
    with Workers(1) as workers:
        space = canonical_correlation(*sides, 8, 0.01, workers)
        A, B = solve_related_directions(*second_moments(*sides, workers), 8, 0.01)
        found = cvh.stacked_directions(
            second_moments(*sides, workers), (np.zeros((0, 20)), np.zeros((0, 14))), 0.0, 0.01, 8
        )
    # Each pair of directions may be turned round, both together.
    turned = np.sign(np.einsum("dk,dk->k", A, space.image_matrix))
    np.testing.assert_allclose(A * turned, space.image_matrix, atol=1e-10)
    np.testing.assert_allclose(B * turned, space.text_matrix, atol=1e-10)
    for directions, matrix in ((found.A, A), (found.B, B)):
        unit = [m / np.linalg.norm(m, axis=0) for m in (directions, matrix)]
        np.testing.assert_allclose(np.abs(np.einsum("dk,dk->k", *unit)), 1.0, atol=1e-8)


# CMSSH


def pairs_at_hand(n_pairs: int = 300) -> tuple[PairedRows, Any]:
    images, texts = (side - side.mean(axis=0) for side in related(80))
    rng = np.random.default_rng(2)
    pairs = draw_signed_pairs(80, n_pairs, rng)
    weights = rng.random(n_pairs)
    return PairedRows(images, DenseRows(texts.astype(np.float32)), pairs), weights / weights.sum()


def test_leading_directions_are_those_of_the_weighted_sum_of_products() -> None:
    seen, weights = pairs_at_hand()
    signed = (weights * seen.pairs.signs)[:, None]
    C = (signed * seen.images[seen.pairs.left]).T @ seen.texts.dense()[seen.pairs.right]
    left, _, right = linalg.svd(C)
    p, q = cmssh.leading_directions(seen, signed[:, 0])
    assert abs(p @ left[:, 0]) == pytest.approx(1.0, abs=1e-3)
    assert abs(q @ right[0]) == pytest.approx(1.0, abs=1e-3)
    assert p @ C @ q > 0


def agreement(u: Any, v: Any, pairs: SignedPairs, weights: Any) -> float:
    bits = hashing.sign_values(u)[pairs.left] * hashing.sign_values(v)[pairs.right]
    return float(np.sum(weights * pairs.signs * bits))


def test_no_other_threshold_agrees_better_while_the_other_side_keeps_its_own() -> None:
    seen, weights = pairs_at_hand()
    p, q = cmssh.leading_directions(seen, weights * seen.pairs.signs)
    u, v = seen.images @ p, seen.texts.times(q[:, None])[:, 0]
    a, b = cmssh.search_thresholds(u, v, seen.pairs, weights)
    reached = agreement(u + a, v + b, seen.pairs, weights)
    assert reached >= agreement(u, v, seen.pairs, weights)
    assert reached >= max(agreement(u - t, v + b, seen.pairs, weights) for t in np.sort(u)[:-1]) - 1e-12
    assert reached >= max(agreement(u + a, v - t, seen.pairs, weights) for t in np.sort(v)[:-1]) - 1e-12


def test_bits_without_any_difference_are_left_equal() -> None:
    seen, weights = pairs_at_hand()
    a, b = cmssh.search_thresholds(np.zeros(80), np.zeros(80), seen.pairs, weights)
    assert (a, b) == (0.0, 0.0)


# CVH


def test_the_eigenproblem_is_the_sum_of_distances_of_like_documents() -> None:
    images, texts, labels = classes(60)
    X, Y = images - images.mean(axis=0), texts - texts.mean(axis=0)
    share = 0.3
    affinity = label_affinity(labels.astype(bool))
    W = share * affinity.factors @ affinity.factors.T + (1 - share) * np.eye(60)
    moments = X.T @ X, Y.T @ Y, X.T @ Y
    seen = affinity.factors.T @ X, affinity.factors.T @ Y
    left, right = cvh.stacked_problem(moments, seen, share, 0.0)
    vector = np.random.default_rng(0).standard_normal(26)
    u, v = X @ vector[:16], Y @ vector[16:]
    total = sum(np.sum(W * (a[:, None] - b) ** 2) for a, b in ((u, u), (v, v), (u, v)))
    assert 3 * vector @ right @ vector - vector @ left @ vector == pytest.approx(total)


def test_directions_of_one_side_alone_leave_the_bits_of_the_other_equal() -> None:
    images, texts = related(200, (12, 4), rank=3)
    method = fitted("cvh", 16, images, texts)
    bits = np.unpackbits(method.training_items("text"), axis=1)
    assert method.details["n_related"] == 4
    assert (bits[:, :4].std(axis=0) > 0).all()
    assert (bits[:, 4:12].std(axis=0) == 0).all()


# QCH and ITQ


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("weight", [0.0, 0.5, 3.0])
def test_no_step_of_qch_raises_its_objective(labelled: bool, weight: float) -> None:
    rng = np.random.default_rng(4)
    similarity: Any = PairSimilarity()
    if labelled:
        similarity = label_affinity(rng.random((60, 5)) < 0.4).centre()
    for n_bits in (5, 12):
        U, V = rng.standard_normal((2, 60, 5))
        P, Q = hashing.sign_values(rng.standard_normal((2, 60, n_bits)))
        R, T = (hashing.random_rotation(5, n_bits, rng) for _ in range(2))
        state = qch.State(U, V, P, Q, R, T)
        values = [qch.objective(state, similarity, weight)]
        for _ in range(6):
            state = qch.update_codes(state, similarity, weight)
            values.append(qch.objective(state, similarity, weight))
            state = qch.update_rotations(state)
            values.append(qch.objective(state, similarity, weight))
        assert (np.diff(values) <= 1e-12).all()
        assert values[-1] < values[0]


@pytest.mark.parametrize("similarity", ["pairs", "labels"])
def test_the_kept_objective_of_qch_never_rises(similarity: str) -> None:
    history = fitted("qch", 16, *classes(300), similarity=similarity).details["objective"]
    assert len(history) > 2
    assert (np.diff(history) <= 1e-12).all()


@pytest.mark.parametrize("n_bits", [6, 9, 20])
def test_no_round_of_iterative_quantization_raises_the_error(n_bits: int) -> None:
    values = np.random.default_rng(0).standard_normal((200, 6)) * np.arange(1, 7)
    values /= np.sqrt((values**2).sum() / (200 * n_bits))
    errors = []
    for rounds in range(12):
        R = hashing.learn_rotation(values, n_bits, np.random.default_rng(1), rounds)
        np.testing.assert_allclose(R @ R.T, np.eye(6), atol=1e-12)
        errors.append(hashing.quantization_error(values, R))
    assert (np.diff(errors) <= 1e-12).all()
    assert errors[-1] < 0.97 * errors[0]


def test_more_dimensions_than_bits_are_refused_by_iterative_quantization() -> None:
    with pytest.raises(InvalidInput, match="at most 2"):
        hashing.learn_rotation(np.ones((4, 3)), 2, np.random.default_rng(0))


def test_similarities_of_some_documents_are_those_of_all() -> None:
    similarity = LowRankSimilarity(np.arange(12.0).reshape(4, 3), np.array([1.0, 2.0, -1.0]))
    whole, rows = similarity.times(np.eye(4)), np.array([1, 3])
    np.testing.assert_array_equal(similarity.take(rows).times(np.eye(2)), whole[np.ix_(rows, rows)])


def test_rows_are_coded_the_same_however_they_are_stored() -> None:
    images, texts = related(40)
    method = fitted("random", 12, images, texts)
    np.testing.assert_array_equal(
        method.queries("text", sparse.csr_array(texts)), method.queries("text", np.asfortranarray(texts))
    )
