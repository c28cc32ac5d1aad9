"""A server whose shards are held by actors: the answers of one file, less a killed shard until it is back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.killed_shards import killed
from support.service_samples import AUTHORISED, TOKEN, Client, client, sample
from support.sharded_gallery import sharded

SECONDS = 60.0
URL = "/v1/search?text=a+red+circle&k=62&target=document"


@pytest.fixture(scope="module")
def served(cluster: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    path = sharded(tmp_path_factory.mktemp("served"), 2)
    with client(path, cluster=cluster, token=TOKEN, follow_seconds=0.0) as found:
        yield found


def until(happens: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def hits(server: Client) -> tuple[bool, Any]:
    """Whether an answer was partial, and what it found."""
    answer = server.get(URL).json()
    return answer["partial"], answer["hits"]


def places(found: list[dict[str, Any]]) -> set[tuple[Any, float]]:
    """Ids and distances of what was found."""
    return {(hit["id"], hit["distance"]) for hit in found}


def test_a_killed_shard_is_said_and_comes_back(served: Client, tmp_path: Path) -> None:
    with client(sample(tmp_path)) as one:
        expected = hits(one)
    assert hits(served) == expected == (False, expected[1])
    assert served.get("/readyz").json() == {"status": "ready"}

    with killed(served.service.gallery.index, 1):
        for _ in range(3):
            partial, found = hits(served)
            assert partial and 0 < len(found) < len(expected[1])
            # what found a hit, by rank and by how rare words are, depends on the others; distances do not
            assert places(found) <= places(expected[1])
            assert served.get("/readyz").json() == {"status": "degraded"}
        assert "crossbyte_lost_shards 1.0" in served.get("/metrics").text
    until(lambda: hits(served) == expected)
    until(lambda: served.get("/readyz").json() == {"status": "ready"})
    metrics = served.get("/metrics").text
    assert "crossbyte_partial_answers_total 0.0" not in metrics and "crossbyte_lost_shards 0.0" in metrics


def test_a_silent_shard_holds_up_one_answer_only(served: Client) -> None:
    expected, pool = hits(served), served.service.gallery.index._pool
    stopped = pool.ask("process", {1: ()})[1]
    pool._liveness.timeout, seconds = 2.0, pool._liveness.timeout
    os.kill(stopped, signal.SIGSTOP)
    try:
        assert hits(served)[0]
        start = time.monotonic()
        for _ in range(3):
            partial, found = hits(served)
            assert partial and found and places(found) <= places(expected[1])
        assert served.get("/readyz").json() == {"status": "degraded"}
        assert time.monotonic() - start < 2.0
    finally:
        pool._liveness.timeout = seconds
        os.kill(stopped, signal.SIGCONT)
    until(lambda: hits(served) == expected)


def test_documents_are_written_into_actors(served: Client) -> None:
    body = {"documents": [{"id": "new", "text": "a purple hexagon"}]}
    assert served.post("/v1/documents", json=body, headers=AUTHORISED).json()["added"] == 1
    assert served.get("/v1/document?id=new").json()["id"] == "new"
    gone = {"ids": ["new"], "missing_ok": True}

    def is_deleted() -> bool:
        answer = served.post("/v1/documents/delete", json=gone, headers=AUTHORISED)
        assert answer.status_code == 200 or answer.json()["error"]["code"] == "shard_lost"
        return answer.status_code == 200

    with killed(served.service.gallery.index, 0):
        assert not is_deleted()
    until(is_deleted)
    assert served.get("/v1/document?id=new").status_code == 404
    assert served.get("/v1/documents?limit=500").json()["next"] is None
