"""Is the FAISS export the index, and is an explanation exact? On Flickr8k, where it matters.

    python -m benchmarks.exports               # about 3 minutes

An index of all training documents with their learned codes and of the 1,000 test documents, half of them
folded in as pairs, the others from one side alone; every tenth test document is deleted again. All test
documents ask, in both directions, with a constant and with a stored cross term. FAISS: the largest
difference of a distance among the first ten, and the share of ids that are the same where distances differ
by more than rounding. Explanations: 10,000 random queries and documents. Words: of the ten that are listed
for a test image, how many its captions 0 and 1 have, beside the ten most frequent words. The order of the
words was chosen by looking at Flickr8k's test images; Fashion, of which 6,000 training pairs are taken, had
no part in that.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import faiss
import numpy as np

from benchmarks.datasets import Dataset, fashion, flickr8k
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ, Index
from crossbyte.index.export.faiss_index import export_faiss, faiss_distances, faiss_queries

BITS = 32
FLICKR: dict[str, Any] = {"mapping": "cca", "n_components": 64, "correlation": 10.0, "cross_term": "stored"}
K = 10
N_CASES = 2_500  # for each direction and cross term
ROUNDING = 1e-6
FASHION_ROWS = 6_000
WORDS = "words of ten listed that the text has"
SIDES = (("text", "image"), ("image", "text"))


def fit_model(data: Dataset, cross_term: str) -> CMCQ:
    """A calibrated model of the training documents."""
    model = CMCQ(BITS, random_state=0, **(FLICKR | {"cross_term": cross_term}))
    model.fit(data.train.images, data.train.texts)
    return model.calibrate(data.train.images, data.train.texts, curve=())


def fill_index(path: Path, model: CMCQ, data: Dataset) -> Index:
    """The index: every coding, and deletions."""
    index, query = Index.from_training(path, model), data.query
    half, quarter = len(query) // 2, 3 * len(query) // 4
    ids = [f"test-{row}" for row in range(len(query))]
    index.add(ids[:half], images=query.images[:half], texts=query.texts[:half])
    index.add(ids[half:quarter], images=query.images[half:quarter])
    index.add(ids[quarter:], texts=query.texts[quarter:])
    index.delete(ids[::10])
    return index


def faiss_difference(index: Index, folder: Path, kind: str, target: str, queries: Any) -> tuple[float, float]:
    """Largest difference of a distance, and share of equal ids where distances are clearly apart."""
    path = folder / f"{target}.faiss"
    export_faiss(index, path, target=target)
    about, ids = (json.loads(Path(f"{path}{ending}").read_text()) for ending in (".json", ".ids.json"))
    vectors = faiss_queries(index.model, **{f"{kind}s": queries})
    scores, places = faiss.read_index(str(path)).search(vectors, K + 1)
    hits = index.search(**{f"{kind}s": queries}, target=target, k=K + 1)
    expected = np.array([hit.distances for hit in hits])
    difference = float(np.abs(faiss_distances(vectors, scores, about["constant"]) - expected).max())
    gaps = np.pad(np.diff(expected, axis=1), ((0, 0), (1, 0)), constant_values=np.inf)
    clear = np.minimum(gaps[:, :-1], gaps[:, 1:]) > 2 * difference
    found = np.array([[ids[place] for place in row] for row in places], dtype=object)
    same = found == np.array([hit.ids for hit in hits], dtype=object)
    return difference, float(same[:, :K][clear].mean())


def explanation_error(
    index: Index, kind: str, target: str, queries: Any, seed: int
) -> Iterator[tuple[float, float]]:
    """How far shares and constant are from the distance, relative to it; and how far without the rounding."""
    rng = np.random.default_rng(seed)
    own = [id for id in index.ids() if isinstance(id, int) or index.get(id).coding in ("pair", target)]
    for _ in range(N_CASES):
        row = queries[rng.integers(queries.shape[0])][None]
        found = index.explain(own[rng.integers(len(own))], **{f"{kind}s": row}, target=target)
        total = sum(share.share for share in found.shares) + found.constant
        scale = abs(found.distance)
        yield abs(total - found.distance) / scale, abs(found.constants.rounding) / scale


def count_listed_words(index: Index, data: Dataset) -> tuple[float, float]:
    """Listed words that a test image's text has, on average; and how many of the most frequent words."""
    frequent = np.argsort(-np.asarray(data.train.texts.sum(axis=0)).ravel())[:10]
    listed, usual = [], []
    for row in range(len(data.query)):
        document = index.get(f"test-{row}")
        if document is not None and document.coding == "image":
            text = data.query.texts[[row]]
            own = set(text.indices.tolist())
            found = index.explain(document.id, texts=text).item_words
            listed.append(float(sum(word.column in own for word in found)))
            usual.append(float(sum(column in own for column in frequent.tolist())))
    return float(np.mean(listed)), float(np.mean(usual))


def fashion_words() -> Measurement:
    """Words of images that nobody looked at before the way of listing them was settled."""
    data = fashion()
    train = data.train.take(np.random.default_rng(0).permutation(len(data.train))[:FASHION_ROWS])
    model = CMCQ(BITS, random_state=0, **FLICKR).fit(train.images, train.texts)
    with TemporaryDirectory() as folder, Index.create(Path(folder) / "a.cb", model) as index:
        index.add([f"test-{row}" for row in range(len(data.query))], images=data.query.images)
        listed, usual = count_listed_words(index, data)
    return Measurement("Fashion", WORDS, [listed], None, usual)


def measurements(cross_term: str, data: Dataset) -> list[Measurement]:
    """Everything with one kind of cross term."""
    entries = []
    with (
        TemporaryDirectory() as folder,
        fill_index(Path(folder) / "a.cb", fit_model(data, cross_term), data) as index,
    ):
        for seed, (kind, target) in enumerate(SIDES):
            queries = getattr(data.query, f"{kind}s")
            system = f"{cross_term} cross term, {kind} → {target}"
            difference, same = faiss_difference(index, Path(folder), kind, target, queries)
            sums, roundings = np.array(list(explanation_error(index, kind, target, queries, seed))).T
            entries += [
                Measurement(system, "FAISS: largest difference, 1e-6", [1e6 * difference]),
                Measurement(system, "FAISS: same ids outside ties", [same], 1.0),
                Measurement(system, "explanations: largest error of the sum, 1e-6", [1e6 * sums.max()], 1.0),
                Measurement(
                    system, "… where float32 itself is as exact", [float((roundings <= ROUNDING).mean())]
                ),
            ]
        listed, usual = count_listed_words(index, data)
        entries.append(Measurement(f"{cross_term} cross term", WORDS, [listed], None, usual))
    return entries


def main() -> None:
    """Measure with both kinds of cross term, print and keep."""
    data = flickr8k(drop_unlabelled=False)
    entries = [entry for cross_term in ("constant", "stored") for entry in measurements(cross_term, data)]
    entries.append(fashion_words())
    print_table("FAISS export and explanations, 4 bytes per item and side", entries)
    settings = {"bits": BITS, "flickr8k": FLICKR, "faiss": faiss.__version__, "cases": 4 * N_CASES}
    save("exports", entries, settings | {"queries": len(data.query)})


if __name__ == "__main__":
    main()
