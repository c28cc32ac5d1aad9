"""Read, verify and write the rows of an index file; every function runs in the caller's transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from operator import index

from crossbyte.errors import InvalidInput, StaleReader
from crossbyte.index.storage import records as limits
from crossbyte.index.storage.records import (
    EMPTY_DIGEST,
    MAX_HEAD_BYTES,
    PIECES_PER_RECORD,
    Catalogue,
    CatalogueRow,
    NewRecord,
    PartHead,
    Record,
    as_bytes,
    catalogue_checksum,
    encode_head,
    extend_digest,
    parse_head,
    part_checksum,
    payload_checksum,
    raise_damaged,
    record_checksum,
)

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
        raise_damaged(path, f"its catalogue has {len(rows)} rows")
    *numbers, digest, checksum = rows[0]
    if not all(type(number) is int for number in numbers) or not isinstance(digest, bytes):
        raise_damaged(path, "its catalogue has values of a wrong type")
    if catalogue_checksum(numbers, digest) != checksum:
        raise_damaged(path, "its catalogue does not match its checksum")
    generation, oldest, next_number, n_payloads, n_records, next_record, payload_bytes = numbers
    catalogue = Catalogue(generation, oldest, next_number, n_payloads, n_records, digest)
    if min(numbers) < 0 or oldest > generation:
        raise_damaged(path, "its catalogue has impossible values")
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
            raise_damaged(path, f"record {number} has no checksum")
        digest = extend_digest(digest, number, checksum)
        n_records += 1
        if number > after:
            if not isinstance(head, bytes) or record_checksum(number, head) != checksum:
                raise_damaged(path, f"record {number} does not match its checksum")
            records.append(parse_head(path, number, head))
    if (n_records, digest) != (catalogue.n_records, catalogue.digest):
        raise_damaged(path, "its records are not those that its catalogue counts")
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
    data = _join_pieces(_read_pieces(connection, path, record.number, head), head)
    _verify_part(path, record, name, part_checksum([data]))
    return data


def fetch_payload(connection: sqlite3.Connection, path: str, number: int, version: int) -> bytes:
    """Read the body of one payload row, verified.

    Raises
    ------
    DamagedIndexFile
    """
    row = connection.execute(_PAYLOAD, (number, version)).fetchone()
    if row is None:
        raise_damaged(path, f"the payload of document {number} (version {version}) is missing")
    _verify_payload(path, number, version, row[0], row[1])
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
        raise_damaged(path, "; ".join(messages)[:500])
    row = fetch_catalogue(connection, path)
    records = fetch_records(connection, path, row.catalogue, after=0)
    if any(record.number >= row.next_record for record in records):
        raise_damaged(path, "a record has a number that was not yet given")
    for record in records:
        _verify_parts(connection, path, record)
    _verify_number_of_pieces(connection, path, records)
    _verify_payloads(connection, path, row)


def _read_pieces(connection: sqlite3.Connection, path: str, number: int, head: PartHead) -> Iterator[bytes]:
    """Read the rows of a part; their lengths are compared before anything is allocated."""
    left = head.n_bytes
    for piece in range(head.first, head.first + head.n_pieces):
        place = number * PIECES_PER_RECORD + piece
        # Through a blob handle, because a SELECT would copy the bytes once more.
        with connection.blobopen("pieces", "body", place, readonly=True) as blob:
            left -= len(blob)
            if left < 0 or (piece == head.first + head.n_pieces - 1 and left != 0):
                raise_damaged(path, f"a part of record {number} has a wrong length")
            yield blob.read()


def _join_pieces(pieces: Iterator[bytes], head: PartHead) -> bytes:
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


def _verify_part(path: str, record: Record, name: str, checksum: bytes) -> None:
    if checksum != record.parts[name].checksum:
        raise_damaged(path, f"part {name!r} of record {record.number} does not match its checksum")


def _verify_payload(path: str, number: int, version: int, body: object, checksum: object) -> None:
    if not isinstance(body, bytes) or payload_checksum(number, version, body) != checksum:
        raise_damaged(
            path, f"the payload of document {number} (version {version}) does not match its checksum"
        )


def _verify_parts(connection: sqlite3.Connection, path: str, record: Record) -> None:
    for name, head in record.parts.items():
        checksum = part_checksum(_read_pieces(connection, path, record.number, head))
        _verify_part(path, record, name, checksum)


def _verify_number_of_pieces(connection: sqlite3.Connection, path: str, records: list[Record]) -> None:
    expected = sum(head.n_pieces for record in records for head in record.parts.values())
    got = connection.execute("SELECT count(*) FROM pieces").fetchone()[0]
    if got != expected:
        raise_damaged(path, f"it has {got} pieces of parts instead of {expected}")


def _verify_payloads(connection: sqlite3.Connection, path: str, row: CatalogueRow) -> None:
    n_payloads = n_bytes = 0
    for number, version, body, checksum in connection.execute("SELECT * FROM payloads"):
        if type(number) is not int or type(version) is not int:
            raise_damaged(path, "a payload has no number")
        _verify_payload(path, number, version, body, checksum)
        n_payloads += 1
        n_bytes += len(body)
    if (n_payloads, n_bytes) != (row.catalogue.n_payloads, row.payload_bytes):
        raise_damaged(path, f"it has {n_payloads} payloads instead of {row.catalogue.n_payloads}")


EMPTY_CATALOGUE = CatalogueRow(Catalogue(0, 0, 0, 0, 0, EMPTY_DIGEST), next_record=1, payload_bytes=0)

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
    connection.executemany(_INSERT_PAYLOAD, _count_rows(change.payloads, counts))
    next_record = old.next_record + len(change.records)
    n_records = old.catalogue.n_records + len(change.records) - len(change.drop)
    digest = _chain_digest(connection, path, old, bool(change.drop))
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
            raise_damaged(path, f"record {number} is missing")
        first = number * PIECES_PER_RECORD
        places = (first, first + PIECES_PER_RECORD - 1)
        connection.execute("DELETE FROM pieces WHERE place BETWEEN ? AND ?", places)


def _write_records(
    connection: sqlite3.Connection, records: Sequence[NewRecord], first: int, generation: int
) -> None:
    for number, record in enumerate(records, first):
        views = {name: as_bytes(part, name) for name, part in sorted(record.parts.items())}
        head = encode_head(record, generation, views)
        row = (number, head, record_checksum(number, head))
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", row)
        pieces = enumerate(_cut_pieces(views.values()), number * PIECES_PER_RECORD)
        connection.executemany("INSERT INTO pieces VALUES (?, ?)", pieces)


def _cut_pieces(views: Iterable[memoryview]) -> Iterator[memoryview]:
    step = limits.MAX_PIECE_BYTES
    for view in views:
        for start in range(0, len(view), step):
            yield view[start : start + step]


def _delete_payloads(
    connection: sqlite3.Connection, path: str, keys: Iterable[tuple[int, int]], counts: _Counts
) -> None:
    for number, version in _plain_keys(keys):
        counts.n_bytes -= len(fetch_payload(connection, path, number, version))
        counts.rows -= connection.execute(_DELETE_PAYLOAD, (number, version)).rowcount


def _rename_payloads(connection: sqlite3.Connection, path: str, keys: Iterable[tuple[int, int]]) -> None:
    for number, version in _plain_keys(keys):
        body = fetch_payload(connection, path, number, version)
        connection.execute(_RENAME_PAYLOAD, (payload_checksum(number, 0, body), number, version))


def _plain_keys(keys: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    return ((index(number), index(version)) for number, version in keys)


def _count_rows(
    payloads: Iterable[tuple[int, int, bytes]], counts: _Counts
) -> Iterator[tuple[int, int, bytes, bytes]]:
    for number, version, body in payloads:
        number, version = index(number), index(version)  # SQLite would store a NumPy integer as a blob
        _check_new_payload(number, version, body)
        counts.rows += 1
        counts.n_bytes += len(body)
        yield number, version, body, payload_checksum(number, version, body)


def _check_new_payload(number: int, version: int, body: bytes) -> None:
    if not (0 <= number <= _MAX_NUMBER and 0 <= version <= _MAX_NUMBER):
        raise InvalidInput(f"expected payload numbers from 0 to 2**63 - 1, got {number} and {version}")
    if type(body) is not bytes or len(body) > limits.MAX_PIECE_BYTES:
        raise InvalidInput(
            f"expected a payload of at most {limits.MAX_PIECE_BYTES} bytes, got document {number}"
        )


def _chain_digest(
    connection: sqlite3.Connection, path: str, old: CatalogueRow, from_the_start: bool
) -> bytes:
    """Go on from the digest of the records that were there, unless some of them are gone."""
    digest = EMPTY_DIGEST if from_the_start else old.catalogue.digest
    after = 0 if from_the_start else old.next_record - 1
    rows = connection.execute(
        "SELECT number, checksum FROM records WHERE number > ? ORDER BY number", (after,)
    )
    for number, checksum in rows:
        if not isinstance(checksum, bytes):
            raise_damaged(path, f"record {number} has no checksum")
        digest = extend_digest(digest, number, checksum)
    return digest


def _write_catalogue(connection: sqlite3.Connection, row: CatalogueRow) -> None:
    *numbers, digest = row.catalogue
    values = [*numbers, row.next_record, row.payload_bytes]
    connection.execute(_INSERT_CATALOGUE, (*values, digest, catalogue_checksum(values, row.catalogue.digest)))
