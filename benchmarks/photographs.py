"""Own photographs: from a plain folder and a CSV file to answers, by the program itself.

    python -m benchmarks answers --part photographs

Flickr8k's 1,000 test photographs with captions 0 and 1, written as a person would keep them; then
``crossbyte fit`` and ``crossbyte add``. Captions 2 to 4, which are in no index, ask for their photograph:
recall@10 among all 1,000. Once all photographs are fitted; once 700 are, and the other 300 are added later,
so that the model has never seen them. Pictures by EfficientNet-Lite0 or by the built-in encoder, words by
the built-in one.

Beside it, on the same features and the same pairs: FAISS's residual quantizer, trained on what it codes, and
the same points uncompressed: in the program's own space the points of documents of which both halves are
known, in a canonical space of unit length the middle of each picture's and its captions' points.

The built-in encoders are not blind to these photographs: the width of the words was first looked at on them,
and the parts of the built-in picture encoder and their weights were chosen on folds of them, since there are
no others. So the figures with built-in pictures are optimistic.
"""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.baselines import PEERS, set_threads
from benchmarks.comparison import Hits, Points, Scored, compare, hits_of_points
from benchmarks.datasets import data_root
from benchmarks.harness import item_points, side_by_side, unit_space
from benchmarks.tables import Measurement
from crossbyte.gallery.cache import FeatureCache, digest_file
from crossbyte.gallery.companion import CompanionFiles
from crossbyte.gallery.gallery import Gallery

BYTES = (4, 8)
KEPT = {4: 0.80, 8: 0.90}  # of uncompressed, by photographs that were added
N_FITTED = 700
INDEXED, ASKED = (0, 1), (2, 3, 4)
SPACE: dict[str, Any] = {"n_dims": 64, "text_components": 512, "ridge": 0.5}
NETWORK = {"output": "feat", "short_side": 256, "scaling": "(x-127)/128"}
N_CHECKED = 3  # questions that are also asked by the program itself


@dataclass(frozen=True)
class Photographs:
    """Names of files, and five captions of each."""

    names: list[str]
    captions: list[list[str]]

    @classmethod
    def read(cls) -> Photographs:
        """Flickr8k's test photographs."""
        with np.load(data_root() / "flickr8k" / "flickr8k.npz") as arrays:
            return cls(arrays["name_query"].tolist(), arrays["captions_query"].tolist())

    def __len__(self) -> int:
        return len(self.names)


class Case(NamedTuple):
    """Which encoder makes features of the pictures, how many photographs are fitted, not added."""

    pictures: str
    n_fitted: int
    n_bytes: tuple[int, ...]
    n_seeds: int


# Files as people keep them


def write_folder(folder: Path, data: Photographs, rows: Iterable[int]) -> None:
    """Photographs, and a CSV file with a row for each of their indexed captions."""
    folder.mkdir()
    with (folder / "captions.csv").open("w", newline="", encoding="utf-8") as stream:
        table = csv.writer(stream)
        table.writerow(["image", "caption"])
        for row in rows:
            name = data.names[row]
            shutil.copy(data_root() / "flickr8k" / "images_test" / name, folder / name)
            table.writerows([name, data.captions[row][number]] for number in INDEXED)


def describe_network(folder: Path) -> Path:
    """The small JSON file that says what the network expects."""
    path = folder / "efficientnet.json"
    model = data_root().resolve() / "encoders" / "efficientnet-lite0.onnx"
    path.write_text(json.dumps({"model": str(model), **NETWORK}), encoding="utf-8")
    return path


# The program


