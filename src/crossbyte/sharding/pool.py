"""Hold the shards of an index and pass questions on to them: the protocol, and the pool of this process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from crossbyte.model.estimator import CMCQ
from crossbyte.sharding.manifest import Manifest
from crossbyte.sharding.shard import Shard
from crossbyte.sharding.wire import ShardLost


class ShardPool(Protocol):
    """Passes questions on to shards.

    Attributes
    ----------
    names : sequence of str
        Of the shards, as the manifest has them.
    """

    names: Sequence[str]

    @property
    def lost(self) -> Mapping[int, ShardLost]:
        """Shards that did not answer the last question, and why."""

    def ask(
        self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False
    ) -> dict[int, Any]:
        """Call a method of some shards, all at the same time.

        Parameters
        ----------
        method : str
            Of :class:`crossbyte.sharding.shard.Shard`.
        calls : mapping of shard to arguments
        patient : bool
            Whether to wait longer: for calls that read or write whole files.

        Returns
        -------
        dict of shard to result
            In the order of the shards, without those that are lost.
        """

    def close(self) -> None:
        """Close all shards; may be called again."""


class LocalShardPool:
    """Holds all shards in this process, where none of them can be lost.

    Parameters
    ----------
    manifest : Manifest
    mode : {"r", "rw"}
    model : CMCQ
        Shared by all shards.
    n_jobs : int or None
        Threads of a search, which asks one shard after another.
    """

    def __init__(self, manifest: Manifest, mode: str, model: CMCQ, n_jobs: int | None) -> None:
        self.names: Sequence[str] = manifest.shards
        self.lost: Mapping[int, ShardLost] = {}
        self._shards: list[Shard] = []
        with ExitStack() as opened:
            for place in range(len(manifest.shards)):
                shard = Shard(manifest, place, mode, model, n_jobs)
                shard.open()
                opened.callback(shard.close)
                self._shards.append(shard)
            opened.pop_all()

    def ask(
        self, method: str, calls: Mapping[int, tuple[Any, ...]], *, patient: bool = False
    ) -> dict[int, Any]:
        """Call a method of some shards, one after another: each uses all threads."""
        return {
            shard: getattr(self._shards[shard], method)(*arguments)
            for shard, arguments in sorted(calls.items())
        }

    def close(self) -> None:
        """Close all files; may be called again."""
        for shard in self._shards:
            shard.close()
