"""Map images and texts to feature vectors: built in, ONNX, CLIP, sentence-transformers, your functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from crossbyte._lazy import lazy_names

if TYPE_CHECKING:
    from crossbyte.encoders.base import Encoder, EncoderState
    from crossbyte.encoders.clip_folder import share_space
    from crossbyte.encoders.download import download_network
    from crossbyte.encoders.registry import (
        default_image_encoder,
        default_text_encoder,
        make_encoder,
        restore_encoder,
    )

__all__ = [
    "Encoder",
    "EncoderState",
    "default_image_encoder",
    "default_text_encoder",
    "download_network",
    "make_encoder",
    "restore_encoder",
    "share_space",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Encoder": "crossbyte.encoders.base",
        "EncoderState": "crossbyte.encoders.base",
        "default_image_encoder": "crossbyte.encoders.registry",
        "default_text_encoder": "crossbyte.encoders.registry",
        "download_network": "crossbyte.encoders.download",
        "make_encoder": "crossbyte.encoders.registry",
        "restore_encoder": "crossbyte.encoders.registry",
        "share_space": "crossbyte.encoders.clip_folder",
    },
)
