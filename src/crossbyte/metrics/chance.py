"""Say what a random ranking would score, exactly and without drawing any."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.metrics.ranks import check_depth


def chance_mean_average_precision(proportions: ArrayLike, depth: int, n_items: int | None = None) -> float:
    """Give the exact expectation of :func:`mean_average_precision` when items are ranked at random.

    Closed form, nothing is sampled. Given k hits among the first T places, all sets of k places are equally
    likely, which gives ``E[AP | k] = (H_T + (k - 1) / (T - 1) * (T - H_T)) / T`` with the harmonic number
    ``H_T``: linear in k, so only the expected k and the probability of no hit at all remain.

    Parameters
    ----------
    proportions : (n_queries,) float
        For each query the share of the database that is relevant to it.
    depth : int
        How many results count.
    n_items : int, optional
        Size of the database; results are then drawn without replacement. None is the limit of a very large
        database.

    Returns
    -------
    float
        The mean over queries.
    """
    shares = np.asarray(proportions, dtype=np.float64)
    if shares.ndim != 1 or shares.size == 0 or not np.all((shares >= 0) & (shares <= 1)):
        raise InvalidInput(
            "proportions must be one share between 0 and 1 per query, for at least one query; got an array of"
            f" shape {shares.shape}: {shares}. Divide each count of relevant items by the database size."
        )
    check_depth(depth, n_items)
    harmonic = float(np.sum(1.0 / np.arange(1, depth + 1)))
    slope = (depth - harmonic) / (depth * (depth - 1)) if depth > 1 else 0.0
    any_hit = 1.0 - _no_hit_probability(shares, depth, n_items)
    return float(np.mean(any_hit * (harmonic / depth - slope) + depth * shares * slope))


def chance_recall(n_items: int, k: int, n_relevant: int = 1) -> float:
    """Give the recall at ``k`` of a random ranking.

    Parameters
    ----------
    n_items : int
        Size of the database.
    k : int
        How many results count; more than ``n_items`` is the same as all.
    n_relevant : int, default 1
        How many items count as the partner (the captions of one picture); finding any of them is enough.

    Returns
    -------
    float
        ``k / n_items`` for a single partner.
    """
    if not 1 <= n_relevant <= n_items or k < 1:
        raise InvalidInput(
            f"expected 1 <= n_relevant <= n_items and k >= 1; got {n_relevant=}, {n_items=}, {k=}."
        )
    share = np.array([n_relevant / n_items])
    return float(1.0 - _no_hit_probability(share, min(k, n_items), n_items)[0])


def _no_hit_probability(shares: Float64, depth: int, n_items: int | None) -> Float64:
    """Compute the probability that ``depth`` random results contain no relevant item, per query."""
    if n_items is None:
        return np.asarray((1.0 - shares) ** depth)
    drawn = np.arange(depth)
    irrelevant = n_items - np.rint(shares * n_items)
    left = np.maximum(irrelevant[:, None] - drawn, 0.0)
    return np.asarray(np.prod(left / (n_items - drawn), axis=1))
