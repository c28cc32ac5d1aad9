"""Integers that have the hash of a text: ids that only a second look can tell apart."""

from __future__ import annotations

from crossbyte.index.docids import PackedIds


def twin_of(text: str) -> int:
    """The integer that has the same hash as a text."""
    wanted = int(PackedIds.of([text]).hashes()[0])
    value = _unshift(wanted, 31)
    value = _unshift(value * pow(0x94D049BB133111EB, -1, 2**64) % 2**64, 27)
    value = _unshift(value * pow(0xBF58476D1CE4E5B9, -1, 2**64) % 2**64, 30)
    return value - 2**64 if value >= 2**63 else value


def _unshift(value: int, by: int) -> int:
    found = value
    while found ^ found >> by != value:
        found = value ^ found >> by
    return found
