"""Damage what is in models and indexes, and seal it again: ``python -m campaigns resealed --n 100000``."""

from __future__ import annotations

from campaigns.hostile_cases import run_hostile_cases
from crash.resealed import CASES

if __name__ == "__main__":
    raise SystemExit(run_hostile_cases("resealed", __doc__, CASES, n=100_000, at_once=500))
