"""Define what every compared system looks like to the laboratory.

A system learns from pairs (and, if it says so, from labels of the training documents), turns queries of
either side into what its distance needs, and codes a database in a stated way. It never scores itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal, Self

from crossbyte._not_fitted import NotFitted
from crossbyte.arrays import Float32
from crossbyte.errors import InvalidInput

Side = Literal["image", "text"]
Coding = Literal["training", "side", "pair"]

INTRA_MODALITY = "intra-modality"
INTER_MODALITY = "inter-modality"
INTRA_DOCUMENT = "intra-document"
INTER_DOCUMENT = "inter-document"


@dataclass(frozen=True)
class About:
    """What a system declares of itself; the paper's Table 1 is made from this.

    Attributes
    ----------
    key : str
        Its name on the command line and of its file.
    name : str
        Its name in tables.
    source : str
        Who published it, where and when.
    relations : tuple of str
        Which relations between the data it learns from, in the order of Table 1.
    codes : {"unified", "separate", "none"}
        One code per document, one per half, or no code at all.
    coding : {"hash", "quantization", "none"}
    distance : {"hamming", "jaccard", "table", "exact"}
        How a query is compared with an item.
    similarities : tuple of str
        What it can be taught with, the default first: "pairs", "labels".
    in_paper : bool
        Whether the paper's Table 1 has a row for it.
    reconstructed : str
        What is ours where the source leaves a gap; empty where it leaves none.
    bit_step : int
        Lengths of code that it has: multiples of this. 8 where a code is made of whole bytes.
    """

    key: str
    name: str
    source: str
    relations: tuple[str, ...]
    codes: Literal["unified", "separate", "none"]
    coding: Literal["hash", "quantization", "none"]
    distance: Literal["hamming", "jaccard", "table", "exact"]
    similarities: tuple[str, ...] = ("pairs",)
    in_paper: bool = True
    reconstructed: str = ""
    bit_step: int = 1


@dataclass(kw_only=True)
class Method(ABC):
    """One system. Its parameters are the fields of the class; what it learns is not.

    Attributes
    ----------
    n_bits : int
        Length of a code.
    similarity : str or None
        What it is taught with; None for the first of ``about.similarities``.
    random_state : int
        The same seed, the same codes.
    n_jobs : int or None
        Threads; the result does not depend on it.
    """

    about: ClassVar[About]

    n_bits: int = 32
    similarity: str | None = None
    random_state: int = 0
    n_jobs: int | None = 1

    def __post_init__(self) -> None:
        """Refuse what the system cannot do, before any work."""
        if self.n_bits < 1:
            raise InvalidInput(f"n_bits must be at least 1; got {self.n_bits}")
        if self.n_bits % self.about.bit_step:
            raise InvalidInput(
                f"n_bits of {self.about.name} must be a multiple of {self.about.bit_step}; got {self.n_bits}"
            )
        known = self.about.similarities
        self.similarity = known[0] if self.similarity is None else self.similarity
        if self.similarity not in known:
            raise InvalidInput(
                f"{self.about.name} learns from {' or '.join(known)}; got similarity={self.similarity!r}"
            )

    @property
    def parameters(self) -> dict[str, Any]:
        """Everything the system was made with, but for length, seed and threads."""
        common = {"n_bits", "random_state", "n_jobs"}
        return {
            part.name: getattr(self, part.name)
            for part in fields(self)
            if part.init and part.name not in common
        }

    @property
    def details(self) -> Mapping[str, Any]:
        """What is worth keeping of a fit beside the scores: sizes of subsamples, quantization errors."""
        return {}

    @abstractmethod
    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from (N, d_I) images and (N, d_T) texts, dense or sparse, and (N, C) 0/1 labels if asked.

        Nothing that is passed in is written to. Labels are those of the training documents; a system that
        learns from pairs does not look at them.
        """

    def answers(self, asks: Side, searched: Side, coding: Coding) -> bool:
        """Whether it can compare queries of one side with items that are coded in this way.

        Nearly all systems always can. What one cannot answer is not asked of it; tables have a dash there.
        """
        return True

    @abstractmethod
    def queries(self, side: Side, rows: Any) -> Any:
        """Turn features (n, d) of one side into queries, row by row: an array or sparse matrix of n rows."""

    @abstractmethod
    def training_items(self, side: Side) -> Any:
        """Code the searched side of the training documents as learned: an array of N rows."""

    @abstractmethod
    def side_items(self, side: Side, rows: Any) -> Any:
        """Code documents of which only the searched side (n, d) is known: an array of n rows."""

    def pair_items(self, side: Side, images: Any, texts: Any) -> Any:
        """Code documents of which both sides are known, to be searched by ``side``.

        A system with separate codes knows no better than to code that side alone.
        """
        return self.side_items(side, images if side == "image" else texts)

    @abstractmethod
    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Distances (n, N) from queries of either kind to items coded for the searched ``side``."""

    def _not_fitted_error(self) -> NotFitted:
        """Make the error for a system of which something is asked before it has learned."""
        return NotFitted(f"{self.about.name} has not learned anything yet; call fit(images, texts) first")
