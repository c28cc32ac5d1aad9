"""What of a model goes into its file, and back.

Arrays by name, everything else as JSON. Nothing about the machine, the time or the threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.preparation import Preparation
from crossbyte.errors import DamagedModelFile
from crossbyte.mapping.linear import LinearSpace
from crossbyte.mapping.space import SparseSpace
from crossbyte.mapping.sparse import SparseWeights
from crossbyte.model.learned import Learned
from crossbyte.model.objective import Objective, ObjectiveRecord
from crossbyte.model.parameters import Settings
from crossbyte.quantization.collaborative import Pull
from crossbyte.quantization.quantizer import Quantizer

__all__ = ["Arrays", "contents_of", "learned_from"]

Arrays = Mapping[str, NDArray[Any]]

_SPARSE = ("image_dictionary", "text_basis", "image_map", "image_ridge", "text_ridge")
_LINEAR = ("image_matrix", "text_matrix")


def contents_of(learned: Learned) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and JSON document of what was learned."""
    arrays: dict[str, NDArray[Any] | None] = {
        "image_codes": learned.image_codes,
        "text_codes": learned.text_codes,
        "history": np.array([record.terms for record in learned.history]),
    }
    names = _SPARSE if isinstance(learned.space, SparseSpace) else _LINEAR
    arrays |= {f"space.{name}": getattr(learned.space, name) for name in names}
    document: dict[str, Any] = {
        "settings": _settings_document(learned.settings),
        "history": [[record.round, record.block] for record in learned.history],
    }
    for side, preparation in (("image", learned.image_preparation), ("text", learned.text_preparation)):
        arrays[f"{side}.mean"] = preparation.mean
        arrays[f"{side}.components"] = preparation.components
        document[f"{side}.scale"] = preparation.scale
    for side, quantizer in (("image", learned.image_quantizer), ("text", learned.text_quantizer)):
        arrays[f"{side}.words"] = quantizer.codewords
        arrays[f"{side}.cross_levels"] = quantizer.cross_levels
        document[f"{side}.epsilon"] = quantizer.epsilon
    return {name: array for name, array in arrays.items() if array is not None}, document


def learned_from(arrays: Arrays, document: Mapping[str, Any], name: str) -> Learned:
    """Rebuild what was learned; a file that is whole but inconsistent is refused as damaged."""
    try:
        learned = _learned_from(arrays, document)
        _check_shapes(learned)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
        raise DamagedModelFile(f"{name}: the parts of the model do not fit together ({error})") from error
    return learned


def _learned_from(arrays: Arrays, document: Mapping[str, Any]) -> Learned:
    settings = _settings_from(document["settings"])
    return Learned(
        settings=settings,
        image_preparation=_preparation(arrays, document, "image", settings.image_power),
        text_preparation=_preparation(arrays, document, "text", settings.text_power),
        space=_space(arrays, settings),
        image_quantizer=_quantizer(arrays, document, "image", settings),
        text_quantizer=_quantizer(arrays, document, "text", settings),
        image_codes=arrays["image_codes"],
        text_codes=arrays["text_codes"],
        history=[
            ObjectiveRecord(number, block, Objective(*terms))
            for (number, block), terms in zip(document["history"], arrays["history"].tolist(), strict=True)
        ],
    )


def _settings_document(settings: Settings) -> dict[str, Any]:
    later = {name for name, usual in Settings._field_defaults.items() if getattr(settings, name) == usual}
    known = {name: value for name, value in settings._asdict().items() if name not in later}
    del known["quantization_weights"]  # "pull" in the file
    return known | {"weights": settings.weights._asdict(), "pull": settings.quantization_weights._asdict()}


def _settings_from(document: Mapping[str, Any]) -> Settings:
    plain = {name: value for name, value in document.items() if name not in ("weights", "pull")}
    weights, pull = SparseWeights(**document["weights"]), Pull(**document["pull"])
    return Settings(**plain, weights=weights, quantization_weights=pull)


def _preparation(arrays: Arrays, document: Mapping[str, Any], side: str, power: float) -> Preparation:
    mean, components = arrays[f"{side}.mean"], arrays.get(f"{side}.components")
    return Preparation(document[f"{side}.scale"], mean, components, power)


def _space(arrays: Arrays, settings: Settings) -> SparseSpace | LinearSpace:
    if settings.mapping != "sparse":
        return LinearSpace(*(arrays[f"space.{name}"] for name in _LINEAR))
    B, U, R = (arrays[f"space.{name}"] for name in _SPARSE[:3])
    image_ridge, text_ridge = (arrays.get(f"space.{name}") for name in _SPARSE[3:])
    return SparseSpace(B, U, R, image_ridge, text_ridge, settings.weights, settings.query_map)


def _quantizer(arrays: Arrays, document: Mapping[str, Any], side: str, settings: Settings) -> Quantizer:
    return Quantizer(
        arrays[f"{side}.words"],
        document[f"{side}.epsilon"],
        settings.quantization_weights.cross_penalty,
        arrays.get(f"{side}.cross_levels"),
    )


def _check_shapes(learned: Learned) -> None:
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
    _require(all(bool(np.isfinite(matrix).all()) for matrix in matrices), "matrices that are not finite")
    _require(len(learned.image_codes) == len(learned.text_codes), "sides of different lengths")
    _check_side(learned, learned.image_preparation, widths[0], learned.image_quantizer, learned.image_codes)
    _check_side(learned, learned.text_preparation, widths[1], learned.text_quantizer, learned.text_codes)


def _check_side(
    learned: Learned, preparation: Preparation, width: int, quantizer: Quantizer, codes: NDArray[Any]
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
    levels = quantizer.cross_levels
    _require(
        (levels is not None) == (learned.settings.cross_term == "stored"), "cross levels that do not fit"
    )
    _require(levels is None or levels.shape == (256,), "cross levels of another number")
    numbers = (
        quantizer.codewords,
        preparation.mean,
        preparation.scale + quantizer.epsilon + preparation.power,
    )
    _require(all(bool(np.isfinite(part).all()) for part in numbers), "numbers that are not finite")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
