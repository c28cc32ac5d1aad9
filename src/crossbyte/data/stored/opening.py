"""Open one side's features on disk: a file, or a folder of shards."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from crossbyte.data.files.limits import Limits
from crossbyte.data.files.opening import PathLike, extension, naming
from crossbyte.data.files.reading import read_features
from crossbyte.data.stored.array_file import ArrayFile
from crossbyte.data.stored.joined import JoinedFiles
from crossbyte.data.stored.protocol import StoredRows
from crossbyte.data.stored.spooling import spool
from crossbyte.errors import DataFileError

__all__ = ["open_rows"]

_ENDINGS = (".npy", ".npz", ".parquet")
_DEFAULT = Limits()
_NUMBER = re.compile(r"([0-9]+)")


def open_rows(
    path: PathLike, *, key: str | None = None, limits: Limits = _DEFAULT, scratch: str | None = None
) -> StoredRows:
    """Open the features of one side without reading them into memory; for :meth:`crossbyte.CMCQ.fit`.

    Parameters
    ----------
    path : path of a ``.npy``, ``.npz`` or ``.parquet`` file, or of a folder of such shards
        All shards of a folder have one ending; they are taken in the natural order of their names, ``part-2``
        before ``part-10``. Names that begin with a dot or an underscore, and other endings, are passed over.
        Arrays in ``.npy`` files are read where they are. Archives (sparse matrices of
        ``scipy.sparse.save_npz``, say) and Parquet files are read whole, one at a time, and written to
        scratch files: shards of some hundred megabytes are best.
    key : str, optional
        Which array or column of ``.npz`` and Parquet files that hold several.
    limits : Limits, optional
        For each ``.npz`` and Parquet file.
    scratch : str, optional
        Folder for scratch files; by default the system's for temporary files, which ``TMPDIR`` names.

    Returns
    -------
    StoredRows
        With ``shape`` and ``dtype``; ``rows[10:20]`` are a few rows in memory.

    Raises
    ------
    DataFileError, InvalidInput, MissingExtra, StorageFull, FileNotFoundError, PermissionError
        Also when shards disagree in their width or kind; the message names the shard.
    """
    files = _shards(Path(path)) if os.path.isdir(path) else [Path(path)]
    if extension(files[0]) == ".npy":
        _refuse_key(key)
        opened = [ArrayFile.open(file) for file in files]
        return opened[0] if len(opened) == 1 else JoinedFiles(opened)
    if extension(files[0]) not in _ENDINGS:
        raise DataFileError(
            f"{os.fspath(path)}: expected a file of {', '.join(_ENDINGS)}, or a folder of these; convert it"
        )
    return spool(_read(files, key, limits), os.fspath(path), scratch)


def _shards(folder: Path) -> Sequence[Path]:
    with naming(folder):
        names = [name for name in os.listdir(folder) if not name.startswith((".", "_"))]
        found = [folder / name for name in names if extension(name) in _ENDINGS]
        endings = sorted({extension(file) for file in found})
        if len(endings) != 1:
            there = " and ".join(endings) or ", ".join(sorted(names)[:10]) or "an empty folder"
            raise DataFileError(
                f"expected a folder of shards of one ending ({', '.join(_ENDINGS)}), got {there}; put the "
                "two sides, and everything else, into folders of their own"
            )
    return sorted(found, key=_natural)


def _natural(file: Path) -> tuple[list[Any], str]:
    parts = _NUMBER.split(file.name)  # text and digits in turn, so that equal places compare
    return [int(part) if place % 2 else part for place, part in enumerate(parts)], file.name


def _read(files: Sequence[Path], key: str | None, limits: Limits) -> Iterator[tuple[str, Any]]:
    return ((file.name, read_features(file, key=key, limits=limits)) for file in files)


def _refuse_key(key: str | None) -> None:
    if key is not None:
        raise DataFileError(
            f"expected no key, because a .npy file holds one array, got {key!r}; leave it out"
        )
