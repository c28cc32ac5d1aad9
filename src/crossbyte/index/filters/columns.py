"""Keep payload fields as typed columns in memory, and write them to bytes.

A document may have several values of a field (a list), of several kinds, or none. A column keeps each kind on
its own: nulls, booleans, numbers (as integers or floats, always exact), and texts as codes into a sorted
vocabulary. A million years take two megabytes.

Columns are canonical: pairs (row, value) strictly ascending, no list of rows where it would be 0 … n - 1, and
the narrowest dtype that holds every value exactly. So equal contents are equal bytes, however they came
about::

    n_rows            uint64
    11 entries        dtype (one byte: its place in `DTYPES`, 0 for absent), 7 zero bytes, length (uint64)
    the arrays        in the order of `SLOTS`, each filled up with zero bytes to a multiple of 8

An array of rows may be "all rows", which has a length and takes no bytes.
"""

from __future__ import annotations

import math
import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput
from crossbyte.index.filters.grammar import Scalar, exact_number, flatten_payload
from crossbyte.index.filters.vocabulary import Vocabulary, encode_text, merge_vocabularies

INTEGERS = [np.dtype(name) for name in ("u1", "i1", "u2", "i2", "u4", "i4", "i8")]
FLOATS = [np.dtype(name) for name in ("f4", "f8")]

Pairs = tuple[NDArray[Any], NDArray[Any]]
"""rows and values, both (n,), in any order"""


class ColumnPart(NamedTuple):
    """Values of one kind.

    Attributes
    ----------
    rows : ndarray of uint32, shape (n,), or None
        Ascending; a row may occur several times. None means 0 … n - 1.
    values : ndarray, shape (n,)
    """

    rows: NDArray[np.uint32] | None
    values: NDArray[Any]


def expand_rows(part: ColumnPart) -> NDArray[Any]:
    """Give the rows of a part, written out.

    Parameters
    ----------
    part : Part

    Returns
    -------
    ndarray of uint32, shape (n,)
    """
    return np.arange(len(part.values), dtype=np.uint32) if part.rows is None else part.rows


def is_ascending(rows: NDArray[Any], values: NDArray[Any]) -> bool:
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


def make_canonical_part(rows: NDArray[Any], values: NDArray[Any], n_rows: int) -> ColumnPart | None:
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
    if not is_ascending(rows, values):
        rows, values = _sort_pairs(rows, values)
    values = _freeze(_narrow_dtype(values))
    if len(rows) == n_rows and (rows[1:] > rows[:-1]).all():
        return ColumnPart(None, values)
    return ColumnPart(_freeze(rows.astype(np.uint32, copy=False)), values)


def split_numbers(integers: Pairs, floats: Pairs) -> tuple[Pairs, Pairs]:
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
        return _join_pairs(integers, (rows, values.astype(np.int64))), (rows[:0], values[:0])
    exact = _fits_float64(integers[1])
    moved = integers[0][exact], integers[1][exact].astype(np.float64)
    positive_zero = values + 0.0  # -0.0 equals 0.0, so it must have the same bytes
    return (integers[0][~exact], integers[1][~exact]), _join_pairs((rows, positive_zero), moved)


def _join_pairs(first: Pairs, second: Pairs) -> Pairs:
    return np.concatenate([first[0], second[0]]), np.concatenate([first[1], second[1]])


def _in_int64(values: NDArray[Any]) -> NDArray[np.bool_]:
    return (values >= -(2.0**63)) & (values < 2.0**63)


def _fits_float64(values: NDArray[Any]) -> NDArray[np.bool_]:
    rounded = values.astype(np.float64)
    safe = _in_int64(rounded)
    return safe & (np.where(safe, rounded, 0).astype(np.int64) == values)


