"""Describe a report: sections, paragraphs, tables, charts and their axes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import ceil, floor, isfinite, log, log10, sqrt
from typing import NamedTuple

from crossbyte._format import count

_LARGEST = 1e100  # beyond, differences of values would overflow
_MOST_TICKS = 6


class Axis(NamedTuple):
    """One axis of a chart.

    Attributes
    ----------
    title : str
    low, high : float
        Different from each other.
    ticks : list of (value, label)
    scale : {"linear", "log", "sqrt"}
    """

    title: str
    low: float
    high: float
    ticks: list[tuple[float, str]]
    scale: str = "linear"

    def at(self, value: float) -> float:
        """Place a value between both ends, from 0 to 1; beyond them, at the end."""
        bend = _SCALES[self.scale]
        inside = min(max(value, self.low), self.high)
        return (bend(inside) - bend(self.low)) / (bend(self.high) - bend(self.low))


_SCALES: dict[str, Callable[[float], float]] = {"linear": float, "log": log, "sqrt": sqrt}


# Axes of any numbers


def linear_axis(
    title: str, values: Iterable[float], *, from_zero: bool = False, least_range: float = 0.0
) -> Axis:
    """Fit a linear axis around values.

    Parameters
    ----------
    title : str
    values : iterable of float
        Those that are not finite are left out.
    from_zero : bool
        Zero is an end of the axis (or inside it, where values are on both sides), and so is the last value.
    least_range : float
        Show no less than this, so that noise does not look like a mountain.
    """
    known = [min(max(value, -_LARGEST), _LARGEST) for value in values if isfinite(value)]
    known += [0.0] if from_zero or not known else []
    low, high = min(known), max(known)
    if not from_zero:
        room = 0.05 * (high - low)
        low, high = low - room, high + room
    least = 1e-9 * max(abs(low), abs(high))  # below, ticks could not be told apart
    if high - low < max(least_range, least) or high == low:
        wider = least_range if least_range > least else 0.1 * abs(high) or 1.0
        middle = (low + high) / 2
        low, high = (low, low + wider) if from_zero else (middle - wider / 2, middle + wider / 2)
    return Axis(title, low, high, _linear_ticks(low, high))


def _linear_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Give the round numbers inside an axis, at most six."""
    power = 10.0 ** floor(log10((high - low) / 10))
    for step in (factor * power for factor in (1, 2, 2.5, 5, 10, 20)):
        first, last = ceil(low / step - 1e-6), floor(high / step + 1e-6)
        if last - first < _MOST_TICKS:
            break
    return [(place * step, _tick_text(place * step, step)) for place in range(first, last + 1)]


def _tick_text(value: float, step: float) -> str:
    if not 1e-6 <= step < 1e7:
        return f"{value:g}"
    decimals = next(n for n in range(9) if abs(round(step, n) - step) < 1e-3 * step)
    return f"{value + 0.0:,.{decimals}f}"


def log_axis(title: str, values: Iterable[float], *, whole: bool = False) -> Axis:
    """Fit a logarithmic axis around values, those above zero.

    Parameters
    ----------
    title : str
    values : iterable of float
    whole : bool
        Begin and end at powers of ten, and begin below the smallest value, so that its bar can be seen.
    """
    known = [min(max(value, 1 / _LARGEST), _LARGEST) for value in values if 0 < value < float("inf")]
    low, high = (min(known), max(known)) if known else (0.1, 1.0)
    if whole:
        low = 10.0 ** floor(log10(0.8 * low))
        high = max(10.0 ** ceil(log10(high)), 10 * low)
        return Axis(title, low, high, _log_ticks(low, high), "log")
    return Axis(title, low / 1.15, high * 1.15, _log_ticks(low, high), "log")


