"""Run collaborative quantization (CMCQ) as a compared system, in all its settings; and CQ alone.

Nothing is computed here: :class:`crossbyte.CMCQ` learns, codes and measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import Units, apply_units
from crossbyte.lab.methods.additive import ModelMethod, SparseMapping, relative_error, table_distances
from crossbyte.lab.methods.cca import blend_points
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.lab.methods.regression import AnchorFeatures
from crossbyte.model.estimator import CMCQ
from crossbyte.model.fit import FittedModel, initialise_sparse, prepare_pairs
from crossbyte.model.objective import ObjectiveRecord, Problem, State
from crossbyte.model.params import Settings, canonical_settings, check_parameters, make_generator
from crossbyte.model.quantization.codebooks import beam_codebooks, mean_cross
from crossbyte.model.quantization.collaborative import Side as QuantizerSide
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.sparse import SparseSpace, SparseState
from crossbyte.model.training import alternate, initial_sides, quantization_blocks
from crossbyte.progress import ignore_progress
from crossbyte.validation import (
    check_choice,
    check_features,
    check_integer,
    check_number,
    check_pairs,
    check_rows_agree,
)


def about_cmcq(
    key: str,
    name: str,
    in_paper: bool,
    reconstructed: str,
    codes: Literal["unified", "separate"] = "separate",
) -> About:
    """Declare what all settings of CMCQ have in common, and what is their own."""
    return About(
        key=key,
        name=name,
        source="T. Zhang, J. Wang: Collaborative quantization for cross-modal similarity search. CVPR 2016",
        relations=(INTRA_DOCUMENT,),
        codes=codes,
        coding="quantization",
        distance="table",
        in_paper=in_paper,
        reconstructed=reconstructed,
        bit_step=8,
    )


@dataclass(kw_only=True)
class EstimatorMethod(ModelMethod):
    """An estimator as a compared system; every parameter of :class:`crossbyte.CMCQ` that applies is a field.

    Attributes
    ----------
    n_components, image_components, text_components : int or None
    image_power, text_power : float
        As for the estimator. Texts too wide for canonical correlation are reduced as for the other systems on
        it.
    max_iter : int
    tol : float
    """

    mapping: ClassVar[str]
    scoring: ClassVar[str | None] = None

    n_components: int | None = None
    image_components: int | None = None
    text_components: int | None = None
    image_power: float = 1.0
    text_power: float = 1.0
    max_iter: int = 10
    tol: float = 1e-4

    _model: CMCQ = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what the estimator would refuse, before any work."""
        super().__post_init__()
        check_parameters(self._estimator())

    def _estimator(self) -> CMCQ:
        return CMCQ(self.n_bits, mapping=self.mapping, scoring=self.scoring, **self._estimator_parameters())

    def _estimator_parameters(self) -> dict[str, Any]:
        """Seed, threads, and the fields that are parameters of the estimator."""
        chosen = {name: value for name, value in self.parameters.items() if name != "similarity"}
        return chosen | {"random_state": self.random_state, "n_jobs": self.n_jobs}

    def _learn(self, images: Raw, texts: Raw) -> FittedModel:
        self._model = self._estimator()
        if self.mapping != "sparse":
            settings = canonical_settings(check_parameters(self._model), texts.shape[1])
            self._model.set_params(text_components=settings.text_components)
        return self._model.fit(images, texts).fitted_


@dataclass(kw_only=True)
class PaperCMCQ(SparseMapping, EstimatorMethod):
    """The paper's method with the paper's constants where it gives them.

    Attributes
    ----------
    shared_codebooks : bool
        One set of codebooks for both sides (the paper's C = D).
    correlation : float
        γ, the pull between the codes of a pair; 0 quantizes the sides apart, as the paper's ablation does.
    cross_penalty : float
        μ, the penalty on cross terms that are not constant.
    cross_term : {"constant", "stored"}
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq",
        "CMCQ",
        True,
        "Whether ρ is absolute, the starts, the order of updates and the codes of unseen items are ours.",
    )
    mapping: ClassVar[str] = "sparse"

    shared_codebooks: bool = False
    correlation: float = 0.3
    cross_penalty: float = 0.1
    cross_term: str = "constant"

    def _estimator(self) -> CMCQ:
        return CMCQ.paper(self.n_bits, **self._estimator_parameters())


@dataclass(kw_only=True)
class CanonicalCMCQ(EstimatorMethod):
    """Collaborative quantization of the points of the canonical space, that of the systems named ``cca-``.

    Attributes
    ----------
    ridge, text_ridge : float or None
        Ridge of the canonical correlation; None for 1 and for the same, in units of a side's mean variance.
    shared_codebooks : bool
    correlation, cross_penalty : float
        γ and μ.
    cross_term : {"constant", "stored"}
        Stored by default: the quantizers it is compared with are given exact distances too.
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-cca", "CMCQ on CCA", False, "Canonical correlation instead of the paper's sparse mapping."
    )
    mapping: ClassVar[str] = "cca"
    scoring: ClassVar[str | None] = "unit"

    ridge: float | None = None
    text_ridge: float | None = None
    shared_codebooks: bool = False
    correlation: float = 1.0
    cross_penalty: float = 0.1
    cross_term: str = "stored"


