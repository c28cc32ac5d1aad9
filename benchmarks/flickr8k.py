"""Flickr8k, 4 bytes per item: unseen pairs coded from one side alone, and the training documents.

    python -m benchmarks.flickr8k              # 5 seeds; about 15 minutes

Unseen test pairs (rows without labels dropped): recall@10 of the true partner by our own table
distances, beside FAISS's residual and local-search quantizers on the very same common space with exact
distances to their decoded points. Training documents: MAP@50 over their learned codes, beside RQ of the
same points.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.baselines import FAISS_VERSION, faiss_lsq, faiss_rq, set_threads, uncompressed
from benchmarks.datasets import flickr8k, shares_label
from benchmarks.harness import (
    SEEDS,
    chance_map,
    chance_recall_10,
    map_at_50,
    map_of_model,
    recall_of_codes,
    side_by_side,
)
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.metrics.ranks import partner_ranks_ties_by_column

BITS = 32
SETTINGS: dict[str, dict[str, Any]] = {
    "CMCQ cca-32, γ=2, stored": {"mapping": "cca", "correlation": 2.0, "cross_term": "stored"},
    "CMCQ cca-32, γ=2, constant, μ=1": {"mapping": "cca", "correlation": 2.0, "cross_penalty": 1.0},
    "CMCQ auto": {"mapping": "auto"},
}
BASELINES = {"uncompressed": uncompressed, "FAISS RQ": faiss_rq, "FAISS LSQ": faiss_lsq}
SCORES = ("unseen recall@10 I→T", "unseen recall@10 T→I", "MAP@50 I→T", "MAP@50 T→I")


def score_ours(job: tuple[str, int]) -> tuple[float, ...]:
    """Measure the four scores of one of our settings."""
    name, seed = job
    data = flickr8k()
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **SETTINGS[name]).fit(data.train.images, data.train.texts)
    return *recall_of_codes(model, data.query.images, data.query.texts), *map_of_model(model, data)


def score_baseline(job: tuple[str, int]) -> tuple[float, ...]:
    """Measure the same scores of a baseline on our 32-dimensional canonical space."""
    name, seed = job
    set_threads(1)
    data = flickr8k()
    model = CMCQ(8, mapping="cca", n_components=32, max_iter=1, random_state=0, n_jobs=1)
    model.fit(data.train.images, data.train.texts)
    train = model.transform_images(data.train.images), model.transform_texts(data.train.texts)
    query = model.transform_images(data.query.images), model.transform_texts(data.query.texts)
    relevant = shares_label(data.query.labels, data.train.labels)
    scores = []
    for what in ("recall", "map"):
        for asking, answering in ((0, 1), (1, 0)):
            items = query[answering] if what == "recall" else train[answering]
            decoded = BASELINES[name](train[answering], items, BITS // 8, seed)
            distances = _squared(query[asking], decoded)
            scores.append(_recall(distances) if what == "recall" else map_at_50(distances, relevant))
    return tuple(scores)


def _recall(distances: Any) -> float:
    return float((partner_ranks_ties_by_column(distances) < 10).mean())


def _squared(queries: Any, items: Any) -> Any:
    """Squared distances up to the query's own square, which does not change its ranking."""
    return ((items**2).sum(axis=1) - 2 * queries @ items.T).astype(np.float32)


def main() -> None:
    """Measure everything, print and keep."""
    data = flickr8k()
    chances = (chance_recall_10(len(data.query)),) * 2 + (chance_map(data),) * 2
    results = {
        name: list(zip(*side_by_side(score_baseline, [(name, seed) for seed in SEEDS]), strict=True))
        for name in BASELINES
    }
    for name in SETTINGS:
        results[name] = list(zip(*side_by_side(score_ours, [(name, seed) for seed in SEEDS]), strict=True))
    means = {name: [float(np.mean(values)) for values in scores] for name, scores in results.items()}
    best = [max(means["FAISS RQ"][i], means["FAISS LSQ"][i]) for i in (0, 1)]
    targets = (best[0] - 0.01, best[1] - 0.01, means["FAISS RQ"][2], means["FAISS RQ"][3] + 0.03)
    entries = [
        Measurement(name, SCORES[i], scores[i], targets[i] if name in SETTINGS else None, chances[i])
        for name, scores in results.items()
        for i in range(4)
    ]
    print_table(f"Flickr8k, 4 bytes per item, FAISS {FAISS_VERSION}", entries)
    save("flickr8k", entries, {"bits": BITS, "settings": SETTINGS, "faiss": FAISS_VERSION})


if __name__ == "__main__":
    main()
