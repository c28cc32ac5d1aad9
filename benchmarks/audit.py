"""Wrong captions: 2 % of Flickr8k's are swapped at random; how many of them does the audit list first?

    python -m benchmarks.audit                 # about two minutes

Of the first 2 % listed, the share that was swapped (precision), and how many times that is what a list in
random order would have (lift). Beside it the plain distance of the two halves in the same spaces, which shows
what the comparison with strangers is worth. "Estimate" is ``n_suspects`` over the number that was swapped; on
the pairs as they are it is the share of all pairs.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from benchmarks.datasets import flickr8k
from benchmarks.harness import SEEDS
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.model.pair_audit import Audit, audit_pairs

SHARE, PRECISION, LIFT, SECONDS = 0.02, 0.5, 25.0, 60.0


def read_pairs(whole: bool) -> tuple[NDArray[np.float32], Any]:
    """The training pairs, or these and the queries."""
    data = flickr8k(drop_unlabelled=False)
    if not whole:
        return data.train.images, data.train.texts
    images = np.concatenate([data.train.images, data.query.images])
    return images, sp.csr_array(sp.vstack([data.train.texts, data.query.texts]))


def swap_captions(texts: Any, seed: int) -> tuple[Any, NDArray[np.bool_]]:
    """The texts with some of them in each other's places, none in its own; and which rows these are."""
    n = texts.shape[0]
    rows = np.random.default_rng(seed).choice(n, round(SHARE * n), replace=False)
    places = np.arange(n)
    places[rows] = np.roll(rows, 1)
    return texts[places], places != np.arange(n)


def precision(scores: NDArray[np.float64], wrong: NDArray[np.bool_]) -> float:
    """Share of wrong pairs among as many of the highest scores."""
    first = np.argsort(-scores, kind="stable")[: int(wrong.sum())]
    return float(wrong[first].mean())


def measure_seed(images: Any, texts: Any, seed: int) -> dict[str, float]:
    """All figures of one way to swap."""
    spoiled, wrong = swap_captions(texts, seed)
    start = time.perf_counter()
    audit = audit_pairs(CMCQ(32, random_state=seed), images, spoiled)
    seconds = time.perf_counter() - start
    found = precision(audit.surprise, wrong)
    return {
        "precision": found,
        "lift": found / float(wrong.mean()),
        "precision, distance alone": precision(audit.distance, wrong),
        "estimate": audit.n_suspects / int(wrong.sum()),
        "seconds": seconds,
    }


def measure(name: str, images: Any, texts: Any) -> list[Measurement]:
    """The figures of all seeds, with what was wanted and what chance gives."""
    runs = [measure_seed(images, texts, seed) for seed in SEEDS]
    targets = {"precision": PRECISION, "lift": LIFT, "seconds": SECONDS}
    chances = {"precision": SHARE, "lift": 1.0, "precision, distance alone": SHARE}
    return [
        Measurement(name, score, [run[score] for run in runs], targets.get(score), chances.get(score))
        for score in runs[0]
    ]


def measure_as_published(images: Any, texts: Any) -> list[Measurement]:
    """Suspects and repeats of the pairs as they were published."""
    audit: Audit = audit_pairs(CMCQ(32, random_state=0), images, texts)
    return [
        Measurement("7,000 pairs as they are", "estimate", [audit.n_suspects / len(audit)]),
        Measurement("7,000 pairs as they are", "duplicates", [len(audit.duplicates)]),
    ]


def main() -> None:
    """Measure, print and keep."""
    train = read_pairs(whole=False)
    found = (
        measure("7,000 pairs", *train)
        + measure("8,000 pairs", *read_pairs(whole=True))
        + measure_as_published(*train)
    )
    print_table("Audit: 2 % of the captions swapped, the first 2 % listed", found)
    save("audit", found, {"data": "flickr8k", "share": SHARE, "folds": 5, "seeds": len(SEEDS)})


if __name__ == "__main__":
    main()
