"""Charts as pictures: drawn once with matplotlib, kept as SVG for the page and as PNG for Markdown.

A picture is as wide as a phone, so letters keep their size everywhere; pages lay pictures side by side.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, NamedTuple

from crossbyte.evaluation.report.content import BarChart, Bars, Chart, Line, LineChart
from crossbyte.extras import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["INKS", "Picture", "check_matplotlib", "draw"]

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
"""Colours on white and on black, after Okabe and Ito; every line has a mark or dashes of its own beside."""

_WIDTH = 3.5  # inches: a phone; also the width at which the sizes of letters below hold
_HEIGHT = 2.35
_LEGEND_LINE = 0.18
_PER_INCH = 160  # dots of the PNG
_LEAST_RANGE = 0.05  # of the upright axis of lines
_THINNER = 0.6  # of lines with hollow marks


class _Style(NamedTuple):
    ink: str
    mark: str
    dashes: Any
    width: float = 1.4


_STYLES = {
    "cmcq": _Style("s0", "o", "-", 2.2),
    "cmssh": _Style("s1", "s", (0, (5, 2))),
    "cvh": _Style("s2", "^", (0, (1.5, 1.5))),
    "mlbe": _Style("s5", "v", (0, (5, 1.5, 1.5, 1.5))),
    "qch": _Style("s6", "D", (0, (3, 1.5))),
    "lssh": _Style("s7", "P", "-"),
    "cmfh": _Style("s3", "X", (0, (5, 2))),
    "ccq": _Style("s8", "<", "-"),
    "seph": _Style("s4", ">", "-"),
    "scm": _Style("s1", "s", (0, (5, 2))),
    "crh": _Style("s2", "^", (0, (1.5, 1.5))),
    "mmnn": _Style("s5", "v", (0, (5, 1.5, 1.5, 1.5))),
    "sm2h": _Style("s6", "D", (0, (3, 1.5))),
    "imh": _Style("s7", "P", "-"),
    "mvsh": _Style("s3", "X", (0, (5, 2))),
    "stmh": _Style("s8", "<", "-"),
    "cq": _Style("s6", "D", (0, (3, 1.5))),
    "cca-itq": _Style("s3", "X", (0, (5, 2))),
    "cca-pq": _Style("s1", "s", (0, (5, 2))),
    "cca-opq": _Style("s2", "^", (0, (1.5, 1.5))),
    "cca-rq": _Style("s5", "v", (0, (5, 1.5, 1.5, 1.5))),
    "cca-lsq": _Style("s8", "<", "-"),
    "cca": _Style("s4", "", (0, (6, 2, 1, 2))),
    "cmcq-cca": _Style("s7", "P", "-", 2.0),
    "cmcq-kernel": _Style("s5", "p", "-", 2.0),
    "cmcq-auto": _Style("s2", "h", "-", 2.0),
    "chance": _Style("s4", "", (0, (1, 2))),
    "first": _Style("s0", "o", "-", 1.8),
    "second": _Style("s1", "s", (0, (5, 2)), 1.8),
    "third": _Style("s2", "^", (0, (1.5, 1.5)), 1.8),
    "first-level": _Style("s0", "", "-.", 1.2),
    "second-level": _Style("s1", "", "-.", 1.2),
    "third-level": _Style("s2", "", "-.", 1.2),
}
_OTHER = _Style("s3", "*", (0, (3, 1, 1, 1)))


class Picture(NamedTuple):
    """A finished chart: what it is, as SVG text as matplotlib writes it, and as the bytes of a PNG."""

    key: str
    title: str
    said: str
    svg: str
    png: bytes


def check_matplotlib() -> None:
    """Refuse early where pictures cannot be drawn.

    Raises
    ------
    MissingExtra
        With the command that installs what is missing.
    """
    require("matplotlib.figure", "the report's figures need")


def draw(chart: Chart) -> Picture:
    """Draw a chart.

    Raises
    ------
    MissingExtra
        matplotlib is not installed.
    """
    check_matplotlib()
    with _settings(chart.key):
        figure = _line_figure(chart) if isinstance(chart, LineChart) else _bar_figure(chart)
        svg, png = BytesIO(), BytesIO()
        figure.savefig(svg, format="svg", transparent=True, metadata={"Date": None})
        figure.set_layout_engine("none")  # it is laid out by now
        figure.savefig(png, format="png", dpi=_PER_INCH, metadata={"Software": None})
    return Picture(chart.key, chart.title, chart.said, svg.getvalue().decode(), png.getvalue())


@contextmanager
def _settings(key: str) -> Iterator[None]:
    """Settings of our own, whatever a user's matplotlibrc says; the same input gives the same bytes."""
    import matplotlib

    ink, soft, rule = (INKS[name][0] for name in ("ink", "soft", "rule"))
    chosen: dict[Any, Any] = {
        "svg.fonttype": "none",  # letters stay letters: to be searched, read out and drawn by the page
        "svg.hashsalt": key,
        "font.family": "DejaVu Sans",
        "font.size": 9.5,
        "axes.titlesize": 9.5,
        "axes.labelsize": 9.5,
        "xtick.labelsize": 9.0,
        "ytick.labelsize": 9.0,
        "legend.fontsize": 9.0,
        "text.color": ink,
        "axes.labelcolor": ink,
        "axes.edgecolor": soft,
        "xtick.color": soft,
        "ytick.color": soft,
        "grid.color": rule,
        "grid.linewidth": 0.8,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "legend.frameon": False,
        "legend.handlelength": 2.2,
        "legend.columnspacing": 1.0,
        "text.parse_math": False,  # names come from files
    }
    with matplotlib.rc_context():
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(chosen)
        yield


