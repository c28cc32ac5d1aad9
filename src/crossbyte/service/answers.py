"""Answers as JSON: documents and hits in plain types; a number that is not finite never leaves."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.responses import Response

from crossbyte.errors import ClusterError
from crossbyte.search.hits import Document, Hits
from crossbyte.search.ids import Id

if TYPE_CHECKING:
    from crossbyte.gallery.gallery import Gallery
    from crossbyte.gallery.searchable import View

__all__ = [
    "document_answer",
    "hit_answers",
    "json_answer",
    "look_up",
    "payloads_of",
    "sides_of",
    "spell",
    "thumbnail_url",
]


def spell(value: Any) -> bytes:
    """Spell a JSON value; ASCII, so that nothing in it depends on who reads it."""
    return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()


def json_answer(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with JSON that must not be kept."""
    shared = {"Cache-Control": "no-store"} | dict(headers or {})
    return Response(spell(value), status, shared, "application/json")


def thumbnail_url(id: Id, can_have: bool) -> str | None:
    """Give the URL of a document's thumbnail, if it can have one."""
    return f"/v1/thumbnail?id={quote(str(id), safe='')}" if can_have else None


def hit_answers(
    gallery: Gallery, view: View, hits: Hits, payloads: list[dict[str, Any] | None] | None
) -> list[dict[str, Any]]:
    """Give hits in plain types."""
    sides, shown = sides_of(view, hits), gallery.has_thumbnails
    bodies = payloads or [None] * len(hits)
    return [
        {
            "id": hit.id,
            "distance": hit.distance,
            "probability": hit.probability,
            "payload": body,
            "thumbnail": thumbnail_url(hit.id, shown and "image" in own),
        }
        for hit, body, own in zip(hits, bodies, sides, strict=True)
    ]


def look_up(view: View, id: Id) -> Document | None:
    """Give a document that an answer mentions; None where it is not there, or on a lost shard."""
    try:
        return view.get(id)
    except ClusterError:
        return None


def payloads_of(view: View, hits: Hits) -> list[dict[str, Any] | None]:
    """Read the payloads of hits; while a shard is lost one by one, from the shards that found them."""
    try:
        return view.payloads(hits)
    except ClusterError:
        found = [look_up(view, id) for id in hits.ids]
        return [None if each is None else each.payload for each in found]


def sides_of(view: View, hits: Hits) -> list[tuple[str, ...]]:
    """Say which sides each hit has; while a shard is lost one by one, from the shards that found them."""
    try:
        return view.sides(hits)
    except ClusterError:
        found = [look_up(view, id) for id in hits.ids]
        return [() if each is None else tuple(_sides(each)) for each in found]


def document_answer(gallery: Gallery, document: Document) -> dict[str, Any]:
    """Give a document in plain types."""
    sides = _sides(document)
    return {
        "id": document.id,
        "number": document.number,
        "coding": document.coding,
        "payload": document.payload,
        "group": document.group,
        "sides": sides,
        "thumbnail": thumbnail_url(document.id, gallery.has_thumbnails and "image" in sides),
    }


def _sides(document: Document) -> list[str]:
    codes = {"image": document.image_code, "text": document.text_code}
    return [side for side, code in codes.items() if code is not None]
