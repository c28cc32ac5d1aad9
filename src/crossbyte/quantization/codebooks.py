"""Codebooks of one side: their start, their update by L-BFGS (Sec. 4.2), and decoding."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from crossbyte import kernels
from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.executors.protocol import Executor
from crossbyte.kernels import WORDS, CrossPenalty
from crossbyte.quantization.kmeans import kmeans, nearest

__all__ = [
    "cross_spread",
    "cross_terms",
    "dealt_dimensions",
    "decode",
    "mean_cross",
    "residual_codebooks",
    "update_codebooks",
    "update_shared_codebooks",
]


def decode(codewords: NDArray[Any], codes: Codes, workers: Executor) -> Float32:
    """Sum the chosen codewords (M, K, d) of each row of (n, M) codes: (n, d) float32."""
    points: Float32 = workers.rows(
        lambda rows: _decode(codewords, codes[rows]), len(codes), (codewords.shape[2],), np.float32
    )
    return points


def _decode(codewords: NDArray[Any], codes: Codes) -> Float32:
    total = np.zeros((len(codes), codewords.shape[2]))
    for m, chosen in enumerate(codes.T):
        total += codewords[m, chosen]
    return total.astype(np.float32)


def cross_terms(codewords: NDArray[Any], codes: Codes, workers: Executor) -> Float64:
    """Inner products of the chosen codewords, summed over ordered pairs of codebooks: (n,) float64."""
    own = own_squares(codewords)
    cross: Float64 = workers.rows(
        lambda rows: cross_of(codewords, own, codes[rows]), len(codes), (), np.float64
    )
    return cross


def own_squares(codewords: NDArray[Any]) -> Float64:
    """Squared lengths (M, K) of the codewords, for :func:`cross_of`."""
    return np.asarray((codewords.astype(np.float64) ** 2).sum(axis=2))


def cross_of(codewords: NDArray[Any], own: Float64, codes: Codes) -> Float64:
    """Cross terms (n,) of one block of codes."""
    total = np.zeros((len(codes), codewords.shape[2]))
    squares = np.zeros(len(codes))
    for m, chosen in enumerate(codes.T):
        total += codewords[m, chosen]
        squares += own[m, chosen]
    return np.einsum("nd,nd->n", total, total) - squares


def mean_cross(codewords: NDArray[Any], codes: Codes, workers: Executor) -> float:
    """Mean of the cross terms."""
    own = own_squares(codewords)
    total = workers.total(lambda rows: cross_of(codewords, own, codes[rows]).sum(), len(codes))
    return float(total) / len(codes)


def cross_spread(codewords: NDArray[Any], codes: Codes, around: float, workers: Executor) -> float:
    """Sum of the squared differences of the cross terms from a number."""
    own = own_squares(codewords)

    def one_block(rows: slice) -> float:
        gap = cross_of(codewords, own, codes[rows]) - around
        return float(gap @ gap)

    return float(workers.total(one_block, len(codes)))


def dealt_dimensions(variances: NDArray[Any], n_parts: int) -> NDArray[np.intp]:
    """Dimensions (M, width) of the parts of a product quantizer, dealt so that all parts vary alike.

    The strongest first, there and back; -1 where a part has one less. There are at most as many parts as
    dimensions.
    """
    n_parts = min(n_parts, len(variances))
    rounds = np.full((-(-len(variances) // n_parts), n_parts), -1)
    rounds.flat[: len(variances)] = np.argsort(-variances, kind="stable")
    rounds[1::2] = rounds[1::2, ::-1].copy()
    return np.ascontiguousarray(rounds.T)


def residual_codebooks(
    points: Float32, n_codebooks: int, rng: np.random.Generator, workers: Executor
) -> Float64:
    """K-means of what the codebooks before leave over."""
    codewords = np.empty((n_codebooks, WORDS, points.shape[1]))
    rest = points.copy()
    for m in range(n_codebooks):
        codewords[m] = kmeans(rest, WORDS, rng, workers)
        labels, _ = nearest(rest, codewords[m], workers)
        rest -= codewords[m].astype(np.float32)[labels]
    return codewords


def update_codebooks(
    codewords: Float64,
    codes: Codes,
    targets: Float32,
    penalty: CrossPenalty,
    shrinkage: float,
    workers: Executor,
    max_iter: int = 12,
) -> Float64:
    """Minimise Σ |t - C p|² + μ (cross - ε)² + τ |C|² over the codewords; never worse than the start.

    τ (``shrinkage``) acts like τ items at the origin per codeword: a codeword that few items share would
    otherwise learn them by heart and serve new items badly.
    """

    def objective(candidate: Float64) -> tuple[float, Float64]:
        value, gradient = _value_gradient(candidate, codes, targets, penalty, workers)
        return _shrunk(value, gradient, candidate, shrinkage)

    return minimise(objective, codewords, word_counts(codes, workers) + shrinkage, max_iter)


def _value_gradient(
    codewords: Float64, codes: Codes, targets: Float32, penalty: CrossPenalty, workers: Executor
) -> tuple[float, Float64]:
    def one_block(rows: slice) -> tuple[float, Float64]:
        return kernels.codebook_value_gradient(codewords, codes[rows], targets[rows], penalty)

    value, gradient = workers.total(one_block, len(codes))
    return value, gradient


def update_shared_codebooks(
    codewords: Float64,
    codes: tuple[Codes, Codes],
    points: tuple[Float32, Float32],
    penalties: tuple[CrossPenalty, CrossPenalty],
    correlation: float,
    shrinkage: float,
    workers: Executor,
    max_iter: int = 12,
) -> Float64:
    """Minimise both sides' objectives plus γ |C (P - Q)|² over one set of codewords.

    Here the blended target would move with the codewords, so the term in γ is taken as it is: its value
    is the error of one side's codes against the other side's decoded points, and its gradient is the
    sum of the two gradients with the opposite side held still.
    """

    def one_block(rows: slice, candidate: Float64) -> tuple[float, Float64]:
        value, gradient = 0.0, np.zeros_like(candidate)
        own = [_decode(candidate, side[rows]) for side in codes]
        for i in (0, 1):
            part = kernels.codebook_value_gradient(candidate, codes[i][rows], points[i][rows], penalties[i])
            tie = kernels.codebook_value_gradient(
                candidate, codes[i][rows], own[1 - i], CrossPenalty(0.0, 0.0)
            )
            value += part[0] + correlation * tie[0] / 2
            gradient += part[1] + correlation * tie[1]
        return value, gradient

    def objective(candidate: Float64) -> tuple[float, Float64]:
        value, gradient = workers.total(lambda rows: one_block(rows, candidate), len(codes[0]))
        return _shrunk(value, gradient, candidate, shrinkage)

    used = word_counts(codes[0], workers) + word_counts(codes[1], workers)
    return minimise(objective, codewords, used + shrinkage, max_iter)


def _shrunk(value: float, gradient: Float64, codewords: Float64, shrinkage: float) -> tuple[float, Float64]:
    return value + shrinkage * float(np.vdot(codewords, codewords)), gradient + 2 * shrinkage * codewords


def word_counts(codes: Codes, workers: Executor) -> NDArray[np.intp]:
    """How many rows use each codeword: (M, K)."""

    def one_block(rows: slice) -> NDArray[np.intp]:
        return np.stack([np.bincount(column, minlength=WORDS) for column in codes[rows].T])

    counts: NDArray[np.intp] = workers.total(one_block, len(codes))
    return counts


def minimise(objective: Any, codewords: Float64, counts: NDArray[Any], max_iter: int) -> Float64:
    """L-BFGS over codewords scaled by the square root of their use.

    The scaling makes the diagonal of the Hessian constant: a codeword of 500 items and a codeword of one then
    need the same step, and a dozen iterations do the work of hundreds.
    """
    scale = np.sqrt(np.maximum(counts, 1.0))[:, :, None]

    def scaled(flat: Float64) -> tuple[float, Float64]:
        value, gradient = objective(np.ascontiguousarray(flat.reshape(codewords.shape) / scale))
        return value, (gradient / scale).ravel()

    start = (codewords * scale).ravel()
    before, _ = scaled(start)
    found = optimize.minimize(
        scaled, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iter, "ftol": 1e-6}
    )
    better = found.fun < before and np.isfinite(found.x).all()
    return found.x.reshape(codewords.shape) / scale if better else codewords
