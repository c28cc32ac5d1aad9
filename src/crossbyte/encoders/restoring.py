"""From the state in a model's file back to the encoder: the same one, or an error."""

from __future__ import annotations

from crossbyte.encoders.choosing import kind_of
from crossbyte.encoders.protocol import SIDES, Encoder, EncoderState
from crossbyte.errors import NoEncoder, WrongEncoder
from crossbyte.validation import check_choice

__all__ = ["KINDS", "restore_encoder"]

KINDS = {
    "builtin-images": "builtin",
    "builtin-texts": "builtin",
    "onnx": "onnx",
    "sentence-transformers": "sentence-transformers",
    "open-clip": "open-clip",
    "function": "function",
}
"""The kind that is written in a state, and the kind of `choosing` that it came from."""


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
        What the user says that the encoder is now: needed for ONNX files, functions, and local models.
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
    if given is not None and kind_of(given) != KINDS[state.kind]:
        raise WrongEncoder(
            f"the model was fitted with the {side} encoder {state.name!r} ({state.kind}), and {given!r} is "
            "of another kind; leave the option out or give the encoder that it was fitted with"
        )
    encoder = _restored(state, side, given, n_jobs)
    if encoder.state.fingerprint != state.fingerprint:
        raise WrongEncoder(_differs(encoder.state, state, side))
    return encoder


_ONE_SIDE = {
    "builtin-images": "image",
    "builtin-texts": "text",
    "onnx": "image",
    "sentence-transformers": "text",
}


def _restored(state: EncoderState, side: str, given: str | None, n_jobs: int | None) -> Encoder:
    if _ONE_SIDE.get(state.kind, side) != side:
        raise WrongEncoder(f"{state.name!r} ({state.kind}) is no encoder of {side}s")
    if KINDS[state.kind] == "builtin":
        return _builtin(state)
    if state.kind == "onnx":
        from crossbyte.encoders.onnx import OnnxPictures

        return OnnxPictures.from_state(state, _needed(given, state, side, "PATH.onnx"), n_jobs)
    if state.kind == "sentence-transformers":
        from crossbyte.encoders.sentence_transformers import SentenceTexts

        return SentenceTexts.from_state(state, given)
    if state.kind == "open-clip":
        from crossbyte.encoders.open_clip import ClipItems

        return ClipItems.from_state(state, side, given)
    from crossbyte.encoders.functions import FunctionItems

    return FunctionItems.from_spec(_needed(given, state, side, "module:function"), side)


def _builtin(state: EncoderState) -> Encoder:
    if state.kind == "builtin-images":
        from crossbyte.encoders.builtin_images import BuiltinImages

        return BuiltinImages.from_state(state)
    from crossbyte.encoders.builtin_texts import BuiltinTexts

    return BuiltinTexts.from_state(state)


def _needed(given: str | None, state: EncoderState, side: str, form: str) -> str:
    """Return what the user gave, or raise an error that says what to give."""
    if given is None:
        raise NoEncoder(
            f"{side}s of this model were encoded by {state.name!r}, which is not in the model's file; give "
            f"it with --{side}-encoder {form} (in Python: {side}_encoder={form!r})"
        )
    return given


def _differs(ours: EncoderState, fitted: EncoderState, side: str) -> str:
    return (
        f"the model was fitted with the {side} encoder {fitted.name!r} (fingerprint {fitted.fingerprint}), "
        f"and {ours.name!r} (fingerprint {ours.fingerprint}) encodes otherwise; give the encoder that the "
        "model was fitted with, or fit again with this one"
    )
