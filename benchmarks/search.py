"""Searches of a million coded items beside FAISS: a batch of queries, and one query at a time.

    python -m benchmarks.search                     # 1M items, M = 8 and 16, on a quiet machine
    python -m benchmarks.search --items 100000 --cpu     # smaller, in process time, for a loaded machine

Text queries search image codes of a trained model (see ``coded.py``). Crossbyte is timed through
``Index.search``, from text features to lists of external ids (strings); FAISS from points that are already
mapped to row numbers. One thread each; all systems take turns within one run. In every turn of every system
the first call is made once more before, uncounted, because the caches are full of another system's data then;
``--cold`` leaves that out. It matters: it gives crossbyte's short calls more than it gives slow ones, so say
which was measured. "The native call" is what of a search goes from points to document numbers; the rest, with
the mapping, is Python. The baselines:

- IndexPQ, M codebooks of 8 bits, over the same points;
- PQFastScan (IndexPQFastScan), 2 M codebooks of 4 bits: the same bytes per item;
- "additive": FAISS's index for additive codes (IndexResidualQuantizer, tables without norms) with the very
  codebooks and codes of the model put in, and one dimension more, so that it finds the same items. How many
  of its first 100 are crossbyte's own first 100 is printed.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.coded import SETTINGS, Coded, coded_items
from benchmarks.faiss_processes import KINDS, FaissProcess, faiss_processes, write_codebooks
from benchmarks.tables import Measurement, save
from benchmarks.timing import (
    CLOCKS,
    Clock,
    Goal,
    Turn,
    keep_wanted,
    measurements,
    medians,
    print_times,
    seconds_per_call,
    take_turns,
)
from crossbyte import Index
from crossbyte.compute.kernels import AskedPart, implementation

N_ITEMS = 1_000_000
REPETITIONS = 9
BATCH, SINGLES, K = 100, 20, 100
OWN, MAPPING, NATIVE = "crossbyte", "  mapping the queries", "  the native call"
OVERHEAD = "milliseconds beside the native call"


class Setting(NamedTuple):
    """A way to ask, and how many times faster than each kind of FAISS index it should be."""

    n_bits: int
    single: bool
    wanted: dict[str, float]

    @property
    def name(self) -> str:
        """How the setting is called in tables."""
        return f"M={self.n_bits // 8}, " + ("one query at a time" if self.single else f"batch of {BATCH}")

    @property
    def n_queries(self) -> int:
        """Queries of one turn."""
        return SINGLES if self.single else BATCH


SETTINGS_ASKED = (
    Setting(64, False, {"IndexPQ": 10.0, "PQFastScan": 1.5, "additive": 30.0}),
    Setting(64, True, {"IndexPQ": 4.0, "PQFastScan": 1.0}),
    Setting(128, False, {}),
    Setting(128, True, {"IndexPQ": 2.5}),
)


def build_index(path: Path, coded: Coded) -> None:
    """Put the items into an index, with strings for ids."""
    with Index.create(path, coded.model) as index:
        index.add(external_ids(len(coded.codes)), image_codes=coded.codes)


def external_ids(count: int) -> list[str]:
    """Ids as files have them."""
    return [f"photo-{row:07d}" for row in range(count)]


def own_turns(index: Index, coded: Coded, setting: Setting, clock: Clock, warm: bool) -> dict[str, Turn]:
    """Crossbyte's turns, in seconds per query: the search, and what of it was mapping the queries."""
    texts = coded.one_by_one(SINGLES) if setting.single else [coded.texts[:BATCH]]
    transform = index.model.transform_texts
    rows = [text.reshape(1, -1) for text in texts] if setting.single else texts
    calls: dict[str, list[Callable[[], Any]]] = {
        OWN: [partial(index.search, texts=text, k=K) for text in texts],
        MAPPING: [partial(transform, some) for some in rows],
        NATIVE: [native_call(index, transform(some), K) for some in rows],
    }
    n_queries = 1 if setting.single else BATCH
    return {name: partial(_per_query, clock, some, n_queries, warm) for name, some in calls.items()}


def native_call(index: Index, points: Any, k: int, n_probe: int = 0) -> Callable[[], Any]:
    """Make the call by which images are searched with points of texts; ``n_probe`` cells, or 0 for all."""
    snapshot = index.snapshot()
    prepared = snapshot.prepare_search("text", "image")
    asked = [
        AskedPart(place, 0.0, snapshot.partitions[coding].live, n_probe)
        for coding, place in prepared.places.items()
    ]
    return partial(prepared.searcher.search, points, asked, k)


