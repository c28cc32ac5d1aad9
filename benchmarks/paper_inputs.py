"""The inputs of docs/scale.md: every figure with the benchmark, the line and the score it was read from."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

from benchmarks.tables import RESULTS

__all__ = ["BATCH", "BITS", "K", "Figure", "Figures", "PerLength", "read_figures"]

BITS, K, BATCH = (32, 64), 100, 100

OWN = "paper_scale"
LARGEST_FITS = (  # the first one that was run counts
    (1_000_000, "from_disk", "1,000,000 pairs, sparse", "fit from disk, seconds"),
    (182_577, "scale", "182,577 pairs", "fit, seconds"),
)
VISITED = "share of items visited at 0.95 of the exhaustive recall@10"
CELLS = "cells of 100,000 images, {} bits"  # measured by paper_scale


class Figure(NamedTuple):
    """A number, what it is, where it comes from, and its unit: seconds, ``bytes``, ``%`` or none."""

    value: float
    name: str
    source: str
    unit: str = "s"


@dataclass(frozen=True)
class PerLength:
    """What depends on the code length.

    Attributes
    ----------
    single, batch : Figure
        Core seconds per item and query.
    code, write, open, fit : Figure
        Core seconds per pair.
    memory, disk, cells : Figure
        Bytes per pair; ``cells`` are those that cells add in memory.
    build_cells : Figure
        Core seconds per pair.
    enough : Figure
        Pairs to fit on, by the rule of a plan.
    share : Figure or None
        Share of the items that a query visits with cells; None where that was not measured.
    """

    single: Figure
    batch: Figure
    code: Figure
    write: Figure
    open: Figure
    fit: Figure
    memory: Figure
    disk: Figure
    cells: Figure
    build_cells: Figure
    enough: Figure
    share: Figure | None


@dataclass(frozen=True)
class Figures:
    """Everything that was measured.

    Attributes
    ----------
    lengths : dict of int to PerLength
        By bytes of a code.
    efficiency : Figure
        What a second core adds, of what the first one does.
    resident : Figure
        Bytes of the process over those that the index counts.
    merge : Figure
        Core seconds per hit.
    mapping : Figure
        Seconds to map one query.
    choosing : Figure
        Core seconds to compare a query with one cell.
    asking : Figure or None
        Seconds that a query costs for each of several shards, on one machine: mapping, calls and merging.
    scans : list of float
        Wall time of scans over their median: 201 quantiles.
    load : Figure
        Programs that wanted the processor when this was measured.
    """

    lengths: dict[int, PerLength]
    efficiency: Figure
    resident: Figure
    merge: Figure
    mapping: Figure
    choosing: Figure
    asking: Figure | None
    scans: list[float]
    load: Figure


@cache
def _results(benchmark: str) -> dict[str, Any]:
    return dict(json.loads((RESULTS / f"{benchmark}.json").read_text(encoding="utf-8")))


def _values(benchmark: str, system: str, score: str) -> list[float]:
    entries = _results(benchmark)["measurements"]
    found = [one for one in entries if (one["system"].strip(), one["score"]) == (system, score)]
    return list(found[0]["values"])


def _kept(name: str, benchmark: str, system: str, score: str, factor: float = 1.0, unit: str = "s") -> Figure:
    """The mean of a kept measurement, in SI units."""
    values = _values(benchmark, system, score)
    return Figure(factor * sum(values) / len(values), name, f"`{benchmark}`: {system}: {score}", unit)


def _combined(value: float, name: str, *parts: Figure, unit: str = "s") -> Figure:
    return Figure(value, name, "; ".join(dict.fromkeys(part.source for part in parts)), unit)


def read_figures() -> Figures:
    """Read every input; those of cells only if their benchmark was run."""
    second = _kept("", "large", "2 threads", "times as fast as 1")
    resident = _kept("", "large", "in memory", "resident after open, bytes per item")
    counted = _kept("", "large", "in memory", "total, bytes per item")
    return Figures(
        lengths={bits // 8: _per_length(bits) for bits in BITS},
        efficiency=_combined(second.value - 1, "what a second core adds", second, unit=""),
        resident=_combined(
            resident.value / counted.value, "process over index, bytes", resident, counted, unit=""
        ),
        merge=_kept("merging, per hit", OWN, "merge", "core nanoseconds per hit", 1e-9),
        mapping=_kept(
            "mapping one query",
            "search",
            "mapping the queries",
            "M=8, one query at a time: milliseconds per query",
            1e-3,
        ),
        choosing=_kept("choosing cells, per cell", OWN, "choose cells", "core nanoseconds per cell", 1e-9),
        asking=_asking(),
        scans=_values(OWN, "scan, 8 bytes", "wall time over the median, 201 quantiles"),
        load=_kept("load average", OWN, "machine", "load average when this began", unit=""),
    )


def _asking() -> Figure | None:
    """What asking shards costs, all of it taken to grow with their number."""
    if not (RESULTS / "sharded.json").exists():
        return None
    found = _kept("", "sharded", "asking the shards", "milliseconds per query", 1e-3)
    return _combined(found.value / _results("sharded")["settings"]["shards"], "asking one shard", found)


def _per_length(bits: int) -> PerLength:
    n_bytes = bits // 8
    scan, index = f"scan, {n_bytes} bytes", f"index of pairs, {bits} bits"
    return PerLength(
        single=_kept(
            "scan, one query, per item", OWN, scan, "one query, core seconds per billion items", 1e-9
        ),
        batch=_kept(
            f"scan in batches of {BATCH}, per query and item",
            OWN,
            scan,
            f"batch of {BATCH}, core seconds per query and billion items",
            1e-9,
        ),
        code=_kept("code a pair", OWN, f"code pairs, {bits} bits", "core microseconds per pair", 1e-6),
        write=_kept("write a coded pair", OWN, index, "write ready codes, core microseconds per pair", 1e-6),
        open=_kept("open, per pair", OWN, index, "open, core microseconds per pair", 1e-6),
        fit=_fit(bits),
        memory=_kept("in memory, per pair", OWN, index, "in memory, bytes per pair", unit="bytes"),
        disk=_kept("on disk, per pair", OWN, index, "on disk, bytes per pair", unit="bytes"),
        cells=_kept(
            "cells, in memory, per pair", OWN, CELLS.format(bits), "in memory, bytes per item", 2.0, "bytes"
        ),
        build_cells=_kept(
            "cells, per pair", OWN, CELLS.format(bits), "build, core microseconds per item", 2e-6
        ),
        enough=_kept(
            "enough pairs to fit on", "sample_size", f"Fashion, {bits} bits", "enough pairs", unit=""
        ),
        share=_share(bits),
    )


def _fit(bits: int) -> Figure:
    """Core seconds per pair of the largest fit that was run, with 32 bits; pilots say what more bits take."""
    n_pairs, benchmark, system, score = next(
        one for one in LARGEST_FITS if (RESULTS / f"{one[1]}.json").exists()
    )
    found = _kept("", benchmark, system, score)
    threads = float(_results(benchmark)["settings"]["n_jobs"])
    each = found.value * threads / n_pairs
    if bits == BITS[0]:
        return _combined(each, "fit, per pair", found)
    longer = _kept("", OWN, "fit", f"{bits} bits over {BITS[0]} bits")
    return _combined(each * longer.value, "fit, per pair", found, longer)


def _share(bits: int) -> Figure:
    """The share of images that a text visits: by the larger benchmark, whose code length stands for all."""
    name = "share of items visited, with cells"
    if not (RESULTS / "cells.json").exists():
        return _kept(name, OWN, CELLS.format(bits), VISITED, unit="%")
    settings = _results("cells")["settings"]
    measured = f"measured with {settings['bits'] // 8} bytes at {settings['items']:,} items"
    return _kept(f"{name} ({measured})", "cells", "cells", VISITED, unit="%")
