"""Every route of the service, and every error code it can answer with."""

from __future__ import annotations

import json
import logging
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from crossbyte import Index, errors
from crossbyte.gallery.companion import CompanionFiles
from crossbyte.gallery.gallery import Gallery
from crossbyte.service.error_codes import ERROR_CODES, problem_for
from crossbyte.service.middleware.headers import SECURITY_HEADERS
from crossbyte.service.server import make_server, serve
from crossbyte.service.settings import Settings
from support.service_samples import (
    AUTHORISED,
    N_SERVED,
    TOKEN,
    UNICODE_ID,
    Client,
    client,
    feature_index,
    features,
    jpeg,
    sample,
    scenes,
)


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(sample(tmp_path_factory.mktemp("read"))) as found:
        yield found


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Client]:
    with client(sample(tmp_path), token=TOKEN) as found:
        yield found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(feature_index(tmp_path_factory.mktemp("plain"))) as found:
        yield found


def upload(number: int = 0, kind: str = "PNG", **fields: str) -> dict[str, Any]:
    picture = ("x.png", jpeg(scenes()[number].pixels, kind), "image/png")
    return {"files": {"image": picture}, "data": fields}


def refused(response: httpx.Response, code: str) -> dict[str, Any]:
    """The error of an answer, which has this code and its status."""
    error: dict[str, Any] = response.json()["error"]
    assert (error["code"], response.status_code) == (code, ERROR_CODES[code].status), response.text
    assert set(error) == {"code", "message", "hint", "request_id"}
    assert error["request_id"] == response.headers["x-request-id"]
    assert "Traceback" not in response.text and "/service/" not in response.text
    return error


# Searching


def test_words_find_pictures(reader: Client) -> None:
    answer = reader.get("/v1/search", params={"text": scenes()[5].captions[0], "k": 3}).json()
    names = ["generation", "target", "verdict", "no_match", "unknown_words", "partial", "hits", "took_ms"]
    assert list(answer) == names
    assert answer["target"] == "image" and len(answer["hits"]) == 3
    for hit in answer["hits"]:
        assert set(hit) == {
            "id", "distance", "probability", "strength", "found_by", "payload", "thumbnail"
        }  # fmt: skip
        assert hit["thumbnail"] == f"/v1/thumbnail?id={hit['id']}" and hit["payload"]["captions"]
        assert 0 <= hit["probability"] <= 1


def test_an_answer_is_that_of_the_gallery(reader: Client) -> None:
    text = scenes()[5].captions[1]
    where = "year >= 2005 AND colour != 'red'"
    expected = reader.service.gallery.search(text=text, k=7, where=where, payloads=True, distinct="group")
    query = {"text": text, "k": 7, "where": where, "distinct": "group"}
    for answer in (reader.get("/v1/search", params=query), reader.post("/v1/search", json=query)):
        hits = answer.json()["hits"]
        assert [hit["id"] for hit in hits] == expected.ids
        assert np.array_equal(np.float32([hit["distance"] for hit in hits]), expected.distances)
        assert [hit["payload"] for hit in hits] == expected.payloads


@pytest.mark.parametrize("mode", [None, "both", "words", "vectors"])
@pytest.mark.parametrize(
    "text", ["a red circle", "zeppelin", '"red circle" zeppelin', '" OR NEAR(" *', "123"]
)
def test_every_way_of_asking_says_what_the_gallery_says(reader: Client, text: str, mode: str | None) -> None:
    expected = reader.service.gallery.search(text=text, k=5, mode=mode)
    query = {"text": text, "k": 5, "mode": mode, "payloads": False}
    plain = {name: value for name, value in query.items() if value is not None}
    batch = reader.post("/v1/search/batch", json={"queries": [query]})
    got, posted = reader.get("/v1/search", params=plain), reader.post("/v1/search", json=query)
    for answer in (got.json(), posted.json(), json.loads(batch.text)):
        said = [answer[name] for name in ("verdict", "no_match", "unknown_words")]
        assert said == [expected.verdict, expected.no_match, expected.unknown_words]
        hits = [(hit["id"], hit["probability"], hit["strength"], hit["found_by"]) for hit in answer["hits"]]
        assert hits == [(hit.id, hit.probability, hit.strength, hit.found_by) for hit in expected]


