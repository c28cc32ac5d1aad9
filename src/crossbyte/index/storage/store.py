"""Keep an index in one SQLite file: sessions, commits, and what a reader sees of them.

The storage layer knows nothing of codes, ids or filters. One SQLite database holds everything; a commit is
one transaction that raises the generation by one. Whatever is read is compared with its checksum.
"""

from __future__ import annotations

import ctypes
import os
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager

from crossbyte.compute.executor import Workers
from crossbyte.errors import ClosedIndex, ReadOnlyIndex, StaleReader, StorageFailed, StorageFull, WriteRefused
from crossbyte.index.storage.creation import copy_database, create_database, verify_database
from crossbyte.index.storage.database import (
    BUSY_SECONDS,
    WORDS_FORMAT,
    check_database,
    check_file,
    connect,
    has_word_search,
    read_format,
    real_path,
)
from crossbyte.index.storage.lock import WriterLock
from crossbyte.index.storage.records import (
    Catalogue,
    CatalogueRow,
    Change,
    NewRecord,
    Record,
    Rewrite,
    count_term_matches,
    fetch_catalogue,
    fetch_part,
    fetch_payload,
    fetch_records,
    fetch_term_matches,
    has_words_below,
    primary_code,
    translate_sqlite_errors,
    verify_part,
    write_change,
)

