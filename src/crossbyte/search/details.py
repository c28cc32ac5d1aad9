"""What of a generation is read from the file only when asked for: columns, groups, payloads; and filters."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import FilterError
from crossbyte.search.bits import Words, count_bits, pack_bits, unpack_bits
from crossbyte.search.filters.columns import Column, join_columns
from crossbyte.search.filters.conditions import check_fields, evaluate, fields_of
from crossbyte.search.filters.field_values import FieldValues, Masks, live_kinds
from crossbyte.search.filters.language import parse_filter
from crossbyte.search.filters.tree import Condition
from crossbyte.search.ids import Id
from crossbyte.search.segment import Groups, column_part, understood
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Place, Snapshot
from crossbyte.search.storage.store import Record, Store
from crossbyte.strict_json import parse_json

__all__ = ["Details", "read_filter"]

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


class Details:
    """A snapshot, and the file behind it. Columns, groups and answers of filters are kept once known."""

    def __init__(self, snapshot: Snapshot, store: Store) -> None:
        self.snapshot, self.store = snapshot, store
        self._columns: dict[tuple[int, str], Column] = {}
        self._groups: dict[str, Groups | None] = {}
        self._answers: OrderedDict[str, dict[str, Words]] = OrderedDict()
        self._values: dict[tuple[str, str | None], FieldValues] = {}
        self._counted: OrderedDict[Hashable, Any] = OrderedDict()
        self._guard = threading.RLock()

    def allowed(self, where: str | None, *, is_part: bool = False) -> dict[str, Words]:
        """Bits of the documents that are not deleted and that the filter allows, by coding.

        Of one of several shards (``is_part``), a field that no document here has is not refused.
        """
        if where is None:
            return {coding: shelf.live for coding, shelf in self.snapshot.shelves.items()}
        with self._guard:
            if _text(where) not in self._answers:
                self._answers[where] = self._evaluate(where, is_part)
                if len(self._answers) > _KEPT:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(where)
            return self._answers[where]

    def masks(self, where: str | None, *, is_part: bool = False) -> Masks:
        """The same as booleans, (n,) by coding; None where all are allowed."""
        shelves = self.snapshot.shelves
        return {
            coding: None
            if count_bits(words) == len(shelves[coding])
            else unpack_bits(words, len(shelves[coding]))
            for coding, words in self.allowed(where, is_part=is_part).items()
        }

    def column(self, coding: str, field: str) -> Column:
        """The values of one field on one shelf, updates included: what a compaction writes."""
        shelf = self.snapshot.shelves[coding]
        parts = [self._column(segment.record, field, segment.n_rows) for segment in shelf.segments]
        column = join_columns(parts, [segment.n_rows for segment in shelf.segments])
        for record, numbers in self.snapshot.patches:
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
        return {coding: self.column(coding, field) for coding in self.snapshot.shelves}

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
                segments = self.snapshot.shelves[coding].segments
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
        keys = self.snapshot.payload_keys(places)
        bodies = iter(self.store.payloads([key for key in keys if key], self.snapshot.generation))
        with understood(self.store.path, "a payload"):
            return [None if key is None else parse_json(next(bodies).decode()) for key in keys]

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        answers = sum(words.nbytes for answer in self._answers.values() for words in answer.values())
        groups = sum(groups.n_bytes for groups in self._groups.values() if groups is not None)
        values = sum(values.n_bytes for values in self._values.values())
        return answers + groups + values + sum(column.n_bytes for column in self._columns.values())

    def _evaluate(self, where: str, is_part: bool) -> dict[str, Words]:
        condition = parse_filter(where) if is_part else read_filter(where, self.snapshot.fields)
        return {
            coding: shelf.live & pack_bits(self._matches(shelf, condition))
            for coding, shelf in self.snapshot.shelves.items()
        }

    def _matches(self, shelf: Shelf, condition: Condition) -> NDArray[np.bool_]:
        """Segment by segment; then again for documents with a newer payload."""
        parts = [self._judge(segment.record, segment.n_rows, condition) for segment in shelf.segments]
        matches = np.concatenate(parts)
        for record, numbers in self.snapshot.patches:
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
