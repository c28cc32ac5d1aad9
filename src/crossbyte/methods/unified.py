"""Hashing systems that give a document one code, made from both of its halves."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Raw
from crossbyte.executors.threads import Workers
from crossbyte.methods.hamming import Hashing, pack_signs
from crossbyte.methods.protocol import Side
from crossbyte.validation import check_features, check_pairs, check_rows_agree

__all__ = ["UnifiedHashing"]


@dataclass(kw_only=True)
class UnifiedHashing(Hashing):
    """A hashing system with one code per document, whichever side is searched.

    A subclass learns (:meth:`_learn`; where labels teach, :meth:`_train`) and gives the values whose signs
    are the bits, of one half alone (:meth:`_signs`) or of both (:meth:`_pair_signs`). All are called with
    validated features, inside the workers that they get.
    """

    _training_codes: Codes | None = field(init=False, repr=False, default=None)
    _widths: dict[Side, int] = field(init=False, repr=False, default_factory=dict)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs (and labels, where asked to), and keep the packed codes of the documents."""
        images, texts = check_pairs(images, texts)
        with Workers(self.n_jobs) as workers:
            self._training_codes = pack_signs(self._train(images, texts, labels, workers))
        self._widths = {"image": images.shape[1], "text": texts.shape[1]}
        return self

    def queries(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of features of one side."""
        raw = self._checked(side, rows)
        with Workers(self.n_jobs) as workers:
            return pack_signs(self._signs(side, raw, workers))

    def training_items(self, side: Side) -> Codes:
        """Packed codes (N, B) of the training documents, the same for both sides."""
        if self._training_codes is None:
            raise self._unfitted()
        return self._training_codes

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of documents of which only one side is known: those of queries."""
        return self.queries(side, rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Packed codes (n, B) of documents of which both sides are known, the same for both sides."""
        images, texts = self._checked("image", images), self._checked("text", texts)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            return pack_signs(self._pair_signs(images, texts, workers))

    def _train(self, images: Raw, texts: Raw, labels: Any, workers: Workers) -> NDArray[np.floating[Any]]:
        """Learn, and give the values (N, n_bits) of which the signs are the training documents' bits.

        Labels come as the caller gave them; here they are not looked at.
        """
        self._learn(images, texts, workers)
        return self._pair_signs(images, texts, workers)

    def _learn(self, images: Raw, texts: Raw, workers: Workers) -> None:
        """Learn from validated pairs."""
        raise NotImplementedError

    @abstractmethod
    def _signs(self, side: Side, rows: Raw, workers: Workers) -> NDArray[np.floating[Any]]:
        """Values (n, n_bits) of which the signs are the bits of one half alone."""

    @abstractmethod
    def _pair_signs(self, images: Raw, texts: Raw, workers: Workers) -> NDArray[np.floating[Any]]:
        """Values (n, n_bits) of which the signs are the bits of both halves together."""

    def _checked(self, side: Side, rows: Any) -> Raw:
        if not self._widths:
            raise self._unfitted()
        return check_features(rows, f"{side}s", self._widths[side])
