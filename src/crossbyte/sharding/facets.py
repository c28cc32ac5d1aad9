"""Count the values of payload fields over all shards: exactly what one index would count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.index.docids import PackedIds
from crossbyte.index.facets import Facet, can_be_chosen, check_names, list_offered
from crossbyte.index.filters.field_values import commonest_kind
from crossbyte.index.snapshot import Snapshot
from crossbyte.validation import check_integer

if TYPE_CHECKING:
    from crossbyte.sharding.snapshot import ShardedSnapshot


class ValueCount(NamedTuple):
    """Counts the different values of a field in a shard, and the documents with any value."""

    n_values: int
    n_documents: int
    is_list: bool


class Tally(NamedTuple):
    """Lists the values of a field in a shard, the documents of each, and the documents with any."""

    values: list[Any]
    counts: list[int]
    n_documents: int


def count_different_values(snapshot: Snapshot, field: str, kind: str) -> ValueCount:
    """Count the different values of a kind."""
    values = snapshot.values(field, kind)
    return ValueCount(values.n_values, values.n_documents, values.is_list)


def hash_values(snapshot: Snapshot, field: str, kind: str) -> NDArray[np.uint64]:
    """Hash each different text: far less to send than the texts."""
    return PackedIds.of(count_values(snapshot, field, kind, None).values).hashes()


def count_values(snapshot: Snapshot, field: str, kind: str, where: str | None) -> Tally:
    """Count the documents of each value."""
    values = snapshot.values(field, kind)
    counts, n_documents = values.counts(snapshot.masks(where, is_part=True))
    there = np.flatnonzero(counts)
    return Tally([values.value(code) for code in there.tolist()], counts[there].tolist(), n_documents)


def merge_tallies(field: str, kind: str, tallies: Sequence[Tally], limit: int) -> Facet:
    """Add up what shards have counted: the facet that one index would give."""
    counts: dict[Any, int] = {}
    for each in tallies:
        for value, count in zip(each.values, each.counts, strict=True):
            counts[value] = counts.get(value, 0) + count
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    n_documents = sum(each.n_documents for each in tallies)
    n_others = sum(count for _, count in ordered[limit:])
    low, high = (min(counts), max(counts)) if counts and kind == "number" else (None, None)
    ends = (None if end is None else float(end) for end in (low, high))
    return Facet(field, kind, n_documents, ordered[:limit], n_others, *ends)


def count_facets(
    snapshot: ShardedSnapshot, where: str | None, fields: Sequence[str] | None, limit: int
) -> list[Facet]:
    """Count the values of fields: see :meth:`crossbyte.Index.facets`."""
    check_integer(limit, "limit", 1)
    known = snapshot.fields
    names = list_offered(known) if fields is None else check_names(known, fields)
    kinds = _find_kinds(snapshot, names)
    if fields is None:
        kinds = _select_fields(snapshot, kinds, limit)
    snapshot.check_filter(where)
    parts = snapshot.ask_all("tallies", kinds, where)
    found = [
        merge_tallies(field, kind, [part[place] for part in parts], limit)
        for place, (field, kind) in enumerate(kinds)
    ]
    return [facet for facet in found if facet.n_documents or fields is not None]


def _find_kinds(snapshot: ShardedSnapshot, names: Sequence[str]) -> list[tuple[str, str]]:
    """Find the kind that most values of each field have, in all shards together."""
    parts = snapshot.ask_all("kinds", names)
    return [(name, _find_commonest_kind([part[place] for part in parts])) for place, name in enumerate(names)]


def _find_commonest_kind(counts: Sequence[dict[str, int]]) -> str:
    return commonest_kind({kind: sum(each[kind] for each in counts) for kind in counts[0]})


def _select_fields(
    snapshot: ShardedSnapshot, kinds: Sequence[tuple[str, str]], limit: int
) -> list[tuple[str, str]]:
    parts = snapshot.ask_all("value_counts", kinds)
    return [
        pair
        for place, pair in enumerate(kinds)
        if _can_be_chosen(snapshot, *pair, [part[place] for part in parts], limit)
    ]


def _can_be_chosen(
    snapshot: ShardedSnapshot, field: str, kind: str, counts: Sequence[ValueCount], limit: int
) -> bool:
    """Decide by bounds on the number of different values, where these are enough; else by their number."""
    n_documents, is_list = sum(each.n_documents for each in counts), any(each.is_list for each in counts)

    def can(n_values: int) -> bool:
        return can_be_chosen(kind, is_list, n_values, n_documents, limit)

    each = [count.n_values for count in counts]
    if not can(max(each)) or can(sum(each)):
        return can(max(each))
    return can(_count_different(snapshot, field, kind))


def _count_different(snapshot: ShardedSnapshot, field: str, kind: str) -> int:
    """Count the different values of all shards: texts by their hashes; of others there are few here."""
    if kind == "text":
        return len(np.unique(np.concatenate(snapshot.ask_all("value_hashes", field, kind))))
    different: set[Any] = set()
    for part in snapshot.ask_all("tallies", [(field, kind)], None):
        different.update(part[0].values)
    return len(different)
