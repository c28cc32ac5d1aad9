"""Whether crossbyte is the best choice at equal bytes, with its defaults: one part per question.

    python -m benchmarks answers                                      # every part, 5 seeds; hours
    python -m benchmarks answers --part flickr8k --seeds 5
    python -m benchmarks answers --part documents --bytes 4 --seeds 1 --peers RQ --trial   # keeps nothing

Unseen pairs (flickr8k, fashion, places): an item is known from one side alone, its partner asks. Documents
(documents: Flickr8k with captions 0 and 1, captions 2 to 4 ask one by one; products: fashion with titles, the
words of the catalogue's attributes ask): both halves known, one code. minilm: EfficientNet and MiniLM, single
captions find pictures that are known by image alone; whether the model learns from the mean of five captions
or from each is chosen on training pictures. The other parts have modules of their own.

All systems get the same query points, item points and training points, which are the model's own; peers are
ranked by exact distances to what their codes stand for, crossbyte by the table sums of its search ("exact":
as the peers). Documents are also coded by RQ trained on the middles of both halves in a plain canonical space
of unit length. Nothing is chosen on test pairs, except, in their favour, the best of the peers.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks import defaults, mixed, photographs, probability, sizes
from benchmarks.baselines import FAISS_SETTINGS, PEERS, Coder, set_threads
from benchmarks.comparison import Hits, Points, Scored, compare, hits_of_distances, hits_of_points
from benchmarks.datasets import Dataset, Split, fashion, flickr8k, minilm, places
from benchmarks.harness import (
    code_documents,
    document_kind,
    item_points,
    side_by_side,
    table_path,
    training_points,
    unit_space,
)
from benchmarks.tables import Measurement, print_table, save
from crossbyte import CMCQ
from crossbyte.metrics.ranks import partner_ranks_ties_by_column

BYTES = (2, 4, 8, 16)
DIRECTIONS = {"I→T": ("image", "text"), "T→I": ("text", "image")}
UNSEEN: dict[str, Callable[[], Dataset]] = {
    "flickr8k": lambda: flickr8k(drop_unlabelled=False),
    "fashion": fashion,
    "places": places,
}
DOCUMENTS = {"documents": "flickr8k", "products": "fashion"}
EVERYTHING = "all training points"
CCA_SPACES = tuple((n_dims, ridge) for n_dims in (64, 128) for ridge in (0.1, 1.0))  # the best of them counts
TARGETS: dict[str, dict[str, Mapping[int, float]]] = {
    "flickr8k": {
        "I→T": {2: 0.565, 4: 0.615, 8: 0.665, 16: 0.670},
        "T→I": {2: 0.545, 4: 0.600, 8: 0.645, 16: 0.655},
    },
    "fashion": {"I→T": {4: 0.60}, "T→I": {4: 0.58}},
    "documents": {"other texts → documents": {2: 0.62, 4: 0.69, 8: 0.735, 16: 0.755}},
}
MINILM_UNCOMPRESSED = 0.665
MINILM_SHARES = {4: 0.88, 8: 0.95, 16: 0.98}  # of uncompressed
N_CHOOSING = 1000  # training pictures that are held out to choose how captions are learned from


@dataclass(frozen=True)
class Job:
    """One fit: what is asked, with how many bytes and which seed, beside which peers.

    ``parameters`` change the model from its defaults, for trials; ``form`` is how captions are learned from.
    """

    part: str
    n_bytes: int
    seed: int
    peers: Sequence[str] = tuple(PEERS)
    parameters: Mapping[str, Any] = field(default_factory=dict)
    form: str = ""

    def model(self) -> CMCQ:
        """The model that is to be fitted."""
        return CMCQ(8 * self.n_bytes, random_state=self.seed, n_jobs=1, **self.parameters)


def unseen(job: Job) -> list[Scored]:
    """Both directions, every item known from its own side alone."""
    data = UNSEEN[job.part]()
    model = job.model().fit(data.train.images, data.train.texts)
    peers = Peers(job, training_points(model, data.train.images, data.train.texts))
    partners = np.arange(len(data.query))
    return [
        _one_sided(model, peers, way, _queries(model, asking, data.query), partners, data.query)
        for way, (asking, _) in DIRECTIONS.items()
    ]


def _queries(model: CMCQ, side: str, rows: Split) -> Points:
    return model.transform_images(rows.images) if side == "image" else model.transform_texts(rows.texts)


def _one_sided(
    model: CMCQ, peers: Peers, way: str, queries: Points, partners: NDArray[Any], rows: Split
) -> Scored:
    """Items of the side that answers, coded by it alone, found by query points."""
    _, side = DIRECTIONS[way]
    if side == "image":
        items, codes = item_points(model, images=rows.images), model.encode_images(rows.images)
    else:
        items, codes = item_points(model, texts=rows.texts), model.encode_texts(rows.texts)
    found = own_hits(model, side, queries, codes, partners)
    found |= peers.hits(side, queries, items, partners)
    return Scored(f"{way}, {peers.job.n_bytes} bytes", partners, len(rows), found)


def own_hits(
    model: CMCQ, kind: str, queries: Points, codes: NDArray[np.uint8], partners: NDArray[Any]
) -> dict[str, Hits]:
    """What the codes find by the sums of tables, as a search does it, and by exact distances."""
    summed, decoded = table_path(model, kind, queries, codes)
    return {
        "crossbyte": hits_of_distances(summed, partners),
        "crossbyte, exact": hits_of_points(queries, decoded, partners),
    }


class Peers:
    """Quantizers of others in the model's space, and the space uncompressed.

    Each learns once from the training points of what it codes, and once, as our codewords do, from those of
    images, texts and documents together; what it has learned is kept for the other direction.
    """

    def __init__(self, job: Job, learned: Mapping[str, Points]) -> None:
        set_threads(1)
        self.job = job
        self._learned = {**learned, EVERYTHING: np.concatenate(list(learned.values()))}
        self._coders: dict[tuple[str, str], Coder] = {}

    def hits(self, kind: str, queries: Points, items: Points, partners: NDArray[Any]) -> dict[str, Hits]:
        """What items of one kind (image, text or document) are found by, uncompressed and by each peer."""
        found = {"uncompressed": hits_of_points(queries, items, partners)}
        for name in self.job.peers:
            for source, where in ((kind, ""), (EVERYTHING, f" of {EVERYTHING}")):
                coded = self._coder(name, source)(items)
                found[f"FAISS {name}{where}"] = hits_of_points(queries, coded, partners)
        return found

    def _coder(self, name: str, source: str) -> Coder:
        if (name, source) not in self._coders:
            learn = PEERS[name]
            self._coders[name, source] = learn(self._learned[source], self.job.n_bytes, self.job.seed)
        return self._coders[name, source]


def documents(job: Job) -> list[Scored]:
    """Documents known by both halves, found by texts that are in no index."""
    data = UNSEEN[DOCUMENTS[job.part]]()
    images, texts = data.query.images, data.query.texts
    asked = sparse.vstack(data.query.other_texts, format="csr")
    partners = np.tile(np.arange(len(data.query)), len(data.query.other_texts))
    model = job.model().fit(data.train.images, data.train.texts)
    queries, items = model.transform_texts(asked), item_points(model, images=images, texts=texts)
    peers = Peers(job, training_points(model, data.train.images, data.train.texts))
    found = own_hits(model, document_kind(model), queries, code_documents(model, images, texts), partners)
    found |= peers.hits("document", queries, items, partners)
    for space in CCA_SPACES if "RQ" in job.peers else ():
        found |= _middles(job, data, asked, partners, *space)
    name = "other texts → documents"
    return [
        Scored(f"{name}, {job.n_bytes} bytes", partners, len(data.query), found),
        Scored(
            f"{name}, {2 * job.n_bytes} bytes in two codes",
            partners,
            len(data.query),
            _two_codes(model, images, texts, queries, partners),
        ),
    ]


def _middles(
    job: Job, data: Dataset, asked: Any, partners: NDArray[Any], n_dims: int, ridge: float
) -> dict[str, Hits]:
    """RQ that learned from the middles of both halves' points of unit length, and the middles themselves."""
    space = unit_space(n_dims, ridge).fit(data.train.images, data.train.texts)

    def middle(rows: Split) -> Points:
        both = space.transform_images(rows.images) + space.transform_texts(rows.texts)
        return np.asarray(both / 2, dtype=np.float32)

    queries, items, where = (
        space.transform_texts(asked),
        middle(data.query),
        f", middle in CCA-{n_dims}, ridge {ridge:g}",
    )
    coded = PEERS["RQ"](middle(data.train), job.n_bytes, job.seed)(items)
    return {
        f"uncompressed{where}": hits_of_points(queries, items, partners),
        f"FAISS RQ{where}": hits_of_points(queries, coded, partners),
    }


