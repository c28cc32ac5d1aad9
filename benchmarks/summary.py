"""Write the tables and pictures of the README and of docs/*.md from the kept results.

python -m benchmarks.summary               # after the benchmarks it names have run
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks import answer_tables, frontier_tables, headlines, laboratory_tables, words_tables
from benchmarks.tables import RESULTS

ROOT = Path(__file__).resolve().parent.parent


class Line(NamedTuple):
    """One line of the table: what it says, and where the two figures are."""

    text: str
    benchmark: str
    system: str
    scores: tuple[str, ...]


SPEED_HEAD = "1M items, k=100, 1 thread, if nothing else is said"
SIZE_HEAD = "10M items, M=8, k=10, 1 thread, if nothing else is said"
BOTH = ("I→T", "T→I")
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
    *(
        Line(
            f"Wiki, {bits} bits, kernel CCA, {what} chosen by latent classes, MAP@50",
            "wiki_unlabelled",
            f"kernel CCA, {by} latent classes, {bits} bits",
            ("MAP@50 I→T", "MAP@50 T→I"),
        )
        for what, by in (("document's half", "by"), ("document's half and ridges", "ridges too by"))
        for bits in (16, 32, 64, 128)
    ),
)


class Speed(NamedTuple):
    """One line of the table of speeds: what it says, and where its figures are, one per system."""

    text: str
    benchmark: str
    systems: tuple[str, ...]
    score: str
    form: str = "{:.1f} ×"


def _beside(setting: str, kind: str, releases: tuple[str, ...] = ("1.9.0", "1.15.1")) -> Speed:
    text = f"{setting}: time of FAISS {' / '.join(releases)} {kind} over ours"
    systems = tuple(f"FAISS {release} {kind}" for release in releases)
    return Speed(text, "search", systems, f"{setting}: times crossbyte's")


SPEEDS = (
    *(_beside("M=8, batch of 100", kind) for kind in ("IndexPQ", "PQFastScan", "additive")),
    *(_beside("M=8, one query at a time", kind) for kind in ("IndexPQ", "PQFastScan")),
    Speed(
        "10M items, one query: over reading the codes",
        "large",
        ("crossbyte, one query",),
        "times one reading",
    ),
    Speed("10M items, batch of 100: 2 threads over 1", "large", ("2 threads",), "times as fast as 1"),
    Speed(
        "filter of 10 %, first time",
        "filters",
        ("an integer",),
        "first evaluation of year >= 2022, ms",
        "{:.0f} ms",
    ),
    Speed("adding texts, 2 cores", "adding", ("crossbyte, texts",), "rows per second", "{:,.0f} rows/s"),
)

MILLION, MILLISECONDS = ("1,000,000 pairs, sparse",), "{:.2f} ms"
NEEDED = "share of items to be visited for 0.95 of the partners found"
VISITED = "share of items visited at 0.95 of the exhaustive recall@10"
OVER = "items to be visited over FAISS IVF"
BOTH_WAYS = ("exhaustive", "cells")
CELLS = (
    Speed("exhaustive / cells: one query", "cells", BOTH_WAYS, "milliseconds per query", MILLISECONDS),
    Speed("cells: times as fast", "cells", ("cells",), "times as fast as exhaustive", "{:.1f} ×"),
    Speed("exhaustive / cells: recall@10", "cells", BOTH_WAYS, "recall@10", "{:.4f}"),
    Speed("cells in all", "cells", ("cells",), "in all", "{:,.0f}"),
    Speed("cells visited by a query", "cells", ("cells",), "visited", "{:,.0f}"),
    Speed("share of the items in them", "cells", ("cells",), VISITED, "{:.2%}"),
    Speed(
        "items to be visited for 0.95 of the partners found: our cells / FAISS IVF",
        "cells",
        ("our cells", "FAISS IVF"),
        NEEDED,
        "{:.3%}",
    ),
    Speed("ours over FAISS's", "cells", ("our cells",), OVER, "{:.2f}"),
    *(
        Speed(
            f"… {share} of samples of the queries below",
            "cells",
            ("our cells",),
            f"{OVER}, {share} of samples below",
            "{:.2f}",
        )
        for share in ("2.5%", "97.5%")
    ),
    Speed("building the cells, 2 cores", "cells", ("file",), "building the cells, seconds", "{:.0f} s"),
)
SIZES = (
    Speed(
        "a million pairs fitted from disk, 2 cores",
        "from_disk",
        MILLION,
        "fit from disk, seconds",
        "{:.0f} s",
    ),
    Speed("its memory at most", "from_disk", MILLION, "peak memory, GB", "{:.2f} GB"),
    Speed("its time per pair over that of 182,577", "from_disk", MILLION, "times linear growth", "{:.2f} ×"),
    Speed(
        "4 shards: answers of 1,000 that equal one file's, bit for bit",
        "sharded",
        ("4 shards",),
        "answers of 1000 equal bit for bit",
        "{:,.0f}",
    ),
    Speed(
        "4 shards: a query, over its slowest shard",
        "sharded",
        ("asking the shards",),
        "milliseconds per query",
        MILLISECONDS,
    ),
    *(line for line in CELLS if line.score in ("milliseconds per query", "recall@10", NEEDED)),
)


def main() -> None:
    """Replace what stands between the marks, and the pictures."""
    for page, written in pages().items():
        replace(page, written)
    for path, picture in pictures().items():
        path.write_text(picture, encoding="utf-8")


def pages() -> dict[Path, dict[str, str]]:
    """The tables of every page, by their marks."""
    timed = {"speeds": rates(SPEED_HEAD, SPEEDS), "sizes": rates(SIZE_HEAD, SIZES)}
    return {
        ROOT / "README.md": {
            "words": words_tables.headlines(),
            "answers": answer_tables.headlines(),
            "headlines": headlines.table(_entry),
        },
        ROOT / "docs" / "measured.md": {
            "figures": table(),
            "answers": answer_tables.table(),
            "bytes": answer_tables.sizes(),
            "words": words_tables.table(),
            "words-details": words_tables.details(),
        }
        | timed,
        ROOT / "docs" / "cells.md": {"cells": rates("10M items, M=8, k=10, 1 thread", CELLS)},
        ROOT / "docs" / "evaluation.md": laboratory_tables.tables(),
        ROOT / "docs" / "frontier.md": frontier_tables.tables(),
    }


def pictures() -> dict[Path, str]:
    """The pictures that show kept results."""
    return {ROOT / "docs" / "images" / "frontier.svg": frontier_tables.picture()}


def replace(page: Path, written: dict[str, str]) -> None:
    """Put each text between the marks of its name."""
    text = page.read_text()
    for mark, table in written.items():
        start, end = f"<!-- {mark} -->", f"<!-- /{mark} -->"
        before, rest = text.split(start)
        text = before + start + "\n" + table + end + rest.split(end)[1]
    page.write_text(text)


def rates(head: str, lines: tuple[Speed, ...]) -> str:
    """A table of speeds in Markdown."""
    rows = [f"| {head} | measured | command |", "|---|---|---|"]
    for line in lines:
        found = [_entry(line.benchmark, system, line.score)["mean"] for system in line.systems]
        figures = " / ".join(map(line.form.format, found))
        rows.append(f"| {line.text} | {figures} | `python -m benchmarks.{line.benchmark}` |")
    return "\n".join(rows) + "\n"


def table() -> str:
    """The table in Markdown."""
    rows = ["| what | I→T | T→I | chance | command |", "|---|---|---|---|---|"]
    for line in LINES:
        found = [_entry(line.benchmark, line.system, score) for score in line.scores]
        cells = [_cell(one) for one in found] if len(found) == 2 else ["–", _cell(found[0])]
        command = f"`python -m benchmarks.{line.benchmark}`"
        rows.append(f"| {line.text} | {' | '.join(cells)} | {found[0]['chance']:.3f} | {command} |")
    return "\n".join(rows) + "\n"


def _entry(benchmark: str, system: str, score: str) -> dict[str, Any]:
    entries = json.loads((RESULTS / f"{benchmark}.json").read_text())["measurements"]
    (found,) = (one for one in entries if (one["system"], one["score"]) == (system, score))
    return dict(found)


def _cell(found: dict[str, Any]) -> str:
    spread = found["spread"]
    return f"{found['mean']:.3f}" if spread is None else f"{found['mean']:.3f} ± {spread:.3f}"


if __name__ == "__main__":
    main()
