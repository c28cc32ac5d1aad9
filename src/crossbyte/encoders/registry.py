"""Make an encoder from its specification, and restore it from the state in a model's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from crossbyte.encoders import catalogue
from crossbyte.encoders.base import SIDES, Encoder, EncoderState
from crossbyte.errors import DataFileError, InvalidInput, NoEncoder, WrongEncoder
from crossbyte.extras import is_installed
from crossbyte.validation import check_choice

SPECS = {
    "builtin": "builtin",
    "static": "static",
    "onnx": "PATH.onnx (or the PATH.json that describes it)",
    "clip": "clip:FOLDER (or the folder itself)",
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
    NoEncoder
        A known network that is not on this machine; the message has the command that fetches it.
    """
    if spec in ("builtin", "static"):
        return spec
    network = catalogue.find_network(spec)
    if network is not None:
        catalogue.check_downloaded(network)
        return "onnx" if network.network else "clip"
    if spec.lower().endswith((".onnx", ".json")):
        return "onnx"
    prefix, colon, rest = spec.partition(":")
    if prefix in ("sentence-transformers", "open-clip", "clip") and rest:
        return prefix
    if _is_clip_path(spec):
        return "clip"
    if _FUNCTION.fullmatch(spec):
        return "function"
    raise InvalidInput(
        f"there is no encoder {spec!r}; expected one of: {'; '.join(SPECS.values())}; or a name of "
        "`crossbyte encoders list`"
    )


_SHARED_KINDS = ("clip", "open-clip")
_SIDES_OF_KIND = {
    "builtin": SIDES,
    "static": ("text",),
    "clip": SIDES,
    "sentence-transformers": ("text",),
    "open-clip": SIDES,
}


def find_encoder_sides(spec: str) -> tuple[str, ...]:
    """Find the sides that an encoder serves, by its name or by what its files take.

    Parameters
    ----------
    spec : str
        As for `make_encoder`.

    Returns
    -------
    tuple of {"image", "text"}

    Raises
    ------
    InvalidInput
        No such encoder, or a function, of which only the user knows what it takes.
    NoEncoder, FileNotFoundError, MissingExtra, DataFileError
        Where it cannot be looked at.
    """
    kind, network = encoder_kind(spec), catalogue.find_network(spec)
    if network is not None:
        return network.sides
    if kind == "onnx":
        from crossbyte.encoders.onnx_text import takes_texts

        return ("text",) if takes_texts(spec) else ("image",)
    if kind == "function":
        raise InvalidInput(
            f"{spec}: expected an encoder that says what it encodes, got a function; name it with "
            "--image-encoder or --text-encoder"
        )
    return _SIDES_OF_KIND[kind]


def name_one_space(image_spec: str, text_spec: str) -> bool:
    """Tell whether one encoder of both sides is asked for, whose pictures and texts are in one space.

    Parameters
    ----------
    image_spec, text_spec : str
        As for `make_encoder`.
    """
    return image_spec == text_spec and encoder_kind(image_spec) in _SHARED_KINDS


def _is_clip_path(spec: str) -> bool:
    """Tell whether this is the path of a CLIP export; the import is heavy, so it waits for a folder."""
    if not spec or not Path(spec).expanduser().is_dir():
        return False
    from crossbyte.encoders.clip_folder import is_clip_folder

    return is_clip_folder(Path(spec).expanduser())