def test_words_that_no_caption_has_are_named(reader: Client) -> None:
    found = reader.get("/v1/search", params={"text": "a red zeppelin"}).json()
    assert "zeppelin" in found["unknown_words"] and "red" not in found["unknown_words"]
    assert reader.get("/v1/info").json()["word_fields"] == ["captions"]


@pytest.mark.parametrize("mode", ["both", "words"])
def test_only_texts_are_searched_by_words(reader: Client, mode: str) -> None:
    row = features()[1][[4]].toarray()[0].tolist()
    refused = [
        reader.post("/v1/search", json={"like": "scene-1", "mode": mode}),
        reader.post("/v1/search", json={"text_features": row, "mode": mode}),
        reader.post(f"/v1/search/image?mode={mode}", **upload(2)),
    ]
    for answer in refused:
        assert answer.status_code == 422 and answer.json()["error"]["code"] == "invalid_input"
        assert "ask with a text" in answer.text
    assert reader.post("/v1/search", json={"like": "scene-1", "mode": "vectors"}).status_code == 200


def test_features_find_as_words_do(reader: Client) -> None:
    row = features()[1][[4]].toarray()[0].tolist()
    by_features = reader.post("/v1/search", json={"text_features": row, "payloads": False}).json()
    query = {"text": scenes()[4].captions[0], "mode": "vectors", "payloads": False}
    by_words = reader.post("/v1/search", json=query).json()
    assert by_words["unknown_words"] is None and by_words["hits"][0]["found_by"] is None
    assert by_features["hits"][0]["payload"] is None
    assert [hit["id"] for hit in by_features["hits"]] == [hit["id"] for hit in by_words["hits"]]


def test_pictures_find_texts(reader: Client) -> None:
    answer = reader.post("/v1/search/image?k=4", **upload(2)).json()
    row = features()[0][2].tolist()
    assert answer["target"] == "text" and len(answer["hits"]) == 4
    by_features = reader.post("/v1/search", json={"image_features": row, "k": 4}).json()
    assert [hit["id"] for hit in answer["hits"]] == [hit["id"] for hit in by_features["hits"]]


def test_documents_find_their_like(reader: Client) -> None:
    assert reader.post("/v1/search", json={"like": "scene-1"}).json()["target"] == "document"
    assert reader.post("/v1/search", json={"like": 7}).json()["target"] == "text"
    found = reader.post("/v1/search", json={"like": UNICODE_ID, "k": 1}).json()["hits"][0]
    assert found["id"] == UNICODE_ID and found["thumbnail"].isascii()
    picture = reader.get(found["thumbnail"])
    assert picture.status_code == 200 and picture.headers["content-type"] == "image/jpeg"


def test_a_batch_is_answered_line_by_line_in_order(reader: Client) -> None:
    texts = [scene.captions[0] for scene in scenes()[:20]]
    queries: list[dict[str, Any]] = [{"text": text, "k": 2} for text in texts]
    queries[7] = {"like": "nobody"}
    response = reader.post("/v1/search/batch", json={"queries": queries})
    assert response.headers["content-type"] == "application/x-ndjson"
    lines = [json.loads(line) for line in response.text.splitlines()]
    assert lines[7]["error"]["code"] == "unknown_id"
    for number, line in enumerate(lines):
        if number != 7:
            alone = reader.post("/v1/search", json=queries[number]).json()
            assert line["hits"] == alone["hits"]


def test_a_match_is_explained(reader: Client) -> None:
    answer = reader.post("/v1/explain", json={"id": "scene-1", "text": "a red circle"}).json()
    assert answer["id"] == "scene-1" and answer["target"] == "image" and answer["item_words"][0]["name"]
    answer = reader.post("/v1/explain", json={"id": "scene-1", "like": "scene-2", "target": "text"}).json()
    assert answer["target"] == "text"
    answer = reader.post("/v1/explain/image?id=scene-1", **upload()).json()
    assert (answer["query"], answer["target"]) == ("image", "text")
    assert reader.post("/v1/explain/image?id=7", **upload()).json()["id"] == 7


