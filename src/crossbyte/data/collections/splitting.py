"""Which documents become queries, by seed."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.collections.collection import Part
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_groups, check_number

__all__ = ["query_mask", "split_part"]


def split_part(
    part: Part, *, seed: int, held_out: float, groups: Any = None, at_most: int | None = None
) -> tuple[Part, Part]:
    """Split documents into a training and a query part; the arguments are those of `query_mask`."""
    asked = query_mask(len(part), seed=seed, held_out=held_out, groups=groups, at_most=at_most)
    return part.take(~asked), part.take(asked)


def query_mask(
    n_rows: int, *, seed: int, held_out: float, groups: Any = None, at_most: int | None = None
) -> NDArray[np.bool_]:
    """Choose whole groups at random until a share of the groups is held out.

    Parameters
    ----------
    n_rows : int
    seed : int
        The same seed, the same rows.
    held_out : float
        Share of the groups, in (0, 1); at least one group stays on either side.
    groups : sequence of n_rows labels, optional
        Rows of one group stay together; None: every row its own.
    at_most : int, optional
        The most groups to hold out.

    Returns
    -------
    (n_rows,) bool
        True for the queries.

    Raises
    ------
    InvalidInput
        Fewer than two groups, or a share that is none.
    """
    check_number(held_out, "held_out", 0.0, 1.0, open_low=True)
    numbers = check_groups(groups, n_rows)
    n_groups = int(numbers.max()) + 1 if n_rows else 0
    if n_groups < 2 or held_out == 1.0:
        raise InvalidInput(
            f"expected at least 2 groups of rows and held_out below 1, got {n_groups} groups and held_out="
            f"{held_out:g}; something must be left to learn from, and something to ask"
        )
    wanted = min(round(held_out * n_groups), n_groups - 1, n_groups if at_most is None else at_most)
    chosen = np.random.default_rng(seed).permutation(n_groups)[: max(wanted, 1)]
    return np.isin(numbers, chosen)
