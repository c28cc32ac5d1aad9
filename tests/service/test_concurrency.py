"""A real server under several clients: writers beside readers, slow ones, rude ones, and its end."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import pytest

from crossbyte.gallery.gallery import Gallery, NewDocument
from crossbyte.service import connections
from support.service_samples import AUTHORISED, TOKEN, sample, scenes, serving

TEXT = scenes()[8].captions[0]
K = 8


class Oracle:
    """What each committed generation answers, from a copy of the gallery that makes the same changes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self._gallery = Gallery.open(sample(folder), "rw", n_jobs=1)
        self.answers: dict[int, list[tuple[Any, float]]] = {}
        self.record()

    def record(self) -> None:
        hits = self._gallery.search(text=TEXT, target="document", k=K)
        self.answers[self._gallery.index.generation] = list(
            zip(hits.ids, hits.distances.tolist(), strict=True)
        )

    def change(self, number: int) -> None:
        """Add a document, or delete an earlier one."""
        if number % 3 == 2:
            self._gallery.delete([f"new-{number - 1}"])
        else:
            self._gallery.add([NewDocument(f"new-{number}", text=text_of(number))])
        self.record()

    def close(self) -> None:
        self._gallery.close()


def text_of(number: int) -> str:
    """Ever nearer to the query, so that each change is seen in the answer."""
    return " ".join(TEXT.split()[: 3 + number % 9])


def change_over_http(calls: httpx.Client, number: int) -> int:
    if number % 3 == 2:
        answer = calls.post("/v1/documents/delete", json={"ids": [f"new-{number - 1}"]}, headers=AUTHORISED)
    else:
        body = {"documents": [{"id": f"new-{number}", "text": text_of(number)}]}
        answer = calls.post("/v1/documents", json=body, headers=AUTHORISED)
    assert answer.status_code == 200, answer.text
    generation: int = answer.json()["generation"]
    return generation


def watch(url: str, stop: threading.Event, seen: list[tuple[int, list[tuple[Any, float]]]]) -> None:
    """Ask the same again and again, and keep the answers."""
    with httpx.Client(base_url=url, timeout=60) as calls:
        while not stop.is_set():
            answer = calls.get("/v1/search", params={"text": TEXT, "target": "document", "k": K})
            assert answer.status_code == 200, answer.text
            body = answer.json()
            seen.append((body["generation"], [(hit["id"], hit["distance"]) for hit in body["hits"]]))


def check_watched(seen: list[tuple[int, list[tuple[Any, float]]]], oracle: Oracle) -> None:
    generations = [generation for generation, _ in seen]
    assert generations == sorted(generations)
    for generation, hits in seen:
        expected = oracle.answers[generation]
        assert [id for id, _ in hits] == [id for id, _ in expected]
        assert np.allclose([d for _, d in hits], [d for _, d in expected], rtol=0, atol=1e-5)


def watched(url: str, n_watchers: int, work: Callable[[], None]) -> list[list[Any]]:
    """Work while several clients watch."""
    stop, seen = threading.Event(), [[] for _ in range(n_watchers)]  # type: ignore[var-annotated]
    threads = [threading.Thread(target=watch, args=(url, stop, own)) for own in seen]
    for thread in threads:
        thread.start()
    try:
        work()
    finally:
        stop.set()
        for thread in threads:
            thread.join(60)
    return seen


def run_mixed(tmp_path: Path, n_changes: int) -> None:
    oracle = Oracle(tmp_path / "oracle")
    for number in range(n_changes):
        oracle.change(number)
    with serving(sample(tmp_path), token=TOKEN) as (url, _), httpx.Client(base_url=url, timeout=60) as calls:
        made: list[int] = []
        seen = watched(url, 3, lambda: made.extend(change_over_http(calls, n) for n in range(n_changes)))
    oracle.close()
    assert made == sorted(oracle.answers)[1:]
    assert len({generation for own in seen for generation, _ in own}) > 1
    for own in seen:
        check_watched(own, oracle)


def test_add_and_search_at_the_same_time(tmp_path: Path) -> None:
    run_mixed(tmp_path, 15)


@pytest.mark.long
def test_add_and_search_at_the_same_time_for_long(tmp_path: Path) -> None:
    run_mixed(tmp_path, 300)


