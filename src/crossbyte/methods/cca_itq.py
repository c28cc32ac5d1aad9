"""Canonical correlation, turned by iterative quantization, cut to signs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from crossbyte.arrays import Codes, Float32, Float64, Raw
from crossbyte.blocks import sample_rows, steady_product
from crossbyte.executors.threads import Workers
from crossbyte.methods.canonical import CanonicalSpace, blend, space_settings
from crossbyte.methods.hamming import SeparateHashing, pack_signs
from crossbyte.methods.itq import learn_rotation
from crossbyte.methods.protocol import INTRA_DOCUMENT, About, Side
from crossbyte.model.parameters import DEFAULT_RIDGE, Settings
from crossbyte.validation import check_integer, check_rows_agree

__all__ = ["CCAITQ"]


@dataclass(kw_only=True)
class CCAITQ(SeparateHashing):
    """Signs of the canonical points of :class:`~crossbyte.methods.canonical.CanonicalSpace`, rotated.

    One rotation serves both sides; it is learned from the points of both, of at most 20,000 documents. Where
    the space has fewer dimensions than a code has bits, the points are filled up with zeros
    (:mod:`crossbyte.methods.itq`). A document of which both halves are known is coded by its blended
    point.

    Attributes
    ----------
    ridge : float
        Added to every variance, in units of the side's mean variance.
    image_power, text_power : float
        To which values are taken before centring, as CMCQ's may be.
    max_iter : int
        Rounds of iterative quantization.
    """

    about: ClassVar[About] = About(
        key="cca-itq",
        name="CCA-ITQ",
        source="Y. Gong, S. Lazebnik, A. Gordo, F. Perronnin: Iterative quantization. TPAMI 2013",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
        coding="hash",
        distance="hamming",
        in_paper=False,
        reconstructed="codes longer than the space has dimensions: points are filled up with zeros",
    )

    ridge: float = DEFAULT_RIDGE
    image_power: float = 1.0
    text_power: float = 1.0
    max_iter: int = 50

    _space: CanonicalSpace = field(init=False, repr=False)
    _rotation: Float64 = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        self._settings()
        check_integer(self.max_iter, "max_iter", 0)

    def _settings(self) -> Settings:
        return space_settings(self.n_bits, self.ridge, self.image_power, self.text_power)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Packed codes (n, B) of points blended of both halves; the same for either ``side``."""
        self._check_fitted()
        with Workers(self.n_jobs) as workers:
            points = self._space.points("image", images, workers), self._space.points("text", texts, workers)
            check_rows_agree(*points)
            return pack_signs(self._turned(blend(*points)))

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            self._space = CanonicalSpace.fit(images, texts, self._settings(), workers)
            points = self._space.points("image", images, workers), self._space.points("text", texts, workers)
        chosen = sample_rows(images.shape[0], rng)
        seen = [side if chosen is None else side[chosen] for side in points]
        values = np.concatenate(seen).astype(np.float64)
        self._rotation = learn_rotation(values, self.n_bits, rng, self.max_iter)

    def _signs(self, side: Side, rows: Raw) -> Float64:
        with Workers(self.n_jobs) as workers:
            return self._turned(self._space.points(side, rows, workers))

    def _turned(self, points: Float32) -> Float64:
        return steady_product(points.astype(np.float64), self._rotation)
