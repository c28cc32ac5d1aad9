"""A SQLite that was built without FTS5: what keeps words says so, and vectors alone find documents."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from crossbyte.cli import app
from crossbyte.data.scenes import write_scenes
from crossbyte.errors import InvalidInput, WriteRefused
from crossbyte.gallery.gallery import Gallery
from crossbyte.index.storage.database import has_word_search
from support.raw_samples import COLOURS, WORDS
from support.service_samples import client, sample

_connect = sqlite3.connect


class _Connection(sqlite3.Connection):
    """A connection that knows FTS5 as little as a SQLite without it."""

    def execute(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self._check(statement)
        return super().execute(statement, *arguments)

    def executemany(self, statement: str, *arguments: Any) -> sqlite3.Cursor:
        self._check(statement)
        return super().executemany(statement, *arguments)

    @staticmethod
    def _check(statement: str) -> None:
        words = statement.replace("(", " ").split()
        if "fts5" in words or any(pair in zip(words, words[1:], strict=False) for pair in _USES):
            raise sqlite3.OperationalError("no such module: fts5")


_USES = [("FROM", "words"), ("INTO", "words"), ("UPDATE", "words")]


@pytest.fixture
def without(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    def take_away() -> None:
        def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
            return _connect(*arguments, **{"factory": _Connection} | options)

        monkeypatch.setattr(sqlite3, "connect", connect)
        assert not has_word_search()

    return take_away


def test_an_index_with_words_is_searched_by_vectors(tmp_path: Path, without: Callable[[], None]) -> None:
    path = sample(tmp_path)
    with Gallery.open(path) as gallery:
        expected = gallery.search(text="a red circle", mode="vectors")
    without()
    with Gallery.open(path) as gallery:
        for mode in (None, "vectors"):
            found = gallery.search(text="a red circle", mode=mode)
            assert (found.ids, found.verdict, found.found_by) == (expected.ids, expected.verdict, None)
        assert gallery.index.word_fields == () and gallery.index.match_words("red") == []
        for mode in ("both", "words"):
            with pytest.raises(InvalidInput, match="without FTS5"):
                gallery.search(text="a red circle", mode=mode)
    with client(path) as service:
        assert service.get("/v1/info").json()["word_fields"] == []
        answer = service.get("/v1/search", params={"text": "a red circle"}).json()
        assert [hit["id"] for hit in answer["hits"]] == expected.ids
        refused = service.get("/v1/search", params={"text": "a red circle", "mode": "words"})
        assert refused.status_code == 422 and "FTS5" in refused.text


def test_nothing_is_written_that_words_would_be_missing_of(
    tmp_path: Path, without: Callable[[], None]
) -> None:
    path = sample(tmp_path)
    before = path.read_bytes()
    without()
    with pytest.raises(WriteRefused, match="without FTS5"):
        Gallery.open(path, "rw")
    assert path.read_bytes() == before
    with Gallery.open(path) as gallery:  # the lock was given back
        assert len(gallery) == 62


def test_a_gallery_is_made_with_vectors_alone_and_says_so(
    tmp_path: Path,
    without: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    write_scenes(tmp_path / "photos", 24)
    without()
    encoders = ("--image-encoder", COLOURS, "--text-encoder", WORDS)
    assert app.run(["fit", "photos", *encoders, "--bits", "16", "--curve", "", "--quiet"]) == 0
    assert "Words are not searched: this SQLite was built without FTS5" in capsys.readouterr().out
    assert app.run(["search", "photos.cb", "--text", "red star", *encoders]) == 0
    assert "found by" not in capsys.readouterr().out
    assert app.run(["add", "photos.cb", "photos", *encoders, "--upsert", "--quiet"]) == 0
