"""Plain composite quantization (γ = 0) on PCA-64 Wiki images at 32 bits, beside the authors' C++ code.

    python -m benchmarks.composite             # 5 seeds; about half a minute

The authors' program was run elsewhere on the same points: relative error 0.146 with a cross-term
deviation of 0.003 (very strong penalty) and 0.147 with 0.107 (weak penalty), 84 to 167 seconds.
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.datasets import wiki
from benchmarks.harness import SEEDS
from benchmarks.tables import Measurement, print_table, save
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import Preparation
from crossbyte.model.quantization.codebooks import cross_terms
from crossbyte.model.quantization.collaborative import QuantizationWeights, initial_side, refine

CASES = {"strong penalty, μ=100": (100.0, 0.146, 0.003), "weak penalty, μ=0.3": (0.3, 0.147, 0.107)}
SECONDS = 84.0


def measure(mu: float, seed: int) -> tuple[float, float, float]:
    """Relative error, deviation of the cross term, and seconds."""
    images = wiki().train.images
    with Workers() as workers:
        points = Preparation.fit(images, 64, "images", workers).apply(images, workers).dense()
        start = time.perf_counter()
        pull = QuantizationWeights(0.0, mu)
        side = refine(
            initial_side(points, 4, pull, np.random.default_rng(seed), workers), points, pull, workers, 5
        )
        seconds = time.perf_counter() - start
        error = float(((points - side.decoded) ** 2).sum() / (points**2).sum())
        return error, float(cross_terms(side.codewords, side.codes, workers).std()), seconds


def main() -> None:
    """Measure, print and keep."""
    entries = []
    for name, (mu, error, deviation) in CASES.items():
        columns = zip(*(measure(mu, seed) for seed in SEEDS), strict=True)
        scores = ("relative error", "std of the cross term", "seconds")
        for score, values, target in zip(scores, columns, (error, deviation, SECONDS / 10), strict=True):
            entries.append(Measurement(name, score, values, target))
    print_table("Composite quantization of Wiki images, 64-d, 32 bits (target: the authors' code)", entries)
    save("composite", entries, {"bits": 32})


if __name__ == "__main__":
    main()