def _two_codes(
    model: CMCQ, images: Any, texts: Any, queries: Points, partners: NDArray[Any]
) -> dict[str, Hits]:
    """The same documents with a code for each half: by both, and by the image's."""
    image_codes, text_codes = model.encode_pairs(images, texts)
    of_image, _ = table_path(model, "image", queries, image_codes)
    of_text, _ = table_path(model, "text", queries, text_codes)
    return {
        "crossbyte, two codes": hits_of_distances(of_image + of_text, partners),
        "crossbyte, image code of two": hits_of_distances(of_image, partners),
    }


# EfficientNet and MiniLM


def single_captions(job: Job) -> list[Scored]:
    """Single captions find pictures that are known by image alone."""
    data, captions = flickr8k(drop_unlabelled=False), minilm()
    pairs = FORMS[job.form](data.train.images, captions["train"])
    model = job.model().fit(*pairs[:2], groups=pairs[2])
    queries = model.transform_texts(captions["query"].reshape(-1, captions["query"].shape[2]))
    partners = np.repeat(np.arange(len(data.query)), captions["query"].shape[1])
    peers = Peers(job, training_points(model, *pairs[:2]))
    return [_one_sided(model, peers, "T→I", queries, partners, data.query)]


def _mean_captions(images: Any, captions: NDArray[Any]) -> tuple[Any, Any, Any]:
    return images, captions.mean(axis=1), None


