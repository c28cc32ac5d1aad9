"""Tables of `answers` in the README and docs/measured.md, from kept results; `summary` writes them.

A part that was not run yet has no lines.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from benchmarks.comparison import OWN
from benchmarks.tables import Measurement, load, load_settings

PARTS = {
    "flickr8k": "Flickr8k, unseen pairs",
    "fashion": "fashion, unseen pairs",
    "places": "places, unseen pairs",
    "documents": "Flickr8k, documents with captions 0 and 1",
    "products": "fashion, documents with titles",
    "minilm": "EfficientNet and MiniLM, pictures by single captions",
    "photographs": "1,000 photographs through the program",
}
HEADLINES = {
    "documents": ("other texts → documents, 4 bytes",),
    "flickr8k": ("I→T, 4 bytes", "T→I, 4 bytes"),
}
HEAD = "| recall@10 | crossbyte | best peer | difference, 95 % | uncompressed | chance | command |"


def table() -> str:
    """Every question of every part."""
    return _table((part, None) for part in PARTS)


def headlines() -> str:
    """What people ask first."""
    return _table(HEADLINES.items())


def sizes() -> str:
    """Quality by bytes per document: one code beside two of half as many bytes each."""
    found = {(entry.system, entry.score): entry for entry in load("answers-documents")}
    question = "recall@10 other texts → documents"
    lines = ["| bytes per document | one code | two codes | chance |", "|---|---|---|---|"]
    for n_bytes in (2, 4, 8, 16, 32):
        one = found.get((OWN, f"{question}, {n_bytes} bytes"))
        two = found.get((f"{OWN}, two codes", f"{question}, {n_bytes} bytes in two codes"))
        known = one or two
        if known is not None:
            lines.append(f"| {n_bytes} | {_figure(one)} | {_figure(two)} | {known.chance:.3f} |")
    return "\n".join(lines) + "\n"


def _table(parts: Iterable[tuple[str, tuple[str, ...] | None]]) -> str:
    lines = [HEAD, "|---|---|---|---|---|---|---|"]
    for part, questions in parts:
        entries = load(f"answers-{part}")
        for own in (entry for entry in entries if entry.system == OWN):
            question = own.score.removeprefix("recall@10 ")
            if questions is None or question in questions:
                beside = {entry.system: entry for entry in entries if entry.score == own.score}
                lines.append(_line(part, question, own, beside))
    return "\n".join(lines) + "\n"


def _line(part: str, question: str, own: Measurement, beside: dict[str, Measurement]) -> str:
    (difference,) = (entry for entry in beside.values() if entry.interval is not None)
    assert difference.interval is not None
    peer = difference.system.removeprefix(f"{OWN} − ")
    low, high = difference.interval
    cells = (
        f"{PARTS[part]}: {question}",
        _figure(own),
        f"{_figure(beside[peer])} ({peer.removeprefix('FAISS ')})",
        f"{difference.mean:+.3f} [{low:+.3f}, {high:+.3f}]",
        _figure(beside["uncompressed"]),
        f"{own.chance:.3f}",
        f"`{command(part, load_settings(f'answers-{part}'))}`",
    )
    return f"| {' | '.join(cells)} |"


def command(part: str, settings: Mapping[str, Any]) -> str:
    """The command that makes these figures: with the seeds, bytes and peers that were asked for."""
    words = ["python", "-m", "benchmarks", "answers", "--part", part]
    for option in ("seeds", "bytes", "peers"):
        if option in settings:
            value = settings[option]
            given = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            words += [f"--{option}", shlex.quote(given)]
    return " ".join(words)


def _figure(entry: Measurement | None) -> str:
    if entry is None:
        return "–"
    return f"{entry.mean:.3f}" if entry.spread is None else f"{entry.mean:.3f} ± {entry.spread:.3f}"
