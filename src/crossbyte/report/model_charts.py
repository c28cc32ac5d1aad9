"""Make the charts of a model's report."""

from __future__ import annotations

from math import sqrt

from crossbyte._format import count, of_100, percent, plural
from crossbyte.report.axes import Axis, root_axis, share_axis, size_axis
from crossbyte.report.content import Dot, DotChart, Line, LineChart, Style
from crossbyte.report.measurements import DIRECTIONS, Estimate, Measurements, Reliability, recalls
from crossbyte.report.model_tables import LOOKING, SHORT, curve_systems, describe_direction

__all__ = ["bytes_charts", "reliability_charts", "size_chart", "system_chart"]

_STYLES = {
    "crossbyte": Style("s0", "disc"),
    "cca_pq": Style("s1", "square", "6 3"),
    "cca_rq": Style("s2", "triangle", "2 2"),
    "uncompressed": Style("s3", "diamond", "8 4"),
    "chance": Style("s4", "plus", "1 4"),
}
_OTHER_STYLES = (  # of other numbers of bytes
    Style("s5", "disc", "6 2 2 2"),
    Style("s6", "square", "10 3"),
    Style("s7", "triangle", "4 4"),
    _STYLES["cca_pq"],
    _STYLES["cca_rq"],
)


# Recall by system


def system_chart(report: Measurements) -> DotChart:
    """Recall@10 of every system in both directions, with intervals, as rows of marks."""
    found = recalls(report)
    x = share_axis(max(by[each].high for by in found.values() for each in DIRECTIONS), "recall@10, of 100")
    groups = [
        (LOOKING[direction], [_dot(name, by[direction]) for name, by in found.items()])
        for direction in reversed(DIRECTIONS)
    ]
    said = "; ".join(
        f"{LOOKING[direction]}: "
        + ", ".join(f"{SHORT[name]} {percent(by[direction].value)}" for name, by in found.items())
        for direction in reversed(DIRECTIONS)
    )
    return DotChart("systems", "Recall@10 of every system", said, x, groups)


def _dot(name: str, found: Estimate) -> Dot:
    return Dot(SHORT[name], _STYLES[name], *found, percent(found.value))


# Recall over bytes


def bytes_charts(report: Measurements) -> list[LineChart]:
    """Recall@10 against bytes, one chart per direction; none without a curve."""
    return [_bytes_chart(report, direction) for direction in reversed(DIRECTIONS) if report.curve]


def _bytes_chart(report: Measurements, direction: str) -> LineChart:
    names = curve_systems(report)
    x = _bytes_axis([point.n_bytes for point in report.curve])
    lines = [_curve(report, name, direction) for name in names]
    lines += _levels(report, direction, x, [name for name in ("uncompressed", "chance") if name not in names])
    highest = max(high for line in lines for _, high in line.intervals)
    points = zip(lines[0].across, lines[0].up, strict=True)
    own = ", ".join(f"{of_100(y)} of 100 with {plural(int(size), 'byte')}" for size, y in points)
    return LineChart(
        f"bytes-{direction.replace('_', '-')}",
        LOOKING[direction],
        f"Recall@10 against bytes per item; {lines[0].name}: {own}",
        x,
        share_axis(highest, "recall@10, of 100"),
        lines,
    )


def _curve(report: Measurements, name: str, direction: str) -> Line:
    found = [point.recall[name][direction] for point in report.curve]
    sizes = [float(point.n_bytes) for point in report.curve]
    intervals = [(each.low, each.high) for each in found]
    return Line(SHORT[name], _STYLES[name], sizes, [each.value for each in found], intervals)


def _levels(report: Measurements, direction: str, x: Axis, names: list[str]) -> list[Line]:
    found = recalls(report)
    levels = [(name, found[name][direction].value) for name in names if name in found]
    return [
        Line(SHORT[name], _STYLES[name], [x.low, x.high], [y, y], [(y, y)] * 2, marked=False)
        for name, y in levels
    ]


def _bytes_axis(sizes: list[int]) -> Axis:
    ticks = [(float(size), count(size)) for size in sizes]
    return Axis("bytes per item", sizes[0] / 1.3, sizes[-1] * 1.3, ticks, "log")


# Recall over the size of the index


def size_chart(report: Measurements) -> LineChart:
    """Recall@10 of crossbyte against the number of items, a line for each number of bytes.

    Needs a curve.
    """
    sizes = sorted({size for point in report.curve for size, _ in point.by_size})
    others = iter(_OTHER_STYLES * len(report.curve))
    lines = []
    for point in report.curve:
        style = _STYLES["crossbyte"] if point.n_bytes == report.n_bytes else next(others)
        across, up = [float(size) for size, _ in point.by_size], [y for _, y in point.by_size]
        lines.append(Line(plural(point.n_bytes, "byte"), style, across, up))
    own = next((line for line in lines if line.style == _STYLES["crossbyte"]), lines[0])
    x = size_axis("items in the index", sizes[0], sizes[-1])
    lines.append(_chance(x.low, x.high))
    points = zip(own.across, own.up, strict=True)
    said = ", ".join(f"{of_100(y)} of 100 among {count(size)}" for size, y in points)
    return LineChart(
        "sizes",
        "Recall@10 against the size of the index",
        f"Recall@10 of crossbyte against the number of items; {own.name}: {said}",
        x,
        share_axis(max(y for line in lines for y in line.up), "recall@10, of 100"),
        lines,
    )


def _chance(low: float, high: float) -> Line:
    """Chance along the whole axis: it is no straight line there."""
    steps = 24
    sizes = [low * (high / low) ** (step / steps) for step in range(steps + 1)]
    return Line("chance", _STYLES["chance"], sizes, [min(1.0, 10 / size) for size in sizes], marked=False)


# Reliability


def reliability_charts(report: Measurements) -> list[LineChart]:
    """Stated probability against what came true, one chart per direction."""
    return [_reliability_chart(each) for each in report.reliability if each.bins]


def _reliability_chart(each: Reliability) -> LineChart:
    intervals = [_wilson(share, number) for _, share, number in each.bins]
    stated, shares = [stated for stated, _, _ in each.bins], [share for _, share, _ in each.bins]
    highest = max(*stated, *(high for _, high in intervals))
    lines = [
        Line("hits in equal bins", _STYLES["crossbyte"], stated, shares, intervals, joined=False),
        Line("as true as stated", _STYLES["chance"], [0.0, 1.0], [0.0, 1.0], marked=False),
    ]
    return LineChart(
        f"reliability-{each.query}-{each.target}",
        describe_direction(each),
        f"Stated probability against the share that came true; mean gap {percent(each.error)} points",
        root_axis(highest, "stated probability, %"),
        root_axis(highest, "came true, %"),
        lines,
    )


def _wilson(share: float, number: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many."""
    if number < 1:
        return share, share
    squared = 1.96**2 / number
    middle = (share + squared / 2) / (1 + squared)
    half = sqrt(max(0.0, share * (1 - share) * squared + squared**2 / 4)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)
