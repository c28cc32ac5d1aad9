"""What clients are told of their writes: the truth, in time or later, and once for each key."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from crossbyte.service.error_codes import RequestRefused
from crossbyte.service.idempotency import RememberedWrites
from crossbyte.service.settings import LIMITS
from crossbyte.service.thread_pools import ThreadPool
from support.service_samples import AUTHORISED, TOKEN, Client, client, jpeg, sample, scenes


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Client]:
    with client(sample(tmp_path), token=TOKEN) as found:
        yield found


def code_of(response: httpx.Response) -> str:
    return "fine" if response.status_code == 200 else str(response.json()["error"]["code"])


def body(id: str, **options: Any) -> dict[str, Any]:
    return {"documents": [{"id": id, "text": "a red kite"}], **options}


def keyed(key: str) -> dict[str, str]:
    return AUTHORISED | {"Idempotency-Key": key}


def has(server: Client, id: str) -> bool:
    return server.get(f"/v1/document?id={id}").status_code == 200


# In time or later


def test_a_write_that_has_begun_is_never_told_as_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was answered 504 and committed afterwards; who tried again got 409."""
    with client(sample(tmp_path), token=TOKEN, request_seconds=0.2) as server:
        gallery, entered, release = server.service.gallery, threading.Event(), threading.Event()
        add = gallery.add

        def slow(*arguments: Any, **options: Any) -> int:
            entered.set()
            assert release.wait(30)
            return add(*arguments, **options)

        monkeypatch.setattr(gallery, "add", slow)

        async def run() -> list[httpx.Response]:
            calls = [
                asyncio.create_task(server._call("POST", "/v1/documents", json=body(id), headers=AUTHORISED))
                for id in ("first", "second")
            ]
            await asyncio.to_thread(entered.wait, 30)
            second = await calls[1]
            release.set()
            return [await calls[0], second]

        first, second = asyncio.run(run())
        assert (code_of(first), code_of(second)) == ("fine", "timed_out")
        assert has(server, "first") and not has(server, "second")


def test_work_that_has_not_begun_never_will() -> None:
    pool, release, done = ThreadPool("test", 1, 9), threading.Event(), []

    async def run() -> list[Any]:
        running = asyncio.create_task(pool.run_to_end(release.wait, 30))
        waiting = asyncio.create_task(pool.run_to_end(done.append, 1))
        await asyncio.sleep(0.05)
        for task in (running, waiting):
            task.cancel()
        await asyncio.sleep(0.05)
        assert not running.done() and waiting.cancelled()
        release.set()
        return [await running, await pool.run_to_end(list, done)]

    assert asyncio.run(run()) == [True, []]
    pool.close()


def test_a_server_that_stops_says_so_to_who_waits_for_a_thread() -> None:
    pool, release = ThreadPool("test", 1, 9), threading.Event()

    async def run() -> list[Any]:
        jobs = [asyncio.create_task(pool.run_to_end(release.wait, 30)) for _ in range(2)]
        jobs.append(asyncio.create_task(pool.run(release.wait, 30)))
        await asyncio.sleep(0.05)
        closing = asyncio.create_task(asyncio.to_thread(pool.close))
        await asyncio.sleep(0.05)
        release.set()
        await closing
        return await asyncio.gather(*jobs, return_exceptions=True)

    first, *others = asyncio.run(run())
    assert first is True
    for each in others:
        assert isinstance(each, RequestRefused) and each.problem.code == "shutting_down"


# Once for each key


def test_the_same_key_gives_the_first_answer(writer: Client) -> None:
    calls = [
        ("/v1/documents", {"json": body("k")}),
        ("/v1/documents/delete", {"json": {"ids": ["k"]}}),
        (
            "/v1/documents/image",
            {"files": {"image": jpeg(scenes()[0].pixels)}, "data": {"id": "k", "text": "a"}},
        ),
    ]
    for number, (route, content) in enumerate(calls):
        first, again = (writer.post(route, headers=keyed(f"key-{number}"), **content) for _ in range(2))
        assert (code_of(first), first.json()) == ("fine", again.json())
        assert "idempotent-replayed" not in first.headers and again.headers["idempotent-replayed"] == "true"
    generation = writer.get("/v1/info").json()["generation"]
    assert generation == again.json()["generation"] and has(writer, "k")


