"""A whole fit at the size of NUS-WIDE beside one pass of scikit-learn's sparse coding, and its growth with
N.

    python -m benchmarks.scale            # 10k, 30k, 100k, 182,577 pairs; about 5 minutes
    python -m benchmarks.scale 10000      # one size

The peer codes the very S problem of the fitted model (the stacked dictionary of B and R on its stacked
targets) once, with all cores, in the same run. Each fit runs in a process of its own, which gives its
peak memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time
import warnings
from typing import Any

import numpy as np
from sklearn.decomposition import sparse_encode
from sklearn.exceptions import ConvergenceWarning

from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.compute.executor import Workers
from crossbyte.data.synthetic import nus_wide_like

SIZES = (10_000, 30_000, 100_000, 182_577)
ROUNDS = 10
N_JOBS = 2


def fit_once(n_pairs: int) -> dict[str, float]:
    """Fit in this process: seconds, peak memory in GB, and the baseline's seconds on the same S problem."""
    pairs = nus_wide_like(n_pairs)
    start = time.perf_counter()
    model = CMCQ(n_bits=32, max_iter=ROUNDS, tol=0.0, random_state=0, n_jobs=N_JOBS).fit(
        pairs.images, pairs.texts
    )
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    rounds = model.objective_history_[-1].round
    return {"seconds": seconds, "gigabytes": peak, "rounds": rounds, "peer": baseline_seconds(model, pairs)}


def baseline_seconds(model: CMCQ, pairs: Any) -> float:
    """One pass of scikit-learn over the S problem that the fitted model has."""
    lam = model.alignment
    learned = model.fitted_
    with Workers(N_JOBS) as workers:
        X = learned.image_preparation.apply(pairs.images, workers).dense()
        points = learned.text_quantizer.decode(learned.text_codes, workers)
    atoms = np.hstack([model.image_dictionary_, np.sqrt(lam + 1) * model.image_map_])
    targets = np.hstack([X, np.sqrt(lam + 1) * points]).astype(np.float64)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        sparse_encode(targets, atoms, algorithm="lasso_cd", alpha=model.sparsity / 2, n_jobs=N_JOBS)
    return time.perf_counter() - start


def main() -> None:
    """Measure every size in a fresh process, print and keep the result."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sizes", nargs="*", type=int, default=SIZES)
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(fit_once(arguments.child)))
        return
    entries = []
    for size in arguments.sizes:
        command = [sys.executable, "-W", "ignore", "-m", "benchmarks.scale", "--child", str(size)]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        name = f"{size:,} pairs"
        entries += [
            Measurement(name, "fit, seconds", [found["seconds"]], target=found["peer"]),
            Measurement(name, "one sparse_encode pass, seconds", [found["peer"]]),
            Measurement(name, "fit / peer", [found["seconds"] / found["peer"]], target=1.0),
            Measurement(
                name, "microseconds per pair and round", [1e6 * found["seconds"] / size / found["rounds"]]
            ),
            Measurement(name, "peak memory, GB", [found["gigabytes"]], target=4.0),
        ]
        print_table(f"fit, {name}, {ROUNDS} rounds, {N_JOBS} threads", entries[-5:])
    save("scale", entries, {"bits": 32, "rounds": ROUNDS, "n_jobs": N_JOBS})


if __name__ == "__main__":
    main()
