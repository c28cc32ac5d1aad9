"""Compact an index: the live documents of each coding in as few segments as possible."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.index.bitset import pack_bits, test_bits, unpack_bits
from crossbyte.index.docids import DocIds
from crossbyte.index.partition import Partition
from crossbyte.index.segment import SEGMENT_ROWS, Segment, SegmentCells
from crossbyte.index.snapshot import Snapshot, Update

Key = tuple[int, int]
"""Number and version of a payload row."""


class PayloadRows(NamedTuple):
    """Payload rows that a compaction changes.

    Attributes
    ----------
    dead : list of (number, version)
        Rows to delete: of deleted documents, or no longer current.
    renamed : list of (number, version)
        Rows that become version 0.
    """

    dead: list[Key]
    renamed: list[Key]


def compact_segments(snapshot: Snapshot, n_codebooks: int, within: range | None = None) -> Iterator[Segment]:
    """Yield the new segments, coding after coding; only of documents with numbers ``within``, if given."""
    for partition in snapshot.partitions.values():
        rows = partition.live_rows()
        if within is not None:
            numbers = partition.numbers[rows]
            rows = rows[(numbers >= within.start) & (numbers < within.stop)]
        for start in range(0, len(rows), SEGMENT_ROWS):
            yield _build_segment(snapshot, partition, rows[start : start + SEGMENT_ROWS], n_codebooks)


def _build_segment(
    snapshot: Snapshot, partition: Partition, rows: NDArray[np.intp], n_codebooks: int
) -> Segment:
    coding, groups = partition.coding, snapshot.groups(partition.coding)
    columns = {field: snapshot.column(coding, field).take(rows) for field in sorted(snapshot.fields)}
    return Segment(
        coding,
        DocIds.of(partition.numbers[rows]),
        partition.ids.select(rows),
        {side: partition.code_rows(side, rows, n_codebooks) for side in partition.codes},
        pack_bits(_mark_payloads(snapshot, partition)[rows]),
        None if groups is None else groups.select(rows),
        {field: column for field, column in columns.items() if column.types},
        _take_cells(partition, rows),
    )


def _take_cells(partition: Partition, rows: NDArray[np.intp]) -> SegmentCells | None:
    """Give the cells of documents, which are not counted as new."""
    if not partition.inverted_lists:
        return None
    digest = next(iter(partition.inverted_lists.values())).digest
    return SegmentCells(
        digest, {side: each.cells[rows] for side, each in partition.inverted_lists.items()}, {}
    )


def _mark_payloads(snapshot: Snapshot, partition: Partition) -> NDArray[np.bool_]:
    present = unpack_bits(partition.with_payload, len(partition)).copy()
    rows, there, updates = _find_updates(snapshot, partition)
    present[rows[there]] = np.array([update.present for update in updates], dtype=bool)[there]
    return present


def find_payload_rows(snapshot: Snapshot) -> PayloadRows:
    """Find the payload rows to delete, and those that become version 0."""
    dead: list[Key] = []
    renamed: list[Key] = []
    for partition in snapshot.partitions.values():
        rows, there, updates = _find_updates(snapshot, partition)
        n_rows = len(partition)
        gone = unpack_bits(partition.with_payload, n_rows) & ~unpack_bits(partition.live, n_rows)
        with_row = np.zeros(n_rows, dtype=bool)
        with_row[rows[there]] = test_bits(partition.with_payload, rows[there])
        dead += [(number, 0) for number in partition.numbers[np.flatnonzero(gone | with_row)].tolist()]
        live = np.zeros(len(rows), dtype=bool)
        live[there] = test_bits(partition.live, rows[there])
        for number, here, is_live, update in zip(snapshot.updates, there, live, updates, strict=True):
            if here:
                dead += [(number, version) for version in update.older]
                current = [(number, update.version)] if update.present else []
                (renamed if is_live else dead).extend(current)
    return PayloadRows(dead, renamed)


def _find_updates(
    snapshot: Snapshot, partition: Partition
) -> tuple[NDArray[np.int64], NDArray[np.bool_], list[Update]]:
    """Find the rows of all updates in this partition, which of them are in it, and the updates."""
    numbers = np.array(list(snapshot.updates), dtype=np.int64)
    rows, there = partition.numbers.find(numbers)
    return rows, there, list(snapshot.updates.values())
