"""CMCQ on kernel canonical correlation: images by how near they are to a few hundred typical ones."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.data.preparation import Units, in_units
from crossbyte.executors.threads import Workers
from crossbyte.methods.anchors import AnchorFeatures
from crossbyte.methods.cmcq import CanonicalCMCQ, about_cmcq
from crossbyte.methods.protocol import About, Side
from crossbyte.model.cmcq import CMCQ
from crossbyte.validation import check_features, check_integer, check_number, check_pairs

__all__ = ["KernelCMCQ"]


@dataclass(kw_only=True)
class KernelCMCQ(CanonicalCMCQ):
    """Collaborative quantization in a canonical space of kernel features.

    Images are taken to a power, centred, brought to unit length, and described by a Gaussian kernel to
    k-means centres of the training images; then all is as in :class:`CanonicalCMCQ`. Such features follow
    the training pairs closely, so a training image is placed nearer to its text, and a query image where
    images like it have their texts.

    Attributes
    ----------
    anchors : int
        How many centres; at most as many as there are training images.
    width : float
        Of the kernel, in units of the mean squared distance between training images.
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-kernel",
        "CMCQ on kernel CCA",
        False,
        "Canonical correlation of kernel features of the images instead of the paper's sparse mapping.",
    )

    anchors: int = 500
    width: float = 0.5
    image_power: float = 0.5
    ridge: float | None = 0.03

    _kernel: AnchorFeatures | None = field(init=False, repr=False, default=None)
    _n_image_features: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before any work."""
        super().__post_init__()
        check_integer(self.anchors, "anchors", 2)
        check_number(self.width, "width", 0.0, open_low=True)

    def _estimator(self) -> CMCQ:
        own = {"similarity", "anchors", "width", "image_power", "image_components"}
        chosen = {name: value for name, value in self.parameters.items() if name not in own}
        same: dict[str, Any] = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        # All features are kept: unlike principal components, none of them is the first to go.
        return CMCQ(self.n_bits, mapping=self.mapping, image_components=self.anchors, **same, **chosen)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn anchors, then as any; labels are not looked at."""
        images, texts = check_pairs(images, texts)
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            kernel = AnchorFeatures.fit(
                self._powers(images), self.anchors, rng, workers, unit=True, name="images"
            )
        self._kernel = replace(kernel, width=kernel.width * self.width)
        self._n_image_features = images.shape[1]
        return super().fit(self._seen(images), texts)

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) float32 of features that come without their other half."""
        return super().queries(side, self._described(rows) if side == "image" else rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes of the searched side of documents folded in as pairs, each half knowing the other."""
        return super().pair_items(side, self._described(images), texts)

    def _described(self, images: Any) -> Float32:
        if self._kernel is None:
            raise self._unfitted()
        return self._seen(check_features(images, "images", self._n_image_features))

    def _seen(self, images: Raw) -> Float32:
        """Kernel features of raw images, (n, anchors)."""
        assert self._kernel is not None
        return self._kernel.apply(self._powers(images)).astype(np.float32)

    def _powers(self, images: Raw) -> Raw:
        return in_units(images, Units(self.image_power))
