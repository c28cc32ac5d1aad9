"""The names under which scores are kept, and the scores of every query under these names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.evaluation.metrics.average_precision import average_precision, average_precision_all
from crossbyte.evaluation.metrics.curves import RECALL_LEVELS, RankSweep
from crossbyte.evaluation.metrics.partners import PartnerPlaces, partner_recall_at
from crossbyte.evaluation.metrics.precision import precision_at
from crossbyte.evaluation.metrics.ties import TiedRanking

__all__ = [
    "CURVE_DEPTHS",
    "MAP_DEPTHS",
    "PRECISION_DEPTHS",
    "RECALL_DEPTHS",
    "PerQuery",
    "by_partners",
    "by_relevance",
    "curves",
    "means",
]

MAP_DEPTHS = (50, 100)
PRECISION_DEPTHS = (1, 10, 50, 100, 500, 1000)
RECALL_DEPTHS = (1, 5, 10, 50, 100)
CURVE_DEPTHS = (1, 2, 5, 10, 15, 20, *range(25, 1001, 25))

PerQuery = dict[str, Float64]
"""(n,) scores by name; "precision_curve" is (n, number of depths)."""


def by_relevance(ranking: TiedRanking) -> PerQuery:
    """Score every query by relevant items.

    Parameters
    ----------
    ranking : TiedRanking
        Known to the end.

    Returns
    -------
    dict
        "map@T", "map@T/recall", "map@all", "precision@T" and "precision_curve"; precision only for depths
        that the database reaches, the others of all results where these are fewer.
    """
    scores: PerQuery = {}
    for depth in MAP_DEPTHS:
        scores[f"map@{depth}"] = average_precision(ranking, depth)
        scores[f"map@{depth}/recall"] = average_precision(ranking, depth, "recall")
    scores["map@all"] = average_precision_all(ranking)
    depths = _within(PRECISION_DEPTHS, ranking.n_items)
    scores |= _columns("precision", depths, precision_at(ranking, depths))
    scores["precision_curve"] = precision_at(ranking, _within(CURVE_DEPTHS, ranking.n_items))
    return scores


def by_partners(places: PartnerPlaces) -> PerQuery:
    """Score every query by its true partner.

    Parameters
    ----------
    places : PartnerPlaces

    Returns
    -------
    dict
        "recall@k", and "recall_rank", the expected 0-based rank.
    """
    recalls = _columns("recall", RECALL_DEPTHS, partner_recall_at(places, RECALL_DEPTHS))
    return recalls | {"recall_rank": places.expected_rank}


def means(scores: Mapping[str, Float64]) -> dict[str, float]:
    """Average every score over queries; not ranks, whose mean a single bad one would rule.

    Parameters
    ----------
    scores : mapping
        As :func:`by_relevance` and :func:`by_partners` return them.

    Returns
    -------
    dict of float
        By name.
    """
    single = (name for name, values in scores.items() if values.ndim == 1 and name != "recall_rank")
    return {name: float(np.mean(scores[name])) for name in single}


def curves(scores: Mapping[str, Float64], sweep: RankSweep) -> dict[str, Any]:
    """Average the curves over queries, in lists that can be written as JSON.

    Parameters
    ----------
    scores : mapping
        As :func:`by_relevance` returns them.
    sweep : RankSweep
        Of the same queries.

    Returns
    -------
    dict
        "precision_curve": {"depths", "values"} and "pr_curve": {"recall", "precision"}.
    """
    values = np.mean(scores["precision_curve"], axis=0).tolist()
    depths = list(_within(CURVE_DEPTHS, sweep.n_items))
    return {
        "precision_curve": {"depths": depths, "values": values},
        "pr_curve": {"recall": list(RECALL_LEVELS), "precision": sweep.curve().tolist()},
    }


def _within(depths: tuple[int, ...], n_items: int) -> tuple[int, ...]:
    return tuple(depth for depth in depths if depth <= n_items)


def _columns(name: str, depths: tuple[int, ...], values: Float64) -> PerQuery:
    return {f"{name}@{depth}": column for depth, column in zip(depths, values.T, strict=True)}
