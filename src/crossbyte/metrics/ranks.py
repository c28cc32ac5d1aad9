"""Rank items by distance and find the true partner of a query, by either rule for ties.

By column: equal distances go to the smaller column number, which is the order (distance, column number).
Expected: every order of the tied items is as likely as any other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput, NotFinite
from crossbyte.metrics.ties import Integers, check_distances, count_by_row

Floats = NDArray[np.floating[Any]]


def nearest_ties_by_column(distances: ArrayLike, depth: int) -> Integers:
    """List the first ``depth`` items of every query in the order (distance, column number).

    Equal to the first columns of a full stable argsort, without sorting what is not asked for.

    Parameters
    ----------
    distances : (n_queries, n_items) float32
        Smaller is better.
    depth : int
        How many items to return, at most ``n_items``.

    Returns
    -------
    (n_queries, depth) int64
        Column numbers, best first.
    """
    block = _check_distance_matrix(distances)
    check_depth(depth, block.shape[1])
    order = np.empty((len(block), depth), dtype=np.int64)
    for row, values in enumerate(block):
        order[row] = _nearest_of_row(values, depth)
    return order


def partner_ranks_ties_by_column(
    distances: ArrayLike,
    partners: ArrayLike | None = None,
    *,
    query_groups: ArrayLike | None = None,
    item_groups: ArrayLike | None = None,
) -> Integers:
    """Find the 0-based rank of each query's best-placed true partner, exact with ties.

    What counts as a partner is given in one of three ways: one column number per row (``partners``); labels
    (``query_groups`` and ``item_groups``: any item of the query's group counts); or neither, for a square
    matrix whose diagonal holds the pairs.

    Parameters
    ----------
    distances : (n_queries, n_items) float32
        Smaller is better. Rows may be a block of a larger set of queries; columns must be all items.
    partners : (n_queries,) int, optional
        Column of the true partner of each row.
    query_groups : (n_queries,), optional
        Group of each query.
    item_groups : (n_items,), optional
        Group of each item.

    Returns
    -------
    (n_queries,) int64
        How many items come before the partner in the order (distance, column number).

    Raises
    ------
    InvalidInput
        If a query has no partner among the items, rather than counting it as missed.
    """
    block = _check_distance_matrix(distances)
    columns = _partner_columns(block, partners, query_groups, item_groups)
    best = np.take_along_axis(block, columns[:, None], axis=1)
    before = np.arange(block.shape[1]) < columns[:, None]
    return np.asarray(np.sum((block < best) | ((block == best) & before), axis=1), dtype=np.int64)


def recall_at(ranks: ArrayLike, k: int) -> float:
    """Compute the share of queries whose true partner is among the first ``k`` results.

    Parameters
    ----------
    ranks : (n_queries,) int
        0-based rank of the true partner (:func:`partner_ranks_ties_by_column`).
    k : int
        How many results count.

    Returns
    -------
    float
        Between 0 and 1.
    """
    places = np.asarray(ranks)
    if places.ndim != 1 or places.size == 0 or k < 1:
        raise InvalidInput(
            f"ranks must be one rank per query and k at least 1; got shape {places.shape} and k={k}."
        )
    return float(np.mean(places < k))


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
        For :func:`expected_partner_recall`.
    """
    block = check_distances(distances)
    columns = np.asarray(partners)
    find = _nearest_marked if columns.dtype == np.bool_ else _nearest_listed
    nearest, tied_partners, total = find(block, columns)
    rows = list(zip(block, nearest, strict=True))  # row by row: a block may be as large as memory allows
    before = _as_integers(np.count_nonzero(row < value) for row, value in rows)
    tied = _as_integers(np.count_nonzero(row == value) for row, value in rows)
    return PartnerPlaces(before, tied, tied_partners, total)


def expected_partner_recall(places: PartnerPlaces, depths: Sequence[int]) -> Float64:
    """Compute the probability that a partner is among the first k results, per query.

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
    """Find the distance of the nearest listed column, how many are as near, and how many there are."""
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
    """Find the distance of the nearest marked column, how many are as near, and how many there are."""
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
    return nearest, _as_integers(tied), count_by_row(marks)


def _as_integers(values: Iterable[Any]) -> Integers:
    return np.fromiter(values, np.int64)


def _nearest_of_row(values: Floats, depth: int) -> Integers:
    """Find the ``depth`` smallest entries of one row, ties by position."""
    # argpartition keeps an arbitrary choice of the items tied at the border; its value finds them all
    border = np.partition(values, depth - 1)[depth - 1]
    candidates = np.flatnonzero(values <= border)
    chosen = np.argsort(values[candidates], kind="stable")[:depth]
    return np.asarray(candidates[chosen], dtype=np.int64)


def _partner_columns(
    block: Floats, partners: ArrayLike | None, query_groups: ArrayLike | None, item_groups: ArrayLike | None
) -> Integers:
    """Find the column of the best-placed partner of every row."""
    grouped = query_groups is not None or item_groups is not None
    if grouped and partners is not None:
        raise InvalidInput("partners and groups were both given; pass one of them.")
    if not grouped:
        return _check_partners(block.shape, partners)
    if query_groups is None or item_groups is None:
        raise InvalidInput("query_groups and item_groups belong together; one of them is missing.")
    return _grouped_partners(block, np.asarray(query_groups), np.asarray(item_groups))


def _check_partners(shape: tuple[int, ...], partners: ArrayLike | None) -> Integers:
    """Check the given columns; take the diagonal when none were given."""
    if partners is None:
        if shape[0] != shape[1]:  # a block of a larger matrix: its diagonal would be the wrong pairs
            raise InvalidInput(
                f"distances of shape {shape} have no diagonal of pairs; pass partners or groups."
            )
        return np.arange(shape[0], dtype=np.int64)
    columns = np.asarray(partners)
    if columns.shape != shape[:1] or columns.dtype.kind not in "iu":
        raise InvalidInput(
            f"partners must be {shape[0]} column numbers, one per row of distances;"
            f" got shape {columns.shape} of {columns.dtype}."
        )
    if columns.size and not (columns.min() >= 0 and columns.max() < shape[1]):
        raise InvalidInput(
            f"partners must be column numbers from 0 to {shape[1] - 1};"
            f" got {columns.min()} to {columns.max()}."
        )
    return columns.astype(np.int64)


def _grouped_partners(block: Floats, query_groups: NDArray[Any], item_groups: NDArray[Any]) -> Integers:
    """Find the column of the nearest item of the query's own group; among equals the first."""
    if (*query_groups.shape, *item_groups.shape) != block.shape:
        raise InvalidInput(
            f"distances of shape {block.shape} need one group per row and one per column;"
            f" got shapes {query_groups.shape} and {item_groups.shape}."
        )
    relevant = query_groups[:, None] == item_groups
    alone = np.flatnonzero(~relevant.any(axis=1))
    if alone.size:
        raise InvalidInput(
            f"{alone.size} queries have no item of their group (first: row {alone[0]},"
            f" group {query_groups[alone[0]]!r}); leave them out or add their items."
        )
    nearest = np.argmin(np.where(relevant, block, np.inf), axis=1)
    # an irrelevant winner means that all relevant items are infinitely far, so the first of them is the best
    own = np.take_along_axis(relevant, nearest[:, None], axis=1)[:, 0]
    return np.asarray(np.where(own, nearest, np.argmax(relevant, axis=1)), dtype=np.int64)


def _check_distance_matrix(values: ArrayLike) -> Floats:
    """Check ``values`` as a matrix of distances; NaN has no place in an order."""
    block = check_matrix(values, "distances")
    wrong = np.argwhere(np.isnan(block))
    if wrong.size:
        row, column = wrong[0]
        raise NotFinite(
            f"distances must not be NaN; got NaN at row {row}, column {column}. Check the features behind it."
        )
    return block


def check_matrix(values: ArrayLike, name: str) -> NDArray[Any]:
    """Check ``values`` as a matrix with at least one row."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] == 0:
        raise InvalidInput(f"{name} must be a matrix with one row per query; got shape {array.shape}.")
    return array


def check_depth(depth: int, available: int | None) -> None:
    """Refuse a depth that the results do not reach, instead of shortening it in silence."""
    if depth < 1 or (available is not None and depth > available):
        limit = "" if available is None else f" and at most {available}, the number of items"
        raise InvalidInput(f"depth must be at least 1{limit}; got {depth}.")
