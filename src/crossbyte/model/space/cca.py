"""Learn a common space by one matrix per side: canonical correlation, or whatever refines it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Executor
from crossbyte.data.preparation import MAX_GRAM_DIMS, PreparedRows, row_signs
from crossbyte.errors import InvalidInput

_RANK_CUT = 1e-6  # of the strongest relation


@dataclass(frozen=True, eq=False)
class LinearSpace:
    """Rows times a matrix, brought to unit length (zero rows stay zero).

    Attributes
    ----------
    image_matrix : (d_I, D) float64
    text_matrix : (d_T, D) float64
    """

    image_matrix: Float64
    text_matrix: Float64

    @property
    def n_dims(self) -> int:
        """Dimensions of the common space."""
        return int(self.image_matrix.shape[1])

    def transform_images(self, images: PreparedRows, workers: Executor) -> Float32:
        """Place prepared images (n, d_I) in the common space (n, D)."""
        return project_rows(images, self.image_matrix, workers, unit=True)

    def transform_texts(self, texts: PreparedRows, workers: Executor) -> Float32:
        """Place prepared texts (n, d_T) in the common space (n, D)."""
        return project_rows(texts, self.text_matrix, workers, unit=True)

    def fold_in(
        self, images: PreparedRows, texts: PreparedRows, workers: Executor
    ) -> tuple[Float32, Float32]:
        """Place pairs; the halves do not change each other here."""
        return self.transform_images(images, workers), self.transform_texts(texts, workers)


def project_rows(rows: PreparedRows, matrix: Float64, workers: Executor, unit: bool = False) -> Float32:
    """Multiply rows (n, d) by a (d, D) matrix, block by block; with ``unit``, bring them to unit length."""

    def one_block(block: slice) -> Any:
        placed = rows[block].times(matrix)
        return unit_rows(placed) if unit else placed

    points: Float32 = workers.rows(one_block, rows.shape[0], (matrix.shape[1],), np.float32)
    return points


def unit_rows(rows: Any) -> Any:
    """Bring rows to unit length; zero rows stay zero."""
    lengths = np.sqrt(np.einsum("nd,nd->n", rows, rows))[:, None]
    lengths[lengths <= 1e-12] = np.inf
    return rows / lengths


def canonical_correlation(
    X: PreparedRows,
    Y: PreparedRows,
    n_dims: int,
    ridge: float,
    workers: Executor,
    text_ridge: float | None = None,
) -> LinearSpace:
    """Learn a space by regularised CCA, each direction weighted by its correlation.

    Parameters
    ----------
    n_dims : int
        Wanted dimensions; fewer are returned where the data have fewer.
    ridge : float
        Added to every variance, in units of the side's mean variance.
    text_ridge : float, optional
        The same for the texts, where it differs.
    """
    Cxx, Cyy, Cxy = second_moments(X, Y, workers)
    left, right = _whitener(Cxx, ridge), _whitener(Cyy, ridge if text_ridge is None else text_ridge)
    A, B, weights = leading_singular_pairs(left.T @ Cxy @ right, n_dims)
    return LinearSpace((left @ A) * weights, (right @ B) * weights)


def second_moments(X: PreparedRows, Y: PreparedRows, workers: Executor) -> tuple[Float64, Float64, Float64]:
    """Sum X'X, Y'Y and X'Y over centred rows: (d_I, d_I), (d_T, d_T) and (d_I, d_T)."""
    for rows, name in ((X, "images"), (Y, "texts")):
        _check_width(rows, name)

    def sums(block: slice) -> tuple[Float64, Float64, Float64]:
        x, y = X[block], Y[block]
        return x.gram(), y.gram(), y.cross(x.dense())

    Cxx, Cyy, Cxy = workers.total(sums, X.shape[0])
    return Cxx, Cyy, Cxy


def leading_singular_pairs(whitened: Float64, n_dims: int) -> tuple[Float64, Float64, Float64]:
    """Find leading singular vectors (d_I, k) and (d_T, k), and weights (k,): singular values, of fixed sign.

    k is ``n_dims``, or the rank where that is lower.
    """
    A, relations, Bt = linalg.svd(whitened, full_matrices=False)
    keep = min(n_dims, int((relations > _RANK_CUT * relations[0]).sum()))
    return A[:, :keep], Bt[:keep].T, relations[:keep] * row_signs(A.T[:keep])


def add_ridge(C: Float64, ridge: float) -> Float64:
    """Return C + r I with r in units of the mean variance, or of 1 where there is none."""
    shifted = np.array(C, dtype=np.float64)
    shifted.flat[:: len(C) + 1] += ridge * (np.trace(C) or len(C)) / len(C)
    return shifted


def _check_width(rows: PreparedRows, name: str) -> None:
    if rows.shape[1] > MAX_GRAM_DIMS:
        raise InvalidInput(
            f"{name}: all products of dimensions are needed, and {rows.shape[1]} of these are more than "
            f"{MAX_GRAM_DIMS}; reduce them first (where it is a parameter, by {name[:-1]}_components=512)"
        )


def _whitener(covariance: Float64, ridge: float) -> Float64:
    """Find W with W' (C + r I) W = I; directions without variance are left out."""
    mean_variance = np.trace(covariance) / len(covariance)
    variances, directions = linalg.eigh(covariance)
    variances = np.maximum(variances, 0.0)
    floor = variances + ridge * mean_variance
    keep = variances > 1e-12 * variances[-1]
    return directions[:, keep] / np.sqrt(floor[keep])
