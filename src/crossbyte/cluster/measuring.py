"""How large a sharded index is: all shards together, and each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from crossbyte.search.measuring import sizes

if TYPE_CHECKING:
    from crossbyte.cluster.moment import Moment

__all__ = ["measure_shards"]


def measure_shards(moment: Moment) -> dict[str, Any]:
    """Count documents and bytes: see :meth:`crossbyte.ShardedIndex.stats`.

    Returns
    -------
    dict
        As :func:`crossbyte.search.measuring.measure` gives it, with ``partial``, and ``shards``: a list of
        dicts with ``name``, ``documents``, ``generation``, ``lost``, and ``disk`` and ``memory`` in bytes.
    """
    answers = moment.ask("stats")
    whole = {name: _added(each[name] for each in answers.values()) for name in ("items", "codings")}
    n_items = max(1, sum(whole["items"].values()))
    return {
        "documents": len(moment),
        "deleted": sum(each["deleted"] for each in answers.values()),
        **whole,
        "fields": {field: sorted(types) for field, types in sorted(moment.fields.items())},
        "generation": sum(summary.generation for summary in moment.summaries),
        "segments": sum(each["segments"] for each in answers.values()),
        "disk": sizes(_added(each["disk"]["bytes"] for each in answers.values()), n_items),
        "memory": sizes(_added(each["memory"]["bytes"] for each in answers.values()), n_items),
        "partial": len(answers) < len(moment.summaries),
        "shards": [_line(moment, shard, answers.get(shard)) for shard in range(len(moment.summaries))],
    }


def _line(moment: Moment, shard: int, answer: dict[str, Any] | None) -> dict[str, Any]:
    summary = moment.summaries[shard]
    return {
        "name": moment.holder.names[shard],
        "documents": summary.n_documents,
        "generation": summary.generation,
        "lost": answer is None,
        "disk": None if answer is None else answer["disk"]["bytes"]["file"],
        "memory": None if answer is None else answer["memory"]["bytes"]["total"],
    }


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        for name, count in part.items():
            total[name] += count
    return dict(total)
