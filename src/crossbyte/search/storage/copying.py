"""A copy of an index beside its writer: complete and checked, or not there at all."""

from __future__ import annotations

import os
from contextlib import closing, suppress

from crossbyte._fs import flush_file, flush_folder, rename_to_free_name
from crossbyte.errors import IndexExists
from crossbyte.search.storage.connection import JOURNAL, connect, create_empty
from crossbyte.search.storage.failures import translated, translated_system
from crossbyte.search.storage.lock import WriterLock
from crossbyte.search.storage.reading import fetch_catalogue, verify_contents
from crossbyte.search.storage.schema import check_database

__all__ = ["copy_database", "refuse_taken", "verify_database"]

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
    with translated_system(target):
        lock = WriterLock.acquire(target)
        try:
            refuse_taken(target)
            _copy_by_way_of(target + PARTIAL, source, target)
        finally:
            lock.release()


def verify_database(path: str) -> None:
    """Verify a whole file through a connection of its own, so that nobody waits for it.

    Raises
    ------
    IndexFileError
    """
    with closing(connect(path, writable=False)) as connection, translated(path, writing=False):
        connection.execute("BEGIN")
        check_database(connection, path)
        verify_contents(connection, path)


def refuse_taken(path: str) -> None:
    """Raise IndexExists when anything has this name, or the name of its journal.

    A journal left behind by another file would be taken for the new file's own and destroy it.
    """
    for name in (path, path + JOURNAL):
        if os.path.lexists(name):
            raise IndexExists(
                f"{name}: expected a free name, but something is there; choose another or remove it"
            )


def _copy_by_way_of(partial: str, source: str, target: str) -> None:
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
        with translated(source, writing=False):
            reader.execute("BEGIN")
            fetch_catalogue(reader, source)  # takes the lock: the copy itself would wait for it without end
        with translated(partial, writing=True):
            # Nobody sees this file before it is complete, and it is flushed as a whole at the end.
            writer.execute("PRAGMA journal_mode = OFF").fetchall()
            writer.execute("PRAGMA synchronous = OFF").fetchall()
            reader.backup(writer, pages=-1)


def _put_in_place(partial: str, target: str) -> None:
    try:
        rename_to_free_name(partial, target, create_empty)
    except FileExistsError as error:
        raise IndexExists(f"{target}: something else took this name meanwhile; choose another") from error
