"""Say in words how sure an answer is, and each of its hits: strong, fair, weak, or nothing matches.

A hit's evidence is the log-likelihood ratio of its distance (a partner's against any document's) plus what
its words add; together with the prior of one in all documents, the evidence of the first ten hits gives the
probability that anything matches. How much words add, and what probability is right, is measured on held-out
pairs where there are enough (:mod:`crossbyte.gallery.trial`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self, cast

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.calibration.calibration import N_FIRST, prior_odds

Verdict = Literal["strong", "fair", "weak", "nothing"]
FoundBy = Literal["words", "picture", "both"]
MATCH = 0.5  # the least probability of a match; below, nothing matches
_FAIR = 0.7
_ORDER: dict[str, int] = {"nothing": 0, "weak": 1, "fair": 2, "strong": 3}


class Evidence(NamedTuple):
    """How distances and words become evidence, for one way of searching.

    Attributes
    ----------
    ratio_weight, word_weight : float
        Of a hit's log-likelihood ratio, and of its BM25 score.
    slope, intercept : float
        The log odds that anything matches are ``slope * E + intercept``, with E the joint evidence of the
        first ten hits.
    strong_at : float
        The least probability of a match that is called strong.
    strong_hit, fair_hit : float
        The least evidence, with the prior, of a hit that is called so.
    """

    ratio_weight: float = 1.0
    word_weight: float = 0.0
    slope: float = 1.0
    intercept: float = 0.0
    strong_at: float = 0.9
    strong_hit: float = 0.0
    fair_hit: float = -2.0

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Read what :meth:`to_dict` gave."""
        return cls(**{name: float(document[name]) for name in cls._fields})

    def to_dict(self) -> dict[str, float]:
        """Give all figures by name."""
        return self._asdict()

    def of_hits(self, log_ratios: Float64 | None, scores: Float64, prior: float) -> Float64:
        """Compute the evidence (n,) of hits, with the prior probability of any one document."""
        ratios = 0.0 if log_ratios is None else self.ratio_weight * log_ratios
        return np.asarray(ratios + self.word_weight * scores + prior_odds(prior), dtype=np.float64)

    def match_probability(self, evidence: Float64) -> float:
        """Compute the probability that anything matches, from the evidence of the first hits, best first."""
        if not len(evidence):
            return 0.0
        return float(_logistic(self.slope * join_evidence(evidence) + self.intercept))


USUAL = {
    "vectors": Evidence(),
    "both": Evidence(word_weight=0.25),
    "words": Evidence(ratio_weight=0.0, word_weight=0.7),
}
"""Evidence where nothing was measured."""


def join_evidence(evidence: Float64) -> float:
    """Join the evidence of the first ten hits: the log of the sum of their odds."""
    return float(np.logaddexp.reduce(evidence[:N_FIRST]))


def _logistic(value: float) -> float:
    return float(1.0 / (1.0 + np.exp(-np.clip(value, -500, 500))))


def judge_answer(probability: float, threshold: float = MATCH, strong_at: float = 0.9) -> Verdict:
    """Put the probability that anything matches into words; what is impossible passes no threshold."""
    if probability < threshold or probability <= 0.0:
        return "nothing"
    if probability >= max(strong_at, threshold):
        return "strong"
    return "fair" if probability >= max(_FAIR, threshold) else "weak"


def at_least(verdict: Verdict, least: Verdict) -> Verdict:
    """Give the surer one of two verdicts."""
    return verdict if _ORDER[verdict] >= _ORDER[least] else least


def at_most(verdict: Verdict, most: Verdict) -> Verdict:
    """Give the less sure one of two verdicts."""
    return verdict if _ORDER[verdict] <= _ORDER[most] else most


def hedge(verdict: Verdict) -> Verdict:
    """Soften a verdict that was never measured: nobody knows what is strong, or that nothing matches."""
    return at_most(at_least(verdict, "weak"), "fair")


def judge_hits(evidence: Float64, how: Evidence, verdict: Verdict) -> list[Verdict]:
    """Put the evidence of every hit into words; none is stronger than the whole answer."""
    return [at_most(_judge_hit(each, how), verdict) for each in evidence.tolist()]


def limit_verdict(verdict: Verdict, strengths: Sequence[Verdict]) -> Verdict:
    """Call no answer surer than the surest of its first hits; one without hits is sure of nothing."""
    most = max(strengths[:N_FIRST], key=_ORDER.__getitem__, default="nothing")
    return at_most(verdict, cast(Verdict, most))


def _judge_hit(evidence: float, how: Evidence) -> Verdict:
    return "strong" if evidence >= how.strong_hit else "fair" if evidence >= how.fair_hit else "weak"
