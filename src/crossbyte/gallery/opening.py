"""One way to open what can be searched: an index file, or a folder of shards."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, TypeAlias

from crossbyte.errors import InvalidInput
from crossbyte.model.cmcq import CMCQ
from crossbyte.search.index import Index

if TYPE_CHECKING:
    from crossbyte.cluster.sharded import ShardedIndex

__all__ = ["Path", "Searchable", "is_sharded", "open_index"]

Path = str | os.PathLike[str]
Searchable: TypeAlias = "Index | ShardedIndex"
"""An open index: read, followed, and written where it was opened for that."""
_SHARD_SECONDS = 10.0  # for a shard to answer: whoever waits for all of them must have time left


def is_sharded(path: Path) -> bool:
    """Whether it is a folder of shards, by its name (``photos.cbs``) or by the list of them inside."""
    name = os.path.realpath(os.fspath(path))
    return os.path.isdir(name) and (
        name.endswith(".cbs") or os.path.isfile(os.path.join(name, "shards.json"))
    )


def open_index(
    path: Path,
    mode: str = "r",
    *,
    model: CMCQ | None = None,
    cluster: str | None = None,
    n_jobs: int | None = None,
) -> Searchable:
    """Open an index, of one file or of many shards.

    Parameters
    ----------
    path : path-like
        A file, or a folder of shards.
    mode : {"r", "rw"}
    model : CMCQ, optional
        The model that the index must have been made with.
    cluster : str, optional
        Of shards only: "local" starts Ray here, else the address of one that runs. None: all in this process.
    n_jobs : int or None
        Threads; None for all cores.

    Raises
    ------
    InvalidInput
        A cluster was named for an index of one file.
    ClusterError, MissingExtra
        There is no such cluster, or Ray is not installed.
    The errors of :meth:`crossbyte.Index.open`.
    """
    if is_sharded(path):
        from crossbyte.cluster.sharded import ShardedIndex

        return ShardedIndex.open(
            path, mode, model=model, cluster=cluster, n_jobs=n_jobs, timeout=_SHARD_SECONDS
        )
    if cluster is not None and os.path.exists(path):
        raise InvalidInput(
            f"cluster: expected a folder of shards to spread over it, got the single file {os.fspath(path)}; "
            "cut it with crossbyte shard (crossbyte.split_index in Python), or leave the cluster out"
        )
    return Index.open(path, mode, model=model, n_jobs=n_jobs)
