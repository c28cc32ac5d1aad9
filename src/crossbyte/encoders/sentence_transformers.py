"""Encode texts with a model of sentence-transformers."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np

from crossbyte.arrays import Float32, Raw
from crossbyte.compute.executor import row_blocks
from crossbyte.encoders import hub
from crossbyte.encoders.base import EncoderState, check_rows, encode_texts, encoder_fingerprint
from crossbyte.errors import CrossbyteError, InvalidInput, NoEncoder
from crossbyte.extras import import_extra

PROBES = (
    "red dog big cat",
    "the man has tea",
    "two men run far",
    "one boy may sit",
    "The MAN, in 3 blue shirts, waits: naïve?",
    "The DOG, on 2 grey stones, rests: naïve?",
    "The CAT, by 4 pink houses, walks: naïve?",
    "The BOY, at 5 dark rivers, sings: naïve?",
)
"""Texts of two lengths, with what tokenizers treat differently: capitals, accents, digits, punctuation."""

_ARCHITECTURE = ("model_type", "hidden_act", "num_attention_heads", "layer_norm_eps")


def describe_network(network: Any) -> dict[str, Any]:
    """Describe all that decides a model's features, as JSON.

    The loaded model is described, not its files: a folder and the hub's copy then agree although they
    hold different files, and so do releases of the library that write their settings differently.
    """
    return {
        "weights": hub.digest_weights(network),
        "max_seq_length": getattr(network, "max_seq_length", None),
        "tokenizer": _digest_tokenizer(network),
        "modules": [_describe_module(module) for module in network.children()],
        "prompt": _find_prompt(network),
        "truncate_dim": getattr(network, "truncate_dim", None),
    }


def token_ids(network: Any, text: str) -> list[int]:
    """Tokenize a text to numbers; none for a model that has no tokens."""
    tokenize = getattr(network, "preprocess", None) or network.tokenize  # its name before release 5.4
    ids = tokenize([text]).get("input_ids")
    return [] if ids is None else [int(number) for number in np.ravel(ids.cpu().numpy())]


def has_prompt(network: Any) -> bool:
    """Tell whether the model puts words of its own before every text."""
    return bool(_find_prompt(network))


def _find_prompt(network: Any) -> str | None:
    name = getattr(network, "default_prompt_name", None)
    return None if name is None else str(network.prompts.get(name))


def _digest_tokenizer(network: Any) -> str:
    """Digest a tokenizer's vocabulary, and what it makes of the probes."""
    tokenizer: Any = getattr(network, "tokenizer", None)
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    seen = [sorted(vocabulary.items()), [token_ids(network, text) for text in PROBES]]
    return hashlib.blake2b(json.dumps(seen).encode(), digest_size=16).hexdigest()


def _describe_module(module: Any) -> list[Any]:
    """Describe a module: class, pooling, activation, and what its weights do not show of its architecture."""
    config = getattr(getattr(module, "auto_model", None), "config", None)
    return [
        type(module).__name__,
        _list_pooling_modes(module),
        getattr(module, "include_prompt", None),
        type(getattr(module, "activation_function", None)).__name__,
        {name: getattr(config, name, None) for name in _ARCHITECTURE},
    ]


def _list_pooling_modes(module: Any) -> list[str]:
    """List the ways of pooling; earlier releases have a method for them, later ones an attribute."""
    if hasattr(module, "get_pooling_mode_str"):
        return sorted(module.get_pooling_mode_str().split("+"))
    modes = getattr(module, "pooling_mode", None) or ()
    return [modes] if isinstance(modes, str) else sorted(modes)


PREFIX = "sentence-transformers:"
_OPTION = f"--text-encoder {PREFIX}PATH"
_BATCH = 4
"""Texts at a time: three quarters of what larger batches save, and a single query pays little for it."""


