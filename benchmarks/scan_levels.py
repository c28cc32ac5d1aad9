"""The bare scan at every level beside FAISS's IndexPQFastScan: the same bytes per item, one thread.

    python -m benchmarks.scan_levels                     # 1M items, M = 8, on a quiet machine
    python -m benchmarks.scan_levels --items 250000 --cpu     # smaller, in process time, for a loaded machine

Where ``search.py`` times whole searches, this times their inner loop: distance tables from points, and the
scan, for one query at a time and for a batch. FAISS searches from the same points. All take turns, as there.
The newest FAISS alone, at the level of its own choice, also beside ours that are limited to a lower one.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.coded import SETTINGS, Coded, coded_items
from benchmarks.faiss_processes import FaissProcess, faiss_processes
from benchmarks.tables import Measurement, save
from benchmarks.timing import (
    CLOCKS,
    Goal,
    Turn,
    measurements,
    medians,
    print_times,
    seconds_per_call,
    take_turns,
)
from crossbyte import _native
from crossbyte.compute.executor import make_executor
from crossbyte.compute.kernels import ScanSide, pack_codes, scan
from crossbyte.model.quantization.quantizer import Quantizer

N_ITEMS, N_BITS = 1_000_000, 64
REPETITIONS = 9
BATCH, SINGLES = 100, 20
PEER = "PQFastScan"
WANTED = {("avx512", True): 1.3, ("avx2", True): 1 / 1.3, ("avx512", False): 1.0, ("avx2", False): 1.0}


@contextmanager
def limited(level: str) -> Iterator[None]:
    """Run the kernels at most at this level."""
    _native.limit_level(level)
    try:
        yield
    finally:
        _native.limit_level("avx512")


def levels() -> list[str]:
    """Levels with bounds of their own that this machine has."""
    found = []
    for level in ("avx2", "avx512"):
        with limited(level):
            found += [level] if _native.level() == level else []
    return found


class Scan:
    """The scan of coded items, from points in the common space to rows."""

    def __init__(self, coded: Coded) -> None:
        self._quantizer: Quantizer = coded.model.fitted_.image_quantizer
        self._n_items = len(coded.codes)
        self._codes = pack_codes(self._quantizer.scan_codes(coded.codes, make_executor(1)))
        self._points = np.load(coded.folder / "queries.npy")

    def seconds(self, level: str, k: int, single: bool, clock: str) -> float:
        """Seconds per query at a level."""
        starts = range(SINGLES) if single else [0]
        size = 1 if single else BATCH
        with limited(level):
            calls = [partial(self._call, start, start + size, k) for start in starts]
            return seconds_per_call(CLOCKS[clock], calls) / size

    def _call(self, start: int, stop: int, k: int) -> None:
        table = self._quantizer.table(self._points[start:stop])
        scan([ScanSide(self._codes, np.ascontiguousarray(table.tables), table.offsets)], self._n_items, k)


def measure(
    own: Scan, coded: Coded, process: FaissProcess, k: int, single: bool, options: Any
) -> list[Measurement]:
    """One k, alone or in a batch: all levels in turns with FAISS."""
    asked = {"k": k, "single": single, "clock": options.clock}
    n = SINGLES if single else BATCH
    peer = f"{process.name} {PEER}"
    turns: dict[str, Turn] = {peer: partial(process.seconds, PEER, coded, n=n, warm=True, **asked)}
    turns |= {level: partial(own.seconds, level, **asked) for level in levels()}
    seconds = take_turns(turns, options.repetitions)
    found = medians(seconds)
    way = f"k={k}, " + ("one query at a time" if single else f"batch of {BATCH}")
    goals = [
        Goal(level, f"{way}: time of {PEER} over ours", found[peer] / found[level], WANTED[level, single])
        for level in levels()
    ]
    print_times(
        f"{way}: {options.items:,} items, M={N_BITS // 8}, 1 thread, {options.clock} time", found, goals
    )
    return measurements(seconds, f"{way}: milliseconds per query", goals)


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
    entries: list[Measurement] = []
    coded = coded_items(options.items, N_BITS)
    own = Scan(coded)
    with faiss_processes(with_older=False) as (process,), threadpool_limits(1):
        process.build(PEER, coded)
        for single in (True, False):
            for k in (10, 100):
                entries += measure(own, coded, process, k, single, options)
        about = {process.name: process.about}
    asked = {"items": options.items, "repetitions": options.repetitions, "clock": options.clock}
    if options.items == N_ITEMS:
        save("scan-levels", entries, SETTINGS | asked | {"peers": about})


if __name__ == "__main__":
    main()
