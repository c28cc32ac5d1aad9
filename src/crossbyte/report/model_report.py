"""The quality report of a model: what was measured, section by section, in plain words and as a page."""

from __future__ import annotations

from dataclasses import dataclass

from crossbyte._format import count, of_100, percent, plural
from crossbyte.report.content import Figure, Section
from crossbyte.report.html import render_page
from crossbyte.report.measurements import (
    CLEAR,
    HINT,
    CurvePoint,
    Measurements,
    Reliability,
    mean_of_directions,
)
from crossbyte.report.model_charts import bytes_charts, reliability_charts, size_chart, system_chart
from crossbyte.report.model_tables import curve_tables, reliability_tables, size_table, system_tables
from crossbyte.report.text import render_text
from crossbyte.report.verdict import verdict

__all__ = ["Report", "report_sections"]

_SAME = 0.01  # one of 100: nobody would notice
_WORTH = 0.03  # three of 100: worth more bytes
_TRUE, _ROUGH = 0.05, 0.1  # calibration error
_SURE = 0.5  # below, a hit is more likely a stranger than the partner
_TELLING = 0.1  # below this even for the surest hits, any small constant would be as true


@dataclass(frozen=True)
class Report(Measurements):
    """How well a model finds true partners among pairs it has not seen, and beside what, to be read.

    Its attributes are those of :class:`~crossbyte.report.measurements.Measurements`.
    """

    def to_text(self) -> str:
        """Say it in plain words, with tables; also ``str(report)``."""
        return render_text(report_sections(self))

    __str__ = to_text

    def to_html(self, title: str = "Quality report") -> str:
        """Give one self-contained page with plots."""
        return render_page(title, report_sections(self))


def report_sections(report: Measurements) -> list[Section]:
    """All there is to say, in the order in which to say it; what was not measured is left out."""
    parts = [
        Section("verdict", "", verdict(report)),
        Section(
            "systems",
            "Beside other systems",
            [_HOW_TO_READ],
            system_tables(report),
            [Figure("", [system_chart(report)])],
        ),
    ]
    if report.curve:
        curves = Figure("", [*bytes_charts(report)])
        sizes = Figure("", [size_chart(report)])
        parts += [
            Section("bytes", "Quality against bytes", [_advice(report)], curve_tables(report), [curves]),
            Section(
                "sizes", "In smaller and larger indexes", [_larger(report)], [size_table(report)], [sizes]
            ),
        ]
    words = [_probability_words(each) for each in report.reliability if each.bins]
    if words:
        parts.append(
            Section(
                "probabilities",
                "Probabilities, and 'nothing matches'",
                words,
                figures=[Figure("", [*reliability_charts(report)])],
                details=reliability_tables(report),
                details_title="The same in numbers",
            )
        )
    return [*parts, Section("method", "How it was measured", [_method(report)])]


_HOW_TO_READ = (
    "Recall@10 is how many of 100 queries have their partner among the first 10 hits; the median rank is the "
    "place at which half of the queries have found it. In brackets: the 95\u00a0% interval."
)


# The curve


def _advice(report: Measurements) -> str:
    here = _own_point(report)
    if here is None:
        found = ", ".join(
            f"{of_100(_own(point))} with {plural(point.n_bytes, 'byte')}" for point in report.curve
        )
        return f"Of 100 queries, mean of both directions, so many find their partner: {found}."
    others = [point for point in report.curve if point is not here]
    changes = [
        f"{plural(point.n_bytes, 'byte')} would {_change(_own(point) - _own(here))}"
        for point in sorted(others, key=lambda point: (point.n_bytes < here.n_bytes, point.n_bytes))
    ]
    said = f"Beside {plural(here.n_bytes, 'byte')}, of 100 queries: {'; '.join(changes)}. " if changes else ""
    return said + _choice(report, here)


def _change(difference: float) -> str:
    whole = round(100 * difference)
    if whole == 0:
        return "find as many"
    return f"find {whole} more" if whole > 0 else f"lose {-whole}"


def _choice(report: Measurements, here: CurvePoint) -> str:
    enough = [point for point in report.curve if _own(point) >= _own(here) - _SAME]
    if enough[0].n_bytes < here.n_bytes:
        return f"{plural(enough[0].n_bytes, 'byte')} would do."
    larger = [point for point in report.curve if point.n_bytes > here.n_bytes]
    better = next((point for point in larger if _own(point) >= _own(here) + _WORTH), None)
    if better is not None:
        return f"Where memory allows, {plural(better.n_bytes, 'byte')} are worth it."
    if larger:
        return f"{plural(here.n_bytes, 'byte')} are a good choice: more would hardly help."
    return "Whether more bytes would help was not measured."


def _larger(report: Measurements) -> str:
    point = _own_point(report) or report.curve[-1]
    size, recall = point.by_size[-1]
    return (
        "The more items, the more strangers come before the partner. "
        f"With {plural(point.n_bytes, 'byte')} and {count(size)} items, "
        f"expect {of_100(recall)} of 100 queries to find theirs among the first 10."
    )


def _own_point(report: Measurements) -> CurvePoint | None:
    return next((point for point in report.curve if point.n_bytes == report.n_bytes), None)


def _own(point: CurvePoint) -> float:
    return mean_of_directions(point.recall["crossbyte"])


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


def _method(report: Measurements) -> str:
    settings = f"{plural(report.n_components, 'dimension')}, {plural(report.n_bytes, 'byte')}"
    curve = (
        f" The curve over bytes comes from {plural(report.n_curve_pairs, 'pair')}." if report.curve else ""
    )
    return (
        f"A sibling of the model (mapping {report.mapping}, {settings}) was fitted on 90\u00a0% of the "
        f"groups of {plural(report.n_pairs, 'pair')}, and so were the other systems. "
        f"{plural(report.n_held_out, 'pair')} of the rest, one of each group, were held out: each item was "
        "coded from its own side alone, and "
        "each query looked for its one partner among all of them. Intervals are 95\u00a0% bootstrap "
        "intervals over the held-out pairs; differences between systems are taken pair by pair. The model "
        f"itself was fitted on all pairs.{curve}"
    )
