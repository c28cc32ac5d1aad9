"""Killed or refused at any step on the disk, an index keeps what it acknowledged, and every batch is whole.

The kill points come from a small library that stands between the process and its files (``crash/shim.c``),
compiled here. Without a C compiler (and then also without our own extension) processes are killed from
outside at many moments instead: the same checks, but nobody can say which steps were hit.
"""

from __future__ import annotations

import errno
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from crash import shim
from crash.faults import FAULTS
from crash.workloads import WORKLOADS

# Long workloads, of which fewer points are taken in make test.
STRIDES = {"add": "29", "compact": "47", "cells": "47", "merge": "47", "words": "29"}
ERRORS = [str(number) for number in (errno.EIO, errno.ENOSPC)]


def drive(library: Path | None, scratch: Path, workload: str, *options: str) -> dict[str, Any]:
    """Run the driver in a process of its own, and give its report."""
    if library is None:
        options = ("--mode", "timed", "--at-most", "20")
    return shim.run(library, "crash.driver", scratch, workload, *options)


def drive_all(library: Path | None, scratch: Path, runs: list[tuple[str, ...]]) -> Counter[str]:
    """Run the driver for each of these, two at a time; fail on the first thing lost; count the points."""
    total: Counter[str] = Counter()
    with ThreadPoolExecutor(2) as pool:
        for run, report in zip(runs, pool.map(lambda run: drive(library, scratch, *run), runs), strict=True):
            assert report["failures"] == [], "\n".join(report["failures"][:3])
            print(*run, report["points"], report["kinds"], report["outcomes"])
            total.update(report["kinds"] | {"points": report["points"]})
    return total


# In make test: some points of each workload


@pytest.mark.parametrize("workload", sorted(WORKLOADS))
def test_some_kills_lose_nothing(library: Path | None, scratch: Path, workload: str) -> None:
    report = drive(library, scratch, workload, "--stride", STRIDES.get(workload, "11"))
    assert report["failures"] == []
    assert report["points"] >= 5


def test_some_kills_of_a_recovery_lose_nothing(library: Path | None, scratch: Path) -> None:
    report = drive(library, scratch, "add", "--mode", "recovery", "--stride", "29", "--at-most", "20")
    assert report["failures"] == []
    assert report["points"] >= 10


def test_some_failing_calls_lose_nothing(library: Path | None, scratch: Path) -> None:
    report = drive(library, scratch, "add", "--mode", "fail", "--stride", "23", "--errors", *ERRORS)
    assert report["failures"] == []
    assert report["points"] >= 5


# In make test-all: all of them


@pytest.mark.long
def test_every_kill_loses_nothing(library: Path | None, scratch: Path) -> None:
    total = drive_all(library, scratch, [(workload,) for workload in WORKLOADS])
    assert total["points"] >= 500 or library is None
    for kind in ("write", "sync", "unlink"):
        assert total[f"before {kind}"] == total[f"after {kind}"] > 0 or library is None


@pytest.mark.long
def test_kills_of_many_recoveries_lose_nothing(library: Path | None, scratch: Path) -> None:
    options = ("--mode", "recovery", "--stride", "3", "--at-most", "150")
    total = drive_all(library, scratch, [(workload, *options) for workload in WORKLOADS])
    assert total["recovery before write"] > 0 or library is None


@pytest.mark.long
def test_failing_calls_lose_nothing(library: Path | None, scratch: Path) -> None:
    options = ("--mode", "fail", "--stride", "4", "--errors", *ERRORS)
    total = drive_all(library, scratch, [(workload, *options) for workload in WORKLOADS])
    assert total["points"] >= 400 or library is None


@pytest.mark.long
def test_kills_from_outside_lose_nothing(scratch: Path) -> None:
    drive_all(None, scratch, [(workload,) for workload in WORKLOADS])


# The tests' own test


@pytest.mark.long
@pytest.mark.parametrize("fault", sorted(FAULTS))
def test_planted_faults_are_found(library: Path | None, scratch: Path, fault: str) -> None:
    planted = FAULTS[fault]
    report = drive(library, scratch, planted.workload, *planted.options, "--stride", "3", "--fault", fault)
    assert report["failures"] or library is None
