"""Some rows of a side that stays on disk, such as a sample to learn from; they stay there, too."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.blocks import BLOCK_ROWS
from crossbyte.data.stored.protocol import Piece, StoredRows
from crossbyte.executors.disk import asked_rows

__all__ = ["ChosenRows"]

_FAR = 8  # rows for each that is wanted: up to there, one long read is quicker than many short ones


class ChosenRows:
    """Rows (m, d) of another stored side, in its order; they are read when they are asked for.

    Parameters
    ----------
    source : StoredRows
        All rows (n, d).
    numbers : (m,) intp, ascending
        Which of them.
    """

    is_stored = True

    def __init__(self, source: StoredRows, numbers: NDArray[np.intp]) -> None:
        if len(numbers) and (numbers[0] < 0 or numbers[-1] >= len(source) or not _ascend(numbers)):
            raise IndexError(f"expected ascending row numbers from 0 to {len(source) - 1}")
        self._source, self._numbers = source, numbers
        self.is_sparse, self.dtype = source.is_sparse, source.dtype
        self.is_finite = getattr(source, "is_finite", False)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return len(self._numbers), self._source.shape[1]

    @property
    def pieces(self) -> list[Piece]:
        """Pieces of the source, with the number of rows chosen from each."""
        ends = np.cumsum([0, *(piece.n_rows for piece in self._source.pieces)])
        counts = np.diff(np.searchsorted(self._numbers, ends)).tolist()
        return [Piece(piece.name, n) for piece, n in zip(self._source.pieces, counts, strict=True)]

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        asked = asked_rows(rows, len(self))
        numbers = self._numbers[asked]
        near = isinstance(asked, slice) and len(numbers) > 1
        if not near or numbers[-1] - numbers[0] >= _FAR * len(numbers):
            return self._source[numbers]
        parts = [self._source[part[0] : part[-1] + 1][part - part[0]] for part in _by_blocks(numbers)]
        return sparse.vstack(parts, format="csr") if self.is_sparse else np.concatenate(parts)


def _ascend(numbers: NDArray[np.intp]) -> bool:
    return bool((np.diff(numbers) > 0).all())


def _by_blocks(numbers: NDArray[np.intp]) -> list[NDArray[np.intp]]:
    """Cut row numbers where blocks of the source end: no more than a block is read beside what is wanted."""
    return np.split(numbers, np.flatnonzero(np.diff(numbers // BLOCK_ROWS)) + 1)
