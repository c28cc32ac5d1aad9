"""Check documents, encode them, and make the commit of each kind of write: add, update, delete, compact."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypedDict, cast

import numpy as np
from numpy.typing import NDArray

from crossbyte._json import canonical_json, plain_json
from crossbyte.arrays import Codes
from crossbyte.compute.executor import (
    BLOCK_ROWS,
    SHARE_ROWS,
    Executor,
    Workers,
    keep_connected,
    make_executor,
    row_blocks,
)
from crossbyte.errors import DuplicateId, InvalidInput, PayloadTooLarge, TooManyFields, UnknownId
from crossbyte.index.bitset import pack_bits
from crossbyte.index.compaction import compact_segments, find_payload_rows
from crossbyte.index.docids import DocIds, Id, PackedIds, check_id, check_ids
from crossbyte.index.filters.columns import build_columns
from crossbyte.index.filters.grammar import flatten_payload
from crossbyte.index.ivf.lists import assign_cells
from crossbyte.index.ivf.state import dropped_cells_record
from crossbyte.index.lexical import KIND as WORDS_KIND
from crossbyte.index.lexical import searched_text
from crossbyte.index.segment import SEGMENT_ROWS, SIDES, Groups, Segment, name_column_part
from crossbyte.index.snapshot import Place, Snapshot, may_hold_document_codes
from crossbyte.index.storage.records import NewRecord
from crossbyte.model.estimator import CMCQ
from crossbyte.model.fit import FittedModel
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.validation import check_choice, check_codes, check_features

MAX_PAYLOAD_BYTES = 2**20
MAX_FIELDS = 1000
MAX_FIELD_BYTES = 2**16  # of the names of all fields
_KEPT = ("model", WORDS_KIND)  # kinds of records that a compaction leaves
_ROWS_AT_ONCE = 16 * BLOCK_ROWS  # whose points are in memory at the same time


@dataclass(frozen=True)
class Payloads:
    """Payloads as JSON objects, and as the bytes that are stored.

    Attributes
    ----------
    objects : list of dict or None
    bodies : list of bytes or None
    """

    objects: list[dict[str, Any] | None]
    bodies: list[bytes | None]

    def __getitem__(self, rows: slice) -> Payloads:
        return Payloads(self.objects[rows], self.bodies[rows])

    def take(self, rows: NDArray[np.intp]) -> Payloads:
        """Give the payloads of some documents."""
        chosen = rows.tolist()
        return Payloads([self.objects[row] for row in chosen], [self.bodies[row] for row in chosen])

    def present(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Say which documents (n,) have a payload."""
        return np.array([body is not None for body in self.bodies], dtype=bool)


def check_payloads(payloads: Any, n_rows: int) -> Payloads:
    """Check that there is one JSON object (or None) per document; Payloads are checked already."""
    if isinstance(payloads, Payloads):
        return payloads
    if payloads is None:
        return Payloads([None] * n_rows, [None] * n_rows)
    if hasattr(payloads, "to_dict") and hasattr(payloads, "columns"):  # a table of pandas
        payloads = _read_table(payloads)
    if isinstance(payloads, str | bytes | Mapping) or not hasattr(payloads, "__iter__"):
        raise InvalidInput(f"payloads: expected one JSON object per document, got {type(payloads).__name__}")
    objects = [_check_payload(payload, row) for row, payload in enumerate(payloads)]
    if len(objects) != n_rows:
        raise InvalidInput(f"payloads: expected {n_rows}, one per document, got {len(objects)}")
    check_fields((), list_fields(objects))
    return Payloads(objects, [_encode_payload(payload, row) for row, payload in enumerate(objects)])


def list_fields(payloads: Iterable[Mapping[str, Any] | None]) -> set[str]:
    """List the fields that payloads have, as filters spell them."""
    return {field for payload in payloads if payload for field, _ in flatten_payload(payload)}


