"""The paper's common space: every block update is optimal, and none raises the objective."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import CentredSparseRows, DenseRows
from crossbyte.model.space import sparse as mapping
from crossbyte.model.space.sparse import SparseState, SparseWeights, Targets, optimality_gap
from support import oracles

N, ATOMS, DIMS = 150, 24, 8


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as entered:
        yield entered


class Setting:
    """A small problem: prepared sides, weights, a state on its way, and targets or none."""

    def __init__(self, seed: int, weights: SparseWeights, tied: bool, workers: Workers) -> None:
        rng = np.random.default_rng(seed)
        images, texts = oracles.paired_rows(rng, N, (12, 10))
        self.X, self.Y, self.weights, self.workers = DenseRows(images), DenseRows(texts), weights, workers
        self.state = mapping.initial_state(self.X, self.Y, ATOMS, DIMS, weights, rng, workers)
        self.targets = None
        if tied:
            near = [points + 0.1 * rng.standard_normal(points.shape) for points in self.state.points]
            self.targets = Targets(*(points.astype(np.float32) for points in near))

    def update(self, letter: str) -> SparseState:
        """The state after one block update."""
        state, targets, weights, workers = self.state, self.targets, self.weights, self.workers
        if letter == "Y'":
            return mapping.update_text_points(state, self.Y, targets, weights, workers)
        if letter == "S":
            return mapping.update_sparse_codes(state, self.X, targets, weights, workers)
        if letter == "U":
            return mapping.update_text_basis(state, self.Y, workers)
        if letter == "B":
            return mapping.update_image_dictionary(state, self.X, workers)
        return mapping.update_image_map(state, targets, weights, workers)

    def objective(self, state: SparseState) -> float:
        """The mapping's terms and the ties to the targets, as the paper writes them."""
        S, Yp = state.S.toarray().astype(float), state.text_points.astype(float)
        Xp = S @ state.R
        rho, eta, lam, _ = self.weights
        value = ((self.X.values - S @ state.B) ** 2).sum() + rho * np.abs(S).sum()
        value += eta * ((self.Y.values - Yp @ state.U) ** 2).sum() + lam * ((Yp - Xp) ** 2).sum()
        if self.targets is not None:
            value += ((Xp - self.targets.images) ** 2).sum() + ((Yp - self.targets.texts) ** 2).sum()
        return float(value)


WEIGHTS = [
    SparseWeights(),
    SparseWeights(alignment=0.0),
    SparseWeights(sparsity=0.7, text_weight=5.0, alignment=5.0),
]
LETTERS = ["Y'", "S", "U", "B", "R"]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_no_update_raises_the_objective(
    weights: SparseWeights, tied: bool, seed: int, workers: Workers
) -> None:
    setting = Setting(seed, weights, tied, workers)
    value = first = setting.objective(setting.state)
    for letter in LETTERS * 4:
        setting.state = setting.update(letter)
        new = setting.objective(setting.state)
        assert new <= value * (1 + 1e-8), letter
        value = new
    assert value < 0.9 * first


