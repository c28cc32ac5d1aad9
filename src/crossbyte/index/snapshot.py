"""Hold one committed generation of an index in memory, from which all answers are computed.

A snapshot never changes. A commit makes the next one, which shares what stayed the same; new segments are
merged into the partitions only when these are needed, so that adding many batches stays cheap. Columns,
groups, payloads and the answers of filters are read from the file when they are needed, and cached.
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

from crossbyte._json import parse_json
from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import CellRun, Searcher, SearchPart
from crossbyte.errors import FilterError, WrongModel
from crossbyte.index.bitset import Bitset, count_bits, pack_bits, test_bits, unpack_bits
from crossbyte.index.byte_cache import ByteCache
from crossbyte.index.docids import DocIds, Id, IdLookup
from crossbyte.index.filters.columns import TYPES, Column, join_columns
from crossbyte.index.filters.conditions import check_fields, evaluate_condition, fields_of
from crossbyte.index.filters.field_values import FieldValues, Masks, count_kinds
from crossbyte.index.filters.grammar import Condition, parse_filter
from crossbyte.index.ivf.state import KIND, CellState, check_cells
from crossbyte.index.lexical import KIND as WORDS_KIND
from crossbyte.index.lexical import CountCache, TermCache, TermMatches, WordSettings, quote_term
from crossbyte.index.partition import Partition, Quantizers, SegmentRows
from crossbyte.index.segment import (
    CODINGS,
    SIDES,
    Groups,
    Segment,
    known_halves,
    load_segments,
    name_column_part,
    refuse_damage,
    scanned_sides,
)
from crossbyte.index.storage.database import has_word_search
from crossbyte.index.storage.records import Catalogue, NewRecord, Record, part_checksum, raise_damaged
from crossbyte.index.storage.store import Store
from crossbyte.model.estimator import CMCQ
from crossbyte.model.quantization.quantizer import Quantizer

_NO_ROWS = np.empty(0, np.int64)
_MAX_ANSWERS = 32  # answers; a bit per document each
_MAX_COUNTS = 512  # counts of fields; a few values each
_BODY_BYTES = 300  # of what is kept of a payload, beside its body


def read_filter(where: Any, fields: Mapping[str, set[str]]) -> Condition:
    """Parse a filter; refuse one that names a field other than these.

    Raises
    ------
    FilterError, UnknownField
    """
    condition = parse_filter(_check_filter_text(where))
    check_fields(condition, fields)
    return condition


def _check_filter_text(where: Any) -> str:
    if not isinstance(where, str):
        raise FilterError(f'where: expected a filter such as "year >= 2020", got {type(where).__name__}')
    return where


class Place(NamedTuple):
    """Where a document is: its partition, by coding, and its row there."""

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


class PayloadCache(ByteCache[tuple[int, int], bytes]):
    """Keeps the bodies of payloads, by number and version: who types sees the same documents again and again.

    Parameters
    ----------
    most_bytes : int
    """

    def __init__(self, most_bytes: int = 16_000_000) -> None:
        super().__init__(most_bytes, lambda _, body: _BODY_BYTES + len(body))


class PreparedSearch(NamedTuple):
    """Hold what queries of one kind for one target read of a generation, as the kernels take it.

    Attributes
    ----------
    searcher : Searcher
    places : dict of coding to int
        Its part of the searcher; codings that are not searched are left out.
    routed : list of str
        By part, the side whose cells may be chosen from; "" without cells, and for sums of two distances, of
        which the cells of a side say nothing.
    n_items : int
        Documents in all parts, deleted ones included.
    """

    searcher: Searcher
    places: dict[str, int]
    routed: list[str]
    n_items: int

    @classmethod
    def of(cls, snapshot: Snapshot, kind: str, target: str) -> PreparedSearch:
        """Lay out all codings that have a side of the target."""
        quantizers = list({id(each): each for each in snapshot.quantizers.values()}.values())
        places: dict[str, int] = {}
        routed: list[str] = []
        parts: list[SearchPart] = []
        for coding, partition in snapshot.partitions.items():
            sides = scanned_sides(coding, target)
            if sides:
                places[coding] = len(parts)
                part, side = _make_search_part(snapshot, partition, sides, kind, target, quantizers)
                parts.append(part)
                routed.append(side)
        searcher = Searcher([each.table_source for each in quantizers], parts)
        return cls(searcher, places, routed, sum(part.n_items for part in parts))


def _make_search_part(
    snapshot: Snapshot,
    partition: Partition,
    sides: Sequence[str],
    kind: str,
    target: str,
    quantizers: Sequence[Quantizer],
) -> tuple[SearchPart, str]:
    """Lay out one coding; also gives the side whose cells may be chosen from, or ""."""
    numbers, side = partition.numbers, sides[0]
    place_of = {id(each): place for place, each in enumerate(quantizers)}
    part = SearchPart(
        CODINGS.index(partition.coding),
        tuple((place_of[id(snapshot.quantizers[each])], partition.codes[each]) for each in sides),
        numbers.count,
        numbers.first,
        numbers.steps,
    )
    known = None if snapshot.cells is None else snapshot.cells.directions.get((kind, side))
    if len(sides) > 1 or side not in routed_sides(target) or known is None:
        return part, ""
    runs = tuple(CellRun(run.codes, run.rows, run.starts) for run in partition.inverted_lists[side].runs)
    return part._replace(cells=known.router.cells, runs=runs), side


def routed_sides(target: str) -> tuple[str, ...]:
    """List the sides whose cells a search for a target may choose from; for sums of two distances, none."""
    return ("document",) if target == "document" else (target, "document")


@dataclass(frozen=True, eq=False)
class Snapshot:
    """The state of an index after a commit.

    Attributes
    ----------
    catalogue : Catalogue
    last_record : int
    settled : dict of coding to Partition
        The partitions when they were last merged.
    added : tuple of (Segment, Record)
        Segments added since then.
    deleted : tuple of (n,) int64
        Numbers of the documents deleted since then.
    patches : tuple of (Record, (n,) int64)
        "updates" records in order, and the numbers of their documents: they change columns.
    updates : dict of number to Update
    fields : dict of field to set of str
        Types of value that the fields of the documents have, or once had.
    cells : CellState or None
    rebuilt : bool
        Whether the cells are newer than the inverted lists of the partitions.
    words : WordSettings or None
        Payload fields whose words are searched, and how; None where none are.
    lookup : IdLookup
    store : Store
        The file, from which columns, groups and payloads are read when they are needed.
    """

    catalogue: Catalogue
    last_record: int
    quantizers: Quantizers
    store: Store
    settled: dict[str, Partition] = field(default_factory=dict)
    added: tuple[tuple[Segment, Record], ...] = ()
    deleted: tuple[NDArray[np.int64], ...] = ()
    patches: tuple[tuple[Record, NDArray[np.int64]], ...] = ()
    updates: dict[int, Update] = field(default_factory=dict)
    fields: dict[str, set[str]] = field(default_factory=dict)
    n_jobs: int | None = None
    cells: CellState | None = None
    rebuilt: bool = False
    words: WordSettings | None = None
    # Caches, filled when needed; the next snapshot starts with empty ones.
    _columns: dict[tuple[int, str], Column] = field(default_factory=dict, init=False)
    _groups: dict[str, Groups | None] = field(default_factory=dict, init=False)
    _answers: OrderedDict[str, dict[str, Bitset]] = field(default_factory=OrderedDict, init=False)
    _values: dict[tuple[str, str | None], FieldValues] = field(default_factory=dict, init=False)
    _counted: OrderedDict[Hashable, Any] = field(default_factory=OrderedDict, init=False)
    _terms: TermCache = field(default_factory=TermCache, init=False)
    _term_counts: CountCache = field(default_factory=CountCache, init=False)
    _bodies: PayloadCache = field(default_factory=PayloadCache, init=False)
    _searches: dict[tuple[str, str], PreparedSearch] = field(default_factory=dict, init=False, repr=False)
    _guard: Any = field(default_factory=threading.RLock, init=False, repr=False)

    @property
    def generation(self) -> int:
        """Number of the commit."""
        return self.catalogue.generation

    @cached_property
    def partitions(self) -> dict[str, Partition]:
        """All documents, by coding."""
        with Workers(self.n_jobs) as workers:
            partitions = dict(self.settled)
            for coding in SIDES:
                new = [pair for pair in self.added if pair[0].coding == coding]
                if new:
                    partitions[coding] = Partition.join(partitions.get(coding), new, self.quantizers, workers)
                if coding in partitions and (self.rebuilt or (new and self.cells)):
                    segments = [segment for segment, _ in new]
                    partitions[coding] = partitions[coding].with_lists(
                        self.cells, segments, self.quantizers, workers
                    )
            for coding, partition in partitions.items():
                rows = np.concatenate([_NO_ROWS, *(_find_rows(partition, each) for each in self.deleted)])
                if len(rows):
                    partitions[coding] = partition.without(rows)
            return partitions

    @property
    def unsettled(self) -> bool:
        """Whether there are changes since the partitions were last merged."""
        return bool(self.added or self.deleted or self.rebuilt)

    def settle(self) -> Snapshot:
        """Give the same state, with all changes merged into the partitions."""
        if not self.unsettled:
            return self
        cells = None if self.cells is None else self.cells.without_assignments()
        state = replace(self, settled=self.partitions, added=(), deleted=(), cells=cells, rebuilt=False)
        if "lookup" in self.__dict__:
            state.__dict__["lookup"] = self.lookup
        return state

    def with_segments(
        self, catalogue: Catalogue, last_record: int, replaced: Mapping[int, SegmentRows]
    ) -> Snapshot:
        """Give the same state after records were merged: ``replaced`` has the new ones by old number."""
        base = self.settle()
        partitions = {
            coding: replace(partition, segments=_replace_segments(partition.segments, replaced))
            for coding, partition in base.partitions.items()
        }
        state = replace(base, catalogue=catalogue, last_record=last_record, settled=partitions)
        if "lookup" in base.__dict__:
            state.__dict__["lookup"] = base.lookup
        return state

    def without_caches(self) -> Snapshot:
        """Give the same state with empty caches: columns and groups are read from the file anew."""
        return replace(self.settle())

    @cached_property
    def lookup(self) -> IdLookup:
        """Hashes of all ids: which documents may have an id."""
        lookup = IdLookup()
        for partition in self.partitions.values():
            lookup = lookup.with_documents(partition.ids, _list_docids(partition.numbers))
        return lookup

    # The next generation

    def next(self, catalogue: Catalogue, records: Sequence[Record], segments: Sequence[Segment]) -> Snapshot:
        """Give the state after a commit of these records; ``segments`` are those of kind "documents"."""
        added = list(zip(segments, (r for r in records if r.kind == "documents"), strict=True))
        base = self.settle() if "partitions" in self.__dict__ else self
        state = replace(
            base,
            catalogue=catalogue,
            last_record=max([self.last_record, *(record.number for record in records)]),
            added=(*base.added, *added),
            fields=_join_fields(self.fields, records, self.store.path),
        )
        replaced = [record.number for record in records if record.kind == KIND][:-1]
        for record in records:
            if record.number not in replaced:  # of several cells, only the last are read
                state = state._apply(record)
        if "lookup" in self.__dict__:
            lookup = self.lookup
            for segment, _ in added:
                lookup = lookup.with_documents(segment.ids, _list_docids(segment.numbers))
            state.__dict__["lookup"] = lookup
        return state

    def _apply(self, record: Record) -> Snapshot:
        """Give the state after one record."""
        if record.kind in (KIND, "documents"):
            with refuse_damage(self.store.path, f"record {record.number}"):
                return self._with_cells(record)
        if record.kind == WORDS_KIND:
            with refuse_damage(self.store.path, f"record {record.number}"):
                return replace(self, words=WordSettings.from_dict(record.document))
        if record.kind not in ("deletions", "updates"):
            return self
        with refuse_damage(self.store.path, f"record {record.number}"):
            numbers = np.frombuffer(self.store.part(record, "numbers"), "<i8").astype(np.int64)
            if record.kind == "deletions":
                return replace(self, deleted=(*self.deleted, numbers))
            flags = np.frombuffer(self.store.part(record, "present"), np.uint8)
            if len(flags) and flags.max() > 1:
                raise ValueError("marks that are neither 0 nor 1")
            present = flags.view(np.bool_)
            updates = self.updates | dict(_make_updates(self.updates, numbers, present))
            return replace(self, updates=updates, patches=(*self.patches, (record, numbers)))

    def _with_cells(self, record: Record) -> Snapshot:
        """Give the state with new cells, or with the cells of a new segment."""
        if record.kind == "documents":
            return self._with_segment_cells(record)
        cells = CellState.load(self.store, record)
        if cells is not None:
            n_dims = self.quantizers["image"].codewords.shape[2]
            if any(side.centres.points.shape[1] != n_dims for side in cells.sides.values()):
                raise ValueError("centres of another width")
            for coding, sides in SIDES.items():
                for side in set(sides) & set(cells.sides):
                    if len(cells.assignments.get((coding, side), ())) != self._rows_before(coding, record):
                        raise ValueError("cells of another number of documents")
        return replace(self, cells=cells, rebuilt=True)

    def _rows_before(self, coding: str, record: Record) -> int:
        """Count the rows of a partition when a record was written."""
        settled = len(self.settled[coding]) if coding in self.settled else 0
        before = [s for s, r in self.added if s.coding == coding and r.number < record.number]
        return settled + sum(segment.numbers.count for segment in before)

    def _with_segment_cells(self, record: Record) -> Snapshot:
        """Check the cells of a new segment, and count its documents."""
        document = record.document.get("cells")
        if self.cells is None or document is None or document["digest"] != self.cells.digest:
            return self
        segment = next(segment for segment, own in self.added if own.number == record.number)
        assert segment.cells is not None
        for side, cells in segment.cells.cells.items():
            check_cells(cells, segment.numbers.count, len(self.cells.sides[side].centres))
        return replace(self, cells=self.cells.with_added(document))

    def prepare_search(self, kind: str, target: str) -> PreparedSearch:
        """Lay out what queries of one kind for one target read, once for all of them."""
        known = self._searches.get((kind, target))
        if known is None:
            known = self._searches[kind, target] = PreparedSearch.of(self, kind, target)
        return known

    # Documents

    def __len__(self) -> int:
        return sum(partition.n_live for partition in self.partitions.values())

    def cell_sizes(self) -> dict[str, NDArray[np.int64]]:
        """Count the live documents of each cell, by side; empty without cells."""
        sides = {} if self.cells is None else self.cells.sides
        sizes = {name: np.zeros(len(side.centres), dtype=np.int64) for name, side in sides.items()}
        for partition in self.partitions.values():
            live = unpack_bits(partition.live, len(partition))
            for name, lists in partition.inverted_lists.items():
                sizes[name] += np.bincount(lists.cells[live], minlength=len(sizes[name]))
        return sizes

    def find(self, ids: Sequence[Id]) -> list[Place | None]:
        """Find where the documents of these ids are; None for ids that no document has."""
        found: list[Place | None] = [None] * len(ids)
        places, numbers = self.lookup.candidates(ids)
        for coding, partition in self.partitions.items() if len(places) else ():
            rows, there = partition.numbers.find(numbers)
            there[there] = test_bits(partition.live, rows[there])
            candidates = zip(
                places[there].tolist(), rows[there].tolist(), partition.ids.take(rows[there]), strict=True
            )
            for place, row, known in candidates:
                if known == ids[place] and type(known) is type(ids[place]):
                    found[place] = Place(coding, row)
        return found

    def places(self, numbers: NDArray[np.int64]) -> list[Place]:
        """Find where the documents of these numbers are; numbers of no document are left out."""
        found: dict[int, Place] = {}
        for coding, partition in self.partitions.items():
            rows, there = partition.numbers.find(numbers)
            kept = np.flatnonzero(there).tolist()
            found |= {
                place: Place(coding, row) for place, row in zip(kept, rows[there].tolist(), strict=True)
            }
        return [found[place] for place in sorted(found)]

    def payload_keys(self, places: Sequence[Place]) -> list[tuple[int, int] | None]:
        """Look up number and version of the payload rows of documents; None for those without one."""
        keys: list[tuple[int, int] | None] = [None] * len(places)
        for coding in {place.coding for place in places}:
            mine = [i for i, place in enumerate(places) if place.coding == coding]
            partition, rows = self.partitions[coding], np.array([places[i].row for i in mine])
            marks = test_bits(partition.with_payload, rows)
            for i, number, marked in zip(mine, partition.numbers[rows].tolist(), marks.tolist(), strict=True):
                version, present, _ = self.updates.get(number, Update(0, marked, ()))
                keys[i] = (number, version) if present else None
        return keys

    # Columns, groups, payloads, and filters

    def allowed(self, where: str | None, *, is_part: bool = False) -> dict[str, Bitset]:
        """Find the documents that are not deleted and that a filter allows, as bits by coding.

        In one of several shards (``is_part``), a field that no document of the shard has is not refused.
        """
        if where is None:
            return {coding: partition.live for coding, partition in self.partitions.items()}
        with self._guard:
            if _check_filter_text(where) not in self._answers:
                self._answers[where] = self._evaluate(where, is_part)
                if len(self._answers) > _MAX_ANSWERS:
                    self._answers.popitem(last=False)
            self._answers.move_to_end(where)
            return self._answers[where]

    def masks(self, where: str | None, *, is_part: bool = False) -> Masks:
        """Find the allowed documents as booleans, (n,) by coding; None where all are allowed."""
        partitions = self.partitions
        return {
            coding: None
            if count_bits(words) == len(partitions[coding])
            else unpack_bits(words, len(partitions[coding]))
            for coding, words in self.allowed(where, is_part=is_part).items()
        }

    def column(self, coding: str, field: str) -> Column:
        """Give the values of one field in one partition, updates included: what a compaction writes."""
        partition = self.partitions[coding]
        parts = [self._column(segment.record, field, segment.n_rows) for segment in partition.segments]
        column = join_columns(parts, [segment.n_rows for segment in partition.segments])
        for record, numbers in self.patches:
            rows, there = partition.numbers.find(numbers)
            if there.any():
                new = self._column(record, field, len(rows)).take(np.flatnonzero(there))
                column = column.patched(rows[there], new)
        return column

    def values(self, field: str, kind: str | None = None) -> FieldValues:
        """Number the values of one field in all partitions, for counting; of one kind, or the commonest."""
        with self._guard:
            if (field, kind) not in self._values:
                self._values[field, kind] = FieldValues.of(
                    self._columns_by_coding(field), self.masks(None), kind
                )
            return self._values[field, kind]

    def kinds(self, field: str) -> dict[str, int]:
        """Count the values of each kind that a field has."""
        return count_kinds(self._columns_by_coding(field), self.masks(None))

    def _columns_by_coding(self, field: str) -> dict[str, Column]:
        return {coding: self.column(coding, field) for coding in self.partitions}

    def cache_count(self, key: Hashable, count: Callable[[], Any]) -> Any:
        """Give what ``count`` gives, cached under a key; for small results only."""
        with self._guard:
            known = self._counted.get(key)
        if known is None:  # counted without the guard, so that searches with filters need not wait
            known = count()
            with self._guard:
                self._counted[key] = known
                if len(self._counted) > _MAX_COUNTS:
                    self._counted.popitem(last=False)
        return known

    def groups(self, coding: str) -> Groups | None:
        """Read the groups of the documents in one partition; None where none of them has one."""
        with self._guard:
            if coding not in self._groups:
                segments = self.partitions[coding].segments
                with refuse_damage(self.store.path, "the groups"):
                    parts = [Groups.load(self.store, segment.record) for segment in segments]
                    lengths = [segment.n_rows for segment in segments]
                    self._groups[coding] = Groups.join(parts, lengths) if any(parts) else None
            return self._groups[coding]

    def group_labels(self, coding: str, rows: NDArray[np.integer[Any]]) -> list[Id | None]:
        """Look up the labels of some documents' groups; None for those without one."""
        groups = self.groups(coding)
        return [None] * len(rows) if groups is None else groups.take(rows)

    def payloads(self, places: Sequence[Place]) -> list[dict[str, Any] | None]:
        """Read the payloads of some documents; None where there is none."""
        keys = self.payload_keys(places)
        known = {key: body for key in keys if key is not None and (body := self._bodies.get(key)) is not None}
        missing = [key for key in keys if key is not None and key not in known]
        if missing:
            for key, body in zip(missing, self.store.payloads(missing, self.generation), strict=True):
                known[key] = body
                self._bodies.keep(key, body)
        else:
            self.store.check_current(self.generation)
        with refuse_damage(self.store.path, "a payload"):
            return [None if key is None else parse_json(known[key].decode()) for key in keys]

    def restrict(self, allowed: Mapping[str, Bitset], numbers: NDArray[np.int64]) -> dict[str, Bitset]:
        """Allow only those of these documents that are allowed already."""
        restricted = {}
        for coding, bits in allowed.items():
            partition = self.partitions[coding]
            rows, there = partition.numbers.find(numbers)
            chosen = np.zeros(len(partition), dtype=bool)
            chosen[rows[there]] = True
            restricted[coding] = bits & pack_bits(chosen)
        return restricted

    def match_terms(
        self, terms: Sequence[str], where: str | None, *, is_part: bool = False
    ) -> list[TermMatches]:
        """Find the documents that have each of some words or phrases, and which of them a filter allows."""
        if not self.has_words:
            return [TermMatches.none() for _ in terms]
        found = [self._match_term(term) for term in terms]
        if where is None:
            return found
        allowed = self.allowed(where, is_part=is_part)
        return [each._replace(allowed=self._test_numbers(each.numbers, allowed)) for each in found]

    @cached_property
    def has_words(self) -> bool:
        """Whether words can be searched: not those of pictures without captions, nor without FTS5."""
        is_kept = self.words is not None and has_word_search()
        return is_kept and self.store.has_words(self.catalogue.next_number)

    def count_term(self, term: str, most: int) -> int:
        """Count the documents that have a word or phrase, ``most`` at most; also deleted ones.

        Documents that were added after this generation do not count, though the file has their words.
        """
        count = self._term_counts.get((term, most))
        if count is None:
            count = self.store.count_term(quote_term(term), self.catalogue.next_number, most)
            self._term_counts.keep((term, most), count)
        return count

    def _match_term(self, term: str) -> TermMatches:
        """Find the documents that have a word or phrase, once for all searches of this generation."""
        known = self._terms.get(term)
        if known is not None:
            return known
        with refuse_damage(self.store.path, "the table of words"):
            rows = np.array(self.store.match_term(quote_term(term)), dtype=np.int64).reshape(-1, 4)
        numbers, versions, counts, lengths = rows.T
        newest = [self.updates[n].version if n in self.updates else 0 for n in numbers.tolist()]
        live = self._test_numbers(numbers, self.allowed(None)) & (versions == np.array(newest, np.int64))
        found = TermMatches(numbers[live], counts[live], lengths[live], np.ones(int(live.sum()), dtype=bool))
        self._terms.keep(term, found)
        return found

    def _test_numbers(self, numbers: NDArray[np.int64], bits: Mapping[str, Bitset]) -> NDArray[np.bool_]:
        """Say (n,) which documents are there, and have their bit set."""
        is_set = np.zeros(len(numbers), dtype=bool)
        for coding, partition in self.partitions.items():
            rows, there = partition.numbers.find(numbers)
            is_set[there] = test_bits(bits[coding], rows[there])
        return is_set

    @property
    def read_bytes(self) -> int:
        """Bytes in memory of the caches."""
        answers = sum(words.nbytes for answer in self._answers.values() for words in answer.values())
        groups = sum(groups.n_bytes for groups in self._groups.values() if groups is not None)
        values = sum(values.n_bytes for values in self._values.values())
        words = self._terms.n_bytes + self._term_counts.n_bytes
        return (
            answers
            + groups
            + values
            + words
            + self._bodies.n_bytes
            + sum(column.n_bytes for column in self._columns.values())
        )

    def _evaluate(self, where: str, is_part: bool) -> dict[str, Bitset]:
        condition = parse_filter(where) if is_part else read_filter(where, self.fields)
        return {
            coding: partition.live & pack_bits(self._matches(partition, condition))
            for coding, partition in self.partitions.items()
        }

    def _matches(self, partition: Partition, condition: Condition) -> NDArray[np.bool_]:
        """Evaluate a condition segment by segment, then again for documents with a newer payload."""
        parts = [self._judge(segment.record, segment.n_rows, condition) for segment in partition.segments]
        matches = np.concatenate(parts)
        for record, numbers in self.patches:
            rows, there = partition.numbers.find(numbers)
            matches[rows[there]] = self._judge(record, len(rows), condition)[there]
        return matches

    def _judge(self, record: Record, n_rows: int, condition: Condition) -> NDArray[np.bool_]:
        columns = {field: self._column(record, field, n_rows) for field in fields_of(condition)}
        return evaluate_condition(condition, columns, n_rows)

    def _column(self, record: Record, field: str, n_rows: int) -> Column:
        key = record.number, field
        if key not in self._columns:
            name = name_column_part(field)
            with refuse_damage(self.store.path, f"the column of {field!r}"):
                there = name in record.parts
                self._columns[key] = (
                    Column.from_bytes(self.store.part(record, name), n_rows)
                    if there
                    else Column.empty(n_rows)
                )
        return self._columns[key]


