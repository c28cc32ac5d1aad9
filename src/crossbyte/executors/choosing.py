"""Which executor a call gets: threads, threads with scratch files, or a cluster."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crossbyte.errors import InvalidInput
from crossbyte.executors.protocol import Executor
from crossbyte.executors.threads import Workers

if TYPE_CHECKING:
    from crossbyte.executors.ray_tasks import RayWorkers

__all__ = ["kept_open", "make_executor", "on_cluster", "parse_memory", "usual_memory"]

_UNITS = {
    "": 1,
    "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40,
}  # fmt: skip
_AMOUNT = re.compile(r"\s*(\d{1,18}(?:\.\d{1,18})?)\s*(|[kmgt]i?)b?\s*", re.IGNORECASE)
_SHARE = 4  # of the machine's memory
_UNKNOWN_MACHINE = 4 * 2**30
_GRANTED = Path("/sys/fs/cgroup/memory.max")


def make_executor(
    n_jobs: int | None, *, cluster: str | None = None, max_memory: str | int | None = None
) -> Executor:
    """Choose who goes through the blocks; no result depends on it.

    Parameters
    ----------
    n_jobs : int or None
        Threads, or pieces of work at the same time; None for all cores.
    cluster : str or None
        None for the threads of this process; ``"local"`` starts Ray here; else the address of a Ray cluster.
    max_memory : int, str or None
        Bytes, or text like ``"1.5GB"``, beyond which rows go to scratch files; None keeps all in memory. On a
        cluster rows are in Ray's object store, which has bounds of its own.

    Returns
    -------
    Executor
        To be entered as a context.

    Raises
    ------
    InvalidInput
        An amount of memory or an address that is none.
    """
    n_bytes = None if max_memory is None else parse_memory(max_memory)
    if cluster is not None:
        return on_cluster(cluster, n_jobs)
    if n_bytes is None:
        return Workers(n_jobs)
    from crossbyte.executors.scratch import ScratchWorkers

    return ScratchWorkers(n_jobs, n_bytes)


def on_cluster(cluster: Any, n_jobs: int | None) -> RayWorkers:
    """The executor of a cluster, ``"local"`` or an address; to be entered as a context.

    Raises
    ------
    InvalidInput
        An address that is none.
    """
    if not isinstance(cluster, str) or not cluster:
        raise InvalidInput(f"cluster: expected None, 'local' or the address of a cluster, got {cluster!r}")
    from crossbyte.executors.ray_tasks import RayWorkers

    return RayWorkers(cluster, n_jobs)


@contextmanager
def kept_open(cluster: str | None, n_jobs: int | None = None) -> Iterator[None]:
    """Stay connected to a cluster through several calls that name it; without one, do nothing."""
    if not isinstance(cluster, str) or not cluster:  # what is none at all, the calls refuse
        yield
        return
    from crossbyte.executors.ray_cluster import Cluster

    with Cluster(cluster, None if n_jobs is None or n_jobs < 0 else max(1, n_jobs)):
        yield


def parse_memory(amount: Any, name: str = "max_memory") -> int:
    """Return bytes from a whole number of them, or from text: ``"1.5GB"`` (10^9), ``"512 MiB"`` (2^20)."""
    if isinstance(amount, int) and not isinstance(amount, bool) and amount > 0:
        return amount
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    n_bytes = int(float(found[1]) * _UNITS[found[2].lower()]) if found else 0
    if n_bytes < 1:
        raise InvalidInput(
            f"{name}: expected a number of bytes above 0, or text like '1.5GB', got {amount!r}"
        )
    return n_bytes


def usual_memory() -> int:
    """Bytes that a call takes for its rows unless it is told: a quarter of what this process may have."""
    return min(_machine_memory(), _container_memory()) // _SHARE


def _machine_memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return _UNKNOWN_MACHINE


def _container_memory() -> int:
    """What a container grants (Linux), which sees its machine's memory and is ended beyond its own."""
    try:
        return int(_GRANTED.read_text())
    except (OSError, ValueError):  # no container, or one without a bound ("max")
        return sys.maxsize
