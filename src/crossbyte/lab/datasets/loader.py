"""Load whatever DATA names as a collection, and name it in words that another process can follow."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from crossbyte.data.safe_open import PathLike, file_extension
from crossbyte.data.synthetic import LabelledPairs, make_labelled_pairs
from crossbyte.errors import DataFileError, InvalidInput
from crossbyte.lab.datasets import collection_files, mirflickr, nus_wide, wiki
from crossbyte.lab.datasets.collection import Collection, Part, make_collection
from crossbyte.lab.datasets.collection_files import ENDINGS, DataFolder
from crossbyte.lab.datasets.pair_file import read_pair_file
from crossbyte.validation import check_number

_FORMS: dict[str, tuple[tuple[str, ...], Callable[..., Collection]]] = {
    "wiki": (wiki.MARKS, wiki.read_wiki),
    "mirflickr": (mirflickr.MARKS, mirflickr.read_mirflickr),
    "nus-wide": (nus_wide.MARKS, nus_wide.read_nus_wide),
}
"""Published folders: the files that they are known by, and who reads them."""


def read_collection(
    path: PathLike, *, name: str | None = None, seed: int = 0, held_out: float = 0.1
) -> Collection:
    """Read or generate what DATA names on the command line.

    Parameters
    ----------
    path : path or str
        A file of pairs (``.npz``, ``.mat``, ``.parquet``), the folder of a published collection, or
        ``generated:wiki``, ``generated:flickr25k``, ``generated:nus-wide`` or ``generated:N``;
        docs/collections.md lists the exact files.
    name : str, optional
        What the collection is called; by default after the form or the file. Among ``wiki``, ``mirflickr``
        and ``nus-wide`` it also says as what a folder shall be read.
    seed : int, default 0
        Seed of the choice of queries, where the collection has no split, and of what is generated.
    held_out : float, default 0.1
        Share of the groups that become queries, where the collection has no split of its own.

    Returns
    -------
    Collection

    Raises
    ------
    DataFileError
        A file is missing from a folder, damaged, or not what was expected; the message begins with its name.
    InvalidInput, MissingExtra, FileNotFoundError, PermissionError
    """
    check_number(held_out, "held_out", 0.0, 1.0, open_low=True)
    if os.fspath(path).startswith(PREFIX):
        drawn = generate_collection(os.fspath(path), seed=seed, held_out=held_out)
        return drawn if name is None else replace(drawn, name=name)
    place = Path(path)
    if place.is_dir():
        return _read_folder(collection_files.list_folder(place), name, seed, held_out)
    if not place.exists():
        reason = f"there is no such file or folder, and generated data is called {PREFIX}wiki or {PREFIX}N"
        raise FileNotFoundError(errno.ENOENT, reason, os.fspath(path))
    return _read_file(place, name, seed, held_out)


def _read_file(path: Path, name: str | None, seed: int, held_out: float) -> Collection:
    with collection_files.open_contents(path) as contents:
        if collection_files.is_bundle(contents):
            return collection_files.read_bundle(contents, path.stem, name, seed=seed, held_out=held_out)
        return read_pair_file(contents, name or path.stem, seed=seed, held_out=held_out)


def _read_folder(folder: DataFolder, name: str | None, seed: int, held_out: float) -> Collection:
    """Read the published form that the user named, or that the files look like, or the only file."""
    form = name if name in _FORMS else _published_form(folder)
    if form is not None:
        _, read = _FORMS[form]
        return read(folder, name, seed=seed, held_out=held_out)
    alone = [file for file in folder.files if file.parent == folder.path and file_extension(file) in ENDINGS]
    if len(alone) != 1:
        raise DataFileError(
            f"{folder.path}: expected the published files of Wiki, MIRFlickr-25K or NUS-WIDE, or one file "
            f"that ends in {', '.join(ENDINGS)}; got {len(alone)} such files and none of the published ones; "
            "docs/collections.md lists their names"
        )
    return _read_file(alone[0], name, seed, held_out)


def _published_form(folder: DataFolder) -> str | None:
    return next((form for form, (marks, _) in _FORMS.items() if folder.find(*marks) is not None), None)


@dataclass(frozen=True)
class DataSource:
    """What DATA names on the command line.

    Attributes
    ----------
    data : str
        A file, a folder, or ``generated:…``.
    name : str or None
        What the collection shall be called.
    seed : int
        Seed of the split, where the data have none, and of what is generated.
    """

    data: str
    name: str | None = None
    seed: int = 0

    def read(self) -> Collection:
        """Read or generate it: the same each time, in whatever process."""
        return read_collection(self.data, name=self.name, seed=self.seed)


# Generated data, with known structure: at the shapes of the paper's three sets, or of any size. They show
# sizes, times and that a method finds structure; scores on them say nothing about the real sets.

PREFIX = "generated:"
_SMALLEST = 20


class _Shape(NamedTuple):
    """Sizes of a collection, and how its pairs are drawn."""

    n_train: int
    n_query: int
    image_dim: int
    text_dim: int
    drawn: dict[str, Any]
    note: str


_SHAPES = {
    "wiki": _Shape(
        *(2173, 693, 128, 10),
        {"n_labels": 10, "image_words": 250.0},
        "generated at the shape of Wiki: counts of visual words, shares of topics, one class each",
    ),
    "flickr25k": _Shape(
        *(22_500, 2_500, 3857, 2000),
        {"n_labels": 38, "labels_per_pair": 4.0, "text_words": 5.4},
        "generated at the shape of MIRFlickr-25K: dense features, about 5 tags, several labels",
    ),
    "nus-wide": _Shape(
        *(182_577, 4_000, 500, 1000),
        {"n_labels": 10, "labels_per_pair": 1.7, "image_words": 250.0, "text_words": 6.3},
        "generated at the shape of NUS-WIDE: counts of visual words, about 6 tags, several concepts",
    ),
}


def generate_collection(shape: str | int, *, seed: int = 0, held_out: float = 0.1) -> Collection:
    """Draw a collection whose right answer is known.

    Parameters
    ----------
    shape : {"wiki", "flickr25k", "nus-wide"} or int
        The shape of one of the paper's sets; or a number of pairs, of 256 dense image features and 1000
        words, with several of 10 labels. ``generated:`` may stand before it.
    seed : int, default 0
        The same seed gives the same collection.
    held_out : float, default 0.1
        Share of the queries among a number of pairs; the paper's sets have their own.

    Returns
    -------
    Collection
        Every document has a label, and one other text.

    Raises
    ------
    InvalidInput
        Neither a shape that is known nor a number of at least 20 pairs.
    """
    key = str(shape).removeprefix(PREFIX)
    wanted = _SHAPES.get(key) or _shape_of_size(key, held_out)
    n_pairs = wanted.n_train + wanted.n_query
    pairs = make_labelled_pairs(n_pairs, wanted.image_dim, wanted.text_dim, random_state=seed, **wanted.drawn)
    train, query = _take_part(pairs, 0, wanted.n_train), _take_part(pairs, wanted.n_train, n_pairs)
    name = f"generated-{key}"
    names = tuple(f"label {number}" for number in range(wanted.drawn["n_labels"]))
    return make_collection(name, train, query, names, wanted.note)


def _shape_of_size(key: str, held_out: float) -> _Shape:
    number = int(key) if re.fullmatch(r"\d{1,9}", key, re.ASCII) else 0
    if number < _SMALLEST:
        raise InvalidInput(
            f"expected {PREFIX}{f', {PREFIX}'.join(_SHAPES)}, or {PREFIX}N with N pairs, "
            f"at least {_SMALLEST}; got {PREFIX}{key[:40]}"
        )
    if not 0 < held_out < 1:
        raise InvalidInput(f"held_out: expected a share above 0 and below 1, got {held_out:g}")
    n_query = min(max(round(held_out * number), 1), number - 1)
    drawn = {"n_labels": 10, "labels_per_pair": 1.7, "text_words": 12.0}
    note = "generated: dense image features, about 11 words, several labels"
    return _Shape(number - n_query, n_query, 256, 1000, drawn, note)


def _take_part(pairs: LabelledPairs, start: int, end: int) -> Part:
    rows = slice(start, end)
    # a slice of an array is a view of the whole, which would keep the other part alive
    images = np.ascontiguousarray(pairs.images[rows])
    return Part(images, pairs.texts[rows], pairs.labels[rows], (pairs.other_texts[rows],))
