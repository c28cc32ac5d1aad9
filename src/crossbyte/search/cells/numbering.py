"""The cell of every document on a shelf: as written beside it, or found from its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.executors.protocol import Executor
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.search.cells.layout import Layout
from crossbyte.search.cells.state import CellState
from crossbyte.search.segment import Segment, SegmentCells

__all__ = ["ShelfRows", "laid_out", "with_cells"]


def with_cells(
    segment: Segment, state: CellState | None, quantizers: Mapping[str, Quantizer], workers: Executor
) -> Segment:
    """Give the documents of a segment their cells, from what their codes stand for."""
    if state is None:
        return segment
    cells, added = {}, {}
    for side, codes in segment.codes.items():
        if side in state.sides:
            points = quantizers[side].decode(codes, workers)
            cells[side], distances = state.sides[side].centres.cells_of(points, workers)
            added[side] = (len(codes), float(distances.sum(dtype=np.float64)))
    return replace(segment, cells=SegmentCells(state.digest, cells, added))


class ShelfRows(NamedTuple):
    """Name the rows of a partition that inverted lists are built from.

    Attributes
    ----------
    coding : str
    codes : mapping of side to (blocks, M', 64) uint8
        Of all rows, as the scan reads them.
    n_rows : int
    new : sequence of Segment
        Those at the end that were put there just now.
    """

    coding: str
    codes: Mapping[str, Codes]
    n_rows: int
    new: Sequence[Segment]


def laid_out(
    old: Mapping[str, Layout],
    state: CellState | None,
    rows: ShelfRows,
    quantizers: Mapping[str, Quantizer],
    workers: Executor,
) -> dict[str, Layout]:
    """Build the inverted lists of all rows, by side; ``old`` are those before new rows came."""
    if state is None:
        return {}
    return {
        side: _layout(old.get(side), side, state, rows, quantizers, workers)
        for side in state.sides
        if side in rows.codes
    }


def _layout(
    old: Layout | None,
    side: str,
    state: CellState,
    rows: ShelfRows,
    quantizers: Mapping[str, Quantizer],
    workers: Executor,
) -> Layout:
    n_cells = len(state.sides[side].centres)
    nothing = np.empty(0, np.uint16)
    if old is not None and old.digest == state.digest:
        if len(old.cells) == rows.n_rows:
            return old
        cells = _cells_after(rows, side, len(old.cells), state, quantizers, workers)
        return old.grown(np.concatenate([nothing, *cells]), rows.codes[side], n_cells)
    known = state.numbered.get((rows.coding, side), nothing)
    cells = _cells_after(rows, side, len(known), state, quantizers, workers)
    return Layout.of(state.digest, np.concatenate([known, *cells]), rows.codes[side], n_cells)


def _cells_after(
    rows: ShelfRows,
    side: str,
    first: int,
    state: CellState,
    quantizers: Mapping[str, Quantizer],
    workers: Executor,
) -> list[NDArray[np.uint16]]:
    """Give the cells of the rows from ``first`` on, segment by segment."""
    row, parts = rows.n_rows - sum(segment.numbers.count for segment in rows.new), []
    for segment in rows.new:
        if row >= first:
            parts.append(_cells_of(segment, side, state, quantizers, workers))
        row += segment.numbers.count
    return parts


def _cells_of(
    segment: Segment, side: str, state: CellState, quantizers: Mapping[str, Quantizer], workers: Executor
) -> NDArray[np.uint16]:
    known: Mapping[str, NDArray[np.uint16]] = {}
    if segment.cells is not None and segment.cells.digest == state.digest:
        known = segment.cells.cells
    if side in known:
        return known[side]
    # Written by a version that knew nothing of cells.
    points = quantizers[side].decode(segment.codes[side], workers)
    return state.sides[side].centres.cells_of(points, workers)[0]
