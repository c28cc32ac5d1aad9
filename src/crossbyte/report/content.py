"""What a report is made of, before it is text, Markdown or a page: sections, tables, charts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from crossbyte.report.axes import Axis

__all__ = [
    "BarChart",
    "Bars",
    "Cell",
    "Chart",
    "Dot",
    "DotChart",
    "Figure",
    "Line",
    "LineChart",
    "Row",
    "Section",
    "Style",
    "Table",
    "plain_row",
]


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
    title, said : str
        Heading, and what a reader that cannot see the picture should know.
    x, y : Axis
    lines : list of Line
    """

    key: str
    title: str
    said: str
    x: Axis
    y: Axis
    lines: list[Line]


class Dot(NamedTuple):
    """A value with its interval, in a row of its own; `shown` is the value as text."""

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
    key, title, said : str
        As of :class:`LineChart`.
    x : Axis
    groups : list of (heading, dots)
    """

    key: str
    title: str
    said: str
    x: Axis
    groups: list[tuple[str, list[Dot]]]


class Bars(NamedTuple):
    """One bar in each group; None where there is none."""

    name: str
    style: Style
    values: list[float | None]
    spreads: list[float | None]


class BarChart(NamedTuple):
    """Bars in groups, upright over a linear axis from 0, or level over a logarithmic one.

    Attributes
    ----------
    key, title, said : str
        As of :class:`LineChart`.
    groups : list of str
    value_title, group_title : str
    bars : list of Bars
    chance : float or None
        Drawn as a line.
    level : bool
        Level bars, for many groups with long names.
    """

    key: str
    title: str
    said: str
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
        For who wants to know it all: folded away at first, and not in the plain text.
    details_title : str
    """

    key: str
    heading: str
    paragraphs: list[str]
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    details: Sequence[Table] = ()
    details_title: str = "Further tables"
