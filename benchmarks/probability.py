"""Are the probabilities of a search true, and does it know when nothing matches?

    python -m benchmarks.probability           # 5 seeds; about 3 minutes

Flickr8k, test pairs, both directions, 4 bytes per item, every item coded from its own side alone. Half of the
test items are in the index, all of them are asked for: every second query has lost its partner. Expected
calibration error over the first ten hits in 15 bins of equal number, with the prior that the search assumes
by itself (every query has a partner: 1/N) and with the true one (0.5/N). Few of ten hits are partners, so
whoever says 0 of everything has a small error, too (printed as chance); therefore also the error of the first
hit alone, and the sum of all probabilities over the number of partners found, both with the true prior. AUROC
of telling queries with a partner from those without: by the best probability, and by the smallest distance.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.datasets import flickr8k
from benchmarks.harness import SEEDS, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ, Hits, Index

BITS = 32
FLICKR: dict[str, Any] = {
    "mapping": "contrastive",
    "n_components": 64,
    "correlation": 3.0,
    "cross_term": "stored",
}
DIRECTIONS = (("image", "text"), ("text", "image"))
DEPTH = 10
ALLOWED_ERROR = 0.05


def calibration_error(probabilities: NDArray[Any], truth: NDArray[np.bool_], n_bins: int = 15) -> float:
    """Mean gap between probability and truth, in bins of equal number."""
    bins = np.array_split(np.argsort(probabilities, kind="stable"), n_bins)
    gaps = [abs(probabilities[b].mean() - truth[b].mean()) * len(b) for b in bins]
    return float(sum(gaps) / len(probabilities))


def scores(seed: int) -> list[float]:
    """For each direction: errors with both priors, share of true hits, first hit, total, and both AUROCs."""
    data = flickr8k()
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **FLICKR).fit(data.train.images, data.train.texts)
    model.calibrate(data.train.images, data.train.texts, curve=())
    kept = np.random.default_rng(seed).permutation(len(data.query)) < len(data.query) // 2
    sides = {"image": data.query.images, "text": data.query.texts}
    found = []
    for query, target in DIRECTIONS:
        with TemporaryDirectory() as folder, Index.create(Path(folder) / "half.cb", model) as index:
            index.add(np.flatnonzero(kept).tolist(), **{f"{target}s": sides[target][kept]})
            found += _direction(index, f"{query}s", sides[query], target, kept)
    return found


def _direction(index: Index, kind: str, queries: Any, target: str, kept: NDArray[np.bool_]) -> list[float]:
    default, halved = (
        index.search(**{kind: queries}, target=target, k=DEPTH, prior=prior)
        for prior in (None, 0.5 / len(index))
    )
    truth = np.concatenate([np.array(hits.ids) == row for row, hits in enumerate(default)])
    probabilities = [np.concatenate([hits.probabilities for hits in each]) for each in (default, halved)]
    best = [hits.probabilities[0] for hits in default]
    nearest = [-hits.distances[0] for hits in default]
    return [
        *(calibration_error(each, truth) for each in probabilities),
        float(truth.mean()),
        calibration_error(*_first_hits(halved)),
        float(probabilities[1].sum() / truth.sum()),
        float(roc_auc_score(kept, best)),
        float(roc_auc_score(kept, nearest)),
    ]


def _first_hits(answers: list[Hits]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    probabilities = np.array([hits.probabilities[0] for hits in answers])
    return probabilities, np.array([hits.ids[0] == row for row, hits in enumerate(answers)])


def main() -> None:
    """Measure, print and keep."""
    columns = list(zip(*side_by_side(scores, SEEDS), strict=True))
    entries = []
    for query, target in DIRECTIONS:
        assumed, true, base, first, total, best, nearest = columns[:7]
        del columns[:7]
        direction = f"{query} → {target}"
        # Whoever says 0 of everything is wrong by the share of true hits; that is chance here.
        chance = float(np.mean(base))
        entries += [
            Measurement(direction, "calibration error, assumed prior 1/N", assumed, ALLOWED_ERROR, chance),
            Measurement(direction, "calibration error, true prior 0.5/N", true, ALLOWED_ERROR, chance),
            Measurement(direction, "calibration error of the first hit, true prior", first),
            Measurement(direction, "sum of probabilities / partners found, true prior", total, 1.0),
            Measurement(direction, "AUROC of no_match, best probability", best, None, 0.5),
            Measurement(direction, "AUROC of no_match, smallest distance", nearest, None, 0.5),
        ]
    print_table("Probabilities of the first ten hits, every second query without a partner", entries)
    save("probability", entries, {"bits": BITS, "flickr8k": FLICKR, "depth": DEPTH})


if __name__ == "__main__":
    main()
