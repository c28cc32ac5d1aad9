"""Find and open the files of a published collection: arrays, folders, labels, and bundles of all parts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Raw
from crossbyte.data.contents import Contents, read_sparse
from crossbyte.data.mat import read_mat
from crossbyte.data.npz import read_npz
from crossbyte.data.parquet import read_parquet
from crossbyte.data.safe_open import Limits, file_errors, file_extension, open_regular
from crossbyte.errors import DataFileError, InvalidInput
from crossbyte.lab.datasets.collection import (
    Collection,
    Part,
    make_collection,
    make_part,
    split_part,
    to_sparse_if_thin,
)

ENDINGS = (".npz", ".mat", ".parquet")

_GIB = 2**30
LIMITS = Limits(
    archive_bytes=4 * _GIB,
    text_bytes=2 * _GIB,
    mat_memory=10 * _GIB,
    parquet_memory=6 * _GIB,
    child_seconds=300,
)
"""NUS-WIDE as one ``.mat`` file of float64 is 2.2 GB, and its reader holds it twice."""


@contextmanager
def open_contents(path: Path) -> Iterator[Contents]:
    """Open a ``.npz``, ``.mat`` or ``.parquet`` file; every failure inside begins with its name."""
    with name_input_in_errors(path), open_regular(path) as opened:
        form = file_extension(path)
        if form not in ENDINGS:
            raise DataFileError(
                f"expected a file of pairs that ends in {', '.join(ENDINGS)}, or a folder; got "
                f"{form[:20] or 'no ending'!r}; put both sides into one .npz (docs/collections.md)"
            )
        if form == ".npz":
            yield read_npz(opened, LIMITS)
        else:
            yield (read_mat if form == ".mat" else read_parquet)(opened, LIMITS)


@contextmanager
def name_input_in_errors(path: Path) -> Iterator[None]:
    """Put the name of a file or folder before whatever is wrong with it, its values included."""
    with file_errors(path):
        try:
            yield
        except DataFileError:
            raise
        except InvalidInput as error:
            raise DataFileError(str(error)) from error


def read_matrix(contents: Contents, name: str) -> Raw:
    """Read a matrix of numbers by its name, dense or sparse.

    Parameters
    ----------
    contents : Contents
    name : str

    Returns
    -------
    (n, d) ndarray or csr_matrix

    Raises
    ------
    DataFileError
        Not there, or something else; the message names it.
    """
    if contents.has_sparse(name):
        return read_sparse(contents, name)
    values = contents.array(name)
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"{name}: expected a matrix of numbers (rows × features), got {contents.entries[name]}"
        )
    return values


# Folders of published collections

_LISTED = (".mat", ".npz", ".npy", ".parquet", ".list", ".dat", ".txt")
_FOLDER_DEPTH = 3  # archives unpack into up to three folders


class PublishedSource(NamedTuple):
    """What is expected of a folder, and where it comes from; for messages."""

    title: str
    page: str


class DataFolder(NamedTuple):
    """The data files below a folder; those nearest to its top come first.

    Attributes
    ----------
    path : Path
    files : tuple of Path
    """

    path: Path
    files: tuple[Path, ...]

    def all(self, pattern: str, parent: str = "*") -> list[Path]:
        """Return the files whose name, and whose folder's name, match, in the order of their names.

        Only those of one folder, the first that has any: copies elsewhere are left alone.
        """
        found = [
            file
            for file in self.files
            if fnmatch(file.name.lower(), pattern.lower())
            and fnmatch(file.parent.name.lower(), parent.lower())
        ]
        return sorted(file for file in found if file.parent == found[0].parent)

    def find(self, *patterns: str) -> Path | None:
        """Return the first file that matches one of the patterns, in their order."""
        return next((file for pattern in patterns for file in self.all(pattern)), None)

    def require(self, source: PublishedSource, *patterns: str) -> list[Path]:
        """Return one file for each pattern, or say which are missing and where they come from.

        Raises
        ------
        DataFileError
        """
        found = {pattern: self.find(pattern) for pattern in patterns}
        missing = [pattern for pattern, file in found.items() if file is None]
        if missing:
            raise DataFileError(
                f"{self.path}: expected the files of {source.title}: {', '.join(patterns)}; missing: "
                f"{', '.join(missing)}; they come from {source.page}"
            )
        return [file for file in found.values() if file is not None]


def list_folder(path: Path) -> DataFolder:
    """List the data files of a folder and of the folders in it, three deep."""
    found = sorted(_walk_files(path, _FOLDER_DEPTH), key=lambda file: (len(file.parts), str(file)))
    return DataFolder(path, tuple(found))


def _walk_files(path: Path, depth: int) -> Iterator[Path]:
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth:
                    yield from _walk_files(Path(entry.path), depth - 1)
            elif entry.name.lower().endswith(_LISTED):
                yield Path(entry.path)


# Labels

LabelMatrix = NDArray[np.uint8]

_MOST_LABELS = 5000  # a label of its own for each document would take a square of memory


def to_label_columns(
    parts: Sequence[Any], key: str, names: Sequence[str] = ()
) -> tuple[list[LabelMatrix], tuple[str, ...]]:
    """Turn the labels of several parts into matrices with the same columns.

    Parameters
    ----------
    parts : sequence of array or list
        For each part: (n, n_labels) zeros and ones; or one class for each document, a whole number or a
        string; or a list of classes for each. -1, nothing and an empty string are no label.
    key : str
        What the labels are called in the file, for messages.
    names : sequence of str
        Names of the columns; of the classes 0, 1, … where these are whole numbers.

    Returns
    -------
    list of (n, n_labels) uint8, and the tuple of names

    Raises
    ------
    DataFileError
    """
    arrays = [values if isinstance(values, np.ndarray) else None for values in parts]
    if all(array is not None and array.ndim == 2 and min(array.shape) > 1 for array in arrays):
        return _label_matrices([array for array in arrays if array is not None], key, names)
    return _class_columns([_class_rows(values, key) for values in parts], key, names)


def _label_matrices(
    parts: list[NDArray[Any]], key: str, names: Sequence[str]
) -> tuple[list[LabelMatrix], tuple[str, ...]]:
    widths = {values.shape[1] for values in parts}
    if len(widths) > 1:
        raise DataFileError(f"{key}: expected as many columns in every part, got {sorted(widths)}")
    for values in parts:
        # NaN is neither; -1 for absent is known too, but then 0 is not, and a file that has both is unclear
        if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
            raise DataFileError(f"{key}: expected a table of zeros and ones, got other values; write 0 and 1")
    found = [values.astype(np.uint8) for values in parts]
    width = widths.pop()
    return found, tuple(names) if len(names) == width else tuple(map(str, range(width)))


def _class_rows(values: Any, key: str) -> list[list[str | int]]:
    """Return the classes of each document."""
    listed = values.reshape(-1).tolist() if isinstance(values, np.ndarray) else values
    return [
        [kept for kept in (_check_class(each, key) for each in _as_list(value)) if kept is not None]
        for value in listed
    ]


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _check_class(value: Any, key: str) -> str | int | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # MATLAB's whole numbers are floats
    if value is None or value == "" or value != value or (type(value) is int and value == -1):
        return None
    if not isinstance(value, str | int):
        raise DataFileError(f"{key}: expected whole numbers or strings, got {value!r:.60}")
    return value if isinstance(value, str) else int(value)


def _class_columns(
    parts: list[list[list[str | int]]], key: str, names: Sequence[str]
) -> tuple[list[LabelMatrix], tuple[str, ...]]:
    present = {value for rows in parts for row in rows for value in row}
    if len({type(value) for value in present}) > 1:
        raise DataFileError(f"{key}: expected labels of one kind, got numbers and strings; use strings")
    if len(present) > _MOST_LABELS:
        raise DataFileError(
            f"{key}: expected at most {_MOST_LABELS} different labels, got {len(present)}; are they "
            "captions? give them another name"
        )
    if not present:
        raise DataFileError(f"{key}: expected labels, got none in any row; leave the key out")
    order = _order_classes(present, key, names)
    return [_one_hot(rows, order) for rows in parts], tuple(
        str(names[place]) if names and isinstance(value, int) else str(value)
        for place, value in enumerate(order)
    )


def _order_classes(present: set[str | int], key: str, names: Sequence[str]) -> list[str | int]:
    """Return the class of each column: all that have a name, or all that are there."""
    if not names or not all(isinstance(value, int) for value in present):
        return sorted(present, key=lambda value: (isinstance(value, str), value))
    wrong = sorted(value for value in present if not (isinstance(value, int) and 0 <= value < len(names)))
    if wrong:
        raise DataFileError(
            f"{key}: expected class numbers from 0 to {len(names) - 1} ({len(names)} names), got {wrong[0]!r}"
        )
    return list(range(len(names)))


def _one_hot(rows: list[list[str | int]], order: list[str | int]) -> LabelMatrix:
    column = {value: place for place, value in enumerate(order)}
    cells = [(number, column[value]) for number, row in enumerate(rows) for value in row]
    labels = np.zeros((len(rows), len(order)), dtype=np.uint8)
    if cells:
        labels[tuple(np.array(cells).T)] = 1
    return labels


# Bundles: all parts in one file, under the names that research code uses

_SPLIT = (("I_tr", "T_tr", "L_tr"), ("I_te", "T_te", "L_te"))
_WHOLE = ("XAll", "YAll", "LAll")
_PAPER = {(128, 10, 10): "wiki", (3857, 2000, 38): "mirflickr", (500, 1000, 10): "nus-wide"}
_MOST_QUERIES = {"nus-wide": 4000}


def is_bundle(contents: Contents) -> bool:
    """Whether the names in a file are those of a bundle."""
    names = {name.split("_data")[0] for name in contents.entries}
    return bool(names & {"I_tr", "T_tr", "I_te", "T_te"}) or {"XAll", "YAll"} <= names


def read_bundle(contents: Contents, stem: str, name: str | None, *, seed: int, held_out: float) -> Collection:
    """Read both sides and labels of a bundle.

    Parameters
    ----------
    contents : Contents
    stem : str
        The name of the file, for a collection of no known shape.
    name : str or None
        Overrides both; None: after the shape of one of the paper's sets, where it is one, else the stem.
    seed, held_out : int, float
        Seed and share of the queries, where the file has no split.

    Returns
    -------
    Collection

    Raises
    ------
    InvalidInput
        DataFileError, where a variable is missing or not what it should be.
    """
    if _has_array(contents, "XAll"):
        (part,), names = _read_parts(contents, [_WHOLE])
        title = name or _paper_title(part) or stem
        most = _MOST_QUERIES.get(title)
        parts = [*split_part(part, seed=seed, held_out=held_out, at_most=most)]
    else:
        parts, names = _read_parts(contents, _SPLIT)
        title = name or _paper_title(parts[0]) or stem
    return make_collection(
        title, parts[0], parts[1], names, "read from one file as research code passes it on"
    )


def _has_array(contents: Contents, name: str) -> bool:
    return name in contents.entries or contents.has_sparse(name)


def _paper_title(part: Part) -> str | None:
    n_labels = 0 if part.labels is None else part.labels.shape[1]
    return _PAPER.get((part.images.shape[1], part.texts.shape[1], n_labels))


def _read_parts(contents: Contents, wanted: Any) -> tuple[list[Part], tuple[str, ...]]:
    missing = [name for names in wanted for name in names if not _has_array(contents, name)]
    without_labels = all(name.startswith("L") for name in missing) and len(missing) == len(wanted)
    if missing and not without_labels:
        raise DataFileError(
            f"expected {', '.join(name for names in wanted for name in names)} (the labels, in L, may all be "
            f"missing); missing: {', '.join(missing)}; there are: {contents.listing()}"
        )
    sides = [
        make_part(read_matrix(contents, i), to_sparse_if_thin(read_matrix(contents, t)), None)
        for i, t, _ in wanted
    ]
    if missing:
        return sides, ()
    labels, names = to_label_columns([_read_dense(contents, key) for *_, key in wanted], wanted[0][2])
    return [make_part(part.images, part.texts, each) for part, each in zip(sides, labels, strict=True)], names


def _read_dense(contents: Contents, name: str) -> NDArray[Any]:
    values = read_matrix(contents, name)
    return values.toarray() if isinstance(values, sparse.csr_matrix) else values
