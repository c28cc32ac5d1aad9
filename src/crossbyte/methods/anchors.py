"""Kernel features on anchors: how near a row is to each of a few typical training rows.

The anchors are k-means centres, the kernel is Gaussian, and its width is the mean squared distance between
training rows. No matrix of all training rows against all of them is ever formed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crossbyte.arrays import Float64, Raw
from crossbyte.blocks import row_blocks, sample_rows, steady_product
from crossbyte.executors.threads import Workers
from crossbyte.methods.preparing import Centring
from crossbyte.quantization.kmeans import kmeans

__all__ = ["AnchorFeatures", "gaussian_kernel", "mean_squared_distance", "squared_distances"]


@dataclass(frozen=True, eq=False)
class AnchorFeatures:
    """What was learned about one side.

    Attributes
    ----------
    preparation : Centring
        Applied to rows before distances are taken.
    anchors : (k, d) float64
        k-means centres of the prepared training rows.
    width : float
        Mean squared distance between two training rows; 1 if all are equal.
    """

    preparation: Centring
    anchors: Float64
    width: float

    @classmethod
    def fit(
        cls, rows: Raw, n_anchors: int, rng: np.random.Generator, workers: Workers, *, unit: bool, name: str
    ) -> AnchorFeatures:
        """Learn from (n, d) training rows, dense or sparse; at most n anchors are made.

        Parameters
        ----------
        rows : (n, d) array or CSR matrix
            Validated features.
        n_anchors : int
            How many centres.
        rng : numpy.random.Generator
            Chooses where k-means starts, and which rows it sees where they are very many.
        workers : Workers
            Threads of k-means; the result does not depend on them.
        unit : bool
            Whether rows are brought to unit length after centring.
        name : str
            What messages call the rows.
        """
        preparation = Centring.fit(rows, unit=unit, name=name, n_jobs=workers.n_jobs)
        chosen = sample_rows(rows.shape[0], rng)
        points = preparation.apply(rows if chosen is None else rows[chosen])
        anchors = kmeans(points.astype(np.float32), min(n_anchors, len(points)), rng, workers)
        return cls(preparation, anchors, mean_squared_distance(points) or 1.0)

    def apply(self, rows: Raw) -> Float64:
        """Kernel features (n, k) of (n, d) rows; each row by itself alone."""
        features = np.empty((rows.shape[0], len(self.anchors)))
        for block in row_blocks(rows.shape[0]):
            features[block] = gaussian_kernel(self.preparation.apply(rows[block]), self.anchors, self.width)
        return features

    def gram(self) -> Float64:
        """The kernel (k, k) between the anchors themselves."""
        return gaussian_kernel(self.anchors, self.anchors, self.width)


def gaussian_kernel(rows: Float64, anchors: Float64, width: float) -> Float64:
    """``exp(-|x - a|² / width)`` for (n, d) rows and (k, d) anchors: (n, k)."""
    distances = squared_distances(rows, anchors)
    distances /= -width
    return np.exp(distances, out=distances)


def squared_distances(rows: Float64, anchors: Float64) -> Float64:
    """``|x - a|²`` for (n, d) rows and (k, d) anchors: (n, k); each row by itself alone."""
    distances = steady_product(rows, np.ascontiguousarray(anchors.T))
    distances *= -2.0
    distances += np.einsum("nd,nd->n", rows, rows)[:, None]
    distances += np.einsum("kd,kd->k", anchors, anchors)
    return np.maximum(distances, 0.0, out=distances)  # rounding


def mean_squared_distance(rows: Float64) -> float:
    """Mean of ``|x_i - x_j|²`` over all i and j, equal ones included: ``2 mean |x - mean(x)|²``."""
    return float(2.0 * np.square(rows - rows.mean(axis=0)).sum() / len(rows))
