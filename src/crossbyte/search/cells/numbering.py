"""The cell of every document on a shelf: as written beside it, or found from its code."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from crossbyte.executors.protocol import Executor
from crossbyte.search.cells.layout import Layout
from crossbyte.search.cells.state import CellState
from crossbyte.search.segment import Segment, SegmentCells
from crossbyte.search.shelf import Quantizers, Shelf

__all__ = ["laid_out", "with_cells"]


def with_cells(
    segment: Segment, state: CellState | None, quantizers: Quantizers, workers: Executor
) -> Segment:
    """The same segment with the cells of its documents, from what their codes stand for."""
    if state is None:
        return segment
    cells, added = {}, {}
    for side, codes in segment.codes.items():
        if side in state.sides:
            points = quantizers[side].decode(codes, workers)
            cells[side], distances = state.sides[side].centres.cells_of(points, workers)
            added[side] = (len(codes), float(distances.sum(dtype=np.float64)))
    return replace(segment, cells=SegmentCells(state.digest, cells, added))


def laid_out(
    shelf: Shelf, state: CellState | None, new: Sequence[Segment], quantizers: Quantizers, workers: Executor
) -> Shelf:
    """A shelf with its codes in cells; ``new`` are the segments at its end that were put there just now."""
    if state is None:
        return replace(shelf, layouts={}) if shelf.layouts else shelf
    layouts = {
        side: _layout(shelf, side, state, new, quantizers, workers)
        for side in state.sides
        if side in shelf.codes
    }
    return replace(shelf, layouts=layouts)


def _layout(
    shelf: Shelf,
    side: str,
    state: CellState,
    new: Sequence[Segment],
    quantizers: Quantizers,
    workers: Executor,
) -> Layout:
    old = shelf.layouts.get(side)
    n_cells = len(state.sides[side].centres)
    nothing = np.empty(0, np.uint16)
    if old is not None and old.digest == state.digest:
        if len(old.cells) == len(shelf):
            return old
        cells = _cells_after(shelf, side, len(old.cells), state, new, quantizers, workers)
        return old.grown(np.concatenate([nothing, *cells]), shelf.codes[side], n_cells)
    known = state.numbered.get((shelf.coding, side), nothing)
    cells = _cells_after(shelf, side, len(known), state, new, quantizers, workers)
    return Layout.of(state.digest, np.concatenate([known, *cells]), shelf.codes[side], n_cells)


def _cells_after(
    shelf: Shelf,
    side: str,
    first: int,
    state: CellState,
    new: Sequence[Segment],
    quantizers: Quantizers,
    workers: Executor,
) -> list[NDArray[np.uint16]]:
    """Cells of the rows from ``first`` on, segment by segment."""
    row, parts = len(shelf) - sum(segment.numbers.count for segment in new), []
    for segment in new:
        if row >= first:
            parts.append(_cells_of(segment, side, state, quantizers, workers))
        row += segment.numbers.count
    return parts


def _cells_of(
    segment: Segment, side: str, state: CellState, quantizers: Quantizers, workers: Executor
) -> NDArray[np.uint16]:
    known: Mapping[str, NDArray[np.uint16]] = {}
    if segment.cells is not None and segment.cells.digest == state.digest:
        known = segment.cells.cells
    if side in known:
        return known[side]
    # Written by a version that knew nothing of cells.
    points = quantizers[side].decode(segment.codes[side], workers)
    return state.sides[side].centres.cells_of(points, workers)[0]
