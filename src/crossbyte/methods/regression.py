"""Bits that predict values learned for the training documents: ridge regression from one side."""

from __future__ import annotations

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import place
from crossbyte.methods.hamming import LinearBits
from crossbyte.methods.similarity import with_ridge

__all__ = ["at_medians", "regressed_bits", "regression"]


def regression(rows: Rows, values: Float64, ridge: float, workers: Workers) -> Float64:
    """W = (X'X + r I)⁻¹ X'V, (d, c), of centred rows X (N, d) and values V (N, c).

    The ridge r is in units of the mean variance.
    """

    def sums(block: slice) -> tuple[Float64, Float64]:
        return rows[block].gram(), rows[block].cross(values[block])

    gram, cross = workers.total(sums, rows.shape[0])
    return np.linalg.solve(with_ridge(gram, ridge), cross.T)


def regressed_bits(rows: Rows, values: Float64, ridge: float, workers: Workers) -> LinearBits:
    """Functions of centred rows (N, d) nearest to values (N, c); bits are cut at the values' means."""
    return LinearBits(regression(rows, values, ridge, workers), np.zeros(values.shape[1]))


def at_medians(bits: LinearBits, rows: Rows, workers: Workers) -> LinearBits:
    """The same functions, cut at their medians over the training rows: every bit halves these."""
    medians = np.median(place(rows, bits.weights, workers).astype(np.float64), axis=0)
    return LinearBits(bits.weights, -medians)
