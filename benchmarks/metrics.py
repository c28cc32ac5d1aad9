"""The laboratory's scores beside plain loops, and the scores of a database of the size of NUS-WIDE.

    python -m benchmarks.metrics                 # about 2 minutes on one core
    python -m benchmarks.metrics --queries 200   # fewer queries of the large database

Throughput: everything that a ``Scorer`` gives, of a database of the size of Wiki, beside the naive twin of
the tests on as many of the queries as it can do in reasonable time, in turns, per query. Hamming distances of
32 bits, which are counted, and real ones, which are sorted. Size: 182,577 items and 4,000 queries with ten
labels that overlap, in a process of its own, distances and relevance made block by block as a run does; of
real distances a tenth of the queries, because memory does not depend on their number.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import resource
import subprocess
import sys
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import shares_label
from benchmarks.tables import Measurement, save
from benchmarks.timing import (
    CLOCKS,
    Clock,
    Goal,
    Turn,
    keep_wanted,
    measurements,
    medians,
    print_goals,
    take_turns,
)
from crossbyte.compute.executor import row_blocks
from crossbyte.lab.methods.hashing import hamming_distances
from crossbyte.metrics.scorer import Scorer

WIKI, NUS_WIDE = (693, 2_173), (4_000, 182_577)  # queries and items
NAIVE_QUERIES, REPETITIONS = 25, 7
BITS, N_LABELS, BLOCK = 32, 10, 64
KINDS = ("hamming", "real")
MEMORY = 6.0  # GB
WANTED = 50.0


class Task(NamedTuple):
    """Queries ready to be scored."""

    distances: NDArray[np.float32]
    relevant: NDArray[np.bool_]
    partners: NDArray[np.int64]


# Throughput


def task(kind: str) -> Task:
    """Queries of the size of Wiki: one of ten labels each."""
    rng = np.random.default_rng(0)
    distances = rng.random(WIKI) if kind == "real" else rng.binomial(BITS, 0.5, WIKI)
    labels = [rng.integers(N_LABELS, size=n) for n in WIKI]
    return Task(
        distances.astype(np.float32), labels[0][:, None] == labels[1], rng.integers(WIKI[1], size=WIKI[0])
    )


def by_scorer(data: Task) -> dict[str, Any]:
    scorer = Scorer(data.distances.shape[1], partners=True)
    scorer.add(*data)
    return scorer.scores()


def naive_module() -> Any:
    """The naive twin, from its file: the tests are no package."""
    path = Path(__file__).resolve().parent.parent / "tests" / "support" / "naive_metrics.py"
    spec = importlib.util.spec_from_file_location("naive_metrics", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"the naive metrics were expected at {path}.")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def per_query(clock: Clock, score: Any, arguments: Any, n_queries: int) -> float:
    """Seconds per query of one call."""
    start = clock()
    score(*arguments)
    return (clock() - start) / n_queries


def turns(kind: str, clock: Clock) -> dict[str, Turn]:
    """Both, ready to measure themselves; the naive twin has lists, which it reads faster than arrays."""
    data = task(kind)
    few = [part[:NAIVE_QUERIES].tolist() for part in data]
    return {
        f"crossbyte, {kind}": partial(per_query, clock, by_scorer, [data], WIKI[0]),
        f"loops, {kind}": partial(per_query, clock, naive_module().all_scores, few, NAIVE_QUERIES),
    }


def largest_difference(kind: str) -> float:
    """Between the two, over all scores of the queries that both do."""
    few = Task(*(part[:NAIVE_QUERIES] for part in task(kind)))
    own, other = by_scorer(few), naive_module().all_scores(*(part.tolist() for part in few))
    own["precision_curve"], own["pr_curve"] = own["precision_curve"]["values"], own["pr_curve"]["precision"]
    return max(float(np.max(np.abs(np.subtract(own[name], other[name])))) for name in other)


def throughput(options: Any) -> list[Measurement]:
    """Times in turns, and their ratios."""
    clock = CLOCKS[options.clock]
    both = {name: turn for kind in KINDS for name, turn in turns(kind, clock).items()}
    seconds = take_turns(both, options.repetitions)
    found = medians(seconds)
    goals = [Goal(name, "milliseconds per query", 1e3 * value) for name, value in found.items()]
    for kind in KINDS:
        own, other = seconds[f"crossbyte, {kind}"], seconds[f"loops, {kind}"]
        ratio = median(naive / fast for fast, naive in zip(own, other, strict=True))
        goals.append(Goal(f"crossbyte, {kind}", "times as fast as loops", ratio, WANTED))
        difference = largest_difference(kind)
        goals.append(Goal(f"crossbyte, {kind}", "largest difference", difference, 1e-9, at_most=True))
    print_goals(f"all scores, {WIKI[1]:,} items, 1 thread, {options.clock} time", goals)
    return measurements(seconds, "milliseconds per query, every repetition", goals[len(both) :])


# Size


def score_large(kind: str, n_queries: int, clock: Clock) -> dict[str, float]:
    """In a process of its own: score a database of the size of NUS-WIDE; seconds, bytes and some scores."""
    rng = np.random.default_rng(0)
    n_items = NUS_WIDE[1]
    labels = [(rng.random((n, N_LABELS)) < 0.13).astype(np.uint8) for n in (n_queries, n_items)]
    codes = [rng.integers(256, size=(n, BITS // 8), dtype=np.uint8) for n in (n_queries, n_items)]
    scorer = Scorer(n_items, partners=True)
    partners = rng.integers(n_items, size=n_queries)
    seconds = dict.fromkeys(("making", "scoring"), 0.0)
    for rows in row_blocks(n_queries, BLOCK):
        start = clock()
        distances = hamming_distances(codes[0][rows], codes[1])
        if kind == "real":
            distances += rng.random(distances.shape, dtype=np.float32)
        relevant = shares_label(labels[0][rows], labels[1])
        made = clock()
        scorer.add(distances, relevant, partners[rows])
        seconds["making"] += made - start
        seconds["scoring"] += clock() - made
    scores, chance = scorer.scores(), scorer.chance()
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return seconds | {"peak": peak, "map": scores["map@all"], "chance": chance["map@all"]}


def in_child(kind: str, n_queries: int, clock: str) -> dict[str, float]:
    """The same, from outside."""
    command = [sys.executable, "-m", "benchmarks.metrics", "--child", kind, "--queries", str(n_queries)]
    command += ["--wall"] if clock == "wall" else []
    found: dict[str, float] = json.loads(
        subprocess.run(command, check=True, capture_output=True, text=True).stdout
    )
    return found


def size(options: Any) -> list[Measurement]:
    """The large database, Hamming and real distances."""
    goals = []
    for kind, n_queries in (("hamming", options.queries), ("real", max(1, options.queries // 10))):
        found = in_child(kind, n_queries, options.clock)
        system = f"{kind}, {n_queries:,} queries"
        rate = 1e-6 * n_queries * NUS_WIDE[1] / found["scoring"]
        goals += [
            Goal(system, "scoring, seconds", found["scoring"]),
            Goal(system, "scoring, million items per second", rate),
            Goal(system, "making distances and relevance, seconds", found["making"]),
            Goal(system, "peak of the process, GB", found["peak"] / 1e9, MEMORY, at_most=True),
            Goal(system, "MAP@all of random codes", found["map"]),
            Goal(system, "its chance", found["chance"]),
        ]
    goals = keep_wanted(goals, full_size=options.queries == NUS_WIDE[0])
    print_goals(f"all scores, {NUS_WIDE[1]:,} items, 1 process, {options.clock} time", goals)
    return measurements({}, "", goals)


# All of it


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queries", type=int, default=NUS_WIDE[0], help="of the large database")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--wall", dest="clock", action="store_const", const="wall", default="cpu")
    parser.add_argument("--child", choices=KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    if options.child:
        print(json.dumps(score_large(options.child, options.queries, CLOCKS[options.clock])))
        return
    entries = [*throughput(options), *size(options)]
    settings = {
        "wiki": WIKI,
        "nus-wide": NUS_WIDE,
        "naive queries": NAIVE_QUERIES,
        "repetitions": options.repetitions,
        "clock": options.clock,
        "bits": BITS,
        "labels": N_LABELS,
        "queries at a time": BLOCK,
        "numpy": np.__version__,
    }
    if options.queries == NUS_WIDE[0]:
        save("metrics", entries, settings)


if __name__ == "__main__":
    main()
