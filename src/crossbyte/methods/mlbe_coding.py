"""Codes of MLBE for documents that were not learned from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float64, Raw
from crossbyte.blocks import steady_product
from crossbyte.methods.mlbe_bits import Links, Pull, turn_bits
from crossbyte.methods.mlbe_posterior import Half
from crossbyte.methods.mlbe_similarity import Kernel

__all__ = ["Coder"]

_RIDGE = 1e-3  # of the mean of the diagonal: bits that repeat each other do no harm


@dataclass(frozen=True, eq=False)
class Coder:
    """The rule for a single bit, with all learned codes of one half fixed.

    Attributes
    ----------
    kernel : Kernel
        Similarity to the documents learned from.
    images : (N, c) float64
        ``W u_j`` of each of them.
    products : (c, c) float64
        Products of these, summed over documents.
    inverse : (c, c) float64
        Takes ``Σ_j s_j W u_j`` to the least-squares solution of u.
    noise : float
        θ; of no account where only similarities are known.
    """

    kernel: Kernel
    images: Float64
    products: Float64
    inverse: Float64
    noise: float

    @classmethod
    def of_half(cls, kernel: Kernel, half: Half) -> Coder:
        """Make the rule from what was learned of one half."""
        images = np.ascontiguousarray(half.codes @ half.weights)
        products = images.T @ images
        ridge = _RIDGE * np.trace(products) / len(products) + np.finfo(float).tiny
        inverse = np.ascontiguousarray(linalg.inv(products + ridge * np.eye(len(products))))
        return cls(kernel, images, products, inverse, half.noise)

    def code(self, rows: Raw, links: Links | None = None) -> Float64:
        """Codes (n, c) of ±1 for (n, d) features, each by itself alone.

        Starts from the signs of the least-squares solution. Relations to the other half are known of training
        documents only: for queries ``links`` is None.
        """
        towards = steady_product(self.kernel.similarities(rows), self.images)
        start = np.where(steady_product(towards, self.inverse) > 0, 1.0, -1.0)
        return turn_bits(start, Pull(self.products, towards, self.noise), links)
