"""Reading and verifying the rows of an index file; every function runs in the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from io import BytesIO

from crossbyte.errors import StaleReader
from crossbyte.search.storage.checksum import (
    EMPTY_DIGEST,
    catalogue_checksum,
    extend_digest,
    part_checksum,
    payload_checksum,
    record_checksum,
)
from crossbyte.search.storage.failures import damaged
from crossbyte.search.storage.records import (
    MAX_HEAD_BYTES,
    PIECES_PER_RECORD,
    Catalogue,
    CatalogueRow,
    PartHead,
    Record,
    parse_head,
)

__all__ = [
    "fetch_catalogue",
    "fetch_part",
    "fetch_payload",
    "fetch_records",
    "verify_contents",
]

_CATALOGUE = (
    "SELECT generation, oldest, next_number, n_payloads, n_records, next_record, payload_bytes, digest,"
    " checksum FROM catalogue LIMIT 2"
)
_HEADS = (
    "SELECT number, CASE WHEN number > ? AND length(head) <= ? THEN head END, checksum FROM records"
    " ORDER BY number"
)
_PAYLOAD = "SELECT body, checksum FROM payloads WHERE number = ? AND version = ?"
_HAS_RECORD = "SELECT 1 FROM records WHERE number = ?"


def fetch_catalogue(connection: sqlite3.Connection, path: str) -> CatalogueRow:
    """Read the catalogue and verify its checksum.

    Raises
    ------
    DamagedIndexFile
    """
    rows = connection.execute(_CATALOGUE).fetchall()
    if len(rows) != 1:
        damaged(path, f"its catalogue has {len(rows)} rows")
    *numbers, digest, checksum = rows[0]
    if not all(type(number) is int for number in numbers) or not isinstance(digest, bytes):
        damaged(path, "its catalogue has values of a wrong type")
    if catalogue_checksum(numbers, digest) != checksum:
        damaged(path, "its catalogue does not match its checksum")
    generation, oldest, next_number, n_payloads, n_records, next_record, payload_bytes = numbers
    catalogue = Catalogue(generation, oldest, next_number, n_payloads, n_records, digest)
    if min(numbers) < 0 or oldest > generation:
        damaged(path, "its catalogue has impossible values")
    return CatalogueRow(catalogue, next_record, payload_bytes)


def fetch_records(
    connection: sqlite3.Connection, path: str, catalogue: Catalogue, after: int
) -> list[Record]:
    """Read the heads of all records with a number above `after`.

    The number and checksum of every record, the earlier ones too, go into the digest that is compared
    with that of the catalogue.

    Raises
    ------
    DamagedIndexFile
    """
    records, digest, n_records = [], EMPTY_DIGEST, 0
    for number, head, checksum in connection.execute(_HEADS, (after, MAX_HEAD_BYTES)):
        if not isinstance(checksum, bytes):
            damaged(path, f"record {number} has no checksum")
        digest = extend_digest(digest, number, checksum)
        n_records += 1
        if number > after:
            if not isinstance(head, bytes) or record_checksum(number, head) != checksum:
                damaged(path, f"record {number} does not match its checksum")
            records.append(parse_head(path, number, head))
    if (n_records, digest) != (catalogue.n_records, catalogue.digest):
        damaged(path, "its records are not those that its catalogue counts")
    return records


def fetch_part(connection: sqlite3.Connection, path: str, record: Record, name: str) -> bytes:
    """Read one part, verified.

    Raises
    ------
    StaleReader
        The record is no longer there.
    DamagedIndexFile
    """
    if connection.execute(_HAS_RECORD, (record.number,)).fetchone() is None:
        raise StaleReader(f"{path}: a compaction has replaced record {record.number}; call refresh()")
    head = record.parts[name]
    data = _joined(_pieces(connection, path, record.number, head), head)
    _check_part(path, record, name, part_checksum([data]))
    return data


def fetch_payload(connection: sqlite3.Connection, path: str, number: int, version: int) -> bytes:
    """Read the body of one payload row, verified.

    Raises
    ------
    DamagedIndexFile
    """
    row = connection.execute(_PAYLOAD, (number, version)).fetchone()
    if row is None:
        damaged(path, f"the payload of document {number} (version {version}) is missing")
    _check_payload(path, number, version, row[0], row[1])
    body: bytes = row[0]
    return body


def verify_contents(connection: sqlite3.Connection, path: str) -> None:
    """Read everything and compare it with its checksums and with the counts of the catalogue.

    Raises
    ------
    DamagedIndexFile
    """
    messages = [str(row[0]) for row in connection.execute("PRAGMA integrity_check(5)")]
    if messages != ["ok"]:
        damaged(path, "; ".join(messages)[:500])
    row = fetch_catalogue(connection, path)
    records = fetch_records(connection, path, row.catalogue, after=0)
    if any(record.number >= row.next_record for record in records):
        damaged(path, "a record has a number that was not yet given")
    for record in records:
        _verify_parts(connection, path, record)
    _verify_number_of_pieces(connection, path, records)
    _verify_payloads(connection, path, row)


def _pieces(connection: sqlite3.Connection, path: str, number: int, head: PartHead) -> Iterator[bytes]:
    """Read the rows of a part; their lengths are compared before anything is allocated."""
    left = head.n_bytes
    for piece in range(head.first, head.first + head.n_pieces):
        place = number * PIECES_PER_RECORD + piece
        # Through a blob handle, because a SELECT would copy the bytes once more.
        with connection.blobopen("pieces", "body", place, readonly=True) as blob:
            left -= len(blob)
            if left < 0 or (piece == head.first + head.n_pieces - 1 and left != 0):
                damaged(path, f"a part of record {number} has a wrong length")
            yield blob.read()


def _joined(pieces: Iterator[bytes], head: PartHead) -> bytes:
    """Put pieces together with no second copy of the whole."""
    if head.n_pieces == 1:
        return next(pieces)
    buffer = BytesIO()
    if head.n_pieces:
        buffer.seek(head.n_bytes - 1)
        buffer.write(b"\0")  # allocates exactly what is needed, so that getvalue need not copy
        buffer.seek(0)
    for piece in pieces:
        buffer.write(piece)
    return buffer.getvalue()


def _check_part(path: str, record: Record, name: str, checksum: bytes) -> None:
    if checksum != record.parts[name].checksum:
        damaged(path, f"part {name!r} of record {record.number} does not match its checksum")


def _check_payload(path: str, number: int, version: int, body: object, checksum: object) -> None:
    if not isinstance(body, bytes) or payload_checksum(number, version, body) != checksum:
        damaged(path, f"the payload of document {number} (version {version}) does not match its checksum")


def _verify_parts(connection: sqlite3.Connection, path: str, record: Record) -> None:
    for name, head in record.parts.items():
        checksum = part_checksum(_pieces(connection, path, record.number, head))
        _check_part(path, record, name, checksum)


def _verify_number_of_pieces(connection: sqlite3.Connection, path: str, records: list[Record]) -> None:
    expected = sum(head.n_pieces for record in records for head in record.parts.values())
    got = connection.execute("SELECT count(*) FROM pieces").fetchone()[0]
    if got != expected:
        damaged(path, f"it has {got} pieces of parts instead of {expected}")


def _verify_payloads(connection: sqlite3.Connection, path: str, row: CatalogueRow) -> None:
    n_payloads = n_bytes = 0
    for number, version, body, checksum in connection.execute("SELECT * FROM payloads"):
        if type(number) is not int or type(version) is not int:
            damaged(path, "a payload has no number")
        _check_payload(path, number, version, body, checksum)
        n_payloads += 1
        n_bytes += len(body)
    if (n_payloads, n_bytes) != (row.catalogue.n_payloads, row.payload_bytes):
        damaged(path, f"it has {n_payloads} payloads instead of {row.catalogue.n_payloads}")
