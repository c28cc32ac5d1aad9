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
from crossbyte.model.params import Settings
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
        _check_shapes(learned)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DamagedModelFile(f"{name}: the parts of the model do not fit together ({error})") from error
    return learned


def _history_array(learned: FittedModel) -> NDArray[Any]:
    """Write the terms of every record; those of documents only where these have a code of their own."""
    terms = np.array([record.terms for record in learned.history])
    return terms if learned.has_document_codes else np.ascontiguousarray(terms[:, :_PAPER_TERMS])


def _restore_parts(arrays: Arrays, document: Mapping[str, Any]) -> FittedModel:
    settings = _restore_settings(document["settings"])
    _require(settings.group_size in range(1, 2**31), "groups of another size")
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
        document_constant=float(document["document.constant"]) if one else 0.0,
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
    return Settings(**plain, weights=weights, quantization_weights=pull)


def _restore_preparation(
    arrays: Arrays, document: Mapping[str, Any], side: str, settings: Settings
) -> Preparation:
    mean, components = arrays[f"{side}.mean"], arrays.get(f"{side}.components")
    power = settings.image_power if side == "image" else settings.text_power
    return Preparation(document[f"{side}.scale"], mean, components, power, settings.mapping == "joint")


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
    _require(isinstance(strength, float) and bool(np.isfinite(strength)), "a memory without strength")
    assert strength is not None
    return PairMemory(images, texts, correlations, strength, slopes)


def _restore_quantizer(
    arrays: Arrays, document: Mapping[str, Any], side: str, settings: Settings
) -> Quantizer:
    return Quantizer(
        arrays[f"{side}.words"],
        document[f"{side}.epsilon"],
        0.0 if settings.one_code else settings.quantization_weights.cross_penalty,
        arrays.get(f"{side}.cross_levels"),
        arrays[f"{side}.coding_scales"] if settings.one_code else None,
    )


def _check_shapes(learned: FittedModel) -> None:
    """Refuse parts whose sizes disagree or whose numbers are not finite, before a search finds out."""
    n_dims, space = learned.space.n_dims, learned.space
    if isinstance(space, SparseSpace):
        widths = space.image_dictionary.shape[1], space.text_basis.shape[1]
        _require(
            space.image_map.shape == (len(space.image_dictionary), n_dims), "an image map of another shape"
        )
        matrices = [space.image_dictionary, space.text_basis, space.image_map]
        ridges = zip((space.image_ridge, space.text_ridge), widths, strict=True)
        _require(
            all(r is None or r.shape == (width, n_dims) for r, width in ridges),
            "a regression of another shape",
        )
    else:
        widths = space.image_matrix.shape[0], space.text_matrix.shape[0]
        _require(space.text_matrix.shape[1] == n_dims, "a text matrix of another width")
        matrices = [space.image_matrix, space.text_matrix]
        if isinstance(space, GaussianSpace):
            numbers = [space.correlations, space.query_scales, space.coding_metric]
            _require(all(each.shape == (n_dims,) for each in numbers), "coordinates of another number")
            _require(space.document_weights.shape == (2, n_dims), "document weights of another shape")
            matrices += [*numbers, space.document_weights]
            if space.memory is not None:
                _check_memory(space.memory, learned.settings.memory, n_dims)
    _require(all(bool(np.isfinite(matrix).all()) for matrix in matrices), "matrices that are not finite")
    same_length = len(learned.image_codes) == len(learned.text_codes)
    _require(same_length or not learned.settings.paired, "sides of different lengths")
    _check_side(learned, learned.image_preparation, widths[0], learned.image_quantizer, learned.image_codes)
    _check_side(learned, learned.text_preparation, widths[1], learned.text_quantizer, learned.text_codes)
    if learned.document_quantizer is not None:
        _require(bool(np.isfinite(learned.document_constant)), "a constant that is not finite")
        both = learned.document_quantizer, learned.image_codes
        _check_side(learned, learned.image_preparation, widths[0], *both)


def _check_memory(memory: PairMemory, n_pairs: int, n_dims: int) -> None:
    sides = memory.images, memory.texts
    _require(
        all(side.shape == (n_pairs, n_dims) and side.dtype == np.float32 for side in sides),
        "remembered pairs of another shape",
    )
    _require(memory.slopes.shape == (n_dims,), "slopes of another number")
    _require(
        all(bool(np.isfinite(each).all()) for each in (*sides, memory.slopes)),
        "remembered pairs that are not finite",
    )


def _check_side(
    learned: FittedModel, preparation: Preparation, width: int, quantizer: Quantizer, codes: NDArray[Any]
) -> None:
    n_codebooks, components = learned.settings.n_codebooks, preparation.components
    _require(
        quantizer.codewords.shape == (n_codebooks, 256, learned.space.n_dims), "codebooks of another shape"
    )
    _require(codes.dtype == np.uint8 and codes.shape[1:] == (n_codebooks,), "codes of another shape")
    _require(preparation.n_dims == width, "a preparation of another width")
    _require(
        components is None or components.shape[1] == preparation.n_features, "components of another width"
    )
    scales = quantizer.coding_scales
    _require(
        scales is None or (scales.shape == (learned.space.n_dims,) and bool(np.isfinite(scales).all())),
        "coding scales that do not fit",
    )
    levels = quantizer.cross_levels
    _require(
        (levels is not None) == (learned.settings.cross_term == "stored"), "cross levels that do not fit"
    )
    _require(levels is None or levels.shape == (256,), "cross levels of another number")
    numbers = (
        quantizer.codewords,
        preparation.mean,
        0.0 if levels is None else levels,
        preparation.scale + quantizer.epsilon + preparation.power,
    )
    _require(all(bool(np.isfinite(part).all()) for part in numbers), "numbers that are not finite")


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
