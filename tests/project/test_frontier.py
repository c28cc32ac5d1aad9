"""How docs/frontier.md compares curves: shares, bytes, times of several turns, and who is above whom."""

from __future__ import annotations

import sys
from dataclasses import replace
from importlib import import_module
from math import inf
from typing import Any

import pytest

from support.paths import ROOT

sys.path.insert(0, str(ROOT))  # benchmarks are no part of the package
frontier = import_module("benchmarks.frontier_tables")
peers = import_module("benchmarks.frontier_peers")
Measurement = import_module("benchmarks.tables").Measurement

ONE, BATCH = "one query", "batch of 100"


def point(system: str, share: float, rate: float, n_bytes: float = 10.0) -> Any:
    times = {ONE: 1e3 / rate, BATCH: 1e3 / rate}
    return frontier.Point(system, f"{share}", share, 0.5, n_bytes, times)


def entries() -> list[Any]:
    """One setting of crossbyte beside two peers; beside the second, everything took twice as long."""

    def found(system: str, recall: float, n_bytes: float) -> list[Any]:
        scores = {frontier.RECALL: recall, frontier.OVERLAP: 0.5, frontier.BYTES: n_bytes}
        return [Measurement(f"gapped: {system}", score, [value]) for score, value in scores.items()]

    own = "crossbyte, 8 bytes: exhaustive"
    made = found("uncompressed: all", 0.5, 256.0) + found(own, 0.45, 16.0)
    for peer, times in (("quick", 1.0), ("quiet", 1.0), ("slow", 2.0)):
        made += found(f"{peer}: k=1", 0.4, 20.0)
        for score in (frontier.ONE, frontier.BATCH):
            beside = frontier.beside(score, peer)
            made.append(Measurement(f"gapped: {own}", beside, [0.2 * times]))
            made.append(
                Measurement(f"gapped: crossbyte, 8 bytes: {frontier.MAPPING}", beside, [0.15 * times])
            )
            made.append(Measurement(f"gapped: {peer}: k=1", score, [9.0, 0.1 * times, 0.05]))
    return made


def test_shares_are_of_the_uncompressed_recall_and_times_as_if_measured_together() -> None:
    found = {each.system: each for each in frontier.read_points(entries())["gapped"]}
    assert set(found) == {"crossbyte, 8 bytes", "crossbyte, 8 bytes, from points", "quick", "quiet", "slow"}
    assert found["crossbyte, 8 bytes"].share == pytest.approx(0.9)
    assert found["quick"].share == pytest.approx(0.8)
    assert found["crossbyte, 8 bytes"].milliseconds[ONE] == pytest.approx(0.2)
    assert found["crossbyte, 8 bytes, from points"].milliseconds[BATCH] == pytest.approx(0.05)
    assert found["quick"].rate(ONE) == pytest.approx(10_000)
    assert found["slow"].rate(BATCH) == pytest.approx(10_000)


def test_what_was_not_timed_is_in_no_table() -> None:
    untimed = [entry for entry in entries() if "milliseconds" not in entry.score]
    assert frontier.read_points(untimed) == {"gapped": []}


def test_a_peer_is_above_where_none_of_our_settings_finds_as_much_as_fast() -> None:
    ours = [point("crossbyte", 0.9, 1000), point("crossbyte", 0.95, 500, n_bytes=20.0)]
    others = [
        point("below", 0.85, 999),
        point("faster", 0.85, 1500),
        point("faster", 0.93, 750),
        point("finds more", 0.96, 1),
        point("too coarse", 0.79, 9999),
        point("finds all", 1.3, 1),
        point("too large", 0.85, 9999, n_bytes=40.1),
        point("just small enough", 0.95, 501, n_bytes=40.0),
    ]
    found = frontier.above(ours, others, ONE)
    assert list(found) == ["faster", "finds more", "finds all", "just small enough"]
    assert [ratio for _, ratio in found["faster"]] == pytest.approx([1.5, 1.5])
    assert [ratio for _, ratio in found["finds more"]] == [inf]


def test_order_of_measurements_does_not_matter() -> None:
    turned = [replace(entry) for entry in reversed(entries())]
    one, other = (frontier.read_points(some)["gapped"] for some in (entries(), turned))
    assert sorted(one, key=lambda each: each.system) == sorted(other, key=lambda each: each.system)


@pytest.mark.parametrize("name", list(peers.PEERS))
def test_peers_are_swept_within_their_cells(name: str) -> None:
    settings = list(peers.PEERS[name].settings(64))
    assert settings and len({each.name for each in settings}) == len(settings)
    assert all(value <= 64 for each in settings for knob, value in each.knobs.items() if "probe" in knob)
    assert all("{" not in each.key for each in settings)


def test_cells_are_the_power_of_two_nearest_to_four_roots() -> None:
    assert [peers.count_cells(n) for n in (10_000, 171_010, 1_000_000, 10_000_000)] == [
        512,
        2048,
        4096,
        16384,
    ]
