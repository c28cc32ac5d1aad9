"""Encode pictures and texts with a CLIP export: a folder as hubs distribute it, with two ONNX files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from crossbyte.arrays import Float32, Raw
from crossbyte.encoders import onnx_model
from crossbyte.encoders.base import EncoderState, digest_files, encoder_fingerprint
from crossbyte.encoders.onnx import OnnxImageEncoder, restore_description
from crossbyte.encoders.onnx_text import TOKENIZER, OnnxTextEncoder
from crossbyte.errors import DataFileError, InvalidInput, WrongEncoder

PREFIX = "clip:"
_PREPROCESSOR = "preprocessor_config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_VARIANTS = ("", "_fp16", "_quantized", "_int8", "_uint8", "_q8", "_q4", "_q4f16", "_bnb4")
"""Endings of the names of a network in several precisions, the preferred first."""
_CONTEXT = 77
"""Tokens that CLIP was trained with."""
_RESAMPLINGS = {0: "nearest", 1: "lanczos", 2: "bilinear", 3: "bicubic"}
"""Pillow's numbers."""


class ClipFolder(NamedTuple):
    """The files of a CLIP export."""

    folder: Path
    vision: Path
    text: Path
    tokenizer: Path
    preprocessor: Path

    def digest(self) -> str:
        """Digest both networks with tokenizer and preparation: equal ones make one space."""
        return digest_files(self.vision, self.text, self.tokenizer, self.preprocessor)


def is_clip_folder(path: Path) -> bool:
    """Tell whether a folder has what a CLIP export has; its contents are not looked at."""
    return path.is_dir() and _find_networks(path) is not None


def find_clip_folder(spec: str) -> ClipFolder:
    """Find the files of a CLIP export.

    Parameters
    ----------
    spec : str
        ``clip:FOLDER``, or the folder. The networks are ``vision_model.onnx`` and ``text_model.onnx``, in it
        or in its folder ``onnx``; of several precisions (``_quantized``, ``_fp16``, …) the finest counts.

    Raises
    ------
    FileNotFoundError
        There is no such folder, or a file of it is missing; the message names it.
    """
    folder = Path(spec.removeprefix(PREFIX)).expanduser()
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder}: there is no such folder")
    networks = _find_networks(folder)
    if networks is None:
        raise FileNotFoundError(
            f"{folder}: expected a CLIP export with vision_model.onnx and text_model.onnx, both of one "
            "precision, "
            "in the folder or in its folder onnx; fetch them from where the folder came from"
        )
    for name in (TOKENIZER, _PREPROCESSOR):
        if not (folder / name).is_file():
            raise FileNotFoundError(
                f"{folder / name}: there is no such file, and a CLIP export needs it; fetch it from where "
                "the "
                "folder came from"
            )
    return ClipFolder(folder, *networks, folder / TOKENIZER, folder / _PREPROCESSOR)


def _find_networks(folder: Path) -> tuple[Path, Path] | None:
    for variant in _VARIANTS:
        for home in (folder, folder / "onnx"):
            vision, text = home / f"vision_model{variant}.onnx", home / f"text_model{variant}.onnx"
            if vision.is_file() and text.is_file():
                return vision, text
    return None


def read_preprocessor(path: Path) -> dict[str, Any]:
    """Read how pictures are prepared, as the fields of an ONNX description.

    Parameters
    ----------
    path : Path
        A ``preprocessor_config.json``.

    Returns
    -------
    dict
        ``size``, ``fit``, ``short_side``, ``resampling`` and ``scaling``, see docs/encoders.md.

    Raises
    ------
    DataFileError
        It does not say what is needed, or asks for something that is not done here.
    """
    config = onnx_model.read_description(path)
    scale = config.get("rescale_factor", 1 / 255) if config.get("do_rescale", True) else 1.0
    if not isinstance(scale, int | float) or not 0 < scale <= 1:
        raise DataFileError(f"{path}: rescale_factor: expected a number up to 1, got {scale!r}")
    levels = {"mean": 0.0, "std": 1.0, "range": 255 * float(scale)}
    if config.get("do_normalize", True):
        try:
            levels |= {"mean": config["image_mean"], "std": config["image_std"]}
        except KeyError as error:
            raise DataFileError(f"{path}: expected {error.args[0]}: three numbers") from error
    resample = config.get("resample", 3)
    if resample not in _RESAMPLINGS:
        raise DataFileError(f"{path}: resample: expected one of {sorted(_RESAMPLINGS)}, got {resample!r}")
    fields = {"scaling": levels, "resampling": _RESAMPLINGS[resample]}
    return fields | _read_sizes(config, path)


