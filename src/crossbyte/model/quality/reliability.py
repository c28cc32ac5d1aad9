"""Are the probabilities true? Measured on queries that the likelihood was not learned from."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.model.quality.likelihood import NearItems, fit_likelihood
from crossbyte.model.scoring import auroc
from crossbyte.report.measurements import Reliability

__all__ = ["equal_bins", "expected_error", "measure_reliability", "posterior"]

_N_BINS = 15
_DEPTH = 10


def posterior(log_ratios: Any, prior: float) -> Float64:
    """Probability of partnership from log-likelihood ratios and the prior of any one item."""
    certain = min(prior, 1.0 - 1e-12)  # nothing is certain before looking
    odds = np.asarray(log_ratios) + np.log(certain) - np.log1p(-certain)
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(odds, -700, 700))))


def measure_reliability(items: NearItems, query: str, target: str) -> Reliability:
    """Learn from one half of the queries, judge on the other, and the reverse; all hits together."""
    ratios = _cross_fitted(items)
    top = slice(None, _DEPTH)
    probabilities = posterior(ratios[:, top], 1.0 / max(items.n_items, 2))
    bins = equal_bins(probabilities, items.partner[:, top])
    matched = np.arange(len(ratios)) // 2 % 2 == 0  # the others lose their partner; both in either half
    return Reliability(
        query,
        target,
        bins,
        expected_error(bins),
        auroc(_best(ratios, items.partner, matched, np.max), matched),
        auroc(-_best(items.distances, items.partner, matched, np.min), matched),
    )


def _cross_fitted(items: NearItems) -> Float64:
    """Log-likelihood ratios (n, k), each by what the other half of the queries has taught."""
    half = np.arange(len(items.levels)) % 2 == 0
    ratios = np.empty_like(items.distances)
    for mine in (half, ~half):
        if mine.any():
            own = items.take(mine)
            teacher = items.take(~mine) if not mine.all() else own
            ratios[mine] = fit_likelihood(teacher).log_ratios(own.distances, own.levels[:, None])
    return ratios


def _best(scores: Float64, partner: NDArray[np.bool_], matched: NDArray[np.bool_], best: Any) -> Float64:
    """The best score of each query, where those that are not matched have lost their partner."""
    worst = {np.max: -np.inf, np.min: np.inf}[best]
    found = best(np.where(partner & ~matched[:, None], worst, scores), axis=1)
    return np.asarray(np.nan_to_num(found, posinf=1e300, neginf=-1e300))


def equal_bins(probabilities: Any, truth: Any, n_bins: int = _N_BINS) -> list[tuple[float, float, int]]:
    """Mean probability, share of true ones and number, in bins of equal number by probability."""
    p, y = np.ravel(probabilities), np.ravel(truth)
    parts = np.array_split(np.argsort(p, kind="stable"), n_bins)
    return [(float(p[part].mean()), float(y[part].mean()), len(part)) for part in parts if len(part)]


def expected_error(bins: list[tuple[float, float, int]]) -> float:
    """Expected calibration error: the mean gap between probability and share, hit by hit."""
    total = sum(count for _, _, count in bins)
    return sum(abs(p - share) * count for p, share, count in bins) / max(total, 1)
