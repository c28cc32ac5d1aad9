"""Run the benchmarks, one after the other: ``python -m benchmarks [name ...]``.

Options after a single name are that benchmark's own: ``python -m benchmarks answers --part flickr8k``.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

BENCHMARKS = (
    "lasso",
    "composite",
    "invariants",
    "scale",
    "wiki_unlabelled",
    "ablations",
    "search",
    "large",
    "filters",
    "adding",
    "adding_pairs",
    "small_commits",
    "wanted_recall",
    "audit",
    "planning",
    "exports",
    "answers",
    "fold_in",
    "wiki",
    "metrics",
    "encoders",
    "service",
    "laboratory",
    "from_disk",
    "sample_size",
    "cells",
    "frontier",
    "sharded",
    "paper_scale",
    "words",
    "joint",
    "free_queries",
    "watchdog",
)


def main() -> int:
    """Run the named benchmarks, or all; each in a process of its own so that none warms up another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(BENCHMARKS)}")
    first = next((place for place, word in enumerate(sys.argv[1:], 1) if word.startswith("-")), len(sys.argv))
    own, options = sys.argv[1:first], sys.argv[first:]
    names = parser.parse_args(own if len(own) == 1 else sys.argv[1:]).names or BENCHMARKS
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(BENCHMARKS)}")
    return max(
        subprocess.run([sys.executable, "-m", f"benchmarks.{name}", *options]).returncode for name in names
    )


if __name__ == "__main__":
    raise SystemExit(main())
