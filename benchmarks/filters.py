"""A filter that lets a tenth of a million documents through: what it costs first, and what it costs after.

    python -m benchmarks.filters                    # 1M documents with payloads, on a quiet machine
    python -m benchmarks.filters --items 50000 --cpu     # smaller, in process time, for a loaded machine

Documents have a payload of a year, a kind (one of ten words), a price and a title. The first evaluation (read
the column from the file, verify it, judge every document) is the first filtered search on a fresh handle
minus a later one with the same filter, whose bitmap is kept. The scan with the bitmap is timed in turns with
the scan without, one thread, one query at a time and in a batch.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.coded import SETTINGS, Coded, coded_items
from benchmarks.tables import Measurement, save
from benchmarks.timing import (
    CLOCKS,
    Goal,
    Turn,
    keep_wanted,
    medians,
    print_goals,
    seconds_per_call,
    take_turns,
)
from crossbyte import Index
from crossbyte.compute.kernels import implementation

N_ITEMS, N_BITS = 1_000_000, 64
REPETITIONS = 9
BATCH, SINGLES, K = 100, 20, 100
KINDS = ("boat", "bridge", "cat", "city", "dog", "forest", "horse", "lake", "market", "tower")
FILTERS = {
    "an integer": "year >= 2022",
    "a word": "kind = 'lake'",
    "a float": "price < 10",
    "two fields": "year >= 2006 AND kind IN ('lake', 'dog')",
}


def payloads(count: int) -> list[dict[str, Any]]:
    """Payloads such that every filter above allows about a tenth."""
    rng = np.random.default_rng(0)
    years = rng.integers(1986, 2026, count)
    kinds, prices = rng.integers(len(KINDS), size=count), rng.uniform(0, 100, count).round(2)
    return [
        {"year": year, "kind": KINDS[kind], "price": price, "title": f"a {KINDS[kind]} of {year}"}
        for year, kind, price in zip(years.tolist(), kinds.tolist(), prices.tolist(), strict=True)
    ]


def build(path: Path, coded: Coded) -> float:
    """Write the index; seconds."""
    documents = payloads(len(coded.codes))
    start = time.perf_counter()
    with Index.create(path, coded.model) as index:
        index.add(range(len(coded.codes)), image_codes=coded.codes, payloads=documents)
    return time.perf_counter() - start


def share(index: Index, where: str, coded: Coded) -> float:
    """Share of the documents that a filter allows."""
    hits = index.search(texts=coded.texts[:1], k=len(index), where=where)
    return len(hits[0]) / len(index)


def first_evaluation(path: Path, where: str, coded: Coded, clock: str) -> float:
    """Seconds of the first filtered search on a fresh handle, beyond those of the next ones."""
    (text,) = coded.one_by_one(1)
    now = CLOCKS[clock]
    with Index.open(path, n_jobs=1) as index:
        index.search(texts=text, k=K)
        call = partial(index.search, texts=text, k=K, where=where)
        first = seconds_per_call(now, [call], warm=False)
        return first - median(seconds_per_call(now, [call]) for _ in range(5))


def measure_first(path: Path, coded: Coded, options: Any) -> list[Goal]:
    """First evaluation of every filter."""
    goals = []
    for name, where in FILTERS.items():
        seconds = [first_evaluation(path, where, coded, options.clock) for _ in range(options.repetitions)]
        score = f"first evaluation of {where}, ms"
        goals.append(Goal(name, score, 1e3 * median(seconds), 50.0, at_most=True))
    return goals


def measure_scan(path: Path, coded: Coded, options: Any) -> tuple[dict[str, list[float]], list[Goal]]:
    """Searches with the kept bitmap and without, in turns."""
    where, clock = FILTERS["an integer"], CLOCKS[options.clock]
    with Index.open(path, n_jobs=1) as index:
        asked = {"one query": coded.one_by_one(SINGLES), "batch": [coded.texts[:BATCH]]}
        turns: dict[str, Turn] = {}
        for name, texts in asked.items():
            for way, chosen in (("all", None), ("filtered", where)):
                calls = [partial(index.search, texts=some, k=K, where=chosen) for some in texts]
                turns[f"{name}, {way}"] = partial(seconds_per_call, clock, calls)
        seconds = take_turns(turns, options.repetitions)
        allowed = share(index, where, coded)
    found = medians(seconds)
    goals = [Goal(name, "milliseconds per call", 1e3 * value) for name, value in found.items()]
    goals.append(Goal(where, "share of documents", allowed))
    for name in asked:
        ratio = found[f"{name}, filtered"] / found[f"{name}, all"]
        goals.append(Goal(name, "filtered / all", ratio, 1.0, at_most=True))
    return seconds, goals


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=N_ITEMS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--cpu", dest="clock", action="store_const", const="cpu", default="wall")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    coded = coded_items(options.items, N_BITS)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "index.cb"
        print(f"{options.items:,} documents with payloads written in {build(path, coded):.1f} s")
        first = measure_first(path, coded, options)
        seconds, scan = measure_scan(path, coded, options)
    goals = keep_wanted([*first, *scan], full_size=options.items == N_ITEMS)
    print_goals(f"filters, {options.items:,} documents, 1 thread, {options.clock} time", goals)
    times = [
        Measurement(name, "milliseconds per call, every repetition", [1e3 * one for one in values])
        for name, values in seconds.items()
    ]
    kept = times + [Measurement(goal.system, goal.score, [goal.value], goal.wanted) for goal in goals]
    asked = {"items": options.items, "bits": N_BITS, "k": K, "repetitions": options.repetitions}
    settings = SETTINGS | asked | {"clock": options.clock, "kernels": implementation()}
    if options.items == N_ITEMS:
        save("filters", kept, settings)


if __name__ == "__main__":
    main()
