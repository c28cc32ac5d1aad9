"""The values of one kind in a column: rows and values, in one canonical form.

Canonical means: pairs (row, value) strictly ascending, no list of rows where it would be 0 … n - 1, and the
narrowest dtype that holds every value exactly. So equal contents are equal bytes, however they came about.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLOATS", "INTEGERS", "Part", "all_rows", "ascending", "canonical_part", "settled_numbers"]

INTEGERS = [np.dtype(name) for name in ("u1", "i1", "u2", "i2", "u4", "i4", "i8")]
FLOATS = [np.dtype(name) for name in ("f4", "f8")]

Pairs = tuple[NDArray[Any], NDArray[Any]]
"""rows and values, both (n,), in any order"""


class Part(NamedTuple):
    """Values of one kind.

    Attributes
    ----------
    rows : ndarray of uint32, shape (n,), or None
        Ascending; a row may occur several times. None means 0 … n - 1.
    values : ndarray, shape (n,)
    """

    rows: NDArray[np.uint32] | None
    values: NDArray[Any]


def all_rows(part: Part) -> NDArray[Any]:
    """Give the rows of a part, written out.

    Parameters
    ----------
    part : Part

    Returns
    -------
    ndarray of uint32, shape (n,)
    """
    return np.arange(len(part.values), dtype=np.uint32) if part.rows is None else part.rows


def ascending(rows: NDArray[Any], values: NDArray[Any]) -> bool:
    """Say whether the pairs (row, value) are strictly ascending.

    Parameters
    ----------
    rows, values : ndarray, shape (n,)

    Returns
    -------
    bool
    """
    before, after = rows[:-1], rows[1:]
    if (before < after).all():
        return True
    within = (before == after) & (values[:-1] < values[1:])
    return bool(((before < after) | within).all())


def canonical_part(rows: NDArray[Any], values: NDArray[Any], n_rows: int) -> Part | None:
    """Bring rows and values into the canonical form.

    Parameters
    ----------
    rows : ndarray of integers, shape (n,)
    values : ndarray, shape (n,)
    n_rows : int
        How many rows the column has.

    Returns
    -------
    Part or None
        None when there are no values.
    """
    if not len(rows):
        return None
    if not ascending(rows, values):
        rows, values = _ordered(rows, values)
    values = _frozen(_narrow(values))
    if len(rows) == n_rows and (rows[1:] > rows[:-1]).all():
        return Part(None, values)
    return Part(_frozen(rows.astype(np.uint32, copy=False)), values)


def settled_numbers(integers: Pairs, floats: Pairs) -> tuple[Pairs, Pairs]:
    """Decide which numbers are kept as integers and which as floats; no value changes.

    All are integers where that is possible. Otherwise all are floats, save integers that float64 cannot hold.

    Parameters
    ----------
    integers : pair of ndarray, values of int64
    floats : pair of ndarray, values of float64, no NaN

    Returns
    -------
    tuple of two such pairs
    """
    rows, values = floats
    if not len(rows):
        return integers, floats
    if (_in_int64(values) & (values == np.trunc(values))).all():
        return _joined(integers, (rows, values.astype(np.int64))), (rows[:0], values[:0])
    exact = _fits_float64(integers[1])
    moved = integers[0][exact], integers[1][exact].astype(np.float64)
    positive_zero = values + 0.0  # -0.0 equals 0.0, so it must have the same bytes
    return (integers[0][~exact], integers[1][~exact]), _joined((rows, positive_zero), moved)


def _joined(first: Pairs, second: Pairs) -> Pairs:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def _in_int64(values: NDArray[Any]) -> NDArray[np.bool_]:
    return (values >= -(2.0**63)) & (values < 2.0**63)


def _fits_float64(values: NDArray[Any]) -> NDArray[np.bool_]:
    rounded = values.astype(np.float64)
    safe = _in_int64(rounded)
    return safe & (np.where(safe, rounded, 0).astype(np.int64) == values)


def _ordered(rows: NDArray[Any], values: NDArray[Any]) -> Pairs:
    order = np.argsort(rows, kind="stable")  # quick when a few ascending runs were put together
    rows, values = rows[order], values[order]
    if ascending(rows, values):
        return rows, values
    order = np.lexsort((values, rows))
    rows, values = rows[order], values[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]) | (values[1:] != values[:-1])
    return rows[fresh], values[fresh]


def _narrow(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        fits = (kind for kind in INTEGERS if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
        return values.astype(next(fits), copy=False)
    if values.dtype == np.float64:
        with np.errstate(over="ignore"):
            short = values.astype(np.float32)
        return short if (short == values).all() else values
    return values


def _frozen(array: NDArray[Any]) -> NDArray[Any]:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array
