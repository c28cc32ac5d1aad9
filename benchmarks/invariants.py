"""What must hold in every run: descent, gradients, optimality conditions, identical bytes.

    python -m benchmarks.invariants            # about two minutes

On Wiki: the largest relative rise of the objective over all blocks of fits with all variants and five
seeds; the gradient of the codebooks against central differences; the optimality gaps of U, B, R and S;
and the bytes of models fitted with one and two threads from C-ordered, Fortran-ordered and memory-mapped
features.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from benchmarks.datasets import wiki
from benchmarks.harness import SEEDS, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.compute import kernels
from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import CrossPenalty
from crossbyte.data.preparation import Preparation
from crossbyte.model.space.sparse import bounded_least_squares, optimality_gap

VARIANTS: tuple[dict[str, Any], ...] = (
    {},
    {"correlation": 0.0},
    {"alignment": 0.0},
    {"shared_codebooks": True},
    {"mapping": "cca", "correlation": 10.0},
)


def largest_rise(job: tuple[dict[str, Any], int]) -> float:
    """Largest relative rise of the objective from one block to the next; negative if there is none."""
    variant, seed = job
    train = wiki().train
    model = CMCQ(16, random_state=seed, n_jobs=1, **variant).fit(train.images, train.texts)
    totals = np.array([record.total for record in model.objective_history_])
    return float((np.diff(totals) / totals[:-1]).max())


def gradient_error() -> float:
    """Largest difference between the gradient of C and central differences, relative to its size."""
    rng = np.random.default_rng(0)
    words, targets = rng.normal(size=(2, 256, 6)), rng.normal(size=(300, 6)).astype(np.float32)
    codes, penalty = rng.integers(0, 256, (300, 2), dtype=np.uint8), CrossPenalty(0.5, 0.3)
    _, gradient = kernels.codebook_value_gradient(words, codes, targets, penalty)
    worst, step = 0.0, 1e-5
    for at in zip(*(rng.integers(0, size, 200) for size in words.shape), strict=True):
        moved = [words.copy(), words.copy()]
        moved[0][at] += step
        moved[1][at] -= step
        high, low = (kernels.codebook_value_gradient(one, codes, targets, penalty)[0] for one in moved)
        worst = max(worst, abs((high - low) / (2 * step) - gradient[at]))
    return worst / float(np.abs(gradient).max())


def optimality_gaps() -> tuple[float, float]:
    """Gap of a bounded least squares problem of the size of B, and of the lasso, on Wiki images."""
    images, rng = wiki().train.images, np.random.default_rng(0)
    with Workers() as workers:
        X = Preparation.fit(images, 64, "images", workers).apply(images, workers).dense()
    B = rng.normal(size=(512, 64))
    B /= np.linalg.norm(B, axis=1, keepdims=True)
    gram, products = (B @ B.T).astype(np.float32), (X @ B.T).astype(np.float32)
    z = np.full(len(X), 0.15, dtype=np.float32)
    S = kernels.lasso(gram, products, z, sparse.csr_matrix(products.shape, dtype=np.float32)).toarray()
    left = products.astype(np.float64) - S.astype(np.float64) @ gram
    gap = (
        np.where(S != 0, np.abs(left - 0.15 * np.sign(S)), np.maximum(np.abs(left) - 0.15, 0.0)).max() / 0.15
    )
    G, H = S.astype(np.float64).T @ S, S.astype(np.float64).T @ X
    return optimality_gap(G, H, bounded_least_squares(G, H, B)), float(gap)


def different_bytes() -> int:
    """How many of the ways to pass the same features give other bytes than the first."""
    train = wiki().train
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "images.npy"
        np.save(path, train.images)
        forms = (train.images, np.asfortranarray(train.images), np.load(path, mmap_mode="r"))
        models = [
            CMCQ(16, random_state=0, max_iter=3, n_jobs=n_jobs).fit(form, train.texts).to_bytes()
            for form in forms
            for n_jobs in (1, 2)
        ]
    return sum(model != models[0] for model in models)


def main() -> None:
    """Measure, print and keep."""
    rises = side_by_side(largest_rise, [(variant, seed) for variant in VARIANTS for seed in SEEDS])
    bounded, lasso = optimality_gaps()
    entries = [
        Measurement("objective, 25 fits", "largest relative rise", [max(rises)], 1e-8),
        Measurement("gradient of C", "largest relative error", [gradient_error()], 1e-6),
        Measurement("U, B, R", "optimality gap", [bounded], 1e-6),
        Measurement("S", "optimality gap, relative to ρ/2", [lasso], 1e-3),
        Measurement("determinism, 6 ways", "models with other bytes", [float(different_bytes())], 0.0),
    ]
    print_table("Invariants", entries)
    for entry in entries:
        print(f"{entry.system}: {entry.score} {entry.mean:.3g}")
    save("invariants", entries, {"variants": [str(variant) for variant in VARIANTS]})


if __name__ == "__main__":
    main()
