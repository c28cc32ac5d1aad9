"""The encoders that a model was fitted with, in its file: so that a query is always encoded the same way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from crossbyte.encoders.protocol import SIDES, EncoderState
from crossbyte.errors import DamagedModelFile, InvalidInput
from crossbyte.model.persistence import Arrays

__all__ = ["check_encoder", "encoder_contents", "encoders_from"]

States = Mapping[str, EncoderState]

_WRITTEN = ("kind", "name", "dimension", "fingerprint", "settings")


def check_encoder(side: str, state: EncoderState, width: int) -> EncoderState:
    """Refuse an encoder whose features are not those of the model."""
    if state.dimension != width:
        raise InvalidInput(
            f"{side} encoder: expected features of the model's width {width}, got {state.name!r} with "
            f"{state.dimension}; attach the encoder that made the features"
        )
    return state


def encoder_contents(states: States) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Arrays and the optional part of the document; nothing for a model of features."""
    if not states:
        return {}, {}
    arrays = {
        f"{_prefix(side)}{name}": array for side in states for name, array in states[side].arrays.items()
    }
    written = {side: {key: getattr(state, key) for key in _WRITTEN} for side, state in states.items()}
    return arrays, {"encoders": written}


def encoders_from(arrays: Arrays, document: Mapping[str, Any], name: str) -> dict[str, EncoderState]:
    """Read the encoders back; what makes no sense is refused as damaged."""
    try:
        written = document.get("encoders", {})
        return {side: _state(entry, _own_arrays(arrays, side)) for side, entry in _by_side(written)}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise DamagedModelFile(f"{name}: the encoders of the model make no sense ({error!r})") from error


def _by_side(written: Mapping[str, Any]) -> list[tuple[str, Any]]:
    unknown = written.keys() - set(SIDES)
    if unknown:
        raise ValueError(f"sides {sorted(unknown)}")
    return [(side, written[side]) for side in SIDES if side in written]


def _prefix(side: str) -> str:
    return f"encoder.{side}."


def _own_arrays(arrays: Arrays, side: str) -> dict[str, NDArray[Any]]:
    prefix = _prefix(side)
    return {name.removeprefix(prefix): array for name, array in arrays.items() if name.startswith(prefix)}


def _state(written: Mapping[str, Any], arrays: dict[str, NDArray[Any]]) -> EncoderState:
    state = EncoderState(**{key: written[key] for key in _WRITTEN}, arrays=arrays)
    texts = (state.kind, state.name, state.fingerprint)
    if not (all(isinstance(text, str) for text in texts) and isinstance(state.settings, dict)):
        raise ValueError("kind, name and fingerprint are texts, settings an object")
    if type(state.dimension) is not int or state.dimension < 1:
        raise ValueError(f"a width of {state.dimension!r}")
    return state
