"""Pairwise covering arrays: few rows of a product of factors, in which every pair of values still occurs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import combinations, product

__all__ = ["covering", "pairs_of"]

Row = tuple[Hashable, ...]
Pair = tuple[tuple[int, Hashable], ...]


def pairs_of(row: Row) -> set[Pair]:
    """Every two values of a row, with their factors' numbers."""
    return set(combinations(enumerate(row), 2))


def covering(*factors: Sequence[Hashable], possible: Callable[..., bool] = lambda *row: True) -> list[Row]:
    """Choose rows, always the first that brings most new pairs, until every possible pair has occurred.

    Deterministic: the same factors give the same rows in the same order.
    """
    rows = {row: pairs_of(row) for row in product(*factors) if possible(*row)}
    missing = set().union(*rows.values())
    chosen: list[Row] = []
    while missing:
        best = max(rows, key=lambda row: len(rows[row] & missing))
        missing -= rows[best]
        chosen.append(best)
    return chosen