def crossbyte(folder: Path, *arguments: str) -> Any:
    """Run the program in a folder and read its JSON."""
    command = [sys.executable, "-m", "crossbyte", *arguments, "--json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def build(folder: Path, case: Case, n_bytes: int, seed: int) -> Path:
    """Fit the folder ``fitted``, and add the folder ``added`` if it is there."""
    encoder = ["--image-encoder", "efficientnet.json"] if case.pictures == "EfficientNet" else []
    index = folder / "photos.cb"
    index.unlink(missing_ok=True)  # what is beside it stays: nothing is encoded twice
    # measuring on held-out pairs is left out: it changes no code, and it is here that quality is measured
    options = ["--index", "photos.cb", "--bits", str(8 * n_bytes), "--no-calibrate", "--seed", str(seed)]
    crossbyte(folder, "fit", "fitted", *options, *encoder)
    if (folder / "added").exists():
        crossbyte(folder, "add", "photos.cb", "added")
    return index


def find_hits(index: Path, data: Photographs, queries: Sequence[tuple[int, str]], target: str) -> Hits:
    """Whether each caption finds its photograph among the first ten."""
    with Gallery.open(index) as gallery:
        texts = gallery.encode_texts([text for _, text in queries])
        answers = gallery.index.search(texts=texts, target=target, k=10)
    for (_, text), answer in list(zip(queries, answers, strict=True))[:N_CHECKED]:
        asked = crossbyte(index.parent, "search", index.name, "--text", text, "--target", target)
        said = asked["queries"][0]["hits"]
        if [hit["id"] for hit in said] != answer.ids:
            raise RuntimeError(f"the program and the library answer {text!r} differently")
    names = [data.names[row] for row, _ in queries]
    return np.array([name in answer.ids for name, answer in zip(names, answers, strict=True)])


# The others, on the same features


class Features(NamedTuple):
    """Features of all photographs, of their captions one by one and together, and of the queries."""

    pictures: Any
    captions: Any
    together: Any
    queries: Any


def read_features(
    index: Path, folders: Sequence[Path], data: Photographs, queries: Sequence[str]
) -> Features:
    """What the program has kept of the pictures, and the texts by its encoder."""
    places = {path.name: path for folder in folders for path in folder.glob("*.jpg")}
    digests = [str(digest_file(places[name], 2**30)) for name in data.names]
    captions = [[row[number] for number in INDEXED] for row in data.captions]
    cache = FeatureCache(CompanionFiles.of(index).features)
    try:
        with Gallery.open(index) as gallery:
            pictures = cache.get(gallery.encoders["image"], digests)
            apart = gallery.encode_texts([text for texts in captions for text in texts])
            together = gallery.encode_texts(["\n".join(texts) for texts in captions])
            return Features(pictures, apart, together, gallery.encode_texts(queries))
    finally:
        cache.close()


def peer_hits(
    index: Path, features: Features, n_fitted: int, owners: NDArray[np.intp], n_bytes: int, seed: int
) -> dict[str, Hits]:
    """Hits of documents' points, uncompressed and by RQ that learned from those of the fitted ones."""
    set_threads(1)
    found = {}
    for where, items, asked in (_own_points(index, features), _middles(features, n_fitted)):
        found[f"uncompressed{where}"] = hits_of_points(asked, items, owners)
        # not refined: FAISS's least squares ask for more points than there are codewords
        coded = PEERS["RQ"](items[:n_fitted], n_bytes, seed)(items)
        found[f"FAISS RQ{where}"] = hits_of_points(asked, coded, owners)
    return found


def _own_points(index: Path, features: Features) -> tuple[str, Points, Points]:
    """Items and queries in the space of the program's model."""
    with Gallery.open(index) as gallery:
        model = gallery.index.model
        items = item_points(model, images=features.pictures, texts=features.together)
        return "", items, model.transform_texts(features.queries)


def _middles(features: Features, n_fitted: int) -> tuple[str, Points, Points]:
    """The middles of both halves, and queries, in the canonical space of the fitted pairs."""
    shown = np.repeat(np.arange(n_fitted), len(INDEXED))
    space = unit_space(**SPACE)
    space.fit(features.pictures[shown], features.captions[: len(shown)], groups=shown)
    both = space.transform_images(features.pictures) + space.transform_texts(features.together)
    middles = np.asarray(both / 2, dtype=np.float32)
    return f", middle in CCA-{SPACE['n_dims']}", middles, space.transform_texts(features.queries)


# Everything


def score_case(case: Case) -> list[list[Scored]]:
    """Per seed and number of bytes the questions of one case, in a folder of its own."""
    data = Photographs.read()
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_folder(folder / "fitted", data, range(case.n_fitted))
        if case.n_fitted < len(data):
            write_folder(folder / "added", data, range(case.n_fitted, len(data)))
        describe_network(folder)
        return [
            [each for n_bytes in case.n_bytes for each in _score(folder, case, data, n_bytes, seed)]
            for seed in range(case.n_seeds)
        ]


def _score(folder: Path, case: Case, data: Photographs, n_bytes: int, seed: int) -> list[Scored]:
    """All photographs together, or fitted and added ones apart."""
    n = len(data)
    queries = [(row, data.captions[row][number]) for row in range(n) for number in ASKED]
    owners = np.array([row for row, _ in queries])
    index = build(folder, case, n_bytes, seed)
    found = {
        "crossbyte": find_hits(index, data, queries, "image"),  # what the program asks for by itself
        "crossbyte, target document": find_hits(index, data, queries, "document"),
    }
    places = [folder / "fitted", folder / "added"]
    features = read_features(index, places, data, [text for _, text in queries])
    found |= peer_hits(index, features, case.n_fitted, owners, n_bytes, seed)
    parts = {f"all {n} fitted": owners < n}
    if case.n_fitted < n:
        parts = {f"the {case.n_fitted} fitted": owners < case.n_fitted}
        parts[f"the {n - case.n_fitted} added"] = owners >= case.n_fitted
    return [
        Scored(
            f"{case.pictures}, {part}, {n_bytes} bytes",
            owners[rows],
            n,
            {name: hits[rows] for name, hits in found.items()},
        )
        for part, rows in parts.items()
    ]


def _uncompressed(seeds: Sequence[Scored]) -> float:
    """Recall of uncompressed points, in the better of the spaces."""
    names = [name for name in seeds[0].hits if name.startswith("uncompressed")]
    return max(float(np.mean([each.hits[name].mean() for each in seeds])) for name in names)


def measure(options: Namespace) -> tuple[list[Measurement], dict[str, Any]]:
    """All cases; added photographs are to keep a share of what their points find uncompressed."""
    n_bytes = tuple(options.bytes or BYTES)
    cases = [
        Case(pictures, n_fitted, n_bytes, options.seeds)
        for pictures in ("EfficientNet", "built-in")
        for n_fitted in (len(Photographs.read()), N_FITTED)
    ]
    entries = []
    for seeds in side_by_side(score_case, cases):
        targets = {
            first.score: share * _uncompressed([each[place] for each in seeds])
            for place, first in enumerate(seeds[0])
            for length, share in KEPT.items()
            if "added" in first.score and first.score.endswith(f" {length} bytes")
        }
        entries += compare(seeds, targets)
    settings = {"indexed": INDEXED, "asked": ASKED, "bytes": n_bytes, "space": SPACE, "fitted": N_FITTED}
    return entries, settings