def _sort_pairs(rows: NDArray[Any], values: NDArray[Any]) -> Pairs:
    order = np.argsort(rows, kind="stable")  # quick when a few ascending runs were put together
    rows, values = rows[order], values[order]
    if is_ascending(rows, values):
        return rows, values
    order = np.lexsort((values, rows))
    rows, values = rows[order], values[order]
    fresh = np.ones(len(rows), bool)
    fresh[1:] = (rows[1:] != rows[:-1]) | (values[1:] != values[:-1])
    return rows[fresh], values[fresh]


def _narrow_dtype(values: NDArray[Any]) -> NDArray[Any]:
    if values.dtype.kind in "iu":
        low, high = int(values.min()), int(values.max())
        fits = (kind for kind in INTEGERS if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
        return values.astype(next(fits), copy=False)
    if values.dtype == np.float64:
        with np.errstate(over="ignore"):
            short = values.astype(np.float32)
        return short if (short == values).all() else values
    return values


def _freeze(array: NDArray[Any]) -> NDArray[Any]:
    array = np.ascontiguousarray(array)
    array.flags.writeable = False
    return array


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


def make_nulls(n: int) -> NDArray[np.bool_]:
    """Give the values of n nulls, which take no memory.

    Parameters
    ----------
    n : int

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    return np.broadcast_to(np.False_, n)


def column_to_bytes(n_rows: int, parts: Mapping[str, ColumnPart], vocabulary: Vocabulary) -> bytes:
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
    entries = [_ENTRY.pack(*_spell_entry(arrays.get(slot))) for slot in SLOTS]
    bodies = [_spell_array(arrays[slot]) for slot in SLOTS if slot in arrays]
    return b"".join([struct.pack("<Q", n_rows), *entries, *bodies])


def column_from_bytes(data: bytes, n_rows: int) -> tuple[dict[str, ColumnPart], Vocabulary]:
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
        They are not what `column_to_bytes` writes for ``n_rows`` rows.
    """
    arrays = _read_arrays(memoryview(data).cast("B"), n_rows)
    parts = {kind: part for kind in KINDS if (part := _read_part(kind, arrays, n_rows)) is not None}
    vocabulary = _read_vocabulary(arrays)
    if "text" in parts:
        _require(int(parts["text"].values.max()) < len(vocabulary), "a code stands for no text")
    else:
        _require(len(vocabulary) == 0, "texts without codes")
    return parts, vocabulary


def _spell_entry(array: NDArray[Any] | int | None) -> tuple[int, int]:
    if array is None or (not isinstance(array, int) and not len(array)):
        return 0, 0
    if isinstance(array, int):
        return DTYPES.index("all"), array
    name = "bool" if array.dtype == bool else array.dtype.str[1:]
    return DTYPES.index(name), len(array)


def _spell_array(array: NDArray[Any] | int) -> bytes:
    if isinstance(array, int):
        return b""
    body = array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()
    return body + bytes(-len(body) % 8)


def _read_arrays(data: memoryview, n_rows: int) -> Arrays:
    _require(len(data) >= _HEADER, "too short")
    _require(struct.unpack_from("<Q", data)[0] == n_rows, f"not of {n_rows} rows")
    arrays: Arrays = {}
    position = _HEADER
    for slot, dtype, length in _read_entries(data):
        if dtype is None:
            arrays[slot] = length
            continue
        end = position + length * dtype.itemsize
        padded = end + -end % 8
        _require(padded <= len(data) and not any(data[end:padded]), f"{slot}: too short")
        arrays[slot] = _to_native(data[position:end], dtype)
        position = padded
    _require(position == len(data), "too long")
    return arrays


def _read_entries(data: memoryview) -> Iterator[tuple[str, np.dtype[Any] | None, int]]:
    for number, slot in enumerate(SLOTS):
        code, length = _ENTRY.unpack_from(data, 8 + number * _ENTRY.size)
        _require(data[8 + number * 16 :][:16] == _ENTRY.pack(code, length), f"{slot}: stray bytes")
        _require(code < len(DTYPES) and (code > 0) == (length > 0), f"{slot}: no such kind of array")
        if code > 1:
            yield slot, np.dtype(DTYPES[code]), length
        elif code == 1:
            _require(slot.endswith(" rows"), f"{slot}: no such kind of array")
            yield slot, None, length


def _to_native(data: memoryview, dtype: np.dtype[Any]) -> NDArray[Any]:
    is_bool = dtype.kind == "b"
    raw = np.frombuffer(data, np.uint8 if is_bool else dtype.newbyteorder("<"))
    if is_bool:
        _require(int(raw.max()) <= 1, "a boolean is neither 0 nor 1")
        return raw.view(bool)
    array = np.require(raw.astype(dtype, copy=False), requirements="A")
    array.flags.writeable = False
    return array


def _read_part(kind: str, arrays: Arrays, n_rows: int) -> ColumnPart | None:
    rows, values = arrays.get(f"{kind} rows"), arrays.get(f"{kind} values")
    if rows is None:
        _require(values is None, f"{kind}: values without rows")
        return None
    if kind == "null":
        values = make_nulls(rows if isinstance(rows, int) else len(rows))
    assert not isinstance(values, int)  # `_entries` lets only rows be "all"
    _require(
        values is not None and (kind == "null" or values.dtype in _ALLOWED[kind]), f"{kind}: no such values"
    )
    assert values is not None
    _require(kind != "float" or not np.isnan(values).any(), "a number is NaN")
    if isinstance(rows, int):
        _require(rows == n_rows == len(values), f"{kind}: not one value for each row")
        return ColumnPart(None, values)
    _require(rows.dtype == np.uint32 and len(rows) == len(values), f"{kind}: rows do not fit values")
    _require(is_ascending(rows, values) and int(rows[-1]) < n_rows, f"{kind}: rows are not in order")
    return ColumnPart(rows, values)


def _read_vocabulary(arrays: Arrays) -> Vocabulary:
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


_TYPES = {"null": "null", "bool": "bool", "integer": "number", "float": "number", "text": "text"}
TYPES = frozenset(_TYPES.values())
_DTYPES = {"null": bool, "bool": bool, "integer": np.int64, "float": np.float64, "text": np.int64}
_NO_TEXTS = Vocabulary.of([])

Numbered = tuple["Column", NDArray[np.int64] | int]
"""a column, and the new number of each of its rows (-1: dropped), or of the first when all are kept"""


@dataclass(frozen=True, eq=False, slots=True)
class Column:
    """The values of one field in the documents of a segment; immutable.

    Parameters
    ----------
    n_rows : int
        Documents in the segment.
    parts : mapping of str to Part
        By kind: "null", "bool", "integer", "float", "text"; kinds without values are absent. The values of
        texts are codes.
    vocabulary : Vocabulary
        What the codes stand for; each text is used.
    """

    n_rows: int
    parts: Mapping[str, ColumnPart]
    vocabulary: Vocabulary

    @classmethod
    def empty(cls, n_rows: int) -> Column:
        """Give a column in which no document has a value.

        Parameters
        ----------
        n_rows : int

        Returns
        -------
        Column
        """
        return cls(n_rows, {}, _NO_TEXTS)

    @classmethod
    def from_bytes(cls, data: bytes, n_rows: int) -> Column:
        """Read what `to_bytes` wrote; nothing is trusted, nothing is copied if `data` is aligned.

        Parameters
        ----------
        data : bytes
        n_rows : int
            How many documents the segment has.

        Returns
        -------
        Column

        Raises
        ------
        ValueError
            These are not the bytes of a column of ``n_rows`` rows.
        """
        return cls(n_rows, *column_from_bytes(data, n_rows))

    def to_bytes(self) -> bytes:
        """Give the bytes of the column; equal columns have equal bytes.

        Returns
        -------
        bytes
        """
        return column_to_bytes(self.n_rows, self.parts, self.vocabulary)

    @property
    def n_bytes(self) -> int:
        """Bytes of the arrays in memory."""
        arrays = [part.rows for part in self.parts.values() if part.rows is not None]
        arrays += [part.values for kind, part in self.parts.items() if kind != "null"]
        return sum(array.nbytes for array in arrays) + self.vocabulary.n_bytes

    @property
    def types(self) -> set[str]:
        """Which of "null", "bool", "number" and "text" occur."""
        return {_TYPES[kind] for kind in self.parts}

    def present(self) -> NDArray[np.bool_]:
        """Say which documents have a value that is not null.

        Returns
        -------
        ndarray of bool, shape (n_rows,)
        """
        found = np.zeros(self.n_rows, bool)
        for kind, part in self.parts.items():
            if kind != "null":
                found[slice(None) if part.rows is None else part.rows] = True
        return found

    def take(self, rows: NDArray[Any]) -> Column:
        """Keep some documents.

        Parameters
        ----------
        rows : ndarray of integers, shape (n,)
            Ascending; document ``rows[i]`` becomes document i.

        Returns
        -------
        Column
            Of n rows.
        """
        numbers = np.full(self.n_rows, -1, np.int64)
        numbers[rows] = np.arange(len(rows))
        return _combine_columns([(self, numbers)], len(rows))

    def patched(self, rows: NDArray[Any], other: Column) -> Column:
        """Replace the values of some documents.

        Parameters
        ----------
        rows : ndarray of integers, shape (n,)
            Distinct.
        other : Column
            Of n rows; document i there replaces document ``rows[i]`` here.

        Returns
        -------
        Column
            Of as many rows as this one.
        """
        numbers = np.arange(self.n_rows)
        numbers[rows] = -1
        return _combine_columns([(self, numbers), (other, np.asarray(rows, np.int64))], self.n_rows)


def join_columns(columns: Sequence[Column | None], lengths: Sequence[int]) -> Column:
    """Put the columns of consecutive segments one behind the other.

    Parameters
    ----------
    columns : sequence of Column or None
        None where no document of a segment has the field.
    lengths : sequence of int
        Documents per segment.

    Returns
    -------
    Column
        Of ``sum(lengths)`` rows.
    """
    starts = np.cumsum([0, *lengths])
    numbered = [
        (column, int(start)) for column, start in zip(columns, starts[:-1], strict=True) if column is not None
    ]
    return _combine_columns(numbered, int(starts[-1]))


def build_columns(payloads: Iterable[Mapping[str, Any] | None], n_rows: int) -> dict[str, Column]:
    """Build the columns of a segment.

    Parameters
    ----------
    payloads : iterable of mapping or None
        JSON objects, one per document.
    n_rows : int
        How many there are.

    Returns
    -------
    dict of str to Column
        By field, in the order of the fields' spelling.

    Raises
    ------
    InvalidInput
        A value is not JSON, or there are more or fewer payloads.
    """
    gathered: dict[str, _FieldRows] = defaultdict(lambda: _FieldRows([], []))
    row = -1
    for row, payload in enumerate(payloads):
        for field, value in flatten_payload(payload) if payload else ():
            rows, values = gathered[field]
            rows.append(row)
            values.append(value)
    if row + 1 != n_rows:
        raise InvalidInput(f"expected {n_rows} payloads, got {row + 1}")
    return {field: _make_column(*gathered[field], n_rows) for field in sorted(gathered)}


class _FieldRows(NamedTuple):
    """The values of one field as they come in."""

    rows: list[int]
    values: list[Scalar]


def _make_column(rows: list[int], values: list[Scalar], n_rows: int) -> Column:
    vocabulary, pairs = _NO_TEXTS, {}
    for kind, (kind_rows, kept) in _split_kinds(rows, values).items():
        if kind == "text":
            vocabulary, kept = _encode_texts(kept)
        pairs[kind] = np.array(kind_rows, np.int64), np.array(kept, _DTYPES[kind])
    return _make_canonical(pairs, vocabulary, n_rows)


def _encode_texts(texts: list[str]) -> tuple[Vocabulary, list[int]]:
    """Replace texts by their places among the distinct ones."""
    encoded = {text: encode_text(text) for text in set(texts)}
    ordered = sorted(encoded, key=encoded.__getitem__)
    code_of = {text: code for code, text in enumerate(ordered)}
    return Vocabulary.of(map(encoded.__getitem__, ordered)), list(map(code_of.__getitem__, texts))


def _split_kinds(rows: list[int], values: list[Any]) -> dict[str, tuple[list[int], list[Any]]]:
    if set(map(type, values)) == {str}:  # the two most common cases, without a look at each value
        return {"text": (rows, values)}
    if set(map(type, values)) == {int} and min(values) >= -(2**63) and max(values) < 2**63:
        return {"integer": (rows, values)}
    found: dict[str, tuple[list[int], list[Any]]] = defaultdict(lambda: ([], []))
    for row, value in zip(rows, values, strict=True):
        kind, kept = _kind_of(value)
        found[kind][0].append(row)
        found[kind][1].append(kept)
    return found


def _kind_of(value: Scalar) -> tuple[str, Any]:
    if isinstance(value, str):
        return "text", value
    if value is None:
        return "null", False
    if isinstance(value, bool):
        return "bool", value
    number = exact_number(value)
    if isinstance(number, int):
        return "integer", number
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"expected finite numbers in a payload, got {value!r}; store null instead")
    return "float", number


