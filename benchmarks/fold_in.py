"""What folding in pairs is worth: new documents whose two halves know each other.

    python -m benchmarks.fold_in               # 5 seeds; about 10 minutes

Wiki: half of the training documents are held back, then folded in; T→I MAP@50 over them beside T→I over
documents that were trained on. Flickr8k: test documents are folded in with captions 0 and 1 and queried
by caption 2, which is in no index: recall@10 of the right document through its image code, beside image
codes made from the image alone.
"""

from __future__ import annotations

import numpy as np

from benchmarks.datasets import bag_of_words, flickr8k, shares_label, wiki
from benchmarks.harness import SEEDS, chance_map, chance_recall_10, map_at_50, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.metrics.ranks import partner_ranks_ties_by_column

BITS = 32
FLICKR = {"mapping": "cca", "n_components": 64, "correlation": 10.0, "cross_term": "stored"}


def wiki_scores(seed: int) -> tuple[float, float]:
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


def flickr_scores(seed: int) -> tuple[float, float]:
    """Recall@10 by caption 2 through image codes of the image alone, and of the folded-in pair."""
    data = flickr8k()
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **FLICKR).fit(data.train.images, data.train.texts)
    caption = bag_of_words(data.query.captions, data.vocabulary, [2], data.token_pattern)
    alone = model.encode_images(data.query.images)
    folded, _ = model.encode_pairs(data.query.images, data.query.texts)
    first, second = (
        float((partner_ranks_ties_by_column(model.distances(texts=caption, image_codes=codes)) < 10).mean())
        for codes in (alone, folded)
    )
    return first, second


def main() -> None:
    """Measure both, print and keep."""
    trained, folded = zip(*side_by_side(wiki_scores, SEEDS), strict=True)
    alone, pairs = zip(*side_by_side(flickr_scores, SEEDS), strict=True)
    chance, chance_10 = chance_map(wiki()), chance_recall_10(len(flickr8k().query))
    entries = [
        Measurement("Wiki, trained on", "MAP@50 T→I", trained, None, chance),
        Measurement("Wiki, folded in", "MAP@50 T→I", folded, float(np.mean(trained)) - 0.02, chance),
        Measurement("Flickr8k, image alone", "recall@10 by caption 2", alone, None, chance_10),
        Measurement(
            "Flickr8k, folded in", "recall@10 by caption 2", pairs, float(np.mean(alone)) + 0.10, chance_10
        ),
    ]
    print_table("Folding in pairs, 4 bytes per item", entries)
    save("fold_in", entries, {"bits": BITS, "flickr8k": FLICKR})


if __name__ == "__main__":
    main()
