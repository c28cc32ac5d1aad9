"""Open a user's file without trusting it, and name it in every error."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import NamedTuple

from crossbyte.errors import DataFileError, MissingExtra

__all__ = ["Opened", "PathLike", "extension", "naming", "open_regular"]

PathLike = str | os.PathLike[str]

# Without O_NONBLOCK, opening a named pipe waits for a writer for ever.
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0)


class Opened(NamedTuple):
    """An open regular file and its size in bytes, both from one descriptor."""

    file: BufferedReader
    size: int


def extension(path: PathLike) -> str:
    """Return the ending of a file name in small letters, with its dot."""
    return Path(path).suffix.lower()


@contextmanager
def open_regular(path: PathLike) -> Iterator[Opened]:
    """Open a regular file for reading, links followed; refuse everything else without waiting for it."""
    descriptor = os.open(path, _FLAGS)
    try:
        size = _regular_size(descriptor)
    except BaseException:
        os.close(descriptor)
        raise
    with os.fdopen(descriptor, "rb") as file:
        yield Opened(file, size)


def _regular_size(descriptor: int) -> int:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        raise DataFileError(f"expected a regular file, got {_kind(status.st_mode)}; write the data to one")
    return status.st_size


def _kind(mode: int) -> str:
    if stat.S_ISDIR(mode):
        return "a directory"
    return "a pipe" if stat.S_ISFIFO(mode) else "a device or socket"


@contextmanager
def naming(path: PathLike) -> Iterator[None]:
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