def test_an_explanation_shows_the_documents_that_were_learned_from(tmp_path: Path) -> None:
    path = sample(tmp_path)
    CompanionFiles.of(path).keep_training([f"scene-{number}" for number in range(40)] + ["gone"] * 40)
    with client(path) as reader:
        examples = reader.post("/v1/explain", json={"id": "scene-1", "text": "a red circle"}).json()[
            "examples"
        ]
    assert examples
    for example in examples:
        known = example["row"] < 40
        assert example["id"] == (f"scene-{example['row']}" if known else None)
        assert bool(example["payload"]) is known and bool(example["thumbnail"]) is known


def test_an_explanation_from_plain_features_names_rows_only(plain: Client) -> None:
    query = features()[1][:1].toarray()[0].tolist()
    examples = plain.post("/v1/explain", json={"id": "a", "text_features": query}).json()["examples"]
    assert examples and all(example["id"] is example["payload"] is None for example in examples)


# Looking


def test_what_is_served_is_described(reader: Client) -> None:
    info = reader.get("/v1/info").json()
    assert (info["name"], info["documents"], info["images"], info["texts"]) == ("scenes", 62, 61, 61)
    assert info["read_only"] and info["calibrated"] and info["thumbnails"]
    assert info["encoders"]["text"] == {"name": "built-in words", "dimension": 192}
    assert info["fields"]["year"] == ["number"] and info["limits"]["k"] == 1000


def test_an_index_of_features_is_described(plain: Client) -> None:
    info = plain.get("/v1/info").json()
    assert info["encoders"] == {"image": None, "text": None}
    assert not info["calibrated"] and not info["thumbnails"]
    row = features()[1][[0]].toarray()[0].tolist()
    hit = plain.post("/v1/search", json={"text_features": row}).json()["hits"][0]
    assert hit["thumbnail"] is None and hit["probability"] is None


def test_a_document_is_found_by_its_id(reader: Client) -> None:
    document = reader.get("/v1/document", params={"id": "scene-3"}).json()
    assert document["sides"] == ["image", "text"] and document["number"] == 3
    assert document["group"] == scenes()[3].attributes["shape"] and document["coding"] == "document"
    assert reader.get("/v1/document", params={"id": "7"}).json()["id"] == 7
    document = reader.get("/v1/document", params={"id": UNICODE_ID}).json()
    assert document["id"] == UNICODE_ID and document["sides"] == ["image"]


def test_documents_are_browsed_page_by_page(reader: Client) -> None:
    seen: list[Any] = []
    after: int | None = None
    while True:
        query = {"limit": 25} if after is None else {"limit": 25, "after": after}
        page = reader.get("/v1/documents", params=query).json()
        seen += [document["id"] for document in page["documents"]]
        after = page["next"]
        if after is None:
            break
    assert seen == [*(f"scene-{number}" for number in range(N_SERVED)), 7, UNICODE_ID]
    some = reader.get("/v1/documents", params={"where": "year = 2003"}).json()
    assert [document["id"] for document in some["documents"]] == ["scene-3", "scene-23", "scene-43"]
    assert reader.get("/v1/documents", params={"where": "year = 1"}).json()["documents"] == []


def test_facets_count_values(reader: Client) -> None:
    facets = reader.get("/v1/facets").json()["facets"]
    fields = {facet["field"]: facet for facet in facets}
    assert fields["shape"]["kind"] == "text" and fields["year"]["low"] == 2000
    assert sum(value["count"] for value in fields["shape"]["values"]) + fields["shape"]["others"] == N_SERVED
    some = reader.get("/v1/facets", params={"fields": "shape", "where": "year = 2003"}).json()["facets"]
    assert [facet["field"] for facet in some] == ["shape"] and some[0]["n_documents"] == 3


