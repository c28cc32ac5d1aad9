"""Means over regions, and the forms in which histograms are compared."""

from __future__ import annotations

import numpy as np

from crossbyte.arrays import Float32

__all__ = ["block_means", "rooted", "unit"]


def block_means(values: Float32, grid: int) -> Float32:
    """Means of (h, w, k) values over a grid x grid of regions, as one row (grid² k)."""
    rows, columns = (_cuts(size, grid) for size in values.shape[:2])
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)
    return np.ascontiguousarray(sums / (values.shape[0] * values.shape[1] / grid**2)).ravel()


def rooted(values: Float32) -> Float32:
    """Signed roots, brought to unit length: large bins do not drown the small ones."""
    return unit(np.sign(values) * np.sqrt(np.abs(values)))


def unit(values: Float32) -> Float32:
    """A row over its length; zeros stay zero."""
    length = float(np.sqrt(np.sum(values.astype(np.float64) ** 2)))
    return np.asarray(values / length if length > 1e-12 else np.zeros_like(values), dtype=np.float32)


def _cuts(size: int, grid: int) -> list[int]:
    return [size * part // grid for part in range(grid)]
