"""Run a query from its request to its answer: encode, scan, read payloads; all of one generation.

A query is the one keyword argument of ``Index.search`` that says what is looked for (``texts``, ``images`` or
``like``) with its value; the options of a request are its other keyword arguments.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from crossbyte.gallery.searchable import View
from crossbyte.search.filters.language import parse_filter
from crossbyte.search.filters.tree import And, Condition, Not, Or
from crossbyte.service.answers import hit_answers, payloads_of
from crossbyte.service.errors import Refused
from crossbyte.service.requests import Explain, Options, Search
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service

__all__ = ["answer", "check_filter", "encode_picture", "encode_query", "encode_text"]

_OTHER_SIDE = {"images": "text", "texts": "image"}
_NOT_KEYWORDS = {"text", "image_features", "text_features", "like", "payloads"}


def encode_text(service: Service, text: str) -> dict[str, Any]:
    """Make a query of words."""
    with service.metrics.step("encode"):
        return {"texts": service.gallery.encode_texts([text])}


def encode_picture(service: Service, data: bytes) -> dict[str, Any]:
    """Make a query of the bytes of a picture."""
    with service.metrics.step("encode"):
        picture = service.gallery.read_picture(data)
        return {"images": service.gallery.encode_pictures([picture])}


def encode_query(service: Service, query: Search | Explain) -> dict[str, Any]:
    """Make a query of whatever a body gives: words, an id, or features."""
    if query.text is not None:
        return encode_text(service, query.text)
    if query.like is not None:
        return {"like": query.like}
    if query.image_features is not None:
        return {"images": np.array(query.image_features, dtype=np.float64)}
    return {"texts": np.array(query.text_features, dtype=np.float64)}


def answer(service: Service, encode: Callable[[], dict[str, Any]], options: Options) -> dict[str, Any]:
    """Encode a query and search with it; gives a ``SearchAnswer``."""
    start = time.perf_counter()
    check_filter(options.where)
    with service.metrics.step("total"):
        query = encode()
        found = service.read(lambda view: _search_view(service, view, query, options))
    return found | {"took_ms": round(1000 * (time.perf_counter() - start), 3)}


def _search_view(service: Service, view: View, query: dict[str, Any], options: Options) -> dict[str, Any]:
    """Search one generation of the index."""
    with service.metrics.step("scan"):
        hits = view.search(**query, **options.model_dump(exclude=_NOT_KEYWORDS))[0]
    with service.metrics.step("payload"):
        payloads = payloads_of(view, hits) if options.payloads else None
    [(keyword, value)] = query.items()
    target = options.target or _default_target(view, keyword, value)
    shown = hit_answers(service.gallery, view, hits, payloads)
    return {
        "generation": view.generation,
        "target": target,
        "no_match": hits.no_match,
        "verdict": service.gallery.verdict(keyword, target, hits, getattr(options, "text", None)),
        "partial": service.is_partial(view, hits),
        "hits": shown,
    }


def _default_target(view: View, keyword: str, value: Any) -> str:
    """Name what is searched where nothing was chosen: the other side, or of a document its own."""
    if keyword != "like":
        return _OTHER_SIDE[keyword]
    document = view.get(value)
    return "text" if document is not None and document.image_code is None else "image"


def check_filter(where: str | None) -> None:
    """Refuse a filter of too many conditions."""
    if where is not None and (count := _count_conditions(parse_filter(where))) > LIMITS.filter_terms:
        message = f"where: expected at most {LIMITS.filter_terms} conditions, got {count}"
        raise Refused("filter_too_many_terms", message, "use IN with a list of values")


def _count_conditions(condition: Condition) -> int:
    if isinstance(condition, And | Or):
        return sum(map(_count_conditions, condition.operands))
    return _count_conditions(condition.operand) if isinstance(condition, Not) else 1
