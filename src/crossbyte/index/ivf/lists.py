"""Lay the codes of a partition out cell after cell, as the inverted lists of an IVF.

A run holds some rows of the partition. Documents that are added make a run of their own, and runs are merged
like the digits of a counter, so that adding stays cheap and there are few of them. The codes are in memory
twice, by row and by cell: one layout alone would need the place of every row and the row of every place,
which takes as much at the usual code lengths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.compute.executor import Executor
from crossbyte.compute.kernels import BLOCK_ITEMS, pack_codes
from crossbyte.index.ivf.state import CellState
from crossbyte.index.segment import Segment, SegmentCells
from crossbyte.model.quantization.quantizer import Quantizer


@dataclass(frozen=True, eq=False)
class ListRun:
    """Hold consecutive rows of a partition, those of each cell (inverted list) together.

    Attributes
    ----------
    first : int
        The first row.
    rows : (n,) uint32
        The row at each place.
    starts : (n_cells + 1,) int64
        Where each cell begins and ends, in places.
    codes : (blocks, M', 64) uint8
    """

    first: int
    rows: NDArray[np.uint32]
    starts: NDArray[np.int64]
    codes: Codes

    @classmethod
    def of(cls, codes: Codes, cells: NDArray[np.uint16], first: int, n_cells: int) -> ListRun:
        """Lay out the rows from ``first`` on, given the codes and the cells of the whole partition."""
        own = cells[first:]
        order = np.argsort(own, kind="stable").astype(np.uint32)  # by digits: fast for two bytes
        starts = np.zeros(n_cells + 1, dtype=np.int64)
        np.cumsum(np.bincount(own, minlength=n_cells), out=starts[1:])
        whole = np.dtype((np.void, codes.shape[1]))  # rows are moved as they are: seven times as fast
        in_cells = _unpack_rows(codes, first, len(cells)).view(whole)[order]
        own_codes = in_cells.view(np.uint8).reshape(len(order), codes.shape[1])
        return cls(first, order + np.uint32(first), starts, pack_codes(own_codes))

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.rows.nbytes + self.starts.nbytes + self.codes.nbytes


@dataclass(frozen=True, eq=False)
class InvertedLists:
    """Hold one side of a partition cell after cell: the inverted lists of an IVF.

    Attributes
    ----------
    digest : str
        Of the cells.
    cells : (n,) uint16
        The cell of every row.
    runs : tuple of ListRun
        In the order of their rows, each more than twice as long as the next.
    """

    digest: str
    cells: NDArray[np.uint16]
    runs: tuple[ListRun, ...]

    @classmethod
    def of(cls, digest: str, cells: NDArray[np.uint16], codes: Codes, n_cells: int) -> InvertedLists:
        """Lay a whole partition out in one run."""
        return cls(digest, cells, (ListRun.of(codes, cells, 0, n_cells),))

    def with_rows(self, new: NDArray[np.uint16], codes: Codes, n_cells: int) -> InvertedLists:
        """Add rows; ``codes`` are those of the partition with them."""
        cells = np.concatenate([self.cells, new])
        runs, first = list(self.runs), len(self.cells)
        while runs and len(runs[-1].rows) <= 2 * (len(cells) - first):
            first = runs.pop().first
        return InvertedLists(self.digest, cells, (*runs, ListRun.of(codes, cells, first, n_cells)))

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.cells.nbytes + sum(run.n_bytes for run in self.runs)


def _unpack_rows(packed: Codes, first: int, last: int) -> Codes:
    """Unpack codes (n, M') of successive rows: rows of few bytes are gathered far faster than packed ones."""
    blocks = packed[first // BLOCK_ITEMS : -(-last // BLOCK_ITEMS)]
    rows = np.ascontiguousarray(blocks.transpose(0, 2, 1)).reshape(-1, packed.shape[1])
    begin = first % BLOCK_ITEMS
    return rows[begin : begin + last - first]


def assign_cells(
    segment: Segment, state: CellState | None, quantizers: Mapping[str, Quantizer], workers: Executor
) -> Segment:
    """Assign the documents of a segment to cells, by the points that their codes decode to."""
    if state is None:
        return segment
    cells, added = {}, {}
    for side, codes in segment.codes.items():
        if side in state.sides:
            points = quantizers[side].decode(codes, workers)
            cells[side], distances = state.sides[side].centres.cells_of(points, workers)
            added[side] = (len(codes), float(distances.sum(dtype=np.float64)))
    return replace(segment, cells=SegmentCells(state.digest, cells, added))


class PartitionRows(NamedTuple):
    """Hold the rows of a partition from which inverted lists are built.

    Attributes
    ----------
    coding : str
    codes : mapping of side to (blocks, M', 64) uint8
        Of all rows, as the scan reads them.
    n_rows : int
    new : sequence of Segment
        Segments that were just added, whose rows are the last ones.
    """

    coding: str
    codes: Mapping[str, Codes]
    n_rows: int
    new: Sequence[Segment]


def build_lists(
    old: Mapping[str, InvertedLists],
    state: CellState | None,
    rows: PartitionRows,
    quantizers: Mapping[str, Quantizer],
    workers: Executor,
) -> dict[str, InvertedLists]:
    """Build the inverted lists of all rows, by side; ``old`` are the lists without the new rows."""
    if state is None:
        return {}
    return {
        side: _build_side_lists(old.get(side), side, state, rows, quantizers, workers)
        for side in state.sides
        if side in rows.codes
    }


def _build_side_lists(
    old: InvertedLists | None,
    side: str,
    state: CellState,
    rows: PartitionRows,
    quantizers: Mapping[str, Quantizer],
    workers: Executor,
) -> InvertedLists:
    n_cells = len(state.sides[side].centres)
    nothing = np.empty(0, np.uint16)
    if old is not None and old.digest == state.digest:
        if len(old.cells) == rows.n_rows:
            return old
        cells = _assign_rows_from(rows, side, len(old.cells), state, quantizers, workers)
        return old.with_rows(np.concatenate([nothing, *cells]), rows.codes[side], n_cells)
    known = state.assignments.get((rows.coding, side), nothing)
    cells = _assign_rows_from(rows, side, len(known), state, quantizers, workers)
    return InvertedLists.of(state.digest, np.concatenate([known, *cells]), rows.codes[side], n_cells)


def _assign_rows_from(
    rows: PartitionRows,
    side: str,
    first: int,
    state: CellState,
    quantizers: Mapping[str, Quantizer],
    workers: Executor,
) -> list[NDArray[np.uint16]]:
    """Assign the rows from ``first`` on to cells, segment by segment."""
    row, parts = rows.n_rows - sum(segment.numbers.count for segment in rows.new), []
    for segment in rows.new:
        if row >= first:
            parts.append(_assign_segment(segment, side, state, quantizers, workers))
        row += segment.numbers.count
    return parts


def _assign_segment(
    segment: Segment, side: str, state: CellState, quantizers: Mapping[str, Quantizer], workers: Executor
) -> NDArray[np.uint16]:
    """Assign the documents of a segment to cells: as stored, or computed from their codes."""
    known: Mapping[str, NDArray[np.uint16]] = {}
    if segment.cells is not None and segment.cells.digest == state.digest:
        known = segment.cells.cells
    if side in known:
        return known[side]
    # Written by a version that knew nothing of cells.
    points = quantizers[side].decode(segment.codes[side], workers)
    return state.sides[side].centres.cells_of(points, workers)[0]