def test_a_key_of_another_request_is_refused(writer: Client) -> None:
    assert code_of(writer.post("/v1/documents", json=body("a"), headers=keyed("x"))) == "fine"
    assert code_of(writer.post("/v1/documents", json=body("b"), headers=keyed("x"))) == "key_reused"
    same = {"content": writer.post("/v1/documents", json=body("a"), headers=keyed("x")).request.content}
    assert code_of(writer.post("/v1/documents/delete", headers=keyed("x"), **same)) == "key_reused"
    assert not has(writer, "b")
    assert code_of(writer.post("/v1/documents", json=body("a"), headers=AUTHORISED)) == "duplicate_id"


def test_a_refused_write_is_not_remembered(writer: Client) -> None:
    assert code_of(writer.post("/v1/documents", json=body("scene-1"), headers=keyed("x"))) == "duplicate_id"
    assert code_of(writer.post("/v1/documents", json=body("c"), headers=keyed("x"))) == "fine"


@pytest.mark.parametrize("key", ["", "x" * 256, b"\xe9"])
def test_what_is_no_key(writer: Client, key: str | bytes) -> None:
    headers = {"Authorization": f"Bearer {TOKEN}", "Idempotency-Key": key}
    assert code_of(writer.post("/v1/documents", json=body("a"), headers=headers)) == "invalid_request"
    assert not has(writer, "a")


def test_a_key_survives_an_answer_that_was_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first is still being written when the second comes: both get the one answer."""
    with client(sample(tmp_path), token=TOKEN) as server:
        gallery, add = server.service.gallery, server.service.gallery.add

        def slow(*arguments: Any, **options: Any) -> int:
            time.sleep(0.1)
            return add(*arguments, **options)

        monkeypatch.setattr(gallery, "add", slow)

        async def run() -> list[httpx.Response]:
            call = {"json": body("late"), "headers": keyed("x")}
            return await asyncio.gather(*[server._call("POST", "/v1/documents", **call) for _ in range(5)])

        answers = asyncio.run(run())
        assert {code_of(answer) for answer in answers} == {"fine"}
        assert len({answer.text for answer in answers}) == 1


def test_only_the_last_keys_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    writes, done = RememberedWrites(), []

    async def write() -> dict[str, Any]:
        done.append(1)
        return {"n": len(done)}

    async def run() -> None:
        for number in range(LIMITS.keys + 10):
            await writes.answer_once(str(number), b"digest", write)
        assert await writes.answer_once(str(LIMITS.keys + 9), b"digest", write) == (
            {"n": LIMITS.keys + 10},
            True,
        )
        assert await writes.answer_once("3", b"other digest", write) == ({"n": LIMITS.keys + 11}, False)

    asyncio.run(run())
    assert len(writes._writes) == LIMITS.keys


def test_when_the_first_fails_the_next_is_the_first() -> None:
    writes = RememberedWrites()

    async def run() -> list[Any]:
        outcomes = iter([ValueError("full"), {"n": 2}])

        async def write() -> dict[str, Any]:
            await asyncio.sleep(0.01)
            outcome = next(outcomes)
            if isinstance(outcome, Exception):
                raise outcome
            return outcome

        calls = [writes.answer_once("key", b"digest", write) for _ in range(3)]
        return await asyncio.gather(*calls, return_exceptions=True)

    first, *others = asyncio.run(run())
    assert isinstance(first, ValueError)
    assert sorted(others, key=str) == [({"n": 2}, False), ({"n": 2}, True)]
