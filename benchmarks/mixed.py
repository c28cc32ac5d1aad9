"""An index that mixes codings: half of its documents folded in as pairs, the other half from one side alone.

    python -m benchmarks.mixed                 # 5 seeds; about 4 minutes

Flickr8k, test documents; pairs are the image with captions 0 and 1. Recall@10 of each half beside its
pure index (as many documents, all coded as that half), with the coding offsets of ``calibrate`` and
without. Everybody is asked for by caption 2, which is in no index. Images can only ask for the one-sided
half: an image that was folded into a text code would find itself. Training documents, with their learned
codes, take the place of the pairs in two more indexes. All of it twice: the test documents by a model of all
training documents, and, for an index ten times larger than what calibration held out, one half of the
training documents by a model of the other half.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Dataset, bag_of_words, flickr8k
from benchmarks.fold_in import BITS, FLICKR
from benchmarks.harness import SEEDS, chance_recall_10, side_by_side
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ, Index

ALLOWED_LOSS = 0.03
SETTINGS = ("test", "halves")

Scores = Sequence[float]


@dataclass(frozen=True)
class Documents:
    """Documents of one coding; a side that is not known has no codes.

    ``rows`` are those of training documents in the training set.
    """

    coding: str
    image_codes: Any
    text_codes: Any
    rows: Any = None

    def __len__(self) -> int:
        return len(self.image_codes if self.text_codes is None else self.text_codes)

    def take(self, rows: NDArray[np.bool_]) -> Documents:
        """Some of them."""
        parts = (self.image_codes, self.text_codes, self.rows)
        return Documents(self.coding, *(None if part is None else part[rows] for part in parts))


class Queries(NamedTuple):
    """Queries of one kind, and the target that they search."""

    kind: str
    of_first: Any
    of_second: Any
    target: str


class Mixture(NamedTuple):
    """Two codings in one index; the first half may be there only to crowd out the second."""

    first: str
    second: str
    asked: str
    target: str
    measures_first: bool = True


MIXTURES = (
    Mixture("pair", "image", "caption 2", "image"),
    Mixture("pair", "text", "caption 2", "text"),
    Mixture("pair", "image", "caption 2", "document"),
    Mixture("pair", "text", "caption 2", "document"),
    Mixture("training", "image", "caption 2", "image"),
    Mixture("training", "text", "caption 2", "text"),
    Mixture("pair", "text", "image", "text", measures_first=False),
)


def hits(model: CMCQ, kind: str, queries: Any, target: str, parts: list[Documents]) -> NDArray[np.bool_]:
    """Whether query i finds document i (counted through all parts) among the first ten."""
    with TemporaryDirectory() as folder, _index(Path(folder) / "mixed.cb", model, parts) as index:
        found = index.search(**{f"{kind}s": queries}, target=target, k=10)
        return np.array([number in each.ids for number, each in enumerate(found)])


def _index(path: Path, model: CMCQ, parts: list[Documents]) -> Index:
    ends = np.cumsum([len(part) for part in parts]).tolist()
    numbered = [(range(end - len(part), end), part) for end, part in zip(ends, parts, strict=True)]
    index = _trained_index(path, model, [each for each in numbered if each[1].coding == "training"])
    for ids, part in numbered:
        if part.coding != "training":
            index.add(ids, image_codes=part.image_codes, text_codes=part.text_codes)
    return index


def _trained_index(path: Path, model: CMCQ, numbered: list[tuple[range, Documents]]) -> Index:
    """An index of the wanted training documents: of all of them, without the others."""
    if not numbered:
        return Index.create(path, model, n_jobs=1)
    ids = -1 - np.arange(len(model.image_codes_))
    for own, part in numbered:
        ids[part.rows] = own
    index = Index.from_training(path, model, ids.tolist(), n_jobs=1)
    index.delete(ids[ids < 0].tolist())
    return index


def dataset(setting: str, seed: int) -> Dataset:
    """The documents to fit (``train``) and to index (``query``)."""
    data = flickr8k()
    if setting == "test":
        return data
    order = np.random.default_rng(seed).permutation(len(data.train))
    first, second = order[: (len(order) + 1) // 2], order[(len(order) + 1) // 2 :]
    return replace(data, train=data.train.take(first), query=data.train.take(second))


def scores(job: tuple[str, int]) -> list[float]:
    """Measure each mixture and half: recall in its pure index, mixed, and mixed without offsets."""
    setting, seed = job
    data = dataset(setting, seed)
    model = CMCQ(BITS, random_state=seed, n_jobs=1, **FLICKR).fit(data.train.images, data.train.texts)
    plain = CMCQ.from_bytes(model.to_bytes())
    model.calibrate(data.train.images, data.train.texts, curve=())
    rng = np.random.default_rng(seed)
    trained = rng.permutation(len(data.train))[: len(data.query)]
    documents = _documents(model, data, trained)
    in_first = rng.permutation(len(data.query)) < len(data.query) // 2
    found = []
    for mixture in MIXTURES:
        asked = _make_queries(data, mixture, trained)
        halves = documents[mixture.first], documents[mixture.second]
        found += _scores(model, plain, asked, halves, in_first)[0 if mixture.measures_first else 3 :]
    return found


def _documents(model: CMCQ, data: Dataset, trained: NDArray[np.intp]) -> dict[str, Documents]:
    images, texts = data.query.images, data.query.texts
    return {
        "training": Documents("training", model.image_codes_[trained], model.text_codes_[trained], trained),
        "pair": Documents("pair", *model.encode_pairs(images, texts)),
        "image": Documents("image", model.encode_images(images), None),
        "text": Documents("text", None, model.encode_texts(texts)),
    }


def _make_queries(data: Dataset, mixture: Mixture, trained: NDArray[np.intp]) -> Queries:
    first = data.train.take(trained) if mixture.first == "training" else data.query
    if mixture.asked == "image":
        return Queries("image", first.images, data.query.images, mixture.target)
    captions = [
        bag_of_words(split.captions, data.vocabulary, [2], data.token_pattern)
        for split in (first, data.query)
    ]
    return Queries("text", captions[0], captions[1], mixture.target)


def _scores(
    model: CMCQ, plain: CMCQ, asked: Queries, halves: tuple[Documents, Documents], in_first: NDArray[np.bool_]
) -> list[float]:
    """Pure, mixed, mixed without offsets: of the first half, then of the second."""
    found = []
    for own, mine in enumerate((in_first, ~in_first)):
        queries, other = asked[1 + own][mine], halves[1 - own].take(~mine)
        same = halves[own].take(mine), halves[own].take(~mine)
        for judge, rest in ((model, same[1]), (model, other), (plain, other)):
            found.append(hits(judge, asked.kind, queries, asked.target, [same[0], rest]).mean())
    return [float(value) for value in found]


def measurements(setting: str) -> list[Measurement]:
    """All mixtures of one setting."""
    columns = list(zip(*side_by_side(scores, [(setting, seed) for seed in SEEDS]), strict=True))
    n_items = len(dataset(setting, 0).query)
    entries = []
    for mixture in MIXTURES:
        score = f"recall@10, {mixture.asked} → {mixture.target}, {n_items} documents"
        for coding in (mixture.first, mixture.second)[0 if mixture.measures_first else 1 :]:
            pure, mixed, unshifted = columns[:3]
            del columns[:3]
            system = f"{mixture.first} | {mixture.second}: {coding}"
            entries += _entries(system, score, n_items, pure, mixed, unshifted)
    return entries


def _entries(
    system: str, score: str, n_items: int, pure: Scores, mixed: Scores, unshifted: Scores
) -> list[Measurement]:
    chance, target = chance_recall_10(n_items), float(np.mean(pure)) - ALLOWED_LOSS
    return [
        Measurement(f"{system}, pure", score, pure, None, chance),
        Measurement(f"{system}, mixed", score, mixed, target, chance),
        Measurement(f"{system}, mixed without offsets", score, unshifted, None, chance),
    ]


def main() -> None:
    """Measure all mixtures in both settings, print and keep."""
    entries = [entry for setting in SETTINGS for entry in measurements(setting)]
    print_table("Two codings in one index, 4 bytes per item and side", entries)
    save("mixed", entries, {"bits": BITS, "flickr8k": FLICKR, "allowed_loss": ALLOWED_LOSS})


if __name__ == "__main__":
    main()
