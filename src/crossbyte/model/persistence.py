"""Turn a fitted model and its encoders into named arrays and a JSON document, and back.

Nothing in them depends on the machine, the time or the threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.data.preparation import Preparation
from crossbyte.encoders.base import SIDES, EncoderState
from crossbyte.errors import DamagedModelFile, InvalidInput
from crossbyte.model.fit import FittedModel
from crossbyte.model.objective import Objective, ObjectiveRecord
from crossbyte.model.params import MAPPINGS, MAX_BITS, QUERY_MAPS, SCORINGS, Settings
from crossbyte.model.quantization.collaborative import QuantizationWeights
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.cca import LinearSpace
from crossbyte.model.space.gaussian import GaussianSpace
from crossbyte.model.space.memory import PairMemory
from crossbyte.model.space.sparse import SparseSpace, SparseWeights

Arrays = Mapping[str, NDArray[Any]]
EncoderStates = Mapping[str, EncoderState]
_SPARSE_ARRAYS = ("image_dictionary", "text_basis", "image_map", "image_ridge", "text_ridge")
_LINEAR_ARRAYS = ("image_matrix", "text_matrix")
_GAUSSIAN_ARRAYS = (
    "image_matrix",
    "text_matrix",
    "correlations",
    "query_scales",
    "coding_metric",
    "document_weights",
)
_MEMORY_ARRAYS = ("images", "texts", "slopes")
_SPACE_ARRAYS = {
    SparseSpace: _SPARSE_ARRAYS,
    LinearSpace: _LINEAR_ARRAYS,
    GaussianSpace: _GAUSSIAN_ARRAYS,
}
_PAPER_TERMS = len(Objective._fields) - 1  # without that of documents
# What numbers a model may hold, so that no sum of a search overflows. Those of fits stay below 1e6.
_LARGEST = 1e30  # products of several are far from the largest of float64
_FARTHEST = 1e15  # of query points, whose squares are summed in float32
_LONGEST = 1e12  # of what codes decode to: its square, and that times 2 M, in float32
_LARGEST_PENALTY = 1e36
_MOST = 2**31 - 1
_ENCODER_FIELDS = ("kind", "name", "dimension", "fingerprint", "settings")


# The fitted model


def model_contents(learned: FittedModel) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the JSON document of what was learned."""
    arrays: dict[str, NDArray[Any] | None] = {
        "image_codes": learned.image_codes,
        "history": _history_array(learned),
    }
    arrays |= {f"space.{name}": getattr(learned.space, name) for name in _SPACE_ARRAYS[type(learned.space)]}
    if isinstance(learned.space, GaussianSpace) and learned.space.memory is not None:
        arrays |= {f"memory.{name}": getattr(learned.space.memory, name) for name in _MEMORY_ARRAYS}
    document: dict[str, Any] = {
        "settings": _settings_document(learned.settings),
        "history": [[record.round, record.block] for record in learned.history],
    }
    for side, preparation in (("image", learned.image_preparation), ("text", learned.text_preparation)):
        arrays[f"{side}.mean"] = preparation.mean
        arrays[f"{side}.components"] = preparation.components
        document[f"{side}.scale"] = preparation.scale
    document_quantizer = learned.document_quantizer
    if document_quantizer is not None:
        half = learned.image_quantizer
        arrays |= {
            "image.words": half.codewords,
            "image.coding_scales": half.coding_scales,
            "document.words": document_quantizer.codewords,
            "document.coding_scales": document_quantizer.coding_scales,
            "image.cross_levels": half.cross_levels,
            "document.cross_levels": document_quantizer.cross_levels,
        }
        document["image.epsilon"] = half.epsilon
        document["document.epsilon"] = document_quantizer.epsilon
        document["document.constant"] = learned.document_constant
        if learned.settings.mapping == "joint":
            text = learned.text_quantizer
            arrays |= {
                "text.words": text.codewords,
                "text.coding_scales": text.coding_scales,
                "text.cross_levels": text.cross_levels,
                "text_codes": None if learned.settings.paired else learned.text_codes,
            }
            document["text.epsilon"] = text.epsilon
        return {name: array for name, array in arrays.items() if array is not None}, document
    arrays["text_codes"] = learned.text_codes
    for side, quantizer in (("image", learned.image_quantizer), ("text", learned.text_quantizer)):
        arrays[f"{side}.words"] = quantizer.codewords
        arrays[f"{side}.cross_levels"] = quantizer.cross_levels
        document[f"{side}.epsilon"] = quantizer.epsilon
    return {name: array for name, array in arrays.items() if array is not None}, document


