"""The real pairs of features that the benchmarks measure on.

The arrays live outside the repository, one folder per dataset with a ``SOURCE.txt`` that says where they
came from. Their root is the environment variable ``CROSSBYTE_DATA``; by default ``shared/data`` beside
the repository.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer

__all__ = ["Dataset", "Split", "bag_of_words", "data_root", "fashion", "flickr8k", "shares_label", "wiki"]

FLICKR_WORDS = r"(?u)\b\w\w+\b"  # scikit-learn's default
FASHION_WORDS = r"[a-z][a-z\-]+"


@dataclass(frozen=True)
class Split:
    """Pairs of one split; row i of everything belongs to pair i.

    Attributes
    ----------
    images : (n, image_dim) float32
    texts : (n, text_dim) float32
        ``csr_array`` of zeros and ones, or a dense array (Wiki's topics).
    labels : (n, n_labels) uint8
        One column per class or concept, several of which may be set.
    captions : (n, n_captions) str, or None
        The words behind ``texts``, where they are known.
    """

    images: NDArray[np.float32]
    texts: Any
    labels: NDArray[np.uint8]
    captions: NDArray[np.str_] | None = None

    def __len__(self) -> int:
        return len(self.images)

    def take(self, rows: NDArray[Any]) -> Split:
        """The chosen rows (numbers or a mask) as a new split."""
        captions = None if self.captions is None else self.captions[rows]
        return Split(self.images[rows], self.texts[rows], self.labels[rows], captions)


@dataclass(frozen=True)
class Dataset:
    """A training set, which is also the paper's database, and the queries.

    Attributes
    ----------
    name : str
    train, query : Split
    label_names : list of str
        Meaning of the columns of ``labels``.
    vocabulary : list of str, or None
        Meaning of the columns of ``texts``, where they are words.
    token_pattern : str
        What counts as a word in the captions; for :func:`bag_of_words`.
    """

    name: str
    train: Split
    query: Split
    label_names: list[str]
    vocabulary: list[str] | None = None
    token_pattern: str = FLICKR_WORDS


def data_root() -> Path:
    """Folder that holds the datasets: ``CROSSBYTE_DATA``, or ``shared/data`` beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("CROSSBYTE_DATA", beside))


def wiki() -> Dataset:
    """Wikipedia articles: 2173 + 693 pairs, 128 visual words, 10 topics, 10 classes; exactly the paper's."""
    arrays = _load("wiki")
    train, query = (
        Split(arrays[f"image_{split}"], arrays[f"text_{split}"], arrays[f"label_{split}"])
        for split in ("train", "query")
    )
    return Dataset("wiki", train, query, arrays["class_names"].tolist())


def flickr8k(drop_unlabelled: bool = True) -> Dataset:
    """Photographs with five captions: 7000 + 1000 pairs, 1280 CNN features, 1442 words, 24 concepts.

    Words are those of captions 0 and 1; labels come from captions 2 to 4.

    Parameters
    ----------
    drop_unlabelled : bool, default True
        Leave out pairs without any concept; 6671 + 958 remain.
    """
    arrays = _load("flickr8k")
    train, query = (
        Split(
            arrays[f"image_{split}"].astype(np.float32),
            _csr(arrays, split),
            arrays[f"label_{split}"],
            arrays[f"captions_{split}"],
        )
        for split in ("train", "query")
    )
    if drop_unlabelled:
        train, query = (split.take(split.labels.sum(axis=1) > 0) for split in (train, query))
    names, vocabulary = arrays["label_names"].tolist(), arrays["vocabulary"].tolist()
    return Dataset("flickr8k", train, query, names, vocabulary)


def fashion() -> Dataset:
    """Product photographs with titles: 40,269 + 2000 pairs, 256 features, 1000 words, 55 kinds of article."""
    arrays = _load("fashion")
    kinds = np.eye(len(arrays["class_names"]), dtype=np.uint8)
    train, query = (
        Split(
            arrays[f"image_{split}"].astype(np.float32),
            _csr(arrays, split),
            kinds[arrays[f"class_{split}"]],
            arrays[f"title_{split}"][:, None],
        )
        for split in ("train", "query")
    )
    names, vocabulary = arrays["class_names"].tolist(), arrays["vocabulary"].tolist()
    return Dataset("fashion", train, query, names, vocabulary, FASHION_WORDS)


def bag_of_words(
    captions: NDArray[np.str_],
    vocabulary: Sequence[str],
    columns: Sequence[int],
    token_pattern: str = FLICKR_WORDS,
) -> Any:
    """Binary bag of words of the chosen captions of each pair, tokenised as the stored one.

    With columns 0 and 1 it reproduces Flickr8k's ``texts`` exactly; with column 0 and ``FASHION_WORDS``
    Fashion's.

    Parameters
    ----------
    captions : (n, n_captions) str
    vocabulary : sequence of str
        Word of each column of the result; other words are ignored.
    columns : sequence of int
        Which captions of each pair to use, together.
    token_pattern : str
        Regular expression of a word, applied in lower case.

    Returns
    -------
    csr_array (n, len(vocabulary)) float32
    """
    counter = CountVectorizer(
        vocabulary={word: column for column, word in enumerate(vocabulary)},
        token_pattern=token_pattern,
        binary=True,
        dtype=np.float32,
    )
    bags = sp.csr_array(counter.transform([" ".join(row) for row in captions[:, list(columns)]]))
    bags.sort_indices()
    return bags


def shares_label(query_labels: NDArray[np.uint8], item_labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether query and item have a label in common: (n_queries, n_items) bool."""
    # float32 counts are exact far beyond any number of labels; a uint8 product could wrap around to zero
    return np.asarray(query_labels.astype(np.float32) @ item_labels.T.astype(np.float32) > 0)


def _load(name: str) -> dict[str, NDArray[Any]]:
    """All arrays of ``<root>/<name>/<name>.npz``."""
    path = data_root() / name / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"the features of '{name}' were expected at {path}, which is no file;"
            " set CROSSBYTE_DATA to the folder that holds one folder per dataset."
        )
    with np.load(path, allow_pickle=False) as arrays:
        return dict(arrays)


def _csr(arrays: dict[str, NDArray[Any]], split: str) -> Any:
    """The sparse texts of one split as csr_array float32."""
    data, indices, indptr, shape = (
        arrays[f"text_{split}_{part}"] for part in ("data", "indices", "indptr", "shape")
    )
    return sp.csr_array((data.astype(np.float32), indices, indptr), shape=tuple(shape.tolist()))
