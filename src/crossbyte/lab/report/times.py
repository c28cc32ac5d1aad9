"""Show the seconds to learn, to code and to search."""

from __future__ import annotations

from crossbyte.lab.report import presentation
from crossbyte.lab.report.presentation import n_bits, row_name
from crossbyte.lab.report.study import Scope, Study, System, estimate, number
from crossbyte.lab.score_tables import SummaryFigure
from crossbyte.report.content import BarChart, Bars, Cell, Figure, Row, Section, Table

_WHAT = {"fit": "Learning", "code": "Coding database and queries", "search": "Computing all distances"}
_STYLES = {"fit": "first", "code": "second"}
_SHOWN = 32


def time_sections(study: Study) -> list[Section]:
    """Show times on every data set, from the protocol with the most results."""
    scopes = [scope for scope in _scopes(study) if _systems(scope)]
    if not scopes:
        return []
    words = [
        "Mean seconds over seeds, of one process, on whatever machine ran this: compare rows, not reports. "
        "Under protocol A the codes of the database come out of learning, so coding is little more than the "
        "queries.",
    ]
    tables = [_table(scope, what) for scope in scopes for what in _WHAT]
    figures = [Figure("Seconds, logarithmic", [_chart(scope) for scope in scopes])]
    return [Section("times", "Training and coding times", words, [], figures, tables)]


def _scopes(study: Study) -> list[Scope]:
    largest: dict[str, Scope] = {}
    for scope in study.scopes("A", "B", "C", "D"):
        known = largest.get(scope.data)
        if known is None or len(scope.results) > len(known.results):
            largest[scope.data] = scope
    return list(largest.values())


def _systems(scope: Scope) -> list[System]:
    return [each for each in scope.systems if any(_seconds(scope, each, bits, "fit") for bits in scope.bits)]


def _seconds(scope: Scope, system: System, bits: int, what: str) -> SummaryFigure | None:
    return estimate(number(result.seconds.get(what)) for result in scope.at(system, bits))


def _table(scope: Scope, what: str) -> Table:
    rows = []
    for system in _systems(scope):
        found = [_seconds(scope, system, bits, what) for bits in scope.bits]
        cells = [Cell("–" if each is None else presentation.format_seconds(each.mean)) for each in found]
        rows.append(Row((Cell(row_name(scope, system)), *cells)))
    header = ("system", *(n_bits(bits) for bits in scope.bits))
    return Table(f"{_WHAT[what]}, seconds ({presentation.describe_setting(scope)})", header, rows)


def _chart(scope: Scope) -> BarChart:
    bits = _SHOWN if _SHOWN in scope.bits else scope.bits[0]
    systems = [each for each in _systems(scope) if _seconds(scope, each, bits, "fit")]
    return BarChart(
        presentation.make_key("times", scope.data, scope.protocol),
        f"{presentation.data_name(scope.data)}, {n_bits(bits)}, protocol {scope.protocol}",
        "Seconds to learn and to code; the numbers are in the tables of this section.",
        [row_name(scope, each) for each in systems],
        "seconds",
        "",
        [_bars(scope, systems, bits, what) for what in _STYLES],
        level=True,
    )


def _bars(scope: Scope, systems: list[System], bits: int, what: str) -> Bars:
    found = [_seconds(scope, system, bits, what) for system in systems]
    values = [each.mean if each is not None and each.mean > 0 else None for each in found]
    name = "learning" if what == "fit" else "coding"
    return Bars(name, presentation.style_of(_STYLES[what]), values, [None] * len(values))
