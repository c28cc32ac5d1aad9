"""The service keeps to its own OpenAPI: whatever requests are generated, nothing undeclared comes back."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import hypothesis
import jsonschema_rs
import pytest
from hypothesis import HealthCheck, given, settings

from crossbyte.service.error_codes import ERROR_CODES
from crossbyte.service.permissions import PERMISSIONS
from crossbyte.service.reference import write_reference
from crossbyte.service.settings import LIMITS
from support.paths import ROOT
from support.service_requests import REQUESTS, Requests
from support.service_samples import AUTHORISED, TOKEN, Client, client, jpeg, sample, scenes

PER_KIND = 8  # requests of each kind for every route, fewer where there are not so many; campaigns send more


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(sample(tmp_path_factory.mktemp("contract")), token=TOKEN) as found:
        yield found


@pytest.fixture(scope="module")
def document(server: Client) -> dict[str, Any]:
    found: dict[str, Any] = server.get("/openapi.json").json()
    return found


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
    assert ERROR_CODES[value["error"]["code"]].status == response.status_code


def validate(document: dict[str, Any], schema: dict[str, Any] | None, value: Any) -> None:
    if schema:
        whole = {**schema, "components": document["components"]}
        errors = [error.message for error in jsonschema_rs.Draft202012Validator(whole).iter_errors(value)]
        assert errors == []


def run(
    server: Client, document: dict[str, Any], method: str, route: str, count: int, seed: int | None = None
) -> int:
    """Send generated requests, fine and odd ones, always the same ones of a seed; how many."""
    sent = 0

    def ask(requests: Requests, must_succeed: bool) -> None:
        @hypothesis.seed(seed)
        @settings(
            max_examples=count,
            deadline=None,
            derandomize=seed is None,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(requests)
        def one(request: dict[str, Any]) -> None:
            nonlocal sent
            sent += 1
            response = send(server, method, route, request)
            check(document, method, route, response)
            assert response.status_code == 200 or not must_succeed, response.text

        one()

    kinds = REQUESTS[method, route]()
    ask(kinds.fine, must_succeed=True)
    ask(kinds.odd, must_succeed=False)
    return sent


def run_campaign(count: int, seed: int) -> int:
    """Send requests of a seed to a service of their own, to all routes; how many."""
    with tempfile.TemporaryDirectory() as folder, client(sample(Path(folder)), token=TOKEN) as server:
        document = server.get("/openapi.json").json()
        return sum(run(server, document, *route, count, seed) for route in REQUESTS)


def test_every_route_is_asked() -> None:
    assert set(REQUESTS) == set(PERMISSIONS)


@pytest.mark.parametrize(("method", "route"), REQUESTS)
def test_generated_requests(server: Client, document: dict[str, Any], method: str, route: str) -> None:
    assert run(server, document, method, route, PER_KIND) >= 2


def test_every_route_is_described(document: dict[str, Any]) -> None:
    described = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert described == set(PERMISSIONS) - {("GET", "/openapi.json")}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            assert operation["summary"] and operation["x-level"] == PERMISSIONS[method.upper(), path].value


def test_the_document_is_valid_and_whole(document: dict[str, Any]) -> None:
    text = json.dumps(document)
    for name in document["components"]["schemas"]:
        jsonschema_rs.meta.validate(document["components"]["schemas"][name])
    named = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}
    assert named <= set(document["components"]["schemas"])


# What a request may be


def is_valid(document: dict[str, Any], name: str, value: Any) -> bool:
    schema = {"$ref": f"#/components/schemas/{name}", "components": document["components"]}
    valid: bool = jsonschema_rs.Draft202012Validator(schema).is_valid(value)
    return valid


@pytest.mark.parametrize(
    ("fields", "fine"),
    [
        ({"text": "a"}, True),
        ({"text": "a", "image_features": None, "group": 1}, True),
        ({}, False),
        ({"text": None}, False),
        ({"payload": {"a": 1}}, False),
        ({"text": "a", "other": 1}, False),
    ],
)
def test_the_description_knows_what_a_document_needs(
    server: Client, document: dict[str, Any], fields: dict[str, Any], fine: bool
) -> None:
    """What the description calls valid is accepted, and the other way round."""
    body = {"documents": [{"id": "described", **fields}], "upsert": True}
    assert is_valid(document, "NewDocuments", body) is fine
    assert (server.post("/v1/documents", json=body, headers=AUTHORISED).status_code == 200) is fine


@pytest.mark.parametrize(
    ("fields", "fine"),
    [
        ({"id": "described"}, True),
        ({"id": "described", "upsert": "", "codes": "", "text": "", "group": "", "payload": ""}, True),
        ({"id": ""}, False),
        ({"id": "x" * 1025}, False),
        ({"id": "described", "upsert": "True"}, False),
        ({"id": "described", "codes": "both"}, False),
        ({"id": "described", "other": "x"}, False),
    ],
)
def test_the_description_knows_what_a_form_needs(
    server: Client, document: dict[str, Any], fields: dict[str, str], fine: bool
) -> None:
    content = document["paths"]["/v1/documents/image"]["post"]["requestBody"]["content"]
    schema = content["multipart/form-data"]["schema"]
    given = {"upsert": "true", **fields}
    assert jsonschema_rs.Draft202012Validator(schema).is_valid({"image": "x", **given}) is fine
    answer = server.post(
        "/v1/documents/image",
        data=given,
        files={"image": jpeg(scenes()[0].pixels)},
        headers=AUTHORISED,
    )
    assert (answer.status_code in (200, 409)) is fine, answer.text


def test_what_a_url_may_leave_empty_is_described(server: Client, document: dict[str, Any]) -> None:
    found = set()
    for method, path in (("get", "/v1/documents"), ("get", "/v1/facets"), ("get", "/v1/search")):
        for parameter in document["paths"][path][method]["parameters"]:
            name, schema = parameter["name"], parameter["schema"] | {"components": document["components"]}
            asked = {"text": "red"} if path.endswith("search") else {}
            answer = server.get(path, params=asked | {name: ""})
            assert jsonschema_rs.Draft202012Validator(schema).is_valid("") is (answer.status_code == 200), (
                name
            )
            found |= {name} if answer.status_code == 200 else set()
    assert {"after", "where", "fields", "target", "n_probe", "prior"} <= found


def test_every_form_of_a_request_is_closed(document: dict[str, Any]) -> None:
    """Unknown fields are refused, and the description says so, of JSON and of forms."""
    schemas, found = document["components"]["schemas"], 0
    for methods in document["paths"].values():
        for operation in methods.values():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                assert (schemas[name] if name else content["schema"])["additionalProperties"] is False
                found += 1
    assert found == 8
    assert schemas["NewDocument"]["additionalProperties"] is False


# The documents


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_reference_is_current() -> None:
    assert page("api.md") == write_reference(), "run: python -m crossbyte.service.reference > docs/api.md"


def test_every_limit_code_and_setting_is_written_about() -> None:
    text = page("service.md") + page("api.md")
    assert [code for code in ERROR_CODES if f"`{code}`" not in text] == []
    limits = page("service.md").partition("## Limits")[2].partition("## Error codes")[0]
    named = [
        code
        for code in ERROR_CODES
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
