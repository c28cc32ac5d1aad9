"""Refine a linear common space on what it is for: telling the true partner from the others.

Two matrices, started from canonical correlation, are moved by Adam down the symmetric softmax loss
over batches of pairs (every other pair of the batch is a wrong answer). Written in NumPy: a few hundred
steps take seconds, and no framework of this field is light.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte._optim import Adam
from crossbyte.arrays import Float32
from crossbyte.data.preparation import PreparedRows
from crossbyte.model.space.cca import LinearSpace, unit_rows


class ContrastiveSettings(NamedTuple):
    """How far and how fast the matrices move."""

    n_steps: int = 300
    batch: int = 1024
    temperature: float = 0.1
    rate: float = 2e-2
    decay: float = 1e-3


DEFAULT_SETTINGS = ContrastiveSettings()


class _Loss(NamedTuple):
    value: float
    by_images: Float32
    by_texts: Float32


def contrastive_loss(
    images: Float32, texts: Float32, temperature: float, groups: NDArray[np.intp] | None = None
) -> _Loss:
    """Compute the symmetric softmax loss of (b, D) points before normalisation, and its gradients.

    Pairs of one group are not wrong answers for each other.
    """
    x, y = unit_rows(images), unit_rows(texts)
    logits = (x @ y.T) / temperature
    if groups is not None:
        logits[(groups[:, None] == groups[None, :]) & ~np.eye(len(x), dtype=bool)] = -1e9
    forward, backward = _softmax(logits), _softmax(logits.T).T
    truth = np.arange(len(x))
    value = -np.log(np.maximum(forward[truth, truth] * backward[truth, truth], 1e-30)).mean() / 2
    error = (forward + backward) / 2
    error[truth, truth] -= 1.0
    error /= len(x) * temperature
    return _Loss(
        float(value),
        _gradient_before_norm(error @ y, x, images),
        _gradient_before_norm(error.T @ x, y, texts),
    )


def _softmax(logits: Float32) -> Float32:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    result: Float32 = powers / powers.sum(axis=1, keepdims=True)
    return result


def _gradient_before_norm(gradient: Float32, unit: Float32, raw: Float32) -> Float32:
    """Return the gradient by the points before they were brought to unit length."""
    lengths = np.sqrt(np.einsum("nd,nd->n", raw, raw))[:, None]
    tangent = gradient - unit * np.einsum("nd,nd->n", gradient, unit)[:, None]
    return np.divide(tangent, lengths, out=np.zeros_like(tangent), where=lengths > 1e-12)


class _AnchoredMatrix:
    """A matrix that Adam moves, pulled back to where it started instead of to zero."""

    def __init__(self, start: NDArray[np.float64], rate: float, decay: float) -> None:
        self.value = start.astype(np.float32)
        self.start, self.rate, self.decay = self.value.copy(), rate, decay
        self._adam = Adam(self.value, beta1=0.9, beta2=0.999, gain1=0.1, gain2=0.001)

    def move(self, gradient: Float32, progress: float) -> None:
        gradient = gradient + self.decay * (self.value - self.start)
        rate = self.rate * 0.5 * (1 + np.cos(np.pi * progress))
        self.value -= self._adam.step(gradient, np.float32(rate))


def refine_contrastively(
    space: LinearSpace,
    X: PreparedRows,
    Y: PreparedRows,
    rng: np.random.Generator,
    groups: NDArray[np.intp] | None = None,
    settings: ContrastiveSettings = DEFAULT_SETTINGS,
) -> LinearSpace:
    """Move both matrices of a linear space to where partners are told apart best."""
    scales = [
        _mean_length(rows, matrix) for rows, matrix in ((X, space.image_matrix), (Y, space.text_matrix))
    ]
    sides = [
        _AnchoredMatrix(matrix / scale, settings.rate / np.sqrt(matrix.shape[0]), settings.decay)
        for matrix, scale in zip((space.image_matrix, space.text_matrix), scales, strict=True)
    ]
    batch = min(settings.batch, X.shape[0])
    for step in range(settings.n_steps):
        chosen = np.sort(rng.choice(X.shape[0], batch, replace=False))
        rows = X[chosen], Y[chosen]
        points = [side_rows.times(side.value) for side_rows, side in zip(rows, sides, strict=True)]
        loss = contrastive_loss(
            points[0], points[1], settings.temperature, None if groups is None else groups[chosen]
        )
        for side, side_rows, gradient in zip(sides, rows, loss[1:], strict=True):
            side.move(side_rows.cross(gradient).T.astype(np.float32), step / settings.n_steps)
    return LinearSpace(sides[0].value.astype(np.float64), sides[1].value.astype(np.float64))


def _mean_length(rows: PreparedRows, matrix: NDArray[np.float64]) -> float:
    sample = rows[slice(0, min(rows.shape[0], 4096))].times(matrix)
    return float(np.sqrt(np.einsum("nd,nd->n", sample, sample)).mean()) or 1.0