def restore_model(arrays: Arrays, document: Mapping[str, Any], name: str) -> FittedModel:
    """Rebuild what was learned; a file that is whole but inconsistent is refused as damaged."""
    try:
        learned = _restore_parts(arrays, document)
        _check_shapes(learned, arrays)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
        raise DamagedModelFile(f"{name}: the parts of the model do not fit together ({error})") from error
    return learned


def _history_array(learned: FittedModel) -> NDArray[Any]:
    """Write the terms of every record; those of documents only where these have a code of their own."""
    terms = np.array([record.terms for record in learned.history])
    return terms if learned.has_document_codes else np.ascontiguousarray(terms[:, :_PAPER_TERMS])


def _restore_parts(arrays: Arrays, document: Mapping[str, Any]) -> FittedModel:
    settings = _restore_settings(document["settings"])
    image = _restore_quantizer(arrays, document, "image", settings)
    one, joint = settings.one_code, settings.mapping == "joint"
    _require(joint or settings.paired, "no pairs without a space that encoders share")
    return FittedModel(
        settings=settings,
        image_preparation=_restore_preparation(arrays, document, "image", settings),
        text_preparation=_restore_preparation(arrays, document, "text", settings),
        space=_restore_space(arrays, settings),
        image_quantizer=image,
        text_quantizer=image if one and not joint else _restore_quantizer(arrays, document, "text", settings),
        image_codes=arrays["image_codes"],
        text_codes=arrays["image_codes" if one and settings.paired else "text_codes"],
        document_quantizer=_restore_quantizer(arrays, document, "document", settings) if one else None,
        document_constant=_number(document["document.constant"]) if one else 0.0,
        history=[
            ObjectiveRecord(number, block, Objective(*terms))
            for (number, block), terms in zip(document["history"], arrays["history"].tolist(), strict=True)
        ],
    )


def _settings_document(settings: Settings) -> dict[str, Any]:
    # Fields that came later are written only if they are changed, so that older versions can read the file.
    usual = {name for name, value in Settings._field_defaults.items() if getattr(settings, name) == value}
    document = {name: value for name, value in settings._asdict().items() if name not in usual}
    del document["quantization_weights"]  # "pull" in the file
    return document | {"weights": settings.weights._asdict(), "pull": settings.quantization_weights._asdict()}


def _restore_settings(document: Mapping[str, Any]) -> Settings:
    plain = {name: value for name, value in document.items() if name not in ("weights", "pull")}
    if plain.get("refinement") is not None:
        plain["refinement"] = tuple(plain["refinement"])
    weights, pull = SparseWeights(**document["weights"]), QuantizationWeights(**document["pull"])
    settings = Settings(**plain, weights=weights, quantization_weights=pull)
    _check_settings(settings)
    return settings


