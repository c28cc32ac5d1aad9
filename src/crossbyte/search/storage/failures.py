"""What SQLite and the system report, in crossbyte's own errors: the one place where they are matched."""

from __future__ import annotations

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

from crossbyte.errors import (
    DamagedIndexFile,
    ForeignIndexFile,
    IndexBusy,
    InvalidInput,
    ReadOnlyIndex,
    StorageFailed,
    StorageFull,
)

__all__ = ["damaged", "foreign", "primary_code", "translated", "translated_system"]

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MEMORY = (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR_NOMEM)
_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def damaged(path: str, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise DamagedIndexFile, saying what disagrees."""
    message = f"{path}: the index is damaged: {what}; restore it from a backup or build it again"
    raise DamagedIndexFile(message) from cause


def foreign(path: str, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise ForeignIndexFile, saying what the file is instead."""
    raise ForeignIndexFile(f"{path}: expected a crossbyte index, but {what}; check the path") from cause


@contextmanager
def translated(path: str, *, writing: bool) -> Iterator[None]:
    """Turn errors of sqlite3 within this block into crossbyte's.

    Parameters
    ----------
    path : str
        The file, for messages.
    writing : bool
        Whether the block writes; a block that only reads has more errors that can only mean damage.
    """
    try:
        yield
    except (sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise  # a fault of ours, not of the file
    except sqlite3.Error as error:
        _raise(error, path, writing)
    except (OverflowError, UnicodeDecodeError) as error:
        if writing:
            raise  # a caller's value
        damaged(path, str(error), error)


@contextmanager
def translated_system(path: str) -> Iterator[None]:
    """Turn refusals of the system to write within this block into crossbyte's errors.

    FileNotFoundError and FileExistsError pass through: what they mean, the caller knows.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise StorageFull(_full(path, error)) from error
        if error.errno in _FORBIDDEN:
            raise ReadOnlyIndex(_unwritable(path, error)) from error
        if error.errno is None:
            raise  # one of ours
        raise StorageFailed(_failed(path, error)) from error


def _raise(error: sqlite3.Error, path: str, writing: bool) -> NoReturn:
    code, primary = _code(error), primary_code(error)
    if code in _MEMORY or primary == sqlite3.SQLITE_NOMEM:
        raise MemoryError(f"{path}: SQLite got no memory") from error
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and writing and _is_full(path)):
        raise StorageFull(_full(path, error)) from error
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise IndexBusy(f"{path}: another process held the file for too long ({error}); try again") from error
    if primary in _UNWRITABLE:
        _raise_refusal(error, path, writing)
    if primary == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_SHORT_READ:
        raise StorageFailed(_failed(path, error)) from error
    if writing and primary in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG):
        message = f"{path}: expected new rows of a size that SQLite takes, got: {error}; nothing was changed"
        raise InvalidInput(message) from error
    damaged(path, str(error), error)


def _raise_refusal(error: sqlite3.Error, path: str, writing: bool) -> NoReturn:
    """Tell apart who is refused: a writer, a reader that must first roll back, or any reader."""
    if writing:
        raise ReadOnlyIndex(_unwritable(path, error)) from error
    if os.path.exists(path + "-journal"):
        raise ReadOnlyIndex(
            f"{path}: a write was interrupted and must be rolled back before reading, but the system forbids"
            f" writing here ({error}); open the index once where writing is allowed"
        ) from error
    raise StorageFailed(f"{path}: the system refused to open it ({error}); check its permissions") from error


def _code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code if isinstance(code, int) else None


def primary_code(error: BaseException) -> int | None:
    """Give SQLite's code of an error without its refinement; None when it has none."""
    code = _code(error)
    return None if code is None else code & 0xFF


def _is_full(path: str) -> bool:
    """Look whether space is what was missing: SQLite reports a passed quota as any other failure."""
    try:
        free = os.statvfs(os.path.dirname(path))
    except (OSError, AttributeError):  # Windows has no statvfs
        return False
    return free.f_bavail == 0


def _full(path: str, error: BaseException) -> str:
    return f"{path}: the disk is full ({error}); nothing was changed; make space and open the index again"


def _unwritable(path: str, error: BaseException) -> str:
    return f"{path}: the system forbids writing to the file or its folder ({error}); check the permissions"


def _failed(path: str, error: BaseException) -> str:
    return (
        f"{path}: the system failed to read or write ({error}); look at the disk, then open the index again"
    )
