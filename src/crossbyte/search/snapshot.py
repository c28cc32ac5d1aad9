"""One committed generation of an index in memory: what every answer of an open index is taken from.

A snapshot never changes. A commit makes the next one, which shares what stayed the same; what was added is
only put on the shelves when somebody looks at them, so that adding many batches stays cheap. Columns, groups,
payloads and the answers of filters are read from the file when somebody asks for them, and kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import FilterError
from crossbyte.executors.threads import Workers
from crossbyte.search.bits import Words, count_bits, pack_bits, test_bits, unpack_bits
from crossbyte.search.cells.state import KIND, CellState, check_cells
from crossbyte.search.filters.columns import Column, join_columns
from crossbyte.search.filters.conditions import check_fields, evaluate, fields_of
from crossbyte.search.filters.field_values import FieldValues, Masks, live_kinds
from crossbyte.search.filters.language import parse_filter
from crossbyte.search.filters.tree import Condition
from crossbyte.search.ids import Id
from crossbyte.search.lookup import Lookup
from crossbyte.search.numbers import Numbers
from crossbyte.search.segment import SIDES, Groups, Segment, column_part, understood
from crossbyte.search.shelf import Quantizers, Shelf
from crossbyte.search.storage.store import Catalogue, Record, Store
from crossbyte.strict_json import parse_json

__all__ = ["Place", "Snapshot", "Update", "read_filter"]

_KEPT = 32  # answers; a bit per document each
_COUNTED = 512  # counts of fields; a few values each


def read_filter(where: Any, fields: Mapping[str, set[str]]) -> Condition:
    """Parse a filter; refuse one that names a field which is none of these.

    Raises
    ------
    FilterError, UnknownField
    """
    condition = parse_filter(_text(where))
    check_fields(condition, fields)
    return condition


def _text(where: Any) -> str:
    if not isinstance(where, str):
        raise FilterError(f'where: expected a filter such as "year >= 2020", got {type(where).__name__}')
    return where


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
    store : Store
        The file, from which columns, groups and payloads are read when they are asked for.
    """

    catalogue: Catalogue
    last_record: int
    quantizers: Quantizers
    store: Store
    settled: dict[str, Shelf] = field(default_factory=dict)
    added: tuple[tuple[Segment, Record], ...] = ()
    deleted: tuple[NDArray[np.int64], ...] = ()
    patches: tuple[tuple[Record, NDArray[np.int64]], ...] = ()
    updates: dict[int, Update] = field(default_factory=dict)
    fields: dict[str, set[str]] = field(default_factory=dict)
    n_jobs: int | None = None
    cells: CellState | None = None
    rebuilt: bool = False
    # Read or computed when asked for, and kept; the next snapshot starts without any.
    _columns: dict[tuple[int, str], Column] = field(default_factory=dict, init=False)
    _groups: dict[str, Groups | None] = field(default_factory=dict, init=False)
    _answers: OrderedDict[str, dict[str, Words]] = field(default_factory=OrderedDict, init=False)
    _values: dict[tuple[str, str | None], FieldValues] = field(default_factory=dict, init=False)
    _counted: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, init=False)
    _guard: Any = field(default_factory=threading.RLock, init=False, repr=False)

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

    def unread(self) -> Snapshot:
        """The same state, of which nothing has been read yet: columns and groups come from the file anew."""
        return replace(self.settle())

    @cached_property
    def lookup(self) -> Lookup:
        """Which documents may have an id."""
        lookup = Lookup()
        for shelf in self.shelves.values():
            lookup = lookup.grown(shelf.ids, _all(shelf.numbers))
        return lookup

    # The next one

    def next(self, catalogue: Catalogue, records: Sequence[Record], segments: Sequence[Segment]) -> Snapshot:
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
                state = state._after(record)
        if "lookup" in self.__dict__:
            lookup = self.lookup
            for segment, _ in added:
                lookup = lookup.grown(segment.ids, _all(segment.numbers))
            state.__dict__["lookup"] = lookup
        return state

    def _after(self, record: Record) -> Snapshot:
        if record.kind in (KIND, "documents"):
            with understood(self.store.path, f"record {record.number}"):
                return self._with_cells(record)
        if record.kind not in ("deletions", "updates"):
            return self
        with understood(self.store.path, f"record {record.number}"):
            numbers = np.frombuffer(self.store.part(record, "numbers"), "<i8").astype(np.int64)
            if record.kind == "deletions":
                return replace(self, deleted=(*self.deleted, numbers))
            present = np.frombuffer(self.store.part(record, "present"), np.bool_)
            updates = self.updates | dict(_updates(self.updates, numbers, present))
            return replace(self, updates=updates, patches=(*self.patches, (record, numbers)))

    def _with_cells(self, record: Record) -> Snapshot:
        if record.kind == "documents":
            return self._in_cells(record)
        cells = CellState.load(self.store, record)
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

    # Columns, groups, payloads, and filters

    def allowed(self, where: str | None, *, is_part: bool = False) -> dict[str, Words]:
        """Bits of the documents that are not deleted and that the filter allows, by coding.

        Of one of several shards (``is_part``), a field that no document here has is not refused.
        """
        if where is None:
            return {coding: shelf.live for coding, shelf in self.shelves.items()}
        with self._guard:
            if _text(where) not in self._answers:
                self._answers[where] = self._evaluate(where, is_part)
                if len(self._answers) > _KEPT:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(where)
            return self._answers[where]

    def masks(self, where: str | None, *, is_part: bool = False) -> Masks:
        """The same as booleans, (n,) by coding; None where all are allowed."""
        shelves = self.shelves
        return {
            coding: None
            if count_bits(words) == len(shelves[coding])
            else unpack_bits(words, len(shelves[coding]))
            for coding, words in self.allowed(where, is_part=is_part).items()
        }

    def column(self, coding: str, field: str) -> Column:
        """The values of one field on one shelf, updates included: what a compaction writes."""
        shelf = self.shelves[coding]
        parts = [self._column(segment.record, field, segment.n_rows) for segment in shelf.segments]
        column = join_columns(parts, [segment.n_rows for segment in shelf.segments])
        for record, numbers in self.patches:
            rows, there = shelf.numbers.find(numbers)
            if there.any():
                new = self._column(record, field, len(rows)).take(np.flatnonzero(there))
                column = column.patched(rows[there], new)
        return column

    def values(self, field: str, kind: str | None = None) -> FieldValues:
        """The values of one field on all shelves, numbered for counting; of a kind, or of the commonest."""
        with self._guard:
            if (field, kind) not in self._values:
                self._values[field, kind] = FieldValues.of(self._on_shelves(field), self.masks(None), kind)
            return self._values[field, kind]

    def kinds(self, field: str) -> dict[str, int]:
        """How many values of each kind a field has."""
        return live_kinds(self._on_shelves(field), self.masks(None))

    def _on_shelves(self, field: str) -> dict[str, Column]:
        return {coding: self.column(coding, field) for coding in self.shelves}

    def counted(self, key: Hashable, count: Callable[[], Any]) -> Any:
        """What ``count`` gives, kept under a key; for small results only."""
        with self._guard:
            known = self._counted.get(key)
        if known is None:  # counted without the guard, so that searches with filters need not wait
            known = count()
            with self._guard:
                self._counted[key] = known
                if len(self._counted) > _COUNTED:
                    self._counted.popitem(last=False)
        return known

    def groups(self, coding: str) -> Groups | None:
        """The groups of the documents on one shelf; None where none of them has one."""
        with self._guard:
            if coding not in self._groups:
                segments = self.shelves[coding].segments
                with understood(self.store.path, "the groups"):
                    parts = [Groups.load(self.store, segment.record) for segment in segments]
                    lengths = [segment.n_rows for segment in segments]
                    self._groups[coding] = Groups.join(parts, lengths) if any(parts) else None
            return self._groups[coding]

    def group_labels(self, coding: str, rows: NDArray[np.integer[Any]]) -> list[Id | None]:
        """The labels of some documents' groups; None for those without one."""
        groups = self.groups(coding)
        return [None] * len(rows) if groups is None else groups.take(rows)

    def payloads(self, places: Sequence[Place]) -> list[dict[str, Any] | None]:
        """The payloads of some documents; None where there is none."""
        keys = self.payload_keys(places)
        bodies = iter(self.store.payloads([key for key in keys if key], self.generation))
        with understood(self.store.path, "a payload"):
            return [None if key is None else parse_json(next(bodies).decode()) for key in keys]

    @property
    def read_bytes(self) -> int:
        """Bytes in memory of what was read or computed when it was asked for."""
        answers = sum(words.nbytes for answer in self._answers.values() for words in answer.values())
        groups = sum(groups.n_bytes for groups in self._groups.values() if groups is not None)
        values = sum(values.n_bytes for values in self._values.values())
        return answers + groups + values + sum(column.n_bytes for column in self._columns.values())

    def _evaluate(self, where: str, is_part: bool) -> dict[str, Words]:
        condition = parse_filter(where) if is_part else read_filter(where, self.fields)
        return {
            coding: shelf.live & pack_bits(self._matches(shelf, condition))
            for coding, shelf in self.shelves.items()
        }

    def _matches(self, shelf: Shelf, condition: Condition) -> NDArray[np.bool_]:
        """Segment by segment; then again for documents with a newer payload."""
        parts = [self._judge(segment.record, segment.n_rows, condition) for segment in shelf.segments]
        matches = np.concatenate(parts)
        for record, numbers in self.patches:
            rows, there = shelf.numbers.find(numbers)
            matches[rows[there]] = self._judge(record, len(rows), condition)[there]
        return matches

    def _judge(self, record: Record, n_rows: int, condition: Condition) -> NDArray[np.bool_]:
        columns = {field: self._column(record, field, n_rows) for field in fields_of(condition)}
        return evaluate(condition, columns, n_rows)

    def _column(self, record: Record, field: str, n_rows: int) -> Column:
        key = record.number, field
        if key not in self._columns:
            name = column_part(field)
            with understood(self.store.path, f"the column of {field!r}"):
                there = name in record.parts
                self._columns[key] = (
                    Column.from_bytes(self.store.part(record, name), n_rows)
                    if there
                    else Column.empty(n_rows)
                )
        return self._columns[key]


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
