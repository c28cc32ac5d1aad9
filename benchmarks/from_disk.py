"""Fits of pairs that stay on disk: time beside that of fewer pairs, peak memory, and the bytes of the model.

    python -m benchmarks.from_disk                             # 182,577 and a million pairs; about 20 minutes
    python -m benchmarks.from_disk --pairs 25000 50000         # smaller

Pairs like those of NUS-WIDE (500 counts of visual words, dense; about 6 of 1000 tags, sparse) are drawn shard
by shard, written to folders and never together in memory. Each fit runs in a process of its own, whose peak
is told by the system, with ``max_memory`` well below what its rows would take. The fewest pairs are fitted
from memory too, which must give the same model.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.tables import Measurement, save
from benchmarks.timing import Goal, print_goals, told
from crossbyte import CMCQ
from crossbyte.data.stored.opening import open_rows
from crossbyte.data.synthetic import MIXTURE_WEIGHT, _drawn_bags, _word_topics

SIZES = (182_577, 1_000_000)
ROUNDS, N_BITS, N_JOBS = 10, 32, 2
MAX_MEMORY = "512MB"
SHARD_ROWS = 25_000
PEAK_GB, GROWTH = 1.5, 1.3
VISUAL_WORDS, TAGS, TOPICS, CLASSES = 500, 1000, 40, 10
COUNTS, TAGS_PER_TEXT = 250.0, 7.5


# Pairs


class Source:
    """Draws shards of pairs as :func:`crossbyte.data.synthetic.nus_wide_like` does, all of one world."""

    def __init__(self) -> None:
        rng = np.random.default_rng(0)
        preference = rng.dirichlet(np.full(TOPICS, 0.3), size=CLASSES)
        self._weights = MIXTURE_WEIGHT * (0.7 * preference + 0.3 / TOPICS)
        self._visual = COUNTS * (rng.dirichlet(np.full(VISUAL_WORDS, 0.2), size=TOPICS) + 1e-9)
        self._tags = _word_topics(TOPICS, TAGS, rng)

    def shard(self, number: int, n_pairs: int) -> tuple[Any, Any]:
        """Images (n, 500) float32 and texts (n, 1000) sparse."""
        rng = np.random.default_rng([1, number])
        drawn = rng.standard_gamma(self._weights[rng.integers(CLASSES, size=n_pairs)]) + 1e-12
        mixtures = drawn / drawn.sum(axis=1, keepdims=True)
        rates = np.log1p(1.0 / (mixtures @ self._visual).astype(np.float32))
        images = np.floor(rng.standard_exponential(rates.shape, dtype=np.float32) / rates)
        return images, _drawn_bags(mixtures, self._tags, TAGS_PER_TEXT, rng)


def write(folder: Path, n_pairs: int) -> None:
    """Write both sides as folders of shards."""
    source = Source()
    for side in ("images", "texts"):
        (folder / side).mkdir(parents=True)
    for number, start in enumerate(range(0, n_pairs, SHARD_ROWS)):
        images, texts = source.shard(number, min(SHARD_ROWS, n_pairs - start))
        np.save(folder / "images" / f"part-{number}.npy", images)
        sparse.save_npz(folder / "texts" / f"part-{number}.npz", sparse.csr_matrix(texts))


# Fits


def fit(folder: Path, mapping: str, in_memory: bool) -> dict[str, Any]:
    """Fit in this process: seconds from the first look at the files, peak memory, rounds and digest."""
    start = time.perf_counter()
    sides = [open_rows(folder / side) for side in ("images", "texts")]
    given = [side[:] for side in sides] if in_memory else sides
    model = CMCQ(N_BITS, mapping=mapping, max_iter=ROUNDS, tol=0.0, random_state=0, n_jobs=N_JOBS)
    model.fit(*given, max_memory=None if in_memory else MAX_MEMORY)
    return {
        "seconds": time.perf_counter() - start,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "rounds": model.objective_history_[-1].round,
        "digest": hashlib.sha256(model.to_bytes()).hexdigest(),
    }


def fit_apart(folder: Path, mapping: str, in_memory: bool = False) -> dict[str, Any]:
    """The same in a process of its own."""
    options = ["--mapping", mapping, *(["--in-memory"] if in_memory else [])]
    command = [sys.executable, "-m", "benchmarks.from_disk", "--child", str(folder), *options]
    found: dict[str, Any] = json.loads(
        subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    )
    return found


def measure(sizes: list[int], mapping: str, root: Path) -> Iterator[Goal]:
    """Fit every size, the fewest pairs first."""
    first: dict[str, Any] = {}
    for size in sorted(sizes):
        write(root / str(size), size)
        found = fit_apart(root / str(size), mapping)
        name = f"{size:,} pairs, {mapping}"
        yield Goal(name, "fit from disk, seconds", found["seconds"])
        yield Goal(name, "peak memory, GB", found["gigabytes"], PEAK_GB, at_most=True)
        per_pair = found["seconds"] / size / found["rounds"]
        yield Goal(name, "microseconds per pair and round", 1e6 * per_pair)
        if first:
            yield Goal(name, "times linear growth", per_pair / first["per_pair"], GROWTH, at_most=True)
            continue
        first = {"per_pair": per_pair}
        twin = fit_apart(root / str(size), mapping, in_memory=True)
        yield Goal(name, "fit from memory, seconds", twin["seconds"])
        yield Goal(name, "same bytes as from memory", float(twin["digest"] == found["digest"]), 1.0)


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--mapping", default="sparse", choices=["sparse", "cca", "contrastive"])
    parser.add_argument("--folder", help="where pairs are written; by default the system's for such files")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--in-memory", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    if options.child:
        print(json.dumps(fit(options.child, options.mapping, options.in_memory)))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as root:
        goals = list(measure(options.pairs, options.mapping, Path(root)))
    asked_for = tuple(options.pairs) == SIZES
    print_goals(f"fit from disk, {ROUNDS} rounds, max_memory {MAX_MEMORY}", told(goals, asked_for))
    if asked_for and options.mapping == "sparse":
        entries = [Measurement(goal.system, goal.score, [goal.value], goal.wanted) for goal in goals]
        save(
            "from_disk",
            entries,
            {"bits": N_BITS, "rounds": ROUNDS, "n_jobs": N_JOBS, "max_memory": MAX_MEMORY},
        )


if __name__ == "__main__":
    main()