_COUNTS = {  # name: (least, most)
    "n_codebooks": (1, MAX_BITS // 8),
    "n_components": (1, _MOST),
    "n_atoms": (1, _MOST),
    "max_iter": (1, _MOST),
    "memory": (0, _MOST),
    "group_size": (1, _MOST),
    "n_pairs": (0, _MOST),
}
_OPTIONAL_COUNTS = ("image_components", "text_components")
_AMOUNTS = ("ridge", "tol")
_OPTIONAL_AMOUNTS = ("text_ridge", "memory_strength")
_CHOICES = {
    "mapping": set(MAPPINGS) - {"auto"},
    "scoring": set(SCORINGS),
    "cross_term": {"constant", "stored"},
    "query_map": set(QUERY_MAPS),
}


def _check_settings(settings: Settings) -> None:
    """Refuse settings that no fit has: of another type, or outside of their bounds."""
    given = settings._asdict()
    for name, (least, most) in _COUNTS.items():
        _require(type(given[name]) is int and least <= given[name] <= most, f"{name} is {given[name]!r}")
    for name in _OPTIONAL_COUNTS:
        is_count = type(given[name]) is int and 1 <= given[name] <= _MOST
        _require(given[name] is None or is_count, f"{name} is {given[name]!r}")
    amounts = [(name, given[name]) for name in _AMOUNTS]
    amounts += [(name, given[name]) for name in _OPTIONAL_AMOUNTS if given[name] is not None]
    amounts += [*settings.quantization_weights._asdict().items()]
    amounts += [pair for pair in settings.weights._asdict().items() if pair[0] != "ratio"]
    amounts += [("refinement", each) for each in settings.refinement or ()]
    for name, amount in amounts:
        _require(0 <= _number(amount) <= _LARGEST, f"{name} is {amount!r}")
    for name in ("image_power", "text_power"):
        _require(0 < _number(given[name]) <= 1, f"{name} is {given[name]!r}")
    for name, choices in _CHOICES.items():
        _require(given[name] in choices, f"{name} is {given[name]!r}")
    flags = (settings.shared_codebooks, settings.paired, settings.weights.ratio)
    _require(all(type(flag) is bool for flag in flags), "a choice that is neither true nor false")


def _number(value: Any) -> float:
    """Return a finite number of the document."""
    _require(type(value) in (int, float) and bool(np.isfinite(float(value))), f"{value!r} for a number")
    return float(value)


def _restore_preparation(
    arrays: Arrays, document: Mapping[str, Any], side: str, settings: Settings
) -> Preparation:
    mean, components = arrays[f"{side}.mean"], arrays.get(f"{side}.components")
    power = settings.image_power if side == "image" else settings.text_power
    scale = _number(document[f"{side}.scale"])
    _require(scale > 0, f"features times {scale!r}")
    return Preparation(scale, mean, components, power, settings.mapping == "joint")


def _restore_space(arrays: Arrays, settings: Settings) -> SparseSpace | LinearSpace | GaussianSpace:
    if settings.one_code:
        named = {name: arrays[f"space.{name}"] for name in _GAUSSIAN_ARRAYS}
        return GaussianSpace(**named, memory=_restore_memory(arrays, settings, named["correlations"]))
    if settings.mapping != "sparse":
        return LinearSpace(*(arrays[f"space.{name}"] for name in _LINEAR_ARRAYS))
    B, U, R = (arrays[f"space.{name}"] for name in _SPARSE_ARRAYS[:3])
    image_ridge, text_ridge = (arrays.get(f"space.{name}") for name in _SPARSE_ARRAYS[3:])
    return SparseSpace(B, U, R, image_ridge, text_ridge, settings.weights, settings.query_map)


def _restore_memory(arrays: Arrays, settings: Settings, correlations: Float64) -> PairMemory | None:
    if not settings.memory:
        _require(settings.memory_strength is None, "a strength of no memory")
        return None
    images, texts, slopes = (arrays[f"memory.{name}"] for name in _MEMORY_ARRAYS)
    strength = settings.memory_strength
    _require(strength is not None, "a memory without strength")
    assert strength is not None
    return PairMemory(images, texts, correlations, strength, slopes)


def _restore_quantizer(
    arrays: Arrays, document: Mapping[str, Any], side: str, settings: Settings
) -> Quantizer:
    return Quantizer(
        arrays[f"{side}.words"],
        _number(document[f"{side}.epsilon"]),
        0.0 if settings.one_code else settings.quantization_weights.cross_penalty,
        arrays.get(f"{side}.cross_levels"),
        arrays[f"{side}.coding_scales"] if settings.one_code else None,
    )


def _check_shapes(learned: FittedModel, arrays: Arrays) -> None:
    """Refuse parts whose sizes disagree or whose numbers no search could use, before a search finds out."""
    n_dims, space = learned.space.n_dims, learned.space
    if isinstance(space, SparseSpace):
        widths = _check_sparse_space(space)
    else:
        widths = space.image_matrix.shape[0], space.text_matrix.shape[0]
        matrices = [("image matrix", space.image_matrix), ("text matrix", space.text_matrix)]
        for (name, matrix), width in zip(matrices, widths, strict=True):
            _check_floats(matrix, (width, n_dims), name)
        scales = np.ones(n_dims)
        if isinstance(space, GaussianSpace):
            _check_gaussian_space(space, learned.settings.memory)
            scales = space.query_scales
        for name, matrix in matrices:
            _check_reach(matrix * scales, name)
    _require(0 < n_dims == learned.settings.n_components, f"{n_dims} dimensions")
    _require(len(learned.image_codes) > 0, "no training documents")
    same_length = len(learned.image_codes) == len(learned.text_codes)
    _require(same_length or not learned.settings.paired, "sides of different lengths")
    _check_side(learned, learned.image_preparation, widths[0], learned.image_quantizer, learned.image_codes)
    _check_side(learned, learned.text_preparation, widths[1], learned.text_quantizer, learned.text_codes)
    if learned.document_quantizer is not None:
        _require(abs(learned.document_constant) <= _LARGEST, "a constant that is too large")
        both = learned.document_quantizer, learned.image_codes
        _check_side(learned, learned.image_preparation, widths[0], *both)
    known = all(type(each.round) is int and isinstance(each.block, str) for each in learned.history)
    _require(known, "a history of no rounds")
    terms = arrays["history"]
    n_terms = len(Objective._fields) if learned.has_document_codes else _PAPER_TERMS
    _require(terms.dtype == np.float64 and terms.shape[1:] == (n_terms,), "a history of other terms")
    _require(bool(np.isfinite(terms).all()), "an objective that is not finite")


def _check_sparse_space(space: SparseSpace) -> tuple[int, int]:
    """Return the widths of both sides, as the dictionaries have them."""
    n_dims, n_atoms = space.n_dims, len(space.image_dictionary)
    widths = space.image_dictionary.shape[1], space.text_basis.shape[-1]
    _check_floats(space.image_dictionary, (n_atoms, widths[0]), "image dictionary")
    _check_floats(space.text_basis, (n_dims, widths[1]), "text basis")
    _check_floats(space.image_map, (n_atoms, n_dims), "image map")
    for ridge, width in zip((space.image_ridge, space.text_ridge), widths, strict=True):
        if ridge is not None:
            _check_floats(ridge, (width, n_dims), "regression")
            _check_reach(ridge, "regression")
    _check_reach(space.image_dictionary, "dictionary")
    _check_reach(space.text_basis, "basis")
    return widths


def _check_reach(matrix: NDArray[Any], name: str) -> None:
    """Refuse a matrix whose products with rows of unit length would lie too far away."""
    _require(float(np.linalg.norm(matrix)) <= _FARTHEST, f"a {name} too large for float32")


def _check_gaussian_space(space: GaussianSpace, n_pairs: int) -> None:
    n_dims = (space.n_dims,)
    _check_floats(space.correlations, n_dims, "correlation")
    _check_floats(space.query_scales, n_dims, "query scale")
    _check_floats(space.coding_metric, n_dims, "metric")
    _check_floats(space.document_weights, (2, *n_dims), "document weight")
    if space.memory is not None:
        for side in (space.memory.images, space.memory.texts):
            _check_floats(side, (n_pairs, *n_dims), "remembered pair", np.float32)
        _check_floats(space.memory.slopes, n_dims, "slope")


def _check_side(
    learned: FittedModel, preparation: Preparation, width: int, quantizer: Quantizer, codes: NDArray[Any]
) -> None:
    n_codebooks, n_dims, components = (
        learned.settings.n_codebooks,
        learned.space.n_dims,
        preparation.components,
    )
    _check_floats(quantizer.codewords, (n_codebooks, 256, n_dims), "codeword", np.float32)
    _require(codes.dtype == np.uint8 and codes.shape[1:] == (n_codebooks,), "codes of another shape")
    _require(preparation.n_dims == width, "a preparation of another width")
    _check_floats(preparation.mean, (preparation.n_features,), "mean")
    _require(preparation.n_features > 0, "features of no width")
    if components is not None:
        _check_floats(components, (width, preparation.n_features), "component")
    levels, scales = quantizer.cross_levels, quantizer.coding_scales
    _require(
        (levels is not None) == (learned.settings.cross_term == "stored"), "cross levels that do not fit"
    )
    if levels is not None:
        _check_floats(levels, (256,), "cross level", np.float32, most=_LONGEST**2)
    if scales is not None:
        _check_floats(scales, (n_dims,), "coding scale")
        _require(float(scales.min()) >= 1 / _FARTHEST, "a coding scale that is not positive")
    _require(abs(quantizer.epsilon) <= _LONGEST**2, "an epsilon that is too large")
    for metric in (1.0, 1.0 if scales is None else scales):
        lengths = np.linalg.norm(quantizer.codewords * np.float64(1.0) * metric, axis=2)
        reach = float(lengths.max(axis=1).sum())  # of all that codes decode to
        _require(reach <= _LONGEST, f"codewords that reach to {reach:.3g}, too far for float32")
        gap = quantizer.penalty.weight * (reach**2 + abs(quantizer.epsilon)) ** 2
        _require(gap <= _LARGEST_PENALTY, "a cross penalty that is too large for its codewords")


def _check_floats(
    array: NDArray[Any],
    shape: tuple[int, ...],
    name: str,
    dtype: type[np.floating[Any]] | None = None,
    most: float = _LARGEST,
) -> None:
    """Refuse an array of another type or shape, or with numbers that are not finite or too large."""
    is_known = array.dtype.kind == "f" if dtype is None else array.dtype == dtype
    _require(is_known and array.shape == shape, f"a {name} of type {array.dtype} and shape {array.shape}")
    _require(bool((np.abs(array) <= most).all()), f"a {name} that is not finite, or larger than {most:g}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)


# Its encoders


def check_encoder(side: str, state: EncoderState, width: int) -> EncoderState:
    """Refuse an encoder whose features are not those of the model."""
    if state.dimension != width:
        raise InvalidInput(
            f"{side} encoder: expected features of the model's width {width}, got {state.name!r} with "
            f"{state.dimension}; attach the encoder that made the features"
        )
    return state


def encoder_contents(states: EncoderStates) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the optional part of the document; nothing for a model of plain features."""
    if not states:
        return {}, {}
    arrays = {
        f"{_array_prefix(side)}{name}": array
        for side in states
        for name, array in states[side].arrays.items()
    }
    written = {side: {key: getattr(state, key) for key in _ENCODER_FIELDS} for side, state in states.items()}
    return arrays, {"encoders": written}


def restore_encoders(arrays: Arrays, document: Mapping[str, Any], name: str) -> dict[str, EncoderState]:
    """Rebuild the encoders; what makes no sense is refused as damaged."""
    try:
        written = document.get("encoders", {})
        return {
            side: _restore_encoder(entry, _encoder_arrays(arrays, side))
            for side, entry in _encoder_entries(written)
        }
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedModelFile(f"{name}: the encoders of the model make no sense ({error!r})") from error


def _encoder_entries(written: Mapping[str, Any]) -> list[tuple[str, Any]]:
    unknown = written.keys() - set(SIDES)
    if unknown:
        raise ValueError(f"sides {sorted(unknown)}")
    return [(side, written[side]) for side in SIDES if side in written]


def _array_prefix(side: str) -> str:
    return f"encoder.{side}."


def _encoder_arrays(arrays: Arrays, side: str) -> dict[str, NDArray[Any]]:
    prefix = _array_prefix(side)
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _restore_encoder(written: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> EncoderState:
    state = EncoderState(**{key: written[key] for key in _ENCODER_FIELDS}, arrays=arrays)
    texts = (state.kind, state.name, state.fingerprint)
    if not (all(isinstance(text, str) for text in texts) and isinstance(state.settings, dict)):
        raise ValueError("kind, name and fingerprint are texts, settings an object")
    if type(state.dimension) is not int or state.dimension < 1:
        raise ValueError(f"a width of {state.dimension!r}")
    return state
