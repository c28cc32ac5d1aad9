"""Make the files of a sharded index: from one index file, or empty for a model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from crossbyte.index.compaction import compact_segments
from crossbyte.index.docids import DocIds
from crossbyte.index.index import Index
from crossbyte.index.ivf.state import SideCells
from crossbyte.index.lexical import KIND as WORDS_KIND
from crossbyte.index.lexical import WordSettings, searched_text
from crossbyte.index.snapshot import Snapshot
from crossbyte.index.storage.database import has_word_search
from crossbyte.index.storage.records import NewRecord
from crossbyte.index.storage.store import Store
from crossbyte.model.estimator import CMCQ
from crossbyte.sharding.manifest import Manifest, create_folder, find_model_record
from crossbyte.validation import check_integer

Path = str | os.PathLike[str]

MAX_SHARDS = 10_000
_PAYLOADS_AT_ONCE = 4096
_NONE: NDArray[np.int64] = np.empty(0, np.int64)


def split_index(path: Path, out: Path, n_shards: int) -> None:
    """Copy an index file into shards of equal size: a folder that :class:`crossbyte.ShardedIndex` opens.

    Every document keeps its number, id, codes, coding, payload and group; what is deleted stays behind. All
    shards have the format of the index, which itself is only read.

    Parameters
    ----------
    path : path-like
        An index file.
    out : path-like
        A folder such as ``photos.cbs``; nothing may be there yet.
    n_shards : int

    Raises
    ------
    FileNotFoundError, ForeignIndexFile, DamagedIndexFile, NewerIndexFile
    IndexExists
        Something is at ``out``; it is left as it is.
    InvalidInput
        ``n_shards`` is no whole number from 1.
    StorageFull, ReadOnlyIndex
        Nothing is left at ``out``.
    """
    check_integer(n_shards, "n_shards", 1, MAX_SHARDS)
    with create_folder(out) as folder, Index.open(path) as index:
        snapshot = index.snapshot()
        record, digest = find_model_record(snapshot.store)
        model = NewRecord("model", {}, {"model": snapshot.store.part(record, "model")})
        manifest = Manifest.new(folder, digest, n_shards)
        ranges = _split_numbers(snapshot, n_shards)
        for shard, (file, within) in enumerate(zip(manifest.paths, ranges, strict=True)):
            kept = _kept_words(snapshot)
            words = [] if kept is None else [NewRecord(WORDS_KIND, kept.to_dict())]
            before = [model, *words, *_make_cell_records(snapshot, shard, n_shards)]
            _write_shard(file, snapshot, before, within)
        manifest.write(folder)


def create_shards(path: Path, model: CMCQ, n_shards: int, format: int | None = None) -> None:
    """Make the files of an empty sharded index, all of one format.

    Raises
    ------
    IndexExists, InvalidInput, NotFitted, ReadOnlyIndex, StorageFull
    """
    check_integer(n_shards, "n_shards", 1, MAX_SHARDS)
    with create_folder(path) as folder:
        manifest = Manifest.new(folder, "", n_shards)
        for shard in manifest.paths:
            with Index.create(shard, model, format=format) as index:
                digest = find_model_record(index.snapshot().store)[1]
        manifest._replace(model=digest).write(folder)


def _split_numbers(snapshot: Snapshot, n_shards: int) -> list[range]:
    """Cut the numbers of live documents into ranges with equally many; ranges without gaps take no memory."""
    partitions = snapshot.partitions.values()
    numbers = np.sort(
        np.concatenate([_NONE, *(partition.numbers[partition.live_rows()] for partition in partitions)])
    )
    firsts = [int(part[0]) if len(part) else None for part in np.array_split(numbers, n_shards)]
    end = snapshot.catalogue.next_number
    bounds = [0, *(end if first is None else first for first in firsts[1:]), end]
    return [range(start, stop) for start, stop in pairwise(bounds)]


def _make_cell_records(snapshot: Snapshot, shard: int, n_shards: int) -> list[NewRecord]:
    """Make the record of all cells, with a shard's part of the counts."""
    if snapshot.cells is None:
        return []
    sides = {name: _split_side(side, shard, n_shards) for name, side in snapshot.cells.sides.items()}
    return [replace(snapshot.cells.without_assignments(), sides=sides).to_record()]


def _split_side(side: SideCells, shard: int, n_shards: int) -> SideCells:
    """Give a shard its part of the counts of a side: those of all shards add up to the whole."""
    documents, added = (
        count * (shard + 1) // n_shards - count * shard // n_shards
        for count in (side.n_documents, side.n_added)
    )
    distance = side.added_distance * added / max(1, side.n_added)
    return side._replace(n_documents=documents, n_added=added, added_distance=distance)


def _write_shard(path: str, snapshot: Snapshot, before: list[NewRecord], within: range) -> None:
    n_codebooks = len(snapshot.quantizers["image"].codewords)
    segments = list(compact_segments(snapshot, n_codebooks, within))
    records = [*before, *(segment.to_record() for segment in segments)]
    numbers = [segment.numbers for segment in segments]
    payloads, words = _read_payloads(snapshot, numbers), _read_words(snapshot, numbers)
    following, format = snapshot.catalogue.next_number, snapshot.store.format
    Store.create(path, records, payloads, following, format=format, words=words).close()


def _read_words(snapshot: Snapshot, parts: Sequence[DocIds]) -> Iterator[tuple[int, int, str]]:
    """Yield what is searched by words of documents; nothing of an index that keeps none."""
    kept = _kept_words(snapshot)
    if kept is not None:
        for number, version, body in _read_payloads(snapshot, parts):
            text = searched_text(json.loads(body), kept.fields)
            if text:
                yield number, version, text


def _kept_words(snapshot: Snapshot) -> WordSettings | None:
    """Give what shards keep of words: nothing where this SQLite cannot write them."""
    return snapshot.words if has_word_search() else None


def _read_payloads(snapshot: Snapshot, parts: Sequence[DocIds]) -> Iterator[tuple[int, int, bytes]]:
    """Yield the payload rows of documents, as they are in the file, some at a time."""
    for numbers in parts:
        for start in range(0, numbers.count, _PAYLOADS_AT_ONCE):
            some = numbers[np.arange(start, min(start + _PAYLOADS_AT_ONCE, numbers.count))]
            keys = [key for key in snapshot.payload_keys(snapshot.places(some)) if key is not None]
            rows = snapshot.store.payloads(keys, snapshot.generation)
            for (number, _), body in zip(keys, rows, strict=True):
                yield number, 0, body
