"""From external ids to document numbers: sorted hashes, merged like the digits of a counter."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.ids import Id, PackedIds

__all__ = ["Lookup"]

_Run = tuple[NDArray[np.uint64], NDArray[np.int64]]
"""hashes in ascending order, and the numbers of their documents"""


@dataclass(frozen=True)
class Lookup:
    """Which documents may have an id: all with its hash, deleted ones included.

    Attributes
    ----------
    runs : tuple of (hashes, numbers)
        Each more than twice as long as the next, so there are few, and adding stays cheap.
    """

    runs: tuple[_Run, ...] = ()

    def grown(self, ids: PackedIds, numbers: NDArray[np.int64]) -> Lookup:
        """The same with more documents."""
        hashes = ids.hashes()
        order = np.argsort(hashes, kind="stable")
        runs = [*self.runs, (hashes[order], numbers[order])]
        while len(runs) > 1 and len(runs[-2][0]) <= 2 * len(runs[-1][0]):
            runs[-2:] = [_merged(runs[-2], runs[-1])]
        return Lookup(tuple(runs))

    def candidates(self, ids: Sequence[Id]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Places in ``ids``, and beside each the number of a document that may have that id."""
        hashes = PackedIds.of(ids).hashes()
        order = np.argsort(hashes)  # looked up in order, neighbours share their cache lines
        found = [_matches(run, hashes[order]) for run in self.runs]
        nothing = np.empty(0, dtype=np.int64)
        places, numbers = zip(*found, strict=True) if found else ((), ())
        return order[np.concatenate([nothing, *places])], np.concatenate([nothing, *numbers])

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return sum(hashes.nbytes + numbers.nbytes for hashes, numbers in self.runs)


def _merged(left: _Run, right: _Run) -> _Run:
    hashes = np.concatenate([left[0], right[0]])
    order = np.argsort(hashes, kind="stable")  # fast on two sorted runs
    return hashes[order], np.concatenate([left[1], right[1]])[order]


def _matches(run: _Run, hashes: NDArray[np.uint64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    first = np.searchsorted(run[0], hashes, side="left")
    counts = np.searchsorted(run[0], hashes, side="right") - first
    places = np.repeat(np.arange(len(hashes)), counts)
    within = np.arange(len(places)) - np.repeat(np.cumsum(counts) - counts, counts)
    return places, run[1][np.repeat(first, counts) + within]
