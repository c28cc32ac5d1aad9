"""Read documents as users see them: by their places, or page by page in the order of their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossbyte.index.bitset import Bitset, unpack_bits
from crossbyte.index.docids import DocIds
from crossbyte.index.hits import Document
from crossbyte.index.partition import Partition
from crossbyte.index.snapshot import Place, Snapshot
from crossbyte.validation import check_integer

_CODES = ("image", "text", "document")  # as a Document has them
_WORDS = 1024  # of 64 documents, unpacked at a time


def scroll_documents(
    snapshot: Snapshot,
    where: str | None,
    after: int | None,
    limit: int,
    n_codebooks: int,
    *,
    is_part: bool = False,
) -> list[Document]:
    """Give one page of documents: see :meth:`crossbyte.Index.documents`."""
    check_integer(limit, "limit", 1)
    first = 0 if after is None else check_integer(after, "after", -1) + 1
    allowed = snapshot.allowed(where, is_part=is_part)
    found: list[tuple[int, Place]] = []
    for coding, partition in snapshot.partitions.items():
        rows = _find_next_rows(partition, allowed[coding], first, limit)
        places = [Place(coding, row) for row in rows.tolist()]
        found += zip(partition.numbers[rows].tolist(), places, strict=True)
    found.sort(key=lambda pair: pair[0])
    return read_documents(snapshot, [place for _, place in found[:limit]], n_codebooks)


def read_documents(snapshot: Snapshot, places: Sequence[Place], n_codebooks: int) -> list[Document]:
    """Give documents in the order of their places; payloads are read at once."""
    payloads = snapshot.payloads(places)
    found: dict[int, Document] = {}
    for coding in {place.coding for place in places}:
        mine = [i for i, place in enumerate(places) if place.coding == coding]
        partition, rows = snapshot.partitions[coding], np.array([places[i].row for i in mine])
        codes = {side: partition.code_rows(side, rows, n_codebooks) for side in partition.codes}
        labels = zip(partition.ids.take(rows), partition.numbers[rows].tolist(), strict=True)
        groups = snapshot.group_labels(coding, rows)
        for at, (i, (id, number)) in enumerate(zip(mine, labels, strict=True)):
            own = (codes[side][at] if side in codes else None for side in _CODES)
            found[i] = Document(id, number, coding, payloads[i], groups[at], *own)
    return [found[i] for i in range(len(places))]


def _find_next_rows(partition: Partition, allowed: Bitset, first: int, limit: int) -> NDArray[np.intp]:
    """Find the next allowed rows; no more bits are unpacked than that takes."""
    start = _find_row(partition.numbers, first)
    found, n_found = [np.zeros(0, np.intp)], 0
    for word in range(start // 64, len(allowed), _WORDS):
        bits = unpack_bits(allowed[word : word + _WORDS], min(64 * _WORDS, len(partition) - 64 * word))
        rows = np.flatnonzero(bits) + 64 * word
        found.append(rows[rows >= start])
        n_found += len(found[-1])
        if n_found >= limit:
            break
    return np.concatenate(found)[:limit]


def _find_row(numbers: DocIds, first: int) -> int:
    """Find the row of the smallest number that is not below ``first``."""
    wanted = max(first - numbers.first, 0)
    if numbers.steps is None or not numbers.count or wanted > int(numbers.steps[-1]):
        return min(wanted, numbers.count)
    return int(np.searchsorted(numbers.steps, numbers.steps.dtype.type(wanted)))
