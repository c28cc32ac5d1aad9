"""Learn the common space of the paper (Sec. 3 and 4.1): sparse codes of images, factors of texts, aligned.

In row form: images X ≈ S B, texts Y ≈ Y' U, and Y' ≈ S R = X'. A state is a value: every ``update_*``
returns a new one in which its block is optimal with the others fixed. Before the quantizers exist,
``targets`` is None and the terms that tie the points to their codes are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from crossbyte.arrays import Float32, Float64
from crossbyte.compute import kernels
from crossbyte.compute.executor import Executor, deterministic_product
from crossbyte.data.preparation import MAX_GRAM_DIMS, PreparedRows, principal_directions
from crossbyte.errors import InvalidInput
from crossbyte.model.space.cca import project_rows

_EIGEN_CUT = 1e-6  # of the largest: directions that the texts do not have
_ROWS_AT_ONCE = 512  # of a block, whose right-hand sides are solved together
_TOLERANCE = 1e-3  # of the lasso during training, where the next round starts from here; finer elsewhere


class SparseWeights(NamedTuple):
    """The weights ρ, η and λ, and how ρ is meant."""

    sparsity: float = 0.3
    text_weight: float = 0.7
    alignment: float = 0.7
    ratio: bool = False


# The space after training


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
        cls,
        state: SparseState,
        X: PreparedRows,
        Y: PreparedRows,
        weights: SparseWeights,
        query_map: str,
        workers: Executor,
    ) -> SparseSpace:
        """Keep what new items need of a training state."""
        image_ridge = ridge_map(X, state.image_points, workers)
        text_ridge = ridge_map(Y, state.text_points, workers)
        return cls(state.B, state.U, state.R, image_ridge, text_ridge, weights, query_map)

    @property
    def n_dims(self) -> int:
        """Dimensions of the common space."""
        return len(self.text_basis)

    def transform_images(self, images: PreparedRows, workers: Executor) -> Float32:
        """Place images by the lasso over B, or by the learned regression."""
        if self.query_map == "ridge":
            return project_rows(images, _require_ridge(self.image_ridge, "image"), workers)
        codes = image_lasso(images, self.image_dictionary, self.weights, workers, self._dictionary_gram)
        return points_of_codes(codes, self.image_map, workers)

    def transform_texts(self, texts: PreparedRows, workers: Executor) -> Float32:
        """Place texts by the shortest y' that explains them, or by the learned regression."""
        if self.query_map == "ridge":
            return project_rows(texts, _require_ridge(self.text_ridge, "text"), workers)
        return project_rows(texts, self._text_map, workers)

    # Both take longer than one query does, so they are computed once.

    @cached_property
    def _text_map(self) -> Float64:
        return minimum_norm_map(self.text_basis)

    @cached_property
    def _dictionary_gram(self) -> Float32:
        return dictionary_gram(self.image_dictionary)

    def fold_in(
        self, images: PreparedRows, texts: PreparedRows, workers: Executor
    ) -> tuple[Float32, Float32]:
        """Place pairs at the minimum of the mapping objective with B, U and R fixed."""
        fixed = self.image_dictionary, self.text_basis, self.image_map
        return fold_in(*fixed, images, texts, self.weights, workers).points


def _require_ridge(matrix: Float64 | None, side: str) -> Float64:
    if matrix is None:
        raise InvalidInput(
            f"query_map='ridge': the {side} side has more than {MAX_GRAM_DIMS} dimensions, too many for a "
            f"regression; set {side}_components=512, or query_map='paper'"
        )
    return matrix


def ridge_map(rows: PreparedRows, points: Float32, workers: Executor) -> Float64 | None:
    """Fit a ridge regression (d, D) from rows to points; its strength by generalised cross-validation."""
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


def minimum_norm_map(U: Float64) -> Float64:
    """Make the (d_T, D) map that takes y to the shortest y' minimising |y - y' U|²."""
    return np.asarray(np.linalg.pinv(U, rcond=np.sqrt(_EIGEN_CUT)), dtype=np.float64)


def dictionary_gram(B: Float64) -> Float32:
    """Compute the inner products (A, A) of the atoms, for :func:`image_lasso`."""
    return np.asarray(B @ B.T, dtype=np.float32)


def image_lasso(
    X: PreparedRows, B: Float64, weights: SparseWeights, workers: Executor, gram: Float32 | None = None
) -> sparse.csr_matrix:
    """Code images on their own: argmin |x - s B|² + ρ|s|₁ (the paper's image query)."""
    gram = dictionary_gram(B) if gram is None else gram
    return _solve_lasso(gram, lambda rows: X[rows].dense(), B.T, None, X.shape[0], weights, workers)


