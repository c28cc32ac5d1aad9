"""Run blocking work in a bounded number of threads, so that the event loop never waits."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ParamSpec, TypeVar

from crossbyte.compute.executor import available_cores
from crossbyte.service.error_codes import RequestRefused

T = TypeVar("T")
P = ParamSpec("P")


class ThreadPool:
    """Threads for one kind of work, and a bound on how much may wait for them.

    Work whose caller gave up goes on to its end, and counts until then.
    """

    def __init__(self, name: str, n_threads: int, n_waiting: int) -> None:
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix=f"crossbyte-{name}")
        self._limit, self._count, self._lock = n_threads + n_waiting, 0, threading.Lock()

    async def run(self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a function in a thread, and wait for it without blocking the loop.

        Raises
        ------
        RequestRefused
            Too much is waiting already.
        """
        self._enter()
        try:
            job = self._executor.submit(function, *args, **options)
        except RuntimeError as error:
            self._leave()
            raise RequestRefused("shutting_down") from error
        job.add_done_callback(self._leave)
        return await asyncio.wrap_future(job)

    def _enter(self) -> None:
        with self._lock:
            if self._count >= self._limit:
                raise RequestRefused("too_busy")
            self._count += 1

    def _leave(self, _: Any = None) -> None:
        with self._lock:
            self._count -= 1

    def close(self) -> None:
        """Finish what is running; nothing new is accepted."""
        self._executor.shutdown(wait=True, cancel_futures=True)


class ThreadPools:
    """The thread pools of a server.

    Attributes
    ----------
    reading : ThreadPool
        For searches and everything else that is quick.
    pictures : ThreadPool
        For uploads: decoding one may take seconds, and must not hold up a typed query.
    writing : ThreadPool
        One thread, so that each write knows the generation that it made.
    """

    def __init__(self, n_waiting: int) -> None:
        self.reading = ThreadPool("reading", available_cores() + 2, n_waiting)
        self.pictures = ThreadPool("pictures", 2, n_waiting)
        self.writing = ThreadPool("writing", 1, n_waiting)

    def close(self) -> None:
        """Finish what is running in every pool."""
        for pool in (self.reading, self.pictures, self.writing):
            pool.close()
