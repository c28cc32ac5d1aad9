"""What a random ranking scores, exactly and without drawing any: the scores when everything ties."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crossbyte.errors import InvalidInput
from crossbyte.evaluation.metrics.curves import RankSweep
from crossbyte.evaluation.metrics.keys import by_partners, by_relevance, curves, means
from crossbyte.evaluation.metrics.partners import PartnerPlaces
from crossbyte.evaluation.metrics.ties import all_tied

__all__ = ["chance_scores"]


def chance_scores(
    relevant_counts: ArrayLike | None, n_items: int, partners: bool | ArrayLike = False
) -> dict[str, Any]:
    """Give the expected scores of a random ranking under the keys of :meth:`Scorer.scores`.

    Parameters
    ----------
    relevant_counts : (n,) int, optional
        For each query how many items are relevant. None: no scores by relevance.
    n_items : int
        Size of the database.
    partners : bool or (n,) int, default False
        Whether each query has one partner in the database; or how many it has, of which any counts.

    Returns
    -------
    dict
        By relevance: the paper's AP as in :func:`crossbyte.metrics.expected_chance_map`, precision the share
        of relevant items, and so on; by partner: k / n_items, as :func:`crossbyte.metrics.chance_recall`.
    """
    scores: dict[str, Any] = {}
    if relevant_counts is not None:
        ranking, sweep = all_tied(relevant_counts, n_items), RankSweep(n_items)
        sweep.add(ranking)
        per_query = by_relevance(ranking)
        scores |= means(per_query) | curves(per_query, sweep)
    if partners is not False:
        scores |= means(by_partners(_anywhere(partners, n_items)))
    return scores


def _anywhere(partners: bool | ArrayLike, n_items: int) -> PartnerPlaces:
    counts = np.atleast_1d(np.asarray(partners)).astype(np.int64)
    if counts.ndim != 1 or not np.all((counts >= 1) & (counts <= n_items)):
        raise InvalidInput(
            f"partners must be True or one count from 1 to n_items={n_items} per query; got {partners!r}."
        )
    return PartnerPlaces(np.zeros_like(counts), np.full_like(counts, n_items), counts, counts)
