"""The plots of a quality report, as SVG text."""

from __future__ import annotations

from math import ceil, floor, log10, sqrt

from crossbyte.model.report.phrases import count, n_bytes, of_100, percent
from crossbyte.model.report.report import DIRECTIONS, Estimate, Reliability, Report
from crossbyte.model.report.svg import (
    WIDTH,
    Axis,
    Drawing,
    Panel,
    Series,
    bar,
    chart,
    drawing,
    grid,
    label,
    mark,
)
from crossbyte.model.report.tables import LOOKING, SHORT, asked, curve_systems, recalls

__all__ = ["bytes_plots", "reliability_plots", "size_plot", "system_plot"]

_STYLES = {"crossbyte": 0, "cca_pq": 1, "cca_rq": 2, "uncompressed": 3, "chance": 4}
_OTHER_STYLES = (5, 6, 7, 1, 2)  # of other numbers of bytes
_ROW = 22.0  # height of a row of the first plot

_Point = tuple[float, float, float, float]


# Recall by system


def system_plot(report: Report) -> Drawing:
    """Recall@10 of every system in both directions, with intervals, as rows of marks."""
    found = recalls(report)
    rows = [(direction, name) for direction in reversed(DIRECTIONS) for name in (None, *found)]
    x = share_axis(max(by[each].high for by in found.values() for each in DIRECTIONS), "recall@10, of 100")
    panel = Panel(112.0, 6.0, WIDTH - 112 - 62, _ROW * len(rows), x, Axis("", 0, 1, []))
    shapes = [*grid(panel)]
    for place, (direction, name) in enumerate(rows):
        down = panel.top + _ROW * (place + 0.5)
        shapes += (
            [_heading(down, direction)] if name is None else _row(panel, down, name, found[name][direction])
        )
    said = "; ".join(
        f"{LOOKING[direction]}: "
        + ", ".join(f"{SHORT[name]} {percent(by[direction].value)}" for name, by in found.items())
        for direction in reversed(DIRECTIONS)
    )
    return drawing("systems", "Recall@10 of every system", said, panel.top + panel.height + 46, shapes)


def _heading(down: float, direction: str) -> str:
    return label(6, down + 5, LOOKING[direction], kind="title")


def _row(panel: Panel, down: float, name: str, found: Estimate) -> list[str]:
    style = _STYLES[name]
    shapes = [label(panel.left - 10, down + 4, SHORT[name], anchor="end")]
    if found.high > found.low:
        shapes.append(bar(panel.across(found.low), panel.across(found.high), down, style))
    shapes.append(mark(panel.across(found.value), down, style))
    shapes.append(label(WIDTH - 6, down + 4, percent(found.value), anchor="end"))
    return shapes


# Recall over bytes


def bytes_plots(report: Report) -> list[Drawing]:
    """Recall@10 against bytes, one plot per direction; none without a curve."""
    return [_bytes_plot(report, direction) for direction in reversed(DIRECTIONS) if report.curve]


def _bytes_plot(report: Report, direction: str) -> Drawing:
    names = curve_systems(report)
    series = [Series(SHORT[name], _STYLES[name], _curve(report, name, direction)) for name in names]
    x = _bytes_axis([point.n_bytes for point in report.curve])
    series += _levels(
        report, direction, x, [name for name in ("uncompressed", "chance") if name not in names]
    )
    highest = max(high for each in series for _, _, _, high in each.points)
    own = ", ".join(f"{of_100(y)} of 100 with {n_bytes(int(size))}" for size, y, _, _ in series[0].points)
    return chart(
        f"bytes-{direction.replace('_', '-')}",
        LOOKING[direction],
        f"Recall@10 against bytes per item; {series[0].name}: {own}",
        x,
        share_axis(highest, "recall@10, of 100"),
        series,
    )


def _curve(report: Report, name: str, direction: str) -> list[_Point]:
    return [(float(point.n_bytes), *point.recall[name][direction]) for point in report.curve]


def _levels(report: Report, direction: str, x: Axis, names: list[str]) -> list[Series]:
    found = recalls(report)
    return [
        Series(SHORT[name], _STYLES[name], _level(x, found[name][direction].value), marked=False)
        for name in names
        if name in found
    ]


def _level(x: Axis, y: float) -> list[_Point]:
    return [(x.low, y, y, y), (x.high, y, y, y)]


