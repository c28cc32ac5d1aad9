"""The one door: whatever DATA names, as a collection."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from crossbyte.data.collections.collection import Collection
from crossbyte.data.collections.generated import PREFIX, generated
from crossbyte.data.collections.own import read_own
from crossbyte.data.files.opening import PathLike

__all__ = ["read_collection"]


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
        Of the queries, where the collection has no split of its own, and of what is generated.
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
    if os.fspath(path).startswith(PREFIX):
        return generated(os.fspath(path), seed=seed, held_out=held_out)
    place = Path(path)
    if not place.exists():
        told = f"there is no such file or folder, and generated data is called {PREFIX}wiki or {PREFIX}N"
        raise FileNotFoundError(errno.ENOENT, told, os.fspath(path))
    return read_own(place, name=name, seed=seed, held_out=held_out)
