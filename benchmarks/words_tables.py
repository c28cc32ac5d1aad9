"""Tables of `words` in the README and docs/measured.md, from kept results; `summary` writes them."""

from __future__ import annotations

import json
from typing import Any

from benchmarks.tables import RESULTS

CASES = {
    "minilm": "EfficientNet and MiniLM",
    "network": "EfficientNet and static vectors",
    "builtin": "built-in pictures and static vectors",
}
_COMMAND = "`python -m benchmarks words`"


def load() -> dict[str, Any]:
    """Read the kept results."""
    kept: dict[str, Any] = json.loads((RESULTS / "words.json").read_text())
    return kept


def table() -> str:
    """Every number of bytes."""
    lines = [
        "| encoders, bytes | both | over seeds | vectors | words | both − vectors, 95 % | both − words, 95 % "
        "| chance |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for case, kept in load().items():
        for wanted, row in sorted(kept["recall"].items(), key=lambda each: (each[1]["n_bytes"], each[0])):
            said = f"{row['n_bytes']} bytes" + (", chosen" if wanted == "chosen" else "")
            both, vectors, words = (row["recall"][mode] for mode in ("both", "vectors", "words"))
            lines.append(
                f"| {CASES[case]}, {said} | {both:.3f} | ±{row['spread']['both']:.3f} "
                f"| {vectors:.3f} | {words:.3f} "
                f"| {_difference(both - vectors, row['ahead_of_vectors'])} "
                f"| {_difference(both - words, row['ahead_of_words'])} | {row['chance']:.3f} |"
            )
    return "\n".join(lines) + "\n"


def headlines() -> str:
    """What people ask first: the program's own choice of bytes."""
    lines = [
        "| encoders | words and vectors | vectors alone | words alone | chance | command |",
        "|---|---|---|---|---|---|",
    ]
    for case, kept in load().items():
        row = kept["recall"].get("chosen") or kept["recall"]["8"]
        figures = " | ".join(f"{row['recall'][mode]:.3f}" for mode in ("both", "vectors", "words"))
        lines.append(
            f"| {CASES[case]}, {row['n_bytes']} bytes | {figures} | {row['chance']:.3f} | {_COMMAND} |"
        )
    return "\n".join(lines) + "\n"


def details() -> str:
    """Rare words, exact captions, verdicts, and pictures without captions."""
    asked = {CASES[case]: kept for case, kept in load().items() if "details" in kept and "half" in kept}
    lines = [f"| what | {' | '.join(asked)} |", "|---|" + "---|" * len(asked)]
    for said, find in _DETAILS:
        lines.append(f"| {said} | " + " | ".join(find(kept) for kept in asked.values()) + " |")
    return "\n".join(lines) + "\n"


_DETAILS = (
    (
        "a word that one photograph alone has: in the first ten",
        lambda kept: f"{kept['details']['rare_words']['both']:.3f} of {kept['details']['rare_words']['n']:,}",
    ),
    (
        "the caption just added: its document first",
        lambda kept: f"{kept['details']['exact']['first']} of {kept['details']['exact']['n']}",
    ),
    (
        "held-out captions against titles of another collection, by verdict: AUROC",
        lambda kept: f"{kept['details']['verdicts']['both']['auroc']:.3f}",
    ),
    (
        "held-out captions of which nothing matches is said",
        lambda kept: _share(kept["details"]["verdicts"]["both"]["own"], "nothing"),
    ),
    (
        "the same of titles of another collection",
        lambda kept: _share(kept["details"]["verdicts"]["both"]["foreign"], "nothing"),
    ),
    (
        "answers called strong that have the photograph among their hits",
        lambda kept: (
            f"{kept['details']['verdicts']['both']['precision_of_strong']:.3f} of "
            f"{kept['details']['verdicts']['both']['own'].get('strong', 0)}"
        ),
    ),
    (
        "half without captions: recall@10 of that half among all 1,000",
        lambda kept: f"{kept['half']['recall_without_captions']['both']:.3f}",
    ),
    (
        "the same among themselves, coded / uncompressed (chance .020)",
        lambda kept: " / ".join(
            f"{kept['half']['among_themselves'][kind]:.3f}" for kind in ("coded", "uncompressed")
        ),
    ),
)


def _share(counts: dict[str, int], name: str) -> str:
    return f"{counts.get(name, 0) / sum(counts.values()):.3f}"


def _difference(mean: float, interval: list[float]) -> str:
    low, high = interval
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
