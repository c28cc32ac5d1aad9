"""A model of sentence-transformers as an encoder of texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from crossbyte.arrays import Float32, Raw
from crossbyte.encoders.hashing import fingerprint_of
from crossbyte.encoders.hub import check_hub_name, is_local, local_files_only, weights_digest
from crossbyte.encoders.outputs import checked_rows, encode_texts
from crossbyte.encoders.protocol import EncoderState
from crossbyte.errors import InvalidInput, NoEncoder
from crossbyte.extras import require

__all__ = ["SentenceTexts"]

PREFIX = "sentence-transformers:"


class SentenceTexts:
    """Texts through a sentence-transformers model, one at a time: padding to others changes the last bits.

    Parameters
    ----------
    network : SentenceTransformer
    model : str
        Its name at the hub, or its path.
    """

    kind = "sentence-transformers"

    def __init__(self, network: Any, model: str) -> None:
        self._network = network
        decisive = {
            "weights": weights_digest(network),
            "max_seq_length": getattr(network, "max_seq_length", None),
        }
        hub_name = None if is_local(model) else model
        name = Path(model).expanduser().resolve().name if hub_name is None else model
        dimension = self._rows(["a"], name).shape[1]
        fingerprint = fingerprint_of(self.kind, decisive, {})
        settings = {**decisive, "model": hub_name}
        self._state = EncoderState(self.kind, name, dimension, fingerprint, settings, {})

    @classmethod
    def from_spec(cls, spec: str) -> Self:
        """Load a model by path or hub name; the hub's are downloaded where they are not yet."""
        model = spec.removeprefix(PREFIX)
        try:
            return cls(_load(model, local=False), model)
        except (OSError, ValueError, RuntimeError) as error:
            raise InvalidInput(f"{spec}: sentence-transformers cannot load it: {error}") from error

    @classmethod
    def from_state(cls, state: EncoderState, given: str | None) -> Self:
        """Load the model again, from this machine alone.

        Raises
        ------
        NoEncoder
            It is not on this machine, or was a local one and is not given.
        """
        model = (
            check_hub_name(state.settings.get("model"), state.name)
            if given is None
            else given.removeprefix(PREFIX)
        )
        try:
            return cls(_load(model, local=True), model)
        except (OSError, ValueError, RuntimeError) as error:
            raise NoEncoder(
                f"the text encoder {model!r} (sentence-transformers) is not on this machine, and searching "
                f"never downloads ({error}); load it once with sentence_transformers.SentenceTransformer, or "
                f"give its folder with --text-encoder {PREFIX}PATH"
            ) from error

    @property
    def state(self) -> EncoderState:
        """A digest of the weights, and the hub's name; no path."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Raw:
        """Make features of texts.

        Parameters
        ----------
        items : sequence of str

        Returns
        -------
        (n, dimension) float32 ndarray
        """
        return encode_texts(items, lambda texts: self._rows(texts, self._state.name), self._state.dimension)

    def _rows(self, texts: list[str], name: str) -> Float32:
        rows = self._network.encode(texts, batch_size=1, show_progress_bar=False, convert_to_numpy=True)
        return np.asarray(checked_rows(rows, len(texts), name))


def _load(model: str, *, local: bool) -> Any:
    library = require("sentence_transformers", f"the encoder {PREFIX}{model} needs")
    path = str(Path(model).expanduser()) if is_local(model) else model
    with local_files_only() if local else nullcontext():
        return library.SentenceTransformer(path, trust_remote_code=False, local_files_only=local)
