"""What a report is made of, before it is a page or Markdown: sections, tables, charts."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["BarChart", "Bars", "Cell", "Chart", "Figure", "Line", "LineChart", "Row", "Section", "Table"]


class Cell(NamedTuple):
    """A cell of a table: its text, a smaller line below, and whether it is the best of its column."""

    text: str
    below: str = ""
    best: bool = False


class Row(NamedTuple):
    """A row; quiet ones are there for comparison (chance, ceilings, quoted figures)."""

    cells: tuple[Cell, ...]
    quiet: bool = False


class Table(NamedTuple):
    """A table; the first cell of a row names it.

    Attributes
    ----------
    caption : str
        With protocol, data set and number of seeds.
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


class Line(NamedTuple):
    """A curve.

    Attributes
    ----------
    name : str
        Empty for none in the legend.
    style : str
        Key of a system or of a role, see ``drawing``.
    across, up : list of float
    hollow : bool
        Thinner and with hollow marks: the same system, taught with labels.
    """

    name: str
    style: str
    across: list[float]
    up: list[float]
    hollow: bool = False


class LineChart(NamedTuple):
    """Curves over two axes.

    Attributes
    ----------
    key : str
        Unique in the report; made of letters, digits and hyphens.
    title, said : str
        Heading, and what a reader that cannot see the picture should know.
    x_title, y_title : str
    lines : list of Line
    log_x : bool
    """

    key: str
    title: str
    said: str
    x_title: str
    y_title: str
    lines: list[Line]
    log_x: bool = False


class Bars(NamedTuple):
    """One bar in each group; None where there is none."""

    name: str
    style: str
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


Chart = LineChart | BarChart


class Figure(NamedTuple):
    """Several charts under one caption."""

    caption: str
    charts: list[Chart]


class Section(NamedTuple):
    """A part of the report; tables in `details` are folded away at first."""

    key: str
    heading: str
    paragraphs: list[str]
    tables: list[Table] = []
    figures: list[Figure] = []
    details: list[Table] = []
