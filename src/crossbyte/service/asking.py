"""A query from its request to its answer: encode, scan, read payloads; all of one generation."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from crossbyte.gallery.searchable import View
from crossbyte.search.filters.language import parse_filter
from crossbyte.search.filters.tree import And, Condition, Not, Or
from crossbyte.service.answers import hit_answers, payloads_of
from crossbyte.service.errors import Refused
from crossbyte.service.requests import Explain, Options, Search
from crossbyte.service.settings import LIMITS
from crossbyte.service.state import Service

__all__ = ["Asked", "answer", "check_filter", "query_of", "with_picture", "with_text"]

_OTHER = {"images": "text", "texts": "image"}


class Asked(NamedTuple):
    """The keyword of ``Index.search``, and its value."""

    keyword: str
    value: Any

    def target(self, view: View, wanted: str | None) -> str:
        """What is searched, if nothing was wanted: the other side, or of a document its own."""
        if wanted is not None:
            return wanted
        if self.keyword != "like":
            return _OTHER[self.keyword]
        document = view.get(self.value)
        return "text" if document is not None and document.image_code is None else "image"


def with_text(service: Service, text: str) -> Asked:
    """Ask in words."""
    with service.metrics.step("encode"):
        return Asked("texts", service.gallery.encode_texts([text]))


def with_picture(service: Service, data: bytes) -> Asked:
    """Ask with the bytes of a picture."""
    with service.metrics.step("encode"):
        picture = service.gallery.read_picture(data)
        return Asked("images", service.gallery.encode_pictures([picture]))


def query_of(service: Service, query: Search | Explain) -> Asked:
    """Ask with what a body gives."""
    if query.text is not None:
        return with_text(service, query.text)
    if query.like is not None:
        return Asked("like", query.like)
    if query.image_features is not None:
        return Asked("images", np.array(query.image_features, dtype=np.float64))
    return Asked("texts", np.array(query.text_features, dtype=np.float64))


def answer(service: Service, ask: Callable[[], Asked], options: Options) -> dict[str, Any]:
    """Search; gives a ``SearchAnswer``."""
    start = time.perf_counter()
    check_filter(options.where)
    with service.metrics.step("total"):
        asked = ask()
        found = service.read(lambda view: _found(service, view, asked, options))
    return found | {"took_ms": round(1000 * (time.perf_counter() - start), 3)}


def _found(service: Service, view: View, asked: Asked, options: Options) -> dict[str, Any]:
    rest = options.model_dump(exclude={"text", "image_features", "text_features", "like", "payloads"})
    with service.metrics.step("scan"):
        hits = view.search(**{asked.keyword: asked.value}, **rest)[0]
    with service.metrics.step("payload"):
        payloads = payloads_of(view, hits) if options.payloads else None
    target = asked.target(view, options.target)
    shown = hit_answers(service.gallery, view, hits, payloads)
    return {
        "generation": view.generation,
        "target": target,
        "no_match": hits.no_match,
        "verdict": service.gallery.verdict(asked.keyword, target, hits, getattr(options, "text", None)),
        "partial": service.is_partial(view, hits),
        "hits": shown,
    }


def check_filter(where: str | None) -> None:
    """Refuse a filter of too many conditions."""
    if where is not None and (count := _n_terms(parse_filter(where))) > LIMITS.filter_terms:
        message = f"where: expected at most {LIMITS.filter_terms} conditions, got {count}"
        raise Refused("filter_too_many_terms", message, "use IN with a list of values")


def _n_terms(condition: Condition) -> int:
    if isinstance(condition, And | Or):
        return sum(map(_n_terms, condition.operands))
    return _n_terms(condition.operand) if isinstance(condition, Not) else 1
