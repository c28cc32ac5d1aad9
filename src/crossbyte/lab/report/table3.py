"""Make Table 3: CMCQ against SePH, which is taught with labels; on known classes (A) and on new ones (B)."""

from __future__ import annotations

from crossbyte.lab.report import presentation
from crossbyte.lab.report.presentation import TASK_NAMES, data_name
from crossbyte.lab.report.study import Scope, Study, System
from crossbyte.lab.results import SIDE
from crossbyte.report.content import Cell, Row, Section, Table

_METRIC = "map@50"
_LENGTHS = (32, 64, 128)
_NAMES = {"seph": "SePH_km", "cmcq": "CMCQ"}


def table3_sections(study: Study) -> list[Section]:
    """Make Table 3, both parts, for every data set with results of SePH by protocol A or of any by D."""
    known = [scope for scope in study.scopes("A") if any(each.method == "seph" for each in scope.systems)]
    parts = [(scope, "A") for scope in known] + [(scope, "B") for scope in study.scopes("D")]
    return [_section(scope, part) for scope, part in parts if scope.has_labels]


def _section(scope: Scope, part: str) -> Section:
    words = [
        f"By {presentation.PROTOCOLS[scope.protocol]}. MAP@50, mean ± spread; bold: the best coded system "
        "of a column and task."
    ]
    tables = [_table(scope, part)]
    if _is_the_papers(scope):
        words.append("Below, in brackets: the paper's figure, then ours minus the paper's.")
    else:
        words.append(
            f"The paper's Table 3 is on NUS-WIDE, this one on {data_name(scope.data)}: its figures stand "
            "in a table of their own, for context only, and no difference is taken."
        )
        tables.append(_papers_table(part))
    words += _new_labels(scope)
    title = "known classes" if part == "A" else "new classes"
    heading = f"Table 3 {part}: {title}, on {data_name(scope.data)}"
    return Section(f"table3-{part}-{scope.data}", heading, words + _verdicts(scope), tables)


def _new_labels(scope: Scope) -> list[str]:
    """Name the classes that nothing was learned from, where they have names."""
    found = scope.results[0].data.get("new_labels")
    names = [each for each in found if isinstance(each, str)] if isinstance(found, list) else []
    return [f"New classes: {', '.join(names)}."] if names else []


def _is_the_papers(scope: Scope) -> bool:
    return scope.data == presentation.table3_data_name()


def _lengths(scope: Scope) -> list[int]:
    return [bits for bits in scope.bits if bits in _LENGTHS] or scope.bits


def _rivals(scope: Scope) -> list[System]:
    """SePH and ours by protocol A, where Table 2 has the rest; everything by protocol D."""
    if scope.protocol == "D":
        return scope.every_system
    return [each for each in scope.systems if each.method == "seph" or each.is_ours]


def _table(scope: Scope, part: str) -> Table:
    header = ("system", "task", "coded from", *(presentation.n_bits(bits) for bits in _lengths(scope)))
    rows = [row for task in scope.tasks for row in _task_rows(scope, part, task)]
    return Table(f"MAP@50 ({presentation.describe_setting(scope)})", header, rows, 3)


def _task_rows(scope: Scope, part: str, task: str) -> list[Row]:
    rows = [_row(scope, part, task, system) for system in _rivals(scope)]
    cell = Cell(presentation.format_figure(scope.chance(task, _METRIC)))
    words = (Cell("chance"), Cell(TASK_NAMES[task]), Cell(""))
    return [*rows, Row((*words, *[cell] * len(_lengths(scope))), quiet=True)]


def _row(scope: Scope, part: str, task: str, system: System) -> Row:
    name = (
        presentation.row_name(scope, system._replace(variant=""))
        if _has_plain(scope, system)
        else scope.name(system)
    )
    words = (Cell(name), Cell(TASK_NAMES[task]), Cell(_source(scope, system)))
    cells = [_cell(scope, part, task, system, bits) for bits in _lengths(scope)]
    return Row((*words, *cells), quiet=not scope.is_coded(system))


def _has_plain(scope: Scope, system: System) -> bool:
    return system._replace(variant="") in scope.systems and system.variant in ("", SIDE)


def _source(scope: Scope, system: System) -> str:
    if scope.protocol == "A":
        return "as learned"
    return "searched side" if system.variant == SIDE else "both sides"


def _cell(scope: Scope, part: str, task: str, system: System, bits: int) -> Cell:
    found = scope.measure(system, bits, task, _METRIC)
    if found is None:
        return Cell("–")
    theirs = (
        presentation.table3_figure(part, task, system.method, bits)
        if _is_the_papers(scope) and not system.variant
        else None
    )
    beside = "" if theirs is None else f"({theirs:.3f}) {presentation.format_gap(found.mean, theirs)}"
    best = scope.is_coded(system) and round(found.mean, 4) == _best(scope, task, bits)
    return Cell(presentation.format_estimate(found), beside, best)


def _best(scope: Scope, task: str, bits: int) -> float | None:
    found = [scope.measure(each, bits, task, _METRIC) for each in _rivals(scope) if scope.is_coded(each)]
    return max((round(each.mean, 4) for each in found if each is not None), default=None)


def _papers_table(part: str) -> Table:
    rows = [
        Row((Cell(_NAMES[method]), Cell(TASK_NAMES[task]), *_papers_cells(part, task, method)))
        for task in ("image-to-text", "text-to-image")
        for method in _NAMES
    ]
    header = ("system", "task", *map(presentation.n_bits, _LENGTHS))
    return Table(f"The paper's Table 3 {part}: MAP@50 on NUS-WIDE", header, rows, 2)


def _papers_cells(part: str, task: str, method: str) -> list[Cell]:
    return [Cell(f"{presentation.table3_figure(part, task, method, bits):.3f}") for bits in _LENGTHS]


def _verdicts(scope: Scope) -> list[str]:
    """Count where the best variant of ours is above SePH, like with like."""
    won = total = 0
    for task in scope.tasks:
        for bits in _lengths(scope):
            ours = _highest(scope, task, bits, ours=True)
            other = _highest(scope, task, bits, ours=False)
            if ours is not None and other is not None:
                won, total = won + (ours > other), total + 1
    if not total:
        return []
    return [f"The best CMCQ variant is above SePH in {won} of {total} comparisons (tasks × lengths)."]


def _highest(scope: Scope, task: str, bits: int, *, ours: bool) -> float | None:
    systems = [each for each in scope.systems if (each.is_ours if ours else each.method == "seph")]
    found = [scope.measure(each, bits, task, _METRIC) for each in systems]
    return max((each.mean for each in found if each is not None), default=None)
