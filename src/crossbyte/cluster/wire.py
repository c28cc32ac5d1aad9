"""The one question that must be quick, and its answer, as bytes: Ray passes bytes on three times as fast.

A message is a line of JSON (what is small, and how the arrays are shaped), and the arrays' bytes after it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.cluster.messages import Found
from crossbyte.search.ranking import Query
from crossbyte.search.segment import CODINGS

__all__ = ["pack_found", "pack_query", "sendable", "unpack_found", "unpack_query"]

_LENGTH = 4  # bytes of the line's length


def sendable(query: Query) -> Query:
    """The same query with its offsets as numbers instead of a function of the model."""
    return query._replace(offset=partial(_looked_up, {coding: query.offset(coding) for coding in CODINGS}))


def _looked_up(offsets: Mapping[str, float], coding: str) -> float:
    return offsets[coding]


def pack_query(query: Query, *rest: Any) -> bytes:
    """Write a query, and plain values beside it."""
    numbers = np.array([query.max_distance, *map(query.offset, CODINGS)])  # not as text: infinity is no JSON
    return _pack([query.target, query.k, query.kind, query.probe, rest], query.points, numbers)


def unpack_query(data: bytes) -> tuple[Query, list[Any]]:
    """Read them back."""
    (target, k, kind, probe, rest), (points, numbers) = _unpack(data)
    max_distance, *offsets = numbers.tolist()
    offset = partial(_looked_up, dict(zip(CODINGS, offsets, strict=True)))
    return Query(points, target, k, max_distance, offset, kind, probe), rest


def pack_found(found: Found) -> bytes:
    """Write what a shard has found."""
    head = [found.counts, found.ids, found.groups, found.seconds]
    return _pack(head, found.distances, found.numbers, found.codings)


def unpack_found(data: bytes) -> Found:
    """Read it back."""
    (counts, ids, groups, seconds), (distances, numbers, codings) = _unpack(data)
    return Found(counts, distances, numbers, codings, ids, groups, seconds)


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
