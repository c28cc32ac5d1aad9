"""Protocols B and C: how often the true partner of a query is among the first found, by bytes."""

from __future__ import annotations

from crossbyte.evaluation.report.comparing import plain_rows, subsample_notes
from crossbyte.evaluation.report.content import Section, Table
from crossbyte.evaluation.report.owndata import is_quality_run
from crossbyte.evaluation.report.phrases import PROTOCOLS, TASK_NAMES, data_name, n_bytes, setting
from crossbyte.evaluation.report.standing import standing
from crossbyte.evaluation.report.study import Scope, Study
from crossbyte.model.report.phrases import plural

__all__ = ["recall_sections"]

_METRICS = ("recall@10", "recall@1")
_HEADINGS = {"B": "Unseen documents, one side coded", "C": "Unseen documents, folded in as pairs"}


def recall_sections(study: Study) -> list[Section]:
    """One section per data set with results by protocols B and C."""
    scopes = [scope for scope in study.scopes("B", "C") if scope.systems]
    return [_section(scope) for scope in scopes if scope.protocol == "C" or not is_quality_run(scope)]


def _section(scope: Scope) -> Section:
    words = [
        f"By {PROTOCOLS[scope.protocol]}: recall@k is the share of {_queries(scope)} whose true partner is "
        "among the first k. Bold: the best coded system that learned from pairs alone.",
        *subsample_notes(scope),
        *standing(scope, "recall@10"),
    ]
    tables = [_table(scope, task, metric) for metric in _METRICS for task in scope.tasks]
    labels = [_table(scope, task, "map@50") for task in scope.tasks] if scope.has_labels else []
    heading = f"{_HEADINGS[scope.protocol]}: {data_name(scope.data)}"
    return Section(f"recall-{scope.protocol}-{scope.data}", heading, words, tables, details=labels)


def _queries(scope: Scope) -> str:
    found = scope.results[0].data.get("n_queries")
    return plural(found, "querie" if found != 1 else "query") if isinstance(found, int) else "queries"


def _table(scope: Scope, task: str, metric: str) -> Table:
    header = ("system", *(n_bytes(bits) for bits in scope.bits))
    caption = f"{metric.replace('map', 'MAP')}, {TASK_NAMES[task].lower()} ({setting(scope)})"
    return Table(caption, header, plain_rows(scope, task, metric))
