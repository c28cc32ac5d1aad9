"""Graphs of neighbours and regressed bits: against twins that look at one row at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import CentredSparseRows, DenseRows
from crossbyte.lab.methods.hashing import LinearBits
from crossbyte.lab.methods.neighbours import laplacian, nearest_neighbours, neighbour_graph
from crossbyte.lab.methods.regression import (
    AnchorFeatures,
    KernelBits,
    cut_at_medians,
    fit_regression_bits,
    fit_ridge,
    gaussian_kernel,
    squared_distances,
)


def points(n: int, d: int = 3, whole: bool = False) -> Any:
    """Rows with a mean of about zero; whole numbers, where asked, so that many are equally near."""
    rng = np.random.default_rng(0)
    rows = rng.integers(-2, 3, size=(n, d)) if whole else rng.standard_normal((n, d))
    return rows.astype(np.float32)


def some_labels(n: int) -> Any:
    """Three labels; some documents have two, every ninth none, the first one that nobody shares."""
    labels = np.zeros((n, 4), dtype=bool)
    labels[np.arange(n), np.arange(n) % 3] = True
    labels[::5, 1] = True
    labels[::9] = False
    labels[0, 3] = True
    return labels


def twin(rows: Any, n_nearest: int, labels: Any = None) -> Any:
    """Neighbours of one row after another, by Python's own sorting, which keeps the order of equals."""
    n = len(rows)
    found = np.zeros((n, n))
    for i in range(n):
        others = [
            j for j in range(n) if j != i and (labels is None or np.logical_and(labels[i], labels[j]).any())
        ]
        exact = rows.astype(np.float64)
        others.sort(key=lambda j: float(np.sum((exact[i] - exact[j]) ** 2)))
        found[i, others[:n_nearest]] = 1.0
    return found


# Neighbours


@pytest.mark.parametrize("labelled", [False, True])
@pytest.mark.parametrize("whole", [False, True], ids=["apart", "often equally near"])
def test_neighbours_are_those_of_the_twin(whole: bool, labelled: bool) -> None:
    rows = points(120, whole=whole)
    labels = some_labels(120) if labelled else None
    with Workers(1) as workers:
        found = nearest_neighbours(DenseRows(rows), 7, workers, labels)
    np.testing.assert_array_equal(found.toarray(), twin(rows, 7, labels))


def test_several_blocks_and_threads_change_nothing() -> None:
    rows = points(1100, whole=True)  # blocks have 512 rows
    graphs = []
    for n_jobs in (1, 2):
        with Workers(n_jobs) as workers:
            graphs.append(nearest_neighbours(DenseRows(rows), 3, workers))
    assert (graphs[0] != graphs[1]).nnz == 0 and graphs[0].shape == (1100, 1100)
    for row in (0, 511, 512, 1099):
        nearest = np.argsort(np.sum((rows - rows[row]) ** 2.0, axis=1), kind="stable")
        np.testing.assert_array_equal(graphs[0][[row]].indices, np.sort(nearest[nearest != row][:3]))


def test_sparse_rows_have_the_neighbours_of_dense_ones() -> None:
    counts = np.random.default_rng(1).poisson(0.4, size=(90, 12)) / 7.0
    mean = counts.mean(axis=0)
    thin = CentredSparseRows(sparse.csr_matrix(counts.astype(np.float32)), mean, np.ones(90))
    with Workers(1) as workers:
        pair = [
            nearest_neighbours(rows, 5, workers)
            for rows in (thin, DenseRows((counts - mean).astype(np.float32)))
        ]
    np.testing.assert_array_equal(pair[0].toarray(), pair[1].toarray())


def test_one_row_far_out_does_not_make_the_others_equally_near() -> None:
    rows = points(60)
    rows[7] *= 1e4
    with Workers(1) as workers:
        np.testing.assert_array_equal(
            nearest_neighbours(DenseRows(rows), 4, workers).toarray(), twin(rows, 4)
        )


def test_there_may_be_fewer_than_asked_or_none_or_all_equal() -> None:
    with Workers(1) as workers:
        assert (nearest_neighbours(DenseRows(points(4)), 10, workers).toarray() == 1.0 - np.eye(4)).all()
        alone = nearest_neighbours(DenseRows(points(5)), 3, workers, np.eye(5, dtype=bool))
        equal = nearest_neighbours(DenseRows(np.zeros((5, 2), dtype=np.float32)), 2, workers)
    assert alone.nnz == 0 and alone.shape == (5, 5)
    np.testing.assert_array_equal(equal.toarray(), twin(np.zeros((5, 2)), 2))


