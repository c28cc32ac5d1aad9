"""Rank items with their ties left as they are: groups of items at the same distance.

Every score by relevance is a function of the groups' sizes and of how many relevant items each holds. Groups
without a relevant item add nothing to any of them and are left out. The groups of all queries lie one after
another in flat arrays: queries differ in how many they have. Distances become integers of the same order and
the same ties, which can be counted or sorted fast.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from crossbyte.arrays import Float32
from crossbyte.errors import InvalidInput, NotFinite

Integers = NDArray[np.int64]
Words = NDArray[np.uint64]

_LARGEST = 2**53  # whole numbers up to here fit into any integer
_ROW_BIT = np.uint64(33)  # above 32 bits of distance and one of relevance


class _Groups(NamedTuple):
    """Tie groups with relevant items, by row, nearest first; each field (n_groups,) int64."""

    row: Integers
    before: Integers
    size: Integers
    relevant: Integers


@dataclass(frozen=True, eq=False)
class TiedRanking:
    """Rankings of all items for n queries, as far as scores need them.

    Attributes
    ----------
    n_items : int
        Size of the database.
    depth : int
        How many places are known; groups that begin behind them are left out.
    total : (n,) int64
        Relevant items in the database, per query.
    row : (n_groups,) int64
        The query of each group of tied items; ascending.
    before : (n_groups,) int64
        How many items are nearer than the group; ascending within a query.
    size : (n_groups,) int64
        How many items tie.
    relevant : (n_groups,) int64
        How many of them are relevant, at least one.
    relevant_before : (n_groups,) int64
        How many relevant items are nearer than the group.
    """

    n_items: int
    depth: int
    total: Integers
    row: Integers
    before: Integers
    size: Integers
    relevant: Integers
    relevant_before: Integers

    def counts(self, groups: Any) -> tuple[Integers, Integers, Integers, Integers]:
        """Pick groups.

        Parameters
        ----------
        groups : index array or mask of groups

        Returns
        -------
        before, relevant_before, size, relevant : int64
            The letters b, R, n, r of the formulas.
        """
        return self.before[groups], self.relevant_before[groups], self.size[groups], self.relevant[groups]

    def reach(self, depth: int) -> int:
        """Return the depth that can be scored: the ranking ends with the database.

        Parameters
        ----------
        depth : int
            How many places are to count.

        Returns
        -------
        int
            The same, or the number of items where that is less.
        """
        if depth < 1 or min(depth, self.n_items) > self.depth:
            raise InvalidInput(
                f"depth must be at least 1 and at most {self.depth}, as far as the items were ranked;"
                f" got {depth}."
            )
        return min(depth, self.n_items)


def rank_with_ties(distances: ArrayLike, relevant: ArrayLike, depth: int | None = None) -> TiedRanking:
    """Rank items by distance and leave ties as they are.

    Distances of few whole values (Hamming) are counted, others sorted; up to ``depth`` only, if given.

    Parameters
    ----------
    distances : (n, n_items) float32
        Smaller is better. Other real types are taken as they are; NaN is refused.
    relevant : (n, n_items) bool
        Whether an item is relevant to a query.
    depth : int, optional
        How many places will be scored; more than there are items is the same as all. None: all.

    Returns
    -------
    TiedRanking
        For :func:`expected_average_precision` and the others.
    """
    block = check_distances(distances)
    wanted = check_relevant(relevant, block.shape)
    depth = _check_depth(depth, block.shape[1])
    keys, n_values = order_keys(block)
    total = count_by_row(wanted)
    groups = (
        _group_by_sorting(keys, wanted, depth)
        if n_values is None
        else _group_by_counting(keys, n_values, wanted)
    )
    return _make_ranking(groups, total, block.shape[1], depth)


def rank_all_tied(relevant_counts: ArrayLike, n_items: int) -> TiedRanking:
    """Rank nothing: every item ties with every other, so scores are those of a random order.

    Parameters
    ----------
    relevant_counts : (n,) int
        For each query how many items of the database are relevant.
    n_items : int
        Size of the database.

    Returns
    -------
    TiedRanking
        One group per query that has relevant items.
    """
    total = np.asarray(relevant_counts)
    if total.ndim != 1 or total.dtype.kind not in "iu" or not np.all((total >= 0) & (total <= n_items)):
        raise InvalidInput(
            f"relevant_counts must be one count from 0 to n_items={n_items} per query;"
            f" got {total.dtype} of shape {total.shape}."
        )
    total = total.astype(np.int64)
    row = np.flatnonzero(total).astype(np.int64)
    groups = _Groups(row, np.zeros_like(row), np.full_like(row, n_items), total[row])
    return _make_ranking(groups, total, n_items, n_items)


def _make_ranking(groups: _Groups, total: Integers, n_items: int, depth: int) -> TiedRanking:
    """Leave out what lies behind the depth, and count the relevant items before each group."""
    if depth < n_items:
        groups = _Groups(*(part[groups.before < depth] for part in groups))
    up_to = np.cumsum(groups.relevant)
    of_row = np.bincount(groups.row, groups.relevant, len(total)).astype(np.int64)
    of_earlier_rows = np.cumsum(of_row) - of_row
    before = up_to - groups.relevant - of_earlier_rows[groups.row]
    return TiedRanking(n_items, depth, total, *groups, relevant_before=before)


def _group_by_counting(keys: NDArray[np.intp], n_values: int, relevant: NDArray[np.bool_]) -> _Groups:
    """Group distances that are small integers: count each value, relevant or not, in each row."""
    n = len(keys)
    cells = keys  # overwritten: fresh memory would cost more than the counting
    cells *= 2
    cells += relevant
    cells += np.arange(0, 2 * n * n_values, 2 * n_values)[:, None]
    counts = np.bincount(cells.ravel(), minlength=2 * n * n_values).reshape(n, n_values, 2)
    size = counts.sum(axis=2)
    row, value = np.nonzero(counts[:, :, 1])
    before = np.cumsum(size, axis=1)[row, value] - size[row, value]
    return _Groups(row, before, size[row, value], counts[row, value, 1])


def _group_by_sorting(keys: NDArray[np.uint32], relevant: NDArray[np.bool_], depth: int) -> _Groups:
    """Group any distances, by sorting words of row, distance and relevance.

    Within a tie the relevant items come last and are equal words, so a group ends with its last one.
    """
    words, lengths = _nearest_words(keys, relevant, depth)
    row_start = np.cumsum(lengths) - lengths
    place = np.flatnonzero(words & np.uint64(1))
    found = words[place]
    head = np.flatnonzero(np.diff(found, prepend=np.uint64(0)))  # a relevant word is odd, never 0
    start, first = _group_starts(words, found[head], place[head]), place[head]
    count = np.diff(head, append=len(found))
    row = (found[head] >> _ROW_BIT).astype(np.int64)
    return _Groups(row, start - row_start[row], first + count - start, count)


def _nearest_words(
    keys: NDArray[np.uint32], relevant: NDArray[np.bool_], depth: int
) -> tuple[Words, Integers]:
    """Sort the words of each row's first ``depth`` items and of those that tie with the last; count them."""
    n, n_items = keys.shape
    words = keys.astype(np.uint64)
    words <<= np.uint64(1)
    words |= relevant
    words |= np.arange(n, dtype=np.uint64)[:, None] << _ROW_BIT
    if depth >= n_items:
        words.sort(axis=1)
        return words.ravel(), np.full(n, n_items)
    border = np.partition(words, depth - 1, axis=1)[:, depth - 1, None]
    near = words <= (border | np.uint64(1))  # whoever ties with the last is no farther, relevant or not
    return np.sort(words[near]), count_by_row(near)