def test_a_thumbnail_is_a_picture_that_may_be_kept(reader: Client) -> None:
    picture = reader.get("/v1/thumbnail?id=scene-1")
    assert picture.content[:2] == b"\xff\xd8" and picture.headers["x-content-type-options"] == "nosniff"
    mark = picture.headers["etag"]
    again = reader.get("/v1/thumbnail?id=scene-1", headers={"If-None-Match": mark})
    assert again.status_code == 304 and again.content == b"" and again.headers["etag"] == mark


def test_report_audit_and_stats(reader: Client) -> None:
    report = reader.get("/v1/report").json()
    assert report["n_bytes"] == 2 and "%" in report["text"] or "of 100" in report["text"]
    audit = reader.get("/v1/audit?limit=2").json()
    assert audit["n_suspects"] == 2 and audit["rows"][0]["payload"]["captions"]
    assert audit["rows"][0]["thumbnail"] and audit["rows"][1]["payload"] is None
    assert len(reader.get("/v1/audit?limit=1").json()["rows"]) == 1
    assert reader.get("/v1/stats").json()["documents"] == 62


def test_health_and_metrics(reader: Client) -> None:
    assert reader.get("/healthz").json() == {"status": "ok"}
    assert reader.get("/readyz").json() == {"status": "ready"}
    reader.get("/v1/search?text=red")
    text = reader.get("/metrics").text
    for step in ("encode", "scan", "payload", "total"):
        assert f'crossbyte_search_step_seconds_count{{step="{step}"}}' in text
    assert 'crossbyte_requests_total{method="GET",route="/v1/search",status="200"}' in text
    assert "crossbyte_documents 62.0" in text and "crossbyte_generation" in text


def test_the_page_is_served_by_exact_names(reader: Client) -> None:
    page = reader.get("/")
    assert page.status_code == 200 and page.headers["content-type"].startswith("text/html")
    assert reader.get("/", headers={"If-None-Match": page.headers["etag"]}).status_code == 304
    for name in ("..%2Fapp.py", "%2e%2e", "app.py", "index.html%00", "nothing.js", "%2Fetc%2Fpasswd"):
        refused(reader.get(f"/static/{name}"), "not_found")


