"""Iterative quantization: turn values so that their signs lose least.

Values of fewer dimensions than bits are turned as if zeros filled them up to that many: of the rotation only
the rows that meet the values remain, and those are orthonormal.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput

__all__ = ["learn_rotation", "nearest_rotation", "quantization_error", "random_rotation", "signs_of_values"]


def learn_rotation(values: Float64, n_bits: int, rng: np.random.Generator, max_iter: int = 50) -> Float64:
    """Find R with the least ‖B - V R‖² over signs B and rotations R, alternating from a random rotation.

    Parameters
    ----------
    values : (n, r) float64
        V, centred, of at most ``n_bits`` dimensions.
    n_bits : int
        c.
    rng : numpy Generator
        For the start.
    max_iter : int
        Rounds; fewer where no sign changes any more.

    Returns
    -------
    (r, c) float64
        R, with orthonormal rows.

    Notes
    -----
    R R' = I makes ‖V R‖ a constant, so both steps are exact and the error never rises.
    """
    if values.shape[1] > n_bits:
        raise InvalidInput(f"values: expected at most {n_bits} dimensions, got {values.shape[1]}")
    R = random_rotation(values.shape[1], n_bits, rng)
    B = signs_of_values(values @ R)
    for _ in range(max_iter):
        R = nearest_rotation(values.T @ B)
        before, B = B, signs_of_values(values @ R)
        if np.array_equal(B, before):
            break
    return R


def quantization_error(values: Float64, rotation: Float64) -> float:
    """‖B - V R‖² with the best signs B, over the number of bits of all rows."""
    turned = values @ rotation
    return float(np.mean((signs_of_values(turned) - turned) ** 2))


def signs_of_values(values: Float64) -> Float64:
    """1 where a value is above 0, else -1: what a packed bit says."""
    return np.where(values > 0, 1.0, -1.0)


def nearest_rotation(matrix: Float64) -> Float64:
    """The polar factor of (r, c): orthonormal rows, or columns where these are fewer, nearest to it."""
    left, _, right = linalg.svd(matrix, full_matrices=False)
    return left @ right


def random_rotation(n_dims: int, n_bits: int, rng: np.random.Generator) -> Float64:
    """A rotation (r, c) at random: orthonormal rows, or columns where these are fewer."""
    return nearest_rotation(rng.standard_normal((n_dims, n_bits)))
