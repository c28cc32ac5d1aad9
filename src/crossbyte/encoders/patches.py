"""Words of a picture: small patches, whitened, and how much each word of a learned codebook is in them.

After Coates, Lee and Ng (2011): patches have their brightness and contrast taken off, are whitened, and are
compared with the directions of a spherical k-means. A patch has of each word what exceeds the mean of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from scipy import sparse

from crossbyte.arrays import Float32
from crossbyte.encoders.pooling import block_means, rooted

__all__ = ["PATCH", "PatchWords", "patch_block", "patches_of"]

PATCH = 6  # pixels on a side
_CONTRAST = 100.0  # variance of grey levels below which a patch counts as flat
_WHITENING = 0.1  # of the mean variance, added to all
_N_ROUNDS = 10


class PatchWords(NamedTuple):
    """Learned visual words; patches are (d,) rows of d = PATCH² 3 values."""

    mean: Float32
    """(d,)"""
    filters: Float32
    """(d, K): whitening, then the words' directions"""

    @classmethod
    def learn(cls, patches: Float32, n_words: int, rng: np.random.Generator) -> PatchWords:
        """Learn from (n, d) patches, at least one."""
        mean = patches.mean(axis=0, dtype=np.float64)
        centred = patches - mean
        variances, directions = np.linalg.eigh(centred.T @ centred / len(patches))
        variances = np.maximum(variances, 0.0)
        # One more unit, for samples without any contrast at all.
        floor = _WHITENING * variances.mean() + 1e-3
        whitening = (directions / np.sqrt(variances + floor)) @ directions.T
        words = _spherical_kmeans((centred @ whitening).astype(np.float32), n_words, rng)
        return cls(mean.astype(np.float32), (whitening @ words.T).astype(np.float32))


def patches_of(pixels: Float32, stride: int = 1) -> Float32:
    """All (n, d) patches of (s, s, 3) pixels, row by row, brightness and contrast taken off."""
    windows = sliding_window_view(pixels, (PATCH, PATCH), axis=(0, 1))[::stride, ::stride]
    patches = np.ascontiguousarray(windows, dtype=np.float32).reshape(-1, 3 * PATCH**2)
    patches -= patches.mean(axis=1, keepdims=True)
    patches /= np.sqrt(np.einsum("nd,nd->n", patches, patches) / patches.shape[1] + _CONTRAST)[:, None]
    return patches


def patch_block(pixels: Float32, words: PatchWords, grids: Sequence[int]) -> Float32:
    """Words of (s, s, 3) pixels, as one row: how much of each is in every region of each grid."""
    patches = patches_of(pixels)
    patches -= words.mean
    answers = np.matmul(patches, words.filters, dtype=np.float32)
    answers -= answers.mean(axis=1, keepdims=True)
    np.maximum(answers, 0.0, out=answers)
    side = pixels.shape[0] - PATCH + 1
    grid = answers.reshape(side, side, -1)
    return np.concatenate([rooted(block_means(grid, size)) for size in grids])


def _spherical_kmeans(points: Float32, n_words: int, rng: np.random.Generator) -> Float32:
    """(K, d) unit directions; those that nobody is near stay as they were drawn."""
    words = _directions(rng.standard_normal((n_words, points.shape[1]), dtype=np.float32))
    for _ in range(_N_ROUNDS):
        answers = points @ words.T
        labels = np.abs(answers).argmax(axis=1)
        shares = answers[np.arange(len(points)), labels]
        members = sparse.csr_matrix((shares, (labels, np.arange(len(points)))), (n_words, len(points)))
        sums = np.asarray(members @ points)
        used = np.einsum("kd,kd->k", sums, sums) > 1e-12
        words[used] = _directions(sums[used])
    return words


def _directions(rows: Float32) -> Float32:
    return np.asarray(rows / np.sqrt(np.einsum("kd,kd->k", rows, rows))[:, None])