def make_encoder(spec: str, side: str, sample: Sequence[Any], *, n_jobs: int | None = None) -> Encoder:
    """Make the encoder that a user asks for, to fit a model with it.

    Parameters
    ----------
    spec : str
        ``"builtin"``, ``"static"`` (texts), ``"PATH.onnx"`` (or the path of the JSON that describes it),
        ``"clip:FOLDER"``, the name of a downloaded network (`catalogue.NETWORKS`),
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
    if kind == "static":
        from crossbyte.encoders.static import StaticTextEncoder

        check_side(side, "text", repr(spec))
        return StaticTextEncoder.load()
    network = catalogue.find_network(spec)
    if network is not None:
        return _open_network(network, side, n_jobs)
    if kind == "clip":
        from crossbyte.encoders.clip_folder import ClipFolderEncoder

        return ClipFolderEncoder.from_spec(spec, side, n_jobs)
    return _open_onnx(spec, side, n_jobs) if kind == "onnx" else _load_encoder(kind, spec, side)


def default_text_encoder(sample: Sequence[str]) -> tuple[str, str]:
    """Choose the text encoder for a user who names none.

    Parameters
    ----------
    sample : sequence of str
        Texts that are to be encoded; a few hundred of them are looked at.

    Returns
    -------
    spec : str
        ``"static"`` where its vectors are installed and know the words of the sample, else ``"builtin"``.
    reason : str
        Why, in one sentence.
    """
    from crossbyte.encoders.static import StaticTextEncoder, find_files

    if find_files() is None:
        return "builtin", (
            "hashed words, because the static sentence vectors, which find more, are not installed: "
            "pip install 'crossbyte[photo]'"
        )
    try:
        vectors = StaticTextEncoder.load()
    except DataFileError as error:
        return "builtin", f"hashed words, because {error}"
    said = [text for text in sample if text.strip()]
    if not said:
        return "static", "static sentence vectors, which know English best; there is no text to choose by"
    if not vectors.knows_script(said[:: max(1, len(said) // _SAMPLE)][:_SAMPLE]):
        return "builtin", (
            "hashed words, because the static sentence vectors do not know the words of these texts; "
            "minilm-l12-multilingual of `crossbyte encoders list` knows fifty languages"
        )
    return "static", "static sentence vectors, which know the words of these texts"


_SAMPLE = 500


def default_image_encoder() -> tuple[str, str]:
    """Choose the picture encoder for a user who names none: the best network on this machine, or "builtin".

    Returns
    -------
    spec : str
        The name of a downloaded network, or ``"builtin"``.
    reason : str
        Why, in one sentence.
    """
    pictures = [network for network in catalogue.NETWORKS if "image" in network.sides]
    here = next((network for network in pictures if catalogue.is_downloaded(network)), None)
    if here is not None and is_installed("onnxruntime"):
        return here.name, f"{here.name}, the best network for pictures on this machine: it {here.brings}"
    if here is not None:
        return "builtin", (
            f"colours and textures, because {here.name} is here and ONNX Runtime is not: "
            "pip install 'crossbyte[onnx]'"
        )
    return "builtin", (
        "colours and textures, because no network for pictures is on this machine; one would recognise what "
        f"is in them: crossbyte encoders download {pictures[0].name}"
    )


def _open_onnx(spec: str, side: str, n_jobs: int | None) -> Encoder:
    if side == "text":
        from crossbyte.encoders.onnx_text import OnnxTextEncoder

        return OnnxTextEncoder.from_spec(spec, n_jobs)
    from crossbyte.encoders.onnx import OnnxImageEncoder

    return OnnxImageEncoder.from_spec(spec, n_jobs)


def _open_network(network: catalogue.KnownNetwork, side: str, n_jobs: int | None) -> Encoder:
    """Open a side of a known network on this machine, after its files were compared with their digests."""
    if side not in network.sides:
        check_side(side, network.sides[0], repr(network.name))
    folder = catalogue.verify_network(network)
    if not network.network:
        from crossbyte.encoders.clip_folder import ClipFolderEncoder

        return ClipFolderEncoder.from_spec(str(folder), side, n_jobs, network.name)
    path = folder / network.network
    if side == "text":
        from crossbyte.encoders.onnx_text import TOKENIZER, OnnxTextEncoder

        return OnnxTextEncoder.from_files(path, folder / TOKENIZER, network.description, network.name, n_jobs)
    from crossbyte.encoders.onnx import OnnxImageEncoder
    from crossbyte.encoders.onnx_model import describe_file, open_onnx

    file = open_onnx(path)
    return OnnxImageEncoder(file, describe_file(file, dict(network.description)), network.name, n_jobs)


def check_side(side: str, serves: str, who: str) -> None:
    """Refuse an encoder of one side for the other."""
    if side == serves:
        return
    other = (
        "for texts: static, builtin, PATH.onnx with its tokenizer.json, clip:FOLDER, "
        "sentence-transformers:…, open-clip:… or module:function"
        if side == "text"
        else "for pictures: builtin, PATH.onnx, clip:FOLDER, open-clip:… or module:function"
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
    "static": "static",
    "onnx": "onnx",
    "onnx-text": "onnx",
    "clip": "clip",
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
        The specification that the user gives for it now: needed for ONNX files and CLIP folders that were
        not downloaded by name, functions, and local models.
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
    "static": "text",
    "onnx": "image",
    "onnx-text": "text",
    "sentence-transformers": "text",
}


def _restore(state: EncoderState, side: str, given: str | None, n_jobs: int | None) -> Encoder:
    if _ONE_SIDE.get(state.kind, side) != side:
        raise WrongEncoder(f"{state.name!r} ({state.kind}) is no encoder of {side}s")
    if KINDS[state.kind] == "builtin":
        return _restore_builtin(state)
    if state.kind == "static":
        from crossbyte.encoders.static import StaticTextEncoder

        return StaticTextEncoder.load()
    if state.kind in ("onnx", "onnx-text", "clip"):
        located = _locate_network(given, state.name)
        try:
            return _restore_onnx(state, side, located, n_jobs)
        except WrongEncoder:
            if given is not None or located is None:
                raise
            return _restore_onnx(state, side, None, n_jobs)  # a namesake: say which option brings it
    if state.kind == "sentence-transformers":
        from crossbyte.encoders.sentence_transformers import SentenceEncoder

        return SentenceEncoder.from_state(state, given)
    if state.kind == "open-clip":
        from crossbyte.encoders.open_clip import ClipEncoder

        return ClipEncoder.from_state(state, side, given)
    from crossbyte.encoders.functions import FunctionEncoder

    return FunctionEncoder.from_spec(_require_given(given, state, side, "module:function"), side)


def _restore_onnx(state: EncoderState, side: str, given: str | None, n_jobs: int | None) -> Encoder:
    if state.kind == "clip":
        from crossbyte.encoders.clip_folder import ClipFolderEncoder

        folder = _require_given(given, state, side, "clip:FOLDER")
        return ClipFolderEncoder.from_state(state, side, folder, n_jobs)
    path = _require_given(given, state, side, "PATH.onnx")
    if state.kind == "onnx-text":
        from crossbyte.encoders.onnx_text import OnnxTextEncoder

        return OnnxTextEncoder.from_state(state, path, n_jobs)
    from crossbyte.encoders.onnx import OnnxImageEncoder

    return OnnxImageEncoder.from_state(state, path, n_jobs)


def _locate_network(given: str | None, name: str) -> str | None:
    """Return the path of a known network on this machine, by the user's word or the model's; else ``given``.

    The name in a model's file only says where to look: what is there must have the model's digests.
    """
    network = catalogue.find_network(name if given is None else given)
    if network is None or not catalogue.is_downloaded(network):
        return given
    return str(catalogue.network_folder(network) / network.network)


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
            f"{side}s of this model were encoded by {state.name!r}, {_describe_absence(state.name)}; give "
            f"it with --{side}-encoder {form} (in Python: {side}_encoder={form!r})"
            + _advise_download(state.name)
        )
    return given


def _describe_absence(name: str) -> str:
    """Say why an encoder cannot be had: it is not here, or not as it was."""
    network = catalogue.find_network(name)
    if network is None or not catalogue.network_folder(network).is_dir():
        return "which is not in the model's file"
    return (
        f"and the network of this name in {catalogue.network_folder(network)} is not the one it was fitted "
        "with: its files were changed, or cut"
    )


def _advise_download(name: str) -> str:
    known = catalogue.find_network(name) is not None
    return f", or fetch it with: crossbyte encoders download {name}" if known else ""


def _describe_mismatch(ours: EncoderState, fitted: EncoderState, side: str) -> str:
    return (
        f"the model was fitted with the {side} encoder {fitted.name!r} (fingerprint {fitted.fingerprint}), "
        f"and {ours.name!r} (fingerprint {ours.fingerprint}) encodes otherwise; give the encoder that the "
        "model was fitted with, or fit again with this one"
    )
