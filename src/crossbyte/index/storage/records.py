"""Read and write the tables of an index file: records, their pieces and payload rows, all with checksums."""

from __future__ import annotations

import errno
import hashlib
import os
import sqlite3
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from io import BytesIO
from math import isfinite
from operator import index
from typing import Any, NamedTuple, NoReturn

import numpy as np

from crossbyte import errors
from crossbyte._json import canonical_json, parse_json, plain_json

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_MEMORY = (sqlite3.SQLITE_NOMEM, sqlite3.SQLITE_IOERR_NOMEM)
_UNWRITABLE = (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM)


def raise_damaged(path: str, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise DamagedIndexFile, saying what disagrees."""
    message = f"{path}: the index is damaged: {what}; restore it from a backup or build it again"
    raise errors.DamagedIndexFile(message) from cause


def raise_foreign(path: str, what: str, cause: BaseException | None = None) -> NoReturn:
    """Raise ForeignIndexFile, saying what the file is instead."""
    raise errors.ForeignIndexFile(
        f"{path}: expected a crossbyte index, but {what}; check the path"
    ) from cause


@contextmanager
def translate_sqlite_errors(path: str, *, writing: bool) -> Iterator[None]:
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
        _raise_translated(error, path, writing)
    except (OverflowError, UnicodeDecodeError) as error:
        if writing:
            raise  # a caller's value
        raise_damaged(path, str(error), error)


@contextmanager
def translate_system_errors(path: str) -> Iterator[None]:
    """Turn refusals of the system to write within this block into crossbyte's errors.

    FileNotFoundError and FileExistsError pass through: what they mean, the caller knows.
    """
    try:
        yield
    except (FileNotFoundError, FileExistsError):
        raise
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise errors.StorageFull(_disk_full_message(path, error)) from error
        if error.errno in _FORBIDDEN:
            raise errors.ReadOnlyIndex(_unwritable_message(path, error)) from error
        if error.errno is None:
            raise  # one of ours
        raise errors.StorageFailed(_io_failed_message(path, error)) from error


def _raise_translated(error: sqlite3.Error, path: str, writing: bool) -> NoReturn:
    code, primary = _extended_code(error), primary_code(error)
    if code in _MEMORY or primary == sqlite3.SQLITE_NOMEM:
        raise MemoryError(f"{path}: SQLite got no memory") from error
    if primary == sqlite3.SQLITE_FULL or (primary == sqlite3.SQLITE_IOERR and writing and _is_full(path)):
        raise errors.StorageFull(_disk_full_message(path, error)) from error
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        raise errors.IndexBusy(
            f"{path}: another process held the file for too long ({error}); try again"
        ) from error
    if primary in _UNWRITABLE:
        _raise_refusal(error, path, writing)
    if primary == sqlite3.SQLITE_IOERR and code != sqlite3.SQLITE_IOERR_SHORT_READ:
        raise errors.StorageFailed(_io_failed_message(path, error)) from error
    if writing and primary in (sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG):
        message = f"{path}: expected new rows of a size that SQLite takes, got: {error}; nothing was changed"
        raise errors.InvalidInput(message) from error
    raise_damaged(path, str(error), error)


def _raise_refusal(error: sqlite3.Error, path: str, writing: bool) -> NoReturn:
    """Tell apart who is refused: a writer, a reader that must first roll back, or any reader."""
    if writing:
        raise errors.ReadOnlyIndex(_unwritable_message(path, error)) from error
    if os.path.exists(path + "-journal"):
        raise errors.ReadOnlyIndex(
            f"{path}: a write was interrupted and must be rolled back before reading, but the system forbids"
            f" writing here ({error}); open the index once where writing is allowed"
        ) from error
    raise errors.StorageFailed(
        f"{path}: the system refused to open it ({error}); check its permissions"
    ) from error


def _extended_code(error: BaseException) -> int | None:
    code = getattr(error, "sqlite_errorcode", None)
    return code if isinstance(code, int) else None


def primary_code(error: BaseException) -> int | None:
    """Give SQLite's code of an error without its refinement; None when it has none."""
    code = _extended_code(error)
    return None if code is None else code & 0xFF


def _is_full(path: str) -> bool:
    """Look whether space is what was missing: SQLite reports a passed quota as any other failure."""
    try:
        free = os.statvfs(os.path.dirname(path))
    except (OSError, AttributeError):  # Windows has no statvfs
        return False
    return free.f_bavail == 0


def _disk_full_message(path: str, error: BaseException) -> str:
    return f"{path}: the disk is full ({error}); nothing was changed; make space and open the index again"


def _unwritable_message(path: str, error: BaseException) -> str:
    return f"{path}: the system forbids writing to the file or its folder ({error}); check the permissions"


def _io_failed_message(path: str, error: BaseException) -> str:
    return (
        f"{path}: the system failed to read or write ({error}); look at the disk, then open the index again"
    )


_LONG, _SHORT = 16, 8  # payload rows are many and small, so theirs is the short one
EMPTY_DIGEST = bytes(_LONG)


def part_checksum(pieces: Iterable[bytes | memoryview]) -> bytes:
    """Give the checksum of a part, whose pieces are taken as one string of bytes.

    Parameters
    ----------
    pieces : iterable of bytes or memoryview

    Returns
    -------
    bytes
        16 bytes.
    """
    state = hashlib.blake2b(digest_size=_LONG, person=b"crossbyte part")
    for piece in pieces:
        state.update(piece)
    return state.digest()


def record_checksum(number: int, head: bytes) -> bytes:
    """Give the checksum (16 bytes) of a record's head and number."""
    message = struct.pack("<q", number) + head
    return hashlib.blake2b(message, digest_size=_LONG, person=b"crossbyte record").digest()


def extend_digest(digest: bytes, number: int, checksum: bytes) -> bytes:
    """Give the digest of all records, one record longer.

    A chain, so that a commit need not read the records that are there already.

    Parameters
    ----------
    digest : bytes
        Of the records with smaller numbers; `EMPTY_DIGEST` when there are none.
    number : int
    checksum : bytes
        `record_checksum` of the record.

    Returns
    -------
    bytes
        16 bytes.
    """
    message = digest + struct.pack("<q", number) + checksum
    return hashlib.blake2b(message, digest_size=_LONG, person=b"crossbyte chain").digest()


def catalogue_checksum(numbers: Iterable[int], digest: bytes) -> bytes:
    """Give the checksum (16 bytes) of the catalogue: its numbers, and the digest of all records."""
    values = tuple(numbers)
    message = struct.pack(f"<{len(values)}q", *values) + digest
    return hashlib.blake2b(message, digest_size=_LONG, person=b"crossbyte all").digest()


def payload_checksum(number: int, version: int, body: bytes) -> bytes:
    """Give the checksum (8 bytes) of a payload row."""
    message = struct.pack("<qq", number, version) + body
    return hashlib.blake2b(message, digest_size=_SHORT, person=b"crossbyte row").digest()


BytesLike = bytes | bytearray | memoryview | np.ndarray[Any, Any]

MAX_PIECE_BYTES = 64 * 2**20  # a part larger than this is stored in several rows
MAX_HEAD_BYTES = 8 * 2**20
_MOST_NUMBER = 2**62  # of anything that the catalogue counts: the next is still one of 64 bits
PIECES_PER_RECORD = 2**20  # a piece's row number is record number * this + its place in the record


class PartHead(NamedTuple):
    """What a record says about one of its parts.

    Attributes
    ----------
    n_bytes : int
    checksum : bytes
        16 bytes, over the whole part.
    first, n_pieces : int
        Which rows of the record's pieces hold it.
    """

    n_bytes: int
    checksum: bytes
    first: int
    n_pieces: int


@dataclass(frozen=True)
class NewRecord:
    """A record to be written.

    Attributes
    ----------
    kind : str
    document : dict
        Small: JSON values with finite numbers.
    parts : mapping of str to bytes, memoryview or C-contiguous ndarray
    """

    kind: str
    document: dict[str, Any]
    parts: Mapping[str, BytesLike] = field(default_factory=dict)


@dataclass(frozen=True)
class Record:
    """A record as it is in the file; its parts are read one by one with `Store.part`.

    Attributes
    ----------
    number : int
        From 1 upwards in the order of writing, never given twice.
    generation : int
        The commit that wrote it.
    kind : str
    document : dict
    parts : mapping of str to PartHead
    """

    number: int
    generation: int
    kind: str
    document: dict[str, Any]
    parts: Mapping[str, PartHead]


class Catalogue(NamedTuple):
    """The state of the file after a commit.

    Attributes
    ----------
    generation : int
        1 after creation, one more with each commit.
    oldest : int
        Readers of an older generation are stale: a compaction took away what they would read.
    next_number : int
        The next document number to give.
    n_payloads, n_records : int
        Rows in the file.
    digest : bytes
        16 bytes, over all heads of records.
    """

    generation: int
    oldest: int
    next_number: int
    n_payloads: int
    n_records: int
    digest: bytes


class CatalogueRow(NamedTuple):
    """The catalogue with what only the storage layer needs.

    Attributes
    ----------
    catalogue : Catalogue
    next_record : int
        The next record number to give.
    payload_bytes : int
        Sum of the lengths of all payload bodies.
    """

    catalogue: Catalogue
    next_record: int
    payload_bytes: int


@dataclass(frozen=True)
class Change:
    """Everything that one commit writes.

    Attributes
    ----------
    records : sequence of NewRecord
    payloads : iterable of (number, version, body)
        Read inside the transaction, one row at a time.
    next_number : int
        The next document number to give after this commit.
    drop : sequence of int
        Numbers of records to remove; then readers of earlier generations become stale.
    words : iterable of (number, version, text)
        What is searched by words of documents, in the place of earlier versions; only in format 3.
    """

    records: Sequence[NewRecord] = ()
    payloads: Iterable[tuple[int, int, bytes]] = ()
    next_number: int = 0
    drop: Sequence[int] = ()
    words: Iterable[tuple[int, int, str]] = ()


def as_bytes(value: BytesLike, name: str) -> memoryview:
    """View a part as plain bytes, without a copy.

    Raises
    ------
    InvalidInput
        Not bytes-like, or an array that is not C-contiguous.
    """
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # ndarray has the buffer protocol
        return view.cast("B") if view.nbytes else memoryview(b"")
    except (TypeError, ValueError, BufferError) as error:
        message = f"expected part {name!r} as bytes or a C-contiguous array, got {type(value).__name__}"
        raise errors.InvalidInput(f"{message} ({error})") from error


def encode_head(record: NewRecord, generation: int, views: Mapping[str, memoryview]) -> bytes:
    """Spell the head of a new record: canonical JSON with everything but the parts' bytes.

    Parameters
    ----------
    record : NewRecord
    generation : int
    views : mapping of str to memoryview
        The parts as bytes, in the order in which they will be stored.

    Raises
    ------
    InvalidInput
        Kind or document cannot be stored faithfully, or the head is too large.
    """
    parts: dict[str, Any] = {}
    first = 0
    for name, view in views.items():
        n_pieces = -(-len(view) // MAX_PIECE_BYTES)
        checksum = part_checksum([view]).hex()
        parts[name] = {"bytes": len(view), "checksum": checksum, "first": first, "pieces": n_pieces}
        first += n_pieces
    if first > PIECES_PER_RECORD:
        raise errors.InvalidInput(f"expected at most {PIECES_PER_RECORD} pieces in a record, got {first}")
    document = plain_json(record.document, "document")
    values = {"document": document, "generation": generation, "kind": record.kind, "parts": parts}
    head = canonical_json(plain_json(values, "record")).encode()
    if len(head) > MAX_HEAD_BYTES:
        raise errors.InvalidInput(
            f"expected a record's document of at most {MAX_HEAD_BYTES} bytes, got {len(head)}"
        )
    return head


def parse_head(path: str, number: int, head: bytes) -> Record:
    """Read a head whose checksum is right; refuse it all the same if its structure is not ours.

    Raises
    ------
    DamagedIndexFile
    """
    try:
        values = parse_json(head.decode(), parse_float=_parse_finite)
        document, kind, generation = values["document"], values["kind"], values["generation"]
        if type(generation) is not int or not isinstance(kind, str) or not isinstance(document, dict):
            raise ValueError("a value has the wrong type")
        return Record(number, generation, kind, document, _parse_parts(values["parts"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise_damaged(path, f"record {number} cannot be understood ({error})", error)


def _parse_finite(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise ValueError(f"{text} is too large")
    return number


def _parse_parts(parts: dict[str, dict[str, Any]]) -> dict[str, PartHead]:
    heads = {name: _parse_part(values) for name, values in parts.items()}
    first = 0
    for head in sorted(heads.values(), key=lambda head: (head.first, head.n_pieces)):
        if head.first != first:
            raise ValueError("its parts overlap or leave a gap")
        first += head.n_pieces
    if first > PIECES_PER_RECORD:
        raise ValueError("its parts have too many pieces")
    return heads


def _parse_part(values: dict[str, Any]) -> PartHead:
    n_bytes, first, n_pieces = values["bytes"], values["first"], values["pieces"]
    if not all(type(value) is int and value >= 0 for value in (n_bytes, first, n_pieces)):
        raise ValueError("a size is no natural number")
    if n_pieces > n_bytes or n_bytes > n_pieces * MAX_PIECE_BYTES:
        raise ValueError("a part's size does not fit its pieces")
    return PartHead(n_bytes, bytes.fromhex(values["checksum"]), first, n_pieces)


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
    most = max(*numbers, next_record * PIECES_PER_RECORD)
    if min(numbers) < 0 or most >= _MOST_NUMBER or oldest > generation:
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
    """Read one part, which :func:`verify_part` has yet to see.

    Raises
    ------
    StaleReader
        The record is no longer there.
    DamagedIndexFile
    """
    if connection.execute(_HAS_RECORD, (record.number,)).fetchone() is None:
        raise errors.StaleReader(f"{path}: a compaction has replaced record {record.number}; call refresh()")
    if name not in record.parts:
        raise_damaged(path, f"record {record.number} has no part {name!r}")
    head = record.parts[name]
    return _join_pieces(_read_pieces(connection, path, record.number, head), head)


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
    _verify_words(connection, path)


def _verify_words(connection: sqlite3.Connection, path: str) -> None:
    """Compare the words with the numbers of documents; ``integrity_check`` has compared FTS5's own tables."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone() is None:
        return
    query = (
        "SELECT count(*) FROM words_content AS own LEFT JOIN payloads"
        " ON payloads.number = own.id AND payloads.version = own.c1"
        " WHERE payloads.number IS NULL AND own.c0 <> ''"
    )
    if connection.execute(query).fetchone()[0]:
        raise_damaged(path, "it has words of documents that it does not have")


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


def verify_part(path: str, record: Record, name: str, pieces: Iterable[bytes]) -> None:
    """Compare a part, given whole or in pieces, with its checksum.

    Raises
    ------
    DamagedIndexFile
    """
    if part_checksum(pieces) != record.parts[name].checksum:
        raise_damaged(path, f"part {name!r} of record {record.number} does not match its checksum")


def _verify_payload(path: str, number: int, version: int, body: object, checksum: object) -> None:
    if not isinstance(body, bytes) or payload_checksum(number, version, body) != checksum:
        raise_damaged(
            path, f"the payload of document {number} (version {version}) does not match its checksum"
        )


def _verify_parts(connection: sqlite3.Connection, path: str, record: Record) -> None:
    for name, head in record.parts.items():
        verify_part(path, record, name, _read_pieces(connection, path, record.number, head))


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
_RENAME_PAYLOAD = "UPDATE payloads SET version = ?, checksum = ? WHERE number = ? AND version = ?"
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
    lowered: Iterable[tuple[int, int, int]] = ()
    compacting: bool = False
    words: Iterable[tuple[int, int, str]] = ()
    has_words: bool = False


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
        raise errors.InvalidInput(f"expected the next document number never to fall, got {got}")
    if change.drop:
        fetch_records(connection, path, old.catalogue, after=0)  # the new digest must not hide old damage
    _drop_records(connection, path, change.drop)
    _write_records(connection, change.records, old.next_record, generation)
    counts = _Counts(old.catalogue.n_payloads, old.payload_bytes)
    dead, renamed = list(_plain_keys(change.dead)), list(_plain_keys(change.renamed))
    _delete_payloads(connection, path, dead, counts)
    lowered = [(number, version, 0) for number, version in renamed]
    lowered += [(index(number), index(version), index(new)) for number, version, new in change.lowered]
    _rename_payloads(connection, path, lowered)
    connection.executemany(_INSERT_PAYLOAD, _count_rows(change.payloads, counts))
    if change.has_words:
        _write_words(connection, change.words, dead, lowered)
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
    step = MAX_PIECE_BYTES
    for view in views:
        for start in range(0, len(view), step):
            yield view[start : start + step]


def _delete_payloads(
    connection: sqlite3.Connection, path: str, keys: Iterable[tuple[int, int]], counts: _Counts
) -> None:
    for number, version in keys:
        counts.n_bytes -= len(fetch_payload(connection, path, number, version))
        counts.rows -= connection.execute(_DELETE_PAYLOAD, (number, version)).rowcount


def _rename_payloads(connection: sqlite3.Connection, path: str, keys: Iterable[tuple[int, int, int]]) -> None:
    for number, version, new in keys:
        body = fetch_payload(connection, path, number, version)
        connection.execute(_RENAME_PAYLOAD, (new, payload_checksum(number, new, body), number, version))


def _write_words(
    connection: sqlite3.Connection,
    words: Iterable[tuple[int, int, str]],
    dead: Iterable[tuple[int, int]],
    lowered: Iterable[tuple[int, int, int]],
) -> None:
    """Write the words of new and updated documents; forget those of deleted ones when compacting."""
    connection.executemany("DELETE FROM words WHERE rowid = ? AND version = ?", dead)
    connection.executemany(
        "UPDATE words SET version = ? WHERE rowid = ? AND version = ?",
        ((new, number, version) for number, version, new in lowered),
    )
    connection.executemany(
        "INSERT OR REPLACE INTO words (rowid, version, text) VALUES (?, ?, ?)",
        ((index(number), index(version), text) for number, version, text in words),
    )


def fetch_term_matches(connection: sqlite3.Connection, expression: str) -> list[tuple[int, int, int, int]]:
    """Find documents by a word or phrase: number, version of the payload, how often they have it, all words.

    Parameters
    ----------
    connection : sqlite3.Connection
    expression : str
        Of FTS5: one word or phrase in quotes (:mod:`crossbyte.index.lexical`).
    """
    # FTS5's own bm25() counts deleted documents, and each shard by itself: scores are made of counts instead.
    # A mark is set before each place; the texts themselves have no such sign.
    return connection.execute(
        "SELECT rowid, version, length(highlight(words, 0, char(1), '')) - length(text),"
        " length(text) - length(replace(text, ' ', '')) + 1 FROM words WHERE words MATCH ?",
        (expression,),
    ).fetchall()


def has_words_below(connection: sqlite3.Connection, number: int) -> bool:
    """Say whether any document below a number has words."""
    statement = "SELECT EXISTS (SELECT 1 FROM words_docsize WHERE id < ?)"
    return bool(connection.execute(statement, (number,)).fetchone()[0])


def count_term_matches(connection: sqlite3.Connection, expression: str, below: int, most: int) -> int:
    """Count the rows that an expression of FTS5 matches, of numbers below a bound, ``most`` at most."""
    found = connection.execute(
        "SELECT count(*) FROM (SELECT rowid FROM words WHERE words MATCH ? AND rowid < ? LIMIT ?)",
        (expression, below, most),
    )
    return int(found.fetchone()[0])


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
        raise errors.InvalidInput(f"expected payload numbers from 0 to 2**63 - 1, got {number} and {version}")
    if type(body) is not bytes or len(body) > MAX_PIECE_BYTES:
        raise errors.InvalidInput(
            f"expected a payload of at most {MAX_PIECE_BYTES} bytes, got document {number}"
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