@dataclass(kw_only=True)
class DefaultCMCQ(EstimatorMethod):
    """The estimator with its defaults: points scored by likelihood, and one code for a whole document.

    A training document, and a document of which both halves are known, has one code, whichever side is
    searched; one of which a single half is known is coded from that. All use one numbering of codewords, but
    what a code stands for depends on what it was made from, so an item is its scan code and one more byte: 1
    if it was made from both halves.

    Attributes
    ----------
    ridge, text_ridge : float or None
        Ridges of the canonical correlation, chosen on held-out pairs where they are None.
    cross_term : {"constant", "stored"}
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-default",
        "CMCQ, defaults",
        False,
        "A Gaussian model of the pair instead of the paper's mapping; one code of both halves.",
        "unified",
    )
    mapping: ClassVar[str] = "cca"
    scoring: ClassVar[str | None] = "likelihood"

    ridge: float | None = None
    text_ridge: float | None = None
    cross_term: str = "stored"

    def training_items(self, side: Side) -> Codes:
        """Codes of the training documents; the same for either ``side``."""
        learned = self._require_fitted()
        assert learned.document_codes is not None
        return self._mark_items("document", learned.document_codes)

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Codes of documents of which only the searched side is known."""
        learned, raw = self._require_fitted(), self._check_rows(side, rows)
        encode = learned.encode_images if side == "image" else learned.encode_texts
        with Workers(self.n_jobs) as workers:
            codes = encode(raw, workers)
        return self._mark_items(side, codes)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes of documents of which both halves are known; the same for either ``side``."""
        images, texts = self._check_rows("image", images), self._check_rows("text", texts)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            codes = self._require_fitted().encode_documents(images, texts, workers)
        return self._mark_items("document", codes)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Table distances (n, N) from points to items; what the likelihood adds to whole documents is in."""
        learned, whole = self._require_fitted(), items[:, -1] == 1
        distances = np.empty((len(queries), len(items)), dtype=np.float32)
        with Workers(self.n_jobs) as workers:
            for kind, rows, constant in (
                ("document", whole, learned.document_constant),
                (side, ~whole, 0.0),
            ):
                if rows.any():
                    codes = np.ascontiguousarray(items[rows, :-1])
                    found = table_distances(learned.quantizers[kind], queries, codes, workers)
                    distances[:, rows] = found + np.float32(constant)
        return distances

    def _mark_items(self, kind: str, codes: Codes) -> Codes:
        """Scan codes, each with the byte that says whether it is of a whole document."""
        with Workers(self.n_jobs) as workers:
            scanned = self._require_fitted().quantizers[kind].scan_codes(codes, workers)
        return np.column_stack([scanned, np.full(len(codes), kind == "document", dtype=np.uint8)])

    def _measure_errors(self, learned: FittedModel, images: Raw, texts: Raw) -> dict[str, float]:
        """What the one code of each training document loses, in the metric that it is made in."""
        quantizer = learned.document_quantizer
        assert quantizer is not None
        with Workers(self.n_jobs) as workers:
            points = learned.item_points(images, texts, workers)
            decoded = quantizer.to_coding(quantizer.decode(learned.image_codes, workers))
        return {"document": relative_error(points, decoded)}


