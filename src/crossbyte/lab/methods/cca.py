"""Compare items by canonical correlation (CCA): uncoded, or rotated by ITQ and cut to signs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np

from crossbyte.arrays import Codes, Float32, Float64, Raw
from crossbyte.compute.executor import TILE_ROWS, Workers, deterministic_product, sample_rows
from crossbyte.data.preparation import Preparation
from crossbyte.lab.methods.hashing import SeparateHashing, learn_rotation, pack_signs
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Method, Side
from crossbyte.model.estimator import CMCQ
from crossbyte.model.fit import prepare_pairs
from crossbyte.model.params import DEFAULT_RIDGE, Settings, canonical_settings, check_parameters
from crossbyte.model.space.cca import LinearSpace, canonical_correlation, unit_rows
from crossbyte.validation import check_features, check_integer, check_pairs, check_rows_agree


@dataclass(frozen=True, eq=False)
class CanonicalSpace:
    """Preparation and canonical directions of both sides; exactly those of ``CMCQ(scoring="unit")``."""

    preparations: dict[Side, Preparation]
    space: LinearSpace

    @classmethod
    def fit(cls, images: Raw, texts: Raw, settings: Settings, workers: Workers) -> CanonicalSpace:
        """Learn from checked pairs; fewer dimensions than asked for where the data have fewer.

        The settings are those of :func:`check_space_settings`.
        """
        settings = canonical_settings(settings, texts.shape[1])
        preparations, rows = prepare_pairs(settings, images, texts, workers)
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


def check_space_settings(
    n_components: int | None, ridge: float | None, image_power: float = 1.0, text_power: float = 1.0
) -> Settings:
    """Make the estimator's own settings, checked by it, so that the two can never drift apart."""
    powers: dict[str, Any] = {"image_power": image_power, "text_power": text_power}
    return check_parameters(
        CMCQ(mapping="cca", scoring="unit", n_components=n_components, ridge=ridge, **powers)
    )


def blend_points(images: Float32, texts: Float32) -> Float32:
    """One point per document from the points (n, D) of its halves: their mean, at unit length."""
    return np.asarray(unit_rows((images + texts) / 2), dtype=np.float32)


@dataclass(kw_only=True)
class CanonicalMethod(Method):
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
        return check_space_settings(n_components, self.ridge, self.image_power, self.text_power)

    @property
    def details(self) -> dict[str, Any]:
        """``n_components``: the dimensions that the space has."""
        return {"n_components": self._require_fitted().n_dims}

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
            return self._require_fitted().points(side, rows, workers)

    def _blend_sides(self, images: Any, texts: Any) -> Float32:
        """One point per document, of both its halves."""
        points = self.queries("image", images), self.queries("text", texts)
        check_rows_agree(*points)
        return blend_points(*points)

    def _require_fitted(self) -> CanonicalSpace:
        if self._space is None:
            raise self._not_fitted_error()
        return self._space


@dataclass(kw_only=True)
class CCA(CanonicalMethod):
    """Regularised canonical correlation, directions weighted by their correlations, points at unit length.

    Items are the points themselves, 4 bytes per dimension. ``n_bits`` only says which space: that of the
    coded systems of this length. A document of which both halves are known is one point blended of them:
    queried by a caption that was never indexed, that found 0.753 of the Flickr8k partners where the
    image's own point found 0.551 and that of two other captions 0.718.
    """

    about: ClassVar[About] = About(
        key="cca",
        name="CCA, uncompressed",
        source="H. Hotelling: Relations between two sets of variates. Biometrika 1936; with ridge",
        relations=(INTRA_DOCUMENT,),
        codes="none",
        coding="none",
        distance="exact",
        in_paper=False,
    )

    _training_points: dict[Side, Float32] = field(init=False, repr=False, default_factory=dict)

    def _learn_codes(self, points: dict[Side, Float32], workers: Workers) -> None:
        self._training_points = points

    def training_items(self, side: Side) -> Float32:
        """Points (N, D) of one side of the training documents."""
        self._require_fitted()
        return self._training_points[side]

    def side_items(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) of documents of which only the searched side is known."""
        return self.queries(side, rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Float32:
        """Points (n, D) blended of both halves; the same for either ``side``."""
        return self._blend_sides(images, texts)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Squared Euclidean distances (n, N)."""
        with Workers(self.n_jobs) as workers:
            return squared_distances(queries, items, workers)


def squared_distances(queries: Float32, items: Float32, workers: Workers) -> Float32:
    """Squared distances (n, N) float32 between rows; a query's do not depend on the others."""
    squares = np.einsum("nd,nd->n", items, items)
    distances = np.empty((len(queries), len(items)), dtype=np.float32)

    def fill(rows: slice) -> None:
        own = np.einsum("nd,nd->n", queries[rows], queries[rows])[:, None]
        distances[rows] = own + squares - 2 * deterministic_product(queries[rows], items.T)

    workers.each(fill, len(queries), TILE_ROWS)
    return distances


@dataclass(kw_only=True)
class CCAITQ(SeparateHashing):
    """Signs of the canonical points of :class:`CanonicalSpace`, rotated.

    One rotation serves both sides; it is learned from the points of both, of at most 20,000 documents. Where
    the space has fewer dimensions than a code has bits, the points are filled up with zeros
    (:mod:`crossbyte.lab.methods.hashing`). A document of which both halves are known is coded by its blended
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
        return check_space_settings(self.n_bits, self.ridge, self.image_power, self.text_power)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Packed codes (n, B) of points blended of both halves; the same for either ``side``."""
        self._check_fitted()
        with Workers(self.n_jobs) as workers:
            points = self._space.points("image", images, workers), self._space.points("text", texts, workers)
            check_rows_agree(*points)
            return pack_signs(self._rotate(blend_points(*points)))

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            self._space = CanonicalSpace.fit(images, texts, self._settings(), workers)
            points = self._space.points("image", images, workers), self._space.points("text", texts, workers)
        chosen = sample_rows(images.shape[0], rng)
        seen = [side if chosen is None else side[chosen] for side in points]
        values = np.concatenate(seen).astype(np.float64)
        self._rotation = learn_rotation(values, self.n_bits, rng, self.max_iter)

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        with Workers(self.n_jobs) as workers:
            return self._rotate(self._space.points(side, rows, workers))

    def _rotate(self, points: Float32) -> Float64:
        return deterministic_product(points.astype(np.float64), self._rotation)
