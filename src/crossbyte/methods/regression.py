"""Bits that predict values learned for the training documents: ridge regression from one side."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossbyte.arrays import Float64, Raw
from crossbyte.data.features import DenseRows, Rows
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import place, with_ridge
from crossbyte.methods.anchors import AnchorFeatures
from crossbyte.methods.hamming import LinearBits
from crossbyte.methods.products import row_products

__all__ = ["KernelBits", "at_medians", "regressed_bits", "regression"]


def regression(rows: Rows, values: Float64, ridge: float, workers: Workers) -> Float64:
    """W = (X'X + r I)⁻¹ X'V, (d, c), of centred rows X (N, d) and values V (N, c).

    The ridge r is in units of the mean variance. Where there are fewer rows than dimensions, their products
    are the smaller matrix: W = X'(XX' + r I)⁻¹ V.
    """
    n, d = rows.shape
    if n < d:
        products = with_ridge(row_products(rows, workers), ridge * n / d)
        return rows.cross(np.linalg.solve(products, values)).T

    def sums(block: slice) -> tuple[Float64, Float64]:
        return rows[block].gram(), rows[block].cross(values[block])

    gram, cross = workers.total(sums, n)
    return np.linalg.solve(with_ridge(gram, ridge), cross.T)


def regressed_bits(rows: Rows, values: Float64, ridge: float, workers: Workers) -> LinearBits:
    """Functions of centred rows (N, d) nearest to values (N, c); bits are cut at the values' means."""
    return LinearBits(regression(rows, values, ridge, workers), np.zeros(values.shape[1]))


def at_medians(bits: LinearBits, rows: Rows, workers: Workers) -> LinearBits:
    """The same functions, cut at their medians over the training rows: every bit halves these."""
    medians = np.median(place(rows, bits.weights, workers).astype(np.float64), axis=0)
    return LinearBits(bits.weights, -medians)


@dataclass(frozen=True, eq=False)
class KernelBits:
    """Bits by regression from kernels on anchors.

    Attributes
    ----------
    features : AnchorFeatures
        Of one side.
    bits : LinearBits
        Functions of these features.
    """

    features: AnchorFeatures
    bits: LinearBits

    @classmethod
    def fit(
        cls, features: AnchorFeatures, rows: Raw, values: Float64, ridge: float, workers: Workers
    ) -> KernelBits:
        """Regress values (N, c) on the kernel features of rows (N, d); bits are cut at the values' means."""
        inputs = features.apply(rows)
        mean = inputs.mean(axis=0)
        weights = regression(DenseRows((inputs - mean).astype(np.float32)), values, ridge, workers)
        return cls(features, LinearBits(weights, -mean @ weights))

    def values(self, rows: Raw) -> Float64:
        """Values (n, c) of rows, dense or sparse, each by itself alone."""
        return self.bits.values(self.features.apply(rows))