@dataclass(kw_only=True)
class AutoCMCQ(DefaultCMCQ):
    """Powers, components, dimensions and ridges by what ranks partners of held-out training pairs first.

    No label is looked at, nor any query. ``n_components`` and the ridges are chosen where they are None.
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-auto",
        "CMCQ, chosen",
        False,
        "A Gaussian model of the pair, chosen on held-out training pairs; one code of both halves.",
        "unified",
    )
    mapping: ClassVar[str] = "auto"

    @property
    def details(self) -> dict[str, Any]:
        """As for all, and under ``chosen`` what was chosen of how many trials."""
        settings, model = self._require_fitted().settings, self._model
        chosen = {
            "n_components": model.n_components_,
            "image_components": settings.image_components,
            "image_power": settings.image_power,
            "text_power": settings.text_power,
            "ridge": settings.ridge,
            "text_ridge": settings.text_ridge,
            "n_trials": len(model.selection_),
        }
        return super().details | {"chosen": chosen}


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
        Width of the kernel, in units of the mean squared distance between training images.
    item : {"sides", "both", "text", "image"}
        What a document is coded by: one code of each half, one code of the middle of both halves' points, or
        one code of its text's or its image's point. With "text" *the image's code is the text's*: a search
        for images is then one for texts that have an image, and a document's image does not matter to it at
        all; "image" likewise. A document of which only one half is known is coded by that.

    Notes
    -----
    One code is learned by residual quantization on a beam, from the points that it codes; γ and μ do not
    matter to it. Held-out partners (protocol P) hardly tell what a document should be coded by where
    relevance is a class: they can only be found by what a code knows beyond it. Classes that the pairs show
    without labels (protocol L) do: on Wiki, whose texts fall into classes and whose images do not, they
    choose "text".
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
    item: str = "sides"

    _kernel: AnchorFeatures | None = field(init=False, repr=False, default=None)
    _n_image_features: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse what cannot be meant, before any work."""
        super().__post_init__()
        check_integer(self.anchors, "anchors", 2)
        check_number(self.width, "width", 0.0, open_low=True)
        check_choice(self.item, "item", ("sides", "both", "text", "image"))

    def _estimator(self) -> CMCQ:
        chosen = self._estimator_parameters()
        for own in ("anchors", "width", "image_power", "item"):
            del chosen[own]
        # All features are kept: unlike principal components, none of them is the first to go.
        chosen["image_components"] = self.anchors
        if self.item != "sides":
            chosen["max_iter"] = min(1, self.max_iter)  # codes of both sides are learned in vain
        return CMCQ(self.n_bits, mapping=self.mapping, scoring=self.scoring, **chosen)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn anchors, then as any; labels are not looked at."""
        images, texts = check_pairs(images, texts)
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            kernel = AnchorFeatures.fit(
                self._apply_power(images), self.anchors, rng, workers, unit=True, name="images"
            )
        self._kernel = replace(kernel, width=kernel.width * self.width)
        self._n_image_features = images.shape[1]
        return super().fit(self._kernel_features(images), texts)

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) float32 of features that come without their other half."""
        return super().queries(side, self._check_and_describe(rows) if side == "image" else rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes of documents folded in as pairs: of the searched side, or the one code of a document."""
        described = self._check_and_describe(images)
        if self.item == "sides":
            return super().pair_items(side, described, texts)
        raw = self._check_rows("text", texts)
        check_rows_agree(described, raw)
        learned = self._require_fitted()
        with Workers(self.n_jobs) as workers:
            points = self._item_points(learned, described, raw, workers)
            codes = learned.text_quantizer.encode(points, workers)
        return self._to_scan_codes(side, codes)

    def _learn(self, images: Raw, texts: Raw) -> FittedModel:
        """Learn the space and codes of both sides; for one code, the space is kept and the codes are not."""
        learned = super()._learn(images, texts)
        if self.item == "sides":
            return learned
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            points = self._item_points(learned, images, texts, workers)
            codewords = beam_codebooks(points, learned.settings.n_codebooks, rng, workers)
            quantizer = Quantizer(codewords.astype(np.float32), 0.0, 0.0, None)
            codes = quantizer.encode(points, workers)
            quantizer = replace(quantizer, epsilon=mean_cross(quantizer.codewords, codes, workers))
            one = replace(
                learned,
                image_quantizer=quantizer,
                text_quantizer=quantizer,
                image_codes=codes,
                text_codes=codes,
            )
            return one.with_cross_term(self.cross_term, workers)

    def _item_points(self, learned: FittedModel, images: Raw, texts: Raw, workers: Workers) -> Float32:
        """Points (n, D) that one code is made of, from kernel features and texts."""
        if self.item == "text":
            return learned.transform_texts(texts, workers)
        own = learned.transform_images(images, workers)
        return own if self.item == "image" else blend_points(own, learned.transform_texts(texts, workers))

    def _measure_errors(self, learned: FittedModel, images: Raw, texts: Raw) -> dict[str, float]:
        """As for two codes, or what the one code of each training document loses."""
        if self.item == "sides":
            return super()._measure_errors(learned, images, texts)
        with Workers(self.n_jobs) as workers:
            points = self._item_points(learned, images, texts, workers)
            decoded = learned.text_quantizer.decode(learned.text_codes, workers)
        return {"document": relative_error(points, decoded)}

    def _check_and_describe(self, images: Any) -> Float32:
        if self._kernel is None:
            raise self._not_fitted_error()
        return self._kernel_features(check_features(images, "images", self._n_image_features))

    def _kernel_features(self, images: Raw) -> Float32:
        """Kernel features of raw images, (n, anchors)."""
        assert self._kernel is not None
        return self._kernel.apply(self._apply_power(images)).astype(np.float32)

    def _apply_power(self, images: Raw) -> Raw:
        return apply_units(images, Units(self.image_power))


@dataclass(kw_only=True)
class CQ(SparseMapping, ModelMethod):
    """The paper's mapping learned to its end, then composite quantization of each side's points apart.

    That is CMCQ without γ and without the alternation between mapping and codes: with γ = 0 alone, CMCQ would
    still move the points towards their codes.

    Attributes
    ----------
    n_components : int or None
        Dimensions of the common space; None for ``n_bits``.
    image_components, text_components : int or None
        PCA before the mapping. None: images 64, texts off.
    cross_penalty : float
        μ, the penalty on cross terms that are not constant.
    cross_term : {"constant", "stored"}
    max_iter : int
        Largest number of rounds, of the mapping and of the quantizers.
    tol : float
    """

    about: ClassVar[About] = About(
        key="cq",
        name="CQ",
        source="T. Zhang, C. Du, J. Wang: Composite quantization for approximate nearest neighbor search. "
        "ICML 2014",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
        coding="quantization",
        distance="table",
        in_paper=False,
        reconstructed="It codes one modality; here the two sides of CMCQ's common space, each by itself.",
        bit_step=8,
    )

    n_components: int | None = None
    image_components: int | None = None
    text_components: int | None = None
    cross_penalty: float = 0.1
    cross_term: str = "constant"
    max_iter: int = 10
    tol: float = 1e-4

    def __post_init__(self) -> None:
        """Refuse wrong parameters before any work."""
        super().__post_init__()
        self._settings()

    def _settings(self) -> Settings:
        chosen = {name: value for name, value in self.parameters.items() if name != "similarity"}
        return check_parameters(CMCQ.paper(self.n_bits, correlation=0.0, n_jobs=self.n_jobs, **chosen))

    def _learn(self, images: Raw, texts: Raw) -> FittedModel:
        settings, rng = self._settings(), make_generator(self.random_state)
        with Workers(self.n_jobs) as workers:
            preparations, rows = prepare_pairs(settings, images, texts, workers)
            problem = Problem(*rows, settings.weights, settings.quantization_weights, workers)
            mapping = initialise_sparse(problem, settings, rng, ignore_progress)
            state, history = _quantize_sides(problem, mapping, settings, rng)
            space = SparseSpace.of(mapping, *rows, settings.weights, settings.query_map, workers)
            assert state.sides is not None
            image, text = state.sides
            weight = settings.quantization_weights.cross_penalty
            learned = FittedModel(
                settings,
                *preparations,
                space,
                _make_quantizer(image, weight),
                _make_quantizer(text, weight),
                image.codes,
                text.codes,
                history,
            )
            return learned.with_cross_term(settings.cross_term, workers)


def _make_quantizer(side: QuantizerSide, cross_penalty: float) -> Quantizer:
    return Quantizer(side.codewords.astype(np.float32), side.epsilon, cross_penalty, None)


def _quantize_sides(
    problem: Problem, mapping: SparseState, settings: Settings, rng: np.random.Generator
) -> tuple[State, list[ObjectiveRecord]]:
    """Both sides coded, the points left where they are."""
    start = initial_sides(problem, State(mapping), settings.n_codebooks, False, rng)
    blocks = quantization_blocks(shared=False)
    return alternate(problem, start, blocks, settings.max_iter, settings.tol, lambda record: None)
