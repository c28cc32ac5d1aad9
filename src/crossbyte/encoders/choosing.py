"""From what a user calls an encoder to the encoder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from crossbyte.encoders.protocol import SIDES, Encoder
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_choice

__all__ = ["SPECS", "check_side", "kind_of", "make_encoder"]

SPECS = {
    "builtin": "builtin",
    "onnx": "PATH.onnx (or the PATH.json that describes it)",
    "sentence-transformers": "sentence-transformers:NAME_OR_PATH",
    "open-clip": "open-clip:MODEL[@PRETRAINED]",
    "function": "module:function",
}
"""How each kind of encoder is asked for."""

_FUNCTION = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


def kind_of(spec: str) -> str:
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
        What it is to encode.
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
    kind = kind_of(spec)
    if kind == "builtin":
        return _learned(side, sample)
    if kind == "onnx":
        from crossbyte.encoders.onnx import OnnxPictures

        check_side(side, "image", f"the ONNX file {spec}")
        return OnnxPictures.from_spec(spec, n_jobs)
    return _other(kind, spec, side)


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


def _learned(side: str, sample: Sequence[Any]) -> Encoder:
    if side == "image":
        from crossbyte.encoders.builtin_images import BuiltinImages

        return BuiltinImages.learn(sample)
    from crossbyte.encoders.builtin_texts import BuiltinTexts

    return BuiltinTexts.learn(sample)


def _other(kind: str, spec: str, side: str) -> Encoder:
    if kind == "sentence-transformers":
        from crossbyte.encoders.sentence_transformers import SentenceTexts

        check_side(side, "text", spec)
        return SentenceTexts.from_spec(spec)
    if kind == "open-clip":
        from crossbyte.encoders.open_clip import ClipItems

        return ClipItems.from_spec(spec, side)
    from crossbyte.encoders.functions import FunctionItems

    return FunctionItems.from_spec(spec, side)
