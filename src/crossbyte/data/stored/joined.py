"""Several files of dense rows, one behind the other, as one side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.stored.array_file import ArrayFile
from crossbyte.data.stored.protocol import Piece
from crossbyte.errors import DataFileError
from crossbyte.executors.disk import asked_rows

__all__ = ["JoinedFiles"]


class JoinedFiles:
    """Dense rows (n, d) of several files of the same width; values have the widest type among them."""

    is_stored = True
    is_sparse = False

    def __init__(self, files: Sequence[ArrayFile]) -> None:
        self._files = list(files)
        self._ends = np.cumsum([len(file) for file in files])
        self.dtype: np.dtype[Any] = np.result_type(*(file.dtype for file in files))
        for file in files:
            _check_width(file, files[0])

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and features."""
        return int(self._ends[-1]), self._files[0].shape[1]

    @property
    def pieces(self) -> list[Piece]:
        """The files, in their order."""
        return [piece for file in self._files for piece in file.pieces]

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        asked = asked_rows(rows, len(self))
        if not isinstance(asked, slice):
            return self._chosen(asked)
        parts = [
            file[max(asked.start - begin, 0) : asked.stop - begin]
            for file, begin in self._with_begins()
            if begin < asked.stop and begin + len(file) > asked.start
        ]
        if len(parts) == 1:
            return parts[0].astype(self.dtype, copy=False)
        return np.concatenate([np.empty((0, self.shape[1]), self.dtype), *parts])

    def _chosen(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        values = np.empty((len(rows), self.shape[1]), self.dtype)
        for file, begin in self._with_begins():
            inside = (rows >= begin) & (rows < begin + len(file))
            if inside.any():
                values[inside] = file[rows[inside] - begin]
        return values

    def _with_begins(self) -> list[tuple[ArrayFile, int]]:
        begins = [0, *self._ends[:-1].tolist()]
        return list(zip(self._files, begins, strict=True))


def _check_width(file: ArrayFile, first: ArrayFile) -> None:
    if file.shape[1] != first.shape[1]:
        raise DataFileError(
            f"{file.pieces[0].name}: expected {first.shape[1]} columns as in {first.pieces[0].name}, "
            f"got {file.shape[1]}; make all files with one encoder"
        )
