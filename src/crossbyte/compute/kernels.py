"""Run the hot loops: in the C++ extension where it was built, in NumPy elsewhere.

``CROSSBYTE_NO_NATIVE=1`` in the environment switches the extension off. Both implementations have the
same signatures and give the same answers; ``kernels_numpy`` is the readable one and defines what is
right.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from functools import cached_property
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

_ITEMS_PER_THREAD = 2**16  # of one query, or fewer of several


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
    _native.distance_tables(_align(points), codewords_by_dim, tables)
    return tables


def _align(points: Float32) -> Float32:
    """Lay points out as kernels take them; those that another process sent may lie at any address."""
    return np.require(points, requirements=("C", "ALIGNED"))


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


def count_worthwhile_threads(n_threads: int, n_items: int, n_queries: int) -> int:
    """Count the threads that a scan is worth: starting one for less takes longer than it saves."""
    return min(n_threads, 1 + n_items * n_queries // _ITEMS_PER_THREAD)


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


FARTHEST = 1e16
"""Of a coordinate of a query: hundreds of squares, for each of 64 codebooks, stay below 1e38."""


class QueryTables(NamedTuple):
    """The distance tables of some queries."""

    tables: Float32
    """(n, M', 256): one per codebook, and one more for a stored cross term"""
    offsets: Float32
    """(n,): added after the tables"""


class TableSource(NamedTuple):
    """What the distance tables of queries are made of: the codebooks of one quantizer."""

    codewords_by_dim: Float32
    """(M, D, 256)"""
    cross_levels: Float32 | None
    """(256,): values of a stored cross term"""
    epsilon: float
    """Added to the offset where no cross term is stored."""

    def make_tables(self, points: Float32) -> QueryTables:
        """Make the tables of query points (n, D); a query's do not depend on the others.

        The offset is -(M - 1)|x|², and ε more where the cross term is not stored.

        Raises
        ------
        NumericalError
            A query lies so far away that the order of its distances would mean nothing.
        """
        # Features of 1e150 are finite and still too large for float32.
        if not (np.abs(points) <= FARTHEST).all():
            raise _refuse_far_query()
        tables = distance_tables(points, self.codewords_by_dim)
        # In order, so that it does not depend on the batch either.
        squares = np.add.accumulate(points * points, axis=1)[:, -1]
        offsets = -np.float32(len(self.codewords_by_dim) - 1) * squares
        if self.cross_levels is None:
            return QueryTables(tables, offsets + np.float32(self.epsilon))
        stored = np.broadcast_to(self.cross_levels, (len(points), 1, N_CODEWORDS))
        return QueryTables(np.concatenate([tables, stored], axis=1), offsets)


def _refuse_far_query() -> NumericalError:
    return NumericalError("a query lies too far from everything for float32; scale its features")


class CellPoints:
    """Points that stand for cells, and the choice of the cells with the lowest scores.

    Parameters
    ----------
    points : (n_cells, D) float32
    offsets : (n_cells,) float32
        The score of a cell is the squared distance to its point, summed as in :func:`distance_tables`, and
        its offset.
    """

    def __init__(self, points: Float32, offsets: Float32) -> None:
        self.points, self.offsets = np.ascontiguousarray(points), np.ascontiguousarray(offsets)

    def __len__(self) -> int:
        return len(self.points)

    def scores(self, queries: Float32) -> Float32:
        """Score all cells for every query: (n, n_cells)."""
        tables = distance_tables(np.ascontiguousarray(queries), self._by_dim)
        scores: Float32 = tables.reshape(len(queries), -1)[:, : len(self.points)] + self.offsets
        return scores

    def choose(self, queries: Float32, count: int) -> NDArray[np.int64]:
        """Choose ``count`` cells for every query, (n, count), in the order of (score, cell)."""
        if _native is None:
            return kernels_numpy.choose_cells(self, queries, count)
        cells = np.empty((len(queries), count), dtype=np.int64)
        self.native.choose(np.ascontiguousarray(queries), cells)
        return cells

    @cached_property
    def native(self) -> Any:
        """The same in the extension."""
        return _native.Router(self.points, self.offsets)

    @cached_property
    def _by_dim(self) -> Float32:
        """Give the points as codebooks, (n, D, 256), the last filled up with copies."""
        n_tables = -(-len(self.points) // N_CODEWORDS)
        padded = np.resize(self.points, (n_tables * N_CODEWORDS, self.points.shape[1]))
        return np.ascontiguousarray(padded.reshape(n_tables, N_CODEWORDS, -1).transpose(0, 2, 1))


class CellRun(NamedTuple):
    """Items that lie cell after cell: see :func:`scan_cells`."""

    codes: Codes
    rows: NDArray[np.uint32]
    starts: NDArray[np.int64]


class SearchPart(NamedTuple):
    """Documents of one coding."""

    coding: int
    """How the caller calls it, at most 255."""
    sides: tuple[tuple[int, Codes], ...]
    """place of the quantizer, and codes (blocks, M', 64): one side, or two whose distances are added"""
    n_items: int
    first: int
    """number of the first document"""
    steps: NDArray[Any] | None
    """(n_items,) uint32 or uint64: what to add to it; None for 0, 1, 2, …"""
    cells: CellPoints | None = None
    """of the one side; None without"""
    runs: tuple[CellRun, ...] = ()


class AskedPart(NamedTuple):
    """A part that is searched."""

    part: int
    """its place"""
    extra: float
    """added to its distances last"""
    allowed: NDArray[np.uint64]
    """(blocks,): bit i of word b says whether row 64 b + i may be found"""
    n_probe: int
    """cells that are visited; 0: all documents are looked at"""


class FoundDocuments(NamedTuple):
    """The nearest documents of several queries, one query after the other, each by (distance, number)."""

    counts: NDArray[np.int64]
    """(queries,)"""
    numbers: NDArray[np.int64]
    rows: NDArray[np.int64]
    """(sum of counts,): places in their parts"""
    distances: Float32
    codings: NDArray[np.uint8]


class Searcher:
    """Search the documents of one generation: from query points to document numbers in one call.

    Parameters
    ----------
    sources : sequence of TableSource
        By quantizer.
    parts : sequence of SearchPart
    """

    def __init__(self, sources: Sequence[TableSource], parts: Sequence[SearchPart]) -> None:
        self.sources, self.parts = tuple(sources), tuple(parts)

    def search(
        self,
        points: Float32,
        asked: Sequence[AskedPart],
        k: int,
        *,
        max_distance: float = np.inf,
        n_threads: int = 1,
    ) -> FoundDocuments:
        """Find the ``k`` nearest documents of every point (n, D); :func:`scan` says what a distance is.

        Raises
        ------
        NumericalError
            A query lies so far away that the order of its distances would mean nothing.
        """
        points = _align(points)
        if _native is None:
            return kernels_numpy.search(self, points, asked, k, max_distance)
        try:
            found = self._native.search(points, asked, k, max_distance, FARTHEST, n_threads)
        except OverflowError as error:
            raise _refuse_far_query() from error
        n = len(points)
        total = (len(found) - 8 * n) // 21
        return FoundDocuments(
            np.frombuffer(found, np.int64, n),
            np.frombuffer(found, np.int64, total, 8 * n),
            np.frombuffer(found, np.int64, total, 8 * (n + total)),
            np.frombuffer(found, np.float32, total, 8 * (n + 2 * total)),
            np.frombuffer(found, np.uint8, total, 8 * n + 20 * total),
        )

    @cached_property
    def _native(self) -> Any:
        searcher = _native.Searcher([(*each[:2], float(each.epsilon)) for each in self.sources])
        for part in self.parts:
            router = None if part.cells is None else part.cells.native
            searcher.add_part(
                part.coding, part.sides, part.n_items, part.first, part.steps, router, part.runs
            )
        return searcher


def take_texts(text: bytes, ends: NDArray[np.int64], rows: NDArray[np.int64]) -> list[str]:
    """Decode the UTF-8 texts of some rows, given where each ends in ``text``, which has them in order."""
    if _native is None:
        return kernels_numpy.take_texts(text, ends, rows)
    return list(_native.take_texts(text, ends, rows))
