"""Merge the nearest documents of every shard into those of all, by (distance, number)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from crossbyte.index.docids import Id
from crossbyte.index.scan import PrecedingDocument, Ranking, Standing
from crossbyte.sharding.wire import ShardRanking


class MergedHits:
    """Holds all that shards have found for a search; ``rows`` of the merged rankings are places in it."""

    def __init__(self) -> None:
        self.ids: list[Id] = []
        self.groups: list[Id | None] = []
        self.shards: NDArray[np.intp] = np.empty(0, np.intp)

    def merge(self, found: Mapping[int, ShardRanking], k: int) -> list[Ranking]:
        """Take in what shards have found, and give the first k of every query."""
        parts = list(found.values())
        first = len(self.ids)
        for part in parts:
            self.ids += part.ids
            self.groups += part.groups or [None] * len(part.ids)
        owners = [np.full(len(part.ids), shard) for shard, part in found.items()]
        self.shards = np.concatenate([self.shards, *owners])
        whole = Ranking(
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.codings for part in parts]),
            np.arange(first, len(self.ids)),
        )
        if len(parts[0].counts) == 1:
            return [whole.nearest(k)]
        return _order_queries(whole, [part.counts for part in parts], k)


def _order_queries(whole: Ranking, counts: Sequence[Sequence[int]], k: int) -> list[Ranking]:
    """Order the hits of many queries at once, and give the first k of each."""
    n_queries = len(counts[0])
    queries = np.concatenate([np.repeat(np.arange(n_queries), own) for own in counts])
    order = np.lexsort((whole.numbers, whole.distances, queries))
    sizes = np.sum(counts, axis=0)
    starts = np.cumsum(sizes) - sizes
    ordered = whole.take(order)
    return [
        ordered.take(slice(start, start + min(k, size)))
        for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)
    ]


def merge_standings(standings: Sequence[Standing]) -> Standing:
    """Find the position of a document among all, from its position in every shard."""
    before = [each.before for each in standings if each.before is not None]
    distances = [each.distance for each in standings if each.distance is not None]
    last: PrecedingDocument | None = max(before, key=lambda one: (one.distance, one.number), default=None)
    return Standing(sum(each.n_before for each in standings), last, distances[0] if distances else None)
