"""Map images and texts to feature vectors: built in, ONNX, CLIP, sentence-transformers, your functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte.encoders.base import Encoder, EncoderState
    from crossbyte.encoders.registry import make_encoder, restore_encoder

__all__ = [
    "Encoder",
    "EncoderState",
    "make_encoder",
    "restore_encoder",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Encoder": "crossbyte.encoders.base",
        "EncoderState": "crossbyte.encoders.base",
        "make_encoder": "crossbyte.encoders.registry",
        "restore_encoder": "crossbyte.encoders.registry",
    },
)
