"""The common space of the paper (Sec. 3 and 4.1): sparse codes of images, factors of texts, aligned.

In row form: images X ≈ S B, texts Y ≈ Y' U, and Y' ≈ S R = X'. A state is a value: every ``update_*``
returns a new one in which its block is optimal with the others fixed. Before the quantizers exist,
``targets`` is None and the terms that tie the points to their codes are left out.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte import kernels
from crossbyte.blocks import Workers, row_blocks
from crossbyte.data.features import Rows
from crossbyte.data.subspace import principal_directions
from crossbyte.mapping.bounded import bounded_least_squares

__all__ = [
    "SparseState",
    "SparseWeights",
    "Targets",
    "fold_in",
    "image_lasso",
    "initial_state",
    "minimum_norm_map",
    "update_image_dictionary",
    "update_image_map",
    "update_sparse_codes",
    "update_text_basis",
    "update_text_points",
]

Float32 = NDArray[np.float32]
Float64 = NDArray[np.float64]

_EIGEN_CUT = 1e-6  # of the largest: directions that the texts do not have


class SparseWeights(NamedTuple):
    """The weights ρ, η and λ, and how ρ is meant."""

    sparsity: float = 0.3
    text_weight: float = 0.7
    alignment: float = 0.7
    ratio: bool = False


class Targets(NamedTuple):
    """Decoded codes that the points are pulled to (weight 1)."""

    images: Float32
    """(N, D), C P"""
    texts: Float32
    """(N, D), D Q"""


class SparseState(NamedTuple):
    """Everything the mapping learns about its training pairs."""

    B: Float64
    """(A, d_I) image dictionary, rows in the unit ball"""
    U: Float64
    """(D, d_T) text basis, rows in the unit ball"""
    R: Float64
    """(A, D) image map, rows in the unit ball"""
    S: sparse.csr_matrix
    """(N, A) float32 sparse codes of the images"""
    image_points: Float32
    """(N, D), X' = S R"""
    text_points: Float32
    """(N, D), Y'"""

    @property
    def points(self) -> tuple[Float32, Float32]:
        """Both sides, images first."""
        return self.image_points, self.text_points


def initial_state(
    X: Rows,
    Y: Rows,
    n_atoms: int,
    n_dims: int,
    weights: SparseWeights,
    rng: np.random.Generator,
    workers: Workers,
) -> SparseState:
    """Start from random atoms, a basis inside the span of the texts, and sparse codes of B alone."""
    B = _unit_rows(rng.standard_normal((n_atoms, X.shape[1])))
    R = _unit_rows(rng.standard_normal((n_atoms, n_dims)))
    U = _basis_in_span(Y, n_dims, rng, workers)
    S = image_lasso(X, B, weights, workers)
    image_points = _image_points(S, R, workers)
    text_points = np.empty((Y.shape[0], n_dims), dtype=np.float32)
    solve = minimum_norm_map(U)

    def place(rows: slice) -> None:
        text_points[rows] = Y[rows].times(solve)

    workers.each(place, Y.shape[0])
    return SparseState(B, U, R, S, image_points, text_points)


def minimum_norm_map(U: Float64) -> Float64:
    """The (d_T, D) map that takes y to the shortest y' minimising |y - y' U|²."""
    return np.asarray(np.linalg.pinv(U, rcond=np.sqrt(_EIGEN_CUT)), dtype=np.float64)


def image_lasso(X: Rows, B: Float64, weights: SparseWeights, workers: Workers) -> sparse.csr_matrix:
    """Sparse codes of images on their own: argmin |x - s B|² + ρ|s|₁ (the paper's image query)."""

    def products(rows: slice) -> Any:
        return X[rows].times(B.T.astype(np.float32))

    return _solve_lasso(B @ B.T, products, None, X.shape[0], weights, workers)


