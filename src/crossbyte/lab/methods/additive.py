"""Share what systems with additive codes have: table distances, and models of crossbyte's own kind."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.compute.executor import Workers
from crossbyte.lab.methods.method import Method, Side
from crossbyte.model.fit import FittedModel
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.validation import check_features, check_pairs, check_rows_agree

_BLOCK_ENTRIES = 2**22  # distances computed at a time: 16 MB, and as much for the entries that are added


def table_distances(quantizer: Quantizer, points: Float32, scan_codes: Codes, workers: Workers) -> Float32:
    """Distances (n, N) from query points (n, D) to items given by their scan codes.

    The same sums as in a search, so that items with equal codes are at exactly equal distances, and a
    query's distances do not depend on the others.
    """
    distances = np.empty((len(points), len(scan_codes)), dtype=np.float32)

    def fill(rows: slice) -> None:
        distances[rows] = quantizer.table(points[rows]).distances(scan_codes)

    workers.each(fill, len(points), max(1, _BLOCK_ENTRIES // max(1, len(scan_codes))))
    return distances


def relative_error(points: NDArray[np.floating[Any]], decoded: NDArray[np.floating[Any]]) -> float:
    """Sum of squared distances from points to what their codes stand for, over the points' sum of squares."""
    exact = points.astype(np.float64)
    lost = exact - decoded
    return float(np.vdot(lost, lost) / max(float(np.vdot(exact, exact)), np.finfo(float).tiny))


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
class ModelMethod(Method):
    """Queries are points of the common space, items scan codes.

    Scan codes are the codes themselves, and one more byte where the cross term is stored; that byte is a
    function of the others, so an index need not keep it. A subclass learns (:meth:`_learn`).
    """

    _learned: FittedModel | None = field(init=False, repr=False, default=None)
    _errors: dict[str, float] = field(init=False, repr=False, default_factory=dict)

    @property
    def details(self) -> dict[str, Any]:
        """What a fit came to.

        ``n_components``; ``objective``, its final value; ``quantization_error`` of each side: the squares
        that the codes of the training points lose, over the squares of the points that their pairs are
        mapped to.
        """
        learned = self._require_fitted()
        return {
            "n_components": learned.settings.n_components,
            "objective": learned.history[-1].total,
            "quantization_error": dict(self._errors),
        }

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs; labels are not looked at."""
        images, texts = check_pairs(images, texts)
        learned = self._learned = self._learn(images, texts)
        self._errors = self._measure_errors(learned, images, texts)
        return self

    def _measure_errors(self, learned: FittedModel, images: Raw, texts: Raw) -> dict[str, float]:
        """Measure the quantization error of each side of the training pairs."""
        with Workers(self.n_jobs) as workers:
            points = learned.fold_in(images, texts, workers)
        terms = learned.history[-1].terms
        return {
            "image": terms.image_quantization / _squared_size(points[0]),
            "text": terms.text_quantization / _squared_size(points[1]),
        }

    @abstractmethod
    def _learn(self, images: Raw, texts: Raw) -> FittedModel:
        """Learn from validated pairs."""

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) float32 of features that come without their other half."""
        learned, raw = self._require_fitted(), self._check_rows(side, rows)
        place = learned.transform_images if side == "image" else learned.transform_texts
        with Workers(self.n_jobs) as workers:
            return place(raw, workers)

    def training_items(self, side: Side) -> Codes:
        """Learned codes of one side of the training documents."""
        learned = self._require_fitted()
        return self._to_scan_codes(side, learned.image_codes if side == "image" else learned.text_codes)

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Codes of documents of which only the searched side is known."""
        points = self.queries(side, rows)
        with Workers(self.n_jobs) as workers:
            codes = self._require_fitted().quantizers[side].encode(points, workers)
        return self._to_scan_codes(side, codes)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes of the searched side of documents folded in as pairs, each half knowing the other."""
        images, texts = self._check_rows("image", images), self._check_rows("text", texts)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            codes = self._require_fitted().encode_pairs(images, texts, workers)
        return self._to_scan_codes(side, codes[0] if side == "image" else codes[1])

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Table distances (n, N) from points to scan codes of the searched ``side``."""
        with Workers(self.n_jobs) as workers:
            return table_distances(self._require_fitted().quantizers[side], queries, items, workers)

    def _to_scan_codes(self, side: Side, codes: Codes) -> Codes:
        with Workers(self.n_jobs) as workers:
            return self._require_fitted().quantizers[side].scan_codes(codes, workers)

    def _check_rows(self, side: Side, rows: Any) -> Raw:
        learned = self._require_fitted()
        preparation = learned.image_preparation if side == "image" else learned.text_preparation
        return check_features(rows, f"{side}s", preparation.n_features)

    def _require_fitted(self) -> FittedModel:
        if self._learned is None:
            raise self._not_fitted_error()
        return self._learned


def _squared_size(points: Float32) -> float:
    exact = points.astype(np.float64)
    return max(float(np.vdot(exact, exact)), np.finfo(float).tiny)
