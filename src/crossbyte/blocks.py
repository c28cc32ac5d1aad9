"""Canonical blocks of rows, and workers that go through them in order.

Whatever the storage and the number of threads, rows are always cut at the same places, each block is
computed with one BLAS thread, and sums over blocks are added in the order of the rows. That is what
makes a model's bytes a function of data and seed alone.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from functools import cache
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

__all__ = ["BLOCK_ROWS", "Workers", "row_blocks", "sample_rows"]

BLOCK_ROWS = 4096
SAMPLE_ROWS = 20_000  # enough for any start; the alternation itself always sees every row

Item = TypeVar("Item")
Result = TypeVar("Result")


def row_blocks(n_rows: int) -> list[slice]:
    """Cut ``n_rows`` rows into the canonical blocks."""
    return [slice(start, min(start + BLOCK_ROWS, n_rows)) for start in range(0, n_rows, BLOCK_ROWS)]


def sample_rows(n_rows: int, rng: np.random.Generator) -> NDArray[np.intp] | None:
    """Choose the rows that initialisations learn from, in order; None where all are few enough."""
    if n_rows <= SAMPLE_ROWS:
        return None
    return np.sort(rng.choice(n_rows, SAMPLE_ROWS, replace=False))


def available_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _blas() -> ThreadpoolController:
    # Looking for the loaded BLAS takes milliseconds, so it is done once.
    return ThreadpoolController()


class _OneBlasThread:
    """Holds BLAS to one thread while anybody works.

    The limit belongs to the whole process, so concurrent calls share it: the first one in sets it, the
    last one out restores what was there before.
    """

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0
        self._limits: AbstractContextManager[Any] | None = None

    def acquire(self) -> None:
        with self._lock:
            if self._users == 0:
                self._limits = _blas().limit(limits=1, user_api="blas")
                self._limits.__enter__()
            self._users += 1

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0 and self._limits is not None:
                self._limits.__exit__(None, None, None)
                self._limits = None


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

    def __enter__(self) -> Workers:
        _one_blas_thread.acquire()
        if self.n_jobs > 1:
            self._pool = ThreadPoolExecutor(self.n_jobs, thread_name_prefix="crossbyte")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
        finally:
            self._pool = None
            _one_blas_thread.release()

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items, a few at a time."""
        if self._pool is None:
            yield from map(function, items)
            return
        # A short queue: results are used up in order, so memory stays bounded.
        waiting: deque[Future[Result]] = deque()
        for item in items:
            waiting.append(self._pool.submit(function, item))
            if len(waiting) > 2 * self.n_jobs:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()

    def each(self, function: Callable[[slice], object], n_rows: int) -> None:
        """Call ``function(block)`` for every canonical block of ``n_rows`` rows."""
        for _ in self.map(function, row_blocks(n_rows)):
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
