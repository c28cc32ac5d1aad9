"""Document numbers in ascending order, in four bytes each, or in none where they have no gaps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Numbers"]

_STORED = {"numbers.32": "<u4", "numbers.64": "<u8"}


@dataclass(frozen=True, eq=False)
class Numbers:
    """Ascending numbers.

    Attributes
    ----------
    first : int
        The smallest.
    count : int
    steps : (count,) uint32 or uint64, or None
        What to add to ``first``; None: 0, 1, 2, …
    """

    first: int
    count: int
    steps: NDArray[Any] | None = None

    @classmethod
    def of(cls, values: NDArray[np.int64]) -> Numbers:
        """Keep ascending numbers."""
        if not len(values):
            return cls(0, 0)
        first, span = int(values[0]), int(values[-1] - values[0])
        if span == len(values) - 1:
            return cls(first, len(values))
        return cls(first, len(values), (values - first).astype(np.uint32 if span < 2**32 else np.uint64))

    @classmethod
    def join(cls, parts: Sequence[Numbers]) -> Numbers:
        """All numbers of the parts; each part lies above those before it."""
        filled = [part for part in parts if part.count]
        gapless = all(part.steps is None for part in filled) and all(
            left.first + left.count == right.first for left, right in zip(filled, filled[1:], strict=False)
        )
        if gapless:  # the usual case, and no array is ever made
            return cls(filled[0].first if filled else 0, sum(part.count for part in filled))
        return cls.of(np.concatenate([part[np.arange(part.count)] for part in filled]))

    def __getitem__(self, rows: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
        steps = rows if self.steps is None else self.steps[rows]
        return steps.astype(np.int64) + self.first

    @property
    def end(self) -> int:
        """One more than the largest."""
        return self.first + (self.count if self.steps is None else int(self.steps[-1]) + 1)

    def cut(self, rows: slice) -> Numbers:
        """Those of some rows that follow each other."""
        start, stop, _ = rows.indices(self.count)
        if self.steps is None:
            return Numbers(self.first + start, stop - start)
        return Numbers.of(self[np.arange(start, stop)])

    def find(self, values: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Give the rows of some numbers, and which of them are there at all."""
        wanted = values - self.first
        if self.steps is None:
            return wanted, (wanted >= 0) & (wanted < self.count)
        inside = (wanted >= 0) & (wanted <= int(self.steps[-1]))
        rows = np.searchsorted(self.steps, np.where(inside, wanted, 0).astype(self.steps.dtype))
        return rows.astype(np.int64), inside & (self.steps[rows] == wanted)

    @property
    def n_bytes(self) -> int:
        """Bytes in memory."""
        return 0 if self.steps is None else self.steps.nbytes

    def to_parts(self) -> dict[str, bytes]:
        """Give what goes into the file beside ``first`` and ``count``, by name."""
        if self.steps is None:
            return {}
        name = f"numbers.{8 * self.steps.itemsize}"
        return {name: self.steps.astype(_STORED[name]).tobytes()}

    @classmethod
    def from_parts(cls, first: int, count: int, parts: Mapping[str, bytes]) -> Numbers:
        """Take them back; ValueError where they do not fit together."""
        stored = [(dtype, parts[name]) for name, dtype in _STORED.items() if name in parts]
        if not stored:
            return cls(first, count)
        steps = np.frombuffer(stored[0][1], stored[0][0]).astype(np.int64)
        if len(steps) != count or count == 0 or steps[0] != 0 or (np.diff(steps) <= 0).any():
            raise ValueError("document numbers that do not ascend")
        return cls.of(steps + first)
