"""How large an index is: on disk and in memory, by part and per item."""

from __future__ import annotations

from typing import Any

from crossbyte.search.segment import SIDES
from crossbyte.search.snapshot import Snapshot

__all__ = ["measure", "sizes"]


def measure(snapshot: Snapshot) -> dict[str, Any]:
    """Count documents and bytes.

    Returns
    -------
    dict
        ``documents``, ``deleted`` (still in the file), ``items`` (images and texts), ``codings``, ``fields``,
        ``generation``, ``segments``; ``disk`` and ``memory``, each with ``bytes`` and ``per_item`` by part.
    """
    counts = {coding: shelf.n_live for coding, shelf in snapshot.shelves.items()}
    documents = sum(counts.values())
    items = {
        side: sum(count for coding, count in counts.items() if side in SIDES[coding])
        for side in ("image", "text")
    }
    n_items = max(1, sum(items.values()))
    return {
        "documents": documents,
        "deleted": sum(map(len, snapshot.shelves.values())) - documents,
        "items": items,
        "codings": counts,
        "fields": {field: sorted(types) for field, types in sorted(snapshot.fields.items())},
        "generation": snapshot.generation,
        "segments": sum(len(shelf.segments) for shelf in snapshot.shelves.values()),
        "disk": sizes(snapshot.store.sizes(), n_items),
        "memory": sizes(_memory(snapshot), n_items),
    }


def _memory(snapshot: Snapshot) -> dict[str, int]:
    parts = dict.fromkeys(("codes", "ids", "numbers", "marks", "cells"), 0)
    for shelf in snapshot.shelves.values():
        for name, size in shelf.memory().items():
            parts[name] += size
    # Made only when somebody filters, groups, or looks a document up by its id.
    parts["filters"] = snapshot.read_bytes
    parts["lookup"] = snapshot.lookup.n_bytes if "lookup" in vars(snapshot) else 0
    return parts | {"total": sum(parts.values())}


def sizes(parts: dict[str, int], n_items: int) -> dict[str, Any]:
    """Bytes by part, and for each image and text."""
    return {"bytes": parts, "per_item": {name: round(size / n_items, 3) for name, size in parts.items()}}
