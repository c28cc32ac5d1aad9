"""Run blocking work in a bounded number of threads, so that the event loop only passes things on."""

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

    A caller who gave up leaves its work behind, which ends on its own; it counts until it has ended.
    """

    def __init__(self, name: str, n_threads: int, n_waiting: int) -> None:
        self._pool = ThreadPoolExecutor(n_threads, thread_name_prefix=f"crossbyte-{name}")
        self._limit, self._count, self._guard = n_threads + n_waiting, 0, threading.Lock()

    async def run(self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a function in a thread, and wait for it without blocking the loop.

        Raises
        ------
        RequestRefused
            Too much is waiting already.
        """
        self._enter()
        try:
            job = self._pool.submit(function, *args, **options)
        except RuntimeError as error:
            self._leave()
            raise RequestRefused("shutting_down") from error
        job.add_done_callback(self._leave)
        return await asyncio.wrap_future(job)

    def _enter(self) -> None:
        with self._guard:
            if self._count >= self._limit:
                raise RequestRefused("too_busy")
            self._count += 1

    def _leave(self, _: Any = None) -> None:
        with self._guard:
            self._count -= 1

    def close(self) -> None:
        """Finish what is running; nothing new is taken."""
        self._pool.shutdown(wait=True, cancel_futures=True)


class ThreadPools:
    """The lanes of a server.

    Attributes
    ----------
    reading : ThreadPool
        Searches and everything else that is quick.
    pictures : ThreadPool
        Uploads: decoding one may take seconds, and must not hold up who types.
    writing : ThreadPool
        One thread, so that each write knows the generation that it made.
    """

    def __init__(self, n_waiting: int) -> None:
        self.reading = ThreadPool("reading", available_cores() + 2, n_waiting)
        self.pictures = ThreadPool("pictures", 2, n_waiting)
        self.writing = ThreadPool("writing", 1, n_waiting)

    def close(self) -> None:
        """Finish what is running in every lane."""
        for lane in (self.reading, self.pictures, self.writing):
            lane.close()
