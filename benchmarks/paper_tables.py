"""The tables of docs/scale.md, from the figures of one core and what is assumed of a machine."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as changed

from benchmarks import paper_arithmetic as paper
from benchmarks.paper_arithmetic import Machine, Shape
from benchmarks.paper_inputs import Figure, Figures, K, PerLength
from benchmarks.tail_latency import from_quantiles, maximum_quantile, simulate
from crossbyte._format import readable_bytes, readable_seconds
from crossbyte.compute.executor import SHARE_ROWS

__all__ = ["PAIRS", "Assumptions", "Case", "tables"]

PAIRS = (10**7, 10**8, 10**9, 10**10)
SHARDS = (1, 4, 16, 64, 256, 1024)
QUERY_DIMENSIONS, ENVELOPE, HIT_BYTES = (
    64,
    1000,
    21,
)  # a point; what a call adds; distance, number, coding, id
SUM_BYTES = 512 * 512 * 8  # the largest sum of a fit: the Gram matrix of its atoms
MAX_DOCUMENTS = 2**32  # of a file: docs/index.md
HEDGED = 0.95  # quantile of a shard's latency after which a replica is asked


@dataclass(frozen=True)
class Assumptions:
    """What is assumed: the machine, how often everything is there, and how much is asked."""

    machine: Machine
    replicas: int = 2
    queries: float = 1000.0


@dataclass(frozen=True)
class Case:
    """One row of the tables."""

    pairs: int
    n_bytes: int
    figures: Figures
    assumed: Assumptions
    cells: bool = False

    @property
    def each(self) -> PerLength:
        """What this code length takes."""
        return self.figures.lengths[self.n_bytes]

    @property
    def bytes_per_pair(self) -> float:
        """In memory, as the system counts it."""
        extra = self.each.cells.value if self.cells else 0.0
        return (self.each.memory.value + extra) * self.figures.resident.value

    @property
    def shape(self) -> Shape:
        """How it is searched."""
        share = self.each.share.value if self.cells and self.each.share else 1.0
        return Shape(self.n_bytes, share, self.figures.efficiency.value)

    @property
    def shards(self) -> int:
        """Machines that hold everything once."""
        return paper.machines_to_hold(self.pairs, self.assumed.machine, self.bytes_per_pair)

    @property
    def scan(self) -> float:
        """Seconds of one query on its machine, alone: choosing cells, by one core, and scanning them."""
        items = self.pairs / self.shards
        scanned = paper.scan_seconds(items, self.each.single.value, self.assumed.machine, self.shape)
        return self._choosing + scanned

    def latency(self, share: float = 0.5) -> float:
        """Seconds that this share of all queries do not exceed, each of which waits for its slowest shard."""
        slowest = maximum_quantile(from_quantiles(self.figures.scans), self.shards, share)
        sent = paper.fan_out_bytes(self.shards, K, 4 * QUERY_DIMENSIONS + ENVELOPE, HIT_BYTES)
        return paper.network_seconds(sent, self.assumed.machine) + slowest * self.scan + self._asking

    @property
    def _asking(self) -> float:
        """Seconds of the machine that asks: as measured for several shards, else mapping and merging."""
        if self.shards > 1 and self.figures.asking is not None:
            return self.shards * self.figures.asking.value
        return self.figures.mapping.value + paper.merge_seconds(self.shards, K, self.figures.merge.value)

    @property
    def copy_rate(self) -> float:
        """Queries per second of one copy: of a machine over its shard."""
        items, machine, shape = self.pairs / self.shards, self.assumed.machine, self.shape
        if not self.cells:
            return paper.queries_per_second(items * self.each.batch.value, machine, shape.efficiency)
        # Queries visit different cells, so that none reads for another.
        visited = items * shape.share
        work = visited * self.each.single.value + self._choosing
        return paper.queries_per_second(work, machine, shape.efficiency, visited * self.n_bytes)

    @property
    def _choosing(self) -> float:
        """Core seconds to choose cells: every shard has all of them, and compares a query with each."""
        return paper.cells_in(self.pairs) * self.figures.choosing.value if self.cells else 0.0

    @property
    def can_have_cells(self) -> bool:
        """Whether one file holds all pairs: cells are built in it, before it is cut into shards."""
        return self.pairs < MAX_DOCUMENTS

    @property
    def machines_for_queries(self) -> int:
        """Machines for the queries that are asked."""
        return paper.machines_for_queries(
            self.assumed.queries, self.copy_rate, self.shards, self.assumed.replicas
        )


# Tables


def _markdown(headings: list[str], rows: list[list[str]]) -> str:
    rule = "|---" * len(headings) + "|\n"
    first, *others = (f"| {' | '.join(line)} |\n" for line in (headings, *rows))
    return first + rule + "".join(others)


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _milliseconds(seconds: float) -> str:
    return f"{_number(1e3 * seconds)} ms"


def _pairs(pairs: int) -> str:
    return f"{pairs // 10**9}B" if pairs >= 10**9 else f"{pairs // 10**6}M"


def _long(seconds: float) -> str:
    days = seconds / 86400
    return f"{days:,.0f} days" if days >= 3 else readable_seconds(seconds)


def inputs_table(figures: Figures) -> str:
    """Every figure that was measured, and where."""
    rows = [
        [f"{figure.name}, {n_bytes} bytes", _input(figure), figure.source]
        for n_bytes, each in figures.lengths.items()
        for figure in vars(each).values()
        if figure is not None
    ]
    common = (
        figures.efficiency,
        figures.resident,
        figures.merge,
        figures.mapping,
        figures.choosing,
        figures.asking,
        figures.load,
    )
    rows += [[figure.name, _input(figure), figure.source] for figure in common if figure is not None]
    return _markdown(["what", "measured", "benchmark: line: score"], rows)


def _input(figure: Figure) -> str:
    value = figure.value
    if figure.unit != "s":
        plain = {"%": f"{value:.2%}", "bytes": f"{value:.4g} bytes"}
        return plain.get(figure.unit, f"{value:,.0f}" if value >= 1000 else f"{value:.3g}")
    for unit, scale in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6), ("ns", 1e-9)):
        if value >= scale:
            return f"{value / scale:.3g} {unit}"
    return f"{value * 1e12:.3g} ps"


def machine_table(assumed: Assumptions) -> str:
    """What is assumed, and with which option it is changed."""
    machine = assumed.machine
    rows = [
        ["cores, each as fast as the one measured on", str(machine.cores), "`--cores`"],
        ["memory", readable_bytes(machine.memory), "`--memory-gb`"],
        ["share of it that an index may fill", f"{machine.usable:.0%}", "`--usable`"],
        ["read from it by all cores, per second", _bandwidth(machine), "`--memory-gb-per-second`"],
        ["network", f"{8 * machine.network / 1e9:.3g} Gbit/s", "`--network-gbit`"],
        ["a question and its answer, empty", _milliseconds(machine.round_trip), "`--round-trip-ms`"],
        ["copies of everything", str(assumed.replicas), "`--replicas`"],
        ["queries per second that are asked", _number(assumed.queries), "`--queries`"],
    ]  # fmt: skip
    return _markdown(["assumed", "value", "option"], rows)


def _bandwidth(machine: Machine) -> str:
    return readable_bytes(machine.memory_bandwidth)


def _cases(figures: Figures, assumed: Assumptions) -> list[Case]:
    return [Case(pairs, n_bytes, figures, assumed) for pairs in PAIRS for n_bytes in figures.lengths]


def holding_table(cases: list[Case]) -> str:
    """Bytes, and machines that hold them."""
    headings = [
        "pairs",
        "bytes a side",
        "on disk",
        "in memory",
        "machines",
        "in memory with cells",
        "machines",
    ]
    rows = []
    for case in cases:
        with_cells = _with_cells(case)
        cells = ["not measured", "–"] if with_cells is None else [_memory(with_cells), _holding(with_cells)]
        disk = readable_bytes(case.pairs * case.each.disk.value)
        rows.append([_pairs(case.pairs), str(case.n_bytes), disk, _memory(case), _holding(case), *cells])
    return _markdown(headings, rows)


def _with_cells(case: Case) -> Case | None:
    if case.each.share is None:
        return None
    return changed(case, cells=True)


def _memory(case: Case) -> str:
    return readable_bytes(case.pairs * case.bytes_per_pair)


def _holding(case: Case) -> str:
    return f"{case.shards * case.assumed.replicas:,}"


def searching_table(cases: list[Case]) -> str:
    """Latency, throughput, and machines for the queries that are asked."""
    assumed = cases[0].assumed
    wanted = f"machines for {_number(assumed.queries)} queries/s"
    headings = ["pairs", "bytes a side", "search", "shards", "one query", "its p99", "queries/s", wanted]
    rows = []
    for exhaustive in cases:
        for case in filter(None, (exhaustive, _with_cells(exhaustive))):
            times = [_milliseconds(case.latency()), _milliseconds(case.latency(0.99))]
            asked = [_number(case.assumed.replicas * case.copy_rate), f"{case.machines_for_queries:,}"]
            rows.append(
                [_pairs(case.pairs), str(case.n_bytes), _how(case), f"{case.shards:,}", *times, *asked]
            )
    return _markdown(headings, rows)


def _how(case: Case) -> str:
    if not case.cells:
        return "exhaustive"
    return f"cells, {case.shape.share:.2%}" + ("" if case.can_have_cells else ", if they could be built")


def building_table(cases: list[Case]) -> str:
    """Times to fit, to code, to write and to open, on the machines that hold everything."""
    headings = ["pairs", "bytes a side", "machines", "fit, sample", "fit, all", "code", "write", "open"]
    rows = []
    for case in cases:
        machine, each = case.assumed.machine, case.each
        machines, rate = case.shards * case.assumed.replicas, case.figures.efficiency.value
        sample = min(case.pairs, each.enough.value)
        spread = [
            paper.spread_seconds(sample, each.fit.value, machine, 1, rate),
            paper.spread_seconds(case.pairs, each.fit.value, machine, machines, rate),
            paper.spread_seconds(case.pairs, each.code.value, machine, machines, rate),
            case.pairs / case.shards * each.write.value,  # a file has one writer
            case.pairs / case.shards * each.open.value,
        ]
        rows.append([_pairs(case.pairs), str(case.n_bytes), str(machines), *map(_long, spread)])
    return _markdown(headings, rows)


def cells_table(cases: list[Case]) -> str:
    """Cells of one file that has all pairs, built on one machine."""
    headings = ["pairs", "bytes a side", "cells of a side", "in memory", "build"]
    rows = []
    for plain in cases:
        case, rate = changed(plain, cells=True), plain.figures.efficiency.value
        built = paper.spread_seconds(case.pairs, case.each.build_cells.value, case.assumed.machine, 1, rate)
        figures = [_number(paper.cells_in(case.pairs)), _memory(case), _long(built)]
        if not case.can_have_cells:
            figures = ["not possible: more than a file holds", "–", "–"]
        rows.append([_pairs(case.pairs), str(case.n_bytes), *figures])
    return _markdown(headings, rows)


def network_table(cases: list[Case]) -> str:
    """Bytes between machines: of queries, and of one sum of a fit on all pairs."""
    headings = [
        "pairs",
        "bytes a side",
        "shards",
        "per query",
        "of all queries",
        "one sum of a fit",
        "it takes",
    ]
    rows = []
    for case in cases:
        each = paper.fan_out_bytes(case.shards, K, 4 * QUERY_DIMENSIONS + ENVELOPE, HIT_BYTES)
        summed = case.pairs / SHARE_ROWS * SUM_BYTES
        took = paper.network_seconds(summed, case.assumed.machine)
        asked = f"{8 * each * case.assumed.queries / 1e9:.3g} Gbit/s"
        sizes = [readable_bytes(each), asked, readable_bytes(summed), _long(took)]
        rows.append([_pairs(case.pairs), str(case.n_bytes), f"{case.shards:,}", *sizes])
    return _markdown(headings, rows)


def tail_table(figures: Figures, shards: tuple[int, ...] = SHARDS) -> str:
    """The slowest of many shards, in multiples of one shard's median; with and without hedging."""
    draw = from_quantiles(figures.scans)
    after = figures.scans[round(HEDGED * (len(figures.scans) - 1))]
    headings = ["shards", "p50", "p95", "p99", "hedged: p50", "p95", "p99", "asked twice"]
    rows = []
    for count in shards:
        plain, hedged = (simulate(draw, count, hedge_after=wait) for wait in (None, after))
        cells = [f"{value:.2f}" for value in (*plain[:3], *hedged[:3])]
        rows.append([f"{count:,}", *cells, f"{hedged.extra:.1%}"])
    return _markdown(headings, rows)


def tables(figures: Figures, assumed: Assumptions) -> dict[str, str]:
    """All tables by their marks."""
    cases = _cases(figures, assumed)
    return {
        "inputs": inputs_table(figures),
        "assumed": machine_table(assumed),
        "holding": holding_table(cases),
        "searching": searching_table(cases),
        "building": building_table(cases),
        "cells": cells_table(cases),
        "network": network_table(cases),
        "tail": tail_table(figures),
    }
