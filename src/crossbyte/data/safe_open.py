"""Open a user's file without trusting it, within limits, and name it in every error."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from crossbyte.errors import DataFileError, MissingExtra


class Limits(NamedTuple):
    """The most that reading one file may take; pass other numbers where a file is trusted and larger.

    Attributes
    ----------
    max_bytes : int
        Data of one ``.npy`` array.
    archive_bytes : int
        Everything in one ``.npz``, or everything that one ``.mat`` or Parquet file gives.
    archive_ratio : int
        Those bytes over the size of the file, once they pass 16 MiB.
    archive_members : int
        Arrays in one ``.npz``, variables in one ``.mat`` file.
    text_bytes : int
        Size of a CSV or JSON-lines file.
    rows : int
        Rows of a CSV, JSON-lines or Parquet file.
    columns : int
        Columns of a CSV or Parquet file.
    field_chars : int
        Characters of one CSV field. The standard library's own limit is the default, and binds too.
    line_bytes : int
        Bytes of one line of text.
    depth : int
        Levels of one JSON object.
    mat_memory, parquet_memory : int
        Address space of the process that parses, in bytes, libraries included.
    child_seconds : int
        CPU time of that process. Small files get less: 3 s and 1 s for each 4 MiB.
    """

    max_bytes: int = 4 * 2**30
    archive_bytes: int = 2**30
    archive_ratio: int = 100
    archive_members: int = 64
    text_bytes: int = 2**29
    rows: int = 10_000_000
    columns: int = 20_000
    field_chars: int = 131_072
    line_bytes: int = 2**24
    depth: int = 32
    mat_memory: int = 2**30
    parquet_memory: int = 3 * 2**29
    child_seconds: int = 20

    def unpacked(self, file_bytes: int) -> int:
        """Return how many bytes a file of ``file_bytes`` may unpack to."""
        # A ratio means nothing in small files: an array of ones shrinks 1,000 times.
        return min(self.archive_bytes, max(16 * 2**20, self.archive_ratio * file_bytes))


PathLike = str | os.PathLike[str]

# Without O_NONBLOCK, opening a named pipe waits for a writer for ever.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class OpenFile(NamedTuple):
    """An open regular file and its size in bytes, both from one descriptor."""

    file: BufferedReader
    size: int


def file_extension(path: PathLike) -> str:
    """Return the ending of a file name in small letters, with its dot."""
    return Path(path).suffix.lower()


@contextmanager
def open_regular(path: PathLike) -> Iterator[OpenFile]:
    """Open a regular file for reading, links followed; refuse everything else without waiting for it."""
    descriptor = os.open(path, _FLAGS)
    try:
        size = _regular_size(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield OpenFile(file, size)


def _regular_size(descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise DataFileError(
            f"expected a regular file, got {_describe_kind(status.st_mode)}; write the data to one"
        )
    return status.st_size


def _describe_kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"


@contextmanager
def file_errors(path: PathLike) -> Iterator[None]:
    """Turn whatever goes wrong with a file into a `DataFileError` that begins with the file's name.

    A missing file stays ``FileNotFoundError``, a forbidden one ``PermissionError``.
    """
    try:
        yield
    except (MissingExtra, FileNotFoundError, PermissionError):
        raise
    except DataFileError as error:
        raise DataFileError(f"{os.fspath(path)}: {error}") from error
    except OSError as error:
        why = error.strerror or type(error).__name__
        raise DataFileError(
            f"{os.fspath(path)}: cannot be opened or read ({why}); check path and disk"
        ) from error
    except MemoryError as error:
        raise DataFileError(f"{os.fspath(path)}: does not fit into memory; split the file") from error
    except Exception as error:  # damaged files raise whatever the standard library likes
        what = f"{type(error).__name__}: {error}"[:300]
        raise DataFileError(f"{os.fspath(path)}: cannot be read ({what}); write the file anew") from error
