"""Labels as files have them, turned into one column of 0 and 1 for each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import DataFileError

__all__ = ["label_columns"]

Labels = NDArray[np.uint8]

_MOST = 5000  # a label of its own for each document would take a square of memory


def label_columns(
    parts: Sequence[Any], key: str, names: Sequence[str] = ()
) -> tuple[list[Labels], tuple[str, ...]]:
    """Turn the labels of several parts into matrices with the same columns.

    Parameters
    ----------
    parts : sequence of array or list
        For each part: (n, n_labels) zeros and ones; or one class for each document, a whole number or a
        string; or a list of classes for each. -1, nothing and an empty string are no label.
    key : str
        What the labels are called in the file, for messages.
    names : sequence of str
        Names of the columns; of the classes 0, 1, … where these are whole numbers.

    Returns
    -------
    list of (n, n_labels) uint8, and the tuple of names

    Raises
    ------
    DataFileError
    """
    arrays = [values if isinstance(values, np.ndarray) else None for values in parts]
    if all(array is not None and array.ndim == 2 and min(array.shape) > 1 for array in arrays):
        return _matrices([array for array in arrays if array is not None], key, names)
    return _classes([_rows(values, key) for values in parts], key, names)


def _matrices(
    parts: list[NDArray[Any]], key: str, names: Sequence[str]
) -> tuple[list[Labels], tuple[str, ...]]:
    widths = {values.shape[1] for values in parts}
    if len(widths) > 1:
        raise DataFileError(f"{key}: expected as many columns in every part, got {sorted(widths)}")
    for values in parts:
        # NaN is neither; -1 for absent is known too, but then 0 is not, and a file that has both is unclear
        if values.dtype.kind not in "biuf" or not np.isin(values, (0, 1)).all():
            raise DataFileError(f"{key}: expected a table of zeros and ones, got other values; write 0 and 1")
    found = [values.astype(np.uint8) for values in parts]
    width = widths.pop()
    return found, tuple(names) if len(names) == width else tuple(map(str, range(width)))


def _rows(values: Any, key: str) -> list[list[str | int]]:
    """Return the classes of each document."""
    listed = values.reshape(-1).tolist() if isinstance(values, np.ndarray) else values
    return [
        [kept for kept in (_plain(each, key) for each in _several(value)) if kept is not None]
        for value in listed
    ]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _plain(value: Any, key: str) -> str | int | None:
    if isinstance(value, bytes):
        value = value.decode("utf-8")
    if isinstance(value, float) and value.is_integer():
        value = int(value)  # MATLAB's whole numbers are floats
    if value is None or value == "" or value != value or (type(value) is int and value == -1):
        return None
    if not isinstance(value, str | int):
        raise DataFileError(f"{key}: expected whole numbers or strings, got {value!r:.60}")
    return value if isinstance(value, str) else int(value)


def _classes(
    parts: list[list[list[str | int]]], key: str, names: Sequence[str]
) -> tuple[list[Labels], tuple[str, ...]]:
    present = {value for rows in parts for row in rows for value in row}
    if len({type(value) for value in present}) > 1:
        raise DataFileError(f"{key}: expected labels of one kind, got numbers and strings; use strings")
    if len(present) > _MOST:
        raise DataFileError(
            f"{key}: expected at most {_MOST} different labels, got {len(present)}; are they captions? "
            "give them another name"
        )
    if not present:
        raise DataFileError(f"{key}: expected labels, got none in any row; leave the key out")
    order = _order(present, key, names)
    return [_one_hot(rows, order) for rows in parts], tuple(
        str(names[place]) if names and isinstance(value, int) else str(value)
        for place, value in enumerate(order)
    )


def _order(present: set[str | int], key: str, names: Sequence[str]) -> list[str | int]:
    """Return the class of each column: all that have a name, or all that are there."""
    if not names or not all(isinstance(value, int) for value in present):
        return sorted(present, key=lambda value: (isinstance(value, str), value))
    wrong = sorted(value for value in present if not (isinstance(value, int) and 0 <= value < len(names)))
    if wrong:
        raise DataFileError(
            f"{key}: expected class numbers from 0 to {len(names) - 1} ({len(names)} names), got {wrong[0]!r}"
        )
    return list(range(len(names)))


def _one_hot(rows: list[list[str | int]], order: list[str | int]) -> Labels:
    column = {value: place for place, value in enumerate(order)}
    cells = [(number, column[value]) for number, row in enumerate(rows) for value in row]
    labels = np.zeros((len(rows), len(order)), dtype=np.uint8)
    if cells:
        labels[tuple(np.array(cells).T)] = 1
    return labels