def points_of_codes(S: sparse.csr_matrix, R: Float64, workers: Executor) -> Float32:
    """Compute X' = S R."""
    points: Float32 = workers.rows(
        lambda rows: S[rows].astype(np.float64) @ R, S.shape[0], (R.shape[1],), np.float32
    )
    return points


# Training: a state, and the updates of its blocks


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
    gram: Float64
    """(A, A), S'S: what the updates of B and R share"""
    image_points: Float32
    """(N, D), X' = S R"""
    text_points: Float32
    """(N, D), Y'"""

    @property
    def points(self) -> tuple[Float32, Float32]:
        """Both sides, images first."""
        return self.image_points, self.text_points


def initial_state(
    X: PreparedRows,
    Y: PreparedRows,
    n_atoms: int,
    n_dims: int,
    weights: SparseWeights,
    rng: np.random.Generator,
    workers: Executor,
) -> SparseState:
    """Start from random atoms, a basis inside the span of the texts, and sparse codes of B alone."""
    B = _unit_rows(rng.standard_normal((n_atoms, X.shape[1])))
    R = _unit_rows(rng.standard_normal((n_atoms, n_dims)))
    U = basis_in_span(Y, n_dims, rng, workers)
    return make_state(
        B, U, R, image_lasso(X, B, weights, workers), project_rows(Y, minimum_norm_map(U), workers), workers
    )


def basis_in_span(Y: PreparedRows, n_dims: int, rng: np.random.Generator, workers: Executor) -> Float64:
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


def make_state(
    B: Float64, U: Float64, R: Float64, S: sparse.csr_matrix, text_points: Float32, workers: Executor
) -> SparseState:
    """Put a state together from its independent parts."""
    return SparseState(B, U, R, S, _code_gram(S, workers), points_of_codes(S, R, workers), text_points)


def _code_gram(S: sparse.csr_matrix, workers: Executor) -> Float64:
    def products(rows: slice) -> Float64:
        block = S[rows].astype(np.float64)
        return np.asarray((block.T @ block).toarray())

    no_rows = np.zeros((S.shape[1], S.shape[1]))
    return np.asarray(workers.total(products, S.shape[0])) if S.shape[0] else no_rows


def update_text_points(
    state: SparseState, Y: PreparedRows, targets: Targets | None, weights: SparseWeights, workers: Executor
) -> SparseState:
    """Y' = (D Q + η Y U' + λ X') (η U U' + (λ + 1) I)⁻¹."""
    return state._replace(text_points=_text_points(state.U, state.image_points, Y, targets, weights, workers))


def _text_points(
    U: Float64,
    image_points: Float32,
    Y: PreparedRows,
    targets: Targets | None,
    weights: SparseWeights,
    workers: Executor,
) -> Float32:
    eta, lam = weights.text_weight, weights.alignment
    inverse = _text_inverse(U, weights, 0.0 if targets is None else 1.0)

    def one_block(rows: slice) -> Float64:
        target = eta * Y[rows].times(U.T) + lam * image_points[rows].astype(np.float64)
        if targets is not None:
            target += targets.texts[rows]
        return deterministic_product(target, inverse)

    points: Float32 = workers.rows(one_block, Y.shape[0], (len(U),), np.float32)
    return points


def _text_inverse(U: Float64, weights: SparseWeights, tie: float) -> Float64:
    """Compute (η U U' + (λ + tie) I)⁻¹, of minimum norm where a direction is missing (λ = 0)."""
    matrix = weights.text_weight * U @ U.T + (weights.alignment + tie) * np.eye(len(U))
    return np.asarray(np.linalg.pinv(matrix, rcond=_EIGEN_CUT, hermitian=True), dtype=np.float64)


def update_sparse_codes(
    state: SparseState, X: PreparedRows, targets: Targets | None, weights: SparseWeights, workers: Executor
) -> SparseState:
    """S: a lasso on [X, C P + λ Y'] over the stacked dictionary [B, sqrt(λ + 1) R]."""
    tie = 0.0 if targets is None else 1.0
    lam, B, R = weights.alignment, state.B, state.R

    def stack(rows: slice) -> Float32:
        return _stack_columns(X[rows].dense(), _image_targets(state, targets, lam, rows))

    gram = B @ B.T + (lam + tie) * R @ R.T
    S = _solve_lasso(gram, stack, np.hstack([B, R]).T, state.S, X.shape[0], weights, workers, _TOLERANCE)
    return state._replace(S=S, gram=_code_gram(S, workers), image_points=points_of_codes(S, R, workers))