def check_fields(known: Iterable[str], wanted: Iterable[str]) -> None:
    """Refuse new fields beyond the limits of an index; every reader would have to look at all of them.

    Parameters
    ----------
    known : iterable of str
        Those that the index has, which may be more: files of 0.6.0 had no limits.
    wanted : iterable of str
        Those that payloads bring.

    Raises
    ------
    TooManyFields
    """
    before = set(known)
    after = before.union(wanted)
    if len(after) == len(before):
        return
    n_bytes = sum(len(field.encode()) for field in after)
    if len(after) > MAX_FIELDS or n_bytes > MAX_FIELD_BYTES:
        raise TooManyFields(
            f"payloads: expected at most {MAX_FIELDS} different fields in an index, and {MAX_FIELD_BYTES} "
            f"bytes in their names, got {len(after)} with {n_bytes}; keep names that differ from document to "
            'document as values, such as {"tags": ["name"]}'
        )


def _check_payload(payload: Any, row: int) -> dict[str, Any] | None:
    if payload is None:
        return None
    if not isinstance(payload, Mapping):
        kind = type(payload).__name__
        raise InvalidInput(f"payloads: expected a JSON object or None at row {row}, got {kind}")
    plain: dict[str, Any] = plain_json(payload, f"payloads[{row}]", scalars=True)
    return plain


def _read_table(table: Any) -> list[dict[Any, Any]]:
    """Make an object of every row of a pandas table; a missing value is a field that is not there."""
    there = table.notna().to_numpy()
    names = list(table.columns)
    if len(set(names)) != len(names):
        raise InvalidInput("payloads: expected a table whose columns have different names; rename some")
    cells = [table[name].tolist() for name in names]
    return [
        {name: cells[at][row] for at, name in enumerate(names) if there[row, at]} for row in range(len(table))
    ]


def _encode_payload(payload: dict[str, Any] | None, row: int) -> bytes | None:
    if payload is None:
        return None
    try:
        body = canonical_json(payload).encode()
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidInput(f"payloads: row {row} cannot be written as JSON ({error})") from error
    if len(body) > MAX_PAYLOAD_BYTES:
        raise PayloadTooLarge(
            f"payloads: expected at most {MAX_PAYLOAD_BYTES} bytes of JSON per document, got {len(body)} "
            f"at row {row}; store large values elsewhere and keep a reference"
        )
    return body


class DocumentFields(TypedDict, total=False):
    """Hold what documents may have beside their ids; :meth:`crossbyte.Index.add` explains each."""

    images: Any
    texts: Any
    image_codes: Any
    text_codes: Any
    document_codes: Any
    codes: str | None
    payloads: Any
    groups: Any


