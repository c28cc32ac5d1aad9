"""Simulated scatter-gather: an answer is there when the slowest of all shards has answered.

A shard's latency is drawn from a table of quantiles (as measured, relative to the median) or from any other
function of uniform numbers. With hedging, a question that is not answered after a while is asked again of a
replica, and the first answer counts. Draws are independent; what all shards suffer at once is not in it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["Tail", "exponential", "from_quantiles", "maximum_quantile", "summarise_quantiles", "simulate"]

Floats = NDArray[np.float64]
Latency = Callable[[Floats], Floats]
"""latencies of uniform numbers: the inverse of the distribution function"""

_AT_ONCE = 4_000_000  # draws


class Tail(NamedTuple):
    """Latencies of whole answers, and what hedging cost.

    Attributes
    ----------
    p50, p95, p99 : float
        In the unit of the shards' latencies.
    extra : float
        Questions that were asked again, as a share of all.
    """

    p50: float
    p95: float
    p99: float
    extra: float


def summarise_quantiles(values: Sequence[float], count: int = 201) -> list[float]:
    """Sum measured latencies up: evenly spaced quantiles from the least to the greatest."""
    return np.quantile(np.asarray(values), np.linspace(0, 1, count)).tolist()


def from_quantiles(quantiles: Sequence[float]) -> Latency:
    """Draw between evenly spaced quantiles; nothing is faster than the first or slower than the last."""
    places = np.linspace(0, 1, len(quantiles))
    return lambda uniform: np.interp(uniform, places, quantiles)


def exponential(mean: float) -> Latency:
    """Latencies without memory, for which the slowest of many is known in closed form."""
    return lambda uniform: -mean * np.log1p(-uniform)


def maximum_quantile(latency: Latency, shards: int, share: float) -> float:
    """The quantile of the slowest of independent shards, exactly: F(x)ⁿ = share."""
    return float(latency(np.array([share ** (1 / shards)]))[0])


def simulate(
    latency: Latency, shards: int, *, queries: int = 20_000, hedge_after: float | None = None, seed: int = 0
) -> Tail:
    """Ask all shards again and again.

    Parameters
    ----------
    latency : callable
        Latencies of one shard.
    shards : int
    queries : int
    hedge_after : float, optional
        Ask a replica when there is no answer after this; None for never.
    seed : int
    """
    rng = np.random.default_rng(seed)
    slowest, again = [], 0
    at_once = max(1, min(queries, _AT_ONCE // shards))
    for first in range(0, queries, at_once):
        answered, hedged = _ask_shards(latency, (min(at_once, queries - first), shards), hedge_after, rng)
        slowest.append(answered.max(axis=1))
        again += hedged
    p50, p95, p99 = np.quantile(np.concatenate(slowest), [0.5, 0.95, 0.99]).tolist()
    return Tail(p50, p95, p99, again / (queries * shards))


def _ask_shards(
    latency: Latency, shape: tuple[int, int], hedge_after: float | None, rng: np.random.Generator
) -> tuple[Floats, int]:
    """Latencies of every shard for every query, and how many were asked twice."""
    first = latency(rng.random(shape))
    if hedge_after is None:
        return first, 0
    late = first > hedge_after
    n_late = int(late.sum())
    first[late] = np.minimum(first[late], hedge_after + latency(rng.random(n_late)))
    return first, n_late
