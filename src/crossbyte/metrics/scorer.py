"""Score all queries of a task, block by block, so that all distances are never in memory at once.

All scores are expectations over the orders of tied items; those of chance, too, where all items tie.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crossbyte.arrays import Float64
from crossbyte.compute.executor import row_blocks
from crossbyte.errors import InvalidInput
from crossbyte.metrics import average_precision, ties
from crossbyte.metrics.ranks import PartnerPlaces, expected_partner_recall, partner_places

MAP_DEPTHS = (50, 100)
PRECISION_DEPTHS = (1, 10, 50, 100, 500, 1000)
RECALL_DEPTHS = (1, 5, 10, 50, 100)
CURVE_DEPTHS = (1, 2, 5, 10, 15, 20, *range(25, 1001, 25))

PerQuery = dict[str, Float64]
"""(n,) scores by name; "precision_curve" is (n, number of depths)."""

_CELLS = 1 << 19  # distances that are ranked at a time: larger blocks fall out of the caches


class Scorer:
    """Scores of one task of one system, by relevance, by true partners, or both.

    Parameters
    ----------
    n_items : int
        Size of the database.
    labels_relevant : bool, default True
        Whether queries come with what is relevant to them.
    partners : bool, default False
        Whether queries come with their true partners in the database.

    Examples
    --------
    >>> import numpy as np
    >>> from crossbyte.metrics import Scorer
    >>> scorer = Scorer(3)
    >>> scorer.add(np.float32([[0, 1, 1]]), np.array([[True, True, False]]))
    >>> scorer.scores()["map@50"]  # (1 + 1)/2 or (1 + 2/3)/2, equally likely
    0.9166666666666666
    """

    def __init__(self, n_items: int, *, labels_relevant: bool = True, partners: bool = False) -> None:
        self.n_items = n_items
        self.labels_relevant = labels_relevant
        self.partners = partners
        self._parts: dict[str, list[Float64]] = defaultdict(list)
        self._counts: dict[str, list[ties.Integers]] = {"relevant": [], "partners": []}
        self._sweep = average_precision.RankSweep(n_items)

    def add(
        self, distances: ArrayLike, relevant: ArrayLike | None = None, partners: ArrayLike | None = None
    ) -> None:
        """Score a block of queries.

        Parameters
        ----------
        distances : (n, n_items) float32
            From each query to every item of the database; smaller is better. NaN is refused.
        relevant : (n, n_items) bool
            With ``labels_relevant``: whether an item is relevant to a query.
        partners : (n,) int, (n, g) int, or (n, n_items) bool
            With ``partners``: the column of each query's true partner; or several columns, or marks, of which
            any counts.
        """
        self._check_given("relevant", relevant is not None, self.labels_relevant)
        self._check_given("partners", partners is not None, self.partners)
        block = ties.check_distances(distances)  # all of it before any of it counts
        if block.shape[1] != self.n_items:
            raise InvalidInput(f"expected a distance to each of {self.n_items} items; got {block.shape[1]}.")
        marks = None if relevant is None else ties.check_relevant(relevant, block.shape)
        if partners is not None:
            self._add_partners(partner_places(block, partners))
        if marks is not None:
            for rows in row_blocks(len(block), max(1, _CELLS // self.n_items)):
                self._add_ranking(ties.rank_with_ties(block[rows], marks[rows]))

    def scores(self) -> dict[str, Any]:
        """Average over all queries so far.

        Returns
        -------
        dict
            By relevance "map@50", "map@100" (over the relevant items retrieved, as in the paper),
            "map@50/recall", "map@100/recall", "map@all", "precision@T", "precision_curve": {"depths",
            "values"} and "pr_curve": {"recall", "precision"}; by partner "recall@k".
        """
        per_query = self._concatenate_parts()
        found: dict[str, Any] = dict(_mean_scores(per_query))
        return found | _mean_curves(per_query, self._sweep) if self.labels_relevant else found

    def per_query(self, *names: str) -> dict[str, Float64 | None]:
        """Give scores of single queries, in the order in which they came.

        Parameters
        ----------
        *names : str
            Further keys of :meth:`scores`, curves excepted.

        Returns
        -------
        dict of (n,) float64
            "ap@50", and "recall_rank", the expected 0-based rank of the true partner; None where queries came
            without relevance or partners. And whatever was named.
        """
        found = self._concatenate_parts()
        own = {"ap@50": found.get("map@50"), "recall_rank": found.get("recall_rank")}
        unknown = [name for name in names if name not in found or found[name].ndim > 1]
        if unknown:
            known = sorted(name for name, values in found.items() if values.ndim == 1)
            raise InvalidInput(f"expected names of scores, of {known}; got {unknown}.")
        return own | {name: found[name] for name in names}

    def chance(self) -> dict[str, Any]:
        """Give what a random ranking would score on these queries, under the same keys.

        Returns
        -------
        dict
            See :func:`expected_chance_scores`.
        """
        relevant, partners = (np.concatenate(parts) if parts else None for parts in self._counts.values())
        return expected_chance_scores(relevant, self.n_items, False if partners is None else partners)

    def _check_given(self, name: str, given: bool, expected: bool) -> None:
        if given != expected:
            came = "got some" if given else "got none"
            raise InvalidInput(
                f"this scorer was made for queries {'with' if expected else 'without'} {name}; {came}."
            )

    def _add_partners(self, places: PartnerPlaces) -> None:
        self._counts["partners"].append(places.total)
        self._keep(_score_by_partners(places))

    def _add_ranking(self, ranking: ties.TiedRanking) -> None:
        self._counts["relevant"].append(ranking.total)
        self._sweep.add(ranking)
        self._keep(_score_by_relevance(ranking))

    def _keep(self, scores: PerQuery) -> None:
        for name, values in scores.items():
            self._parts[name].append(values)

    def _concatenate_parts(self) -> PerQuery:
        if not self._parts:
            raise InvalidInput("there is nothing to score; add the distances of at least one query first.")
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}


def expected_chance_scores(
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
        By relevance: the paper's AP as in :func:`crossbyte.metrics.chance_mean_average_precision`, precision
        the share of relevant items, and so on; by partner: k / n_items, as
        :func:`crossbyte.metrics.chance_recall`.
    """
    scores: dict[str, Any] = {}
    if relevant_counts is not None:
        ranking, sweep = ties.rank_all_tied(relevant_counts, n_items), average_precision.RankSweep(n_items)
        sweep.add(ranking)
        per_query = _score_by_relevance(ranking)
        scores |= _mean_scores(per_query) | _mean_curves(per_query, sweep)
    if partners is not False:
        scores |= _mean_scores(_score_by_partners(_partners_anywhere(partners, n_items)))
    return scores


