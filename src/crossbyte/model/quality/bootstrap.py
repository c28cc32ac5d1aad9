"""Intervals by resampling the held-out pairs, the same resamples for everything that is compared."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.report.measurements import Estimate

__all__ = ["Bootstrap"]

_N_RESAMPLES = 1_000
_INTERVAL = (2.5, 97.5)


class Bootstrap:
    """Resamples of n pairs, each drawn with replacement.

    Parameters
    ----------
    n_pairs : int
    rng : Generator
    """

    def __init__(self, n_pairs: int, rng: np.random.Generator) -> None:
        share = np.full(n_pairs, 1.0 / n_pairs)
        self._counts = rng.multinomial(n_pairs, share, size=_N_RESAMPLES).astype(np.float64)

    def mean(self, values: Any) -> Estimate:
        """Mean of one value per pair, with its interval."""
        values = np.asarray(values, dtype=np.float64)
        return _estimate(values.mean(), self._counts @ values / len(values))

    def median(self, values: Any) -> Estimate:
        """Lower median of one value per pair, with its interval."""
        order = np.argsort(values, kind="stable")
        growing = np.asarray(values)[order]
        below = np.cumsum(self._counts[:, order], axis=1)
        middles = (below >= 0.5 * len(growing)).argmax(axis=1)
        return _estimate(growing[(len(growing) - 1) // 2], growing[middles])


def _estimate(value: Any, resampled: Float64) -> Estimate:
    low, high = np.percentile(resampled, _INTERVAL)
    return Estimate(float(value), float(low), float(high))
