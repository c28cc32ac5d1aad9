"""Find the files of a published collection in a folder, wherever its archives put them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

from crossbyte.errors import DataFileError

__all__ = ["Folder", "Source", "list_folder"]

_ENDINGS = (".mat", ".npz", ".npy", ".parquet", ".list", ".dat", ".txt")
_DEPTH = 3  # archives unpack into up to three folders


class Source(NamedTuple):
    """What is expected of a folder, and where it comes from; for messages."""

    title: str
    page: str


class Folder(NamedTuple):
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

    def require(self, source: Source, *patterns: str) -> list[Path]:
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


def list_folder(path: Path) -> Folder:
    """List the data files of a folder and of the folders in it, three deep."""
    found = sorted(_files(path, _DEPTH), key=lambda file: (len(file.parts), str(file)))
    return Folder(path, tuple(found))


def _files(path: Path, depth: int) -> Iterator[Path]:
    with os.scandir(path) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                if depth:
                    yield from _files(Path(entry.path), depth - 1)
            elif entry.name.lower().endswith(_ENDINGS):
                yield Path(entry.path)
