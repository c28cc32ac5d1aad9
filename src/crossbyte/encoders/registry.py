"""Make an encoder from its specification, and restore it from the state in a model's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from crossbyte.encoders.base import SIDES, Encoder, EncoderState
from crossbyte.errors import InvalidInput, NoEncoder, WrongEncoder
from crossbyte.validation import check_choice

SPECS = {
    "builtin": "builtin",
    "onnx": "PATH.onnx (or the PATH.json that describes it)",
    "sentence-transformers": "sentence-transformers:NAME_OR_PATH",
    "open-clip": "open-clip:MODEL[@PRETRAINED]",
    "function": "module:function",
}
"""The form of the specification of each kind of encoder."""

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def encoder_kind(spec: str) -> str:
    """Return the kind of encoder that a specification asks for.

    Parameters
    ----------
    spec : str

    Returns
    -------
    str
        A key of `SPECS`.

    Raises
    ------
    InvalidInput
        None of them; the message lists what exists.
    """
    if spec == "builtin":
        return "builtin"
    if spec.lower().endswith((".onnx", ".json")):
        return "onnx"
    prefix, colon, rest = spec.partition(":")
    if prefix in ("sentence-transformers", "open-clip") and rest:
        return prefix
    if _FUNCTION.fullmatch(spec):
        return "function"
    raise InvalidInput(f"there is no encoder {spec!r}; expected one of: {'; '.join(SPECS.values())}")


def make_encoder(spec: str, side: str, sample: Sequence[Any], *, n_jobs: int | None = None) -> Encoder:
    """Make the encoder that a user asks for, to fit a model with it.

    Parameters
    ----------
    spec : str
        ``"builtin"``, ``"PATH.onnx"`` (or the path of the JSON that describes it),
        ``"sentence-transformers:NAME_OR_PATH"``, ``"open-clip:MODEL[@PRETRAINED]"``, ``"module:function"``.
        Models that are named by a hub's name are downloaded where they are not yet; a module is imported.
    side : {"image", "text"}
        The side that it is to encode.
    sample : sequence
        Raw items of that side, from which a built-in encoder learns: pictures as (height, width, 3) uint8
        RGB arrays, or texts as str. Other encoders have learned already.
    n_jobs : int or None
        Threads, for encoders that have their own; None for all cores. The features do not depend on it.

    Returns
    -------
    Encoder

    Raises
    ------
    InvalidInput
        No such encoder, or one for the other side.
    FileNotFoundError
        No such file.
    MissingExtra
        Its library is not installed.
    """
    check_choice(side, "side", SIDES)
    kind = encoder_kind(spec)
    if kind == "builtin":
        return _learn_builtin(side, sample)
    if kind == "onnx":
        from crossbyte.encoders.onnx import OnnxImageEncoder

        check_side(side, "image", f"the ONNX file {spec}")
        return OnnxImageEncoder.from_spec(spec, n_jobs)
    return _load_encoder(kind, spec, side)


def check_side(side: str, serves: str, who: str) -> None:
    """Refuse an encoder of one side for the other."""
    if side == serves:
        return
    other = (
        "for texts: builtin, sentence-transformers:…, open-clip:… or module:function"
        if side == "text"
        else "for pictures: builtin, PATH.onnx, open-clip:… or module:function"
    )
    raise InvalidInput(f"{who} encodes {serves}s and was given as the encoder of {side}s; {other}")


def _learn_builtin(side: str, sample: Sequence[Any]) -> Encoder:
    if side == "image":
        from crossbyte.encoders.builtin_image import BuiltinImageEncoder

        return BuiltinImageEncoder.learn(sample)
    from crossbyte.encoders.builtin_text import BuiltinTextEncoder

    return BuiltinTextEncoder.learn(sample)


def _load_encoder(kind: str, spec: str, side: str) -> Encoder:
    if kind == "sentence-transformers":
        from crossbyte.encoders.sentence_transformers import SentenceEncoder

        check_side(side, "text", spec)
        return SentenceEncoder.from_spec(spec)
    if kind == "open-clip":
        from crossbyte.encoders.open_clip import ClipEncoder

        return ClipEncoder.from_spec(spec, side)
    from crossbyte.encoders.functions import FunctionEncoder

    return FunctionEncoder.from_spec(spec, side)


KINDS = {
    "builtin-images": "builtin",
    "builtin-texts": "builtin",
    "onnx": "onnx",
    "sentence-transformers": "sentence-transformers",
    "open-clip": "open-clip",
    "function": "function",
}
"""The kind that stands in a state, and the kind of specification (a key of `SPECS`) that it came from."""


def restore_encoder(
    state: EncoderState, side: str, given: str | None = None, *, n_jobs: int | None = None
) -> Encoder:
    """Make the encoder of a model again. Nothing is downloaded, and no module imported that a file names.

    Parameters
    ----------
    state : EncoderState
        As it is in the model.
    side : {"image", "text"}
    given : str or None
        The specification that the user gives for it now: needed for ONNX files, functions, and local models.
    n_jobs : int or None
        As for `make_encoder`.

    Returns
    -------
    Encoder

    Raises
    ------
    NoEncoder
        It cannot be made from the model alone; the message says which option to give.
    WrongEncoder
        Another encoder was given than the model was fitted with.
    """
    check_choice(side, "side", SIDES)
    if state.kind not in KINDS:
        raise NoEncoder(f"the model's {side} encoder is of the kind {state.kind!r}, unknown to this version")
    if given is not None and encoder_kind(given) != KINDS[state.kind]:
        raise WrongEncoder(
            f"the model was fitted with the {side} encoder {state.name!r} ({state.kind}), and {given!r} is "
            "of another kind; leave the option out or give the encoder that it was fitted with"
        )
    encoder = _restore(state, side, given, n_jobs)
    if encoder.state.fingerprint != state.fingerprint:
        raise WrongEncoder(_describe_mismatch(encoder.state, state, side))
    return encoder


_ONE_SIDE = {
    "builtin-images": "image",
    "builtin-texts": "text",
    "onnx": "image",
    "sentence-transformers": "text",
}


def _restore(state: EncoderState, side: str, given: str | None, n_jobs: int | None) -> Encoder:
    if _ONE_SIDE.get(state.kind, side) != side:
        raise WrongEncoder(f"{state.name!r} ({state.kind}) is no encoder of {side}s")
    if KINDS[state.kind] == "builtin":
        return _restore_builtin(state)
    if state.kind == "onnx":
        from crossbyte.encoders.onnx import OnnxImageEncoder

        return OnnxImageEncoder.from_state(state, _require_given(given, state, side, "PATH.onnx"), n_jobs)
    if state.kind == "sentence-transformers":
        from crossbyte.encoders.sentence_transformers import SentenceEncoder

        return SentenceEncoder.from_state(state, given)
    if state.kind == "open-clip":
        from crossbyte.encoders.open_clip import ClipEncoder

        return ClipEncoder.from_state(state, side, given)
    from crossbyte.encoders.functions import FunctionEncoder

    return FunctionEncoder.from_spec(_require_given(given, state, side, "module:function"), side)


def _restore_builtin(state: EncoderState) -> Encoder:
    if state.kind == "builtin-images":
        from crossbyte.encoders.builtin_image import BuiltinImageEncoder

        return BuiltinImageEncoder.from_state(state)
    from crossbyte.encoders.builtin_text import BuiltinTextEncoder

    return BuiltinTextEncoder.from_state(state)


def _require_given(given: str | None, state: EncoderState, side: str, form: str) -> str:
    """Return what the user gave, or raise an error that says what to give."""
    if given is None:
        raise NoEncoder(
            f"{side}s of this model were encoded by {state.name!r}, which is not in the model's file; give "
            f"it with --{side}-encoder {form} (in Python: {side}_encoder={form!r})"
        )
    return given


def _describe_mismatch(ours: EncoderState, fitted: EncoderState, side: str) -> str:
    return (
        f"the model was fitted with the {side} encoder {fitted.name!r} (fingerprint {fitted.fingerprint}), "
        f"and {ours.name!r} (fingerprint {ours.fingerprint}) encodes otherwise; give the encoder that the "
        "model was fitted with, or fit again with this one"
    )
