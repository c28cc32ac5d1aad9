"""Requests to the service, generated: fine ones, to be answered, and odd ones, which may be refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from hypothesis import strategies as st

from support.service_samples import N_SERVED, UNICODE_ID, features, jpeg, scenes

__all__ = ["REQUESTS", "Kinds", "Requests"]

Requests = st.SearchStrategy[dict[str, Any]]
Values = st.SearchStrategy[Any]


class Kinds(NamedTuple):
    """What is sent to one route."""

    fine: Requests
    odd: Requests


# Values


words = st.sampled_from(["a red circle", "two stars", "東京", "x", "'; --", "a\u0000b"])
odd_words = st.one_of(st.sampled_from([" ", ""]), st.text(max_size=40))
pairs = st.integers(0, N_SERVED - 1).map(lambda number: f"scene-{number}")  # they have both sides
ids = pairs | st.sampled_from([7, UNICODE_ID])
odd_ids = st.one_of(st.just("gone"), st.integers(-(2**64), 2**64), st.text(max_size=20))
new_ids = st.text("abc", min_size=1, max_size=6) | st.integers(1000, 1010)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
numbers = st.integers() | st.floats(allow_nan=False, allow_infinity=False)
payloads = st.dictionaries(
    st.text(max_size=8), st.text(max_size=8) | numbers | st.lists(numbers, max_size=3), max_size=3
)
wheres = st.sampled_from([None, "year >= 2005", "shape = 'star' OR colour != 'red'"])
odd_wheres = st.one_of(st.sampled_from(["year >", "weight = 1", ""]), st.text(max_size=30))
odd_vectors = st.lists(st.floats(width=32) | st.integers(-5, 5), max_size=5)


def vectors(side: int) -> Values:
    """Real features of a side (0 for images), or their half."""
    made = features()[side]
    dense = made.toarray() if hasattr(made, "toarray") else made
    return st.tuples(st.integers(0, len(dense) - 1), st.sampled_from([1.0, 0.5])).map(
        lambda pair: [float(value) for value in dense[pair[0]] * pair[1]]
    )


options = {
    "mode": st.sampled_from([None, "vectors"]),
    "k": st.integers(1, 100),
    "where": wheres,
    "max_distance": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "distinct": st.sampled_from([None, "group"]),
    "prior": st.none() | st.floats(0.0, 1.0, exclude_min=True),
    "match_threshold": st.floats(0.0, 1.0),
    "n_probe": st.sampled_from([None, "all"]),  # the sample has no cells
    "payloads": st.booleans(),
}
modes = st.sampled_from([None, "both", "words", "vectors"])
targets = st.sampled_from([None, "image", "text", "document"])
odd_options = {
    "target": st.sampled_from([None, "sound"]),
    "mode": st.sampled_from([None, "both", "words", "vectors", "pictures"]),
    "k": st.integers(-1, 30) | st.sampled_from([1000, 1001, 10**20]),
    "where": wheres | odd_wheres,
    "min_probability": st.none() | st.floats(-0.5, 1.5),
    "max_distance": st.none() | st.floats(),
    "distinct": st.sampled_from([None, "group", "id"]),
    "prior": st.none() | st.floats(-0.5, 1.5),
    "match_threshold": st.floats(-0.5, 1.5),
    "n_probe": st.none() | st.integers(-1, 3) | st.sampled_from(["all", "some", "2", 10**20]),
    "payloads": st.booleans(),
}


# Bodies


def some(required: dict[str, Values], optional: dict[str, Values] | None = None) -> Requests:
    """Dictionaries with all of the first, and some of the others."""
    return st.fixed_dictionaries(required, optional=optional or {})


def merged(*parts: Requests) -> Requests:
    """Dictionaries that have what all of these have."""
    return st.tuples(*parts).map(lambda found: {key: part[key] for part in found for key in part})


def fine_options() -> Requests:
    """Any target, or a least probability: from one side to the other, where there is one."""
    return st.one_of(
        some({}, {**options, "target": targets}), some({"min_probability": st.floats(0.0, 1.0)}, options)
    )


@cache
def queries() -> Requests:
    return st.one_of(
        some({"text": words}),
        some({"like": pairs}),
        some({"image_features": vectors(0)}),
        some({"text_features": vectors(1)}),
    )


@cache
def odd_queries() -> Requests:
    return st.one_of(
        queries(),
        some({"text": odd_words}),
        some({"like": odd_ids}),
        some({"text_features": odd_vectors | vectors(0)}),
        some({"image_features": odd_vectors | vectors(1)}),
        st.dictionaries(st.sampled_from(["text", "like", "text_features"]), words | odd_ids, max_size=3),
    )


def searches() -> Requests:
    return st.one_of(
        merged(queries(), some({}, {**options, "target": targets})),
        merged(some({"text": words}, {"mode": modes}), fine_options()),
    )


def odd_searches() -> Requests:
    return merged(odd_queries(), some({}, odd_options))


def additions() -> Requests:
    more = {"payload": payloads, "group": ids}
    return st.one_of(
        some({"id": new_ids, "text": words}, {**more, "image_features": vectors(0)}),
        some({"id": new_ids, "image_features": vectors(0)}, {**more, "text_features": vectors(1)}),
    )


odd_additions = some(
    {"id": new_ids | odd_ids},
    {
        "text": words | odd_words,
        "image_features": odd_vectors,
        "payload": junk | st.dictionaries(st.text(max_size=8), junk, max_size=3),
        "group": odd_ids,
        "extra": junk,
    },
)


def documents(each: Requests, upsert: Values, **sizes: int) -> Requests:
    own = st.lists(each, unique_by=lambda found: found["id"], **sizes)
    return some({"documents": own, "upsert": upsert})


# How they are sent


raw: Requests = st.binary(max_size=40).map(lambda body: {"content": body})


def in_json(bodies: Values) -> Requests:
    return bodies.map(lambda body: {"content": json.dumps(body).encode()})


def odd_json(bodies: Values) -> Requests:
    """Bodies as they are, anything else, and broken bytes."""
    good = in_json(bodies)
    return st.one_of(good, good, good, in_json(junk), raw)


def in_form(fields: Requests, pictures: Values | None = None) -> Requests:
    """Forms with one of three pictures, or others."""
    kinds = ("JPEG", "PNG", "BMP")
    good = st.sampled_from([jpeg(scenes()[number].pixels, kind) for number, kind in enumerate(kinds)])
    both = st.tuples(good if pictures is None else pictures, fields)
    return both.map(lambda pair: {"files": {"image": pair[0]}, "data": pair[1]})


def odd_form(**fields: Values) -> Requests:
    """Forms with a picture or something else, and what is none."""
    good = jpeg(scenes()[0].pixels)
    pictures = st.sampled_from([good, good[:200], b""]) | st.binary(max_size=30)
    others = some({}, {**fields, "other": st.text(max_size=5)})
    return st.one_of(in_form(others, pictures), in_form(some({}, fields), pictures), raw)


def in_url(query: Requests) -> Requests:
    return query.map(
        lambda given: {"query": {key: value for key, value in given.items() if value is not None}}
    )


def odd_url(**fields: Values) -> Requests:
    """Query strings with some of these fields, and others."""
    return in_url(some({}, {**fields, "other": st.text(max_size=5)}))


def _nothing() -> Kinds:
    return Kinds(st.just({}), odd_url())


def _of_id() -> Kinds:
    return Kinds(in_url(some({"id": ids})), odd_url(id=ids | odd_ids))


def _static() -> Kinds:
    return Kinds(
        some({"name": st.sampled_from(["index.html", "style.css", "app.js"])}),
        some({"name": st.text(max_size=12)}),
    )


def _text_search() -> Kinds:
    return Kinds(
        in_url(merged(some({"text": words}, {"mode": modes}), fine_options())),
        odd_url(text=words | odd_words, **odd_options),
    )


def _picture_search() -> Kinds:
    return Kinds(
        merged(in_form(some({})), in_url(fine_options())), merged(odd_form(), odd_url(**odd_options))
    )


def _explanation() -> Kinds:
    return Kinds(
        in_json(merged(queries(), some({"id": pairs}))),
        odd_json(merged(odd_queries(), some({"id": ids | odd_ids}, {"target": odd_options["target"]}))),
    )


def _picture_explanation() -> Kinds:
    return Kinds(
        merged(in_form(some({})), in_url(some({"id": pairs}))),
        merged(odd_form(), odd_url(id=ids | odd_ids, target=odd_options["target"])),
    )


def _batch() -> Kinds:
    return Kinds(
        in_json(some({"queries": st.lists(searches(), min_size=1, max_size=3)})),
        odd_json(some({"queries": st.lists(odd_searches(), max_size=3)})),
    )


def _browsing() -> Kinds:
    fine = {"where": wheres, "after": st.none() | st.integers(-1, 100), "limit": st.integers(1, 500)}
    odd = {"where": odd_wheres, "after": st.integers(-3, 2**64), "limit": st.integers(-1, 600)}
    return Kinds(in_url(some({}, fine)), odd_url(**odd))


def _addition() -> Kinds:
    return Kinds(
        in_json(documents(additions(), st.just(True), min_size=1, max_size=2)),
        odd_json(documents(odd_additions | additions(), st.booleans() | st.none(), max_size=2)),
    )


def _picture_addition() -> Kinds:
    texts = {"text": words, "payload": payloads.map(json.dumps), "group": st.text("gh", max_size=3)}
    odd = {
        "id": st.text(max_size=9),
        "payload": junk.map(json.dumps),
        "upsert": st.sampled_from(["1", "false"]),
    }
    return Kinds(
        in_form(some({"id": st.text("xyz", min_size=1), "upsert": st.just("true")}, texts)), odd_form(**odd)
    )


def _deletion() -> Kinds:
    fine = some({"ids": st.lists(new_ids, min_size=1, max_size=3, unique=True), "missing_ok": st.just(True)})
    return Kinds(in_json(fine), odd_json(some({"ids": st.lists(new_ids, max_size=3)})))


def _facets() -> Kinds:
    fields = st.sampled_from([None, "year", "shape,colour", "year,year"])
    return Kinds(
        in_url(some({}, {"where": wheres, "fields": fields})),
        odd_url(where=odd_wheres, fields=st.sampled_from(["a,b", ","]) | odd_words),
    )


def _audit() -> Kinds:
    return Kinds(in_url(some({"limit": st.integers(1, 500)})), odd_url(limit=st.integers(-1, 600)))


REQUESTS: dict[tuple[str, str], Callable[[], Kinds]] = {
    ("GET", "/"): _nothing,
    ("GET", "/static/{name}"): _static,
    ("GET", "/healthz"): _nothing,
    ("GET", "/readyz"): _nothing,
    ("GET", "/metrics"): _nothing,
    ("GET", "/openapi.json"): _nothing,
    ("GET", "/v1/info"): _nothing,
    ("GET", "/v1/search"): _text_search,
    ("POST", "/v1/search"): lambda: Kinds(in_json(searches()), odd_json(odd_searches())),
    ("POST", "/v1/search/image"): _picture_search,
    ("POST", "/v1/search/batch"): _batch,
    ("POST", "/v1/explain"): _explanation,
    ("POST", "/v1/explain/image"): _picture_explanation,
    ("GET", "/v1/document"): _of_id,
    ("GET", "/v1/documents"): _browsing,
    ("POST", "/v1/documents"): _addition,
    ("POST", "/v1/documents/image"): _picture_addition,
    ("POST", "/v1/documents/delete"): _deletion,
    ("POST", "/v1/compact"): _nothing,
    ("GET", "/v1/thumbnail"): lambda: _of_id()._replace(
        fine=in_url(some({"id": pairs | st.just(UNICODE_ID)}))
    ),
    ("GET", "/v1/facets"): _facets,
    ("GET", "/v1/report"): _nothing,
    ("GET", "/v1/audit"): _audit,
    ("GET", "/v1/stats"): _nothing,
}
