"""One open handle on an index file: its connection, its lock, its transactions, and when it must refuse."""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from crossbyte.errors import ClosedIndex, ReadOnlyIndex, StorageFailed, StorageFull, WriteRefused
from crossbyte.search.storage.failures import primary_code, translated
from crossbyte.search.storage.lock import WriterLock
from crossbyte.search.storage.reading import fetch_catalogue
from crossbyte.search.storage.records import CatalogueRow
from crossbyte.search.storage.schema import check_database

__all__ = ["Session"]

_HARMLESS_TO_VACUUM = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,  # no folder for temporary files
    sqlite3.SQLITE_NOMEM,
)


class Session:
    """A connection that many threads may use in turn.

    Attributes
    ----------
    path : str
    connection : sqlite3.Connection
        To be used inside `transaction` or `write` only.
    writable : bool
    """

    def __init__(self, path: str, connection: sqlite3.Connection, lock: WriterLock | None) -> None:
        self.path = path
        self.connection = connection
        self.writable = lock is not None
        self._process = os.getpid()
        self._guard = threading.RLock()
        self._inside = False  # a transaction of ours is open
        self._seen = 0  # the last generation seen: what somebody else committed is not built upon
        self._refusal: str | None = None
        self._identity = _identity(path)
        self._finalizer = weakref.finalize(self, _release, connection, lock, self._process)
        _sessions.add(self)

    def check_alive(self) -> None:
        """Raise WriteRefused in a forked child and ClosedIndex after `close`."""
        if self._process != os.getpid():
            raise WriteRefused(
                f"{self.path}: this handle was opened before a fork; open the index in the child"
            )
        if not self._finalizer.alive:
            raise ClosedIndex(f"{self.path}: the index was closed; open it again")

    def check_opened(self) -> None:
        """Refuse a file that is not ours or not whole, and a writer that the system would not let write."""
        with self.transaction(check=True) as row:
            self.saw(row)
        if self.writable:
            with translated(self.path, writing=True):  # learn it now, not at the first commit
                self.connection.execute("BEGIN IMMEDIATE")
                self.connection.execute("ROLLBACK")

    def saw(self, row: CatalogueRow) -> None:
        """Note the generation on which the next commit may build."""
        self._seen = row.catalogue.generation

    @contextmanager
    def transaction(self, check: bool = False) -> Iterator[CatalogueRow]:
        """Read in one transaction: a new one, or the one that is open already.

        Parameters
        ----------
        check : bool
            Check format, tables and size of the file first.

        Yields
        ------
        CatalogueRow
        """
        with self.usable():
            outermost = not self._inside
            try:
                with translated(self.path, writing=False):
                    if outermost:
                        self._begin("BEGIN")
                    if check:
                        check_database(self.connection, self.path)
                    row = fetch_catalogue(self.connection, self.path)
                yield row
            finally:
                if outermost:
                    self._end()

    def write(self, work: Callable[[CatalogueRow], CatalogueRow]) -> CatalogueRow:
        """Do all of `work` or nothing.

        Parameters
        ----------
        work : callable
            Given the old catalogue, writes inside the transaction and returns the new one.

        Returns
        -------
        CatalogueRow
            The new one.

        Raises
        ------
        ReadOnlyIndex, WriteRefused, StorageFull, StorageFailed, IndexBusy, DamagedIndexFile
            Nothing was changed.
        """
        with self.usable():
            self._check_may_write()
            try:
                with translated(self.path, writing=True):
                    self._begin("BEGIN IMMEDIATE")
                    old = fetch_catalogue(self.connection, self.path)
                    self._check_seen(old)
                    new = work(old)
                    self.connection.execute("COMMIT")
                    self.saw(new)
                    return new
            except (StorageFull, StorageFailed) as error:
                # Of a failed flush nobody knows what reached the disk; reopening finds out.
                self._refusal = f"a commit failed ({error})"
                raise
            finally:
                self._end()

    def vacuum(self) -> None:
        """Make the file small; if that cannot be done, the contents are as good as before."""
        with self.usable():
            try:
                self.connection.execute("VACUUM")
            except sqlite3.Error as error:
                if primary_code(error) not in _HARMLESS_TO_VACUUM:
                    self._refusal = f"making the file small failed ({error})"

    def close(self) -> None:
        """Close the connection and give the lock back; again, or after a fork, do nothing."""
        if self._process == os.getpid():
            with self._guard:
                self._finalizer()

    @contextmanager
    def usable(self) -> Iterator[None]:
        """Keep other threads out; refuse after a fork or a close."""
        self.check_alive()  # before the guard, which another thread may have held when the process forked
        with self._guard:
            self.check_alive()
            yield

    def _begin(self, statement: str) -> None:
        if self.connection.in_transaction:  # Ctrl-C came in the middle of ending the last one
            self.connection.execute("ROLLBACK")
        self.connection.execute(statement)
        self._inside = True

    def _end(self) -> None:
        """Roll back what is still open; if that fails, never write again through this handle."""
        self._inside = False
        try:
            if self._is_ours() and self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            self._refusal = f"rolling back failed ({error})"

    def _is_ours(self) -> bool:
        """Tell whether the connection may be touched: not in a child that was forked in a transaction."""
        return self._finalizer.alive and self._process == os.getpid()

    def _check_may_write(self) -> None:
        if not self.writable:
            raise ReadOnlyIndex(f"{self.path}: the index was opened for reading; open it with mode 'rw'")
        if self._inside:
            raise WriteRefused(f"{self.path}: expected no open transaction; end reading() before writing")
        if self._identity != _identity(self.path):
            self._refusal = "the file was replaced or removed while it was open"
        if self._refusal is not None:
            raise WriteRefused(f"{self.path}: {self._refusal}; nothing more is written; open the index again")

    def _check_seen(self, row: CatalogueRow) -> None:
        generation = row.catalogue.generation
        if generation != self._seen:
            raise WriteRefused(
                f"{self.path}: expected generation {self._seen}, which this handle has seen last, got"
                f" {generation}; refresh or open the index again"
            )


_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _keep_connections() -> None:
    """See to it that a forked child never closes the parent's connections.

    Closing one in the middle of a transaction would roll it back, in the parent's file. A reference that
    is never given back is the only way, because at its end Python drops all those it knows of.
    """
    for session in list(_sessions):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(session.connection))


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_keep_connections)


def _release(connection: sqlite3.Connection, lock: WriterLock | None, process: int) -> None:
    if process != os.getpid():
        return
    try:
        connection.close()
    finally:
        if lock is not None:
            lock.release()


def _identity(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino
