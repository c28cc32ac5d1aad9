"""Canonical correlation against an eigenvalue problem, and its contrastive refinement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from sklearn.cross_decomposition import CCA

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.errors import InvalidInput
from crossbyte.model.space import cca
from crossbyte.model.space.cca import LinearSpace, canonical_correlation, project_rows
from crossbyte.model.space.contrastive import ContrastiveSettings, contrastive_loss, refine_contrastively
from support import oracles


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as entered:
        yield entered


def _sides(seed: int, n: int = 300, dims: tuple[int, int] = (10, 8)) -> tuple[DenseRows, DenseRows]:
    """Two sides, centred exactly, so that correlations are those of the textbooks."""
    X, Y = oracles.paired_rows(np.random.default_rng(seed), n, dims, n_shared=3)
    return DenseRows(X - X.mean(axis=0)), DenseRows(Y - Y.mean(axis=0))


def _raw_points(X: DenseRows, Y: DenseRows, space: LinearSpace) -> tuple[Any, Any]:
    return X.values.astype(float) @ space.image_matrix, Y.values.astype(float) @ space.text_matrix


@pytest.mark.parametrize("ridge", [1e-9, 0.1, 1.0])
def test_dimensions_are_weighted_by_the_right_correlations(ridge: float, workers: Workers) -> None:
    X, Y = _sides(0)
    space = canonical_correlation(X, Y, 8, ridge, workers)
    expected = oracles.canonical_correlations(X.values.astype(float), Y.values.astype(float), ridge)[:8]
    x, y = _raw_points(X, Y, space)
    # a' Cxy b = correlation for whitened a, b; both points carry the correlation as a factor
    np.testing.assert_allclose((x * y).sum(axis=0), expected**3, atol=1e-5)
    off_diagonal = x.T @ y - np.diag((x * y).sum(axis=0))
    np.testing.assert_allclose(off_diagonal, 0.0, atol=1e-6)


def test_without_ridge_it_is_scikit_learns_cca(workers: Workers) -> None:
    X, Y = _sides(1)
    x, y = _raw_points(X, Y, canonical_correlation(X, Y, 3, 1e-10, workers))
    model = CCA(n_components=3, scale=False, tol=1e-10, max_iter=5000)
    theirs, _ = model.fit_transform(X.values.astype(float), Y.values.astype(float))
    for ours, other in zip(x.T, theirs.T, strict=True):
        assert abs(np.corrcoef(ours, other)[0, 1]) == pytest.approx(1.0, abs=1e-4)
    for ours, other in zip(x.T, y.T, strict=True):
        assert np.corrcoef(ours, other)[0, 1] > 0  # partners point the same way


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_dimensions_stop_at_the_rank(ridge: float, rng: np.random.Generator, workers: Workers) -> None:
    thin = rng.standard_normal((200, 3)) @ rng.standard_normal((3, 12))
    thin = (thin - thin.mean(axis=0)).astype(np.float32)
    X, _ = _sides(2, n=200)
    space = canonical_correlation(X, DenseRows(thin), 32, ridge, workers)
    assert space.n_dims <= 10 and np.isfinite(space.image_matrix).all()
    points = space.transform_texts(DenseRows(thin), workers)
    assert np.linalg.matrix_rank(points.astype(float), tol=1e-2) <= 3


def test_points_have_unit_length_and_zero_rows_stay(workers: Workers) -> None:
    X, Y = _sides(3)
    space = canonical_correlation(X, Y, 5, 0.1, workers)
    X.values[4] = 0.0
    points = space.transform_images(X, workers)
    assert points.dtype == np.float32 and points.shape == (300, 5)
    np.testing.assert_allclose(np.delete(np.linalg.norm(points, axis=1), 4), 1.0, atol=1e-6)
    assert not points[4].any()
    for a, b in zip(
        space.fold_in(X, Y, workers),
        (points, space.transform_texts(Y, workers)),
        strict=True,
    ):
        np.testing.assert_array_equal(a, b)


def test_the_same_pairs_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbyte.compute.executor.BLOCK_ROWS", 64)
    found = []
    for n_jobs in (1, 2):
        with Workers(n_jobs) as workers:
            space = canonical_correlation(*_sides(4), 6, 0.1, workers)
            found.append(space.image_matrix.tobytes() + space.text_matrix.tobytes())
    assert found[0] == found[1]


def test_signs_do_not_depend_on_the_solver(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> None:
    X, Y = _sides(5)
    first = canonical_correlation(X, Y, 6, 0.1, workers)
    original = cca.linalg.svd

    def flipped(*arguments: Any, **options: Any) -> Any:
        A, values, Bt = original(*arguments, **options)
        signs = np.where(np.arange(len(values)) % 2, -1.0, 1.0)
        return A * signs, values, Bt * signs[:, None]

    monkeypatch.setattr(cca.linalg, "svd", flipped)
    second = canonical_correlation(X, Y, 6, 0.1, workers)
    np.testing.assert_array_equal(first.image_matrix, second.image_matrix)
    np.testing.assert_array_equal(first.text_matrix, second.text_matrix)


def test_sides_too_wide_are_refused(monkeypatch: pytest.MonkeyPatch, workers: Workers) -> None:
    X, Y = _sides(7)
    monkeypatch.setattr(cca, "MAX_GRAM_DIMS", 9)
    with pytest.raises(InvalidInput, match="image_components=512"):
        canonical_correlation(X, Y, 3, 0.1, workers)


def test_place_without_unit_length_is_a_product(rng: np.random.Generator, workers: Workers) -> None:
    X, _ = _sides(8)
    matrix = rng.standard_normal((10, 4))
    np.testing.assert_allclose(project_rows(X, matrix, workers), X.values @ matrix, atol=1e-6)


# --- contrastive ------------------------------------------------------------------------------------------


def _naive_loss(images: Any, texts: Any, temperature: float, groups: Any = None) -> float:
    x, y = oracles.unit_rows(images), oracles.unit_rows(texts)
    total = 0.0
    for i in range(len(x)):
        rivals = [j for j in range(len(x)) if j == i or groups is None or groups[i] != groups[j]]
        forward = np.exp([x[i] @ y[j] / temperature for j in rivals])
        backward = np.exp([x[j] @ y[i] / temperature for j in rivals])
        own = np.exp(x[i] @ y[i] / temperature)
        total -= np.log(own / forward.sum()) / 2 + np.log(own / backward.sum()) / 2
    return float(total / len(x))


@pytest.mark.parametrize("grouped", [False, True])
def test_loss_and_gradient(grouped: bool, rng: np.random.Generator) -> None:
    images, texts = rng.standard_normal((12, 5)), rng.standard_normal((12, 5))
    groups = np.repeat(np.arange(4), 3) if grouped else None
    loss = contrastive_loss(images, texts, 0.3, groups)
    assert loss.value == pytest.approx(_naive_loss(images, texts, 0.3, groups), rel=1e-9)
    for _ in range(3):
        direction = rng.standard_normal((12, 5))
        by_images = oracles.slope_along(
            lambda at: _naive_loss(at, texts, 0.3, groups), images, direction, 1e-5
        )
        by_texts = oracles.slope_along(
            lambda at: _naive_loss(images, at, 0.3, groups), texts, direction, 1e-5
        )
        assert np.vdot(loss.by_images, direction) == pytest.approx(by_images, rel=1e-5, abs=1e-8)
        assert np.vdot(loss.by_texts, direction) == pytest.approx(by_texts, rel=1e-5, abs=1e-8)


def test_pairs_of_one_group_are_no_rivals(rng: np.random.Generator) -> None:
    images, texts = rng.standard_normal((6, 4)), rng.standard_normal((6, 4))
    assert contrastive_loss(images, texts, 0.1, np.zeros(6, dtype=int)).value == pytest.approx(0.0, abs=1e-9)


def test_a_row_of_zeros_has_no_gradient(rng: np.random.Generator) -> None:
    images, texts = rng.standard_normal((6, 4)), rng.standard_normal((6, 4))
    images[2] = 0.0
    loss = contrastive_loss(images, texts, 0.1)
    assert np.isfinite(loss.value) and not loss.by_images[2].any() and np.isfinite(loss.by_texts).all()


@pytest.mark.parametrize("grouped", [False, True])
def test_refinement_lowers_the_training_loss(grouped: bool, workers: Workers) -> None:
    X, Y = _sides(9)
    groups = np.arange(300) // 3 if grouped else None
    start = canonical_correlation(X, Y, 6, 0.1, workers)
    settings = ContrastiveSettings(n_steps=60, batch=128)
    refined = refine_contrastively(start, X, Y, np.random.default_rng(0), groups, settings)
    values = [
        contrastive_loss(
            space.transform_images(X, workers), space.transform_texts(Y, workers), 0.1, groups
        ).value
        for space in (start, refined)
    ]
    assert values[1] < values[0]


def test_refinement_is_a_function_of_the_seed(workers: Workers) -> None:
    X, Y = _sides(10)
    start = canonical_correlation(X, Y, 6, 0.1, workers)
    settings = ContrastiveSettings(n_steps=5, batch=64)
    found = [
        refine_contrastively(start, X, Y, np.random.default_rng(seed), None, settings).image_matrix.tobytes()
        for seed in (0, 0, 1)
    ]
    assert found[0] == found[1] != found[2]
