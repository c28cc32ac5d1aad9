"""Write charts as SVG, from strings alone: axes, lines with intervals, bars, a legend, and a description.

A chart is near the width of a phone, so that letters keep their size; pages lay charts side by side. Colours
are classes: inside a page they are the page's, and a file of its own has them for light and dark with it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from math import cos, isfinite, pi, sin
from typing import NamedTuple

from crossbyte.report import content

INKS = {
    "ink": ("#1b1f24", "#e6edf3"),
    "soft": ("#57606a", "#9aa5b1"),
    "rule": ("#d8dee4", "#2d343c"),
    "back": ("#ffffff", "#0f1419"),
    "s0": ("#0072b2", "#56b4e9"),
    "s1": ("#b35900", "#e69f00"),
    "s2": ("#00795a", "#2fc99a"),
    "s3": ("#3d444d", "#c9d1d9"),
    "s4": ("#7d8590", "#8b949e"),
    "s5": ("#a3407b", "#e394c0"),
    "s6": ("#8a6d00", "#e5d75f"),
    "s7": ("#5b4bb5", "#a99cf5"),
    "s8": ("#c1121f", "#ff7b72"),
}
"""Colours on white and on black, after Okabe and Ito; every line also has marks or dashes of its own."""

WIDTH = 380.0  # of every chart
_HEIGHT = 220.0  # of the panel of most
_LETTER, _CAPITAL = 7.0, 9.0  # widths of letters, about
_LINE = 20.0  # height of a line of the legend
_ROW = 22.0  # height of a row of dots
_LEFT, _RIGHT, _BELOW = 58.0, 18.0, 46.0  # room beside a panel and below it
_LONGEST = 32  # letters of a name: names from files may be of any length, charts are not
_THINNER = 0.6  # lines with hollow marks
_MOST_MARKS = 8  # on a line

_CHANCE = content.Style("s3", dashes="4 3")


def _polygon(n_corners: int, radius: float, *, inner: float = 1.0) -> str:
    """Give a polygon with a corner on top; with `inner` below 1, a star."""
    n_points = n_corners * (1 if inner == 1 else 2)
    corners = []
    for place in range(n_points):
        angle = 2 * pi * place / n_points
        reach = radius * (inner if inner != 1 and place % 2 else 1.0)
        corners.append(f"{reach * sin(angle):.1f} {-reach * cos(angle):.1f}")
    return f"M{'L'.join(corners)}Z"


_MARKS = {
    "disc": "M-4 0A4 4 0 1 1 4 0A4 4 0 1 1-4 0Z",
    "square": "M-3.5-3.5H3.5V3.5H-3.5Z",
    "triangle": "M0-4.8L4.6 3.6H-4.6Z",
    "triangle down": "M0 4.8L4.6-3.6H-4.6Z",
    "triangle left": "M-4.8 0L3.6 4.6V-4.6Z",
    "triangle right": "M4.8 0L-3.6 4.6V-4.6Z",
    "diamond": "M0-5.2L5.2 0L0 5.2L-5.2 0Z",
    "plus": "M-4-1.3H-1.3V-4H1.3V-1.3H4V1.3H1.3V4H-1.3V1.3H-4Z",
    "cross": "M-4.5-3L-3-4.5L0-1.5L3-4.5L4.5-3L1.5 0L4.5 3L3 4.5L0 1.5L-3 4.5L-4.5 3L-1.5 0Z",
    "pentagon": _polygon(5, 4.8),
    "hexagon": _polygon(6, 4.8),
    "star": _polygon(5, 5.4, inner=0.4),
}


class _Panel(NamedTuple):
    """A rectangle with two axes."""

    left: float
    top: float
    width: float
    height: float
    x: content.Axis
    y: content.Axis

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + self.height

    def across(self, value: float) -> float:
        """Place of a value of the horizontal axis."""
        return self.left + self.width * self.x.at(value)

    def down(self, value: float) -> float:
        """Place of a value of the vertical axis, which grows upwards."""
        return self.top + self.height * (1 - self.y.at(value))


_ROWS = content.Axis("", 0.0, 1.0, [])
"""In the place of an axis, where names of rows or groups stand."""


class _Drawn(NamedTuple):
    """What was drawn, and how high the whole is."""

    height: float
    shapes: list[str]


# The whole


def chart_markup(chart: content.Chart) -> str:
    """Draw a chart for a page that has :func:`chart_rules` in its style sheet."""
    drawn = _draw(chart)
    size = f"0 0 {WIDTH:g} {drawn.height:g}"
    labelled = f"{chart.key}-title {chart.key}-desc"
    return element(
        "svg",
        *_title_and_description(chart),
        *drawn.shapes,
        role="img",
        viewBox=size,
        aria_labelledby=labelled,
    )


def chart_file(chart: content.Chart) -> str:
    """Draw a chart as a file of its own: with its colours, light or dark as the reader's system is."""
    drawn = _draw(chart)
    return _file(_title_and_description(chart), drawn.shapes, WIDTH, drawn.height)