def test_every_answer_protects_the_browser(reader: Client) -> None:
    for url in ("/", "/v1/info", "/v1/nothing", "/v1/thumbnail?id=scene-1", "/v1/document?id=none"):
        response = reader.get(url)
        assert {name: response.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
        assert len(response.headers["x-request-id"]) == 32


# Writing


def test_documents_are_added_and_deleted(writer: Client) -> None:
    one = {"id": "n1", "text": "a purple hexagon", "payload": {"colour": "purple"}, "group": 3}
    two = {"id": 2**40, "image_features": features()[0][0].tolist()}
    both = {"id": "n3", "text": "two", "image_features": features()[0][1].tolist()}
    answer = writer.post("/v1/documents", json={"documents": [one, two, both]}, headers=AUTHORISED).json()
    assert answer["added"] == 3 and answer["generation"] == writer.service.gallery.index.generation
    document = writer.get("/v1/document?id=n1").json()
    assert document["payload"]["colour"] == "purple" and document["group"] == 3
    assert writer.get(f"/v1/document?id={2**40}").json()["sides"] == ["image"]
    assert writer.get("/v1/document?id=n3").json()["sides"] == ["image", "text"]
    again = writer.post("/v1/documents", json={"documents": [one]}, headers=AUTHORISED)
    assert refused(again, "duplicate_id")["hint"]
    change = {"documents": [one | {"payload": {"colour": "violet"}}], "upsert": True}
    assert writer.post("/v1/documents", json=change, headers=AUTHORISED).json()["added"] == 1
    assert writer.get("/v1/document?id=n1").json()["payload"]["colour"] == "violet"
    gone = writer.post("/v1/documents/delete", json={"ids": ["n1", 2**40]}, headers=AUTHORISED).json()
    assert gone["deleted"] == 2 and gone["generation"] > answer["generation"]
    refused(writer.get("/v1/document?id=n1"), "unknown_id")
    missing = {"ids": ["n1"]}
    refused(writer.post("/v1/documents/delete", json=missing, headers=AUTHORISED), "unknown_id")
    missing["missing_ok"] = True  # type: ignore[assignment]
    assert writer.post("/v1/documents/delete", json=missing, headers=AUTHORISED).json()["deleted"] == 0


def test_a_writing_server_is_compacted(writer: Client) -> None:
    documents = [{"id": f"gone-{i}", "text": "a purple hexagon"} for i in range(30)]
    writer.post("/v1/documents", json={"documents": documents}, headers=AUTHORISED)
    gone = {"ids": [each["id"] for each in documents]}
    before = writer.post("/v1/documents/delete", json=gone, headers=AUTHORISED).json()
    answer = writer.post("/v1/compact", headers=AUTHORISED).json()
    assert answer["generation"] > before["generation"]
    index = writer.service.gallery.index
    assert answer["documents"] == len(index)
    assert index.stats()["deleted"] == 0
    assert writer.get("/v1/search?text=hexagon").status_code == 200


def test_a_picture_is_added_with_its_words(writer: Client) -> None:
    fields = {"id": "my/photo.png", "text": "a thing", "payload": '{"year": 1999}', "group": "g"}
    answer = writer.post("/v1/documents/image", headers=AUTHORISED, **upload(3, **fields)).json()
    assert answer["added"] == 1
    document = writer.get("/v1/document?id=my/photo.png").json()
    assert document["payload"] == {"year": 1999, "captions": ["a thing"]} and document["group"] == "g"
    assert writer.get(document["thumbnail"]).status_code == 200
    refused(writer.post("/v1/documents/image", headers=AUTHORISED, **upload(3, **fields)), "duplicate_id")
    fields["upsert"] = "true"
    assert writer.post("/v1/documents/image", headers=AUTHORISED, **upload(4, **fields)).status_code == 200


def test_documents_get_one_code_or_two_as_asked(writer: Client) -> None:
    def coding(id: str) -> str:
        return str(writer.get(f"/v1/document?id={id}").json()["coding"])

    def add(id: str, **how: Any) -> Any:
        document = {"id": id, "text": "two", "image_features": features()[0][1].tolist()}
        return writer.post("/v1/documents", json={"documents": [document], **how}, headers=AUTHORISED)

    assert writer.get("/v1/info").json()["codes"] == "document"
    for id, how in {"a": {}, "b": {"codes": None}, "c": {"codes": "document"}}.items():
        assert add(id, **how).json()["added"] == 1 and coding(id) == "document"
    assert add("d", codes="sides").json()["added"] == 1 and coding("d") == "pair"
    refused(add("e", codes="both"), "invalid_request")
    fields = {"id": "f", "text": "a thing", "codes": "sides"}
    assert writer.post("/v1/documents/image", headers=AUTHORISED, **upload(3, **fields)).status_code == 200
    assert coding("f") == "pair"
    fields = {"id": "g", "text": "a thing", "codes": "both"}
    refused(writer.post("/v1/documents/image", headers=AUTHORISED, **upload(3, **fields)), "bad_multipart")
    refused(writer.get("/v1/document?id=g"), "unknown_id")


def test_a_reader_follows_another_writer(tmp_path: Path) -> None:
    path = sample(tmp_path)
    with client(path, follow_seconds=0.0) as found, Gallery.open(path, "rw") as gallery:
        before = found.get("/v1/info").json()["generation"]
        gallery.delete(["scene-0"])
        assert found.get("/v1/info").json()["generation"] == before + 1
        refused(found.get("/v1/document?id=scene-0"), "unknown_id")
        gallery.index.compact()
        assert found.get("/v1/search?text=red").json()["generation"] == gallery.index.generation


# Errors


BAD_CALLS: list[tuple[str, str, dict[str, Any], str]] = [
    ("GET", "/v1/search", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&colour=1", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&k=0", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&target=sound", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&min_probability=nan", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&n_probe=0", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&n_probe=some", {}, "invalid_request"),
    ("GET", "/v1/search?text=red&n_probe=2", {}, "invalid_input"),  # it has no cells
    ("GET", "/v1/search?text=%20%20", {}, "empty_text"),
    ("GET", "/v1/search?text=red&where=year+%3E", {}, "bad_filter"),
    ("GET", "/v1/search?text=red&where=weight+%3E+1", {}, "unknown_field"),
    ("GET", "/v1/facets?fields=weight", {}, "unknown_field"),
    ("GET", "/v1/document?id=nobody", {}, "unknown_id"),
    ("GET", "/v1/document", {}, "invalid_request"),
    ("GET", "/v1/thumbnail?id=nobody", {}, "no_thumbnail"),
    ("GET", "/v1/thumbnail?id=7", {}, "no_thumbnail"),
    ("GET", "/v1/documents?after=x", {}, "invalid_request"),
    ("GET", "/v1/nothing", {}, "not_found"),
    ("DELETE", "/v1/search", {}, "read_only"),
    ("PUT", "/v1/nothing", {}, "not_found"),
    ("POST", "/v1/search", {"content": b'{"text": "red"'}, "bad_json"),
    ("POST", "/v1/search", {"content": b""}, "bad_json"),
    ("POST", "/v1/search", {"content": b"\xff"}, "bad_json"),
    ("POST", "/v1/search", {"content": b'{"text": "a", "text": "b"}'}, "bad_json"),
    ("POST", "/v1/search", {"content": b'{"text_features": [NaN]}'}, "bad_json"),
    ("POST", "/v1/search", {"content": b'{"text_features": [1e999]}'}, "invalid_request"),
    (
        "POST",
        "/v1/search",
        {"content": b"text=red", "headers": {"Content-Type": "x/y"}},
        "unsupported_media_type",
    ),
    ("POST", "/v1/search", {"json": {}}, "invalid_request"),
    ("POST", "/v1/search", {"json": []}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text": "red", "like": "x"}}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text": "red", "k": "3"}}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text": "red", "n_probe": "2"}}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text": "red", "n_probe": True}}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text": "red", "model": "x"}}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text": "\t"}}, "empty_text"),
    ("POST", "/v1/search", {"content": b'{"text": "\\ud800"}'}, "bad_json"),
    ("POST", "/v1/search", {"json": {"like": "nobody"}}, "unknown_id"),
    ("POST", "/v1/search", {"json": {"like": True}}, "invalid_request"),
    ("POST", "/v1/search", {"json": {"text_features": [1.0]}}, "invalid_input"),
    ("POST", "/v1/search", {"json": {"like": "scene-1", "min_probability": 0.5}}, "invalid_input"),
    ("POST", "/v1/search/batch", {"json": {"queries": []}}, "invalid_request"),
    ("POST", "/v1/explain", {"json": {"id": "nobody", "text": "red"}}, "unknown_id"),
    ("POST", "/v1/explain", {"json": {"id": 7, "text": "red", "target": "image"}}, "invalid_input"),
    ("POST", "/v1/search/image", {"content": b"x"}, "unsupported_media_type"),
    ("POST", "/v1/search/image", {"files": {"picture": b"x"}}, "bad_multipart"),
    ("POST", "/v1/search/image", {"files": {"image": b"a text named .jpg"}}, "bad_picture"),
    ("POST", "/v1/search/image?k=x", {"files": {"image": b"x"}}, "invalid_request"),
]


