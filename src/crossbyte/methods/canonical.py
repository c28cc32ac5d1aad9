"""The space that all systems on canonical correlation share, so that they differ in their codes alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np

from crossbyte.arrays import Float32, Raw
from crossbyte.data.preparation import Preparation
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import LinearSpace, canonical_correlation, unit_rows
from crossbyte.methods.protocol import Method, Side
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.fitting import prepare
from crossbyte.model.parameters import Settings, canonical_settings, check_parameters
from crossbyte.validation import check_features, check_pairs, check_rows_agree

__all__ = ["Canonical", "CanonicalSpace", "blend", "space_settings"]


@dataclass(frozen=True, eq=False)
class CanonicalSpace:
    """Preparation and canonical directions of both sides; exactly those of ``CMCQ(mapping="cca")``."""

    preparations: dict[Side, Preparation]
    space: LinearSpace

    @classmethod
    def fit(cls, images: Raw, texts: Raw, settings: Settings, workers: Workers) -> CanonicalSpace:
        """Learn from checked pairs; fewer dimensions than asked for where the data have fewer.

        The settings are those of :func:`space_settings`.
        """
        settings = canonical_settings(settings, texts.shape[1])
        preparations, rows = prepare(settings, images, texts, workers)
        space = canonical_correlation(*rows, settings.n_components, settings.ridge, workers)
        return cls({"image": preparations[0], "text": preparations[1]}, space)

    @property
    def n_dims(self) -> int:
        """Dimensions of the space."""
        return self.space.n_dims

    def points(self, side: Side, rows: Any, workers: Workers) -> Float32:
        """Place raw features (n, d) of one side: (n, D) float32 of unit length, zero for an empty row."""
        raw = check_features(rows, f"{side}s", self.preparations[side].n_features)
        prepared = self.preparations[side].apply(raw, workers)
        place = self.space.transform_images if side == "image" else self.space.transform_texts
        return place(prepared, workers)


def space_settings(
    n_components: int | None, ridge: float | None, image_power: float = 1.0, text_power: float = 1.0
) -> Settings:
    """The estimator's own settings, checked by it, so that the two can never drift apart."""
    powers: dict[str, Any] = {"image_power": image_power, "text_power": text_power}
    return check_parameters(CMCQ(mapping="cca", n_components=n_components, ridge=ridge, **powers))


def blend(images: Float32, texts: Float32) -> Float32:
    """One point per document from the points (n, D) of its halves: their mean, at unit length."""
    return np.asarray(unit_rows((images + texts) / 2), dtype=np.float32)


@dataclass(kw_only=True)
class Canonical(Method):
    """A system that compares a query's point with items of the canonical space, in whatever way.

    Attributes
    ----------
    n_components : int or None
        Dimensions of the space; None for ``n_bits``, as the paper has it for its own, so that all systems of
        one length share one space. At most the rank of what the two sides share.
    ridge : float or None
        Added to every variance, in units of the side's mean variance; None for 1.
    image_power, text_power : float
        To which values are taken before centring, as CMCQ's may be: 0.5 for roots of histograms.
    """

    n_components: int | None = None
    ridge: float | None = None
    image_power: float = 1.0
    text_power: float = 1.0

    _space: CanonicalSpace | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        """Refuse wrong parameters before any work."""
        super().__post_init__()
        self._settings(self.n_components)

    def _settings(self, n_components: int | None) -> Settings:
        return space_settings(n_components, self.ridge, self.image_power, self.text_power)

    @property
    def details(self) -> dict[str, Any]:
        """``n_components``: the dimensions that the space has."""
        return {"n_components": self._fitted().n_dims}

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn the space from pairs, then whatever the codes need (:meth:`_learn_codes`)."""
        images, texts = check_pairs(images, texts)
        n_components = self.n_bits if self.n_components is None else self.n_components
        with Workers(self.n_jobs) as workers:
            space = CanonicalSpace.fit(images, texts, self._settings(n_components), workers)
            points = space.points("image", images, workers), space.points("text", texts, workers)
            self._learn_codes({"image": points[0], "text": points[1]}, workers)
        self._space = space
        return self

    def _learn_codes(self, points: dict[Side, Float32], workers: Workers) -> None:
        """Learn from the training points (N, D) of both sides, and keep their items."""
        raise NotImplementedError

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) float32 of the canonical space; queries are never coded."""
        with Workers(self.n_jobs) as workers:
            return self._fitted().points(side, rows, workers)

    def _blended(self, images: Any, texts: Any) -> Float32:
        """One point per document, of both its halves."""
        points = self.queries("image", images), self.queries("text", texts)
        check_rows_agree(*points)
        return blend(*points)

    def _fitted(self) -> CanonicalSpace:
        if self._space is None:
            raise self._unfitted()
        return self._space
