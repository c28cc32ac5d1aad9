"""The table of own photographs in docs/measured.md, from kept results; `benchmarks.summary` writes it."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.tables import RESULTS

COLUMNS = {
    "recall@10, all 1,000 fitted": "all 1,000 fitted",
    "recall@10, the 700 fitted": "700 of them fitted: these",
    "recall@10, the 300 added": "and the 300 added later",
}


def table() -> str:
    """A line per system and encoder, in Markdown."""
    entries: list[dict[str, Any]] = json.loads((RESULTS / "photographs.json").read_text())["measurements"]
    found = {(entry["system"], entry["score"]): entry["mean"] for entry in entries}
    rows = [f"| pictures by, system | {' | '.join(COLUMNS.values())} |", "|---|" + "---|" * len(COLUMNS)]
    for system in dict.fromkeys(entry["system"] for entry in entries):
        cells = [f"{found[system, score]:.3f}" if (system, score) in found else "–" for score in COLUMNS]
        rows.append(f"| {system} | {' | '.join(cells)} |")
    chance = f"{entries[0]['chance']:.3f}"
    return "\n".join([*rows, f"| chance | {' | '.join([chance] * len(COLUMNS))} |"]) + "\n"
