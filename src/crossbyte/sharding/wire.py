"""Define the messages to and from shards, and pack those of a search as bytes.

A packed message is a line of JSON (what is small, and how the arrays are shaped), and the arrays' bytes after
it: Ray passes bytes on three times as fast.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.errors import ClusterError
from crossbyte.index.docids import Id
from crossbyte.index.lexical import WordSettings
from crossbyte.index.scan import Query
from crossbyte.index.segment import CODINGS

_LENGTH = 4  # bytes of the line's length


class ShardLost(ClusterError):
    """A shard that was needed does not answer."""


class ShardUnopened(ShardLost):
    """A shard is there, but its file could not be opened.

    Attributes
    ----------
    cause : Exception
        Why.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"{type(self.cause).__name__}: {self.cause}"


class CellSummary(NamedTuple):
    """Summarizes the cells of a shard.

    Attributes
    ----------
    digest : str
        Of the centres.
    directions : dict of (query, target) to (int, int)
        How many cells are visited, and how many there are.
    """

    digest: str
    directions: dict[tuple[str, str], tuple[int, int]]


class CellSums(NamedTuple):
    """Counts of a shard that add up over shards to the description of the cells of a side.

    Attributes
    ----------
    n_documents, n_added, added_distance
        As in :class:`crossbyte.index.ivf.state.SideCells`.
    sizes : (cells,) int64
        Documents, not counting deleted ones, in each cell.
    """

    n_documents: int
    n_added: int
    added_distance: float
    sizes: NDArray[np.int64]


class ShardSummary(NamedTuple):
    """Summarizes a generation of a shard: what is known without asking it.

    Attributes
    ----------
    generation : int
        The one that the rest belongs to.
    next_number : int
        Above all document numbers of the shard.
    codings : dict of str to int
        How many documents, not counting deleted ones, have each coding.
    fields : dict of str to set of str
        Payload fields and their types.
    cells : CellSummary or None
    format : {1, 2, 3}
        Of the file.
    words : WordSettings or None
        What is known of the words of documents; None where they are not kept.
    has_words : bool
        Whether any document has some.
    """

    generation: int
    next_number: int
    codings: dict[str, int]
    fields: dict[str, set[str]]
    cells: CellSummary | None = None
    format: int = 1
    words: WordSettings | None = None
    has_words: bool = False

    @property
    def n_documents(self) -> int:
        """Number of documents that are not deleted."""
        return sum(self.codings.values())


class ShardRanking(NamedTuple):
    """The nearest documents of a shard for some queries, one query after another.

    Attributes
    ----------
    counts : list of int
        How many belong to each query.
    distances : (n,) float32
    numbers : (n,) int64
    codings : (n,) uint8
    ids : list of str or int
    groups : list of str, int or None, or None
        None unless they were asked for.
    seconds : float
        Time that the shard itself took; the rest is transport.
    """

    counts: list[int]
    distances: Float32
    numbers: NDArray[np.int64]
    codings: NDArray[np.uint8]
    ids: list[Id]
    groups: list[Id | None] | None
    seconds: float = 0.0


def make_sendable(query: Query) -> Query:
    """Give the same query with its offsets as numbers instead of a function of the model."""
    return query._replace(
        offset=partial(_look_up_offset, {coding: query.offset(coding) for coding in CODINGS})
    )


def _look_up_offset(offsets: Mapping[str, float], coding: str) -> float:
    return offsets[coding]


def pack_query(query: Query, *rest: Any) -> bytes:
    """Write a query and other plain values as bytes."""
    numbers = np.array([query.max_distance, *map(query.offset, CODINGS)])  # not as text: infinity is no JSON
    return _pack([query.target, query.k, query.kind, query.n_probe, rest], query.points, numbers)


def unpack_query(data: bytes) -> tuple[Query, list[Any]]:
    """Read what :func:`pack_query` wrote."""
    (target, k, kind, n_probe, rest), (points, numbers) = _unpack(data)
    max_distance, *offsets = numbers.tolist()
    offset = partial(_look_up_offset, dict(zip(CODINGS, offsets, strict=True)))
    return Query(points, target, k, max_distance, offset, kind, n_probe), rest


def pack_found(found: ShardRanking) -> bytes:
    """Write what a shard has found as bytes."""
    head = [found.counts, found.ids, found.groups, found.seconds]
    return _pack(head, found.distances, found.numbers, found.codings)


def unpack_found(data: bytes) -> ShardRanking:
    """Read what :func:`pack_found` wrote."""
    (counts, ids, groups, seconds), (distances, numbers, codings) = _unpack(data)
    return ShardRanking(counts, distances, numbers, codings, ids, groups, seconds)


def _pack(head: Any, *arrays: NDArray[Any]) -> bytes:
    shapes = [[array.dtype.str, array.shape] for array in arrays]
    line = json.dumps([head, shapes], separators=(",", ":")).encode()
    return b"".join([len(line).to_bytes(_LENGTH, "little"), line, *(array.tobytes() for array in arrays)])


def _unpack(data: bytes) -> tuple[Any, list[NDArray[Any]]]:
    start = _LENGTH + int.from_bytes(data[:_LENGTH], "little")
    head, shapes = json.loads(data[_LENGTH:start])
    arrays = []
    for dtype, shape in shapes:
        count = math.prod(shape)
        arrays.append(np.frombuffer(data, dtype, count, start).reshape(shape))
        start += arrays[-1].nbytes
    return head, arrays
