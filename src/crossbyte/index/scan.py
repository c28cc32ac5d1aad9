"""Scan the codes of a snapshot for the documents nearest to points of the common space.

``SearchBackend`` is what an open index passes its questions on to; ``LocalBackend`` answers them from one
snapshot in this process, :class:`crossbyte.sharding.snapshot.ShardedSnapshot` from many shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute.executor import row_blocks
from crossbyte.compute.kernels import AskedPart, FoundDocuments, count_worthwhile_threads
from crossbyte.errors import InvalidInput
from crossbyte.index.bitset import Bitset, count_bits
from crossbyte.index.docids import Id, check_id
from crossbyte.index.facets import Facet, count_facets
from crossbyte.index.hits import Document, Hits
from crossbyte.index.ivf.router import ALL_CELLS, count_visited_cells
from crossbyte.index.ivf.state import Cells, CellState, summarize_cells
from crossbyte.index.lexical import TermMatches, WordSettings
from crossbyte.index.partition import Partition
from crossbyte.index.scroll import read_documents, scroll_documents
from crossbyte.index.segment import CODINGS, known_halves
from crossbyte.index.snapshot import Place, Snapshot, measure_index, routed_sides

_QUERIES_AT_ONCE = 1024  # bounds the memory of the tables, and how long a shard is silent


class Query(NamedTuple):
    """Queries of one kind for one target, checked and in the common space.

    Attributes
    ----------
    points : (n, D) float32
        Where the queries are in the common space.
    target : {"image", "text", "document"}
    k : int
    max_distance : float
    offset : callable
        Gives what is added to the distances of a coding, so that codings compete fairly.
    kind : {"image", "text"}, optional
        Kind of the queries; it decides how they are routed to cells.
    n_probe : int, "all", None, or mapping of side to int
        How many cells are visited, of every side; None: as many as were found to be enough when the cells
        were built. Of sides that a mapping leaves out, all are.
    places : (n,) int, optional
        Places of these queries among all queries of the search.
    numbers : (m,) int64, optional
        Documents that alone are looked at; None for all.
    """

    points: Float32
    target: str
    k: int
    max_distance: float
    offset: Callable[[str], float]
    kind: str = ""
    n_probe: int | str | Mapping[str, int] | None = ALL_CELLS
    places: NDArray[np.intp] | None = None
    numbers: NDArray[np.int64] | None = None

    def take(self, rows: slice | Sequence[int] | NDArray[np.intp]) -> Query:
        """Give some of the queries."""
        places = None if self.places is None else self.places[rows]
        return self._replace(points=self.points[rows], places=places)

    def parts(self) -> Iterator[Query]:
        """Yield the queries in blocks of bounded size."""
        if len(self.points) <= _QUERIES_AT_ONCE:
            yield self
            return
        for rows in row_blocks(len(self.points), _QUERIES_AT_ONCE):
            yield self.take(rows)


@dataclass(frozen=True, eq=False)
class Ranking:
    """The nearest documents of one query, by (distance, number).

    Attributes
    ----------
    distances : (n,) float32
    numbers : (n,) int64
    codings : (n,) uint8
        Place of the document's coding in the list of all codings.
    rows : (n,) int64
        Place in that partition.
    log_ratios, probabilities : (n,) float64 or None
        None before they are computed, or where the model is not calibrated.
    match_probability : float or None
        That anything in the index matches; None where that is not known.
    """

    distances: Float32
    numbers: NDArray[np.int64]
    codings: NDArray[np.uint8]
    rows: NDArray[np.int64]
    log_ratios: Float64 | None = None
    probabilities: Float64 | None = None
    match_probability: float | None = None

    def take(self, places: NDArray[Any] | slice) -> Ranking:
        """Give some of the documents."""
        return Ranking(
            self.distances[places],
            self.numbers[places],
            self.codings[places],
            self.rows[places],
            None if self.log_ratios is None else self.log_ratios[places],
            None if self.probabilities is None else self.probabilities[places],
            self.match_probability,
        )

    @classmethod
    def join(cls, parts: Sequence[Ranking]) -> Ranking:
        """Concatenate rankings, without order and without probabilities."""
        return cls(
            np.concatenate([np.empty(0, np.float32), *(part.distances for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)]),
            np.concatenate([np.empty(0, np.uint8), *(part.codings for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]),
        )

    def nearest(self, k: int) -> Ranking:
        """Give the first k by (distance, number)."""
        return self.take(np.lexsort((self.numbers, self.distances))[:k])


def scan_snapshot(
    snapshot: Snapshot, query: Query, allowed: Mapping[str, Bitset], n_threads: int
) -> list[Ranking]:
    """Find the nearest allowed documents of every query point; ``allowed`` names the codings searched."""
    rankings: list[Ranking] = []
    for some in query.parts():
        rankings += _scan_part(snapshot, some, allowed, n_threads)
    return rankings


def resolve_ids(snapshot: Snapshot, ranking: Ranking) -> list[Id]:
    """Give the external ids of ranked documents."""
    if not len(ranking.rows):
        return []
    if len(snapshot.partitions) == 1:  # the usual case
        return next(iter(snapshot.partitions.values())).ids.take(ranking.rows)
    ids = np.empty(len(ranking.rows), dtype=object)
    for place, coding in enumerate(CODINGS):
        mine = ranking.codings == place
        if mine.any():
            ids[mine] = np.array(
                [*snapshot.partitions[coding].ids.take(ranking.rows[mine]), None], dtype=object
            )[:-1]
    return list(ids)


def _scan_part(
    snapshot: Snapshot, query: Query, allowed: Mapping[str, Bitset], n_threads: int
) -> list[Ranking]:
    prepared = snapshot.prepare_search(query.kind, query.target)
    cells = count_cells(snapshot, query, allowed)
    asked = []
    for coding, words in allowed.items():
        place = prepared.places.get(coding)
        if place is not None:
            count = cells.get(prepared.routed[place], 0)
            asked.append(AskedPart(place, float(query.offset(coding)), words, count))
    found = prepared.searcher.search(
        query.points,
        asked,
        min(query.k, max(prepared.n_items, 1)),
        max_distance=query.max_distance,
        n_threads=count_worthwhile_threads(n_threads, prepared.n_items, len(query.points)),
    )
    rankings = _split_rankings(found)
    if cells and query.n_probe is None and query.max_distance == np.inf:
        # A filter may leave the visited cells too few documents, and there may be more elsewhere.
        few = [place for place, ranking in enumerate(rankings) if len(ranking.rows) < query.k]
        if few:
            again = _scan_part(snapshot, query.take(few)._replace(n_probe=ALL_CELLS), allowed, n_threads)
            for place, ranking in zip(few, again, strict=True):
                rankings[place] = ranking
    return rankings


def count_cells(snapshot: Snapshot, query: Query, allowed: Mapping[str, Bitset]) -> dict[str, int]:
    """Count the cells that every query visits, by side; sides of which all are visited are left out."""
    counts: dict[str, int] = {}
    if snapshot.cells is None or query.n_probe == ALL_CELLS:
        return counts
    for side in routed_sides(query.target):
        direction = snapshot.cells.directions.get((query.kind, side))
        if direction is None:
            continue
        n_cells = len(direction.router.points)
        if query.n_probe is None:
            share = _allowed_share(snapshot, side, allowed)
            count = count_visited_cells(direction.n_probe, n_cells, share)
        elif isinstance(query.n_probe, Mapping):
            count = query.n_probe.get(side, n_cells)
        else:
            count = int(query.n_probe)
        if count < n_cells:
            counts[side] = count
    return counts


def _allowed_share(snapshot: Snapshot, side: str, allowed: Mapping[str, Bitset]) -> float:
    """Compute the share of the live documents with a code of this side that a filter allows."""
    partitions = [partition for partition in snapshot.partitions.values() if side in partition.codes]
    if all(allowed[partition.coding] is partition.live for partition in partitions):
        return 1.0  # no filter: nothing to count
    live = sum(partition.n_live for partition in partitions)
    return sum(count_bits(allowed[partition.coding]) for partition in partitions) / max(1, live)


def _split_rankings(found: FoundDocuments) -> list[Ranking]:
    """Give the ranking of every query."""
    whole = Ranking(found.distances, found.numbers, found.codings, found.rows)
    if len(found.counts) == 1:
        return [whole]
    ends = np.cumsum(found.counts).tolist()
    return [whole.take(slice(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def keep_first_of_groups(ranking: Ranking, labels: Sequence[Id | None]) -> Ranking:
    """Keep the first document of every group; documents without a group all stay."""
    seen: set[Id] = set()
    kept = []
    for place, label in enumerate(labels):
        if label is None or label not in seen:
            kept.append(place)
        if label is not None:
            seen.add(label)
    return ranking.take(np.array(kept, dtype=np.intp))


def rank_groups(
    query: Query,
    rank: Callable[[Query], list[Ranking]],
    groups: Callable[[Ranking], Sequence[Id | None]],
) -> list[Ranking]:
    """Find the k nearest groups of every query point, each by its nearest document.

    Looks further until there are enough groups, or nothing is left.
    """
    chosen: list[Ranking | None] = [None] * len(query.points)
    waiting, k = np.arange(len(query.points)), 4 * query.k + 64
    while len(waiting):
        rankings = rank(query.take(waiting)._replace(k=k))
        for place, ranking in zip(waiting.tolist(), rankings, strict=True):
            nearest = keep_first_of_groups(ranking, groups(ranking))
            if len(nearest.rows) >= query.k or len(ranking.rows) < k:
                chosen[place] = nearest.take(slice(query.k))
        waiting = np.array([place for place in waiting.tolist() if chosen[place] is None], dtype=np.intp)
        k *= 4
    return [ranking for ranking in chosen if ranking is not None]


class Example(NamedTuple):
    """A document that is a query, or is explained.

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


