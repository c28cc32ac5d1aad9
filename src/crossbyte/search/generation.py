"""One generation of one file, searched in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crossbyte.errors import InvalidInput
from crossbyte.search.browsing import browse, documents_at
from crossbyte.search.cells.cells import Cells, cells_of
from crossbyte.search.cells.state import CellState
from crossbyte.search.facets import Facet, facets
from crossbyte.search.hits import Document, Hits
from crossbyte.search.ids import Id, check_id
from crossbyte.search.measuring import measure
from crossbyte.search.ranking import Query, Ranking, rank, rank_groups, resolve_ids
from crossbyte.search.searched import Example, Standing
from crossbyte.search.segment import CODINGS, SIDES
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Place, Snapshot

__all__ = ["Generation"]


class Generation:
    """Answers from a snapshot: see :class:`crossbyte.search.searched.Searched`.

    Parameters
    ----------
    snapshot : Snapshot
    n_threads : int
    is_part : bool
        Whether this is one of several shards: then a field that no document here has is no error.
    """

    partial = False

    def __init__(self, snapshot: Snapshot, n_threads: int, *, is_part: bool = False) -> None:
        self.snapshot, self.n_threads, self.is_part = snapshot, n_threads, is_part

    def __len__(self) -> int:
        return len(self.snapshot)

    @property
    def codings(self) -> dict[str, int]:
        """How many documents have each coding; deleted ones do not count."""
        return {coding: shelf.n_live for coding, shelf in self.snapshot.shelves.items() if shelf.n_live}

    @property
    def cells(self) -> CellState | None:
        """The cells of the snapshot."""
        return self.snapshot.cells

    def describe_cells(self) -> Cells | None:
        """Say what is known of the cells; None without any."""
        return cells_of(self.snapshot.cells, self.snapshot.cell_sizes())

    def stats(self) -> dict[str, Any]:
        """Count documents and bytes."""
        return measure(self.snapshot)

    # Searching

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
        allowed = self.snapshot.allowed(where, is_part=self.is_part)

        def nearest(some: Query) -> list[Ranking]:
            return rank(self.snapshot, some, allowed, self.n_threads)

        return rank_groups(query, nearest, self.groups) if distinct else nearest(query)

    def standing(self, query: Query, number: int) -> Standing:
        """Where a document at ``query.max_distance`` stands for one query."""
        whole = query._replace(k=max(len(self), 1))
        ranking = rank(self.snapshot, whole, self.snapshot.allowed(None), self.n_threads)[0]
        return Standing.of(self, ranking, number, query.max_distance)

    def groups(self, ranking: Ranking) -> list[Id | None]:
        """The groups of ranked documents; None for those without one."""
        labels: list[Id | None] = [None] * len(ranking.rows)
        for number, coding in enumerate(CODINGS):
            places = np.flatnonzero(ranking.codings == number)
            if len(places):
                known = self.snapshot.group_labels(coding, ranking.rows[places])
                for place, label in zip(places.tolist(), known, strict=True):
                    labels[place] = label
        return labels

    def ids(self, ranking: Ranking) -> list[Id]:
        """The ids of ranked documents."""
        return resolve_ids(self.snapshot, ranking)

    def payloads(self, ranking: Ranking) -> list[dict[str, Any] | None]:
        """The payloads of ranked documents; None where there is none."""
        pairs = zip(ranking.codings.tolist(), ranking.rows.tolist(), strict=True)
        return self.snapshot.payloads([Place(CODINGS[coding], row) for coding, row in pairs])

    # Documents

    def contains(self, id: object) -> bool:
        """Whether there is a document of this id; of what is no id, there is none."""
        try:
            return self.snapshot.find([check_id(id)])[0] is not None
        except InvalidInput:
            return False

    def get(self, id: Id) -> Document | None:
        """Give a document, or None if there is none of this id."""
        place = self.snapshot.find([check_id(id)])[0]
        return None if place is None else documents_at(self.snapshot, [place], self._n_codebooks)[0]

    def all_ids(self) -> list[Id]:
        """All ids in the order of the documents' numbers."""
        found = [
            pair
            for shelf in self.snapshot.shelves.values()
            for pair in zip(
                shelf.numbers[shelf.live_rows()].tolist(), shelf.ids.take(shelf.live_rows()), strict=True
            )
        ]
        return [id for _, id in sorted(found, key=lambda pair: pair[0])]

    def documents(self, where: str | None, after: int | None, limit: int) -> list[Document]:
        """Give one page of documents in the order of their numbers."""
        return browse(self.snapshot, where, after, limit, self._n_codebooks, is_part=self.is_part)

    def facets(self, where: str | None, fields: Sequence[str] | None, limit: int) -> list[Facet]:
        """Count the values of payload fields."""
        return facets(self.snapshot, where, fields, limit)

    def payloads_of(self, hits: Hits) -> list[dict[str, Any] | None]:
        """The payloads of what a search of this snapshot found."""
        return self.snapshot.payloads(self.snapshot.places(hits.numbers))

    def sides_of(self, hits: Hits) -> list[tuple[str, ...]]:
        """The sides of the documents that a search of this snapshot found."""
        return [SIDES[place.coding] for place in self.snapshot.places(hits.numbers)]

    @property
    def _n_codebooks(self) -> int:
        return len(self.snapshot.quantizers["image"].codewords)

    def _examples(self, shelf: Shelf, rows: Any) -> list[Example]:
        codes = {side: shelf.code_rows(side, rows, self._n_codebooks) for side in shelf.codes}
        return [
            Example(number, shelf.coding, {side: each[i] for side, each in codes.items()})
            for i, number in enumerate(shelf.numbers[rows].tolist())
        ]
