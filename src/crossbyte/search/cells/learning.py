"""Learning from pairs where queries of the other kind look for cells.

A text does not lie where its image lies, so the centre nearest to a text need not be that of the cell that
its image is in. What is learned is small, so that some thousand pairs teach it: one matrix that all cells
share, and one number for every cell, by a softmax regression of "cell of the partner, and of the nearest
documents" on the query.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.search.cells.chooser import Chooser

__all__ = ["Lessons", "expected_chooser", "learned_chooser", "means_chooser"]

_EPOCHS, _BATCH, _RATE = 4, 256, 0.01
_SLOW, _FAST, _SMALL = 0.9, 0.99, 1e-8  # of Adam
_SCALES = 2.0 ** np.arange(-3, 6)
_SCALED = 1024  # queries that the scale is chosen by
_TRUST = 20.0  # pairs of a cell that weigh as much as what all cells say together


class Lessons(NamedTuple):
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


def means_chooser(centres: Float32, lessons: Lessons) -> Chooser:
    """Look for a cell at the mean of the queries whose partner is in it.

    A cell has few of them: they are added to where a linear map of its centre expects them.
    """
    counts = np.bincount(lessons.partners, minlength=len(centres))
    sums = np.zeros(centres.shape)
    np.add.at(sums, lessons.partners, lessons.points)
    means = (sums + _TRUST * _expected(centres, lessons)) / (counts + _TRUST)[:, None]
    return Chooser.at(means.astype(np.float32))


def expected_chooser(centres: Float32, lessons: Lessons) -> Chooser:
    """Look for a cell where a linear map of its centre expects the queries."""
    return Chooser.at(_expected(centres, lessons))


def _expected(centres: Float32, lessons: Lessons) -> Float32:
    """Predict by a linear map of the centres where the queries of each cell lie (n_cells, D)."""
    wide = np.column_stack([centres, np.ones(len(centres), np.float32)]).astype(np.float64)
    matrix = np.linalg.lstsq(wide[lessons.partners], lessons.points.astype(np.float64), rcond=None)[0]
    return np.asarray(wide @ matrix, dtype=np.float32)


def learned_chooser(starts: Sequence[Chooser], lessons: Lessons) -> Chooser:
    """Learn a matrix W and numbers b: logits of the cells are x'W p + b.

    Begins with the choice, of those given, that makes what is taught most likely; p are its points.
    """
    found = [(start, *_best_scale(start, lessons)) for start in starts]
    start, scale, _ = max(found, key=lambda each: each[2])
    base = start.points
    table, b = 2 * scale * base, -scale * _distances_of_nothing(start)
    W = np.eye(base.shape[1], dtype=np.float32)
    steps = [_Adam(W), _Adam(b)]
    rng, n = np.random.default_rng(0), len(lessons.points)
    batches = [rows for _ in range(_EPOCHS) for rows in _batches(rng.permutation(n))]
    for number, rows in enumerate(batches):
        points = lessons.points[rows]
        errors = _errors(points @ W @ table.T + b, lessons, rows)
        rate = _RATE * (1 - number / len(batches))
        W = W - steps[0].step(points.T @ (errors @ table), rate)
        b = b - steps[1].step(errors.sum(axis=0), rate)
    return _as_distances(base @ W.T, b / scale)


def _batches(order: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    return [order[start : start + _BATCH] for start in range(0, len(order), _BATCH)]


def _errors(logits: Float32, lessons: Lessons, rows: NDArray[np.intp]) -> Float32:
    """Compute the gradient of the mean cross entropy: half the weight on the partner, half on the nearest."""
    chances = _softmax(logits)
    nearest, places = lessons.nearest[rows], np.arange(len(rows))
    chances[places, lessons.partners[rows]] -= np.float32(0.5)
    share = np.float32(0.5 / nearest.shape[1])
    np.subtract.at(chances, (np.repeat(places, nearest.shape[1]), nearest.ravel()), share)
    return chances / np.float32(len(rows))


def _softmax(logits: Float32) -> Float32:
    chances: Float32 = np.exp(logits - logits.max(axis=1, keepdims=True))
    chances /= chances.sum(axis=1, keepdims=True)
    return chances


def _distances_of_nothing(chooser: Chooser) -> Float32:
    """Score the cells (n_cells,) for a query at 0."""
    return np.asarray((chooser.points * chooser.points).sum(axis=1) + chooser.offsets)


def _best_scale(start: Chooser, lessons: Lessons) -> tuple[np.float32, float]:
    """Choose how sharply a distance tells cells apart: the most likely of a few, and how likely it is."""
    points, nearest = lessons.points[:_SCALED], lessons.nearest[:_SCALED]
    nearness = 2 * points @ start.points.T - _distances_of_nothing(start)
    unit = 1.0 / max(float(nearness.std()), 1e-12)

    def likelihood(scale: np.float32) -> float:
        chances = _softmax(nearness * scale)
        own = np.take_along_axis(chances, lessons.partners[: len(points), None], axis=1)
        both = [np.log(each + 1e-30).mean() for each in (own, np.take_along_axis(chances, nearest, axis=1))]
        return float(sum(both))

    scales = [np.float32(factor * unit) for factor in _SCALES]
    return max(((scale, likelihood(scale)) for scale in scales), key=lambda pair: pair[1])


class _Adam:
    """The usual step along a gradient, by its running mean and scale."""

    def __init__(self, parameter: Float32) -> None:
        self._mean, self._square, self._count = np.zeros_like(parameter), np.zeros_like(parameter), 0

    def step(self, gradient: Float32, rate: float) -> Float32:
        self._count += 1
        self._mean += (1 - _SLOW) * (gradient - self._mean)
        self._square += (1 - _FAST) * (gradient * gradient - self._square)
        mean, square = self._mean / (1 - _SLOW**self._count), self._square / (1 - _FAST**self._count)
        return np.asarray(rate * mean / (np.sqrt(square) + _SMALL), dtype=np.float32)


def _as_distances(points: Float32, biases: Float32) -> Chooser:
    """Give the same order by squared distances: 2 x'p + b falls as |x - p|² - |p|² - b grows."""
    squares = (points.astype(np.float64) ** 2).sum(axis=1)
    return Chooser(points.astype(np.float32), (-squares - biases).astype(np.float32))
