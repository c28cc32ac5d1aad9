"""An index in shards over HTTP: the answers of the single file, and what is said while a shard is lost."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from hypothesis import HealthCheck, given, settings

from crossbyte import Index
from crossbyte.cli import app
from crossbyte.cli.exit_codes import ExitCode
from crossbyte.errors import ClusterError, IndexLocked, InvalidInput
from crossbyte.gallery.gallery import Gallery, is_sharded, open_index
from crossbyte.service.permissions import PERMISSIONS, Permission
from crossbyte.service.server import make_server
from crossbyte.service.settings import Settings
from crossbyte.sharding.index import ShardedIndex
from crossbyte.sharding.split import split_index
from support.service_requests import REQUESTS, Requests
from support.service_samples import (
    AUTHORISED,
    TOKEN,
    UNICODE_ID,
    Client,
    client,
    features,
    jpeg,
    sample,
    scenes,
)
from support.sharded_gallery import N_SHARDS, losing, sharded

PER_KIND = 8
OWN = ("/metrics", "/v1/stats")  # they tell how the index lies on the disk
READ = [
    route for route, level in PERMISSIONS.items() if level is not Permission.WRITE and route[1] not in OWN
]


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Client]]:
    """The same documents in one file, and in three shards."""
    folder = tmp_path_factory.mktemp("both")
    with client(sample(folder)) as one, client(sharded(folder)) as many:
        yield [one, many]


@pytest.fixture(scope="module")
def many(both: list[Client]) -> Client:
    return both[1]


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Client]:
    with client(sharded(tmp_path), token=TOKEN) as found:
        yield found


def shard_of(server: Client, id: Any) -> int:
    """The shard that has a document."""
    for shard in range(N_SHARDS):
        with losing(server.service.gallery.index, *(set(range(N_SHARDS)) - {shard})):
            try:
                server.service.gallery.index.get(id)
            except ClusterError:
                continue
        return shard
    raise AssertionError(f"no shard has {id!r}")


# The same answers


def plain(value: Any) -> Any:
    """An answer without what may differ from one to the next."""
    if isinstance(value, dict):
        own = {"took_ms", "generation", "request_id"}
        return {key: plain(each) for key, each in value.items() if key not in own}
    return [plain(each) for each in value] if isinstance(value, list) else value


def said(response: httpx.Response) -> Any:
    kind = response.headers.get("content-type", "")
    if kind == "application/json":
        return response.status_code, plain(response.json())
    if kind == "application/x-ndjson":
        return response.status_code, [plain(json.loads(line)) for line in response.text.splitlines()]
    return response.status_code, response.content


@pytest.mark.parametrize(("method", "route"), READ)
def test_shards_answer_as_one_file_does(both: list[Client], method: str, route: str) -> None:
    def compare(requests: Requests) -> None:
        @settings(
            max_examples=PER_KIND,
            deadline=None,
            derandomize=True,
            database=None,
            suppress_health_check=list(HealthCheck),
        )
        @given(requests)
        def one(request: dict[str, Any]) -> None:
            rest = dict(request)
            path = route.replace("{name}", quote(rest.pop("name", ""), safe=""))
            query = rest.pop("query", None)
            alone, together = (said(server(method, path, params=query, **rest)) for server in both)
            assert together == alone

        one()

    compare(REQUESTS[method, route]().fine)
    compare(REQUESTS[method, route]().odd)


def test_a_search_looks_into_as_many_cells_as_it_is_told(tmp_path: Path) -> None:
    path, images, texts = sample(tmp_path), *features()
    with Index.open(path, "rw") as index:
        index.build_cells(images=images, texts=texts, n_cells=9, recall=0.3)
        split_index(path, tmp_path / "scenes.cbs", N_SHARDS)
        found = {
            n_probe: index.search(texts=texts[:1], k=100, n_probe=n_probe)[0]
            for n_probe in (None, 1, 4, "all")
        }
    assert len(found[1]) < len(found[4]) < len(found["all"])
    row, picture = texts[[0]].toarray()[0].tolist(), {"files": {"image": jpeg(scenes()[0].pixels)}}
    with client(path) as one, client(tmp_path / "scenes.cbs") as many:
        for server in (one, many):
            for n_probe, expected in found.items():
                asked = {"text_features": row, "k": 100, "n_probe": n_probe}
                hits = server.post("/v1/search", json=asked).json()["hits"]
                assert [hit["id"] for hit in hits] == expected.ids
            spelled = server.get(
                "/v1/search",
                params={"text": scenes()[0].captions[0], "k": 100, "n_probe": 1, "mode": "vectors"},
            )
            assert [hit["id"] for hit in spelled.json()["hits"]] == found[1].ids
            by_picture = server.post("/v1/search/image?k=100&n_probe=1", **picture).json()
            assert len(by_picture["hits"]) < len(found["all"])
            wrong = server.post("/v1/search", json={"like": "scene-1", "n_probe": 1})
            assert "looks at everything" in wrong.json()["error"]["message"]


def test_stats_show_the_shards(both: list[Client]) -> None:
    alone, together = (server.get("/v1/stats").json() for server in both)
    for name in ("documents", "deleted", "items", "codings", "fields"):
        assert together[name] == alone[name]
    shards = together["shards"]
    assert len(shards) == N_SHARDS and sum(shard["documents"] for shard in shards) == alone["documents"]
    assert not any(shard["lost"] for shard in shards)


def test_nothing_is_partial_while_all_shards_answer(both: list[Client]) -> None:
    for server in both:
        assert server.get("/v1/search?text=red").json()["partial"] is False
        for url in ("/v1/info", "/v1/audit"):
            assert server.get(url).json()["partial"] is False
        assert server.get("/readyz").json() == {"status": "ready"}
        metrics = server.get("/metrics").text
        assert "crossbyte_partial_answers_total 0.0" in metrics and "crossbyte_lost_shards 0.0" in metrics


# A lost shard


def test_a_search_without_a_shard_says_so_until_it_is_back(many: Client) -> None:
    url = "/v1/search?text=red&k=62&target=document"
    whole = many.get(url).json()
    with losing(many.service.gallery.index, 1):
        part = many.get(url).json()
        batch = many.post("/v1/search/batch", json={"queries": [{"text": "red"}]})
        assert json.loads(batch.text)["partial"]
        metrics = many.get("/metrics").text
    ids = [hit["id"] for hit in whole["hits"]]
    found = [hit["id"] for hit in part["hits"]]
    assert part["partial"] and 0 < len(found) < len(ids)
    assert found == [id for id in ids if id in set(found)]
    assert part["generation"] == whole["generation"]
    assert "crossbyte_partial_answers_total 2.0" in metrics and "crossbyte_lost_shards 1.0" in metrics
    assert plain(many.get(url).json()) == plain(whole)


def test_descriptions_without_a_shard_say_so_and_lists_wait_for_it(many: Client) -> None:
    with losing(many.service.gallery.index, 1):
        for url in ("/v1/documents", "/v1/facets"):
            assert many.get(url).json()["error"]["code"] == "shard_lost"
        info = many.get("/v1/info").json()
        audit = many.get("/v1/audit").json()
        stats = many.get("/v1/stats").json()
        assert many.get("/readyz").json() == {"status": "degraded"}
    assert info["partial"] and audit["partial"]
    assert [shard["lost"] for shard in stats["shards"]] == [False, True, False]
    assert many.get("/readyz").json() == {"status": "ready"}


def test_nothing_is_called_unknown_while_a_shard_is_lost(many: Client) -> None:
    lost = shard_of(many, 7)
    explained = {"id": 7, "text": "red", "target": "text"}
    with losing(many.service.gallery.index, lost):
        for response in (
            many.get("/v1/document?id=7"),
            many.get("/v1/document?id=nobody"),
            many.get("/v1/thumbnail?id=7"),
            many.post("/v1/search", json={"like": 7}),
            many.post("/v1/explain", json=explained),
        ):
            error = response.json()["error"]
            assert (response.status_code, error["code"]) == (503, "shard_lost")
            assert int(response.headers["retry-after"]) > 1 and "scenes.cbs" not in response.text
        other = next(id for id in ("scene-0", "scene-30", UNICODE_ID) if shard_of(many, id) != lost)
        assert many.get("/v1/document", params={"id": other}).json()["id"] == other
        assert many.get("/v1/thumbnail", params={"id": other}).status_code == 200
    assert many.get("/v1/document?id=7").json()["id"] == 7
    assert many.get("/v1/document?id=nobody").status_code == 404


def test_without_any_shard_nothing_is_ready(many: Client) -> None:
    with losing(many.service.gallery.index, *range(N_SHARDS)):
        for url in ("/v1/search?text=red", "/v1/documents", "/v1/facets", "/v1/stats", "/v1/info", "/readyz"):
            response = many.get(url)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "shard_lost"), url
        assert many.get("/healthz").json() == {"status": "ok"}
        assert many.get("/metrics").status_code == 200
    assert many.get("/readyz").json() == {"status": "ready"}


# Writing and following


def test_documents_are_written_into_shards(writer: Client) -> None:
    new = {"id": "n1", "text": "a purple hexagon", "payload": {"colour": "purple"}, "group": 3}
    two = {"id": 2**40, "image_features": features()[0][0].tolist()}
    before = writer.get("/v1/info").json()["generation"]
    added = writer.post("/v1/documents", json={"documents": [new, two]}, headers=AUTHORISED).json()
    assert added["added"] == 2 and added["generation"] > before
    assert writer.get("/v1/document?id=n1").json()["payload"]["colour"] == "purple"
    again = writer.post("/v1/documents", json={"documents": [new]}, headers=AUTHORISED)
    assert again.json()["error"]["code"] == "duplicate_id" and "/" not in again.json()["error"]["message"]
    both = [new, {"id": "scene-0", "text": "changed"}, {"id": "scene-59", "text": "changed, too"}]
    change = {"documents": both, "upsert": True}
    assert writer.post("/v1/documents", json=change, headers=AUTHORISED).json()["added"] == 3
    assert writer.get("/v1/document?id=scene-59").json()["payload"] == {"captions": ["changed, too"]}
    picture = {"files": {"image": jpeg(scenes()[2].pixels)}, "data": {"id": "photo"}}
    assert writer.post("/v1/documents/image", headers=AUTHORISED, **picture).json()["added"] == 1
    assert writer.get("/v1/thumbnail?id=photo").status_code == 200
    gone = {"ids": ["n1", "scene-0", "scene-59"]}
    assert writer.post("/v1/documents/delete", json=gone, headers=AUTHORISED).json()["deleted"] == 3
    assert writer.get("/v1/info").json()["documents"] == 62


def test_nothing_is_written_while_a_shard_is_lost(writer: Client) -> None:
    before = writer.get("/v1/info").json()["generation"]
    calls = [
        ("/v1/documents", {"documents": [{"id": "n1", "text": "red"}]}),
        ("/v1/documents", {"documents": [{"id": "scene-0", "text": "red"}], "upsert": True}),
        ("/v1/documents/delete", {"ids": ["scene-0"]}),
    ]
    with losing(writer.service.gallery.index, 1):
        for url, body in calls:
            response = writer.post(url, json=body, headers=AUTHORISED)
            assert (response.status_code, response.json()["error"]["code"]) == (503, "shard_lost")
    assert writer.get("/v1/info").json()["generation"] == before
    for url, body in calls:
        assert writer.post(url, json=body, headers=AUTHORISED).status_code == 200


def test_a_reader_follows_another_writer(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    with client(path, follow_seconds=0.0) as found, Gallery.open(path, "rw") as gallery:
        before = found.get("/v1/info").json()["generation"]
        gallery.delete(["scene-0"])
        assert found.get("/v1/info").json()["generation"] == before + 1
        assert found.get("/v1/document?id=scene-0").status_code == 404
        assert isinstance(gallery.index, ShardedIndex)
        gallery.index.compact()
        assert found.get("/v1/search?text=red").json()["generation"] == gallery.index.generation


def test_an_answer_is_of_one_generation(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    with client(path, token=TOKEN) as server:
        view = server.service.gallery.index.pinned()
        server.service.gallery.delete(["scene-0"])
        assert "scene-0" in view and view.get("scene-0") is not None
        assert server.get("/v1/document?id=scene-0").status_code == 404


def test_a_replaced_shard_is_noticed(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    with client(path) as server:
        shard = path / "shard-0001.cb"
        os.replace(shard, tmp_path / "away")
        (tmp_path / "copy").write_bytes((tmp_path / "away").read_bytes())
        os.replace(tmp_path / "copy", shard)
        assert server.get("/readyz").json()["error"]["code"] == "index_replaced"


def test_one_server_writes(tmp_path: Path) -> None:
    path = sharded(tmp_path)
    with ShardedIndex.open(path, "rw"), pytest.raises(IndexLocked):
        make_server(path, Settings(port=0, token=TOKEN))


# Opening


def test_files_and_folders_are_told_apart(tmp_path: Path) -> None:
    many = sharded(tmp_path)
    one = sample(tmp_path)
    assert is_sharded(many) and is_sharded(f"{many}/") and not is_sharded(one) and not is_sharded(tmp_path)
    for path, kind in ((one, Index), (many, ShardedIndex)):
        index = open_index(path)
        assert isinstance(index, kind) and index.lost == ()
        index.close()
    with Gallery.open(f"{many}/") as gallery:
        assert gallery.files.folder == Path(f"{many}.files") and gallery.thumbnail("scene-1")


def test_a_cluster_for_one_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="folder of shards.*split_index"):
        make_server(sample(tmp_path), Settings(port=0, cluster="local"))
    with pytest.raises(FileNotFoundError):
        open_index(tmp_path / "missing.cbs", cluster="local")


# On the command line


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    """The JSON that the program prints."""
    assert app.run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_verbs_that_read_take_a_folder_of_shards(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    one, many = str(sample(tmp_path)), str(sharded(tmp_path))
    query = ("--text", scenes()[3].captions[0], "-k", "5")
    alone, together = (printed(capsys, "search", path, *query)["queries"] for path in (one, many))
    assert together == alone and together[0]["partial"] is False
    alone, together = (
        printed(capsys, "explain", path, "scene-3", "--text", "a red circle") for path in (one, many)
    )
    alone, together = ({**each, "index": None} for each in (alone, together))
    assert together == alone
    assert printed(capsys, "verify", many)["documents"] == 62
    info = printed(capsys, "info", many)
    assert info["kind"] == "index" and len(info["shards"]) == N_SHARDS
    assert app.run(["info", many]) == 0
    assert "shard-0002.cb" in capsys.readouterr().out


def test_damage_in_a_shard_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    many = sharded(tmp_path)
    (many / "shard-0001.cb").unlink()
    for command in ("verify", "info", "serve"):
        assert app.run([command, str(many)]) == ExitCode.BAD_FILE
        said = capsys.readouterr().err
        assert "shard-0001.cb" in said and len(said.splitlines()) == 2


def test_the_verb_refuses_a_cluster_for_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.run(["serve", str(sample(tmp_path)), "--cluster", "local"]) == ExitCode.BAD_INPUT
    what, to_do = capsys.readouterr().err.splitlines()
    assert "--cluster: expected a folder of shards" in what and "split_index" in to_do
