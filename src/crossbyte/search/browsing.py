"""Documents as users know them, by their places, and page by page in the order of their numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.bits import Words, unpack_bits
from crossbyte.search.hits import Document
from crossbyte.search.numbers import Numbers
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Place, Snapshot
from crossbyte.validation import check_integer

__all__ = ["browse", "documents_at"]

_WORDS = 1024  # of 64 documents, unpacked at a time


def browse(
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
    for coding, shelf in snapshot.shelves.items():
        rows = _next_rows(shelf, allowed[coding], first, limit)
        places = [Place(coding, row) for row in rows.tolist()]
        found += zip(shelf.numbers[rows].tolist(), places, strict=True)
    found.sort(key=lambda pair: pair[0])
    return documents_at(snapshot, [place for _, place in found[:limit]], n_codebooks)


def documents_at(snapshot: Snapshot, places: Sequence[Place], n_codebooks: int) -> list[Document]:
    """Give documents in the order of their places; payloads are read at once."""
    payloads = snapshot.payloads(places)
    found: dict[int, Document] = {}
    for coding in {place.coding for place in places}:
        mine = [i for i, place in enumerate(places) if place.coding == coding]
        shelf, rows = snapshot.shelves[coding], np.array([places[i].row for i in mine])
        codes = {side: shelf.code_rows(side, rows, n_codebooks) for side in shelf.codes}
        labels = zip(shelf.ids.take(rows), shelf.numbers[rows].tolist(), strict=True)
        groups = snapshot.group_labels(coding, rows)
        for at, (i, (id, number)) in enumerate(zip(mine, labels, strict=True)):
            own = (codes[side][at] if side in codes else None for side in ("image", "text"))
            found[i] = Document(id, number, coding, payloads[i], groups[at], *own)
    return [found[i] for i in range(len(places))]


def _next_rows(shelf: Shelf, allowed: Words, first: int, limit: int) -> NDArray[np.intp]:
    """Find the next allowed rows; no more bits are unpacked than that takes."""
    start = _row_of(shelf.numbers, first)
    found, n_found = [np.zeros(0, np.intp)], 0
    for word in range(start // 64, len(allowed), _WORDS):
        bits = unpack_bits(allowed[word : word + _WORDS], min(64 * _WORDS, len(shelf) - 64 * word))
        rows = np.flatnonzero(bits) + 64 * word
        found.append(rows[rows >= start])
        n_found += len(found[-1])
        if n_found >= limit:
            break
    return np.concatenate(found)[:limit]


def _row_of(numbers: Numbers, first: int) -> int:
    """Find the row of the smallest number that is not below ``first``."""
    wanted = min(max(first - numbers.first, 0), 2**62)
    if numbers.steps is None:
        return min(wanted, numbers.count)
    return int(np.searchsorted(numbers.steps.astype(np.int64), wanted))
