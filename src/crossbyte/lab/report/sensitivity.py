"""Draw how the quality depends on γ, ρ, η and λ, measured on a validation part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crossbyte.lab.report import presentation
from crossbyte.lab.report.presentation import TASK_NAMES, data_name, format_figure, row_name
from crossbyte.lab.report.study import Scope, Study, System
from crossbyte.lab.score_tables import SummaryFigure
from crossbyte.report.content import Cell, Figure, Line, LineChart, Row, Section, Table, linear_axis, log_axis

_LETTERS = {"gamma": "γ", "rho": "ρ", "eta": "η", "lambda": "λ"}
_MEANINGS = {
    "gamma": "alignment of the quantized space",
    "rho": "sparsity",
    "eta": "balance of the two sides",
    "lambda": "alignment of the common space",
}
_STYLES = {"image-to-text": "first", "text-to-image": "second", "text-to-text": "third"}


class _Sweep(NamedTuple):
    """The settings of one parameter of one system, at one length, by rising value."""

    parameter: str
    system: System
    bits: int
    settings: list[tuple[float, System]]


def sensitivity_sections(study: Study) -> list[Section]:
    """Draw the paper's last figure for every data set with results by protocol V."""
    found = [(scope, sweeps) for scope in study.scopes("V") if (sweeps := _sweeps(scope))]
    if not found:
        return []
    words = [
        "One parameter of CMCQ varies, the others stay as chosen. Queries are a validation part of the "
        "training documents, the rest is the database; no query of the tables is touched.",
        _describe_data([scope for scope, _ in found]),
        "Dash-dot: the best other system on the same validation part. The upright axes do not start at 0.",
        *(line for scope, sweeps in found for line in _verdict(scope, sweeps)),
    ]
    figures = [
        Figure(
            presentation.describe_setting(scope),
            [_chart(scope, sweep, task) for sweep in sweeps for task in scope.tasks],
        )
        for scope, sweeps in found
    ]
    tables = [_summary(scope, sweeps) for scope, sweeps in found]
    tables += [_table(scope, sweep) for scope, sweeps in found for sweep in sweeps]
    return [Section("sensitivity", "Sensitivity to the parameters", words, [], figures, tables)]


def _describe_data(scopes: Sequence[Scope]) -> str:
    ours = " and ".join(data_name(scope.data) for scope in scopes)
    return (
        f"The paper shows this on FLICKR25K and NUS-WIDE; here the data are {ours}, "
        "which stand in their place: shapes of curves can be compared, heights cannot."
    )


def _sweeps(scope: Scope) -> list[_Sweep]:
    sweeps = []
    for parameter in _LETTERS:
        settings = [each for each in scope.every_system if _value(each, parameter) is not None]
        for plain in dict.fromkeys(each._replace(variant="") for each in settings):
            mine = [each for each in settings if each._replace(variant="") == plain]
            bits = _length(scope, mine)
            values = [(_value(each, parameter) or 0.0, each) for each in mine if scope.at(each, bits)]
            if len(values) > 1:
                sweeps.append(_Sweep(parameter, plain, bits, sorted(values)))
    return sweeps


def _value(system: System, parameter: str) -> float | None:
    """Give the value in a setting such as "gamma=0.1"; zero has no place on a logarithmic axis."""
    name, _, text = system.variant.partition("=")
    try:
        value = float(text) if name == parameter else 0.0
    except ValueError:
        return None
    return value if 0 < value < float("inf") else None


def _length(scope: Scope, systems: Sequence[System]) -> int:
    """Choose the length with the most settings; of equals 32 bits, as in the paper."""
    return max(
        {r.run.bits for r in scope.results},
        key=lambda bits: (_count_settings(scope, systems, bits), bits == 32),
    )


def _count_settings(scope: Scope, systems: Sequence[System], bits: int) -> int:
    return sum(bool(scope.at(each, bits)) for each in systems)


def _chart(scope: Scope, sweep: _Sweep, task: str) -> LineChart:
    letter = _LETTERS[sweep.parameter]
    system = sweep.system
    lines = _lines(scope, sweep, task)
    return LineChart(
        presentation.make_key(
            "sensitivity", sweep.parameter, scope.data, system.method, system.similarity, task
        ),
        f"{data_name(scope.data)}: {letter}, {_MEANINGS[sweep.parameter]}, {TASK_NAMES[task].lower()}",
        f"{scope.main_metric} with {presentation.n_bits(sweep.bits)} over {letter}; "
        "the numbers are in the tables below.",
        log_axis(letter, [value for line in lines for value in line.across]),
        linear_axis(
            presentation.metric_name(scope.main_metric),
            [value for line in lines for value in line.up],
            least_range=presentation.LEAST_RANGE,
        ),
        lines,
    )


