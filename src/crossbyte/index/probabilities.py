"""Turn distances into probabilities: that a hit is the query's true partner, and whether anything matches."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from crossbyte.arrays import Float32, Float64
from crossbyte.calibration.calibration import N_FIRST, Calibration, Level, posterior
from crossbyte.errors import NotCalibrated
from crossbyte.index.scan import Ranking, SearchBackend
from crossbyte.index.segment import CODINGS, scanned_sides
from crossbyte.model.estimator import CMCQ

_LARGEST_PRIOR = 0.5  # of an index of one document: it may be the partner, or not


class MatchProbability(NamedTuple):
    """Settings by which hits are judged: how probable they must be, and before looking, are.

    Attributes
    ----------
    k : int
        How many hits are wanted.
    min_probability : float or None
        Less probable hits are left out; None to keep all, also where there are no probabilities.
    prior : float or None
        Probability of any one document before its distance is known; None for one in all documents.
    threshold : float
        Nothing matches where the probabilities of the first ten hits sum to less.
    """

    k: int
    min_probability: float | None
    prior: float | None
    threshold: float

    @property
    def depth(self) -> int:
        """How many hits to find: ten at least, so that probabilities are the same for any k."""
        return max(self.k, N_FIRST)

    def judge(
        self,
        rankings: Sequence[Ranking],
        model: CMCQ,
        backend: SearchBackend,
        kind: str,
        target: str,
        levels: CohortLevels,
    ) -> list[Ranking]:
        """Give these rankings, of queries with these levels, with log-likelihood ratios and probabilities.

        The queries are of one kind, and rankings as deep as :attr:`depth`. Without a calibration for such
        queries, only that nothing matches queries without any content is known.

        Raises
        ------
        NotCalibrated
            ``min_probability`` is given, and there is no calibration.
        """
        empty = np.logical_not(levels.points.any(axis=1)).tolist()  # queries without any tag or known word
        calibration = find_calibration(model, backend, kind, target)
        if calibration is None:
            self._refuse_uncalibrated(model, kind, target)
            return [
                replace(r, match_probability=0.0) if e else r for r, e in zip(rankings, empty, strict=True)
            ]
        n_items = len(backend)
        ratios = _log_ratios(calibration, kind, target, levels, rankings, n_items)
        prior = self.prior_of(n_items)
        return [
            _judge_one(ranking, np.zeros(len(own)) if is_empty else own, prior, is_empty)
            for ranking, own, is_empty in zip(rankings, ratios, empty, strict=True)
        ]

    def prior_of(self, n_items: int) -> float:
        """Give the probability of any one of the documents before looking."""
        return min(1.0 / max(n_items, 1), _LARGEST_PRIOR) if self.prior is None else self.prior

    def _refuse_uncalibrated(self, model: CMCQ, kind: str, target: str) -> None:
        if self.min_probability is None:
            return
        if model.calibration_ is None or not model.calibration_.likelihoods:
            raise NotCalibrated(
                "min_probability: this index's model has no probabilities; call calibrate(images, texts) on "
                "the model before making an index of it, or use max_distance"
            )
        raise NotCalibrated(
            f"min_probability: this index's model has no probabilities from {kind} to {target}: its pairs "
            "have shown no partner there (it takes groups of several rows at calibrate); use max_distance"
        )


def _judge_one(ranking: Ranking, ratios: Float64, prior: float, is_empty: bool) -> Ranking:
    """Compute the probabilities of one ranking; a query that says nothing leaves the prior as it is."""
    probabilities = np.full(len(ratios), prior) if is_empty else posterior(ratios, prior)
    likely = 0.0 if is_empty else float(probabilities[:N_FIRST].sum())
    return replace(ranking, log_ratios=ratios, probabilities=probabilities, match_probability=likely)


def find_calibration(model: CMCQ, backend: SearchBackend, kind: str, target: str) -> Calibration | None:
    """Give the calibration, if it covers every coding that may be found; else None."""
    calibration = model.calibration_
    if calibration is None:
        return None
    codings = [each for each in backend.codings if scanned_sides(each, target)]
    return calibration if all(calibration.knows(kind, target, coding) for coding in codings) else None


class CohortLevels:
    """Compute the distances that random other items (the cohort) have to some queries, each once.

    Attributes
    ----------
    points : (n, D) float32
        Of the queries.
    """

    def __init__(
        self,
        model: CMCQ,
        points: Float32,
        n_threads: int,
        known: Mapping[Level, Float64] = MappingProxyType({}),
    ) -> None:
        self.points = points
        self._model, self._n_threads, self._known = model, n_threads, dict(known)

    def of(self, levels: Sequence[Level]) -> dict[Level, Float64]:
        """Give these levels (n,) of the queries."""
        for each in levels:
            if each not in self._known:
                cohort = self._model.fitted_.cohort
                self._known[each] = cohort.levels(self.points, *each, n_threads=self._n_threads)
        return {each: self._known[each] for each in levels}

    def take(self, place: int) -> CohortLevels:
        """Give those of one query."""
        rows = slice(place, place + 1)
        known = {level: reached[rows] for level, reached in self._known.items()}
        return CohortLevels(self._model, self.points[rows], self._n_threads, known)


def _log_ratios(
    calibration: Calibration,
    kind: str,
    target: str,
    levels: CohortLevels,
    rankings: Sequence[Ranking],
    n_items: int,
) -> list[Float64]:
    """Compute the log-likelihood ratios of the hits of each query."""
    whole = rankings[0] if len(rankings) == 1 else Ranking.join(rankings)
    counts = [len(ranking.rows) for ranking in rankings]
    queries = np.repeat(np.arange(len(rankings)), counts)
    present = {place: CODINGS[place] for place in np.unique(whole.codings).tolist()}
    reached = levels.of(calibration.levels(kind, target, present.values()))
    ratios = np.empty(len(whole.rows))
    for place, coding in present.items():
        mine = whole.codings == place
        own = {each: level[queries[mine]] for each, level in reached.items()}
        ratios[mine] = calibration.log_ratios((kind, target, coding), whole.distances[mine], own, n_items)
    return np.split(ratios, np.cumsum(counts)[:-1])


def coding_offset(model: CMCQ, query: str, target: str, n_items: int) -> Callable[[str], float]:
    """Give the offset of a coding as a function: as measured, or, for a model never calibrated, its constant.

    Parameters
    ----------
    model : CMCQ
    query : {"image", "text"}
        Kind of the query.
    target : {"image", "text", "document"}
    n_items : int
        Live documents of the index, all codings together.
    """
    calibration = model.calibration_

    def offset(coding: str) -> float:
        if calibration is not None:
            return calibration.offset(query, target, coding, n_items)
        return model.fitted_.document_constant if coding == "document" else 0.0

    return offset
