"""The file of an index: records, payload rows, generations, one writer and many readers.

The storage layer knows nothing of codes, ids or filters. One SQLite database holds everything; a commit is
one transaction that raises the generation by one. Whatever is read is compared with its checksum.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from crossbyte.errors import StaleReader
from crossbyte.search.storage.connection import check_file, connect, real_path
from crossbyte.search.storage.copying import copy_database, verify_database
from crossbyte.search.storage.creation import create_database
from crossbyte.search.storage.failures import translated
from crossbyte.search.storage.lock import WriterLock
from crossbyte.search.storage.reading import fetch_part, fetch_payload, fetch_records
from crossbyte.search.storage.records import Catalogue, CatalogueRow, Change, NewRecord, PartHead, Record
from crossbyte.search.storage.session import Session
from crossbyte.search.storage.writing import Rewrite, write_change

__all__ = ["Catalogue", "Change", "NewRecord", "PartHead", "Record", "Store"]

_COARSEST_TIME = 2_500_000_000  # ns: some file systems know the time of a change to two seconds


class Store:
    """One index file, opened; made by `create` or `open`, usable from many threads.

    Attributes
    ----------
    path : str
        The real path of the file.
    writable : bool
    """

    def __init__(self, session: Session) -> None:
        self.path = session.path
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
        connection, lock = create_database(name, Change(records, payloads, next_number))
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
        return cls._opened(name, connection, lock)

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
        with self._session.transaction() as row, translated(self.path, writing=False):
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
        with self._session.transaction(), translated(self.path, writing=False):
            return fetch_part(self._session.connection, self.path, record, name)

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
        with self._session.transaction() as row, translated(self.path, writing=False):
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
        rewrite = Rewrite(change.records, change.next_number, change.payloads, change.drop)
        return self._write(rewrite)

    def replace(
        self,
        drop: Sequence[int],
        records: Sequence[NewRecord],
        dead: Iterable[tuple[int, int]],
        renamed: Iterable[tuple[int, int]],
        next_number: int,
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

        Returns
        -------
        Catalogue
            Of the new generation.

        Raises
        ------
        As `commit`.
        """
        rewrite = Rewrite(records, next_number, (), drop, dead, renamed, compacting=True)
        with self._session.usable():
            catalogue = self._write(rewrite)
            self._session.vacuum()
            return catalogue

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
        except BaseException:
            session.close()
            raise
        return cls(session)

    def _write(self, rewrite: Rewrite) -> Catalogue:
        def work(old: CatalogueRow) -> CatalogueRow:
            return write_change(self._session.connection, self.path, old, rewrite)

        return self._session.write(work).catalogue

    def _check_generation(self, row: CatalogueRow, generation: int) -> None:
        oldest = row.catalogue.oldest
        if generation < oldest:
            raise StaleReader(
                f"{self.path}: a compaction (generation {oldest}) has passed this reader"
                f" (generation {generation}); call refresh()"
            )