@pytest.mark.parametrize(("method", "url", "options", "code"), BAD_CALLS)
def test_a_bad_call_is_told_why(reader: Client, method: str, url: str, options: Any, code: str) -> None:
    refused(reader(method, url, **options), code)


def test_methods_are_named_where_another_is_taken(writer: Client) -> None:
    response = writer("DELETE", "/v1/info", headers=AUTHORISED)
    refused(response, "method_not_allowed")
    assert response.headers["allow"] == "GET, HEAD"
    for path, allowed in (("/v1/search", "GET, HEAD, POST"), ("/v1/explain", "POST"), ("/", "GET, HEAD")):
        response = writer("OPTIONS", path)
        refused(response, "method_not_allowed")
        assert response.headers["allow"] == allowed


def test_a_broken_form_is_refused(reader: Client) -> None:
    kind = {"Content-Type": "multipart/form-data; boundary=b"}
    head = b'--b\r\nContent-Disposition: form-data; name="image"\r\n\r\nx\r\n'
    for body in (b"", b"nothing", head, head + b"--b", head + head + b"--b--"):
        refused(reader.post("/v1/search/image", content=body, headers=kind), "bad_multipart")
    refused(reader.post("/v1/search/image", content=head + b"--b--", headers=kind), "bad_picture")