def _image_targets(state: SparseState, targets: Targets | None, lam: float, rows: slice) -> Float64:
    """Compute C P + λ Y', where the image points are pulled to."""
    target = lam * state.text_points[rows].astype(np.float64)
    return target if targets is None else target + targets.images[rows]


def _stack_columns(left: Any, right: Any) -> Float32:
    return np.hstack([left, right]).astype(np.float32)


def update_text_basis(state: SparseState, Y: PreparedRows, workers: Executor) -> SparseState:
    """U: min |Y - Y' U|² with rows in the unit ball."""

    def sums(rows: slice) -> tuple[Float64, Float64]:
        points = state.text_points[rows].astype(np.float64)
        return points.T @ points, Y[rows].cross(points)

    G, H = workers.total(sums, Y.shape[0])
    return state._replace(U=bounded_least_squares(G, H, state.U))


def update_image_dictionary(state: SparseState, X: PreparedRows, workers: Executor) -> SparseState:
    """B: min |X - S B|² with rows in the unit ball."""
    H = workers.total(
        lambda rows: state.S[rows].astype(np.float64).T @ X[rows].dense().astype(np.float64), X.shape[0]
    )
    return state._replace(B=bounded_least_squares(state.gram, H, state.B))


def update_image_map(
    state: SparseState, targets: Targets | None, weights: SparseWeights, workers: Executor
) -> SparseState:
    """R: min |(C P + λ Y') / (λ + 1) - S R|² with rows in the unit ball."""
    tie, lam = 0.0 if targets is None else 1.0, weights.alignment
    if lam + tie == 0.0:
        return state  # nothing ties R to anything yet

    H = workers.total(
        lambda rows: state.S[rows].astype(np.float64).T @ _image_targets(state, targets, lam, rows),
        len(state.image_points),
    )
    R = bounded_least_squares(state.gram, H / (lam + tie), state.R)
    return state._replace(R=R, image_points=points_of_codes(state.S, R, workers))


def fold_in(
    B: Float64,
    U: Float64,
    R: Float64,
    X: PreparedRows,
    Y: PreparedRows,
    weights: SparseWeights,
    workers: Executor,
) -> SparseState:
    """Find the state of new pairs: minimise the mapping objective over S and Y', with B, U, R fixed."""
    S = _fold_in_codes(B, U, R, X, Y, weights, workers)
    image_points = points_of_codes(S, R, workers)
    text_points = _text_points(U, image_points, Y, None, weights, workers)
    return SparseState(B, U, R, S, _code_gram(S, workers), image_points, text_points)


def _fold_in_codes(
    B: Float64,
    U: Float64,
    R: Float64,
    X: PreparedRows,
    Y: PreparedRows,
    weights: SparseWeights,
    workers: Executor,
) -> sparse.csr_matrix:
    """Find the sparse codes of new pairs at that minimum.

    Y' has a closed form given v = s R, namely (η y U' + λ v) A⁻¹ with A = η U U' + λ I. Put back in, what
    is left is one lasso in s, with Gram matrix B B' + R (λ I - λ² A⁻¹) R' and right-hand side
    x B' + η λ y U' A⁻¹ R'; so no alternation is needed.
    """
    eta, lam = weights.text_weight, weights.alignment
    inverse = _text_inverse(U, weights, 0.0)
    gram = B @ B.T + R @ (lam * np.eye(len(U)) - lam**2 * inverse) @ R.T
    dictionary = np.vstack([B.T, eta * lam * inverse @ R.T])

    def stack(rows: slice) -> Float32:
        return _stack_columns(X[rows].dense(), Y[rows].times(U.T))

    return _solve_lasso(gram, stack, dictionary, None, X.shape[0], weights, workers)


# Sparse codes


def _solve_lasso(
    gram: Float64 | Float32,
    stack: Callable[[slice], Float32],
    dictionary: Float64,
    start: sparse.csr_matrix | None,
    n_rows: int,
    weights: SparseWeights,
    workers: Executor,
    tolerance: float = 3e-5,
) -> sparse.csr_matrix:
    """Solve the lasso by blocks; ``stack(rows)`` times ``dictionary`` gives the right-hand sides."""
    G, W = gram.astype(np.float32, copy=False), dictionary.astype(np.float32)

    def solve(rows: slice) -> sparse.csr_matrix:
        values, warm = stack(rows), None if start is None else start[rows]
        parts = []
        # A part's products fit in the cache of a core, a block's would not.
        for at in range(0, len(values), _ROWS_AT_ONCE):
            q = deterministic_product(values[at : at + _ROWS_AT_ONCE], W)
            begin = _no_codes(q.shape) if warm is None else warm[at : at + len(q)]
            parts.append(kernels.lasso(G, q, _penalties(q, weights), begin, tolerance))
        return sparse.vstack(parts, format="csr")

    codes: sparse.csr_matrix = workers.sparse_rows(solve, n_rows, len(gram))
    return codes


