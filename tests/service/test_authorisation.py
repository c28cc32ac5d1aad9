"""Who may call what: every route, under every way to serve. A route without a row here fails."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.middleware.auth import check_request
from crossbyte.service.permissions import PERMISSIONS, Permission, permission_for
from crossbyte.service.settings import Settings
from support.service_samples import AUTHORISED, TOKEN, Client, client, sample

# What callers get without a token: on this machine; the same, by a server that has one; from elsewhere.
# With the right token, every route of a server that has one lets them in.
EXPECTED = {
    ("GET", "/"): ("in", "in", "in"),
    ("GET", "/static/{name}"): ("in", "in", "in"),
    ("GET", "/healthz"): ("in", "in", "in"),
    ("GET", "/readyz"): ("in", "in", "in"),
    ("GET", "/metrics"): ("in", "in", "unauthorized"),
    ("GET", "/openapi.json"): ("in", "in", "unauthorized"),
    ("GET", "/v1/info"): ("in", "in", "unauthorized"),
    ("GET", "/v1/search"): ("in", "in", "unauthorized"),
    ("POST", "/v1/search"): ("in", "in", "unauthorized"),
    ("POST", "/v1/search/image"): ("in", "in", "unauthorized"),
    ("POST", "/v1/search/batch"): ("in", "in", "unauthorized"),
    ("POST", "/v1/explain"): ("in", "in", "unauthorized"),
    ("POST", "/v1/explain/image"): ("in", "in", "unauthorized"),
    ("GET", "/v1/document"): ("in", "in", "unauthorized"),
    ("GET", "/v1/documents"): ("in", "in", "unauthorized"),
    ("POST", "/v1/documents"): ("read_only", "unauthorized", "unauthorized"),
    ("POST", "/v1/documents/image"): ("read_only", "unauthorized", "unauthorized"),
    ("POST", "/v1/documents/delete"): ("read_only", "unauthorized", "unauthorized"),
    ("POST", "/v1/compact"): ("read_only", "unauthorized", "unauthorized"),
    ("GET", "/v1/thumbnail"): ("in", "in", "unauthorized"),
    ("GET", "/v1/facets"): ("in", "in", "unauthorized"),
    ("GET", "/v1/report"): ("in", "in", "unauthorized"),
    ("GET", "/v1/audit"): ("in", "in", "unauthorized"),
    ("GET", "/v1/stats"): ("in", "in", "unauthorized"),
}
SETTINGS: list[dict[str, str]] = [{}, {"token": TOKEN}, {"token": TOKEN, "host": "0.0.0.0"}]
STOPPED = ("unauthorized", "read_only", "foreign_origin", "unknown_host")


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(client(sample(tmp_path_factory.mktemp("auth")), **settings))  # type: ignore[arg-type]
            for settings in SETTINGS
        ]


def outcome(server: Client, method: str, route: str, headers: Any) -> str:
    """Why a call was stopped at the door; "in" if it was not, whatever became of it then."""
    response = server(method, route.replace("{name}", "index.html"), headers=headers)
    if response.status_code in (401, 403, 421):
        code: str = response.json()["error"]["code"]
        assert code in STOPPED
        return code
    return "in"


def test_every_route_has_a_row() -> None:
    assert set(EXPECTED) == set(PERMISSIONS)


@pytest.mark.parametrize(("method", "route"), EXPECTED)
def test_without_a_token(servers: list[Client], method: str, route: str) -> None:
    assert tuple(outcome(server, method, route, {}) for server in servers) == EXPECTED[method, route]


@pytest.mark.parametrize(("method", "route"), EXPECTED)
def test_with_the_token(servers: list[Client], method: str, route: str) -> None:
    assert [outcome(server, method, route, AUTHORISED) for server in servers[1:]] == ["in", "in"]


WRONG: list[str | bytes] = [
    "",
    "Bearer",
    "Bearer ",
    f"Bearer {TOKEN}x",
    f"Bearer {TOKEN[:-1]}",
    f"Basic {TOKEN}",
    TOKEN,
    b"Bearer \xe9",
]


@pytest.mark.parametrize("given", WRONG)
def test_a_wrong_token_opens_nothing(servers: list[Client], given: str | bytes) -> None:
    headers = {"Authorization": given}
    assert outcome(servers[2], "GET", "/v1/info", headers) == "unauthorized"
    assert outcome(servers[1], "POST", "/v1/documents", headers) == "unauthorized"
    assert outcome(servers[0], "POST", "/v1/documents", headers) == "read_only"


def test_a_token_in_the_url_is_none(servers: list[Client]) -> None:
    assert outcome(servers[2], "GET", f"/v1/info?token={TOKEN}&access_token={TOKEN}", {}) == "unauthorized"


def test_what_the_table_does_not_know_is_not_open() -> None:
    assert permission_for("GET", "/v1/secret") is Permission.READ
    assert permission_for("PUT", "/v1/documents") is Permission.WRITE
    assert permission_for("HEAD", "/metrics") is Permission.READ
    for path in ("/static/a/b", "//healthz", "/healthz/", "/V1/info", "/static"):
        assert permission_for("GET", path) is Permission.READ


def test_a_server_may_ask_for_the_token_on_its_own_machine(tmp_path: Path) -> None:
    with client(sample(tmp_path), token=TOKEN, token_for_reading=True) as server:
        assert outcome(server, "GET", "/v1/info", {}) == "unauthorized"
        assert outcome(server, "GET", "/v1/info", AUTHORISED) == "in"


def test_a_server_with_a_token_may_be_read_only(tmp_path: Path) -> None:
    with client(sample(tmp_path), token=TOKEN, read_only=True) as server:
        assert outcome(server, "POST", "/v1/documents", AUTHORISED) == "read_only"
        assert server.get("/v1/info").json()["read_only"]


def call(method: str = "GET", path: str = "/v1/search", **headers: str) -> dict[str, object]:
    names = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": "http", "method": method, "path": path, "query_string": b"", "headers": names}


def stopped(scope: dict[str, object], **settings: object) -> str:
    try:
        check_request(scope, Settings(**settings))  # type: ignore[arg-type]
    except RequestRefused as error:
        return error.problem.code
    return "in"


@pytest.mark.parametrize(
    "host", ["localhost", "localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000", "192.168.1.7:80"]
)
def test_own_names_and_addresses_are_known(host: str) -> None:
    assert stopped(call(host=host)) == "in"


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "evil.example:8000",
        "",
        "127.0.0.1.evil.example",
        "[::1",
        "a@b",
        "evil.example@localhost",
        "localhost/x",
        "localhost?x",
        "localhost#x",
        "localhost:x",
        "localhost\\x",
        "localhost:80:80",
        "localhost ",
        "[::1%25eth0]",
        "127.1",
        "2130706433",
    ],
)
def test_other_names_are_not(host: str) -> None:
    assert stopped(call(host=host)) == "unknown_host"
    assert stopped(call(path="/", host=host)) == "unknown_host"
    assert stopped(call()) == "unknown_host"


def test_more_names_can_be_allowed() -> None:
    assert stopped(call(host="photos.example"), allowed_hosts=("Photos.example",)) == "in"
    assert (
        stopped(call(host="box.lan:80", authorization=f"Bearer {TOKEN}"), host="box.lan", token=TOKEN) == "in"
    )
    twice = call(host="localhost")
    twice["headers"] = [(b"host", b"localhost"), (b"host", b"evil.example")]
    assert stopped(twice) == "unknown_host"


@pytest.mark.parametrize(
    ("origin", "expected"),
    [
        ("http://localhost:8000", "in"),
        ("https://localhost:8000", "in"),
        ("http://localhost:9000", "foreign_origin"),
        ("http://evil.example", "foreign_origin"),
        ("http://localhost:8000.evil.example", "foreign_origin"),
        ("null", "foreign_origin"),
        ("file://localhost:8000", "foreign_origin"),
        ("localhost:8000", "foreign_origin"),
        ("", "foreign_origin"),
        ("http://[", "foreign_origin"),
    ],
)
def test_pages_of_other_sites_may_not_post(origin: str, expected: str) -> None:
    assert stopped(call("POST", host="localhost:8000", origin=origin)) == expected
    assert stopped(call("GET", host="localhost:8000", origin=origin)) == "in"


def test_a_header_that_decides_comes_once() -> None:
    own, foreign = (b"origin", b"http://localhost"), (b"origin", b"http://evil.example")
    right, wrong = (b"authorization", f"Bearer {TOKEN}".encode()), (b"authorization", b"Bearer x")
    for headers, code in (
        ([own, foreign], "foreign_origin"),
        ([right, wrong], "unauthorized"),
        ([right], "in"),
    ):
        for order in (headers, headers[::-1]):
            scope = call("POST", "/v1/documents", host="localhost")
            scope["headers"] = [(b"host", b"localhost"), *order]
            assert stopped(scope, token=TOKEN) == code


def test_no_answer_allows_another_site_to_read(servers: list[Client]) -> None:
    for method in ("GET", "OPTIONS"):
        headers = {"Origin": "http://localhost:8000", "Access-Control-Request-Method": "POST"}
        response = servers[0](method, "/v1/info", headers=headers)
        assert not [name for name in response.headers if name.startswith("access-control-")]
