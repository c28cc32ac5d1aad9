"""Check the constructor's parameters and resolve them into the settings of a fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from crossbyte.data.preparation import MAX_GRAM_DIMS
from crossbyte.errors import InvalidInput
from crossbyte.model.quantization.collaborative import QuantizationWeights
from crossbyte.model.space.memory import MOST_PAIRS
from crossbyte.model.space.sparse import SparseWeights
from crossbyte.validation import check_choice, check_integer, check_number

if TYPE_CHECKING:
    from crossbyte.model.estimator import CMCQ

MAPPINGS = ("sparse", "cca", "contrastive", "joint", "auto")
QUERY_MAPS = ("paper", "ridge")
MAX_BITS = 512
SPARSE_IMAGE_COMPONENTS = 64  # the paper's PCA
IMAGE_COMPONENTS = 256
_FEWER_TEXT_COMPONENTS = 512  # only for texts too wide for canonical correlation
DEFAULT_RIDGE = 1.0  # of the mean variance, for points of unit length
LIKELIHOOD_RIDGE = 0.3  # where the choice of ridges begins, and ends with too few pairs to choose
JOINT_DIMS = 512  # encoders of a shared space have few more, and each dimension counts
LIKELIHOOD_DIMS = 128  # a coordinate without correlation does no harm there
_LONG_CODE = 8  # bytes that can tell of twice as many dimensions
_ROOT = 0.5
_ROWS_LOOKED_AT = 2_048
_NOT_JOINT = (
    "image_components",
    "text_components",
    "image_power",
    "text_power",
    "ridge",
    "text_ridge",
    "memory",
    "shared_codebooks",
)
SCORINGS = ("likelihood", "unit")
SHRINKAGE = 1.0  # of the codewords, where generalisation to unseen items counts; the paper has none


class Settings(NamedTuple):
    """All choices of one fit; what the fit itself chooses is said by ``open_ridges`` and ``open_powers``."""

    n_codebooks: int
    mapping: str
    n_components: int
    n_atoms: int
    image_components: int | None
    text_components: int | None
    ridge: float
    weights: SparseWeights
    quantization_weights: QuantizationWeights
    shared_codebooks: bool
    cross_term: str
    query_map: str
    max_iter: int
    tol: float
    image_power: float = 1.0
    text_power: float = 1.0
    text_ridge: float | None = None
    scoring: str = "unit"
    """how canonical spaces are scored: "likelihood" or "unit" length"""
    open_ridges: tuple[bool, bool] = (False, False)
    """whether the fit chooses the ridges of images and of texts on held-out pairs"""
    open_powers: tuple[bool, bool] = (False, False)
    """whether the fit may take roots of images and of texts"""
    memory: int = 0
    """pairs that are remembered, at most; after a fit, as many as are"""
    group_size: int = 1
    """rows of a group that was fitted, rounded; known where documents have one code"""
    memory_strength: float | None = None
    """β, what the memory counts; None where there is none, or the fit chooses it on held-out pairs"""
    paired: bool = True
    """whether row i of the images belongs to row i of the texts"""
    n_pairs: int = 0
    """where not all rows are pairs, the first rows of both sides that are"""
    refinement: tuple[float, float] | None = None
    """ridge and shrinkage by which pairs have moved a joint space; None where it is as encoders have it"""

    @property
    def one_code(self) -> bool:
        """Whether a document with both halves has one code."""
        return self.scoring == "likelihood"


class Trial(NamedTuple):
    """One setting that was tried, and what it scored on the held-out pairs."""

    params: dict[str, Any]
    score: float
    standard_error: float


def check_parameters(model: CMCQ) -> Settings:
    """Return the settings of a fit, or say which parameter is wrong."""
    n_codebooks = _check_bits(model.n_bits)
    mapping = check_choice(model.mapping, "mapping", MAPPINGS)
    is_sparse = mapping == "sparse"
    scoring = _check_scoring(model.scoring, mapping, model.shared_codebooks)
    likelihood, is_joint = scoring == "likelihood", mapping == "joint"
    canonical = likelihood and not is_joint
    if is_joint:
        _check_joint(model)
    components = SPARSE_IMAGE_COMPONENTS if is_sparse else default_components(n_codebooks, likelihood)
    if not isinstance(model.shared_codebooks, (bool, np.bool_)):
        raise InvalidInput(f"shared_codebooks: expected True or False, got {model.shared_codebooks!r}")
    if model.n_jobs is not None and check_integer(model.n_jobs, "n_jobs", -1) == 0:
        raise InvalidInput("n_jobs: expected a number of threads, or None or -1 for all cores, got 0")
    if model.callback is not None and not callable(model.callback):
        raise InvalidInput(f"callback: expected a function of one argument, got {model.callback!r}")
    return Settings(
        n_codebooks=n_codebooks,
        mapping=mapping,
        n_components=_check_optional(model.n_components, "n_components")
        or default_dims(n_codebooks, likelihood, is_joint),
        n_atoms=check_integer(model.n_atoms, "n_atoms", 1),
        image_components=None
        if is_joint
        else _check_optional(model.image_components, "image_components") or components,
        text_components=_check_optional(model.text_components, "text_components"),
        ridge=_default_ridge(likelihood) if model.ridge is None else check_number(model.ridge, "ridge", 0.0),
        weights=SparseWeights(
            check_number(model.sparsity, "sparsity", 0.0, open_low=True),
            check_number(model.text_weight, "text_weight", 0.0, open_low=True),
            check_number(model.alignment, "alignment", 0.0),
            check_choice(model.sparsity_mode, "sparsity_mode", ("absolute", "ratio")) == "ratio",
        ),
        quantization_weights=QuantizationWeights(
            check_number(model.correlation, "correlation", 0.0),
            check_number(model.cross_penalty, "cross_penalty", 0.0),
            0.0 if is_sparse else SHRINKAGE,
        ),
        shared_codebooks=bool(model.shared_codebooks),
        cross_term=check_choice(model.cross_term, "cross_term", ("constant", "stored")),
        query_map=check_choice(model.query_map, "query_map", QUERY_MAPS),
        max_iter=check_integer(model.max_iter, "max_iter", 1),
        tol=check_number(model.tol, "tol", 0.0),
        image_power=_check_power(model.image_power, "image_power"),
        text_power=_check_power(model.text_power, "text_power"),
        text_ridge=None if model.text_ridge is None else check_number(model.text_ridge, "text_ridge", 0.0),
        scoring=scoring,
        open_ridges=(
            canonical and model.ridge is None,
            canonical and model.ridge is None and model.text_ridge is None,
        ),
        open_powers=(canonical and model.image_power is None, canonical and model.text_power is None),
        memory=_check_memory(model.memory, canonical),
    )


def canonical_settings(settings: Settings, text_width: int) -> Settings:
    """The same with plain canonical correlation, prepared so that it can be fitted to any data."""
    settings = reduce_wide_texts(settings, text_width)
    components = max(settings.image_components or 0, IMAGE_COMPONENTS)
    return settings._replace(mapping="cca", scoring="unit", image_components=components)


def reduce_wide_texts(settings: Settings, text_width: int) -> Settings:
    """The same with fewer text components, where texts are too wide for canonical correlation."""
    if settings.text_components is not None or text_width <= MAX_GRAM_DIMS:
        return settings
    return settings._replace(text_components=_FEWER_TEXT_COMPONENTS)


def take_roots(settings: Settings, images: Any, texts: Any) -> Settings:
    """The same with the roots of features that are nowhere negative, where powers are open.

    Activations, histograms and counts are; of embeddings with signs, roots would blur what is small. Rows of
    words are left as they are: what is rare in them is weighed by their encoder.
    """
    image, text = (
        _ROOT if is_open and _is_dense_and_non_negative(rows) else power
        for is_open, rows, power in zip(
            settings.open_powers, (images, texts), (settings.image_power, settings.text_power), strict=True
        )
    )
    return settings._replace(image_power=image, text_power=text)


def _is_dense_and_non_negative(rows: Any) -> bool:
    """Look at rows in memory or on disk: at most 2,048, evenly over all."""
    if sparse.issparse(rows):
        return False
    some = rows[np.linspace(0, rows.shape[0] - 1, min(rows.shape[0], _ROWS_LOOKED_AT)).astype(np.intp)]
    return not sparse.issparse(some) and bool((some >= 0).all())


def default_dims(n_codebooks: int, one_code: bool, is_joint: bool = False) -> int:
    """Return the dimensions of the common space where none are given."""
    if is_joint:
        return JOINT_DIMS
    if not one_code:
        return 8 * n_codebooks
    return LIKELIHOOD_DIMS if n_codebooks < _LONG_CODE else 2 * LIKELIHOOD_DIMS


def default_components(n_codebooks: int, one_code: bool) -> int:
    """Return the principal components of images where none are given: long codes can tell of more."""
    return 2 * IMAGE_COMPONENTS if one_code and n_codebooks >= _LONG_CODE else IMAGE_COMPONENTS


def make_generator(random_state: Any) -> np.random.Generator:
    """Make the generator of a seed, or take one as it is."""
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(2**31))
    if isinstance(random_state, np.random.Generator):
        return random_state
    if random_state is not None:
        random_state = check_integer(random_state, "random_state", 0)
    return np.random.default_rng(random_state)


def _check_scoring(scoring: Any, mapping: str, shared_codebooks: bool) -> str:
    """Resolve the scoring: a canonical space has a likelihood, the others have points of unit length."""
    if mapping == "joint":
        if scoring not in (None, "likelihood"):
            raise InvalidInput(
                f"scoring: expected None or 'likelihood' with mapping='joint', got {scoring!r}"
            )
        return "likelihood"
    if scoring is None:
        return "likelihood" if mapping in ("cca", "auto") and not shared_codebooks else "unit"
    if check_choice(scoring, "scoring", SCORINGS) == "likelihood" and mapping not in ("cca", "auto"):
        raise InvalidInput(
            f"scoring: expected 'unit' with mapping={mapping!r}, got 'likelihood', which needs the "
            "canonical coordinates of mapping='cca'"
        )
    return str(scoring)


def _check_joint(model: CMCQ) -> None:
    """Refuse what would change rows before they are compared: a shared space is taken as it is."""
    for name in _NOT_JOINT:
        value = getattr(model, name)
        if value is not None and value is not False:
            raise InvalidInput(f"{name}: expected it left out with mapping='joint', got {value!r}")


def _check_memory(memory: Any, likelihood: bool) -> int:
    if memory is None:
        return MOST_PAIRS if likelihood else 0
    n_pairs = check_integer(memory, "memory", 0)
    if n_pairs and not likelihood:
        raise InvalidInput(
            f"memory: expected None or 0 where points have unit length, got {n_pairs}; it needs the "
            "canonical coordinates of scoring='likelihood'"
        )
    return n_pairs


def _default_ridge(likelihood: bool) -> float:
    return LIKELIHOOD_RIDGE if likelihood else DEFAULT_RIDGE


def _check_power(power: Any, name: str) -> float:
    return 1.0 if power is None else check_number(power, name, 0.0, 1.0, open_low=True)


def _check_bits(n_bits: Any) -> int:
    if check_integer(n_bits, "n_bits", 8, MAX_BITS) % 8:
        raise InvalidInput(f"n_bits: expected a multiple of 8 (one byte per codebook), got {n_bits}")
    return int(n_bits) // 8


def _check_optional(value: Any, name: str) -> int | None:
    return None if value is None else check_integer(value, name, 1)
