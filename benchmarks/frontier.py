"""Recall of partners against queries per second and bytes, beside the libraries that people use.

    python -m benchmarks frontier                                     # 1M items and all places, all peers
    python -m benchmarks frontier --items 100000 --sets gapped        # smaller; nothing is kept
    python -m benchmarks frontier --prepare                           # only what need not be timed
    python -m benchmarks frontier --peers "FAISS HNSW" USearch        # some peers; the others as kept

Texts search images (see ``frontier_sets.py``); peers search the uncompressed points of the very space, with
the training that suits each of them best (``frontier_server.py``), and every knob that trades recall for time
is swept. crossbyte has codes of 8 and of 16 bytes, searched whole and with cells.

Times are those of one thread: 50 queries one by one, and a batch of 100. crossbyte is timed through
``Index.search``, from raw features to ids and distances; peers from points that are mapped already, to row
numbers. So crossbyte has a second curve, "from points": the same times less what mapping alone takes. Each
peer takes turns with crossbyte, setting by setting; figures are medians of the turns. A peer's times are
multiplied by how much slower crossbyte's were in all turns than beside this peer, so that what else the
machine did in these minutes hardly matters. ``--cpu`` is for a loaded machine: time of the processor.

Bytes are everything that a search needs in memory, per item: of crossbyte what ``Index.stats`` says, with
ids; of others the size of the file that the library writes.

What is made and measured is kept in the cache of the benchmarks, per set and peer, so that a run that was
stopped goes on where it was; ``--again`` measures times and recall anew.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks import gapped
from benchmarks.frontier_peers import PEERS, PROBES, PeerProcesses, count_cells
from benchmarks.frontier_sets import (
    LARGEST,
    LEARNING,
    LENGTHS,
    N_QUERIES,
    SETS,
    TRAINING,
    FrontierSet,
    K,
)
from benchmarks.frontier_tables import (
    BATCH,
    BYTES,
    MAPPING,
    ONE,
    OVERLAP,
    RECALL,
    UNCOMPRESSED,
    beside,
    print_frontier,
)
from benchmarks.tables import Measurement, load, load_settings, save
from benchmarks.timing import CLOCKS, Turn, seconds_per_call, take_turns
from crossbyte import Index
from crossbyte.compute.kernels import implementation

N_ITEMS = 1_000_000
SINGLES, BATCHED, REPETITIONS = 50, 100, 7
OWN = "crossbyte"
MODES = {ONE: (SINGLES, True), BATCH: (BATCHED, False)}


class OwnSetting(NamedTuple):
    """crossbyte with codes of some length, and the cells that are visited; "all" for no cells."""

    n_bytes: int
    n_probe: int | str

    @property
    def system(self) -> str:
        """The curve it is on, and its name there."""
        how = "exhaustive" if self.n_probe == "all" else f"n_probe={self.n_probe}"
        return f"{OWN}, {self.n_bytes} bytes: {how}"


class OwnIndexes:
    """The indexes of crossbyte over a set, open."""

    def __init__(self, of: FrontierSet, lengths: Sequence[int], clock: str) -> None:
        self.of, self._lengths, self._clock, self._stack = of, lengths, CLOCKS[clock], ExitStack()
        self._indexes = {
            (n_bytes, cells): self._stack.enter_context(Index.open(of.index(n_bytes, cells), n_jobs=1))
            for n_bytes in lengths
            for cells in (False, True)
        }

    def settings(self) -> Iterator[OwnSetting]:
        """All that is compared."""
        for n_bytes in self._lengths:
            yield OwnSetting(n_bytes, "all")
            cells = self._indexes[n_bytes, True].cells
            assert cells is not None
            yield from (OwnSetting(n_bytes, n) for n in PROBES if n <= cells.n_cells["image"])

    def bytes_per_item(self, setting: OwnSetting) -> float:
        """Everything in memory, the ids too."""
        return float(self._index(setting).stats()["memory"]["bytes"]["total"]) / self.of.n_items

    def rows(self, setting: OwnSetting) -> NDArray[np.int64]:
        """What every query finds, (n_queries, k)."""
        probe = None if setting.n_probe == "all" else setting.n_probe
        found = [hits.ids for hits in self._index(setting).search(texts=self.of.texts, k=K, n_probe=probe)]
        return np.array([[*ids, *[-1] * (K - len(ids))] for ids in found], dtype=np.int64)

    def turns(self, setting: OwnSetting) -> Iterator[tuple[tuple[str, str], Turn]]:
        """Turns in seconds per query, by (system, score)."""
        probe = None if setting.n_probe == "all" else setting.n_probe
        index, texts = self._index(setting), self.of.texts
        search = partial(index.search, k=K, n_probe=probe)
        singles = [texts[row : row + 1] for row in range(SINGLES)]
        calls = {ONE: [partial(search, texts=one) for one in singles]}
        calls[BATCH] = [partial(search, texts=texts[:BATCHED])]
        for score, some in calls.items():
            yield (setting.system, score), partial(self._per_query, some, 1 if score == ONE else BATCHED)

    def mapping_turns(self) -> Iterator[tuple[tuple[str, str], Turn]]:
        """Turns of taking raw features into the space alone."""
        texts = self.of.texts
        for n_bytes in self._lengths:
            transform = self._indexes[n_bytes, False].model.transform_texts
            calls = [partial(transform, texts[row : row + 1]) for row in range(SINGLES)]
            system = f"{OWN}, {n_bytes} bytes: {MAPPING}"
            yield (system, ONE), partial(self._per_query, calls, 1)
            calls = [partial(transform, texts[:BATCHED])]
            yield (system, BATCH), partial(self._per_query, calls, BATCHED)

    def _per_query(self, calls: Sequence[Any], n_queries: int) -> float:
        return seconds_per_call(self._clock, calls) / n_queries

    def _index(self, setting: OwnSetting) -> Index:
        return self._indexes[setting.n_bytes, setting.n_probe != "all"]

    def __enter__(self) -> OwnIndexes:
        return self

    def __exit__(self, *error: Any) -> None:
        self._stack.close()


# What is found


def score_rows(of: FrontierSet, system: str, rows: NDArray[np.int64], n_bytes: float) -> list[Measurement]:
    """Recall of partners, overlap with the exact neighbours, and bytes."""
    found = (rows == of.partners[:, None]).any(axis=1)
    same = (rows[:, :, None] == of.exact[:, None, :]).any(axis=2).sum(axis=1) / K
    return [
        Measurement(system, RECALL, [float(found.mean())], chance=K / of.n_items),
        Measurement(system, OVERLAP, [float(same.mean())]),
        Measurement(system, BYTES, [n_bytes]),
    ]


def score_own(own: OwnIndexes) -> list[Measurement]:
    """All settings of crossbyte, and the search of uncompressed points."""
    of, n_dims = own.of, np.load(own.of.points, mmap_mode="r").shape[1]
    entries = score_rows(of, UNCOMPRESSED, of.exact, 4.0 * n_dims)
    for setting in own.settings():
        entries += score_rows(of, setting.system, own.rows(setting), own.bytes_per_item(setting))
    return entries


def score_peer(of: FrontierSet, name: str, processes: PeerProcesses) -> list[Measurement]:
    """All settings of a peer."""
    peer, entries = PEERS[name], []
    for setting in peer.settings(count_cells(of.n_items)):
        n_bytes = processes.build(peer, setting.key, of)
        rows = processes.rows(peer, setting, of)
        entries += score_rows(of, f"{name}: {setting.name}", rows, n_bytes)
    processes.close_indexes()
    return entries


# Times


def time_peer(own: OwnIndexes, name: str, processes: PeerProcesses, options: Any) -> list[Measurement]:
    """Let a peer and crossbyte take turns."""
    of, peer = own.of, PEERS[name]
    turns: dict[Any, Turn] = dict(own.mapping_turns())
    for setting in own.settings():
        turns |= dict(own.turns(setting))
    for each in peer.settings(count_cells(of.n_items)):
        for score, (n, single) in MODES.items():
            turns[f"{name}: {each.name}", score] = partial(
                processes.seconds, peer, each, of, n=n, single=single, clock=options.clock
            )
    seconds = take_turns(turns, options.repetitions)
    processes.close_indexes()
    return [
        Measurement(system, beside(score, name), [round(1e3 * median(values), 6)])
        if system.startswith(OWN)
        else Measurement(system, score, [round(1e3 * value, 6) for value in values])
        for (system, score), values in seconds.items()
    ]


# All of it


class Parts:
    """What was measured of one set, a file in the cache for each part."""

    def __init__(self, of: FrontierSet) -> None:
        self._folder = of.folder / "parts"
        self._folder.mkdir(exist_ok=True)

    def read(self, kind: str, name: str) -> list[Measurement] | None:
        """A part, or None if it was not measured."""
        path = self._path(kind, name)
        return [Measurement(**entry) for entry in json.loads(path.read_text())] if path.exists() else None

    def write(self, kind: str, name: str, entries: Sequence[Measurement]) -> None:
        """Keep a part."""
        fields = ("system", "score", "values", "chance")
        records = [{field: getattr(entry, field) for field in fields} for entry in entries]
        self._path(kind, name).write_text(json.dumps(records))

    def _path(self, kind: str, name: str) -> Path:
        return self._folder / f"{kind}-{name}.json"


def measure_set(of: FrontierSet, processes: PeerProcesses, options: Any) -> list[Measurement]:
    """What is found and how long it takes; of peers that are not asked for, what was kept."""
    parts, entries = Parts(of), []
    with OwnIndexes(of, options.bytes, options.clock) as own, threadpool_limits(1):

        def part(kind: str, name: str, measure: Any) -> list[Measurement]:
            found = parts.read(kind, name)
            wanted = name == OWN or name in options.peers
            if (found is None or options.again) and wanted:
                print(f"{of.name}, {of.n_items:,} items: {kind}, {name}", flush=True)
                found = measure()
                parts.write(kind, name, found)
            return found or []

        entries += part("found", OWN, partial(score_own, own))
        for name, peer in PEERS.items():
            if name not in options.peers or processes.has(peer.library):
                entries += part("found", name, partial(score_peer, of, name, processes))
                if not options.prepare:
                    timing = partial(time_peer, own, name, processes, options)
                    entries += part("times", name, timing)
    return [entry_of(of.name, entry) for entry in entries]


def entry_of(set_name: str, entry: Measurement) -> Measurement:
    """Put the set's name before the system's."""
    return Measurement(f"{set_name}: {entry.system}", entry.score, entry.values, chance=entry.chance)


def cpu_name() -> str:
    """What the system calls the processor (Linux)."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    known = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    return f"{known['model name']}, family {known['cpu family']}, model {known['model']}"


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--items", type=int, default=N_ITEMS, help="of each set at most")
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--bytes", nargs="+", type=int, default=list(LENGTHS), choices=LENGTHS, help="ours")
    parser.add_argument("--peers", nargs="+", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--cpu", dest="clock", action="store_const", const="cpu", default="wall")
    parser.add_argument("--jobs", type=int, default=2, help="threads of what is made and not timed")
    parser.add_argument("--prepare", action="store_true", help="make and score everything, time nothing")
    parser.add_argument("--again", action="store_true", help="measure anew what is in the cache")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    entries: list[Measurement] = []
    sizes = {name: min(options.items, LARGEST.get(name, options.items)) for name in options.sets}
    with PeerProcesses(options.jobs) as processes:
        for name, n_items in sizes.items():
            entries += measure_set(FrontierSet(name, n_items, options.jobs), processes, options)
        settings = {"items": sizes, "k": K, "queries": N_QUERIES, "singles": SINGLES, "batch": BATCHED}
        settings |= {"training_pairs": TRAINING, "learning_pairs": LEARNING, "gapped": gapped.SETTINGS}
        settings |= {"repetitions": options.repetitions, "kernels": implementation(), "cpu": cpu_name()}
        settings |= {"clock": options.clock, "load_average": round(os.getloadavg()[0], 1)}
        settings |= {"peers": processes.about, "missing": processes.missing}
    if options.prepare:
        return
    print_frontier(entries)
    if options.items == N_ITEMS:
        others = [entry for entry in load("frontier") if entry.system.partition(": ")[0] not in sizes]
        for name in ("items", "peers"):
            settings[name] = load_settings("frontier").get(name, {}) | settings[name]
        print(f"kept in {save('frontier', [*others, *entries], settings)}")


if __name__ == "__main__":
    main()
