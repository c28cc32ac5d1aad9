"""The quality report in plain words: what there is to say, section by section, and its plain text."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import NamedTuple

from crossbyte.model.report.phrases import count, mean, n_bytes, n_pairs, of_100, percent, plural
from crossbyte.model.report.report import CurvePoint, Reliability, Report
from crossbyte.model.report.tables import (
    Table,
    curve_tables,
    reliability_tables,
    size_table,
    system_tables,
)
from crossbyte.model.report.verdict import verdict

__all__ = ["CLEAR", "HINT", "Section", "report_text", "sections"]

WIDTH = 100  # characters of a line

_SAME = 0.01  # one of 100: nobody would notice
_WORTH = 0.03  # three of 100: worth more bytes
_TRUE, _ROUGH = 0.05, 0.1  # calibration error
HINT, CLEAR = 0.6, 0.8  # AUROC from which on it can be told roughly, and surely, that nothing matches
_SURE = 0.5  # below, a hit is more likely a stranger than the partner
_TELLING = 0.1  # below this even for the surest hits, any small constant would be as true


class Section(NamedTuple):
    """A part of the report.

    Attributes
    ----------
    key : {"verdict", "systems", "bytes", "sizes", "probabilities", "method"}
    heading : str
        Empty for the verdict.
    paragraphs : list of str
    tables : sequence of Table
    details : sequence of Table
        For who wants to know it all; too long for the plain text.
    """

    key: str
    heading: str
    paragraphs: list[str]
    tables: Sequence[Table] = ()
    details: Sequence[Table] = ()


def report_text(report: Report) -> str:
    """Say a report in plain words, with tables, in lines of at most 100 characters."""
    return "\n\n".join(part for section in sections(report) for part in _text_parts(section)) + "\n"


def sections(report: Report) -> list[Section]:
    """All there is to say, in the order in which to say it; what was not measured is left out."""
    parts = [
        Section("verdict", "", verdict(report)),
        Section("systems", "Beside other systems", [_HOW_TO_READ], system_tables(report)),
        Section("method", "How it was measured", [_method(report)]),
    ]
    words = [_probability_words(each) for each in report.reliability if each.bins]
    if words:
        details = reliability_tables(report)
        parts.insert(2, Section("probabilities", "Probabilities, and 'nothing matches'", words, [], details))
    if report.curve:
        advice, larger = [_advice(report)], [_larger(report)]
        parts.insert(2, Section("bytes", "Quality against bytes", advice, curve_tables(report)))
        parts.insert(3, Section("sizes", "In smaller and larger indexes", larger, [size_table(report)]))
    return parts


_HOW_TO_READ = (
    "Recall@10 is how many of 100 queries have their partner among the first 10 hits; the median rank is the "
    "place at which half of the queries have found it. In brackets: the 95\u00a0% interval."
)


# The curve


def _advice(report: Report) -> str:
    here = _own_point(report)
    if here is None:
        found = ", ".join(f"{of_100(_own(point))} with {n_bytes(point.n_bytes)}" for point in report.curve)
        return f"Of 100 queries, mean of both directions, so many find their partner: {found}."
    others = [point for point in report.curve if point is not here]
    changes = [
        f"{n_bytes(point.n_bytes)} would {_change(_own(point) - _own(here))}"
        for point in sorted(others, key=lambda point: (point.n_bytes < here.n_bytes, point.n_bytes))
    ]
    said = f"Beside {n_bytes(here.n_bytes)}, of 100 queries: {'; '.join(changes)}. " if changes else ""
    return said + _choice(report, here)


def _change(difference: float) -> str:
    whole = round(100 * difference)
    if whole == 0:
        return "find as many"
    return f"find {whole} more" if whole > 0 else f"lose {-whole}"


def _choice(report: Report, here: CurvePoint) -> str:
    enough = [point for point in report.curve if _own(point) >= _own(here) - _SAME]
    if enough[0].n_bytes < here.n_bytes:
        return f"{n_bytes(enough[0].n_bytes)} would do."
    larger = [point for point in report.curve if point.n_bytes > here.n_bytes]
    better = next((point for point in larger if _own(point) >= _own(here) + _WORTH), None)
    if better is not None:
        return f"Where memory allows, {n_bytes(better.n_bytes)} are worth it."
    if larger:
        return f"{n_bytes(here.n_bytes)} are a good choice: more would hardly help."
    return "Whether more bytes would help was not measured."


def _larger(report: Report) -> str:
    point = _own_point(report) or report.curve[-1]
    size, recall = point.by_size[-1]
    return (
        f"The more items, the more strangers come before the partner. With {n_bytes(point.n_bytes)} and "
        f"{count(size)} items, expect {of_100(recall)} of 100 queries to find theirs among the first 10."
    )


def _own_point(report: Report) -> CurvePoint | None:
    return next((point for point in report.curve if point.n_bytes == report.n_bytes), None)


def _own(point: CurvePoint) -> float:
    return mean(point.recall["crossbyte"])


# Probabilities


def _probability_words(each: Reliability) -> str:
    asked = {"image": "Pictures as queries", "text": "Texts as queries"}.get(each.query, each.query)
    return f"{asked}: {_truth(each)} {_recognition(each)}"


def _truth(each: Reliability) -> str:
    highest = max(stated for stated, _, _ in each.bins)
    surest = f"the surest hits are given {'only ' if highest < _SURE else ''}{of_100(highest)}\u00a0%"
    if highest < _TELLING:
        far = percent(each.error)
        return (
            f"probabilities are small throughout and tell little; {surest}, {far} points from what came true."
        )
    if each.error < _TRUE:
        judged = "can be taken at their word"
    else:
        judged = "are roughly right" if each.error < _ROUGH else "are not to be trusted"
    return f"probabilities {judged}, on average {percent(each.error)} points from what came true; {surest}."


def _recognition(each: Reliability) -> str:
    own, raw = each.match_auroc, each.distance_auroc
    if own < HINT:
        judged = "is hardly recognised: these data do not allow it"
    else:
        judged = "is only hinted at" if own < CLEAR else "is well recognised"
    threshold = "a raw distance threshold" + (" would do better," if raw > own + _SAME else "")
    return (
        f"That nothing matches {judged} (AUROC {own:.2f}; {threshold} {raw:.2f}; 0.5 is chance, 1 perfect)."
    )


def _method(report: Report) -> str:
    settings = f"{plural(report.n_components, 'dimension')}, {n_bytes(report.n_bytes)}"
    curve = f" The curve over bytes comes from {n_pairs(report.n_curve_pairs)}." if report.curve else ""
    return (
        f"A sibling of the model (mapping {report.mapping}, {settings}) was fitted on 90\u00a0% of the "
        f"groups of {n_pairs(report.n_pairs)}, and so were the other systems. {n_pairs(report.n_held_out)} "
        "of the rest, one of each group, were held out: each item was coded from its own side alone, and "
        "each query looked for its one partner among all of them. Intervals are 95\u00a0% bootstrap "
        "intervals over the held-out pairs; differences between systems are taken pair by pair. The model "
        f"itself was fitted on all pairs.{curve}"
    )


# Plain text


def _text_parts(section: Section) -> list[str]:
    heading = [f"{section.heading}\n{'-' * len(section.heading)}"] if section.heading else []
    paragraphs = [fill(words, WIDTH).replace("\u00a0", " ") for words in section.paragraphs]
    return heading + paragraphs + [_text_table(table) for table in section.tables]


def _text_table(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    rule = tuple("-" * width for width in widths)
    lines = [_text_row(row, widths) for row in (table.header, rule, *table.rows)]
    return "\n".join([f"{table.caption}:", *lines])


def _text_row(row: tuple[str, ...], widths: list[int]) -> str:
    return "  ".join(
        cell.rjust(width) if place else cell.ljust(width)
        for place, (cell, width) in enumerate(zip(row, widths, strict=True))
    )
