"""Random calls of all kinds beside a dictionary: ``python -m campaigns stateful_steps --steps 300000``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from functools import partial

from campaigns import ROOT
from campaigns.runner import Outcome, Unit, add_common_options, run_units
from support.paths import with_tests

_EXAMPLES, _STEPS = 60, 50  # of one unit
_CODE = "from index.test_stateful import run; print(run({examples}, {steps}, {seed}))"


def main() -> int:
    """Run as many steps as were asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=300_000)
    parser.add_argument("--seed", type=int, default=1000)
    add_common_options(parser)
    given = parser.parse_args()
    n_units = -(-given.steps // (_EXAMPLES * _STEPS))
    seeds = range(given.seed, given.seed + n_units)
    return run_units("stateful_steps", [Unit(f"seed {seed}", partial(take, seed)) for seed in seeds], given)


def take(seed: int) -> Outcome:
    """Take the steps of one seed, in a process of their own."""
    code = _CODE.format(examples=_EXAMPLES, steps=_STEPS, seed=seed)
    done = subprocess.run(
        [sys.executable, "-c", code], env=with_tests(), cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode != 0:
        return Outcome(0, [f"seed {seed}: {done.stderr[-3000:]}"])
    return Outcome(int(done.stdout.split()[-1]), [])


if __name__ == "__main__":
    raise SystemExit(main())
