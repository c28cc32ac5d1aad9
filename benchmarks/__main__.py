"""Run the benchmarks, one after the other: ``python -m benchmarks [name ...]``."""

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
    "mixed",
    "probability",
    "wanted_recall",
    "audit",
    "planning",
    "exports",
    "fold_in",
    "flickr8k",
    "wiki",
    "metrics",
    "encoders",
    "photographs",
    "service",
    "laboratory",
    "from_disk",
    "sample_size",
    "cells",
    "sharded",
    "paper_scale",
)


def main() -> int:
    """Run the named benchmarks, or all; each in a process of its own so that none warms up another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=f"one of {', '.join(BENCHMARKS)}")
    names = parser.parse_args().names or BENCHMARKS
    unknown = sorted(set(names) - set(BENCHMARKS))
    if unknown:
        parser.error(f"unknown: {', '.join(unknown)}; expected some of {', '.join(BENCHMARKS)}")
    return max(subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode for name in names)


if __name__ == "__main__":
    raise SystemExit(main())