@pytest.mark.parametrize("letter", LETTERS)
def test_an_update_changes_its_own_block_only(letter: str, workers: Workers) -> None:
    setting = Setting(0, WEIGHTS[0], True, workers)
    new = setting.update(letter)
    own = "text_points" if letter == "Y'" else letter
    for name in ("B", "U", "R", "S", "text_points"):  # the rest follows from these
        assert (getattr(setting.state, name) is getattr(new, name)) == (name != own), name
    np.testing.assert_allclose(new.image_points, new.S.toarray() @ new.R, atol=1e-6)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_text_points_have_no_gradient(weights: SparseWeights, tied: bool, workers: Workers) -> None:
    setting = Setting(1, weights, tied, workers)
    state = setting.update("Y'")
    Yp, U = state.text_points.astype(float), state.U
    gradient = weights.text_weight * (Yp @ U - setting.Y.values) @ U.T
    gradient += weights.alignment * (Yp - state.image_points)
    if setting.targets is not None:
        gradient += Yp - setting.targets.texts
    np.testing.assert_allclose(gradient, 0.0, atol=2e-6)


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("weights", WEIGHTS)
def test_sparse_codes_meet_their_conditions(weights: SparseWeights, tied: bool, workers: Workers) -> None:
    setting = Setting(2, weights, tied, workers)
    state, lam, old = setting.update("S"), weights.alignment, setting.state
    gram = old.B @ old.B.T + (lam + tied) * old.R @ old.R.T
    wish = lam * old.text_points.astype(float)
    if setting.targets is not None:
        wish = wish + setting.targets.images
    products = setting.X.values @ old.B.T + wish @ old.R.T
    z = weights.sparsity / 2
    for q, row in zip(products, state.S.toarray(), strict=True):
        assert oracles.lasso_violation(gram, q, row, z) <= 1e-3 * z
    np.testing.assert_allclose(state.image_points, state.S.toarray() @ old.R, atol=1e-6)


def test_ratio_mode_measures_the_penalty_by_the_row(workers: Workers) -> None:
    setting = Setting(3, SparseWeights(ratio=True), True, workers)
    old, state = setting.state, setting.update("S")
    gram = old.B @ old.B.T + 1.7 * old.R @ old.R.T
    products = setting.X.values @ old.B.T + (setting.targets.images + 0.7 * old.text_points) @ old.R.T
    for q, row in zip(products, state.S.toarray(), strict=True):
        z = 0.3 * float(np.abs(q).max())
        assert oracles.lasso_violation(gram, q, row, z) <= 1e-3 * z


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("letter", ["U", "B", "R"])
def test_dictionaries_meet_their_conditions(letter: str, tied: bool, workers: Workers) -> None:
    setting = Setting(4, WEIGHTS[0], tied, workers)
    old, state = setting.state, setting.update(letter)
    S, wish = old.S.toarray().astype(float), 0.7 * old.text_points.astype(float)
    if setting.targets is not None:
        wish = wish + setting.targets.images
    factors = {"U": old.text_points.astype(float), "B": S, "R": S}[letter]
    target = {"U": setting.Y.values, "B": setting.X.values, "R": wish / (0.7 + tied)}[letter]
    W = getattr(state, letter)
    assert optimality_gap(factors.T @ factors, factors.T @ target, W) <= 1e-6
    assert np.linalg.norm(W, axis=1).max() <= 1 + 1e-9


def test_nothing_ties_the_image_map_before_the_quantizers_without_alignment(workers: Workers) -> None:
    setting = Setting(5, SparseWeights(alignment=0.0), False, workers)
    assert setting.update("R") is setting.state


def test_the_start_is_what_it_says(workers: Workers) -> None:
    setting = Setting(6, WEIGHTS[0], False, workers)
    state = setting.state
    for rows in (state.B, state.R):
        np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1.0)
    for row, code in zip(setting.X.values, state.S.toarray(), strict=True):
        best = oracles.lasso_objective(state.B, row, oracles.lasso(state.B, row, 0.15), 0.15)
        assert oracles.lasso_objective(state.B, row, code, 0.15) <= best + 1e-6
    np.testing.assert_allclose(state.text_points, setting.Y.values @ np.linalg.pinv(state.U), atol=1e-5)


