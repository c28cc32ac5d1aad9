"""Define the model of MLBE: the logarithm of its posterior in row form, and the similarities it is given.

Codes u_i of images and v_i of texts are in {-1, +1}^c. With symmetric weights W and variances θ and φ for
each half, a link w and its variance ω::

    S_ij  ~ N(u_i' W u_j, θ)           for i <= j: similarities within a half
    W_kl  ~ N(0, φ)                    for k <= l
    R_ij  ~ Bernoulli(σ(w u_i'v_j))    where observed: whether image i and text j are related
    w     ~ N(0, ω), w > 0
    1/φ, 1/ω ~ Gamma(1, 1),    1/θ ~ Gamma(1, n θ₀ / 2)    for n similarities

The last one is as if n similarities of variance θ₀ had been seen before. Both values of a bit are equally
likely beforehand, so bits have no term of their own.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.lab.methods.dense_preparation import CentredPreparation
from crossbyte.lab.methods.regression import gaussian_kernel, mean_squared_distance


@dataclass(frozen=True, eq=False)
class HalfState:
    """One half: what is known, and what is learned.

    Attributes
    ----------
    similarities : (N, N) float64
        S, symmetric.
    codes : (N, c) float64
        U, of ±1.
    weights : (c, c) float64
        W, symmetric.
    noise_before : float
        θ₀, the variance of similarities that is expected beforehand.
    noise, spread : float
        Variances θ of similarities and φ of weights.
    """

    similarities: Float64
    codes: Float64
    weights: Float64
    noise_before: float
    noise: float = 1.0
    spread: float = 1.0

    @property
    def residuals(self) -> Float64:
        """What the codes do not explain of the similarities (N, N)."""
        return self.similarities - self.codes @ self.weights @ self.codes.T


@dataclass(frozen=True, eq=False)
class Relations:
    """What is known between documents of one half, in rows, and the learned ones of the other, in columns.

    Attributes
    ----------
    related : (n, N) float64
        R, of 0 and 1.
    observed : (n, N) float64
        1 where R was observed, 0 elsewhere.
    """

    related: Float64
    observed: Float64

    def transpose(self) -> Relations:
        """The same, seen from the other half."""
        return Relations(self.related.T, self.observed.T)


@dataclass(frozen=True, eq=False)
class PosteriorState:
    """Everything that the posterior is a function of.

    Attributes
    ----------
    image, text : HalfState
    relations : Relations
        Images in rows, texts in columns.
    link, link_spread : float
        w and its variance ω.
    """

    image: HalfState
    text: HalfState
    relations: Relations
    link: float = 0.1
    link_spread: float = 1.0


def log_posterior(state: PosteriorState) -> float:
    """Logarithm of the joint posterior of all that is learned, but for a constant."""
    return half_log_posterior(state.image) + half_log_posterior(state.text) + link_log_posterior(state)


def half_log_posterior(half: HalfState) -> float:
    """What one half adds: similarities, weights, and the variances of both."""
    similarities = _normal_log_density(half.residuals, half.noise, half.noise_before)
    return similarities + _normal_log_density(half.weights, half.spread, 0.0) - 1.0 / half.spread


def link_log_posterior(state: PosteriorState) -> float:
    """``Σ log σ(±w u_i'v_j)`` over the observed pairs, + where related; and the priors of w and ω.

    Inner products t are whole numbers from -c to c, and ``log σ(-w t) = log σ(w t) - w t``.
    """
    c, w = state.image.codes.shape[1], state.link
    R, observed = state.relations.related, state.relations.observed
    products = state.image.codes @ state.text.codes.T
    table = -np.logaddexp(0.0, -w * np.arange(-c, c + 1))
    likelihood = np.vdot(observed, table[np.rint(products).astype(np.intp) + c])
    likelihood -= w * np.vdot(observed * (1.0 - R), products)
    prior = -0.5 * np.log(state.link_spread) - (w**2 / 2 + 1.0) / state.link_spread
    return float(likelihood + prior)


def likeliest_noise(half: HalfState) -> float:
    """The variance θ at its maximum: the mean of the squared residuals, and θ₀."""
    return _upper_squares(half.residuals) / _upper_count(half.residuals) + half.noise_before


def likeliest_spread(half: HalfState) -> float:
    """The variance φ at its maximum: ``(1 + Σ_{k<=l} W_kl² / 2) / (n / 2)`` for n weights."""
    return (2.0 + _upper_squares(half.weights)) / _upper_count(half.weights)


def likeliest_link_spread(link: float) -> float:
    """The variance ω at its maximum."""
    return 2.0 + link**2


def _normal_log_density(matrix: Float64, variance: float, before: float) -> float:
    """Log density of the upper triangle, with that of as many squares of size ``before``."""
    n = _upper_count(matrix)
    return -0.5 * n * float(np.log(variance)) - (_upper_squares(matrix) + n * before) / (2 * variance)


def _upper_squares(matrix: Float64) -> float:
    """Sum of squares on and above the diagonal of a symmetric matrix."""
    return float(np.vdot(matrix, matrix) + np.square(np.diag(matrix)).sum()) / 2


def _upper_count(matrix: Float64) -> float:
    return len(matrix) * (len(matrix) + 1) / 2


@dataclass(frozen=True, eq=False)
class CentredKernel:
    """Similarity within one half to the documents learned from: a Gaussian kernel, centred.

    Centring takes the mean off rows and columns, so that codes need not explain that all similarities are
    above zero.

    Attributes
    ----------
    preparation : CentredPreparation
    reference : (N, d) float64
        The prepared documents learned from.
    width : float
        Squared distance at which the kernel has fallen to 1/e.
    means : (N,) float64
        Mean of the kernel of each of them with all of them.
    scale : float
        Root of the mean square of their similarities to each other.
    """

    preparation: CentredPreparation
    reference: Float64
    width: float
    means: Float64
    scale: float

    @classmethod
    def fit(cls, rows: Raw, width: float, name: str) -> CentredKernel:
        """Learn from (N, d) features, dense or sparse; ``width`` is relative to the mean squared distance."""
        preparation = CentredPreparation.fit(rows, name=name)
        reference = preparation.apply(rows)
        absolute = width * mean_squared_distance(reference)
        means = gaussian_kernel(reference, reference, absolute).mean(axis=0)
        raw = cls(preparation, reference, absolute, means, 1.0)
        scale = float(np.sqrt(np.square(raw.own_similarities()).mean()))
        return cls(preparation, reference, absolute, means, scale)

    def similarities(self, rows: Raw) -> Float64:
        """Similarities (n, N) of (n, d) features to the documents learned from, each row by itself alone."""
        return self._centre(self.preparation.apply(rows))

    def own_similarities(self) -> Float64:
        """Similarities (N, N) of the documents learned from to each other, exactly symmetric."""
        values = self._centre(self.reference)
        return (values + values.T) / 2

    def _centre(self, prepared: Float64) -> Float64:
        values = gaussian_kernel(prepared, self.reference, self.width)
        return values - values.mean(axis=1, keepdims=True) - self.means + self.means.mean()


def mark_nearest_documents(similarities: Float64, n_nearest: int) -> NDArray[np.bool_]:
    """For each of n documents, whether each of N is among the ``n_nearest`` most similar: (n, N)."""
    n_nearest = min(n_nearest, similarities.shape[1])
    border = np.partition(similarities, -n_nearest, axis=1)[:, -n_nearest, None]
    return np.asarray(similarities >= border)


def observe_relations(related: NDArray[np.bool_], negatives: float, rng: np.random.Generator) -> Relations:
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
