"""The numbers of codewords, chosen so that codewords with equal high bits lie close together.

A number means nothing to the method. The scan uses it: where a processor can hold only 64 table entries in
registers, it looks up the smallest entry of the four codewords that share their six high bits, and the closer
these are, the more items that bound rules out.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32

__all__ = ["renumber"]

_TOGETHER = 4  # codewords that share their six high bits


def renumber(codewords: Float32, codes: Codes) -> tuple[Float32, Codes]:
    """Give codebooks (M, K, d) and codes (n, M) of the same points with codewords numbered by place."""
    orders = np.stack([_order(book.astype(np.float64), np.arange(len(book))) for book in codewords])
    numbers = np.argsort(orders, axis=1)  # from old to new
    new_codes = np.stack([numbers[m, column] for m, column in enumerate(codes.T)], axis=1)
    return np.take_along_axis(codewords, orders[:, :, None], axis=1), new_codes.astype(np.uint8)


def _order(book: NDArray[np.float64], codewords: NDArray[np.intp]) -> NDArray[np.intp]:
    """Halve the codewords along their widest direction, and each half again."""
    if len(codewords) <= _TOGETHER:
        return np.sort(codewords)
    points = book[codewords] - book[codewords].mean(axis=0)
    place = points @ _widest_direction(points)
    ranked = codewords[np.argsort(place, kind="stable")]
    half = len(codewords) // 2
    return np.concatenate([_order(book, ranked[:half]), _order(book, ranked[half:])])


def _widest_direction(points: NDArray[np.float64]) -> NDArray[Any]:
    direction = np.linalg.svd(points, full_matrices=False)[2][0]
    return direction * (1.0 if direction[np.abs(direction).argmax()] >= 0 else -1.0)  # one of two signs