class SentenceEncoder:
    """Encode texts with a sentence-transformers model.

    Padding, and the number of texts in a batch, change the last bits of a row. So a batch holds texts of one
    number of tokens, and is filled up to one size; where that was not seen to give each text the bits that
    it gets by itself, texts go one at a time.

    Parameters
    ----------
    network : SentenceTransformer
    model : str
        Its name on the hub, or its path.
    """

    kind = "sentence-transformers"

    def __init__(self, network: Any, model: str) -> None:
        self._network = network
        decisive = describe_network(network)
        hub_name = None if hub.is_local(model) else model
        name = Path(model).expanduser().resolve().name if hub_name is None else model
        self._batch = 1
        dimension = np.asarray(check_rows(self._run_batches(["a"]), 1, name)).shape[1]
        self._batch = _BATCH if self._batches_agree() else 1
        fingerprint = encoder_fingerprint(self.kind, decisive, {})
        settings = {**decisive, "model": hub_name}
        self._state = EncoderState(self.kind, name, dimension, fingerprint, settings, {})

    @classmethod
    def from_spec(cls, spec: str) -> Self:
        """Load a model by path or hub name; the hub's are downloaded where needed."""
        model = spec.removeprefix(PREFIX)
        try:
            return cls(_load_or_fetch(model), model)
        except CrossbyteError:
            raise
        except Exception as error:  # any of the libraries below it: their errors have no common base
            raise InvalidInput(
                f"{spec}: sentence-transformers cannot load it: {hub.reason(error)}"
            ) from error

    @classmethod
    def from_state(cls, state: EncoderState, given: str | None) -> Self:
        """Load the model again, from this machine alone.

        Raises
        ------
        NoEncoder
            It is not on this machine, or was a local one and is not given.
        """
        model = (
            hub.check_hub_name(state.settings.get("model"), state.name, _OPTION)
            if given is None
            else given.removeprefix(PREFIX)
        )
        try:
            return cls(_load(model, local=True), model)
        except CrossbyteError:
            raise
        except Exception as error:  # as above
            raise NoEncoder(_describe_missing(model, error)) from error

    @property
    def state(self) -> EncoderState:
        """Digests of all that decides the features, and the hub's name; no path."""
        return self._state

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode texts.

        Parameters
        ----------
        items : sequence of str

        Returns
        -------
        (n, dimension) float32 ndarray
        """
        return encode_texts(items, self._encode_checked, self._state.dimension)

    def _encode_checked(self, texts: list[str]) -> Float32:
        return np.asarray(
            check_rows(self._encode_texts(texts), len(texts), self._state.name, self._state.dimension)
        )

    def _encode_texts(self, texts: Sequence[str]) -> Float32:
        if self._batch == 1:
            return self._run_batches(texts)
        parts = [
            (part, self._run_batches([texts[row] for row in part])) for part in self._plan_batches(texts)
        ]
        order = np.concatenate([part for part, _ in parts])
        return np.asarray(np.concatenate([rows for _, rows in parts])[np.argsort(order)])

    def _plan_batches(self, texts: Sequence[str]) -> list[list[int]]:
        """Put texts with equally many tokens into batches; each batch is a list of row numbers."""
        alike: dict[int, list[int]] = {}
        for row, text in enumerate(texts):
            alike.setdefault(len(token_ids(self._network, text)), []).append(row)
        return [rows[block] for rows in alike.values() for block in row_blocks(len(rows), self._batch)]

    def _run_batches(self, texts: Sequence[str]) -> Float32:
        """Encode texts in batches; the last one is filled up with the first text."""
        full = [*texts, *[texts[0]] * (-len(texts) % self._batch)]
        # By position: the first parameter was renamed between releases.
        rows = self._network.encode(
            full, batch_size=self._batch, show_progress_bar=False, convert_to_numpy=True
        )
        return np.asarray(rows)[: len(texts)]

    def _batches_agree(self) -> bool:
        """Tell whether texts in one batch get the same bits as each in a batch of itself."""
        if has_prompt(self._network) or not token_ids(self._network, PROBES[0]):
            return False
        self._batch = _BATCH
        alone = [self._encode_texts([text]) for text in PROBES]
        return np.array_equal(self._encode_texts(PROBES), np.concatenate(alone))


def _load_or_fetch(model: str) -> Any:
    """Load a model from this machine, or else from the hub."""
    try:
        return _load(model, local=True)
    except CrossbyteError:
        raise
    except Exception:  # not here, or not whole: the second attempt tells what is wrong
        if not hub.is_local(model):
            hub.check_hub_answers(model)
        return _load(model, local=hub.is_local(model))


def _load(model: str, *, local: bool) -> Any:
    library = import_extra("sentence_transformers", f"the encoder {PREFIX}{model} needs")
    path = str(Path(model).expanduser()) if hub.is_local(model) else model
    with hub.local_files_only() if local else nullcontext():
        return library.SentenceTransformer(path, trust_remote_code=False, local_files_only=local)


def _describe_missing(model: str, error: Exception) -> str:
    if hub.is_local(model):
        return f"the text encoder {model!r} is no whole sentence-transformers model: {hub.reason(error)}"
    return (
        f"the text encoder {model!r} (sentence-transformers) is not on this machine, and searching never "
        f"downloads ({hub.reason(error)}); load it once with sentence_transformers.SentenceTransformer, or "
        f"give its folder with {_OPTION}"
    )
