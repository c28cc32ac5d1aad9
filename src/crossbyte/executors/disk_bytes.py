"""Bytes at places of a file, read and written without a position: threads need not wait for each other.

Nothing is ever mapped into memory: pages of a map count as memory of the process until the system takes them
back, and a bound on memory that holds only on paper is none.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

from crossbyte.errors import StorageFailed, StorageFull

__all__ = ["ScratchFile", "read_at", "write_at"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_one_at_a_time = threading.Lock()  # only for systems without pread, where a read moves the position


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read bytes from a place on until the buffer is full or the file ends; return how many."""
    done = 0
    while done < len(buffer):
        n_read = _read_some(descriptor, buffer[done:], offset + done)
        if not n_read:
            break
        done += n_read
    return done


def write_at(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Write all bytes, from a place on."""
    done = 0
    while done < len(buffer):
        done += _write_some(descriptor, buffer[done:], offset + done)


def _read_some(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    with _one_at_a_time:  # Windows
        os.lseek(descriptor, offset, os.SEEK_SET)
        piece = os.read(descriptor, len(buffer))
    buffer[: len(piece)] = piece
    return len(piece)


def _write_some(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, buffer, offset)
    with _one_at_a_time:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, buffer)


def _usual_folder() -> str:
    """The system's folder for temporary files; there is none where every disk that has one is full."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageFull(
            "scratch: expected a folder for temporary files with space in it, got none: each is full, or "
            "cannot be written to; nothing was changed; make space, or set TMPDIR to a folder that has some"
        ) from error


class ScratchFile:
    """A file without a name; the system takes its bytes back when nobody refers to it, even after a crash.

    Parameters
    ----------
    folder : str or None
        Where; None for the system's folder for temporary files, which ``TMPDIR`` names.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder or _usual_folder()
        with self._explained():
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - lives as long as we
        self._descriptor = file.fileno()
        weakref.finalize(self, file.close)

    def read(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer from a place on."""
        with self._explained():
            n_read = read_at(self._descriptor, buffer, offset)
        if n_read < len(buffer):
            raise StorageFailed(
                f"scratch folder {self._folder}: expected {len(buffer)} bytes at {offset} of a scratch file, "
                f"got {n_read}; look at the disk, then start again"
            )

    def write(self, buffer: memoryview, offset: int) -> None:
        """Write all bytes, from a place on."""
        with self._explained():
            write_at(self._descriptor, buffer, offset)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            if error.errno in _FULL:
                raise StorageFull(
                    f"scratch folder {self._folder}: the disk is full ({why}); nothing was changed; make "
                    "space, or set TMPDIR to a folder with more, or raise max_memory to keep more in memory"
                ) from error
            raise StorageFailed(
                f"scratch folder {self._folder}: expected a folder to read and write scratch files in, but "
                f"the system failed ({why}); set TMPDIR to another one"
            ) from error
