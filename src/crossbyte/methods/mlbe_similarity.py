"""What MLBE is told of its training documents: similarities within a half, and relations between halves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.methods.anchors import gaussian_kernel, mean_squared_distance
from crossbyte.methods.mlbe_posterior import Relations
from crossbyte.methods.preparing import Centring

__all__ = ["Kernel", "nearest_documents", "observe"]


@dataclass(frozen=True, eq=False)
class Kernel:
    """Similarity within one half to the documents learned from: a Gaussian kernel, centred.

    Centring takes the mean off rows and columns, so that codes need not explain that all similarities are
    above zero.

    Attributes
    ----------
    preparation : Centring
    reference : (N, d) float64
        The prepared documents learned from.
    width : float
        Squared distance at which the kernel has fallen to 1/e.
    means : (N,) float64
        Mean of the kernel of each of them with all of them.
    scale : float
        Root of the mean square of their similarities to each other.
    """

    preparation: Centring
    reference: Float64
    width: float
    means: Float64
    scale: float

    @classmethod
    def fit(cls, rows: Raw, width: float, name: str) -> Kernel:
        """Learn from (N, d) features, dense or sparse; ``width`` is relative to the mean squared distance."""
        preparation = Centring.fit(rows, name=name)
        reference = preparation.apply(rows)
        absolute = width * mean_squared_distance(reference)
        means = gaussian_kernel(reference, reference, absolute).mean(axis=0)
        raw = cls(preparation, reference, absolute, means, 1.0)
        scale = float(np.sqrt(np.square(raw.own_similarities()).mean()))
        return cls(preparation, reference, absolute, means, scale)

    def similarities(self, rows: Raw) -> Float64:
        """Similarities (n, N) of (n, d) features to the documents learned from, each row by itself alone."""
        return self._centred(self.preparation.apply(rows))

    def own_similarities(self) -> Float64:
        """Similarities (N, N) of the documents learned from to each other, exactly symmetric."""
        values = self._centred(self.reference)
        return (values + values.T) / 2

    def _centred(self, prepared: Float64) -> Float64:
        values = gaussian_kernel(prepared, self.reference, self.width)
        return values - values.mean(axis=1, keepdims=True) - self.means + self.means.mean()


def nearest_documents(similarities: Float64, n_nearest: int) -> NDArray[np.bool_]:
    """For each of n documents, whether each of N is among the ``n_nearest`` most similar: (n, N)."""
    n_nearest = min(n_nearest, similarities.shape[1])
    border = np.partition(similarities, -n_nearest, axis=1)[:, -n_nearest, None]
    return np.asarray(similarities >= border)


def observe(related: NDArray[np.bool_], negatives: float, rng: np.random.Generator) -> Relations:
    """Observe all related pairs, and for each of them ``negatives`` random ones of the unrelated.

    Parameters
    ----------
    related : (n, N) bool
        Whether documents belong together.
    negatives : float
        Unrelated pairs per related one; as many as there are, where there are fewer.
    rng : numpy.random.Generator
    """
    unrelated = np.flatnonzero(~related)
    wanted = min(len(unrelated), round(negatives * int(related.sum())))
    observed = related.astype(np.float64)
    observed.flat[rng.choice(unrelated, wanted, replace=False)] = 1.0
    return Relations(related.astype(np.float64), observed)
