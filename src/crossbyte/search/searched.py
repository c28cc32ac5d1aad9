"""What a search asks of the documents: one generation of a file answers it, or many shards together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from crossbyte.arrays import Codes
from crossbyte.search.cells.cells import Cells
from crossbyte.search.facets import Facet
from crossbyte.search.hits import Document, Hits
from crossbyte.search.ids import Id
from crossbyte.search.ranking import Query, Ranking

__all__ = ["Before", "Example", "Searched", "Standing"]


class Example(NamedTuple):
    """A document that is asked with, or explained.

    Attributes
    ----------
    number : int
    coding : str
    codes : mapping of side to (M,) uint8
        In the order of all sides.
    """

    number: int
    coding: str
    codes: Mapping[str, Codes]


class Before(NamedTuple):
    """The last document before another."""

    distance: float
    number: int
    id: Id


class Standing(NamedTuple):
    """Where a document stands in a ranking.

    Attributes
    ----------
    n_before : int
    before : Before or None
        The last of them.
    distance : float or None
        Its own; None of a shard that does not have it.
    """

    n_before: int
    before: Before | None
    distance: float | None

    @classmethod
    def of(cls, backend: Searched, ranking: Ranking, number: int, limit: float) -> Standing:
        """Of the document of a number, in a ranking of everything up to its distance, the limit."""
        found = np.flatnonzero(ranking.numbers == number)
        if len(found):
            before, distance = ranking.take(slice(int(found[0]))), float(ranking.distances[found[0]])
        else:
            near = ranking.distances < np.float32(limit)
            before, distance = ranking.take(near | (ranking.numbers < number)), None
        if not len(before.rows):
            return cls(0, None, distance)
        last = before.take(slice(-1, None))
        nearest = Before(float(last.distances[0]), int(last.numbers[0]), backend.ids(last)[0])
        return cls(len(before.rows), nearest, distance)


class Searched(Protocol):
    """Documents of one moment, wherever they are: what an open index passes its questions on to.

    A ranking that it gives is given back to it to learn more: ``rows`` of a ranking mean something only here.

    Attributes
    ----------
    n_threads : int
        Threads of what is not ranking.
    partial : bool
        Whether some documents could not be asked.
    """

    n_threads: int
    partial: bool

    # What is known

    def __len__(self) -> int:
        """Documents that are not deleted."""

    @property
    def codings(self) -> Mapping[str, int]:
        """How many of them have each coding; none of zero."""

    @property
    def cells(self) -> object | None:
        """What a search needs to know of the cells; None without any."""

    def describe_cells(self) -> Cells | None:
        """Say what is known of the cells; None without any."""

    def stats(self) -> dict[str, Any]:
        """Count documents and bytes."""

    # Searching

    def examples(self, ids: Sequence[Id]) -> list[Example | None]:
        """The documents of these ids; None for ids that there are not."""

    def rank(self, query: Query, where: str | None, *, distinct: bool, grouped: bool) -> list[Ranking]:
        """Find the nearest documents that a filter allows; with ``distinct``, of every group the nearest.

        Whoever wants to know the :meth:`groups` of what is found says so (``grouped``).
        """

    def standing(self, query: Query, number: int) -> Standing:
        """Where a document at ``query.max_distance`` stands for one query."""

    def groups(self, ranking: Ranking) -> list[Id | None]:
        """The groups of ranked documents."""

    def ids(self, ranking: Ranking) -> list[Id]:
        """The ids of ranked documents."""

    def payloads(self, ranking: Ranking) -> list[dict[str, Any] | None]:
        """The payloads of ranked documents."""

    # Documents

    def contains(self, id: object) -> bool:
        """Whether there is a document of this id; of what is no id, there is none."""

    def get(self, id: Id) -> Document | None:
        """Give a document, or None."""

    def all_ids(self) -> list[Id]:
        """All ids in the order of the documents' numbers."""

    def documents(self, where: str | None, after: int | None, limit: int) -> list[Document]:
        """Give one page of documents in the order of their numbers."""

    def facets(self, where: str | None, fields: Sequence[str] | None, limit: int) -> list[Facet]:
        """Count the values of payload fields."""

    def payloads_of(self, hits: Hits) -> list[dict[str, Any] | None]:
        """The payloads of what a search found."""

    def sides_of(self, hits: Hits) -> list[tuple[str, ...]]:
        """The sides of the documents that a search found."""
