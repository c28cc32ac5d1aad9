"""Who is near whom within one side: graphs of nearest neighbours, and their Laplacians.

All pairs of rows are compared, a block at a time, so that whoever asks for a graph takes a part of the
documents first (:func:`crossbyte.blocks.sample_rows`) and says of how many in its ``details``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float64
from crossbyte.blocks import row_blocks
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers
from crossbyte.methods.label_rows import shared_label
from crossbyte.methods.products import ROWS_AT_ONCE, inner_products

__all__ = ["Graph", "laplacian", "neighbour_graph", "neighbours"]

Graph = sparse.csr_array

_EQUAL = 1e-6  # of the median squared length; nearer to each other, two squared distances are equal


def neighbours(
    rows: Rows, n_nearest: int, workers: Workers, labels: NDArray[np.bool_] | None = None
) -> Graph:
    """Mark the nearest rows of each row, never itself; equally near ones in the order of rows.

    Parameters
    ----------
    rows : (n, d)
        Prepared rows of one side.
    n_nearest : int
        Neighbours of a row; fewer where there are fewer.
    workers : Workers
    labels : (n, C) bool, optional
        With them, only documents that share a label are neighbours.

    Returns
    -------
    (n, n) sparse float64
        1 in row i and column j where j is a neighbour of i; in general not symmetric.
    """
    blocks = list(row_blocks(rows.shape[0], ROWS_AT_ONCE))
    squares = np.concatenate([_squares(rows[block]) for block in blocks])
    unit = _EQUAL * float(np.median(squares) or squares.mean() or 1.0)  # a median bears a row far out

    def nearest(block: slice) -> Graph:
        # Counted in units, because equal distances differ by rounding, and sparse rows round otherwise.
        distances = np.rint((squares[block, None] + squares - 2.0 * inner_products(rows, block)) / unit)
        distances[np.arange(len(distances)), np.arange(block.start, block.stop)] = np.inf
        if labels is not None:
            distances[~shared_label(labels[block], labels)] = np.inf
        return _marked(distances, n_nearest)

    return sparse.csr_array(sparse.vstack(list(workers.map(nearest, blocks)), format="csr"))


def _squares(rows: Rows) -> Float64:
    """Squared lengths (n,) of rows as they are written out: ``rows.squares()`` takes sparse ones as units."""
    dense = rows.dense()
    return np.einsum("nd,nd->n", dense, dense, dtype=np.float64)


def _marked(distances: Float64, n_nearest: int) -> Graph:
    """1 at the least finite distances of each row (b, n)."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :n_nearest]
    left = np.repeat(np.arange(len(order)), order.shape[1])
    known = np.isfinite(distances[left, order.ravel()])
    ends = left[known], order.ravel()[known]
    return sparse.csr_array((np.ones(len(ends[0])), ends), shape=distances.shape)


def neighbour_graph(
    rows: Rows, n_nearest: int, workers: Workers, labels: NDArray[np.bool_] | None = None
) -> Graph:
    """Join rows of which one is a neighbour of the other: (n, n), 0 and 1, symmetric."""
    near = neighbours(rows, n_nearest, workers, labels)
    return sparse.csr_array(near.maximum(near.T))


def laplacian(graph: Graph) -> Graph:
    """D - W of a symmetric graph W (n, n), D the sums of its rows: f'(D - W)f = ½ Σ W_ij (f_i - f_j)²."""
    return sparse.csr_array(sparse.diags_array(graph.sum(axis=1)) - graph)
