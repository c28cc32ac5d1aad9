"""What folding in pairs is worth with the paper's mapping: new documents whose two halves know each other.

    python -m benchmarks.fold_in               # 5 seeds; about 5 minutes

Wiki: half of the training documents are held back, then folded in; T→I MAP@50 over them beside T→I over
documents that were trained on.
"""

from __future__ import annotations

import numpy as np

from benchmarks.datasets import shares_label, wiki
from benchmarks.harness import SEEDS, chance_map, map_at_50, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ

BITS = 32


def score(seed: int) -> tuple[float, float]:
    """T→I over half the documents when trained on, and over the other half when folded in."""
    data = wiki()
    order = np.random.default_rng(seed).permutation(len(data.train))
    seen, unseen = data.train.take(order[: len(order) // 2]), data.train.take(order[len(order) // 2 :])
    model = CMCQ(BITS, random_state=seed, n_jobs=1).fit(seen.images, seen.texts)
    folded, _ = model.encode_pairs(unseen.images, unseen.texts)
    queries = data.query.texts
    return (
        map_at_50(model.training_distances(texts=queries), shares_label(data.query.labels, seen.labels)),
        map_at_50(
            model.distances(texts=queries, image_codes=folded), shares_label(data.query.labels, unseen.labels)
        ),
    )


def main() -> None:
    """Measure, print and keep."""
    trained, folded = zip(*side_by_side(score, SEEDS), strict=True)
    chance = chance_map(wiki())
    entries = [
        Measurement("Wiki, trained on", "MAP@50 T→I", trained, None, chance),
        Measurement("Wiki, folded in", "MAP@50 T→I", folded, float(np.mean(trained)) - 0.02, chance),
    ]
    print_table("Folding in pairs, 4 bytes per item", entries)
    save("fold_in", entries, {"bits": BITS})


if __name__ == "__main__":
    main()
