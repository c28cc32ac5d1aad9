"""CRH: the deviation, its convex parts, the bound and its slopes; no turn ever raises the objective."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import optimize, sparse

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import CentredSparseRows, DenseRows
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import crh
from crossbyte.lab.methods.crh import DirectionProblem, ScaledSide, Tangents, convex_slope, deviation
from crossbyte.lab.methods.hashing import sign_values
from crossbyte.lab.methods.labels import draw_signed_pairs
from crossbyte.lab.methods.registry import make_method
from crossbyte.lab.methods.regression import take_paired_rows, uniform_weights

A, L = 3.7, 1.0 / 3.7


def documents(n: int = 150, n_classes: int = 4) -> tuple[Any, Any, Any]:
    """Images and texts around the centres of their classes."""
    rng = np.random.default_rng(0)
    labels = np.eye(n_classes, dtype=np.uint8)[np.arange(n) % n_classes]
    images, texts = (
        labels @ rng.standard_normal((n_classes, d)) + 0.7 * rng.standard_normal((n, d)) for d in (9, 7)
    )
    return images, texts, labels


def halves(n_pairs: int = 200) -> tuple[Any, crh.ScaledSides]:
    images, texts, labels = documents()
    rows = [DenseRows((side - side.mean(axis=0)).astype(np.float32)) for side in (images, texts)]
    seen = take_paired_rows(
        *rows, draw_signed_pairs(150, n_pairs, np.random.default_rng(1), labels.astype(bool))
    )
    with Workers(1) as workers:
        image_half = ScaledSide.of(DenseRows(seen.images), seen.pairs.left, workers)
        return seen, (image_half, ScaledSide.of(seen.texts, seen.pairs.right, workers))


def problem(weight: float = 10.0, size: float = 1.0, n_pairs: int = 200) -> tuple[DirectionProblem, Any]:
    """Images to be turned, texts with values of some size; a direction beside it."""
    seen, both = halves(n_pairs)
    rng = np.random.default_rng(2)
    u, v = (size * rng.standard_normal(half.rows.shape[1]) for half in both)
    weights = uniform_weights(seen.pairs)
    return DirectionProblem(both[0], both[1].at_pairs(v), seen.pairs.signs > 0, weights, weight, 0.01), u


def tangents_of(given: DirectionProblem, w: Any) -> Tangents:
    z = given.half.values(w)
    return Tangents(sign_values(z), z[given.half.at] - given.others)


def all_of(given: DirectionProblem) -> tuple[Any, Any]:
    """Every row and every pair once: with equal weights, nothing is left to chance."""
    return np.arange(given.half.rows.shape[0]), np.arange(len(given.weights))


def convex_part(d: float) -> float:
    """τ₁ as it is written down: three cases."""
    if abs(d) <= L:
        return 0.0
    if abs(d) <= A * L:
        return (A * d * d - 2 * A * L * abs(d) + A * L * L) / (2 * (A - 1))
    return d * d / 2 - A * L * L / 2


def bound(given: DirectionProblem, w: Any, at: Any) -> float:
    """The objective with tangents at ``at`` for its concave parts, row by row and pair by pair."""
    rows = given.half.scale * given.half.rows.dense().astype(np.float64)
    total = given.shrinkage / 2 * w @ w
    for x in rows:
        z, z0 = x @ w, x @ at
        total += (max(1.0, abs(z)) - (1.0 if z0 > 0 else -1.0) * z) / len(rows)
    for x, other, alike, weight in zip(
        rows[given.half.at], given.others, given.alike, given.weights, strict=True
    ):
        d, d0 = x @ w - other, x @ at - other
        tangent = (d0 * d0 - A * L * L) / 2 + d0 * (d - d0)
        total += given.similarity_weight * weight * (d * d if alike else convex_part(d) - tangent)
    return float(total)


# The deviation


def test_the_deviation_is_continuous_with_its_slope_and_ends_at_one() -> None:
    at = np.array([0.0, L, A * L])
    for each in (at, -at):
        np.testing.assert_allclose(deviation(each - 1e-9), deviation(each + 1e-9), atol=1e-8)
        before, after = ((deviation(each + h) - deviation(each + h - 1e-6)) / 1e-6 for h in (0.0, 1e-6))
        np.testing.assert_allclose(before, after, atol=1e-5)
    assert deviation(np.zeros(1))[0] == pytest.approx(A * L**2 / 2)
    d = np.linspace(-3, 3, 601)
    assert (np.diff(deviation(d[d >= 0])) <= 0).all() and (deviation(d[np.abs(d) >= 1.0]) == 0).all()
    np.testing.assert_array_equal(deviation(d), deviation(-d))


def test_the_deviation_is_the_difference_of_two_convex_functions() -> None:
    d = np.linspace(-2.5, 2.5, 1001)
    first = np.array([convex_part(each) for each in d])
    np.testing.assert_allclose(deviation(d), first - (d**2 - A * L**2) / 2, atol=1e-12)
    assert (np.diff(first, 2) >= -1e-12).all()
    numeric = [(convex_part(each + 1e-6) - convex_part(each - 1e-6)) / 2e-6 for each in d]
    np.testing.assert_allclose(convex_slope(d), numeric, atol=1e-5)


# The bound


@pytest.mark.parametrize("size", [0.3, 3.0])
def test_the_bound_lies_above_the_objective_and_touches_it(size: float) -> None:
    given, at = problem(size=size, n_pairs=60)
    assert bound(given, at, at) == pytest.approx(given.objective(at))
    rng = np.random.default_rng(3)
    for _ in range(20):
        w = at + rng.standard_normal(len(at)) * rng.choice([0.1, 1.0, 5.0])
        assert bound(given, w, at) >= given.objective(w) - 1e-10


@pytest.mark.parametrize("size", [0.3, 3.0])
def test_the_subgradient_is_that_of_differences(size: float) -> None:
    given, at = problem(size=size, n_pairs=60)
    rng = np.random.default_rng(4)
    for w in (at, at + rng.standard_normal(len(at))):
        numeric = optimize.approx_fprime(w, lambda v: bound(given, v, at), 1e-7)
        found = given.subgradient(w, tangents_of(given, at), *all_of(given))
        np.testing.assert_allclose(found, numeric, atol=1e-4 * np.abs(numeric).max())


def test_batches_by_weight_are_right_in_the_mean() -> None:
    given, w = problem(n_pairs=20)
    counts = np.random.default_rng(0).integers(0, 4, size=20)
    given = given._replace(weights=counts / counts.sum())
    repeated = np.repeat(np.arange(20), counts)  # what drawing by weight gives in the mean
    numeric = optimize.approx_fprime(w, lambda v: bound(given, v, w), 1e-7)
    found = given.subgradient(w, tangents_of(given, w), all_of(given)[0], repeated)
    np.testing.assert_allclose(found, numeric, atol=1e-4 * np.abs(numeric).max())


# Turns


@pytest.mark.parametrize("weight", [1.0, 10.0, 1000.0])
def test_a_minimum_of_the_bound_never_raises_the_objective(weight: float) -> None:
    given, w = problem(weight, n_pairs=40)
    for _ in range(3):
        solved = optimize.minimize(lambda v, at=w: bound(given, v, at), w, method="Powell", tol=1e-3).x
        assert bound(given, solved, w) <= bound(given, w, w)
        assert given.objective(solved) <= given.objective(w) + 1e-9
        w = solved


@pytest.mark.parametrize("weight", [1.0, 10.0, 1000.0])
def test_no_turn_raises_the_objective_and_whole_batches_lower_it(weight: float) -> None:
    given, w = problem(weight)
    rng = np.random.default_rng(5)
    few, whole = [w], [w]
    for _ in range(10):
        rows, pairs = rng.integers(given.half.rows.shape[0], size=(20, 10)), rng.integers(200, size=(20, 10))
        few.append(given.turn(few[-1], rows, pairs))
        whole.append(given.turn(whole[-1], *(np.tile(each, (20, 1)) for each in all_of(given))))
    for path in (few, whole):
        assert (np.diff([given.objective(each) for each in path]) <= 0).all()
    assert given.objective(whole[-1]) < given.objective(w)
    assert given.objective(few[-1]) < given.objective(w)


def test_a_turn_that_would_raise_the_objective_is_refused() -> None:
    given, w = problem(1000.0)
    too_steep = given._replace(half=given.half._replace(curvature=1e-9))  # steps as long as Pegasos' own
    rows, pairs = (np.tile(each, (3, 1)) for each in all_of(given))
    assert too_steep.turn(w, rows, pairs) is w


def test_rows_are_scaled_to_unit_length_in_the_mean_dense_or_sparse() -> None:
    rng = np.random.default_rng(6)
    values = sparse.random(50, 8, 0.4, format="csr", dtype=np.float32, random_state=rng)
    mean = np.asarray(values.mean(axis=0), dtype=np.float64).ravel()
    thin = CentredSparseRows(values, mean, np.ones(50))
    dense = (values.toarray() - mean).astype(np.float32)
    w, at = rng.standard_normal(8), rng.integers(50, size=30)
    for rows in (thin, DenseRows(dense)):
        with Workers(1) as workers:
            half = ScaledSide.of(rows, at, workers)
        scaled = half.scale * dense
        assert np.mean(np.sum(scaled**2, axis=1)) == pytest.approx(1.0, rel=1e-5)
        assert half.curvature == pytest.approx(np.linalg.eigvalsh(scaled.T @ scaled / 50)[-1], rel=1e-4)
        np.testing.assert_allclose(half.at_pairs(w), scaled[at] @ w, atol=1e-5)


# The system


def test_a_bit_starts_from_related_directions_and_all_turns_together_lower_the_objective() -> None:
    seen, both = halves()
    weights = uniform_weights(seen.pairs)
    u, v = crh.initial_directions(seen, both, weights)
    assert [half.values(w).std() for half, w in zip(both, (u, v), strict=True)] == pytest.approx([1.0, 1.0])
    model = make_method("crh", 1, parameters={"n_rounds": 4})
    lowered = model._lower_objective([u, v], seen, both, weights, np.random.default_rng(0))

    def objective(bit: Any) -> float:
        sides = [
            DirectionProblem(
                both[this], both[1 - this].at_pairs(bit[1 - this]), seen.pairs.signs > 0, weights, 10.0, 0.01
            )
            for this in (0, 1)
        ]
        # The pairs count in both parts, so they are taken off once.
        between = sides[1]._replace(weights=np.zeros_like(weights))
        return sides[0].objective(bit[0]) + between.objective(bit[1])

    assert objective(lowered) < objective([u, v])


def test_after_a_bit_no_better_than_chance_all_pairs_weigh_the_same_again() -> None:
    pairs = halves(4)[0].pairs
    weights = np.array([0.5, 0.25, 0.125, 0.125])
    for agreeing in ([-1.0, -1.0, 1.0, 1.0], [1.0, -1.0, -1.0, -1.0]):
        np.testing.assert_array_equal(
            crh.update_weights_or_reset(pairs, weights, np.array(agreeing)), np.full(4, 0.25)
        )
    better = np.array([1.0, 1.0, -1.0, -1.0])
    lifted = crh.update_weights_or_reset(pairs, weights, better)
    assert lifted @ better == pytest.approx(0.0) and lifted.sum() == pytest.approx(1.0)
    assert (lifted[2:] > weights[2:]).all() and (lifted[:2] < weights[:2]).all()


def test_boosting_goes_on_from_equal_weights_after_a_bad_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, both = halves()
    model, met = make_method("crh", 5), []

    def lowered(self: Any, bit: Any, seen: Any, halves: Any, weights: Any, rng: Any) -> Any:
        met.append(weights)
        return [bit[0], -bit[1]] if len(met) == 3 else bit  # the third bit says the opposite

    monkeypatch.setattr(crh.CRH, "_lower_objective", lowered)
    model._boost_bits(seen, both, np.random.default_rng(0))
    signs = np.sign(model.details["agreements"])
    np.testing.assert_array_equal(signs[:4], [1, 1, -1, 1])
    assert [each.std() > 1e-12 for each in met] == [False, True, True, False, True]


@pytest.mark.parametrize("similarity", ["pairs", "labels"])
def test_unseen_documents_of_the_same_class_are_found(similarity: str) -> None:
    images, texts, labels = documents(450)
    new, same = slice(300, None), labels[300:] @ labels[300:].T > 0
    parameters = {"n_pairs": 3000, "n_rounds": 3}
    model = make_method("crh", 12, similarity=similarity, parameters=parameters)
    model.fit(images[:300], texts[:300], labels[:300])
    rows = {"image": images[new], "text": texts[new]}
    for asks, searched in (("image", "text"), ("text", "image")):
        items = model.side_items(searched, rows[searched])
        found = model.distances(searched, model.queries(asks, rows[asks]), items)
        first = np.argsort(found, axis=1, kind="stable")[:, :10]
        assert np.take_along_axis(same, first, axis=1).mean() > 0.5  # chance is 0.25


def test_a_bit_agrees_with_the_pairs_and_the_seed_decides() -> None:
    data = documents()
    models = [make_method("crh", 6, seed=seed, parameters={"n_pairs": 400}).fit(*data) for seed in (0, 0, 1)]
    agreements = [model.details["agreements"] for model in models]
    assert agreements[0] == agreements[1] != agreements[2]
    assert agreements[0][0] > 0.3 and len(agreements[0]) == 6


def test_it_says_how_many_images_and_texts_occur_in_the_pairs() -> None:
    data = documents()
    for n_pairs, expected in ((400, (150, 150)), (2, (2, 2))):
        assert make_method("crh", 2, parameters={"n_pairs": n_pairs}).fit(*data).details["n_rows"] == expected


@pytest.mark.parametrize(
    "wrong",
    [
        {"similarity_weight": 0.0},
        {"shrinkage": 0.0},
        {"n_pairs": 1},
        {"n_rounds": 0},
        {"n_steps": 0},
        {"batch_size": 0},
    ],
)
def test_parameters_are_judged(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput, match=next(iter(wrong))):
        make_method("crh", 16, parameters=wrong)
