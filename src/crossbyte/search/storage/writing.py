"""Writing the rows of an index file; every function runs in the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import index

from crossbyte.errors import InvalidInput
from crossbyte.search.storage import records as limits
from crossbyte.search.storage.checksum import (
    EMPTY_DIGEST,
    catalogue_checksum,
    extend_digest,
    payload_checksum,
    record_checksum,
)
from crossbyte.search.storage.failures import damaged
from crossbyte.search.storage.reading import fetch_payload, fetch_records
from crossbyte.search.storage.records import (
    PIECES_PER_RECORD,
    Catalogue,
    CatalogueRow,
    NewRecord,
    as_bytes,
    head_of,
)

__all__ = ["NOTHING", "Rewrite", "write_change"]

NOTHING = CatalogueRow(Catalogue(0, 0, 0, 0, 0, EMPTY_DIGEST), next_record=1, payload_bytes=0)

_INSERT_PAYLOAD = "INSERT INTO payloads (number, version, body, checksum) VALUES (?, ?, ?, ?)"
_DELETE_PAYLOAD = "DELETE FROM payloads WHERE number = ? AND version = ?"
_RENAME_PAYLOAD = "UPDATE payloads SET version = 0, checksum = ? WHERE number = ? AND version = ?"
_INSERT_CATALOGUE = "INSERT OR REPLACE INTO catalogue VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_MAX_NUMBER = 2**63 - 1


@dataclass(frozen=True)
class Rewrite:
    """All that a transaction does; see `Store.commit` and `Store.replace`."""

    records: Sequence[NewRecord]
    next_number: int
    payloads: Iterable[tuple[int, int, bytes]] = ()
    drop: Sequence[int] = ()
    dead: Iterable[tuple[int, int]] = ()
    renamed: Iterable[tuple[int, int]] = ()
    compacting: bool = False


def write_change(
    connection: sqlite3.Connection, path: str, old: CatalogueRow, change: Rewrite
) -> CatalogueRow:
    """Write everything, the catalogue last, and give the new catalogue.

    Raises
    ------
    InvalidInput
        A value cannot be stored.
    DamagedIndexFile
        What should be removed or renamed is not there.
    """
    generation = old.catalogue.generation + 1
    if not old.catalogue.next_number <= change.next_number <= _MAX_NUMBER:
        got = f"{old.catalogue.next_number} to {change.next_number}"
        raise InvalidInput(f"expected the next document number never to fall, got {got}")
    if change.drop:
        fetch_records(connection, path, old.catalogue, after=0)  # the new digest must not hide old damage
    _drop_records(connection, path, change.drop)
    _write_records(connection, change.records, old.next_record, generation)
    counts = _Counts(old.catalogue.n_payloads, old.payload_bytes)
    _delete_payloads(connection, path, change.dead, counts)
    _rename_payloads(connection, path, change.renamed)
    connection.executemany(_INSERT_PAYLOAD, _counted_rows(change.payloads, counts))
    next_record = old.next_record + len(change.records)
    n_records = old.catalogue.n_records + len(change.records) - len(change.drop)
    digest = _digest(connection, path, old, bool(change.drop))
    oldest = (
        generation if change.compacting or change.drop or not old.catalogue.oldest else old.catalogue.oldest
    )
    catalogue = Catalogue(generation, oldest, change.next_number, counts.rows, n_records, digest)
    row = CatalogueRow(catalogue, next_record, counts.n_bytes)
    _write_catalogue(connection, row)
    return row


@dataclass
class _Counts:
    rows: int
    n_bytes: int


def _drop_records(connection: sqlite3.Connection, path: str, numbers: Sequence[int]) -> None:
    for number in map(index, numbers):
        if connection.execute("DELETE FROM records WHERE number = ?", (number,)).rowcount != 1:
            damaged(path, f"record {number} is missing")
        first = number * PIECES_PER_RECORD
        places = (first, first + PIECES_PER_RECORD - 1)
        connection.execute("DELETE FROM pieces WHERE place BETWEEN ? AND ?", places)


def _write_records(
    connection: sqlite3.Connection, records: Sequence[NewRecord], first: int, generation: int
) -> None:
    for number, record in enumerate(records, first):
        views = {name: as_bytes(part, name) for name, part in sorted(record.parts.items())}
        head = head_of(record, generation, views)
        row = (number, head, record_checksum(number, head))
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", row)
        pieces = enumerate(_pieces(views.values()), number * PIECES_PER_RECORD)
        connection.executemany("INSERT INTO pieces VALUES (?, ?)", pieces)


def _pieces(views: Iterable[memoryview]) -> Iterator[memoryview]:
    step = limits.MAX_PIECE_BYTES
    for view in views:
        for start in range(0, len(view), step):
            yield view[start : start + step]


def _delete_payloads(
    connection: sqlite3.Connection, path: str, keys: Iterable[tuple[int, int]], counts: _Counts
) -> None:
    for number, version in _plain(keys):
        counts.n_bytes -= len(fetch_payload(connection, path, number, version))
        counts.rows -= connection.execute(_DELETE_PAYLOAD, (number, version)).rowcount


def _rename_payloads(connection: sqlite3.Connection, path: str, keys: Iterable[tuple[int, int]]) -> None:
    for number, version in _plain(keys):
        body = fetch_payload(connection, path, number, version)
        connection.execute(_RENAME_PAYLOAD, (payload_checksum(number, 0, body), number, version))


def _plain(keys: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    return ((index(number), index(version)) for number, version in keys)


def _counted_rows(
    payloads: Iterable[tuple[int, int, bytes]], counts: _Counts
) -> Iterator[tuple[int, int, bytes, bytes]]:
    for number, version, body in payloads:
        number, version = index(number), index(version)  # SQLite would store a NumPy integer as a blob
        _check_payload(number, version, body)
        counts.rows += 1
        counts.n_bytes += len(body)
        yield number, version, body, payload_checksum(number, version, body)


def _check_payload(number: int, version: int, body: bytes) -> None:
    if not (0 <= number <= _MAX_NUMBER and 0 <= version <= _MAX_NUMBER):
        raise InvalidInput(f"expected payload numbers from 0 to 2**63 - 1, got {number} and {version}")
    if type(body) is not bytes or len(body) > limits.MAX_PIECE_BYTES:
        raise InvalidInput(
            f"expected a payload of at most {limits.MAX_PIECE_BYTES} bytes, got document {number}"
        )


def _digest(connection: sqlite3.Connection, path: str, old: CatalogueRow, from_the_start: bool) -> bytes:
    """Go on from the digest of the records that were there, unless some of them are gone."""
    digest = EMPTY_DIGEST if from_the_start else old.catalogue.digest
    after = 0 if from_the_start else old.next_record - 1
    rows = connection.execute(
        "SELECT number, checksum FROM records WHERE number > ? ORDER BY number", (after,)
    )
    for number, checksum in rows:
        if not isinstance(checksum, bytes):
            damaged(path, f"record {number} has no checksum")
        digest = extend_digest(digest, number, checksum)
    return digest


def _write_catalogue(connection: sqlite3.Connection, row: CatalogueRow) -> None:
    *numbers, digest = row.catalogue
    values = [*numbers, row.next_record, row.payload_bytes]
    connection.execute(_INSERT_CATALOGUE, (*values, digest, catalogue_checksum(values, row.catalogue.digest)))
