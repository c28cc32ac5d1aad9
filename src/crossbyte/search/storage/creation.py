"""Making a new index file, or taking over what a killed creation left."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress

from crossbyte.errors import IndexExists, IndexFileError
from crossbyte.search.storage.connection import JOURNAL, connect, create_empty
from crossbyte.search.storage.failures import translated
from crossbyte.search.storage.lock import WriterLock
from crossbyte.search.storage.records import Change
from crossbyte.search.storage.schema import write_schema
from crossbyte.search.storage.writing import NOTHING, Rewrite, write_change

__all__ = ["create_database"]


def create_database(path: str, change: Change) -> tuple[sqlite3.Connection, WriterLock]:
    """Make a file with all this in one transaction; if that fails, leave none.

    Parameters
    ----------
    path : str
        The real path.
    change : Change

    Returns
    -------
    connection : sqlite3.Connection
    lock : WriterLock

    Raises
    ------
    IndexExists, IndexLocked, ReadOnlyIndex, StorageFull, StorageFailed
    InvalidInput
        A record cannot be stored.
    """
    if _is_taken(path):
        raise IndexExists(f"{path}: expected a free name, but something is there; open it, or remove it")
    lock = WriterLock.acquire(path)
    try:
        _claim(path)
        try:
            return _filled(path, change), lock
        except BaseException:
            _remove(path)
            raise
    except BaseException:
        lock.release()
        raise


def _filled(path: str, change: Change) -> sqlite3.Connection:
    connection = connect(path, writable=True)
    try:
        with translated(path, writing=True):
            connection.execute("BEGIN EXCLUSIVE")
            write_schema(connection)
            rewrite = Rewrite(change.records, change.next_number, change.payloads)
            write_change(connection, path, NOTHING, rewrite)
            connection.execute("COMMIT")
    except BaseException:
        with suppress(sqlite3.Error):
            connection.close()  # rolls back
        raise
    return connection


def _is_taken(path: str) -> bool:
    """Tell whether there is anything but what a killed creation may leave."""
    if not os.path.lexists(path):
        return False
    return not os.path.isfile(path) or (os.path.getsize(path) > 0 and not os.path.exists(path + JOURNAL))


def _claim(path: str) -> None:
    """Make the file, or take over the empty one that a killed creation left."""
    try:
        create_empty(path)
    except IndexExists:
        if _is_taken(path) or not _is_empty_after_rolling_back(path):
            raise


def _is_empty_after_rolling_back(path: str) -> bool:
    try:
        with translated(path, writing=False), closing(connect(path, writable=False)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except IndexFileError:
        return False
    return os.path.getsize(path) == 0


def _remove(path: str) -> None:
    for name in (path, path + JOURNAL):
        with suppress(OSError):
            os.unlink(name)
