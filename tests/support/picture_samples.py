"""Small pictures as files, made with Pillow in the test process only."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from PIL import Image

from crossbyte.data.images.reader import PictureReader
from crossbyte.errors import PictureError


def encoded(image: Image.Image, form: str = "PNG", **options: Any) -> bytes:
    """Return the bytes of a file of this format."""
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def gradient(width: int = 24, height: int = 16) -> Image.Image:
    """Return an RGB picture that differs in every pixel and from each of its turns."""
    across, down = np.meshgrid(np.arange(width), np.arange(height))
    values = np.stack([across * 255 // width, down * 255 // height, (across + down) % 7 * 30], axis=-1)
    return Image.fromarray(values.astype(np.uint8))


def halves(mode: str, left: Any, right: Any, size: tuple[int, int] = (16, 8)) -> Image.Image:
    """Return a picture of two colours, given as the mode wants them."""
    image = Image.new(mode, size, left)
    image.paste(right, (size[0] // 2, 0, *size))
    return image


def plain(colour: tuple[int, int, int], size: tuple[int, int] = (8, 6)) -> bytes:
    """Return a PNG file of one colour."""
    return encoded(Image.new("RGB", size, colour))


def refusal(reader: PictureReader, source: Any) -> str:
    """Return the words with which a picture is refused."""
    with pytest.raises(PictureError) as caught:
        reader.read(source)
    return str(caught.value)
