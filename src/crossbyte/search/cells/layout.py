"""Codes of a shelf laid out cell after cell, beside the order of their numbers that everything else reads.

A run holds some rows of the shelf. Documents that are added make a run of their own, and runs are merged like
the digits of a counter, so that adding stays cheap and there are few of them. The codes are in memory twice:
one layout alone would need the place of every row and the row of every place, which takes as much at the code
lengths that are usual.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.kernels import BLOCK_ITEMS, pack_codes

__all__ = ["Layout", "Run"]


@dataclass(frozen=True, eq=False)
class Run:
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
    def of(cls, codes: Codes, cells: NDArray[np.uint16], first: int, n_cells: int) -> Run:
        """Lay out the rows from ``first`` on, given the codes and the cells of the whole partition."""
        own = cells[first:]
        order = np.argsort(own, kind="stable").astype(np.uint32)  # by digits: fast for two bytes
        starts = np.zeros(n_cells + 1, dtype=np.int64)
        np.cumsum(np.bincount(own, minlength=n_cells), out=starts[1:])
        whole = np.dtype((np.void, codes.shape[1]))  # rows are moved as they are: seven times as fast
        in_cells = _row_codes(codes, first, len(cells)).view(whole)[order]
        own_codes = in_cells.view(np.uint8).reshape(len(order), codes.shape[1])
        return cls(first, order + np.uint32(first), starts, pack_codes(own_codes))

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.rows.nbytes + self.starts.nbytes + self.codes.nbytes


@dataclass(frozen=True, eq=False)
class Layout:
    """Hold one side of a partition cell after cell: the inverted lists of an IVF.

    Attributes
    ----------
    digest : str
        Of the cells.
    cells : (n,) uint16
        Of every row.
    runs : tuple of Run
        In the order of their rows, each more than twice as long as the next.
    """

    digest: str
    cells: NDArray[np.uint16]
    runs: tuple[Run, ...]

    @classmethod
    def of(cls, digest: str, cells: NDArray[np.uint16], codes: Codes, n_cells: int) -> Layout:
        """Lay a whole partition out in one run."""
        return cls(digest, cells, (Run.of(codes, cells, 0, n_cells),))

    def grown(self, new: NDArray[np.uint16], codes: Codes, n_cells: int) -> Layout:
        """Add rows; ``codes`` are those of the partition with them."""
        cells = np.concatenate([self.cells, new])
        runs, first = list(self.runs), len(self.cells)
        while runs and len(runs[-1].rows) <= 2 * (len(cells) - first):
            first = runs.pop().first
        return Layout(self.digest, cells, (*runs, Run.of(codes, cells, first, n_cells)))

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return self.cells.nbytes + sum(run.n_bytes for run in self.runs)


def _row_codes(packed: Codes, first: int, last: int) -> Codes:
    """Unpack codes (n, M') of successive rows: rows of few bytes are gathered far faster than packed ones."""
    blocks = packed[first // BLOCK_ITEMS : -(-last // BLOCK_ITEMS)]
    rows = np.ascontiguousarray(blocks.transpose(0, 2, 1)).reshape(-1, packed.shape[1])
    begin = first % BLOCK_ITEMS
    return rows[begin : begin + last - first]
