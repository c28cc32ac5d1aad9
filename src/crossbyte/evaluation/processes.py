"""Processes that take one task at a time each; one that dies takes only its task with it.

They are spawned, not forked (BLAS and our own threads do not survive a fork), each with one thread for
linear algebra, and leave Ctrl-C to their parent, who ends them. What a task returns must be small.
"""

from __future__ import annotations

import builtins
import multiprocessing
import os
import signal
import traceback
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Generic, TypeVar

from crossbyte import errors

__all__ = ["Failure", "each_in_processes", "each_here"]

Work = TypeVar("Work")

_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
_SECONDS_TO_END = 5.0


@dataclass(frozen=True)
class Failure:
    """An error of a task, in words that can go from one process to another.

    Attributes
    ----------
    kind : str
        Name of the class of the error.
    message : str
    trace : str
        Where it happened, for a report of a fault.
    """

    kind: str
    message: str
    trace: str = ""

    @classmethod
    def of(cls, error: Exception) -> Failure:
        """Describe an error that was caught."""
        return cls(type(error).__name__, str(error), "".join(traceback.format_exception(error)))

    @property
    def error(self) -> Exception:
        """The error again, of its class where that is ours or Python's own."""
        found = getattr(errors, self.kind, None) or getattr(builtins, self.kind, None)
        if isinstance(found, type) and issubclass(found, Exception):
            with suppress(TypeError):  # a class that wants more than a message
                return found(self.message)
        return RuntimeError(f"{self.kind}: {self.message}")


def each_here(
    function: Callable[[Work], object], tasks: Iterable[Work]
) -> Iterator[tuple[Work, Failure | None]]:
    """Do tasks one after another in this process; yield each with what went wrong, or None."""
    from threadpoolctl import threadpool_limits

    for task in tasks:
        with threadpool_limits(1):  # as in the processes: results must not depend on where they are made
            failure = _tried(function, task)
        yield task, failure


def each_in_processes(
    function: Callable[[Work], object], tasks: Iterable[Work], n_processes: int
) -> Iterator[tuple[Work, Failure | None]]:
    """Do tasks in several processes, in about their order; yield each, as it ends, with what went wrong.

    Parameters
    ----------
    function : callable
        Of one argument; found by its name in another process, so not defined within a function.
    tasks : iterable
    n_processes : int
    """
    waiting = deque(tasks)
    crew: list[_Worker[Work]] = []
    try:
        while waiting or crew:
            while waiting and len(crew) < n_processes:
                crew.append(_Worker(function, waiting.popleft()))
            ready = connection.wait([worker.answers for worker in crew])
            for worker in [worker for worker in crew if worker.answers in ready]:
                yield worker.task, worker.outcome()
                if not (worker.alive and waiting and worker.take(waiting[0])):
                    worker.end()
                    crew.remove(worker)
                else:
                    waiting.popleft()
    finally:
        for worker in crew:
            worker.end()


class _Worker(Generic[Work]):
    """One process and the task it has."""

    def __init__(self, function: Callable[[Work], object], task: Work) -> None:
        context = multiprocessing.get_context("spawn")
        self.answers, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, function), daemon=True)
        with _environment(dict.fromkeys(_ONE_THREAD, "1")):  # read once, when the libraries are loaded
            self._process.start()
        theirs.close()
        self.alive = True
        self.take(task)

    def take(self, task: Work) -> bool:
        """Send a task; False if nobody is there to take it."""
        self.task = task
        try:
            self.answers.send(task)
        except OSError:
            self.alive = False
        return self.alive

    def outcome(self) -> Failure | None:
        """What became of the task."""
        try:
            found: Failure | None = self.answers.recv()
            return found
        except (EOFError, OSError):
            self.alive = False
            self._process.join(_SECONDS_TO_END)
            return _died(self._process.exitcode)

    def end(self) -> None:
        """End the process, whatever it does: results are files, which are whole or not there."""
        self._process.terminate()
        self._process.join(_SECONDS_TO_END)
        self._process.kill()  # one that is deep in a library does not hear the first
        self._process.join()
        self.answers.close()


def _serve(tasks: connection.Connection[Any, Any], function: Callable[[Any], object]) -> None:
    """Do what comes until nothing comes any more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _leave)
    with suppress(EOFError, OSError):
        while True:
            tasks.send(_tried(function, tasks.recv()))


def _leave(*_: object) -> None:
    """End as an exception does, so that a file which is being written is not left behind."""
    raise SystemExit(128 + signal.SIGTERM)


def _tried(function: Callable[[Work], object], task: Work) -> Failure | None:
    try:
        function(task)
    except Exception as error:
        return Failure.of(error)
    return None


def _died(code: int | None) -> Failure:
    if code is not None and code == -getattr(signal, "SIGKILL", 9):
        return Failure("MemoryError", "the process was killed, most likely because memory ran out")
    return Failure("RuntimeError", f"the process ended with code {code} before it was done")


@contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
