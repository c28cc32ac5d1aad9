"""What decides the features of a sentence-transformers model: weights, and all that stands beside them."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from crossbyte.encoders.hub import weights_digest

__all__ = ["PROBES", "decisive_parts", "has_prompt", "token_ids"]

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


def decisive_parts(network: Any) -> dict[str, Any]:
    """All that decides a model's features, as JSON.

    It is asked of the loaded model, not of its files: a folder and the hub's copy then agree although they
    hold different files, and so do releases of the library that write their settings differently.
    """
    return {
        "weights": weights_digest(network),
        "max_seq_length": getattr(network, "max_seq_length", None),
        "tokenizer": _tokenizer_digest(network),
        "modules": [_module_parts(module) for module in network.children()],
        "prompt": _prompt(network),
        "truncate_dim": getattr(network, "truncate_dim", None),
    }


def token_ids(network: Any, text: str) -> list[int]:
    """Numbers of a text's tokens; none for a model that has no tokens."""
    tokenize = getattr(network, "preprocess", None) or network.tokenize  # its name before release 5.4
    ids = tokenize([text]).get("input_ids")
    return [] if ids is None else [int(number) for number in np.ravel(ids.cpu().numpy())]


def has_prompt(network: Any) -> bool:
    """Whether the model puts words of its own before every text."""
    return bool(_prompt(network))


def _prompt(network: Any) -> str | None:
    name = getattr(network, "default_prompt_name", None)
    return None if name is None else str(network.prompts.get(name))


def _tokenizer_digest(network: Any) -> str:
    """Digest a tokenizer's vocabulary, and what it makes of the probes."""
    tokenizer: Any = getattr(network, "tokenizer", None)
    vocabulary = tokenizer.get_vocab() if hasattr(tokenizer, "get_vocab") else {}
    seen = [sorted(vocabulary.items()), [token_ids(network, text) for text in PROBES]]
    return hashlib.blake2b(json.dumps(seen).encode(), digest_size=16).hexdigest()


def _module_parts(module: Any) -> list[Any]:
    """A step's class, its pooling and activation, and what of a network's shape its weights do not show."""
    config = getattr(getattr(module, "auto_model", None), "config", None)
    return [
        type(module).__name__,
        _pooling(module),
        getattr(module, "include_prompt", None),
        type(getattr(module, "activation_function", None)).__name__,
        {name: getattr(config, name, None) for name in _ARCHITECTURE},
    ]


def _pooling(module: Any) -> list[str]:
    """Names of its ways of pooling; earlier releases have a method for them, later ones an attribute."""
    if hasattr(module, "get_pooling_mode_str"):
        return sorted(module.get_pooling_mode_str().split("+"))
    modes = getattr(module, "pooling_mode", None) or ()
    return [modes] if isinstance(modes, str) else sorted(modes)
