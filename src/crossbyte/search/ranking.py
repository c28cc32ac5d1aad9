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

__all__ = ["Query", "Ranking", "choose_cells", "rank", "resolve_ids"]

_QUERIES_AT_ONCE = 1024  # bounds the memory of the tables, and how long a shard is silent


class Query(NamedTuple):
    """What is asked.

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
    """

    points: Float32
    target: str
    k: int
    max_distance: float
    offset: Callable[[str], float]
    kind: str = ""
    probe: int | str | None = ALL

    def parts(self) -> Iterator[Query]:
        """The same for a bounded number of points after the other."""
        for rows in row_blocks(len(self.points), _QUERIES_AT_ONCE):
            yield self._replace(points=self.points[rows])


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
            np.concatenate([part.distances for part in parts]),
            np.concatenate([part.numbers for part in parts]),
            np.concatenate([part.codings for part in parts]),
            np.concatenate([part.rows for part in parts]),
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
            again = _rank(snapshot, query._replace(points=query.points[few], probe=ALL), allowed, n_threads)
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
                len(shelf),
                min(query.k, max(len(shelf), 1)),
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
    empty = [_NOTHING] * len(query.points)
    return [Ranking.join(parts).ordered(query.k) for parts in zip(empty, *found, strict=True)]


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


_NOTHING = Ranking(
    np.empty(0, np.float32), np.empty(0, np.int64), np.empty(0, np.uint8), np.empty(0, np.int64)
)
