"""Prepare features by what was learned on training data only: centre, reduce by PCA, bring to unit length.

The order is that of LSSH, whose common space the paper takes over. Before it, values may be taken to a power:
roots of a histogram are compared as by Hellinger, and its large bins do not drown the small ones. Rows that
are zero before centring (a text without a known word) stay zero.

A prepared side is either dense (float32 in memory) or sparse and *implicitly* centred: row i stands for
``factor[i] * (values[i] - mean)``, which is never written out as a whole. Both have the same methods
(`PreparedRows`), so no mapping has to know which one it has.

First the two forms of prepared rows, then principal directions, then the preparation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from crossbyte.arrays import Float32, Float64, Raw
from crossbyte.compute.executor import (
    SHARE_ROWS,
    Executor,
    TallArray,
    TallSparse,
    covers_all_rows,
    deterministic_product,
    row_blocks,
)
from crossbyte.errors import InvalidInput, NumericalError
from crossbyte.validation import is_sparse

Real = NDArray[np.floating[Any]]


class PreparedRows(Protocol):
    """Prepared features of one side, (n, d)."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> PreparedRows:
        """Take some of the rows."""

    def times(self, matrix: Real) -> Real:
        """Multiply the rows by a (d, k) matrix, in the matrix's precision."""

    def gram(self) -> Float64:
        """Compute the (d, d) products of the dimensions, summed over the rows."""

    def cross(self, left: Real) -> Float64:
        """Compute the (k, d) product of (n, k) values, transposed, with the rows."""

    def squares(self) -> Float64:
        """Compute the squared length of each row, (n,)."""

    def dense(self) -> Float32:
        """Write the rows out; for blocks, not for whole sides."""


class DenseRows:
    """Rows held as one float32 array, in memory or on disk; those on disk are multiplied block by block."""

    def __init__(self, values: TallArray) -> None:
        self.values: Any = values

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and dimensions."""
        return self.values.shape[0], self.values.shape[1]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> DenseRows:
        """Take some of the rows."""
        return DenseRows(self.values[rows])

    def times(self, matrix: Real) -> Real:
        """Multiply the rows by a (d, k) matrix, in the matrix's precision."""
        return deterministic_product(self.values.astype(matrix.dtype, copy=False), matrix)

    def gram(self) -> Float64:
        """Compute the (d, d) products of the dimensions."""
        wide = self.values.astype(np.float64)
        return np.asarray(wide.T @ wide)

    def cross(self, left: Real) -> Float64:
        """Compute the (k, d) product of (n, k) values, transposed, with the rows."""
        return np.asarray(left.T.astype(np.float64) @ self.values.astype(np.float64))

    def squares(self) -> Float64:
        """Compute the squared length of each row."""
        return np.einsum("nd,nd->n", self.values, self.values, dtype=np.float64)

    def dense(self) -> Float32:
        """Return the rows."""
        return np.asarray(self.values)


