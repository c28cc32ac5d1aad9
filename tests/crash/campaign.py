"""Run thousands of cases in child processes that may not survive them; resumable, and each case repeatable.

A case follows from its seed and number alone. Its outcome is a text; what begins with "wrong" is a failure. A
child that dies or hangs counts as one, and the run goes on behind the case at which it did.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import numpy as np

from crossbyte.compute import kernels
from support.other_extension import load_extension
from support.paths import ROOT

TIME_LIMIT = 30.0  # seconds without a step; a case takes a fraction of one
MEMORY_LIMIT = 4 * 2**30  # address space of a child
AT_ONCE = 200  # cases of one child


class Campaign(NamedTuple):
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

    @property
    def folder(self) -> Path:
        """Where the state is kept if nothing else is said."""
        return ROOT / "build" / "campaigns" / self.module.rpartition(".")[2]


def work(campaign: Campaign, folder: Path, seed: int, cases: range) -> None:
    """Run cases in this process, which may not survive them; writes a line before and after each."""
    faulthandler.enable()
    kernels._native = load_extension() or kernels._native
    if "LD_PRELOAD" not in os.environ:  # the shadow of a sanitizer is larger than any limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_LIMIT, MEMORY_LIMIT))
    with report_of(folder, seed, cases.start).open("a", buffering=1) as lines:
        for number in cases:
            lines.write(f"{number}\n")
            lines.write(f"{number} {campaign.run_case(folder / 'samples', seed, number)}\n")


def report_of(folder: Path, seed: int, first: int) -> Path:
    return folder / f"{seed}-{first}.lines"


def run_chunk(campaign: Campaign, folder: Path, seed: int, cases: range) -> dict[int, str]:
    """Run cases in children, and go on behind each case that none survives."""
    outcomes: dict[int, str] = {}
    first = cases.start
    while first < cases.stop:
        report = report_of(folder, seed, first)
        report.unlink(missing_ok=True)
        options = ["--work", str(first), str(cases.stop), "--seed", str(seed), "--folder", str(folder)]
        child = subprocess.Popen([sys.executable, "-m", campaign.module, *options], cwd=ROOT / "tests")
        ended = wait(child, report)
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


def run(
    campaign: Campaign, n: int, seed: int, folder: Path, n_jobs: int = 2, minutes: float = np.inf
) -> dict[int, str]:
    """Run the first n cases of a seed, but those that the folder knows; gives all outcomes."""
    samples, state = folder / "samples", folder / f"outcomes-{seed}.json"
    if not samples.exists():
        samples.mkdir(parents=True)
        campaign.make_samples(samples)
    known = json.loads(state.read_text()) if state.exists() else {}
    outcomes = {int(number): outcome for number, outcome in known.items()}
    chunks = [range(first, min(first + AT_ONCE, n)) for first in range(0, n, AT_ONCE)]
    ends = time.monotonic() + 60 * minutes

    def chunk(cases: range) -> dict[int, str]:
        return {} if time.monotonic() > ends else run_chunk(campaign, folder, seed, cases)

    with ThreadPoolExecutor(n_jobs) as pool:
        for found in pool.map(chunk, [cases for cases in chunks if not outcomes.keys() >= set(cases)]):
            outcomes |= found
            replacement = state.with_suffix(".new")
            replacement.write_text(json.dumps(outcomes))
            replacement.replace(state)
    return {number: outcome for number, outcome in outcomes.items() if number < n}


def main(campaign: Campaign, description: str | None) -> int:
    """Run a campaign as a program; returns 1 if anything is wrong."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--n", type=int, default=1000, help="cases (default: 1000)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", type=Path, default=campaign.folder, help="where the state is kept")
    parser.add_argument("--jobs", type=int, default=2, help="processes (default: 2)")
    parser.add_argument("--minutes", type=float, default=np.inf, help="begin nothing after this long")
    parser.add_argument("--case", type=int, help="run this case alone, in this process")
    parser.add_argument("--work", type=int, nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    folder, seed = options.folder, options.seed
    if options.work is not None:
        work(campaign, folder, seed, range(*options.work))
        os._exit(0)  # whatever a case has left running
    if options.case is not None:
        print(campaign.run_case(folder / "samples", seed, options.case))
        return 0
    started = time.monotonic()
    outcomes = run(campaign, options.n, seed, folder, options.jobs, options.minutes)
    kinds = Counter(outcome.split(":")[0] for outcome in outcomes.values())
    print(f"{len(outcomes)} cases in {time.monotonic() - started:.0f} s: {dict(sorted(kinds.items()))}")
    wrong = {number: outcome for number, outcome in sorted(outcomes.items()) if outcome.startswith("wrong")}
    for outcome, count in Counter(wrong.values()).most_common(40):
        example = next(number for number, each in wrong.items() if each == outcome)
        print(f"{count:6} (case {example}) {outcome}")
    return int(bool(wrong))
