"""Judge whether anything in an answer matches: by all that a model knows, not by the best hit alone.

Models are calibrated on partners. Where ten documents are equally right, each has a tenth of the probability;
``Hits.no_match`` would then be true of most good answers. Whatever shows answers uses this verdict instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from crossbyte.report.measurements import CLEAR, HINT

if TYPE_CHECKING:
    from crossbyte.index.hits import Hits
    from crossbyte.report.model_report import Report

Verdict = Literal["likely", "unsure", "unlikely"]

_N_JUDGED = 10
_ENOUGH_RIGHT = 0.25  # right ones to expect among the first, beyond what chance would put there; set by hand
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
        From :func:`find_match_auroc`: a model that cannot tell stays silent.
    n_documents : int
        In the index.
    text : str, optional
        The query, if it was asked in words; of a few, nothing sure is said.
    """
    if not hits.no_match or not len(hits):
        return "likely"
    probabilities = [] if hits.probabilities is None else hits.probabilities[:_N_JUDGED].tolist()
    if max(probabilities, default=0.0) * n_documents <= _ABOVE_CHANCE:  # a query that says nothing
        return "unlikely"
    if sum(probabilities) - len(probabilities) / n_documents >= _ENOUGH_RIGHT:
        return "likely"
    if auroc is not None and auroc < HINT:
        return "likely"
    is_short = text is not None and len(text.split()) <= _FEW_WORDS
    return "unsure" if is_short or (auroc is not None and auroc < CLEAR) else "unlikely"
