"""Errors of Ray as errors of ours: what was lost, what died, what is not installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from crossbyte.errors import ClusterError, CrossbyteError, StorageFull, TaskDied
from crossbyte.executors.ray_connection import plain, ray_module

__all__ = ["RETRIES", "Losable", "translated"]

RETRIES = 20  # of a task whose worker or machine is lost; errors of ours are not tried again


class Losable(Protocol):
    """A cluster that may go away."""

    def lost(self, why: str) -> ClusterError:
        """Say that it did."""


@contextmanager
def translated(cluster: Losable) -> Iterator[None]:
    """Raise the error of a task as itself, and every error of Ray as one of ours."""
    kinds = ray_module().exceptions
    try:
        yield
    except (kinds.RayError, ConnectionError) as error:
        cause = _cause(error)
        if cause is not error and isinstance(cause, Exception) and not isinstance(cause, kinds.RayError):
            raise cause from None
        raise _ours(cause, cluster) from error


def _cause(error: BaseException) -> BaseException:
    """What a task raised, or a task whose result it needed."""
    while isinstance(error, ray_module().exceptions.RayTaskError):
        error = error.cause
    return error


def _ours(error: BaseException, cluster: Losable) -> CrossbyteError:
    kinds = ray_module().exceptions
    if isinstance(error, kinds.OutOfDiskError | kinds.ObjectStoreFullError):
        return StorageFull(
            "Ray's object store and the disk that it spills to are full; nothing was changed; make room, or "
            "start Ray with another --object-spilling-directory"
        )
    if isinstance(error, kinds.WorkerCrashedError | kinds.OutOfMemoryError):
        return _died(error)
    unread = getattr(error, "client_exc", None)
    if isinstance(unread, ImportError | AttributeError):  # no such module, or an older one
        return ClusterError(
            f"cluster: a worker could not load what it was sent ({_first_line(unread)}); install the same "
            "crossbyte, and what it needs, on every machine"
        )
    return cluster.lost(_first_line(error))


def _died(error: BaseException) -> TaskDied:
    if isinstance(error, ray_module().exceptions.OutOfMemoryError):
        what = "Ray ended the process of a task, because its machine ran out of memory"
    else:
        what = f"the process of a task died {RETRIES + 1} times, perhaps for want of memory"
    return TaskDied(
        f"{what} ({_first_line(error)}); let fewer tasks run at a time, or use machines with more memory"
    )


def _first_line(error: BaseException) -> str:
    lines = plain(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
