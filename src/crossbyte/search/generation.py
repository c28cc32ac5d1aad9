"""One generation of one file, searched in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossbyte.search.choosing import rank_groups
from crossbyte.search.details import Details
from crossbyte.search.ids import Id
from crossbyte.search.ranking import Query, Ranking, rank, resolve_ids
from crossbyte.search.searched import Example, Standing
from crossbyte.search.segment import CODINGS
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Place

__all__ = ["Generation"]


class Generation:
    """What a search asks of a snapshot: see :class:`crossbyte.search.searched.Searched`.

    Parameters
    ----------
    details : Details
    n_threads : int
    is_part : bool
        Whether this is one of several shards: then a field that no document here has is no error.
    """

    partial = False

    def __init__(self, details: Details, n_threads: int, *, is_part: bool = False) -> None:
        self.details, self.snapshot, self.n_threads = details, details.snapshot, n_threads
        self.is_part = is_part

    def __len__(self) -> int:
        return len(self.snapshot)

    @property
    def codings(self) -> dict[str, int]:
        """How many documents have each coding; deleted ones do not count."""
        return {coding: shelf.n_live for coding, shelf in self.snapshot.shelves.items() if shelf.n_live}

    def examples(self, ids: Sequence[Id]) -> list[Example | None]:
        """The documents of these ids; None for ids that there are not."""
        places = self.snapshot.find(ids)
        examples: list[Example | None] = [None] * len(ids)
        for coding in {place.coding for place in places if place is not None}:
            mine = [(i, place.row) for i, place in enumerate(places) if place and place.coding == coding]
            found = self._examples(self.snapshot.shelves[coding], np.array([row for _, row in mine]))
            for (i, _), example in zip(mine, found, strict=True):
                examples[i] = example
        return examples

    def rank(
        self, query: Query, where: str | None, *, distinct: bool, grouped: bool = False
    ) -> list[Ranking]:
        """Find the nearest documents that a filter allows; with ``distinct``, of every group the nearest."""
        allowed = self.details.allowed(where, is_part=self.is_part)

        def nearest(some: Query) -> list[Ranking]:
            return rank(self.snapshot, some, allowed, self.n_threads)

        return rank_groups(query, nearest, self.groups) if distinct else nearest(query)

    def standing(self, query: Query, number: int) -> Standing:
        """Where a document at ``query.max_distance`` stands for one query."""
        whole = query._replace(k=max(len(self), 1))
        ranking = rank(self.snapshot, whole, self.details.allowed(None), self.n_threads)[0]
        return Standing.of(self, ranking, number, query.max_distance)

    def groups(self, ranking: Ranking) -> list[Id | None]:
        """The groups of ranked documents; None for those without one."""
        labels: list[Id | None] = [None] * len(ranking.rows)
        for number, coding in enumerate(CODINGS):
            places = np.flatnonzero(ranking.codings == number)
            if len(places):
                known = self.details.group_labels(coding, ranking.rows[places])
                for place, label in zip(places.tolist(), known, strict=True):
                    labels[place] = label
        return labels

    def ids(self, ranking: Ranking) -> list[Id]:
        """The ids of ranked documents."""
        return resolve_ids(self.snapshot, ranking)

    def payloads(self, ranking: Ranking) -> list[dict[str, Any] | None]:
        """The payloads of ranked documents; None where there is none."""
        pairs = zip(ranking.codings.tolist(), ranking.rows.tolist(), strict=True)
        return self.details.payloads([Place(CODINGS[coding], row) for coding, row in pairs])

    def _examples(self, shelf: Shelf, rows: Any) -> list[Example]:
        n_codebooks = len(self.snapshot.quantizers["image"].codewords)
        codes = {side: shelf.code_rows(side, rows, n_codebooks) for side in shelf.codes}
        return [
            Example(number, shelf.coding, {side: each[i] for side, each in codes.items()})
            for i, number in enumerate(shelf.numbers[rows].tolist())
        ]
