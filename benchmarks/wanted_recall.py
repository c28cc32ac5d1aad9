"""Bits for a wanted recall: do those that a plan chooses reach it on pairs that nobody has seen?

    python -m benchmarks.wanted_recall         # 3 seeds; about 15 minutes

Flickr8k. A model of the training pairs is calibrated: its curve says, from held-out training pairs, which
recall@10 (mean of both directions) 2, 4, 8 and 16 bytes should have among as many items as there are test
pairs. Then a model of each length is fitted on all training pairs and measured on the test pairs. For every
wanted recall on a fine grid, the fewest bytes that the curve promises it for are chosen, as ``plan`` does;
the shortfall is what they then lack.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.datasets import flickr8k
from benchmarks.harness import chance_recall_10, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ

BITS = 32
FLICKR: dict[str, Any] = {
    "mapping": "contrastive",
    "n_components": 64,
    "correlation": 3.0,
    "cross_term": "stored",
}
SEEDS = range(3)
BYTES = (2, 4, 8, 16)
GRID = np.arange(0.30, 0.80, 0.005)
ALLOWED = 0.02


def promised_recall(seed: int) -> list[float]:
    """Recall that the curve expects among as many items as there are test pairs, for each length."""
    data = flickr8k()
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **FLICKR).fit(data.train.images, data.train.texts)
    model.calibrate(data.train.images, data.train.texts, curve=BYTES)
    return [point.recall_at(len(data.query)) for point in model.report_.curve]


def reached_recall(job: tuple[int, int]) -> float:
    """Recall of a model of all training pairs on the test pairs."""
    seed, n_bytes = job
    data = flickr8k()
    model = CMCQ(8 * n_bytes, random_state=seed, n_jobs=1, **FLICKR).fit(data.train.images, data.train.texts)
    return model.score(data.query.images, data.query.texts)


def shortfall(expected: Any, found: Any) -> float:
    """The most that is lacking at any wanted recall that the curve promises."""
    lacking = [0.0]
    for wanted in (each for each in GRID if each <= max(expected)):
        chosen = int(np.argmax(np.asarray(expected) >= wanted))
        lacking.append(float(wanted - found[chosen]))
    return max(lacking)


def main() -> None:
    """Measure, print and keep."""
    expected = side_by_side(promised_recall, SEEDS)
    jobs = [(seed, n_bytes) for seed in SEEDS for n_bytes in BYTES]
    found = np.reshape(side_by_side(reached_recall, jobs), (len(SEEDS), len(BYTES))).tolist()
    chance = chance_recall_10(len(flickr8k().query))
    entries = []
    for place, n_bytes in enumerate(BYTES):
        for score, values in (("promised", expected), ("reached", found)):
            name = f"recall@10, {score}"
            entries.append(
                Measurement(f"{n_bytes} bytes", name, [each[place] for each in values], None, chance)
            )
    lacking = [shortfall(*each) for each in zip(expected, found, strict=True)]
    entries.append(Measurement("any wanted recall", "largest shortfall", lacking, ALLOWED))
    print_table("Bytes chosen for a wanted recall, Flickr8k test pairs", entries)
    save("wanted_recall", entries, {"flickr8k": FLICKR, "seeds": len(SEEDS)})


if __name__ == "__main__":
    main()
