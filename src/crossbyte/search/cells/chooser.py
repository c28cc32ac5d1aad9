"""Which cells a query visits: those that are nearest to where queries of its kind look for them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crossbyte import kernels
from crossbyte.arrays import Float32
from crossbyte.kernels import WORDS

__all__ = ["Chooser"]

_QUERIES_AT_ONCE = 64  # bounds the memory of the scores


@dataclass(frozen=True, eq=False)
class Chooser:
    """Route queries of one kind to cells: the learned coarse quantizer of an IVF.

    Attributes
    ----------
    points : (n_cells, D) float32
        Where a cell is looked for: its centre, or what pairs have taught.
    offsets : (n_cells,) float32
        Added to the squared distance to that point.
    """

    points: Float32
    offsets: Float32

    @classmethod
    def at(cls, points: Float32) -> Chooser:
        """Choose by distances to these points alone."""
        return cls(points, np.zeros(len(points), dtype=np.float32))

    def scores(self, queries: Float32) -> Float32:
        """Score the cells for every query (n, n_cells), the lowest first; no row depends on the others."""
        tables = kernels.distance_tables(np.ascontiguousarray(queries), self._by_dim)
        scores: Float32 = tables.reshape(len(queries), -1)[:, : len(self.points)] + self.offsets
        return scores

    def choose(self, queries: Float32, count: int) -> NDArray[np.int64]:
        """Choose ``count`` cells for every query, (n, count), in the order of (score, cell)."""
        chosen = np.empty((len(queries), count), dtype=np.int64)
        for start in range(0, len(queries), _QUERIES_AT_ONCE):
            scores = self.scores(queries[start : start + _QUERIES_AT_ONCE])
            last = np.partition(scores, count - 1, axis=1)[:, count - 1]
            for row, (own, limit) in enumerate(zip(scores, last, strict=True), start):
                near = np.flatnonzero(own <= limit)
                chosen[row] = near[np.argsort(own[near], kind="stable")[:count]]
        return chosen

    @cached_property
    def _by_dim(self) -> Float32:
        """Give the points as codebooks, (n, D, 256), the last filled up with copies."""
        n_tables = -(-len(self.points) // WORDS)
        padded = np.resize(self.points, (n_tables * WORDS, self.points.shape[1]))
        return np.ascontiguousarray(padded.reshape(n_tables, WORDS, -1).transpose(0, 2, 1))
