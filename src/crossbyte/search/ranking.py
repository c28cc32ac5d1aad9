"""From points of the common space to the nearest documents: tables, one scan per shelf, one order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte import kernels
from crossbyte.arrays import Float32, Float64
from crossbyte.blocks import row_blocks
from crossbyte.errors import NumericalError
from crossbyte.kernels import ScanResult, ScanSide
from crossbyte.quantization.quantizer import DistanceTable
from crossbyte.search.bits import Words, count_bits
from crossbyte.search.cells.state import CellState, Direction
from crossbyte.search.cells.visiting import ALL, n_visited
from crossbyte.search.ids import Id
from crossbyte.search.segment import CODINGS
from crossbyte.search.shelf import Quantizers, Shelf
from crossbyte.search.snapshot import Snapshot

__all__ = ["Query", "Ranking", "choose_cells", "first_of_groups", "rank", "rank_groups", "resolve_ids"]

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
        Of a coding: what is added to its distances so that codings compete fairly.
    kind : {"image", "text"}, optional
        Of the queries, which choose cells by it.
    probe : int, "all" or None
        How many cells are visited; None: as many as were found to be enough when the cells were built.
    places : (n,) int, optional
        Of the queries among all that a search was asked.
    """

    points: Float32
    target: str
    k: int
    max_distance: float
    offset: Callable[[str], float]
    kind: str = ""
    probe: int | str | None = ALL
    places: NDArray[np.intp] | None = None

    def take(self, rows: slice | Sequence[int] | NDArray[np.intp]) -> Query:
        """Some of the queries."""
        places = None if self.places is None else self.places[rows]
        return self._replace(points=self.points[rows], places=places)

    def parts(self) -> Iterator[Query]:
        """The same for a bounded number of points after the other."""
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
        Place on that shelf.
    probabilities : (n,) float64 or None
        Once judged, and if the model knows.
    no_match : bool or None
        Whether nothing matches; None where that is not known.
    """

    distances: Float32
    numbers: NDArray[np.int64]
    codings: NDArray[np.uint8]
    rows: NDArray[np.int64]
    probabilities: Float64 | None = None
    no_match: bool | None = None

    def take(self, places: NDArray[Any] | slice) -> Ranking:
        """Some of them."""
        judged = None if self.probabilities is None else self.probabilities[places]
        return Ranking(
            self.distances[places],
            self.numbers[places],
            self.codings[places],
            self.rows[places],
            judged,
            self.no_match,
        )

    @classmethod
    def join(cls, parts: Sequence[Ranking]) -> Ranking:
        """All of them, in no order and not judged."""
        return cls(
            np.concatenate([np.empty(0, np.float32), *(part.distances for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.numbers for part in parts)]),
            np.concatenate([np.empty(0, np.uint8), *(part.codings for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.rows for part in parts)]),
        )

    def ordered(self, k: int) -> Ranking:
        """The first k by (distance, number)."""
        return self.take(np.lexsort((self.numbers, self.distances))[:k])


def rank(snapshot: Snapshot, query: Query, allowed: Mapping[str, Words], n_threads: int) -> list[Ranking]:
    """Find the nearest allowed documents of every query point."""
    rankings: list[Ranking] = []
    for some in query.parts():
        rankings += _rank(snapshot, some, allowed, n_threads)
    return rankings


def resolve_ids(snapshot: Snapshot, ranking: Ranking) -> list[Id]:
    """Give the external ids of ranked documents."""
    if not len(ranking.rows):
        return []
    if len(snapshot.shelves) == 1:  # the usual case
        return next(iter(snapshot.shelves.values())).ids.take(ranking.rows)
    ids = np.empty(len(ranking.rows), dtype=object)
    for place, coding in enumerate(CODINGS):
        mine = ranking.codings == place
        if mine.any():
            ids[mine] = np.array(
                [*snapshot.shelves[coding].ids.take(ranking.rows[mine]), None], dtype=object
            )[:-1]
    return list(ids)


def _rank(snapshot: Snapshot, query: Query, allowed: Mapping[str, Words], n_threads: int) -> list[Ranking]:
    tables = _tables(query, snapshot.quantizers)
    cells = choose_cells(snapshot, query, allowed)
    if cells is None:
        return _rank_all(snapshot, query, tables, allowed, n_threads)
    rankings = _rank_visited(snapshot, query, tables[query.target], cells, allowed, n_threads)
    if query.probe is None and query.max_distance == np.inf:
        # A filter may leave the visited cells too few documents, and there may be more elsewhere.
        few = [place for place, ranking in enumerate(rankings) if len(ranking.rows) < query.k]
        if few:
            again = _rank(snapshot, query.take(few)._replace(probe=ALL), allowed, n_threads)
            for place, ranking in zip(few, again, strict=True):
                rankings[place] = ranking
    return rankings


def choose_cells(snapshot: Snapshot, query: Query, allowed: Mapping[str, Words]) -> NDArray[np.int64] | None:
    """Cells (n, visited) of every query, best first; None where everything is searched."""
    direction = _direction(snapshot.cells, query)
    if direction is None:
        return None
    n_cells = len(direction.chooser.points)
    if query.probe is not None:
        count = int(query.probe)
    else:
        count = n_visited(direction.n_probe, n_cells, _allowed_share(snapshot, query.target, allowed))
    return None if count >= n_cells else direction.chooser.choose(query.points, count)


def _direction(state: CellState | None, query: Query) -> Direction | None:
    if state is None or query.probe == ALL:
        return None
    return state.directions.get((query.kind, query.target))


def _allowed_share(snapshot: Snapshot, target: str, allowed: Mapping[str, Words]) -> float:
    """Share of the live documents of the target that may be found."""
    shelves = [shelf for shelf in snapshot.shelves.values() if target in shelf.codes]
    if all(allowed[shelf.coding] is shelf.live for shelf in shelves):  # no filter: nothing to count
        return 1.0
    live = sum(shelf.n_live for shelf in shelves)
    return sum(count_bits(allowed[shelf.coding]) for shelf in shelves) / max(1, live)


def _rank_all(
    snapshot: Snapshot,
    query: Query,
    tables: Mapping[str, DistanceTable],
    allowed: Mapping[str, Words],
    n_threads: int,
) -> list[Ranking]:
    found = []
    for coding, shelf in snapshot.shelves.items():
        sides = [_scan_side(shelf, side, tables[side]) for side in tables if side in shelf.codes]
        if sides:
            result = kernels.scan(
                sides,
                shelf.numbers.count,
                min(query.k, max(shelf.numbers.count, 1)),
                extra=query.offset(coding),
                allowed=allowed[coding],
                max_distance=query.max_distance,
                n_threads=n_threads,
            )
            found.append(_rankings(shelf, result))
    return _merged(found, query)


def _rank_visited(
    snapshot: Snapshot,
    query: Query,
    table: DistanceTable,
    cells: NDArray[np.int64],
    allowed: Mapping[str, Words],
    n_threads: int,
) -> list[Ranking]:
    """Look at the documents of the visited cells alone."""
    found, tables = [], np.ascontiguousarray(table.tables)
    for coding, shelf in snapshot.shelves.items():
        for run in shelf.layouts[query.target].runs if query.target in shelf.layouts else ():
            result = kernels.scan_cells(
                ScanSide(run.codes, tables, table.offsets),
                run.rows,
                run.starts,
                cells,
                min(query.k, max(len(run.rows), 1)),
                extra=query.offset(coding),
                allowed=allowed[coding],
                max_distance=query.max_distance,
                n_threads=n_threads,
            )
            found.append(_rankings(shelf, result))
    return _merged(found, query)


def _merged(found: Sequence[list[Ranking]], query: Query) -> list[Ranking]:
    if len(found) == 1:
        return found[0]
    by_query = zip(*found, strict=True) if found else [()] * len(query.points)
    return [Ranking.join(parts).ordered(query.k) for parts in by_query]


def _tables(query: Query, quantizers: Quantizers) -> dict[str, DistanceTable]:
    sides = tuple(quantizers) if query.target == "document" else (query.target,)
    tables = {side: quantizers[side].table(query.points) for side in sides}
    # Features of 1e150 are finite and still too large for float32: their order would mean nothing.
    if not all(np.isfinite(table.offsets).all() for table in tables.values()):
        raise NumericalError("a query lies too far from everything for float32; scale its features")
    return tables


def _scan_side(shelf: Shelf, side: str, table: DistanceTable) -> ScanSide:
    return ScanSide(shelf.codes[side], np.ascontiguousarray(table.tables), table.offsets)


def _rankings(shelf: Shelf, result: ScanResult) -> list[Ranking]:
    coding = np.uint8(CODINGS.index(shelf.coding))
    whole = Ranking(
        result.distances,
        shelf.numbers[result.rows],
        np.full(len(result.rows), coding),
        result.rows,
    )
    if len(result.counts) == 1:
        return [whole]
    ends = np.cumsum(result.counts).tolist()
    return [whole.take(slice(start, end)) for start, end in zip([0, *ends], ends, strict=False)]


def first_of_groups(ranking: Ranking, labels: Sequence[Id | None]) -> Ranking:
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
            nearest = first_of_groups(ranking, groups(ranking))
            if len(nearest.rows) >= query.k or len(ranking.rows) < k:
                chosen[place] = nearest.take(slice(query.k))
        waiting = np.array([place for place in waiting.tolist() if chosen[place] is None], dtype=np.intp)
        k *= 4
    return [ranking for ranking in chosen if ranking is not None]
