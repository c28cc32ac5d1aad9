"""The values of payload fields over all shards: what each shard counts, and how counts become facets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.facets import Facet
from crossbyte.search.ids import PackedIds
from crossbyte.search.snapshot import Snapshot

__all__ = ["Tally", "ValueCount", "merge_tallies", "tally", "value_count", "value_hashes"]


class ValueCount(NamedTuple):
    """How many different values a field of a shard has, how many documents have any, and whether several."""

    n_values: int
    n_documents: int
    is_list: bool


class Tally(NamedTuple):
    """All values of a field in some documents of a shard, and how many documents have each, and any."""

    values: list[Any]
    counts: list[int]
    n_documents: int


def value_count(snapshot: Snapshot, field: str, kind: str) -> ValueCount:
    """Count the different values of a kind."""
    values = snapshot.values(field, kind)
    return ValueCount(values.n_values, values.n_documents, values.is_list)


def value_hashes(snapshot: Snapshot, field: str, kind: str) -> NDArray[np.uint64]:
    """One number for each different text: far less to send than the texts."""
    return PackedIds.of(tally(snapshot, field, kind, None).values).hashes()


def tally(snapshot: Snapshot, field: str, kind: str, where: str | None) -> Tally:
    """Count the documents of each value."""
    values = snapshot.values(field, kind)
    counts, n_documents = values.counts(snapshot.masks(where, is_part=True))
    there = np.flatnonzero(counts)
    return Tally([values.value(code) for code in there.tolist()], counts[there].tolist(), n_documents)


def merge_tallies(field: str, kind: str, tallies: Sequence[Tally], limit: int) -> Facet:
    """Add up what shards have counted: the facet that one index would give."""
    counts: dict[Any, int] = {}
    for each in tallies:
        for value, count in zip(each.values, each.counts, strict=True):
            counts[value] = counts.get(value, 0) + count
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    n_documents = sum(each.n_documents for each in tallies)
    n_others = sum(count for _, count in ordered[limit:])
    low, high = (min(counts), max(counts)) if counts and kind == "number" else (None, None)
    ends = (None if end is None else float(end) for end in (low, high))
    return Facet(field, kind, n_documents, ordered[:limit], n_others, *ends)
