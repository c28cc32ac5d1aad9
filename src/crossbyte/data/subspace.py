"""Principal directions from products with thin matrices only, for sides of any width."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from crossbyte.arrays import Float64

__all__ = ["fixed_signs", "principal_directions", "signs_of"]


_EXTRA = 16  # directions carried along beyond those wanted: the usual safety of subspace iteration
_RANK_CUT = 1e-10  # of the largest eigenvalue or variance; below it a direction is rounding error


def principal_directions(
    times_gram: Callable[[Float64], Float64], n_dims: int, n_wanted: int, n_passes: int = 4
) -> Float64:
    """Find the strongest directions of a (d, d) Gram matrix by subspace iteration.

    Parameters
    ----------
    times_gram : function
        Takes (d, k) to Gram matrix times it, which is a sum over blocks of rows.
    n_dims : int
        d.
    n_wanted : int
        How many; fewer are returned where the rank is lower.

    Returns
    -------
    (k, d) orthonormal rows, strongest first
    """
    size = min(n_wanted + _EXTRA, n_dims)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((n_dims, size)))[0]
    for _ in range(n_passes):
        basis = np.linalg.qr(times_gram(basis))[0]
    small = basis.T @ times_gram(basis)
    strengths, rotation = np.linalg.eigh((small + small.T) / 2)
    keep = np.flatnonzero(strengths > _RANK_CUT * strengths[-1])[::-1][:n_wanted]
    return fixed_signs((basis @ rotation[:, keep]).T)


def fixed_signs(directions: Float64) -> Float64:
    """Rows with their largest entry made positive: eigenvectors come with an arbitrary sign."""
    return np.ascontiguousarray(directions * signs_of(directions)[:, None])


def signs_of(directions: Float64) -> Float64:
    """Sign of the largest entry of each row; 1 for a row of zeros."""
    at = np.abs(directions).argmax(axis=1)
    signs = np.sign(directions[np.arange(len(directions)), at])
    return np.where(signs == 0, 1.0, signs)