def sheet_file(title: str, charts: Sequence[content.Chart], n_columns: int) -> str:
    """Draw several charts as one file, row by row, each below its own title."""
    shapes: list[str] = []
    top = 0.0
    for start in range(0, len(charts), n_columns):
        row = [(chart, _draw(chart)) for chart in charts[start : start + n_columns]]
        for place, (chart, drawn) in enumerate(row):
            heading = _label(WIDTH / 2, 18, chart.title, **_TITLE)
            moved = element("g", *drawn.shapes, transform="translate(0 30)")
            described = _title_and_description(chart)
            whole = element(
                "g", *described, heading, moved, transform=f"translate({WIDTH * place:g} {top:g})"
            )
            shapes.append(whole)
        top += 40 + max(drawn.height for _, drawn in row)
    return _file([element("title", _text(title))], shapes, WIDTH * n_columns, top)


def _file(head: Sequence[str], shapes: Sequence[str], width: float, height: float) -> str:
    light, dark = (chart_rules({name: both[place] for name, both in INKS.items()}) for place in (0, 1))
    rules = f"{light}@media (prefers-color-scheme: dark) {{\n{dark}}}\n"
    size = {"width": f"{width:g}", "height": f"{height:g}"}
    whole = element(
        "svg",
        *head,
        element("style", rules),
        element("rect", width="100%", height="100%", class_="back"),
        *shapes,
        xmlns="http://www.w3.org/2000/svg",
        role="img",
        viewBox=f"0 0 {width:g} {height:g}",
        **size,
    )
    return f"{whole}\n"


def chart_rules(colours: dict[str, str]) -> str:
    """Give the rules that charts need, with colours by the names of :data:`INKS`, as values or variables."""
    inks = "".join(f".{name} {{ color: {value}; }}\n" for name, value in colours.items() if name[1].isdigit())
    return (
        "svg { font: 12.5px system-ui, sans-serif; stroke-linejoin: round; }\n"
        f".back {{ fill: {colours['back']}; }}\n"
        f".label {{ fill: {colours['soft']}; }}\n"
        f".title {{ fill: {colours['ink']}; stroke: {colours['back']}; stroke-width: 4px; "
        "paint-order: stroke; }\n"
        f".grid {{ stroke: {colours['rule']}; }}\n"
        ".line { stroke: currentColor; fill: none; }\n"
        ".bar { stroke: currentColor; stroke-width: 2; opacity: .55; }\n"
        ".mark, .box { fill: currentColor; }\n"
        f".hollow {{ fill: {colours['back']}; stroke: currentColor; stroke-width: 1.4; }}\n"
        f".spread {{ stroke: {colours['ink']}; stroke-width: 1.5; }}\n" + inks
    )