def _log_ticks(low: float, high: float) -> list[tuple[float, str]]:
    """Give powers of ten between two values; where there are fewer than two, halves and doubles, or both."""
    first, last = ceil(log10(low) - 1e-9), floor(log10(high) + 1e-9)
    decades = [10.0**power for power in range(first, last + 1, -(-(last - first + 1) // _MOST_TICKS) or 1)]
    if len(decades) < 2:
        steps = (factor * 10.0**power for power in range(first - 1, last + 2) for factor in (1, 2, 5))
        decades = [each for each in steps if low <= each <= high]
    if len(decades) < 2:
        decades = sorted({low, high})
    return [(each, f"{each:.3g}") for each in decades]


# Axes of shares, and of sizes


def share_axis(highest: float, title: str) -> Axis:
    """Give an axis from 0 to a round number, in units of 100."""
    top = next((each for each in (0.02, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8) if highest <= each), 1.0)
    steps = 5 if top in (0.05, 0.1, 1.0) else 4
    ticks = [(top * step / steps, f"{100 * top * step / steps:g}") for step in range(steps + 1)]
    return Axis(title, 0.0, top, ticks)


def root_axis(highest: float, title: str) -> Axis:
    """Give an axis with a square-root scale: small probabilities, which are most of them, have room."""
    rounds = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0)
    top = next((each for each in rounds if highest <= each), 1.0)
    ticks = [0.0]
    for each in rounds:
        if each <= top and sqrt(each / top) - sqrt(ticks[-1] / top) > 0.09:
            ticks.append(each)
    return Axis(title, 0.0, top, [(tick, f"{100 * tick:g}") for tick in ticks], "sqrt")


def size_axis(title: str, low: int, high: int) -> Axis:
    """Give a logarithmic axis of numbers of things, with room at both ends."""
    decades = [10**power for power in range(ceil(log10(low)), floor(log10(high)) + 1)]
    ticks = decades if len(decades) > 1 else sorted({low, high})
    return Axis(title, low / 1.2, high * 1.2, [(float(tick), _brief(tick)) for tick in ticks], "log")


def _brief(number: int) -> str:
    for unit, letter in ((10**9, "G"), (10**6, "M"), (10**3, "k")):
        if number >= unit and number % (unit // 10) == 0:
            return f"{number / unit:g}{letter}"
    return count(number)


class Cell(NamedTuple):
    """A cell of a table: its text, a smaller line below, and whether it is the best of its column."""

    text: str
    below: str = ""
    best: bool = False


class Row(NamedTuple):
    """A row; quiet ones are there for comparison (chance, ceilings, quoted figures)."""

    cells: tuple[Cell, ...]
    quiet: bool = False


def plain_row(texts: Iterable[str]) -> Row:
    """Make a row of cells that are nothing but text."""
    return Row(tuple(map(Cell, texts)))


class Table(NamedTuple):
    """A table; the first cell of a row names it.

    Attributes
    ----------
    caption : str
    header : tuple of str
    rows : list of Row
        As long as the header.
    words : int
        How many of the first columns hold words, and so start at the left.
    """

    caption: str
    header: tuple[str, ...]
    rows: list[Row]
    words: int = 1


class Style(NamedTuple):
    """How a line, its marks or a bar is drawn.

    Attributes
    ----------
    ink : str
        A colour, "s0" to "s8".
    mark : str
        Name of a shape, see ``svg``; empty for none.
    dashes : str
        Lengths of dashes and gaps; empty for a solid line.
    width : float
        Of the line; thicker lines are drawn above thinner ones.
    """

    ink: str
    mark: str = ""
    dashes: str = ""
    width: float = 2.0


class Line(NamedTuple):
    """A curve, or points.

    Attributes
    ----------
    name : str
        Empty for none in the legend.
    style : Style
    across, up : sequence of float
    intervals : sequence of (low, high)
        One for each point, or empty.
    hollow : bool
        Thinner and with hollow marks: the same system, taught with labels.
    marked, joined : bool
        Drawn with marks; with a line.
    """

    name: str
    style: Style
    across: Sequence[float]
    up: Sequence[float]
    intervals: Sequence[tuple[float, float]] = ()
    hollow: bool = False
    marked: bool = True
    joined: bool = True


class LineChart(NamedTuple):
    """Curves over two axes.

    Attributes
    ----------
    key : str
        Unique in the report; made of letters, digits and hyphens.
    title, description : str
        Heading, and the chart in words for readers who cannot see it.
    x, y : Axis
    lines : list of Line
    """

    key: str
    title: str
    description: str
    x: Axis
    y: Axis
    lines: list[Line]


class Dot(NamedTuple):
    """A value with its interval, in a row of its own; ``shown`` is the value as text."""

    name: str
    style: Style
    value: float
    low: float
    high: float
    shown: str


class DotChart(NamedTuple):
    """Values as rows of marks, in groups with headings.

    Attributes
    ----------
    key, title, description : str
        As of :class:`LineChart`.
    x : Axis
    groups : list of (heading, dots)
    """

    key: str
    title: str
    description: str
    x: Axis
    groups: list[tuple[str, list[Dot]]]


class Bars(NamedTuple):
    """One bar in each group; None where there is none."""

    name: str
    style: Style
    values: list[float | None]
    spreads: list[float | None]


class BarChart(NamedTuple):
    """Bars in groups, upright over a linear axis from 0, or horizontal over a logarithmic one.

    Attributes
    ----------
    key, title, description : str
        As of :class:`LineChart`.
    groups : list of str
    value_title, group_title : str
    bars : list of Bars
    chance : float or None
        Drawn as a line.
    level : bool
        Horizontal bars, for many groups with long names.
    """

    key: str
    title: str
    description: str
    groups: list[str]
    value_title: str
    group_title: str
    bars: list[Bars]
    chance: float | None = None
    level: bool = False


Chart = LineChart | DotChart | BarChart


class Figure(NamedTuple):
    """Several charts under one caption; an empty caption is not shown."""

    caption: str
    charts: list[Chart]


class Section(NamedTuple):
    """A part of a report.

    Attributes
    ----------
    key : str
        Unique in the report.
    heading : str
        Empty for what stands out at the top: the verdict.
    paragraphs : list of str
    tables : sequence of Table
    figures : sequence of Figure
        Shown before the tables.
    details : sequence of Table
        Tables that are folded away at first, and not in the plain text.
    details_title : str
    """

    key: str
    heading: str
    paragraphs: list[str]
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    details: Sequence[Table] = ()
    details_title: str = "Further tables"