def _partners_anywhere(partners: bool | ArrayLike, n_items: int) -> PartnerPlaces:
    counts = np.atleast_1d(np.asarray(partners)).astype(np.int64)
    if counts.ndim != 1 or not np.all((counts >= 1) & (counts <= n_items)):
        raise InvalidInput(
            f"partners must be True or one count from 1 to n_items={n_items} per query; got {partners!r}."
        )
    return PartnerPlaces(np.zeros_like(counts), np.full_like(counts, n_items), counts, counts)


def _score_by_relevance(ranking: ties.TiedRanking) -> PerQuery:
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
        scores[f"map@{depth}"] = average_precision.expected_average_precision(ranking, depth)
        scores[f"map@{depth}/recall"] = average_precision.expected_average_precision(ranking, depth, "recall")
    scores["map@all"] = average_precision.expected_average_precision_all(ranking)
    depths = _depths_within(PRECISION_DEPTHS, ranking.n_items)
    scores |= _score_by_depth("precision", depths, average_precision.expected_precision(ranking, depths))
    scores["precision_curve"] = average_precision.expected_precision(
        ranking, _depths_within(CURVE_DEPTHS, ranking.n_items)
    )
    return scores


def _score_by_partners(places: PartnerPlaces) -> PerQuery:
    """Score every query by its true partner.

    Parameters
    ----------
    places : PartnerPlaces

    Returns
    -------
    dict
        "recall@k", and "recall_rank", the expected 0-based rank.
    """
    recalls = _score_by_depth("recall", RECALL_DEPTHS, expected_partner_recall(places, RECALL_DEPTHS))
    return recalls | {"recall_rank": places.expected_rank}


def _mean_scores(scores: Mapping[str, Float64]) -> dict[str, float]:
    """Average every score over queries; not ranks, whose mean a single bad one would rule.

    Parameters
    ----------
    scores : mapping
        As :func:`_score_by_relevance` and :func:`_score_by_partners` return them.

    Returns
    -------
    dict of float
        By name.
    """
    single = (name for name, values in scores.items() if values.ndim == 1 and name != "recall_rank")
    return {name: float(np.mean(scores[name])) for name in single}


def _mean_curves(scores: Mapping[str, Float64], sweep: average_precision.RankSweep) -> dict[str, Any]:
    """Average the curves over queries, in lists that can be written as JSON.

    Parameters
    ----------
    scores : mapping
        As :func:`_score_by_relevance` returns them.
    sweep : RankSweep
        Of the same queries.

    Returns
    -------
    dict
        "precision_curve": {"depths", "values"} and "pr_curve": {"recall", "precision"}.
    """
    values = np.mean(scores["precision_curve"], axis=0).tolist()
    depths = list(_depths_within(CURVE_DEPTHS, sweep.n_items))
    return {
        "precision_curve": {"depths": depths, "values": values},
        "pr_curve": {"recall": list(average_precision.RECALL_LEVELS), "precision": sweep.curve().tolist()},
    }


def _depths_within(depths: tuple[int, ...], n_items: int) -> tuple[int, ...]:
    return tuple(depth for depth in depths if depth <= n_items)


def _score_by_depth(name: str, depths: tuple[int, ...], values: Float64) -> PerQuery:
    return {f"{name}@{depth}": column for depth, column in zip(depths, values.T, strict=True)}
