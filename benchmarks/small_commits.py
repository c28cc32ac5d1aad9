"""What an index costs after many commits of one document, with small records merged by the writer or not.

    python -m benchmarks.small_commits              # 10,000 commits each, a few minutes

CPU time, one thread, on a file in memory where there is such a folder.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte import CMCQ, Index
from crossbyte.index import merging

N_COMMITS = 10_000
FEW = 100
NEVER = 10**9


def main() -> None:
    """Measure both ways, and print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--commits", type=int, default=N_COMMITS)
    given = parser.parse_args()
    usual = merging.MERGED_AT_ONCE
    for name, at_once in (("not merged", NEVER), ("merged", usual)):
        merging.MERGED_AT_ONCE = at_once
        print(json.dumps({"way": name, "commits": given.commits} | measure(given.commits)))


def measure(n_commits: int) -> dict[str, Any]:
    """Add documents one by one, then open, filter and compact."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        path = Path(folder) / "index.cb"
        commits, longest = add_documents(path, n_commits)
        size = path.stat().st_size
        with Index.open(path, n_jobs=1) as index:
            segments = index.stats()["segments"]
            filtered = cpu_ms(lambda: index.documents(where="year = 2003", limit=5))
        opened = cpu_ms(lambda: Index.open(path, n_jobs=1).close())
        with Index.open(path, "rw", n_jobs=1) as index:
            index.compact()
        return {
            "commit_ms": {"first": commits[0], "last": commits[1]},
            "longest_ms": longest,
            "open_ms": opened,
            "first_filter_ms": filtered,
            "segments": segments,
            "bytes_per_document": {
                "before": round(size / n_commits, 1),
                "compacted": round(path.stat().st_size / n_commits, 1),
            },
        }


def add_documents(path: Path, n_commits: int) -> tuple[tuple[float, float], float]:
    """Give the mean CPU time of early and of late commits, and the longest of all, in milliseconds."""
    rng = np.random.default_rng(0)
    pairs = rng.normal(size=(60, 6)), rng.normal(size=(60, 5))
    model = CMCQ(16, scoring="unit", n_components=3, max_iter=2, random_state=0, n_jobs=1).fit(*pairs)
    codes = rng.integers(0, 256, (n_commits, 2)).astype(np.uint8)
    spent = np.empty(n_commits)
    with Index.create(path, model, n_jobs=1) as index:
        for i in range(n_commits):
            payload = {"year": 2000 + i % 20, "n": i}
            began = time.process_time()
            index.add([f"d{i}"], image_codes=codes[i : i + 1], payloads=[payload])
            spent[i] = time.process_time() - began
    means = [round(1000 * float(part.mean()), 2) for part in (spent[FEW : 2 * FEW], spent[-FEW:])]
    return (means[0], means[1]), round(1000 * float(spent.max()), 1)


def cpu_ms(work: Callable[[], object]) -> float:
    """Give the CPU time of a call in milliseconds."""
    began = time.process_time()
    work()
    return round(1000 * (time.process_time() - began), 1)


if __name__ == "__main__":
    main()
