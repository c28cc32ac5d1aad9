"""Say what the parts of CMCQ are worth: γ = 0, λ = 0, one dictionary, and what quantization loses."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from crossbyte.lab.report import presentation
from crossbyte.lab.report.presentation import TASK_NAMES, data_name, row_name
from crossbyte.lab.report.study import Scope, Study, System, estimate, number
from crossbyte.lab.score_tables import SummaryFigure
from crossbyte.report.content import BarChart, Bars, Cell, Figure, Row, Section, Table

_GREEK = {"gamma=0": "γ = 0", "lambda=0": "λ = 0", "C=D": "C = D"}
_STYLES = {"gamma=0": "second", "lambda=0": "third", "C=D": "second"}
_CORRELATION = (
    "The paper's claim: without the alignment of the quantized space (γ = 0) or of the common space (λ = 0) "
    "the quality falls, and with both it is much better."
)
_SIDES = ("image", "text")
_QUANTIZER_STYLES = {"cmcq": "first", "ccq": "second"}
_DICTIONARY = "The paper's claim: one dictionary for both sides (C = D) is not better than two."


def ablation_sections(study: Study) -> list[Section]:
    """Show both ablations, each only if there are results for it."""
    correlation = _section(study, "correlation", "The two alignments", _CORRELATION, ("gamma=0", "lambda=0"))
    return [*correlation, *_section(study, "dictionary", "One dictionary or two", _DICTIONARY, ("C=D",))]


def _section(study: Study, key: str, heading: str, claim: str, variants: Sequence[str]) -> list[Section]:
    found = [
        (scope, system)
        for scope in study.scopes("A", "B", "C")
        for system in scope.systems
        if any(system._replace(variant=variant) in scope.every_system for variant in variants)
    ]
    if not found:
        return []
    charts = [_chart(key, scope, system, task, variants) for scope, system in found for task in scope.tasks]
    tables = [_table(scope, system, task, variants) for scope, system in found for task in scope.tasks]
    words = [claim, *_verdicts(found, variants)]
    return [Section(key, heading, words, [], [Figure("Beside the full system", [*charts])], tables)]


def _compared(scope: Scope, system: System, variants: Sequence[str]) -> list[System]:
    settings = [system._replace(variant=variant) for variant in variants]
    return [system, *(each for each in settings if each in scope.every_system)]


def _lengths(scope: Scope, systems: Sequence[System]) -> list[int]:
    """List the lengths at which any setting was run: elsewhere there is nothing to compare."""
    return [bits for bits in scope.bits if any(scope.at(each, bits) for each in systems[1:])]


def _name(scope: Scope, system: System) -> str:
    return _GREEK.get(system.variant, system.variant) if system.variant else f"{scope.name(system)} in full"


def _chart(key: str, scope: Scope, system: System, task: str, variants: Sequence[str]) -> BarChart:
    systems = _compared(scope, system, variants)
    lengths = _lengths(scope, systems)
    metric = scope.main_metric
    title = f"{data_name(scope.data)}: {TASK_NAMES[task].lower()}"
    return BarChart(
        presentation.make_key(key, scope.data, scope.protocol, system.method, system.similarity, task),
        title,
        f"{metric} over bits, protocol {scope.protocol}; the numbers are in the tables of this section.",
        [str(bits) for bits in lengths],
        presentation.metric_name(metric),
        "bits",
        [_bars(scope, each, lengths, task) for each in systems],
        scope.chance(task, metric),
    )


def _bars(scope: Scope, system: System, lengths: Sequence[int], task: str) -> Bars:
    found = [scope.measure(system, bits, task, scope.main_metric) for bits in lengths]
    values = [None if each is None else each.mean for each in found]
    spreads = [None if each is None else each.spread for each in found]
    return Bars(
        _name(scope, system), presentation.style_of(_STYLES.get(system.variant, "first")), values, spreads
    )


def _table(scope: Scope, system: System, task: str, variants: Sequence[str]) -> Table:
    systems = _compared(scope, system, variants)
    lengths, metric = _lengths(scope, systems), scope.main_metric
    by_system = {each: [scope.measure(each, bits, task, metric) for bits in lengths] for each in systems}
    n_seeds = max((figure.n_seeds for found in by_system.values() for figure in found if figure), default=0)
    rows = [
        Row((Cell(_name(scope, each)), *(_cell(figure, n_seeds) for figure in found)))
        for each, found in by_system.items()
    ]
    rows.append(_chance_row(scope.chance(task, metric), len(lengths)))
    caption = presentation.table_caption(scope, metric, task, n_seeds)
    return Table(caption, ("system", *(f"{bits} bits" for bits in lengths)), rows)


def _cell(found: SummaryFigure | None, n_seeds: int) -> Cell:
    missing = "" if found is None else presentation.describe_missing_seeds(found, n_seeds)
    return Cell(presentation.format_estimate(found), missing)


def _chance_row(chance: float | None, n_lengths: int) -> Row:
    cell = Cell(presentation.format_figure(chance))
    return Row((Cell("chance"), *[cell] * n_lengths), quiet=True)


def _verdicts(found: Sequence[tuple[Scope, System]], variants: Sequence[str]) -> list[str]:
    said = []
    for variant in variants:
        gaps = [gap for scope, system in found for gap in _gaps(scope, system, variant)]
        if gaps:
            worse = sum(gap < 0 for gap in gaps)
            said.append(
                f"Here {_GREEK[variant]} is below the full system in {worse} of {len(gaps)} comparisons "
                f"(data sets × tasks × lengths), by {-fmean(gaps):+.4f} in the mean."
            )
    return [each.replace("by -", "by \u2212").replace("by +", "by ") for each in said]


def _gaps(scope: Scope, system: System, variant: str) -> list[float]:
    gaps = []
    for bits in scope.bits:
        for task in scope.tasks:
            full = scope.measure(system, bits, task, scope.main_metric)
            part = scope.measure(system._replace(variant=variant), bits, task, scope.main_metric)
            if full is not None and part is not None:
                gaps.append(part.mean - full.mean)
    return gaps


# How much quantization loses: CMCQ with two dictionaries against CCQ with one, the paper's discussion


def distortion_sections(study: Study) -> list[Section]:
    """Show quantization errors, if CMCQ or CCQ stated any; by protocol A, or the first that has them."""
    scopes = _error_scopes(study)
    if not scopes:
        return []
    words = [
        "The share of squares that quantization loses in the common space, by side, as each system states it "
        "of its own training documents: 0 loses nothing. The spaces of two systems differ, so the share, not "
        "the sum, is compared.",
        "The paper's claim: two dictionaries can give a smaller quantization error than CCQ's one.",
        *(line for scope in scopes for line in _error_verdict(scope)),
    ]
    tables = [_error_table(scope) for scope in scopes]
    charts = [
        _error_chart(scope, side)
        for scope in scopes
        if len(_compared_quantizers(scope)) == 2
        for side in _SIDES
    ]
    figures = [Figure("Two dictionaries beside one", [*charts])] if charts else []
    return [Section("distortion", "Quantization error", words, tables, figures)]


def _error_scopes(study: Study) -> list[Scope]:
    first: dict[str, Scope] = {}
    for scope in study.scopes("A", "B", "C"):
        if any(_states_error(scope, each) for each in scope.systems if each.method in _QUANTIZER_STYLES):
            first.setdefault(scope.data, scope)
    return list(first.values())


def _states_error(scope: Scope, system: System) -> bool:
    return any(_error(scope, system, bits, side) for bits in scope.bits for side in _SIDES)


def _error(scope: Scope, system: System, bits: int, side: str) -> SummaryFigure | None:
    parts = [result.details.get("quantization_error") for result in scope.at(system, bits)]
    return estimate(number(part.get(side)) for part in parts if isinstance(part, dict))


def _compared_quantizers(scope: Scope) -> list[System]:
    return [each for each in scope.systems if each.method in _QUANTIZER_STYLES and _states_error(scope, each)]


def _error_table(scope: Scope) -> Table:
    systems = [each for each in scope.systems if _states_error(scope, each)]
    rows = [_error_row(scope, system, side) for system in systems for side in _SIDES]
    header = ("system", "side", *(presentation.n_bits(bits) for bits in scope.bits))
    return Table(f"Share of squares lost ({presentation.describe_setting(scope)})", header, rows, 2)


def _error_row(scope: Scope, system: System, side: str) -> Row:
    found = [_error(scope, system, bits, side) for bits in scope.bits]
    cells = [Cell(presentation.format_estimate(each)) for each in found]
    return Row((Cell(row_name(scope, system)), Cell(side), *cells))


def _error_chart(scope: Scope, side: str) -> BarChart:
    return BarChart(
        presentation.make_key("distortion", scope.data, side),
        f"{data_name(scope.data)}: {side}",
        f"Share of squares lost by quantization of the {side} side; the numbers are in this section's table.",
        [str(bits) for bits in scope.bits],
        "share of squares lost",
        "bits",
        [_error_bars(scope, system, side) for system in _compared_quantizers(scope)],
    )


def _error_bars(scope: Scope, system: System, side: str) -> Bars:
    found = [_error(scope, system, bits, side) for bits in scope.bits]
    values = [None if each is None else each.mean for each in found]
    spreads = [None if each is None else each.spread for each in found]
    return Bars(
        row_name(scope, system),
        presentation.style_of(_QUANTIZER_STYLES[system.method]),
        values,
        spreads,
    )


def _error_verdict(scope: Scope) -> list[str]:
    gaps = _error_gaps(scope, _compared_quantizers(scope))
    if not gaps:
        return []
    smaller = sum(gap < 0 for gap in gaps)
    held = "holds" if smaller == len(gaps) else "does not hold" if smaller == 0 else "holds in part"
    return [
        f"On {data_name(scope.data)} the claim {held}: the error of CMCQ is smaller than that of CCQ in "
        f"{smaller} of {len(gaps)} comparisons (sides × lengths)."
    ]


def _error_gaps(scope: Scope, systems: Sequence[System]) -> list[float]:
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
