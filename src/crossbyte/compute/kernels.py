"""Run the hot loops: in the C++ extension where it was built, in NumPy elsewhere.

``CROSSBYTE_NO_NATIVE=1`` in the environment switches the extension off. Both implementations have the
same signatures and give the same answers; ``kernels_numpy`` is the readable one and defines what is
right.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute import kernels_numpy
from crossbyte.errors import NumericalError

N_CODEWORDS = 256
"""Codewords per codebook (K): a code is one byte."""

_SHORT_CODE = 16  # codebooks whose inner products are 64 MB
_ROUGH_RANGE = 4000  # units that sums of rounded products stay within; native/codes.h has it, too
_ROUGH_SPREAD = 8000  # units between the terms of an item, mostly
_LINE_BYTES = 64

BLOCK_ITEMS = 64
"""Items whose codes are packed together for the scan."""


def _load() -> Any:
    if os.environ.get("CROSSBYTE_NO_NATIVE", "0") not in ("", "0"):
        return None
    try:
        from crossbyte import _native
    except ImportError:
        return None
    return _native


_native = _load()


def implementation() -> str:
    """Return which kernels are in use: ``"avx512"``, ``"avx2"``, ``"portable"`` or ``"numpy"``."""
    return str(_native.level()) if _native is not None else "numpy"


class CrossPenalty(NamedTuple):
    """The penalty μ (cross term - ε)² on one item."""

    weight: float
    epsilon: float


class CodewordTables(NamedTuple):
    """What the code kernels need to know of the codebooks C of one side."""

    codewords: Float64
    """(M, K, d)"""
    codewords_by_dim: Float32
    """(M, d, K): one dimension of all codewords lies together."""
    gram: Float32
    """(M, M, K, K): the inner product of codeword k of codebook m and c of j is at (m, j, c, k)."""
    rough: NDArray[np.int16]
    """(M (M - 1) / 2, K, K): twice the products of codebooks j < m at m (m - 1) / 2 + j, rounded to units."""
    units: Float32
    """(M,): what one step of these means where codebook m is the later one."""

    @classmethod
    def of(cls, codewords: NDArray[np.floating[Any]]) -> CodewordTables:
        """Make the tables of codebooks of shape (M, K, d)."""
        exact = np.ascontiguousarray(codewords, dtype=np.float64)
        gram = _short_gram(exact) if len(exact) <= _SHORT_CODE else _long_gram(exact)
        by_dim = np.ascontiguousarray(exact.transpose(0, 2, 1), dtype=np.float32)
        return cls(exact, by_dim, gram, *round_products(gram))


def _short_gram(codewords: Float64) -> Float32:
    n_codebooks, n_codewords, n_dims = codewords.shape
    flat = codewords.reshape(n_codebooks * n_codewords, n_dims)
    products = (flat @ flat.T).reshape(n_codebooks, n_codewords, n_codebooks, n_codewords)
    gram = _empty_lines((n_codebooks, n_codebooks, n_codewords, n_codewords), np.float32)
    gram[:] = products.transpose(2, 0, 1, 3)
    return gram


def _long_gram(codewords: Float64) -> Float32:
    """Compute the products a codebook at a time, in float32, and each only once.

    With 64 codebooks there are 268 million of them: 1 GB, where float64 would need two more in passing.
    """
    n_codebooks, n_codewords, _ = codewords.shape
    books = codewords.astype(np.float32)
    gram = _empty_lines((n_codebooks, n_codebooks, n_codewords, n_codewords), np.float32)
    for m, own in enumerate(books):
        later = own @ books[m:].reshape(-1, books.shape[2]).T  # as one product: each has its own rounding
        gram[m:, m] = later.reshape(n_codewords, -1, n_codewords).transpose(1, 0, 2)
        gram[m, m + 1 :] = gram[m + 1 :, m].transpose(0, 2, 1)
    return gram


def round_products(gram: Float32) -> tuple[NDArray[np.int16], Float32]:
    """Round inner products (M, M, K, K) of codewords to 16 bits, for a first look at scores: rough, units.

    Units are large enough that sums over all codebooks fit, and the terms of most items as well; where they
    do not, or are not finite, a beam search does without.
    """
    n_codebooks = len(gram)
    squares = kernels_numpy.codeword_norms(gram).astype(np.float64)
    rough = _empty_lines((n_codebooks * (n_codebooks - 1) // 2, N_CODEWORDS, N_CODEWORDS), np.int16)
    units = np.empty(n_codebooks, dtype=np.float32)
    with np.errstate(invalid="ignore", over="ignore"):
        length = np.sqrt(squares.mean(axis=1).sum())  # of an item, about
        for m, longest in enumerate(squares.max(axis=1).tolist()):
            products = gram[m, :m]
            farthest = 2 * np.abs(products).max(axis=(1, 2), initial=0.0).sum(dtype=np.float64)
            spread = longest + 4 * length * np.sqrt(longest)
            units[m] = max(farthest / _ROUGH_RANGE, spread / _ROUGH_SPREAD)
            own = rough[m * (m - 1) // 2 : m * (m + 1) // 2]
            if np.isfinite(units[m]) and units[m] > 0:
                np.rint(products * np.float32(2 / units[m]), out=own, casting="unsafe")
            else:
                own[:] = 0
    return rough, units


def _empty_lines(shape: tuple[int, ...], dtype: type[np.generic]) -> NDArray[Any]:
    """Allocate an array that begins with a line of the cache, so that no register straddles two."""
    size = math.prod(shape) * np.dtype(dtype).itemsize
    room = np.empty(size + _LINE_BYTES, dtype=np.uint8)
    start = -room.ctypes.data % _LINE_BYTES
    return room[start : start + size].view(dtype).reshape(shape)


def lasso(
    gram: Float32,
    products: Float32,
    penalty: Float32,
    start: sparse.csr_matrix,
    tolerance: float = 3e-5,
) -> sparse.csr_matrix:
    """Minimise ½ s'Gs - q's + z|s|₁ for every row q of ``products``.

    Parameters
    ----------
    gram : (A, A) float32
    products : (n, A) float32
    penalty : (n,) float32
        z of every row.
    start : (n, A) sparse
        Where to begin; an empty matrix for a cold start.
    tolerance : float
        Largest violation of the optimality conditions, relative to z.

    Returns
    -------
    (n, A) sparse float32, indices sorted

    Raises
    ------
    NumericalError
        An argument or a weight is not finite: values were so large that their sums overflowed.
    """
    arguments = (gram, products, penalty, start.data)
    weights = start
    if finite := all(np.isfinite(each).all() for each in arguments):
        weights = _solve_lasso(gram, products, penalty, start, tolerance)
    if not finite or not np.isfinite(weights.data).all():
        raise NumericalError("expected finite weights of atoms, but their sums overflow; scale the features")
    return weights


def _solve_lasso(
    gram: Float32, products: Float32, penalty: Float32, start: sparse.csr_matrix, tolerance: float
) -> sparse.csr_matrix:
    if _native is None:
        return kernels_numpy.lasso(gram, products, penalty, start, tolerance)
    indptr, indices, values = _native.lasso(
        gram,
        products,
        penalty,
        start.indptr.astype(np.int32, copy=False),
        start.indices.astype(np.int32, copy=False),
        start.data.astype(np.float32, copy=False),
        tolerance,
    )
    return sparse.csr_matrix((values, indices, indptr), shape=products.shape)


def icm(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, codes: Codes, max_sweeps: int
) -> Codes:
    """Improve codes one codebook after another (iterated conditional modes).

    Every row minimises ``|t - sum of codewords|² + μ (cross - ε)²``; no row gets worse.

    Parameters
    ----------
    targets : (n, d) float32
    codes : (n, M) uint8
        Left as it is; the improved codes are returned.
    """
    if _native is None:
        return kernels_numpy.icm(tables, targets, penalty, codes, max_sweeps)
    better = codes.copy()
    _native.icm(*_native_tables(tables), targets, *penalty, max_sweeps, better)
    return better


def beam_search(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, width: int, max_sweeps: int = 0
) -> Codes:
    """Find codes of (n, d) float32 targets from nothing, keeping ``width`` prefixes per codebook.

    Prefixes are compared by their error alone; the penalty decides between the finished codes. What is found
    is improved as by :func:`icm`, with at most ``max_sweeps`` sweeps.
    """
    if _native is None:
        return kernels_numpy.beam_search(tables, targets, penalty, width, max_sweeps)
    codes = np.empty((len(targets), len(tables.codewords)), dtype=np.uint8)
    _native.beam_search(*_native_tables(tables), targets, *penalty, width, max_sweeps, codes)
    return codes


def _native_tables(tables: CodewordTables) -> tuple[NDArray[Any], ...]:
    return tables.codewords_by_dim, tables.codewords, tables.gram, tables.rough, tables.units


def codebook_value_gradient(
    codewords: Float64, codes: Codes, targets: Float32, penalty: CrossPenalty
) -> tuple[float, Float64]:
    """Sum ``|t - sum of codewords|² + μ (cross - ε)²`` over rows; also returns the gradient (M, K, d)."""
    if _native is None:
        return kernels_numpy.codebook_value_gradient(codewords, codes, targets, penalty)
    gradient = np.empty_like(codewords)
    value = _native.codebook_value_gradient(codewords, codes, targets, *penalty, gradient)
    return float(value), gradient


def distance_tables(points: Float32, codewords_by_dim: Float32) -> Float32:
    """Compute squared distances (n, M, K) float32 from points (n, d) to all codewords (M, d, K).

    Summed over the dimensions in order, in float32: a row does not depend on the rows beside it.
    """
    if _native is None:
        return kernels_numpy.distance_tables(points, codewords_by_dim)
    n_codebooks, _, n_codewords = codewords_by_dim.shape
    tables = np.empty((len(points), n_codebooks, n_codewords), dtype=np.float32)
    _native.distance_tables(points, codewords_by_dim, tables)
    return tables


def ordered_product(rows: Float64, matrix: Float64) -> Float64:
    """Multiply rows (n, d) by a matrix (d, k), both float64 in C order, summed over the columns in order.

    A row does not depend on the rows beside it.
    """
    if _native is None:
        return kernels_numpy.ordered_product(rows, matrix)
    product = np.empty((len(rows), matrix.shape[1]))
    _native.ordered_product(rows, matrix, product)
    return product


class ScanSide(NamedTuple):
    """Codes of one side of the items, and what they mean to the queries."""

    codes: Codes
    """(blocks, M, 64): see :func:`pack_codes`"""
    tables: Float32
    """(queries, M, 256)"""
    offsets: Float32
    """(queries,): added after the tables"""


class ScanResult(NamedTuple):
    """The nearest items of several queries, one query after the other, each by (distance, row)."""

    counts: NDArray[np.int64]
    """(queries,)"""
    distances: Float32
    """(sum of counts,)"""
    rows: NDArray[np.int64]
    """(sum of counts,)"""


def pack_codes(codes: Codes) -> Codes:
    """Pack (n, M) codes for the scan: (blocks, M, 64), padded with zeros."""
    n_rows, n_codebooks = codes.shape
    n_blocks = -(-n_rows // BLOCK_ITEMS)
    packed = np.zeros((n_blocks, n_codebooks, BLOCK_ITEMS), dtype=np.uint8)
    full = n_rows // BLOCK_ITEMS
    whole = codes[: full * BLOCK_ITEMS].reshape(full, BLOCK_ITEMS, n_codebooks)
    packed[:full] = whole.transpose(0, 2, 1)
    if full < n_blocks:
        packed[full, :, : n_rows - full * BLOCK_ITEMS] = codes[full * BLOCK_ITEMS :].T
    return packed


def unpack_codes(packed: Codes, rows: NDArray[np.integer[Any]]) -> Codes:
    """Unpack the codes (n, M) of some rows."""
    return np.ascontiguousarray(packed[rows // BLOCK_ITEMS, :, rows % BLOCK_ITEMS])


def scan(
    sides: Sequence[ScanSide],
    n_items: int,
    k: int,
    *,
    extra: float = 0.0,
    allowed: NDArray[np.uint64] | None = None,
    max_distance: float = np.inf,
    n_threads: int = 1,
) -> ScanResult:
    """Find the ``k`` nearest items of every query, exactly, in the order of (distance, row).

    The canonical sum is float32: the tables of a side in order and its offset; the sides; ``extra``.

    Parameters
    ----------
    sides : one ScanSide, or two whose distances are added
    n_items : int
    k : int
    extra : float
        Added to every distance.
    allowed : (blocks,) uint64, optional
        Bit i of word b: item 64 b + i may be found.
    max_distance : float
        Nothing beyond it is found.
    n_threads : int
        The result does not depend on it.
    """
    extra += 0.0  # no sum is -0.0 then, which sorts before 0.0 in one implementation and beside it in another
    if _native is None:
        return kernels_numpy.scan(sides, n_items, k, extra, allowed, max_distance)
    found = _native.scan(list(map(tuple, sides)), extra, allowed, n_items, k, max_distance, n_threads)
    return ScanResult(*found)


def scan_cells(
    side: ScanSide,
    rows: NDArray[np.uint32],
    starts: NDArray[np.int64],
    cells: NDArray[np.int64],
    k: int,
    *,
    extra: float = 0.0,
    allowed: NDArray[np.uint64] | None = None,
    max_distance: float = np.inf,
    n_threads: int = 1,
) -> ScanResult:
    """Find the ``k`` nearest items of every query among those of the cells that it visits: (distance, row).

    Parameters
    ----------
    side : ScanSide
        Codes of the items, those of each cell together.
    rows : (items,) uint32
        The row of the item at each place.
    starts : (cells + 1,) int64
        Where each cell begins and ends, in places.
    cells : (queries, visited) int64
        Which cells each query visits, none of them twice.
    allowed : uint64, optional
        Bit i of word b: row 64 b + i may be found.
    k, extra, max_distance, n_threads
        As in :func:`scan`, and the same distances to the last bit.
    """
    extra += 0.0
    if _native is None:
        return kernels_numpy.scan_cells(side, rows, starts, cells, k, extra, allowed, max_distance)
    found = _native.scan_cells(tuple(side), rows, starts, cells, extra, allowed, k, max_distance, n_threads)
    return ScanResult(*found)
