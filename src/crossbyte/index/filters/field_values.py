"""Number the values of one field in all documents of a generation, so that they are quick to count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.index.filters.columns import Column, ColumnPart
from crossbyte.index.filters.vocabulary import Vocabulary, merge_vocabularies

_KINDS = {"text": ("text",), "number": ("integer", "float"), "boolean": ("bool",)}

Masks = Mapping[str, NDArray[np.bool_] | None]
"""by coding: which documents count; None for all"""


def count_kinds(columns: Mapping[str, Column], live: Masks) -> dict[str, int]:
    """Count the values of each kind that documents have which are not deleted."""
    return {kind: _n_live(columns, kind, live) for kind in _KINDS}


def commonest_kind(counts: Mapping[str, int]) -> str:
    """The kind that most values have; the first of several."""
    return max(_KINDS, key=lambda kind: counts[kind])


@dataclass(frozen=True, eq=False)
class FieldValues:
    """The values of one kind that a field has in a generation, numbered in their order.

    Attributes
    ----------
    kind : str
    values : Vocabulary or (n,) ndarray
        Distinct, ascending.
    rows : dict of coding to (m,) uint32, or None
        The document of each occurrence, ascending; None for 0, 1, 2, ….
    codes : dict of coding to (m,) integers
        The value of each occurrence.
    is_list : bool
        Whether some document has several.
    n_values, n_documents : int
        Of the documents that are not deleted: how many values they have, and how many have one.
    """

    kind: str
    values: Vocabulary | NDArray[Any]
    rows: dict[str, NDArray[np.uint32] | None]
    codes: dict[str, NDArray[Any]]
    is_list: bool
    n_values: int = 0
    n_documents: int = 0

    @classmethod
    def of(cls, columns: Mapping[str, Column], live: Masks, kind: str | None = None) -> FieldValues:
        """Number the values of a kind, or of the commonest, in the columns of all codings."""
        kind = kind or commonest_kind(count_kinds(columns, live))
        parts = list(_parts(columns, kind))
        values, codes = _number_values(columns, kind, [part for _, part in parts])
        rows: dict[str, list[Any]] = {coding: [] for coding, _ in parts}
        numbers: dict[str, list[Any]] = {coding: [] for coding, _ in parts}
        for (coding, part), own in zip(parts, codes, strict=True):
            rows[coding].append(part.rows)
            numbers[coding].append(own)
        joined = {coding: _sort_values(rows[coding], numbers[coding]) for coding in rows}
        found = cls(
            kind,
            values,
            {coding: pair[0] for coding, pair in joined.items()},
            {coding: pair[1] for coding, pair in joined.items()},
            any(own is not None and bool((own[1:] == own[:-1]).any()) for own, _ in joined.values()),
        )
        counts, n_documents = found.counts(live)
        return replace(found, n_values=int(np.count_nonzero(counts)), n_documents=n_documents)

    @property
    def n_bytes(self) -> int:
        """Bytes in memory beside the values."""
        rows = sum(rows.nbytes for rows in self.rows.values() if rows is not None)
        return rows + sum(codes.nbytes for codes in self.codes.values())

    def counts(self, masks: Masks) -> tuple[NDArray[np.int64], int]:
        """Count the documents of each value, and those with any."""
        counts, n_documents = np.zeros(len(self.values), np.int64), 0
        for coding in self.codes:
            codes, rows = _keep_live(self.codes[coding], self.rows[coding], masks[coding])
            counts += np.bincount(codes, minlength=len(self.values))
            n_documents += len(codes) if rows is None or not self.is_list else _n_distinct(rows)
        return counts, n_documents

    def value(self, code: int) -> Any:
        """Give a value as JSON has it."""
        found = self.values[code]
        return found.decode() if isinstance(found, bytes) else getattr(found, "item", lambda: found)()


# Numbering


def _parts(columns: Mapping[str, Column], kind: str) -> Iterator[tuple[str, ColumnPart]]:
    for coding, column in columns.items():
        for name in _KINDS[kind]:
            if name in column.parts:
                yield coding, column.parts[name]


def _n_live(columns: Mapping[str, Column], kind: str, live: Masks) -> int:
    """Count the values of a kind that documents have which are not deleted."""
    return sum(
        len(_keep_live(part.values, part.rows, live[coding])[0]) for coding, part in _parts(columns, kind)
    )


def _keep_live(
    codes: NDArray[Any], rows: NDArray[np.uint32] | None, mask: NDArray[np.bool_] | None
) -> tuple[NDArray[Any], NDArray[np.uint32] | None]:
    if mask is None:
        return codes, rows
    kept = mask if rows is None else mask[rows]
    return codes[kept], None if rows is None else rows[kept]


def _number_values(
    columns: Mapping[str, Column], kind: str, parts: Sequence[ColumnPart]
) -> tuple[Vocabulary | NDArray[Any], list[NDArray[Any]]]:
    """Give the distinct values of some parts in order, and the number of each value of each part."""
    if kind == "text":
        vocabularies = [column.vocabulary for column in columns.values() if "text" in column.parts]
        union, codes = merge_vocabularies(vocabularies or [Vocabulary.of([])])
        if len(vocabularies) == 1:
            return union, [parts[0].values]
        return union, [_narrow(new[part.values]) for new, part in zip(codes, parts, strict=False)]
    # Python compares integers with floats exactly, where NumPy would round the integers
    mixed = len({part.values.dtype.kind for part in parts}) > 1
    arrays = [part.values.astype(object) if mixed else part.values for part in parts]
    whole = np.concatenate(arrays) if arrays else np.zeros(0, np.int64)
    distinct, inverse = np.unique(whole, return_inverse=True)
    if not arrays:
        return distinct, []
    return distinct, np.split(_narrow(inverse), np.cumsum([len(array) for array in arrays])[:-1])


def _narrow(codes: NDArray[Any]) -> NDArray[Any]:
    return codes.astype(np.min_scalar_type(int(codes.max())) if len(codes) else np.uint8)


def _sort_values(
    rows: list[NDArray[np.uint32] | None], codes: list[NDArray[Any]]
) -> tuple[NDArray[np.uint32] | None, NDArray[Any]]:
    if len(codes) == 1:
        return rows[0], codes[0]
    written = [np.arange(len(own)) if part is None else part for part, own in zip(rows, codes, strict=True)]
    joined = np.concatenate(written).astype(np.uint32)
    order = np.argsort(joined, kind="stable")
    return joined[order], np.concatenate(codes)[order]


def _n_distinct(rows: NDArray[np.uint32]) -> int:
    return int(np.count_nonzero(rows[1:] != rows[:-1])) + bool(len(rows))
