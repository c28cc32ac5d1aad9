"""What shards and the one who asks them say to each other: small, plain, and quick to send."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.errors import ClusterError
from crossbyte.search.ids import Id

__all__ = ["CellSummary", "CellSums", "Found", "ShardLost", "ShardUnopened", "Summary"]


class ShardLost(ClusterError):
    """A shard that was needed does not answer."""


class ShardUnopened(ShardLost):
    """A shard is there, but its file could not be opened.

    Attributes
    ----------
    cause : Exception
        Why.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(cause)
        self.cause = cause

    def __str__(self) -> str:
        return f"{type(self.cause).__name__}: {self.cause}"


class CellSummary(NamedTuple):
    """What of a shard's cells is known without asking.

    Attributes
    ----------
    digest : str
        Of the centres.
    directions : dict of (query, target) to (int, int)
        How many cells are visited, and how many there are.
    """

    digest: str
    directions: dict[tuple[str, str], tuple[int, int]]


class CellSums(NamedTuple):
    """What a shard adds to what is known of the cells of a side.

    Attributes
    ----------
    n_documents, n_added, added_distance
        As in :class:`crossbyte.search.cells.state.Side`.
    sizes : (cells,) int64
        Documents, not counting deleted ones, in each cell.
    """

    n_documents: int
    n_added: int
    added_distance: float
    sizes: NDArray[np.int64]


class Summary(NamedTuple):
    """What of a shard is known without asking it.

    Attributes
    ----------
    generation : int
        The one that the rest belongs to.
    next_number : int
        Above all document numbers of the shard.
    codings : dict of str to int
        How many documents, not counting deleted ones, have each coding.
    fields : dict of str to set of str
        Payload fields and their types.
    cells : CellSummary or None
    """

    generation: int
    next_number: int
    codings: dict[str, int]
    fields: dict[str, set[str]]
    cells: CellSummary | None = None

    @property
    def n_documents(self) -> int:
        """Documents that are not deleted."""
        return sum(self.codings.values())


class Found(NamedTuple):
    """The nearest documents of a shard for some queries, one query after another.

    Attributes
    ----------
    counts : list of int
        How many belong to each query.
    distances : (n,) float32
    numbers : (n,) int64
    codings : (n,) uint8
    ids : list of str or int
    groups : list of str, int or None, or None
        None unless they were asked for.
    seconds : float
        What the shard itself took; the rest of the time is that of asking.
    """

    counts: list[int]
    distances: Float32
    numbers: NDArray[np.int64]
    codings: NDArray[np.uint8]
    ids: list[Id]
    groups: list[Id | None] | None
    seconds: float = 0.0
