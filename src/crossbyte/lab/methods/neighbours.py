"""Find who is near whom within one side: graphs of nearest neighbours and their Laplacians.

All pairs of rows are compared, a block at a time, so that whoever asks for a graph takes a part of the
documents first (:func:`crossbyte.compute.executor.sample_rows`) and says of how many in its ``details``.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers, row_blocks
from crossbyte.data.preparation import PreparedRows
from crossbyte.lab.methods.labels import share_a_label

ROWS_AT_ONCE = 512
"""Rows multiplied with all others: what is written out of them stays small beside the rows."""


def inner_products(rows: PreparedRows, block: slice) -> Float64:
    """Products (b, n) of some rows with all rows (n, d)."""
    some = np.ascontiguousarray(rows[block].dense().T, dtype=np.float64)
    return np.asarray(rows.times(some), dtype=np.float64).T


def row_products(rows: PreparedRows, workers: Workers) -> Float64:
    """XX', (n, n), of rows X (n, d)."""
    blocks = row_blocks(rows.shape[0], ROWS_AT_ONCE)
    return np.concatenate(list(workers.map(lambda block: inner_products(rows, block), blocks)))


Graph = sparse.csr_array

_EQUAL = 1e-6  # of the median squared length; nearer to each other, two squared distances are equal


def nearest_neighbours(
    rows: PreparedRows, n_nearest: int, workers: Workers, labels: NDArray[np.bool_] | None = None
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
    squares = np.concatenate([_squared_lengths(rows[block]) for block in blocks])
    unit = _EQUAL * float(np.median(squares) or squares.mean() or 1.0)  # a median bears a row far out

    def nearest(block: slice) -> Graph:
        # Counted in units, because equal distances differ by rounding, and sparse rows round otherwise.
        distances = np.rint((squares[block, None] + squares - 2.0 * inner_products(rows, block)) / unit)
        distances[np.arange(len(distances)), np.arange(block.start, block.stop)] = np.inf
        if labels is not None:
            distances[~share_a_label(labels[block], labels)] = np.inf
        return _mark_nearest(distances, n_nearest)

    return sparse.csr_array(sparse.vstack(list(workers.map(nearest, blocks)), format="csr"))


def _squared_lengths(rows: PreparedRows) -> Float64:
    """Squared lengths (n,) of rows as they are written out: ``rows.squares()`` takes sparse ones as units."""
    dense = rows.dense()
    return np.einsum("nd,nd->n", dense, dense, dtype=np.float64)


def _mark_nearest(distances: Float64, n_nearest: int) -> Graph:
    """1 at the least finite distances of each row (b, n)."""
    order = np.argsort(distances, axis=1, kind="stable")[:, :n_nearest]
    left = np.repeat(np.arange(len(order)), order.shape[1])
    known = np.isfinite(distances[left, order.ravel()])
    ends = left[known], order.ravel()[known]
    return sparse.csr_array((np.ones(len(ends[0])), ends), shape=distances.shape)


def neighbour_graph(
    rows: PreparedRows, n_nearest: int, workers: Workers, labels: NDArray[np.bool_] | None = None
) -> Graph:
    """Join rows of which one is a neighbour of the other: (n, n), 0 and 1, symmetric."""
    near = nearest_neighbours(rows, n_nearest, workers, labels)
    return sparse.csr_array(near.maximum(near.T))


def laplacian(graph: Graph) -> Graph:
    """D - W of a symmetric graph W (n, n), D the sums of its rows: f'(D - W)f = ½ Σ W_ij (f_i - f_j)²."""
    return sparse.csr_array(sparse.diags_array(graph.sum(axis=1)) - graph)
