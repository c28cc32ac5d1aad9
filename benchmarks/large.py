"""Ten million items: one query beside reading the codes once, two threads beside one, opening, and sizes.

    python -m benchmarks.large                      # 10M items, M = 8, on a quiet machine
    python -m benchmarks.large --items 200000       # smaller

A million items are coded by a trained model; the others mix the codes of items that are alike (see
``coded.extend_codes``). Ids are integers. "Reading" is the fastest of several plain passes of NumPy over the
very array that the scan reads, in turns with the search, one thread. Opening is timed in a fresh process,
with the file in the page cache: beside the time to read it once, and to hash it once with the store's hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.coded import SETTINGS, Coded, coded_items, extend_codes
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

N_ITEMS, N_CODED, N_BITS = 10_000_000, 1_000_000, 64
REPETITIONS, OPENINGS = 9, 3
BATCH, SINGLES, K = 100, 10, 100
BLOCK = 1 << 15  # words of a plain read that fit into the first caches

Words = NDArray[np.uint64]


# Searching


def read_passes(codes: Words) -> dict[str, Callable[[], Any]]:
    """Ways of NumPy to read every word of an array once; they give nothing of use."""
    buffer = np.empty(BLOCK, np.uint64)

    def copy() -> None:
        for start in range(0, len(codes), BLOCK):
            some = codes[start : start + BLOCK]
            np.copyto(buffer[: len(some)], some)

    return {
        "copy in blocks": copy,
        "sum": partial(np.add.reduce, codes),
        "or": partial(np.bitwise_or.reduce, codes),
        "max": partial(np.maximum.reduce, codes),
        "count": partial(np.count_nonzero, codes.view(np.bool_)),
    }


def scanned_array(index: Index) -> Words:
    """The array that a scan of images reads."""
    return index.snapshot().partitions["image"].codes["image"].reshape(-1).view(np.uint64)


def measure_reading(index: Index, coded: Coded, options: Any) -> tuple[dict[str, list[float]], list[Goal]]:
    """One query in turns with reading the codes."""
    clock = CLOCKS[options.clock]
    calls = [partial(index.search, texts=text, k=K) for text in coded.one_by_one(SINGLES)]
    turns: dict[str, Turn] = {"crossbyte, one query": partial(seconds_per_call, clock, calls)}
    for name, once in read_passes(scanned_array(index)).items():
        turns[f"reading the codes: {name}"] = partial(seconds_per_call, clock, [once] * 3)
    seconds = take_turns(turns, options.repetitions)
    found = medians(seconds)
    own = found["crossbyte, one query"]
    read = min(value for name, value in found.items() if name.startswith("reading"))
    goals = [Goal(name, "milliseconds", 1e3 * value) for name, value in found.items()]
    goals.append(Goal("fastest reading", "gigabytes per second", scanned_array(index).nbytes / read / 1e9))
    return seconds, [*goals, Goal("crossbyte, one query", "times one reading", own / read, 1.5, at_most=True)]


def measure_threads(path: Path, coded: Coded, options: Any) -> tuple[dict[str, list[float]], list[Goal]]:
    """Batches with one and with two threads; always wall time, which is what threads are for."""
    texts = coded.texts[:BATCH]
    with Index.open(path, n_jobs=1) as one, Index.open(path, n_jobs=2) as two:
        turns: dict[str, Turn] = {
            f"batch of {BATCH}, {name}": partial(
                seconds_per_call, time.perf_counter, [partial(index.search, texts=texts, k=K)]
            )
            for name, index in (("1 thread", one), ("2 threads", two))
        }
        seconds = take_turns(turns, options.repetitions)
    found = medians(seconds)
    goals = [Goal(name, "milliseconds per query", 1e3 * value / BATCH) for name, value in found.items()]
    first, second = found.values()
    return seconds, [*goals, Goal("2 threads", "times as fast as 1", first / second, 1.6)]


# Opening


def open_and_verify(path: str) -> dict[str, Any]:
    """In a fresh process: read, hash, open, lay out and verify a file; seconds, and bytes of memory."""
    before = resident()
    with Index.open(path) as index:  # imports and the page cache are warm after this
        found: dict[str, Any] = {"resident": resident() - before, "stats": index.stats()}
    del index
    start = time.perf_counter()
    data = Path(path).read_bytes()
    found["read"] = time.perf_counter() - start
    start = time.perf_counter()
    hashlib.blake2b(data, digest_size=16).digest()
    found["hash"] = time.perf_counter() - start
    del data
    start = time.perf_counter()
    with Index.open(path) as index:
        found["open"] = time.perf_counter() - start
        start = time.perf_counter()
        index.snapshot()
        found["lay out"] = time.perf_counter() - start
        start = time.perf_counter()
        index.verify()
        found["verify"] = time.perf_counter() - start
    return found | {"peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}


def resident() -> int:
    """Bytes of this process in memory (Linux)."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure_opening(path: Path, n_items: int) -> list[Goal]:
    """Open in fresh processes; medians of the times, sizes of the last."""
    command = [sys.executable, "-m", "benchmarks.large", "--child", str(path)]
    runs = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(OPENINGS)
    ]
    part = {name: median(run[name] for run in runs) for name in ("read", "hash", "open", "lay out", "verify")}
    goals = [Goal("file", f"{name}, seconds", value) for name, value in part.items()]
    goals += [
        Goal("file", "open - read, seconds", part["open"] - part["read"], 2.0, at_most=True),
        Goal(
            "file",
            "open + verify - both readings, seconds",
            part["open"] + part["verify"] - 2 * part["read"],
            2.0,
            at_most=True,
        ),
    ]
    return goals + size_goals(runs[-1], n_items)


