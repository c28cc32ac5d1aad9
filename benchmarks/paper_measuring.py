"""Per-core figures of this machine for docs/scale.md: scanning, coding, writing, opening, merging, fitting.

Rates are those of the processor (one thread, ``process_time``), which other programs disturb least; only how
scans differ from each other is wall time. Codes are those of a trained model, made more by mixing
(``coded.extend_codes``), and then laid one behind the other until no cache holds them.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.coded import SETTINGS as CODED
from benchmarks.coded import Coded, _pairs, coded_items, extend_codes
from benchmarks.paper_inputs import BATCH, BITS, VISITED, K
from benchmarks.tables import Measurement
from benchmarks.tail_latency import summarise_quantiles
from crossbyte import CMCQ, Index
from crossbyte.compute import kernels
from crossbyte.compute.executor import Workers
from crossbyte.data.synthetic import make_pairs, nus_wide_like
from crossbyte.index.plan import pilot

__all__ = ["SETTINGS", "measure"]

N_CODED, N_MIXED = 100_000, 2_000_000
SCANNED_BYTES = 320_000_000  # of codes: more than a cache has
SINGLES, REPETITIONS = 8, 5
N_PAIRS = 8_192  # coded
N_DOCUMENTS = 1_000_000  # written
N_FITTED, N_CENTRES = 4_096, 65_536
CELL_PAIRS = 20_000  # of those coded: what the choice of cells is learned and measured on
SHARDS_MERGED = 64
SCANS, SCAN_ITEMS = 800, 10_000_000  # whose latencies are compared
SETTINGS = {"k": K, "scanned_bytes": SCANNED_BYTES, "batch": BATCH, "repetitions": REPETITIONS}
SETTINGS |= {"pairs_coded": N_PAIRS, "documents_written": N_DOCUMENTS, "pairs_fitted": N_FITTED}
SETTINGS |= {"scans": SCANS, "scan_items": SCAN_ITEMS, "shards_merged": SHARDS_MERGED}


class Scanned(NamedTuple):
    """Codes as the scan reads them, and tables of queries."""

    codes: Any
    n_items: int
    tables: Any
    offsets: Any

    def scan(self, first: int, count: int) -> Any:
        """Scan with ``count`` queries from ``first`` on, on one thread."""
        some = slice(first, first + count)
        side = kernels.ScanSide(self.codes, self.tables[some], self.offsets[some])
        return kernels.scan([side], self.n_items, K, n_threads=1)


def cpu_seconds(call: Callable[[], Any], repetitions: int = REPETITIONS) -> list[float]:
    """Processor seconds of every repetition, after one that warms up."""
    call()
    found = []
    for _ in range(repetitions):
        start = time.process_time()
        call()
        found.append(time.process_time() - start)
    return found


def measure() -> list[Measurement]:
    """Measure everything; about two minutes of one core."""
    entries = [Measurement("machine", "load average when this began", [os.getloadavg()[0]])]
    with threadpool_limits(1):
        for bits in BITS:
            coded = coded_items(N_CODED, bits)
            scanned = _scanned(coded, N_MIXED)
            entries += _scanning(_longer(scanned, SCANNED_BYTES), bits)
            entries += _coding(coded, bits) + _writing(coded, bits) + _cells(coded, bits)
        entries += (
            _varying(_longer(scanned, SCAN_ITEMS * BITS[-1] // 8)) + _merging() + _choosing() + _fitting()
        )
    return entries


# Scanning


def _scanned(coded: Coded, n_items: int) -> Scanned:
    codes = kernels.pack_codes(extend_codes(coded.codes, n_items))
    points = np.load(coded.folder / "queries.npy")[: max(BATCH, SINGLES)]
    table = coded.model.fitted_.image_quantizer.table(points)
    return Scanned(codes, n_items, np.ascontiguousarray(table.tables), table.offsets)


def _longer(scanned: Scanned, n_bytes: int) -> Scanned:
    times = -(-n_bytes // scanned.codes.nbytes)
    return scanned._replace(codes=np.tile(scanned.codes, (times, 1, 1)), n_items=times * scanned.n_items)


def _scanning(scanned: Scanned, bits: int) -> list[Measurement]:
    """Seconds per billion items and query: alone, and in a batch."""
    billions = scanned.n_items / 1e9

    def singles() -> None:
        for query in range(SINGLES):
            scanned.scan(query, 1)

    alone = [one / SINGLES / billions for one in cpu_seconds(singles)]
    batch = [one / BATCH / billions for one in cpu_seconds(lambda: scanned.scan(0, BATCH), 3)]
    name = f"scan, {bits // 8} bytes"
    return [
        Measurement(name, "one query, core seconds per billion items", alone),
        Measurement(name, f"batch of {BATCH}, core seconds per query and billion items", batch),
    ]


def _varying(scanned: Scanned) -> list[Measurement]:
    """How much longer than the median scans of the same items took, on the wall."""
    seconds = []
    for query in range(SCANS):
        start = time.perf_counter()
        scanned.scan(query % SINGLES, 1)
        seconds.append(time.perf_counter() - start)
    middle = median(seconds)
    relative = summarise_quantiles([one / middle for one in seconds])
    return [
        Measurement("scan, 8 bytes", "wall time over the median, 201 quantiles", relative),
        Measurement("scan, 8 bytes", f"median of {SCAN_ITEMS:,} items, milliseconds", [1e3 * middle]),
    ]


def _merging() -> list[Measurement]:
    """Seconds to bring the hits of many shards into the order of (distance, number)."""
    rng = np.random.default_rng(0)
    distances = rng.random(SHARDS_MERGED * K, dtype=np.float32)
    numbers = rng.permutation(len(distances))

    def merge() -> None:
        for _ in range(100):
            np.lexsort((numbers, distances))[:K]

    each = [one / 100 / len(distances) for one in cpu_seconds(merge)]
    return [Measurement("merge", "core nanoseconds per hit", [1e9 * one for one in each])]


def _choosing() -> list[Measurement]:
    """Seconds to compare a point with the centres of as many cells as there can be, and to take some."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(N_CENTRES, CODED["components"])).astype(np.float32)
    point = centres[0] + 1

    def choose() -> None:
        for _ in range(20):
            np.argpartition(centres @ point, N_CENTRES // 50)

    each = [one / 20 / N_CENTRES for one in cpu_seconds(choose)]
    return [Measurement("choose cells", "core nanoseconds per cell", [1e9 * one for one in each])]


# Coding and writing


def _coding(coded: Coded, bits: int) -> list[Measurement]:
    """Seconds to code pairs, folded in, by a canonical space."""
    model = coded.model.set_params(n_jobs=1)
    pairs = make_pairs(N_PAIRS, 128, 500, n_classes=200, n_topics=80, random_state=1)
    each = [one / N_PAIRS for one in cpu_seconds(lambda: model.encode_pairs(pairs.images, pairs.texts), 3)]
    return [
        Measurement(f"code pairs, {bits} bits", "core microseconds per pair", [1e6 * one for one in each])
    ]


def _writing(coded: Coded, bits: int) -> list[Measurement]:
    """Seconds to write and to open an index of ready codes of both sides, and its bytes."""
    codes = extend_codes(coded.codes, N_DOCUMENTS)

    def blocks() -> Iterator[dict[str, Any]]:
        for first in range(0, N_DOCUMENTS, 100_000):
            some = slice(first, first + 100_000)
            ids = range(first, first + 100_000)
            yield {"ids": ids, "image_codes": codes[some], "text_codes": codes[some]}

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.cb"
        start = time.process_time()
        with Index.create(path, coded.model) as index:
            index.add(blocks())
        written = time.process_time() - start
        opened = cpu_seconds(lambda: Index.open(path).close(), 3)
        with Index.open(path) as index:
            memory = index.stats()["memory"]["bytes"]["total"]
        disk = os.path.getsize(path)
    name, model = f"index of pairs, {bits} bits", len(coded.model.to_bytes())
    return [
        Measurement(name, "write ready codes, core microseconds per pair", [1e6 * written / N_DOCUMENTS]),
        Measurement(name, "open, core microseconds per pair", [1e6 * one / N_DOCUMENTS for one in opened]),
        Measurement(name, "in memory, bytes per pair", [memory / N_DOCUMENTS]),
        Measurement(name, "on disk, bytes per pair", [(disk - model) / N_DOCUMENTS]),
    ]


def _cells(coded: Coded, bits: int) -> list[Measurement]:
    """Seconds to put images into cells, their bytes, and the share that a text visits to keep 0.95."""
    pairs, first = _pairs(N_CODED), CODED["training_pairs"]
    rows = slice(first, first + CELL_PAIRS)
    with (
        tempfile.TemporaryDirectory() as folder,
        Index.create(Path(folder) / "index.cb", coded.model) as index,
    ):
        index.add(range(N_CODED), image_codes=coded.codes)
        start = time.process_time()
        index.build_cells(images=pairs.images[rows], texts=pairs.texts[rows])
        built = time.process_time() - start
        found, memory = index.cells, index.stats()["memory"]["bytes"]["cells"]
    assert found is not None
    curve, visited = found.curve["text-to-image"], found.n_probe["text-to-image"]
    name = f"cells of {N_CODED:,} images, {bits} bits"
    return [
        Measurement(name, VISITED, [curve.items[curve.cells.index(visited)]]),
        Measurement(name, "build, core microseconds per item", [1e6 * built / N_CODED]),
        Measurement(name, "in memory, bytes per item", [memory / N_CODED]),
    ]


# Fitting


def _fitting() -> list[Measurement]:
    """How much longer a fit with more bits takes, by the pilot of a plan: all rounds, every stage."""
    pairs = nus_wide_like(N_FITTED)
    with Workers(1):
        seconds = {bits: _fit_seconds(pairs, bits) for bits in BITS}
    entries = [
        Measurement(f"fit, {bits} bits", "core microseconds per pair", [1e6 * one / N_FITTED])
        for bits, one in seconds.items()
    ]
    return [*entries, Measurement("fit", "64 bits over 32 bits", [seconds[64] / seconds[32]])]


def _fit_seconds(pairs: Any, bits: int) -> float:
    model = CMCQ(bits, random_state=0, n_jobs=1)
    timed, _ = pilot._timed_fit(model, pairs.images, pairs.texts, N_FITTED)
    return sum(timed.seconds.values())
