"""Make the tables of true partners found: on a user's own pairs, and by protocols B and C, by bytes."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from crossbyte._format import plural
from crossbyte.arrays import Float64
from crossbyte.calibration.measure import Bootstrap
from crossbyte.lab.methods import registry
from crossbyte.lab.report import presentation
from crossbyte.lab.report.leaderboard import best_figure, candidates, describe_leaders
from crossbyte.lab.report.paper_tables import plain_rows, subsample_notes
from crossbyte.lab.report.presentation import data_name, format_figure, n_bytes, row_name
from crossbyte.lab.report.study import Scope, Study, System, number
from crossbyte.lab.results import Result
from crossbyte.lab.runner import QUERY_DEPTHS
from crossbyte.lab.score_tables import CHOSEN, ONE_CODE, UNCOMPRESSED, make_quality_table
from crossbyte.lab.systems import OWN_QUANTIZERS
from crossbyte.report.content import Cell, Row, Section, Table

_DEPTHS = (1, 10)
_METRICS = ("recall@10", "recall@1")
_HEADINGS = {"B": "Unseen documents, one side coded", "C": "Unseen documents, folded in as pairs"}


# A user's own pairs: ours beside simpler systems, with intervals


def quality_sections(study: Study) -> list[Section]:
    """Make the quality table of data without labels, where held-out pairs are all that can be judged by."""
    return [_quality_section(scope) for scope in study.scopes("B") if not scope.has_labels and scope.systems]


def _is_quality_run(scope: Scope) -> bool:
    """Whether there is nothing but what `evaluate` runs on a user's own pairs; all in the quality table."""
    known = {CHOSEN, UNCOMPRESSED, ONE_CODE, *registry.GROUPS["quantizers"], *OWN_QUANTIZERS}
    return not scope.has_labels and {each.method for each in scope.every_system} <= known


def _quality_section(scope: Scope) -> Section:
    words = [
        f"By {presentation.PROTOCOLS['B']}. Held-out queries look for their partner; in brackets the 95 % "
        "interval by bootstrap over queries. Where the intervals of two systems overlap widely, another set "
        "of queries could turn their order. Bold: the best coded system of a length.",
        *_verdicts(scope),
    ]
    tables = [_quality_table(scope, task) for task in scope.tasks]
    return Section(f"quality-{scope.data}", f"Quality on {data_name(scope.data)}", words, tables)


def _quality_table(scope: Scope, task: str) -> Table:
    header = ("system", "code", *(f"recall@{depth}" for depth in _DEPTHS))
    coded = [each for each in scope.systems if scope.is_coded(each)]
    rows = [_row(scope, task, each, bits) for bits in scope.bits for each in coded if scope.at(each, bits)]
    rows += [row for each in scope.systems if each not in coded for row in _uncoded_row(scope, task, each)]
    chance = [scope.chance(task, f"recall@{depth}") for depth in _DEPTHS]
    cells = [Cell(format_figure(value)) for value in chance]
    rows.append(Row((Cell("chance"), Cell(""), *cells), quiet=True))
    return Table(f"{presentation.TASK_NAMES[task]} ({presentation.describe_setting(scope)})", header, rows, 2)


def _uncoded_row(scope: Scope, task: str, system: System) -> list[Row]:
    """Show a system without codes once, not at every length."""
    lengths = [bits for bits in scope.bits if scope.at(system, bits)]
    return [_row(scope, task, system, bits) for bits in lengths[-1:]]


def _row(scope: Scope, task: str, system: System, bits: int) -> Row:
    coded = scope.is_coded(system)
    cells = [_cell(scope, task, system, bits, depth) for depth in _DEPTHS]
    words = (
        Cell(row_name(scope, system)),
        Cell(n_bytes(bits) if coded else "uncompressed"),
    )
    return Row((*words, *cells), quiet=not coded)


def _cell(scope: Scope, task: str, system: System, bits: int, depth: int) -> Cell:
    metric = f"recall@{depth}"
    found = scope.measure(system, bits, task, metric)
    if found is None:
        return Cell("–")
    low_high = recall_interval([result.per_query.get(task, {}) for result in scope.at(system, bits)], depth)
    below = "" if low_high is None else f"({format_figure(low_high[0])} to {format_figure(low_high[1])})"
    rivals = candidates(scope)
    best = system in rivals and round(found.mean, 4) == best_figure(scope, rivals, bits, task, metric)
    return Cell(format_figure(found.mean), below, best)


