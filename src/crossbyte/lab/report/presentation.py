"""Format names, settings and figures of the laboratory's report, and look up what the papers published."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte._format import count, join_words, plural
from crossbyte._json import parse_json
from crossbyte.lab.report.study import Scope, System
from crossbyte.lab.score_tables import SummaryFigure
from crossbyte.report.content import Style


class Categories(NamedTuple):
    """A row of the paper's Table 1."""

    name: str
    key: str
    relations: tuple[str, ...]
    codes: str
    coding: str


def categories() -> list[Categories]:
    """Read the rows of the paper's Table 1."""
    rows = _document()["table1"]
    return [Categories(**(row | {"relations": tuple(row["relations"])})) for row in rows]


def published_figure(metric: str, data: str, task: str, method: str, bits: int) -> float | None:
    """Look up what the paper measured (Table 2); None where it prints nothing."""
    return _look_up("table2", metric, "measured", data, task, method, str(bits))


def quoted_figure(metric: str, data: str, task: str, method: str, bits: int) -> float | None:
    """Look up what the paper quotes from another (Table 2, in parentheses); None where it quotes nothing."""
    return _look_up("table2", metric, "quoted", data, task, method, str(bits))


def table3_figure(part: str, task: str, method: str, bits: int) -> float | None:
    """Look up a figure of the paper's Table 3, part "A" or "B"."""
    return _look_up("table3", part, task, method, str(bits))


def table3_data_name() -> str:
    """Name the data set of the paper's Table 3."""
    return str(_document()["table3"]["data"])


def data_sizes(data: str) -> tuple[int, int] | None:
    """Count the training documents and queries of a data set in the paper; None for other sets."""
    found = _document()["data_sets"].get(data)
    return found and (found["n_train"], found["n_queries"])


def _look_up(*way: str) -> float | None:
    place: Any = _document()
    for step in way:
        place = place.get(step)
        if place is None:
            return None
    return float(place)


@cache
def _document() -> dict[str, Any]:
    text = (Path(__file__).parent / "published.json").read_text(encoding="utf-8")
    document: dict[str, Any] = parse_json(text)
    return document


TASK_NAMES = {
    "image-to-text": "Image to text",
    "text-to-image": "Text to image",
    "text-to-text": "Text to text",
}
"""Tasks as headings."""

PROTOCOLS = {
    "A": "protocol A (the paper's: the database is the training documents with their learned codes)",
    "B": "protocol B (unseen documents, coded from the searched side alone)",
    "C": "protocol C (unseen documents, folded in as pairs, asked by other captions of them)",
    "D": "protocol D (new classes: documents of classes that nothing was learned from)",
    "V": "protocol V (a validation part of the training documents asks the rest)",
    "P": "protocol P (true pairs within a validation part of the training documents)",
    "L": "protocol L (as V, by classes that the training pairs show without labels)",
}
"""What each protocol is, in words."""

_DATA_NAMES = {
    "wiki": "Wiki",
    "mirflickr": "FLICKR25K",
    "nus-wide": "NUS-WIDE",
    "flickr8k": "Flickr8k",
    "fashion": "Fashion",
}
_MINUS = "\u2212"

LEAST_RANGE = 0.05
"""Least range of the upright axis of curves, so that noise does not look like a mountain."""

_DASHED, _DOTTED, _DASH_DOT, _SHORT = "9 4", "3 3", "9 3 3 3", "5 3"
STYLES = {
    "cmcq": Style("s0", "disc", "", 3.2),
    "cmssh": Style("s1", "square", _DASHED),
    "cvh": Style("s2", "triangle", _DOTTED),
    "mlbe": Style("s5", "triangle down", _DASH_DOT),
    "qch": Style("s6", "diamond", _SHORT),
    "lssh": Style("s7", "plus"),
    "cmfh": Style("s3", "cross", _DASHED),
    "ccq": Style("s8", "triangle left"),
    "seph": Style("s4", "triangle right"),
    "scm": Style("s1", "square", _DASHED),
    "crh": Style("s2", "triangle", _DOTTED),
    "mmnn": Style("s5", "triangle down", _DASH_DOT),
    "sm2h": Style("s6", "diamond", _SHORT),
    "imh": Style("s7", "plus"),
    "mvsh": Style("s3", "cross", _DASHED),
    "stmh": Style("s8", "triangle left"),
    "cq": Style("s6", "diamond", _SHORT),
    "cca-itq": Style("s3", "cross", _DASHED),
    "cca-pq": Style("s1", "square", _DASHED),
    "cca-opq": Style("s2", "triangle", _DOTTED),
    "cca-rq": Style("s5", "triangle down", _DASH_DOT),
    "cca-lsq": Style("s8", "triangle left"),
    "cca-middle-rq": Style("s6", "star", _SHORT),
    "cca": Style("s4", "", "11 4 2 4"),
    "keywords": Style("s7", "", _DASH_DOT),
    "cmcq-cca": Style("s7", "plus", "", 2.8),
    "cmcq-kernel": Style("s5", "pentagon", "", 2.8),
    "cmcq-default": Style("s8", "star", "", 2.8),
    "cmcq-auto": Style("s2", "hexagon", "", 2.8),
    "chance": Style("s4", "", "2 4"),
    "first": Style("s0", "disc", "", 2.6),
    "second": Style("s1", "square", _DASHED, 2.6),
    "third": Style("s2", "triangle", _DOTTED, 2.6),
    "first-level": Style("s0", "", "10 3 2 3", 1.8),
    "second-level": Style("s1", "", "10 3 2 3", 1.8),
    "third-level": Style("s2", "", "10 3 2 3", 1.8),
}
"""Colour, mark and dashes of systems, and of the parts that a line or a bar can have in a chart.

Systems that never stand in one chart may look the same.
"""

