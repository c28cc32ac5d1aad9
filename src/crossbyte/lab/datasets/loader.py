"""Load whatever DATA names as a collection, and name it in words that another process can follow."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from crossbyte.data.safe_open import PathLike, file_extension
from crossbyte.errors import DataFileError
from crossbyte.lab.datasets import collection_files, mirflickr, nus_wide, wiki
from crossbyte.lab.datasets.collection import Collection
from crossbyte.lab.datasets.collection_files import ENDINGS, DataFolder
from crossbyte.lab.datasets.generator import PREFIX, generate_collection
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
