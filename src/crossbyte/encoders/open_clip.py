"""Encode images and texts with a model of open_clip."""

from __future__ import annotations

import importlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

import numpy as np
from PIL import Image

from crossbyte.arrays import Float32, Raw
from crossbyte.encoders import hub
from crossbyte.encoders.base import EncoderState, check_picture, check_rows, encode_texts, encoder_fingerprint
from crossbyte.errors import CrossbyteError, InvalidInput, MissingExtra, NoEncoder
from crossbyte.extras import import_extra

PREFIX = "open-clip:"
_HUB = "hf-hub:"


@dataclass(frozen=True)
class ClipModel:
    """A loaded model of open_clip: the network, its preparation of pictures, its tokenizer."""

    network: Any
    preprocess: Any
    tokenizer: Any
    torch: Any
    device: str


class ClipEncoder:
    """Encode one side with a CLIP model, one item at a time; rows have length one.

    Parameters
    ----------
    clip : ClipModel
    model : str
        ``MODEL`` or ``MODEL@PRETRAINED``.
    side : {"image", "text"}
    """

    kind = "open-clip"

    def __init__(self, clip: ClipModel, model: str, side: str) -> None:
        self._clip, self._side = clip, side
        name, hub_name = _make_public_names(model)
        decisive = {
            "weights": hub.digest_weights(clip.network),
            "preprocess": _to_plain_json(getattr(clip.network.visual, "preprocess_cfg", None)),
            "side": side,
        }
        probe: Any = np.zeros((8, 8, 3), dtype=np.uint8) if side == "image" else "a"
        dimension = len(self._encode_item(probe))
        fingerprint = encoder_fingerprint(self.kind, decisive, {})
        settings = {**decisive, "model": hub_name}
        self._state = EncoderState(self.kind, name, dimension, fingerprint, settings, {})

    @classmethod
    def from_spec(cls, spec: str, side: str) -> Self:
        """Load a model by name and weights; those of a hub are downloaded where needed."""
        model = spec.removeprefix(PREFIX)
        try:
            return cls(_load_or_fetch(model), model, side)
        except CrossbyteError:
            raise
        except Exception as error:  # any of the libraries below it: their errors have no common base
            raise InvalidInput(f"{spec}: open_clip cannot load it: {hub.reason(error)}") from error

    @classmethod
    def from_state(cls, state: EncoderState, side: str, given: str | None) -> Self:
        """Load the model again, from this machine alone.

        Raises
        ------
        NoEncoder
            It is not on this machine, or was a local one and is not given.
        """
        model = _check_state(state, side) if given is None else given.removeprefix(PREFIX)
        try:
            return cls(_load(model, local=True), model, side)
        except MissingExtra:
            raise
        except Exception as error:  # as above
            raise NoEncoder(_describe_missing(model, side, error)) from error

    @property
    def state(self) -> EncoderState:
        """A digest of the weights, the preparation of pictures, and the names; no path."""
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
        if self._side == "text":
            return encode_texts(items, self._encode_items, self._state.dimension)
        return self._encode_items([check_picture(item) for item in items])

    def _encode_items(self, items: Sequence[Any]) -> Float32:
        if not items:
            return np.zeros((0, self._state.dimension), dtype=np.float32)
        rows = np.stack([self._encode_item(item) for item in items])
        return np.asarray(check_rows(rows, len(items), self._state.name, self._state.dimension))

    def _encode_item(self, item: Any) -> Float32:
        clip = self._clip
        with clip.torch.no_grad():
            if self._side == "image":
                tensor = clip.preprocess(Image.fromarray(item)).unsqueeze(0).to(clip.device)
                row = clip.network.encode_image(tensor, normalize=True)
            else:
                row = clip.network.encode_text(clip.tokenizer([item]).to(clip.device), normalize=True)
        return np.asarray(row.float().cpu().numpy()[0], dtype=np.float32)


_loaded: WeakValueDictionary[str, ClipModel] = WeakValueDictionary()
"""The models in use: both sides of a model share one network."""


def _load_or_fetch(model: str) -> ClipModel:
    """Load a model from this machine, or else from a hub."""
    try:
        return _load(model, local=True)
    except MissingExtra:
        raise
    except Exception:  # not here, or nowhere
        repository = _find_repository(model)
        if repository is None:
            raise
    if repository:
        hub.check_hub_answers(repository)
    return _load(model, local=False)


def _find_repository(model: str) -> str | None:
    """Find a model's repository on the hub; "" if it is fetched from elsewhere, None if it is unknown."""
    library = import_extra("open_clip", f"the encoder {PREFIX}{model} needs")
    name, _, pretrained = model.partition("@")
    if name.startswith(_HUB):
        return name.removeprefix(_HUB)
    if (name, pretrained) not in library.list_pretrained():
        return None
    place = library.get_pretrained_cfg(name, pretrained).get("hf_hub") or ""
    return "/".join(place.split("/")[:2])


def _describe_missing(model: str, side: str, error: Exception) -> str:
    if hub.is_local(model.partition("@")[2]):
        return f"the {side} encoder {model!r} cannot be loaded by open_clip: {hub.reason(error)}"
    return (
        f"the {side} encoder {model!r} (open_clip) is not on this machine, and searching never downloads "
        f"({hub.reason(error)}); load it once with open_clip.create_model_and_transforms, or give a file of "
        f"its weights with --{side}-encoder {PREFIX}MODEL@PATH"
    )


def _load(model: str, *, local: bool) -> ClipModel:
    clip = _loaded.get(model)
    if clip is None:
        clip = _loaded[model] = _load_uncached(model, local)
    return clip


def _load_uncached(model: str, local: bool) -> ClipModel:
    library = import_extra("open_clip", f"the encoder {PREFIX}{model} needs")
    torch = importlib.import_module("torch")  # open_clip has imported it
    name, _, pretrained = model.partition("@")
    if not pretrained and not name.startswith(_HUB):
        tags = ", ".join(tag for known, tag in library.list_pretrained() if known == name)
        raise ValueError(
            f"say which weights, as {PREFIX}{name}@PRETRAINED; known for {name}: {tags or 'none'}"
        )
    device = "cuda" if torch.cuda.is_available() else "cpu"
    weights = {
        "pretrained": str(Path(pretrained).expanduser()) if hub.is_local(pretrained) else pretrained or None
    }
    with hub.local_files_only() if local else nullcontext():
        network, _, preprocess = library.create_model_and_transforms(name, **weights, device=device)
        tokenizer = library.get_tokenizer(name)
    network.eval()
    return ClipModel(network, preprocess, tokenizer, torch, device)


def _make_public_names(model: str) -> tuple[str, str | None]:
    """Make a name for people, and the one that finds the model on any machine, if there is one."""
    name, _, pretrained = model.partition("@")
    if pretrained and hub.is_local(pretrained):
        return f"{name}@{Path(pretrained).name}", None
    return model, model


def _check_state(state: EncoderState, side: str) -> str:
    """Return the model's name in a state; refuse a path or any other form, as the file may be anybody's."""
    model = state.settings.get("model")
    name, at, pretrained = model.partition("@") if isinstance(model, str) else ("", "", "")
    option = f"--{side}-encoder {PREFIX}MODEL@PATH"
    hub.check_hub_name(name.removeprefix(_HUB), state.name, option)
    return f"{name}@{hub.check_hub_name(pretrained, state.name, option)}" if at else name


def _to_plain_json(settings: Any) -> Any:
    return json.loads(json.dumps(settings, sort_keys=True, default=str))
