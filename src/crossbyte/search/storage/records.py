"""What an index file is made of: immutable records, and the catalogue that holds them together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from crossbyte.errors import InvalidInput
from crossbyte.search.storage.checksum import part_checksum
from crossbyte.search.storage.failures import damaged
from crossbyte.strict_json import canonical_json, parse_json, plain_json

__all__ = [
    "MAX_HEAD_BYTES",
    "MAX_PIECE_BYTES",
    "PIECES_PER_RECORD",
    "Catalogue",
    "CatalogueRow",
    "Change",
    "NewRecord",
    "PartHead",
    "Record",
    "as_bytes",
    "head_of",
    "parse_head",
]

BytesLike = bytes | bytearray | memoryview | np.ndarray[Any, Any]

MAX_PIECE_BYTES = 64 * 2**20  # a part larger than this is stored in several rows
MAX_HEAD_BYTES = 8 * 2**20
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
    """

    records: Sequence[NewRecord] = ()
    payloads: Iterable[tuple[int, int, bytes]] = ()
    next_number: int = 0
    drop: Sequence[int] = ()


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
        raise InvalidInput(f"{message} ({error})") from error


def head_of(record: NewRecord, generation: int, views: Mapping[str, memoryview]) -> bytes:
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
        raise InvalidInput(f"expected at most {PIECES_PER_RECORD} pieces in a record, got {first}")
    document = plain_json(record.document, "document")
    values = {"document": document, "generation": generation, "kind": record.kind, "parts": parts}
    head = canonical_json(plain_json(values, "record")).encode()
    if len(head) > MAX_HEAD_BYTES:
        raise InvalidInput(f"expected a record's document of at most {MAX_HEAD_BYTES} bytes, got {len(head)}")
    return head


def parse_head(path: str, number: int, head: bytes) -> Record:
    """Read a head whose checksum is right; refuse it all the same if its structure is not ours.

    Raises
    ------
    DamagedIndexFile
    """
    try:
        values = parse_json(head.decode())
        document, kind, generation = values["document"], values["kind"], values["generation"]
        if type(generation) is not int or not isinstance(kind, str) or not isinstance(document, dict):
            raise ValueError("a value has the wrong type")
        return Record(number, generation, kind, document, _parse_parts(values["parts"]))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        damaged(path, f"record {number} cannot be understood ({error})", error)


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
