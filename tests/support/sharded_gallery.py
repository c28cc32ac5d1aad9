"""The small gallery of scenes in shards, and shards of it that get lost."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crossbyte.sharding.pool import ShardPool
from crossbyte.sharding.split import split_index
from crossbyte.sharding.wire import ShardLost
from support.service_samples import sample

N_SHARDS = 3


def sharded(folder: Path, n_shards: int = N_SHARDS) -> Path:
    """The sample gallery in shards, with everything beside it, in a folder of its own."""
    own = folder / "in shards"
    own.mkdir()
    path = own / "scenes.cbs"
    split_index(sample(own), path, n_shards)
    shutil.move(own / "scenes.cb.files", own / "scenes.cbs.files")
    (own / "scenes.cb").unlink()
    return path


class Losing:
    """A pool some of whose shards do not answer."""

    def __init__(self, pool: ShardPool, lost: set[int]) -> None:
        self.names, self._pool = pool.names, pool
        self.lost = {shard: ShardLost("it was taken away") for shard in lost}

    def ask(
        self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False
    ) -> dict[int, Any]:
        there = {shard: arguments for shard, arguments in calls.items() if shard not in self.lost}
        return self._pool.ask(method, there, patient=patient)

    def close(self) -> None:
        self._pool.close()


@contextmanager
def losing(index: Any, *shards: int) -> Iterator[None]:
    """Let shards of an open index be lost for a while."""
    pool = index._pool
    index._pool = Losing(pool, set(shards))
    try:
        yield
    finally:
        index._pool = pool
