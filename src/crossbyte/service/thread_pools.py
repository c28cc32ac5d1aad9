"""Run blocking work in a bounded number of threads, so that the event loop never waits."""

from __future__ import annotations

import asyncio
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, ParamSpec, TypeVar

from crossbyte.compute.executor import available_cores
from crossbyte.service.error_codes import RequestRefused

T = TypeVar("T")
P = ParamSpec("P")
_LOOK_SECONDS = 0.005  # that a result waits for others, at most
_MOST_DONE = 4  # results that are handed over together
_TURN_SECONDS = 0.02  # many times a search; behind slower work nobody waits for a turn


class ThreadPool:
    """Threads for one kind of work, and a bound on how much may wait for them.

    Work whose caller gave up goes on to its end, and counts until then.

    Parameters
    ----------
    name : str
    n_threads, n_waiting : int
    in_turns : bool
        Whether work that is quick is done one after the other, though there are several threads: these would
        only take the interpreter from each other, hundreds of times for a search. Behind work that is not
        quick, the others go on after a moment all the same.
    """

    def __init__(self, name: str, n_threads: int, n_waiting: int, *, in_turns: bool = False) -> None:
        self._turn = threading.Lock() if in_turns else None
        self._executor = ThreadPoolExecutor(n_threads, thread_name_prefix=f"crossbyte-{name}")
        self._limit, self._count, self._lock = n_threads + n_waiting, 0, threading.Lock()
        self._n_queued, self._is_looking = 0, False
        self._done: deque[asyncio.Future[None]] = deque()
        self._is_closed = False

    async def run(self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a function in a thread, and wait for it without blocking the loop.

        Raises
        ------
        RequestRefused
            Too much is waiting already.
        """
        return await self._wait(self._submit(function, *args, **options))

    async def run_to_end(self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        """Run a function whose outcome must be told: once it has begun, wait for its end, whoever gives up.

        Raises
        ------
        asyncio.CancelledError
            The caller gave up, and the function was never begun, nor will it be.
        RequestRefused
            Too much is waiting already.
        """
        job = self._submit(function, *args, **options)
        waiting = asyncio.ensure_future(self._wait(job))
        try:
            return await asyncio.shield(waiting)
        except asyncio.CancelledError:
            if job.cancel():
                raise
            return await waiting

    def _submit(
        self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs
    ) -> concurrent.futures.Future[T]:
        self._enter()
        try:
            job = self._executor.submit(self._run_in_turn, function, *args, **options)
        except RuntimeError as error:
            with self._lock:
                self._count -= 1
                self._n_queued -= 1
            raise RequestRefused("shutting_down") from error
        job.add_done_callback(self._leave)
        return job

    def _run_in_turn(self, function: Callable[P, T], /, *args: P.args, **options: P.kwargs) -> T:
        with self._lock:
            self._n_queued -= 1
        if self._turn is None or not self._turn.acquire(timeout=_TURN_SECONDS):
            return function(*args, **options)
        try:
            return function(*args, **options)
        finally:
            self._turn.release()

    async def _wait(self, job: concurrent.futures.Future[T]) -> T:
        """Wait for work, and say so where the server stopped before it was begun."""
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        job.add_done_callback(lambda _: self._hand_over(loop, waiter))
        if not self._is_looking:
            self._is_looking = True
            loop.call_later(_LOOK_SECONDS, self._look, loop)
        try:
            await waiter
        except asyncio.CancelledError:
            job.cancel()
            raise
        if not job.cancelled():
            return job.result()
        if self._is_closed:
            raise RequestRefused("shutting_down")
        raise asyncio.CancelledError

    def _hand_over(self, loop: asyncio.AbstractEventLoop, waiter: asyncio.Future[None]) -> None:
        """Hand a result over to the loop; with others, or after a moment, while more waits for its turn.

        Waking the loop for each would take the interpreter from the next search as often.
        """
        self._done.append(waiter)
        if self._turn is None or self._n_queued <= 0 or len(self._done) >= _MOST_DONE:
            with suppress(RuntimeError):  # the loop has ended: nobody waits
                loop.call_soon_threadsafe(self._tell)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        """Tell who waits, and look again after a moment as long as anything is under way."""
        self._tell()
        self._is_looking = self._count > 0
        if self._is_looking:
            loop.call_later(_LOOK_SECONDS, self._look, loop)

    def _tell(self) -> None:
        while self._done:
            waiter = self._done.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _enter(self) -> None:
        with self._lock:
            if self._count >= self._limit:
                raise RequestRefused("too_busy")
            self._count += 1
            self._n_queued += 1

    def _leave(self, job: concurrent.futures.Future[Any]) -> None:
        with self._lock:
            self._count -= 1
            self._n_queued -= job.cancelled()  # it was never begun

    def close(self) -> None:
        """Finish what is running; nothing new is accepted."""
        self._is_closed = True
        self._executor.shutdown(wait=True, cancel_futures=True)


class ThreadPools:
    """The thread pools of a server.

    Attributes
    ----------
    reading : ThreadPool
        For searches and everything else that is quick, in turns.
    parsing : ThreadPool
        One thread for large bodies of JSON: each takes a hundred megabytes and all of the interpreter.
    pictures : ThreadPool
        For uploads: decoding one may take seconds, and must not hold up a typed query.
    writing : ThreadPool
        One thread, so that each write knows the generation that it made.
    compacting : ThreadPool
        One thread, beside which writing goes on; nothing waits for it.
    """

    def __init__(self, n_waiting: int) -> None:
        self.reading = ThreadPool("reading", available_cores() + 2, n_waiting, in_turns=True)
        self.parsing = ThreadPool("parsing", 1, n_waiting)
        self.pictures = ThreadPool("pictures", 2, n_waiting)
        self.compacting = ThreadPool("compacting", 1, 0)
        self.writing = ThreadPool("writing", 1, n_waiting)

    def close(self) -> None:
        """Finish what is running in every pool."""
        for pool in (self.reading, self.parsing, self.pictures, self.compacting, self.writing):
            pool.close()
