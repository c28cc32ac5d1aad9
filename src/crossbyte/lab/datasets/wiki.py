"""Read Wiki as Rasiwasia and others published it: features in ``raw_features.mat``, classes in two lists."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.safe_open import file_errors, open_regular
from crossbyte.data.tables import read_lines
from crossbyte.errors import DataFileError
from crossbyte.lab.datasets import collection_files
from crossbyte.lab.datasets.collection import Collection, make_collection, make_part
from crossbyte.lab.datasets.collection_files import DataFolder

MARKS = ("raw_features.mat", "wikiData.mat", "trainset_txt_img_cat.list", "testset_txt_img_cat.list")
_SOURCE = collection_files.PublishedSource(
    "Wiki as published (or wikiData.mat with I_tr, T_tr, L_tr, I_te, T_te, L_te alone)",
    "http://www.svcl.ucsd.edu/projects/crossmodal/ (Wikipedia)",
)
_LISTS = ("trainset_txt_img_cat.list", "testset_txt_img_cat.list")
_NOTE = "Wikipedia articles with SIFT words and topics, in the published split"


def read_wiki(
    folder: DataFolder, name: str | None = None, *, seed: int = 0, held_out: float = 0.1
) -> Collection:
    """Read the published folder; its split is its own, so seed and share change nothing.

    Parameters
    ----------
    folder : DataFolder
        With ``raw_features.mat`` (I_tr, I_te, T_tr, T_te), the two lists of text, image and category, and
        perhaps ``categories.list``; or with ``wikiData.mat``.
    name : str, optional
    seed, held_out : int, float
        As of every reader.

    Returns
    -------
    Collection

    Raises
    ------
    DataFileError
    """
    whole = folder.find("wikiData.mat")
    if whole is not None and folder.find("raw_features.mat") is None:
        with collection_files.open_contents(whole) as contents:
            return collection_files.read_bundle(
                contents, whole.stem, name or "wiki", seed=seed, held_out=held_out
            )
    features, *lists = folder.require(_SOURCE, "raw_features.mat", *_LISTS)
    numbers = [_read_categories(path) for path in lists]
    names = _read_category_names(folder, max(int(each.max()) for each in numbers))
    labels, label_names = collection_files.to_label_columns([each - 1 for each in numbers], "category", names)
    with collection_files.open_contents(features) as contents:
        parts = [
            make_part(
                collection_files.read_matrix(contents, f"I_{end}"),
                collection_files.read_matrix(contents, f"T_{end}"),
                each,
            )
            for end, each in zip(("tr", "te"), labels, strict=True)
        ]
    with collection_files.name_input_in_errors(folder.path):
        return make_collection(name or "wiki", parts[0], parts[1], label_names, _NOTE)


def _read_categories(path: Path) -> NDArray[np.int64]:
    """Return the category of each line, from 1 on."""
    with file_errors(path), open_regular(path) as opened:
        found = [
            _parse_category(number, line)
            for number, line in enumerate(read_lines(opened, collection_files.LIMITS), 1)
        ]
        if not found:
            raise DataFileError("expected a line for each pair, got an empty file")
    return np.array(found, dtype=np.int64)


def _parse_category(number: int, line: str) -> int:
    fields = line.split()
    if len(fields) != 3 or not (
        fields[2].isascii() and fields[2].isdigit() and 1 <= int(fields[2][:9]) <= 999
    ):
        raise DataFileError(
            f"line {number}: expected a text, an image and the number of a category (1, 2, …), got "
            f"{line.strip()[:60]!r}"
        )
    return int(fields[2])


def _read_category_names(folder: DataFolder, n_categories: int) -> list[str]:
    """Return what the categories are called: by their list, where there is a whole one."""
    path = folder.find("categories.list")
    numbers = [str(number) for number in range(1, n_categories + 1)]
    if path is None:
        return numbers
    with file_errors(path), open_regular(path) as opened:
        names = [line.strip() for line in read_lines(opened, collection_files.LIMITS) if line.strip()]
        if len(names) < n_categories:
            raise DataFileError(f"expected the names of {n_categories} categories, got {len(names)}")
    return names
