"""What a picture is once it is read, and how much of a user's file is believed."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXTENSIONS", "FORMATS", "LONG_SIDE", "SHORT_SIDE", "THUMBNAIL_SIDE", "Picture", "PictureLimits"]

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "GIF")
"""The only kinds that are ever decoded, by the names Pillow gives them."""
EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
"""The endings of their names, in small letters."""

SHORT_SIDE = 512
"""No encoder looks at more than this of the short side."""
LONG_SIDE = 4096
"""Bounds the bytes of a strip one pixel high, whose short side says nothing."""
THUMBNAIL_SIDE = 320


class PictureLimits(NamedTuple):
    """The most that reading one picture may take.

    Attributes
    ----------
    max_bytes : int
        Size of the file.
    max_pixels : int
        Width times height, judged from the header before anything is decoded.
    seconds : float
        CPU time of one picture. By the clock it may take three times as long: processes share cores.
    memory : int
        Address space of the process that decodes, in bytes, libraries included.
    """

    max_bytes: int = 20 * 2**20
    max_pixels: int = 50_000_000
    seconds: float = 5
    memory: int = 2**30


class Picture(NamedTuple):
    """One decoded picture.

    Attributes
    ----------
    pixels : ndarray of shape (h, w, 3), uint8
        RGB, upright (EXIF orientation applied), transparent parts over white, the first frame of a moving
        picture. Shrunk so that the short side is at most 512 and the long one at most 4096; never enlarged.
    width, height : int
        Of the original, upright.
    thumbnail : bytes
        A JPEG file of our own making, longest side at most 320, without metadata.
    digest : str
        BLAKE2b-128 of the file's bytes, in hexadecimal.
    """

    pixels: NDArray[np.uint8]
    width: int
    height: int
    thumbnail: bytes
    digest: str
