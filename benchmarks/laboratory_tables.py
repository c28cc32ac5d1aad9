"""The tables of docs/evaluation.md from the laboratory's kept results; `benchmarks.summary` writes them."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from benchmarks.tables import RESULTS

PAIRED = (("I→T", "image-to-text"), ("T→I", "text-to-image"))
FOLDED = (("T→I", "text-to-image"), ("T→T", "text-to-text"))
ALL_BITS = (16, 32, 64, 128)

HASHING = ("LSSH", "CMSSH", "CVH", "MLBE", "QCH", "CMFH", "CCQ", "CQ")
CANONICAL = ("CCA, uncompressed", "CCA + PQ", "CCA + OPQ", "CCA + RQ", "CCA + LSQ")
OWN = ("CMCQ", "CMCQ on CCA", "CMCQ on kernel CCA")
NAMED = ("SCM", "CRH", "MMNN", "SM2H", "IMH", "MVSH", "STMH")
NAMED_BY_LABELS = tuple(f"{name} (labels)" for name in NAMED)
GENERAL = (
    "SePH_km (labels)",
    "CMCQ",
    "CMCQ on CCA",
    "SePH_km side (labels)",
    "CMCQ side",
    "CMCQ on CCA side",
)


BESIDE = (*NAMED, *NAMED_BY_LABELS, *HASHING[:-1], "SePH_km (labels)", "CMCQ", "CMCQ on CCA")


class Kept(NamedTuple):
    """One table: where it stands, and what is in it."""

    mark: str
    study: str
    score: str
    systems: tuple[str, ...]
    tasks: tuple[tuple[str, str], ...] = PAIRED
    bits: tuple[int, ...] = ALL_BITS


TABLES = (
    Kept("wiki A", "wiki, protocol A", "map@50", (*HASHING, *CANONICAL, "CCA-ITQ", *OWN, "SePH_km (labels)")),
    Kept("wiki table 1", "wiki, protocol A", "map@50", (*NAMED, *NAMED_BY_LABELS), bits=(16, 32, 64)),
    Kept("flickr8k table 1 A", "flickr8k, protocol A", "map@50", BESIDE, bits=(32,)),
    Kept("flickr8k table 1 B", "flickr8k, protocol B", "recall@10", BESIDE, bits=(32,)),
    Kept("flickr8k D", "flickr8k, protocol D", "map@50", GENERAL, bits=(32, 64, 128)),
    Kept("flickr8k B", "flickr8k, protocol B", "recall@10", (*CANONICAL, *OWN)),
    Kept("flickr8k C", "flickr8k, protocol C", "recall@10", (*CANONICAL, *OWN), FOLDED),
    Kept("fashion B", "fashion, protocol B", "recall@10", (*CANONICAL, *OWN)),
    Kept("fashion C", "fashion, protocol C", "recall@10", (*CANONICAL, *OWN), FOLDED),
)


def tables() -> dict[str, str]:
    """Every table in Markdown, by its mark."""
    entries = json.loads((RESULTS / "laboratory.json").read_text())["measurements"]
    found = {(entry["system"], entry["score"]): entry for entry in entries}
    return {kept.mark: _table(kept, found) for kept in TABLES}


def _table(kept: Kept, found: dict[tuple[str, str], Any]) -> str:
    heads = [f"{short} {bits}" for short, _ in kept.tasks for bits in kept.bits]
    rows = [f"| system | {' | '.join(heads)} |", "|---|" + "---|" * len(heads)]
    for system in kept.systems:
        cells = _cells(kept, system, found, "mean")
        if any(cell != "–" for cell in cells):
            rows.append(f"| {_name(system)} | {' | '.join(cells)} |")
    rows.append(f"| chance | {' | '.join(_cells(kept, kept.systems[0], found, 'chance'))} |")
    return "\n".join(rows) + "\n"


def _cells(kept: Kept, system: str, found: dict[tuple[str, str], Any], value: str) -> list[str]:
    keys = [
        (f"{kept.study}, {bits} bits: {system}", f"{kept.score} {task}")
        for _, task in kept.tasks
        for bits in kept.bits
    ]
    return [f"{found[key][value]:.3f}" if key in found else "–" for key in keys]


def _name(system: str) -> str:
    """As the page calls it."""
    plain = system.replace(" (labels)", ", labels")
    return plain.replace(" side, labels", ", from the searched half").replace(
        " side", ", from the searched half"
    )