def _bytes_axis(sizes: list[int]) -> Axis:
    ticks = [(float(size), count(size)) for size in sizes]
    return Axis("bytes per item", sizes[0] / 1.3, sizes[-1] * 1.3, ticks, "log")


# Recall over the size of the index


def size_plot(report: Report) -> Drawing:
    """Recall@10 of crossbyte against the number of items, a line for each number of bytes.

    Needs a curve.
    """
    sizes = sorted({size for point in report.curve for size, _ in point.by_size})
    others = iter(_OTHER_STYLES * len(report.curve))
    series = [
        Series(
            n_bytes(point.n_bytes),
            0 if point.n_bytes == report.n_bytes else next(others),
            [(float(size), y, y, y) for size, y in point.by_size],
        )
        for point in report.curve
    ]
    x = _size_axis(sizes[0], sizes[-1])
    series.append(Series("chance", _STYLES["chance"], _chance(x.low, x.high), marked=False))
    highest = max(y for each in series for _, y, _, _ in each.points)
    own = min(series, key=lambda each: each.style)
    said = ", ".join(f"{of_100(y)} of 100 among {count(size)}" for size, y, _, _ in own.points)
    return chart(
        "sizes",
        "Recall@10 against the size of the index",
        f"Recall@10 of crossbyte against the number of items; {own.name}: {said}",
        x,
        share_axis(highest, "recall@10, of 100"),
        series,
    )


def _chance(low: float, high: float) -> list[_Point]:
    """Chance along the whole axis: it is no straight line there."""
    steps = 24
    sizes = (low * (high / low) ** (step / steps) for step in range(steps + 1))
    return [(size, y, y, y) for size in sizes for y in (min(1.0, 10 / size),)]


def _size_axis(low: int, high: int) -> Axis:
    decades = [10**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]
    ticks = decades if len(decades) > 1 else sorted({low, high})
    return Axis("items in the index", low / 1.2, high * 1.2, [(float(t), _brief(t)) for t in ticks], "log")


def _brief(number: int) -> str:
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= unit and number % (unit // 10) == 0:
            return f"{number / unit:g}{letter}"
    return count(number)


# Reliability


def reliability_plots(report: Report) -> list[Drawing]:
    """Stated probability against what came true, one diagram per direction."""
    return [_reliability_plot(each) for each in report.reliability if each.bins]


def _reliability_plot(each: Reliability) -> Drawing:
    points = [(stated, share, *_wilson(share, number)) for stated, share, number in each.bins]
    highest = max(max(stated, high) for stated, _, _, high in points)
    series = [
        Series("hits in equal bins", 0, points, joined=False),
        Series("as true as stated", 4, [(0.0, 0.0, 0.0, 0.0), (1.0, 1.0, 1.0, 1.0)], marked=False),
    ]
    return chart(
        f"reliability-{each.query}-{each.target}",
        asked(each),
        f"Stated probability against the share that came true; mean gap {percent(each.error)} points",
        _root_axis(highest, "stated probability, %"),
        _root_axis(highest, "came true, %"),
        series,
    )


def _wilson(share: float, number: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a share of so many."""
    if number < 1:
        return share, share
    squared = 1.96**2 / number
    middle = (share + squared / 2) / (1 + squared)
    half = sqrt(max(0.0, share * (1 - share) * squared + squared**2 / 4)) / (1 + squared)
    return max(0.0, middle - half), min(1.0, middle + half)


# Axes of shares


def share_axis(highest: float, title: str) -> Axis:
    """An axis from 0 to a round number, in units of 100."""
    top = next((each for each in (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if highest <= each), 1.0)
    steps = 5 if top in (0.05, 0.1, 1.0) else 4
    ticks = [(top * step / steps, f"{100 * top * step / steps:g}") for step in range(steps + 1)]
    return Axis(title, 0.0, top, ticks)


def _root_axis(highest: float, title: str) -> Axis:
    """An axis on which small probabilities, which are most of them, have room."""
    rounds = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
    top = next((each for each in rounds if highest <= each), 1.0)
    ticks = [0.0]
    for each in rounds:
        if each <= top and sqrt(each / top) - sqrt(ticks[-1] / top) > 0.09:
            ticks.append(each)
    return Axis(title, 0.0, top, [(tick, f"{100 * tick:g}") for tick in ticks], "sqrt")
