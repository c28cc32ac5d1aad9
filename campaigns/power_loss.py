"""Lose the power at many moments of every kind of call: ``python -m campaigns power_loss --states 50000``."""

from __future__ import annotations

import argparse
import tempfile
from functools import partial
from pathlib import Path

from campaigns.runner import Outcome, Unit, add_common_options, run_units
from crash import shim
from crash.workloads import WORKLOADS
from crash.written_files import FILES

_AT_ONCE = 500  # states of one unit


def main() -> int:
    """Run as many states as were asked for, in equal parts of all workloads."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=50_000)
    parser.add_argument("--seed", type=int, default=0)
    add_common_options(parser)
    given = parser.parse_args()
    # Files beside an index have few different states: one unit of each, the rest from the index.
    with tempfile.TemporaryDirectory(prefix="crossbyte-campaign-", dir=shim.memory_folder()) as folder:
        scratch = Path(folder)
        library = shim.build(scratch)
        few = [
            Unit(f"{name} {given.seed}", partial(lose, library, scratch, name, given.seed, 0))
            for name in FILES
        ]
        rounds = max(1, -(-(given.states - len(few) * _AT_ONCE // 2) // (len(WORKLOADS) * _AT_ONCE)))
        many = [
            Unit(f"{name} {given.seed} {i}", partial(lose, library, scratch, name, given.seed, i * _AT_ONCE))
            for i in range(rounds)
            for name in sorted(WORKLOADS)
        ]
        return run_units("power_loss", [*few, *many], given)


def lose(library: Path, scratch: Path, workload: str, seed: int, first: int) -> Outcome:
    """Judge some states of one workload."""
    options = ("--states", str(_AT_ONCE), "--seed", str(seed), "--first", str(first))
    report = shim.run(library, "crash.power", scratch, workload, *options)
    kinds = {"while recovering": 0, "of a call": 0}
    for kind, count in report["kinds"].items():
        kinds["while recovering" if kind.startswith("recovery") else "of a call"] += count
    return Outcome(report["points"], report["failures"], kinds)


if __name__ == "__main__":
    raise SystemExit(main())