def test_bad_documents_are_refused_whole(writer: Client) -> None:
    before = writer.get("/v1/info").json()["generation"]
    bad: list[tuple[dict[str, Any], str]] = [
        ({"id": "x"}, "invalid_input"),
        ({"id": "x", "image_features": [1.0, 2.0]}, "invalid_input"),
        ({"id": "x" * 1025, "text": "a"}, "invalid_request"),
        ({"id": "é" * 1000, "text": "a"}, "invalid_request"),
        ({"id": 2**63, "text": "a"}, "invalid_request"),
        ({"id": "scene-1", "text": "a"}, "duplicate_id"),
        ({"id": "x", "text": "a", "payload": {"url": "x" * 70_000}}, "payload_too_large"),
        ({"id": "x", "text": "a", "path": "/etc/passwd"}, "invalid_request"),
    ]
    for document, code in bad:
        body = {"documents": [{"id": "fine", "text": "b"}, document]}
        refused(writer.post("/v1/documents", json=body, headers=AUTHORISED), code)
    twice = {"documents": [{"id": "x", "text": "b"}] * 2}
    refused(writer.post("/v1/documents", json=twice, headers=AUTHORISED), "duplicate_id")
    huge = b'{"documents": [{"id": "x", "text": "a", "payload": {"n": 1e999}}]}'
    refused(writer.post("/v1/documents", content=huge, headers=AUTHORISED), "invalid_input")
    for fields in ({"id": "x", "upsert": "yes"}, {"id": "x", "extra": "1"}):
        refused(writer.post("/v1/documents/image", headers=AUTHORISED, **upload(**fields)), "bad_multipart")
    for fields, code in (({}, "invalid_request"), ({"id": "x", "payload": "{"}, "bad_json")):
        refused(writer.post("/v1/documents/image", headers=AUTHORISED, **upload(**fields)), code)
    assert writer.get("/v1/info").json()["generation"] == before


def test_an_index_of_features_takes_no_words(plain: Client) -> None:
    refused(plain.get("/v1/search?text=red"), "no_encoder")
    refused(plain.post("/v1/search/image", **upload()), "no_encoder")
    refused(plain.post("/v1/explain", json={"id": "a", "text": "red"}), "no_encoder")
    refused(plain.get("/v1/report"), "not_measured")
    refused(plain.get("/v1/audit"), "not_audited")
    refused(plain.get("/v1/thumbnail?id=a"), "no_thumbnail")
    row = features()[1][[0]].toarray()[0].tolist()
    asked = {"text_features": row, "min_probability": 0.5}
    refused(plain.post("/v1/search", json=asked), "not_calibrated")


def test_strange_words_are_answered(reader: Client) -> None:
    for text in ("красный круг", "東京", "qwxz", "🦑", "a\u0000b", "'; DROP TABLE records; --"):
        answer = reader.get("/v1/search", params={"text": text})
        assert answer.status_code == 200 and answer.json()["no_match"] in (True, False)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.IndexBusy("/secret/path"), "index_busy"),
        (errors.StaleReader("/secret/path"), "index_busy"),
        (errors.ClusterError("/secret/path"), "shard_lost"),
        (errors.StorageFull("/secret/path"), "storage_full"),
        (errors.StorageFailed("/secret/path"), "storage_failed"),
        (errors.ReadOnlyIndex("/secret/path"), "read_only"),
        (errors.ClosedIndex("/secret/path"), "shutting_down"),
        (errors.DamagedIndexFile("/secret/path"), "storage_failed"),
        (errors.WrongEncoder("/secret/path"), "no_encoder"),
        (errors.MissingExtra("/secret/path"), "no_encoder"),
        (errors.NotFinite("row 1"), "not_finite"),
        (FileNotFoundError(2, "none", "/secret/path"), "internal"),
        (MemoryError(), "internal"),
    ],
)
def test_errors_say_nothing_of_the_machine(error: Exception, code: str) -> None:
    problem = problem_for(error)
    assert problem.code == code and "/secret" not in f"{problem.message} {problem.hint}"


