"""Canonical blocks of rows, and workers that go through them in order.

Whatever the storage and the number of threads, rows are always cut at the same places, each block is
computed with one BLAS thread, and sums over blocks are added in the order of the rows. That is what
makes a model's bytes a function of data and seed alone. Products of rows with a matrix are computed in
tiles of fixed shapes, so that a row's does not even depend on the rows beside it.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import LibController, ThreadpoolController

from crossbyte import kernels

__all__ = ["BLOCK_ROWS", "TILE_ROWS", "Workers", "covers", "row_blocks", "sample_rows", "steady_product"]

BLOCK_ROWS = 4096
TILE_ROWS = 256  # the smallest with which whole blocks are multiplied about as fast as in one piece
SAMPLE_ROWS = 20_000  # enough for any start; the alternation itself always sees every row

_SMALL_MATRIX = 2**16  # entries; beyond, BLAS is worth its trouble

Item = TypeVar("Item")
Result = TypeVar("Result")


def row_blocks(n_rows: int, size: int | None = None) -> list[slice]:
    """Cut ``n_rows`` rows into the canonical blocks; another size only where rows are independent."""
    size = size or BLOCK_ROWS
    return [slice(start, min(start + size, n_rows)) for start in range(0, n_rows, size)]


def covers(rows: slice, n_rows: int) -> bool:
    """Whether a block is all the rows there are; taking a part of a sparse matrix is slow even then."""
    return rows == slice(0, n_rows)


def sample_rows(n_rows: int, rng: np.random.Generator, most: int = SAMPLE_ROWS) -> NDArray[np.intp] | None:
    """Choose at most so many rows to learn from, in order; None where all are few enough."""
    if n_rows <= most:
        return None
    return np.sort(rng.choice(n_rows, most, replace=False))


def steady_product(rows: NDArray[Any], matrix: NDArray[Any]) -> NDArray[Any]:
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


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> list[LibController]:
    # Looking for the loaded BLAS takes milliseconds, so it is done once.
    return list(ThreadpoolController().select(user_api="blas").lib_controllers)


class _OneBlasThread:
    """Holds BLAS to one thread while anybody works.

    The limit belongs to the whole process, so concurrent calls share it: the first one in sets it, the
    last one out restores what was there before. The libraries are told directly: threadpoolctl's own
    context looks at all of them anew each time, which takes as long as the search of a small index.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._before: list[int | None] = []

    def acquire(self) -> None:
        with self._lock:
            if self._users == 0:
                self._before = [library.get_num_threads() for library in _blas()]
                self._set([1] * len(self._before))
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._set(self._before)

    def _set(self, threads: list[int | None]) -> None:
        for library, before, number in zip(_blas(), self._before, threads, strict=True):
            if before != 1:
                library.set_num_threads(number)


_one_blas_thread = _OneBlasThread()


class Workers:
    """Threads that work on blocks; a context that also holds BLAS to one thread.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads; None or -1 for all cores of this process. The results do not depend on it.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = available_cores() if n_jobs is None or n_jobs < 0 else max(1, n_jobs)
        self._pool: ThreadPoolExecutor | None = None
        self._inside = False

    def __enter__(self) -> Workers:
        _one_blas_thread.acquire()
        self._inside = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._pool, self._inside = None, False
            _one_blas_thread.release()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items, a few at a time."""
        items = iter(items)
        first = list(islice(items, 2))
        if len(first) < 2 or self.n_jobs == 1 or not self._inside:
            yield from map(function, chain(first, items))
            return
        pool = self._threads()
        # A short queue: results are used up in order, so memory stays bounded.
        waiting: deque[Future[Result]] = deque()
        for item in chain(first, items):
            waiting.append(pool.submit(function, item))
            if len(waiting) > 2 * self.n_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def _threads(self) -> ThreadPoolExecutor:
        # Started when there is work for two: a single query would wait for them longer than it takes.
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.n_jobs, thread_name_prefix="crossbyte")
        return self._pool

    def each(self, function: Callable[[slice], object], n_rows: int, size: int | None = None) -> None:
        """Call ``function(block)`` for every canonical block of ``n_rows`` rows, or those of another size."""
        blocks = row_blocks(n_rows, size)
        if len(blocks) == 1:  # a single query, as often as not: no need for a queue
            function(blocks[0])
            return
        for _ in self.map(function, blocks):
            pass

    def total(self, function: Callable[[slice], Any], n_rows: int) -> Any:
        """Sum ``function(block)`` over the canonical blocks, in their order.

        The function returns an array, a number, or a tuple of these.
        """
        parts = self.map(function, row_blocks(n_rows))
        result = next(parts)
        for part in parts:
            result = _add(result, part)
        return result


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return tuple(_add(a, b) for a, b in zip(left, right, strict=True))
    return left + right
