"""Fits of pairs that stay on disk: time beside that of fewer pairs, peak memory, and the bytes of the model.

    python -m benchmarks.from_disk                             # 182,577 and a million pairs; about 20 minutes
    python -m benchmarks.from_disk --pairs 25000 50000         # smaller

Pairs like those of NUS-WIDE (500 counts of visual words, dense; about 6 of 1000 tags, sparse) are drawn shard
by shard, written to folders and never together in memory. Each fit runs in a process of its own, whose peak
the system reports, with ``max_memory`` well below what its rows would take. The fewest pairs are fitted
for some rounds in other ways too, from memory and in blocks, which must give the same model.
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
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from benchmarks.tables import Measurement, save
from benchmarks.timing import Goal, keep_wanted, print_goals
from crossbyte import CMCQ
from crossbyte.data.ondisk import open_rows
from crossbyte.data.synthetic import MIXTURE_WEIGHT, _draw_words, _word_topics

SIZES = (182_577, 1_000_000)
ROUNDS, SAME_ROUNDS, N_BITS, N_JOBS = 10, 2, 32, 2
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
        return images, _draw_words(mixtures, self._tags, TAGS_PER_TEXT, rng)


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


class Way(NamedTuple):
    """How the same pairs reach a fit: from memory, from their shards, or in blocks of rows."""

    name: str
    block_rows: int | None = None
    in_memory: bool = False
    n_jobs: int = N_JOBS
    rounds: int = ROUNDS


FROM_SHARDS = Way("from disk")
OTHER_WAYS = (
    Way("from memory, 1 thread", in_memory=True, n_jobs=1, rounds=SAME_ROUNDS),
    Way("from memory, 2 threads", in_memory=True, rounds=SAME_ROUNDS),
    Way("in blocks of 1,000", 1_000, rounds=SAME_ROUNDS),
    Way("in blocks of 50,000", 50_000, rounds=SAME_ROUNDS),
)


class Blocks:
    """Rows that can be iterated block by block, as often as one likes, and nothing else."""

    def __init__(self, rows: Any, size: int) -> None:
        self._rows, self._size = rows, size

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, self._rows.shape[0], self._size):
            yield self._rows[start : start + self._size]


def fit(folder: Path, mapping: str, way: Way) -> dict[str, Any]:
    """Fit in this process: seconds from the first look at the files, peak memory, rounds and digest."""
    start = time.perf_counter()
    given: Sequence[Any] = [open_rows(folder / side) for side in ("images", "texts")]
    if way.in_memory:
        given = [side[:] for side in given]
    if way.block_rows is not None:
        given = [Blocks(side, way.block_rows) for side in given]
    model = CMCQ(N_BITS, mapping=mapping, max_iter=way.rounds, tol=0.0, random_state=0, n_jobs=way.n_jobs)
    model.fit(*given, max_memory=None if way.in_memory else MAX_MEMORY)
    seconds = time.perf_counter() - start
    model.max_iter = ROUNDS  # a parameter is part of the bytes
    return {
        "seconds": seconds,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9,
        "rounds": model.objective_history_[-1].round,
        "digest": hashlib.sha256(model.to_bytes()).hexdigest(),
    }


def fit_apart(folder: Path, mapping: str, way: Way) -> dict[str, Any]:
    """The same in a process of its own."""
    options = ["--mapping", mapping, "--way", json.dumps(way)]
    command = [sys.executable, "-m", "benchmarks.from_disk", "--child", str(folder), *options]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def measure(sizes: list[int], mapping: str, root: Path) -> Iterator[Goal]:
    """Fit every size, the fewest pairs first."""
    fewest = 0.0
    for size in sorted(sizes):
        write(root / str(size), size)
        found = fit_apart(root / str(size), mapping, FROM_SHARDS)
        name = f"{size:,} pairs, {mapping}"
        yield Goal(name, "fit from disk, seconds", found["seconds"])
        yield Goal(name, "peak memory, GB", found["gigabytes"], PEAK_GB, at_most=True)
        per_pair = found["seconds"] / size / found["rounds"]
        yield Goal(name, "microseconds per pair and round", 1e6 * per_pair)
        if fewest:
            yield Goal(name, "times linear growth", per_pair / fewest, GROWTH, at_most=True)
        fewest = fewest or per_pair
    yield from compare_ways(root / str(min(sizes)), f"{min(sizes):,} pairs, {mapping}", mapping)


def compare_ways(folder: Path, name: str, mapping: str) -> Iterator[Goal]:
    """Whether every way to give the pairs ends in the same model, and how long it takes."""
    expected = fit_apart(folder, mapping, FROM_SHARDS._replace(rounds=SAME_ROUNDS))
    yield Goal(name, f"fit from disk, {SAME_ROUNDS} rounds, seconds", expected["seconds"])
    for way in OTHER_WAYS:
        found = fit_apart(folder, mapping, way)
        yield Goal(name, f"fit {way.name}, {SAME_ROUNDS} rounds, seconds", found["seconds"])
        yield Goal(name, f"{way.name}: the same bytes", float(found["digest"] == expected["digest"]), 1.0)


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", nargs="+", type=int, default=list(SIZES))
    parser.add_argument("--mapping", default="sparse", choices=["sparse", "cca", "contrastive"])
    parser.add_argument("--folder", help="where pairs are written; by default the system's for such files")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--way", type=json.loads, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    if options.child:
        print(json.dumps(fit(options.child, options.mapping, Way(*options.way))))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as root:
        goals = list(measure(options.pairs, options.mapping, Path(root)))
    full_size = tuple(options.pairs) == SIZES
    print_goals(f"fit from disk, {ROUNDS} rounds, max_memory {MAX_MEMORY}", keep_wanted(goals, full_size))
    if full_size and options.mapping == "sparse":
        entries = [Measurement(goal.system, goal.score, [goal.value], goal.wanted) for goal in goals]
        save(
            "from_disk",
            entries,
            {"bits": N_BITS, "rounds": ROUNDS, "n_jobs": N_JOBS, "max_memory": MAX_MEMORY},
        )


if __name__ == "__main__":
    main()