def test_a_fault_is_logged_and_not_told(
    reader: Client, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(texts: Any) -> Any:
        raise ZeroDivisionError("at /secret/path")

    monkeypatch.setattr(reader.service.gallery, "encode_texts", fail)
    with caplog.at_level(logging.ERROR, "crossbyte.service"):
        response = reader.get("/v1/search?text=red")
    error = refused(response, "internal")
    assert "secret" not in response.text and error["request_id"] in caplog.text
    monkeypatch.undo()
    assert reader.get("/v1/search?text=red").status_code == 200


def test_a_closed_service_says_so(tmp_path: Path) -> None:
    with client(sample(tmp_path)) as found:
        pass
    refused(found.get("/readyz"), "shutting_down")
    refused(found.get("/v1/search?text=red"), "shutting_down")
    assert found.get("/healthz").status_code == 200


# Names that would be code elsewhere


XSS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "javascript:alert(1)",
    "</title><svg/onload=alert(1)>",
    "{{7*7}}${7*7}",
    "\u2028\u2029</script>",
    "<!--#include file='/etc/passwd'-->",
    "=cmd|'/C calc'!A0",
]


def test_strings_stay_strings(writer: Client) -> None:
    documents = [
        {
            "id": f"{text} {number}",
            "text": f"red {text}",
            "payload": {"title": text, text: [text]},
            "group": text,
        }
        for number, text in enumerate(XSS)
    ]
    added = writer.post("/v1/documents", json={"documents": documents}, headers=AUTHORISED)
    assert added.json()["added"] == len(XSS)
    for document in documents:
        found = writer.get("/v1/document", params={"id": document["id"]})
        assert found.headers["content-type"] == "application/json"
        assert found.json()["id"] == document["id"] and found.json()["group"] == document["group"]
        assert found.json()["payload"]["title"] == document["payload"]["title"]  # type: ignore[index]
        like = writer.post("/v1/search", json={"like": document["id"], "k": 20})
        assert document["id"] in [hit["id"] for hit in like.json()["hits"]]
        bad = writer.get("/v1/document", params={"id": f"{document['id']}?"})
        assert bad.headers["content-type"] == "application/json" and bad.status_code == 404


# Starting


def test_unsafe_settings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="token: expected one with host '0.0.0.0'"):
        Settings(host="0.0.0.0")
    with pytest.raises(errors.InvalidInput, match="token: expected one with host 'example.org'"):
        Settings(host="example.org")
    with pytest.raises(errors.InvalidInput, match="at least 16"):
        Settings(token="short")
    with pytest.raises(errors.InvalidInput, match="token_for_reading"):
        Settings(token_for_reading=True)
    with pytest.raises(errors.InvalidInput, match="port"):
        Settings(port=70_000)
    assert not Settings(host="::1").guards_reading and Settings(host="0.0.0.0", token=TOKEN).guards_reading


def test_a_taken_port_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(errors.InvalidInput, match=f"port: {port} is taken"):
            serve(sample(tmp_path), Settings(port=port))


def test_an_address_of_another_machine_is_told(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidInput, match="host"):
        make_server(sample(tmp_path), Settings(host="192.0.2.1", token=TOKEN))


def test_a_second_writer_is_told_who_is_first(tmp_path: Path) -> None:
    path = sample(tmp_path)
    with Index.open(path, "rw"), pytest.raises(errors.IndexLocked):
        make_server(path, Settings(port=0, token=TOKEN))


def test_every_code_is_in_a_test() -> None:
    here = Path(__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(here.glob("test_*.py")))
    assert [code for code in ERROR_CODES if f'"{code}"' not in text] == []
