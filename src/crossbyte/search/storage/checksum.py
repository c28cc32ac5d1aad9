"""The checksums of an index file: blake2b, with a purpose mixed in so that no two kinds can be confused.

They find accidents; they are no signature and do not prove who wrote the file.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable

__all__ = [
    "EMPTY_DIGEST",
    "catalogue_checksum",
    "extend_digest",
    "part_checksum",
    "payload_checksum",
    "record_checksum",
]

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
