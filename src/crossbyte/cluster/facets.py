"""What there is to choose from, over all shards: exactly what one index would count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from crossbyte.cluster.field_counts import ValueCount, merge_tallies
from crossbyte.search.facets import Facet, can_be_chosen, check_names, is_offered
from crossbyte.search.filters.field_values import commonest_kind
from crossbyte.validation import check_integer

if TYPE_CHECKING:
    from crossbyte.cluster.moment import Moment

__all__ = ["facets"]


def facets(moment: Moment, where: str | None, fields: Sequence[str] | None, limit: int) -> list[Facet]:
    """Count values: see :meth:`crossbyte.Index.facets`."""
    check_integer(limit, "limit", 1)
    known = moment.fields
    offered = [name for name in sorted(known) if is_offered(name, known[name])]
    names = offered if fields is None else check_names(known, fields)
    kinds = _kinds(moment, names)
    if fields is None:
        kinds = _choosable(moment, kinds, limit)
    moment.check_filter(where)
    parts = moment.ask_all("tallies", kinds, where)
    found = [
        merge_tallies(field, kind, [part[place] for part in parts], limit)
        for place, (field, kind) in enumerate(kinds)
    ]
    return [facet for facet in found if facet.n_documents or fields is not None]


def _kinds(moment: Moment, names: Sequence[str]) -> list[tuple[str, str]]:
    """Each field with the kind that most of its values have, in all shards together."""
    parts = moment.ask_all("kinds", names)
    return [(name, _commonest([part[place] for part in parts])) for place, name in enumerate(names)]


def _commonest(counts: Sequence[dict[str, int]]) -> str:
    return commonest_kind({kind: sum(each[kind] for each in counts) for kind in counts[0]})


def _choosable(moment: Moment, kinds: Sequence[tuple[str, str]], limit: int) -> list[tuple[str, str]]:
    parts = moment.ask_all("value_counts", kinds)
    return [
        pair
        for place, pair in enumerate(kinds)
        if _can_be_chosen(moment, *pair, [part[place] for part in parts], limit)
    ]


def _can_be_chosen(moment: Moment, field: str, kind: str, counts: Sequence[ValueCount], limit: int) -> bool:
    """Judge by as little as decides: how many different values there are at least, at most, or exactly."""
    n_documents, is_list = sum(each.n_documents for each in counts), any(each.is_list for each in counts)

    def can(n_values: int) -> bool:
        return can_be_chosen(kind, is_list, n_values, n_documents, limit)

    each = [count.n_values for count in counts]
    if not can(max(each)) or can(sum(each)):
        return can(max(each))
    return can(_n_different(moment, field, kind))


def _n_different(moment: Moment, field: str, kind: str) -> int:
    """Count the different values of all shards: texts by their hashes; of others there are few here."""
    if kind == "text":
        return len(np.unique(np.concatenate(moment.ask_all("value_hashes", field, kind))))
    different: set[Any] = set()
    for part in moment.ask_all("tallies", [(field, kind)], None):
        different.update(part[0].values)
    return len(different)
