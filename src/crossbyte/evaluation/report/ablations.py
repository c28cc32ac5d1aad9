"""What a part of CMCQ is worth: γ = 0, λ = 0, and one dictionary for both sides."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean

from crossbyte.evaluation.report.content import BarChart, Bars, Cell, Figure, Row, Section, Table
from crossbyte.evaluation.report.phrases import TASK_NAMES, data_name, key_of, setting, with_spread
from crossbyte.evaluation.report.study import Scope, Study, System

__all__ = ["ablation_sections"]

_GREEK = {"gamma=0": "γ = 0", "lambda=0": "λ = 0", "C=D": "C = D"}
_STYLES = {"gamma=0": "second", "lambda=0": "third", "C=D": "second"}
_CORRELATION = (
    "The paper's claim: without the alignment of the quantized space (γ = 0) or of the common space (λ = 0) "
    "the quality falls, and with both it is much better."
)
_DICTIONARY = "The paper's claim: one dictionary for both sides (C = D) is not better than two."


def ablation_sections(study: Study) -> list[Section]:
    """Both ablations, each only if there are results for it."""
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
    return [Section(key, heading, words, [], [Figure(heading, [*charts])], tables)]


def _metric(scope: Scope) -> str:
    return "map@50" if scope.has_labels else "recall@10"


def _compared(scope: Scope, system: System, variants: Sequence[str]) -> list[System]:
    settings = [system._replace(variant=variant) for variant in variants]
    return [system, *(each for each in settings if each in scope.every_system)]


def _lengths(scope: Scope, systems: Sequence[System]) -> list[int]:
    """Lengths at which any setting was run: elsewhere there is nothing to compare."""
    return [bits for bits in scope.bits if any(scope.at(each, bits) for each in systems[1:])]


def _name(scope: Scope, system: System) -> str:
    return _GREEK.get(system.variant, system.variant) if system.variant else f"{scope.name(system)} in full"


def _chart(key: str, scope: Scope, system: System, task: str, variants: Sequence[str]) -> BarChart:
    systems = _compared(scope, system, variants)
    lengths = _lengths(scope, systems)
    metric = _metric(scope)
    title = f"{data_name(scope.data)}: {TASK_NAMES[task].lower()}"
    return BarChart(
        key_of(key, scope.data, scope.protocol, system.method, system.similarity, task),
        title,
        f"{metric} over bits, protocol {scope.protocol}; the numbers are in the tables of this section.",
        [str(bits) for bits in lengths],
        metric.replace("map", "MAP"),
        "bits",
        [_bars(scope, each, lengths, task) for each in systems],
        scope.chance(task, metric),
    )


def _bars(scope: Scope, system: System, lengths: Sequence[int], task: str) -> Bars:
    found = [scope.measure(system, bits, task, _metric(scope)) for bits in lengths]
    values = [None if each is None else each.mean for each in found]
    spreads = [None if each is None else each.spread for each in found]
    return Bars(_name(scope, system), _STYLES.get(system.variant, "first"), values, spreads)


def _table(scope: Scope, system: System, task: str, variants: Sequence[str]) -> Table:
    systems = _compared(scope, system, variants)
    lengths = _lengths(scope, systems)
    rows = []
    for each in systems:
        found = [scope.measure(each, bits, task, _metric(scope)) for bits in lengths]
        cells = [Cell("–" if value is None else with_spread(value)) for value in found]
        rows.append(Row((Cell(_name(scope, each)), *cells)))
    metric = _metric(scope).replace("map", "MAP")
    caption = f"{metric}, {TASK_NAMES[task].lower()} ({setting(scope)})"
    return Table(caption, ("system", *(f"{bits} bits" for bits in lengths)), rows)


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
            full = scope.measure(system, bits, task, _metric(scope))
            part = scope.measure(system._replace(variant=variant), bits, task, _metric(scope))
            if full is not None and part is not None:
                gaps.append(part.mean - full.mean)
    return gaps
