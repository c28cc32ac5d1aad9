"""Draw precision over the number of retrieved items, and over recall, of all systems."""

from __future__ import annotations

from collections.abc import Sequence

from crossbyte.lab.methods.registry import GROUPS
from crossbyte.lab.report import presentation
from crossbyte.lab.report.presentation import TASK_NAMES, data_name, row_name
from crossbyte.lab.report.study import Scope, Study, System
from crossbyte.report.content import Cell, Figure, Line, LineChart, Row, Section, Table, linear_axis

_LENGTHS = (32, 64)
_COMPARED = (*GROUPS["table2"], *GROUPS["table3"])
_CURVES = {
    "precision_curve": ("Precision@T", "number of retrieved items T", "precision@T"),
    "pr_curve": ("Precision over recall", "recall", "precision"),
}
_DEPTHS = (1, 10, 100, 1000)


def curve_sections(study: Study) -> list[Section]:
    """Draw both kinds of curves, each only if there are results for it; by protocol A."""
    return [section for name in _CURVES for section in _section(study, name)]


def _section(study: Study, name: str) -> list[Section]:
    heading, _, _ = _CURVES[name]
    figures = [figure for scope in study.scopes("A") if (figure := _figure(scope, name)).charts]
    if not figures:
        return []
    words = [
        f"{heading} of all systems, mean over seeds, by protocol A; dotted grey: chance; thin, with hollow "
        "marks: taught with labels."
    ]
    if any(len(_split_systems(scope)) > 1 for scope in study.scopes("A")):
        words = [
            f"{words[0]} The systems that the paper compares come first, then those that only its Table 1 "
            "names, then the further ones (beside CMCQ, where it was run)."
        ]
    tables = _tables(study) if name == "precision_curve" else []
    return [Section(name.replace("_", "-"), heading, words, [], figures, tables)]


def _figure(scope: Scope, name: str) -> Figure:
    charts = [
        _chart(scope, name, bits, task, kind, systems)
        for bits in _shown_lengths(scope)
        for kind, systems in _split_systems(scope)
        for task in scope.tasks
    ]
    return Figure(
        presentation.describe_setting(scope),
        [chart for chart in charts if any(line.name for line in chart.lines)],
    )


def _shown_lengths(scope: Scope) -> list[int]:
    return [bits for bits in scope.bits if bits in _LENGTHS] or scope.bits[:2]


def _split_systems(scope: Scope) -> list[tuple[str, list[System]]]:
    """Split the systems over charts: thirty lines in one cannot be told apart."""
    compared = [each for each in scope.systems if each.method in _COMPARED]
    named = [each for each in scope.systems if each.method in GROUPS["table1"] and each not in compared]
    others = [each for each in scope.systems if each not in (*compared, *named) and each.method != "random"]
    beside = [each for each in compared if each.method == "cmcq"]
    if {each.method for each in others} <= {"cca"}:
        compared, others = [*compared, *others], []
    further = [(kind, [*some, *beside]) for kind, some in (("named", named), ("further", others)) if some]
    return [("paper", compared), *further]


def _chart(scope: Scope, name: str, bits: int, task: str, kind: str, systems: Sequence[System]) -> LineChart:
    heading, x_title, y_title = _CURVES[name]
    lines = [line for system in systems if (line := _line(scope, name, bits, task, system)) is not None]
    which = {"paper": "", "named": ", systems of Table 1 alone", "further": ", further systems"}[kind]
    title = f"{data_name(scope.data)}, {presentation.n_bits(bits)}: {TASK_NAMES[task].lower()}{which}"
    key = presentation.make_key(name, scope.data, str(bits), task, kind)
    said = f"{heading} of {len(lines)} systems; figures at some depths are in the tables of this section."
    chance = _chance(scope, lines, task) if lines else []
    shown = [*lines, *chance]
    x = linear_axis(x_title, [value for line in shown for value in line.across], from_zero=True)
    y = linear_axis(
        y_title, [value for line in shown for value in line.up], least_range=presentation.LEAST_RANGE
    )
    return LineChart(key, title, said, x, y, shown)


def _line(scope: Scope, name: str, bits: int, task: str, system: System) -> Line | None:
    found = scope.curve(system, bits, task, name)
    if found is None:
        return None
    return Line(
        row_name(scope, system),
        presentation.style_of(system.method),
        *found,
        hollow=system.similarity == "labels",
    )


def _chance(scope: Scope, lines: Sequence[Line], task: str) -> list[Line]:
    """Precision of a random order is the same at every depth."""
    found = scope.chance(task, "precision@1")
    if found is None:
        return []
    return [
        Line(
            "chance",
            presentation.style_of("chance"),
            [lines[0].across[0], lines[0].across[-1]],
            [found, found],
        )
    ]


def _tables(study: Study) -> list[Table]:
    return [
        _table(scope, bits, task)
        for scope in study.scopes("A")
        if scope.has_labels
        for bits in _shown_lengths(scope)
        for task in scope.tasks
    ]


def _table(scope: Scope, bits: int, task: str) -> Table:
    rows = []
    for system in scope.systems:
        found = [scope.measure(system, bits, task, f"precision@{depth}") for depth in _DEPTHS]
        cells = [Cell(presentation.format_estimate(value)) for value in found]
        if any(value is not None for value in found):
            rows.append(Row((Cell(row_name(scope, system)), *cells), quiet=not scope.is_coded(system)))
    chance = [scope.chance(task, f"precision@{depth}") for depth in _DEPTHS]
    known = [Cell(presentation.format_figure(value)) for value in chance]
    rows.append(Row((Cell("chance"), *known), quiet=True))
    caption = presentation.table_caption(scope, f"Precision, {presentation.n_bits(bits)}", task)
    return Table(caption, ("system", *(f"@{depth:,}" for depth in _DEPTHS)), rows)