def update_text_points(
    state: SparseState, Y: Rows, targets: Targets | None, weights: SparseWeights, workers: Workers
) -> SparseState:
    """Y' = (D Q + η Y U' + λ X') (η U U' + (λ + 1) I)⁻¹."""
    tie = 0.0 if targets is None else 1.0
    eta, lam = weights.text_weight, weights.alignment
    inverse = _symmetric_pinv(eta * state.U @ state.U.T + (lam + tie) * np.eye(len(state.U)))
    points = np.empty_like(state.text_points)

    def update(rows: slice) -> None:
        wish = eta * Y[rows].times(state.U.T) + lam * state.image_points[rows].astype(np.float64)
        if targets is not None:
            wish += targets.texts[rows]
        points[rows] = wish @ inverse

    workers.each(update, len(points))
    return state._replace(text_points=points)


def update_sparse_codes(
    state: SparseState, X: Rows, targets: Targets | None, weights: SparseWeights, workers: Workers
) -> SparseState:
    """S: a lasso on [X, C P + λ Y'] over the stacked dictionary [B, sqrt(λ + 1) R]."""
    tie = 0.0 if targets is None else 1.0
    lam, B, R = weights.alignment, state.B, state.R
    gram = B @ B.T + (lam + tie) * R @ R.T
    B32, R32 = B.T.astype(np.float32), R.T.astype(np.float32)

    def products(rows: slice) -> Any:
        return X[rows].times(B32) + _image_wish(state, targets, lam, rows).astype(np.float32) @ R32

    S = _solve_lasso(gram, products, state.S, X.shape[0], weights, workers)
    return state._replace(S=S, image_points=_image_points(S, R, workers))


def update_text_basis(state: SparseState, Y: Rows, workers: Workers) -> SparseState:
    """U: min |Y - Y' U|² with rows in the unit ball."""

    def sums(rows: slice) -> tuple[Float64, Float64]:
        points = state.text_points[rows].astype(np.float64)
        return points.T @ points, Y[rows].cross(points)

    G, H = workers.total(sums, Y.shape[0])
    return state._replace(U=bounded_least_squares(G, H, state.U))


def update_image_dictionary(state: SparseState, X: Rows, workers: Workers) -> SparseState:
    """B: min |X - S B|² with rows in the unit ball."""

    def sums(rows: slice) -> tuple[Float64, Float64]:
        S = state.S[rows].astype(np.float64)
        return (S.T @ S).toarray(), S.T @ X[rows].dense().astype(np.float64)

    G, H = workers.total(sums, X.shape[0])
    return state._replace(B=bounded_least_squares(G, H, state.B))


def update_image_map(
    state: SparseState, targets: Targets | None, weights: SparseWeights, workers: Workers
) -> SparseState:
    """R: min |(C P + λ Y') / (λ + 1) - S R|² with rows in the unit ball."""
    tie, lam = 0.0 if targets is None else 1.0, weights.alignment
    if lam + tie == 0.0:
        return state  # nothing ties R to anything yet

    def sums(rows: slice) -> tuple[Float64, Float64]:
        S = state.S[rows].astype(np.float64)
        return (S.T @ S).toarray(), S.T @ (_image_wish(state, targets, lam, rows) / (lam + tie))

    G, H = workers.total(sums, len(state.image_points))
    R = bounded_least_squares(G, H, state.R)
    return state._replace(R=R, image_points=_image_points(state.S, R, workers))