def _penalties(q: Float32, weights: SparseWeights) -> Float32:
    """Return z per row: |x - sB|² + ρ|s|₁ is twice ½ s'Gs - q's + (ρ/2)|s|₁; ratio mode as SLEP's rFlag."""
    if weights.ratio:
        return (weights.sparsity * np.abs(q).max(axis=1)).astype(np.float32)
    return np.full(len(q), weights.sparsity / 2, dtype=np.float32)


def _no_codes(shape: Any) -> sparse.csr_matrix:
    return sparse.csr_matrix(shape, dtype=np.float32)


# Least squares with rows of bounded length


def bounded_least_squares(
    G: Float64, H: Float64, start: Float64, tolerance: float = 1e-6, max_iter: int = 2000
) -> Float64:
    """Minimise tr(W'GW) - 2 tr(W'H) over W (A, d) with rows of at most unit length.

    The updates of U, B and R are  min |T - Z W|²  over W with rows in the unit ball, and need only the sums
    G = Z'Z and H = Z'T, which can be taken over blocks. The problem is convex; it is solved by an accelerated
    projected gradient with restarts, in coordinates scaled by the diagonal of G (atoms are used very
    unequally, and the scaling takes that out of the condition number; it keeps the balls balls).

    Parameters
    ----------
    G : (A, A) float64
        Z'Z.
    H : (A, d) float64
        Z'T.
    start : (A, d) float64
        Where to begin. Rows that no sample uses (G_jj = 0) stay as they are.
    tolerance : float
        Largest :func:`optimality_gap` accepted.
    """
    curvature = np.diag(G)
    used = curvature > 1e-12 * max(curvature.max(initial=0.0), np.finfo(float).tiny)
    W = start.copy()
    if not used.any():
        return W
    scale = np.sqrt(curvature[used])
    g, h = G[np.ix_(used, used)] / np.outer(scale, scale), H[used] / scale[:, None]
    V = _minimise_accelerated(g, h, scale, W[used] * scale[:, None], tolerance, max_iter)
    W[used] = V / scale[:, None]
    return W


def optimality_gap(G: Float64, H: Float64, W: Float64) -> float:
    """Measure how far W is from optimal: the longest row of W - project(W - gradient / curvature).

    Zero exactly where the Karush-Kuhn-Tucker conditions hold: a row inside its ball has no gradient,
    a row on it has a gradient that points straight outwards. Unused rows count as optimal.
    """
    curvature = np.diag(G)
    used = curvature > 1e-12 * max(curvature.max(initial=0.0), np.finfo(float).tiny)
    step = (G @ W - H)[used] / curvature[used, None]
    moved = W[used] - _project_into_balls(W[used] - step, np.ones(int(used.sum())))
    return float(np.linalg.norm(moved, axis=1).max(initial=0.0))


def _minimise_accelerated(
    g: Float64, h: Float64, radii: Float64, V: Float64, tolerance: float, max_iter: int
) -> Float64:
    """FISTA with gradient restarts on 1/2 tr(V'gV) - tr(V'h), g with a unit diagonal."""
    # A bound on the largest eigenvalue; a few power steps from above would risk being too small.
    lipschitz = float(np.linalg.eigvalsh(g)[-1])
    V = look = _project_into_balls(V, radii)
    momentum = 1.0
    for iteration in range(max_iter):
        gradient = g @ look - h
        new = _project_into_balls(look - gradient / lipschitz, radii)
        if iteration % 10 == 0 and _scaled_gap(g, h, radii, new) <= tolerance:
            return new
        if np.vdot(look - new, new - V) > 0:  # the momentum points uphill
            momentum, look = 1.0, V
            V = new
            continue
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        look = new + (momentum - 1.0) / following * (new - V)
        V, momentum = new, following
    return V


def _scaled_gap(g: Float64, h: Float64, radii: Float64, V: Float64) -> float:
    moved = V - _project_into_balls(V - (g @ V - h), radii)
    return float((np.linalg.norm(moved, axis=1) / radii).max())


def _project_into_balls(V: Float64, radii: Float64) -> Float64:
    lengths = np.linalg.norm(V, axis=1)
    return V * np.minimum(1.0, radii / np.maximum(lengths, np.finfo(float).tiny))[:, None]