def _replace_segments(
    old: Sequence[SegmentRows], replaced: Mapping[int, SegmentRows]
) -> tuple[SegmentRows, ...]:
    """Put each new record once in the place of those that it replaces."""
    segments: dict[int, SegmentRows] = {}
    for each in old:
        new = replaced.get(each.record.number, each)
        segments[new.record.number] = new
    return tuple(segments.values())


def _make_updates(
    known: dict[int, Update], numbers: NDArray[np.int64], present: NDArray[np.bool_]
) -> Iterable[tuple[int, Update]]:
    for number, there in zip(numbers.tolist(), present.tolist(), strict=True):
        old = known.get(number, Update(0, False, ()))
        older = (*old.older, old.version) if old.version and old.present else old.older
        yield number, Update(old.version + 1, there, older)


def _join_fields(known: dict[str, set[str]], records: Iterable[Record], path: str) -> dict[str, set[str]]:
    fields = dict(known)
    for record in records:
        with refuse_damage(path, f"record {record.number}"):
            for name, types in record.document.get("fields", {}).items():
                if not isinstance(types, list) or not set(types) <= TYPES:
                    raise ValueError(f"a field of types {types!r}")
                fields[name] = fields.get(name, set()) | set(types)
    return fields


def _list_docids(numbers: DocIds) -> NDArray[np.int64]:
    return numbers[np.arange(numbers.count)]


