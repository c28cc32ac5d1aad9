"""One answer everywhere: Python, the service and the command line say the same of the same query."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from PIL import Image

from crossbyte import Index
from crossbyte.cli import app
from crossbyte.errors import CrossbyteError
from crossbyte.gallery.gallery import Gallery, NewDocument
from crossbyte.index.hits import Hits
from support.paths import GOLDEN
from support.service_samples import (
    Client,
    client,
    feature_index,
    features,
    fitted,
    picture,
    sample,
    scenes,
)
from support.sharded_gallery import sharded

Captured = pytest.CaptureFixture[str]
ANSWER = ("verdict", "no_match", "unknown_words", "partial")
HIT = ("id", "distance", "probability", "strength", "found_by")
TEXTS = ("a red circle", '"red circle" blue', "a red zeppelin", "zeppelin", "123", '" OR NEAR(" * ^')
MODES = (None, "both", "words", "vectors")
OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"where": "year >= 2005 AND colour != 'red'"},
    {"where": "year > 9000"},
    {"distinct": "group", "k": 3},
    {"max_distance": 0.5},
    {"min_probability": 1.0},
    {"prior": 0.5, "match_threshold": 0.9},
    {"target": "text", "k": 40},
)


class Query(NamedTuple):
    """A query in the three spellings: keyword arguments of ``Gallery.search``, JSON, and arguments."""

    python: dict[str, Any]
    body: dict[str, Any]
    arguments: list[str]


def ask_in_words(text: str, mode: str | None = None) -> Query:
    chosen: dict[str, Any] = {} if mode is None else {"mode": mode}
    more = [] if mode is None else ["--mode", mode]
    return Query({"text": text} | chosen, {"text": text} | chosen, ["--text", text, *more])


def ask_with_rows(side: str, row: Any, folder: Path) -> Query:
    file = folder / f"{side}.npy"
    np.save(file, np.asarray(row, dtype=np.float64)[None])
    given = [float(value) for value in row]
    return Query({f"{side}s": np.float64([given])}, {f"{side}_features": given}, [f"--{side}s", str(file)])


def spell(options: dict[str, Any]) -> list[str]:
    names = {"k": "-k"} | {name: f"--{name.replace('_', '-')}" for name in options if name != "k"}
    return [part for name, value in options.items() for part in (names[name], str(value))]


def tell(hits: Hits) -> dict[str, Any]:
    """What an answer says, as JSON has it."""
    said = {name: getattr(hits, name) for name in ANSWER}
    said["hits"] = [{name: getattr(hit, name) for name in HIT} for hit in hits]
    found: dict[str, Any] = json.loads(json.dumps(said))
    return found


def cut(answer: dict[str, Any]) -> dict[str, Any]:
    hits = [{name: hit[name] for name in HIT} for hit in answer["hits"]]
    return {name: answer[name] for name in ANSWER} | {"hits": hits}


def check_sense(said: dict[str, Any]) -> None:
    """The truth table of a verdict beside what else is said."""
    verdict, strengths = said["verdict"], {hit["strength"] for hit in said["hits"]}
    assert said["no_match"] == (None if verdict is None else verdict == "nothing")
    order = [None, "nothing", "weak", "fair", "strong"]
    assert None in strengths or len(said["hits"]) < 10 or verdict in strengths
    if not said["hits"]:
        assert verdict in (None, "nothing")
    assert all(order.index(each) <= order.index(verdict) for each in strengths)
    assert all(each is None for each in strengths) or verdict is not None


class Surfaces:
    """One index, asked through all three."""

    def __init__(self, gallery: Gallery, service: Client, path: Path, capsys: Captured) -> None:
        self.gallery, self.service, self.path, self.capsys = gallery, service, path, capsys

    def ask(self, query: Query, options: dict[str, Any]) -> dict[str, Any]:
        """Ask everywhere; the one answer, or ``{"error": ...}`` where all refuse."""
        try:
            expected = tell(self.gallery.search(**query.python, **options))
        except CrossbyteError as error:
            return self._refuse(query, options, str(error))
        if "text" in query.python:
            own = query.python | {"texts": self.gallery.encode_texts([query.python["text"]])}
            own["words"] = [own.pop("text")]
        else:
            own = query.python
        if "image" not in own:
            alone = tell(self.gallery.index.search(**own, **options)[0])
            if not self.gallery.index.word_fields:  # an index without words does not know the encoder's
                assert alone["unknown_words"] is None
                alone["unknown_words"] = expected["unknown_words"]
            assert alone == expected
        for answer in self._answers(query, options):
            assert answer.status_code == 200, answer.text
            assert cut(answer.json()) == expected
        code = app.run(["search", str(self.path), *query.arguments, *spell(options), "--json"])
        captured = self.capsys.readouterr()
        assert code == 0, captured.err
        assert cut(json.loads(captured.out)["queries"][0]) == expected
        check_sense(expected)
        return expected

    def _answers(self, query: Query, options: dict[str, Any]) -> Iterator[Any]:
        if "image" in query.body:
            files = {"image": ("x.png", query.body["image"], "image/png")}
            yield self.service.post("/v1/search/image", params=options, files=files)
            return
        body = query.body | options
        yield self.service.post("/v1/search", json=body)
        yield self.service.post("/v1/search/batch", json={"queries": [body]})
        if "text" in body:
            yield self.service.get("/v1/search", params=body)

    def _refuse(self, query: Query, options: dict[str, Any], why: str) -> dict[str, Any]:
        for answer in self._answers(query, options):
            found = answer.json()
            assert answer.status_code == 422 or "batch" in answer.url.path, answer.text
            assert found["error"]["message"].split(";")[0] in why
        assert app.run(["search", str(self.path), *query.arguments, *spell(options), "--json"]) == 2
        captured = self.capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 2
        return {"error": why}


@contextmanager
def opened(path: Path, capsys: Captured) -> Iterator[Surfaces]:
    with client(path) as service, Gallery.open(path, n_jobs=1) as gallery:
        yield Surfaces(gallery, service, path, capsys)


def ask_texts(surfaces: Surfaces, texts: tuple[str, ...] = TEXTS) -> list[dict[str, Any]]:
    """Every text in every way, with one set of options after the other."""
    found = []
    for place, text in enumerate(texts):
        for other, mode in enumerate(MODES):
            options = OPTIONS[(place + 3 * other) % len(OPTIONS)]
            found.append(surfaces.ask(ask_in_words(text, mode), options))
            found.append(surfaces.ask(ask_in_words(text, mode), {"k": 5}))
    return found


def ask_otherwise(surfaces: Surfaces, folder: Path) -> None:
    """A picture, features of both sides, and a document."""
    file = folder / "query.png"
    Image.fromarray(scenes()[70].pixels).save(file)
    drawn = Query({"image": file}, {"image": file.read_bytes()}, ["--image", str(file)])
    images, texts = (np.asarray(each.todense() if hasattr(each, "todense") else each) for each in features())
    rows = [ask_with_rows("image", images[70], folder), ask_with_rows("text", texts[70], folder)]
    alike = Query({"like": "scene-3"}, {"like": "scene-3"}, ["--like", "scene-3"])
    for query in (drawn, *rows, alike):
        for options in OPTIONS:
            if query is not alike or "min_probability" not in options:
                surfaces.ask(query, options)
        for mode in ("both", "words"):
            assert "searches by words" in surfaces.ask(query, {"mode": mode})["error"]


def test_one_file(tmp_path: Path, capsys: Captured) -> None:
    with opened(sample(tmp_path), capsys) as surfaces:
        answers = ask_texts(surfaces)
        verdicts = {each["verdict"] for each in answers}
        assert {"nothing", "strong"} <= verdicts, verdicts
        assert any(each["unknown_words"] == ["zeppelin"] for each in answers)
        ask_otherwise(surfaces, tmp_path)


def test_after_changes(tmp_path: Path, capsys: Captured) -> None:
    path = sample(tmp_path)
    with Gallery.open(path, "rw", n_jobs=1) as gallery:
        gallery.add([NewDocument("late", picture(scenes()[80]), "a purple zeppelin over a castle")])
        gallery.delete(["scene-3", "scene-4"])
        gallery.index.update_payloads(["scene-5"], [{"captions": ["an igloo"], "year": 2011}])
        gallery.add([NewDocument("scene-6", picture(scenes()[81]), "a walrus")], upsert=True)
    gone = scenes()[3].captions[0]
    with opened(path, capsys) as surfaces:
        for text, first in (("zeppelin", "late"), ("igloo", "scene-5"), ("walrus", "scene-6")):
            for mode in ("both", "words"):
                said = surfaces.ask(ask_in_words(text, mode), {"k": 5})
                assert said["hits"][0]["id"] == first and said["unknown_words"] == []
                assert said["hits"][0]["found_by"] in ("words", "both") and not said["no_match"]
        for mode in MODES:
            hits = surfaces.ask(ask_in_words(gone, mode), {"k": 100})["hits"]
            assert not {"scene-3", "scene-4"} & {hit["id"] for hit in hits}


def test_shards(tmp_path: Path, capsys: Captured) -> None:
    path = sharded(tmp_path)
    with opened(path, capsys) as surfaces:
        answers = ask_texts(surfaces, TEXTS[1:4])
        assert any(each["unknown_words"] == ["zeppelin"] for each in answers)
        ask_otherwise(surfaces, tmp_path)


@pytest.mark.parametrize("name", ["index-pairs", "index-calibrated", "index-documents-calibrated"])
def test_earlier_formats_have_vectors_alone(name: str, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "golden.cb"
    shutil.copy(GOLDEN / f"{name}.cb", path)
    with opened(path, capsys) as surfaces:
        index = surfaces.gallery.index
        assert index.format < 3 and index.word_fields == ()
        widths = {"image": index.model.n_features_in_, "text": index.model.n_text_features_}
        rng = np.random.default_rng(0)
        rows = [ask_with_rows(side, rng.normal(size=width), tmp_path) for side, width in widths.items()]
        id = index.ids()[0]
        for query in (*rows, Query({"like": id}, {"like": id}, ["--like", str(id)])):
            filters: list[dict[str, Any]] = [
                {"where": f"{field} IS NOT NULL"} for field in index.stats()["fields"]
            ]
            for options in ({}, {"mode": "vectors"}, {"k": 3, "max_distance": 1.0}, *filters[:1]):
                said = surfaces.ask(query, options)
                assert said["unknown_words"] is None
                assert {hit["found_by"] for hit in said["hits"]} <= {None}
            assert "searches by words" in surfaces.ask(query, {"mode": "words"})["error"]


@pytest.fixture
def wordless(tmp_path: Path) -> Path:
    """A gallery as earlier versions made it: encoders and captions, and no words in the file."""
    path = tmp_path / "wordless.cb"
    Index.create(path, fitted(), n_jobs=1).close()
    with Gallery.open(path, "rw", n_jobs=1) as gallery:
        gallery.add(
            [NewDocument(f"scene-{n}", picture(scenes()[n]), scenes()[n].captions[0]) for n in range(20)]
        )
    return path


def test_an_index_without_words(wordless: Path, tmp_path: Path, capsys: Captured) -> None:
    with opened(wordless, capsys) as surfaces:
        for text in TEXTS:
            for mode in (None, "vectors"):
                said = surfaces.ask(ask_in_words(text, mode), {})
                assert said["unknown_words"] == (
                    ["zeppelin"] if "zeppelin" in text else said["unknown_words"]
                )
                assert {hit["found_by"] for hit in said["hits"]} <= {None}
            for mode in ("both", "words"):
                assert "keeps no words" in surfaces.ask(ask_in_words(text, mode), {})["error"]


def test_an_index_of_features_without_calibration(tmp_path: Path, capsys: Captured) -> None:
    with opened(feature_index(tmp_path), capsys) as surfaces:
        _, texts = (np.asarray(each.todense() if hasattr(each, "todense") else each) for each in features())
        said = surfaces.ask(ask_with_rows("text", texts[70], tmp_path), {})
        assert said["verdict"] is said["no_match"] is said["unknown_words"] is None
        assert {hit["strength"] for hit in said["hits"]} == {None}
        nothing = surfaces.ask(ask_with_rows("text", 0 * texts[70], tmp_path), {})
        assert nothing["verdict"] == "nothing" and nothing["no_match"] is True


def test_pictures_without_captions(tmp_path: Path, capsys: Captured) -> None:
    """An index that searches words, of documents that have none: as one that keeps none."""
    path = tmp_path / "pictures.cb"
    Index.create(path, fitted(), words=["captions"], n_jobs=1).close()
    with Gallery.open(path, "rw", n_jobs=1) as gallery:
        gallery.add([NewDocument(f"scene-{n}", picture(scenes()[n])) for n in range(20)])
    with opened(path, capsys) as surfaces:
        for mode in ("both", "words"):
            assert "keeps no words" in surfaces.ask(ask_in_words("a red circle", mode), {})["error"]
        said = surfaces.ask(ask_in_words("a red circle zeppelin", None), {})
        assert said["unknown_words"] == ["zeppelin"] and len(said["hits"]) == 10  # as the encoder knows words
        ask_texts(surfaces, TEXTS[:2])
