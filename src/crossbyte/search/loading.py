"""From the file to a snapshot."""

from __future__ import annotations

import numpy as np

from crossbyte.errors import WrongModel
from crossbyte.model.cmcq import CMCQ
from crossbyte.search.bits import unpack_bits
from crossbyte.search.segment import Segment
from crossbyte.search.shelf import Quantizers
from crossbyte.search.snapshot import Snapshot
from crossbyte.search.storage.checksum import part_checksum
from crossbyte.search.storage.failures import damaged
from crossbyte.search.storage.store import NewRecord, Record, Store

__all__ = ["check_snapshot", "load_model", "load_next", "load_snapshot", "model_record", "quantizers_of"]


def model_record(model: CMCQ) -> NewRecord:
    """The record that holds a model."""
    return NewRecord("model", {}, {"model": model.to_bytes()})


def load_model(store: Store, given: CMCQ | None) -> CMCQ:
    """Read the model of an index; refuse if another one was given."""
    with store.reading():
        records = [record for record in store.records() if record.kind == "model"]
        if len(records) != 1:
            damaged(store.path, f"it holds {len(records)} models")
        if given is not None:
            if part_checksum([memoryview(given.to_bytes())]) != records[0].parts["model"].checksum:
                raise WrongModel(f"{store.path}: the index was made with another model than the one given")
            return given
        return CMCQ.from_bytes(store.part(records[0], "model"), store.path)


def quantizers_of(model: CMCQ) -> Quantizers:
    """The quantizers of a fitted model by side."""
    learned = model.fitted_
    return {"image": learned.image_quantizer, "text": learned.text_quantizer}


def load_snapshot(store: Store, quantizers: Quantizers, n_jobs: int | None) -> Snapshot:
    """Read the newest generation."""
    with store.reading() as catalogue:
        empty = Snapshot(catalogue, 0, quantizers, store, n_jobs=n_jobs)
        return _after(empty, store.records())


def load_next(snapshot: Snapshot) -> Snapshot:
    """Read what was committed since a snapshot; the same object if nothing was."""
    store = snapshot.store
    with store.reading() as catalogue:
        if catalogue.generation == snapshot.generation:
            return snapshot
        if catalogue.oldest > snapshot.generation:
            return load_snapshot(store, snapshot.quantizers, snapshot.n_jobs)
        return _after(snapshot, store.records(after=snapshot.last_record))


def _after(snapshot: Snapshot, records: list[Record]) -> Snapshot:
    n_codebooks, store = len(snapshot.quantizers["image"].codewords), snapshot.store
    with store.reading() as catalogue:
        segments = [Segment.load(store, r, n_codebooks) for r in records if r.kind == "documents"]
        return snapshot.next(catalogue, records, segments).settle()


def check_snapshot(snapshot: Snapshot) -> None:
    """Read all columns and groups, and count the payload rows that there should be."""
    path, expected = snapshot.store.path, 0
    for coding, shelf in snapshot.shelves.items():
        for field in snapshot.fields:
            snapshot.column(coding, field)
        snapshot.groups(coding)
        expected += int(unpack_bits(shelf.with_payload, len(shelf)).sum())
    if _has_twins(snapshot):
        damaged(path, "an id occurs twice")
    expected += sum(len(update.older) + update.present for update in snapshot.updates.values())
    if expected != snapshot.catalogue.n_payloads:
        damaged(path, f"it has {snapshot.catalogue.n_payloads} payloads, but its documents {expected}")


def _has_twins(snapshot: Snapshot) -> bool:
    live = [(shelf.ids, shelf.live_rows()) for shelf in snapshot.shelves.values()]
    hashes = np.sort(np.concatenate([np.empty(0, np.uint64), *(ids.hashes()[rows] for ids, rows in live)]))
    if not (hashes[1:] == hashes[:-1]).any():  # sorting hashes is far cheaper than making all ids
        return False
    known = [id for ids, rows in live for id in ids.take(rows)]
    return len(set(known)) < len(known)