def size_goals(run: dict[str, Any], n_items: int) -> list[Goal]:
    """Bytes per item: codes and all but ids on disk; all but ids in memory; what the system says."""
    n_codebooks = N_BITS // 8
    disk, memory = run["stats"]["disk"]["bytes"], run["stats"]["memory"]["bytes"]
    ids = sum(size for name, size in disk.items() if name.startswith("documents:ids"))
    model = sum(size for name, size in disk.items() if name.startswith("model:"))
    goals = [Goal("on disk", f"{name}, bytes per item", size / n_items) for name, size in disk.items()]
    codes = (disk["file"] - ids - model - disk["payloads"]) / n_items
    goals.append(
        Goal(
            "on disk",
            "all but ids, payloads and model, bytes per item",
            codes,
            1.1 * n_codebooks,
            at_most=True,
        )
    )
    goals += [Goal("in memory", f"{name}, bytes per item", size / n_items) for name, size in memory.items()]
    rest = (memory["total"] - memory["ids"]) / n_items
    goals.append(Goal("in memory", "all but ids, bytes per item", rest, n_codebooks + 5, at_most=True))
    goals.append(Goal("in memory", "resident after open, bytes per item", run["resident"] / n_items))
    return [*goals, Goal("in memory", "peak of the process, MB", run["peak"] / 1e6)]


# All of it


def build(path: Path, coded: Coded, n_items: int) -> float:
    """Write the index in blocks of a million; seconds."""
    codes = extend_codes(coded.codes, n_items)

    def blocks() -> Iterator[dict[str, Any]]:
        for start in range(0, n_items, N_CODED):
            stop = min(start + N_CODED, n_items)
            yield {"ids": range(start, stop), "image_codes": codes[start:stop]}

    begin = time.perf_counter()
    with Index.create(path, coded.model) as index:
        index.add(blocks())
    return time.perf_counter() - begin


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=N_ITEMS)
    parser.add_argument("--coded", type=int, default=N_CODED, help="how many of them by the model")
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--cpu", dest="clock", action="store_const", const="cpu", default="wall")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def measure(path: Path, coded: Coded, options: Any) -> list[Measurement]:
    """Everything about the index at ``path``, one table each."""
    about = f"{options.items:,} items, M={N_BITS // 8}, k={K}"
    opening = _show(f"opening and sizes, {about}", measure_opening(path, options.items), options)
    with Index.open(path, n_jobs=1) as index:
        single, goals = measure_reading(index, coded, options)
    reading = _show(f"one query, 1 thread, {about}, {options.clock} time", goals, options)
    batch, goals = measure_threads(path, coded, options)
    threads = _show(f"threads, {about}, wall time", goals, options)
    times = [
        Measurement(name, "milliseconds, every repetition", [1e3 * one for one in values])
        for name, values in (single | batch).items()
    ]
    goals = [*opening, *reading, *threads]
    return times + [Measurement(goal.system, goal.score, [goal.value], goal.wanted) for goal in goals]


def _show(title: str, goals: list[Goal], options: Any) -> list[Goal]:
    shown = keep_wanted(goals, full_size=options.items == N_ITEMS)
    print_goals(title, shown)
    return shown


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    if options.child:
        print(json.dumps(open_and_verify(options.child)))
        return
    coded = coded_items(min(options.coded, options.items), N_BITS)
    with tempfile.TemporaryDirectory() as folder, threadpool_limits(1):
        path = Path(folder) / "index.cb"
        written = build(path, coded, options.items)
        print(f"{options.items:,} ready codes written in {written:.1f} s")
        entries = measure(path, coded, options)
    asked = {"items": options.items, "coded": len(coded.codes), "bits": N_BITS, "k": K}
    settings = SETTINGS | asked | {"repetitions": options.repetitions, "clock": options.clock}
    if options.items == N_ITEMS:
        save("large", entries, settings | {"kernels": implementation()})


if __name__ == "__main__":
    main()
