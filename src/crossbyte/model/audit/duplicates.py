"""Rows that say the same: repeats of a row, and rows that nearly repeat another.

Exact repeats are always found, by digests. Near ones are found by cosine between prepared rows (centred,
so that what all rows have in common does not count). Up to 50,000 different rows are all compared; of more,
those that fall on the same side of random planes, four times over, where a few near ones can be missed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from hashlib import blake2b
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float64
from crossbyte.blocks import row_blocks
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers

__all__ = ["NEAR", "Duplicate", "find_duplicates"]

NEAR = 0.98
"""Of Flickr8k's 7,000 photographs one pair is above it, the same photograph twice; of 7,000 Fashion products
135 pairs, while 0.95 lets in products of one cut but other colours and makers."""

Link = tuple[int, int]

_MOST = 5  # near rows listed of one row
_ALL_AGAINST_ALL = 50_000
_BUCKET_ROWS = 8192
_BLOCK_ROWS = 2048  # compared with as many at a time, by every thread: 16 MB of cosines
_TRIES = 4
_BLOCK_VALUES = 2**22  # of rows written out at a time


class Duplicate(NamedTuple):
    """Two rows of different groups that say nearly the same.

    Attributes
    ----------
    first, second : int
        Row numbers, the smaller one first.
    image, text : float
        Cosine of the prepared images and of the prepared texts; 1 for exact repeats.
    kind : {"image", "text", "both"}
        Which halves are (nearly) the same.
    """

    first: int
    second: int
    image: float
    text: float
    kind: str


def find_duplicates(
    raw: tuple[Any, Any],
    prepared: tuple[Rows, Rows],
    groups: Numbers,
    near: float,
    rng: np.random.Generator,
    workers: Workers,
) -> list[Duplicate]:
    """List duplicates by row: a repeat is linked with the first row like it, a near one with its nearest.

    Rows that stay zero in preparation (texts without a known word) repeat nothing.
    """
    links: set[Link] = set()
    for side, rows in zip(raw, prepared, strict=True):
        first = _first_alike(side, np.flatnonzero(rows.squares() > 0.5))
        links |= {(one, row) for row, one in first.items() if one != row and groups[one] != groups[row]}
        links |= _near_links(rows, np.unique(list(first.values())), groups, near, rng, workers)
    return _described(sorted(links), prepared, near)


def _first_alike(raw: Any, rows: Numbers) -> dict[int, int]:
    """For each of the rows, the first one with exactly the same values."""
    seen: dict[bytes, int] = {}
    digest = _sparse_digest if sparse.issparse(raw) else _dense_digest
    return {row: seen.setdefault(digest(raw, row), row) for row in rows.tolist()}


def _dense_digest(raw: Any, row: int) -> bytes:
    return blake2b(np.ascontiguousarray(raw[row]).tobytes(), digest_size=16).digest()


def _sparse_digest(raw: Any, row: int) -> bytes:
    inside = slice(int(raw.indptr[row]), int(raw.indptr[row + 1]))
    order = np.argsort(raw.indices[inside], kind="stable")
    parts = (np.ascontiguousarray(values[inside][order]).tobytes() for values in (raw.indices, raw.data))
    return blake2b(b"".join(parts), digest_size=16).digest()


def _near_links(
    rows: Rows, chosen: Numbers, groups: Numbers, near: float, rng: np.random.Generator, workers: Workers
) -> set[Link]:
    """Links of the chosen rows with later ones whose cosine is at least ``near``."""
    links: set[Link] = set()
    size = max(1, min(_BLOCK_ROWS, _BLOCK_VALUES // rows.shape[1]))
    for bucket in _buckets(rows, chosen, rng):
        blocks = row_blocks(len(bucket), size)
        search = _search_in(rows, bucket, groups, near, blocks)
        for found in workers.map(search, range(len(blocks))):
            links.update(found)
    return links


def _search_in(
    rows: Rows, bucket: Numbers, groups: Numbers, near: float, blocks: list[slice]
) -> Callable[[int], list[Link]]:
    """The search of one block's rows among those of their bucket that come later."""

    def search(number: int) -> list[Link]:
        mine = bucket[blocks[number]]
        own = np.ascontiguousarray(rows[mine].dense().T)
        nearest: dict[int, list[tuple[float, int]]] = {}
        for block in blocks[number:]:
            others = bucket[block]
            cosines = rows[others].times(own).T
            cosines[(others <= mine[:, None]) | (groups[others] == groups[mine][:, None])] = -1.0
            for place in np.flatnonzero((cosines >= near).any(axis=1)).tolist():
                found = _above(cosines[place], others, near) + nearest.get(place, [])
                nearest[place] = sorted(found, reverse=True)[:_MOST]
        return [(int(mine[place]), other) for place, found in nearest.items() for _, other in found]

    return search


def _above(cosines: Any, others: Numbers, near: float) -> list[tuple[float, int]]:
    """The nearest of one row's neighbours, with their cosines."""
    order = np.argsort(-cosines, kind="stable")[:_MOST]
    return [(float(cosines[other]), int(others[other])) for other in order if cosines[other] >= near]


def _buckets(rows: Rows, chosen: Numbers, rng: np.random.Generator) -> Iterator[Numbers]:
    """Sets of rows that are compared with each other, in the order of their numbers."""
    if len(chosen) <= _ALL_AGAINST_ALL:
        yield chosen
        return
    n_planes = int(np.ceil(np.log2(len(chosen) / _BUCKET_ROWS)))
    for _ in range(_TRIES):
        planes = rng.standard_normal((rows.shape[1], n_planes))
        sides = np.concatenate([rows[chosen[block]].times(planes) > 0 for block in row_blocks(len(chosen))])
        codes = sides @ (1 << np.arange(n_planes))
        order = np.argsort(codes, kind="stable")
        ends = [0, *(np.flatnonzero(np.diff(codes[order])) + 1).tolist(), len(order)]
        yield from (chosen[order[start:stop]] for start, stop in pairwise(ends))


def _described(links: list[Link], prepared: tuple[Rows, Rows], near: float) -> list[Duplicate]:
    if not links:
        return []
    pairs = np.array(links, dtype=np.intp)
    image, text = (_cosines(rows, pairs) for rows in prepared)
    return [
        Duplicate(
            *link, float(x), float(y), "both" if min(x, y) >= near else "image" if x >= near else "text"
        )
        for link, x, y in zip(links, image, text, strict=True)
    ]


def _cosines(rows: Rows, pairs: Numbers) -> Float64:
    """Cosine of the two rows of every pair; prepared rows have unit length, or none."""
    blocks = row_blocks(len(pairs), max(1, _BLOCK_VALUES // rows.shape[1]))
    parts = [
        np.einsum("nd,nd->n", *(rows[pairs[block, i]].dense() for i in (0, 1)), dtype=np.float64)
        for block in blocks
    ]
    # Rounding must not make an exact repeat less than one, or more.
    return np.minimum(np.round(np.concatenate(parts), 6), 1.0)
