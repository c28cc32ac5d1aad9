"""Merge the small records that many small commits leave: what a writer does by itself, a little at a time.

Records of one kind are merged from the end: when there are `MERGED_AT_ONCE` of one order of magnitude, they
and all smaller ones behind them become one. So a document is written again once for each order of magnitude,
and there are never many records. Large ones are left to a compaction, which also forgets what is deleted;
here, every row stays where it is, so that a snapshot in memory remains what it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from crossbyte.index.bitset import pack_bits, unpack_bits
from crossbyte.index.docids import DocIds, PackedIds
from crossbyte.index.filters.columns import Column, join_columns
from crossbyte.index.ivf.state import KIND as CELLS_KIND
from crossbyte.index.partition import SegmentRows
from crossbyte.index.segment import (
    CODINGS,
    Groups,
    Segment,
    SegmentCells,
    load_segments,
    name_column_part,
    refuse_damage,
)
from crossbyte.index.snapshot import Snapshot
from crossbyte.index.storage.records import Catalogue, NewRecord, Record
from crossbyte.index.storage.store import Store

MERGED_AT_ONCE = 64
MAX_ROWS = 4096
"""Larger records are not merged; nor are those of more than 1 KiB times this."""
_ROW_BYTES = 1024  # a record of larger rows counts as one of more rows


class Merge(NamedTuple):
    """Hold the records that one commit puts in the place of others.

    Attributes
    ----------
    drop : list of int
        Numbers of the records to remove.
    records : list of NewRecord
        In the order of ``sources``.
    sources : list of list of Record
        What each of them is made of.
    """

    drop: list[int]
    records: list[NewRecord]
    sources: list[list[Record]]


def make_merge(store: Store, n_codebooks: int) -> Merge | None:
    """Make the records that merge small ones; None where there are not enough of them.

    Raises
    ------
    DamagedIndexFile
    """
    with store.reading():
        records = store.records()
    sources = [each for each in _list_mergeable(records) if len(each) > 1]
    if not sources:
        return None
    merged = [_merge_records(store, each, n_codebooks) for each in sources]
    return Merge([record.number for each in sources for record in each], merged, sources)


def put_merge(snapshot: Snapshot, catalogue: Catalogue, written: Sequence[Record], merge: Merge) -> Snapshot:
    """Give the state with merged records in the place of those that they are made of; all else stays."""
    replaced = {
        old.number: SegmentRows(record, int(record.document["rows"]))
        for record, sources in zip(written, merge.sources, strict=True)
        if record.kind == "documents"
        for old in sources
    }
    return snapshot.with_segments(catalogue, max(record.number for record in written), replaced)


def _list_mergeable(records: Sequence[Record]) -> list[list[Record]]:
    """List the runs of records that are to become one: of each coding, and of deletions."""
    # The record of cells counts the documents before it, so these stay before it.
    barrier = max([record.number for record in records if record.kind == CELLS_KIND], default=0)
    documents = [record for record in records if record.kind == "documents" and record.number > barrier]
    runs = [[record for record in documents if record.document["coding"] == coding] for coding in CODINGS]
    runs.append([record for record in records if record.kind == "deletions"])
    return [run[choose_first([_count_rows(record) for record in run]) :] for run in map(_cut_run, runs)]


def _cut_run(run: list[Record]) -> list[Record]:
    """Leave out what cannot be merged with the end: documents with other cells than it, or with none."""
    cells = [(record.document.get("cells") or {}).get("digest") for record in run]
    first = next((i + 1 for i in reversed(range(len(run))) if cells[i] != cells[-1]), 0)
    return run[first:]


def _count_rows(record: Record) -> int:
    n_bytes = sum(part.n_bytes for part in record.parts.values())
    if record.kind == "deletions":
        return max(1, n_bytes // 8)
    return max(1, int(record.document.get("rows", 0)), n_bytes // _ROW_BYTES)


def choose_first(sizes: Sequence[int]) -> int:
    """Choose from which one on records of these sizes are merged; ``len(sizes)`` for none."""
    first, least, bound = len(sizes), 1, MERGED_AT_ONCE
    while least < MAX_ROWS:
        start = len(sizes)
        while start > 0 and sizes[start - 1] < bound:
            start -= 1
        kept = list(sizes[start:first]) + ([sum(sizes[first:])] if first < len(sizes) else [])
        if sum(size >= least for size in kept) >= MERGED_AT_ONCE:
            first = min(first, start)
        least, bound = bound, min(bound * MERGED_AT_ONCE, MAX_ROWS)
        if least >= bound:
            break
    return first


def _merge_records(store: Store, records: Sequence[Record], n_codebooks: int) -> NewRecord:
    with store.reading(), refuse_damage(store.path, "a record to be merged"):
        if records[0].kind == "deletions":
            numbers = [np.frombuffer(store.part(record, "numbers"), "<i8") for record in records]
            return NewRecord("deletions", {}, {"numbers": np.sort(np.concatenate(numbers)).astype("<i8")})
        return _merge_segments(store, records, n_codebooks).to_record()


def _merge_segments(store: Store, records: Sequence[Record], n_codebooks: int) -> Segment:
    parts = load_segments(store, records, n_codebooks)
    lengths = [part.numbers.count for part in parts]
    groups = [Groups.load(store, record) for record in records]
    return Segment(
        parts[0].coding,
        DocIds.join([part.numbers for part in parts]),
        PackedIds.join([part.ids for part in parts]),
        {side: np.concatenate([part.codes[side] for part in parts]) for side in parts[0].codes},
        pack_bits(
            np.concatenate([unpack_bits(p.with_payload, n) for p, n in zip(parts, lengths, strict=True)])
        ),
        Groups.join(groups, lengths) if any(groups) else None,
        {
            field: join_columns(
                [_load_column(store, r, field, n) for r, n in zip(records, lengths, strict=True)], lengths
            )
            for field in sorted({field for record in records for field in record.document["fields"]})
        },
        _join_cells(parts),
    )


def _load_column(store: Store, record: Record, field: str, n_rows: int) -> Column | None:
    name = name_column_part(field)
    return Column.from_bytes(store.part(record, name), n_rows) if name in record.parts else None


def _join_cells(parts: Sequence[Segment]) -> SegmentCells | None:
    """Join the cells of segments, which have the same ones or none."""
    cells = [part.cells for part in parts if part.cells is not None]
    if not cells:
        return None
    return SegmentCells(
        cells[0].digest,
        {side: np.concatenate([each.cells[side] for each in cells]) for side in cells[0].cells},
        {
            side: (sum(each.added[side][0] for each in cells), sum(each.added[side][1] for each in cells))
            for side in cells[0].cells
            if all(side in each.added for each in cells)
        },
    )
