"""Prepared rows, dense or sparse and implicitly centred: the same answers to the same questions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.data.preparation import CentredSparseRows, DenseRows, fix_signs, principal_directions
from support import oracles


def _twins(rng: np.random.Generator, n: int = 60, d: int = 14) -> tuple[CentredSparseRows, DenseRows]:
    """Implicitly centred rows, and the same written out with loops; rows 0 and 7 stay zero."""
    values = sparse.random(n, d, density=0.3, format="csr", dtype=np.float32, random_state=3)
    mean, factors = rng.random(d), rng.random(n) + 0.5
    factors[[0, 7]] = 0.0
    written = np.zeros((n, d))
    for i, row in enumerate(values.toarray()):
        for j, value in enumerate(row):
            written[i, j] = factors[i] * (float(value) - mean[j])
    return CentredSparseRows(values, mean, factors), DenseRows(written.astype(np.float32))


def test_implicit_centring_equals_explicit(rng: np.random.Generator) -> None:
    implicit, explicit = _twins(rng)
    matrix, left = rng.standard_normal((14, 5)), rng.standard_normal((60, 3))
    assert implicit.shape == explicit.shape == (60, 14)
    np.testing.assert_allclose(implicit.dense(), explicit.dense(), atol=1e-6)
    np.testing.assert_allclose(implicit.times(matrix), explicit.times(matrix), atol=1e-5)
    np.testing.assert_allclose(implicit.gram(), explicit.gram(), atol=1e-5)
    np.testing.assert_allclose(implicit.cross(left), explicit.cross(left), atol=1e-5)


@pytest.mark.parametrize("which", [0, 1])
def test_products_are_those_of_the_written_rows(rng: np.random.Generator, which: int) -> None:
    rows = _twins(rng)[which]
    written = rows.dense().astype(np.float64)
    matrix, left = rng.standard_normal((14, 5)), rng.standard_normal((60, 3)).astype(np.float32)
    np.testing.assert_allclose(rows.times(matrix), written @ matrix, atol=1e-5)
    np.testing.assert_allclose(rows.gram(), written.T @ written, atol=1e-5)
    np.testing.assert_allclose(rows.cross(left), left.T @ written, atol=1e-5)
    assert rows.gram().dtype == rows.cross(left).dtype == rows.squares().dtype == np.float64


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_times_keeps_the_precision_of_the_matrix(rng: np.random.Generator, which: int, dtype: Any) -> None:
    product = _twins(rng)[which].times(rng.standard_normal((14, 5)).astype(dtype))
    assert product.dtype == dtype


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("chosen", [slice(5, 20), np.array([3, 7, 7, 40]), slice(0, 0)])
def test_some_of_the_rows(rng: np.random.Generator, which: int, chosen: Any) -> None:
    rows = _twins(rng)[which]
    np.testing.assert_array_equal(rows[chosen].dense(), rows.dense()[chosen])
    assert rows[chosen].shape == rows.dense()[chosen].shape


def test_squares_are_the_squared_lengths(rng: np.random.Generator) -> None:
    _, explicit = _twins(rng)
    np.testing.assert_allclose(explicit.squares(), (explicit.dense().astype(float) ** 2).sum(axis=1))
    values = sparse.random(30, 8, density=0.5, format="csr", dtype=np.float32, random_state=1)
    mean = np.full(8, 0.3)
    factors = 1 / np.linalg.norm(values.toarray() - mean, axis=1)
    factors[4] = 0.0
    implicit = CentredSparseRows(values, mean, factors)
    np.testing.assert_allclose(
        implicit.squares(), (implicit.dense().astype(float) ** 2).sum(axis=1), atol=1e-6
    )


def test_subspace_iteration_finds_the_principal_directions(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((300, 40)) * 0.8 ** np.arange(40)
    rows -= rows.mean(axis=0)
    gram = rows.T @ rows
    found = principal_directions(lambda basis: gram @ basis, 40, 6)
    expected = oracles.principal_directions(rows, 6)
    np.testing.assert_allclose(np.abs((found * expected).sum(axis=1)), 1.0, atol=1e-5)
    np.testing.assert_allclose(found @ found.T, np.eye(6), atol=1e-10)


def test_subspace_iteration_returns_no_more_than_the_rank(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 12))
    found = principal_directions(lambda basis: rows.T @ (rows @ basis), 12, 8)
    assert found.shape == (3, 12)
    np.testing.assert_allclose(rows @ found.T @ found, rows, atol=1e-8)


def test_signs_are_fixed_by_the_largest_entry(rng: np.random.Generator) -> None:
    directions = rng.standard_normal((5, 7))
    found = fix_signs(directions)
    assert (found[np.arange(5), np.abs(found).argmax(axis=1)] > 0).all()
    np.testing.assert_array_equal(fix_signs(-directions), found)
    np.testing.assert_array_equal(fix_signs(np.zeros((1, 3))), np.zeros((1, 3)))
