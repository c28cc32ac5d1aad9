"""Folders of pictures with captions, small encoders, and galleries built quickly of them."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.captions.layout import read_raw
from crossbyte.data.captions.raw_documents import RawDocuments
from crossbyte.data.scenes import write_scenes
from crossbyte.gallery.build import BuildResult, build_gallery

WIDTH = 64
QUICK: dict[str, Any] = {"mapping": "cca", "n_bits": 16, "parameters": {"max_iter": 2}, "curve": ()}
WORDS = f"{__name__}:words"
COLOURS = f"{__name__}:colours"


def words(texts: list[str]) -> NDArray[np.float32]:
    """Counts of words, in few columns; a small encoder for texts."""
    rows = np.zeros((len(texts), WIDTH), dtype=np.float32)
    for row, text in zip(rows, texts, strict=True):
        for word in re.findall(r"[a-z]+", text.lower()):
            row[zlib.crc32(word.encode()) % WIDTH] += 1
    return rows


def colours(pictures: list[NDArray[np.uint8]]) -> NDArray[np.float32]:
    """Colours of the parts of a picture; a small encoder for pictures."""
    return np.stack([_shrunk(picture).ravel() / np.float32(255) for picture in pictures])


def _shrunk(picture: NDArray[np.uint8]) -> NDArray[np.float32]:
    rows = [
        np.stack([part.mean(axis=(0, 1)) for part in np.array_split(band, 6, axis=1)])
        for band in _bands(picture)
    ]
    return np.stack(rows).astype(np.float32)


def _bands(picture: NDArray[np.uint8]) -> list[Any]:
    return np.array_split(picture, 6, axis=0)


def scenes(folder: Path, n: int, seed: int = 0) -> RawDocuments:
    """Write generated scenes, and read them as documents."""
    write_scenes(folder, n, seed)
    return read_raw(folder)


def build(documents: RawDocuments, path: Path, **options: Any) -> BuildResult:
    """Build a gallery with the small encoders and few rounds."""
    given: dict[str, Any] = QUICK | {"image_encoder": COLOURS, "text_encoder": WORDS} | options
    return build_gallery(documents, path, **given)
