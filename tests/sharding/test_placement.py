"""Room for shards: what a process takes that holds one, and a cluster without it."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from crossbyte import Index
from crossbyte.errors import ClusterError
from crossbyte.sharding.manifest import Manifest
from crossbyte.sharding.ray_pool import check_memory, estimate_memory, make_no_room_error
from support.index_samples import fill
from support.index_twin import features, small_model

MANIFEST = Manifest("/photos.cbs", "digest", ("a.cb", "b.cb", "c.cb"))


def cluster(*machines: int, free: int = 0) -> Any:
    """What Ray says of machines with so much memory, one of which is gone."""
    nodes = [{"Alive": True, "Resources": {"memory": float(memory)}} for memory in machines]
    nodes += [{"Alive": True, "Resources": {}}, {"Alive": False, "Resources": {"memory": 1e9}}]
    return SimpleNamespace(
        nodes=lambda: nodes,
        cluster_resources=lambda: {"memory": float(sum(machines))},
        available_resources=lambda: {"memory": float(free)},
    )


def test_cells_take_memory(tmp_path: Path) -> None:
    images, texts = features(120, seed=77)
    with Index.create(tmp_path / "one.cb", small_model()) as index:
        fill(index)
        assert estimate_memory(index.path) == int(1.2 * os.path.getsize(index.path))
        index.build_cells(images=images, texts=texts, n_cells=9)
        assert estimate_memory(index.path) == int(2.2 * os.path.getsize(index.path))
        index.drop_cells()
        assert estimate_memory(index.path) == int(1.2 * os.path.getsize(index.path))


def test_a_cluster_without_the_memory_is_refused() -> None:
    check_memory(cluster(60, 60), MANIFEST, [50, 40, 10])
    with pytest.raises(ClusterError, match="its shards need 130 bytes of memory, the cluster has 120;"):
        check_memory(cluster(60, 60), MANIFEST, [50, 40, 40])
    with pytest.raises(ClusterError, match="largest shard needs 70 .* machine of the cluster has 60;"):
        check_memory(cluster(60, 60), MANIFEST, [10, 70, 10])
    with pytest.raises(ClusterError, match="the cluster has 0;"):
        check_memory(cluster(), MANIFEST, [1, 1, 1])


def test_shards_without_a_place_are_named() -> None:
    said = str(make_no_room_error(cluster(60, 60, free=30), MANIFEST, [0, 2], [20, 40, 25]))
    assert (
        "/photos.cbs: no actor has started for a.cb, c.cb: they need 45 bytes of memory, up to 25 on" in said
    )
    assert "30 are free" in said
