"""Threads whose rows may be larger than memory: the large ones are kept in scratch files."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from math import prod
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

from crossbyte.blocks import row_blocks
from crossbyte.executors.disk import DiskArray, DiskSparse
from crossbyte.executors.protocol import Executor, Item, Result
from crossbyte.executors.threads import Workers, no_rows

__all__ = ["ScratchWorkers"]


_SHARE = 32  # of max_memory; a fit keeps some twenty arrays of rows at a time


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
        self._largest, self._folder = max_memory // _SHARE, folder

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
                return self._on_disk(kept, parts)
        return sparse.vstack(kept, format="csr") if kept else no_rows(n_columns)

    def _on_disk(self, kept: list[sparse.csr_matrix], more: Iterator[sparse.csr_matrix]) -> DiskSparse:
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
