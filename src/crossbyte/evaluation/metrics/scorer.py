"""Scores of all queries, fed block by block, so that all distances never stand in memory at once."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from crossbyte.arrays import Float64
from crossbyte.blocks import row_blocks
from crossbyte.errors import InvalidInput
from crossbyte.evaluation.metrics.chance import chance_scores
from crossbyte.evaluation.metrics.curves import RankSweep
from crossbyte.evaluation.metrics.keys import PerQuery, by_partners, by_relevance, curves, means
from crossbyte.evaluation.metrics.ordering import check_distances
from crossbyte.evaluation.metrics.partners import PartnerPlaces, partner_places
from crossbyte.evaluation.metrics.ties import Integers, TiedRanking, check_relevant, ranked

__all__ = ["Scorer"]

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
    >>> from crossbyte.evaluation.metrics import Scorer
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
        self._counts: dict[str, list[Integers]] = {"relevant": [], "partners": []}
        self._sweep = RankSweep(n_items)

    def add(
        self, distances: ArrayLike, relevant: ArrayLike | None = None, partners: ArrayLike | None = None
    ) -> None:
        """Score a block of queries.

        Parameters
        ----------
        distances : (n, n_items) float32
            From each query to every item of the database; smaller is better. NaN is refused.
        relevant : (n, n_items) bool
            Where the scorer was told of them: whether an item is relevant to a query.
        partners : (n,) int, (n, g) int, or (n, n_items) bool
            Where the scorer was told of them: the column of each query's true partner; or several columns,
            or marks, of which any counts.
        """
        self._check_given("relevant", relevant is not None, self.labels_relevant)
        self._check_given("partners", partners is not None, self.partners)
        block = check_distances(distances)  # all of it before any of it counts
        if block.shape[1] != self.n_items:
            raise InvalidInput(f"expected a distance to each of {self.n_items} items; got {block.shape[1]}.")
        marks = None if relevant is None else check_relevant(relevant, block.shape)
        if partners is not None:
            self._add_partners(partner_places(block, partners))
        if marks is not None:
            for rows in row_blocks(len(block), max(1, _CELLS // self.n_items)):
                self._add_ranking(ranked(block[rows], marks[rows]))

    def scores(self) -> dict[str, Any]:
        """Average over all queries so far.

        Returns
        -------
        dict
            By relevance "map@50", "map@100" (over the relevant items retrieved, as in the paper),
            "map@50/recall", "map@100/recall", "map@all", "precision@T", "precision_curve": {"depths",
            "values"} and "pr_curve": {"recall", "precision"}; by partner "recall@k".
        """
        per_query = self._all()
        found: dict[str, Any] = dict(means(per_query))
        return found | curves(per_query, self._sweep) if self.labels_relevant else found

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
        found = self._all()
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
            See :func:`chance_scores`.
        """
        relevant, partners = (np.concatenate(parts) if parts else None for parts in self._counts.values())
        return chance_scores(relevant, self.n_items, False if partners is None else partners)

    def _check_given(self, name: str, given: bool, expected: bool) -> None:
        if given != expected:
            came = "got some" if given else "got none"
            raise InvalidInput(
                f"this scorer was made for queries {'with' if expected else 'without'} {name}; {came}."
            )

    def _add_partners(self, places: PartnerPlaces) -> None:
        self._counts["partners"].append(places.total)
        self._keep(by_partners(places))

    def _add_ranking(self, ranking: TiedRanking) -> None:
        self._counts["relevant"].append(ranking.total)
        self._sweep.add(ranking)
        self._keep(by_relevance(ranking))

    def _keep(self, scores: PerQuery) -> None:
        for name, values in scores.items():
            self._parts[name].append(values)

    def _all(self) -> PerQuery:
        if not self._parts:
            raise InvalidInput("there is nothing to score; add the distances of at least one query first.")
        return {name: np.concatenate(parts) for name, parts in self._parts.items()}
