"""Where the true partner of a query is found, with ties, exact."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.evaluation.metrics.ordering import check_distances, count_by_row
from crossbyte.evaluation.metrics.ties import Integers

__all__ = ["PartnerPlaces", "partner_places", "partner_recall_at"]


@dataclass(frozen=True, eq=False)
class PartnerPlaces:
    """Where the best-placed partner of each query is.

    Attributes
    ----------
    before : (n,) int64
        Items that are nearer than the nearest partner.
    tied : (n,) int64
        Items at the distance of the nearest partner, itself among them.
    partners : (n,) int64
        How many of those are partners too, at least one.
    total : (n,) int64
        How many partners the query has in the database.
    """

    before: Integers
    tied: Integers
    partners: Integers
    total: Integers

    @property
    def expected_rank(self) -> Float64:
        """0-based rank of the best-placed partner, expected over the orders of tied items: (n,) float64.

        The first of g among n in random order has (n - g)/(g + 1) others before it.
        """
        return self.before + (self.tied - self.partners) / (self.partners + 1)


def partner_places(distances: ArrayLike, partners: ArrayLike) -> PartnerPlaces:
    """Find the nearest partner of each query among all items.

    Parameters
    ----------
    distances : (n, n_items) float32
        Smaller is better; NaN is refused.
    partners : (n,) int, (n, g) int, or (n, n_items) bool
        Column of the true partner of each query; or columns of which any counts; or a mark at each of them,
        where queries have different numbers.

    Returns
    -------
    PartnerPlaces
        For :func:`partner_recall_at`.
    """
    block = check_distances(distances)
    columns = np.asarray(partners)
    find = _nearest_marked if columns.dtype == np.bool_ else _nearest_listed
    nearest, tied_partners, total = find(block, columns)
    rows = list(zip(block, nearest, strict=True))  # row by row: a block may be as large as memory allows
    before = _integers(np.count_nonzero(row < value) for row, value in rows)
    tied = _integers(np.count_nonzero(row == value) for row, value in rows)
    return PartnerPlaces(before, tied, tied_partners, total)


def partner_recall_at(places: PartnerPlaces, depths: Sequence[int]) -> Float64:
    """Probability that a partner is among the first k results, per query.

    With m of the n tied places inside k and g partners among the tied items, none of them is inside with
    probability ``C(n - g, m) / C(n, m)``.

    Parameters
    ----------
    places : PartnerPlaces
    depths : sequence of int
        The numbers of results k, at least 1.

    Returns
    -------
    (n, n_depths) float64
        Between 0 and 1.
    """
    k = np.asarray(depths, dtype=np.int64)
    if k.ndim != 1 or np.any(k < 1):
        raise InvalidInput(f"depths must be at least 1; got {list(depths)}.")
    n, g = places.tied[:, None], places.partners[:, None]
    inside = np.clip(k - places.before[:, None], 0, n)
    missed = np.ones(inside.shape)
    for partner in range(int(places.partners.max(initial=0))):  # each in turn falls behind the border
        behind = np.maximum(n - inside - partner, 0) / np.maximum(n - partner, 1)
        missed *= np.where(partner < g, behind, 1.0)
    return np.asarray(1.0 - missed)


def _nearest_listed(block: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], Integers, Integers]:
    """Distance of the nearest listed column, how many different ones are as near, and how many there are."""
    listed = columns[:, None] if columns.ndim == 1 else columns
    if listed.ndim != 2 or len(listed) != len(block) or 0 in listed.shape or listed.dtype.kind not in "iu":
        raise InvalidInput(
            f"partners must be one column number, or several, for each of {len(block)} rows;"
            f" got {columns.dtype} of shape {columns.shape}."
        )
    if listed.min() < 0 or listed.max() >= block.shape[1]:
        raise InvalidInput(
            f"partners must be column numbers from 0 to {block.shape[1] - 1};"
            f" got {listed.min()} to {listed.max()}."
        )
    listed = np.sort(listed, axis=1)
    new = np.diff(listed, axis=1, prepend=-1) > 0  # a column named twice is one partner
    own = np.take_along_axis(block, listed, axis=1)
    nearest = own.min(axis=1)
    return nearest, count_by_row(new & (own == nearest[:, None])), count_by_row(new)


def _nearest_marked(block: NDArray[Any], marks: NDArray[np.bool_]) -> tuple[NDArray[Any], Integers, Integers]:
    """Distance of the nearest marked column, how many are as near, and how many there are."""
    if marks.shape != block.shape:
        raise InvalidInput(
            f"marks of partners must have the shape {block.shape} of the distances; got {marks.shape}."
        )
    alone = np.flatnonzero(~marks.any(axis=1))
    if alone.size:
        raise InvalidInput(f"{alone.size} queries have no partner (first: row {alone[0]}); leave them out.")
    own = [row[mark] for row, mark in zip(block, marks, strict=True)]
    nearest = np.array([distances.min() for distances in own])
    tied = (np.count_nonzero(each == value) for each, value in zip(own, nearest, strict=True))
    return nearest, _integers(tied), count_by_row(marks)


def _integers(values: Iterable[Any]) -> Integers:
    return np.fromiter(values, np.int64)