def fold_in(
    B: Float64, U: Float64, R: Float64, X: Rows, Y: Rows, weights: SparseWeights, workers: Workers
) -> tuple[Float32, Float32]:
    """Points X' and Y' of new pairs: the minimum of the mapping objective over S and Y', B, U, R fixed.

    Y' has a closed form given v = s R, namely (η y U' + λ v) A⁻¹ with A = η U U' + λ I. Put back in, what
    is left is one lasso in s, with Gram matrix B B' + R (λ I - λ² A⁻¹) R' and right-hand side
    x B' + η λ y U' A⁻¹ R'; so no alternation is needed.
    """
    eta, lam = weights.text_weight, weights.alignment
    inverse = _symmetric_pinv(eta * U @ U.T + lam * np.eye(len(U)))
    gram = B @ B.T + R @ (lam * np.eye(len(U)) - lam**2 * inverse) @ R.T
    lift = (eta * lam * inverse @ R.T).astype(np.float32)
    B32, U32 = B.T.astype(np.float32), U.T.astype(np.float32)

    def products(rows: slice) -> Any:
        return X[rows].times(B32) + Y[rows].times(U32) @ lift

    S = _solve_lasso(gram, products, None, X.shape[0], weights, workers)
    image_points = _image_points(S, R, workers)
    text_points = np.empty_like(image_points)

    def place(rows: slice) -> None:
        text_points[rows] = (eta * Y[rows].times(U.T) + lam * image_points[rows]) @ inverse

    workers.each(place, X.shape[0])
    return image_points, text_points


def _image_wish(state: SparseState, targets: Targets | None, lam: float, rows: slice) -> Float64:
    """C P + λ Y': where the image points are pulled to."""
    wish = lam * state.text_points[rows].astype(np.float64)
    return wish if targets is None else wish + targets.images[rows]


def _solve_lasso(
    gram: Float64,
    products: Any,
    start: sparse.csr_matrix | None,
    n_rows: int,
    weights: SparseWeights,
    workers: Workers,
) -> sparse.csr_matrix:
    """Lasso block by block; ``products(rows)`` gives the right-hand sides of a block."""
    G = gram.astype(np.float32)

    def solve(rows: slice) -> sparse.csr_matrix:
        q = np.ascontiguousarray(products(rows), dtype=np.float32)
        # |x - sB|² + ρ|s|₁ is twice 1/2 s'Gs - q's + (ρ/2)|s|₁; ratio mode follows SLEP's rFlag.
        z = (
            weights.sparsity * np.abs(q).max(axis=1)
            if weights.ratio
            else np.full(len(q), weights.sparsity / 2)
        )
        warm = start[rows] if start is not None else sparse.csr_matrix(q.shape, dtype=np.float32)
        return kernels.lasso(G, q, z.astype(np.float32), warm)

    blocks = list(workers.map(solve, row_blocks(n_rows)))
    return sparse.vstack(blocks, format="csr") if len(blocks) > 1 else blocks[0]


def _image_points(S: sparse.csr_matrix, R: Float64, workers: Workers) -> Float32:
    points = np.empty((S.shape[0], R.shape[1]), dtype=np.float32)

    def place(rows: slice) -> None:
        points[rows] = S[rows].astype(np.float64) @ R

    workers.each(place, S.shape[0])
    return points


def _basis_in_span(Y: Rows, n_dims: int, rng: np.random.Generator, workers: Workers) -> Float64:
    """Start U as a tight frame of the texts' strongest directions.

    With more dimensions than the texts have, directions outside their span mean nothing, and a frame
    that is tight makes distances between y' those between texts.
    """

    def times_gram(basis: Float64) -> Float64:
        total: Float64 = workers.total(lambda rows: Y[rows].cross(Y[rows].times(basis)).T, Y.shape[0])
        return total

    directions = principal_directions(times_gram, Y.shape[1], n_dims)  # (r, d_T)
    frame = np.linalg.qr(rng.standard_normal((n_dims, len(directions))))[0]
    U = frame @ directions
    return U / np.linalg.norm(U, axis=1).max()


def _unit_rows(rows: Float64) -> Float64:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.maximum(lengths, np.finfo(float).tiny)


def _symmetric_pinv(matrix: Float64) -> Float64:
    """Inverse, or minimum-norm inverse where a direction is missing (λ = 0)."""
    return np.asarray(np.linalg.pinv(matrix, rcond=_EIGEN_CUT, hermitian=True), dtype=np.float64)
