"""Take pictures that a program has in memory already: Pillow images, and arrays of pixels."""

from __future__ import annotations

from hashlib import blake2b
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from crossbyte.data.images.formats import Picture, PictureLimits
from crossbyte.errors import InvalidInput, PictureError

if TYPE_CHECKING:
    from PIL.Image import Image

_CHANNELS = (1, 3, 4)


def is_in_memory(value: Any) -> TypeGuard[Image | np.ndarray[Any, Any]]:
    """Tell whether a value is a Pillow image or an array."""
    return isinstance(value, np.ndarray) or (hasattr(value, "getexif") and hasattr(value, "mode"))


def take_picture(image: Image | np.ndarray[Any, Any]) -> Picture:
    """Make a picture of a Pillow image, or of pixels (h, w), (h, w, 1), (h, w, 3) or (h, w, 4) of uint8.

    It is what reading a file of these pixels would give: upright, over white, shrunk.

    Raises
    ------
    InvalidInput
        The array has another shape or type, or no pixels.
    PictureError
        It has too many pixels, or Pillow cannot read the rest of its file.
    """
    from PIL import ImageOps

    from crossbyte.data.images.decoder_child import shrink_upright

    opened = _open_array(image) if isinstance(image, np.ndarray) else image
    width, height = opened.size
    if not width or not height:
        raise InvalidInput(f"image: expected a picture, got one of {width} x {height} pixels")
    most = PictureLimits().max_pixels
    if width * height > most:
        raise PictureError(
            f"expected at most {most / 1e6:g} million pixels, got {width} x {height}; give a smaller copy"
        )
    try:
        made = shrink_upright(ImageOps.exif_transpose(opened))  # a copy: the caller's image stays as it is
    except (OSError, ValueError, SyntaxError) as error:
        raise PictureError(f"the picture is damaged ({error}); open it again") from error
    pixels = np.frombuffer(made.pixels, np.uint8).reshape(made.shrunk[1], made.shrunk[0], 3)
    digest = blake2b(made.pixels, digest_size=16).hexdigest()
    return Picture(pixels, *made.size, made.thumbnail, digest)


def _open_array(pixels: np.ndarray[Any, Any]) -> Image:
    from PIL import Image

    if pixels.ndim not in (2, 3) or (pixels.ndim == 3 and pixels.shape[2] not in _CHANNELS):
        raise InvalidInput(
            "image: expected pixels of shape (h, w), (h, w, 1), (h, w, 3) or (h, w, 4), "
            f"got an array of shape {pixels.shape}"
        )
    if pixels.dtype != np.uint8:
        raise InvalidInput(
            f"image: expected pixels as uint8, from 0 to 255, got {pixels.dtype}; convert them, such as "
            '(255 * pixels).astype("uint8") where they are between 0 and 1'
        )
    if not pixels.size:
        raise InvalidInput(f"image: expected some pixels, got an array of shape {pixels.shape}")
    return Image.fromarray(np.ascontiguousarray(pixels[..., 0] if pixels.shape[2:] == (1,) else pixels))
