"""Scores of a ranking, and what chance would score.

Everything here is a function of plain arrays; nothing knows how a ranking was made. Two conventions hold
throughout:

- the **order** of items is (distance, column number): equal distances go to the smaller column number;
- **average precision** divides by the number of relevant items among those *retrieved* (the paper's
  denominator), so its chance level is high and must be printed beside it: :func:`expected_chance_map`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbyte.errors import InvalidInput, NotFinite

__all__ = [
    "chance_recall",
    "expected_chance_map",
    "mean_average_precision",
    "partner_ranks",
    "ranking",
    "recall_at",
    "standard_error",
]

Floats = NDArray[np.floating[Any]]
Bools = NDArray[np.bool_]
Integers = NDArray[np.int64]


def mean_average_precision(relevance: ArrayLike, depth: int) -> float:
    """Mean over queries of the average precision of the first ``depth`` results.

    ``AP = sum_t P(t) d(t) / sum_t d(t)`` for t = 1 … depth, where ``d(t)`` says whether result t is relevant
    and ``P(t)`` is the precision of the first t results. A query without a single hit scores 0 and stays in
    the mean.

    Parameters
    ----------
    relevance : (n_queries, at least depth) bool
        Whether each result is relevant, best result first.
    depth : int
        How many results of each query count.

    Returns
    -------
    float
        Between 0 and 1.
    """
    found = _matrix(relevance, "relevance").astype(bool)
    _check_depth(depth, found.shape[1])
    found = found[:, :depth]
    hits = np.cumsum(found, axis=1)
    precision = hits / np.arange(1, depth + 1)
    total = np.where(found, precision, 0.0).sum(axis=1)
    return float(np.mean(total / np.maximum(hits[:, -1], 1)))


def expected_chance_map(proportions: ArrayLike, depth: int, n_items: int | None = None) -> float:
    """Give the exact expectation of :func:`mean_average_precision` when items are ranked at random.

    Closed form, nothing is sampled. Given k hits among the first T places, all sets of k places are equally
    likely, which gives ``E[AP | k] = (H_T + (k - 1) / (T - 1) * (T - H_T)) / T`` with the harmonic number
    ``H_T``: linear in k, so only the expected k and the probability of no hit at all remain.

    Parameters
    ----------
    proportions : (n_queries,) float
        For each query the share of the database that is relevant to it.
    depth : int
        How many results count.
    n_items : int, optional
        Size of the database; results are then drawn without replacement. None is the limit of a very large
        database.

    Returns
    -------
    float
        The mean over queries.
    """
    shares = np.asarray(proportions, dtype=np.float64)
    if shares.ndim != 1 or shares.size == 0 or not np.all((shares >= 0) & (shares <= 1)):
        raise InvalidInput(
            "proportions must be one share between 0 and 1 per query, for at least one query; got an array of"
            f" shape {shares.shape}: {shares}. Divide each count of relevant items by the database size."
        )
    _check_depth(depth, n_items)
    harmonic = float(np.sum(1.0 / np.arange(1, depth + 1)))
    slope = (depth - harmonic) / (depth * (depth - 1)) if depth > 1 else 0.0
    any_hit = 1.0 - _no_hit(shares, depth, n_items)
    return float(np.mean(any_hit * (harmonic / depth - slope) + depth * shares * slope))


def recall_at(ranks: ArrayLike, k: int) -> float:
    """Count the share of queries whose true partner is among the first ``k`` results.

    Parameters
    ----------
    ranks : (n_queries,) int
        0-based rank of the true partner (:func:`partner_ranks`).
    k : int
        How many results count.

    Returns
    -------
    float
        Between 0 and 1; :func:`standard_error` says how exactly it is known.
    """
    places = np.asarray(ranks)
    if places.ndim != 1 or places.size == 0 or k < 1:
        raise InvalidInput(
            f"ranks must be one rank per query and k at least 1; got shape {places.shape} and k={k}."
        )
    return float(np.mean(places < k))


def standard_error(recall: float, n_queries: int) -> float:
    """Give the standard error of a recall on ``n_queries`` independent queries: ``sqrt(r (1 - r) / n)``.

    Parameters
    ----------
    recall : float
        A share between 0 and 1.
    n_queries : int
        How many queries it was measured on.

    Returns
    -------
    float
        The binomial standard error.
    """
    if not 0 <= recall <= 1 or n_queries < 1:
        raise InvalidInput(
            f"recall must be between 0 and 1 of at least one query; got {recall} of {n_queries}."
        )
    return float(np.sqrt(recall * (1.0 - recall) / n_queries))


def chance_recall(n_items: int, k: int, n_relevant: int = 1) -> float:
    """Give the recall at ``k`` of a random ranking.

    Parameters
    ----------
    n_items : int
        Size of the database.
    k : int
        How many results count; more than ``n_items`` is the same as all.
    n_relevant : int, default 1
        How many items count as the partner (the captions of one picture); finding any of them is enough.

    Returns
    -------
    float
        ``k / n_items`` for a single partner.
    """
    if not 1 <= n_relevant <= n_items or k < 1:
        raise InvalidInput(
            f"expected 1 <= n_relevant <= n_items and k >= 1; got {n_relevant=}, {n_items=}, {k=}."
        )
    share = np.array([n_relevant / n_items])
    return float(1.0 - _no_hit(share, min(k, n_items), n_items)[0])


def partner_ranks(
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
    block = _distances(distances)
    columns = _partner_columns(block, partners, query_groups, item_groups)
    best = np.take_along_axis(block, columns[:, None], axis=1)
    before = np.arange(block.shape[1]) < columns[:, None]
    return np.asarray(np.sum((block < best) | ((block == best) & before), axis=1), dtype=np.int64)


def ranking(distances: ArrayLike, depth: int) -> Integers:
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
    block = _distances(distances)
    _check_depth(depth, block.shape[1])
    order = np.empty((len(block), depth), dtype=np.int64)
    for row, values in enumerate(block):
        order[row] = _first(values, depth)
    return order


def _first(values: Floats, depth: int) -> Integers:
    """Find the ``depth`` smallest entries of one row, ties by position."""
    # argpartition keeps an arbitrary choice of the items tied at the border; its value finds them all
    border = np.partition(values, depth - 1)[depth - 1]
    candidates = np.flatnonzero(values <= border)
    chosen = np.argsort(values[candidates], kind="stable")[:depth]
    return np.asarray(candidates[chosen], dtype=np.int64)


def _no_hit(shares: Floats, depth: int, n_items: int | None) -> Floats:
    """Probability that ``depth`` random results contain no relevant item, per query."""
    if n_items is None:
        return np.asarray((1.0 - shares) ** depth)
    drawn = np.arange(depth)
    irrelevant = n_items - np.rint(shares * n_items)
    left = np.maximum(irrelevant[:, None] - drawn, 0.0)
    return np.asarray(np.prod(left / (n_items - drawn), axis=1))


def _partner_columns(
    block: Floats, partners: ArrayLike | None, query_groups: ArrayLike | None, item_groups: ArrayLike | None
) -> Integers:
    """Column of the best-placed partner of every row."""
    grouped = query_groups is not None or item_groups is not None
    if grouped and partners is not None:
        raise InvalidInput("partners and groups were both given; pass one of them.")
    if not grouped:
        return _single_partners(block.shape, partners)
    if query_groups is None or item_groups is None:
        raise InvalidInput("query_groups and item_groups belong together; one of them is missing.")
    return _grouped_partners(block, np.asarray(query_groups), np.asarray(item_groups))


def _single_partners(shape: tuple[int, ...], partners: ArrayLike | None) -> Integers:
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
    """Column of the nearest item of the query's own group; among equals the first."""
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


def _matrix(values: ArrayLike, name: str) -> NDArray[Any]:
    """``values`` as a matrix with at least one row."""
    array = np.asarray(values)
    if array.ndim != 2 or array.shape[0] == 0:
        raise InvalidInput(f"{name} must be a matrix with one row per query; got shape {array.shape}.")
    return array


def _distances(values: ArrayLike) -> Floats:
    """``values`` as a matrix of distances; NaN has no place in an order."""
    block = _matrix(values, "distances")
    wrong = np.argwhere(np.isnan(block))
    if wrong.size:
        row, column = wrong[0]
        raise NotFinite(
            f"distances must not be NaN; got NaN at row {row}, column {column}. Check the features behind it."
        )
    return block


def _check_depth(depth: int, available: int | None) -> None:
    """Refuse a depth that the results do not reach, instead of shortening it in silence."""
    if depth < 1 or (available is not None and depth > available):
        limit = "" if available is None else f" and at most {available}, the number of items"
        raise InvalidInput(f"depth must be at least 1{limit}; got {depth}.")
