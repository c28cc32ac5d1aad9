"""Put into words whether anything in an answer matches: ``Hits.no_match``, as far as it can be trusted.

A match is likely unless ``no_match`` is true. Where it is, the verdict says how sure that is: a model that
cannot tell well is unsure, and of a word or two nothing sure is said.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from crossbyte.report.measurements import CLEAR

if TYPE_CHECKING:
    from crossbyte.index.hits import Hits
    from crossbyte.report.model_report import Report

Verdict = Literal["likely", "unsure", "unlikely"]

_ABOVE_CHANCE = 1.001
_FEW_WORDS = 3  # models are calibrated on whole captions; a word or two is none


def find_match_auroc(report: Report | None, query: str, target: str) -> float | None:
    """Find how well a model tells queries with a partner from those without (AUROC); None if not measured."""
    ways = report.reliability if report is not None else ()
    return next((each.match_auroc for each in ways if (each.query, each.target) == (query, target)), None)


def judge_hits(hits: Hits, auroc: float | None, n_documents: int, text: str | None = None) -> Verdict:
    """Judge one answer.

    Parameters
    ----------
    hits : Hits
    auroc : float or None
        From :func:`find_match_auroc`; below 0.8, a model is unsure.
    n_documents : int
        In the index.
    text : str, optional
        The query, if it was asked in words; of a few, nothing sure is said.
    """
    if not hits.no_match:
        return "likely"
    probabilities = [] if hits.probabilities is None else hits.probabilities.tolist()
    if max(probabilities, default=0.0) * n_documents <= _ABOVE_CHANCE:  # a query that says nothing
        return "unlikely"
    is_short = text is not None and len(text.split()) <= _FEW_WORDS
    return "unsure" if is_short or (auroc is not None and auroc < CLEAR) else "unlikely"
