"""Infer classes of pairs without labels: a mixture model over both halves, of as many classes as BIC says.

Where relevance means "of the same class", held-out partners are a poor judge: a code that knows the class and
nothing else is perfect, and ranks a partner anywhere within its class. Classes that the pairs themselves show
are a better one (protocol L, :mod:`crossbyte.lab.protocols`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers
from crossbyte.lab.methods.dense_preparation import CentredPreparation
from crossbyte.model.quantization.codebooks import kmeans, nearest_centres
from crossbyte.validation import check_pairs

N_CLASSES = (5, 10, 20, 40, 80, 160)
"""Numbers of classes that are tried, in this order, until one is no better than the one before."""

_DIMS = 32  # principal components of each half: of both as many, so that neither speaks louder by its width
_STARTS = 3
_MAX_ITER = 100
_TOL = 1e-5  # of the mean log likelihood of a pair
_LEAST_VARIANCE = 1e-4  # within a class, of a coordinate of variance 1
_PAIRS_PER_CLASS = 4


class LatentClasses(NamedTuple):
    """What was inferred.

    Attributes
    ----------
    classes : (n,) intp
        The likeliest class of each pair.
    n_classes : int
        Of the model; some may be nobody's likeliest.
    bic : float
        The less, the better.
    within : (2,) float64
        Share of each half's variance that is left within the classes, images first: mean over coordinates. A
        half with much of it says little about the class.
    """

    classes: NDArray[np.intp]
    n_classes: int
    bic: float
    within: Float64


def infer_latent_classes(images: Any, texts: Any, *, random_state: int = 0) -> LatentClasses:
    """Fit a latent class model to pairs (n, d_I) and (n, d_T), dense or sparse, and class every pair.

    Each half is centred, reduced to at most 32 principal components, brought to unit length, and its
    coordinates to variance 1; x (n, D) are both halves side by side. Given its class k, a pair is Gaussian,
    all coordinates, so both halves, independent of each other, with variances that all classes share::

        p(x) = Σ_k π_k Π_j N(x_j; μ_kj, σ_j²)

    which EM fits, the best of three starts from k-means. No half has a weight of its own: one that shows no
    classes gets σ_j² near 1, and hardly matters to p(k | x). The number of classes K is that of ``N_CLASSES``
    after which BIC = −2 log p(X) + (K D + D + K − 1) log n grows, with at least four pairs per class.
    """
    images, texts = check_pairs(images, texts)
    halves = [
        _standardise(CentredPreparation.fit(rows, unit=True, n_components=_DIMS).apply(rows))
        for rows in (images, texts)
    ]
    values, n_image_dims = np.hstack(halves), halves[0].shape[1]
    best: _Mixture | None = None
    for n_classes in N_CLASSES:
        if best is not None and n_classes * _PAIRS_PER_CLASS > len(values):
            break
        rng = np.random.default_rng(random_state)
        found = min((_fit_mixture(values, n_classes, rng) for _ in range(_STARTS)), key=lambda fit: fit.bic)
        if best is not None and found.bic >= best.bic:
            break
        best = found
    assert best is not None
    within = np.array([part.mean() for part in np.split(best.variances, [n_image_dims])])
    return LatentClasses(best.posterior.argmax(axis=1), best.posterior.shape[1], best.bic, within)


def _standardise(rows: Float64) -> Float64:
    """Coordinates of mean 0 and variance 1; those that are constant are left out."""
    spread = rows.std(axis=0)
    varied = spread > 1e-6 * max(float(spread.max()), np.finfo(float).tiny)
    return np.asarray((rows[:, varied] - rows[:, varied].mean(axis=0)) / spread[varied])


class _Mixture(NamedTuple):
    """Posterior (n, K) of the classes, variances (D,) within them, and BIC."""

    posterior: Float64
    variances: Float64
    bic: float


def _fit_mixture(x: Float64, K: int, rng: np.random.Generator) -> _Mixture:
    """Maximise log p(X) by EM: π (K,), μ (K, D), σ² (D,)."""
    n, D = x.shape
    with Workers(1) as workers:
        points = x.astype(np.float32)
        nearest, _ = nearest_centres(points, kmeans(points, K, rng, workers), workers)
    posterior = np.eye(K)[nearest]  # (n, K)
    squares, before = x**2, -np.inf
    for _ in range(_MAX_ITER):
        counts = np.maximum(posterior.sum(axis=0), np.finfo(float).tiny)
        pi, mu = counts / counts.sum(), posterior.T @ x / counts[:, None]
        var = np.maximum(squares.mean(axis=0) - pi @ mu**2, _LEAST_VARIANCE)
        distances = (squares @ (1 / var))[:, None] - 2 * x @ (mu / var).T + mu**2 @ (1 / var)  # (n, K)
        joint = np.log(pi) - (distances + np.log(2 * np.pi * var).sum()) / 2
        top = joint.max(axis=1, keepdims=True)
        posterior = np.exp(joint - top)
        sums = posterior.sum(axis=1, keepdims=True)
        posterior /= sums
        likelihood = float((top + np.log(sums)).sum())
        if likelihood - before < _TOL * n:
            break
        before = likelihood
    return _Mixture(posterior, var, -2 * likelihood + (K * D + D + K - 1) * np.log(n))