def _each_caption(images: Any, captions: NDArray[Any]) -> tuple[Any, Any, Any]:
    groups = np.repeat(np.arange(len(images)), captions.shape[1])
    return images[groups], captions.reshape(len(groups), -1), groups


FORMS = {"means of captions": _mean_captions, "single captions": _each_caption}


def choose_form(parameters: Mapping[str, Any]) -> str:
    """By the mean log rank of held-out training pictures, uncompressed; once for all lengths and seeds."""
    images, captions = flickr8k(drop_unlabelled=False).train.images, minilm()["train"]
    rows = np.random.default_rng(0).permutation(len(images))
    asked, kept = rows[:N_CHOOSING], rows[N_CHOOSING:]
    partners = np.repeat(np.arange(len(asked)), captions.shape[1])
    losses = {}
    for form, make in FORMS.items():
        pairs = make(images[kept], captions[kept])
        model = Job("minilm", 8, 0, parameters=parameters).model().fit(*pairs[:2], groups=pairs[2])
        queries = model.transform_texts(captions[asked].reshape(len(partners), -1))
        items = item_points(model, images=images[asked])
        distances = (items**2).sum(axis=1) - 2 * queries @ items.T
        losses[form] = np.log1p(partner_ranks_ties_by_column(distances, partners)).mean()
    return min(losses, key=losses.__getitem__)


# Parts


def measure_by_fits(
    part: str, run: Callable[[Job], list[Scored]], options: argparse.Namespace
) -> tuple[list[Measurement], dict[str, Any]]:
    """All lengths and seeds of a part whose questions are answered by fits apart."""
    form = choose_form(options.parameters) if part == "minilm" else ""
    jobs = [
        Job(part, n_bytes, seed, options.peers, options.parameters, form)
        for n_bytes in options.bytes or BYTES[1 if part == "minilm" else 0 :]
        for seed in range(options.seeds)
    ]
    answers = side_by_side(run, jobs)
    by_length = [answers[start : start + options.seeds] for start in range(0, len(jobs), options.seeds)]
    targets = {
        f"{question}, {n_bytes} bytes": value
        for question, values in TARGETS.get(part, {}).items()
        for n_bytes, value in values.items()
    }
    entries = []
    for job, seeds in zip(jobs[:: options.seeds], by_length, strict=True):
        if part == "minilm":
            free = np.mean([each.hits["uncompressed"].mean() for (each,) in seeds])
            targets[seeds[0][0].score] = float(free) * MINILM_SHARES.get(job.n_bytes, 1.0)
        entries += compare(seeds, targets)
    if part == "minilm":
        entries = [
            replace(entry, target=MINILM_UNCOMPRESSED) if entry.system == "uncompressed" else entry
            for entry in entries
        ]
    settings = {"bytes": sorted({job.n_bytes for job in jobs}), "peers": list(options.peers)}
    return entries, settings | ({"learned_from": form} if form else {})


PARTS: dict[str, Callable[[argparse.Namespace], tuple[list[Measurement], dict[str, Any]]]] = {
    **{part: lambda options, part=part: measure_by_fits(part, unseen, options) for part in UNSEEN},
    **{part: lambda options, part=part: measure_by_fits(part, documents, options) for part in DOCUMENTS},
    "minilm": lambda options: measure_by_fits("minilm", single_captions, options),
    "photographs": photographs.measure,
    "defaults": defaults.measure,
    "probability": probability.measure,
    "mixed": mixed.measure,
    "size": sizes.measure,
}


def main() -> None:
    """Measure the named parts, or all; print and keep each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--part", action="append", choices=PARTS, help="may be given several times")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--bytes", type=_integers, help="such as 2,4; by default those of the part")
    parser.add_argument("--peers", type=_names, default=tuple(PEERS), help=f"some of {','.join(PEERS)}")
    parser.add_argument("--parameters", type=json.loads, default={}, help="of CMCQ, as JSON, for trials")
    parser.add_argument("--trial", action="store_true", help="keep no results")
    options = parser.parse_args()
    if options.parameters and not options.trial:
        parser.error("results are kept of the defaults only; with --parameters, say --trial, too")
    for part in options.part or PARTS:
        entries, settings = PARTS[part](options)
        print_table(f"Answers: {part}", entries)
        if not options.trial:
            save(f"answers-{part}", entries, {"seeds": options.seeds} | settings | FAISS_SETTINGS)


def _integers(text: str) -> list[int]:
    return [int(number) for number in text.split(",")]


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    unknown = sorted(set(names) - set(PEERS))
    if unknown:
        raise argparse.ArgumentTypeError(f"expected some of {','.join(PEERS)}; got {','.join(unknown)}")
    return names


if __name__ == "__main__":
    main()
