"""A picture as the input of a network: resized, cut or framed, scaled and laid out as a description says."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from crossbyte.encoders.onnx_description import Description

__all__ = ["network_input"]

_FILTERS = {
    "nearest": Image.Resampling.NEAREST,
    "bilinear": Image.Resampling.BILINEAR,
    "bicubic": Image.Resampling.BICUBIC,
    "lanczos": Image.Resampling.LANCZOS,
}


def network_input(picture: NDArray[np.uint8], description: Description, dtype: Any) -> NDArray[Any]:
    """Make the input of one picture.

    Parameters
    ----------
    picture : (height, width, 3) uint8 ndarray
        RGB.
    description : Description
    dtype : dtype
        Of the network's input; uint8 gets the grey levels as they are.

    Returns
    -------
    (3, height, width) or (height, width, 3) ndarray of that dtype
    """
    pixels = np.asarray(_fitted(Image.fromarray(picture), description))
    if dtype != np.uint8:
        mean, std = (np.asarray(levels, dtype=np.float32) for levels in (description.mean, description.std))
        pixels = ((pixels.astype(np.float32) - mean) / std).astype(dtype)
    if description.colour == "BGR":
        pixels = pixels[:, :, ::-1]
    return np.ascontiguousarray(pixels.transpose(2, 0, 1) if description.layout == "NCHW" else pixels)


def _fitted(image: Image.Image, description: Description) -> Image.Image:
    if description.fit == "squash":
        return _resized(image, description.width, description.height, description)
    return _cropped(image, description) if description.fit == "crop" else _framed(image, description)


def _cropped(image: Image.Image, description: Description) -> Image.Image:
    """Short side to the size wanted, then the centre."""
    scale = description.short_side / min(image.size)
    width, height = (max(description.short_side, round(side * scale)) for side in image.size)
    # A strip of 1 x 50,000 would become a huge picture, of which only the centre is wanted.
    image, width, height = _middle(image, width, height, 4 * description.short_side)
    image = _resized(image, width, height, description)
    left, top = (width - description.width) // 2, (height - description.height) // 2
    return image.crop((left, top, left + description.width, top + description.height))


def _middle(image: Image.Image, width: int, height: int, most: int) -> tuple[Image.Image, int, int]:
    """Cut a picture that will be enlarged beyond ``most``; its middle is all that a crop will see."""
    if max(width, height) <= most:
        return image, width, height
    side = 4 * min(image.size)
    across, down = min(image.width, side), min(image.height, side)
    left, top = (image.width - across) // 2, (image.height - down) // 2
    scale = min(width, height) / min(image.size)
    return image.crop((left, top, left + across, top + down)), round(across * scale), round(down * scale)


def _framed(image: Image.Image, description: Description) -> Image.Image:
    """The whole picture in the middle, grey borders around it."""
    scale = min(description.width / image.width, description.height / image.height)
    width, height = (max(1, round(side * scale)) for side in image.size)
    image = _resized(image, width, height, description)
    frame = Image.new("RGB", (description.width, description.height), (description.border,) * 3)
    frame.paste(image, ((description.width - width) // 2, (description.height - height) // 2))
    return frame


def _resized(image: Image.Image, width: int, height: int, description: Description) -> Image.Image:
    if image.size == (width, height):
        return image
    return image.resize((width, height), _FILTERS[description.resampling])
