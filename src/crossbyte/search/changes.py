"""What each verb that writes puts into a commit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import DuplicateId, InvalidInput, UnknownId
from crossbyte.executors.ray_cluster import kept_open
from crossbyte.executors.threads import Workers
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import ProgressCallback
from crossbyte.search.batch import Batch, Documents, Payloads
from crossbyte.search.cells.building import CellRequest, build_cell_state
from crossbyte.search.cells.numbering import with_cells
from crossbyte.search.cells.state import no_cells
from crossbyte.search.compaction import compact_segments, payload_rows
from crossbyte.search.details import Details
from crossbyte.search.filters.columns import build_columns
from crossbyte.search.handle import Handle
from crossbyte.search.ids import Id
from crossbyte.search.numbers import Numbers
from crossbyte.search.segment import Segment, column_part
from crossbyte.search.snapshot import Place, Snapshot
from crossbyte.search.storage.store import NewRecord

__all__ = [
    "add_all",
    "add_batch",
    "batches_of",
    "build_cells",
    "coding_on",
    "compact",
    "delete",
    "drop_cells",
    "update_payloads",
]


def add_all(
    handle: Handle,
    ids: Any,
    documents: Documents,
    callback: ProgressCallback,
    *,
    replacing: bool,
    cluster: str | None = None,
) -> int:
    """Add documents, or blocks of them one commit after the other; returns how many."""
    batches = batches_of(handle.model, ids, documents)
    with coding_on(cluster, ids, handle.model):
        return sum(
            add_batch(handle, batch, callback, replacing=replacing, cluster=cluster) for batch in batches
        )


def coding_on(cluster: str | None, ids: Any, model: CMCQ) -> AbstractContextManager[None]:
    """Stay connected to a cluster where blocks come one after the other; one call connects by itself."""
    return kept_open(cluster if isinstance(ids, Iterator) else None, model.n_jobs)


def batches_of(model: CMCQ, ids: Any, documents: Documents) -> Iterator[Batch]:
    """Judge documents, or blocks of them one after the other."""
    if not isinstance(ids, Iterator):
        yield Batch.check(model, ids, documents)
        return
    if any(value is not None for value in documents.values()):
        raise InvalidInput("expected an iterator of blocks alone: each block brings its own features")
    for block in ids:
        yield Batch.check(model, *_block(block))


def add_batch(
    handle: Handle,
    batch: Batch,
    callback: ProgressCallback,
    *,
    replacing: bool,
    numbers: Numbers | None = None,
    cluster: str | None = None,
) -> int:
    """Add documents in one commit; a shard is told their numbers, which are unique over all shards."""
    with handle.writing:
        snapshot = handle.latest()
        found = snapshot.find(batch.ids)
        if not replacing:
            _refuse_known(handle, batch.ids, found)
        codes = batch.codes(handle.model, callback, cluster)
        following = Numbers(snapshot.catalogue.next_number, len(batch.ids))
        given = following if numbers is None else numbers
        segments = _in_cells(handle, list(batch.segments(codes, given)))
        places = [place for place in found if place is not None]
        records = [_deletions(_numbers(snapshot, places))] if places else []
        if segments:
            handle.commit(records, segments, batch.payload_rows(given), given.end)
    return len(batch.ids)


def update_payloads(handle: Handle, names: list[Id], payloads: Payloads) -> int:
    """Write new versions of payloads, and the columns of their documents; returns how many."""
    with handle.writing:
        snapshot = handle.latest()
        numbers = _numbers(snapshot, _known(handle, snapshot, names))
        columns = build_columns(payloads.objects, len(names))
        document = {"fields": {field: sorted(column.types) for field, column in columns.items()}}
        parts: dict[str, Any] = {column_part(field): column.to_bytes() for field, column in columns.items()}
        parts |= {"numbers": numbers.astype("<i8"), "present": payloads.present().view(np.uint8)}
        if names:
            rows = _versions(snapshot, numbers, payloads)
            handle.commit([NewRecord("updates", document, parts)], payloads=rows)
    return len(names)


def _versions(
    snapshot: Snapshot, numbers: NDArray[np.int64], payloads: Payloads
) -> Iterator[tuple[int, int, bytes]]:
    for number, body in zip(numbers.tolist(), payloads.bodies, strict=True):
        if body is not None:
            update = snapshot.updates.get(number)
            yield number, 1 if update is None else update.version + 1, body


def delete(handle: Handle, names: list[Id], *, missing_ok: bool) -> int:
    """Write which documents are deleted; returns how many."""
    with handle.writing:
        snapshot = handle.latest()
        found = snapshot.find(names) if missing_ok else _known(handle, snapshot, names)
        numbers = _numbers(snapshot, [place for place in found if place is not None])
        if len(numbers):
            handle.commit([_deletions(numbers)])
    return len(numbers)


def build_cells(handle: Handle, request: CellRequest, callback: ProgressCallback) -> None:
    """Learn cells, and write them."""
    with handle.writing:
        handle.latest()
        snapshot = handle.current().snapshot
        state = build_cell_state(handle.model, snapshot, handle.n_threads, request, callback)
        handle.commit([state.to_record()])


def drop_cells(handle: Handle) -> None:
    """Write that there are no cells any more; nothing where there are none."""
    with handle.writing:
        if handle.latest().cells is not None:
            handle.commit([no_cells()])


def compact(handle: Handle) -> None:
    """Write the live documents anew in the place of everything but the model."""
    with handle.writing:
        details = Details(handle.latest(), handle.store)
        segments = compact_segments(details, len(handle.model.image_codebooks_))
        cells = details.snapshot.cells
        # Before its documents, which have their cells beside them.
        records = [] if cells is None else [cells.settled().to_record()]
        records += [segment.to_record() for segment in segments]
        with handle.store.reading():
            old = [record.number for record in handle.store.records() if record.kind != "model"]
        dead, renamed = payload_rows(details.snapshot)
        handle.store.replace(old, records, dead, renamed, details.snapshot.catalogue.next_number)
        handle.refresh()


def _in_cells(handle: Handle, segments: list[Segment]) -> list[Segment]:
    """New segments with the cells of their documents, if the index has cells."""
    snapshot = handle.details.snapshot
    if snapshot.cells is None:
        return segments
    with Workers(handle.model.n_jobs) as workers:
        return [with_cells(each, snapshot.cells, snapshot.quantizers, workers) for each in segments]


def _refuse_known(handle: Handle, names: list[Id], places: list[Place | None]) -> None:
    known = next((name for name, place in zip(names, places, strict=True) if place is not None), None)
    if known is not None:
        raise DuplicateId(f"{handle.path}: id {known!r} is there already; use upsert() to replace it")


def _known(handle: Handle, snapshot: Snapshot, names: list[Id]) -> list[Place]:
    places = snapshot.find(names)
    for name, place in zip(names, places, strict=True):
        if place is None:
            raise UnknownId(f"{handle.path}: no document has the id {name!r}; nothing was changed")
    return [place for place in places if place is not None]


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
