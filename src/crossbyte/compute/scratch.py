"""Keep rows that do not fit into memory in scratch files, and compute over them with threads.

Nothing is ever mapped into memory: pages of a map count as memory of the process until the system takes them
back, and a bound on memory that holds only on paper is none.
"""

from __future__ import annotations

import errno
import os
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from crossbyte.compute.executor import Executor, Item, Result, Workers, empty_csr, row_blocks
from crossbyte.errors import StorageFailed, StorageFull

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LARGEST_INDEX = 2**31 - 1  # SciPy's small index type
_MEMORY_SHARE = 32  # of max_memory, for one array: a fit keeps some twenty arrays of rows at a time
_position_lock = threading.Lock()  # only for systems without pread, where a read moves the position


def read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    """Read bytes from an offset on until the buffer is full or the file ends; return how many.

    There is no position to share, so threads need not wait for each other.
    """
    done = 0
    while done < len(buffer):
        n_read = _read_some(descriptor, buffer[done:], offset + done)
        if not n_read:
            break
        done += n_read
    return done


def write_at(descriptor: int, buffer: memoryview, offset: int) -> None:
    """Write all bytes, from an offset on."""
    done = 0
    while done < len(buffer):
        done += _write_some(descriptor, buffer[done:], offset + done)


def _read_some(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    with _position_lock:  # Windows
        os.lseek(descriptor, offset, os.SEEK_SET)
        piece = os.read(descriptor, len(buffer))
    buffer[: len(piece)] = piece
    return len(piece)


def _write_some(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "pwrite"):
        return os.pwrite(descriptor, buffer, offset)
    with _position_lock:
        os.lseek(descriptor, offset, os.SEEK_SET)
        return os.write(descriptor, buffer)


def _default_folder() -> str:
    """Find the system's folder for temporary files; there is none where every disk that has one is full."""
    try:
        return tempfile.gettempdir()
    except FileNotFoundError as error:
        raise StorageFull(
            "scratch: expected a folder for temporary files with space in it, got none: each is full, or "
            "cannot be written to; nothing was changed; make space, or set TMPDIR to a folder that has some"
        ) from error


class ScratchFile:
    """A file without a name; the system takes its bytes back when nobody refers to it, even after a crash.

    Parameters
    ----------
    folder : str or None
        Where; None for the system's folder for temporary files, which ``TMPDIR`` names.
    """

    def __init__(self, folder: str | None = None) -> None:
        self._folder = folder or _default_folder()
        with self._explain_errors():
            file = tempfile.TemporaryFile(dir=self._folder, buffering=0)  # noqa: SIM115 - lives as long as we
        self._descriptor = file.fileno()
        weakref.finalize(self, file.close)

    def read(self, buffer: memoryview, offset: int) -> None:
        """Fill the buffer from an offset on."""
        with self._explain_errors():
            n_read = read_at(self._descriptor, buffer, offset)
        if n_read < len(buffer):
            raise StorageFailed(
                f"scratch folder {self._folder}: expected {len(buffer)} bytes at {offset} of a scratch file, "
                f"got {n_read}; look at the disk, then start again"
            )

    def write(self, buffer: memoryview, offset: int) -> None:
        """Write all bytes, from an offset on."""
        with self._explain_errors():
            write_at(self._descriptor, buffer, offset)

    @contextmanager
    def _explain_errors(self) -> Iterator[None]:
        """Raise errors of the system as errors that say what to do."""
        try:
            yield
        except OSError as error:
            why = error.strerror or type(error).__name__
            if error.errno in _DISK_FULL:
                raise StorageFull(
                    f"scratch folder {self._folder}: the disk is full ({why}); nothing was changed; make "
                    "space, or set TMPDIR to a folder with more, or raise max_memory to keep more in memory"
                ) from error
            raise StorageFailed(
                f"scratch folder {self._folder}: expected a folder to read and write scratch files in, but "
                f"the system failed ({why}); set TMPDIR to another one"
            ) from error


def resolve_rows(rows: Any, n_rows: int) -> slice | NDArray[np.intp]:
    """Resolve an index into a slice within bounds and without a step, or row numbers in any order.

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
        self._file.write(_view_bytes(block), start * self._row_bytes)

    def append(self, rows: NDArray[Any]) -> None:
        """Write rows (k, …) behind the last."""
        start = self._n_rows
        self._n_rows += len(rows)
        self.write(start, rows)

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> NDArray[Any]:
        wanted = resolve_rows(rows, self._n_rows)
        if not isinstance(wanted, slice):
            return self._take(wanted)
        values = np.empty((wanted.stop - wanted.start, *self._row), self.dtype)
        self._file.read(_view_bytes(values), wanted.start * self._row_bytes)
        return values

    def _take(self, rows: NDArray[np.intp]) -> NDArray[Any]:
        values = np.empty((len(rows), *self._row), self.dtype)
        target = _view_bytes(values)
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
        wanted = resolve_rows(rows, self.shape[0])
        if not isinstance(wanted, slice):
            return self._take(wanted)
        starts = self._starts[wanted.start : wanted.stop + 1]
        inside = slice(int(starts[0]), int(starts[-1]))
        return self._matrix(self._values[inside], self._columns[inside], starts - starts[0])

    def _take(self, rows: NDArray[np.intp]) -> sparse.csr_matrix:
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


def _view_bytes(values: NDArray[Any]) -> memoryview:
    return values.reshape(-1).view(np.uint8).data


class ScratchWorkers(Workers):
    """Threads that keep large rows in scratch files; the results are those of :class:`Workers`.

    Parameters
    ----------
    n_jobs : int or None
        Number of threads; None or -1 for all cores of this process.
    max_memory : int
        Bytes. Rows that would take more than a 32nd of it go to scratch files. What does not grow with the
        rows is not counted: the libraries, and some blocks of 4,096 rows for each thread.
    folder : str or None
        Where the files are; None for the system's folder for temporary files, which ``TMPDIR`` names.
    """

    def __init__(self, n_jobs: int | None, max_memory: int, folder: str | None = None) -> None:
        super().__init__(n_jobs)
        self._largest, self._folder = max_memory // _MEMORY_SHARE, folder

    def rows(
        self,
        function: Callable[[slice], NDArray[Any]],
        n_rows: int,
        row: tuple[int, ...],
        dtype: DTypeLike,
        size: int | None = None,
    ) -> Any:
        """Collect the rows of every block into one array (n_rows, *row), in memory or on disk."""
        if n_rows * prod(row) * np.dtype(dtype).itemsize <= self._largest:
            return super().rows(function, n_rows, row, dtype, size)
        values = DiskArray(n_rows, row, dtype, self._folder)
        self.each(lambda block: values.write(block.start, function(block)), n_rows, size)
        return values

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Collect the sparse rows of every canonical block; on disk once they have become too many."""
        parts = self.map(function, row_blocks(n_rows))
        kept, n_bytes = [], 0
        for part in parts:
            kept.append(part)
            n_bytes += part.data.nbytes + part.indices.nbytes + part.indptr.nbytes
            if n_bytes > self._largest:
                return self._move_to_disk(kept, parts)
        return sparse.vstack(kept, format="csr") if kept else empty_csr(n_columns)

    def _move_to_disk(self, kept: list[sparse.csr_matrix], more: Iterator[sparse.csr_matrix]) -> DiskSparse:
        """Write the parts kept so far, and those to come, to scratch files; ``kept`` is emptied."""
        values = DiskSparse(kept[0].shape[1], kept[0].dtype, self._folder)
        for part in kept:
            values.append(part)
        kept.clear()
        for part in more:
            values.append(part)
        return values

    @property
    def local(self) -> Executor:
        """The same threads, with everything in memory."""
        return _InMemory(self)


class _InMemory(Workers):
    """The threads of another executor, without its scratch files."""

    def __init__(self, threads: Workers) -> None:
        super().__init__(threads.n_jobs)
        self._of = threads

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items."""
        return self._of.map(function, items)