def _draw(chart: content.Chart) -> _Drawn:
    if isinstance(chart, content.LineChart):
        return _draw_lines(chart)
    return _draw_dots(chart) if isinstance(chart, content.DotChart) else _draw_bars(chart)


def _title_and_description(chart: content.Chart) -> list[str]:
    """Make the title and the description, which screen readers read out."""
    return [
        element("title", _text(chart.title), id=f"{chart.key}-title"),
        element("desc", _text(chart.description), id=f"{chart.key}-desc"),
    ]


# Lines


def _draw_lines(chart: content.LineChart) -> _Drawn:
    """Draw lines over two axes, the first and the thickest on top, with a legend above."""
    legend, top = _legend([(line.name, partial(_line_sample, line)) for line in chart.lines])
    panel = _Panel(_LEFT, top + 14, WIDTH - _LEFT - _RIGHT, _HEIGHT, chart.x, chart.y)
    shapes = [*_grid(panel)]
    crowded = [
        line for line in chart.lines if line.joined and any(high > low for low, high in line.intervals)
    ]
    numbered = [*enumerate(chart.lines)][::-1]
    for place, line in sorted(numbered, key=lambda each: each[1].style.width):
        aside = 4 * (crowded.index(line) - (len(crowded) - 1) / 2) if line in crowded else 0.0
        shapes += _line_shapes(panel, line, place, aside)
    return _Drawn(panel.bottom + _BELOW, [*shapes, *legend])


