"""The real pairs of features that the benchmarks measure on, read as `crossbyte evaluate` reads them.

The arrays live outside the repository, one folder per dataset with a ``SOURCE.txt`` that says where they
came from. Their root is the environment variable ``CROSSBYTE_DATA``; by default ``shared/data`` beside
the repository.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbyte.lab.datasets.collection import Collection as Dataset
from crossbyte.lab.datasets.collection import Part as Split
from crossbyte.lab.datasets.loader import read_collection
from crossbyte.lab.datasets.pair_file import bag_of_words

__all__ = [
    "Dataset",
    "Split",
    "bag_of_words",
    "data_root",
    "fashion",
    "flickr8k",
    "minilm",
    "places",
    "shares_label",
    "wiki",
]


def data_root() -> Path:
    """Folder that holds the datasets: ``CROSSBYTE_DATA``, or ``shared/data`` beside the repository."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("CROSSBYTE_DATA", beside))


def wiki() -> Dataset:
    """Wikipedia articles: 2173 + 693 pairs, 128 visual words, 10 topics, 10 classes; exactly the paper's."""
    return _read("wiki")


def flickr8k(drop_unlabelled: bool = True) -> Dataset:
    """Photographs with five captions: 7000 + 1000 pairs, 1280 CNN features, 1442 words, 24 concepts.

    Words are those of captions 0 and 1; labels come from captions 2 to 4.

    Parameters
    ----------
    drop_unlabelled : bool, default True
        Leave out pairs without any concept; 6671 + 958 remain.
    """
    data = _read("flickr8k")
    return data.labelled() if drop_unlabelled else data


def fashion() -> Dataset:
    """Product photographs with titles: 40,269 + 2000 pairs, 256 features, 1000 words, 55 kinds of article."""
    return _read("fashion")


def places() -> Dataset:
    """Places of the world: 167,010 + 4000 pairs, 128 features of the location, 4000 words of the names."""
    return _read("places")


def minilm() -> dict[str, NDArray[np.float32]]:
    """MiniLM vectors of Flickr8k's captions one by one: "train" (7000, 5, 384) and "query" (1000, 5, 384)."""
    with np.load(data_root() / "flickr8k" / "minilm.npz") as arrays:
        return {part: arrays[f"text_{part}"].astype(np.float32) for part in ("train", "query")}


def shares_label(query_labels: NDArray[np.uint8], item_labels: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Whether query and item have a label in common: (n_queries, n_items) bool."""
    # float32 counts are exact far beyond any number of labels; a uint8 product could wrap around to zero
    return np.asarray(query_labels.astype(np.float32) @ item_labels.T.astype(np.float32) > 0)


def _read(name: str) -> Dataset:
    """The dataset in ``<root>/<name>/<name>.npz``."""
    path = data_root() / name / f"{name}.npz"
    if not path.is_file():
        raise FileNotFoundError(
            f"the features of '{name}' were expected at {path}, which is no file;"
            " set CROSSBYTE_DATA to the folder that holds one folder per dataset."
        )
    return read_collection(path)
