"""The likelihood ratio: how much likelier a distance is of a true partner than of a stranger.

Its logarithm is linear in the distance and in the query's level (how near strangers come to it, see
:mod:`crossbyte.model.quality.cohort`). It is learned by logistic regression on the nearest items of every
held-out query, where it counts: which hits are chosen depends on their distances only, and that does not
disturb a regression on distances.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from crossbyte.arrays import Float64

__all__ = ["Likelihood", "NearItems", "fit_likelihood"]

_N_NEAREST = 32  # deeper, the ratio is less linear and matters less
_PENALTY = (
    1.0  # on standardised slopes: nothing beside hundreds of pairs, but finite where all are told apart
)


class Likelihood(NamedTuple):
    """log p(distance | partner) / p(distance | stranger) = intercept + slopes · (distance, level)."""

    intercept: float
    distance: float
    """at most 0"""
    level: float

    def log_ratios(self, distances: Any, levels: Any) -> Float64:
        """Log-likelihood ratios of distances and, beside them, of levels."""
        distances, levels = np.asarray(distances, np.float64), np.asarray(levels, np.float64)
        return np.asarray(self.intercept + self.distance * distances + self.level * levels)


class NearItems(NamedTuple):
    """The nearest items of some queries.

    Attributes
    ----------
    distances : (n, k) float64
        Growing.
    partner : (n, k) bool
        Which of them is the query's partner; at most one.
    levels : (n,) float64
    n_items : int
        How many items there were to choose from.
    """

    distances: Float64
    partner: NDArray[np.bool_]
    levels: Float64
    n_items: int

    @classmethod
    def among(cls, distances: Any, partners: NDArray[np.intp], levels: Float64) -> NearItems:
        """Choose from all distances (n, N); ``partners`` are columns."""
        near = np.argsort(distances, axis=1, kind="stable")[:, :_N_NEAREST]
        chosen = np.take_along_axis(distances, near, axis=1).astype(np.float64)
        return cls(chosen, near == partners[:, None], levels, distances.shape[1])

    def take(self, queries: Any) -> NearItems:
        """Some of the queries."""
        return NearItems(self.distances[queries], self.partner[queries], self.levels[queries], self.n_items)


def fit_likelihood(items: NearItems) -> Likelihood:
    """Logistic regression of partnership; the odds of the sample, one in all others, are taken out."""
    features = np.stack(np.broadcast_arrays(items.distances, items.levels[:, None])).reshape(2, -1)
    means, spreads = features.mean(axis=1), features.std(axis=1)
    spreads[spreads <= 1e-9 * (1.0 + np.abs(means))] = np.inf  # a feature that says nothing
    a, *b = _logistic((features - means[:, None]) / spreads[:, None], items.partner.ravel())
    slopes = b / spreads
    intercept = a - slopes @ means + np.log(max(items.n_items - 1, 1))
    return Likelihood(float(intercept), float(slopes[0]), float(slopes[1]))


def _logistic(features: Float64, truth: NDArray[np.bool_]) -> Float64:
    """Intercept and slopes; that of the first feature is not positive."""

    def loss(weights: Float64) -> tuple[float, Float64]:
        logits = weights[0] + weights[1:] @ features
        residuals = 1.0 / (1.0 + np.exp(-np.clip(logits, -500, 500))) - truth
        value = (
            np.logaddexp(0.0, logits).sum() - logits[truth].sum() + 0.5 * _PENALTY * weights[1:] @ weights[1:]
        )
        return float(value), np.append(residuals.sum(), features @ residuals + _PENALTY * weights[1:])

    share = np.clip(truth.mean(), 1e-9, 1 - 1e-9)
    start = np.zeros(1 + len(features))
    start[0] = np.log(share / (1 - share))
    bounds = [(None, None), (None, 0.0), *[(None, None)] * (len(features) - 1)]
    found = optimize.minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    return np.asarray(found.x)