def _find_rows(partition: Partition, numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    rows, there = partition.numbers.find(numbers)
    return rows[there]


def model_record(model: CMCQ) -> NewRecord:
    """Make the record that holds a model."""
    return NewRecord("model", {}, {"model": model.to_bytes()})


def load_model(store: Store, given: CMCQ | None) -> CMCQ:
    """Read the model of an index; refuse if another one was given."""
    with store.reading():
        records = [record for record in store.records() if record.kind == "model"]
        if len(records) != 1:
            raise_damaged(store.path, f"it holds {len(records)} models")
        if given is not None:
            if part_checksum([memoryview(given.to_bytes())]) != records[0].parts["model"].checksum:
                raise WrongModel(f"{store.path}: the index was made with another model than the one given")
            return given
        return CMCQ.from_bytes(store.part(records[0], "model"), store.path)


def load_snapshot(store: Store, quantizers: Quantizers, n_jobs: int | None) -> Snapshot:
    """Read the newest generation."""
    with store.reading() as catalogue:
        empty = Snapshot(catalogue, 0, quantizers, store, n_jobs=n_jobs)
        return _load_after(empty, store.records())


def load_next(snapshot: Snapshot) -> Snapshot:
    """Read what was committed since a snapshot; the same object if nothing was."""
    store = snapshot.store
    with store.reading() as catalogue:
        if catalogue.generation == snapshot.generation:
            return snapshot
        if catalogue.oldest > snapshot.generation:
            return load_snapshot(store, snapshot.quantizers, snapshot.n_jobs)
        return _load_after(snapshot, store.records(after=snapshot.last_record))


def _load_after(snapshot: Snapshot, records: list[Record]) -> Snapshot:
    n_codebooks, store = len(snapshot.quantizers["image"].codewords), snapshot.store
    with store.reading() as catalogue:
        documents = [record for record in records if record.kind == "documents"]
        segments = load_segments(store, documents, n_codebooks, snapshot.n_jobs)
        _check_numbers(snapshot, segments, catalogue.next_number)
        if not may_hold_document_codes(store.format, snapshot.quantizers):
            _refuse_document_codes(store.path, segments)
        return snapshot.next(catalogue, records, segments)


def _check_numbers(snapshot: Snapshot, segments: Iterable[Segment], next_number: int) -> None:
    """Refuse document numbers that do not ascend within a coding, or were never given."""
    ends = {coding: partition.numbers.end for coding, partition in snapshot.settled.items()}
    ends |= {segment.coding: segment.numbers.end for segment, _ in snapshot.added if segment.numbers.count}
    for segment in segments:
        numbers = segment.numbers
        if numbers.count and not ends.get(segment.coding, 0) <= numbers.first <= numbers.end <= next_number:
            raise_damaged(
                snapshot.store.path, f"its documents from number {numbers.first} on are out of order"
            )
        ends[segment.coding] = max(ends.get(segment.coding, 0), numbers.end)


def may_hold_document_codes(format: int, quantizers: Quantizers) -> bool:
    """Say whether documents of an index may have one code of both halves, by its format and its model."""
    return format >= 2 and "document" in quantizers


def _refuse_document_codes(path: str, segments: Iterable[Segment]) -> None:
    if any(segment.coding == "document" for segment in segments):
        raise_damaged(path, "it has codes that neither its format nor its model knows")


def check_snapshot(snapshot: Snapshot) -> None:
    """Read all columns and groups, and count the payload rows that there should be."""
    path, expected = snapshot.store.path, 0
    for coding, partition in snapshot.partitions.items():
        for name in snapshot.fields:
            snapshot.column(coding, name)
        snapshot.groups(coding)
        expected += int(unpack_bits(partition.with_payload, len(partition)).sum())
    if _has_duplicate_ids(snapshot):
        raise_damaged(path, "an id occurs twice")
    numbers = np.concatenate(
        [_NO_ROWS, *(_list_docids(each.numbers) for each in snapshot.partitions.values())]
    )
    if len(np.unique(numbers)) < len(numbers):
        raise_damaged(path, "a document number occurs twice")
    expected += sum(len(update.older) + update.present for update in snapshot.updates.values())
    if expected != snapshot.catalogue.n_payloads:
        raise_damaged(path, f"it has {snapshot.catalogue.n_payloads} payloads, but its documents {expected}")


def _has_duplicate_ids(snapshot: Snapshot) -> bool:
    live = [(partition.ids, partition.live_rows()) for partition in snapshot.partitions.values()]
    hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *(ids.hashes()[rows] for ids, rows in live)]))
    if not (hashes[1:] == hashes[:-1]).any():  # sorting hashes is far cheaper than making all ids
        return False
    known = [id for ids, rows in live for id in ids.take(rows)]
    return len(set(known)) < len(known)