class CentredSparseRows:
    """Sparse rows whose mean is subtracted on the fly.

    Parameters
    ----------
    values : (n, d) sparse float32
        In memory or on disk, like those of :class:`DenseRows`.
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
        """Take some of the rows."""
        if (
            isinstance(rows, slice)
            and covers_all_rows(rows, len(self.factors))
            and sparse.issparse(self.values)
        ):
            return self
        return CentredSparseRows(self.values[rows], self.mean, self.factors[rows])

    def times(self, matrix: Real) -> Real:
        """Multiply the rows by a (d, k) matrix: f (v W - mean W)."""
        product = self.values @ matrix - self.mean.astype(matrix.dtype) @ matrix
        result: Real = product * self.factors[:, None].astype(matrix.dtype)
        return result

    def gram(self) -> Float64:
        """Compute the (d, d) products: V'F²V - mean (F²V)' - (F²V) mean' + |f|² mean mean'."""
        scaled = sparse.diags(self.factors) @ self.values.astype(np.float64)
        shift = np.outer(scaled.T @ self.factors, self.mean)
        return (
            np.asarray((scaled.T @ scaled).toarray())
            - shift
            - shift.T
            + np.outer(self.mean, self.mean) * (self.factors @ self.factors)
        )

    def cross(self, left: Real) -> Float64:
        """Compute the (k, d) product of (n, k) values, transposed, with the rows."""
        weighted = left.astype(np.float64) * self.factors[:, None]
        product = np.asarray(self.values.T.astype(np.float64) @ weighted).T
        return product - np.outer(weighted.sum(axis=0), self.mean)

    def squares(self) -> Float64:
        """Compute the squared length of each row: 1, or 0 for the rows that stay zero."""
        return np.asarray((self.factors > 0).astype(np.float64))

    def dense(self) -> Float32:
        """Write the rows out."""
        rows = (self.values.toarray() - self.mean) * self.factors[:, None]
        return rows.astype(np.float32)


_EXTRA = 16  # directions beyond those wanted, as is usual in subspace iteration
_RANK_CUT = 1e-10  # of the largest eigenvalue or variance; below it a direction is rounding error


def principal_directions(
    times_gram: Callable[[Float64], Float64], n_dims: int, n_wanted: int, n_passes: int = 4
) -> Float64:
    """Find the strongest directions of a (d, d) Gram matrix by subspace iteration.

    Parameters
    ----------
    times_gram : function
        Multiplies the Gram matrix, a sum over blocks of rows, by a (d, k) matrix.
    n_dims : int
        d.
    n_wanted : int
        The number of directions; fewer are returned where the rank is lower.

    Returns
    -------
    (k, d) orthonormal rows, strongest first
    """
    size = min(n_wanted + _EXTRA, n_dims)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((n_dims, size)))[0]
    for _ in range(n_passes):
        basis = np.linalg.qr(times_gram(basis))[0]
    small = basis.T @ times_gram(basis)
    strengths, rotation = np.linalg.eigh((small + small.T) / 2)
    keep = np.flatnonzero(strengths > _RANK_CUT * strengths[-1])[::-1][:n_wanted]
    return fix_signs((basis @ rotation[:, keep]).T)


def fix_signs(directions: Float64) -> Float64:
    """Make the largest entry of each row positive: eigenvectors come with an arbitrary sign."""
    return np.ascontiguousarray(directions * row_signs(directions)[:, None])


def row_signs(directions: Float64) -> Float64:
    """Find the sign of the largest entry of each row; 1 for a row of zeros."""
    at = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(len(directions)), at])
    return np.where(signs == 0, 1.0, signs)


MAX_GRAM_DIMS = 8192
"""Widest side whose (d, d) products are formed (512 MB)."""


class Units(NamedTuple):
    """Scaling of raw values: their sign, times a power of their size, times a number."""

    power: float = 1.0
    scale: float = 1.0

    def of(self, values: Any) -> Any:
        """Scale an array of float64 values."""
        if self.power != 1.0:
            values = np.sign(values) * np.abs(values) ** self.power
        return values * self.scale


@dataclass(frozen=True, eq=False)
class Preparation:
    """Scale, mean and directions learned from one side.

    Attributes
    ----------
    scale : float
        A power of two that brings the largest training value near 1, so that no square overflows.
    mean : (d,) float64
        Mean of the scaled training rows.
    components : (k, d) float64 or None
        Principal directions, strongest first; None where PCA is off.
    power : float
        The power that values are taken to, signs apart, before everything else.
    unit : bool
        Whether rows are brought to unit length before they are centred, as embeddings of a shared space are.
    """

    scale: float
    mean: Float64
    components: Float64 | None
    power: float = 1.0
    unit: bool = False

    @classmethod
    def fit(
        cls, raw: Raw, n_components: int | None, name: str, workers: Executor, power: float = 1.0
    ) -> Preparation:
        """Learn scale, mean and directions from (n, d) training rows."""
        units = Units(power, _choose_scale(_find_largest(raw, workers) ** power, name))
        n, d = raw.shape
        if not _rows_differ(raw):
            raise InvalidInput(f"{name}: expected rows that differ, but all {n} rows are equal")
        mean = workers.total(lambda rows: _sum_columns(_read_block(raw, rows, units)), n) / n
        components = None
        if n_components is not None and n_components < d:
            components = _find_components(raw, units, mean, n_components, workers)
        return cls(units.scale, mean, components, power)

    @classmethod
    def fit_unit(cls, raw: Raw, name: str, workers: Executor, *, centred: bool) -> Preparation:
        """Learn the mean of (n, d) dense rows at unit length; without centring, it is zero."""
        n, d = raw.shape
        _choose_scale(_find_largest(raw, workers), name)
        if not _rows_differ(raw):
            raise InvalidInput(f"{name}: expected rows that differ, but all {n} rows are equal")
        plain = cls(1.0, np.zeros(d), None, unit=True)
        if not centred:
            return plain
        mean = workers.total(lambda rows: _sum_columns(plain._read(raw, rows)), n) / n
        return replace(plain, mean=mean)

    def _read(self, raw: Raw, rows: slice) -> Any:
        """Read rows as a canonical block: scaled, or each at unit length."""
        block = _read_block(raw, rows, self.units)
        return bring_to_unit(block) if self.unit else block

    @property
    def units(self) -> Units:
        """Scaling of raw values, before the mean is subtracted."""
        return Units(self.power, self.scale)

    @property
    def n_features(self) -> int:
        """Width of the raw rows."""
        return len(self.mean)

    @property
    def n_dims(self) -> int:
        """Width of the prepared rows."""
        return len(self.mean if self.components is None else self.components)

    def apply(self, raw: Raw, workers: Executor) -> PreparedRows:
        """Prepare (n, d) rows; sparse rows without PCA stay sparse."""
        if is_sparse(raw) and self.components is None:
            return self._apply_sparse(raw, workers)

        def prepare(rows: slice) -> Float32:
            block = self._read(raw, rows)
            return _normalize_rows(self._centre_and_project(block), ~_find_zero_rows(block))

        return DenseRows(workers.rows(prepare, raw.shape[0], (self.n_dims,), np.float32))

    def _centre_and_project(self, block: Any) -> Float64:
        if self.components is None:
            return np.asarray(block - self.mean)
        # Products with sparse rows are computed row by row as they are.
        projected = (
            block @ self._directions if is_sparse(block) else deterministic_product(block, self.components.T)
        )
        return np.asarray(projected - self._projected_mean)

    @cached_property
    def _directions(self) -> Float64:
        """The components as columns, in C order: SciPy would copy them into that order for every product."""
        assert self.components is not None
        return np.ascontiguousarray(self.components.T)

    @cached_property
    def _projected_mean(self) -> Float64:
        return np.asarray(self.mean if self.components is None else self.components @ self.mean)

    def _apply_sparse(self, raw: Raw, workers: Executor) -> CentredSparseRows:
        mean_square = self.mean @ self.mean
        n, d = raw.shape
        whole = _read_block(raw, slice(0, n), self.units) if n == 1 else None  # a query

        def read(rows: slice) -> Any:
            return _read_block(raw, rows, self.units) if whole is None else whole

        def invert_lengths(rows: slice) -> Float64:
            block = read(rows)
            squares = _sparse_row_squares(block)
            lengths = np.sqrt(np.maximum(squares - 2 * (block @ self.mean) + mean_square, 0.0))
            _check_lengths(lengths)
            keep = ~_find_zero_rows(block) & (lengths > 1e-7 * np.sqrt(mean_square))
            return np.divide(1.0, lengths, out=np.zeros_like(lengths), where=keep)

        def scale_to_float32(rows: slice) -> sparse.csr_matrix:
            block = read(rows)
            return sparse.csr_matrix(
                (_to_float32(block.data), block.indices, block.indptr), shape=block.shape
            )

        factors = workers.rows(invert_lengths, n, (), np.float64)
        return CentredSparseRows(workers.sparse_rows(scale_to_float32, n, d), self.mean, factors)


def bring_to_unit(block: Any) -> Float64:
    """Divide dense rows (n, d) by their length; zero rows stay zero."""
    rows = np.asarray(block, dtype=np.float64)
    largest = np.abs(rows).max(axis=1, keepdims=True, initial=0.0)
    rows = rows / np.where(largest > 0, largest, 1.0)  # first, so that no square overflows
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
    return np.asarray(rows / np.where(lengths > 0, lengths, 1.0))


def _read_block(raw: Raw, rows: slice, units: Units) -> Any:
    """Read rows as a canonical, scaled block in float64 and C order, whatever the storage."""
    # A slice of a sparse matrix is slow even where it has all rows.
    whole = sparse.issparse(raw) and covers_all_rows(rows, raw.shape[0])
    return apply_units(raw if whole else raw[rows], units)


def apply_units(raw: Any, units: Units) -> Any:
    """Scale rows in float64; sparse ones keep their pattern."""
    if not is_sparse(raw):
        return units.of(np.ascontiguousarray(raw, dtype=np.float64))
    values = units.of(raw.data.astype(np.float64))
    return sparse.csr_matrix((values, raw.indices, raw.indptr), shape=raw.shape, copy=False)


def _sparse_row_squares(block: sparse.csr_matrix) -> Float64:
    """Compute the squared length of each sparse row."""
    n = block.shape[0]
    rows = np.repeat(np.arange(n), np.diff(block.indptr))
    return np.bincount(rows, block.data**2, n).astype(np.float64)  # in the order of the columns


def _to_float32(values: Float64) -> NDArray[np.floating[Any]]:
    """Convert to float32, except queries so far above the training scale that it cannot hold them.

    The others in its batch are rounded all the same: no query may depend on its batch.
    """
    fits = np.abs(values) < 1e37
    rounded = np.where(fits, values, 0.0).astype(np.float32)
    return rounded if fits.all() else np.where(fits, rounded, values)


def _find_zero_rows(block: Any) -> NDArray[np.bool_]:
    nonzero = np.diff(block.indptr) if is_sparse(block) else block.any(axis=1)
    return np.asarray(nonzero == 0)


def _find_largest(raw: Raw, workers: Executor) -> float:
    def find_in_share(rows: slice) -> float:
        return max(
            _find_largest_in_block(raw[_shift_slice(block, rows.start)])
            for block in row_blocks(rows.stop - rows.start)
        )

    return max(workers.map(find_in_share, row_blocks(raw.shape[0], SHARE_ROWS)), default=0.0)


def _shift_slice(block: slice, start: int) -> slice:
    return slice(start + block.start, start + block.stop)


def _find_largest_in_block(block: Any) -> float:
    values = block.data if is_sparse(block) else block
    return float(np.abs(np.asarray(values, dtype=np.float64)).max(initial=0.0))


def _choose_scale(largest: float, name: str) -> float:
    if largest == 0.0:
        raise InvalidInput(
            f"{name}: expected rows that differ, but every value is zero; there is nothing to learn from"
        )
    # Subnormal numbers would need a factor beyond float64; they stay small, and lose nothing by it.
    return float(2.0 ** min(-int(np.frexp(largest)[1]), 1023))


def _check_lengths(lengths: Float64) -> None:
    """Refuse rows whose squares overflow: they would become zeros without a word."""
    if not np.isfinite(lengths).all():
        raise NumericalError(
            "expected features of about the size of those of the training, got some so much larger that "
            "their squares overflow; scale them alike"
        )


def _normalize_rows(rows: Float64, keep: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Divide rows by their length; rows not to keep, and rows equal to the mean, become zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))
    _check_lengths(lengths)
    keep = keep & (lengths > 1e-12)
    factors = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=keep)
    return (rows * factors[:, None]).astype(np.float32)


def _find_components(raw: Raw, units: Units, mean: Float64, n_components: int, workers: Executor) -> Float64:
    n, d = raw.shape
    if 2 * n <= d <= MAX_GRAM_DIMS:
        return _directions_from_rows(_read_block(raw, slice(0, n), units), mean, n_components)
    if d > MAX_GRAM_DIMS:
        return principal_directions(
            lambda basis: workers.total(
                lambda rows: _covariance_times(_read_block(raw, rows, units), mean, basis), n
            ),
            d,
            n_components,
        )
    covariance = workers.total(lambda rows: _covariance(_read_block(raw, rows, units), mean), n)
    first = max(0, d - n_components)
    variances, directions = linalg.eigh(covariance, subset_by_index=[first, d - 1])
    keep = variances > _RANK_CUT * max(variances[-1], np.finfo(float).tiny)
    return fix_signs(directions[:, keep].T[::-1])


def _directions_from_rows(rows: Any, mean: Float64, n_components: int) -> Float64:
    """Find the directions from products of rows with rows: a few wide rows have far fewer of these."""
    n = rows.shape[0]
    means = np.asarray(rows @ mean)
    products = (rows @ rows.T).toarray() if is_sparse(rows) else rows @ rows.T
    gram = products - means[:, None] - means[None, :] + mean @ mean
    variances, combinations = linalg.eigh(gram, subset_by_index=[max(0, n - n_components), n - 1])
    keep = variances > _RANK_CUT * max(variances[-1], np.finfo(float).tiny)
    chosen = combinations[:, keep][:, ::-1]
    directions = np.asarray(rows.T @ chosen) - np.outer(mean, chosen.sum(axis=0))
    return fix_signs(np.linalg.qr(directions)[0].T)  # the weakest are no longer quite orthogonal


def _covariance_times(block: Any, mean: Float64, basis: Float64) -> Float64:
    projected = block @ basis - mean @ basis
    return np.asarray(block.T @ projected) - np.outer(mean, projected.sum(axis=0))


def _sum_columns(block: Any) -> Float64:
    return np.asarray(block.sum(axis=0), dtype=np.float64).ravel()


def _covariance(block: Any, mean: Float64) -> Float64:
    """Compute the block's part of Σ (x - mean)'(x - mean); sparse rows are centred after the product."""
    if is_sparse(block):
        shift = np.outer(_sum_columns(block), mean)
        return (block.T @ block).toarray() - shift - shift.T + block.shape[0] * np.outer(mean, mean)
    centred = block - mean
    return np.asarray(centred.T @ centred)


def _rows_differ(raw: Any) -> bool:
    """Tell whether any row differs from the first."""
    first = raw[0:1]
    differ = _sparse_differ if is_sparse(raw) else _dense_differ
    return any(differ(raw[rows], first) for rows in row_blocks(raw.shape[0]))


def _dense_differ(block: Any, first: Any) -> bool:
    return bool((block != first).any())


def _sparse_differ(block: Any, first: Any) -> bool:
    if (np.diff(block.indptr) != first.nnz).any():
        return True
    if first.nnz == 0:  # all rows are empty
        return False
    both = (block.indices, first.indices), (block.data, first.data)
    return any(bool((rows.reshape(-1, first.nnz) != row).any()) for rows, row in both)