def _group_starts(words: Words, heads: Words, first: Integers) -> Integers:
    """Find where each group begins: at its first relevant item, or at irrelevant ones that tie with it."""
    start = first.copy()
    tied = np.flatnonzero(words[np.maximum(first - 1, 0)] == heads - np.uint64(1))
    start[tied] = np.searchsorted(words, heads[tied] - np.uint64(1))
    return start


def check_relevant(relevant: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return relevance as a matrix of bool of the given shape, or say what is wrong with it.

    Parameters
    ----------
    relevant : (n, n_items) bool
    shape : tuple of int
        Of the distances.

    Returns
    -------
    (n, n_items) bool
    """
    wanted: NDArray[Any] = np.asarray(relevant)
    if wanted.shape != shape or wanted.dtype != np.bool_:
        raise InvalidInput(
            f"relevant must be bool and of the shape {shape} of the distances;"
            f" got {wanted.dtype} of shape {wanted.shape}."
        )
    return wanted


def _check_depth(depth: int | None, n_items: int) -> int:
    if depth is not None and depth < 1:
        raise InvalidInput(f"depth must be at least 1; got {depth}.")
    return n_items if depth is None else min(depth, n_items)


class OrderKeys(NamedTuple):
    """Whole numbers in the place of distances.

    Attributes
    ----------
    values : (n, n_items) intp or uint32
        Smaller is better; equal exactly where the distances are.
    n_values : int or None
        All of them are below this where they are few enough to be counted one by one; otherwise None.
    """

    values: NDArray[Any]
    n_values: int | None


def check_distances(distances: ArrayLike) -> NDArray[Any]:
    """Return distances as a matrix of real numbers, or say what is wrong with them.

    Parameters
    ----------
    distances : (n, n_items)
        Smaller is better; infinity is a distance, NaN is none.

    Returns
    -------
    (n, n_items) array
        The argument itself where it is one.
    """
    block = np.asarray(distances)
    if block.ndim != 2 or 0 in block.shape or block.dtype.kind not in "fiu":
        raise InvalidInput(
            "distances must be a matrix of real numbers, one row per query and one column per item;"
            f" got {block.dtype} of shape {block.shape}."
        )
    if np.isnan(block.min()):
        row, column = np.argwhere(np.isnan(block))[0]
        raise NotFinite(
            f"distances must not be NaN; got NaN at row {row}, column {column}. Check the features behind it."
        )
    return block


def count_by_row(marks: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Count the marks of each row; several times faster than NumPy's own count along an axis.

    Parameters
    ----------
    marks : (n, n_items) bool

    Returns
    -------
    (n,) int64
    """
    return np.fromiter(map(np.count_nonzero, marks), np.int64, len(marks))


def order_keys(block: NDArray[Any]) -> OrderKeys:
    """Replace checked distances by integers that sort and tie alike.

    Parameters
    ----------
    block : (n, n_items) float or int
        As :func:`check_distances` returns it. Nothing is rounded, whatever the type.

    Returns
    -------
    OrderKeys
        New arrays. Counts of differing bits stay what they are, so that they can be counted.
    """
    low, high = block.min().item(), block.max().item()
    # no more values than items: the table of counts is then never larger than the block
    if high - low < block.shape[1] and max(-low, high) < _LARGEST and _is_whole(block):
        keys = block.astype(np.intp)
        keys -= int(low)
        return OrderKeys(keys, int(high - low) + 1)
    if block.dtype.kind == "f" and block.dtype.itemsize <= 4:
        return OrderKeys(_bits_in_order(block.astype(np.float32, copy=False)), None)
    ranks = np.unique(block, return_inverse=True)[1]
    return OrderKeys(ranks.reshape(block.shape).astype(np.uint32), None)


def _is_whole(block: NDArray[Any]) -> bool:
    """Whether all values are whole numbers; real distances betray themselves in the first row."""
    return block.dtype.kind in "iu" or all(bool(np.all(np.trunc(b) == b)) for b in (block[0], block))


def _bits_in_order(block: Float32) -> NDArray[np.uint32]:
    """Turn floats into unsigned integers of the same order: flip all bits if negative, else the sign."""
    bits = (block + np.float32(0)).view(np.uint32)  # -0.0 + 0 is 0.0: they are equal, their bits are not
    flipped = (bits.view(np.int32) >> 31).view(np.uint32) | np.uint32(1 << 31)
    return np.asarray(bits ^ flipped)