def _lines(scope: Scope, sweep: _Sweep, task: str) -> list[Line]:
    found = [
        (value, scope.measure(each, sweep.bits, task, scope.main_metric)) for value, each in sweep.settings
    ]
    points = [(value, figure.mean) for value, figure in found if figure is not None]
    if not points:
        return []
    across, up = [value for value, _ in points], [figure for _, figure in points]
    lines = [Line(_plain_name(scope, sweep), presentation.style_of(_STYLES[task]), across, up)]
    best = _best_other(scope, sweep.bits, task)
    if best is not None:
        name = f"best other: {row_name(scope, best[0])}"
        level = [best[1].mean] * 2
        lines.append(
            Line(name, presentation.style_of(f"{_STYLES[task]}-level"), [across[0], across[-1]], level)
        )
    return lines


def _plain_name(scope: Scope, sweep: _Sweep) -> str:
    name = scope.name(sweep.settings[0][1])
    return name.removesuffix(f" ({sweep.settings[0][1].variant})")


def _best_other(scope: Scope, bits: int, task: str) -> tuple[System, SummaryFigure] | None:
    others = [each for each in scope.systems if not each.is_ours and scope.is_coded(each)]
    found = [(each, scope.measure(each, bits, task, scope.main_metric)) for each in others]
    known = [(each, figure) for each, figure in found if figure is not None]
    return max(known, key=lambda pair: pair[1].mean, default=None)


def _verdict(scope: Scope, sweeps: Sequence[_Sweep]) -> list[str]:
    """Count the settings at which CMCQ is above the best other system."""
    above = total = 0
    for sweep in sweeps:
        for task in scope.tasks:
            lines = _lines(scope, sweep, task)
            if len(lines) == 2:
                own, level = lines
                total += len(own.up)
                above += sum(up > level.up[0] for up in own.up)
    if not total:
        return []
    return [
        f"On {data_name(scope.data)} CMCQ is above the best other system at {above} of {total} settings "
        "(parameters × values × tasks)."
    ]


def _summary(scope: Scope, sweeps: Sequence[_Sweep]) -> Table:
    """Lowest and highest figure of each parameter, and how often it is above the best other system."""
    rows = [_summary_row(scope, sweep, task) for sweep in sweeps for task in scope.tasks]
    metric = presentation.metric_name(scope.main_metric)
    header = (
        "parameter",
        "task",
        f"lowest {metric}",
        f"highest {metric}",
        "best other",
        "above it at",
        "chance",
    )
    return Table(f"Range of every parameter ({presentation.describe_setting(scope)})", header, rows, 2)


def _summary_row(scope: Scope, sweep: _Sweep, task: str) -> Row:
    letter = _LETTERS[sweep.parameter]
    points = [(up, value) for line in _lines(scope, sweep, task)[:1] for value, up in _points(line)]
    ends = [min(points), max(points)] if points else []
    words = [Cell(format_figure(figure), f"{letter} = {value:g}") for figure, value in ends]
    best = _best_other(scope, sweep.bits, task)
    name = Cell("–") if best is None else Cell(format_figure(best[1].mean), row_name(scope, best[0]))
    above = "–" if best is None else f"{sum(up > best[1].mean for up, _ in points)} of {len(points)}"
    chance = Cell(format_figure(scope.chance(task, scope.main_metric)))
    return Row(
        (
            Cell(letter),
            Cell(TASK_NAMES[task]),
            *(words or [Cell("–")] * 2),
            name,
            Cell(above),
            chance,
        )
    )


def _points(line: Line) -> list[tuple[float, float]]:
    return list(zip(line.across, line.up, strict=True))


def _table(scope: Scope, sweep: _Sweep) -> Table:
    letter = _LETTERS[sweep.parameter]
    rows = []
    for task in scope.tasks:
        found = [scope.measure(each, sweep.bits, task, scope.main_metric) for _, each in sweep.settings]
        cells = [Cell(presentation.format_estimate(figure)) for figure in found]
        rows.append(Row((Cell(TASK_NAMES[task]), *cells)))
    header = ("task", *(f"{letter} = {value:g}" for value, _ in sweep.settings))
    caption = f"{presentation.metric_name(scope.main_metric)} by {letter}, {presentation.n_bits(sweep.bits)}"
    return Table(f"{caption} ({presentation.describe_setting(scope)})", header, rows)
