"""Small networks for texts, their tokenizers, and CLIP folders of two small networks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from support.onnx_files import FLOAT, INT64, Shape, integer, integers, node, port, weights, write_graph

WORDS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "dog", "cat", "red", "blue", "runs", "sits", "on", "grass")
PREPROCESSOR = {
    "do_resize": True,
    "size": {"shortest_edge": 8},
    "do_center_crop": True,
    "crop_size": {"height": 8, "width": 8},
    "do_rescale": True,
    "rescale_factor": 1 / 255,
    "do_normalize": True,
    "image_mean": [0.5, 0.4, 0.3],
    "image_std": [0.2, 0.25, 0.5],
    "resample": 3,
}


def write_tokenizer(
    path: Path, words: Sequence[str] = WORDS, *, max_tokens: int | None = None, padding: bool = False
) -> Path:
    """A tokenizer of whole words between two marks, as sentence networks have it."""
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    if max_tokens is not None:
        tokenizer.enable_truncation(max_tokens)
    if padding:  # as files of sentence-transformers have it
        tokenizer.enable_padding(length=max_tokens, pad_id=0, pad_token="[PAD]")
    tokenizer.save(str(path))
    return path


def make_table(n_words: int = len(WORDS), width: int = 6, seed: int = 0) -> Any:
    """The vector of each word in a network of `write_text_network`."""
    return np.random.default_rng(seed).normal(size=(n_words, width)).astype(np.float32)


def write_text_network(
    path: Path,
    table: Any,
    *,
    pooled: str | None = None,
    inputs: Sequence[str] = ("input_ids", "attention_mask"),
    shape: Shape = ("n", "t"),
) -> Path:
    """A network that looks up the vector of each token; `pooled` names an output that is their mean."""
    parts = [node("Gather", ["table", inputs[0]], "last_hidden_state"), weights("table", table)]
    parts += [port(11, name, shape, INT64) for name in inputs]
    if pooled is None:
        parts.append(port(12, "last_hidden_state", [*shape, table.shape[1]], FLOAT))
    else:
        mean = integers("axes", [1]) + integer("keepdims", 0)
        parts.append(node("ReduceMean", ["last_hidden_state"], pooled, mean))
        parts.append(port(12, pooled, [shape[0], table.shape[1]], FLOAT))
    return write_graph(path, *parts)


def write_vision_network(path: Path, width: int = 6, seed: int = 1) -> Path:
    """Mean colours times random numbers, with CLIP's names; the colours themselves are another output."""
    matrix = np.random.default_rng(seed).normal(size=(3, width)).astype(np.float32)
    return write_graph(
        path,
        node("GlobalAveragePool", ["pixel_values"], "colours"),
        node("Flatten", ["colours"], "flat"),
        node("MatMul", ["flat", "matrix"], "image_embeds"),
        weights("matrix", matrix),
        port(11, "pixel_values", ["n", 3, "h", "w"]),
        port(12, "colours", ["n", 3, 1, 1]),
        port(12, "image_embeds", ["n", width]),
    )


def write_clip_folder(folder: Path, *, variant: str = "", inner: str = "onnx", **changes: Any) -> Path:
    """A CLIP export as hubs distribute it; `changes` go into its preprocessor_config.json."""
    (folder / inner).mkdir(parents=True, exist_ok=True)
    write_vision_network(folder / inner / f"vision_model{variant}.onnx")
    text = folder / inner / f"text_model{variant}.onnx"
    write_text_network(text, make_table(), pooled="text_embeds", inputs=["input_ids"])
    write_tokenizer(folder / "tokenizer.json")
    (folder / "preprocessor_config.json").write_text(json.dumps(PREPROCESSOR | changes))
    return folder
