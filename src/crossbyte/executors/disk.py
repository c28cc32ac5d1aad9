"""Rows in scratch files: as many as the disk holds, read block by block into fresh arrays."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from crossbyte.executors.disk_bytes import ScratchFile

__all__ = ["DiskArray", "DiskSparse", "asked_rows"]

_LARGEST_INDEX = 2**31 - 1  # SciPy's small index type


def asked_rows(rows: Any, n_rows: int) -> slice | NDArray[np.intp]:
    """Which rows an index means: a slice within bounds and without a step, or row numbers in any order.

    ``(rows, ...)``, as scikit-learn writes it, means the rows; a mask of all rows means those that are true.
    """
    if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
        rows = rows[0]
    if isinstance(rows, slice):
        start, stop, step = rows.indices(n_rows)
        if step != 1:
            raise IndexError(f"expected rows without a step, got a step of {step}")
        return slice(start, max(start, stop))
    numbers = np.asarray(rows)
    if numbers.dtype == np.bool_ and numbers.shape == (n_rows,):
        return np.flatnonzero(numbers)
    inside = numbers.size == 0 or (
        numbers.dtype.kind in "iu" and 0 <= numbers.min() <= numbers.max() < n_rows
    )
    if numbers.ndim != 1 or not inside:
        raise IndexError(f"expected row numbers from 0 to {n_rows - 1}")
    return numbers.astype(np.intp, copy=False)


class DiskArray:
    """One row per item, (n, …), in a scratch file; the file goes when the object does.

    Parameters
    ----------
    n_rows : int
        Rows to be written; more may be appended.
    row : tuple of int
        Shape of a row.
    dtype : dtype
    folder : str or None
        Where the file is; None for the system's folder for temporary files.
    """

    is_sparse = False

    def __init__(
        self, n_rows: int, row: tuple[int, ...], dtype: DTypeLike, folder: str | None = None
    ) -> None:
        self._n_rows, self._row, self.dtype = n_rows, row, np.dtype(dtype)
        self._row_bytes = prod(row) * self.dtype.itemsize
        self._file = ScratchFile(folder)

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of a row."""
        return (self._n_rows, *self._row)

    def __len__(self) -> int:
        return self._n_rows

    def write(self, start: int, rows: NDArray[Any]) -> None:
        """Write rows (k, …) from row ``start`` on; several threads may, at different places."""
        block = np.ascontiguousarray(rows, self.dtype)
        if block.shape[1:] != self._row or start + len(block) > self._n_rows:
            raise ValueError(f"expected rows of {self.shape} from {start} on, got {block.shape}")
        self._file.write(_bytes_of(block), start * self._row_bytes)

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows (k, …) behind the last."""
        start = self._n_rows
        self._n_rows += len(rows)
        self.write(start, rows)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        asked = asked_rows(rows, self._n_rows)
        if not isinstance(asked, slice):
            return self._chosen(asked)
        values = np.empty((asked.stop - asked.start, *self._row), self.dtype)
        self._file.read(_bytes_of(values), asked.start * self._row_bytes)
        return values

    def _chosen(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        values = np.empty((len(rows), *self._row), self.dtype)
        target = _bytes_of(values)
        for place, row in enumerate(rows.tolist()):
            begin = place * self._row_bytes
            self._file.read(target[begin : begin + self._row_bytes], row * self._row_bytes)
        return values

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        """All rows in memory."""
        return self[:].astype(dtype or self.dtype, copy=False)


class DiskSparse:
    """One sparse row per item, (n, d), in three scratch files: values, columns and row starts.

    Rows are appended block by block, and come back as canonical CSR if they were appended so.

    Parameters
    ----------
    n_columns : int
    dtype : dtype
        Of the values.
    folder : str or None
        Where the files are; None for the system's folder for temporary files.
    """

    is_sparse = True

    def __init__(self, n_columns: int, dtype: DTypeLike = np.float32, folder: str | None = None) -> None:
        self._n_columns, self.dtype = n_columns, np.dtype(dtype)
        small = n_columns <= _LARGEST_INDEX
        self._values = DiskArray(0, (), dtype, folder)
        self._columns = DiskArray(0, (), np.int32 if small else np.int64, folder)
        self._starts = DiskArray(0, (), np.int64, folder)
        self._starts.append(np.zeros(1, np.int64))

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""
        return len(self._starts) - 1, self._n_columns

    @property
    def nnz(self) -> int:
        """Values that are kept."""
        return len(self._values)

    def append(self, block: sparse.csr_matrix) -> None:
        """Write sparse rows (k, d) of the same type behind the last."""
        if block.shape[1] != self._n_columns or block.dtype != self.dtype:
            raise ValueError(
                f"expected {self.dtype} rows of {self._n_columns} columns, got {block.dtype} {block.shape}"
            )
        starts = block.indptr[1:].astype(np.int64) + (self.nnz - int(block.indptr[0]))
        self._values.append(block.data)
        self._columns.append(block.indices)
        self._starts.append(starts)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> sparse.csr_matrix:
        asked = asked_rows(rows, self.shape[0])
        if not isinstance(asked, slice):
            return self._chosen(asked)
        starts = self._starts[asked.start : asked.stop + 1]
        inside = slice(int(starts[0]), int(starts[-1]))
        return self._matrix(self._values[inside], self._columns[inside], starts - starts[0])

    def _chosen(self, rows: NDArray[np.intp]) -> sparse.csr_matrix:
        begins, ends = self._starts[rows], self._starts[rows + 1]
        starts = np.concatenate([[0], np.cumsum(ends - begins)])
        parts = [slice(*ends) for ends in zip(begins.tolist(), ends.tolist(), strict=True)]
        values, columns = (
            np.concatenate([array[:0], *(array[part] for part in parts)])
            for array in (self._values, self._columns)
        )
        return self._matrix(values, columns, starts)

    def _matrix(
        self, values: NDArray[Any], columns: NDArray[Any], starts: NDArray[np.int64]
    ) -> sparse.csr_matrix:
        small = starts[-1] <= _LARGEST_INDEX
        starts = starts.astype(np.int32 if small else np.int64)
        return sparse.csr_matrix((values, columns, starts), shape=(len(starts) - 1, self._n_columns))


def _bytes_of(values: NDArray[Any]) -> memoryview:
    return values.reshape(-1).view(np.uint8).data
