"""The paper's common space after training, and the regressions into it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crossbyte.arrays import Float32, Float64
from crossbyte.data.features import Rows
from crossbyte.data.preparation import MAX_GRAM_DIMS
from crossbyte.errors import InvalidInput
from crossbyte.executors.protocol import Executor
from crossbyte.mapping.linear import place
from crossbyte.mapping.sparse import (
    SparseState,
    SparseWeights,
    dictionary_gram,
    fold_in,
    image_lasso,
    minimum_norm_map,
    points_of_codes,
)

__all__ = ["SparseSpace", "ridge_map"]


@dataclass(frozen=True, eq=False)
class SparseSpace:
    """The paper's common space after training.

    Attributes
    ----------
    image_dictionary : (A, d_I) float64
        B.
    text_basis : (D, d_T) float64
        U.
    image_map : (A, D) float64
        R.
    image_ridge : (d_I, D) float64, or None
        Regression from prepared images to their training points X'.
    text_ridge : (d_T, D) float64, or None
        The same for texts and Y'. None where a side is too wide for it.
    query_map : {"paper", "ridge"}
        How an item is placed that comes without its other half.
    """

    image_dictionary: Float64
    text_basis: Float64
    image_map: Float64
    image_ridge: Float64 | None
    text_ridge: Float64 | None
    weights: SparseWeights
    query_map: str = "paper"

    @classmethod
    def of(
        cls, state: SparseState, X: Rows, Y: Rows, weights: SparseWeights, query_map: str, workers: Executor
    ) -> SparseSpace:
        """Keep what new items need of a training state."""
        image_ridge = ridge_map(X, state.image_points, workers)
        text_ridge = ridge_map(Y, state.text_points, workers)
        return cls(state.B, state.U, state.R, image_ridge, text_ridge, weights, query_map)

    @property
    def n_dims(self) -> int:
        """Dimensions of the common space."""
        return len(self.text_basis)

    def transform_images(self, images: Rows, workers: Executor) -> Float32:
        """Place images by the lasso over B, or by the learned regression."""
        if self.query_map == "ridge":
            return place(images, _known(self.image_ridge, "image"), workers)
        codes = image_lasso(images, self.image_dictionary, self.weights, workers, self._dictionary_gram)
        return points_of_codes(codes, self.image_map, workers)

    def transform_texts(self, texts: Rows, workers: Executor) -> Float32:
        """Place texts by the shortest y' that explains them, or by the learned regression."""
        if self.query_map == "ridge":
            return place(texts, _known(self.text_ridge, "text"), workers)
        return place(texts, self._text_map, workers)

    # Both take longer than one query does, so they are computed once.

    @cached_property
    def _text_map(self) -> Float64:
        return minimum_norm_map(self.text_basis)

    @cached_property
    def _dictionary_gram(self) -> Float32:
        return dictionary_gram(self.image_dictionary)

    def fold_in(self, images: Rows, texts: Rows, workers: Executor) -> tuple[Float32, Float32]:
        """Place pairs at the minimum of the mapping objective with B, U and R fixed."""
        fixed = self.image_dictionary, self.text_basis, self.image_map
        return fold_in(*fixed, images, texts, self.weights, workers).points


def _known(matrix: Float64 | None, side: str) -> Float64:
    if matrix is None:
        raise InvalidInput(
            f"query_map='ridge': the {side} side has more than {MAX_GRAM_DIMS} dimensions, too many for a "
            f"regression; set {side}_components=512, or query_map='paper'"
        )
    return matrix


def ridge_map(rows: Rows, points: Float32, workers: Executor) -> Float64 | None:
    """Ridge regression (d, D) from rows to points; its strength by generalised cross-validation."""
    n, d = rows.shape
    if d > MAX_GRAM_DIMS:
        return None

    def sums(block: slice) -> tuple[Float64, Float64, float]:
        target = points[block].astype(np.float64)
        return rows[block].gram(), rows[block].cross(target).T, float(np.vdot(target, target))

    G, H, square = workers.total(sums, n)
    variances, V = np.linalg.eigh(G)
    variances = np.maximum(variances, 0.0)
    h = V.T @ H  # (d, D)
    strengths = max(variances[-1], np.finfo(float).tiny) * np.logspace(-8, 1, 28)

    def score(alpha: float) -> float:
        """Generalised cross-validation: |residual|² / (n - degrees of freedom)²."""
        keep = 1.0 / (variances + alpha)
        residual = square - ((2 * keep - variances * keep**2)[:, None] * h**2).sum()
        return float(residual / max(n - (variances * keep).sum(), 1e-9) ** 2)

    best = min(strengths, key=score)
    return np.asarray(V @ (h / (variances + best)[:, None]))
