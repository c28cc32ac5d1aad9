"""Route a query to the cells (inverted lists) that it visits.

A text does not lie where its image lies, so the centre nearest to a text need not be that of the cell that
its image is in. Routers are therefore learned from pairs. They have few parameters, so that some thousand
pairs are enough: one matrix that all cells share, and one number for every cell, by a softmax regression of
"cell of the partner, and of the nearest documents" on the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte._optim import Adam
from crossbyte.arrays import Float32
from crossbyte.compute.kernels import CellPoints


@dataclass(frozen=True, eq=False)
class CellRouter:
    """Route queries of one kind to cells: the probing order of an IVF, learned or by distance.

    Attributes
    ----------
    points : (n_cells, D) float32
        The point that stands for a cell: its centre, or one learned from pairs.
    offsets : (n_cells,) float32
        Added to the squared distance to that point.
    """

    points: Float32
    offsets: Float32

    @classmethod
    def at(cls, points: Float32) -> CellRouter:
        """Choose by distances to these points alone."""
        return cls(points, np.zeros(len(points), dtype=np.float32))

    def scores(self, queries: Float32) -> Float32:
        """Score the cells for every query (n, n_cells), the lowest first; no row depends on the others."""
        return self.cells.scores(queries)

    def choose(self, queries: Float32, count: int) -> NDArray[np.int64]:
        """Choose ``count`` cells for every query, (n, count), in the order of (score, cell)."""
        return self.cells.choose(queries, count)

    @cached_property
    def cells(self) -> CellPoints:
        """The same, prepared for the kernels."""
        return CellPoints(self.points, self.offsets)


ALL_CELLS = "all"


def count_visited_cells(n_probe: int, n_cells: int, share: float) -> int:
    """Count the cells to visit where a filter allows this share of the documents; not more than all."""
    # Where it allows one document in ten, the wanted ones are spread over ten times the cells.
    count = int(np.ceil(n_probe / max(share, 1e-9)))
    return n_cells if 2 * count > n_cells and count > n_probe else min(count, n_cells)


_EPOCHS, _BATCH, _RATE = 4, 256, 0.01
_ADAM = {"beta1": 0.9, "beta2": 0.99, "gain1": 1 - 0.9, "gain2": 1 - 0.99}
_SCALES = 2.0 ** np.arange(-3, 6)
_SCALED = 1024  # queries that the scale is chosen by
_TRUST = 20.0  # pairs of a cell that weigh as much as what all cells say together


class RouterTrainingSet(NamedTuple):
    """Hold queries and the cells that they should be routed to.

    Attributes
    ----------
    points : (n, D) float32
        The queries.
    partners : (n,) int64
        Cell of each one's true partner.
    nearest : (n, up to 10) int64
        Cells of the documents that the exhaustive search finds.
    """

    points: Float32
    partners: NDArray[np.int64]
    nearest: NDArray[np.int64]


def fit_means_router(centres: Float32, training_set: RouterTrainingSet) -> CellRouter:
    """Route to the cells nearest by the mean of the queries whose partner is in the cell.

    A cell has few of them, so the mean is shrunk towards where a linear map of its centre expects them.
    """
    counts = np.bincount(training_set.partners, minlength=len(centres))
    sums = np.zeros(centres.shape)
    np.add.at(sums, training_set.partners, training_set.points)
    means = (sums + _TRUST * _expect_queries(centres, training_set)) / (counts + _TRUST)[:, None]
    return CellRouter.at(means.astype(np.float32))


def fit_linear_router(centres: Float32, training_set: RouterTrainingSet) -> CellRouter:
    """Route to the cells nearest by where a linear map of the centre expects the queries."""
    return CellRouter.at(_expect_queries(centres, training_set))


def _expect_queries(centres: Float32, training_set: RouterTrainingSet) -> Float32:
    """Predict by a linear map of the centres where the queries of each cell lie (n_cells, D)."""
    wide = np.column_stack([centres, np.ones(len(centres), np.float32)]).astype(np.float64)
    targets = training_set.points.astype(np.float64)
    matrix = np.linalg.lstsq(wide[training_set.partners], targets, rcond=None)[0]
    return np.asarray(wide @ matrix, dtype=np.float32)


def fit_softmax_router(starts: Sequence[CellRouter], training_set: RouterTrainingSet) -> CellRouter:
    """Learn a matrix W and numbers b: logits of the cells are x'W p + b.

    Starts from the router, of those given, that makes the training set most likely; p are its points.
    """
    found = [(start, *_choose_scale(start, training_set)) for start in starts]
    start, scale, _ = max(found, key=lambda each: each[2])
    base = start.points
    table, b = 2 * scale * base, -scale * _scores_at_origin(start)
    W = np.eye(base.shape[1], dtype=np.float32)
    steps = [Adam(W, **_ADAM), Adam(b, **_ADAM)]
    rng, n = np.random.default_rng(0), len(training_set.points)
    batches = [rows for _ in range(_EPOCHS) for rows in _cut_batches(rng.permutation(n))]
    for number, rows in enumerate(batches):
        points = training_set.points[rows]
        errors = _cross_entropy_gradient(points @ W @ table.T + b, training_set, rows)
        rate = _RATE * (1 - number / len(batches))
        W = W - steps[0].step(points.T @ (errors @ table), rate)
        b = b - steps[1].step(errors.sum(axis=0), rate)
    return _router_from_logits(base @ W.T, b / scale)


def _cut_batches(order: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]


def _cross_entropy_gradient(
    logits: Float32, training_set: RouterTrainingSet, rows: NDArray[np.intp]
) -> Float32:
    """Compute the gradient of the mean cross entropy: half the weight on the partner, half on the nearest."""
    chances = _softmax(logits)
    nearest, places = training_set.nearest[rows], np.arange(len(rows))
    chances[places, training_set.partners[rows]] -= np.float32(0.5)
    share = np.float32(0.5 / nearest.shape[1])
    np.subtract.at(chances, (np.repeat(places, nearest.shape[1]), nearest.ravel()), share)
    return chances / np.float32(len(rows))


def _softmax(logits: Float32) -> Float32:
    chances: Float32 = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances


def _scores_at_origin(router: CellRouter) -> Float32:
    """Score the cells (n_cells,) for a query at 0."""
    return np.asarray((router.points * router.points).sum(axis=1) + router.offsets)


def _choose_scale(start: CellRouter, training_set: RouterTrainingSet) -> tuple[np.float32, float]:
    """Choose how sharply a distance tells cells apart: the most likely of a few, and how likely it is."""
    points, nearest = training_set.points[:_SCALED], training_set.nearest[:_SCALED]
    nearness = 2 * points @ start.points.T - _scores_at_origin(start)
    unit = 1.0 / max(float(nearness.std()), 1e-12)

    def likelihood(scale: np.float32) -> float:
        chances = _softmax(nearness * scale)
        own = np.take_along_axis(chances, training_set.partners[: len(points), None], axis=1)
        both = [np.log(each + 1e-30).mean() for each in (own, np.take_along_axis(chances, nearest, axis=1))]
        return float(sum(both))

    scales = [np.float32(factor * unit) for factor in _SCALES]
    return max(((scale, likelihood(scale)) for scale in scales), key=lambda pair: pair[1])


def _router_from_logits(points: Float32, biases: Float32) -> CellRouter:
    """Give the same order by squared distances: 2 x'p + b falls as |x - p|² - |p|² - b grows."""
    squares = (points.astype(np.float64) ** 2).sum(axis=1)
    return CellRouter(points.astype(np.float32), (-squares - biases).astype(np.float32))