def _combine_columns(numbered: Sequence[Numbered], n_rows: int) -> Column:
    """Make one column of rows of several, under their new numbers."""
    vocabulary, codes = merge_vocabularies([column.vocabulary for column, _ in numbered] or [_NO_TEXTS])
    rows, values = defaultdict(list), defaultdict(list)
    for (column, numbers), new_codes in zip(numbered, codes, strict=False):
        for kind, part in column.parts.items():
            new_values = new_codes[part.values] if kind == "text" else part.values
            new_rows, kept = _renumber(part, numbers)
            rows[kind].append(new_rows)
            values[kind].append(new_values[kept])
    pairs = {
        kind: (np.concatenate(rows[kind]), np.concatenate(values[kind], dtype=_DTYPES[kind])) for kind in rows
    }
    return _make_canonical(pairs, vocabulary, n_rows)


def _renumber(part: ColumnPart, numbers: NDArray[np.int64] | int) -> tuple[NDArray[Any], Any]:
    """Give the new rows of a part, and an index of the values that are kept."""
    if isinstance(numbers, int):
        return expand_rows(part).astype(np.int64) + numbers, slice(None)
    new_rows = numbers[expand_rows(part)]
    kept = new_rows >= 0
    return new_rows[kept], kept


def _make_canonical(
    pairs: dict[str, tuple[NDArray[Any], NDArray[Any]]], vocabulary: Vocabulary, n_rows: int
) -> Column:
    """Bring everything into the canonical form."""
    nothing = np.zeros(0, np.int64)
    if "float" in pairs:
        integers = pairs.get("integer", (nothing, nothing))
        pairs["integer"], pairs["float"] = split_numbers(integers, pairs["float"])
    if "text" in pairs:
        rows, codes = pairs["text"]
        used = np.bincount(codes, minlength=len(vocabulary)) > 0
        if not used.all():
            vocabulary, codes = vocabulary.taken(used), (np.cumsum(used) - 1)[codes]
        pairs["text"] = rows, codes
    settled = {kind: make_canonical_part(*pairs[kind], n_rows) for kind in _TYPES if kind in pairs}
    parts = {kind: part for kind, part in settled.items() if part is not None}
    if "null" in parts:
        parts["null"] = ColumnPart(parts["null"].rows, make_nulls(len(parts["null"].values)))
    return Column(n_rows, parts, vocabulary if "text" in parts else _NO_TEXTS)
