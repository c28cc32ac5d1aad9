"""A model of sentence-transformers as an encoder of texts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from crossbyte.arrays import Float32, Raw
from crossbyte.blocks import row_blocks
from crossbyte.encoders.hashing import fingerprint_of
from crossbyte.encoders.hub import check_hub_answers, check_hub_name, is_local, local_files_only, reason
from crossbyte.encoders.outputs import checked_rows, encode_texts
from crossbyte.encoders.protocol import EncoderState
from crossbyte.encoders.sentence_parts import PROBES, decisive_parts, has_prompt, token_ids
from crossbyte.errors import CrossbyteError, InvalidInput, NoEncoder
from crossbyte.extras import require

__all__ = ["SentenceTexts"]

PREFIX = "sentence-transformers:"


_OPTION = f"--text-encoder {PREFIX}PATH"
_BATCH = 4
"""Texts at a time: three quarters of what larger batches save, and a single query pays little for it."""


class SentenceTexts:
    """Texts through a sentence-transformers model.

    Padding, and the number of texts in a batch, change the last bits of a row. So a batch holds texts of one
    number of tokens, and is filled up to one size; where that was not seen to give each text the bits that
    it gets by itself, texts go one at a time.

    Parameters
    ----------
    network : SentenceTransformer
    model : str
        Its name at the hub, or its path.
    """

    kind = "sentence-transformers"

    def __init__(self, network: Any, model: str) -> None:
        self._network = network
        decisive = decisive_parts(network)
        hub_name = None if is_local(model) else model
        name = Path(model).expanduser().resolve().name if hub_name is None else model
        self._batch = 1
        dimension = np.asarray(checked_rows(self._run(["a"]), 1, name)).shape[1]
        self._batch = _BATCH if self._batches_agree() else 1
        fingerprint = fingerprint_of(self.kind, decisive, {})
        settings = {**decisive, "model": hub_name}
        self._state = EncoderState(self.kind, name, dimension, fingerprint, settings, {})

    @classmethod
    def from_spec(cls, spec: str) -> Self:
        """Load a model by path or hub name; the hub's are downloaded where they are not yet."""
        model = spec.removeprefix(PREFIX)
        try:
            return cls(_load_or_fetch(model), model)
        except CrossbyteError:
            raise
        except Exception as error:  # any of the libraries below it: their errors have no common base
            raise InvalidInput(f"{spec}: sentence-transformers cannot load it: {reason(error)}") from error

    @classmethod
    def from_state(cls, state: EncoderState, given: str | None) -> Self:
        """Load the model again, from this machine alone.

        Raises
        ------
        NoEncoder
            It is not on this machine, or was a local one and is not given.
        """
        model = (
            check_hub_name(state.settings.get("model"), state.name, _OPTION)
            if given is None
            else given.removeprefix(PREFIX)
        )
        try:
            return cls(_load(model, local=True), model)
        except CrossbyteError:
            raise
        except Exception as error:  # as above
            raise NoEncoder(_not_here(model, error)) from error

    @property
    def state(self) -> EncoderState:
        """Digests of all that decides the features, and the hub's name; no path."""
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
        return encode_texts(items, self._checked, self._state.dimension)

    def _checked(self, texts: list[str]) -> Float32:
        return np.asarray(
            checked_rows(self._rows(texts), len(texts), self._state.name, self._state.dimension)
        )

    def _rows(self, texts: Sequence[str]) -> Float32:
        if self._batch == 1:
            return self._run(texts)
        parts = [(part, self._run([texts[row] for row in part])) for part in self._parts(texts)]
        order = np.concatenate([part for part, _ in parts])
        return np.asarray(np.concatenate([rows for _, rows in parts])[np.argsort(order)])

    def _parts(self, texts: Sequence[str]) -> list[list[int]]:
        """Numbers of texts that go together: as many as a batch holds, with as many tokens each."""
        alike: dict[int, list[int]] = {}
        for row, text in enumerate(texts):
            alike.setdefault(len(token_ids(self._network, text)), []).append(row)
        return [rows[block] for rows in alike.values() for block in row_blocks(len(rows), self._batch)]

    def _run(self, texts: Sequence[str]) -> Float32:
        """Rows of texts; a batch that they do not fill is filled up with the first of them."""
        full = [*texts, *[texts[0]] * (-len(texts) % self._batch)]
        # By position: the first parameter was renamed between releases.
        rows = self._network.encode(
            full, batch_size=self._batch, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(rows)[: len(texts)]

    def _batches_agree(self) -> bool:
        """Whether texts in one batch get the bits that each gets in a batch of itself."""
        if has_prompt(self._network) or not token_ids(self._network, PROBES[0]):
            return False
        self._batch = _BATCH
        alone = [self._rows([text]) for text in PROBES]
        return np.array_equal(self._rows(PROBES), np.concatenate(alone))


def _load_or_fetch(model: str) -> Any:
    """From this machine if it is there; the hub is asked only for what is not."""
    try:
        return _load(model, local=True)
    except CrossbyteError:
        raise
    except Exception:  # not here, or not whole: what is wrong with it, the second attempt says
        if not is_local(model):
            check_hub_answers(model)
        return _load(model, local=is_local(model))


def _load(model: str, *, local: bool) -> Any:
    library = require("sentence_transformers", f"the encoder {PREFIX}{model} needs")
    path = str(Path(model).expanduser()) if is_local(model) else model
    with local_files_only() if local else nullcontext():
        return library.SentenceTransformer(path, trust_remote_code=False, local_files_only=local)


def _not_here(model: str, error: Exception) -> str:
    if is_local(model):
        return f"the text encoder {model!r} is no whole sentence-transformers model: {reason(error)}"
    return (
        f"the text encoder {model!r} (sentence-transformers) is not on this machine, and searching never "
        f"downloads ({reason(error)}); load it once with sentence_transformers.SentenceTransformer, or give "
        f"its folder with {_OPTION}"
    )