def measure_index(snapshot: Snapshot) -> dict[str, Any]:
    """Count documents and bytes.

    Returns
    -------
    dict
        ``format``, ``codes`` (what a document with both halves gets: "document" or "sides"), ``documents``,
        ``deleted`` (still in the file), ``items`` (images and texts), ``codings``, ``fields``,
        ``generation``, ``segments``; ``disk`` and ``memory``, each with ``bytes`` and ``per_item`` by part.
    """
    counts = {coding: partition.n_live for coding, partition in snapshot.partitions.items()}
    documents = sum(counts.values())
    items = {
        side: sum(count for coding, count in counts.items() if side in known_halves(coding))
        for side in ("image", "text")
    }
    n_items = max(1, sum(items.values()))
    return {
        "format": snapshot.store.format,
        "codes": "document"
        if may_hold_document_codes(snapshot.store.format, snapshot.quantizers)
        else "sides",
        "documents": documents,
        "deleted": sum(map(len, snapshot.partitions.values())) - documents,
        "items": items,
        "codings": counts,
        "fields": {field: sorted(types) for field, types in sorted(snapshot.fields.items())},
        "generation": snapshot.generation,
        "segments": sum(len(partition.segments) for partition in snapshot.partitions.values()),
        "disk": summarize_bytes(snapshot.store.sizes(), n_items),
        "memory": summarize_bytes(_measure_memory(snapshot), n_items),
    }


def _measure_memory(snapshot: Snapshot) -> dict[str, int]:
    parts = dict.fromkeys(("codes", "ids", "numbers", "marks", "cells"), 0)
    for partition in snapshot.partitions.values():
        for name, size in partition.memory().items():
            parts[name] += size
    # Made only by the first filter, grouping, or lookup of an id.
    parts["filters"] = snapshot.read_bytes
    parts["lookup"] = snapshot.lookup.n_bytes if "lookup" in vars(snapshot) else 0
    return parts | {"total": sum(parts.values())}


def summarize_bytes(parts: dict[str, int], n_items: int) -> dict[str, Any]:
    """Give bytes by part, and the same per item (an image or a text)."""
    return {"bytes": parts, "per_item": {name: round(size / n_items, 3) for name, size in parts.items()}}
