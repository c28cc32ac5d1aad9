"""What attackers of the service have tried: bodies that cost much, heads that lie, files pulled away."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from crossbyte.service.body_parser import _TOKENS, parse_json_body
from crossbyte.service.error_codes import ERROR_CODES, RequestRefused
from crossbyte.service.middleware import idle_timeout
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
    assert [token[0] for token in _TOKENS.finditer(b'["' + b'\\"' * 20)] == [b"[", b'"' + b'\\"' * 20]
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


# Answers that nobody takes


def test_who_takes_no_answer_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle_timeout, "TAKE_SECONDS", 0.05)
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