_HARMLESS_TO_VACUUM = (
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,  # no folder for temporary files
    sqlite3.SQLITE_NOMEM,
)
_MOMENT_MS = 100


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
            with translate_sqlite_errors(self.path, writing=True):  # learn it now, not at the first commit
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
                with translate_sqlite_errors(self.path, writing=False):
                    if outermost:
                        self._begin("BEGIN")
                    if check:
                        check_database(self.connection, self.path)
                    row = fetch_catalogue(self.connection, self.path)
                yield row
            finally:
                if outermost:
                    self._end()

    def write(
        self,
        work: Callable[[CatalogueRow], CatalogueRow],
        *,
        wait_ms: int = 1000 * BUSY_SECONDS,
        forgiving: bool = False,
    ) -> CatalogueRow:
        """Do all of `work` or nothing.

        Parameters
        ----------
        work : callable
            Given the old catalogue, writes inside the transaction and returns the new one.
        wait_ms : int
            How long to wait for readers.
        forgiving : bool
            Whether writing goes on after a full disk: what was to be written can wait.

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
                with translate_sqlite_errors(self.path, writing=True), self._waiting(wait_ms):
                    self._begin("BEGIN IMMEDIATE")
                    old = fetch_catalogue(self.connection, self.path)
                    self._check_seen(old)
                    new = work(old)
                    self.connection.execute("COMMIT")
                    self.saw(new)
                    return new
            except (StorageFull, StorageFailed) as error:
                # Of a failed flush nobody knows what reached the disk; reopening finds out.
                if not (forgiving and _found_no_space(error)):
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

    @contextmanager
    def _waiting(self, wait_ms: int) -> Iterator[None]:
        """Within this block, wait for readers no longer than this."""
        if wait_ms == 1000 * BUSY_SECONDS:
            yield
            return
        self.connection.execute(f"PRAGMA busy_timeout = {wait_ms:d}").fetchall()
        try:
            yield
        finally:
            self.connection.execute(f"PRAGMA busy_timeout = {1000 * BUSY_SECONDS:d}").fetchall()

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


def _found_no_space(error: BaseException) -> bool:
    """Say whether SQLite could not write at all: no flush failed, and rolling back restores everything."""
    cause = error.__cause__
    return isinstance(cause, sqlite3.Error) and primary_code(cause) == sqlite3.SQLITE_FULL


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


_COARSEST_TIME = 2_500_000_000  # ns: some file systems know the time of a change to two seconds


class Store:
    """One index file, opened; made by `create` or `open`, usable from many threads.

    Attributes
    ----------
    path : str
        The real path of the file.
    writable : bool
    format : {1, 2}
        Of the file; it never changes.
    """

    def __init__(self, session: Session, format: int) -> None:
        self.path, self.format = session.path, format
        self.writable = session.writable
        self._session = session
        self._current: tuple[int, ...] = ()  # state of the file, and a generation that is current in it

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        records: Sequence[NewRecord],
        payloads: Iterable[tuple[int, int, bytes]] = (),
        next_number: int = 0,
        *,
        format: int = 1,
        words: Iterable[tuple[int, int, str]] = (),
    ) -> Store:
        """Make a new file with these records and payloads in one transaction, as its writer.

        An empty file, as a killed creation leaves it, is taken over. If creation fails, no file is left.

        Parameters
        ----------
        path : path-like
        records : sequence of NewRecord
        payloads : iterable of (number, version, body)
        next_number : int
            The next document number to give.
        format : {1, 2, 3}
        words : iterable of (number, version, text)
            What is searched by words; only in format 3.

        Returns
        -------
        Store

        Raises
        ------
        IndexExists
            Something is there.
        IndexLocked
            Somebody else is creating it just now.
        IndexFileError
            The system refuses.
        InvalidInput
            A record cannot be stored.
        """
        name = real_path(path)
        connection, lock = create_database(name, Change(records, payloads, next_number, words=words), format)
        return cls._opened(name, connection, lock)

    @classmethod
    def open(cls, path: str | os.PathLike[str], writable: bool) -> Store:
        """Open a file; check that it is ours and whole as far as its catalogue tells.

        Parameters
        ----------
        path : path-like
        writable : bool
            As the one writer, or as one of many readers.

        Returns
        -------
        Store

        Raises
        ------
        FileNotFoundError
        ForeignIndexFile, NewerIndexFile, DamagedIndexFile
        IndexLocked
            There is a writer already.
        ReadOnlyIndex
            The system forbids writing, and writing was asked for or is needed to undo an interrupted write.
        WriteRefused
            Writing was asked for, and the file keeps words, which this SQLite cannot.
        """
        name = real_path(path)
        check_file(name)
        lock = WriterLock.acquire(name) if writable else None
        try:
            connection = connect(name, writable=writable)
        except BaseException:
            if lock is not None:
                lock.release()
            raise
        store = cls._opened(name, connection, lock)
        if writable and store.format >= WORDS_FORMAT and not has_word_search():
            store.close()
            raise WriteRefused(
                f"{name}: this index keeps words, which this SQLite cannot (it was built without FTS5), so "
                "nothing is written; open it for reading, or use a Python whose SQLite has FTS5"
            )
        return store

    @contextmanager
    def reading(self) -> Iterator[Catalogue]:
        """Read within one transaction: all that is read inside belongs to one generation.

        Keep it short: a commit waits for it.

        Yields
        ------
        Catalogue
        """
        with self._session.transaction() as row:
            self._session.saw(row)
            yield row.catalogue

    def records(self, after: int = 0) -> list[Record]:
        """Give the records with a number above `after`, verified; call it inside `reading`.

        Parameters
        ----------
        after : int

        Returns
        -------
        list of Record
            In order of their numbers.

        Raises
        ------
        DamagedIndexFile
        """
        with self._session.transaction() as row, translate_sqlite_errors(self.path, writing=False):
            return fetch_records(self._session.connection, self.path, row.catalogue, after)

    def part(self, record: Record, name: str) -> bytes:
        """Give one part of a record, verified.

        Parameters
        ----------
        record : Record
        name : str

        Returns
        -------
        bytes

        Raises
        ------
        StaleReader
            A compaction has removed the record.
        DamagedIndexFile
        """
        with self._session.transaction(), translate_sqlite_errors(self.path, writing=False):
            data = fetch_part(self._session.connection, self.path, record, name)
        verify_part(self.path, record, name, [data])
        return data

    def parts(self, wanted: Iterable[tuple[Record, str]], workers: Workers) -> Generator[bytes, None, None]:
        """Give parts of records in their order, each verified by a thread while the next ones are read.

        Parameters
        ----------
        wanted : iterable of (Record, str)
            Records, and names of their parts.
        workers : Workers

        Yields
        ------
        bytes

        Raises
        ------
        StaleReader
            A compaction has removed a record.
        DamagedIndexFile
        """

        def verify(part: tuple[Record, str, bytes]) -> bytes:
            record, name, data = part
            verify_part(self.path, record, name, [data])
            return data

        with self._session.transaction(), translate_sqlite_errors(self.path, writing=False):
            connection = self._session.connection
            read = (
                (record, name, fetch_part(connection, self.path, record, name)) for record, name in wanted
            )
            yield from workers.map(verify, read)

    def payloads(self, keys: Sequence[tuple[int, int]], generation: int) -> list[bytes]:
        """Give the bodies of payload rows, verified.

        Parameters
        ----------
        keys : sequence of (number, version)
        generation : int
            The one that the reader holds.

        Returns
        -------
        list of bytes
            In the order of `keys`.

        Raises
        ------
        StaleReader
            A compaction has passed this generation.
        DamagedIndexFile
            A row is missing or does not match its checksum.
        """
        with self._session.transaction() as row, translate_sqlite_errors(self.path, writing=False):
            self._check_generation(row, generation)
            return [fetch_payload(self._session.connection, self.path, int(n), int(v)) for n, v in keys]

    def check_current(self, generation: int) -> None:
        """Raise StaleReader if a compaction has passed this generation; cheap while nobody writes."""
        self._session.check_alive()
        try:
            status = os.stat(self.path)
        except OSError:  # removed or renamed: the open file is still there to be read
            status = os.stat_result((0,) * 10)
        seen = status.st_ino, status.st_size, status.st_mtime_ns, generation
        if seen == self._current:
            return
        with self._session.transaction() as row:
            self._check_generation(row, generation)
        # A time of change may only be trusted once it has passed: a write right now could bear the same.
        if status.st_mtime_ns and time.time_ns() - status.st_mtime_ns > _COARSEST_TIME:
            self._current = seen

    def commit(self, change: Change) -> Catalogue:
        """Write everything or nothing.

        Parameters
        ----------
        change : Change
            Its payloads are consumed inside the transaction.

        Returns
        -------
        Catalogue
            Of the new generation.

        Raises
        ------
        ReadOnlyIndex
        WriteRefused
            After a fork or a failed commit, or when the file is no longer at the generation that this
            handle has seen last.
        StorageFull, IndexBusy
            Nothing was changed.
        StorageFailed
            Nothing was changed, or, if only the last flush failed, everything; opening again tells.
        """
        rewrite = Rewrite(
            change.records,
            change.next_number,
            change.payloads,
            change.drop,
            words=change.words,
            has_words=self.format >= WORDS_FORMAT,
        )
        return self._write(rewrite)

    def match_term(self, expression: str) -> list[tuple[int, int, int, int]]:
        """Find documents by a word or phrase: number, version, how often they have it, and all their words.

        Parameters
        ----------
        expression : str
            Of FTS5: one word or phrase in quotes. Only in format 3.
        """
        with self._session.transaction(), translate_sqlite_errors(self.path, writing=False):
            return fetch_term_matches(self._session.connection, expression)

    def has_words(self, below: int) -> bool:
        """Say whether any document below a number has words; format 3 only."""
        with self._session.transaction(), translate_sqlite_errors(self.path, writing=False):
            return has_words_below(self._session.connection, below)

    def count_term(self, expression: str, below: int, most: int) -> int:
        """Count the rows below a number that an expression matches, ``most`` at most; format 3 only."""
        with self._session.transaction(), translate_sqlite_errors(self.path, writing=False):
            return count_term_matches(self._session.connection, expression, below, most)

    def replace(
        self,
        drop: Sequence[int],
        records: Sequence[NewRecord],
        dead: Iterable[tuple[int, int]],
        renamed: Iterable[tuple[int, int]],
        next_number: int,
        lowered: Iterable[tuple[int, int, int]] = (),
    ) -> Catalogue:
        """Compact: put records in the place of others, and make the file small.

        Readers of earlier generations become stale. If only making the file small fails for want of space
        or because it is in use, the compaction stands all the same.

        Parameters
        ----------
        drop : sequence of int
            Numbers of records to remove.
        records : sequence of NewRecord
        dead : iterable of (number, version)
            Payload rows to delete.
        renamed : iterable of (number, version)
            Payload rows that become version 0.
        next_number : int
        lowered : iterable of (number, version, new version)
            Other payload rows that get a lower version, afterwards, in this order.

        Returns
        -------
        Catalogue
            Of the new generation.

        Raises
        ------
        As `commit`.
        """
        rewrite = Rewrite(
            records,
            next_number,
            (),
            drop,
            dead,
            renamed,
            lowered,
            compacting=True,
            has_words=self.format >= WORDS_FORMAT,
        )
        with self._session.usable():
            catalogue = self._write(rewrite, forgiving=True)
            self._session.vacuum()
            return catalogue

    def merge(self, drop: Sequence[int], records: Sequence[NewRecord], next_number: int) -> Catalogue:
        """Put records in the place of others that say the same; readers of earlier generations become stale.

        Nobody is kept waiting for it, and it may fail for want of space without harm: what was there is
        there, and this handle goes on writing.

        Raises
        ------
        As `commit`.
        """
        rewrite = Rewrite(records, next_number, drop=drop, has_words=self.format >= WORDS_FORMAT)
        return self._write(rewrite, wait_ms=_MOMENT_MS, forgiving=True)

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copy the file as of one moment, safely beside a writer.

        The copy is verified before it gets its name.

        Parameters
        ----------
        path : path-like
            A free name.

        Raises
        ------
        IndexExists
        IndexFileError
            Then nothing is left at `path`.
        """
        self._session.check_alive()
        copy_database(self.path, real_path(path))

    def verify(self) -> None:
        """Read the whole file and compare everything with its checksum and count.

        Raises
        ------
        DamagedIndexFile
        """
        self._session.check_alive()
        check_file(self.path)
        verify_database(self.path)

    def sizes(self) -> dict[str, int]:
        """Give the bytes on disk by part.

        Returns
        -------
        dict of str to int
            ``"<kind>:<family>"`` for each kind of record and each part's name up to its first colon,
            ``"payloads"``, ``"overhead"`` (the rest), and ``"file"`` (all).
        """
        with self._session.transaction() as row:
            sizes: dict[str, int] = {}
            for record in self.records():
                for name, head in record.parts.items():
                    family = f"{record.kind}:{name.partition(':')[0]}"
                    sizes[family] = sizes.get(family, 0) + head.n_bytes
            sizes["payloads"] = row.payload_bytes
            total = os.stat(self.path).st_size
            return sizes | {"overhead": total - sum(sizes.values()), "file": total}

    def close(self) -> None:
        """Close the file and give the writer's lock back; calling it again, or after a fork, does nothing."""
        self._session.close()

    @classmethod
    def _opened(cls, path: str, connection: sqlite3.Connection, lock: WriterLock | None) -> Store:
        session = Session(path, connection, lock)
        try:
            session.check_opened()
            with session.transaction(), translate_sqlite_errors(path, writing=False):
                return cls(session, read_format(connection))
        except BaseException:
            session.close()
            raise

    def _write(
        self, rewrite: Rewrite, *, wait_ms: int = 1000 * BUSY_SECONDS, forgiving: bool = False
    ) -> Catalogue:
        def work(old: CatalogueRow) -> CatalogueRow:
            return write_change(self._session.connection, self.path, old, rewrite)

        return self._session.write(work, wait_ms=wait_ms, forgiving=forgiving).catalogue

    def _check_generation(self, row: CatalogueRow, generation: int) -> None:
        oldest = row.catalogue.oldest
        if generation < oldest:
            raise StaleReader(
                f"{self.path}: a compaction (generation {oldest}) has passed this reader"
                f" (generation {generation}); call refresh()"
            )
