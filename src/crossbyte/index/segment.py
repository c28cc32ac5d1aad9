"""Write documents of one coding as a record of the file, a segment, and read it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.compute.executor import Workers
from crossbyte.index.bitset import Bitset, pack_bits
from crossbyte.index.docids import DocIds, Id, PackedIds
from crossbyte.index.filters.columns import Column
from crossbyte.index.storage.records import NewRecord, Record, raise_damaged
from crossbyte.index.storage.store import Store

SIDES: dict[str, tuple[str, ...]] = {
    "training": ("image", "text"),
    "pair": ("image", "text"),
    "image": ("image",),
    "text": ("text",),
    "document": ("document",),
}
"""The sides by which the documents of a coding have their codes; "document" is one code of both halves."""

CODINGS = tuple(SIDES)


def scanned_sides(coding: str, target: str) -> tuple[str, ...]:
    """List the sides whose distances add up to that of a document, for a target; none if it lacks it.

    A code of both halves serves every target.
    """
    sides = SIDES[coding]
    if target == "document" or "document" in sides:
        return sides
    return (target,) if target in sides else ()


def known_halves(coding: str) -> tuple[str, ...]:
    """List which of "image" and "text" the documents of a coding have."""
    return tuple(half for half in ("image", "text") if scanned_sides(coding, half))


SEGMENT_ROWS = 2**20  # 64 MB of codes with 64 codebooks
_COLUMN = "column:"
_EAGER_PARTS = ("codes", "numbers", "ids", "payloads", "cells")  # or what their names begin with
_BYTES_FOR_THREADS = 2**22


def name_column_part(field: str) -> str:
    """Name the part that holds the column of a field."""
    return _COLUMN + field


@contextmanager
def refuse_damage(path: str, what: str) -> Iterator[None]:
    """Turn errors of parsing bytes of the file, within this block, into DamagedIndexFile."""
    try:
        yield
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise_damaged(path, f"{what} cannot be understood ({error})", error)


def check_count(value: Any, name: str, most: int = 2**62) -> int:
    """Return a natural number of the file; ValueError for anything else."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{value!r} for {name}")
    return value


def check_amount(value: Any, name: str, most: float = 1e30) -> float:
    """Return a number of the file that is not negative; ValueError for anything else."""
    if type(value) not in (int, float) or not 0 <= value <= most:
        raise ValueError(f"{value!r} for {name}")
    return float(value)


@dataclass(frozen=True, eq=False)
class Groups:
    """The group of every document: a place in a list of labels, 0 for none."""

    places: NDArray[np.uint32]
    labels: PackedIds

    @classmethod
    def of(cls, labels: Sequence[Id | None]) -> Groups:
        """Number the labels in the order of their first document."""
        places: dict[Id, int] = {}
        numbered = [0 if label is None else places.setdefault(label, len(places) + 1) for label in labels]
        return cls(np.array(numbered, dtype=np.uint32), PackedIds.of(list(places)))

    def take(self, rows: NDArray[np.integer[Any]]) -> list[Id | None]:
        """Give the labels of some documents."""
        places = self.places[rows].astype(np.int64)
        labels = iter(self.labels.take(places[places > 0] - 1))  # of these alone: there may be a million
        return [next(labels) if place else None for place in places.tolist()]

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.places.nbytes + self.labels.n_bytes

    @classmethod
    def join(cls, parts: Sequence[Groups | None], lengths: Sequence[int]) -> Groups:
        """Concatenate the groups of parts of these lengths; None for a part without any group."""
        known: dict[Id, int] = {}
        joined = []
        for part, length in zip(parts, lengths, strict=True):
            labels = [] if part is None else list(part.labels)
            renamed = np.array([0, *(known.setdefault(label, len(known) + 1) for label in labels)], np.uint32)
            joined.append(np.zeros(length, np.uint32) if part is None else renamed[part.places])
        return cls(np.concatenate([np.empty(0, np.uint32), *joined]), PackedIds.of(list(known)))

    def select(self, rows: NDArray[np.integer[Any]]) -> Groups | None:
        """Give the groups of some documents, without labels that none of them has."""
        places, first = np.unique(self.places[rows], return_inverse=True)
        labels = self.labels.select(places[places > 0].astype(np.int64) - 1)
        return Groups((first + (places[:1] > 0)).astype(np.uint32), labels) if len(labels) else None

    def to_parts(self) -> dict[str, Any]:
        """Give the parts of the record, by name."""
        labels = {f"groups.{name}": part for name, part in self.labels.to_parts().items()}
        return {"groups": self.places.astype("<u4"), **labels}

    @classmethod
    def load(cls, store: Store, record: Record) -> Groups | None:
        """Read the groups of a record; None where no document of it has one."""
        kind = record.document["groups"]
        if kind is None:
            return None
        names = {name.removeprefix("groups."): name for name in record.parts if name.startswith("groups.")}
        parts = {short: store.part(record, name) for short, name in names.items()}
        places = np.frombuffer(store.part(record, "groups"), "<u4")
        labels = PackedIds.from_parts(kind["kind"], parts, check_count(kind["count"], "groups"))
        if len(places) != record.document["rows"] or (len(places) and places.max() > len(labels)):
            raise ValueError("groups of another number")
        return cls(places, labels)


