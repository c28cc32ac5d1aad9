"""What cells are built of: the documents of one side, and what queries find among them by looking at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.blocks import row_blocks
from crossbyte.executors.protocol import Executor
from crossbyte.model.cmcq import CMCQ
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.search.cells.centres import Centres
from crossbyte.search.cells.curve import NEAREST
from crossbyte.search.offsets import coding_offset
from crossbyte.search.ranking import Query, Ranking, rank
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Snapshot

__all__ = ["Asked", "Documents", "Site", "main_coding"]

_ROWS_AT_ONCE = 16 * 4096
_DISTANCES_AT_ONCE = 1024


class Site(NamedTuple):
    """Hold what every step of a build works on."""

    model: CMCQ
    snapshot: Snapshot
    n_threads: int
    workers: Executor

    def decode(self, side: str, codes: Codes) -> Float32:
        """Give the points (n, D) that codes (n, M) of a side stand for."""
        return self.snapshot.quantizers[side].decode(codes, self.workers)


class Documents:
    """Hold the live documents of one side, in the order of their partitions."""

    def __init__(self, site: Site, side: str) -> None:
        self._site, self._side = site, side
        self.shelves = [shelf for shelf in site.snapshot.shelves.values() if side in shelf.codes]
        self.live = [shelf.live_rows() for shelf in self.shelves]
        self._ends = np.cumsum([len(rows) for rows in self.live])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def decoded(self, places: NDArray[np.intp]) -> Float32:
        """Give the points (n, D) of some, named in ascending order."""
        parts = np.split(places, np.searchsorted(places, self._ends[:-1]))
        starts = [0, *self._ends[:-1].tolist()]
        each = zip(self.shelves, self.live, parts, starts, strict=True)
        codes = [self._codes(shelf, own[part - start]) for shelf, own, part, start in each]
        return self._site.decode(self._side, np.concatenate(codes))

    def cells_of(self, shelf: Shelf, centres: Centres) -> tuple[NDArray[np.uint16], Float32]:
        """Find the cells of all rows of a partition, deleted ones too, and distances to the centres."""
        cells, distances = np.empty(len(shelf), np.uint16), np.empty(len(shelf), np.float32)
        for rows in row_blocks(len(shelf), _ROWS_AT_ONCE):
            points = self._site.decode(self._side, self._codes(shelf, np.arange(rows.start, rows.stop)))
            cells[rows], distances[rows] = centres.cells_of(points, self._site.workers)
        return cells, distances

    def _codes(self, shelf: Shelf, rows: NDArray[np.intp]) -> Codes:
        return shelf.code_rows(self._side, rows, len(self._site.model.image_codebooks_))


class Asked(NamedTuple):
    """Hold halves of pairs as queries that search all documents for their other halves.

    Attributes
    ----------
    points : (n, D) float32
        Where the queries are.
    partners : (n, D) float32
        What the codes of their other halves stand for.
    rankings : list of Ranking
        The nearest ten documents of each.
    found : (n,) bool
        Whether the other half would be among those; of halves of the target's own kind, none is.
    """

    points: Float32
    partners: Float32
    rankings: list[Ranking]
    found: NDArray[np.bool_]

    @classmethod
    def of(cls, site: Site, kind: str, target: str, points: Float32, codes: Codes) -> Asked:
        """Let points of one kind ask for documents of a side; ``codes`` (n, M) are those of the partners."""
        snapshot = site.snapshot
        offset = coding_offset(site.model, kind, target, len(snapshot))
        query = Query(points, target, NEAREST, np.inf, offset)
        allowed = {coding: shelf.live for coding, shelf in snapshot.shelves.items()}
        rankings = rank(snapshot, query, allowed, site.n_threads)
        partners = site.decode(target, codes)
        if kind == target:
            return cls(points, partners, rankings, np.zeros(len(points), dtype=bool))
        farthest = np.array([ranking.distances[-1] for ranking in rankings])
        own = _own_distances(snapshot.quantizers[target], points, codes, site.workers)
        own = own + np.float32(offset(main_coding(snapshot, target)))
        return cls(points, partners, rankings, own <= farthest)


def main_coding(snapshot: Snapshot, side: str) -> str:
    """Find the coding that most documents of a side have."""
    shelves = [shelf for shelf in snapshot.shelves.values() if side in shelf.codes]
    return max(shelves, key=lambda shelf: shelf.n_live).coding


def _own_distances(quantizer: Quantizer, points: Float32, codes: Codes, workers: Executor) -> Float32:
    """Compute the distance of every point to its own code, as a search would have it."""
    scan, parts = quantizer.scan_codes(codes, workers), []
    for rows in row_blocks(len(points), _DISTANCES_AT_ONCE):
        table, own = quantizer.table(points[rows]), scan[rows]
        places = np.arange(len(own))
        total = table.tables[places, 0, own[:, 0]]
        for m in range(1, own.shape[1]):
            total = total + table.tables[places, m, own[:, m]]
        parts.append(total + table.offsets)
    return np.concatenate(parts)
