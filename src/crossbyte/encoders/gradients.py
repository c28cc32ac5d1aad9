"""Shapes in a picture: histograms of the directions of its edges on a grid of cells."""

from __future__ import annotations

import numpy as np

from crossbyte.arrays import Float32
from crossbyte.encoders.pooling import block_means, rooted

__all__ = ["gradient_block"]

_DIRECTIONS = 8  # over half a turn: dark on light is the same edge as light on dark
_GRIDS = (1, 2, 4)
_NOISE = 4.0  # of grey levels; fainter edges count less


def gradient_block(grey: Float32) -> Float32:
    """Edges of (s, s) grey levels (0 to 255), as one row: a histogram per cell of each grid."""
    down, across = np.zeros_like(grey), np.zeros_like(grey)
    down[1:-1], across[:, 1:-1] = grey[2:] - grey[:-2], grey[:, 2:] - grey[:, :-2]
    strength = np.sqrt(down * down + across * across)
    edges = _by_direction(down, across, strength)
    # Cells of one picture are weighed by their share of its edges, rooted: contrast cancels out.
    return np.concatenate([rooted(block_means(edges, grid)) for grid in _GRIDS])


def _by_direction(down: Float32, across: Float32, strength: Float32) -> Float32:
    """Strength of each pixel, shared between the two nearest directions: (s, s, directions)."""
    turn = np.arctan2(down, across) * np.float32(_DIRECTIONS / np.pi) % _DIRECTIONS
    lower = turn.astype(np.intp) % _DIRECTIONS
    share = (turn - np.floor(turn)).astype(np.float32)
    weight = strength * strength / (strength + np.float32(_NOISE))
    size = strength.size
    edges = np.zeros((size, _DIRECTIONS), dtype=np.float32)
    at = np.arange(size)
    edges[at, lower.ravel()] = (weight * (1 - share)).ravel()
    edges[at, (lower.ravel() + 1) % _DIRECTIONS] += (weight * share).ravel()
    return edges.reshape(*strength.shape, _DIRECTIONS)