@pytest.mark.parametrize(("rank", "n_dims"), [(9, 16), (4, 8), (12, 6)])
def test_the_text_basis_starts_tight_and_inside_the_span_of_the_texts(
    rank: int, n_dims: int, rng: np.random.Generator, workers: Workers
) -> None:
    texts = rng.standard_normal((80, rank)) @ rng.standard_normal((rank, 12))
    Y = DenseRows(oracles.unit_rows(texts).astype(np.float32))
    X = DenseRows(oracles.unit_rows(rng.standard_normal((80, 10))).astype(np.float32))
    U = mapping.initial_state(X, Y, 16, n_dims, SparseWeights(), rng, workers).U
    span = np.linalg.svd(Y.values.astype(float), full_matrices=False)[2][:rank]
    np.testing.assert_allclose(U @ span.T @ span, U, atol=1e-5)
    values = np.linalg.svd(U, compute_uv=False)
    used = values[: min(rank, n_dims)]
    np.testing.assert_allclose(used, used[0], rtol=1e-9)  # tight: all directions count the same
    np.testing.assert_allclose(values[min(rank, n_dims) :], 0.0, atol=1e-9)
    assert np.linalg.norm(U, axis=1).max() == pytest.approx(1.0)


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8)])
def test_the_minimum_norm_map(shape: tuple[int, int], rng: np.random.Generator) -> None:
    U = rng.standard_normal((shape[0], 5)) @ rng.standard_normal((5, shape[1]))  # rank 5
    texts = rng.standard_normal((20, shape[1]))
    points = texts @ mapping.minimum_norm_map(U)
    expected = np.linalg.lstsq(U.T, texts.T, rcond=1e-6)[0].T
    np.testing.assert_allclose(points, expected, atol=1e-8)
    np.testing.assert_allclose((texts - points @ U) @ U.T, 0.0, atol=1e-8)  # nothing left to explain
    missing = np.linalg.svd(U.T)[2][5:]  # directions of y' that explain nothing
    np.testing.assert_allclose(points @ missing.T, 0.0, atol=1e-8)


def test_the_minimum_norm_map_ignores_directions_that_are_noise(rng: np.random.Generator) -> None:
    left, _ = np.linalg.qr(rng.standard_normal((8, 8)))
    U = left @ np.diag([1, 1, 1, 1, 1e-5, 1e-5, 0, 0]) @ np.eye(8)
    solve = mapping.minimum_norm_map(U)
    assert np.linalg.norm(solve, 2) < 1.1


@pytest.mark.parametrize("weights", WEIGHTS)
def test_folding_in_is_the_limit_of_the_alternation(weights: SparseWeights, workers: Workers) -> None:
    setting = Setting(8, weights, False, workers)
    for letter in LETTERS * 2:
        setting.state = setting.update(letter)
    B, U, R = setting.state.B, setting.state.U, setting.state.R
    found = mapping.fold_in(B, U, R, setting.X, setting.Y, weights, workers).points
    for _ in range(200):
        setting.state = setting.update("S")
        setting.state = setting.update("Y'")
    np.testing.assert_allclose(found[0], setting.state.image_points, atol=5e-4)
    np.testing.assert_allclose(found[1], setting.state.text_points, atol=5e-4)


def test_folding_in_one_pair_is_folding_it_in_among_others(workers: Workers) -> None:
    setting = Setting(9, WEIGHTS[0], False, workers)
    B, U, R = setting.state.B, setting.state.U, setting.state.R
    together = mapping.fold_in(B, U, R, setting.X, setting.Y, WEIGHTS[0], workers).points
    one = slice(17, 18)
    alone = mapping.fold_in(B, U, R, setting.X[one], setting.Y[one], WEIGHTS[0], workers).points
    for a, b in zip(together, alone, strict=True):
        np.testing.assert_allclose(a[one], b, atol=1e-4)


def test_sparse_texts_give_the_updates_of_dense_ones(rng: np.random.Generator, workers: Workers) -> None:
    values = sparse.random(N, 10, density=0.4, format="csr", dtype=np.float32, random_state=5)
    mean = np.asarray(values.mean(axis=0)).ravel().astype(float)
    lengths = np.linalg.norm(values.toarray() - mean, axis=1)
    thin = CentredSparseRows(values, mean, 1 / lengths)
    setting = Setting(10, WEIGHTS[0], True, workers)
    found: list[Any] = []
    for texts in (thin, DenseRows(thin.dense())):
        setting.Y = texts
        found.append((setting.update("Y'").text_points, setting.update("U").U))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-5)
