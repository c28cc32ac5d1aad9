"""What a compaction writes: the live documents of each coding, in as few segments as can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.bits import pack_bits, test_bits, unpack_bits
from crossbyte.search.numbers import Numbers
from crossbyte.search.segment import SEGMENT_ROWS, Segment, SegmentCells
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Snapshot, Update

__all__ = ["PayloadRows", "compact_segments", "payload_rows"]

Key = tuple[int, int]
"""number and version of a payload row"""


class PayloadRows(NamedTuple):
    """What becomes of the payload rows.

    Attributes
    ----------
    dead : list of (number, version)
        Deleted: of deleted documents, or no longer current.
    renamed : list of (number, version)
        Become version 0.
    """

    dead: list[Key]
    renamed: list[Key]


def compact_segments(snapshot: Snapshot, n_codebooks: int, within: range | None = None) -> Iterator[Segment]:
    """Yield the new segments, coding after coding; of the documents with these numbers, if they are given."""
    for shelf in snapshot.shelves.values():
        rows = shelf.live_rows()
        if within is not None:
            numbers = shelf.numbers[rows]
            rows = rows[(numbers >= within.start) & (numbers < within.stop)]
        for start in range(0, len(rows), SEGMENT_ROWS):
            yield _segment(snapshot, shelf, rows[start : start + SEGMENT_ROWS], n_codebooks)


def _segment(snapshot: Snapshot, shelf: Shelf, rows: NDArray[np.intp], n_codebooks: int) -> Segment:
    coding, groups = shelf.coding, snapshot.groups(shelf.coding)
    columns = {field: snapshot.column(coding, field).take(rows) for field in sorted(snapshot.fields)}
    return Segment(
        coding,
        Numbers.of(shelf.numbers[rows]),
        shelf.ids.select(rows),
        {side: shelf.code_rows(side, rows, n_codebooks) for side in shelf.codes},
        pack_bits(_with_payload(snapshot, shelf)[rows]),
        None if groups is None else groups.select(rows),
        {field: column for field, column in columns.items() if column.types},
        _cells(shelf, rows),
    )


def _cells(shelf: Shelf, rows: NDArray[np.intp]) -> SegmentCells | None:
    """The cells of documents that are not new to them."""
    if not shelf.layouts:
        return None
    digest = next(iter(shelf.layouts.values())).digest
    return SegmentCells(digest, {side: each.cells[rows] for side, each in shelf.layouts.items()}, {})


def _with_payload(snapshot: Snapshot, shelf: Shelf) -> NDArray[np.bool_]:
    present = unpack_bits(shelf.with_payload, len(shelf)).copy()
    rows, there, updates = _updated(snapshot, shelf)
    present[rows[there]] = np.array([update.present for update in updates], dtype=bool)[there]
    return present


def payload_rows(snapshot: Snapshot) -> PayloadRows:
    """Say which payload rows go and which become version 0."""
    dead: list[Key] = []
    renamed: list[Key] = []
    for shelf in snapshot.shelves.values():
        rows, there, updates = _updated(snapshot, shelf)
        gone = unpack_bits(shelf.with_payload, len(shelf)) & ~unpack_bits(shelf.live, len(shelf))
        with_row = np.zeros(len(shelf), dtype=bool)
        with_row[rows[there]] = test_bits(shelf.with_payload, rows[there])
        dead += [(number, 0) for number in shelf.numbers[np.flatnonzero(gone | with_row)].tolist()]
        live = np.zeros(len(rows), dtype=bool)
        live[there] = test_bits(shelf.live, rows[there])
        for number, here, is_live, update in zip(snapshot.updates, there, live, updates, strict=True):
            if here:
                dead += [(number, version) for version in update.older]
                current = [(number, update.version)] if update.present else []
                (renamed if is_live else dead).extend(current)
    return PayloadRows(dead, renamed)


def _updated(snapshot: Snapshot, shelf: Shelf) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[Update]]:
    """All updates of the snapshot: their rows on this shelf, and which of them are on it."""
    numbers = np.array(list(snapshot.updates), dtype=np.int64)
    rows, there = shelf.numbers.find(numbers)
    return rows, there, list(snapshot.updates.values())
