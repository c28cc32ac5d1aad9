"""Rows of a ``.npy`` file, or of what a memory map lies over, read at their places."""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.blocks import row_blocks
from crossbyte.data.files.npy import Header, read_header
from crossbyte.data.files.opening import PathLike, naming, open_regular
from crossbyte.data.stored.protocol import Piece
from crossbyte.errors import DataFileError
from crossbyte.executors.disk import asked_rows
from crossbyte.executors.disk_bytes import read_at

__all__ = ["ArrayFile"]


class _Place(NamedTuple):
    """Offset and layout of the values in a file."""

    offset: int
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    fortran: bool


class ArrayFile:
    """Dense rows (n, d) in a file; it is opened anew for every read, and must not change meanwhile.

    Kept open, the files of a folder with thousands of shards would be more than a system allows.
    """

    is_stored = True
    is_sparse = False

    def __init__(self, path: PathLike, place: _Place, identity: tuple[int, ...]) -> None:
        self._path, self._place, self._identity = os.fspath(path), place, identity

    @classmethod
    def open(cls, path: PathLike) -> ArrayFile:
        """Judge the header of a ``.npy`` file; no value is read.

        Raises
        ------
        DataFileError, FileNotFoundError, PermissionError
        """
        with naming(path), open_regular(path) as opened:
            header = read_header(opened.file, opened.size, opened.size)
            place = _place_of(header, opened.size - header.n_bytes)
            return cls(path, place, _identity(opened.file.fileno()))

    @classmethod
    def under(cls, mapped: np.memmap[Any, Any]) -> ArrayFile | None:
        """Give the rows of a file that a memory map shows; None where it shows something else.

        Pages that are read through a map count as memory of the process, which this avoids.
        """
        place = _place_under(mapped)
        if place is None or mapped.filename is None:
            return None
        mapped.flush()
        try:
            with open_regular(mapped.filename) as opened:
                found = cls(mapped.filename, place, _identity(opened.file.fileno()))
            ends = [slice(0, 1), slice(max(len(mapped) - 1, 0), len(mapped))]
            same = all(np.array_equal(found[rows], mapped[rows], equal_nan=True) for rows in ends)
        except (DataFileError, OSError):  # the file is gone, or another one now; the map still holds the old
            return None
        return found if same else None

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return self._place.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the values, in the machine's byte order."""
        return self._place.dtype.newbyteorder("=")

    @property
    def pieces(self) -> list[Piece]:
        """The file."""
        return [Piece(os.path.basename(self._path), len(self))]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        asked = asked_rows(rows, len(self))
        with self._opened() as descriptor:
            if isinstance(asked, slice):
                return self._native(self._read(descriptor, asked.start, asked.stop))
            return self._native(self._chosen(descriptor, asked))

    @contextmanager
    def _opened(self) -> Iterator[int]:
        with naming(self._path), open_regular(self._path) as opened:
            if _identity(opened.file.fileno()) != self._identity:
                raise DataFileError("was changed while it was being read; start again when it is complete")
            yield opened.file.fileno()

    def _read(self, descriptor: int, start: int, stop: int) -> NDArray[Any]:
        (n_rows, n_columns), dtype = self.shape, self._place.dtype
        if not self._place.fortran:
            values = np.empty((stop - start, n_columns), dtype)
            self._fill(descriptor, values, start * n_columns)
            return values
        by_columns = np.empty((n_columns, stop - start), dtype)
        for number, column in enumerate(by_columns):
            self._fill(descriptor, column, number * n_rows + start)
        return by_columns.T

    def _chosen(self, descriptor: int, rows: NDArray[np.intp]) -> NDArray[Any]:
        values = np.empty((len(rows), self.shape[1]), self._place.dtype)
        if not self._place.fortran:
            for place, row in enumerate(rows.tolist()):
                self._fill(descriptor, values[place], row * self.shape[1])
            return values
        for block in row_blocks(len(self)):  # value by value would be a call for each
            inside = (rows >= block.start) & (rows < block.stop)
            if inside.any():
                values[inside] = self._read(descriptor, block.start, block.stop)[rows[inside] - block.start]
        return values

    def _fill(self, descriptor: int, values: NDArray[Any], first: int) -> None:
        """Read values that follow each other in the file, from the one with this number on."""
        buffer = values.reshape(-1).view(np.uint8).data
        if read_at(descriptor, buffer, self._place.offset + first * values.itemsize) < len(buffer):
            raise DataFileError("ends too early, in the middle of an array; copy or save it again")

    def _native(self, values: NDArray[Any]) -> NDArray[Any]:
        if values.dtype.kind == "b":  # NumPy takes other bytes than 0 and 1 for whatever it likes
            return values.view(np.uint8) != 0
        return values.astype(self.dtype, copy=False)


def _place_of(header: Header, offset: int) -> _Place:
    if len(header.shape) != 2 or header.dtype.kind not in "biuf":
        raise DataFileError(
            f"expected a matrix of numbers (rows × features), got {header.dtype.name} of shape {header.shape}"
        )
    return _Place(offset, (header.shape[0], header.shape[1]), header.dtype, header.fortran)


def _place_under(mapped: np.memmap[Any, Any]) -> _Place | None:
    root: Any = mapped
    while isinstance(root.base, np.ndarray):
        root = root.base
    flags = mapped.flags
    whole = mapped.ndim == 2 and mapped.size > 0 and (flags.c_contiguous or flags.f_contiguous)
    # What was written to a private copy ("c") is not in the file.
    shared = isinstance(root, np.memmap) and isinstance(root.base, mmap.mmap) and mapped.mode != "c"
    if not (whole and shared) or mapped.dtype.kind not in "biuf":
        return None
    offset = root.offset + mapped.ctypes.data - root.ctypes.data
    return _Place(offset, (mapped.shape[0], mapped.shape[1]), mapped.dtype, not flags.c_contiguous)


def _identity(descriptor: int) -> tuple[int, ...]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
