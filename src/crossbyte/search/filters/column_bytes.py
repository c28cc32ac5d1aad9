"""The bytes of a column: a table of contents and arrays, little-endian, each at a multiple of eight.

::

    n_rows            uint64
    11 entries        dtype (one byte: its place in `DTYPES`, 0 for absent), 7 zero bytes, length (uint64)
    the arrays        in the order of `SLOTS`, each filled up with zero bytes to a multiple of 8

An array of rows may be "all rows", which has a length and takes no bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.filters.column_parts import FLOATS, INTEGERS, Part, ascending
from crossbyte.search.filters.vocabulary import Vocabulary

__all__ = ["column_from_bytes", "column_to_bytes", "nulls"]

KINDS = ("null", "bool", "integer", "float", "text")
SLOTS = (
    "null rows",
    *(f"{kind} {what}" for kind in KINDS[1:] for what in ("rows", "values")),
    "starts",
    "texts",
)
DTYPES = ("absent", "all", "bool", "u1", "i1", "u2", "i2", "u4", "i4", "i8", "f4", "f8")

_ENTRY = struct.Struct("<BxxxxxxxQ")
_HEADER = 8 + len(SLOTS) * _ENTRY.size
_ALLOWED: dict[str, list[np.dtype[Any]]] = {
    "bool": [np.dtype(bool)],
    "integer": INTEGERS,
    "float": FLOATS,
    "text": [np.dtype(name) for name in ("u1", "u2", "u4")],
}

Arrays = dict[str, NDArray[Any] | int]
"""by slot; a number stands for "all rows", that many"""


def nulls(n: int) -> NDArray[np.bool_]:
    """Give the values of n nulls, which take no memory.

    Parameters
    ----------
    n : int

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    return np.broadcast_to(np.False_, n)


def column_to_bytes(n_rows: int, parts: Mapping[str, Part], vocabulary: Vocabulary) -> bytes:
    """Give the bytes of a column.

    Parameters
    ----------
    n_rows : int
    parts : mapping of str to Part
    vocabulary : Vocabulary

    Returns
    -------
    bytes
    """
    arrays: Arrays = {}
    for kind, part in parts.items():
        arrays[f"{kind} rows"] = len(part.values) if part.rows is None else part.rows
        if kind != "null":
            arrays[f"{kind} values"] = part.values
    if "text" in parts:
        arrays |= {"starts": vocabulary.offsets, "texts": np.frombuffer(vocabulary.data, np.uint8)}
    entries = [_ENTRY.pack(*_entry(arrays.get(slot))) for slot in SLOTS]
    bodies = [_body(arrays[slot]) for slot in SLOTS if slot in arrays]
    return b"".join([struct.pack("<Q", n_rows), *entries, *bodies])


def column_from_bytes(data: bytes, n_rows: int) -> tuple[dict[str, Part], Vocabulary]:
    """Read and verify the bytes of a column.

    Parameters
    ----------
    data : bytes
    n_rows : int

    Returns
    -------
    parts : dict of str to Part
    vocabulary : Vocabulary

    Raises
    ------
    ValueError
        They are not what `column_to_bytes` writes for so many rows.
    """
    arrays = _read(memoryview(data).cast("B"), n_rows)
    parts = {kind: part for kind in KINDS if (part := _part(kind, arrays, n_rows)) is not None}
    vocabulary = _vocabulary(arrays)
    if "text" in parts:
        _require(int(parts["text"].values.max()) < len(vocabulary), "a code stands for no text")
    else:
        _require(len(vocabulary) == 0, "texts without codes")
    return parts, vocabulary


def _entry(array: NDArray[Any] | int | None) -> tuple[int, int]:
    if array is None or (not isinstance(array, int) and not len(array)):
        return 0, 0
    if isinstance(array, int):
        return DTYPES.index("all"), array
    name = "bool" if array.dtype == bool else array.dtype.str[1:]
    return DTYPES.index(name), len(array)


def _body(array: NDArray[Any] | int) -> bytes:
    if isinstance(array, int):
        return b""
    body = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return body + bytes(-len(body) % 8)


def _read(data: memoryview, n_rows: int) -> Arrays:
    _require(len(data) >= _HEADER, "too short")
    _require(struct.unpack_from("<Q", data)[0] == n_rows, f"not of {n_rows} rows")
    arrays: Arrays = {}
    position = _HEADER
    for slot, dtype, length in _entries(data):
        if dtype is None:
            arrays[slot] = length
            continue
        end = position + length * dtype.itemsize
        padded = end + -end % 8
        _require(padded <= len(data) and not any(data[end:padded]), f"{slot}: too short")
        arrays[slot] = _native(data[position:end], dtype)
        position = padded
    _require(position == len(data), "too long")
    return arrays


def _entries(data: memoryview) -> Iterator[tuple[str, np.dtype[Any] | None, int]]:
    for number, slot in enumerate(SLOTS):
        code, length = _ENTRY.unpack_from(data, 8 + number * _ENTRY.size)
        _require(data[8 + number * 16 :][:16] == _ENTRY.pack(code, length), f"{slot}: stray bytes")
        _require(code < len(DTYPES) and (code > 0) == (length > 0), f"{slot}: no such kind of array")
        if code > 1:
            yield slot, np.dtype(DTYPES[code]), length
        elif code == 1:
            _require(slot.endswith(" rows"), f"{slot}: no such kind of array")
            yield slot, None, length


def _native(data: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    is_bool = dtype.kind == "b"
    raw = np.frombuffer(data, np.uint8 if is_bool else dtype.newbyteorder("<"))
    if is_bool:
        _require(int(raw.max()) <= 1, "a boolean is neither 0 nor 1")
        return raw.view(bool)
    array = np.require(raw.astype(dtype, copy=False), requirements="A")
    array.flags.writeable = False
    return array


def _part(kind: str, arrays: Arrays, n_rows: int) -> Part | None:
    rows, values = arrays.get(f"{kind} rows"), arrays.get(f"{kind} values")
    if rows is None:
        _require(values is None, f"{kind}: values without rows")
        return None
    if kind == "null":
        values = nulls(rows if isinstance(rows, int) else len(rows))
    assert not isinstance(values, int)  # `_entries` lets only rows be "all"
    _require(
        values is not None and (kind == "null" or values.dtype in _ALLOWED[kind]), f"{kind}: no such values"
    )
    assert values is not None
    _require(kind != "float" or not np.isnan(values).any(), "a number is NaN")
    if isinstance(rows, int):
        _require(rows == n_rows == len(values), f"{kind}: not one value for each row")
        return Part(None, values)
    _require(rows.dtype == np.uint32 and len(rows) == len(values), f"{kind}: rows do not fit values")
    _require(ascending(rows, values) and int(rows[-1]) < n_rows, f"{kind}: rows are not in order")
    return Part(rows, values)


def _vocabulary(arrays: Arrays) -> Vocabulary:
    starts, texts = arrays.get("starts"), arrays.get("texts")
    if starts is None:
        _require(texts is None, "texts without starts")
        return Vocabulary.of([])
    assert not isinstance(starts, int) and not isinstance(texts, int)
    _require(starts.dtype in (np.dtype("u4"), np.dtype("i8")), "starts: no such kind of array")
    _require(texts is None or texts.dtype == np.uint8, "texts: no such kind of array")
    vocabulary = Vocabulary(b"" if texts is None else texts.tobytes(), starts)
    vocabulary.check()
    return vocabulary


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise ValueError(f"expected the bytes of a column: {fault}")