def _figure(names: Sequence[str], height: float) -> tuple[Figure, Axes, int]:
    """Give an empty figure, high enough for its legend, its axes, and the columns of the legend."""
    from matplotlib.figure import Figure as New

    columns = _columns(names)
    lines = -(-len(names) // columns)
    figure = New(figsize=(_WIDTH, height + _LEGEND_LINE * lines), layout="constrained")
    return figure, figure.subplots(), columns


def _columns(names: Sequence[str]) -> int:
    """How many columns of names fit beside each other, about; columns are filled one after another."""
    for columns in (3, 2):
        lines = -(-len(names) // columns)
        parts = [names[start : start + lines] for start in range(0, len(names), lines)]
        if sum(30 + 5.4 * max(map(len, part)) for part in parts) <= 72 * _WIDTH:
            return columns
    return 1


def _legend(figure: Figure, handles: Sequence[Any], names: Sequence[str], columns: int) -> None:
    if len(names) > 1:
        figure.legend(handles, names, loc="outside lower center", ncols=columns)


def _titles(axes: Axes, x_title: str, y_title: str) -> None:
    axes.set_xlabel(x_title)
    axes.set_ylabel(y_title)


# Lines


def _line_figure(chart: LineChart) -> Figure:
    names = [_short(line.name) for line in chart.lines]
    figure, axes, columns = _figure(names, _HEIGHT)
    handles = [_drawn(axes, line, place) for place, line in enumerate(chart.lines)]
    if chart.log_x:
        _logarithmic(axes)
    else:
        axes.set_xlim(left=0)
    _calm(axes)
    _titles(axes, chart.x_title, chart.y_title)
    _legend(figure, handles, names, columns)
    return figure


def _logarithmic(axes: Axes) -> None:
    """A level axis in powers of ten, with plain numbers at them."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())


def _calm(axes: Axes) -> None:
    """Show no less than a certain range, so that noise does not look like a mountain."""
    low, high = axes.get_ylim()
    if high - low < _LEAST_RANGE:
        middle = (low + high) / 2
        axes.set_ylim(middle - _LEAST_RANGE / 2, middle + _LEAST_RANGE / 2)


def _drawn(axes: Axes, line: Line, place: int) -> Any:
    style = _STYLES.get(line.style, _OTHER)
    ink = INKS[style.ink][0]
    # Marks at most eight to a line, each line starting at another point, so that they do not pile up.
    step = max(1, len(line.across) // 8)
    return axes.plot(
        line.across,
        line.up,
        color=ink,
        marker=style.mark or None,
        markevery=(place % step, step),
        markersize=5,
        markerfacecolor=INKS["back"][0] if line.hollow else ink,
        linestyle=style.dashes,
        linewidth=style.width * (_THINNER if line.hollow else 1.0),
        zorder=3 if line.style == "cmcq" else 2,
    )[0]


def _short(name: str) -> str:
    """Names from files may be of any length; pictures are not."""
    return name if len(name) <= 32 else f"{name[:31]}…"


# Bars


def _bar_figure(chart: BarChart) -> Figure:
    names = [_short(bars.name) for bars in chart.bars]
    shown = [*names, "chance"] if chart.chance is not None else names
    height = 0.7 + 0.3 * len(chart.groups) if chart.level else _HEIGHT
    figure, axes, columns = _figure(shown, height)
    handles = [_bars_drawn(axes, chart, bars, place) for place, bars in enumerate(chart.bars)]
    if chart.chance is not None:
        handles.append(
            axes.axhline(chart.chance, color=INKS["s3"][0], linestyle=(0, (2, 1.5)), linewidth=1.4)
        )
    _label_groups(axes, chart)
    _legend(figure, handles, shown, columns)
    return figure


def _bars_drawn(axes: Axes, chart: BarChart, bars: Bars, place: int) -> Any:
    width = 0.8 / len(chart.bars)
    places = [group + width * (place - (len(chart.bars) - 1) / 2) for group in range(len(chart.groups))]
    values = [value or 0.0 for value in bars.values]
    ink = INKS[_STYLES.get(bars.style, _OTHER).ink][0]
    if chart.level:
        return axes.barh(places, values, height=width * 0.92, color=ink)
    drawn = axes.bar(places, values, width=width * 0.92, color=ink)
    _spreads_drawn(axes, places, bars)
    return drawn


def _spreads_drawn(axes: Axes, places: Sequence[float], bars: Bars) -> None:
    found = zip(places, bars.values, bars.spreads, strict=True)
    known = [(place, value, spread) for place, value, spread in found if value is not None and spread]
    if known:
        across, up, gaps = zip(*known, strict=True)
        axes.errorbar(across, up, yerr=gaps, fmt="none", ecolor=INKS["ink"][0], elinewidth=1.2, capsize=2)


def _label_groups(axes: Axes, chart: BarChart) -> None:
    ticks = range(len(chart.groups))
    names = [_short(group) for group in chart.groups]
    if chart.level:
        axes.set_yticks(ticks, names)
        _logarithmic(axes)
        axes.set_ylim(len(chart.groups) - 0.4, -0.6)  # the first on top, as in the tables
        axes.grid(visible=False, axis="y")
        _titles(axes, chart.value_title, chart.group_title)
        return
    axes.set_xticks(ticks, names)
    axes.grid(visible=False, axis="x")
    _titles(axes, chart.group_title, chart.value_title)
