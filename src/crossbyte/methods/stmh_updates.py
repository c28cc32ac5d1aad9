"""The blocks of STMH's objective, each at its minimum, and the objective itself.

With documents as rows, images X (N, d_I) and texts Y (N, d_T)::

    r₁ Σ_i √(|x_i - v_i B|² + ε²) + r₂ Σ_ij G_ij |y_i - f_j|² + λ |G - V R|² + γ (|F|² + |B|² + |R|² + |V|²)

G has a fixed number of ones in each row. The first sum is the L2,1 loss, smoothed so that it has a slope at
zero. It is minimised through a quadratic that lies above it and touches it at the present residuals s_i,
``(|x_i - v_i B|² + ε² + s_i²) / 2 s_i``: what lowers that, lowers the loss.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float64
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers

__all__ = [
    "State",
    "Weights",
    "image_map",
    "members",
    "next_round",
    "objective",
    "placed",
    "residuals",
    "topic_costs",
    "update_concepts",
    "update_latent",
    "update_link",
    "update_members",
    "update_topics",
]

_SMOOTHING = 1e-3  # ε; rows have unit length


class Weights(NamedTuple):
    """The weights r₁, r₂, λ and γ of the objective."""

    image: float
    text: float
    link: float
    shrinkage: float


class State(NamedTuple):
    """What is learned, by the letters of the source, in row form."""

    F: Float64
    """(c, d_T): topics"""
    B: Float64
    """(c, d_I): concepts"""
    R: Float64
    """(c, c): from concepts to topics"""
    G: Float64
    """(N, c): 1 where a text has a topic, else 0"""
    V: Float64
    """(N, c): how much an image has of each concept"""
    XB: Float64
    """(N, c), X B': what the updates need to know of the images"""


def next_round(state: State, X: Rows, Y: Rows, weights: Weights, workers: Workers) -> State:
    """F, B, V, R and G in turn; none raises the objective."""
    state = update_topics(state, Y, weights, workers)
    state = update_concepts(state, X, weights, workers)
    state = update_latent(state, X, weights)
    state = update_link(state, weights)
    return update_members(state, Y, weights, workers)


def update_topics(state: State, Y: Rows, weights: Weights, workers: Workers) -> State:
    """f_j = r₂ Σ_i G_ij y_i / (r₂ Σ_i G_ij + γ): the mean of its texts; 0, the mean of all, without any."""
    sums = workers.total(lambda rows: Y[rows].cross(state.G[rows]), Y.shape[0])
    counts = state.G.sum(axis=0)[:, None]
    return state._replace(F=weights.text * sums / (weights.text * counts + weights.shrinkage))


def update_concepts(state: State, X: Rows, weights: Weights, workers: Workers) -> State:
    """B = (V'W V + γ I)⁻¹ V'W X with W = diag(r₁ / 2 s_i)."""
    weighted = _image_weights(state, X, weights)[:, None] * state.V
    pull = workers.total(lambda rows: X[rows].cross(weighted[rows]), X.shape[0])
    B = _ridge_solution(weighted.T @ state.V, pull, weights.shrinkage)
    return state._replace(B=B, XB=placed(X, B.T, workers))


def update_latent(state: State, X: Rows, weights: Weights) -> State:
    """v_i = (w_i x_i B' + λ g_i R') (w_i B B' + λ R R' + γ I)⁻¹ with w_i = r₁ / 2 s_i.

    One pair of quadratic forms for all rows: with Q'(λ R R' + γ I) Q = I and Q'B B'Q = diag(e), the inverse
    is Q diag(1 / (1 + w_i e)) Q'.
    """
    _, _, lam, gamma = weights
    w = _image_weights(state, X, weights)[:, None]
    e, Q = linalg.eigh(state.B @ state.B.T, lam * state.R @ state.R.T + gamma * np.eye(len(state.R)))
    pull = w * state.XB + lam * state.G @ state.R.T
    return state._replace(V=(pull @ Q / (1.0 + w * np.maximum(e, 0.0))) @ Q.T)


def update_link(state: State, weights: Weights) -> State:
    """R = (λ V'V + γ I)⁻¹ λ V'G."""
    lam = weights.link
    return state._replace(
        R=_ridge_solution(lam * state.V.T @ state.V, lam * state.V.T @ state.G, weights.shrinkage)
    )


def update_members(state: State, Y: Rows, weights: Weights, workers: Workers) -> State:
    """g_i: the topics with the least r₂ |y_i - f_j|² - 2 λ (v_i R)_j, as many as before."""
    costs = topic_costs(Y, state.F, weights, workers) - 2 * weights.link * state.V @ state.R
    return state._replace(G=members(costs))


def topic_costs(Y: Rows, F: Float64, weights: Weights, workers: Workers) -> Float64:
    """r₂ (|f_j|² - 2 y_i·f_j), (n, c): squared distances to topics, less |y_i|² of each text."""
    return weights.text * (np.einsum("cd,cd->c", F, F) - 2 * placed(Y, F.T, workers))


def members(costs: Float64) -> Float64:
    """1 for the cheaper half of each row's (n, c) topics, rounded down, at least one; the first of equals."""
    chosen = np.argsort(costs, axis=1, kind="stable")[:, : max(1, costs.shape[1] // 2)]
    G = np.zeros(costs.shape)
    np.put_along_axis(G, chosen, 1.0, axis=1)
    return G


def image_map(state: State, weights: Weights) -> Float64:
    """B'(B B' + (γ/r₁) I)⁻¹ R, (d_I, c): an image's concepts without its text, and their topics."""
    ridge = weights.shrinkage / weights.image
    return np.ascontiguousarray(_ridge_solution(state.B @ state.B.T, state.B, ridge).T @ state.R)


def objective(state: State, X: Rows, Y: Rows, weights: Weights, workers: Workers) -> float:
    """The objective of this module, never forming distances of texts to topics that they have not."""
    F, B, R, G, V, _ = state
    sums = workers.total(lambda rows: Y[rows].cross(G[rows]), Y.shape[0])
    chosen = G.sum(axis=1) @ Y.squares() - 2 * np.vdot(F, sums) + G.sum(axis=0) @ (F**2).sum(axis=1)
    return float(
        weights.image * residuals(state, X).sum()
        + weights.text * chosen
        + weights.link * np.square(G - V @ R).sum()
        + weights.shrinkage * sum(np.vdot(part, part) for part in (F, B, R, V))
    )


def residuals(state: State, X: Rows) -> Float64:
    """s_i = √(|x_i - v_i B|² + ε²), (N,)."""
    inner = np.einsum("nc,nc->n", state.V, state.V @ (state.B @ state.B.T) - 2 * state.XB)
    return np.sqrt(np.maximum(X.squares() + inner, 0.0) + _SMOOTHING**2)


def placed(rows: Rows, matrix: Float64, workers: Workers) -> Float64:
    """Rows (n, d) times a (d, k) matrix in double precision, each by itself alone."""
    steady = np.ascontiguousarray(matrix)
    values: Float64 = workers.rows(
        lambda block: rows[block].times(steady), rows.shape[0], (steady.shape[1],), np.float64
    )
    return values


def _image_weights(state: State, X: Rows, weights: Weights) -> Float64:
    """r₁ / 2 s_i, (N,): images that are ill explained count less."""
    return weights.image / (2 * residuals(state, X))


def _ridge_solution(gram: Float64, right: Float64, ridge: float) -> Float64:
    solution: Float64 = linalg.solve(gram + ridge * np.eye(len(gram)), right, assume_a="pos")
    return solution
