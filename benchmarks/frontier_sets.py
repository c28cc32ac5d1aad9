"""The items and queries of ``frontier.py``: of each set a folder in the cache, made when it is needed first.

- ``gapped``: any number of pairs of ``gapped.py``. Models of 64 dimensions are fitted on 20,000 pairs, cells
  learn from 30,000 others, and items are neither.
- ``places``: all 171,010 pairs of the collection. Models with the defaults are fitted on 20,000 of its
  training pairs, cells learn from 30,000 others; the queries are its 4,000 query pairs, which neither knows.

Items are images, queries are texts. Points are where the first model places both, uncompressed: items where
their queries are expected, everything in the metric in which crossbyte's distances are taken, so that squared
Euclidean distances between points are what the codes approximate, and every system knows the same.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from benchmarks import gapped
from benchmarks.coded import cache_folder, cache_key
from benchmarks.datasets import places
from benchmarks.harness import item_points
from crossbyte import CMCQ, Index

__all__ = ["K", "LENGTHS", "N_QUERIES", "SETS", "FrontierSet"]

K = 10
LENGTHS = (8, 16)
N_QUERIES, TRAINING, LEARNING = 4000, 20_000, 30_000
BLOCK, ADDED = 50_000, 500_000
RECALL = 0.95
_TRAINING_BLOCK, _LEARNING_BLOCK = 10**6 + 1, 10**6  # far from those of the items

Points = NDArray[np.float32]


class Source(NamedTuple):
    """Where raw features come from.

    Attributes
    ----------
    parameters : dict
        Of the models.
    training, learning : (images, texts)
        Pairs that models are fitted on, and that cells learn from.
    blocks : iterator of images
        The items, in order.
    texts : (n_queries, d_T)
        Dense, or sparse.
    partners : (n_queries,) int64
        The item that each query asks for.
    """

    parameters: dict[str, Any]
    training: tuple[Any, Any]
    learning: tuple[Any, Any]
    blocks: Iterator[Any]
    texts: Any
    partners: NDArray[np.int64]


def _gapped_source(n_items: int) -> Source:
    pairs = gapped.GappedPairs()
    sizes = [min(BLOCK, n_items - start) for start in range(0, n_items, BLOCK)]
    each = -(-N_QUERIES // len(sizes))  # texts that are kept of a block
    texts = [pairs.block(number, size)[1][:each] for number, size in enumerate(sizes)]
    partners = [BLOCK * number + np.arange(len(some)) for number, some in enumerate(texts)]
    return Source(
        {"mapping": "cca", "n_components": 64, "max_iter": 3},
        pairs.block(_TRAINING_BLOCK, TRAINING),
        pairs.block(_LEARNING_BLOCK, LEARNING),
        (pairs.block(number, size)[0] for number, size in enumerate(sizes)),
        np.concatenate(texts)[:N_QUERIES],
        np.concatenate(partners)[:N_QUERIES],
    )


def _places_source(n_items: int) -> Source:
    data = places()
    rows = np.random.default_rng(0).permutation(len(data.train))
    fitted, learned = np.sort(rows[:TRAINING]), np.sort(rows[TRAINING : TRAINING + LEARNING])
    images = np.concatenate([data.query.images, data.train.images])[:n_items]
    return Source(
        {},
        (data.train.images[fitted], data.train.texts[fitted]),
        (data.train.images[learned], data.train.texts[learned]),
        (images[start : start + BLOCK] for start in range(0, len(images), BLOCK)),
        data.query.texts[:N_QUERIES],
        np.arange(len(data.query), dtype=np.int64)[:N_QUERIES],
    )


SETS = {"gapped": _gapped_source, "places": _places_source}
LARGEST = {"places": 171_010}


@dataclass(frozen=True)
class FrontierSet:
    """One set, as files of one folder.

    Attributes
    ----------
    name : str
        A key of ``SETS``.
    n_items : int
    n_jobs : int or None
        Threads of what is made.
    """

    name: str
    n_items: int
    n_jobs: int | None = None

    @cached_property
    def folder(self) -> Path:
        """Where the files are; made now if they are not there."""
        settings = [gapped.SETTINGS, self.name, N_QUERIES, TRAINING, LEARNING]
        folder = cache_folder() / f"frontier-{self.name}-{self.n_items}-{cache_key(settings)}"
        if not folder.exists():
            unfinished = Path(tempfile.mkdtemp(dir=cache_folder()))
            try:
                self._write_points(unfinished)
                os.replace(unfinished, folder)
            finally:
                shutil.rmtree(unfinished, ignore_errors=True)
        return folder

    @cached_property
    def source(self) -> Source:
        """The raw features."""
        return SETS[self.name](self.n_items)

    @property
    def points(self) -> Path:
        """File of the items' points (n, D) float32."""
        return self.folder / "points.npy"

    @property
    def queries(self) -> Path:
        """File of the queries' points (n_queries, D) float32."""
        return self.folder / "queries.npy"

    @cached_property
    def partners(self) -> NDArray[np.int64]:
        """The item that each query asks for."""
        return np.load(self.folder / "partners.npy")

    @cached_property
    def texts(self) -> Any:
        """Raw features of the queries (n_queries, d_T)."""
        path = self.folder / "texts.npz"
        return (
            sparse.csr_array(sparse.load_npz(path)) if path.exists() else np.load(self.folder / "texts.npy")
        )

    @cached_property
    def exact(self) -> NDArray[np.int64]:
        """The k nearest items of every query, by uncompressed points."""
        path = self.folder / "exact.npy"
        if not path.exists():
            import faiss

            found: NDArray[np.int64] = faiss.knn(np.load(self.queries), np.load(self.points), K)[1]
            np.save(path, found)
        return np.load(path)

    def index(self, n_bytes: int, with_cells: bool) -> Path:
        """The file of an index, made now if it is not there."""
        kind = "cells" if with_cells else "plain"
        path = self.folder / f"{kind}-{n_bytes}.cb"
        if not path.exists():
            unfinished = path.with_suffix(".unfinished")
            unfinished.unlink(missing_ok=True)
            if with_cells:
                shutil.copyfile(self.index(n_bytes, False), unfinished)
                images, texts = self.source.learning
                with Index.open(unfinished, mode="rw", n_jobs=self.n_jobs) as index:
                    index.build_cells(images=images, texts=texts, recall=RECALL)
            else:
                self._write_index(n_bytes, unfinished)
            unfinished.rename(path)
        return path

    def _model(self, folder: Path, n_bytes: int) -> CMCQ:
        path = folder / f"model-{n_bytes}.cbm"
        if not path.exists():
            model = CMCQ(n_bits=8 * n_bytes, random_state=0, n_jobs=self.n_jobs, **self.source.parameters)
            model.fit(*self.source.training).save(path)
        return CMCQ.load(path)

    def _write_points(self, folder: Path) -> None:
        source, model = self.source, self._model(folder, LENGTHS[0])
        points = np.concatenate([item_points(model, images=images) for images in source.blocks])
        np.save(folder / "points.npy", points)
        np.save(folder / "queries.npy", model.transform_texts(source.texts))
        np.save(folder / "partners.npy", source.partners)
        if sparse.issparse(source.texts):
            sparse.save_npz(folder / "texts.npz", source.texts)
        else:
            np.save(folder / "texts.npy", source.texts)

    def _write_index(self, n_bytes: int, path: Path) -> None:
        model, first = self._model(self.folder, n_bytes), 0
        with Index.create(path, model, n_jobs=self.n_jobs) as index:
            for images in SETS[self.name](self.n_items).blocks:
                index.add(range(first, first + len(images)), images=images)
                first += len(images)
