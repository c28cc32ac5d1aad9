"""Count the documents of each value of payload fields (facets): what there is to choose from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput
from crossbyte.index.filters.conditions import check_fields
from crossbyte.index.filters.field_values import FieldValues, Masks
from crossbyte.index.filters.grammar import IsNull
from crossbyte.index.snapshot import Snapshot
from crossbyte.validation import check_integer

_OWN = ("captions", "file")  # what `crossbyte.data.captions` writes: every document has its own
_MAX_OFFERED = 1000  # fields; an index of today has no more
_MAX_CHOICES = 64  # of a field of lists; more are keywords, which are searched and not chosen


class Facet(NamedTuple):
    """The values of one field among some documents.

    Attributes
    ----------
    field : str
        As a filter spells it.
    kind : {"text", "number", "boolean"}
        The kind that most values of the field have; others are not looked at.
    n_documents : int
        How many of the documents have a value.
    values : list of (value, int)
        The most frequent values, with how many documents have each; equal counts in the order of the values.
    n_others : int
        The sum of the counts of all other values.
    low, high : float or None
        The smallest and the largest, of numbers.
    """

    field: str
    kind: str
    n_documents: int
    values: list[tuple[Any, int]]
    n_others: int
    low: float | None
    high: float | None


def count_facets(
    snapshot: Snapshot, where: str | None, fields: Sequence[str] | None, limit: int
) -> list[Facet]:
    """Count the values of fields: see :meth:`crossbyte.Index.facets`."""
    check_integer(limit, "limit", 1)
    names = _select_fields(snapshot, limit) if fields is None else check_names(snapshot.fields, fields)
    snapshot.allowed(where)  # a filter that is wrong is refused even where there is no field
    found = [_count_field(snapshot, where, name, limit) for name in names]
    return [facet for facet in found if facet.n_documents or fields is not None]


def check_names(known: Mapping[str, set[str]], fields: Any) -> list[str]:
    """Check names of fields, and give each once; refuse those that no document has.

    Raises
    ------
    InvalidInput, UnknownField
    """
    if isinstance(fields, str) or not all(isinstance(name, str) for name in fields):
        raise InvalidInput(f"fields: expected a list of names of payload fields, got {fields!r}"[:200])
    names = list(dict.fromkeys(fields))
    for name in names:
        check_fields(IsNull(name, negated=False), known)
    return names


def _select_fields(snapshot: Snapshot, limit: int) -> list[str]:
    """Select the fields to choose from: no texts that differ in most documents, and no long lists."""
    known = snapshot.fields
    values = {name: snapshot.values(name) for name in list_offered(known)}
    return [
        name
        for name, own in values.items()
        if can_be_chosen(own.kind, own.is_list, own.n_values, own.n_documents, limit)
    ]


def list_offered(known: Mapping[str, set[str]]) -> list[str]:
    """List the fields that may be chosen by; a thousand, of a file of old that has more."""
    return [name for name in sorted(known) if is_offered(name, known[name])][:_MAX_OFFERED]


def is_offered(name: str, types: set[str]) -> bool:
    """Say whether a field may be one to choose from, by its name and types."""
    return name not in _OWN and bool(types - {"null"})


def can_be_chosen(kind: str, is_list: bool, n_values: int, n_documents: int, limit: int) -> bool:
    """Say whether a field is one to choose from, by its values in all documents, whatever the filter is."""
    if is_list and n_values > _MAX_CHOICES:
        return False
    return kind != "text" or n_values <= max(limit, n_documents // 2)


def _count_field(snapshot: Snapshot, where: str | None, field: str, limit: int) -> Facet:
    def count() -> Facet:
        return _make_facet(snapshot.values(field), field, snapshot.masks(where), limit)

    kept: Facet = snapshot.cache_count((where, field, limit), count)
    return kept._replace(values=list(kept.values))  # the caller's to change


def _make_facet(values: FieldValues, field: str, masks: Masks, limit: int) -> Facet:
    counts, n_documents = values.counts(masks)
    chosen = _find_most_frequent(counts, limit)
    listed = [(values.value(code), int(counts[code])) for code in chosen.tolist()]
    n_others = int(counts.sum() - counts[chosen].sum())
    low, high = _find_extremes(values, counts)
    return Facet(field, values.kind, n_documents, listed, n_others, low, high)


def _find_most_frequent(counts: NDArray[np.int64], limit: int) -> NDArray[np.intp]:
    """Give the codes of the largest counts; without a sort, where there are a million."""
    filled = counts[counts > 0]
    if len(filled) > limit:
        least = np.partition(filled, -limit)[-limit]
        above, equal = np.flatnonzero(counts > least), np.flatnonzero(counts == least)
        there = np.concatenate([above, equal[: limit - len(above)]])
    else:
        there = np.flatnonzero(counts)
    return there[np.lexsort((there, -counts[there]))]


def _find_extremes(values: FieldValues, counts: NDArray[np.int64]) -> tuple[float | None, float | None]:
    there = counts != 0
    if values.kind != "number" or not there.any():
        return None, None
    low, high = int(there.argmax()), len(there) - 1 - int(there[::-1].argmax())
    return float(values.value(low)), float(values.value(high))
