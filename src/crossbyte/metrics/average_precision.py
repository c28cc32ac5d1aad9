"""Score labelled rankings by average precision, precision at k and precision-recall curves.

The paper's average precision divides by the relevant items among those *retrieved*, so the level of chance is
high and must be printed beside it: :func:`crossbyte.metrics.chance_mean_average_precision`.

Ties. A group of n tied items with r relevant ones, behind b items with R relevant ones, is in random order.
Its i-th place is relevant with probability r/n, and if it is, the i - 1 places before it in the group hold
(i - 1)(r - 1)/(n - 1) relevant items on average. So its first m places add to the sum of precisions

    g = r/n · Σ_{i=1…m} (R + 1 + (i - 1)(r - 1)/(n - 1)) / (b + i)
      = r/n · ((R + 1) A + (r - 1)/(n - 1) (m - (b + 1) A)),    A = Σ_{i=1…m} 1/(b + i) = H_{b+m} - H_b

with the harmonic numbers H (McSherry and Najork 2008). That is all that is needed while the denominator does
not depend on the order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.metrics.ranks import check_depth, check_matrix
from crossbyte.metrics.ties import Integers, TiedRanking
from crossbyte.validation import check_choice

Denominator = Literal["retrieved", "recall"]

RECALL_LEVELS = tuple(step / 20 for step in range(21))
"""Levels of recall at which the curve is read: 0, 0.05, …, 1."""

_ROUNDING = 1e-9  # far less than a whole item of a single query adds to a mean recall


def expected_precision(ranking: TiedRanking, depths: Sequence[int]) -> Float64:
    """Compute the expected share of relevant items among the first T results, per query.

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
    """Count the relevant items expected among the first places, per query: (n, n_depths) float64.

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
        self._found += self._slope_changes(ranking, slope)
        self._recalled += self._slope_changes(ranking, slope / ranking.total[ranking.row])
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

    def _slope_changes(self, ranking: TiedRanking, slope: Float64) -> Float64:
        size = self.n_items + 1
        begun = np.bincount(ranking.before, slope, size)
        return np.asarray(begun - np.bincount(ranking.before + ranking.size, slope, size))


def expected_precision_recall_curve(ranking: TiedRanking) -> Float64:
    """Compute the mean precision where the mean recall first reaches each level.

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


def mean_average_precision(relevance: ArrayLike, depth: int) -> float:
    """Average over queries the average precision of the first ``depth`` results.

    ``AP = sum_t P(t) d(t) / sum_t d(t)`` for t = 1 … depth, where ``d(t)`` says whether result t is relevant
    and ``P(t)`` is the precision of the first t results. A query without a single hit scores 0 and stays in
    the mean.

    Parameters
    ----------
    relevance : (n_queries, at least depth) bool
        Whether each result is relevant, best result first.
    depth : int
        How many results of each query count.

    Returns
    -------
    float
        Between 0 and 1.
    """
    found = check_matrix(relevance, "relevance").astype(bool)
    check_depth(depth, found.shape[1])
    found = found[:, :depth]
    hits = np.cumsum(found, axis=1)
    precision = hits / np.arange(1, depth + 1)
    total = np.where(found, precision, 0.0).sum(axis=1)
    return float(np.mean(total / np.maximum(hits[:, -1], 1)))


def expected_average_precision(
    ranking: TiedRanking, depth: int, denominator: Denominator = "retrieved"
) -> Float64:
    """Compute the expected average precision of the first ``depth`` results, per query.

    ``AP = sum_t P(t) d(t) / denominator`` for t = 1 … depth, where ``d(t)`` says whether result t is relevant
    and ``P(t)`` is the precision of the first t results.

    Parameters
    ----------
    ranking : TiedRanking
        Known at least to this depth.
    depth : int
        How many results count (T); more than there are items is the same as all.
    denominator : {"retrieved", "recall"}
        "retrieved": the relevant items among the first T, as in the paper; its chance level is high.
        "recall": the most there could be, min(T, relevant items in the database).

    Returns
    -------
    (n,) float64
        0 where nothing was found.
    """
    check_choice(denominator, "denominator", ("retrieved", "recall"))
    depth = ranking.reach(depth)
    if denominator == "recall":
        return _sum_of_precisions(ranking, depth) / np.clip(ranking.total, 1, depth)
    return _precision_over_retrieved(ranking, depth)


