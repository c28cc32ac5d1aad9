"""Room for shards in a cluster: how much memory each takes, and whether there is any."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from crossbyte.cluster.manifest import Manifest
from crossbyte.errors import ClusterError
from crossbyte.search.cells.state import KIND as CELLS
from crossbyte.search.storage.store import Store

__all__ = ["check_memory", "memory_of", "no_room"]

# A process with an open index over its file, as docs/scale.md computes it: with cells, codes are there twice.
_OVER_FILE, _OVER_FILE_WITH_CELLS = 1.2, 2.2


def memory_of(path: str) -> int:
    """About how many bytes the process takes that holds a shard."""
    factor = _OVER_FILE_WITH_CELLS if _has_cells(path) else _OVER_FILE
    return int(factor * os.path.getsize(path))


def _has_cells(path: str) -> bool:
    store = Store.open(path, writable=False)
    try:
        with store.reading():
            built = [record.document for record in store.records() if record.kind == CELLS]
    finally:
        store.close()
    return bool(built) and built[-1]["digest"] is not None  # none: they were dropped


def check_memory(ray: Any, manifest: Manifest, needed: Sequence[int]) -> None:
    """Refuse what Ray would wait for without end, whoever else leaves.

    Raises
    ------
    ClusterError
        The cluster has not the memory for all shards, or none of its machines that for the largest.
    """
    there, largest = ray.cluster_resources().get("memory", 0), _largest(ray)
    if sum(needed) > there:
        raise ClusterError(
            f"{manifest.folder}: its shards need {sum(needed)} bytes of memory, the cluster has {there:.0f}; "
            "add machines, or open it in this process with cluster=None"
        )
    if max(needed) > largest:
        raise ClusterError(
            f"{manifest.folder}: its largest shard needs {max(needed)} bytes of memory, the largest machine "
            f"of the cluster has {largest:.0f}; cut the index into more shards, or add a larger machine"
        )


def no_room(ray: Any, manifest: Manifest, waiting: Sequence[int], needed: Sequence[int]) -> ClusterError:
    """The error that these shards found no place, or their processes did not start."""
    names = ", ".join(manifest.shards[shard] for shard in waiting)
    sizes, free = [needed[shard] for shard in waiting], ray.available_resources().get("memory", 0)
    return ClusterError(
        f"{manifest.folder}: no actor has started for {names}: they need {sum(sizes)} bytes of memory, up to "
        f"{max(sizes)} on one machine, and {free:.0f} are free in the whole cluster; close what else is open "
        "there, or add machines"
    )


def _largest(ray: Any) -> float:
    """Memory of the largest machine, in bytes."""
    return max((node["Resources"].get("memory", 0) for node in ray.nodes() if node["Alive"]), default=0)
