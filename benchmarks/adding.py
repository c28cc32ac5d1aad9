"""Rows per second that an index codes and commits, beside FAISS's residual quantizer coding alone.

    python -m benchmarks.adding                # about a minute, on a quiet machine

Flickr8k, 32 bits, the paper's mapping, two threads. Crossbyte is timed through ``Index.add``: from features,
in batches of 10,000 new documents, to a committed file. FAISS is timed from points that are already in the
common space to codes in memory, with a beam as wide as crossbyte's, by both of its ways (``use_beam_LUT``).
Systems take turns within one run. Images go through the paper's lasso; their rate is only shown.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import FAISS_VERSION, set_threads
from benchmarks.datasets import Split, flickr8k
from benchmarks.tables import save
from benchmarks.timing import Goal, Turn, measurements, medians, print_goals, take_turns
from crossbyte import CMCQ, Index
from crossbyte.compute.kernels import implementation
from crossbyte.model.quantization.collaborative import BEAM_WIDTH

BITS, BATCH, THREADS, REPETITIONS = 32, 10_000, 2, 9
WANTED = 40_000  # rows per second, text side
TEXTS, IMAGES = "crossbyte, texts", "crossbyte, images by the lasso"
BASELINES = {"FAISS RQ": 0, "FAISS RQ, beam LUT": 1}


def draw_batch(features: Any) -> Any:
    """As many rows as a batch has, drawn from the features."""
    return features[np.random.default_rng(0).integers(features.shape[0], size=BATCH)]


def add_batch(index: Index, side: str, features: Any) -> Turn:
    """Adds the batch under ids that are new each time."""
    fresh = count()

    def turn() -> float:
        first = next(fresh) * BATCH
        ids = [f"{side}-{number}" for number in range(first, first + BATCH)]
        return _seconds(lambda: index.add(ids, **{side: features}))

    return turn


def code_with_faiss(points: NDArray[np.float32], use_lut: int) -> Turn:
    """Codes the points by FAISS; trained on them, too, which only helps it."""
    quantizer: Any = faiss.ResidualQuantizer(points.shape[1], BITS // 8, 8)
    quantizer.cp.min_points_per_centroid = 1
    quantizer.train(points)
    quantizer.max_beam_size, quantizer.use_beam_LUT = BEAM_WIDTH, use_lut
    quantizer.compute_codebook_tables()
    return lambda: _seconds(lambda: quantizer.compute_codes(points))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(train: Split, folder: Path) -> dict[str, list[float]]:
    """Seconds per batch of every system."""
    model = CMCQ(BITS, random_state=0, n_jobs=THREADS).fit(train.images, train.texts)
    texts, images = draw_batch(train.texts), draw_batch(train.images)
    points = model.transform_texts(texts)
    with Index.create(folder / "adding.cb", model, n_jobs=THREADS) as index:
        turns = {TEXTS: add_batch(index, "texts", texts), IMAGES: add_batch(index, "images", images)}
        turns |= {name: code_with_faiss(points, use_lut) for name, use_lut in BASELINES.items()}
        return take_turns(turns, REPETITIONS)


def make_goals(seconds: dict[str, list[float]]) -> list[Goal]:
    """Rows per second of everybody, and how crossbyte's compare."""
    found = medians(seconds)
    rates = [
        Goal(name, "rows per second", BATCH / one, WANTED if name == TEXTS else None)
        for name, one in found.items()
    ]
    return rates + [
        Goal(name, "its time / crossbyte's, texts", found[name] / found[TEXTS], 1.0) for name in BASELINES
    ]


def main() -> None:
    """Measure, print and keep."""
    set_threads(THREADS)
    with tempfile.TemporaryDirectory() as folder:
        seconds = measure(flickr8k().train, Path(folder))
    goals = make_goals(seconds)
    print_goals(f"Adding in batches of {BATCH:,}, {BITS} bits, {THREADS} threads", goals)
    settings: dict[str, Any] = {"bits": BITS, "batch": BATCH, "threads": THREADS, "beam": BEAM_WIDTH}
    settings |= {"faiss": FAISS_VERSION, "kernels": implementation()}
    save("adding", measurements(seconds, "ms per batch", goals), settings)


if __name__ == "__main__":
    main()