def _read_sizes(config: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Read the size of the input, and how a picture gets it: cut out, or squashed."""
    size = _plain_size(config.get("size"), path)
    crop = _plain_size(config.get("crop_size"), path) if config.get("do_center_crop", True) else None
    if not config.get("do_resize", True):
        raise DataFileError(f"{path}: expected do_resize, since pictures come in every size")
    if size is None or isinstance(size, list):
        if size is None:
            raise DataFileError(f"{path}: expected size: a number, or shortest_edge, or height and width")
        if crop is not None and crop != size:
            raise DataFileError(f"{path}: expected no crop after a resize to height and width, got {crop}")
        return {"size": size, "fit": "squash"}
    if crop is None:
        raise DataFileError(f"{path}: expected crop_size beside size {size}: the network's input")
    return {"size": crop, "fit": "crop", "short_side": size}


def _plain_size(value: Any, path: Path) -> Any:
    """Read a size in one of its spellings: a number is the short side, [height, width] are both sides."""
    if not isinstance(value, Mapping):
        return value
    if "shortest_edge" in value:
        return value["shortest_edge"]
    if {"height", "width"} <= set(value):
        return [value["height"], value["width"]]
    raise DataFileError(f"{path}: expected shortest_edge, or height and width, got {dict(value)!r}")


class ClipFolderEncoder:
    """Encode one side with a CLIP export; rows have length one, and both sides share a space.

    Parameters
    ----------
    files : ClipFolder
    side : {"image", "text"}
    inner : OnnxImageEncoder or OnnxTextEncoder
        The network of this side.
    name : str
    """

    kind = "clip"

    def __init__(
        self, files: ClipFolder, side: str, inner: OnnxImageEncoder | OnnxTextEncoder, name: str
    ) -> None:
        self._inner, self._side = inner, side
        settings = {**inner.state.settings, "side": side, "pair": files.digest()}
        fingerprint = encoder_fingerprint(self.kind, settings, {})
        self._state = EncoderState(self.kind, name, inner.state.dimension, fingerprint, settings, {})

    @classmethod
    def from_spec(cls, spec: str, side: str, n_jobs: int | None = None, name: str | None = None) -> Self:
        """Open one side of the folder that a specification names."""
        files = find_clip_folder(spec)
        name = name or files.folder.resolve().name
        if side == "text":
            fields = {"max_tokens": _read_context(files)}
            text = OnnxTextEncoder.from_files(files.text, files.tokenizer, fields, name, n_jobs)
            return cls(files, side, text, name)
        file = onnx_model.open_onnx(files.vision)
        description = onnx_model.describe_file(file, _describe_vision(file, files))
        return cls(files, side, OnnxImageEncoder(file, description, name, n_jobs), name)

    @classmethod
    def from_state(cls, state: EncoderState, side: str, given: str, n_jobs: int | None = None) -> Self:
        """Open the folder again that a model was fitted with.

        Raises
        ------
        WrongEncoder
            It is another folder, or the other side.
        """
        files = find_clip_folder(given)
        if state.settings.get("side") != side:
            raise WrongEncoder(f"{state.name!r} was fitted as the encoder of the other side, not of {side}s")
        if files.digest() != state.settings.get("pair"):
            raise WrongEncoder(
                f"the model was fitted with the encoder {state.name!r} (digest "
                f"{state.settings.get('pair')}), and "
                f"{files.folder} holds other files (digest {files.digest()}); give the folder that it was "
                "fitted "
                "with, or fit again with this one"
            )
        if side == "text":
            return cls(
                files, side, OnnxTextEncoder.restore(state, files.text, files.tokenizer, n_jobs), state.name
            )
        description = restore_description(state.settings.get("description"), state.name)
        file = onnx_model.open_onnx(files.vision)
        return cls(files, side, OnnxImageEncoder(file, description, state.name, n_jobs), state.name)

    @property
    def state(self) -> EncoderState:
        """The digest of all files, and the description of this side; no path."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode items of one side.

        Parameters
        ----------
        items : sequence
            Pictures as (height, width, 3) uint8 arrays, or texts as str.

        Returns
        -------
        (n, dimension) float32 ndarray
        """
        rows = self._inner.encode(items)
        return rows if self._side == "text" else _normalise_rows(np.asarray(rows))


def _normalise_rows(rows: Float32) -> Float32:
    lengths = np.sqrt(np.sum(rows.astype(np.float64) ** 2, axis=1, keepdims=True))
    return np.asarray(rows / np.maximum(lengths, 1e-12), dtype=np.float32)


def _describe_vision(file: onnx_model.OnnxFile, files: ClipFolder) -> dict[str, Any]:
    """Describe the picture side: preparation by its JSON, and the output that texts are compared with."""
    fields = read_preprocessor(files.preprocessor)
    outputs = [port.name for port in file.outputs]
    named = next((name for name in ("image_embeds", "embeddings", "pooler_output") if name in outputs), None)
    if named is None and len(outputs) > 1:
        raise InvalidInput(
            f"{file.path}: expected an output called 'image_embeds', got "
            f"{onnx_model.describe_ports(file.outputs)}; export CLIP with its projections"
        )
    return fields | {"output": named or outputs[0], "layout": "NCHW"}


def _read_context(files: ClipFolder) -> int:
    """Read how many tokens the text side takes: where a file says so, else CLIP's own number."""
    config = files.folder / _TOKENIZER_CONFIG
    if config.is_file():
        length = onnx_model.read_description(config).get("model_max_length")
        if isinstance(length, int) and 1 <= length <= 8192:
            return length
    return _CONTEXT


def share_space(image: EncoderState, text: EncoderState) -> bool:
    """Tell whether pictures and texts of two encoders share a space, so that no pairs are needed.

    Parameters
    ----------
    image, text : EncoderState

    Returns
    -------
    bool
        True for both sides of one CLIP folder, or of one model of open_clip.
    """
    decisive = {ClipFolderEncoder.kind: "pair", "open-clip": "weights"}.get(image.kind)
    if decisive is None or image.kind != text.kind or image.dimension != text.dimension:
        return False
    sides = (image.settings.get("side"), text.settings.get("side"))
    digests = {state.settings.get(decisive) for state in (image, text)}
    return sides == ("image", "text") and len(digests) == 1 and None not in digests
