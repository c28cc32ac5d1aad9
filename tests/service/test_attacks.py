"""What attackers of the service have tried: bodies that cost much, heads that lie, files pulled away."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import os
import resource
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from crossbyte.service import connections
from crossbyte.service.body_parser import _STRINGS, parse_json_body
from crossbyte.service.error_codes import ERROR_CODES, RequestRefused
from crossbyte.service.settings import LIMITS
from support.service_samples import AUTHORISED, TOKEN, Client, client, features, jpeg, sample, scenes, serving


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Client]:
    with client(sample(tmp_path), token=TOKEN) as found:
        yield found


def refused(response: httpx.Response, code: str) -> dict[str, Any]:
    error: dict[str, Any] = response.json()["error"]
    assert (error["code"], ERROR_CODES[code].status) == (code, response.status_code), response.text
    return error


def add(server: Client, *documents: dict[str, Any]) -> httpx.Response:
    return server.post("/v1/documents", json={"documents": documents}, headers=AUTHORISED)


# Bodies that cost much


def test_a_string_that_does_not_end_is_looked_at_once() -> None:
    """Else each quote in it would begin a search to the end: hours for 1 MB, and nobody else served."""
    assert _STRINGS.findall(b'["' + b'\\"' * 20) == [b'"' + b'\\"' * 20]
    with pytest.raises(RequestRefused):
        parse_json_body(b"[]" * 21 + b'"' + b'\\"' * 500_000)


def test_strings_hide_brackets_whether_they_end_or_not() -> None:
    assert parse_json_body(b'[["' + b"[" * 50 + b'", "\\"' + b"{" * 50 + b'"]]')
    with pytest.raises(RequestRefused) as error:
        parse_json_body(b'"\\\\"' + b"[" * 21)
    assert error.value.problem.code == "json_too_deep"


def test_values_are_counted_before_they_are_made() -> None:
    fine = b"[" + b"1," * (LIMITS.json_values - 2) + b"1]"
    assert len(parse_json_body(fine)) == LIMITS.json_values - 1
    for more in (
        fine[:-1] + b",1,1]",
        b"[" + b"[]," * LIMITS.json_values + b"1]",
        b'""' * LIMITS.json_values,
        b"[" + b"[]," * LIMITS.json_containers + b"1]",
        b"[" + b"{}," * LIMITS.json_containers + b"1]",
    ):
        with pytest.raises(RequestRefused) as error:
            parse_json_body(more)
        assert error.value.problem.code == "json_too_large"


def test_a_payload_is_weighed_before_it_is_looked_into(
    writer: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "crossbyte.service.routes.documents.plain_json", lambda *_: pytest.fail("looked into")
    )
    payload = {"k" * 100_000: [1] * 1000}
    refused(add(writer, {"id": "x", "text": "a", "payload": payload}), "payload_too_large")


# Heads that lie


def exchange(url: str, data: bytes) -> bytes:
    """Send bytes, and read until the server closes or the answer is whole."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as own:
        own.sendall(data)
        own.shutdown(socket.SHUT_WR)
        return b"".join(iter(lambda: own.recv(65536), b""))


