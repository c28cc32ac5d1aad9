"""Blocks of rows, written once into scratch files: given once, they are read as often as a fit must."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.data.stored.protocol import Piece
from crossbyte.errors import InvalidInput
from crossbyte.executors.disk import DiskArray, DiskSparse
from crossbyte.validation import check_features

__all__ = ["SpooledRows", "spool"]


class SpooledRows:
    """Rows (n, d) in scratch files that go when the object does; every value was checked on the way."""

    is_stored = True
    is_finite = True

    def __init__(self, rows: DiskArray | DiskSparse, pieces: Sequence[Piece]) -> None:
        self._rows, self.pieces = rows, pieces
        self.is_sparse, self.dtype = rows.is_sparse, rows.dtype

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self._rows.shape[0], self._rows.shape[1]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        return self._rows[rows]


def spool(blocks: Iterable[tuple[str, Any]], side: str, folder: str | None = None) -> SpooledRows:
    """Write named blocks, one behind the other, as they come.

    Parameters
    ----------
    blocks : iterable of (name, block)
        Blocks are arrays or sparse matrices (k, d), all of one kind, width and type.
    side : str
        What the side is called in errors.
    folder : str or None
        Where scratch files are; None for the system's folder for temporary files.

    Raises
    ------
    InvalidInput
        A block that is not like the first, or none at all; the message names it.
    StorageFull
        The scratch disk is full.
    """
    rows: DiskArray | DiskSparse | None = None
    pieces: list[Piece] = []
    for name, values in blocks:
        block = check_features(values, name)
        rows = _start(block, folder) if rows is None else rows
        rows.append(_like_the_first(block, rows, name, pieces))
        pieces.append(Piece(name, block.shape[0]))
    if rows is None:
        raise InvalidInput(
            f"{side}: expected blocks of rows, got none; an iterator can be read only once: give something "
            "that can be iterated again, e.g. a list"
        )
    return SpooledRows(rows, pieces)


def _start(block: Any, folder: str | None) -> DiskArray | DiskSparse:
    if bool(sparse.issparse(block)):  # a plain bool: the narrowed type knows too little
        return DiskSparse(block.shape[1], block.dtype, folder)
    return DiskArray(0, block.shape[1:], block.dtype.newbyteorder("="), folder)


def _like_the_first(block: Any, rows: DiskArray | DiskSparse, name: str, pieces: Sequence[Piece]) -> Any:
    if sparse.issparse(block) != rows.is_sparse:
        kinds = ("sparse", "dense") if rows.is_sparse else ("dense", "sparse")
        raise InvalidInput(
            f"{name}: expected {kinds[0]} rows as in {pieces[0].name}, got {kinds[1]} ones; make all "
            "blocks alike"
        )
    if block.shape[1] != rows.shape[1]:
        raise InvalidInput(
            f"{name}: expected {rows.shape[1]} columns as in {pieces[0].name}, got {block.shape[1]}; make "
            "all blocks with one encoder"
        )
    if not np.can_cast(block.dtype, rows.dtype, "safe"):
        raise InvalidInput(
            f"{name}: expected values of {rows.dtype} as in {pieces[0].name}, got {block.dtype}; convert "
            f"them, e.g. with .astype('{rows.dtype}')"
        )
    return block.astype(rows.dtype, copy=False)
