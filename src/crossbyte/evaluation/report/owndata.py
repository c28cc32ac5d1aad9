"""What an evaluation means for a user's own pairs: ours beside simpler systems, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.evaluation.report.content import Cell, Row, Section, Table
from crossbyte.evaluation.report.phrases import (
    PROTOCOLS,
    TASK_NAMES,
    data_name,
    figure_text,
    n_bytes,
    row_name,
    setting,
)
from crossbyte.evaluation.report.standing import best_figure, contenders, standing
from crossbyte.evaluation.report.study import Scope, Study, System, number

__all__ = ["interval", "own_sections"]

_DEPTHS = (1, 10)
_DRAWS = 1_000
_SEED = 0


def own_sections(study: Study) -> list[Section]:
    """The quality table of data without labels; held-out pairs are all that can be judged by there."""
    return [_section(scope) for scope in study.scopes("B") if not scope.has_labels and scope.systems]


def _section(scope: Scope) -> Section:
    words = [
        f"By {PROTOCOLS['B']}. Held-out queries look for their partner; in brackets the 95 % interval by "
        "bootstrap over queries. Where the intervals of two systems overlap widely, another set of queries "
        "could turn their order. Bold: the best coded system of a length.",
        *standing(scope, "recall@10"),
    ]
    tables = [_table(scope, task) for task in scope.tasks]
    return Section(f"quality-{scope.data}", f"Quality on {data_name(scope.data)}", words, tables)


def _table(scope: Scope, task: str) -> Table:
    header = ("system", "code", *(f"recall@{depth}" for depth in _DEPTHS))
    coded = [each for each in scope.systems if scope.is_coded(each)]
    rows = [_row(scope, task, each, bits) for bits in scope.bits for each in coded if scope.at(each, bits)]
    rows += [row for each in scope.systems if each not in coded for row in _last(scope, task, each)]
    chance = [scope.chance(task, f"recall@{depth}") for depth in _DEPTHS]
    cells = [Cell("–" if value is None else figure_text(value)) for value in chance]
    rows.append(Row((Cell("chance"), Cell(""), *cells), quiet=True))
    return Table(f"{TASK_NAMES[task]} ({setting(scope)})", header, rows, 2)


def _last(scope: Scope, task: str, system: System) -> list[Row]:
    """Give what has no code once, not at every length."""
    lengths = [bits for bits in scope.bits if scope.at(system, bits)]
    return [_row(scope, task, system, bits) for bits in lengths[-1:]]


def _row(scope: Scope, task: str, system: System, bits: int) -> Row:
    coded = scope.is_coded(system)
    cells = [_cell(scope, task, system, bits, depth) for depth in _DEPTHS]
    words = (Cell(row_name(scope, system)), Cell(n_bytes(bits) if coded else "uncompressed"))
    return Row((*words, *cells), quiet=not coded)


def _cell(scope: Scope, task: str, system: System, bits: int, depth: int) -> Cell:
    metric = f"recall@{depth}"
    found = scope.measure(system, bits, task, metric)
    if found is None:
        return Cell("–")
    low_high = interval([result.per_query.get(task, {}) for result in scope.at(system, bits)], depth)
    below = "" if low_high is None else f"({figure_text(low_high[0])} to {figure_text(low_high[1])})"
    rivals = contenders(scope)
    best = system in rivals and round(found.mean, 4) == best_figure(scope, rivals, bits, task, metric)
    return Cell(figure_text(found.mean), below, best)


def interval(per_query: Sequence[Any], depth: int) -> tuple[float, float] | None:
    """95 % interval of recall@depth by bootstrap over queries, from ranks that count from 0.

    Parameters
    ----------
    per_query : sequence of mapping
        One per seed, with the expected rank of each query's partner as "rank".
    depth : int

    Returns
    -------
    tuple of float, or None
        None without ranks, or if seeds have different queries.
    """
    found = [ranks for each in per_query if (ranks := _ranks(each)) is not None]
    if not found or len({len(ranks) for ranks in found}) > 1:
        return None
    hits = np.mean([ranks < depth for ranks in found], axis=0)  # (n,) share of seeds that found it
    draws = np.random.default_rng(_SEED).integers(0, len(hits), size=(_DRAWS, len(hits)))
    low, high = np.quantile(hits[draws].mean(axis=1), [0.025, 0.975])
    return float(low), float(high)


def _ranks(per_query: Any) -> NDArray[np.float64] | None:
    values = per_query.get("rank")
    if not isinstance(values, list) or not values or any(number(value) is None for value in values):
        return None
    return np.array(values, dtype=np.float64)