def test_a_body_has_one_length(tmp_path: Path) -> None:
    with serving(sample(tmp_path)) as (url, _):
        head = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n"
        answer = exchange(url, head + b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400") and b"ambiguous_length" in answer


def test_head_is_get_without_the_body(tmp_path: Path) -> None:
    with serving(sample(tmp_path), token=TOKEN, token_for_reading=True) as (url, _):
        for path, status in (("/healthz", 200), ("/", 200), ("/v1/info", 401), ("/v1/explain", 401)):
            response = httpx.head(url + path)
            assert (response.status_code, response.content) == (status, b"")
        assert httpx.head(f"{url}/v1/info", headers=AUTHORISED).status_code == 200
        assert httpx.head(f"{url}/v1/explain", headers=AUTHORISED).status_code == 405


# Bodies that nobody asked for, or in crumbs


CRUMBS = b"1\r\n \r\n" * 20_000
CHUNKED = b"Host: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"


def exchange_until_closed(url: str, head: bytes, again: bytes) -> tuple[bytes, int]:
    """Send a head, and the same bytes again until the server hangs up; the answer, and how many were sent."""
    parts, sent = urlsplit(url), 0
    with socket.create_connection((parts.hostname, parts.port), timeout=30) as own:
        own.sendall(head)
        try:
            while sent < 50_000_000:
                sent += own.send(again)
        except OSError:
            pass
        try:
            return b"".join(iter(lambda: own.recv(65536), b"")), sent
        except OSError:
            return b"", sent


@pytest.mark.parametrize("method", [b"GET", b"HEAD", b"DELETE"])
@pytest.mark.parametrize("framing", [b"Content-Length: 3", b"Transfer-Encoding: chunked"])
def test_only_post_takes_a_body(tmp_path: Path, method: bytes, framing: bytes) -> None:
    with serving(sample(tmp_path)) as (url, _):
        answer = exchange(
            url, method + b" /healthz HTTP/1.1\r\nHost: localhost\r\n" + framing + b"\r\n\r\nabc"
        )
        assert answer.startswith(b"HTTP/1.1 400")
        assert method == b"HEAD" or b"unexpected_body" in answer
        assert httpx.request("GET", f"{url}/healthz", headers={"Content-Length": "0"}).status_code == 200


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /healthz HTTP/1.1\r\n", b"400"),
        (b"POST /v1/search HTTP/1.1\r\n", b"413"),
        (b"POST /v1/documents HTTP/1.1\r\n", b"401"),
        (b"POST /nothing HTTP/1.1\r\n", b"404"),
    ],
)
def test_crumbs_are_not_parsed_for_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, head: bytes, status: bytes
) -> None:
    """One client with chunks of one byte stopped the server for everybody."""
    parsed = 0
    take = connections.GuardedProtocol.handle_events

    def count(protocol: connections.GuardedProtocol) -> None:
        nonlocal parsed
        parsed += 1
        take(protocol)

    monkeypatch.setattr(connections.GuardedProtocol, "handle_events", count)
    monkeypatch.setattr(connections, "REST_SECONDS", 0.2)
    with serving(sample(tmp_path), token=TOKEN) as (url, server):
        exchange_until_closed(url, head + CHUNKED, CRUMBS)
        assert parsed < 50  # slices of 16 KiB at most
        with connect(url) as own:  # who stops sending is told why
            own.sendall(head + CHUNKED + CRUMBS[: 6 * 1100])
            assert own.recv(4096).split()[1] == status
            assert own.recv(65536) is not None
        assert httpx.get(f"{url}/healthz").status_code == 200


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


def test_a_body_may_have_many_chunks_if_they_are_large(tmp_path: Path) -> None:
    def chunks(count: int, size: int) -> Iterator[bytes]:
        yield b'{"text": "red"}'
        for _ in range(count):
            yield b" " * size

    with serving(sample(tmp_path)) as (url, _):
        answers = [
            httpx.post(f"{url}/v1/search", content=chunks(*shape)) for shape in ((1000, 1), (3000, 1100))
        ]
        assert [answer.status_code for answer in answers] == [200, 200]
        refused(httpx.post(f"{url}/v1/search", content=chunks(1100, 1)), "too_many_chunks")


def test_a_head_has_few_lines(tmp_path: Path) -> None:
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    with serving(sample(tmp_path)) as (url, _):
        fine, more = (head + b"a: b\r\n" * count + b"\r\n" for count in (200, 300))
        assert exchange(url, fine).startswith(b"HTTP/1.1 200")
        assert exchange(url, more).startswith(b"HTTP/1.1 400")
        assert exchange(url, fine * 100).count(b"HTTP/1.1 200") == 100  # each has its own


def test_an_answer_before_the_end_of_a_body_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REST_SECONDS", 0.05)
    with serving(sample(tmp_path), token=TOKEN) as (url, server), connect(url) as own:
        own.sendall(b"POST /v1/documents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{")
        assert b" 401 " in b"".join(iter(lambda: own.recv(65536), b""))
        wait_until(lambda: not server.server_state.connections)


