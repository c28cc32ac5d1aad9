"""Actors that hang, are slow, come back to another file, or find no room: waited for once, and said why."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from crossbyte.compute.ray_session import RayCluster, ray_module
from crossbyte.errors import ClusterError
from crossbyte.sharding import ray_pool
from crossbyte.sharding.index import ShardedIndex
from crossbyte.sharding.liveness import LivenessMonitor
from support.index_samples import fill
from support.index_twin import small_model
from support.paths import with_tests
from support.sharded_samples import TEXTS, assert_same

SECONDS = 60.0
# Ray shall miss its part on this machine in seconds.
QUICK = {"RAY_health_check_period_ms": "500", "RAY_health_check_failure_threshold": "2"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards with documents, and those of another model."""
    path = tmp_path_factory.mktemp("silent")
    with ShardedIndex.create(path / "many.cbs", small_model(), 2) as shards:
        fill(shards)
    ShardedIndex.create(path / "other.cbs", small_model(seed=5), 2).close()
    return path / "many.cbs"


@pytest.fixture(scope="module")
def shards(cluster: str, folder: Path) -> Iterator[ShardedIndex]:
    """These shards in actors; every test leaves them whole."""
    with ShardedIndex.open(folder, cluster=cluster, timeout=3.0) as opened:
        yield opened


def process(shards: ShardedIndex, shard: int) -> int:
    """The process of an actor."""
    return int(shards._pool.ask("process", {shard: ()})[shard])


def until(happens: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def is_partial(shards: ShardedIndex) -> bool:
    return shards.search(texts=TEXTS)[0].partial


def test_nobody_waits_twice_for_a_silent_shard(
    shards: ShardedIndex, caplog: pytest.LogCaptureFixture
) -> None:
    whole, stopped = shards.search(texts=TEXTS), process(shards, 1)
    os.kill(stopped, signal.SIGSTOP)
    try:
        with caplog.at_level(logging.WARNING, "crossbyte.sharding"):
            assert is_partial(shards) and shards.lost == ("shard-0001.cb",)
        assert "shard-0001.cb is lost: no answer in 3 seconds" in caplog.text
        start = time.monotonic()
        assert all(is_partial(shards) for _ in range(5))
        with pytest.raises(ClusterError, match=r"shard-0001\.cb: no answer in 3 seconds"):
            shards.ids()
        assert time.monotonic() - start < 2.0
    finally:
        os.kill(stopped, signal.SIGCONT)
    until(lambda: not is_partial(shards))
    assert shards.lost == ()
    assert_same(whole, shards.search(texts=TEXTS))


def test_a_slow_shard_is_not_lost(cluster: str) -> None:
    class Sleeper:
        def nap(self, seconds: float) -> float:
            time.sleep(seconds)
            return seconds

        def says(self, is_open: bool) -> bool:
            return is_open

    ray = ray_module()
    sleeper = ray.remote(Sleeper).options(num_cpus=0, max_concurrency=3).remote()
    ray.get(sleeper.nap.remote(0.0))
    with RayCluster(cluster) as here:
        hearing = LivenessMonitor(ray, here, 0.6, ["s"])
        awake, opening = (lambda _, said=said: sleeper.says.remote(said) for said in (True, False))
        assert hearing.gather({0: sleeper.nap.remote(1.5)}, awake, patient=False) == ({0: 1.5}, {})
        assert hearing.gather({0: sleeper.nap.remote(1.2)}, opening, patient=True) == ({0: 1.2}, {})
        answers, lost = hearing.gather({0: sleeper.nap.remote(1.2)}, opening, patient=False)
        assert not answers and str(lost[0]) == "it is still opening its file"
    ray.kill(sleeper)


def test_a_restarted_shard_whose_file_is_not_its_own_is_lost(shards: ShardedIndex, folder: Path) -> None:
    file, away = folder / "shard-0001.cb", folder.parent / "away.cb"
    whole, killed = shards.search(texts=TEXTS), process(shards, 1)
    os.replace(file, away)
    os.kill(killed, signal.SIGKILL)

    def is_said(why: str) -> bool:
        with pytest.raises(ClusterError, match=r"shard-0001\.cb of 2 shards") as error:
            shards.ids()
        return why in str(error.value)

    until(lambda: is_partial(shards))
    until(lambda: is_said("FileNotFoundError"))
    shutil.copy(folder.parent / "other.cbs" / "shard-0001.cb", file)
    until(lambda: is_said("WrongModel"))
    assert is_partial(shards)
    os.replace(away, file)
    until(lambda: not is_partial(shards))
    assert_same(whole, shards.search(texts=TEXTS))


def test_shards_for_which_there_is_no_room_are_named(
    cluster: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = ray_module().cluster_resources()["memory"]
    monkeypatch.setattr(ray_pool, "estimate_memory", lambda path: int(0.4 * there))
    with ShardedIndex.open(folder, cluster=cluster):
        monkeypatch.setattr(ray_pool, "_SECONDS_TO_START", 1.0)
        with pytest.raises(ClusterError, match=r"no actor has started for shard-0000\.cb, shard-0001\.cb: "):
            ShardedIndex.open(folder, cluster=cluster)
    monkeypatch.setattr(ray_pool, "estimate_memory", lambda path: int(1.1 * there))
    with pytest.raises(ClusterError, match="its shards need"):
        ShardedIndex.open(folder, cluster=cluster)


def test_a_cluster_that_dies_under_open_shards_leaves_the_files(folder: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "support.sharded_victim", str(folder)],
        env=with_tests(**QUICK),
        capture_output=True,
        text=True,
        timeout=2 * SECONDS,
    )
    with ShardedIndex.open(folder, "rw") as left:
        left.verify()
        assert len(left) > 0
    assert "Traceback" not in ended.stderr
    if ended.returncode == 0:  # else Ray itself has ended the process, as it does without its part there
        lines = ended.stdout.splitlines()
        assert any(line.startswith("ClusterError: ") for line in lines) and "closed" in lines
