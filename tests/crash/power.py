"""Lose the power at any moment of a workload, and of the recovery from that; see what is left.

The states are chosen by a seed: first each moment with all, none, or all but one of what was not synced, with
one write torn or come as zeros; when these are used up, any combination.
"""

from __future__ import annotations

import argparse
import copy
import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossbyte.errors import CrossbyteError

from .disk import (
    LOST,
    WHOLE,
    ZEROS,
    Change,
    Disk,
    Fate,
    Fates,
    Operation,
    Pending,
    Tree,
    read_recording,
    read_tree,
    sectors_of,
    write_tree,
)
from .driver import Driver, in_child
from .shim import Shim
from .workloads import NAME, WORKLOADS, Session
from .written_files import FILES, FileDriver

# Of the states that leave more than one file (a journal above all), one in so many loses the power once more.
RECOVERED = 4
STATES_OF_A_RECOVERY = 8

# Syncs that are taken out of the recording, so that something must be lost: of which name (is it a folder?).
PLANTED: dict[str, Callable[[str, bool], bool]] = {
    "journal": lambda name, is_folder: not is_folder and name.endswith("-journal"),
    "database": lambda name, is_folder: not is_folder and name == NAME,
    "folder": lambda name, is_folder: is_folder,
}


class Plan(NamedTuple):
    """A moment, and what becomes of what was not synced."""

    moment: int  # operations before it
    way: str
    which: int = 0  # of the pending changes, counted from the first; or a seed


def plans_of(start: Disk, operations: Sequence[Operation]) -> list[Plan]:
    """All simple states: see the module."""
    disk, plans = copy.deepcopy(start), []
    for moment in range(len(operations) + 1):
        pending = disk.pending()
        plans.append(Plan(moment, "all"))
        if pending:
            plans += [Plan(moment, way) for way in ("none", "names", "bytes", "zeros")]
            for which, change in enumerate(pending):
                ways = ["drop", "only", "prefix"]
                if change.operation.change is Change.WRITTEN:
                    ways += ["zero", "head", "tail", "torn", "torn last"]
                plans += [Plan(moment, way, which) for way in ways]
        if moment < len(operations):
            disk.play(operations[moment])
    return plans


def fates_of(plan: Plan, pending: list[Pending], rng: np.random.Generator) -> Fates:
    """What becomes of each pending change."""
    whole = {change.number: WHOLE for change in pending}
    if plan.way == "random":
        return _random_fates(pending, rng)
    simple: dict[str, Callable[[Pending], Fate]] = {
        "all": lambda change: WHOLE,
        "none": lambda change: LOST,
        "names": lambda change: WHOLE if change.is_name else LOST,
        "bytes": lambda change: LOST if change.is_name else WHOLE,
        "zeros": lambda change: ZEROS if change.operation.change is Change.WRITTEN else WHOLE,
    }
    if plan.way in simple:
        return {change.number: simple[plan.way](change) for change in pending}
    one = pending[plan.which]
    if plan.way == "drop":
        return whole | {one.number: LOST}
    if plan.way == "only":
        return {one.number: WHOLE}
    before = {change.number: WHOLE for change in pending[: plan.which]}
    if plan.way == "prefix":
        return before
    if plan.way == "zero":
        return whole | {one.number: ZEROS}
    n = sectors_of(one.operation)
    if plan.way in ("head", "tail"):
        half = rng.integers(1, max(2, n))
        kept = range(half) if plan.way == "head" else range(half, n)
        return whole | {one.number: Fate(True, frozenset(kept))}
    return (whole if plan.way == "torn" else before) | {one.number: Fate(True, _some_sectors(n, rng))}


def _random_fates(pending: list[Pending], rng: np.random.Generator) -> Fates:
    names, data = rng.choice([0.0, 0.1, 0.5, 0.9, 1.0], 2)
    odd = rng.choice([0.0, 0.2])
    fates: dict[int, Fate] = {}
    for change in pending:
        fate = WHOLE if rng.random() < (names if change.is_name else data) else LOST
        if change.operation.change is Change.WRITTEN and rng.random() < odd:
            n = sectors_of(change.operation)
            fate = ZEROS if rng.random() < 0.3 else Fate(True, _some_sectors(n, rng))
        fates[change.number] = fate
    return fates


def _some_sectors(n: int, rng: np.random.Generator) -> frozenset[int]:
    return frozenset(np.flatnonzero(rng.random(n) < rng.random()).tolist())


