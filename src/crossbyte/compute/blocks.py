"""Canonical blocks of rows: whatever the storage and whoever works, rows are always cut at the same places.

Sums are taken over blocks, then over shares of blocks, always in the order of the rows. That is what makes a
model's bytes a function of data and seed alone. Products of rows with a matrix are computed in tiles of fixed
shapes, so that a row's does not even depend on the rows beside it.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.compute import kernels

BLOCK_ROWS = 4096
SHARE_BLOCKS = 4  # what is added up, kept and sent in one piece: enough work to be worth a message
SHARE_ROWS = SHARE_BLOCKS * BLOCK_ROWS
TILE_ROWS = 256  # the smallest with which whole blocks are multiplied about as fast as in one piece
SAMPLE_ROWS = 20_000  # enough for any start; the alternation itself always sees every row

_SMALL_MATRIX = 2**16  # entries; beyond, BLAS is worth its trouble


def row_blocks(n_rows: int, size: int | None = None) -> list[slice]:
    """Cut ``n_rows`` rows into the canonical blocks; another size only where rows are independent."""
    size = size or BLOCK_ROWS
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def covers_all_rows(rows: slice, n_rows: int) -> bool:
    """Whether a block is all the rows there are; taking a part of a sparse matrix is slow even then."""
    return rows == slice(0, n_rows)


def sample_rows(n_rows: int, rng: np.random.Generator, most: int = SAMPLE_ROWS) -> NDArray[np.intp] | None:
    """Choose at most so many rows to learn from, in order; None where all are few enough."""
    if n_rows <= most:
        return None
    return np.sort(rng.choice(n_rows, most, replace=False))


def deterministic_product(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
    """Rows (n, d) times a (d, k) matrix; a row's product does not depend on how many rows are beside it.

    BLAS chooses its kernel by the shapes, and kernels round differently: one row alone would end in other
    bits than in a batch. A small matrix has a kernel of ours. For a large one, rows are cut in tiles of
    ``TILE_ROWS``, the last one filled up with zeros to the next size that was seen to give the bits of a
    whole tile.
    """
    (n, d), k = rows.shape, matrix.shape[1]
    if d * k <= _SMALL_MATRIX and matrix.dtype == np.float64 and matrix.flags.c_contiguous:
        return kernels.ordered_product(np.ascontiguousarray(rows, dtype=np.float64), matrix)
    rows = np.ascontiguousarray(rows)
    product = np.empty((n, k), dtype=np.result_type(rows, matrix))
    whole = n - n % TILE_ROWS
    if whole:
        tiles = product[:whole].reshape(-1, TILE_ROWS, k)
        np.matmul(rows[:whole].reshape(-1, TILE_ROWS, d), matrix, out=tiles)
    if n > whole:
        sizes = _like_whole_tiles(d, k, product.dtype, matrix.flags.c_contiguous)
        last = np.zeros((next(size for size in sizes if size >= n - whole), d), dtype=rows.dtype)
        last[: n - whole] = rows[whole:]
        product[whole:] = (last @ matrix)[: n - whole]
    return product


@cache
def _like_whole_tiles(d: int, k: int, dtype: np.dtype[Any], by_rows: bool) -> list[int]:
    """Numbers of rows, growing up to ``TILE_ROWS``, that BLAS multiplies as it does a whole tile.

    Which ones depends on the BLAS and the CPU; it is tried once, on random numbers, where every other
    order of summation shows.
    """
    rng = np.random.default_rng(0)
    rows = (rng.random((TILE_ROWS, d)) - 0.5).astype(dtype)
    matrix = np.asarray((rng.random((d, k)) - 0.5).astype(dtype), order="C" if by_rows else "F")
    expected = rows @ matrix
    sizes = [8, 16, 32, 64, 128]
    return [size for size in sizes if np.array_equal(rows[:size] @ matrix, expected[:size])] + [TILE_ROWS]
