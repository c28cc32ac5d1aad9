"""Least squares with rows of bounded length: the updates of U, B and R (Sec. 4.1).

All three are  min |T - Z W|²  over W with rows in the unit ball, and need only the sums G = Z'Z and
H = Z'T, which can be taken over blocks. The problem is convex; it is solved by an accelerated
projected gradient with restarts, in coordinates scaled by the diagonal of G (atoms are used very
unequally, and the scaling takes that out of the condition number; it keeps the balls balls).
"""

from __future__ import annotations

import numpy as np

from crossbyte.arrays import Float64

__all__ = ["bounded_least_squares", "optimality_gap"]


def bounded_least_squares(
    G: Float64, H: Float64, start: Float64, tolerance: float = 1e-6, max_iter: int = 2000
) -> Float64:
    """Minimise tr(W'GW) - 2 tr(W'H) over W (A, d) with rows of at most unit length.

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
    V = _accelerated(g, h, scale, W[used] * scale[:, None], tolerance, max_iter)
    W[used] = V / scale[:, None]
    return W


def optimality_gap(G: Float64, H: Float64, W: Float64) -> float:
    """How far W is from optimal: the longest row of W - project(W - gradient / curvature).

    Zero exactly where the Karush-Kuhn-Tucker conditions hold: a row inside its ball has no gradient,
    a row on it has a gradient that points straight outwards. Unused rows count as optimal.
    """
    curvature = np.diag(G)
    used = curvature > 1e-12 * max(curvature.max(initial=0.0), np.finfo(float).tiny)
    step = (G @ W - H)[used] / curvature[used, None]
    moved = W[used] - _into_balls(W[used] - step, np.ones(int(used.sum())))
    return float(np.linalg.norm(moved, axis=1).max(initial=0.0))


def _into_balls(V: Float64, radii: Float64) -> Float64:
    lengths = np.linalg.norm(V, axis=1)
    return V * np.minimum(1.0, radii / np.maximum(lengths, np.finfo(float).tiny))[:, None]


def _accelerated(
    g: Float64, h: Float64, radii: Float64, V: Float64, tolerance: float, max_iter: int
) -> Float64:
    """FISTA with gradient restarts on 1/2 tr(V'gV) - tr(V'h), g with a unit diagonal."""
    # A bound on the largest eigenvalue; a few power steps from above would risk being too small.
    lipschitz = float(np.linalg.eigvalsh(g)[-1])
    V = look = _into_balls(V, radii)
    momentum = 1.0
    for iteration in range(max_iter):
        gradient = g @ look - h
        new = _into_balls(look - gradient / lipschitz, radii)
        if iteration % 10 == 0 and _gap(g, h, radii, new) <= tolerance:
            return new
        if np.vdot(look - new, new - V) > 0:  # the momentum points uphill
            momentum, look = 1.0, V
            V = new
            continue
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        look = new + (momentum - 1.0) / following * (new - V)
        V, momentum = new, following
    return V


def _gap(g: Float64, h: Float64, radii: Float64, V: Float64) -> float:
    moved = V - _into_balls(V - (g @ V - h), radii)
    return float((np.linalg.norm(moved, axis=1) / radii).max())
