"""What the campaigns of :mod:`crash.cases` have in common: so many numbered cases, some of them a unit."""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter
from functools import partial
from pathlib import Path

from campaigns.runner import Outcome, Unit, add_common_options, run_units
from crash import cases, shim


def run_hostile_cases(name: str, description: str | None, what: cases.Cases, n: int, at_once: int) -> int:
    """Run as many cases as were asked for, ``n`` if nothing was said; ``at_once`` are a unit."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--n", type=int, default=n, help="cases")
    parser.add_argument("--seed", type=int, default=0)
    add_common_options(parser)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="crossbyte-campaign-", dir=shim.memory_folder()) as folder:
        samples = cases.make_samples(what, Path(folder))
        parts = [range(first, min(first + at_once, given.n)) for first in range(0, given.n, at_once)]
        units = [
            Unit(f"seed {given.seed} {numbers}", partial(judge, what, samples, given.seed, numbers))
            for numbers in parts
        ]
        return run_units(name, units, given)


def judge(what: cases.Cases, samples: Path, seed: int, numbers: range) -> Outcome:
    """Run some cases; what is wrong is a failure, and everything else is counted by what it was."""
    outcomes = cases.run(what, samples, seed, numbers)
    failures = [
        f"case {n} of seed {seed}: {found}" for n, found in outcomes.items() if found.startswith("wrong")
    ]
    kinds = Counter(found for found in outcomes.values() if not found.startswith("wrong"))
    missing = [f"case {n} of seed {seed} was not run" for n in numbers if n not in outcomes]
    return Outcome(len(outcomes), [*failures, *missing], dict(kinds))
