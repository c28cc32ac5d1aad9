"""Typed columns: the values of one payload field over the documents of a segment, small and quick to test.

A document may have several values of a field (a list), of several kinds, or none. A column keeps each kind
on its own: nulls, booleans, numbers (as integers or floats, always exact), and texts as codes into a sorted
vocabulary. A million years take two megabytes.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput
from crossbyte.search.filters.column_bytes import column_from_bytes, column_to_bytes, nulls
from crossbyte.search.filters.column_parts import Part, all_rows, canonical_part, settled_numbers
from crossbyte.search.filters.fields import Scalar, flatten
from crossbyte.search.filters.tree import exact_number
from crossbyte.search.filters.vocabulary import Vocabulary, merged_vocabulary, utf8

__all__ = ["Column", "build_columns", "join_columns"]

_TYPES = {"null": "null", "bool": "bool", "integer": "number", "float": "number", "text": "text"}
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
    parts: Mapping[str, Part]
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
            These are not the bytes of a column of so many rows.
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
        return _combined([(self, numbers)], len(rows))

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
        return _combined([(self, numbers), (other, np.asarray(rows, np.int64))], self.n_rows)


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
    return _combined(numbered, int(starts[-1]))


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
    gathered: dict[str, _Gathered] = defaultdict(lambda: _Gathered([], []))
    row = -1
    for row, payload in enumerate(payloads):
        for field, value in flatten(payload) if payload else ():
            rows, values = gathered[field]
            rows.append(row)
            values.append(value)
    if row + 1 != n_rows:
        raise InvalidInput(f"expected {n_rows} payloads, got {row + 1}")
    return {field: _column(*gathered[field], n_rows) for field in sorted(gathered)}


class _Gathered(NamedTuple):
    """The values of one field as they come in."""

    rows: list[int]
    values: list[Scalar]


def _column(rows: list[int], values: list[Scalar], n_rows: int) -> Column:
    vocabulary, pairs = _NO_TEXTS, {}
    for kind, (kind_rows, kept) in _by_kind(rows, values).items():
        if kind == "text":
            vocabulary, kept = _coded(kept)
        pairs[kind] = np.array(kind_rows, np.int64), np.array(kept, _DTYPES[kind])
    return _settled(pairs, vocabulary, n_rows)


def _coded(texts: list[str]) -> tuple[Vocabulary, list[int]]:
    """Replace texts by their places among the distinct ones."""
    encoded = {text: utf8(text) for text in set(texts)}
    ordered = sorted(encoded, key=encoded.__getitem__)
    code_of = {text: code for code, text in enumerate(ordered)}
    return Vocabulary.of(map(encoded.__getitem__, ordered)), list(map(code_of.__getitem__, texts))


def _by_kind(rows: list[int], values: list[Any]) -> dict[str, tuple[list[int], list[Any]]]:
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


def _combined(numbered: Sequence[Numbered], n_rows: int) -> Column:
    """Make one column of rows of several, under their new numbers."""
    vocabulary, codes = merged_vocabulary([column.vocabulary for column, _ in numbered] or [_NO_TEXTS])
    rows, values = defaultdict(list), defaultdict(list)
    for (column, numbers), new_codes in zip(numbered, codes, strict=False):
        for kind, part in column.parts.items():
            new_values = new_codes[part.values] if kind == "text" else part.values
            new_rows, kept = _renumbered(part, numbers)
            rows[kind].append(new_rows)
            values[kind].append(new_values[kept])
    pairs = {
        kind: (np.concatenate(rows[kind]), np.concatenate(values[kind], dtype=_DTYPES[kind])) for kind in rows
    }
    return _settled(pairs, vocabulary, n_rows)


def _renumbered(part: Part, numbers: NDArray[np.int64] | int) -> tuple[NDArray[Any], Any]:
    """Give the new rows of a part, and an index of the values that are kept."""
    if isinstance(numbers, int):
        return all_rows(part).astype(np.int64) + numbers, slice(None)
    new_rows = numbers[all_rows(part)]
    kept = new_rows >= 0
    return new_rows[kept], kept


def _settled(
    pairs: dict[str, tuple[NDArray[Any], NDArray[Any]]], vocabulary: Vocabulary, n_rows: int
) -> Column:
    """Bring everything into the canonical form."""
    nothing = np.zeros(0, np.int64)
    if "float" in pairs:
        integers = pairs.get("integer", (nothing, nothing))
        pairs["integer"], pairs["float"] = settled_numbers(integers, pairs["float"])
    if "text" in pairs:
        rows, codes = pairs["text"]
        used = np.bincount(codes, minlength=len(vocabulary)) > 0
        if not used.all():
            vocabulary, codes = vocabulary.taken(used), (np.cumsum(used) - 1)[codes]
        pairs["text"] = rows, codes
    settled = {kind: canonical_part(*pairs[kind], n_rows) for kind in _TYPES if kind in pairs}
    parts = {kind: part for kind, part in settled.items() if part is not None}
    if "null" in parts:
        parts["null"] = Part(parts["null"].rows, nulls(len(parts["null"].values)))
    return Column(n_rows, parts, vocabulary if "text" in parts else _NO_TEXTS)