def recall_interval(per_query: Sequence[Any], depth: int) -> tuple[float, float] | None:
    """Estimate the 95 % interval of recall@depth by bootstrap over queries.

    Parameters
    ----------
    per_query : sequence of mapping
        One per seed, with the recall of each query as "recall@1" and the like.
    depth : int

    Returns
    -------
    tuple of float, or None
        None if it was not kept query by query, or if seeds have different queries.
    """
    found = [values for each in per_query if (values := _recalls(each, depth)) is not None]
    if not found or len({len(values) for values in found}) > 1:
        return None
    estimate = _bootstrap(len(found[0])).mean(np.mean(found, axis=0))
    return estimate.low, estimate.high


@lru_cache(maxsize=1)  # every cell of a table asks for the same resamples
def _bootstrap(n_queries: int) -> Bootstrap:
    return Bootstrap(n_queries, np.random.default_rng(0))


def _recalls(per_query: Any, depth: int) -> Float64 | None:
    values = per_query.get(f"recall@{depth}")
    if not isinstance(values, list) or not values or any(number(value) is None for value in values):
        return None
    return np.array(values, dtype=np.float64)


# Who wins, query by query


def _verdicts(scope: Scope) -> list[str]:
    """Say who wins at each length, as the command line does; else by the means."""
    said = []
    for bits in scope.bits:
        cells = [scope.at(system, bits)[:1] for system in scope.systems]
        usable = [result for cell in cells for result in cell if _is_whole(result)]
        if any(result.run.method == CHOSEN for result in usable) and len(_lengths(usable)) == 1:
            said.append(f"With {n_bytes(bits)}: {make_quality_table(usable, bits).verdict}")
    return said or describe_leaders(scope, "recall@10")


def _is_whole(result: Result) -> bool:
    """Whether a result from a file has everything that the comparison asks of it."""
    directions = ("image-to-text", "text-to-image")
    kept = [result.per_query.get(each, {}) for each in directions]
    chance = [result.chance.get(each, {}) for each in directions]
    sizes = [result.data.get("n_train"), result.data.get("n_queries")]
    return (
        all(_recalls(each, depth) is not None for each in kept for depth in QUERY_DEPTHS)
        and all(number(each.get(f"recall@{depth}")) is not None for each in chance for depth in QUERY_DEPTHS)
        and all(isinstance(size, int) for size in sizes)
        and _lengths([result]) == {sizes[1]}
    )


def _lengths(results: Sequence[Result]) -> set[int]:
    return {
        len(each[f"recall@{QUERY_DEPTHS[0]}"]) for result in results for each in result.per_query.values()
    }


# Protocols B and C: how often the true partner of a query is among the first found


def recall_sections(study: Study) -> list[Section]:
    """Make a section per data set with results by protocols B and C."""
    scopes = [scope for scope in study.scopes("B", "C") if scope.systems]
    return [_recall_section(scope) for scope in scopes if scope.protocol == "C" or not _is_quality_run(scope)]


def _recall_section(scope: Scope) -> Section:
    words = [
        f"By {presentation.PROTOCOLS[scope.protocol]}: recall@k is the share of {_count_queries(scope)} "
        "whose true partner is among the first k. Bold: the best coded system that learned from pairs alone.",
        *subsample_notes(scope),
        *_describe_kept_words(scope),
        *describe_leaders(scope, "recall@10"),
    ]
    tables = [_recall_table(scope, task, metric) for metric in _METRICS for task in scope.tasks]
    labels = [_recall_table(scope, task, "map@50") for task in scope.tasks] if scope.has_labels else []
    heading = f"{_HEADINGS[scope.protocol]}: {data_name(scope.data)}"
    return Section(f"recall-{scope.protocol}-{scope.data}", heading, words, tables, details=labels)


def _describe_kept_words(scope: Scope) -> list[str]:
    """Say how many bytes a system keeps that has no code but the words of documents."""
    kept = {each.about.get("name"): number(each.details.get("bytes_per_document")) for each in scope.results}
    return [
        f"{name} has no code: it keeps a document's words, {size:.0f} bytes in the mean, at every length."
        for name, size in kept.items()
        if size is not None
    ]


def _count_queries(scope: Scope) -> str:
    found = scope.results[0].data.get("n_queries")
    return plural(found, "query", "queries") if isinstance(found, int) else "queries"


def _recall_table(scope: Scope, task: str, metric: str) -> Table:
    header = ("system", *(n_bytes(bits) for bits in scope.bits))
    return Table(presentation.table_caption(scope, metric, task), header, plain_rows(scope, task, metric))
