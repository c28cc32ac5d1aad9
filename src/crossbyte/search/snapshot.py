"""One committed generation of an index in memory: what every answer of a handle is taken from.

A snapshot never changes. A commit makes the next one, which shares what stayed the same; what was added is
only put on the shelves when somebody looks at them, so that adding many batches stays cheap.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.executors.threads import Workers
from crossbyte.search.bits import test_bits, unpack_bits
from crossbyte.search.cells.state import KIND, CellState, check_cells
from crossbyte.search.ids import Id
from crossbyte.search.lookup import Lookup
from crossbyte.search.numbers import Numbers
from crossbyte.search.segment import SIDES, Segment, understood
from crossbyte.search.shelf import Quantizers, Shelf
from crossbyte.search.storage.store import Catalogue, Record, Store

__all__ = ["Place", "Snapshot", "Update"]


class Place(NamedTuple):
    """Where a document is."""

    coding: str
    row: int


class Update(NamedTuple):
    """The payload of a document that was updated.

    Attributes
    ----------
    version : int
        Of the current payload row.
    present : bool
        Whether there is such a row; False after an update with None.
    older : tuple of int
        Versions above 0 that are in the file but no longer current.
    """

    version: int
    present: bool
    older: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of an index after a commit.

    Attributes
    ----------
    catalogue : Catalogue
    last_record : int
    settled : dict of coding to Shelf
        What was on the shelves when somebody looked at them last.
    added : tuple of (Segment, Record)
        Added since then.
    deleted : tuple of (n,) int64
        Numbers of the documents deleted since then.
    patches : tuple of (Record, (n,) int64)
        "updates" records in order, and the numbers of their documents: they change columns.
    updates : dict of number to Update
    fields : dict of field to set of str
        Types of value that the fields of the documents have, or once had.
    cells : CellState or None
    rebuilt : bool
        Whether the cells are not those in which the shelves were laid out.
    lookup : Lookup
    """

    catalogue: Catalogue
    last_record: int
    quantizers: Quantizers
    settled: dict[str, Shelf] = field(default_factory=dict)
    added: tuple[tuple[Segment, Record], ...] = ()
    deleted: tuple[NDArray[np.int64], ...] = ()
    patches: tuple[tuple[Record, NDArray[np.int64]], ...] = ()
    updates: dict[int, Update] = field(default_factory=dict)
    fields: dict[str, set[str]] = field(default_factory=dict)
    n_jobs: int | None = None
    cells: CellState | None = None
    rebuilt: bool = False

    @property
    def generation(self) -> int:
        """Number of the commit."""
        return self.catalogue.generation

    @cached_property
    def shelves(self) -> dict[str, Shelf]:
        """All documents, by coding."""
        with Workers(self.n_jobs) as workers:
            shelves = dict(self.settled)
            for coding in SIDES:
                new = [pair for pair in self.added if pair[0].coding == coding]
                if new:
                    shelves[coding] = Shelf.join(shelves.get(coding), new, self.quantizers, workers)
                if coding in shelves and (self.rebuilt or (new and self.cells)):
                    segments = [segment for segment, _ in new]
                    shelves[coding] = shelves[coding].in_cells(self.cells, segments, self.quantizers, workers)
            for coding, shelf in shelves.items():
                rows = [row for row in (_rows_on(shelf, numbers) for numbers in self.deleted) if len(row)]
                if rows:
                    shelves[coding] = shelf.without(np.concatenate(rows))
            return shelves

    @property
    def unsettled(self) -> bool:
        """Whether something has happened that the shelves that are kept do not show."""
        return bool(self.added or self.deleted or self.rebuilt)

    def settle(self) -> Snapshot:
        """The same state, with everything on the shelves and nothing kept twice."""
        if not self.unsettled:
            return self
        cells = None if self.cells is None else self.cells.settled()
        state = replace(self, settled=self.shelves, added=(), deleted=(), cells=cells, rebuilt=False)
        if "lookup" in self.__dict__:
            state.__dict__["lookup"] = self.lookup
        return state

    @cached_property
    def lookup(self) -> Lookup:
        """Which documents may have an id."""
        lookup = Lookup()
        for shelf in self.shelves.values():
            lookup = lookup.grown(shelf.ids, _all(shelf.numbers))
        return lookup

    # The next one

    def next(
        self, catalogue: Catalogue, records: Sequence[Record], segments: Sequence[Segment], store: Store
    ) -> Snapshot:
        """The state after a commit that wrote these records; ``segments`` are those of kind "documents"."""
        added = list(zip(segments, (r for r in records if r.kind == "documents"), strict=True))
        base = self.settle() if "shelves" in self.__dict__ else self
        state = replace(
            base,
            catalogue=catalogue,
            last_record=max([self.last_record, *(record.number for record in records)]),
            added=(*base.added, *added),
            fields=_joined_fields(self.fields, records),
        )
        replaced = [record.number for record in records if record.kind == KIND][:-1]
        for record in records:
            if record.number not in replaced:  # cells that others follow need not be read
                state = state._after(record, store)
        if "lookup" in self.__dict__:
            lookup = self.lookup
            for segment, _ in added:
                lookup = lookup.grown(segment.ids, _all(segment.numbers))
            state.__dict__["lookup"] = lookup
        return state

    def _after(self, record: Record, store: Store) -> Snapshot:
        if record.kind in (KIND, "documents"):
            with understood(store.path, f"record {record.number}"):
                return self._with_cells(record, store)
        if record.kind not in ("deletions", "updates"):
            return self
        with understood(store.path, f"record {record.number}"):
            numbers = np.frombuffer(store.part(record, "numbers"), "<i8").astype(np.int64)
            if record.kind == "deletions":
                return replace(self, deleted=(*self.deleted, numbers))
            present = np.frombuffer(store.part(record, "present"), np.bool_)
            updates = self.updates | dict(_updates(self.updates, numbers, present))
            return replace(self, updates=updates, patches=(*self.patches, (record, numbers)))

    def _with_cells(self, record: Record, store: Store) -> Snapshot:
        if record.kind == "documents":
            return self._in_cells(record)
        cells = CellState.load(store, record)
        if cells is not None:
            for coding, sides in SIDES.items():
                for side in set(sides) & set(cells.sides):
                    if len(cells.numbered.get((coding, side), ())) != self._rows_before(coding, record):
                        raise ValueError("cells of another number of documents")
        return replace(self, cells=cells, rebuilt=True)

    def _rows_before(self, coding: str, record: Record) -> int:
        """Rows of a shelf when a record was written."""
        settled = len(self.settled[coding]) if coding in self.settled else 0
        before = [s for s, r in self.added if s.coding == coding and r.number < record.number]
        return settled + sum(segment.numbers.count for segment in before)

    def _in_cells(self, record: Record) -> Snapshot:
        """Judge the cells of a new segment, and count its documents."""
        document = record.document.get("cells")
        if self.cells is None or document is None or document["digest"] != self.cells.digest:
            return self
        segment = next(segment for segment, own in self.added if own.number == record.number)
        assert segment.cells is not None
        for side, cells in segment.cells.cells.items():
            check_cells(cells, segment.numbers.count, len(self.cells.sides[side].centres))
        return replace(self, cells=self.cells.grown(document))

    # Documents

    def __len__(self) -> int:
        return sum(shelf.n_live for shelf in self.shelves.values())

    def cell_sizes(self) -> dict[str, NDArray[np.int64]]:
        """How many live documents are in each cell, by side; nothing of an index without cells."""
        sides = {} if self.cells is None else self.cells.sides
        sizes = {name: np.zeros(len(side.centres), dtype=np.int64) for name, side in sides.items()}
        for shelf in self.shelves.values():
            live = unpack_bits(shelf.live, len(shelf))
            for name, lists in shelf.layouts.items():
                sizes[name] += np.bincount(lists.cells[live], minlength=len(sizes[name]))
        return sizes

    def find(self, ids: Sequence[Id]) -> list[Place | None]:
        """Where the documents of these ids are; None for ids that there are not."""
        found: list[Place | None] = [None] * len(ids)
        places, numbers = self.lookup.candidates(ids)
        for coding, shelf in self.shelves.items() if len(places) else ():
            rows, there = shelf.numbers.find(numbers)
            there[there] = test_bits(shelf.live, rows[there])
            candidates = zip(
                places[there].tolist(), rows[there].tolist(), shelf.ids.take(rows[there]), strict=True
            )
            for place, row, known in candidates:
                if known == ids[place] and type(known) is type(ids[place]):
                    found[place] = Place(coding, row)
        return found

    def places(self, numbers: NDArray[np.int64]) -> list[Place]:
        """Find where documents are by their numbers; those that are not here are left out."""
        found: dict[int, Place] = {}
        for coding, shelf in self.shelves.items():
            rows, there = shelf.numbers.find(numbers)
            kept = np.flatnonzero(there).tolist()
            found |= {
                place: Place(coding, row) for place, row in zip(kept, rows[there].tolist(), strict=True)
            }
        return [found[place] for place in sorted(found)]

    def payload_keys(self, places: Sequence[Place]) -> list[tuple[int, int] | None]:
        """Number and version of the payload rows of documents; None for those without one."""
        keys: list[tuple[int, int] | None] = [None] * len(places)
        for coding in {place.coding for place in places}:
            mine = [i for i, place in enumerate(places) if place.coding == coding]
            shelf, rows = self.shelves[coding], np.array([places[i].row for i in mine])
            marks = test_bits(shelf.with_payload, rows)
            for i, number, marked in zip(mine, shelf.numbers[rows].tolist(), marks.tolist(), strict=True):
                version, present, _ = self.updates.get(number, Update(0, marked, ()))
                keys[i] = (number, version) if present else None
        return keys


def _updates(
    known: dict[int, Update], numbers: NDArray[np.int64], present: NDArray[np.bool_]
) -> Iterable[tuple[int, Update]]:
    for number, there in zip(numbers.tolist(), present.tolist(), strict=True):
        old = known.get(number, Update(0, False, ()))
        older = (*old.older, old.version) if old.version and old.present else old.older
        yield number, Update(old.version + 1, there, older)


def _joined_fields(known: dict[str, set[str]], records: Iterable[Record]) -> dict[str, set[str]]:
    fields = dict(known)
    for record in records:
        for name, types in record.document.get("fields", {}).items():
            fields[name] = fields.get(name, set()) | set(types)
    return fields


def _all(numbers: Numbers) -> NDArray[np.int64]:
    return numbers[np.arange(numbers.count)]


def _rows_on(shelf: Shelf, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    rows, there = shelf.numbers.find(numbers)
    return rows[there]
