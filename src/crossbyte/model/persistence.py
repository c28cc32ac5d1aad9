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
from crossbyte.model.learned import Learned, Settings
from crossbyte.model.objective import Objective, ObjectiveRecord
from crossbyte.quantization.collaborative import Pull
from crossbyte.quantization.quantizer import Quantizer

__all__ = ["contents_of", "learned_from"]

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
        arrays[f"{side}.words"] = quantizer.words
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
        image_preparation=_preparation(arrays, document, "image"),
        text_preparation=_preparation(arrays, document, "text"),
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
    return settings._asdict() | {"weights": settings.weights._asdict(), "pull": settings.pull._asdict()}


def _settings_from(document: Mapping[str, Any]) -> Settings:
    nested = {"weights": SparseWeights(**document["weights"]), "pull": Pull(**document["pull"])}
    return Settings(**{**document, **nested})


def _preparation(arrays: Arrays, document: Mapping[str, Any], side: str) -> Preparation:
    return Preparation(document[f"{side}.scale"], arrays[f"{side}.mean"], arrays.get(f"{side}.components"))


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
        settings.pull.cross_penalty,
        arrays.get(f"{side}.cross_levels"),
    )


def _check_shapes(learned: Learned) -> None:
    """Refuse parts whose sizes disagree, before a search finds out."""
    settings, n_dims = learned.settings, learned.space.n_dims
    wanted = (settings.n_codebooks, 256, n_dims)
    for quantizer, codes in (
        (learned.image_quantizer, learned.image_codes),
        (learned.text_quantizer, learned.text_codes),
    ):
        if quantizer.words.shape != wanted or codes.dtype != np.uint8 or codes.shape[1] != wanted[0]:
            raise ValueError(f"codebooks {quantizer.words.shape} or codes {codes.shape}, expected {wanted}")
        if not np.isfinite(quantizer.words).all():
            raise ValueError("codebooks that are not finite")
    if len(learned.image_codes) != len(learned.text_codes):
        raise ValueError(
            f"{len(learned.image_codes)} image codes beside {len(learned.text_codes)} text codes"
        )
