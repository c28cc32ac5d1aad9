"""Actors that are killed, and stay lost for as long as a test wants."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_AWAY = "-away.cb"  # sorts as the file does: a server that watches the folder does not miss it


@contextmanager
def killed(index: Any, *shards: int) -> Iterator[None]:
    """End the processes of actors from outside, and keep them lost until the block ends.

    Ray tells of a killed actor a second or two later, often when the next one is up already. So that this is
    no race, the new one does not find its file inside the block: whenever it is asked, the shard is lost.
    """
    pool = index._pool
    processes = pool.ask("process", dict.fromkeys(shards, ()))
    assert processes.keys() == set(shards), "a shard was lost before it was killed"
    files = [Path(index.path, pool.names[shard]) for shard in shards]
    away = [file.with_name(file.stem + _AWAY) for file in files]
    try:
        for file, other in zip(files, away, strict=True):
            file.rename(other)
        for process in processes.values():
            os.kill(process, signal.SIGKILL)
        yield
    finally:
        for file, other in zip(files, away, strict=True):
            other.rename(file)