def test_a_graph_joins_both_ways_and_its_laplacian_is_the_sum_over_edges() -> None:
    rows, f = points(80), points(80, 1)[:, 0].astype(np.float64)
    with Workers(1) as workers:
        graph = neighbour_graph(DenseRows(rows), 6, workers)
    near = twin(rows, 6)
    W = graph.toarray()
    np.testing.assert_array_equal(W, np.maximum(near, near.T))
    edges = sum(W[i, j] * (f[i] - f[j]) ** 2 for i in range(80) for j in range(80)) / 2
    L = laplacian(graph)
    assert f @ (L @ f) == pytest.approx(edges)
    np.testing.assert_allclose(L @ np.ones(80), 0.0, atol=1e-12)


def test_squared_distances_are_those_between_rows() -> None:
    rows, others = points(30, 5).astype(np.float64), points(9, 5).astype(np.float64)
    expected = np.sum((rows[:, None] - others) ** 2, axis=2)
    found = squared_distances(rows, others)
    np.testing.assert_allclose(found, expected, atol=1e-12)
    np.testing.assert_allclose(gaussian_kernel(rows, others, 2.0), np.exp(-expected / 2.0))
    np.testing.assert_array_equal(squared_distances(rows[4:5], others), found[4:5])
    assert (squared_distances(rows, rows) >= 0).all()


# Regression


def loss(X: Any, V: Any, W: Any, ridge: float) -> float:
    mean_variance = np.sum(X.astype(np.float64) ** 2) / X.shape[1]
    return float(np.sum((X @ W - V) ** 2) + ridge * mean_variance * np.sum(W**2))


@pytest.mark.parametrize("shape", [(50, 8), (8, 50), (12, 12)], ids=["tall", "wide", "square"])
def test_no_other_weights_are_nearer(shape: tuple[int, int]) -> None:
    X, V = points(*shape), points(shape[0], 3).astype(np.float64)
    with Workers(1) as workers:
        W = fit_ridge(DenseRows(X), V, 0.1, workers)
    least = loss(X, V, W, 0.1)
    rng = np.random.default_rng(2)
    for step in (1e-1, 1e-4):
        moved = step * rng.standard_normal(W.shape)
        rise = loss(X, V, W + moved, 0.1) - least
        assert rise > 0 and rise == pytest.approx(loss(X, V, W - moved, 0.1) - least, rel=1e-3)


def test_wide_rows_give_what_products_of_dimensions_give() -> None:
    X, V = points(20, 33).astype(np.float64), points(20, 2).astype(np.float64)
    C = X.T @ X
    expected = np.linalg.solve(C + 0.5 * np.trace(C) / 33 * np.eye(33), X.T @ V)
    with Workers(1) as workers:
        found = fit_ridge(DenseRows(X.astype(np.float32)), V, 0.5, workers)
        thin = CentredSparseRows(sparse.csr_matrix(X.astype(np.float32)), np.zeros(33), np.ones(20))
        np.testing.assert_allclose(fit_ridge(thin, V, 0.5, workers), found, rtol=1e-6)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-9)


def test_medians_halve_the_training_rows() -> None:
    X = points(301, 6)
    X -= X.mean(axis=0)
    V = np.exp(2 * X[:, :4].astype(np.float64))  # far from even around its mean
    with Workers(1) as workers:
        bits = fit_regression_bits(DenseRows(X), V, 0.01, workers)
        cut = cut_at_medians(bits, DenseRows(X), workers)
    assert not bits.offsets.any()
    np.testing.assert_array_equal(cut.weights, bits.weights)
    values = cut.values(X)
    assert (np.abs((values > 1e-6).sum(axis=0) - 150) <= 1).all()


def test_kernel_bits_are_the_regression_on_centred_kernels() -> None:
    X, V = points(70, 4).astype(np.float64), points(70, 2).astype(np.float64) + 3.0
    with Workers(1) as workers:
        features = AnchorFeatures.fit(X, 10, np.random.default_rng(0), workers, unit=False, name="rows")
        found = KernelBits.fit(features, X, V, 0.01, workers)
    K = features.apply(X)
    C = K - K.mean(axis=0)
    W = np.linalg.solve(C.T @ C + 0.01 * np.trace(C.T @ C) / 10 * np.eye(10), C.T @ V)
    assert isinstance(found.bits, LinearBits)
    np.testing.assert_allclose(found.values(X), C @ W, atol=1e-4)
    np.testing.assert_array_equal(found.values(X[5:6]), found.values(X)[5:6])
    np.testing.assert_array_equal(found.values(sparse.csr_matrix(X)), found.values(X))