class SegmentCells(NamedTuple):
    """The cells (IVF) of documents when they were written.

    Attributes
    ----------
    digest : str
        Identifies the cells: :class:`crossbyte.index.ivf.state.CellState`.
    cells : mapping of side to (n,) uint16
    added : mapping of side to (count, sum of squared distances to the centres)
        Empty where the documents are not new: after a compaction.
    """

    digest: str
    cells: Mapping[str, NDArray[np.uint16]]
    added: Mapping[str, tuple[int, float]]


@dataclass(frozen=True, eq=False)
class Segment:
    """Documents of one coding in the order of their numbers; row i of everything belongs to document i.

    Attributes
    ----------
    coding : str
        "training", "pair", "image", "text" or "document".
    numbers : DocIds
    ids : PackedIds
    codes : mapping of side to (n, M) uint8
    with_payload : Bitset
        Which documents have a payload.
    groups : Groups or None
    columns : mapping of field to Column
        Empty in a segment that was read: columns are read when a filter needs them.
    cells : SegmentCells or None
        None where the index had no cells.
    """

    coding: str
    numbers: DocIds
    ids: PackedIds
    codes: Mapping[str, Codes]
    with_payload: Bitset
    groups: Groups | None
    columns: Mapping[str, Column]
    cells: SegmentCells | None = None

    def to_record(self) -> NewRecord:
        """Make the record that is written."""
        groups = self.groups
        document: dict[str, Any] = {
            "coding": self.coding,
            "rows": self.numbers.count,
            "first": self.numbers.first,
            "ids": self.ids.kind,
            "fields": {field: sorted(column.types) for field, column in self.columns.items()},
            "groups": None if groups is None else {"kind": groups.labels.kind, "count": len(groups.labels)},
        }
        parts: dict[str, Any] = {f"codes.{side}": codes for side, codes in self.codes.items()}
        parts |= {**self.numbers.to_parts(), **self.ids.to_parts()}
        if self.with_payload.any():
            parts["payloads"] = self.with_payload.astype("<u8")
        if groups is not None:
            parts |= groups.to_parts()
        parts |= {name_column_part(field): column.to_bytes() for field, column in self.columns.items()}
        if self.cells is not None:
            added = {side: list(values) for side, values in self.cells.added.items()}
            document["cells"] = {"digest": self.cells.digest, "added": added}
            parts |= {f"cells.{side}": cells.astype("<u2") for side, cells in self.cells.cells.items()}
        return NewRecord("documents", document, parts)

    @classmethod
    def from_parts(cls, path: str, record: Record, parts: Mapping[str, bytes], n_codebooks: int) -> Segment:
        """Understand the parts of a record, without columns and groups.

        Raises
        ------
        DamagedIndexFile
        """
        with refuse_damage(path, f"segment {record.number}"):
            document = record.document
            rows = check_count(document["rows"], "rows")
            codes = {
                side: np.frombuffer(parts[f"codes.{side}"], np.uint8).reshape(rows, n_codebooks)
                for side in SIDES[document["coding"]]
            }
            return cls(
                document["coding"],
                DocIds.from_parts(check_count(document["first"], "a document"), rows, parts),
                PackedIds.from_parts(document["ids"], parts, rows),
                codes,
                _load_payload_bits(parts.get("payloads"), rows),
                None,
                {},
                _load_cells(document.get("cells"), parts, rows),
            )


def load_segments(
    store: Store, records: Sequence[Record], n_codebooks: int, n_jobs: int | None = 1
) -> list[Segment]:
    """Read segments, everything but columns and groups; checksums of large ones in threads.

    Raises
    ------
    StaleReader, DamagedIndexFile
    """
    names = {
        record.number: [name for name in record.parts if name.split(".")[0] in _EAGER_PARTS]
        for record in records
    }
    wanted = [(record, name) for record in records for name in names[record.number]]
    workers = Workers(n_jobs)
    large = sum(record.parts[name].n_bytes for record, name in wanted) >= _BYTES_FOR_THREADS
    with (
        workers if large else nullcontext(),
        store.reading(),
        closing(store.parts(wanted, workers)) as data,
    ):
        return [
            Segment.from_parts(
                store.path, record, {name: next(data) for name in names[record.number]}, n_codebooks
            )
            for record in records
        ]


def _load_payload_bits(data: bytes | None, rows: int) -> Bitset:
    if data is None:
        return pack_bits(np.zeros(rows, dtype=bool))
    words = np.frombuffer(data, "<u8").astype(np.uint64)
    if len(words) != -(-rows // 64):
        raise ValueError("payload marks of another number")
    return words


def _load_cells(
    document: Mapping[str, Any] | None, parts: Mapping[str, bytes], rows: int
) -> SegmentCells | None:
    if document is None:
        return None
    names = {name.removeprefix("cells."): name for name in parts if name.startswith("cells.")}
    cells = {side: np.frombuffer(parts[name], "<u2").astype(np.uint16) for side, name in names.items()}
    if any(len(each) != rows for each in cells.values()) or not document["added"].keys() <= cells.keys():
        raise ValueError("cells of another number")
    added = {
        side: (check_count(count, "documents"), check_amount(total, "a distance"))
        for side, (count, total) in document["added"].items()
    }
    return SegmentCells(str(document["digest"]), cells, added)
