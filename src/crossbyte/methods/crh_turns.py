"""One turn of co-regularized hashing: one side's direction is bettered while the other's stays."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.data.features import Rows
from crossbyte.data.subspace import principal_directions
from crossbyte.executors.threads import Workers
from crossbyte.methods.itq import signs_of_values

__all__ = ["Half", "Problem", "Tangents", "convex_slope", "deviation"]

_A = 3.7  # of the deviation τ, as in the paper
_L = 1.0 / _A  # beyond a l = 1 a pair is far enough apart

Indices = NDArray[np.intp]


class Half(NamedTuple):
    """Rows of one side, times what brings their mean squared length to 1."""

    rows: Rows  # (n, d)
    scale: float
    curvature: float  # largest eigenvalue of their mean xx', (d, d)
    at: Indices  # (P,), the row of each pair

    @classmethod
    def of(cls, rows: Rows, at: Indices, workers: Workers) -> Half:
        """Find scale and curvature of centred rows (n, d)."""
        n, d = rows.shape
        total = workers.total(lambda block: np.square(rows[block].dense(), dtype=np.float64).sum(), n) or 1.0

        def times_gram(B: Float64) -> Float64:
            found: Float64 = workers.total(lambda block: rows[block].cross(rows[block].times(B)), n)
            return found.T / total

        top = principal_directions(times_gram, d, 1).T
        return cls(rows, float(np.sqrt(n / total)), float(np.sum(top * times_gram(top))), at)

    def values(self, w: Float64) -> Float64:
        """Values w'x of all rows: (n,)."""
        return self.scale * np.asarray(self.rows.times(w[:, None]), dtype=np.float64)[:, 0]

    def at_pairs(self, w: Float64) -> Float64:
        """Values w'x of the row of each pair: (P,)."""
        return self.values(w)[self.at]


class Problem(NamedTuple):
    """The part of the objective that one direction w changes while the other side's stays."""

    half: Half
    others: Float64  # (P,), the other side's values at the pairs
    alike: NDArray[np.bool_]  # (P,)
    weights: Float64  # (P,)
    similarity_weight: float
    shrinkage: float

    def objective(self, w: Float64) -> float:
        """The mean of [1 - |w'x|]₊ + γ (Σ_alike w_n d_n² + Σ_unlike w_n τ(d_n)) + ½ l ‖w‖²."""
        z = self.half.values(w)
        d = z[self.half.at] - self.others
        apart = self.weights @ np.where(self.alike, d**2, deviation(d))
        hinge = np.maximum(1.0 - np.abs(z), 0.0).mean()
        return float(hinge + self.similarity_weight * apart + self.shrinkage / 2 * w @ w)

    def turn(self, w: Float64, rows: Indices, pairs: Indices) -> Float64:
        """Lower the convex bound that touches the objective at w; what would raise the objective is refused.

        Parameters
        ----------
        w : (d,) float64
        rows, pairs : (T, B) int
            What each of T steps looks at: rows at random, and pairs as likely as their weights.
        """
        z = self.half.values(w)
        tangents = Tangents(signs_of_values(z), z[self.half.at] - self.others)
        lengths = self.shrinkage * np.arange(1, len(rows) + 1)
        lengths += 2.0 * self.similarity_weight * self.half.curvature
        found, path = w, []
        for length, some_rows, some_pairs in zip(lengths, rows, pairs, strict=True):
            found = found - self.subgradient(found, tangents, some_rows, some_pairs) / length
            path.append(found)
        mean = np.mean(path[len(path) // 2 :], axis=0)
        return mean if self.objective(mean) <= self.objective(w) else w

    def subgradient(self, w: Float64, tangents: Tangents, rows: Indices, pairs: Indices) -> Float64:
        """Of the bound max(1, |z|) - sz and d², or τ₁(d) - d₀d, in the mean of some rows and some pairs."""
        x = self.half.rows[np.concatenate([rows, self.half.at[pairs]])]
        values = self.half.scale * np.asarray(x.times(w[:, None]), dtype=np.float64)[:, 0]
        z, d = values[: len(rows)], values[len(rows) :] - self.others[pairs]
        hinge = np.where(np.abs(z) > 1.0, np.sign(z), 0.0) - tangents.signs[rows]
        apart = np.where(self.alike[pairs], 2.0 * d, convex_slope(d) - tangents.deviations[pairs])
        slopes = np.concatenate([hinge / len(rows), self.similarity_weight / len(pairs) * apart])
        return self.half.scale * x.cross(slopes[:, None])[0] + self.shrinkage * w


class Tangents(NamedTuple):
    """What the concave parts are replaced by: slopes where the turn began."""

    signs: Float64  # (n,), of |z|
    deviations: Float64  # (P,), of d²/2


def deviation(d: Float64) -> Float64:
    """τ(d): (a l² - d²)/2 up to |d| = l, (a l - |d|)²/(2a - 2) up to a l, then 0."""
    size = np.abs(d)
    return np.where(size <= _L, (_A * _L**2 - d**2) / 2, np.maximum(_A * _L - size, 0.0) ** 2 / (2 * _A - 2))


def convex_slope(d: Float64) -> Float64:
    """Slope of the convex τ₁(d) = τ(d) + d²/2: 0 up to |d| = l, then a (|d| - l)/(a - 1), d from a l on."""
    return np.sign(d) * np.clip(_A * (np.abs(d) - _L) / (_A - 1), 0.0, np.abs(d))
