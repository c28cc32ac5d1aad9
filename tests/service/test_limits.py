"""Every limit: what is just allowed, and one more."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from crossbyte.service import body_parser
from crossbyte.service.body_budget import FREE_BYTES, BodyBudget, Reservation
from crossbyte.service.body_parser import parse_json_body
from crossbyte.service.error_codes import ERROR_CODES, RequestRefused
from crossbyte.service.routes import search as searching
from crossbyte.service.settings import LIMITS
from crossbyte.service.thread_pools import ThreadPool
from support.service_samples import AUTHORISED, TOKEN, Client, client, features, sample

MEGABYTE = 2**20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(sample(tmp_path_factory.mktemp("limits")), token=TOKEN) as found:
        yield found


def code_of(response: httpx.Response) -> str:
    """The error code, whose status is right; "fine" for an answer."""
    if response.status_code == 200:
        return "fine"
    code: str = response.json()["error"]["code"]
    assert ERROR_CODES[code].status == response.status_code
    return code


def search(server: Client, **body: Any) -> str:
    return code_of(server.post("/v1/search", json={"text": "red", **body}))


def test_the_limits_are_the_promised_ones() -> None:
    assert LIMITS.body_bytes == 32 * MEGABYTE and LIMITS.upload_bytes == 20 * MEGABYTE
    assert (LIMITS.json_depth, LIMITS.k, LIMITS.batch, LIMITS.results) == (20, 1000, 256, 50_000)
    assert (LIMITS.filter_terms, LIMITS.filter_chars, LIMITS.text_chars) == (100, 4096, 8192)
    assert (LIMITS.payload_bytes, LIMITS.parts, LIMITS.header_bytes) == (65_536, 16, 16_384)


def test_hits(server: Client) -> None:
    assert (search(server, k=1000), search(server, k=1001)) == ("fine", "k_too_large")
    assert code_of(server.get("/v1/search?text=a&k=1000")) == "fine"
    assert code_of(server.get("/v1/search?text=a&k=1001")) == "k_too_large"
    assert code_of(server.get(f"/v1/search?text=a&k={10**30}")) == "k_too_large"
    assert search(server, k=2**63 - 1) == "k_too_large"


def test_words(server: Client) -> None:
    assert search(server, text="x" * 8192) == "fine"
    assert search(server, text="x" * 8193) == "text_too_long"
    assert code_of(server.get("/v1/search", params={"text": "x" * 8192})) == "fine"
    assert code_of(server.get("/v1/search", params={"text": "x" * 8193})) == "text_too_long"


def test_filters(server: Client) -> None:
    spaces = "year = 2000".ljust(4096)
    assert (search(server, where=spaces), search(server, where=spaces + " ")) == ("fine", "filter_too_long")
    terms = " OR ".join(["year = 1"] * 100)
    assert search(server, where=terms) == "fine"
    assert search(server, where=f"NOT ({terms} OR year = 1)") == "filter_too_many_terms"
    for route in ("/v1/documents", "/v1/facets"):
        assert code_of(server.get(route, params={"where": terms})) == "fine"
        assert code_of(server.get(route, params={"where": f"{terms} OR year = 1"})) == "filter_too_many_terms"


def test_features(server: Client) -> None:
    width = features()[0].shape[1]
    assert code_of(server.post("/v1/search", json={"image_features": [0.5] * width})) == "fine"
    for count, code in ((LIMITS.features, "invalid_input"), (LIMITS.features + 1, "too_many_features")):
        assert code_of(server.post("/v1/search", json={"image_features": [0.5] * count})) == code


def test_batches(server: Client) -> None:
    def batch(count: int, k: int) -> str:
        queries = [{"like": "scene-1", "k": k, "payloads": False}] * count
        return code_of(server.post("/v1/search/batch", json={"queries": queries}))

    assert (batch(256, 1), batch(257, 1)) == ("fine", "batch_too_large")
    assert (batch(50, 1000), batch(51, 1000)) == ("fine", "results_too_large")


def test_pages(server: Client) -> None:
    for route in ("/v1/documents", "/v1/audit"):
        assert code_of(server.get(f"{route}?limit=500")) == "fine"
        assert code_of(server.get(f"{route}?limit=501")) == "page_too_large"


def nested(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


def test_depth(server: Client) -> None:
    assert parse_json_body(nested(20)) and parse_json_body(b'["' + b"[{" * 50 + b'"]')
    for body in (nested(21), nested(100_000), b"[" * 1_000_000, b'{"a":' * 21 + b"1" + b"}" * 21):
        with pytest.raises(RequestRefused) as error:
            parse_json_body(body)
        assert error.value.problem.code == "json_too_deep"
    assert code_of(server.post("/v1/search", content=nested(21))) == "json_too_deep"
    assert code_of(server.post("/v1/search", content=nested(20))) == "invalid_request"


def add(server: Client, documents: list[dict[str, Any]]) -> str:
    body = {"documents": documents, "upsert": True}
    return code_of(server.post("/v1/documents", json=body, headers=AUTHORISED))


def test_payloads(server: Client) -> None:
    room = LIMITS.payload_bytes - len('{"a":""}')
    assert add(server, [{"id": "p", "text": "a", "payload": {"a": "x" * room}}]) == "fine"
    assert add(server, [{"id": "p", "text": "a", "payload": {"a": "x" * (room + 1)}}]) == "payload_too_large"


def test_fields_of_all_payloads(tmp_path: Path) -> None:
    """Twenty documents of 1,000 keys each made every reader wait for seconds."""
    with client(sample(tmp_path), token=TOKEN) as server:
        before = server.get("/v1/info").json()
        payloads = [{f"f{500 * number + key}": 1 for key in range(500)} for number in range(3)]
        assert add(server, [{"id": "a", "text": "a", "payload": payloads[0]}]) == "fine"
        row = [0.5] * features()[0].shape[1]
        mixed = [
            {"id": "b", "text": "b", "payload": {"g": 1}},
            {"id": "c", "image_features": row, "payload": payloads[1]},
        ]
        assert add(server, mixed) == "too_many_fields"  # none of its two commits
        after = server.get("/v1/info").json()
        assert (after["documents"], after["generation"]) == (
            before["documents"] + 1,
            before["generation"] + 1,
        )
        assert len(after["fields"]) == len(before["fields"]) + 500
        assert code_of(server.get("/v1/facets")) == "fine"


def test_documents(server: Client) -> None:
    documents = [{"id": f"many-{number}", "text": "a"} for number in range(1001)]
    assert (add(server, documents[:1000]), add(server, documents)) == ("fine", "too_many_documents")

    def delete(ids: list[str]) -> str:
        return code_of(server.post("/v1/documents/delete", json={"ids": ids}, headers=AUTHORISED))

    ids = [str(document["id"]) for document in documents]
    assert (delete(ids[:1000]), delete(ids)) == ("fine", "too_many_documents")


def test_parts(server: Client) -> None:
    def form(count: int) -> str:
        files = [("image", b"x")] + [(f"f{number}", b"x") for number in range(count - 1)]
        return code_of(server.post("/v1/search/image", files=files))

    assert (form(16), form(17)) == ("bad_multipart", "too_many_parts")


def test_pictures(server: Client) -> None:
    def picture(size: int) -> str:
        return code_of(server.post("/v1/search/image", files={"image": bytes(size)}))

    assert (picture(20 * MEGABYTE), picture(20 * MEGABYTE + 1)) == ("bad_picture", "picture_too_large")


def test_bodies(server: Client) -> None:
    body = b'{"text": "red"}'
    full = body.ljust(32 * MEGABYTE)
    assert code_of(server.post("/v1/search", content=full)) == "fine"
    assert code_of(server.post("/v1/search", content=full + b" ")) == "body_too_large"

    async def pieces(count: int) -> Any:
        yield body
        for _ in range(count):
            yield b" " * MEGABYTE

    assert code_of(server.post("/v1/search", content=pieces(31))) == "fine"  # no length in the head
    assert code_of(server.post("/v1/search", content=pieces(32))) == "body_too_large"


def test_heads(server: Client) -> None:
    used = sum(len(name) + len(value) for name, value in server.get("/healthz").request.headers.raw)
    room = LIMITS.header_bytes - used - len("x-much")
    assert code_of(server.get("/healthz", headers={"X-Much": "a" * room})) == "fine"
    assert code_of(server.get("/healthz", headers={"X-Much": "a" * (room + 1)})) == "headers_too_large"


def test_urls(server: Client) -> None:
    room = LIMITS.url_bytes - len("/v1/document") - len("id=")
    assert code_of(server.get(f"/v1/document?id={'a' * room}")) == "invalid_request"
    assert code_of(server.get(f"/v1/document?id={'a' * (room + 1)}")) == "url_too_long"


def test_requests_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(sample(tmp_path), concurrency=2) as server:
        entered, release = threading.Semaphore(0), threading.Event()
        encode = server.service.gallery.encode_texts

        def slow(texts: Any) -> Any:
            entered.release()
            assert release.wait(30)
            return encode(texts)

        monkeypatch.setattr(server.service.gallery, "encode_texts", slow)

        async def run() -> list[httpx.Response]:
            slow_ones = [asyncio.create_task(server._call("GET", "/v1/search?text=red")) for _ in range(2)]
            for _ in range(2):
                await asyncio.to_thread(entered.acquire)
            third = await server._call("GET", "/v1/info")
            watched = await server._call("GET", "/healthz")
            release.set()
            return [third, watched, *await asyncio.gather(*slow_ones)]

        third, *others = asyncio.run(run())
        assert code_of(third) == "too_busy" and third.headers["retry-after"] == "1"
        assert [code_of(response) for response in others] == ["fine"] * 3
        assert code_of(server.get("/v1/info")) == "fine"


def test_a_lane_counts_work_whose_caller_has_gone() -> None:
    pool, release = ThreadPool("test", 1, 1), threading.Event()

    async def run() -> str:
        jobs = [asyncio.create_task(pool.run(release.wait)) for _ in range(2)]
        await asyncio.sleep(0)
        for job in jobs[:1]:
            job.cancel()
        try:
            await pool.run(int)
        except RequestRefused as error:
            return error.problem.code
        finally:
            release.set()
            await asyncio.gather(*jobs, return_exceptions=True)
        return "fine"

    assert asyncio.run(run()) == "too_busy"
    assert asyncio.run(pool.run(int)) == 0
    pool.close()


def test_an_answer_that_takes_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with client(sample(tmp_path), request_seconds=0.2) as server:
        release = threading.Event()
        monkeypatch.setattr(server.service.gallery, "encode_texts", lambda texts: release.wait(30))
        assert code_of(server.get("/v1/search?text=red")) == "timed_out"
        release.set()
        monkeypatch.undo()
        assert code_of(server.get("/v1/info")) == "fine"


def test_a_batch_that_takes_too_long_says_so_in_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with client(sample(tmp_path)) as server:
        late = iter([0.0, 0.0, 1e6, 1e6])
        clocks = SimpleNamespace(monotonic=lambda: next(late), perf_counter=time.perf_counter)
        monkeypatch.setattr(searching, "time", clocks)
        response = server.post("/v1/search/batch", json={"queries": [{"like": "scene-1"}] * 3})
        lines = [json.loads(line) for line in response.text.splitlines()]
        assert lines[0]["hits"] and [line["error"]["code"] for line in lines[1:]] == ["timed_out"] * 2


def test_a_body_that_takes_too_long(tmp_path: Path) -> None:
    async def pieces() -> Any:
        yield b"{"
        await asyncio.sleep(10)

    with client(sample(tmp_path), receive_seconds=0.05) as server:
        assert code_of(server.post("/v1/search", content=pieces())) == "request_timeout"
        assert code_of(server.post("/v1/search", json={"text": "red"})) == "fine"


def test_all_bodies_together_have_a_budget_of_bytes(tmp_path: Path) -> None:
    body, megabyte = b'{"text": "red"}', MEGABYTE
    with client(sample(tmp_path), body_budget_bytes=4 * megabyte) as server:
        began, release = asyncio.Semaphore(0), asyncio.Event()

        async def large() -> Any:
            yield body.ljust(megabyte)
            began.release()
            await release.wait()
            yield b" "

        async def run() -> list[httpx.Response]:
            slow = [
                asyncio.create_task(server._call("POST", "/v1/search", content=large())) for _ in range(3)
            ]
            for _ in slow:
                await began.acquire()
            declared = await server._call("POST", "/v1/search", content=body.ljust(2 * megabyte))
            counted = await server._call("POST", "/v1/search", content=two_megabytes())
            small = await server._call("POST", "/v1/search", content=body.ljust(60_000))
            release.set()
            return [declared, counted, small, *await asyncio.gather(*slow)]

        async def two_megabytes() -> Any:
            yield body.ljust(megabyte)
            yield bytes(megabyte)

        declared, counted, *others = asyncio.run(run())
        assert (code_of(declared), code_of(counted)) == ("too_busy", "too_busy")
        assert declared.headers["retry-after"] == "1"
        assert {code_of(response) for response in others} <= {"fine", "too_busy"} and code_of(
            others[0]
        ) == "fine"
        assert code_of(server.post("/v1/search", content=body.ljust(megabyte))) == "fine"
        assert server.service.body_budget.used == 0


def test_what_is_parsed_counts_in_the_budget(tmp_path: Path) -> None:
    with client(sample(tmp_path), token=TOKEN, body_budget_bytes=2 * MEGABYTE) as server:
        values = b'{"text": "red", "x": [' + b"1," * 40_000 + b"1]}"
        assert code_of(server.post("/v1/search", content=values)) == "too_busy"
        text = '{"text": "red"}'.ljust(500_000)
        assert code_of(server.post("/v1/search", content=text.encode())) == "fine"
        assert code_of(server.post("/v1/search", content=text.replace("red", "\u00e9").encode())) == "fine"
        form = {"image": bytes(800_000)}
        assert code_of(server.post("/v1/search/image", files=form)) == "too_busy"
        form = {"image": (None, b"x"), "id": (None, "a"), "payload": (None, "[" + "1," * 40_000 + "1]")}
        assert code_of(server.post("/v1/documents/image", files=form, headers=AUTHORISED)) == "too_busy"
        assert server.service.body_budget.used == 0


def test_a_thread_of_a_request_that_was_given_up_takes_nothing_more() -> None:
    budget = BodyBudget(MEGABYTE)
    reservation = Reservation(budget)
    reservation.grow(FREE_BYTES + 1000)
    assert budget.used == 1000
    reservation.release()
    with pytest.raises(RequestRefused):
        reservation.grow(1)
    assert budget.used == 0


def test_large_bodies_are_parsed_one_after_the_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    parse = body_parser.parse_body

    def count(*arguments: Any) -> Any:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        time.sleep(0.02)
        with lock:
            at_once -= 1
        return parse(*arguments)

    monkeypatch.setattr(body_parser, "parse_body", count)
    with client(sample(tmp_path)) as server:

        async def run() -> list[httpx.Response]:
            content = b'{"text": "red"}'.ljust(100_000)
            return await asyncio.gather(
                *[server._call("POST", "/v1/search", content=content) for _ in range(8)]
            )

        assert {code_of(response) for response in asyncio.run(run())} == {"fine"} and most == 1


def test_no_body_is_read_before_the_token(tmp_path: Path) -> None:
    read = 0

    async def pieces() -> Any:
        nonlocal read
        for _ in range(30):
            read += 1
            yield bytes(MEGABYTE)

    with client(sample(tmp_path), token=TOKEN, token_for_reading=True) as server:
        for route in ("/v1/search", "/v1/documents", "/v1/documents/image", "/nothing"):
            assert code_of(server.post(route, content=pieces())) == "unauthorized"
        assert code_of(server.post("/nothing", content=pieces(), headers=AUTHORISED)) == "not_found"
        assert read == 0
