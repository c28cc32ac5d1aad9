"""Create an index file, new or as a checked copy of another: complete, or not there at all."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing, suppress

from crossbyte._fs import flush_file, flush_folder, rename_to_free_name
from crossbyte.errors import IndexExists, IndexFileError
from crossbyte.index.storage import records
from crossbyte.index.storage.database import (
    JOURNAL,
    WORDS_FORMAT,
    check_database,
    connect,
    create_empty,
    write_schema,
)
from crossbyte.index.storage.lock import WriterLock


def create_database(path: str, change: records.Change, format: int) -> tuple[sqlite3.Connection, WriterLock]:
    """Make a file with all this in one transaction; if that fails, leave none.

    Parameters
    ----------
    path : str
        The real path.
    change : Change
    format : {1, 2}

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
            return _fill(path, change, format), lock
        except BaseException:
            _remove_file(path)
            raise
    except BaseException:
        lock.release()
        raise


def _fill(path: str, change: records.Change, format: int) -> sqlite3.Connection:
    connection = connect(path, writable=True)
    try:
        with records.translate_sqlite_errors(path, writing=True):
            connection.execute("BEGIN EXCLUSIVE")
            write_schema(connection, format)
            rewrite = records.Rewrite(
                change.records,
                change.next_number,
                change.payloads,
                words=change.words,
                has_words=format >= WORDS_FORMAT,
            )
            records.write_change(connection, path, records.EMPTY_CATALOGUE, rewrite)
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
        with (
            records.translate_sqlite_errors(path, writing=False),
            closing(connect(path, writable=False)) as connection,
        ):
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except IndexFileError:
        return False
    return os.path.getsize(path) == 0


def _remove_file(path: str) -> None:
    for name in (path, path + JOURNAL):
        with suppress(OSError):
            os.unlink(name)


PARTIAL = ".partial"


def copy_database(source: str, target: str) -> None:
    """Copy an index as of one moment; the name `target` appears only when the copy is on the disk.

    Readers and the writer go on; a commit waits until the pages are copied (not until they are checked).

    Parameters
    ----------
    source, target : str
        Real paths.

    Raises
    ------
    IndexExists
        Something has the name already.
    IndexLocked
        Another copy to this name, or its creation, is under way.
    IndexFileError
        The source is damaged, the disk is full, ...; then nothing is left at `target`.
    """
    refuse_taken(target)
    with records.translate_system_errors(target):
        lock = WriterLock.acquire(target)
        try:
            refuse_taken(target)
            _copy_through(target + PARTIAL, source, target)
        finally:
            lock.release()


def verify_database(path: str) -> None:
    """Verify a whole file through a connection of its own, so that nobody waits for it.

    Raises
    ------
    IndexFileError
    """
    with (
        closing(connect(path, writable=False)) as connection,
        records.translate_sqlite_errors(path, writing=False),
    ):
        connection.execute("BEGIN")
        check_database(connection, path)
        records.verify_contents(connection, path)


def refuse_taken(path: str) -> None:
    """Raise IndexExists when anything has this name, or the name of its journal.

    A journal left behind by another file would be taken for the new file's own and destroy it.
    """
    for name in (path, path + JOURNAL):
        if os.path.lexists(name):
            raise IndexExists(
                f"{name}: expected a free name, but something is there; choose another or remove it"
            )


def _copy_through(partial: str, source: str, target: str) -> None:
    for leftover in (partial, partial + JOURNAL):
        with suppress(FileNotFoundError):
            os.unlink(leftover)
    try:
        create_empty(partial)
        _copy_pages(source, partial)
        verify_database(partial)
        flush_file(partial)
        _put_in_place(partial, target)
    finally:
        with suppress(FileNotFoundError):
            os.unlink(partial)
    flush_folder(os.path.dirname(target))


def _copy_pages(source: str, partial: str) -> None:
    with (
        closing(connect(source, writable=False)) as reader,
        closing(connect(partial, writable=True)) as writer,
    ):
        with records.translate_sqlite_errors(source, writing=False):
            reader.execute("BEGIN")
            records.fetch_catalogue(
                reader, source
            )  # takes the lock: the copy itself would wait for it without end
        with records.translate_sqlite_errors(partial, writing=True):
            # Nobody sees this file before it is complete, and it is flushed as a whole at the end.
            writer.execute("PRAGMA journal_mode = OFF").fetchall()
            writer.execute("PRAGMA synchronous = OFF").fetchall()
            reader.backup(writer, pages=-1)


def _put_in_place(partial: str, target: str) -> None:
    try:
        rename_to_free_name(partial, target, create_empty)
    except FileExistsError as error:
        raise IndexExists(f"{target}: something else took this name meanwhile; choose another") from error
