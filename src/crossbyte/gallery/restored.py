"""The encoders of a model, made again when they are first needed, for many threads."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from crossbyte.arrays import Raw
from crossbyte.errors import NoEncoder, WrongEncoder

if TYPE_CHECKING:
    from crossbyte.encoders.protocol import Encoder
    from crossbyte.model.cmcq import CMCQ

__all__ = ["Encoders"]

# Ours, which keep nothing between calls, and sessions of ONNX Runtime, which may be shared.
_SHAREABLE = ("builtin", "onnx")


class Encoders:
    """Encodes texts and pictures as the model's features were made.

    Parameters
    ----------
    model : CMCQ
        Names its encoders, unless it was fitted on plain features.
    given : mapping of side to str
        What the user says where to find one.
    local : mapping of side to str
        Where one was found before on this machine; the user's word counts more.
    """

    def __init__(self, model: CMCQ, given: Mapping[str, str], local: Mapping[str, str]) -> None:
        self.states = model.encoder_states_
        self._widths = {"image": model.n_features_in_, "text": model.n_text_features_}
        self._given, self._local = given, local
        self._made: dict[str, Encoder] = {}
        self._making, self._busy = threading.Lock(), threading.Lock()

    def get(self, side: str) -> Encoder:
        """Give the encoder of a side.

        Raises
        ------
        NoEncoder, WrongEncoder, MissingExtra
        """
        with self._making:
            if side not in self._made:
                self._made[side] = self._make(side)
            return self._made[side]

    def encode(self, side: str, items: Sequence[Any]) -> Raw:
        """Encode texts, or pictures as arrays of pixels; any thread may call it."""
        encoder = self.get(side)
        if encoder.state.kind.startswith(_SHAREABLE):
            return encoder.encode(items)
        with self._busy:
            return encoder.encode(items)

    def _make(self, side: str) -> Encoder:
        from crossbyte.encoders.restoring import restore_encoder

        if side in self.states:
            state = self.states[side]
            if side not in self._given and side in self._local and state.kind == "onnx":
                with suppress(FileNotFoundError):  # moved since: then say which option brings it
                    return restore_encoder(state, side, self._local[side])
            return restore_encoder(state, side, self._given.get(side))
        if side not in self._given:
            what = "pictures" if side == "image" else "texts"
            raise NoEncoder(
                f"this index was made from features, and says of no encoder that makes them from {what}; "
                f"ask with features, or name it with --{side}-encoder"
            )
        return self._foreign(side, self._given[side])

    def _foreign(self, side: str, spec: str) -> Encoder:
        """The user's encoder for a model of plain features; only its width can be judged."""
        from crossbyte.encoders.choosing import make_encoder

        if spec == "builtin":
            raise NoEncoder(
                f"{side} encoder: the built-in one learns from the pairs of its model, and this model has "
                "none; name the encoder that made the features"
            )
        made = make_encoder(spec, side, ())
        if made.state.dimension != self._widths[side]:
            raise WrongEncoder(
                f"{side} encoder: expected features of the model's width {self._widths[side]}, got "
                f"{made.state.name!r} with {made.state.dimension}; name the encoder that made the features"
            )
        return made