class PrecedingDocument(NamedTuple):
    """The last document before another."""

    distance: float
    number: int
    id: Id


class Standing(NamedTuple):
    """The position of a document in a ranking.

    Attributes
    ----------
    n_before : int
        Documents before it.
    before : PrecedingDocument or None
        The last of them.
    distance : float or None
        Its own; None from a shard that does not have it.
    """

    n_before: int
    before: PrecedingDocument | None
    distance: float | None

    @classmethod
    def of(cls, backend: SearchBackend, ranking: Ranking, number: int, limit: float) -> Standing:
        """Find the position of a document in a ranking of everything up to its distance, the limit."""
        found = np.flatnonzero(ranking.numbers == number)
        if len(found):
            before, distance = ranking.take(slice(int(found[0]))), float(ranking.distances[found[0]])
        else:
            near = ranking.distances < np.float32(limit)
            before, distance = ranking.take(near | (ranking.numbers < number)), None
        if not len(before.rows):
            return cls(0, None, distance)
        last = before.take(slice(-1, None))
        nearest = PrecedingDocument(float(last.distances[0]), int(last.numbers[0]), backend.ids(last)[0])
        return cls(len(before.rows), nearest, distance)


class CellDirections(Protocol):
    """The cells of an index, as far as it must be known which searches they are for."""

    @property
    def directions(self) -> Mapping[tuple[str, str], object]:
        """Anything, by (query, side)."""


