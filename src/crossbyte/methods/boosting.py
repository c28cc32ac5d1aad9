"""Bits learned one after another from signed pairs, each attending to what those before have wrong."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.data.features import Rows
from crossbyte.methods.similarity import SignedPairs

__all__ = ["Bit", "Seen", "adaboost_step", "equal_weights", "reweighted", "seen_rows"]

_SURE = 1.0 - 1e-6  # agreement that is still short of infinite weight


class Bit(NamedTuple):
    """One pair of hash functions: sign(p'x + a) and sign(q'y + b)."""

    p: Float64
    a: float
    q: Float64
    b: float


class Seen(NamedTuple):
    """The rows that occur in pairs, and where each pair finds its own among them."""

    images: Float64  # (n_I, d_I)
    texts: Rows  # (n_T, d_T)
    pairs: SignedPairs


def seen_rows(images: Rows, texts: Rows, pairs: SignedPairs) -> Seen:
    """Take the rows (N, d_I) and (N, d_T) that occur in pairs, each once; images dense, as float64."""
    left, at_left = np.unique(pairs.left, return_inverse=True)
    right, at_right = np.unique(pairs.right, return_inverse=True)
    dense = images[left].dense().astype(np.float64)
    return Seen(dense, texts[right], SignedPairs(at_left, at_right, pairs.signs))


def equal_weights(pairs: SignedPairs) -> Float64:
    """Weights (P,) of sum 1 before the first bit."""
    return np.full(len(pairs.signs), 1.0 / len(pairs.signs))


def adaboost_step(agreement: float) -> float:
    """½ log((1 + r) / (1 - r)), after which a bit of agreement r agrees no better than chance."""
    return float(np.arctanh(np.clip(agreement, -_SURE, _SURE)))


def reweighted(weights: Float64, agreeing: Float64, step: float) -> Float64:
    """Weights (P,) of sum 1, less for pairs that a bit has right (1) and more for those it has wrong (-1)."""
    weights = weights * np.exp(-step * agreeing)
    return weights / weights.sum()
