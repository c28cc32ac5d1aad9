"""Train the centres of cells (IVF), in plain distances or in a metric that is learned from pairs.

Beyond some thousand cells the centres are themselves put into groups, and a point is compared with the
centres of its nearest groups only: with 12,649 cells in a sixth of the time. One point in a hundred then
misses its nearest centre by a little; its cell is the one that it was given, whatever the distance.

Why a metric: a text says more about some properties of its image than about others. Cells that tell images
apart by what texts are silent about are of no use to them: the image of a text may then be in any of many.
For a query q that looks for the document x, pairs tell what to expect, q = xA + a, and how far it is off,
with the covariance S. The likelihood of q falls with the squared distance of qT and (xA + a)T, where TT' is
the inverse of S: in that space the documents are put into cells, and the queries choose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Executor, Workers, row_blocks
from crossbyte.index.ivf.router import CellRouter
from crossbyte.model.quantization.codebooks import kmeans, nearest_centres
from crossbyte.model.space.cca import add_ridge

_PAIRS_PER_DIMENSION = 10  # from fewer, noise would be learned
_RIDGE = 1e-3  # of the mean variance of documents
_LEAST = 1e-2  # of the mean variance of queries: no direction is taken to have less noise


class Metric(NamedTuple):
    """Map documents, and queries of the other kind, so that a query is near the documents that it asks for.

    Attributes
    ----------
    matrix : (D, D) float32
    shift : (D,) float32
        A document at x of the common space is at ``x @ matrix + shift``.
    query_matrix : (D, D) float32
        A query at q is at ``q @ query_matrix``.
    """

    matrix: Float32
    shift: Float32
    query_matrix: Float32

    @classmethod
    def learn(cls, documents: Float32, queries: Float32) -> Self | None:
        """Learn from documents (n, D) and the query of each (n, D); None from too few."""
        n, n_dims = documents.shape
        if n < _PAIRS_PER_DIMENSION * n_dims:
            return None
        centre, middle = documents.mean(axis=0, dtype=np.float64), queries.mean(axis=0, dtype=np.float64)
        X, Q = documents - centre, queries - middle
        A = linalg.solve(add_ridge(X.T @ X, _RIDGE), X.T @ Q, assume_a="pos")
        variances, axes = linalg.eigh(add_ridge(np.cov(Q - X @ A, rowvar=False, bias=True), _LEAST))
        T = axes / np.sqrt(variances)
        shift = middle @ T - centre @ A @ T
        return cls((A @ T).astype(np.float32), shift.astype(np.float32), T.astype(np.float32))

    def place(self, documents: Float32) -> Float32:
        """Place documents (n, D) of the common space."""
        return np.asarray(documents @ self.matrix + self.shift, dtype=np.float32)

    def query_router(self, centres: Float32) -> CellRouter:
        """Route queries of the other kind to the cells with the nearest centres (n, D)."""
        return _router_in_metric(centres, self.query_matrix)

    def document_router(self, centres: Float32) -> CellRouter:
        """Route queries of the documents' own kind to the cells with the nearest centres (n, D)."""
        return _router_in_metric(centres - self.shift, self.matrix)

    def to_array(self) -> Float32:
        """Give all of it as (2 D + 1, D) little-endian float32."""
        return np.concatenate([self.matrix, self.shift[None], self.query_matrix]).astype("<f4")

    @classmethod
    def from_array(cls, values: Float32) -> Self:
        """Read what :meth:`to_array` gave."""
        n_dims = values.shape[1]
        return cls(values[:n_dims], values[n_dims], values[n_dims + 1 :])


def _router_in_metric(centres: Float32, matrix: Float32) -> CellRouter:
    """Order by ``|xM - c|²``, that is by ``-2 x·Mc + |c|²``, from distances of x itself."""
    points = centres.astype(np.float64) @ matrix.T
    offsets = np.square(centres, dtype=np.float64).sum(axis=1) - np.square(points).sum(axis=1)
    return CellRouter(points.astype(np.float32), offsets.astype(np.float32))


MAX_CELLS = 65_536  # a cell is two bytes
POINTS_PER_CELL = 128  # from which the centres are trained
_ROUNDS = 10
_GROUP_ROUNDS = 4
_GROUPED = 2048  # centres: fewer are compared with all points
_NEAREST_GROUPS = 8
_ROWS_AT_ONCE = 4 * 4096

DecodeRows = Callable[[NDArray[np.intp]], Float32]
"""points (n, D) of some rows"""


