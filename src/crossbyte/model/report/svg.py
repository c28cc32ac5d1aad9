"""Charts as SVG text, made of strings alone: axes, series with intervals, a legend, words to be read out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from math import log, sqrt
from typing import NamedTuple

__all__ = [
    "WIDTH",
    "Axis",
    "Drawing",
    "Panel",
    "Series",
    "bar",
    "chart",
    "drawing",
    "element",
    "grid",
    "label",
    "mark",
]

WIDTH = 380.0  # of every drawing, in its own units: near the width of a phone, so letters keep their size
LETTER = 7.2  # width of a letter, about
LINE = 20.0  # height of a line of the legend

_DASHES = ("", "6 3", "2 2", "8 4", "1 4", "6 2 2 2", "10 3", "4 4")
_MARKS = (
    "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1-4 0Z",  # disc
    "M-3.5-3.5H3.5V3.5H-3.5Z",  # square
    "M0-4.8L4.6 3.6H-4.6Z",  # triangle
    "M0-5.2L5.2 0L0 5.2L-5.2 0Z",  # diamond
    "M-4-1.3H-1.3V-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4Z",  # cross
)


class Axis(NamedTuple):
    """One axis of a panel.

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
        """Where a value is between both ends, from 0 to 1; beyond them, at the end."""
        bend = _SCALES[self.scale]
        inside = min(max(value, self.low), self.high)
        return (bend(inside) - bend(self.low)) / (bend(self.high) - bend(self.low))


_SCALES: dict[str, Callable[[float], float]] = {"linear": float, "log": log, "sqrt": sqrt}


class Panel(NamedTuple):
    """A rectangle with two axes."""

    left: float
    top: float
    width: float
    height: float
    x: Axis
    y: Axis

    def across(self, value: float) -> float:
        """Place of a value of the horizontal axis."""
        return self.left + self.width * self.x.at(value)

    def down(self, value: float) -> float:
        """Place of a value of the vertical axis, which grows upwards."""
        return self.top + self.height * (1 - self.y.at(value))


class Series(NamedTuple):
    """Points of one thing.

    Attributes
    ----------
    name : str
    style : int
        Colour, mark and dashes, from 0 to 7.
    points : list of (x, y, low, high)
    marked, joined : bool
        Drawn as marks with intervals; as a line.
    """

    name: str
    style: int
    points: Sequence[tuple[float, float, float, float]]
    marked: bool = True
    joined: bool = True


class Drawing(NamedTuple):
    """A finished picture: its title as plain text, and the whole as markup."""

    title: str
    markup: str


def chart(key: str, title: str, description: str, x: Axis, y: Axis, series: Sequence[Series]) -> Drawing:
    """Draw series over two axes, the first on top, with a legend above.

    Parameters
    ----------
    key : str
        Unique in the page.
    """
    legend, top = _legend(series)
    panel = Panel(58.0, top + 14, WIDTH - 58 - 18, 220.0, x, y)
    shapes = [shape for place, each in _from_below(series) for shape in _drawn(panel, each, place)]
    return drawing(key, title, description, top + 14 + 220 + 46, [*grid(panel), *shapes, *legend])


def _from_below(series: Sequence[Series]) -> Iterator[tuple[float, Series]]:
    """Give each series, the first last, and how far to move it aside, lest intervals hide each other."""
    crowded = [each for each in series if each.joined and any(high > low for *_, low, high in each.points)]
    for each in reversed(series):
        yield 4 * (crowded.index(each) - (len(crowded) - 1) / 2) if each in crowded else 0.0, each


def _drawn(panel: Panel, series: Series, aside: float) -> Iterator[str]:
    places = [(panel.across(x) + aside, panel.down(y)) for x, y, _, _ in series.points]
    if series.joined:
        yield _path(places, series.style)
    if not series.marked:
        return
    for (across, down), (_, _, low, high) in zip(places, series.points, strict=True):
        if high > low:
            yield _line(across, panel.down(low), across, panel.down(high), f"bar s{series.style}")
        yield mark(across, down, series.style)


def drawing(key: str, title: str, description: str, height: float, shapes: Sequence[str]) -> Drawing:
    """One picture of shapes, with a title and a description for readers that are read to."""
    words = [
        element("title", escape(title), id=f"{key}-title"),
        element("desc", escape(description), id=f"{key}-desc"),
    ]
    labelled = f"{key}-title {key}-desc"
    size = f"0 0 {WIDTH:g} {height:g}"
    markup = element("svg", *words, *shapes, role="img", viewBox=size, aria_labelledby=labelled)
    return Drawing(title, markup)


def grid(panel: Panel) -> Iterator[str]:
    """Grid lines, labels of the ticks, and both titles."""
    bottom, right = panel.top + panel.height, panel.left + panel.width
    for value, words in panel.y.ticks:
        down = panel.down(value)
        yield _line(panel.left, down, right, down, "grid")
        yield label(panel.left - 6, down + 4, words, anchor="end")
    for value, words in panel.x.ticks:
        across = panel.across(value)
        yield _line(across, panel.top, across, bottom, "grid")
        yield label(across, bottom + 16, words, anchor="middle")
    yield label(panel.left + panel.width / 2, bottom + 36, panel.x.title, anchor="middle", kind="title")
    if panel.y.title:
        yield _upright(14, panel.top + panel.height / 2, panel.y.title)


def _legend(series: Sequence[Series]) -> tuple[list[str], float]:
    """Give the shapes of a legend, broken into lines, and its height."""
    shapes: list[str] = []
    left, top = 8.0, 10.0
    for each in series:
        width = 34 + LETTER * len(each.name) + 14
        if left > 8 and left + width > WIDTH:
            left, top = 8.0, top + LINE
        shapes += _legend_entry(each, left, top)
        left += width
    return shapes, top + LINE / 2


def _legend_entry(series: Series, left: float, top: float) -> Iterator[str]:
    if series.joined:
        yield _path([(left, top), (left + 28, top)], series.style)
    if series.marked:
        yield mark(left + 14, top, series.style)
    yield label(left + 34, top + 4, series.name)


def mark(across: float, down: float, style: int) -> str:
    """The mark of a style at a place."""
    shape = _MARKS[style % len(_MARKS)]
    return element("path", d=shape, transform=f"translate({across:.1f} {down:.1f})", class_=f"mark s{style}")


def bar(left: float, right: float, down: float, style: int) -> str:
    """A level interval."""
    return _line(left, down, right, down, f"bar s{style}")


def label(across: float, down: float, words: str, *, anchor: str = "start", kind: str = "label") -> str:
    """A line of text."""
    return element("text", escape(words), x=f"{across:.1f}", y=f"{down:.1f}", text_anchor=anchor, class_=kind)


def _upright(across: float, down: float, words: str) -> str:
    turn = f"translate({across:g} {down:g}) rotate(-90)"
    return element("text", escape(words), transform=turn, text_anchor="middle", class_="title")


def _line(left: float, top: float, right: float, bottom: float, kind: str) -> str:
    return element("path", d=f"M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}", class_=kind)


def _path(places: Sequence[tuple[float, float]], style: int) -> str:
    way = "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
    dashes = {"stroke_dasharray": _DASHES[style]} if _DASHES[style] else {}
    return element("path", d=way, class_=f"line s{style}", **dashes)


def element(name: str, *children: str, **attributes: str) -> str:
    """Markup of one element; children are markup already, attributes are plain text."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"
