"""Write the README's table of figures from the kept results.

python -m benchmarks.summary               # after the benchmarks it names have run
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.tables import RESULTS

README = Path(__file__).resolve().parent.parent / "README.md"
START, END = "<!-- figures -->", "<!-- /figures -->"


class Line(NamedTuple):
    """One line of the table: what it says, and where the two figures are."""

    text: str
    benchmark: str
    system: str
    scores: tuple[str, ...]


BOTH = ("I→T", "T→I")
RECALL = ("unseen recall@10 I→T", "unseen recall@10 T→I")
LINES = (
    *(
        Line(
            f"Wiki, the paper's protocol, {bits} bits, MAP@50",
            "wiki",
            f"CMCQ, {bits} bits, paper query",
            BOTH,
        )
        for bits in (16, 32, 64, 128)
    ),
    Line(
        "Wiki, 32 bits, everything chosen without labels, MAP@50",
        "wiki_unlabelled",
        "CMCQ auto, 32 bits",
        ("MAP@50 I→T", "MAP@50 T→I"),
    ),
    Line('Flickr8k, 4 bytes, unseen pairs, recall@10, `mapping="auto"`', "flickr8k", "CMCQ auto", RECALL),
    Line('the same, `mapping="cca"`, 32 dimensions', "flickr8k", "CMCQ cca-32, γ=2, stored", RECALL),
    Line("the same space, FAISS residual quantizer", "flickr8k", "FAISS RQ", RECALL),
    Line("the same space, uncompressed", "flickr8k", "uncompressed", RECALL),
    Line(
        "Flickr8k, 4 bytes, image codes found by an unseen caption, recall@10: image alone",
        "fold_in",
        "Flickr8k, image alone",
        ("recall@10 by caption 2",),
    ),
    Line("… folded in as a pair", "fold_in", "Flickr8k, folded in", ("recall@10 by caption 2",)),
)


def main() -> None:
    """Replace what stands between the marks."""
    text = README.read_text()
    before, rest = text.split(START)
    after = rest.split(END)[1]
    README.write_text(before + START + "\n" + table() + END + after)


def table() -> str:
    """The table in Markdown."""
    rows = ["| what | I→T | T→I | chance | command |", "|---|---|---|---|---|"]
    for line in LINES:
        found = [_measurement(line, score) for score in line.scores]
        cells = [_cell(one) for one in found] if len(found) == 2 else ["–", _cell(found[0])]
        command = f"`python -m benchmarks.{line.benchmark}`"
        rows.append(f"| {line.text} | {' | '.join(cells)} | {found[0]['chance']:.3f} | {command} |")
    return "\n".join(rows) + "\n"


def _measurement(line: Line, score: str) -> dict[str, Any]:
    entries = json.loads((RESULTS / f"{line.benchmark}.json").read_text())["measurements"]
    (found,) = (one for one in entries if (one["system"], one["score"]) == (line.system, score))
    return dict(found)


def _cell(found: dict[str, Any]) -> str:
    spread = found["spread"]
    return f"{found['mean']:.3f}" if spread is None else f"{found['mean']:.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
