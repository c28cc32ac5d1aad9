"""The arithmetic of docs/scale.md: units, limits and directions; the simulation against the closed form."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from importlib import import_module
from typing import Any

import numpy as np
import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are no part of the package
paper = import_module("benchmarks.paper_arithmetic")
tail = import_module("benchmarks.tail_latency")
inputs = import_module("benchmarks.paper_inputs")
tables = import_module("benchmarks.paper_tables")

MACHINE = paper.Machine(cores=4, memory=1e9, usable=0.5, memory_bandwidth=10e9, network=1e9, round_trip=0.001)
WHOLE = paper.Shape(code_bytes=8)


# Holding


def test_memory_in_bytes_gives_pairs() -> None:
    assert paper.items_per_machine(MACHINE, 25.0) == 20_000_000
    assert paper.items_per_machine(replace(MACHINE, usable=1.0), 25.0) == 40_000_000


@pytest.mark.parametrize(
    ("pairs", "replicas", "machines"), [(1, 1, 1), (20e6, 1, 1), (20e6 + 1, 1, 2), (100e6, 2, 10), (1, 3, 3)]
)
def test_machines_hold_every_pair_as_often_as_asked(pairs: float, replicas: int, machines: int) -> None:
    assert paper.machines_to_hold(pairs, MACHINE, 25.0, replicas) == machines


def test_machines_grow_with_pairs_and_bytes() -> None:
    counts = [paper.machines_to_hold(pairs, MACHINE, 25.0) for pairs in (1e6, 1e7, 1e8, 1e9, 1e10)]
    assert counts == sorted(counts) and counts[-1] == 500
    assert paper.machines_to_hold(1e9, MACHINE, 50.0) == 2 * paper.machines_to_hold(1e9, MACHINE, 25.0)


# Searching


def test_cores_share_a_query_until_memory_is_the_limit() -> None:
    assert paper.scan_seconds(1e7, 4e-9, MACHINE, WHOLE) == pytest.approx(1e7 * 4e-9 / 4)
    assert paper.scan_seconds(1e7, 1e-9, MACHINE, WHOLE) == pytest.approx(1e7 * 8 / 10e9)
    one = replace(MACHINE, cores=1)
    assert paper.scan_seconds(1e7, 4e-9, one, WHOLE) == pytest.approx(0.04)


def test_cores_that_get_in_each_others_way_add_less() -> None:
    assert paper.core_rate(MACHINE, 1.0) == 4 and paper.core_rate(MACHINE, 0.5) == 2.5
    assert paper.core_rate(replace(MACHINE, cores=1), 0.5) == 1


def test_visiting_a_share_takes_a_share_of_the_time() -> None:
    some = replace(WHOLE, share=0.05)
    whole = paper.scan_seconds(1e9, 1e-9, MACHINE, WHOLE)
    assert paper.scan_seconds(1e9, 1e-9, MACHINE, some) == pytest.approx(0.05 * whole)


def test_queries_per_second_are_cores_over_core_seconds_until_memory_is_the_limit() -> None:
    assert paper.queries_per_second(0.0025, MACHINE, 1.0) == pytest.approx(4 / 0.0025)
    assert paper.queries_per_second(0.0025, MACHINE, 1.0, 1e6) == pytest.approx(4 / 0.0025)
    assert paper.queries_per_second(0.0025, MACHINE, 1.0, 1e8) == pytest.approx(100)


def test_machines_for_queries_are_whole_copies_and_never_fewer_than_asked() -> None:
    counts = [paper.machines_for_queries(rate, 16.0, 50, 2) for rate in (0.0, 32.0, 32.1, 1000.0)]
    assert counts == [100, 100, 150, 50 * 63]


def test_cells_grow_with_the_root_of_the_items_until_two_bytes_are_full() -> None:
    assert paper.cells_in(1e6) == 4000 and paper.cells_in(1e10) == 65_536


# Between machines, and building


def test_network_is_questions_and_hits_of_all_shards() -> None:
    assert paper.fan_out_bytes(10, 100, 4096, 20) == 10 * (4096 + 2000)
    assert paper.network_seconds(0, MACHINE) == 0.001
    assert paper.network_seconds(1e6, MACHINE) == pytest.approx(0.002)
    assert paper.merge_seconds(10, 100, 1e-7) == pytest.approx(1e-4)


def test_work_per_pair_is_spread_over_cores() -> None:
    assert paper.fit_seconds(1e6, 1e-3, 10) == pytest.approx(100)
    assert paper.spread_seconds(1e6, 1e-3, MACHINE, 5, 1.0) == pytest.approx(50)
    assert paper.spread_seconds(1e6, 1e-3, MACHINE, 1, 0.0) == pytest.approx(1000)


# The slowest of many


@pytest.mark.parametrize("shards", [1, 4, 50])
def test_the_slowest_of_exponential_shards_is_as_in_closed_form(shards: int) -> None:
    mean = 3.0
    found = tail.simulate(tail.exponential(mean), shards, queries=40_000, seed=1)
    for share, value in ((0.5, found.p50), (0.95, found.p95), (0.99, found.p99)):
        exact = -mean * np.log(1 - share ** (1 / shards))
        assert tail.maximum_quantile(tail.exponential(mean), shards, share) == pytest.approx(exact)
        assert value == pytest.approx(exact, rel=0.04)
    assert found.extra == 0


def test_hedged_exponential_shards_are_as_in_closed_form() -> None:
    """Until the second question the tail is e⁻ᵗ; from then on two race, and it falls twice as fast."""
    after = 2.0
    found = tail.simulate(tail.exponential(1.0), 1, queries=400_000, hedge_after=after, seed=2)
    assert found.extra == pytest.approx(np.exp(-after), rel=0.02)
    # P(T > t) = e^(-t) e^(-(t - after)) for t > after, so that t = (after - ln p) / 2.
    assert found.p99 == pytest.approx((after - np.log(0.01)) / 2, rel=0.02)
    assert found.p50 == pytest.approx(np.log(2), rel=0.02)


def test_a_seed_gives_the_same_tail_and_parts_do_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    draw = tail.from_quantiles([1.0, 1.1, 1.5, 4.0])
    found = tail.simulate(draw, 20, queries=3000, seed=5)
    assert found == tail.simulate(draw, 20, queries=3000, seed=5)
    monkeypatch.setattr(tail, "_AT_ONCE", 1000)
    assert found == tail.simulate(draw, 20, queries=3000, seed=5)
    assert found != tail.simulate(draw, 20, queries=3000, seed=6)


def test_more_shards_are_slower_and_hedging_helps() -> None:
    rng = np.random.default_rng(0)
    measured = tail.summarise_quantiles(np.exp(0.8 * rng.normal(size=2000)).tolist())
    draw = tail.from_quantiles(measured)
    tails = [tail.simulate(draw, shards) for shards in (1, 8, 64)]
    assert tails[0].p99 < tails[1].p99 < tails[2].p99 <= measured[-1]
    hedged = tail.simulate(draw, 64, hedge_after=float(np.quantile(measured, 0.95)))
    assert hedged.p99 < tails[2].p99 and hedged.extra == pytest.approx(0.05, abs=0.01)


def test_hedging_cannot_help_where_waiting_is_as_long_as_the_tail() -> None:
    draw = tail.from_quantiles([1.0, 1.1, 1.2, 1.3])
    plain, hedged = (tail.simulate(draw, 64, hedge_after=after) for after in (None, 1.28))
    assert hedged[:3] == plain[:3] and hedged.extra > 0


def test_quantiles_are_drawn_as_they_were_measured() -> None:
    values = np.arange(1001) / 10
    quantiles = tail.summarise_quantiles(values.tolist(), 11)
    assert quantiles == pytest.approx(np.arange(11) * 10)
    assert tail.from_quantiles(quantiles)(np.array([0.0, 0.25, 1.0])) == pytest.approx([0.0, 25.0, 100.0])


# Inputs and tables


def figure(value: float, name: str = "") -> Any:
    return inputs.Figure(value, name, "made up")


COMMON = (("merge", 1e-7), ("mapping", 1e-4), ("load", 0.0), ("choosing", 1e-8), ("asking", 1e-3))


def figures(share: float | None = 0.05) -> Any:
    """Round numbers."""
    each = {
        n_bytes: inputs.PerLength(
            single=figure(1e-9),
            batch=figure(2e-10),
            code=figure(1e-4),
            write=figure(1e-6),
            open=figure(1e-7),
            fit=figure(1e-3),
            memory=figure(2.0 * n_bytes + 8),
            disk=figure(2.0 * n_bytes + 8),
            cells=figure(2.0 * n_bytes + 12),
            build_cells=figure(1e-4),
            enough=figure(100_000),
            share=None if share is None else figure(share),
        )
        for n_bytes in (4, 8)
    }
    common = {name: figure(value) for name, value in COMMON}
    return inputs.Figures(each, figure(0.8), figure(1.0), scans=[0.9, 1.0, 1.1, 2.0], **common)


def rows_of(table: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("| ").split("|")] for line in table.splitlines()]


ASSUMED = tables.Assumptions(paper.Machine())


def test_every_table_has_a_row_for_every_size_and_length() -> None:
    written = tables.tables(figures(), ASSUMED)
    for mark in ("holding", "searching", "building", "cells", "network"):
        headings, _, *rows = rows_of(written[mark])
        assert {len(row) for row in rows} == {len(headings)}
        assert len({(row[0], row[1]) for row in rows}) == 8
    assert len(rows_of(written["searching"])) == 2 + 16  # with and without cells


def test_without_the_benchmark_of_cells_nothing_is_said_of_them() -> None:
    written = tables.tables(figures(share=None), ASSUMED)
    assert "not measured" in written["holding"] and "cells" not in written["searching"]


def test_cells_take_more_memory_and_less_time() -> None:
    plain = tables.Case(10**10, 8, figures(), ASSUMED)
    cells = replace(plain, cells=True)
    assert cells.bytes_per_pair == plain.bytes_per_pair + 28 and cells.shards > plain.shards
    assert cells.latency() < plain.latency() and cells.machines_for_queries < plain.machines_for_queries
    items = 10**10 / cells.shards
    assert cells.scan == pytest.approx(65_536e-8 + items * 0.05 * 8 / 60e9)
    assert cells.copy_rate == pytest.approx(
        1 / (items * 0.05 * 8 / 60e9)
    )  # sixteen cores wait for the memory


def test_cells_are_built_in_one_file_before_it_is_cut() -> None:
    """All shards have the cells of that file, and one machine builds them."""
    cells = replace(tables.Case(10**8, 8, figures(), ASSUMED), cells=True)
    smaller = replace(ASSUMED, machine=replace(ASSUMED.machine, memory=2e9))
    cut = replace(cells, assumed=smaller)
    assert cells.shards == 1 and cut.shards == 4
    scanned = paper.scan_seconds(25e6, 1e-9, smaller.machine, cut.shape)
    assert cut.scan == pytest.approx(40_000e-8 + scanned)
    rows = {(row[0], row[1]): row[2:] for row in rows_of(tables.tables(figures(), smaller)["cells"])}
    assert rows["100M", "8"] == ["40,000", "5.2 GB", "12 min 49 s"]  # 10⁴ core seconds by 13 cores
    assert rows["10B", "8"][0] == "not possible: more than a file holds"


def test_the_share_says_what_it_was_measured_with() -> None:
    shares = {n_bytes: each.share for n_bytes, each in inputs.read_figures().lengths.items()}
    assert shares[4] == shares[8] and "measured with 8 bytes at 10,000,000 items" in shares[4].name


def test_a_case_adds_up() -> None:
    case = tables.Case(10**9, 8, figures(), ASSUMED)
    assert case.bytes_per_pair == 24 and case.shards == 1
    assert case.scan == pytest.approx(10**9 * 8 / 60e9)  # sixteen cores read more than the memory gives
    assert case.latency(1.0) - case.latency(1 / 3) == pytest.approx(case.scan)  # 2.0 and 1.0 of the scans
    assert case.copy_rate == pytest.approx(13 / 0.2) and case.machines_for_queries == 16
    many = replace(case, pairs=10**10)
    unasked = replace(many, figures=replace(many.figures, asking=None))
    # Half of all queries are not slower if of each of the six shards a larger share is not.
    slowest = np.interp(0.5 ** (1 / 6), np.arange(4) / 3, many.figures.scans)
    assert many.latency() == pytest.approx(many.latency(1 / 3**6) + (slowest - 1) * many.scan)
    assert many.shards == 6 and many.latency() - unasked.latency() == pytest.approx(6e-3 - 1e-4 - 600e-7)
    slower = replace(ASSUMED, machine=replace(ASSUMED.machine, cores=1))
    assert replace(case, assumed=slower).scan == pytest.approx(1.0)


def test_every_input_is_in_the_results_of_its_benchmark() -> None:
    found = inputs.read_figures()
    each = [figure for length in found.lengths.values() for figure in vars(length).values() if figure]
    common = [found.efficiency, found.resident, found.merge, found.mapping, found.load]
    common += [found.choosing, found.asking]
    sources = {part for figure in each + common if figure for part in figure.source.split("; ")}
    assert len(sources) > 15
    for benchmark, line in re.findall(r"`(\w+)`: (.*)", "\n".join(sources)):
        kept = json.loads((inputs.RESULTS / f"{benchmark}.json").read_text(encoding="utf-8"))
        assert line in {f"{one['system'].strip()}: {one['score']}" for one in kept["measurements"]}
    assert all(figure.value > 0 for figure in each)


def test_the_page_has_the_tables_of_what_was_measured() -> None:
    page = (inputs.RESULTS.parent.parent / "docs" / "scale.md").read_text(encoding="utf-8")
    for mark, table in tables.tables(inputs.read_figures(), ASSUMED).items():
        written = page.split(f"<!-- {mark} -->\n")[1].split(f"<!-- /{mark} -->")[0]
        assert written == table, f"{mark}: run python -m benchmarks.paper_scale --tables"
