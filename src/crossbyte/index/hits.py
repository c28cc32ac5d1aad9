"""Hold the answers of a search, and documents, as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.index.docids import Id


class Hit(NamedTuple):
    """One found document."""

    id: Id
    distance: float
    payload: dict[str, Any] | None
    probability: float | None = None


@dataclass(frozen=True, eq=False)
class Hits:
    """The answer to one query, nearest first; never padded.

    Attributes
    ----------
    ids : list of str or int
    distances : (n,) float32
        Estimates of the squared Euclidean distance in the common space, or what ``rescore`` gave.
    numbers : (n,) int64
        Document numbers; equal distances are in their order.
    payloads : list of dict or None, or None
        None unless the search was asked for them.
    probabilities : (n,) float64 or None
        That a hit is the query's true partner, which at most one of the first ten is; None for a model that
        was not calibrated for this search.
    no_match : bool or None
        True where the probabilities of the first ten hits sum to too little, or the query says
        nothing (a text without a known word); None where that is not known.
    partial : bool
        Whether a shard of the index was lost, so that its documents are missing; never of a single file.
    """

    ids: list[Id]
    distances: Float32
    numbers: NDArray[np.int64]
    payloads: list[dict[str, Any] | None] | None = None
    probabilities: Float64 | None = None
    no_match: bool | None = None
    partial: bool = False
    _codings: NDArray[np.uint8] | None = None  # so that shards need not be asked again

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        nothing = [None] * len(self.ids)
        payloads = nothing if self.payloads is None else self.payloads
        probabilities = nothing if self.probabilities is None else self.probabilities.tolist()
        return map(Hit, self.ids, self.distances.tolist(), payloads, probabilities)

    def __repr__(self) -> str:
        shown = ", ".join(f"{hit.id!r}: {hit.distance:.4g}" for hit in list(self)[:5])
        return f"Hits({len(self)}: {shown}{', …' if len(self) > 5 else ''})"


@dataclass(frozen=True, eq=False)
class Document:
    """One document of an index.

    Attributes
    ----------
    id : str or int
    number : int
        Given at ``add``; it survives compaction.
    coding : {"training", "pair", "image", "text", "document"}
        What was known when it was coded; "document": both halves, in one code.
    payload : dict or None
    group : str, int or None
    image_code, text_code : (M,) uint8 or None
    document_code : (M,) uint8 or None
        The one code of both halves; then the other two are None.
    """

    id: Id
    number: int
    coding: str
    payload: dict[str, Any] | None
    group: Id | None
    image_code: Codes | None
    text_code: Codes | None
    document_code: Codes | None = None

    @property
    def sides(self) -> tuple[str, ...]:
        """Which of "image" and "text" it has."""
        codes = {"image": self.image_code, "text": self.text_code}
        return tuple(
            side for side, code in codes.items() if code is not None or self.document_code is not None
        )
