"""What an algorithm over blocks asks of whoever goes through them.

Everything that a fit does with items is one of three things: a sum over blocks, new rows computed block by
block, or independent pieces of work. An algorithm that says which of the three it wants runs unchanged in the
threads of this process, with its rows in scratch files, or on the machines of a Ray cluster; and to the same
bytes, because blocks are cut (:mod:`crossbyte.blocks`), computed and added up in one way only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray
from scipy import sparse

__all__ = ["Executor", "TallArray", "TallSparse"]

Item = TypeVar("Item")
Result = TypeVar("Result")


class TallArray(Protocol):
    """One row per item, (n, …), wherever the rows are; a NumPy array is one.

    ``np.asarray`` brings all of them into memory.
    """

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of a row."""

    @property
    def dtype(self) -> Any:
        """Type of the values."""

    def __len__(self) -> int:
        """Rows."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        """Some rows, as a NumPy array."""


class TallSparse(Protocol):
    """One sparse row per item, (n, d), wherever the rows are; a CSR matrix is one."""

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns."""

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        """Some rows, as a CSR matrix."""


class Executor(Protocol):
    """Goes through blocks; a context, inside of which BLAS has one thread.

    Functions get a block of rows and return its part of the result. They change nothing, because they may run
    in another process, and again after a loss. No result depends on the executor.
    """

    n_jobs: int
    """pieces of work at the same time"""

    def __enter__(self) -> Self:
        """Begin to work."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and let go of what was kept for the work."""

    @property
    def local(self) -> Executor:
        """One that works here and in memory, for what is small: a sample, a query."""

    def hold(self, rows: Any) -> Any:
        """The same rows (dense, sparse, or stored) where the functions can reach them."""

    def map(self, function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
        """Yield ``function(item)`` in the order of the items."""

    def total(self, function: Callable[[slice], Any], n_rows: int) -> Any:
        """Sum ``function(block)``: over the blocks of each share, then over the shares, in order.

        The function returns an array, a number, or a tuple of these.
        """

    def rows(
        self,
        function: Callable[[slice], NDArray[Any]],
        n_rows: int,
        row: tuple[int, ...],
        dtype: DTypeLike,
        size: int | None = None,
    ) -> Any:
        """Collect ``function(block)``, the rows of a block, into a :class:`TallArray` (n_rows, *row).

        Blocks are the canonical ones, or of another size where rows are independent of each other.
        """

    def sparse_rows(self, function: Callable[[slice], sparse.csr_matrix], n_rows: int, n_columns: int) -> Any:
        """Collect the sparse rows of every canonical block into a :class:`TallSparse` (n_rows, n_columns)."""