@dataclass(frozen=True)
class Batch:
    """Hold documents that have passed every check but that of their ids against the index.

    Attributes
    ----------
    ids : list of str or int
    coding : str
    sides : mapping of side to features or ready codes
        Features of "image" and "text" also where both become one code.
    ready : bool
        Whether the sides are codes.
    payloads : Payloads
    groups : list or None
    """

    ids: list[Id]
    coding: str
    sides: Mapping[str, Any]
    ready: bool
    payloads: Payloads
    groups: list[Id | None] | None

    @classmethod
    def check(
        cls, model: CMCQ, format: int, ids: Any, documents: DocumentFields, coding: str | None = None
    ) -> Batch:
        """Check everything before anything is encoded or written, for an index of this format."""
        _refuse_unknown(documents)
        names = check_ids(ids)
        features = _collect_sides(documents, {"image": "images", "text": "texts"})
        codes = _collect_sides(documents, {side: f"{side}_codes" for side in ("image", "text", "document")})
        if bool(features) == bool(codes):
            raise InvalidInput(
                "expected features (images=, texts= or both) or ready codes (image_codes=, text_codes= or "
                f"both, or document_codes= alone), got {'both kinds' if features else 'neither'}"
            )
        known = _choose_coding(model, format, documents.get("codes"), features, codes)
        n_codebooks = len(model.image_codebooks_)
        sides = {
            side: check_codes(value, n_codebooks) if codes else _check_side(model, side, value)
            for side, value in (codes or features).items()
        }
        for side, value in sides.items():
            if value.shape[0] != len(names):
                raise InvalidInput(f"expected one {side} per id ({len(names)}), got {value.shape[0]} rows")
        return cls(
            names,
            coding or known,
            sides,
            bool(codes),
            check_payloads(documents.get("payloads"), len(names)),
            _check_groups(documents.get("groups"), len(names)),
        )

    def encode(
        self, model: CMCQ, callback: ProgressCallback | None = None, cluster: str | None = None
    ) -> dict[str, Codes]:
        """Encode the documents, both halves together, here or on a cluster; ready codes stay."""
        if self.ready:
            return {side: np.asarray(codes) for side, codes in self.sides.items()}
        learned, parts, done = model.fitted_, [], 0  # not through the model: features are checked already
        with make_executor(model.n_jobs, cluster=cluster) as workers:
            for part in self._encode_blocks(learned, workers, cluster):
                parts.append(part)
                done += len(part[0])
                if callback is not None:
                    callback(Progress("code", self.coding, done, len(self.ids)))
        nothing = np.empty((0, len(model.image_codebooks_)), dtype=np.uint8)
        return {
            side: np.concatenate([nothing, *(part[i] for part in parts)])
            for i, side in enumerate(SIDES[self.coding])
        }

    def _encode_blocks(
        self, learned: FittedModel, workers: Executor, cluster: str | None
    ) -> Iterator[Sequence[Codes]]:
        """Encode block after block: each with all threads, or each as one task of the cluster."""
        coding = self.coding  # by itself: a task of the cluster is not to carry all documents
        blocks = row_blocks(len(self.ids), _ROWS_AT_ONCE if cluster is None else SHARE_ROWS)
        some = ({side: features[rows] for side, features in self.sides.items()} for rows in blocks)
        if cluster is None:
            return (_encode_sides(learned, coding, block, workers) for block in some)
        light = replace(learned, image_codes=learned.image_codes[:0], text_codes=learned.text_codes[:0])
        return workers.map(lambda block: _encode_sides(light, coding, block, workers), some)

    def with_codes(self, codes: Mapping[str, Codes]) -> Batch:
        """Give the same documents with ready codes, which :meth:`encode` gave."""
        return replace(self, sides=codes, ready=True)

    def take(self, rows: NDArray[np.intp]) -> Batch:
        """Give some of the documents."""
        chosen = rows.tolist()
        return replace(
            self,
            ids=[self.ids[row] for row in chosen],
            sides={side: values[rows] for side, values in self.sides.items()},
            payloads=self.payloads.take(rows),
            groups=None if self.groups is None else [self.groups[row] for row in chosen],
        )

    def segments(self, codes: Mapping[str, Codes], numbers: DocIds) -> Iterator[Segment]:
        """Cut the documents, given their codes and numbers, into segments."""
        for rows in row_blocks(len(self.ids), SEGMENT_ROWS):
            count = rows.stop - rows.start
            payloads = self.payloads[rows]
            present = payloads.present()
            yield Segment(
                self.coding,
                numbers.cut(rows),
                PackedIds.of(self.ids[rows]),
                {side: np.ascontiguousarray(values[rows]) for side, values in codes.items()},
                pack_bits(present),
                None if self.groups is None else Groups.of(self.groups[rows]),
                build_columns(payloads.objects, count) if present.any() else {},
            )

    def payload_rows(self, numbers: DocIds) -> Iterator[tuple[int, int, bytes]]:
        """Yield number, version and body of every payload."""
        rows = np.flatnonzero(self.payloads.present())
        for number, row in zip(numbers[rows].tolist(), rows.tolist(), strict=True):
            yield number, 0, self.payloads.bodies[row] or b""

    def word_rows(self, numbers: DocIds, fields: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """Yield number, version and words of every payload that has any in these fields."""
        rows = np.flatnonzero(self.payloads.present())
        for number, row in zip(numbers[rows].tolist(), rows.tolist(), strict=True):
            if text := searched_text(self.payloads.objects[row], fields):
                yield number, 0, text


def _refuse_unknown(documents: DocumentFields) -> None:
    known = DocumentFields.__annotations__
    unknown = sorted(set(documents) - set(known))
    if unknown:
        raise InvalidInput(f"documents: expected any of {', '.join(known)}, got {', '.join(unknown)}")


def _collect_sides(documents: DocumentFields, names: Mapping[str, str]) -> dict[str, Any]:
    """Collect what was given of each side, under these names."""
    values = {side: dict(documents).get(name) for side, name in names.items()}
    return {side: value for side, value in values.items() if value is not None}


def _check_side(model: CMCQ, side: str, features: Any) -> Any:
    width = model.n_features_in_ if side == "image" else model.n_text_features_
    return check_features(features, f"{side}s", width)


def _choose_coding(
    model: CMCQ, format: int, wanted: Any, features: Mapping[str, Any], codes: Mapping[str, Any]
) -> str:
    """Decide how documents are coded, given what is known of them; refuse what the index cannot hold."""
    has_document_codes = model.fitted_.has_document_codes
    check_wanted_codes(wanted, has_document_codes, format)
    if "document" in codes:
        _require_document_codes("document_codes", has_document_codes, format)
    if "document" in codes and len(codes) > 1:
        raise InvalidInput(
            "expected document_codes= alone, or image_codes=, text_codes= or both; got all kinds"
        )
    if "document" in codes and wanted == "sides":
        raise InvalidInput('codes="sides": expected image_codes= and text_codes=, got document_codes=')
    given = features or codes
    if len(given) == 1:
        return next(iter(given))
    if codes and wanted == "document":
        raise InvalidInput('codes="document": expected document_codes=, got image_codes= and text_codes=')
    one_code = bool(features) and may_hold_document_codes(format, model.fitted_.quantizers)
    return "document" if one_code and wanted != "sides" else "pair"


def check_wanted_codes(wanted: Any, has_document_codes: bool, format: int) -> None:
    """Refuse a choice of codes ("document", "sides" or None) that model and format of an index do not have.

    ``has_document_codes`` is of the fitted model, or what its settings will make of it.
    """
    if wanted is not None and check_choice(wanted, "codes", ("document", "sides")) == "document":
        _require_document_codes('codes="document"', has_document_codes, format)


def _require_document_codes(asked: str, has_document_codes: bool, format: int) -> None:
    if not has_document_codes:
        raise InvalidInput(
            f"{asked}: the model has no codes of whole documents, only two codes, of the image and of the "
            'text; use codes="sides", or fit a model with scoring="likelihood" and mapping="cca" or "auto" '
            "(the defaults)"
        )
    if format < 2:
        raise InvalidInput(
            f"{asked}: one code per document needs an index of format 2, and this one has format {format}; "
            'create a new index and add the documents to it, or use codes="sides"'
        )


def _encode_sides(
    learned: FittedModel, coding: str, sides: Mapping[str, Any], workers: Executor
) -> Sequence[Codes]:
    if coding == "document":
        return (learned.encode_documents(sides["image"], sides["text"], workers),)
    if len(sides) == 2:
        return learned.encode_pairs(sides["image"], sides["text"], workers)
    if "image" in sides:
        return (learned.encode_images(sides["image"], workers),)
    return (learned.encode_texts(sides["text"], workers),)


def _check_groups(groups: Any, n_rows: int) -> list[Id | None] | None:
    if groups is None:
        return None
    if isinstance(groups, str | bytes | Mapping) or not hasattr(groups, "__iter__"):
        raise InvalidInput(f"groups: expected one label per document, got {type(groups).__name__}")
    labels = [None if label is None else check_id(label) for label in groups]
    if len(labels) != n_rows:
        raise InvalidInput(f"groups: expected {n_rows}, one per document, got {len(labels)}")
    return labels


class Commit(NamedTuple):
    """Hold what one commit writes.

    Attributes
    ----------
    records : sequence of NewRecord
        Before the segments.
    segments : sequence of Segment
    payloads : iterable of (number, version, body)
    next_number : int or None
        Above all document numbers; None for as it is.
    words : iterable of (number, version, text)
        What is searched by words.
    """

    records: Sequence[NewRecord] = ()
    segments: Sequence[Segment] = ()
    payloads: Iterable[tuple[int, int, bytes]] = ()
    next_number: int | None = None
    words: Iterable[tuple[int, int, str]] = ()


class Replacement(NamedTuple):
    """Hold what a compaction writes: :meth:`crossbyte.index.storage.store.Store.replace` takes each."""

    old: Sequence[int]
    records: Sequence[NewRecord]
    dead: Sequence[tuple[int, int]]
    renamed: Sequence[tuple[int, int]]
    next_number: int
    lowered: Sequence[tuple[int, int, int]] = ()


def add_batches(
    model: CMCQ,
    format: int,
    ids: Any,
    documents: DocumentFields,
    cluster: str | None,
    add: Callable[[Batch], None],
) -> int:
    """Check documents, or blocks of them one after the other, and add each batch; give their number.

    Parameters
    ----------
    model : CMCQ
    format : {1, 2}
        Of the index.
    ids : sequence of str or int, or iterator of blocks
        As in :meth:`crossbyte.Index.add`.
    documents : DocumentFields
    cluster : str or None
        Stays connected while blocks come one after the other; a single batch connects by itself.
    add : callable
        Writes a batch in one commit.
    """
    connected = keep_connected(cluster, model.n_jobs) if isinstance(ids, Iterator) else nullcontext()
    count = 0
    with connected:
        for batch in _check_batches(model, format, ids, documents):
            add(batch)
            count += len(batch.ids)
    return count


def _check_batches(model: CMCQ, format: int, ids: Any, documents: DocumentFields) -> Iterator[Batch]:
    if not isinstance(ids, Iterator):
        yield Batch.check(model, format, ids, documents)
        return
    if any(value is not None for name, value in documents.items() if name != "codes"):
        raise InvalidInput("expected an iterator of blocks alone: each block brings its own features")
    for block in ids:
        names, own = _split_block(block)
        yield Batch.check(model, format, names, DocumentFields(codes=documents.get("codes")) | own)


def make_addition(
    snapshot: Snapshot,
    model: CMCQ,
    batch: Batch,
    callback: ProgressCallback | None,
    *,
    replacing: bool,
    numbers: DocIds | None = None,
    cluster: str | None = None,
) -> Commit | None:
    """Make the commit that writes documents, and deletes those that they replace; None without documents.

    Parameters
    ----------
    snapshot : Snapshot
        The newest.
    model : CMCQ
    batch : Batch
    callback : callable or None
    replacing : bool
        Whether documents of the same ids are replaced; else they are refused.
    numbers : DocIds, optional
        Numbers of the documents, unique over all shards; None for those that follow in this index.
    cluster : str, optional
        Where features are encoded.
    """
    found = snapshot.find(batch.ids)
    if not replacing:
        _refuse_known_ids(snapshot, batch.ids, found)
    codes = batch.encode(model, callback, cluster)
    following = DocIds(snapshot.catalogue.next_number, len(batch.ids))
    given = following if numbers is None else numbers
    cut = list(batch.segments(codes, given))
    check_fields(snapshot.fields, (field for segment in cut for field in segment.columns))
    segments = _assign_cells(snapshot, cut, model.n_jobs)
    places = [place for place in found if place is not None]
    records = [_make_deletion_record(_collect_docids(snapshot, places))] if places else []
    if not segments:
        return None
    words = batch.word_rows(given, snapshot.words.fields) if snapshot.words else ()
    return Commit(records, segments, batch.payload_rows(given), given.end, words)


def make_payload_update(snapshot: Snapshot, names: list[Id], payloads: Payloads) -> Commit | None:
    """Make the commit that writes new versions of payloads, and their columns; None without documents."""
    numbers = find_docids(snapshot, names, missing_ok=False)
    columns = build_columns(payloads.objects, len(names))
    check_fields(snapshot.fields, columns)
    document = {"fields": {field: sorted(column.types) for field, column in columns.items()}}
    parts: dict[str, Any] = {name_column_part(field): column.to_bytes() for field, column in columns.items()}
    parts |= {"numbers": numbers.astype("<i8"), "present": payloads.present().view(np.uint8)}
    if not names:
        return None
    rows = _number_versions(snapshot, numbers, payloads)
    words = _word_versions(snapshot, numbers, payloads) if snapshot.words else ()
    return Commit([NewRecord("updates", document, parts)], payloads=rows, words=words)


def _word_versions(
    snapshot: Snapshot, numbers: NDArray[np.int64], payloads: Payloads
) -> Iterator[tuple[int, int, str]]:
    fields = () if snapshot.words is None else snapshot.words.fields
    for number, payload in zip(numbers.tolist(), payloads.objects, strict=True):
        update = snapshot.updates.get(number)
        version = 1 if update is None else update.version + 1
        yield number, version, searched_text(payload, fields)


def _number_versions(
    snapshot: Snapshot, numbers: NDArray[np.int64], payloads: Payloads
) -> Iterator[tuple[int, int, bytes]]:
    for number, body in zip(numbers.tolist(), payloads.bodies, strict=True):
        if body is not None:
            update = snapshot.updates.get(number)
            yield number, 1 if update is None else update.version + 1, body


def find_docids(snapshot: Snapshot, names: list[Id], *, missing_ok: bool) -> NDArray[np.int64]:
    """Find the numbers of documents; those that are not there are refused, or left out.

    Raises
    ------
    UnknownId
    """
    places = snapshot.find(names)
    for name, place in zip(names, places, strict=True):
        if place is None and not missing_ok:
            raise UnknownId(f"{snapshot.store.path}: no document has the id {name!r}; nothing was changed")
    return _collect_docids(snapshot, [place for place in places if place is not None])


def make_deletion(numbers: NDArray[np.int64]) -> Commit:
    """Make the commit that deletes documents."""
    return Commit([_make_deletion_record(numbers)])


def make_cell_removal(snapshot: Snapshot) -> Commit | None:
    """Make the commit that drops the cells; None where there are none."""
    return None if snapshot.cells is None else Commit([dropped_cells_record()])


def make_compaction(snapshot: Snapshot) -> Replacement:
    """Write the live documents anew, in the place of all records but the model and the fields of words."""
    segments = compact_segments(snapshot, len(snapshot.quantizers["image"].codewords))
    # Before the documents, whose records name their cells.
    records = [] if snapshot.cells is None else [snapshot.cells.without_assignments().to_record()]
    records += [segment.to_record() for segment in segments]
    with snapshot.store.reading():
        known = snapshot.store.records()
    old = [each.number for each in known if each.kind not in _KEPT and each.number <= snapshot.last_record]
    return Replacement(old, records, *find_payload_rows(snapshot), snapshot.catalogue.next_number)


def catch_up(compaction: Replacement, before: Snapshot, now: Snapshot) -> Replacement | None:
    """Take into a compaction what was committed since it was begun; None where it must be made anew.

    Documents that were added are put behind the others, as they are; later deletions and updates stay, but
    updates are counted from a payload that is version 0 by now.

    Parameters
    ----------
    compaction : Replacement
    before : Snapshot
        What it was made of.
    now : Snapshot
        The newest.
    """
    store = now.store
    with store.reading():
        new = store.records(after=before.last_record)
        if any(record.kind not in ("documents", "deletions", "updates") for record in new):
            return None
        added = [record for record in new if record.kind == "documents"]
        copies = [
            NewRecord("documents", each.document, {name: store.part(each, name) for name in each.parts})
            for each in added
        ]
    lowered = []
    for number, update in now.updates.items():
        base = before.updates[number].version if number in before.updates else 0
        versions = [*update.older, *([update.version] if update.present else [])]
        lowered += [(number, version, version - base) for version in versions if base and version > base]
    return compaction._replace(
        old=[*compaction.old, *(record.number for record in added)],
        records=[*compaction.records, *copies],
        next_number=now.catalogue.next_number,
        lowered=lowered,
    )


def _assign_cells(snapshot: Snapshot, segments: list[Segment], n_jobs: int | None) -> list[Segment]:
    """Give new segments the cells of their documents, if the index has cells."""
    if snapshot.cells is None:
        return segments
    with Workers(n_jobs) as workers:
        return [assign_cells(each, snapshot.cells, snapshot.quantizers, workers) for each in segments]


def _refuse_known_ids(snapshot: Snapshot, names: list[Id], places: list[Place | None]) -> None:
    known = next((name for name, place in zip(names, places, strict=True) if place is not None), None)
    if known is not None:
        raise DuplicateId(f"{snapshot.store.path}: id {known!r} is there already; use upsert() to replace it")


def _split_block(block: Any) -> tuple[Any, DocumentFields]:
    """Split a block into its ids and the rest."""
    if not isinstance(block, Mapping) or "ids" not in block:
        raise InvalidInput(f"expected blocks as mappings with 'ids', got {block!r:.200}")
    documents = cast(DocumentFields, {name: value for name, value in block.items() if name != "ids"})
    return block["ids"], documents


def _collect_docids(snapshot: Snapshot, places: Sequence[Place]) -> NDArray[np.int64]:
    """Look up the numbers of the documents at these places, in their order."""
    numbers = np.empty(len(places), dtype=np.int64)
    for coding in {place.coding for place in places}:
        mine = [i for i, place in enumerate(places) if place.coding == coding]
        numbers[mine] = snapshot.partitions[coding].numbers[np.array([places[i].row for i in mine])]
    return numbers


def _make_deletion_record(numbers: NDArray[np.int64]) -> NewRecord:
    return NewRecord("deletions", {}, {"numbers": np.sort(numbers).astype("<i8")})
