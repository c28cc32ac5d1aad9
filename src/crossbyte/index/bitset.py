"""Pack marks of documents into 64-bit words: which are live, allowed, or have a payload."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bitset = NDArray[np.uint64]


def pack_bits(values: NDArray[np.bool_]) -> Bitset:
    """Pack (n,) booleans: bit i of word w is value 64 w + i."""
    octets = np.zeros(-(-len(values) // 64) * 8, dtype=np.uint8)
    packed = np.packbits(values, bitorder="little")
    octets[: len(packed)] = packed
    return octets.view("<u8").astype(np.uint64, copy=False)


def unpack_bits(words: Bitset, n: int) -> NDArray[np.bool_]:
    """Give back (n,) booleans."""
    octets = words.astype("<u8", copy=False).view(np.uint8)
    return np.unpackbits(octets, count=n, bitorder="little").view(np.bool_)


def test_bits(words: Bitset, rows: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """Say which of the rows have their bit set."""
    shifts = (rows % 64).astype(np.uint64)
    return (words[rows // 64] >> shifts) & np.uint64(1) != 0


def clear_bits(words: Bitset, rows: NDArray[np.integer[Any]]) -> Bitset:
    """Give a copy in which the bits of these rows are not set."""
    cleared = words.copy()
    bits = np.uint64(1) << (rows % 64).astype(np.uint64)
    np.bitwise_and.at(cleared, rows // 64, ~bits)
    return cleared


def count_bits(words: Bitset) -> int:
    """Count the bits that are set."""
    return int(np.bitwise_count(words).sum())
