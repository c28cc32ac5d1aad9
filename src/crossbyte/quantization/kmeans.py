"""Lloyd's k-means over canonical blocks.

Written here because the result must not depend on the number of threads (scikit-learn's does) and the
assignment is one matrix product per block anyway.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32, Float64
from crossbyte.blocks import row_blocks
from crossbyte.executors.protocol import Executor

__all__ = ["kmeans", "nearest"]


_ROWS_AT_ONCE = 512  # their distances to all centres stay in the cache of a core


def kmeans(
    points: Float32, n_codewords: int, rng: np.random.Generator, workers: Executor, n_iter: int = 12
) -> Float64:
    """Return (n_codewords, d) centres; with fewer points than codewords, points are repeated."""
    order = rng.permutation(len(points))
    centres = points[np.resize(order, n_codewords)].astype(np.float64)
    if len(points) <= n_codewords:
        return centres
    for _ in range(n_iter):
        labels, errors = nearest(points, centres, workers)
        centres = _means(points, labels, errors, centres)
    return centres


def nearest(points: Float32, centres: Float64, workers: Executor) -> tuple[NDArray[np.intp], Float32]:
    """Index of the nearest centre of each point, and the squared distance to it."""
    table, offsets = centres.T.astype(np.float32), (centres**2).sum(axis=1).astype(np.float32)

    def assign(block: slice) -> tuple[NDArray[np.intp], Float32]:
        labels = np.empty(block.stop - block.start, dtype=np.intp)
        errors = np.empty(len(labels), dtype=np.float32)
        own = points[block]
        for rows in row_blocks(len(own), _ROWS_AT_ONCE):
            scores = own[rows] @ table
            scores *= -2
            scores += offsets
            labels[rows] = best = scores.argmin(axis=1)
            errors[rows] = scores[np.arange(len(best)), best]
        errors += np.einsum("nd,nd->n", own, own)
        return labels, errors

    found = list(workers.map(assign, row_blocks(len(points))))
    no_labels, no_errors = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float32)
    labels = np.concatenate([no_labels, *(part[0] for part in found)])
    return labels, np.concatenate([no_errors, *(part[1] for part in found)])


def _means(points: Float32, labels: NDArray[np.intp], errors: Float32, centres: Float64) -> Float64:
    counts = np.bincount(labels, minlength=len(centres))
    members = sparse.csr_matrix(
        (np.ones(len(labels)), (labels, np.arange(len(labels)))), (len(centres), len(labels))
    )
    sums = np.asarray(members @ points.astype(np.float64))
    empty = np.flatnonzero(counts == 0)
    # An empty codeword takes over the worst-served points, one each.
    sums[empty] = points[np.argsort(-errors, kind="stable")[: len(empty)]]
    return sums / np.maximum(counts, 1)[:, None]
