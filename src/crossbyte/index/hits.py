"""Hold the answers of a search, and documents, as users see them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.errors import MissingExtra
from crossbyte.index.docids import Id
from crossbyte.index.verdict import FoundBy, Verdict

if TYPE_CHECKING:
    import pandas


class Hit(NamedTuple):
    """One found document."""

    id: Id
    distance: float
    payload: dict[str, Any] | None
    probability: float | None = None
    strength: Verdict | None = None
    found_by: FoundBy | None = None


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
        Whether the verdict is "nothing"; None where there is none.
    partial : bool
        Whether a shard of the index was lost, so that its documents are missing; never of a single file.
    verdict : {"strong", "fair", "weak", "nothing"} or None
        How sure it is that anything here matches, from the likelihood ratios of the first ten hits and their
        words; "nothing" also for a query that says nothing (a text without a known word). None for a model
        that was not calibrated for this search.
    strengths : list of {"strong", "fair", "weak", "nothing"}, or None
        How sure every hit is; none is stronger than the verdict.
    found_by : list of {"words", "picture", "both"}, or None
        "words" for a hit that has words of the query (of those that not most documents have, if there are
        any), "both" if its vector is among the ten nearest, too, "picture" for a hit without such words. The
        same for any k; None where vectors were asked alone.
    unknown_words : list of str, or None
        Words of the query that no document has, as they were typed; None where words were not asked for. A
        gallery names for an index without words those that its built-in encoder has not learned.
    log_ratios : (n,) float64 or None
        Log-likelihood ratio of each distance: a partner's against any document's; None like probabilities.
    word_scores : (n,) float64 or None
        BM25 score of each hit's words, 0 without any; None where vectors were asked alone.
    """

    ids: list[Id]
    distances: Float32
    numbers: NDArray[np.int64]
    payloads: list[dict[str, Any] | None] | None = None
    probabilities: Float64 | None = None
    no_match: bool | None = None
    partial: bool = False
    verdict: Verdict | None = None
    strengths: list[Verdict] | None = None
    found_by: list[FoundBy] | None = None
    unknown_words: list[str] | None = None
    log_ratios: Float64 | None = None
    word_scores: Float64 | None = None
    _codings: NDArray[np.uint8] | None = None  # so that shards need not be asked again

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[Hit]:
        nothing = [None] * len(self.ids)
        payloads = nothing if self.payloads is None else self.payloads
        probabilities = nothing if self.probabilities is None else self.probabilities.tolist()
        strengths, found_by = self.strengths or nothing, self.found_by or nothing
        return map(Hit, self.ids, self.distances.tolist(), payloads, probabilities, strengths, found_by)

    def __getitem__(self, place: int) -> Hit:
        """Give the hit at a place; the nearest is at 0."""
        return list(self)[place]

    def to_pandas(self) -> pandas.DataFrame:
        """Make a table: a row for each hit, its payload's fields as columns behind those of :class:`Hit`.

        A field with the name of a column that is there already is called ``payload.`` and its name.

        Raises
        ------
        MissingExtra
            pandas is not installed.
        """
        try:
            import pandas
        except ImportError as error:
            raise MissingExtra("to_pandas needs pandas; install it with: pip install pandas") from error
        columns = [name for name in Hit._fields if name != "payload"]
        rows = []
        for hit in self:
            row = hit._asdict()
            payload = row.pop("payload") or {}
            rows.append(
                row | {f"payload.{key}" if key in row else key: each for key, each in payload.items()}
            )
        fields = dict.fromkeys(key for row in rows for key in row)
        return pandas.DataFrame(rows, columns=list(dict.fromkeys([*columns, *fields])))

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
