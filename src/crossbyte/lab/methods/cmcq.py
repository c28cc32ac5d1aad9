"""Run collaborative quantization (CMCQ) as a compared system, in all its settings; and CQ alone.

Nothing is computed here: :class:`crossbyte.CMCQ` learns, codes and measures.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import Units, apply_units
from crossbyte.lab.methods.additive import ModelMethod, SparseMapping
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.lab.methods.regression import AnchorFeatures
from crossbyte.model.estimator import CMCQ
from crossbyte.model.fit import FittedModel, initialise_sparse, prepare_pairs
from crossbyte.model.objective import ObjectiveRecord, Problem, State
from crossbyte.model.params import Settings, canonical_settings, check_parameters, make_generator
from crossbyte.model.quantization.collaborative import Side as QuantizerSide
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.sparse import SparseSpace, SparseState
from crossbyte.model.training import alternate, initial_sides, quantization_blocks
from crossbyte.progress import ignore_progress
from crossbyte.validation import check_features, check_integer, check_number, check_pairs


def about_cmcq(key: str, name: str, in_paper: bool, reconstructed: str) -> About:
    """Declare what all settings of CMCQ have in common, and what is their own."""
    return About(
        key=key,
        name=name,
        source="T. Zhang, J. Wang: Collaborative quantization for cross-modal similarity search. CVPR 2016",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
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
    shared_codebooks : bool
        One set of codebooks for both sides (the paper's C = D).
    max_iter : int
    tol : float
    """

    mapping: ClassVar[str]

    n_components: int | None = None
    image_components: int | None = None
    text_components: int | None = None
    image_power: float = 1.0
    text_power: float = 1.0
    shared_codebooks: bool = False
    max_iter: int = 10
    tol: float = 1e-4

    _model: CMCQ = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse what the estimator would refuse, before any work."""
        super().__post_init__()
        check_parameters(self._estimator())

    def _estimator(self) -> CMCQ:
        chosen = {name: value for name, value in self.parameters.items() if name != "similarity"}
        same: dict[str, Any] = {"random_state": self.random_state, "n_jobs": self.n_jobs}
        return CMCQ(self.n_bits, mapping=self.mapping, **same, **chosen)

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

    correlation: float = 0.3
    cross_penalty: float = 0.1
    cross_term: str = "constant"


@dataclass(kw_only=True)
class CanonicalCMCQ(EstimatorMethod):
    """Collaborative quantization of the points of the canonical space, that of the systems named ``cca-``.

    Attributes
    ----------
    ridge, text_ridge : float or None
        Ridge of the canonical correlation; None for 1 and for the same, in units of a side's mean variance.
    correlation, cross_penalty : float
        γ and μ.
    cross_term : {"constant", "stored"}
        Stored by default: the quantizers it is compared with are given exact distances too.
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-cca", "CMCQ on CCA", False, "Canonical correlation instead of the paper's sparse mapping."
    )
    mapping: ClassVar[str] = "cca"

    ridge: float | None = None
    text_ridge: float | None = None
    correlation: float = 1.0
    cross_penalty: float = 0.1
    cross_term: str = "stored"


@dataclass(kw_only=True)
class AutoCMCQ(SparseMapping, EstimatorMethod):
    """Mapping, dimensions, ridge, γ, μ and cross term by what finds partners of held-out training pairs.

    No label is looked at, nor any query. The paper's mapping is among what is tried; ``n_components`` and
    ``ridge`` are chosen where they are None.

    Attributes
    ----------
    ridge : float or None
    """

    about: ClassVar[About] = about_cmcq(
        "cmcq-auto",
        "CMCQ, chosen",
        False,
        "What the paper fixes is chosen on held-out pairs of the training set.",
    )
    mapping: ClassVar[str] = "auto"

    ridge: float | None = None

    @property
    def details(self) -> dict[str, Any]:
        """As for all, and under ``chosen`` what was chosen of how many trials."""
        learned, model = self._require_fitted(), self._model
        chosen = {
            "mapping": model.mapping_,
            "n_components": model.n_components_,
            "ridge": model.ridge_,
            "correlation": model.correlation_,
            "cross_penalty": model.cross_penalty_,
            "cross_term": learned.settings.cross_term,
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
                self._apply_power(images), self.anchors, rng, workers, unit=True, name="images"
            )
        self._kernel = replace(kernel, width=kernel.width * self.width)
        self._n_image_features = images.shape[1]
        return super().fit(self._kernel_features(images), texts)

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, D) float32 of features that come without their other half."""
        return super().queries(side, self._check_and_describe(rows) if side == "image" else rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes of the searched side of documents folded in as pairs, each half knowing the other."""
        return super().pair_items(side, self._check_and_describe(images), texts)

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
        return check_parameters(CMCQ(self.n_bits, correlation=0.0, n_jobs=self.n_jobs, **chosen))

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
