"""Kernel logistic regression, for many bits at once.

For one bit with targets h = ±1, on kernel features φ of k anchors whose own kernel is K::

    min over w, b:  Σ_i log(1 + exp(-h_i (φ_i w + b)))  +  penalty · w'Kw

It is solved in other coordinates, shared by all bits, in which the Hessian of the first step is the unit
matrix, so that L-BFGS needs few steps: with K = LL' and centred features, the eigenvectors of
``L⁻¹ φ'φ L'⁻¹`` make both terms diagonal, and each coordinate is divided by the root of its curvature. The
intercept b is not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg, optimize

from crossbyte.arrays import Float64
from crossbyte.blocks import steady_product
from crossbyte.executors.threads import Workers

__all__ = ["LogisticBits", "loss_and_gradient", "smoothed_log_odds"]

_BITS_AT_ONCE = 8  # share one line search; few enough that no bit waits long for the others
_JITTER = 1e-8  # on the kernel of the anchors, whose diagonal is 1: two of them may coincide
_FLAT = 1e-3  # of the penalty; features with less variance than that could not change a decision


@dataclass(frozen=True, eq=False)
class LogisticBits:
    """What was learned: the log odds of each bit are affine in the kernel features.

    Attributes
    ----------
    weights : (k, c) float64
    intercepts : (c,) float64
    """

    weights: Float64
    intercepts: Float64

    @classmethod
    def fit(
        cls,
        features: Float64,
        gram: Float64,
        signs: Float64,
        workers: Workers,
        *,
        penalty: float = 0.01,
        max_iter: int = 200,
    ) -> LogisticBits:
        """Learn (n, c) bits of ±1 from (n, k) kernel features; ``gram`` (k, k) is the anchors' own kernel.

        A bit that is the same for all rows would drive its intercept to infinity; it is given the log odds of
        its frequency with one success and one failure added, and no weights.
        """
        mean = features.mean(axis=0)
        turn, shares = _coordinates(features - mean, gram, penalty)
        scale = 2.0 / np.sqrt(len(features))  # makes the curvature of the intercept 1 as well
        inputs = np.column_stack([(features - mean) @ turn, np.full(len(features), scale)])
        penalties = np.append(shares, 0.0)
        solution = np.zeros((len(penalties), signs.shape[1]))
        solution[-1] = smoothed_log_odds(signs) / scale
        mixed = np.flatnonzero(np.abs(signs.sum(axis=0)) < len(signs))
        groups = [mixed[start : start + _BITS_AT_ONCE] for start in range(0, len(mixed), _BITS_AT_ONCE)]
        found = workers.map(lambda bits: _minimise(inputs, signs[:, bits], penalties, max_iter), groups)
        for bits, values in zip(groups, found, strict=True):
            solution[:, bits] = values
        weights = np.ascontiguousarray(turn @ solution[:-1])
        return cls(weights, scale * solution[-1] - mean @ weights)

    def log_odds(self, features: Float64) -> Float64:
        """Log odds (n, c) of +1 against -1, from (n, k) kernel features; each row by itself alone."""
        return np.asarray(steady_product(features, self.weights) + self.intercepts)


def loss_and_gradient(
    solution: Float64, inputs: Float64, signs: Float64, penalties: Float64
) -> tuple[float, Float64]:
    """Give ``Σ log(1 + exp(-h z'x)) + Σ penalty z²``, summed over bits, and its gradient.

    Parameters
    ----------
    solution : (p, c) float64
        The coefficients z of each bit.
    inputs : (n, p) float64
    signs : (n, c) float64
        Targets h, ±1.
    penalties : (p,) float64
        Of the square of each coefficient.
    """
    margins = signs * (inputs @ solution)
    small = np.exp(-np.abs(margins))
    loss = (np.log1p(small) - np.minimum(margins, 0.0)).sum()
    wrong = np.where(margins >= 0, small, 1.0) / (1.0 + small)  # probability of the other sign
    weighted = penalties[:, None] * solution
    gradient = 2.0 * weighted - inputs.T @ (signs * wrong)
    return float(loss + (weighted * solution).sum()), gradient


def _coordinates(centred: Float64, gram: Float64, penalty: float) -> tuple[Float64, Float64]:
    """Coefficients (k, p) that turn features into the inputs, and the penalty (p,) of each of them."""
    factor = linalg.cholesky(gram + _JITTER * np.eye(len(gram)), lower=True)
    half = linalg.solve_triangular(factor, centred.T @ centred, lower=True)
    whole = linalg.solve_triangular(factor, half.T, lower=True)
    variances, directions = linalg.eigh((whole + whole.T) / 2)
    keep = variances > _FLAT * penalty
    curvature = variances[keep] / 4 + 2 * penalty  # of the objective at 0, where every probability is 1/2
    turned = directions[:, keep] / np.sqrt(curvature)
    return linalg.solve_triangular(factor, turned, lower=True, trans="T"), penalty / curvature


def _minimise(inputs: Float64, signs: Float64, penalties: Float64, max_iter: int) -> Float64:
    shape = inputs.shape[1], signs.shape[1]

    def objective(flat: Float64) -> tuple[float, Float64]:
        loss, gradient = loss_and_gradient(flat.reshape(shape), inputs, signs, penalties)
        return loss, gradient.ravel()

    found = optimize.minimize(
        objective,
        np.zeros(shape[0] * shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxcor": 10, "ftol": 1e-7, "gtol": 1e-3},
    )
    return np.asarray(found.x, dtype=np.float64).reshape(shape)


def smoothed_log_odds(signs: Float64) -> Float64:
    """Log odds (c,) of + among (n, c) signs; one of each more, so that none is infinite."""
    positive = (signs > 0).sum(axis=0)
    return np.log((positive + 1.0) / (len(signs) - positive + 1.0))
