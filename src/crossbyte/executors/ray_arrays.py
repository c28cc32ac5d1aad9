"""Rows that lie in Ray's object store, one object per share, and functions that read them.

A function is sent without the rows that it reads: its task gets those of its own share as arguments. So Ray
can run it where they are, and bring them back by running their tasks again after a loss; and rows that
nobody reads any more are not kept only because later ones were computed from them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.blocks import SHARE_BLOCKS, row_blocks
from crossbyte.executors.threads import batched, no_rows

__all__ = ["RayArray", "RaySparse", "cut", "leaving_rows_out", "needed", "shares_at_hand"]


def cut(n_rows: int) -> list[list[slice]]:
    """The canonical blocks, share by share."""
    return list(batched(row_blocks(n_rows), SHARE_BLOCKS))


class _Shares:
    """Rows in shares, each of which is fetched when it is read."""

    def __init__(
        self, bounds: NDArray[np.intp], row: tuple[int, ...], dtype: Any, references: list[Any], fetch: Any
    ) -> None:
        self._bounds, self._row, self.references, self._fetch = bounds, row, references, fetch
        self.dtype = np.dtype(dtype)

    @classmethod
    def of(
        cls,
        blocks: Sequence[list[slice]],
        row: tuple[int, ...],
        dtype: Any,
        references: list[Any],
        fetch: Callable[[Any], Any],
    ) -> Self:
        """Rows of one share after another; ``fetch`` gets what a reference refers to."""
        bounds = np.array([0, *(share[-1].stop for share in blocks)], dtype=np.intp)
        return cls(bounds, row, dtype, references, fetch)

    def __reduce__(self) -> tuple[Any, ...]:
        rows = _left_out.get()
        if rows is None:
            return type(self), (self._bounds, self._row, self.dtype, self.references, self._fetch)
        at_hand = _AtHand(_place(self, rows))
        return type(self), (
            self._bounds,
            self._row,
            self.dtype,
            list(range(len(self.references))),
            at_hand.find,
        )

    @property
    def shape(self) -> tuple[int, ...]:
        """Rows, and the shape of a row."""
        return (int(self._bounds[-1]), *self._row)

    @property
    def ndim(self) -> int:
        """Axes."""
        return 1 + len(self._row)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice | NDArray[np.intp]) -> Any:
        if isinstance(rows, slice):
            return self._range(*rows.indices(len(self)))
        return self._chosen(np.asarray(rows))

    def numbers(self, start: int, stop: int) -> range:
        """Which shares hold these rows."""
        if start >= stop:
            return range(0)
        first, last = np.searchsorted(self._bounds, [start, stop - 1], side="right") - 1
        return range(int(first), int(last) + 1)

    def _range(self, start: int, stop: int, step: int) -> Any:
        if step != 1:
            return self._chosen(np.arange(start, stop, step))
        parts = []
        for number in self.numbers(start, stop):
            first, last = self._bounds[number : number + 2]
            parts.append(self._rows_of(number)[max(start - first, 0) : min(stop, last) - first])
        return self._joined(parts)

    def _chosen(self, rows: NDArray[np.intp]) -> Any:
        share = np.searchsorted(self._bounds, rows, side="right") - 1
        order = np.argsort(share, kind="stable")
        parts = [
            self._rows_of(int(number))[rows[share == number] - self._bounds[number]]
            for number in np.unique(share)
        ]
        joined = self._joined(parts)
        if (np.diff(share) >= 0).all():
            return joined
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return joined[back]

    def _rows_of(self, number: int) -> Any:
        return self._fetch(self.references[number])

    def _joined(self, parts: list[Any]) -> Any:
        raise NotImplementedError


class RayArray(_Shares):
    """Dense rows (n, …) in the object store; a :class:`~crossbyte.executors.protocol.TallArray`."""

    is_sparse = False

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        return np.asarray(np.array(self[:]), dtype=dtype)

    def _joined(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([np.empty((0, *self._row), dtype=self.dtype), *parts])


class RaySparse(_Shares):
    """Sparse rows (n, d) in the object store; a :class:`~crossbyte.executors.protocol.TallSparse`."""

    is_sparse = True

    def _joined(self, parts: list[Any]) -> Any:
        if len(parts) == 1:
            return parts[0]
        return sparse.vstack(parts, format="csr") if parts else no_rows(self._row[0]).astype(self.dtype)


# Functions on their way to a task


_left_out: ContextVar[list[_Shares] | None] = ContextVar("_left_out", default=None)
_at_hand: dict[tuple[int, int], Any] = {}  # by place and number; a worker process has one task at a time


@contextmanager
def leaving_rows_out() -> Iterator[list[_Shares]]:
    """Whatever is pickled meanwhile is pickled without its rows, which are listed here, by their places."""
    rows: list[_Shares] = []
    token = _left_out.set(rows)
    try:
        yield rows
    finally:
        _left_out.reset(token)


@contextmanager
def shares_at_hand(numbers: Sequence[tuple[int, int]], shares: Sequence[Any]) -> Iterator[None]:
    """Inside a task: these are the shares of the rows that were left out, by place and number."""
    _at_hand.update(zip(numbers, shares, strict=True))
    try:
        yield
    finally:
        _at_hand.clear()


def needed(rows: Sequence[_Shares], item: Any, n_rows: int | None) -> list[tuple[int, int]]:
    """Places and numbers of the shares that a function reads for an item: those of its blocks, or all.

    Of rows that are not those which the blocks count, nobody knows which are needed.
    """
    blocks = [item] if isinstance(item, slice) else item
    found = []
    for place, some in enumerate(rows):
        start, stop = 0, len(some)
        if _are_blocks(blocks) and n_rows in (None, stop):
            start, stop = blocks[0].start, min(blocks[-1].stop, stop)
        found += [(place, number) for number in some.numbers(start, stop)]
    return found


def _are_blocks(item: Any) -> bool:
    return isinstance(item, list) and bool(item) and all(isinstance(block, slice) for block in item)


def _place(rows: _Shares, known: list[_Shares]) -> int:
    for place, other in enumerate(known):
        if other is rows:
            return place
    known.append(rows)
    return len(known) - 1


class _AtHand(NamedTuple):
    """The shares of rows that were left out, inside a task."""

    place: int

    def find(self, number: int) -> Any:
        if (self.place, number) not in _at_hand:
            raise RuntimeError("a function over blocks has read rows outside of its block: please report it")
        return _at_hand[self.place, number]
