"""Pairs whose texts say less than their images, any number of them, block by block.

Made as in ``crossbyte.data.synthetic``: a class prefers some topics, a pair has its own mixture of topics
(Dirichlet around the preference of its class), and both halves are linear views of the roots of that mixture.
Each half has 16 directions of its own in which it varies without the other, and white noise, both with a
standard deviation of 0.5 for images and 1.0 for texts, relative to the signal: texts do not lie where their
images lie, which is the gap between the two kinds. Block b of a seed is always the same.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["SETTINGS", "GappedPairs"]

SETTINGS = {
    "classes": 200,
    "topics": 80,
    "dimensions": 128,
    "own_directions": 16,
    "image_noise": 0.5,
    "text_noise": 1.0,
}
MIXTURE_WEIGHT = 4.0

Rows = NDArray[np.float32]


class GappedPairs:
    """Draws blocks of pairs: images and texts (n, 128) float32 each."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        n_topics, n_dims = int(SETTINGS["topics"]), int(SETTINGS["dimensions"])
        preference = rng.dirichlet(np.full(n_topics, 0.3), size=int(SETTINGS["classes"]))
        self._seed = seed
        self._weights = (MIXTURE_WEIGHT * (0.7 * preference + 0.3 / n_topics)).astype(np.float32)
        roots = self._roots(rng, 20_000)
        self._centre, spread = roots.mean(axis=0), float(np.sqrt(roots.var(axis=0).sum()))
        views = [rng.standard_normal((n_topics, n_dims)) / spread for _ in range(2)]
        n_own = int(SETTINGS["own_directions"])
        own = [rng.standard_normal((n_own, n_dims)) / np.sqrt(n_own) for _ in range(2)]
        self._views, self._own = np.array(views, np.float32), np.array(own, np.float32)

    def block(self, number: int, n_pairs: int) -> tuple[Rows, Rows]:
        """Draw one block of pairs."""
        rng = np.random.default_rng((self._seed, 1, number))
        signal = self._roots(rng, n_pairs) - self._centre
        noises = SETTINGS["image_noise"], SETTINGS["text_noise"]
        halves = zip(self._views, self._own, noises, strict=True)
        images, texts = (self._half(rng, signal, *half) for half in halves)
        return images, texts

    def _roots(self, rng: np.random.Generator, n_pairs: int) -> Rows:
        drawn = self._weights[rng.integers(len(self._weights), size=n_pairs)]
        mixtures = rng.standard_gamma(drawn, dtype=np.float32) + np.float32(1e-12)
        return np.sqrt(mixtures / mixtures.sum(axis=1, keepdims=True))

    @staticmethod
    def _half(rng: np.random.Generator, signal: Rows, view: Rows, own: Rows, noise: Any) -> Rows:
        features = signal @ view
        features += np.float32(noise) * rng.standard_normal((len(signal), len(own)), dtype=np.float32) @ own
        features += np.float32(noise) * rng.standard_normal(features.shape, dtype=np.float32)
        return features
