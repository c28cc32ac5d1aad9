"""Products of the rows of one side with each other; sparse rows stay sparse but for a block at a time."""

from __future__ import annotations

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.blocks import row_blocks
from crossbyte.data.features import Rows
from crossbyte.executors.threads import Workers

__all__ = ["ROWS_AT_ONCE", "inner_products", "row_products"]

ROWS_AT_ONCE = 512
"""Rows multiplied with all others: what is written out of them stays small beside the rows."""


def inner_products(rows: Rows, block: slice) -> Float64:
    """Products (b, n) of some rows with all rows (n, d)."""
    some = np.ascontiguousarray(rows[block].dense().T, dtype=np.float64)
    return np.asarray(rows.times(some), dtype=np.float64).T


def row_products(rows: Rows, workers: Workers) -> Float64:
    """XX', (n, n), of rows X (n, d)."""
    blocks = row_blocks(rows.shape[0], ROWS_AT_ONCE)
    return np.concatenate(list(workers.map(lambda block: inner_products(rows, block), blocks)))
