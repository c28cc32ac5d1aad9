"""Score rankings by precision at a depth and over recall, expected over the orders of tied items."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.metrics.ties import Integers, TiedRanking

__all__ = ["RECALL_LEVELS", "RankSweep", "expected_precision", "expected_precision_recall_curve"]

RECALL_LEVELS = tuple(step / 20 for step in range(21))
"""Levels of recall at which the curve is read: 0, 0.05, …, 1."""

_ROUNDING = 1e-9  # far less than a whole item of a single query adds to a mean recall


def expected_precision(ranking: TiedRanking, depths: Sequence[int]) -> Float64:
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
    return _expected_hits(ranking, places) / places


def _expected_hits(ranking: TiedRanking, depths: Integers) -> Float64:
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


class RankSweep:
    """Mean precision and mean recall of the first t results, for every t, of queries that come in blocks.

    Both means are exact expectations over the orders of tied items, because they are linear in the number of
    relevant items found: this rises evenly through a group of tied items. So a group is kept as two changes
    of slope, whatever its size, and the sums over all queries need memory for one number per item.

    Parameters
    ----------
    n_items : int
        Size of the database.
    """

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items
        self._n_queries = 0
        self._n_answerable = 0
        self._found = np.zeros(n_items + 1)  # changes in the expected relevant items per place,
        self._recalled = np.zeros(n_items + 1)  # and in the expected recall per place

    def add(self, ranking: TiedRanking) -> None:
        """Take further queries.

        Parameters
        ----------
        ranking : TiedRanking
            Of the same database, known to the end.
        """
        if ranking.depth < self.n_items or ranking.n_items != self.n_items:
            raise InvalidInput(
                f"the curve goes to the last of {self.n_items} items; got a ranking of {ranking.n_items} to"
                f" depth {ranking.depth}. Rank all items, without a depth."
            )
        slope = ranking.relevant / ranking.size
        self._found += self._changes(ranking, slope)
        self._recalled += self._changes(ranking, slope / ranking.total[ranking.row])
        self._n_queries += len(ranking.total)
        self._n_answerable += int(np.count_nonzero(ranking.total))

    def curve(self) -> Float64:
        """Read the mean precision at each of ``RECALL_LEVELS``; see :func:`expected_precision_recall_curve`.

        Returns
        -------
        (21,) float64
        """
        found, recalled = (np.cumsum(np.cumsum(sums)[:-1]) for sums in (self._found, self._recalled))
        precision = found / (np.arange(1, self.n_items + 1) * max(self._n_queries, 1))
        recall = recalled / max(self._n_answerable, 1)
        place = np.searchsorted(recall, np.asarray(RECALL_LEVELS) - _ROUNDING)
        return np.asarray(precision[np.minimum(place, self.n_items - 1)])

    def _changes(self, ranking: TiedRanking, slope: Float64) -> Float64:
        size = self.n_items + 1
        begun = np.bincount(ranking.before, slope, size)
        return np.asarray(begun - np.bincount(ranking.before + ranking.size, slope, size))


def expected_precision_recall_curve(ranking: TiedRanking) -> Float64:
    """Mean precision where the mean recall first reaches a level: the sweep through the ranks.

    For t = 1, 2, … the precision and the recall of the first t results are averaged over queries, both
    expected over the orders of tied items; at a level the precision is read at the first t whose recall is at
    least the level. Nothing is interpolated: of a random ranking, tied or not, the curve is the share of
    relevant items at every level, while the largest precision at a level *or behind* (TREC) would be more.
    A query for which nothing is relevant has precision 0 and no recall: it counts in the first mean alone.

    Parameters
    ----------
    ranking : TiedRanking
        Known to the end.

    Returns
    -------
    (21,) float64
        One precision per level of ``RECALL_LEVELS``; at the level 0 that of the first result.
    """
    sweep = RankSweep(ranking.n_items)
    sweep.add(ranking)
    return sweep.curve()
