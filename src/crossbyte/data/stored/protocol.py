"""What a side that stays on disk answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Piece", "StoredRows"]


class Piece(NamedTuple):
    """A file or a block that a side was put together from, and its number of rows."""

    name: str
    n_rows: int


class StoredRows(Protocol):
    """Features (n, d) of one side, wherever they are; some rows at a time come into memory."""

    is_stored: bool
    """always True: tells these from arrays"""
    is_sparse: bool
    """whether rows come as canonical CSR (sorted columns, no zeros), or as an array"""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, in the machine's byte order."""

    @property
    def pieces(self) -> Sequence[Piece]:
        """Files or blocks that the side consists of, in the order of the rows."""

    def __len__(self) -> int:
        """Rows."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        """Some rows, as a fresh array or CSR matrix."""