def test_a_client_that_is_gone_already_is_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The connection is reset while its body is refused."""

    def fail(transport: Any) -> None:
        raise OSError(errno.ENOTCONN, "not connected")

    monkeypatch.setattr("asyncio.selector_events._SelectorSocketTransport.write_eof", fail)
    monkeypatch.setattr(connections, "REST_SECONDS", 0.05)
    with serving(sample(tmp_path), token=TOKEN) as (url, server), connect(url) as own:
        own.sendall(b"POST /v1/documents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n{")
        assert b" 401 " in own.recv(65536)
        wait_until(lambda: not server.server_state.connections)
    assert caplog.text == ""


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_what_is_no_http_fills_no_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(sample(tmp_path)) as (url, _):
        for bad in (
            b"\x00\r\n\r\n",
            b"GET /healthz HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        ):
            exchange(url, bad)
        late = b"POST /v1/documents HTTP/1.1\r\n" + CHUNKED + b"zz\r\n"
        exchange(url, late)
    assert caplog.text == ""


# More connections than there may be


def ask_health(url: str) -> int:
    return httpx.get(f"{url}/healthz", timeout=5).status_code


BODY_TO_COME = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{"


@pytest.mark.parametrize("sent", [b"", b"GET /hea", BODY_TO_COME])
def test_one_connection_too_many_closes_the_one_that_waited_longest(tmp_path: Path, sent: bytes) -> None:
    with serving(sample(tmp_path), connections=20) as (url, server), ExitStack() as stack:
        waiting = [stack.enter_context(connect(url)) for _ in range(20)]
        for own in waiting:
            own.sendall(sent)
        wait_until(lambda: len(server.server_state.connections) == 20)
        for _ in range(3):
            assert ask_health(url) == 200
        assert waiting[0].recv(10) == b""
        crowd = [stack.enter_context(connect(url)) for _ in range(100)]
        assert ask_health(url) == 200
        wait_until(lambda: len(server.server_state.connections) <= 20)
        assert len(crowd) == 100


def test_requests_that_are_worked_on_are_let_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, release, answers = threading.Semaphore(0), threading.Event(), []
    with serving(sample(tmp_path), connections=3) as (url, server):
        gallery = server.config.app.state.service.gallery  # type: ignore[union-attr]
        encode = gallery.encode_texts

        def slow(texts: Any) -> Any:
            entered.release()
            assert release.wait(30)
            return encode(texts)

        monkeypatch.setattr(gallery, "encode_texts", slow)
        threads = [
            threading.Thread(
                target=lambda: answers.append(httpx.get(f"{url}/v1/search?text=red", timeout=60).status_code)
            )
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for _ in threads:
            assert entered.acquire(timeout=30)
        with pytest.raises(httpx.TransportError):
            ask_health(url)
        release.set()
        for thread in threads:
            thread.join(60)
        assert answers == [200] * 3 and ask_health(url) == 200


def test_descriptors_that_ran_out_are_told_once(caplog: pytest.LogCaptureFixture) -> None:
    class Waiting:
        waits_for = (0, 1.0)
        transport = SimpleNamespace(is_closing=lambda: False, abort=lambda: closed.append(1))

    async def run() -> None:
        loop, handle = asyncio.get_running_loop(), connections.LoopFaults({Waiting()})
        for _ in range(1000):
            handle(loop, {"message": "accept", "exception": OSError(errno.EMFILE, "x"), "socket": "y" * 1000})
        handle(loop, {"message": "another fault"})

    closed: list[int] = []
    asyncio.run(run())
    assert len(closed) == 1000 and len(caplog.messages) == 2 and len(caplog.text) < 1000
    assert "ulimit -n" in caplog.messages[0] and caplog.messages[1] == "another fault"


def test_the_limit_of_descriptors_bounds_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for soft, expected in ((1024, 512), (128, 64), (20, 1), (resource.RLIM_INFINITY, 512)):
        monkeypatch.setattr(resource, "getrlimit", lambda _, soft=soft: (soft, soft))
        assert connections.find_connection_limit(512) == expected


# Answers that nobody takes


def test_who_takes_no_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "TAKE_SECONDS", 0.05)
    path = sample(tmp_path)
    with serving(path, token=TOKEN) as (url, server):
        documents = [{"id": f"big-{i}", "text": "a", "payload": {"a": "x" * 60_000}} for i in range(200)]
        assert httpx.post(f"{url}/v1/documents", json={"documents": documents}, headers=AUTHORISED).is_success
        parts = urlsplit(url)
        with socket.socket() as own:
            own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            own.connect((parts.hostname, parts.port))
            own.sendall(b"GET /v1/documents?limit=500 HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert own.recv(12) == b"HTTP/1.1 200"
            deadline = time.monotonic() + 30
            while server.server_state.connections:
                assert time.monotonic() < deadline
                time.sleep(0.01)


# What comes in must not break what goes out


def test_numbers_beyond_float64_do_not_break_facets(writer: Client) -> None:
    for id, number in (("big", 10**400), ("low", -(10**400)), ("fine", 3)):
        assert add(writer, {"id": id, "text": "a", "payload": {"weight": number}}).status_code == 200
    (facet,) = writer.get("/v1/facets?fields=weight").json()["facets"]
    assert facet["values"] == [{"value": 3, "count": 1}] and facet["others"] == 2
    assert (facet["low"], facet["high"]) == (None, None)
    assert writer.get("/v1/document?id=big").json()["payload"]["weight"] == 10**400


@pytest.mark.parametrize("number", [1e308, 1e151])
def test_a_refused_call_has_added_nothing_of_any_mix(writer: Client, number: float) -> None:
    before = writer.get("/v1/info").json()["generation"]
    row = [number] * features()[0].shape[1]
    refused(add(writer, {"id": "fine", "text": "a"}, {"id": "bad", "image_features": row}), "not_finite")
    assert writer.get("/v1/info").json()["generation"] == before


def test_large_features_are_no_fault(writer: Client) -> None:
    row = [1e149] * features()[0].shape[1]
    for response in (
        add(writer, {"id": "large", "image_features": row}),
        writer.post("/v1/search", json={"image_features": row}),
    ):
        assert response.status_code in (200, 422), response.text


def test_no_message_names_the_path_of_the_index(writer: Client) -> None:
    answers = [
        writer.post("/v1/documents/delete", json={"ids": ["gone"]}, headers=AUTHORISED),
        add(writer, {"id": "scene-1", "text": "a"}),
        writer.post("/v1/search", json={"like": "gone"}),
        writer.post("/v1/explain", json={"like": "scene-1", "id": "gone"}),
    ]
    for response in answers:
        assert response.status_code in (404, 409) and str(
            Path(writer.service.gallery.index.path).parent
        ) not in (response.text)
    assert answers[0].json()["error"]["message"] == "no document has the id 'gone'"
    assert answers[1].json()["error"]["hint"] == 'send "upsert": true to replace it'


@pytest.mark.parametrize("id", [None, True, 1.5, 2**63, "x" * 1025, "é" * 513, [], {}])
def test_what_an_id_is_stands_in_one_sentence(writer: Client, id: Any) -> None:
    error = refused(add(writer, {"id": id, "text": "a"}), "invalid_request")
    assert error["message"].startswith(
        "documents.0.id: expected a string of at most 1024 bytes, or an integer"
    )


def test_fields_that_a_form_does_not_have_are_named(writer: Client) -> None:
    files = {"image": jpeg(scenes()[0].pixels)}
    response = writer.post("/v1/search/image", files=files, data={"colour": "red"})
    assert "'colour'" in refused(response, "bad_multipart")["message"]


def test_a_fault_in_a_batch_is_logged(
    writer: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(texts: Any) -> Any:
        raise ZeroDivisionError("at /secret/path")

    monkeypatch.setattr(writer.service.gallery, "encode_texts", fail)
    with caplog.at_level(logging.ERROR, "crossbyte.service"):
        response = writer.post("/v1/search/batch", json={"queries": [{"text": "a"}, {"like": "scene-1"}]})
    first, second = (json.loads(line) for line in response.text.splitlines())
    assert first["error"]["code"] == "internal" and second["hits"]
    assert "secret" not in response.text and first["error"]["request_id"] in caplog.text


# Files pulled away


def test_a_replaced_index_is_told_and_the_open_one_served(tmp_path: Path) -> None:
    path = sample(tmp_path)
    with client(path, follow_seconds=0.0) as server:
        assert server.get("/readyz").status_code == 200
        other = shutil.copy(path, tmp_path / "other.cb")
        os.replace(other, path)
        refused(server.get("/readyz"), "index_replaced")
        for change in (lambda: None, path.unlink, lambda: path.write_bytes(b"no index" * 1000)):
            change()
            refused(server.get("/readyz"), "index_replaced")
            assert server.get("/v1/search?text=red").json()["hits"]
            assert server.get("/v1/thumbnail?id=scene-1").status_code == 200


def test_pictures_that_are_none_do_not_hold_up_who_types(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    bad = [b"", b"<svg/>", b"GIF89a" + b"\xff" * 500, jpeg(noise)[:200], b"%PDF-1.4", b"text"]
    with serving(sample(tmp_path)) as (url, _):
        codes: list[str] = []

        def upload(data: bytes) -> None:
            response = httpx.post(f"{url}/v1/search/image", files={"image": data}, timeout=60)
            codes.append(response.json()["error"]["code"])

        threads = [threading.Thread(target=upload, args=(bad[number % 6],)) for number in range(24)]
        for thread in threads:
            thread.start()
        assert all(httpx.get(f"{url}/v1/search?text=red", timeout=60).is_success for _ in range(10))
        for thread in threads:
            thread.join()
        assert codes == ["bad_picture"] * 24
