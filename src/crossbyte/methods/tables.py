"""Distances from points to additive codes, for the systems that add up table entries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.executors.threads import Workers
from crossbyte.quantization.quantizer import Quantizer

__all__ = ["relative_error", "table_distances"]

_BLOCK_ENTRIES = 2**22  # distances computed at a time: 16 MB, and as much for the entries that are added


def table_distances(quantizer: Quantizer, points: Float32, scan_codes: Codes, workers: Workers) -> Float32:
    """Distances (n, N) from query points (n, D) to items given by their scan codes.

    The same sums as in a search, so that items with equal codes are at exactly equal distances, and a
    query's distances do not depend on the others.
    """
    distances = np.empty((len(points), len(scan_codes)), dtype=np.float32)

    def fill(rows: slice) -> None:
        distances[rows] = quantizer.table(points[rows]).distances(scan_codes)

    workers.each(fill, len(points), max(1, _BLOCK_ENTRIES // max(1, len(scan_codes))))
    return distances


def relative_error(points: NDArray[np.floating[Any]], decoded: NDArray[np.floating[Any]]) -> float:
    """Sum of squared distances from points to what their codes stand for, over the points' sum of squares."""
    exact = points.astype(np.float64)
    lost = exact - decoded
    return float(np.vdot(lost, lost) / max(float(np.vdot(exact, exact)), np.finfo(float).tiny))
