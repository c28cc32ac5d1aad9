"""The service keeps to its own OpenAPI: whatever requests are generated, nothing undeclared comes back."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from crossbyte.service.codes import CODES
from crossbyte.service.levels import LEVELS
from crossbyte.service.reference import reference
from crossbyte.service.settings import LIMITS
from service_samples import (
    AUTHORISED,
    N_COLUMNS,
    TOKEN,
    UNICODE_ID,
    Client,
    client,
    features,
    jpeg,
    sample,
    scenes,
)

PER_ROUTE, PER_ROUTE_LONG = 15, 150
N_TEXT_FEATURES = 3 * N_COLUMNS


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(sample(tmp_path_factory.mktemp("contract")), token=TOKEN) as found:
        yield found


@pytest.fixture(scope="module")
def document(server: Client) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/openapi.json").json()
    return found


# Requests, as the schema describes them, or nearly


Requests = st.SearchStrategy[dict[str, Any]]

ids = st.one_of(
    st.sampled_from(["scene-1", "scene-2", 7, UNICODE_ID, "gone"]),
    st.integers(-(2**64), 2**64),
    st.text(max_size=20),
)
junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
words = st.one_of(st.sampled_from(["a red circle", "two stars", " "]), st.text(max_size=40))
wheres = st.one_of(
    st.none(),
    st.sampled_from(["year >= 2005", "shape = 'star'", "year >", "weight = 1", ""]),
    st.text(max_size=30),
)
vectors = st.one_of(
    st.sampled_from([0, 1]).map(lambda side: [0.25] * features()[side].shape[1]),
    st.lists(st.floats(width=32) | st.integers(-5, 5), max_size=5),
)
options = {
    "target": st.sampled_from([None, "image", "text", "document", "sound"]),
    "k": st.integers(-1, 30) | st.sampled_from([1000, 1001, 10**20]),
    "where": wheres,
    "min_probability": st.none() | st.floats(-0.5, 1.5),
    "max_distance": st.none() | st.floats(),
    "distinct": st.sampled_from([None, "group", "id"]),
    "prior": st.none() | st.floats(-0.5, 1.5),
    "match_threshold": st.floats(-0.5, 1.5),
    "payloads": st.booleans(),
}
fine_options = {
    "target": st.sampled_from([None, "image", "text", "document"]),
    "k": st.integers(1, 100),
    "where": st.sampled_from([None, "year >= 2005", "shape = 'star' OR colour != 'red'"]),
    "min_probability": st.none() | st.floats(0.0, 1.0),
    "max_distance": st.none() | st.floats(allow_nan=False, allow_infinity=False),
    "distinct": st.sampled_from([None, "group"]),
    "prior": st.none() | st.floats(0.001, 1.0),
    "match_threshold": st.floats(0.0, 1.0),
    "payloads": st.booleans(),
}
fine_words = st.sampled_from(["a red circle", "two stars", "東京", "x"])
fine_ids = st.sampled_from(["scene-1", "scene-2", 7, UNICODE_ID])
fine_queries = st.one_of(
    st.fixed_dictionaries({"text": fine_words}),
    st.fixed_dictionaries({"like": fine_ids}),
    st.fixed_dictionaries({"text_features": st.just([0.5] * N_TEXT_FEATURES)}),
)
queries = st.one_of(
    st.fixed_dictionaries({"text": words}),
    st.fixed_dictionaries({"like": ids}),
    st.fixed_dictionaries({"text_features": vectors}),
    st.fixed_dictionaries({"image_features": vectors}),
    st.dictionaries(st.sampled_from(["text", "like", "text_features"]), words | ids, max_size=3),
)


def merged(first: Any, *more: Any) -> st.SearchStrategy[dict[str, Any]]:
    """Dictionaries that have what all of these have."""
    return st.tuples(first, *more).map(lambda parts: {key: part[key] for part in parts for key in part})


searches = merged(fine_queries, st.fixed_dictionaries({}, optional=fine_options)) | merged(
    queries, st.fixed_dictionaries({}, optional=options)
)
explains = merged(fine_queries, st.fixed_dictionaries({"id": fine_ids})) | merged(
    queries, st.fixed_dictionaries({"id": ids}, optional={"target": options["target"]})
)
additions = st.fixed_dictionaries(
    {"id": st.text("abc", min_size=1, max_size=6), "text": fine_words},
    optional={"payload": st.dictionaries(st.text(max_size=8), st.text() | st.integers(-9, 9), max_size=3)},
) | st.fixed_dictionaries(
    {"id": ids | st.text("abc", max_size=6)},
    optional={
        "text": words,
        "image_features": vectors,
        "payload": junk | st.dictionaries(st.text(max_size=8), junk, max_size=3),
        "group": ids,
        "extra": junk,
    },
)


def in_json(bodies: st.SearchStrategy[Any]) -> Requests:
    """Bodies as they are, anything else, and broken bytes."""
    good = bodies.map(lambda body: {"content": json.dumps(body).encode()})
    return st.one_of(good, good, good, junk.map(lambda body: {"content": json.dumps(body).encode()}), raw)


raw: Requests = st.binary(max_size=40).map(lambda body: {"content": body})
_parts = {
    "id": st.text(max_size=10),
    "text": st.text(max_size=10),
    "payload": junk.map(json.dumps),
    "upsert": st.sampled_from(["true", "false", "1"]),
    "group": st.text(max_size=5),
    "other": st.text(max_size=5),
}


def forms(**fields: st.SearchStrategy[Any]) -> Requests:
    """Forms with a picture, with something else, and what is none."""
    good = jpeg(scenes()[0].pixels)
    pictures = st.sampled_from([good, good, good[:200], b""]) | st.binary(max_size=30)
    others = {name: values for name, values in _parts.items() if name not in fields}
    parts = st.fixed_dictionaries(fields, optional=others)
    fine = st.fixed_dictionaries(fields).map(lambda given: {"files": {"image": good}, "data": given})
    made = st.tuples(pictures, parts).map(lambda pair: {"files": {"image": pair[0]}, "data": pair[1]})
    return st.one_of(fine, made, raw)


def in_url(**fields: st.SearchStrategy[Any]) -> Requests:
    """Query strings with these fields, or others."""
    some = st.fixed_dictionaries({}, optional={**fields, "other": st.text(max_size=5)})
    return _spelled(some)


def _spelled(some: st.SearchStrategy[dict[str, Any]]) -> Requests:
    return some.map(
        lambda query: {"query": {key: value for key, value in query.items() if value is not None}}
    )


nothing: Requests = st.one_of(st.just({}), in_url())
_image_options = {name: options[name] for name in ("target", "k", "where", "prior")}
REQUESTS: dict[tuple[str, str], Callable[[], Requests]] = {
    ("GET", "/"): lambda: nothing,
    ("GET", "/static/{name}"): lambda: st.fixed_dictionaries({"name": st.text(max_size=12)}),
    ("GET", "/healthz"): lambda: nothing,
    ("GET", "/readyz"): lambda: nothing,
    ("GET", "/metrics"): lambda: nothing,
    ("GET", "/openapi.json"): lambda: nothing,
    ("GET", "/v1/info"): lambda: nothing,
    ("GET", "/v1/search"): lambda: (
        _spelled(st.fixed_dictionaries({"text": fine_words}, optional=fine_options))
        | in_url(text=words, **options)
    ),
    ("POST", "/v1/search"): lambda: in_json(searches),
    ("POST", "/v1/search/image"): lambda: merged(
        forms(), _spelled(st.fixed_dictionaries({}, optional=fine_options)) | in_url(**_image_options)
    ),
    ("POST", "/v1/search/batch"): lambda: in_json(
        st.fixed_dictionaries({"queries": st.lists(searches, max_size=3)})
    ),
    ("POST", "/v1/explain"): lambda: in_json(explains),
    ("POST", "/v1/explain/image"): lambda: merged(
        forms(), _spelled(st.fixed_dictionaries({"id": fine_ids})) | in_url(id=ids, target=options["target"])
    ),
    ("GET", "/v1/document"): lambda: _spelled(st.fixed_dictionaries({"id": fine_ids})) | in_url(id=ids),
    ("GET", "/v1/documents"): lambda: in_url(
        where=wheres, after=st.integers(-3, 2**64), limit=st.integers(-1, 600)
    ),
    ("POST", "/v1/documents"): lambda: in_json(
        st.fixed_dictionaries(
            {"documents": st.lists(additions, max_size=2)}, optional={"upsert": st.booleans() | st.none()}
        )
    ),
    ("POST", "/v1/documents/image"): lambda: forms(id=st.text("xyz", min_size=1)),
    ("POST", "/v1/documents/delete"): lambda: in_json(
        st.fixed_dictionaries(
            {"ids": st.lists(st.text("abc", max_size=6) | st.integers(), max_size=3)},
            optional={"missing_ok": st.booleans()},
        )
    ),
    ("GET", "/v1/thumbnail"): lambda: _spelled(st.fixed_dictionaries({"id": fine_ids})) | in_url(id=ids),
    ("GET", "/v1/facets"): lambda: in_url(where=wheres, fields=st.sampled_from(["year", "a,b", ","]) | words),
    ("GET", "/v1/report"): lambda: nothing,
    ("GET", "/v1/audit"): lambda: in_url(limit=st.integers(-1, 600)),
    ("GET", "/v1/stats"): lambda: nothing,
}


def send(server: Client, method: str, route: str, request: dict[str, Any]) -> httpx.Response:
    rest = dict(request)
    path = route.replace("{name}", quote(rest.pop("name", ""), safe=""))
    return server(method, path, params=rest.pop("query", None), headers=AUTHORISED, **rest)


# What must hold of every answer


def no_constant(name: str) -> float:
    raise AssertionError(f"{name} in JSON")


def check(document: dict[str, Any], method: str, route: str, response: httpx.Response) -> None:
    status = str(response.status_code)
    path = route if response.request.url.path != "/static/" else None
    declared = (
        document["paths"].get(path, {}).get(method.lower(), {}).get("responses", {"404": {}, "200": {}})
    )
    assert status in declared, f"{status} is not declared: {response.text[:300]}"
    assert b"Traceback" not in response.content and b"/src/" not in response.content
    assert response.status_code != 500, response.text
    if response.status_code >= 400:
        check_error(document, response)
    elif response.headers.get("content-type") == "application/json":
        value = json.loads(response.content, parse_constant=no_constant)
        validate(
            document, declared[status].get("content", {}).get("application/json", {}).get("schema"), value
        )
    elif response.headers.get("content-type") == "application/x-ndjson":
        for line in response.text.splitlines():
            value = json.loads(line, parse_constant=no_constant)
            name = "ErrorAnswer" if "error" in value else "SearchAnswer"
            validate(document, {"$ref": f"#/components/schemas/{name}"}, value)


def check_error(document: dict[str, Any], response: httpx.Response) -> None:
    value = json.loads(response.content, parse_constant=no_constant)
    validate(document, {"$ref": "#/components/schemas/ErrorAnswer"}, value)
    assert CODES[value["error"]["code"]].status == response.status_code


def validate(document: dict[str, Any], schema: dict[str, Any] | None, value: Any) -> None:
    if schema:
        whole = {**schema, "components": document["components"]}
        errors = [error.message for error in jsonschema_rs.Draft202012Validator(whole).iter_errors(value)]
        assert errors == []


def run(server: Client, document: dict[str, Any], method: str, route: str, count: int) -> int:
    """Send generated requests; how many."""
    sent = 0

    @settings(
        max_examples=count,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(REQUESTS[method, route]())
    def one(request: dict[str, Any]) -> None:
        nonlocal sent
        sent += 1
        check(document, method, route, send(server, method, route, request))

    one()
    return sent


def test_every_route_is_asked() -> None:
    assert set(REQUESTS) == set(LEVELS)


@pytest.mark.parametrize(("method", "route"), REQUESTS)
def test_generated_requests(server: Client, document: dict[str, Any], method: str, route: str) -> None:
    assert run(server, document, method, route, PER_ROUTE) >= 1


@pytest.mark.long
def test_thousands_of_generated_requests(server: Client, document: dict[str, Any]) -> None:
    assert sum(run(server, document, *route, PER_ROUTE_LONG) for route in REQUESTS) >= 2000


def test_every_route_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == set(LEVELS) - {("GET", "/openapi.json")}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"] and operation["x-level"] == LEVELS[method.upper(), path].value


def test_the_document_is_valid_and_whole(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        jsonschema_rs.meta.validate(document["components"]["schemas"][name])
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])


# The documents


def page(name: str) -> str:
    return (Path(__file__).resolve().parent.parent / "docs" / name).read_text(encoding="utf-8")


def test_the_reference_is_current() -> None:
    assert page("api.md") == reference(), "run: python -m crossbyte.service.reference > docs/api.md"


def test_every_limit_code_and_setting_is_written_about() -> None:
    text = page("service.md") + page("api.md")
    assert [code for code in CODES if f"`{code}`" not in text] == []
    limits = page("service.md").partition("## Limits")[2].partition("## Error codes")[0]
    named = [
        code
        for code in CODES
        if code.endswith(("_too_large", "_too_long", "_too_deep")) or "too_many" in code
    ]
    assert [code for code in named if f"`{code}`" not in limits] == []
    for value in (
        LIMITS.text_chars,
        LIMITS.filter_chars,
        LIMITS.features,
        LIMITS.k,
        LIMITS.results,
        LIMITS.json_values,
    ):
        assert f"{value:,}" in limits