class PowerLoss:
    """Records a workload once, and judges the states that the loss of power may leave."""

    def __init__(self, driver: Driver, seed: int, planted: str | None = None) -> None:
        self.driver, self.seed = driver, seed
        self.ignored = PLANTED[planted] if planted else None
        self.log = driver.scratch / "recording"
        self.seen: set[bytes] = set()
        self.start, self.operations = self.record(
            lambda: shutil.copytree(driver.template, driver.folder), self._take_steps
        )
        self.plans = plans_of(self.start, self.operations)

    # Recording

    def record(self, make: Callable[[], object], work: Callable[[], None]) -> tuple[Disk, list[Operation]]:
        """Make the driver's folder, do ``work`` in a child, and give all that it changed."""
        driver = self.driver
        shutil.rmtree(driver.folder, ignore_errors=True)
        self.log.unlink(missing_ok=True)
        make()
        start = Disk(driver.folder, self.ignored)
        if in_child(work, driver.errors) != 0:
            raise RuntimeError(f"{driver.name} fails by itself:\n{driver.errors.read_text()}")
        operations = read_recording(self.log, driver.folder)
        end = copy.deepcopy(start)
        for operation in operations:
            end.play(operation)
        if end.seen() != read_tree(driver.folder):
            raise RuntimeError(
                f"{driver.name}: changes went unseen: the recording does not lead to what is there"
            )
        return start, operations

    def _take_steps(self) -> None:
        driver = self.driver
        with driver.at_work() as take:
            driver.shim.record(driver.folder, self.log)
            for step in range(driver.n_steps):
                take(step)
                driver.shim.mark("acknowledged")
        driver.shim.disarm()

    # States

    def lose(self, number: int, first: int = 0) -> None:
        """Judge ``number`` different states: the plans from number ``first`` on, in the order of the seed."""
        order = np.random.default_rng(self.seed).permutation(len(self.plans)).tolist()
        judged, at = 0, first
        while judged < number and at < first + 4 * number:
            some = [
                (self.plans[order[i]] if i < len(order) else self._random(i), i)
                for i in range(at, at + number)
            ]
            at += number
            for plan, place, disk in self._played(sorted(some)):
                if judged == number:
                    break
                rng = np.random.default_rng([self.seed, place])
                if self._judge(plan, disk, rng, disk.marks, f"plan {place}"):
                    judged += 1

    def _random(self, place: int) -> Plan:
        rng = np.random.default_rng([self.seed, place, 1])
        return Plan(int(rng.integers(len(self.operations) + 1)), "random", place)

    def _played(self, plans: list[tuple[Plan, int]]) -> Iterator[tuple[Plan, int, Disk]]:
        disk = copy.deepcopy(self.start)
        for plan, place in plans:
            while disk.played < plan.moment:
                disk.play(self.operations[disk.played])
            yield plan, place, disk

    def _judge(self, plan: Plan, disk: Disk, rng: np.random.Generator, acknowledged: int, place: str) -> bool:
        """Make one state and look; False if it was there already."""
        pending = disk.pending()
        tree = disk.tree(fates_of(plan, pending, rng))
        if not self._is_new(tree, acknowledged):
            return False
        driver = self.driver
        driver.count(plan.way)
        driver.acknowledge(acknowledged)
        _put(tree, driver.folder)
        driver.survived(self._describe(plan, place, pending))
        if len(tree) > 1 and driver.recovers and rng.integers(RECOVERED) == 0:
            self._lose_again(
                tree, rng, acknowledged, f"{self._describe(plan, place, pending)}; then recovering"
            )
        return True

    def _is_new(self, tree: Tree, acknowledged: int) -> bool:
        digest = hashlib.blake2b(repr((acknowledged, sorted(tree.items()))).encode(), digest_size=16).digest()
        if digest in self.seen:
            return False
        self.seen.add(digest)
        return True

    def _describe(self, plan: Plan, place: str, pending: list[Pending]) -> str:
        last = self.operations[plan.moment - 1] if plan.moment else "nothing"
        one = f" of {pending[plan.which].operation}" if plan.which < len(pending) else ""
        return f"{place} of seed {self.seed}: after {last}: {plan.way}{one}"

    # The power is lost again

    def _lose_again(self, tree: Tree, rng: np.random.Generator, acknowledged: int, point: str) -> None:
        """Recover from a state, and lose the power meanwhile."""
        driver, mode = self.driver, str(rng.choice(["open", "read"]))

        def recover() -> None:
            session = Session(driver.folder)
            driver.shim.record(driver.folder, self.log)
            with suppress(
                CrossbyteError, FileNotFoundError
            ):  # a creation that was interrupted leaves no index
                session.take(mode, {})
            session.close()
            driver.shim.disarm()

        start, operations = self.record(lambda: _put(tree, driver.folder), recover)
        plans = plans_of(start, operations)
        chosen = sorted(plans[i] for i in rng.permutation(len(plans))[:STATES_OF_A_RECOVERY])
        disk = copy.deepcopy(start)
        for plan in chosen:
            while disk.played < plan.moment:
                disk.play(operations[disk.played])
            pending = disk.pending()
            again = disk.tree(fates_of(plan, pending, rng))
            if self._is_new(again, acknowledged):
                driver.count(f"recovery {plan.way}")
                driver.acknowledge(acknowledged)
                _put(again, driver.folder)
                driver.survived(f"{point} by {mode}, operation {plan.moment}: {plan.way} {plan.which}")


def _put(tree: Tree, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    write_tree(tree, folder)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("scratch", type=Path)
    parser.add_argument("workload", choices=sorted({*WORKLOADS, *FILES}))
    parser.add_argument("--states", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--plant", choices=sorted(PLANTED))
    given = parser.parse_args(arguments)
    make = FileDriver if given.workload in FILES else Driver
    driver = make(Path(os.path.realpath(given.scratch)), given.workload, Shim())
    loss = PowerLoss(driver, given.seed, given.plant)
    loss.lose(given.states, given.first)
    sys.stdout.write(driver.report.as_json())


if __name__ == "__main__":
    main(sys.argv[1:])
