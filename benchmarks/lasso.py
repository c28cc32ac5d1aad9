"""The lasso kernel beside scikit-learn's ``lasso_cd``: 10,000 points of 64-d, 512 atoms, ρ = 0.3, one
thread each.

python -m benchmarks.lasso                 # 5 interleaved repetitions; about a minute
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.decomposition import sparse_encode
from sklearn.exceptions import ConvergenceWarning

from benchmarks.tables import Measurement, print_table, save
from crossbyte.compute import kernels
from crossbyte.compute.executor import Workers

N, DIMS, ATOMS, RHO, REPEATS = 10_000, 64, 512, 0.3, 5


def problem(seed: int) -> tuple[Any, Any]:
    """Points of unit length with a few strong directions, and random atoms of unit length."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(N, 12)) @ rng.normal(size=(12, DIMS)) + 2 * rng.normal(size=(N, DIMS))
    points, atoms = (_unit(array) for array in (points, rng.normal(size=(ATOMS, DIMS))))
    return points, atoms


def _unit(rows: Any) -> Any:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def ours(X: Any, B: Any) -> Any:
    """Conversion to float32, products, Gram matrix and kernel."""
    X, B = X.astype(np.float32), B.astype(np.float32)
    penalty = np.full(len(X), RHO / 2, dtype=np.float32)
    start = sparse.csr_matrix((len(X), len(B)), dtype=np.float32)
    return kernels.lasso(B @ B.T, X @ B.T, penalty, start)


def theirs(X: Any, B: Any) -> Any:
    """scikit-learn on one core, in float64: in float32 its stopping rule is often out of reach."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return sparse_encode(X, B, algorithm="lasso_cd", alpha=RHO / 2, n_jobs=1)


def objective(X: Any, B: Any, S: Any) -> float:
    """|X - SB|² + ρ|S|₁ in float64."""
    dense = np.asarray(S.todense() if sparse.issparse(S) else S, dtype=np.float64)
    return float(((X - dense @ B) ** 2).sum() + RHO * np.abs(dense).sum())


def main() -> None:
    """Interleave both, print the median ratio and keep it."""
    X, B = problem(0)
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    found = {}
    with Workers(1):
        for _ in range(REPEATS):
            for name, function in (("ours", ours), ("theirs", theirs)):
                start = time.process_time()
                found[name] = function(X, B)
                seconds[name].append(time.process_time() - start)
    gap = objective(X, B, found["ours"]) / objective(X, B, found["theirs"]) - 1
    ratios = [b / a for a, b in zip(seconds["ours"], seconds["theirs"], strict=True)]
    entries = [
        Measurement(f"crossbyte ({kernels.implementation()})", "CPU seconds", seconds["ours"]),
        Measurement("scikit-learn lasso_cd", "CPU seconds", seconds["theirs"]),
        Measurement("ratio", "median", [float(np.median(ratios))], 10.0),
        Measurement("ours / theirs - 1", "objective (at most 1e-9)", [gap], 1e-9),
    ]
    print_table(f"Lasso, {N} x {DIMS}, {ATOMS} atoms, {found['ours'].nnz / N:.1f} non-zeros a row", entries)
    save("lasso", entries, {"n": N, "dims": DIMS, "atoms": ATOMS, "rho": RHO})


if __name__ == "__main__":
    main()
