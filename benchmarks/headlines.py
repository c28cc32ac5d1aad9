"""The README's table of speeds: what people ask first, from kept results; `benchmarks.summary` writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Entry = Callable[[str, str, str], dict[str, Any]]

TYPING = "one client types, 1,000,000 images of 4 bytes"
BATCH = "M=8, batch of 100: times crossbyte's"


def table(entry: Entry) -> str:
    """The table in Markdown; ``entry`` finds a measurement by benchmark, system and score."""
    return (
        "\n".join(["| what | crossbyte | beside it | command |", "|---|---|---|---|", *_speeds(entry)]) + "\n"
    )


def _speeds(entry: Entry) -> list[str]:
    typing = [entry("service", TYPING, f"{part}, ms")["mean"] for part in ("p50", "p95")]
    faiss = [
        f"{kind} {entry('search', f'FAISS 1.15.1 {kind}', BATCH)['mean']:.1f} × as long"
        for kind in ("IndexPQ", "PQFastScan")
    ]
    figures = f"{typing[0]:.0f} ms, 95 % below {typing[1]:.0f} ms"
    return [
        _row("a text query through HTTP, 1,000,000 items, 2 cores", figures, [], "service"),
        _row("1,000,000 items of 8 bytes, batch of 100 queries, 1 thread", "1", faiss, "search"),
    ]


def _row(text: str, own: str, others: list[str], benchmark: str) -> str:
    return f"| {text} | {own} | {', '.join(others)} | `python -m benchmarks.{benchmark}` |"
