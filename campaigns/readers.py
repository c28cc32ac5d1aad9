"""Damage files of every form that is read: ``python -m campaigns readers --n 1000000``."""

from __future__ import annotations

from campaigns.hostile_cases import run_hostile_cases
from crash.readers import CASES

if __name__ == "__main__":
    raise SystemExit(run_hostile_cases("readers", __doc__, CASES, n=1_000_000, at_once=5_000))
