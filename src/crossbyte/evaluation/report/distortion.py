"""How much quantization loses: CMCQ with two dictionaries against CCQ with one, the paper's discussion."""

from __future__ import annotations

from collections.abc import Sequence

from crossbyte.evaluation.report.content import BarChart, Bars, Cell, Figure, Row, Section, Table
from crossbyte.evaluation.report.phrases import (
    data_name,
    key_of,
    n_bits,
    row_name,
    setting,
    with_spread,
)
from crossbyte.evaluation.report.study import Estimate, Scope, Study, System, estimate, number

__all__ = ["distortion_sections"]

_SIDES = ("image", "text")
_STYLES = {"cmcq": "first", "ccq": "second"}


def distortion_sections(study: Study) -> list[Section]:
    """Quantization errors, if CMCQ or CCQ stated any; by protocol A, or the first that has them."""
    scopes = _scopes(study)
    if not scopes:
        return []
    words = [
        "The share of squares that quantization loses in the common space, by side, as each system states it "
        "of its own training documents: 0 loses nothing. The spaces of two systems differ, so the share, not "
        "the sum, is compared.",
        "The paper's claim: two dictionaries can give a smaller quantization error than CCQ's one.",
        *(line for scope in scopes for line in _verdict(scope)),
    ]
    tables = [_table(scope) for scope in scopes]
    charts = [_chart(scope, side) for scope in scopes if len(_duel(scope)) == 2 for side in _SIDES]
    figures = [Figure("Two dictionaries beside one", [*charts])] if charts else []
    return [Section("distortion", "Quantization error", words, tables, figures)]


def _scopes(study: Study) -> list[Scope]:
    first: dict[str, Scope] = {}
    for scope in study.scopes("A", "B", "C"):
        if any(_stated(scope, each) for each in scope.systems if each.method in _STYLES):
            first.setdefault(scope.data, scope)
    return list(first.values())


def _stated(scope: Scope, system: System) -> bool:
    return any(_error(scope, system, bits, side) for bits in scope.bits for side in _SIDES)


def _error(scope: Scope, system: System, bits: int, side: str) -> Estimate | None:
    parts = [result.details.get("quantization_error") for result in scope.at(system, bits)]
    return estimate(number(part.get(side)) for part in parts if isinstance(part, dict))


def _duel(scope: Scope) -> list[System]:
    return [each for each in scope.systems if each.method in _STYLES and _stated(scope, each)]


def _table(scope: Scope) -> Table:
    systems = [each for each in scope.systems if _stated(scope, each)]
    rows = [_row(scope, system, side) for system in systems for side in _SIDES]
    header = ("system", "side", *(n_bits(bits) for bits in scope.bits))
    return Table(f"Share of squares lost ({setting(scope)})", header, rows, 2)


def _row(scope: Scope, system: System, side: str) -> Row:
    found = [_error(scope, system, bits, side) for bits in scope.bits]
    cells = [Cell("–" if each is None else with_spread(each)) for each in found]
    return Row((Cell(row_name(scope, system)), Cell(side), *cells))


def _chart(scope: Scope, side: str) -> BarChart:
    return BarChart(
        key_of("distortion", scope.data, side),
        f"{data_name(scope.data)}: {side}",
        f"Share of squares lost by quantization of the {side} side; the numbers are in the table above.",
        [str(bits) for bits in scope.bits],
        "share of squares lost",
        "bits",
        [_bars(scope, system, side) for system in _duel(scope)],
    )


def _bars(scope: Scope, system: System, side: str) -> Bars:
    found = [_error(scope, system, bits, side) for bits in scope.bits]
    values = [None if each is None else each.mean for each in found]
    spreads = [None if each is None else each.spread for each in found]
    return Bars(row_name(scope, system), _STYLES[system.method], values, spreads)


def _verdict(scope: Scope) -> list[str]:
    gaps = _gaps(scope, _duel(scope))
    if not gaps:
        return []
    smaller = sum(gap < 0 for gap in gaps)
    held = "holds" if smaller == len(gaps) else "does not hold" if smaller == 0 else "holds in part"
    return [
        f"On {data_name(scope.data)} the claim {held}: the error of CMCQ is smaller than that of CCQ in "
        f"{smaller} of {len(gaps)} comparisons (sides × lengths)."
    ]


def _gaps(scope: Scope, systems: Sequence[System]) -> list[float]:
    by_method = {system.method: system for system in systems}
    if len(by_method) < 2:
        return []
    gaps = []
    for bits in scope.bits:
        for side in _SIDES:
            ours, theirs = (_error(scope, by_method[key], bits, side) for key in ("cmcq", "ccq"))
            if ours is not None and theirs is not None:
                gaps.append(ours.mean - theirs.mean)
    return gaps
