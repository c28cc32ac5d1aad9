"""The README's one table: what people ask first, from the kept results; `benchmarks.summary` writes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Entry = Callable[[str, str, str], dict[str, Any]]

PHOTOGRAPHS = "recall@10, all 1,000 fitted"
UNSEEN = "unseen recall@10 T→I"
TYPING = "one client types, 1,000,000 images of 4 bytes"
BATCH = "M=8, batch of 100: times crossbyte's"


class Headline(NamedTuple):
    """One line: what was measured, crossbyte's own figure, and those of others, by (words, system)."""

    text: str
    benchmark: str
    score: str
    own: str
    others: tuple[tuple[str, str], ...]


HEADLINES = (
    *(
        Headline(
            f"1,000 photographs, EfficientNet and words, {n} bytes: an unseen caption finds its own among 10",
            "photographs",
            PHOTOGRAPHS,
            f"EfficientNet: crossbyte, {n} bytes, target image",
            (
                ("uncompressed", "EfficientNet: CCA uncompressed, both"),
                ("CCA + FAISS RQ of both halves", f"EfficientNet: CCA + FAISS RQ, {n} bytes, both"),
                ("of the picture", f"EfficientNet: CCA + FAISS RQ, {n} bytes, picture"),
            ),
        )
        for n in (4, 8)
    ),
    Headline(
        "the same with the built-in encoders, 4 bytes",
        "photographs",
        PHOTOGRAPHS,
        "built-in: crossbyte, 4 bytes, target image",
        (
            ("uncompressed", "built-in: CCA uncompressed, both"),
            ("CCA + FAISS RQ of both halves", "built-in: CCA + FAISS RQ, 4 bytes, both"),
            ("of the picture", "built-in: CCA + FAISS RQ, 4 bytes, picture"),
        ),
    ),
    Headline(
        "Flickr8k, unseen pairs, 4 bytes: texts find their picture among 10",
        "flickr8k",
        UNSEEN,
        "CMCQ auto",
        (("uncompressed", "uncompressed"), ("CCA + FAISS RQ", "FAISS RQ")),
    ),
)


def table(entry: Entry) -> str:
    """The table in Markdown; ``entry`` finds a measurement by benchmark, system and score."""
    rows = ["| what | crossbyte | beside it | chance | command |", "|---|---|---|---|---|"]
    for line in HEADLINES:
        own = entry(line.benchmark, line.own, line.score)
        others = [
            f"{words} {entry(line.benchmark, system, line.score)['mean']:.3f}"
            for words, system in line.others
        ]
        rows.append(_row(line.text, f"{own['mean']:.3f}", others, f"{own['chance']:.3f}", line.benchmark))
    return "\n".join([*rows, *_speeds(entry)]) + "\n"


def _speeds(entry: Entry) -> list[str]:
    typing = [entry("service", TYPING, f"{part}, ms")["mean"] for part in ("p50", "p95")]
    faiss = [
        f"{kind} {entry('search', f'FAISS 1.15.1 {kind}', BATCH)['mean']:.1f} × as long"
        for kind in ("IndexPQ", "PQFastScan")
    ]
    figures = f"{typing[0]:.0f} ms, 95 % below {typing[1]:.0f} ms"
    return [
        _row("a text query through HTTP, 1,000,000 items, 2 cores", figures, [], "", "service"),
        _row("1,000,000 items of 8 bytes, batch of 100 queries, 1 thread", "1", faiss, "", "search"),
    ]


def _row(text: str, own: str, others: list[str], chance: str, benchmark: str) -> str:
    return f"| {text} | {own} | {', '.join(others)} | {chance} | `python -m benchmarks.{benchmark}` |"
