"""Kill or fail at every change of a file, of every kind of call: ``python -m campaigns kill_points``."""

from __future__ import annotations

import argparse
import errno
import tempfile
from functools import partial
from pathlib import Path

from campaigns.runner import Outcome, Unit, add_common_options, run_units
from crash import shim
from crash.workloads import WORKLOADS

ERRORS = [str(number) for number in (errno.EIO, errno.ENOSPC)]


def main() -> int:
    """Run all kill points, and the kills of recoveries."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stride", type=int, default=1, help="take every so many-th change")
    parser.add_argument("--recoveries", type=int, default=600, help="kills of recoveries in each workload")
    add_common_options(parser)
    given = parser.parse_args()
    ways = {
        "kill": ("--stride", str(given.stride)),
        "fail": ("--mode", "fail", "--stride", str(given.stride), "--errors", *ERRORS),
        "recovery": ("--mode", "recovery", "--stride", str(given.stride), "--at-most", str(given.recoveries)),
    }
    with tempfile.TemporaryDirectory(prefix="crossbyte-campaign-", dir=shim.memory_folder()) as folder:
        scratch = Path(folder)
        library = shim.build(scratch)
        units = [
            Unit(f"{way} {name} {options}", partial(kill, library, scratch, way, name, options))
            for way, options in ways.items()
            for name in sorted(WORKLOADS)
        ]
        return run_units("kill_points", units, given)


def kill(library: Path, scratch: Path, way: str, workload: str, options: tuple[str, ...]) -> Outcome:
    """Take all points of one workload."""
    report = shim.run(library, "crash.driver", scratch, workload, *options)
    return Outcome(report["points"], report["failures"], {way: report["points"]})


if __name__ == "__main__":
    raise SystemExit(main())
