"""Are the probabilities of a search true, and does it know when nothing matches?

    python -m benchmarks answers --part probability

Flickr8k, 4 bytes per item. Half of the items are in the index, all of them are asked for: every second query
has lost its partner. Items are those of the test, known from one side alone (both directions), or documents
with one code, known by image and captions 0 and 1 and asked for by caption 2: added after the fit (those of
the test), or fitted (as many of the training documents, with their learned codes).

Expected calibration error over the first ten hits in 15 bins of equal number, with the prior that the search
assumes by itself (every query has a partner: 1/N) and with the true one (0.5/N). Few of ten hits are
partners, so whoever says 0 of everything has a small error, too (printed as chance); therefore also the error
of the first hit alone, and the sum of all probabilities over the number of partners found, both with the true
prior. Bins of 67 first hits are noisy: beside the error of the first hit stands what perfectly true
probabilities would have (in the column of chance), which is more than is wanted; so beside it also the error
without noise: the root of the mean squared gap of the bins, less what chance adds to it (0 where that is
all; Kumar, Liang & Ma 2019). AUROC of telling queries with a partner from those
without: by the sum of the ten probabilities, as no_match does, and by the smallest distance.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

from benchmarks.datasets import Dataset, flickr8k
from benchmarks.harness import document_kind, side_by_side
from benchmarks.mixed import training_index
from benchmarks.tables import Measurement
from crossbyte import CMCQ, Hits, Index

BITS = 32
DEPTH = 10
WANTED_ERROR, WANTED_AUROC = 0.02, 0.62
KINDS = ("image → text", "text → image", "caption 2 → documents added", "caption 2 → documents fitted")


class Errors(NamedTuple):
    """What is measured of one kind of items."""

    assumed: float
    true: float
    share_of_hits: float
    first: float
    first_if_true: float
    first_without_noise: float
    total: float
    by_probability: float
    by_distance: float


def calibration_error(probabilities: NDArray[Any], truth: NDArray[np.bool_], n_bins: int = 15) -> float:
    """Mean gap between probability and truth, in bins of equal number."""
    bins = np.array_split(np.argsort(probabilities, kind="stable"), n_bins)
    gaps = [abs(probabilities[b].mean() - truth[b].mean()) * len(b) for b in bins]
    return float(sum(gaps) / len(probabilities))


def debiased_error(probabilities: NDArray[Any], truth: NDArray[np.bool_], n_bins: int = 15) -> float:
    """Root of the mean squared gap between probability and truth, less the variance of a bin's truth."""
    bins = np.array_split(np.argsort(probabilities, kind="stable"), n_bins)
    squares = [
        ((probabilities[b].mean() - truth[b].mean()) ** 2 - truth[b].var() / (len(b) - 1)) * len(b)
        for b in bins
    ]
    return float(np.sqrt(max(sum(squares) / len(probabilities), 0.0)))


def score_seed(job: tuple[int, Mapping[str, Any]]) -> list[Errors]:
    """Measure every kind with one seed."""
    seed, parameters = job
    data = flickr8k(drop_unlabelled=False)
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **parameters).fit(data.train.images, data.train.texts)
    model.calibrate(data.train.images, data.train.texts, curve=())
    rng = np.random.default_rng(seed)
    kept = rng.permutation(len(data.query)) < len(data.query) // 2
    fitted = rng.permutation(len(data.train))[: len(kept)]
    return [_errors(model, data, kind, kept, fitted) for kind in KINDS]


def _errors(
    model: CMCQ, data: Dataset, kind: str, kept: NDArray[np.bool_], fitted: NDArray[np.intp]
) -> Errors:
    """Put the kept items of one kind into an index and ask for all."""
    ids, test = np.flatnonzero(kept), data.query.take(kept)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "half.cb"
        if kind == "caption 2 → documents fitted":
            with training_index(path, model, ids, fitted[kept]) as index:
                captions = data.train.other_texts[0][fitted]
                return _search_errors(index, {"texts": captions, "target": document_kind(model)}, kept)
        with Index.create(path, model) as index:
            if kind == "image → text":
                index.add(ids.tolist(), texts=test.texts)
                asked = {"images": data.query.images, "target": "text"}
            elif kind == "text → image":
                index.add(ids.tolist(), images=test.images)
                asked = {"texts": data.query.texts, "target": "image"}
            else:
                index.add(ids.tolist(), images=test.images, texts=test.texts)
                asked = {"texts": data.query.other_texts[0], "target": document_kind(model)}
            return _search_errors(index, asked, kept)


def _search_errors(index: Index, asked: dict[str, Any], kept: NDArray[np.bool_]) -> Errors:
    default, halved = (index.search(**asked, k=DEPTH, prior=prior) for prior in (None, 0.5 / len(index)))
    truth = np.concatenate([np.array(hits.ids) == row for row, hits in enumerate(default)])
    probabilities = [np.concatenate([hits.probabilities for hits in each]) for each in (default, halved)]
    return Errors(
        *(calibration_error(each, truth) for each in probabilities),
        float(truth.mean()),
        calibration_error(*_first_hits(halved)),
        _expected_error(_first_hits(halved)[0]),
        debiased_error(*_first_hits(halved)),
        float(probabilities[1].sum() / truth.sum()),
        float(roc_auc_score(kept, [hits.probabilities.sum() for hits in default])),
        float(roc_auc_score(kept, [-hits.distances[0] for hits in default])),
    )


def _expected_error(probabilities: NDArray[Any], n_draws: int = 100) -> float:
    """Calibration error that the same probabilities would have if they were true."""
    rng = np.random.default_rng(0)
    draws = (rng.random(len(probabilities)) < probabilities for _ in range(n_draws))
    return float(np.mean([calibration_error(probabilities, truth) for truth in draws]))


def _first_hits(answers: list[Hits]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    probabilities = np.array([hits.probabilities[0] for hits in answers])
    return probabilities, np.array([hits.ids[0] == row for row, hits in enumerate(answers)])


def measure(options: Namespace) -> tuple[list[Measurement], dict[str, Any]]:
    """All kinds, over seeds."""
    seeds = side_by_side(score_seed, [(seed, options.parameters) for seed in range(options.seeds)])
    entries = []
    for kind, runs in zip(KINDS, zip(*seeds, strict=True), strict=True):
        found = Errors(*zip(*runs, strict=True))
        # Whoever says 0 of everything is wrong by the share of true hits; that is chance here.
        chance = float(np.mean(found.share_of_hits))
        entries += [
            Measurement(kind, "calibration error, assumed prior 1/N", found.assumed, None, chance),
            Measurement(kind, "calibration error, true prior 0.5/N", found.true, None, chance),
            Measurement(
                kind,
                "calibration error of the first hit, true prior",
                found.first,
                WANTED_ERROR,
                float(np.mean(found.first_if_true)),
            ),
            Measurement(
                kind,
                "calibration error of the first hit without noise, true prior",
                found.first_without_noise,
                WANTED_ERROR,
            ),
            Measurement(kind, "sum of probabilities / partners found, true prior", found.total, 1.0),
            Measurement(
                kind, "AUROC of no_match, sum of probabilities", found.by_probability, WANTED_AUROC, 0.5
            ),
            Measurement(kind, "AUROC of no_match, smallest distance", found.by_distance, None, 0.5),
        ]
    return entries, {"bits": BITS, "depth": DEPTH}
