"""Run cases in child processes that may not survive them; each case can be repeated.

A case follows from its seed and number alone. Its outcome is a text; what begins with "wrong" is a failure. A
child that dies or hangs counts as one, and the run goes on behind the case at which it did. How many of them
are run at once, and where one goes on, is the matter of ``campaigns``.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from crossbyte.compute import kernels
from support.other_extension import load_extension
from support.paths import ROOT

TIME_LIMIT = 120.0  # seconds without a step; a case takes a fraction of one, but of an idle machine
MEMORY_LIMIT = 4 * 2**30  # address space of a child


class Cases(NamedTuple):
    """What the cases are.

    Attributes
    ----------
    module : str
        To be run as a program: its ``main`` is :func:`main` below.
    make_samples : callable
        Writes into a folder what the cases begin with.
    run_case : callable
        Of that folder, the seed and the number; gives the outcome.
    """

    module: str
    make_samples: Callable[[Path], None]
    run_case: Callable[[Path, int, int], str]


def make_samples(cases: Cases, folder: Path) -> Path:
    """Write what cases begin with into a new folder below this one, and give it."""
    samples = folder / cases.module
    samples.mkdir()
    cases.make_samples(samples)
    return samples


def run(cases: Cases, samples: Path, seed: int, numbers: range) -> dict[int, str]:
    """Run cases in children, and go on behind each case that none survives; gives all outcomes."""
    outcomes: dict[int, str] = {}
    first = numbers.start
    while first < numbers.stop:
        report = samples.with_name(f"{samples.name}-{seed}-{first}.lines")
        report.unlink(missing_ok=True)
        options = ["--samples", str(samples), "--seed", str(seed), "--report", str(report)]
        command = [sys.executable, "-m", cases.module, *options, str(first), str(numbers.stop)]
        ended = wait(subprocess.Popen(command, cwd=ROOT / "tests"), report)
        lines = report.read_text().splitlines() if report.exists() else []
        report.unlink(missing_ok=True)
        for line in lines:
            number, space, outcome = line.partition(" ")
            if space:
                outcomes[int(number)] = outcome
        if ended == "0":
            break
        begun = int(lines[-1].split()[0]) if lines else first
        outcomes[begun] = f"wrong: {ended}"
        first = begun + 1
    return outcomes


def wait(child: subprocess.Popen[bytes], report: Path) -> str:
    """Wait for a child; one that makes no step for too long is ended."""
    seen, since = -1, time.monotonic()
    while child.poll() is None:
        time.sleep(0.05)
        size = report.stat().st_size if report.exists() else -1
        if size != seen:
            seen, since = size, time.monotonic()
        elif time.monotonic() - since > TIME_LIMIT + 60 * (seen < 0):  # importing takes its time
            child.kill()
            child.wait()
            return f"no step in {TIME_LIMIT:.0f} s"
    return "0" if child.returncode == 0 else f"the process died with {child.returncode}"


def main(cases: Cases, description: str | None) -> None:
    """Run cases in this process, which may not survive them; writes a line before and after each."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("first", type=int, help="the first case")
    parser.add_argument("stop", type=int, nargs="?", help="the one after the last (default: one case)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--samples", type=Path, required=True, help="made where there is no such folder")
    parser.add_argument("--report", type=Path, default=Path("/dev/stdout"))
    given = parser.parse_args()
    if not given.samples.exists():
        given.samples.mkdir(parents=True)
        cases.make_samples(given.samples)
    faulthandler.enable()
    kernels._native = load_extension() or kernels._native
    if "LD_PRELOAD" not in os.environ:  # the shadow of a sanitizer is larger than any limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    with given.report.open("a", buffering=1) as lines:
        for number in range(given.first, given.first + 1 if given.stop is None else given.stop):
            lines.write(f"{number}\n")
            lines.write(f"{number} {cases.run_case(given.samples, given.seed, number)}\n")
    os._exit(0)  # whatever a case has left running
