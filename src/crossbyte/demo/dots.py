"""Pictures in a terminal: small, in one colour, made of the dots of Braille characters."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

__all__ = ["picture_lines"]

# Bits of the dots of a character, row by row, two in each of four rows.
_BITS = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])
_FIRST = 0x2800


def picture_lines(pixels: NDArray[np.uint8], rows: int = 6) -> list[str]:
    """Draw what stands out from the ground of a picture.

    Parameters
    ----------
    pixels : (height, width, 3) uint8
        RGB. The ground is the colour of its upper left corner.
    rows : int
        Lines; a picture has twice as many characters in a line, and is stretched to a square.

    Returns
    -------
    list of str
        Strings of ``2 * rows`` Braille characters each.
    """
    dots = _stands_out(pixels, 4 * rows)
    blocks = dots.reshape(rows, 4, 2 * rows, 2).transpose(0, 2, 1, 3)
    letters = _FIRST + (blocks * _BITS).sum(axis=(2, 3))
    return ["".join(map(chr, line)) for line in letters.tolist()]


def _stands_out(pixels: NDArray[np.uint8], side: int) -> NDArray[np.bool_]:
    """Where a picture of side x side differs from its ground, by half of the largest difference."""
    height, width = pixels.shape[:2]
    inner = (width // 20, height // 20, width - width // 20, height - height // 20)  # margins say nothing
    small = Image.fromarray(pixels).resize((side, side), Image.Resampling.BOX, box=inner)
    values = np.asarray(small, dtype=np.float64)
    difference = np.abs(values - pixels[0, 0].astype(np.float64)).max(axis=2)
    return difference > max(0.45 * difference.max(), 16.0)
