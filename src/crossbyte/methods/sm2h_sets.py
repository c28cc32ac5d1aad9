"""Sets of atoms as codes, and how far such sets are from each other."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossbyte.arrays import Float32, Float64
from crossbyte.blocks import row_blocks
from crossbyte.validation import check_codes

__all__ = ["atom_weights", "jaccard_distances", "large_coefficients"]

_BLOCK_ENTRIES = 2**20  # distances computed at a time
_FINEST = 64  # weights are counted in this fraction of the largest, so that sums of them are exact


def large_coefficients(codes: Float64, size: int) -> Float64:
    """1 at the ``size`` largest coefficients above zero of each row (n, c), equal ones in order; 0 elsewhere.

    A coefficient below zero says that a row is unlike an atom, which is no reason to find it by that atom.
    """
    order = np.argsort(-codes, axis=1, kind="stable")[:, :size]
    large = np.zeros_like(codes)
    np.put_along_axis(large, order, 1.0, axis=1)
    large[codes <= 0.0] = 0.0
    return large


def atom_weights(images: Float64, texts: Float64) -> Float32:
    """Whole numbers (c,): how much more often an atom is in both sets of a document than chance has it.

    With shares p of images, q of texts and r of documents that have an atom (in both halves), it is
    log(r / (p q)), in units of a fraction of the largest; 0 where that is below 0. A document that has all
    atoms and one that has none are counted beside the others.

    Parameters
    ----------
    images, texts : (n, c) float64
        Sets of both halves of the training documents: 1 where an atom is in, 0 elsewhere.
    """
    p, q, r = ((part.sum(axis=0) + 1.0) / (len(images) + 2.0) for part in (images, texts, images * texts))
    excess = np.maximum(np.log(r / (p * q)), 0.0)
    if not excess.any():
        return np.ones(len(excess), dtype=np.float32)  # all atoms are as good, or as bad
    return np.rint(excess / excess.max() * _FINEST).astype(np.float32)


def jaccard_distances(queries: Any, items: Any, weights: Float32) -> Float32:
    """One minus the weight of what two sets share over the weight of what either has.

    Parameters
    ----------
    queries : (n, B) uint8
        Packed, a bit per atom.
    items : (N, B) uint8
    weights : (c,) float32
        Whole numbers of a sum below 2**24: all sums are exact, in whatever order they are taken.

    Returns
    -------
    (n, N) float32
        1 where there is nothing in common, also for two sets without any weight.
    """
    n_bytes = -(-len(weights) // 8)
    left, right = (
        np.unpackbits(check_codes(sets, n_bytes), axis=1, count=len(weights)).astype(np.float32)
        for sets in (queries, items)
    )
    weighted, sizes = left * weights, right @ weights
    distances = np.empty((len(left), len(right)), dtype=np.float32)
    for rows in row_blocks(len(left), max(1, _BLOCK_ENTRIES // max(1, len(right)))):
        shared = weighted[rows] @ right.T
        either = weighted[rows].sum(axis=1)[:, None] + sizes - shared
        distances[rows] = 1.0 - shared / np.maximum(either, 1.0)
    return distances
