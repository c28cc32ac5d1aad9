"""Colours of a picture: soft histograms over named-like bins of a perceptual space, whole and by region.

The space is Oklab, where equal distances look about equally different. Bins are six greys and rings of hues;
a colour belongs to all bins near it, so that a little more light does not change everything.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32, Float64
from crossbyte.encoders.pooling import block_means, rooted

__all__ = ["N_COLOURS", "colour_block"]

_STEPS = 32  # levels of each channel in the table: finer is invisible in a histogram
_WIDTH = 0.06  # of a bin, in Oklab
_HUES = 12
_RINGS = ((0.38, 0.09), (0.6, 0.08), (0.6, 0.18), (0.82, 0.08))  # lightness and chroma
_GREYS = (0.08, 0.3, 0.48, 0.65, 0.83, 1.0)
N_COLOURS = len(_GREYS) + _HUES * len(_RINGS)
_GRIDS = (1, 2)


def colour_block(pixels: NDArray[np.uint8]) -> Float32:
    """Colours of (s, s, 3) pixels, as one row: bins of the whole and of its quarters."""
    steps = (pixels >> 3).astype(np.intp)
    members = _table()[(steps[..., 0] * _STEPS + steps[..., 1]) * _STEPS + steps[..., 2]]
    return np.concatenate([rooted(block_means(members, grid)) for grid in _GRIDS])


@cache
def _table() -> Float32:
    """Compute the share of each of the (steps³) colours in each bin; rows sum to 1."""
    levels = (np.arange(_STEPS) + 0.5) / _STEPS
    colours = np.stack(np.meshgrid(levels, levels, levels, indexing="ij"), axis=-1).reshape(-1, 3)
    points, bins = oklab(colours), _bins()
    squares = (
        (points**2).sum(axis=1)[:, None] + (bins**2).sum(axis=1) - 2 * np.einsum("nd,kd->nk", points, bins)
    )
    nearest = squares.min(axis=1, keepdims=True)
    members = np.exp((nearest - squares) / (2 * _WIDTH**2))
    return np.asarray(members / members.sum(axis=1, keepdims=True), dtype=np.float32)


def _bins() -> Float64:
    angles = np.arange(_HUES) * (2 * np.pi / _HUES)
    greys = [(light, 0.0, 0.0) for light in _GREYS]
    hues = [
        (light, chroma * np.cos(angle), chroma * np.sin(angle))
        for light, chroma in _RINGS
        for angle in angles
    ]
    return np.array(greys + hues)


def oklab(colours: Float64) -> Float64:
    """Oklab of (n, 3) sRGB colours in [0, 1] (Ottosson 2020)."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(np.einsum("nc,kc->nk", linear, _TO_CONES))
    return np.asarray(np.einsum("nc,kc->nk", cones, _TO_LAB))


_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
