"""Which shard a new document goes to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

__all__ = ["ATOMIC_ROWS", "NOWHERE", "routed"]

ATOMIC_ROWS = 16_384  # so many new documents go to one shard, in one commit: all or nothing
NOWHERE = -1

Homes = NDArray[np.intp]


def routed(homes: Homes, sizes: Sequence[int]) -> Homes:
    """Choose the shard of every document.

    A document that replaces another goes where that one is, so that one commit does both. New ones go to the
    smallest shard; where they are many, they level all shards, in runs that follow each other.

    Parameters
    ----------
    homes : (n,) intp
        The shard that has a document of the same id, or `NOWHERE`.
    sizes : sequence of int
        Documents of every shard.

    Returns
    -------
    (n,) intp
    """
    chosen = homes.copy()
    new = np.flatnonzero(homes == NOWHERE)
    chosen[new] = np.repeat(np.arange(len(sizes)), _shares(len(new), np.asarray(sizes)))
    return chosen


def _shares(n_new: int, sizes: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many new documents each shard gets."""
    shares = np.zeros(len(sizes), np.int64)
    if n_new <= ATOMIC_ROWS:
        shares[np.argmin(sizes)] = n_new
        return shares
    order = np.argsort(sizes, kind="stable")
    lowest = sizes[order]
    # The water level that so many documents reach, over the shards that lie below it.
    levels = (n_new + np.cumsum(lowest)) // np.arange(1, len(sizes) + 1)
    below = int(np.flatnonzero(levels >= lowest)[-1]) + 1
    shares[order[:below]] = levels[below - 1] - lowest[:below]
    shares[order[: n_new - int(shares.sum())]] += 1
    return shares
