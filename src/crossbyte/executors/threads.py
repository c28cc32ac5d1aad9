"""The threads of this process: the executor of everything that fits into memory."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from itertools import chain, islice
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse
from threadpoolctl import LibController, ThreadpoolController

from crossbyte.blocks import SHARE_BLOCKS, row_blocks
from crossbyte.executors.protocol import Executor, Item, Result

__all__ = ["Workers", "added", "available_cores", "batched", "no_rows"]


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
    """Threads that work on blocks in memory; a context that also holds BLAS to one thread.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads; None or -1 for all cores of this process. The results do not depend on it.
    """

    def __init__(self, n_jobs: int | None = None) -> None:
        self.n_jobs = available_cores() if n_jobs is None or n_jobs < 0 else max(1, n_jobs)
        self._pool: ThreadPoolExecutor | None = None
        self._inside = False

    def __enter__(self) -> Self:
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
        """Sum ``function(block)``: over the blocks of each share, then over the shares, in order."""
        parts = self.map(function, row_blocks(n_rows))
        return added(map(added, batched(parts, SHARE_BLOCKS)))

    def rows(
        self,
        function: Callable[[slice], NDArray[Any]],
        n_rows: int,
        row: tuple[int, ...],
        dtype: DTypeLike,
        size: int | None = None,
    ) -> Any:
        """Collect the rows of every block into one array (n_rows, *row)."""
        values = np.empty((n_rows, *row), dtype)

        def fill(block: slice) -> None:
            values[block] = function(block)

        self.each(fill, n_rows, size)
        return values

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Collect the sparse rows of every canonical block into one CSR matrix."""
        parts = list(self.map(function, row_blocks(n_rows)))
        if len(parts) == 1:  # a single query, as often as not
            return parts[0]
        return sparse.vstack(parts, format="csr") if parts else no_rows(n_columns)

    def hold(self, rows: Any) -> Any:
        """The rows: threads reach everything."""
        return rows

    @property
    def local(self) -> Executor:
        """The same: everything is here."""
        return self


def no_rows(n_columns: int) -> sparse.csr_matrix:
    """A matrix without rows."""
    shape: Any = (0, n_columns)  # the stubs of SciPy do not know that a shape makes a matrix
    return sparse.csr_matrix(shape, dtype=np.float32)


def added(parts: Iterable[Any]) -> Any:
    """Add parts up in their order; each an array, a number, or a tuple of these."""
    parts = iter(parts)
    result = next(parts)
    for part in parts:
        result = _add(result, part)
    return result


def batched(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Cut into lists of so many, the last one shorter."""
    items = iter(items)
    while batch := list(islice(items, size)):
        yield batch


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, tuple):
        return tuple(_add(a, b) for a, b in zip(left, right, strict=True))
    return left + right