@dataclass(frozen=True, eq=False)
class Centres:
    """Hold the centres of cells, and assign documents to cells: the coarse quantizer of an IVF.

    Attributes
    ----------
    points : (n, D) float32
    metric : Metric or None
        In which documents are compared with the centres; None: in the common space itself.
    """

    points: Float32
    metric: Metric | None = None

    def __len__(self) -> int:
        return len(self.points)

    def router(self, *, is_own: bool) -> CellRouter:
        """Route queries, of the documents' own kind or of the other, to the nearest centres."""
        if self.metric is None:
            return CellRouter.at(self.points)
        return self.metric.document_router(self.points) if is_own else self.metric.query_router(self.points)

    def cells_of(self, points: Float32, workers: Executor) -> tuple[NDArray[np.uint16], Float32]:
        """Assign points (n, D) of the common space to cells (n,); also gives squared distances to centres."""

        def find(rows: slice) -> tuple[NDArray[np.uint16], Float32]:
            return self._find(points[rows] if self.metric is None else self.metric.place(points[rows]))

        parts = list(workers.map(find, row_blocks(len(points), _ROWS_AT_ONCE)))
        cells = np.concatenate([np.empty(0, np.uint16), *(part[0] for part in parts)])
        return cells, np.concatenate([np.empty(0, np.float32), *(part[1] for part in parts)])

    def _find(self, points: Float32) -> tuple[NDArray[np.uint16], Float32]:
        best = np.full(len(points), np.inf, dtype=np.float32)
        cells = np.zeros(len(points), dtype=np.uint16)
        for members, rows in self._candidates(points):
            scores = points[rows] @ self._table[:, members]
            scores += self._offsets[members]
            nearer = scores.argmin(axis=1)
            value = scores[np.arange(len(rows)), nearer]
            better = value < best[rows]
            best[rows[better]], cells[rows[better]] = value[better], members[nearer[better]]
        return cells, np.maximum(best + np.einsum("nd,nd->n", points, points), 0.0)

    def _candidates(self, points: Float32) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
        """List centres and the points that are compared with them, group by group."""
        if self._groups is None:
            return [(np.arange(len(self)), np.arange(len(points)))]
        means, members = self._groups
        scores = points @ (-2 * means.T) + (means * means).sum(axis=1)
        near = np.argpartition(scores, _NEAREST_GROUPS - 1, axis=1)[:, :_NEAREST_GROUPS]
        order = np.argsort(near, axis=None, kind="stable")
        ends = np.cumsum(np.bincount(near.ravel(), minlength=len(means)))
        rows = np.split(order // _NEAREST_GROUPS, ends[:-1])
        return [pair for pair in zip(members, rows, strict=True) if len(pair[0]) and len(pair[1])]

    @cached_property
    def _table(self) -> Float32:
        return np.ascontiguousarray(-2 * self.points.T)

    @cached_property
    def _offsets(self) -> Float32:
        return np.asarray((self.points * self.points).sum(axis=1), dtype=np.float32)

    @cached_property
    def _groups(self) -> tuple[Float32, list[NDArray[np.intp]]] | None:
        """Group the centres: means of the groups, and the members of each."""
        if len(self) < _GROUPED:
            return None
        n_groups = max(2 * _NEAREST_GROUPS, round(len(self) ** 0.5))
        with Workers(1) as workers:
            means = kmeans(self.points, n_groups, np.random.default_rng(0), workers, _GROUP_ROUNDS)
            labels, _ = nearest_centres(self.points, means, workers)
        order, ends = np.argsort(labels, kind="stable"), np.cumsum(np.bincount(labels, minlength=n_groups))
        return means.astype(np.float32), np.split(order, ends[:-1])


def train_centres(
    decoded: DecodeRows, n_rows: int, n_cells: int, workers: Executor, metric: Metric | None = None
) -> Centres:
    """Train centres (k-means) on a sample of the points of ``n_rows`` rows; the same for the same rows."""
    rng = np.random.default_rng(0)
    sample = np.sort(rng.permutation(n_rows)[: POINTS_PER_CELL * n_cells])
    points = decoded(sample) if metric is None else metric.place(decoded(sample))
    centres = Centres(points[np.sort(rng.permutation(len(points))[:n_cells])])
    for _ in range(_ROUNDS):
        cells, errors = centres.cells_of(points, workers)
        centres = Centres(_update_centres(points, cells, errors, n_cells).astype(np.float32))
    return Centres(centres.points, metric)


def _update_centres(points: Float32, cells: NDArray[np.uint16], errors: Float32, n_cells: int) -> Float64:
    counts = np.bincount(cells, minlength=n_cells)
    places = (cells.astype(np.intp), np.arange(len(cells)))
    sums = np.asarray(sparse.csr_matrix((np.ones(len(cells)), places), (n_cells, len(cells))) @ points)
    empty = np.flatnonzero(counts == 0)
    # An empty cell takes over the worst-served points, one each.
    sums[empty] = points[np.argsort(-errors, kind="stable")[: len(empty)]]
    return np.asarray(sums / np.maximum(counts, 1)[:, None], dtype=np.float64)
