"""Compared systems whose fit ends in a model of crossbyte's own kind: a common space and two quantizers."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.executors.threads import Workers
from crossbyte.methods.protocol import Method, Side
from crossbyte.methods.tables import table_distances
from crossbyte.model.learned import Learned
from crossbyte.validation import check_features, check_pairs, check_rows_agree

__all__ = ["FromModel", "SparseMapping"]


@dataclass(kw_only=True)
class SparseMapping:
    """Parameters of the paper's mapping, with the paper's values where it gives them.

    Attributes
    ----------
    n_atoms : int
        Atoms of the image dictionary.
    sparsity, text_weight, alignment : float
        ρ, η, λ.
    sparsity_mode : {"absolute", "ratio"}
    query_map : {"paper", "ridge"}
        How items without their other half are placed.
    """

    n_atoms: int = 512
    sparsity: float = 0.3
    text_weight: float = 0.7
    alignment: float = 0.7
    sparsity_mode: str = "absolute"
    query_map: str = "paper"


@dataclass(kw_only=True)
class FromModel(Method):
    """Queries are points of the common space, items scan codes.

    Scan codes are the codes themselves, and one more byte where the cross term is stored; that byte is a
    function of the others, so an index need not keep it. A subclass learns (:meth:`_learn`).
    """

    _learned: Learned | None = field(init=False, repr=False, default=None)
    _errors: dict[Side, float] = field(init=False, repr=False, default_factory=dict)

    @property
    def details(self) -> dict[str, Any]:
        """What a fit came to.

        ``n_components``; ``objective``, its final value; ``quantization_error`` of each side: the squares
        that the codes of the training points lose, over the squares of the points that their pairs are
        mapped to.
        """
        learned = self._fitted()
        return {
            "n_components": learned.settings.n_components,
            "objective": learned.history[-1].total,
            "quantization_error": dict(self._errors),
        }

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs; labels are not looked at."""
        images, texts = check_pairs(images, texts)
        learned = self._learned = self._learn(images, texts)
        with Workers(self.n_jobs) as workers:
            points = learned.fold_in(images, texts, workers)
        terms = learned.history[-1].terms
        self._errors = {
            "image": terms.image_quantization / _square(points[0]),
            "text": terms.text_quantization / _square(points[1]),
        }
        return self

    @abstractmethod
    def _learn(self, images: Raw, texts: Raw) -> Learned:
        """Learn from validated pairs."""

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) float32 of features that come without their other half."""
        learned, raw = self._fitted(), self._checked(side, rows)
        place = learned.transform_images if side == "image" else learned.transform_texts
        with Workers(self.n_jobs) as workers:
            return place(raw, workers)

    def training_items(self, side: Side) -> Codes:
        """Learned codes of one side of the training documents."""
        learned = self._fitted()
        return self._scanned(side, learned.image_codes if side == "image" else learned.text_codes)

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Codes of documents of which only the searched side is known."""
        points = self.queries(side, rows)
        with Workers(self.n_jobs) as workers:
            codes = self._fitted().quantizers[side].encode(points, workers)
        return self._scanned(side, codes)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes of the searched side of documents folded in as pairs, each half knowing the other."""
        images, texts = self._checked("image", images), self._checked("text", texts)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            codes = self._fitted().encode_pairs(images, texts, workers)
        return self._scanned(side, codes[0] if side == "image" else codes[1])

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Table distances (n, N) from points to scan codes of the searched ``side``."""
        with Workers(self.n_jobs) as workers:
            return table_distances(self._fitted().quantizers[side], queries, items, workers)

    def _scanned(self, side: Side, codes: Codes) -> Codes:
        with Workers(self.n_jobs) as workers:
            return self._fitted().quantizers[side].scan_codes(codes, workers)

    def _checked(self, side: Side, rows: Any) -> Raw:
        learned = self._fitted()
        preparation = learned.image_preparation if side == "image" else learned.text_preparation
        return check_features(rows, f"{side}s", preparation.n_features)

    def _fitted(self) -> Learned:
        if self._learned is None:
            raise self._unfitted()
        return self._learned


def _square(points: Float32) -> float:
    exact = points.astype(np.float64)
    return max(float(np.vdot(exact, exact)), np.finfo(float).tiny)
