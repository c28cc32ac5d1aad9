"""Features of one side, prepared: rows that the mappings can multiply with.

A prepared side is either dense (float32 in memory) or sparse and *implicitly* centred: row i stands for
``factor[i] * (values[i] - mean)``, which is never written out as a whole. Both answer the same few
questions, so no mapping has to know which one it has.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32, Float64
from crossbyte.blocks import covers, steady_product
from crossbyte.executors.protocol import TallArray, TallSparse

__all__ = ["CentredSparseRows", "DenseRows", "Rows"]

Real = NDArray[np.floating[Any]]


class Rows(Protocol):
    """Prepared features of one side, (n, d)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Rows:
        """Some of the rows."""

    def times(self, matrix: Real) -> Real:
        """Rows times a (d, k) matrix, in the matrix's precision."""

    def gram(self) -> Float64:
        """The (d, d) products of the dimensions, summed over the rows."""

    def cross(self, left: Real) -> Float64:
        """The (k, d) product of (n, k) values, transposed, with the rows."""

    def squares(self) -> Float64:
        """Squared length of each row (n,)."""

    def dense(self) -> Float32:
        """The rows written out; for blocks, not for whole sides."""


class DenseRows:
    """Rows held as one float32 array, in memory or elsewhere; from there, only some rows are multiplied."""

    def __init__(self, values: TallArray) -> None:
        self.values: Any = values

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""
        return self.values.shape[0], self.values.shape[1]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> DenseRows:
        """Some of the rows."""
        return DenseRows(self.values[rows])

    def times(self, matrix: Real) -> Real:
        """Rows times a (d, k) matrix, in the matrix's precision."""
        return steady_product(self.values.astype(matrix.dtype, copy=False), matrix)

    def gram(self) -> Float64:
        """The (d, d) products of the dimensions."""
        wide = self.values.astype(np.float64)
        return np.asarray(wide.T @ wide)

    def cross(self, left: Real) -> Float64:
        """The (k, d) product of (n, k) values, transposed, with the rows."""
        return np.asarray(left.T.astype(np.float64) @ self.values.astype(np.float64))

    def squares(self) -> Float64:
        """Squared length of each row."""
        return np.einsum("nd,nd->n", self.values, self.values, dtype=np.float64)

    def dense(self) -> Float32:
        """The rows."""
        return np.asarray(self.values)


class CentredSparseRows:
    """Sparse rows with a mean that is taken off on the fly.

    Parameters
    ----------
    values : (n, d) sparse float32
        In memory or elsewhere, as those of :class:`DenseRows`.
    mean : (d,) float64
    factors : (n,) float64
        One over the centred length; 0 for rows that stay zero.
    """

    def __init__(self, values: TallSparse, mean: Float64, factors: TallArray) -> None:
        self.values: Any = values
        self.factors: Any = factors
        self.mean = mean

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""
        return self.values.shape[0], self.values.shape[1]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> CentredSparseRows:
        """Some of the rows."""
        if isinstance(rows, slice) and covers(rows, len(self.factors)) and sparse.issparse(self.values):
            return self
        return CentredSparseRows(self.values[rows], self.mean, self.factors[rows])

    def times(self, matrix: Real) -> Real:
        """Rows times a (d, k) matrix: f (v W - mean W)."""
        product = self.values @ matrix - self.mean.astype(matrix.dtype) @ matrix
        result: Real = product * self.factors[:, None].astype(matrix.dtype)
        return result

    def gram(self) -> Float64:
        """The (d, d) products: V'F²V - mean (F²V)' - (F²V) mean' + |f|² mean mean'."""
        scaled = sparse.diags(self.factors) @ self.values.astype(np.float64)
        shift = np.outer(scaled.T @ self.factors, self.mean)
        return (
            np.asarray((scaled.T @ scaled).toarray())
            - shift
            - shift.T
            + np.outer(self.mean, self.mean) * (self.factors @ self.factors)
        )

    def cross(self, left: Real) -> Float64:
        """The (k, d) product of (n, k) values, transposed, with the rows."""
        weighted = left.astype(np.float64) * self.factors[:, None]
        product = np.asarray(self.values.T.astype(np.float64) @ weighted).T
        return product - np.outer(weighted.sum(axis=0), self.mean)

    def squares(self) -> Float64:
        """Squared length of each row: 1, or 0 for the rows that stay zero."""
        return np.asarray((self.factors > 0).astype(np.float64))

    def dense(self) -> Float32:
        """The rows written out."""
        rows = (self.values.toarray() - self.mean) * self.factors[:, None]
        return rows.astype(np.float32)