def _per_query(clock: Clock, calls: Sequence[Callable[[], Any]], n_queries: int, warm: bool) -> float:
    return seconds_per_call(clock, calls, warm=warm) / n_queries


def same_items(index: Index, coded: Coded, process: FaissProcess) -> float:
    """Share of the additive index's first k items that are crossbyte's own first k."""
    own = [set(hits.ids) for hits in index.search(texts=coded.texts[:SINGLES], k=K)]
    names = np.array(external_ids(len(coded.codes)))
    found = [set(names[rows].tolist()) for rows in process.rows("additive", coded, SINGLES, K)]
    return float(np.mean([len(one & other) / K for one, other in zip(own, found, strict=True)]))


def measure(
    index: Index, coded: Coded, processes: Sequence[FaissProcess], setting: Setting, options: Any
) -> list[Measurement]:
    """One setting: all systems in turns, one table."""
    turns = own_turns(index, coded, setting, CLOCKS[options.clock], options.warm)
    asked = {"n": setting.n_queries, "k": K, "single": setting.single}
    asked |= {"clock": options.clock, "warm": options.warm}
    for process in processes:
        for kind in KINDS:
            turns[f"{process.name} {kind}"] = partial(process.seconds, kind, coded, **asked)
    seconds = take_turns(turns, options.repetitions)
    found = medians(seconds)
    goals = [_goal(name, found, setting) for name in found if name not in (OWN, MAPPING, NATIVE)]
    overhead = 1e3 * (found[OWN] - found[NATIVE])
    limit = 0.06 if setting.single else None
    goals.append(Goal(NATIVE, f"{setting.name}: {OVERHEAD}", overhead, limit, at_most=True))
    goals = keep_wanted(goals, full_size=options.items == N_ITEMS)
    print_times(f"{setting.name}: {len(index):,} items, k={K}, 1 thread, {_way(options)}", found, goals)
    return measurements(seconds, f"{setting.name}: milliseconds per query", goals)


def _way(options: Any) -> str:
    return f"{options.clock} time, {'warm' if options.warm else 'cold'}"


def _goal(name: str, found: dict[str, float], setting: Setting) -> Goal:
    wanted = setting.wanted.get(name.rpartition(" ")[2])
    return Goal(name, f"{setting.name}: times crossbyte's", found[name] / found[OWN], wanted)


def measure_bits(n_bits: int, processes: Sequence[FaissProcess], options: Any) -> list[Measurement]:
    """All settings of one code length."""
    coded = coded_items(options.items, n_bits)
    write_codebooks(coded, coded.model)
    for process in processes:
        for kind in KINDS:
            process.build(kind, coded)
    entries = []
    with tempfile.TemporaryDirectory() as folder:
        build_index(Path(folder) / "index.cb", coded)
        with Index.open(Path(folder) / "index.cb", n_jobs=1) as index:
            for process in processes:
                same = same_items(index, coded, process)
                name = f"{process.name} additive"
                entries.append(Measurement(name, f"M={n_bits // 8}: same first {K}", [same], target=1.0))
                print(f"{name}, M={n_bits // 8}: {same:.4f} of its first {K} are crossbyte's")
            for setting in SETTINGS_ASKED:
                if setting.n_bits == n_bits:
                    entries += measure(index, coded, processes, setting, options)
    return entries


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=N_ITEMS)
    parser.add_argument("--bits", type=int, nargs="+", default=[64, 128], choices=(64, 128))
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--newest-only", action="store_true", help="without the older FAISS")
    parser.add_argument("--cold", dest="warm", action="store_false", help="no uncounted call in a turn")
    parser.add_argument("--cpu", dest="clock", action="store_const", const="cpu", default="wall")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    entries: list[Measurement] = []
    with faiss_processes(not options.newest_only) as processes, threadpool_limits(1):
        for n_bits in options.bits:
            entries += measure_bits(n_bits, processes, options)
        about = {process.name: process.about for process in processes}
    asked = {"items": options.items, "k": K, "repetitions": options.repetitions, "clock": options.clock}
    asked["warm"] = options.warm
    settings = SETTINGS | asked | {"kernels": implementation(), "peers": about}
    if options.items == N_ITEMS and set(options.bits) == {64, 128} and not options.newest_only:
        save("search" if options.warm else "search-cold", entries, settings)


if __name__ == "__main__":
    main()
