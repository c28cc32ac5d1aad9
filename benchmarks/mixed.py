"""An index that mixes what is known of its documents: does any kind crowd out another?

    python -m benchmarks answers --part mixed

Flickr8k, 4 bytes per item, 1,000 documents: those of the test known by image alone, by text alone (captions 0
and 1), as a pair (image and caption 0), by image and both captions, and training documents with their learned
codes, a fifth each. Caption 2, which is in no index, asks for all of them. Images ask for texts in an index
of the last four kinds, where only documents known by text alone are looked for: others would find themselves.
As often as there are kinds, so that every document has its turn in each.

Recall@10 of each kind beside its pure index, as many documents that are all of that kind; with the model's
own constants alone, and with what ``calibrate`` corrects.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Dataset, bag_of_words, flickr8k
from benchmarks.harness import chance_recall_10, side_by_side
from benchmarks.tables import Measurement
from crossbyte import CMCQ, Index

BITS = 32
ALLOWED_LOSS = 0.02
KINDS = ("image", "text", "pair", "several captions", "fitted")
MIXED = {"caption 2": KINDS, "image": KINDS[1:]}  # what is in the index, by who asks
ASKED = {"caption 2": KINDS, "image": ("text",)}  # and what is looked for
CORRECTIONS = ("model's constants", "corrected")


def training_index(path: Path, model: CMCQ, ids: Any, rows: NDArray[np.intp]) -> Index:
    """An index of some training documents with their learned codes: of all of them, and the rest deleted."""
    own = np.full(len(model.image_codes_), -1)
    own[rows] = ids
    left = own < 0
    own[left] = -1 - np.arange(left.sum())
    index = Index.from_training(path, model, own.tolist(), n_jobs=1)
    index.delete(own[left].tolist())
    return index


class Shelf:
    """Test documents by what is known of them, and as many training documents; number i is one of either."""

    def __init__(self, data: Dataset, seed: int) -> None:
        self.n = len(data.query)
        self._test = data.query
        self._first = bag_of_words(data.query.captions, data.vocabulary, [0], data.token_pattern)
        self._fitted = np.random.default_rng(seed).permutation(len(data.train))[: self.n]
        self._captions = data.query.other_texts[0], data.train.other_texts[0][self._fitted]

    def find(self, model: CMCQ, rows: Mapping[str, NDArray[Any]], asked: str) -> dict[str, NDArray[np.bool_]]:
        """Whether documents are found among the first ten of an index of row numbers by kind; by kind."""
        with TemporaryDirectory() as folder, self._index(Path(folder) / "mixed.cb", model, rows) as index:
            return {
                kind: self._ask(index, asked, kind, own) for kind, own in rows.items() if kind in ASKED[asked]
            }

    def _index(self, path: Path, model: CMCQ, rows: Mapping[str, NDArray[Any]]) -> Index:
        """An index of them; row numbers are their ids, and no two are equal."""
        if "fitted" in rows:
            index = training_index(path, model, rows["fitted"], self._fitted[rows["fitted"]])
        else:
            index = Index.create(path, model, n_jobs=1)
        for kind, own in rows.items():
            if kind != "fitted":
                index.add(own.tolist(), **self._features(kind, own))
        return index

    def _features(self, kind: str, rows: NDArray[Any]) -> dict[str, Any]:
        images, texts = self._test.images[rows], self._test.texts[rows]
        known = {"image": {"images": images}, "text": {"texts": texts}}
        pair = {"images": images, "texts": self._first[rows] if kind == "pair" else texts}
        return known.get(kind, pair)

    def _ask(self, index: Index, asked: str, kind: str, rows: NDArray[Any]) -> NDArray[np.bool_]:
        if asked == "image":
            queries: dict[str, Any] = {"images": self._test.images[rows], "target": "text"}
        else:
            queries = {"texts": self._captions[kind == "fitted"][rows], "target": "document"}
        answers = index.search(**queries, k=10)
        return np.array([row in hits.ids for row, hits in zip(rows.tolist(), answers, strict=True)])


Found = dict[tuple[str, str, str], float]


def score_seed(job: tuple[int, Mapping[str, Any]]) -> Found:
    """Recall by (question, kind, "pure" or how the index is mixed)."""
    seed, parameters = job
    data = flickr8k(drop_unlabelled=False)
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **parameters).fit(data.train.images, data.train.texts)
    plain = CMCQ.from_bytes(model.to_bytes()).set_params(n_jobs=1)
    model.calibrate(data.train.images, data.train.texts, curve=())
    shelf = Shelf(data, seed)
    everything = np.arange(shelf.n)
    order = np.random.default_rng(seed).permutation(shelf.n)
    found: Found = {}
    for kind in KINDS:
        for asked in _questions(kind):
            found[asked, kind, "pure"] = float(shelf.find(model, {kind: everything}, asked)[kind].mean())
    for name, judge in zip(CORRECTIONS, (plain, model), strict=True):
        for asked, kinds in MIXED.items():
            turns = [
                {kind: np.flatnonzero((order + shift) % len(kinds) == k) for k, kind in enumerate(kinds)}
                for shift in range(len(kinds))
            ]
            hits = [shelf.find(judge, rows, asked) for rows in turns]
            for kind in ASKED[asked]:
                found[asked, kind, name] = float(np.concatenate([each[kind] for each in hits]).mean())
    return found


def _questions(kind: str) -> list[str]:
    return [asked for asked, kinds in ASKED.items() if kind in kinds]


def measure(options: Namespace) -> tuple[list[Measurement], dict[str, Any]]:
    """All kinds, over seeds."""
    seeds = side_by_side(score_seed, [(seed, options.parameters) for seed in range(options.seeds)])
    n_items = len(flickr8k(drop_unlabelled=False).query)
    chance, entries = chance_recall_10(n_items), []
    for kind in KINDS:
        for asked in _questions(kind):
            pure = float(np.mean([found[asked, kind, "pure"] for found in seeds]))
            for name in ("pure", *CORRECTIONS):
                values = [found[asked, kind, name] for found in seeds]
                target = None if name == "pure" else pure - ALLOWED_LOSS
                where = "pure index" if name == "pure" else f"mixed, {name}"
                score = f"recall@10 by {asked}, {n_items} documents"
                entries.append(Measurement(f"{kind}: {where}", score, values, target, chance))
    return entries, {"bits": BITS, "kinds": KINDS, "allowed_loss": ALLOWED_LOSS}
