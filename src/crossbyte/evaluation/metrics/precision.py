"""Precision of the first T results with ties, exact."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.evaluation.metrics.ties import Integers, TiedRanking

__all__ = ["expected_hits", "precision_at"]


def precision_at(ranking: TiedRanking, depths: Sequence[int]) -> Float64:
    """Expected share of relevant items among the first T results, per query.

    Parameters
    ----------
    ranking : TiedRanking
        Known at least to the largest depth.
    depths : sequence of int
        The depths T, from 1 to the number of items: there is no share of results that do not exist.

    Returns
    -------
    (n, n_depths) float64
        Between 0 and 1.
    """
    places = np.asarray(depths, dtype=np.int64)
    if places.ndim != 1 or not np.all((places >= 1) & (places <= ranking.depth)):
        raise InvalidInput(
            f"depths must be from 1 to {ranking.depth}, as far as the items were ranked; got {list(depths)}."
        )
    return expected_hits(ranking, places) / places


def expected_hits(ranking: TiedRanking, depths: Integers) -> Float64:
    """Expected number of relevant items among the first places, per query: (n, n_depths) float64.

    It rises evenly through a group of tied items, by the share of its items that are relevant.
    """
    step = ranking.n_items + 1
    row = np.arange(len(ranking.total))[:, None]
    # flat keys ascend through all rows: the last group that begins before the depth, if it is of this row
    group = np.searchsorted(ranking.row * step + ranking.before, row * step + depths) - 1
    own = group >= np.searchsorted(ranking.row, row)
    if not own.any():
        return np.zeros(own.shape)
    b, R, n, r = ranking.counts(group)
    return np.where(own, R + r * np.minimum(depths - b, n) / n, 0.0)
