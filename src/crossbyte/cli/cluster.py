"""What commands have in common that may work on a cluster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

__all__ = ["connected", "ray_on_stderr"]


@contextmanager
def ray_on_stderr(cluster: str | None) -> Iterator[None]:
    """Let Ray say on stderr what it says of lost workers: a command's stdout may be a JSON document."""
    if cluster is None:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def connected(cluster: str | None, jobs: int | None) -> Iterator[None]:
    """Stay connected through all calls of a command, with Ray on stderr."""
    from crossbyte.executors.choosing import kept_open

    with ray_on_stderr(cluster), kept_open(cluster, jobs):
        yield
