"""Slow and obvious: naive loops and other people's libraries that say what is right.

Nothing here shares code with the package; loops are written as the formulas are read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg
from sklearn.decomposition import PCA
from sklearn.linear_model import Lasso

Array = NDArray[Any]
WORDS = 256


def decode(words: Array, codes: Array) -> Array:
    """Sum of the chosen words (M, K, d) of each code (n, M)."""
    points = np.zeros((len(codes), words.shape[2]))
    for n, code in enumerate(codes):
        for m, k in enumerate(code):
            points[n] += words[m, k]
    return points


def cross_term(words: Array, code: Array) -> float:
    """Inner products of the chosen words over all ordered pairs of different codebooks."""
    total = 0.0
    for i, a in enumerate(code):
        for j, b in enumerate(code):
            if i != j:
                total += float(words[i, a].astype(float) @ words[j, b].astype(float))
    return total


def table_distance(words: Array, point: Array, code: Array) -> float:
    """Squared distances from a point to each chosen word, added up."""
    total = 0.0
    for m, k in enumerate(code):
        for a, b in zip(point, words[m, k], strict=True):
            total += (float(a) - float(b)) ** 2
    return total


def row_objective(words: Array, target: Array, code: Array, mu: float, epsilon: float) -> float:
    """|t - sum of words|² + μ (cross - ε)² of one item."""
    rest = target.astype(float) - decode(words, [code])[0]
    return float(rest @ rest) + mu * (cross_term(words, code) - epsilon) ** 2


def codebook_objective(words: Array, codes: Array, targets: Array, mu: float, epsilon: float) -> float:
    """The row objectives, added up."""
    rows = zip(targets, codes, strict=True)
    return sum(row_objective(words, target, code, mu, epsilon) for target, code in rows)


def icm_sweep(words: Array, target: Array, code: Array, mu: float, epsilon: float) -> Array:
    """One sweep of iterated conditional modes: each codebook tries all its words, the others fixed."""
    code = code.copy()
    for m in range(len(code)):
        trials = np.repeat(code[None], WORDS, axis=0)
        trials[:, m] = np.arange(WORDS)
        code = trials[np.argmin([row_objective(words, target, trial, mu, epsilon) for trial in trials])]
    return code


def best_pair_codes(words: Array, targets: Array) -> Array:
    """The best code of each target by trying all 256² of them; two codebooks, no penalty."""
    codes = np.empty((len(targets), 2), dtype=np.uint8)
    for n, target in enumerate(targets.astype(float)):
        sums = words[0][:, None, :] + words[1][None, :, :]
        errors = ((target - sums) ** 2).sum(axis=2)
        codes[n] = np.unravel_index(errors.argmin(), errors.shape)
    return codes


def lasso_objective(atoms: Array, row: Array, weights: Array, z: float) -> float:
    """½|x - s B|² + z|s|₁ with atoms B (A, d)."""
    rest = row.astype(float) - weights.astype(float) @ atoms.astype(float)
    return 0.5 * float(rest @ rest) + z * float(np.abs(weights).sum())


def lasso(atoms: Array, row: Array, z: float) -> Array:
    """scikit-learn's minimiser of :func:`lasso_objective`."""
    model = Lasso(alpha=z / len(row), fit_intercept=False, tol=1e-9, max_iter=200_000)
    return np.asarray(model.fit(atoms.T.astype(float), row.astype(float)).coef_)


def lasso_violation(gram: Array, products: Array, weights: Array, z: float) -> float:
    """Largest violation of the optimality conditions of ½ s'Gs - q's + z|s|₁."""
    slope = products.astype(float) - gram.astype(float) @ weights.astype(float)
    used = weights != 0
    off = np.maximum(np.abs(slope) - z, 0.0)[~used].max(initial=0.0)
    on = np.abs(slope - z * np.sign(weights))[used].max(initial=0.0)
    return float(max(off, on))


def bounded_least_squares(gram: Array, right: Array, n_steps: int = 20_000) -> Array:
    """Plain projected gradient on tr(W'GW) - 2 tr(W'H), rows in the unit ball, run long."""
    weights = np.zeros_like(right)
    step = 1.0 / np.linalg.eigvalsh(gram)[-1]
    for _ in range(n_steps):
        weights = weights - step * (gram @ weights - right)
        weights /= np.maximum(1.0, np.linalg.norm(weights, axis=1, keepdims=True))
    return weights


def bounded_objective(gram: Array, right: Array, weights: Array) -> float:
    """tr(W'GW) - 2 tr(W'H)."""
    return float(np.trace(weights.T @ gram @ weights) - 2 * np.trace(weights.T @ right))


def principal_directions(rows: Array, n_components: int) -> Array:
    """scikit-learn's PCA."""
    return np.asarray(PCA(n_components, svd_solver="full").fit(rows.astype(float)).components_)


def canonical_correlations(X: Array, Y: Array, ridge: float) -> Array:
    """Correlations, largest first, as eigenvalues of Cxy Cyy⁻¹ Cyx a = ρ² Cxx a."""
    Cxx, Cyy, Cxy = X.T @ X, Y.T @ Y, X.T @ Y
    Cxx = Cxx + ridge * np.trace(Cxx) / len(Cxx) * np.eye(len(Cxx))
    Cyy = Cyy + ridge * np.trace(Cyy) / len(Cyy) * np.eye(len(Cyy))
    squares = linalg.eigh(Cxy @ np.linalg.solve(Cyy, Cxy.T), Cxx, eigvals_only=True)
    return np.sqrt(np.maximum(squares[::-1], 0.0))


def slope_along(function: Callable[[Array], float], at: Array, direction: Array, step: float) -> float:
    """Central difference of a function along a direction."""
    return (function(at + step * direction) - function(at - step * direction)) / (2 * step)


def unit_rows(rows: Array) -> Array:
    """Rows over their length."""
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def paired_rows(rng: np.random.Generator, n: int, dims: tuple[int, int], n_shared: int = 5) -> list[Array]:
    """Two float32 sides of unit rows, centred before, that share a latent part."""
    latent = rng.standard_normal((n, n_shared))
    sides = []
    for d in dims:
        raw = latent @ rng.standard_normal((n_shared, d)) + 0.5 * rng.standard_normal((n, d))
        sides.append(unit_rows(raw - raw.mean(axis=0)).astype(np.float32))
    return sides
