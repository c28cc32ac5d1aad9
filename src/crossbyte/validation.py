"""Check users' arrays and numbers.

Every public call passes its arguments through here before any work starts; after that, arrays are known to be
two-dimensional, real, finite and of the right width.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import zip_longest
from math import isfinite
from numbers import Integral, Real
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Codes, Raw
from crossbyte.compute.executor import row_blocks
from crossbyte.errors import InvalidInput, NotFinite

_LARGEST = 1e150  # squares of larger values overflow


def check_features(values: Any, name: str, n_features: int | None = None, min_rows: int = 0) -> Raw:
    """Return (n, d) features as a real array or a CSR matrix, or say what is wrong with them.

    Dense arrays keep their type, order and storage (also memory maps): blocks are converted when they
    are used. Stored rows (:mod:`crossbyte.data`) stay where they are, and are looked at block by
    block. Nothing is ever written into the argument.
    """
    raw = _as_real_rows(values, name)
    if raw.shape[1] == 0:
        raise InvalidInput(
            f"{name}: expected at least one feature, got 0 feature(s) (shape={raw.shape}) "
            "while a minimum of 1 is required."
        )
    if n_features is not None and raw.shape[1] != n_features:
        raise InvalidInput(
            f"{name}: X has {raw.shape[1]} features, but CMCQ is expecting {n_features} features "
            "as input; use the encoder that made the training features"
        )
    if raw.shape[0] < min_rows:
        raise InvalidInput(
            f"{name}: expected at least {min_rows} rows, got n_samples = {raw.shape[0]}; "
            "one sample (1 sample) or none is not enough to learn from"
        )
    _check_finite(raw, name)
    return raw


def check_codes(codes: Any, n_codebooks: int) -> Codes:
    """Return ready codes as a (n, M) uint8 array in C order."""
    array = as_array(codes, "codes")
    if array.ndim != 2 or array.shape[1] != n_codebooks or array.dtype != np.uint8:
        raise InvalidInput(
            f"codes: expected a uint8 array of shape (n, {n_codebooks}), "
            f"got {array.dtype} of shape {array.shape}"
        )
    return np.ascontiguousarray(array)


def check_pairs(images: Any, texts: Any) -> tuple[Raw, Raw]:
    """Return both sides of the training pairs, with at least two rows each, row by row."""
    images = check_features(images, "images", min_rows=2)
    texts = check_features(texts, "texts", min_rows=2)
    check_rows_agree(images, texts)
    return images, texts


def check_rows_agree(images: Raw, texts: Raw) -> None:
    """Refuse sides with different numbers of rows."""
    if images.shape[0] != texts.shape[0]:
        raise InvalidInput(
            f"expected one text per image, row by row, got {images.shape[0]} images and "
            f"{texts.shape[0]} texts{_first_difference(images, texts)}; repeat the image of an image with "
            "several texts"
        )


def is_sparse(rows: Any) -> bool:
    """Whether rows are sparse: matrices of SciPy, and stored rows that are."""
    return bool(sparse.issparse(rows) or getattr(rows, "is_sparse", False))


def is_stored(values: Any) -> bool:
    """Whether these are rows that stay on disk."""
    return getattr(values, "is_stored", None) is True


def _first_difference(images: Any, texts: Any) -> str:
    """Say where two sides that came in files or blocks first differ; empty where they did not come so."""
    sides = getattr(images, "pieces", ()), getattr(texts, "pieces", ())
    for image, text in zip_longest(*sides) if all(sides) else ():
        if image is None or text is None or image.n_rows != text.n_rows:
            names = (
                f"{piece.n_rows} rows in {piece.name}" if piece else "nothing" for piece in (image, text)
            )
            return f"; they first differ at {' beside '.join(names)}"
    return ""


def check_groups(groups: Any, n_rows: int) -> NDArray[np.intp]:
    """Number the groups 0, 1, … in the order of their first row; None: every row its own group."""
    if groups is None:
        return np.arange(n_rows)
    labels = as_array(groups, "groups")
    if labels.ndim != 1 or len(labels) != n_rows:
        raise InvalidInput(f"groups: expected one label per row ({n_rows}), got shape {labels.shape}")
    # As an array, a list of strings has text for None, NaN and numbers.
    _check_labels(groups if labels.dtype.kind in "US" else labels)
    try:
        _, first, inverse = np.unique(np.asarray(labels), return_index=True, return_inverse=True)
    except TypeError as error:
        raise InvalidInput(
            f"groups: expected strings or numbers, got what has no order ({error}); name groups by strings"
        ) from error
    return np.argsort(np.argsort(first))[inverse]


def check_number(value: Any, name: str, low: float, high: float = np.inf, *, open_low: bool = False) -> float:
    """Return a finite number in [low, high], or (low, high] with ``open_low``."""
    is_plain = type(value) is float  # the others ask an abstract class, which takes a microsecond
    if not is_plain and (isinstance(value, bool) or not isinstance(value, Real)) or not isfinite(value):
        raise InvalidInput(f"{name}: expected a finite number, got {value!r}")
    if not low <= float(value) <= high or (open_low and float(value) == low):
        bracket = "(" if open_low else "["
        raise InvalidInput(f"{name}: expected a number in {bracket}{low:g}, {high:g}], got {value!r}")
    return float(value)


def check_integer(value: Any, name: str, low: int, high: int | None = None) -> int:
    """Return an integer of at least ``low`` and at most ``high``."""
    if type(value) is not int and (isinstance(value, bool) or not isinstance(value, Integral)):
        raise InvalidInput(f"{name}: expected an integer, got {value!r}")
    number = int(value)
    if number < low or (high is not None and number > high):
        limit = f"at least {low}" if high is None else f"from {low} to {high}"
        raise InvalidInput(f"{name}: expected an integer {limit}, got {number}")
    return number


def check_choice(value: Any, name: str, choices: Iterable[str]) -> str:
    """Return the value if it is one of the choices."""
    known = sorted(choices)
    if not isinstance(value, str) or value not in known:
        raise InvalidInput(f"{name}: expected one of {', '.join(map(repr, known))}, got {value!r}")
    return value


def as_array(values: Any, name: str) -> NDArray[Any]:
    """Convert values to a NumPy array, a mask kept; rows of different lengths are refused."""
    try:
        return np.asanyarray(values)
    except ValueError as error:
        raise InvalidInput(f"{name}: expected rows of one length, got a ragged sequence ({error})") from error


def _check_labels(labels: Any) -> None:
    """Refuse a row without a group, and labels of several kinds: 1 and "1" may be one group or two."""
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iub" and not np.ma.isMaskedArray(labels):
        return
    kind = None
    for row, label in enumerate(labels):
        if _is_missing(label):
            raise InvalidInput(
                f"groups: expected a label in every row, got none in row {row}; fill it in, with a label "
                "of its own if the row belongs to no other"
            )
        kind = kind or _label_kind(label)
        if _label_kind(label) != kind:
            raise InvalidInput(
                f"groups: expected labels of one kind, got {kind}s and in row {row} a {_label_kind(label)}; "
                "make all of them strings"
            )


def _is_missing(label: Any) -> bool:
    try:
        return label is None or label is np.ma.masked or label in ("", b"") or bool(label != label)
    except (TypeError, ValueError):
        return True  # pandas' NA is neither equal to itself nor not


def _label_kind(label: Any) -> str:
    return (
        "number"
        if isinstance(label, Real | np.bool_)
        else "string"
        if isinstance(label, str)
        else type(label).__name__
    )


def _as_real_rows(values: Any, name: str) -> Raw:
    if is_stored(values):
        _check_real(values.dtype, name)
        return cast("Raw", values)  # has the same shape, dtype and rows
    return _as_sparse(values, name) if sparse.issparse(values) else _as_array(values, name)


def _as_array(values: Any, name: str) -> NDArray[Any]:
    if np.ma.isMaskedArray(values) and np.ma.getmaskarray(values).any():
        row, *column = np.argwhere(np.ma.getmaskarray(values))[0]
        where = f"row {row}" + (f", column {column[0]}" if column else "")
        raise NotFinite(f"{name}: expected a value in every cell, got a masked one at {where}; fill it first")
    array = np.asarray(as_array(values, name))
    if array.ndim != 2:
        raise InvalidInput(
            f"{name}: Expected 2D array of shape (rows, features), got {array.ndim}D array instead "
            f"(shape {array.shape}). Reshape your data: one item is values.reshape(1, -1)"
        )
    if array.dtype.kind == "O":
        array = _parse_objects(array, name)
    _check_real(array.dtype, name)
    return array


def _parse_objects(array: NDArray[Any], name: str) -> NDArray[np.float64]:
    if any(isinstance(value, complex) for value in array.flat):
        raise InvalidInput(f"{name}: Complex data not supported; expected real numbers")
    try:
        return array.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise InvalidInput(
            f"{name}: expected numbers, got an array of Python objects ({error}); "
            "argument must be a string or a number: convert it with .astype(float)"
        ) from error


def _check_real(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind == "c":
        raise InvalidInput(f"{name}: Complex data not supported; expected real numbers, got {dtype}")
    if dtype.kind not in "fiub":
        raise InvalidInput(f"{name}: expected numbers, got an array of type {dtype}")


def _as_sparse(values: Any, name: str) -> sparse.csr_matrix:
    if values.ndim != 2:
        raise InvalidInput(f"{name}: Expected 2D array, got a {values.ndim}D sparse array instead")
    _check_real(values.dtype, name)
    rows = values if isinstance(values, sparse.csr_matrix) else sparse.csr_matrix(values)
    if not rows.has_canonical_format or (rows.data == 0).any():
        rows = rows.copy()  # the following work in place, and the argument is not ours
        rows.sum_duplicates()
        rows.eliminate_zeros()
    return rows


def _check_finite(raw: Any, name: str, first_row: int = 0) -> None:
    if raw.dtype.kind != "f" or getattr(raw, "is_finite", False):
        return
    if is_stored(raw):
        for rows in row_blocks(raw.shape[0]):
            _check_finite(raw[rows], name, rows.start)
        return
    is_matrix = bool(sparse.issparse(raw))  # a plain bool: the narrowed type knows too little
    values: NDArray[Any] = np.asarray(raw.data if is_matrix else raw)
    for rows in row_blocks(len(values)):
        block = values[rows]
        # Half and single precision cannot even hold the largest value allowed.
        bad = ~(np.abs(block) <= _LARGEST) if block.dtype.itemsize > 4 else ~np.isfinite(block)
        if bad.any():
            at = np.argwhere(bad)[0]
            at[0] += rows.start
            raise NotFinite(_describe_bad_value(raw, at, name, first_row))


def _describe_bad_value(raw: Raw, at: NDArray[np.intp], name: str, first_row: int) -> str:
    if sparse.issparse(raw):
        value, column = raw.data[at[0]], raw.indices[at[0]]
        row = int(np.searchsorted(raw.indptr, at[0], side="right")) - 1
    else:
        row, column = at
        value = raw[row, column]
    what = "NaN" if np.isnan(value) else "inf" if np.isinf(value) else f"{value:g}"
    return (
        f"{name}: expected finite values of at most 1e150, got {what} at row {first_row + row}, column "
        f"{column}; Input contains NaN, infinity or too large a value: drop or repair that row"
    )