def test_a_reader_follows_a_writer_elsewhere(tmp_path: Path) -> None:
    path, oracle = sample(tmp_path), Oracle(tmp_path / "oracle")
    with serving(path, follow_seconds=0.01) as (url, _), Gallery.open(path, "rw", n_jobs=1) as writer:

        def work() -> None:
            for number in range(12):
                if number % 3 == 2:
                    writer.delete([f"new-{number - 1}"])
                else:
                    writer.add([NewDocument(f"new-{number}", text=text_of(number))])
                oracle.change(number)
            writer.index.compact()
            oracle._gallery.index.compact()
            oracle.record()
            wait_for_generation(url, writer.index.generation)

        seen = watched(url, 2, work)
    oracle.close()
    for own in seen:
        check_watched(own, oracle)


def wait_for_generation(url: str, generation: int) -> None:
    deadline = time.monotonic() + 30
    while httpx.get(f"{url}/v1/info").json()["generation"] < generation:
        assert time.monotonic() < deadline


def test_the_end_waits_for_answers_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    entered, release, answers = threading.Event(), threading.Event(), []
    with serving(sample(tmp_path)) as (url, server):
        gallery = server.config.app.state.service.gallery  # type: ignore[union-attr]
        encode = gallery.encode_texts

        def slow(texts: Any) -> Any:
            entered.set()
            assert release.wait(30)
            return encode(texts)

        monkeypatch.setattr(gallery, "encode_texts", slow)
        asking = threading.Thread(
            target=lambda: answers.append(httpx.get(f"{url}/v1/search?text=red", timeout=60))
        )
        asking.start()
        assert entered.wait(30)
        server.should_exit = True
        wait_until(lambda: refuses(url))
        release.set()
        asking.join(60)
    assert answers[0].status_code == 200 and answers[0].json()["hits"]


def refuses(url: str) -> bool:
    """Whether nobody listens any more."""
    try:
        connect(url).close()
    except ConnectionRefusedError:
        return True
    return False


def wait_until(holds: Callable[[], bool], seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def connect(url: str) -> socket.socket:
    parts = urlsplit(url)
    return socket.create_connection((parts.hostname, parts.port), timeout=30)


HEAD = b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_rude_clients_do_not_stop_a_polite_one(tmp_path: Path) -> None:
    with serving(sample(tmp_path)) as (url, _):
        rude = [connect(url) for _ in range(230)]
        for number, own in enumerate(rude):
            if number % 5 == 1:
                own.sendall(b"GET /v1/inf")  # a head that never ends
            elif number % 5 == 2:
                own.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")  # a body that never ends
            elif number % 5 == 3:
                own.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
                own.close()  # an upload given up
            elif number % 5 == 4:
                own.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n" * 20)  # never read
        with httpx.Client(base_url=url, timeout=30) as calls:
            for _ in range(10):
                assert calls.get("/v1/search?text=red").status_code == 200
                assert calls.post("/v1/search", json={"text": "red"}).status_code == 200
        for own in rude:
            own.close()
        wait_until(lambda: httpx.get(f"{url}/v1/info").status_code == 200)


def test_silence_and_slow_heads_are_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.2)
    with serving(sample(tmp_path)) as (url, _):
        silent, slow, again = connect(url), connect(url), connect(url)
        slow.sendall(b"GET /healthz HT")
        again.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert again.recv(4096).startswith(b"HTTP/1.1 200")
        again.sendall(b"GET /healthz HT")
        for own in (silent, slow, again):
            assert b"".join(iter(lambda own=own: own.recv(4096), b"")).find(b" 200 ") < 0  # type: ignore[misc]
            own.close()
        assert httpx.get(f"{url}/healthz").status_code == 200


def test_a_slow_body_is_told(tmp_path: Path) -> None:
    with serving(sample(tmp_path), receive_seconds=0.2) as (url, _), connect(url) as own:
        own.sendall(HEAD + b"Content-Length: 1000\r\n\r\n{")
        assert b"request_timeout" in b"".join(iter(partial(own.recv, 4096), b""))  # until it closes


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x00\x01\x02\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * 200_000 + b"\r\n\r\n",
        b"POST /v1/search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n",
    ],
)
def test_what_is_not_http_is_refused(tmp_path: Path, request_bytes: bytes) -> None:
    with serving(sample(tmp_path)) as (url, _):
        own = connect(url)
        try:
            own.sendall(request_bytes)
            answer = own.recv(4096)
        except OSError:
            answer = b""
        assert not answer or answer.split()[1][:1] == b"4"
        own.close()
        assert httpx.get(f"{url}/healthz").status_code == 200
