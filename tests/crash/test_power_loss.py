"""Whatever was not synced is lost, torn or out of order: what was acknowledged is there, and whole.

A workload is recorded once, with every byte that it writes (``shim.c``); from the recording the states are
made that a disk may be in when the power comes back (``disk.py``), and each is opened, compared and written
to (``power.py``). Without a C compiler nothing can be recorded; the disk itself is tested all the same.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from crash import shim
from crash.disk import LOST, WHOLE, ZEROS, Change, Disk, Fate, Operation
from crash.power import PLANTED, Plan, fates_of, plans_of
from crash.workloads import WORKLOADS
from crash.written_files import FILES

STATES = 2000  # in make test-all
ALL = sorted({*WORKLOADS, *FILES})


def lose(library: Path | None, scratch: Path, workload: str, *options: str) -> Counter[str]:
    """Lose the power in a workload; give the failures and how many states of each kind were judged."""
    if library is None:
        return Counter()
    report = shim.run(library, "crash.power", scratch, workload, *options)
    print(workload, report["points"], report["kinds"], *report["failures"][:1])
    return Counter({"failures": len(report["failures"]), "states": report["points"]}) + Counter(
        report["kinds"]
    )


# In make test: some states


@pytest.mark.parametrize("workload", ["upsert", "compact", "vectors"])
def test_some_losses_of_power_lose_nothing(library: Path | None, scratch: Path, workload: str) -> None:
    found = lose(library, scratch, workload, "--states", "25")
    assert found["failures"] == 0
    assert found["states"] >= 25 or library is None


# In make test-all: many


@pytest.mark.long
def test_many_losses_of_power_lose_nothing(library: Path | None, scratch: Path) -> None:
    each = str(STATES // len(ALL) + 30)  # some have fewer different states
    with ThreadPoolExecutor(2) as pool:
        runs = pool.map(lambda workload: lose(library, scratch, workload, "--states", each), ALL)
        found = sum(runs, Counter())
    assert found["failures"] == 0
    assert found["states"] >= STATES or library is None
    assert sum(found[kind] for kind in found if kind.startswith("recovery")) >= 100 or library is None


@pytest.mark.long
@pytest.mark.parametrize("sync", sorted(PLANTED))
def test_a_sync_left_out_is_found(library: Path | None, scratch: Path, sync: str) -> None:
    found = lose(library, scratch, "add", "--states", "150", "--plant", sync)
    assert found["failures"] > 0 or library is None


# The disk itself


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    """A disk with one file of 1,200 bytes, called a."""
    (tmp_path / "a").write_bytes(b"a" * 1200)
    return Disk(tmp_path)


def inode(tmp_path: Path, name: str = "a") -> int:
    return (tmp_path / name).stat().st_ino


def test_what_is_synced_is_there_and_the_rest_may_be_lost(disk: Disk, tmp_path: Path) -> None:
    file = inode(tmp_path)
    disk.play(Operation(Change.WRITTEN, file, place=0, data=b"1"))
    disk.play(Operation(Change.SYNCED, file))
    disk.play(Operation(Change.WRITTEN, file, place=1, data=b"2"))
    assert disk.tree({})["a"] == b"1" + b"a" * 1199
    assert disk.tree({2: WHOLE})["a"] == b"12" + b"a" * 1198 == disk.seen()["a"]
    assert [change.number for change in disk.pending()] == [2]


def test_a_write_is_torn_at_sectors_or_comes_as_zeros(disk: Disk, tmp_path: Path) -> None:
    disk.play(Operation(Change.WRITTEN, inode(tmp_path), place=500, data=b"b" * 1000))
    first, second, third = b"a" * 500 + b"b" * 12, b"b" * 512, b"b" * 476
    assert disk.tree({0: Fate(True, frozenset([0]))})["a"] == first + b"a" * 688 + bytes(300)
    assert disk.tree({0: Fate(True, frozenset([1, 2]))})["a"] == b"a" * 512 + second + third
    assert disk.tree({0: ZEROS})["a"] == b"a" * 1200 + bytes(300)
    assert disk.tree({0: LOST})["a"] == b"a" * 1200


def test_a_name_is_lost_until_its_folder_is_synced(disk: Disk, tmp_path: Path) -> None:
    disk.play(Operation(Change.CREATED, 999, "b"))
    disk.play(Operation(Change.WRITTEN, 999, place=0, data=b"new"))
    disk.play(Operation(Change.SYNCED, 999))
    assert set(disk.tree({})) == {"a"}
    assert disk.tree({0: WHOLE})["b"] == b"new"
    disk.play(Operation(Change.SYNCED, tmp_path.stat().st_ino))
    assert disk.tree({})["b"] == b"new"


def test_a_rename_is_one_change_and_what_it_replaced_may_come_back(disk: Disk, tmp_path: Path) -> None:
    disk.play(Operation(Change.CREATED, 999, "b"))
    disk.play(Operation(Change.SYNCED, tmp_path.stat().st_ino))
    disk.play(Operation(Change.RENAMED, 0, "b", "a"))
    assert disk.tree({}) == {"a": b"a" * 1200, "b": b""}
    assert disk.tree({2: WHOLE}) == {"a": b""} == disk.seen()


def test_a_removed_file_may_come_back(disk: Disk, tmp_path: Path) -> None:
    disk.play(Operation(Change.REMOVED, 0, "a"))
    assert set(disk.tree({})) == {"a"} and disk.tree({0: WHOLE}) == {}
    disk.play(Operation(Change.CREATED, inode(tmp_path), "a"))  # the number is given again
    disk.play(Operation(Change.SYNCED, tmp_path.stat().st_ino))
    assert disk.tree({}) == {"a": b""}


def test_a_sync_that_is_ignored_keeps_nothing(tmp_path: Path) -> None:
    (tmp_path / "a-journal").write_bytes(b"")
    disk = Disk(tmp_path, PLANTED["journal"])
    file = inode(tmp_path, "a-journal")
    disk.play(Operation(Change.WRITTEN, file, place=0, data=b"b"))
    disk.play(Operation(Change.SYNCED, file))
    assert disk.tree({}) == {"a-journal": b""}


def test_every_moment_has_its_plans(disk: Disk, tmp_path: Path) -> None:
    file = inode(tmp_path)
    writes = [Operation(Change.WRITTEN, file, place=600 * i, data=b"c" * 600) for i in range(3)]
    operations = [*writes, Operation(Change.SYNCED, file)]
    plans = plans_of(disk, operations)
    assert {plan.moment for plan in plans} == {0, 1, 2, 3, 4}
    for each in writes:
        disk.play(each)
    rng, pending = np.random.default_rng(0), disk.pending()
    for plan in plans:
        if plan.moment == 3:
            assert set(fates_of(plan, pending, rng)) <= {0, 1, 2}
    assert fates_of(Plan(3, "drop", 1), pending, rng) == {0: WHOLE, 1: LOST, 2: WHOLE}
    assert fates_of(Plan(3, "only", 1), pending, rng) == {1: WHOLE}
    assert disk.tree(fates_of(Plan(3, "all"), pending, rng)) == disk.seen()