class SearchBackend(Protocol):
    """Answers questions about one generation of documents, wherever they are held.

    Rankings that it gives are passed back to it for more: their ``rows`` mean something only to the backend
    that made them.

    Attributes
    ----------
    n_threads : int
        Threads of what is not ranking.
    partial : bool
        Whether documents of lost shards are missing in its answers.
    """

    n_threads: int
    partial: bool

    # Description

    def __len__(self) -> int:
        """Count the documents that are not deleted."""

    @property
    def codings(self) -> Mapping[str, int]:
        """Count the documents of each coding; codings without any are left out."""

    @property
    def cells(self) -> CellDirections | None:
        """The cells; None where the index has none."""

    def describe_cells(self) -> Cells | None:
        """Describe the cells; None without any."""

    def stats(self) -> dict[str, Any]:
        """Count documents and bytes."""

    # Searching

    def examples(self, ids: Sequence[Id]) -> list[Example | None]:
        """Look up the documents of these ids; None for ids that no document has."""

    def rank(self, query: Query, where: str | None, *, distinct: bool, grouped: bool) -> list[Ranking]:
        """Find the nearest documents that a filter allows; with ``distinct``, the nearest of every group.

        With ``grouped``, the rankings may be passed to :meth:`groups`.
        """

    @property
    def words(self) -> WordSettings | None:
        """What is known of the words of documents; None where there are none that can be searched."""

    @property
    def word_settings(self) -> WordSettings | None:
        """What was measured of words and vectors, also where words cannot be searched; else None."""

    def match_terms(self, terms: Sequence[str], where: str | None) -> list[TermMatches]:
        """Find the documents that have each of some words or phrases, and which of them a filter allows."""

    def count_term(self, term: str, most: int) -> int:
        """Count the documents that have a word or phrase, ``most`` at most; also deleted ones."""

    def standing(self, query: Query, number: int) -> Standing:
        """Find the position of a document, at ``query.max_distance``, for one query."""

    def groups(self, ranking: Ranking) -> list[Id | None]:
        """Look up the groups of ranked documents."""

    def ids(self, ranking: Ranking) -> list[Id]:
        """Look up the ids of ranked documents."""

    def payloads(self, ranking: Ranking) -> list[dict[str, Any] | None]:
        """Read the payloads of ranked documents."""

    # Documents

    def contains(self, id: object) -> bool:
        """Say whether a document has this id; never for what cannot be an id."""

    def get(self, id: Id) -> Document | None:
        """Give a document, or None."""

    def all_ids(self) -> list[Id]:
        """List all ids in the order of the documents' numbers."""

    def documents(self, where: str | None, after: int | None, limit: int) -> list[Document]:
        """Give one page of documents in the order of their numbers."""

    def facets(self, where: str | None, fields: Sequence[str] | None, limit: int) -> list[Facet]:
        """Count the values of payload fields."""

    def payloads_of(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of hits."""

    def sides_of(self, hits: Hits) -> list[tuple[str, ...]]:
        """Look up the sides that each hit has."""


class LocalBackend:
    """Answers from a snapshot: see :class:`crossbyte.index.scan.SearchBackend`.

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
        """Count the documents of each coding, without deleted ones."""
        return {
            coding: partition.n_live
            for coding, partition in self.snapshot.partitions.items()
            if partition.n_live
        }

    @property
    def cells(self) -> CellState | None:
        """The cells of the snapshot."""
        return self.snapshot.cells

    def describe_cells(self) -> Cells | None:
        """Describe the cells; None without any."""
        return summarize_cells(self.snapshot.cells, self.snapshot.cell_sizes())

    def stats(self) -> dict[str, Any]:
        """Count documents and bytes."""
        return measure_index(self.snapshot)

    # Searching

    def examples(self, ids: Sequence[Id]) -> list[Example | None]:
        """Look up the documents of these ids; None for ids that no document has."""
        places = self.snapshot.find(ids)
        examples: list[Example | None] = [None] * len(ids)
        for coding in {place.coding for place in places if place is not None}:
            mine = [(i, place.row) for i, place in enumerate(places) if place and place.coding == coding]
            found = self._examples(self.snapshot.partitions[coding], np.array([row for _, row in mine]))
            for (i, _), example in zip(mine, found, strict=True):
                examples[i] = example
        return examples

    def rank(
        self, query: Query, where: str | None, *, distinct: bool, grouped: bool = False
    ) -> list[Ranking]:
        """Find the nearest documents that a filter allows; with ``distinct``, the nearest of every group."""
        allowed = self.snapshot.allowed(where, is_part=self.is_part)
        if query.numbers is not None:
            allowed = self.snapshot.restrict(allowed, query.numbers)

        def nearest(some: Query) -> list[Ranking]:
            return scan_snapshot(self.snapshot, some, allowed, self.n_threads)

        return rank_groups(query, nearest, self.groups) if distinct else nearest(query)

    @property
    def words(self) -> WordSettings | None:
        """What is known of the words of documents; None where there are none that can be searched."""
        return self.snapshot.words if self.snapshot.has_words else None

    @property
    def word_settings(self) -> WordSettings | None:
        """What was measured of words and vectors, also where words cannot be searched; else None."""
        return self.snapshot.words

    def match_terms(self, terms: Sequence[str], where: str | None) -> list[TermMatches]:
        """Find the documents that have each of some words or phrases, and which of them a filter allows."""
        return self.snapshot.match_terms(terms, where, is_part=self.is_part)

    def count_term(self, term: str, most: int) -> int:
        """Count the documents that have a word or phrase, ``most`` at most; also deleted ones."""
        return self.snapshot.count_term(term, most)

    def standing(self, query: Query, number: int) -> Standing:
        """Find the position of a document, at ``query.max_distance``, for one query."""
        whole = query._replace(k=max(len(self), 1))
        ranking = scan_snapshot(self.snapshot, whole, self.snapshot.allowed(None), self.n_threads)[0]
        return Standing.of(self, ranking, number, query.max_distance)

    def groups(self, ranking: Ranking) -> list[Id | None]:
        """Look up the groups of ranked documents; None for those without one."""
        labels: list[Id | None] = [None] * len(ranking.rows)
        for number, coding in enumerate(CODINGS):
            places = np.flatnonzero(ranking.codings == number)
            if len(places):
                known = self.snapshot.group_labels(coding, ranking.rows[places])
                for place, label in zip(places.tolist(), known, strict=True):
                    labels[place] = label
        return labels

    def ids(self, ranking: Ranking) -> list[Id]:
        """Look up the ids of ranked documents."""
        return resolve_ids(self.snapshot, ranking)

    def payloads(self, ranking: Ranking) -> list[dict[str, Any] | None]:
        """Read the payloads of ranked documents; None where there is none."""
        pairs = zip(ranking.codings.tolist(), ranking.rows.tolist(), strict=True)
        return self.snapshot.payloads([Place(CODINGS[coding], row) for coding, row in pairs])

    # Documents

    def contains(self, id: object) -> bool:
        """Say whether a document has this id; never for what cannot be an id."""
        try:
            return self.snapshot.find([check_id(id)])[0] is not None
        except InvalidInput:
            return False

    def get(self, id: Id) -> Document | None:
        """Give a document, or None if there is none of this id."""
        place = self.snapshot.find([check_id(id)])[0]
        return None if place is None else read_documents(self.snapshot, [place], self._n_codebooks)[0]

    def all_ids(self) -> list[Id]:
        """List all ids in the order of the documents' numbers."""
        found = [
            pair
            for partition in self.snapshot.partitions.values()
            for pair in zip(
                partition.numbers[partition.live_rows()].tolist(),
                partition.ids.take(partition.live_rows()),
                strict=True,
            )
        ]
        return [id for _, id in sorted(found, key=lambda pair: pair[0])]

    def documents(self, where: str | None, after: int | None, limit: int) -> list[Document]:
        """Give one page of documents in the order of their numbers."""
        return scroll_documents(self.snapshot, where, after, limit, self._n_codebooks, is_part=self.is_part)

    def facets(self, where: str | None, fields: Sequence[str] | None, limit: int) -> list[Facet]:
        """Count the values of payload fields."""
        return count_facets(self.snapshot, where, fields, limit)

    def payloads_of(self, hits: Hits) -> list[dict[str, Any] | None]:
        """Read the payloads of hits of this snapshot."""
        return self.snapshot.payloads(self.snapshot.places(hits.numbers))

    def sides_of(self, hits: Hits) -> list[tuple[str, ...]]:
        """Look up the sides that each hit of this snapshot has."""
        if hits._codings is not None:
            return [known_halves(CODINGS[place]) for place in hits._codings.tolist()]
        return [known_halves(place.coding) for place in self.snapshot.places(hits.numbers)]

    @property
    def _n_codebooks(self) -> int:
        return len(self.snapshot.quantizers["image"].codewords)

    def _examples(self, partition: Partition, rows: Any) -> list[Example]:
        codes = {side: partition.code_rows(side, rows, self._n_codebooks) for side in partition.codes}
        return [
            Example(number, partition.coding, {side: each[i] for side, each in codes.items()})
            for i, number in enumerate(partition.numbers[rows].tolist())
        ]
