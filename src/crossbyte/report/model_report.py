"""Write the quality report of a model: sections of sentences, tables and charts, as text and as a page."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

from crossbyte._format import count, of_100, percent, plural
from crossbyte.report import content, measurements
from crossbyte.report.html import render_page
from crossbyte.report.text import render_text
from crossbyte.report.verdict import verdict

SHORT_NAMES = {
    "crossbyte": "crossbyte",
    "uncompressed": "uncompressed",
    "cca_pq": "CCA + PQ",
    "cca_rq": "CCA + RQ",
    "chance": "chance",
}
"""Names of the systems that fit into a table or a plot."""
DIRECTION_TITLES = {
    "image_to_text": "Pictures looking for their texts",
    "text_to_image": "Texts looking for their pictures",
}
"""Titles of what is measured in each direction."""

_HOW_TO_READ = (
    "Recall@10 is how many of 100 queries have their partner among the first 10 hits; the median rank is the "
    "place at which half of the queries have found it. In brackets: the 95\u00a0% interval."
)
_NO_DIFFERENCE = 0.01  # one of 100: nobody would notice
_WORTH_MORE_BYTES = 0.03  # three of 100
_TRUE, _ROUGH = 0.05, 0.1  # calibration error
_LIKELY = 0.5  # below, a hit is more likely a stranger than the partner
_TOO_SMALL = 0.1  # below this even for the surest hits, any small constant would be as true
_MAX_SIZES = 8  # rows; more say nothing new

_STYLES = {
    "crossbyte": content.Style("s0", "disc"),
    "cca_pq": content.Style("s1", "square", "6 3"),
    "cca_rq": content.Style("s2", "triangle", "2 2"),
    "uncompressed": content.Style("s3", "diamond", "8 4"),
    "chance": content.Style("s4", "plus", "1 4"),
}
_OTHER_STYLES = (  # of other numbers of bytes
    content.Style("s5", "disc", "6 2 2 2"),
    content.Style("s6", "square", "10 3"),
    content.Style("s7", "triangle", "4 4"),
    _STYLES["cca_pq"],
    _STYLES["cca_rq"],
)


@dataclass(frozen=True)
class Report(measurements.Measurements):
    """How well a model finds true partners among unseen pairs, beside other systems, to be read.

    Its attributes are those of :class:`~crossbyte.report.measurements.Measurements`.
    """

    def to_text(self) -> str:
        """Render the report as plain text with tables; also ``str(report)``."""
        return render_text(report_sections(self))

    __str__ = to_text

    def to_html(self, title: str = "Quality report") -> str:
        """Render the report as one self-contained page with charts."""
        return render_page(title, report_sections(self))


def report_sections(report: measurements.Measurements) -> list[content.Section]:
    """Make the sections of the report in their order; what was not measured is left out."""
    sections = [
        content.Section("verdict", "", verdict(report)),
        content.Section(
            "systems",
            "Beside other systems",
            [_HOW_TO_READ],
            system_tables(report),
            [content.Figure("", [system_chart(report)])],
        ),
    ]
    if report.documents:
        sections.append(
            content.Section(
                "documents",
                "Documents known from both halves",
                [_describe_documents(report)],
                [document_table(report)],
            )
        )
    if report.curve:
        curves = content.Figure("", [*bytes_charts(report)])
        sizes = content.Figure("", [size_chart(report)])
        sections += [
            content.Section(
                "bytes", "Quality against bytes", [_advise_on_bytes(report)], curve_tables(report), [curves]
            ),
            content.Section(
                "sizes",
                "In smaller and larger indexes",
                [_expect_in_larger_indexes(report)],
                [size_table(report)],
                [sizes],
            ),
        ]
    words = [_describe_probabilities(each) for each in report.reliability if each.bins]
    if words:
        sections.append(
            content.Section(
                "probabilities",
                "Probabilities, and 'nothing matches'",
                words,
                figures=[content.Figure("", [*reliability_charts(report)])],
                details=reliability_tables(report),
                details_title="The same in numbers",
            )
        )
    return [*sections, content.Section("method", "How it was measured", [_describe_method(report)])]


# Words and vectors


def words_section(measured: Mapping[str, Any]) -> content.Section | None:
    """Tell what words alone, vectors alone and both find; None where nothing was measured.

    Parameters
    ----------
    measured : mapping
        ``WordSettings.measured`` of an index: what :mod:`crossbyte.gallery.trial` has kept.
    """
    if not measured:
        return None
    recall = {mode: of_100(share) for mode, share in measured["recall"].items()}
    asked = (
        f"{count(measured['n_held_out'])} captions that were held out asked for their documents, among "
        f"{count(measured['n_documents'])}: the right one is among the first 10 for"
    )
    chance = f"(chance: {of_100(measured['chance'])})"
    if "both" in recall:
        found = (
            f"{asked} {recall['words']} of 100 by words alone, {recall['vectors']} by vectors alone, "
            f"{recall['both']} by both {chance}."
        )
    else:
        found = (
            f"{asked} {recall['vectors']} of 100 {chance}. Documents have one caption each, so these were "
            "found by their pictures alone. What words add, and how sure they are, could not be measured: "
            "that takes documents with two captions or more."
        )
    return content.Section(
        "words", "Words and vectors", [found, *_tell_bytes(measured)], [_words_table(measured)]
    )


def _modes(measured: Mapping[str, Any]) -> list[str]:
    """List the ways of searching that were measured."""
    return [mode for mode in ("words", "vectors", "both") if mode in measured["recall"]]


def _tell_bytes(measured: Mapping[str, Any]) -> list[str]:
    """Say what other numbers of bytes cost or bring; nothing where one alone was tried."""
    curve, chosen = measured["curve"], measured["n_bytes"]
    best = _modes(measured)[-1]
    own = next(each[best] for each in curve if each["n_bytes"] == chosen)
    others = [each for each in curve if each["n_bytes"] != chosen]
    if not others:
        return []
    changes = ", ".join(
        f"{plural(each['n_bytes'], 'byte')} would {_describe_change(each[best] - own)}" for each in others
    )
    return [f"Beside {plural(chosen, 'byte')} per document, of 100 captions by {best}: {changes}."]


def _words_table(measured: Mapping[str, Any]) -> content.Table:
    rows, modes = [], _modes(measured)
    for each in measured["curve"]:
        mark = ", chosen" if each["n_bytes"] == measured["n_bytes"] else ""
        shares = [of_100(each[mode]) for mode in modes]
        rows.append(content.plain_row([plural(each["n_bytes"], "byte") + mark, *shares]))
    chance = of_100(measured["chance"])
    rows.append(content.Row(tuple(map(content.Cell, ("chance", *[chance] * len(modes)))), quiet=True))
    caption = "Among the first 10, of 100 captions"
    header = ("per document", *(mode if mode == "both" else f"{mode} alone" for mode in modes))
    return content.Table(caption, header, rows)


# Documents known from both halves


def _describe_documents(report: measurements.Measurements) -> str:
    asked = (
        "Each document was coded from its image and one text, and another text about it, which was in no "
        "index, looked for it."
    )
    better = [each for each in report.documents if _is_better_peer(each)]
    if not better:
        return asked
    names = " and ".join(measurements.DOCUMENT_NAMES[each.name] for each in better)
    return f"{asked} {names[0].upper()}{names[1:]} found more than crossbyte."


def _is_better_peer(each: measurements.DocumentSystem) -> bool:
    return each.name != "uncompressed" and each.gain is not None and each.gain.high < 0


def document_table(report: measurements.Measurements) -> content.Table:
    """Make the table of systems that find documents known from both halves."""
    rows = [
        content.plain_row(
            (
                measurements.DOCUMENT_NAMES[each.name],
                "–" if each.n_bytes is None else count(each.n_bytes),
                _format_share(each.recall),
                "–" if each.gain is None else _format_share(each.gain),
            )
        )
        for each in report.documents
    ]
    header = ("system", "bytes", "recall@10", "crossbyte's lead")
    return content.Table("From another text to the document", header, rows)


# Sentences on the curve


def _advise_on_bytes(report: measurements.Measurements) -> str:
    here = _own_point(report)
    if here is None:
        recalls = ", ".join(
            f"{of_100(_own_recall(point))} with {plural(point.n_bytes, 'byte')}" for point in report.curve
        )
        return f"Of 100 queries, mean of both directions, so many find their partner: {recalls}."
    others = [point for point in report.curve if point is not here]
    changes = [
        f"{plural(point.n_bytes, 'byte')} would {_describe_change(_own_recall(point) - _own_recall(here))}"
        for point in sorted(others, key=lambda point: (point.n_bytes < here.n_bytes, point.n_bytes))
    ]
    compared = (
        f"Beside {plural(here.n_bytes, 'byte')}, of 100 queries: {'; '.join(changes)}. " if changes else ""
    )
    return compared + _recommend_bytes(report, here)


def _describe_change(difference: float) -> str:
    whole = round(100 * difference)
    if whole == 0:
        return "find as many"
    return f"find {whole} more" if whole > 0 else f"lose {-whole}"


def _recommend_bytes(report: measurements.Measurements, here: measurements.CurvePoint) -> str:
    enough = [point for point in report.curve if _own_recall(point) >= _own_recall(here) - _NO_DIFFERENCE]
    if enough[0].n_bytes < here.n_bytes:
        return f"{plural(enough[0].n_bytes, 'byte')} would do."
    larger = [point for point in report.curve if point.n_bytes > here.n_bytes]
    better = next(
        (point for point in larger if _own_recall(point) >= _own_recall(here) + _WORTH_MORE_BYTES), None
    )
    if better is not None:
        return f"Where memory allows, {plural(better.n_bytes, 'byte')} are worth it."
    if larger:
        return f"{plural(here.n_bytes, 'byte')} are a good choice: more would hardly help."
    return "Whether more bytes would help was not measured."


def _expect_in_larger_indexes(report: measurements.Measurements) -> str:
    point = _own_point(report) or report.curve[-1]
    size, recall = point.by_size[-1]
    return (
        "The more items, the more strangers come before the partner. "
        f"With {plural(point.n_bytes, 'byte')} and {count(size)} items, "
        f"expect {of_100(recall)} of 100 queries to find theirs among the first 10."
    )


def _own_point(report: measurements.Measurements) -> measurements.CurvePoint | None:
    return next((point for point in report.curve if point.n_bytes == report.n_bytes), None)


def _own_recall(point: measurements.CurvePoint) -> float:
    return measurements.mean_of_directions(point.recall["crossbyte"])


# Sentences on probabilities and the method


def _describe_probabilities(each: measurements.Reliability) -> str:
    queries = {"image": "Pictures as queries", "text": "Texts as queries"}.get(each.query, each.query)
    return f"{queries}: {_judge_probabilities(each)} {_judge_no_match(each)}"


def _judge_probabilities(each: measurements.Reliability) -> str:
    highest = max(stated for stated, _, _ in each.bins)
    surest = f"the surest hits are given {'only ' if highest < _LIKELY else ''}{of_100(highest)}\u00a0%"
    gap = percent(each.error)
    if highest < _TOO_SMALL:
        return (
            f"probabilities are small throughout and tell little; {surest}, {gap} points from what came true."
        )
    if each.error < _TRUE:
        judged = "can be taken at their word"
    else:
        judged = "are roughly right" if each.error < _ROUGH else "are not to be trusted"
    return f"probabilities {judged}, on average {gap} points from what came true; {surest}."


def _judge_no_match(each: measurements.Reliability) -> str:
    own, raw = each.match_auroc, each.distance_auroc
    if own < measurements.HINT:
        judged = "is hardly recognised: these data do not allow it"
    else:
        judged = "is only hinted at" if own < measurements.CLEAR else "is well recognised"
    threshold = "a raw distance threshold" + (" would do better," if raw > own + _NO_DIFFERENCE else "")
    return (
        f"That nothing matches {judged} (AUROC {own:.2f}; {threshold} {raw:.2f}; 0.5 is chance, 1 perfect)."
    )


def _describe_method(report: measurements.Measurements) -> str:
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


# Tables


def system_tables(report: measurements.Measurements) -> list[content.Table]:
    """Make the tables of all systems, one per direction."""
    header = ("system", "bytes", *(f"recall@{depth}" for depth in measurements.DEPTHS), "median rank")
    return [
        content.Table(DIRECTION_TITLES[direction], header, _system_rows(report, direction))
        for direction in reversed(measurements.DIRECTIONS)
    ]


def _system_rows(report: measurements.Measurements, direction: str) -> list[content.Row]:
    rows = []
    for system in report.systems:
        scores = system.directions[direction]
        shares = (_format_share(scores.recall[depth]) for depth in measurements.DEPTHS)
        size = "–" if system.n_bytes is None else count(system.n_bytes)
        rows.append(
            content.plain_row((SHORT_NAMES[system.name], size, *shares, _format_rank(scores.median_rank)))
        )
    return rows


def _format_share(found: measurements.Estimate) -> str:
    return _with_interval(percent(found.value), percent(found.low), percent(found.high))


def _format_rank(found: measurements.Estimate) -> str:
    return _with_interval(count(found.value), count(round(found.low)), count(round(found.high)))


def _with_interval(value: str, low: str, high: str) -> str:
    return value if low == high else f"{value} ({low}–{high})"


def curve_systems(report: measurements.Measurements) -> list[str]:
    """List the systems that every point of the curve has."""
    return [
        name for name in SHORT_NAMES if report.curve and all(name in point.recall for point in report.curve)
    ]


def curve_tables(report: measurements.Measurements) -> list[content.Table]:
    """Make the tables of recall@10 over bytes, one per direction; none without a curve."""
    names = curve_systems(report)
    header = ("bytes", *(SHORT_NAMES[name] for name in names))
    return [
        content.Table(
            f"{DIRECTION_TITLES[direction]}, recall@10",
            header,
            [
                content.plain_row(
                    (count(point.n_bytes), *(_format_share(point.recall[name][direction]) for name in names))
                )
                for point in report.curve
            ],
        )
        for direction in reversed(measurements.DIRECTIONS)
        if report.curve
    ]


def size_table(report: measurements.Measurements) -> content.Table:
    """Make the table of expected recall@10 by number of items, a column for each number of bytes."""
    sizes = _thin_sizes(sorted({size for point in report.curve for size, _ in point.by_size}))
    header = ("items", *(plural(point.n_bytes, "byte") for point in report.curve))
    rows = [
        content.plain_row((count(size), *(_format_recall_at(point, size) for point in report.curve)))
        for size in sizes
    ]
    return content.Table("Recall@10 of crossbyte in larger indexes, mean of both directions", header, rows)


def _thin_sizes(sizes: list[int]) -> list[int]:
    """Keep at most eight sizes, evenly, the first and the last among them."""
    last = len(sizes) - 1
    if last < _MAX_SIZES:
        return sizes
    return [sizes[round(place * last / (_MAX_SIZES - 1))] for place in range(_MAX_SIZES)]


def _format_recall_at(point: measurements.CurvePoint, size: int) -> str:
    found = dict(point.by_size).get(size)
    return "–" if found is None else percent(found)


def reliability_tables(report: measurements.Measurements) -> list[content.Table]:
    """Make the tables of stated probabilities beside what came true, one per direction."""
    header = ("hits", "stated, mean %", "true, %")
    return [
        content.Table(describe_direction(each), header, _bin_rows(each))
        for each in report.reliability
        if each.bins
    ]


def describe_direction(each: measurements.Reliability) -> str:
    """Name the direction of a reliability."""
    return DIRECTION_TITLES.get(f"{each.query}_to_{each.target}", f"From {each.query} to {each.target}")


def _bin_rows(each: measurements.Reliability) -> list[content.Row]:
    return [
        content.plain_row((count(number), f"{100 * stated:.2f}", f"{100 * share:.2f}"))
        for stated, share, number in each.bins
    ]


# Charts


def system_chart(report: measurements.Measurements) -> content.DotChart:
    """Chart the recall@10 of every system in both directions, with intervals, as rows of marks."""
    found = measurements.recalls(report)
    x = content.share_axis(
        max(by[each].high for by in found.values() for each in measurements.DIRECTIONS), "recall@10, of 100"
    )
    groups = [
        (DIRECTION_TITLES[direction], [_dot(name, by[direction]) for name, by in found.items()])
        for direction in reversed(measurements.DIRECTIONS)
    ]
    description = "; ".join(
        f"{DIRECTION_TITLES[direction]}: "
        + ", ".join(f"{SHORT_NAMES[name]} {percent(by[direction].value)}" for name, by in found.items())
        for direction in reversed(measurements.DIRECTIONS)
    )
    return content.DotChart("systems", "Recall@10 of every system", description, x, groups)


def _dot(name: str, found: measurements.Estimate) -> content.Dot:
    return content.Dot(SHORT_NAMES[name], _STYLES[name], *found, percent(found.value))


def bytes_charts(report: measurements.Measurements) -> list[content.LineChart]:
    """Chart recall@10 against bytes, one chart per direction; none without a curve."""
    return [
        _bytes_chart(report, direction) for direction in reversed(measurements.DIRECTIONS) if report.curve
    ]


def _bytes_chart(report: measurements.Measurements, direction: str) -> content.LineChart:
    names = curve_systems(report)
    x = _bytes_axis([point.n_bytes for point in report.curve])
    lines = [_curve_line(report, name, direction) for name in names]
    lines += _level_lines(
        report, direction, x, [name for name in ("uncompressed", "chance") if name not in names]
    )
    highest = max(high for line in lines for _, high in line.intervals)
    points = zip(lines[0].across, lines[0].up, strict=True)
    own_recalls = ", ".join(f"{of_100(y)} of 100 with {plural(int(size), 'byte')}" for size, y in points)
    return content.LineChart(
        f"bytes-{direction.replace('_', '-')}",
        DIRECTION_TITLES[direction],
        f"Recall@10 against bytes per item; {lines[0].name}: {own_recalls}",
        x,
        content.share_axis(highest, "recall@10, of 100"),
        lines,
    )


def _curve_line(report: measurements.Measurements, name: str, direction: str) -> content.Line:
    found = [point.recall[name][direction] for point in report.curve]
    sizes = [float(point.n_bytes) for point in report.curve]
    intervals = [(each.low, each.high) for each in found]
    return content.Line(SHORT_NAMES[name], _STYLES[name], sizes, [each.value for each in found], intervals)


def _level_lines(
    report: measurements.Measurements, direction: str, x: content.Axis, names: list[str]
) -> list[content.Line]:
    found = measurements.recalls(report)
    levels = [(name, found[name][direction].value) for name in names if name in found]
    return [
        content.Line(SHORT_NAMES[name], _STYLES[name], [x.low, x.high], [y, y], [(y, y)] * 2, marked=False)
        for name, y in levels
    ]


def _bytes_axis(sizes: list[int]) -> content.Axis:
    ticks = [(float(size), count(size)) for size in sizes]
    return content.Axis("bytes per item", sizes[0] / 1.3, sizes[-1] * 1.3, ticks, "log")


def size_chart(report: measurements.Measurements) -> content.LineChart:
    """Chart the recall@10 of crossbyte against the number of items, a line for each number of bytes.

    Needs a curve.
    """
    sizes = sorted({size for point in report.curve for size, _ in point.by_size})
    others = iter(_OTHER_STYLES * len(report.curve))
    lines = []
    for point in report.curve:
        style = _STYLES["crossbyte"] if point.n_bytes == report.n_bytes else next(others)
        across, up = [float(size) for size, _ in point.by_size], [y for _, y in point.by_size]
        lines.append(content.Line(plural(point.n_bytes, "byte"), style, across, up))
    own = next((line for line in lines if line.style == _STYLES["crossbyte"]), lines[0])
    x = content.size_axis("items in the index", sizes[0], sizes[-1])
    lines.append(_chance_line(x.low, x.high))
    points = zip(own.across, own.up, strict=True)
    own_recalls = ", ".join(f"{of_100(y)} of 100 among {count(size)}" for size, y in points)
    return content.LineChart(
        "sizes",
        "Recall@10 against the size of the index",
        f"Recall@10 of crossbyte against the number of items; {own.name}: {own_recalls}",
        x,
        content.share_axis(max(y for line in lines for y in line.up), "recall@10, of 100"),
        lines,
    )


def _chance_line(low: float, high: float) -> content.Line:
    """Draw chance along the whole axis: it is no straight line there."""
    steps = 24
    sizes = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    return content.Line(
        "chance", _STYLES["chance"], sizes, [min(1.0, 10 / size) for size in sizes], marked=False
    )


def reliability_charts(report: measurements.Measurements) -> list[content.LineChart]:
    """Chart the stated probability against what came true, one chart per direction."""
    return [_reliability_chart(each) for each in report.reliability if each.bins]


def _reliability_chart(each: measurements.Reliability) -> content.LineChart:
    intervals = [_wilson_interval(share, number) for _, share, number in each.bins]
    stated, shares = [stated for stated, _, _ in each.bins], [share for _, share, _ in each.bins]
    highest = max(*stated, *(high for _, high in intervals))
    lines = [
        content.Line("hits in equal bins", _STYLES["crossbyte"], stated, shares, intervals, joined=False),
        content.Line("as true as stated", _STYLES["chance"], [0.0, 1.0], [0.0, 1.0], marked=False),
    ]
    return content.LineChart(
        f"reliability-{each.query}-{each.target}",
        describe_direction(each),
        f"Stated probability against the share that came true; mean gap {percent(each.error)} points",
        content.root_axis(highest, "stated probability, %"),
        content.root_axis(highest, "came true, %"),
        lines,
    )


def _wilson_interval(share: float, number: int) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share of ``number`` trials."""
    if number < 1:
        return share, share
    squared = 1.96**2 / number
    middle = (share + squared / 2) / (1 + squared)
    half = sqrt(max(0.0, share * (1 - share) * squared + squared**2 / 4)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)