def _line_shapes(panel: _Panel, line: content.Line, place: int, aside: float) -> Iterator[str]:
    """Draw one line, moved aside, lest intervals hide each other."""
    intervals = line.intervals or [(up, up) for up in line.up]
    points = [
        each for each in zip(line.across, line.up, intervals, strict=True) if isfinite(each[0] + each[1])
    ]
    places = [(panel.across(x) + aside, panel.down(y)) for x, y, _ in points]
    if line.joined and places:
        yield _path(places, line)
    if not _is_marked(line):
        return
    # Of long lines, some points have a mark, each line beginning at another, so that they do not pile up.
    step = 1 if line.intervals else max(1, len(points) // _MOST_MARKS)
    for (across, down), (_, _, (low, high)) in [*zip(places, points, strict=True)][place % step :: step]:
        if high > low:
            yield _stroke(across, panel.down(low), across, panel.down(high), f"bar {line.style.ink}")
        yield _mark(across, down, line.style, hollow=line.hollow)


def _is_marked(line: content.Line) -> bool:
    return line.marked and bool(line.style.mark)


def _line_sample(line: content.Line, left: float, top: float) -> Iterator[str]:
    """Draw a piece of a line for the legend."""
    if line.joined:
        yield _path([(left, top), (left + 28, top)], line)
    if _is_marked(line):
        yield _mark(left + 14, top, line.style, hollow=line.hollow)


# Rows of dots


def _draw_dots(chart: content.DotChart) -> _Drawn:
    left, n_rows = 112.0, sum(1 + len(dots) for _, dots in chart.groups)
    panel = _Panel(left, 6.0, WIDTH - left - 62, _ROW * n_rows, chart.x, _ROWS)
    shapes = [*_grid(panel)]
    down = panel.top + _ROW / 2
    for heading, dots in chart.groups:
        shapes.append(_label(6, down + 5, heading, kind="title"))
        for place, dot in enumerate(dots, start=1):
            shapes += _dot_shapes(panel, down + _ROW * place, dot)
        down += _ROW * (1 + len(dots))
    return _Drawn(panel.bottom + _BELOW, shapes)


def _dot_shapes(panel: _Panel, down: float, dot: content.Dot) -> Iterator[str]:
    yield _label(panel.left - 10, down + 4, dot.name, anchor="end")
    if dot.high > dot.low:
        yield _stroke(panel.across(dot.low), down, panel.across(dot.high), down, f"bar {dot.style.ink}")
    yield _mark(panel.across(dot.value), down, dot.style)
    yield _label(WIDTH - 6, down + 4, dot.shown, anchor="end")


# Bars


def _draw_bars(chart: content.BarChart) -> _Drawn:
    entries: list[tuple[str, _Sample]] = [(each.name, partial(_bar_sample, each)) for each in chart.bars]
    if chart.chance is not None and not chart.level:
        entries.append(("chance", partial(_line_sample, content.Line("chance", _CHANCE, [], []))))
    legend, top = _legend(entries)
    drawn = _level_bars(chart, top + 14) if chart.level else _upright_bars(chart, top + 14)
    return _Drawn(drawn.height, [*drawn.shapes, *legend])


def _upright_bars(chart: content.BarChart, top: float) -> _Drawn:
    known = [
        (value, spread or 0.0)
        for each in chart.bars
        for value, spread in zip(each.values, each.spreads, strict=True)
        if value is not None
    ]
    shown = [*(value + spread for value, spread in known), *([] if chart.chance is None else [chart.chance])]
    y = content.linear_axis(chart.value_title, shown, from_zero=True)
    panel = _Panel(_LEFT, top, WIDTH - _LEFT - _RIGHT, _HEIGHT, _ROWS, y)
    shapes = [*_grid(panel)]
    slot = panel.width / max(1, len(chart.groups))
    for place, group in enumerate(chart.groups):
        middle = panel.left + slot * (place + 0.5)
        shapes.append(_label(middle, panel.bottom + 16, _shorten(group, int(slot / 7)), anchor="middle"))
        width = 0.8 * slot / max(1, len(chart.bars))
        for nth, each in enumerate(chart.bars):
            left = middle - 0.4 * slot + width * nth
            shapes += _upright_bar(panel, left, 0.92 * width, each, place)
    shapes.append(_label(panel.left + panel.width / 2, panel.bottom + 36, chart.group_title, **_TITLE))
    if chart.chance is not None:
        level = panel.down(chart.chance)
        shapes.append(_path([(panel.left, level), (panel.right, level)], content.Line("", _CHANCE, [], [])))
    return _Drawn(panel.bottom + _BELOW, shapes)


def _upright_bar(panel: _Panel, left: float, width: float, bars: content.Bars, place: int) -> Iterator[str]:
    value, spread = bars.values[place], bars.spreads[place]
    if value is None or not isfinite(value):
        return
    top, bottom = sorted((panel.down(value), panel.down(0.0)))
    yield _box(left, top, width, bottom - top, bars.style)
    if spread:
        middle, low, high = left + width / 2, panel.down(value - spread), panel.down(value + spread)
        yield _stroke(middle, low, middle, high, "spread")
        for end in (low, high):
            yield _stroke(middle - 3, end, middle + 3, end, "spread")


def _level_bars(chart: content.BarChart, top: float) -> _Drawn:
    names = [_shorten(group, _LONGEST - 8) for group in chart.groups]
    left = 14 + max(map(_text_width, names), default=0.0)
    x = content.log_axis(
        chart.value_title, [v for each in chart.bars for v in each.values if v is not None], whole=True
    )
    panel = _Panel(left, top, WIDTH - left - 24, (_ROW + 2) * len(names), x, _ROWS)
    shapes = [*_grid(panel)]
    height = 0.8 * (_ROW + 2) / max(1, len(chart.bars))
    for place, name in enumerate(names):
        middle = panel.top + (_ROW + 2) * (place + 0.5)
        shapes.append(_label(left - 8, middle + 4, name, anchor="end"))
        for nth, each in enumerate(chart.bars):
            value = each.values[place]
            if value is not None and value > 0:
                down = middle + height * (nth - len(chart.bars) / 2)
                shapes.append(_box(left, down, panel.across(value) - left, 0.92 * height, each.style))
    return _Drawn(panel.bottom + _BELOW, shapes)


def _bar_sample(bars: content.Bars, left: float, top: float) -> Iterator[str]:
    """Draw a piece of a bar for the legend."""
    yield _box(left + 8, top - 6, 12, 12, bars.style)


# Axes and legend


def _grid(panel: _Panel) -> Iterator[str]:
    """Draw grid lines, labels of the ticks, and the titles."""
    for value, words in panel.y.ticks:
        down = panel.down(value)
        yield _stroke(panel.left, down, panel.right, down, "grid")
        yield _label(panel.left - 6, down + 4, words, anchor="end")
    for value, words in panel.x.ticks:
        across = panel.across(value)
        yield _stroke(across, panel.top, across, panel.bottom, "grid")
        yield _label(across, panel.bottom + 16, words, anchor="middle")
    if panel.x.title:
        yield _label(panel.left + panel.width / 2, panel.bottom + 36, panel.x.title, **_TITLE)
    if panel.y.title:
        turn = f"translate(14 {panel.top + panel.height / 2:g}) rotate(-90)"
        yield element("text", _text(panel.y.title), transform=turn, text_anchor="middle", class_="title")


_TITLE = {"anchor": "middle", "kind": "title"}
_Sample = Callable[[float, float], Iterator[str]]


def _legend(entries: Sequence[tuple[str, _Sample]]) -> tuple[list[str], float]:
    """Draw a legend, broken into lines, and give its height; entries without a name are left out."""
    named = [(_shorten(name), sample) for name, sample in entries if name]
    shapes: list[str] = []
    left, top = 8.0, 10.0
    for name, sample in named:
        width = 34 + _text_width(name) + 14
        if left > 8 and left + width > WIDTH:
            left, top = 8.0, top + _LINE
        shapes += [*sample(left, top), _label(left + 34, top + 4, name)]
        left += width
    return shapes, top + _LINE / 2 if named else 0.0


def _text_width(words: str) -> float:
    return sum(_CAPITAL if letter.isupper() else _LETTER for letter in words)


def _shorten(name: str, longest: int = _LONGEST) -> str:
    longest = max(2, longest)
    return name if len(name) <= longest else f"{name[: longest - 1]}…"


# Shapes


def _mark(across: float, down: float, style: content.Style, *, hollow: bool = False) -> str:
    kind = f"mark{' hollow' if hollow else ''} {style.ink}"
    place = f"translate({across:.1f} {down:.1f})"
    return element("path", d=_MARKS[style.mark], transform=place, class_=kind)


def _box(left: float, top: float, width: float, height: float, style: content.Style) -> str:
    way = f"M{left:.1f} {top:.1f}H{left + width:.1f}V{top + height:.1f}H{left:.1f}Z"
    return element("path", d=way, class_=f"box {style.ink}")


def _label(across: float, down: float, words: str, *, anchor: str = "start", kind: str = "label") -> str:
    return element("text", _text(words), x=f"{across:.1f}", y=f"{down:.1f}", text_anchor=anchor, class_=kind)


def _stroke(left: float, top: float, right: float, bottom: float, kind: str) -> str:
    return element("path", d=f"M{left:.1f} {top:.1f}L{right:.1f} {bottom:.1f}", class_=kind)


def _path(places: Sequence[tuple[float, float]], line: content.Line) -> str:
    way = "M" + "L".join(f"{across:.1f} {down:.1f}" for across, down in places)
    dashes = {"stroke_dasharray": line.style.dashes} if line.style.dashes else {}
    width = f"{line.style.width * (_THINNER if line.hollow else 1):g}"
    return element("path", d=way, class_=f"line {line.style.ink}", stroke_width=width, **dashes)


def _text(words: str) -> str:
    """Escape text; what XML has no place for would make a file of it unreadable, and is replaced."""
    return escape(_NOT_IN_XML.sub("\ufffd", words))


_NOT_IN_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def element(name: str, *children: str, **attributes: str) -> str:
    """Give markup of one element; children are markup already, attributes are plain text."""
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"' for key, value in attributes.items()
    )
    return f"<{name}{given}>{''.join(children)}</{name}>"