_OTHER = Style("s3", "star", "5 2 2 2")


def style_of(key: str) -> Style:
    """Style of a system or a part; systems from elsewhere share one."""
    return STYLES.get(key, _OTHER)


def data_name(data: str) -> str:
    """Name a data set as it is written in text."""
    return _DATA_NAMES.get(data, data)


def metric_name(metric: str) -> str:
    """Write the name of a metric as the paper does."""
    return metric.replace("map", "MAP")


def format_figure(value: float | None) -> str:
    """Write a figure with four decimals, as in the paper; a dash where there is none."""
    return "–" if value is None else f"{value:.4f}"


def format_estimate(found: SummaryFigure | None) -> str:
    """Write mean ± spread, or the figure of a single seed alone; a dash where there is none."""
    if found is None:
        return "–"
    return format_figure(found.mean) + ("" if found.spread is None else f" ± {found.spread:.4f}")


def format_gap(value: float, other: float) -> str:
    """Write how far a value is above (+) or below (−) another, between the figures as printed."""
    gap = round(value, 4) - round(other, 4)
    return f"{'+' if gap >= 0 else _MINUS}{abs(gap):.4f}"


def n_bytes(bits: int) -> str:
    """Write a code length in bytes."""
    whole, rest = divmod(bits, 8)
    return f"{bits / 8:g} bytes" if rest else plural(whole, "byte")


def n_bits(bits: int) -> str:
    """Write a code length in bits."""
    return f"{bits} bit" if bits == 1 else f"{bits} bits"


def format_lengths(lengths: Sequence[int], *, as_bytes: bool) -> str:
    """List code lengths with one unit."""
    shown = [f"{bits / 8:g}" if as_bytes else str(bits) for bits in lengths]
    unit = "byte" if as_bytes else "bit"
    return f"{join_words(shown)} {unit}{'' if shown == ['1'] else 's'}"


def row_name(scope: Scope, system: System) -> str:
    """Name a row: the system, and "labels" if that is what it was taught with."""
    return scope.name(system) + (f" [{system.similarity}]" if system.similarity != "pairs" else "")


def describe_setting(scope: Scope, n_seeds: int | None = None) -> str:
    """Say data set, protocol and number of seeds; these are the most of any system unless given."""
    said = plural(scope.n_seeds if n_seeds is None else n_seeds, "seed")
    return f"{data_name(scope.data)}, protocol {scope.protocol}, {said}"


def table_caption(scope: Scope, metric: str, task: str, n_seeds: int | None = None) -> str:
    """Say what a table shows: metric, task, and the setting by :func:`describe_setting`."""
    return f"{metric_name(metric)}, {TASK_NAMES[task].lower()} ({describe_setting(scope, n_seeds)})"


def describe_missing_seeds(found: SummaryFigure, n_seeds: int) -> str:
    """Say that a figure has fewer seeds than its caption; an empty string if it has as many."""
    return f"{found.n_seeds} of {n_seeds} seeds" if found.n_seeds < n_seeds else ""


def format_seconds(value: float) -> str:
    """Write a time with two or three digits."""
    if value >= 100:
        return count(round(value))
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.1 else f"{value:#.2g}"


def make_key(*parts: str) -> str:
    """Make a name for a file and a page from anything: letters, digits and hyphens."""
    words = "-".join(parts).lower()
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in words)
