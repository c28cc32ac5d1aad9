"""What each verb that writes puts into a commit."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import DuplicateId, InvalidInput, UnknownId
from crossbyte.executors.choosing import kept_open
from crossbyte.executors.threads import Workers
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import ProgressCallback
from crossbyte.search.batch import Batch, Documents, Payloads
from crossbyte.search.cells.numbering import with_cells
from crossbyte.search.cells.state import no_cells
from crossbyte.search.compaction import compact_segments, payload_rows
from crossbyte.search.filters.columns import build_columns
from crossbyte.search.ids import Id
from crossbyte.search.numbers import Numbers
from crossbyte.search.segment import Segment, column_part
from crossbyte.search.snapshot import Place, Snapshot
from crossbyte.search.storage.store import NewRecord

__all__ = [
    "Commit",
    "Replacement",
    "add",
    "batches_of",
    "coding_on",
    "compact",
    "delete",
    "drop_cells",
    "numbers_of",
    "update_payloads",
]


class Commit(NamedTuple):
    """What one commit writes.

    Attributes
    ----------
    records : sequence of NewRecord
        Before the segments.
    segments : sequence of Segment
    payloads : iterable of (number, version, body)
    next_number : int or None
        Above all document numbers; None for as it is.
    """

    records: Sequence[NewRecord] = ()
    segments: Sequence[Segment] = ()
    payloads: Iterable[tuple[int, int, bytes]] = ()
    next_number: int | None = None


class Replacement(NamedTuple):
    """What a compaction writes: :meth:`crossbyte.search.storage.store.Store.replace` takes each."""

    old: Sequence[int]
    records: Sequence[NewRecord]
    dead: Sequence[tuple[int, int]]
    renamed: Sequence[tuple[int, int]]
    next_number: int


def coding_on(cluster: str | None, ids: Any, model: CMCQ) -> AbstractContextManager[None]:
    """Stay connected to a cluster where blocks come one after the other; one call connects by itself."""
    return kept_open(cluster, model.n_jobs) if isinstance(ids, Iterator) else nullcontext()


def batches_of(model: CMCQ, ids: Any, documents: Documents) -> Iterator[Batch]:
    """Judge documents, or blocks of them one after the other."""
    if not isinstance(ids, Iterator):
        yield Batch.check(model, ids, documents)
        return
    if any(value is not None for value in documents.values()):
        raise InvalidInput("expected an iterator of blocks alone: each block brings its own features")
    for block in ids:
        yield Batch.check(model, *_block(block))


def add(
    snapshot: Snapshot,
    model: CMCQ,
    batch: Batch,
    callback: ProgressCallback | None,
    *,
    replacing: bool,
    numbers: Numbers | None = None,
    cluster: str | None = None,
) -> Commit | None:
    """Write documents in one commit, and delete those that they replace; nothing where there are none."""
    found = snapshot.find(batch.ids)
    if not replacing:
        _refuse_known(snapshot, batch.ids, found)
    codes = batch.codes(model, callback, cluster)
    following = Numbers(snapshot.catalogue.next_number, len(batch.ids))
    given = following if numbers is None else numbers
    segments = _in_cells(snapshot, list(batch.segments(codes, given)), model.n_jobs)
    places = [place for place in found if place is not None]
    records = [_deletions(_numbers(snapshot, places))] if places else []
    return Commit(records, segments, batch.payload_rows(given), given.end) if segments else None


def update_payloads(snapshot: Snapshot, names: list[Id], payloads: Payloads) -> Commit | None:
    """Write new versions of payloads, and the columns of their documents; nothing where there are none."""
    numbers = numbers_of(snapshot, names, missing_ok=False)
    columns = build_columns(payloads.objects, len(names))
    document = {"fields": {field: sorted(column.types) for field, column in columns.items()}}
    parts: dict[str, Any] = {column_part(field): column.to_bytes() for field, column in columns.items()}
    parts |= {"numbers": numbers.astype("<i8"), "present": payloads.present().view(np.uint8)}
    if not names:
        return None
    rows = _versions(snapshot, numbers, payloads)
    return Commit([NewRecord("updates", document, parts)], payloads=rows)


def _versions(
    snapshot: Snapshot, numbers: NDArray[np.int64], payloads: Payloads
) -> Iterator[tuple[int, int, bytes]]:
    for number, body in zip(numbers.tolist(), payloads.bodies, strict=True):
        if body is not None:
            update = snapshot.updates.get(number)
            yield number, 1 if update is None else update.version + 1, body


def numbers_of(snapshot: Snapshot, names: list[Id], *, missing_ok: bool) -> NDArray[np.int64]:
    """Find the numbers of documents; those that are not there are refused, or left out.

    Raises
    ------
    UnknownId
    """
    places = snapshot.find(names)
    for name, place in zip(names, places, strict=True):
        if place is None and not missing_ok:
            raise UnknownId(f"{snapshot.store.path}: no document has the id {name!r}; nothing was changed")
    return _numbers(snapshot, [place for place in places if place is not None])


def delete(numbers: NDArray[np.int64]) -> Commit:
    """Write which documents are deleted."""
    return Commit([_deletions(numbers)])


def drop_cells(snapshot: Snapshot) -> Commit | None:
    """Write that there are no cells any more; nothing where there are none."""
    return None if snapshot.cells is None else Commit([no_cells()])


def compact(snapshot: Snapshot) -> Replacement:
    """Write the live documents anew in the place of everything but the model."""
    segments = compact_segments(snapshot, len(snapshot.quantizers["image"].codewords))
    # Before its documents, which have their cells beside them.
    records = [] if snapshot.cells is None else [snapshot.cells.settled().to_record()]
    records += [segment.to_record() for segment in segments]
    with snapshot.store.reading():
        old = [record.number for record in snapshot.store.records() if record.kind != "model"]
    return Replacement(old, records, *payload_rows(snapshot), snapshot.catalogue.next_number)


def _in_cells(snapshot: Snapshot, segments: list[Segment], n_jobs: int | None) -> list[Segment]:
    """New segments with the cells of their documents, if the index has cells."""
    if snapshot.cells is None:
        return segments
    with Workers(n_jobs) as workers:
        return [with_cells(each, snapshot.cells, snapshot.quantizers, workers) for each in segments]


def _refuse_known(snapshot: Snapshot, names: list[Id], places: list[Place | None]) -> None:
    known = next((name for name, place in zip(names, places, strict=True) if place is not None), None)
    if known is not None:
        raise DuplicateId(f"{snapshot.store.path}: id {known!r} is there already; use upsert() to replace it")


def _block(block: Any) -> tuple[Any, Documents]:
    """Ids, and what is said of them."""
    if not isinstance(block, Mapping) or "ids" not in block:
        raise InvalidInput(f"expected blocks as mappings with 'ids', got {block!r:.200}")
    documents = cast(Documents, {name: value for name, value in block.items() if name != "ids"})
    return block["ids"], documents


def _numbers(snapshot: Snapshot, places: Sequence[Place]) -> NDArray[np.int64]:
    """Numbers of the documents at these places, in their order."""
    numbers = np.empty(len(places), dtype=np.int64)
    for coding in {place.coding for place in places}:
        mine = [i for i, place in enumerate(places) if place.coding == coding]
        numbers[mine] = snapshot.shelves[coding].numbers[np.array([places[i].row for i in mine])]
    return numbers


def _deletions(numbers: NDArray[np.int64]) -> NewRecord:
    return NewRecord("deletions", {}, {"numbers": np.sort(numbers).astype("<i8")})