def expected_average_precision_all(ranking: TiedRanking) -> Float64:
    """Compute the expected average precision of the whole ranking over all relevant items, per query.

    Parameters
    ----------
    ranking : TiedRanking
        Known to the end.

    Returns
    -------
    (n,) float64
        0 for a query without a relevant item. Of a random ranking with R relevant ones among N it is
        ``(H_N + (R - 1)/(N - 1) (N - H_N)) / N``.
    """
    return expected_average_precision(ranking, ranking.n_items, "recall")


def _sum_of_precisions(ranking: TiedRanking, depth: int) -> Float64:
    """Compute the expected sum of precisions at the relevant ones of the first places, per query."""
    near = ranking.before < depth
    b, R, n, r = ranking.counts(near)
    return _sum_by_row(ranking, near, _group_precisions(b, R, n, r, np.minimum(n, depth - b)))


def _precision_over_retrieved(ranking: TiedRanking, depth: int) -> Float64:
    """Compute AP over the retrieved relevant items: only a group cut at the depth makes these random."""
    whole = ranking.before + ranking.size <= depth
    b, R, n, r = ranking.counts(whole)
    gain = _sum_by_row(ranking, whole, _group_precisions(b, R, n, r, n))
    score = gain / np.maximum(_sum_by_row(ranking, whole, r), 1)
    cut = np.flatnonzero((ranking.before < depth) & ~whole)  # at most one per query
    rows = ranking.row[cut]
    score[rows] = _precision_with_cut_group(ranking, cut, depth, gain[rows])
    return np.asarray(score)


def _sum_by_row(ranking: TiedRanking, groups: NDArray[np.bool_], values: NDArray[Any]) -> Float64:
    return np.asarray(np.bincount(ranking.row[groups], values, len(ranking.total)), dtype=np.float64)


def _group_precisions(b: Integers, R: Integers, n: Integers, r: Integers, m: Integers) -> Float64:
    """Sum the precisions in the first m places of each group: g of the formula at the top."""
    A = _harmonic_between(b, m)
    together = (r - 1) / np.maximum(n - 1, 1)
    return np.asarray(r / n * ((R + 1) * A + together * (m - (b + 1) * A)))


def _precision_with_cut_group(ranking: TiedRanking, groups: Integers, depth: int, gain: Float64) -> Float64:
    """Compute the AP of queries whose last m places are a part of one group, with ``gain`` from those before.

    Of the n items that tie, k relevant ones come into the m places with hypergeometric probability; given k,
    any k of the m places are equally likely: the formula at the top with k of m in the place of r of n.
    """
    b, R, n, r = (values[:, None] for values in ranking.counts(groups))
    m = depth - b
    k, probability = _hypergeometric(n, r, m)
    total = gain[:, None] + _group_precisions(b, R, m, k, m)
    return np.asarray(np.sum(probability * total / np.maximum(R + k, 1), axis=1))


def _hypergeometric(n: Integers, r: Integers, m: Integers) -> tuple[Integers, Float64]:
    """Compute probabilities of k relevant ones among m of n items, r of them relevant; arguments (groups, 1).

    From the ratio of neighbours, ``p(k+1)/p(k) = (r-k)(m-k) / ((k+1)(n-r-m+k+1))``, in logarithms: products
    of factorials would lose digits, and the first probability may be too small for a float.
    """
    lowest, highest = np.maximum(m - (n - r), 0), np.minimum(r, m)
    k = lowest + np.arange(np.max(highest - lowest, initial=0) + 1)
    possible = k <= highest
    k = np.minimum(k, highest)
    step = np.where(possible[:, 1:], _neighbour_ratio(n, r, m, k[:, :-1]), 1.0)
    weight = np.concatenate([np.zeros((len(k), 1)), np.cumsum(np.log(step), axis=1)], axis=1)
    weight = np.where(possible, np.exp(weight - weight.max(axis=1, keepdims=True, initial=0.0)), 0.0)
    return k, np.asarray(weight / weight.sum(axis=1, keepdims=True))


def _neighbour_ratio(n: Integers, r: Integers, m: Integers, k: Integers) -> Float64:
    return np.asarray((r - k) * (m - k) / ((k + 1) * (n - r - m + k + 1)))


def _harmonic_between(start: Integers, count: Integers) -> Float64:
    """Sum 1/t over the ``count`` places behind ``start``."""
    last = int(np.max(start + count, initial=0))
    H = _harmonic_numbers(1 << last.bit_length())
    return np.asarray(H[start + count] - H[start])


@lru_cache(maxsize=8)
def _harmonic_numbers(n: int) -> Float64:
    """Compute H_0 … H_n."""
    numbers = np.concatenate([[0.0], np.cumsum(1.0 / np.arange(1, n + 1))])
    numbers.flags.writeable = False
    return numbers
