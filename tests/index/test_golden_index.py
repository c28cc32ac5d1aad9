"""Golden indexes of formats 1 and 2: every later version opens them and answers as it did then."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from crossbyte.index.index import Index
from support.paths import GOLDEN

NAMES = sorted(path.stem for path in GOLDEN.glob("index-*.cb"))


def maker() -> Any:
    spec = importlib.util.spec_from_file_location("golden_make_index", GOLDEN / "make_index.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_golden_indexes() -> None:
    assert sorted(maker().GOLDEN) == NAMES
    assert len(NAMES) >= 9


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_index_answers_as_it_did(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.cb"  # a copy: reading must not depend on the folder being ours
    shutil.copy(GOLDEN / f"{name}.cb", path)
    before = hashlib.blake2b(path.read_bytes()).digest()
    expected = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(maker().answers(path)))
    assert found["generation"] == expected["generation"]
    assert found["documents"] == expected["documents"]
    for given, right in zip(found["searches"], expected["searches"], strict=True):
        assert given[0] == right[0]
        assert given[1] == pytest.approx(right[1], abs=2e-3)
    assert hashlib.blake2b(path.read_bytes()).digest() == before, "reading has changed the file"


@pytest.mark.parametrize("name", NAMES)
def test_a_golden_index_can_be_written_on(name: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}.cb"
    shutil.copy(GOLDEN / f"{name}.cb", path)
    images, texts = maker().pairs(2, first=2000)
    with Index.open(path, mode="rw") as index:
        n = len(index)
        index.add(["later-1", "later-2"], images=images, texts=texts, payloads=[{"year": 2030}, {}])
        index.delete(["later-2"])
        index.compact()
    with Index.open(path) as index:
        index.verify()
        assert len(index) == n + 1
        assert index.search(images=images[:1], where="year = 2030", target="document")[0].ids == ["later-1"]


@pytest.mark.parametrize("name", NAMES)
def test_the_same_documents_give_the_same_answers_today(name: str, tmp_path: Path) -> None:
    """The golden answers come from the documents, not from an old fault kept alive by the file."""
    maker().GOLDEN[name](tmp_path / "new.cb")
    expected = json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))
    found = json.loads(json.dumps(maker().answers(tmp_path / "new.cb")))
    assert [row[:4] for row in found["documents"]] == [row[:4] for row in expected["documents"]]
