"""Bad input to an index: one typed error each, and not a byte of the file changes."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from crossbyte import CMCQ, Index
from crossbyte._not_fitted import NotFitted
from crossbyte.errors import (
    DamagedIndexFile,
    DuplicateId,
    FilterError,
    ForeignIndexFile,
    IndexExists,
    InvalidInput,
    NewerIndexFile,
    NotFinite,
    PayloadTooLarge,
    TooManyFields,
    UnknownField,
    UnknownId,
)
from crossbyte.index import mutations
from support.index_samples import sample
from support.index_twin import Twin, compare, features, small_model

IMAGES, TEXTS = features(2, seed=31)
CODES = np.zeros((2, 2), np.uint8)


@pytest.fixture(scope="module")
def made(tmp_path_factory: Any) -> Iterator[tuple[Index, Twin]]:
    """One index for all tests, because none of them may change it."""
    index, twin = sample(tmp_path_factory.mktemp("input") / "i.cb")
    with index:
        compare(index, twin)
        yield index, twin
        compare(index, twin)


def state(index: Index) -> Any:
    """Every byte of the file, and what the handle says of it."""
    answers = index.search(texts=TEXTS, target="document", k=1000)
    found = [(hits.ids, hits.distances.tobytes()) for hits in answers]
    return Path(index.path).read_bytes(), index.generation, len(index), found


def refused(
    made: tuple[Index, Twin], call: Callable[[Index], Any], error: type[Exception], match: str | None = None
) -> None:
    """The call raises exactly this error, and everything is as before."""
    before = state(made[0])
    with pytest.raises(error, match=match) as caught:
        call(made[0])
    assert type(caught.value) is error
    assert state(made[0]) == before


# Documents

NESTED: Any = {}
for _ in range(2000):
    NESTED = {"a": NESTED}
LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP
DOCUMENTS: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    # ids
    "twice in the call": ({"ids": ["a", "a"]}, DuplicateId),
    "in the index": ({"ids": ["a", "p1"]}, DuplicateId),
    "integer in the index": ({"ids": [1, 100]}, DuplicateId),
    "bool": ({"ids": [True, "a"]}, InvalidInput),
    "float": ({"ids": [1.5, "a"]}, InvalidInput),
    "whole float": ({"ids": np.array([100.0, 101.0])}, InvalidInput),
    "none": ({"ids": [None, "a"]}, InvalidInput),
    "no ids": ({"ids": None}, InvalidInput),
    "bytes": ({"ids": [b"a", b"b"]}, InvalidInput),
    "too long": ({"ids": ["x" * 1025, "b"]}, InvalidInput),
    "surrogate": ({"ids": ["\ud800", "b"]}, InvalidInput),
    "too large": ({"ids": [2**63, 5]}, InvalidInput),
    "one string": ({"ids": "ab"}, InvalidInput),
    "a mapping": ({"ids": {"a": 1, "b": 2}}, InvalidInput),
    "a number": ({"ids": 7}, InvalidInput),
    "too few": ({"ids": ["a"]}, InvalidInput),
    "too many": ({"ids": ["a", "b", "c"]}, InvalidInput),
    "no row for an id": ({"ids": []}, InvalidInput),
    # features and codes
    "width": ({"images": IMAGES[:, :5]}, InvalidInput),
    "width of texts": ({"texts": np.ones((2, 6))}, InvalidInput),
    "one dimension": ({"images": IMAGES[0]}, InvalidInput),
    "three dimensions": ({"images": IMAGES[None]}, InvalidInput),
    "nan": ({"images": np.where(np.eye(2, 6), np.nan, IMAGES)}, NotFinite),
    "infinity": ({"texts": np.where(np.eye(2, 5), np.inf, TEXTS)}, NotFinite),
    "beyond float64": ({"images": np.full((2, 6), 1e200)}, NotFinite),
    "text instead of numbers": ({"images": np.full((2, 6), "x")}, InvalidInput),
    "masked": ({"images": np.ma.masked_less(IMAGES, 0)}, NotFinite),
    "complex": ({"images": IMAGES * 1j}, InvalidInput),
    "rows that disagree": ({"images": IMAGES, "texts": TEXTS[:1]}, InvalidInput),
    "neither": ({"images": None}, InvalidInput),
    "both kinds": ({"text_codes": CODES}, InvalidInput),
    "codes of another type": ({"images": None, "image_codes": CODES.astype(int)}, InvalidInput),
    "codes of another width": ({"images": None, "image_codes": CODES[:, :1]}, InvalidInput),
    "codes of one dimension": ({"images": None, "image_codes": CODES[0]}, InvalidInput),
    "too few codes": ({"images": None, "image_codes": CODES, "text_codes": CODES[:1]}, InvalidInput),
    # payloads
    "payload too large": ({"payloads": [None, {"x": "y" * 2**20}]}, PayloadTooLarge),
    "payload just too large": ({"payloads": [{"": "x" * (2**20 - 6)}, None]}, PayloadTooLarge),
    "too many fields": ({"payloads": [{str(n): 1 for n in range(1001)}, None]}, TooManyFields),
    "too many nested fields": (
        {"payloads": [{"a": {str(n): [1] for n in range(500)}}, {str(n): 1 for n in range(501)}]},
        TooManyFields,
    ),
    "names of fields too long": ({"payloads": [{"x" * 2**16: 1}, None]}, TooManyFields),
    "not JSON": ({"payloads": [{"x": object()}, None]}, InvalidInput),
    "a set": ({"payloads": [{"x": {1}}, None]}, InvalidInput),
    "bytes inside": ({"payloads": [{"x": b"y"}, None]}, InvalidInput),
    "key that is no text": ({"payloads": [{1: 2}, None]}, InvalidInput),
    "nan inside": ({"payloads": [{"x": [1.0, float("nan")]}, None]}, InvalidInput),
    "infinity inside": ({"payloads": [{"x": float("-inf")}, None]}, InvalidInput),
    "surrogate inside": ({"payloads": [{"x": "\udc00"}, None]}, InvalidInput),
    "surrogate in a key": ({"payloads": [{"\udc00": 1}, None]}, InvalidInput),
    "an endless integer": ({"payloads": [{"x": 10**5000}, None]}, InvalidInput),
    "too deep": ({"payloads": [NESTED, None]}, InvalidInput),
    "a loop": ({"payloads": [LOOP, None]}, InvalidInput),
    "a list as payload": ({"payloads": [[1], None]}, InvalidInput),
    "a text as payload": ({"payloads": ["x", None]}, InvalidInput),
    "one payload for all": ({"payloads": {"a": 1}}, InvalidInput),
    "an array inside": ({"payloads": [{"x": np.zeros(2)}, None]}, InvalidInput),
    "a complex number": ({"payloads": [{"x": np.complex64(1)}, None]}, InvalidInput),
    "not a number of NumPy": ({"payloads": [{"x": np.float32("nan")}, None]}, InvalidInput),
    "a table too short": ({"payloads": pandas.DataFrame({"x": [1]})}, InvalidInput),
    "a table whose columns are no texts": ({"payloads": pandas.DataFrame([[1], [2]])}, InvalidInput),
    "a table of mixed types": ({"payloads": pandas.DataFrame({"x": [1, {2}]})}, InvalidInput),
    "a table with a column twice": (
        {"payloads": pandas.DataFrame([[1, 2], [3, 4]], columns=["x", "x"])},
        InvalidInput,
    ),
    "payloads in a text": ({"payloads": "ab"}, InvalidInput),
    "a number of payloads": ({"payloads": 2}, InvalidInput),
    "too few payloads": ({"payloads": [{}]}, InvalidInput),
    "too many payloads": ({"payloads": [{}, {}, {}]}, InvalidInput),
    # groups
    "too few groups": ({"groups": ["a"]}, InvalidInput),
    "too many groups": ({"groups": [1, 2, 3]}, InvalidInput),
    "a group that is a float": ({"groups": [1.5, "a"]}, InvalidInput),
    "a group that is a bool": ({"groups": [True, None]}, InvalidInput),
    "groups in a text": ({"groups": "ab"}, InvalidInput),
    "a group too long": ({"groups": ["x" * 1025, None]}, InvalidInput),
    "one group": ({"groups": 5}, InvalidInput),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_bad_documents_are_refused(made: tuple[Index, Twin], name: str) -> None:
    wrong, error = DOCUMENTS[name]
    given = {"ids": ["a", "b"], "images": IMAGES} | wrong
    if "texts" in wrong and "images" not in wrong:
        given["images"] = None
    refused(made, lambda index: index.add(**given), error)
    if error is not DuplicateId or name == "twice in the call":
        refused(made, lambda index: index.upsert(**given), error)
        refused(made, lambda index: index.add(iter([given])), error)


def test_a_payload_of_just_one_mebibyte_is_taken(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "i.cb")
    with index:
        index.add(["a"], images=IMAGES[:1], payloads=[{"": "x" * (2**20 - 7)}])
        assert len(index.get("a").payload[""]) == 2**20 - 7


def test_an_index_has_a_thousand_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = sample(tmp_path / "i.cb")
    with index:
        n_known = len(index.stats()["fields"])
        full = {f"f{number}": number for number in range(1000 - n_known)}
        index.add(["full"], images=IMAGES[:1], payloads=[full])
        before = index.generation
        for write in (index.add, index.upsert):
            with pytest.raises(TooManyFields, match="at most 1000 different fields .* got 1001"):
                write(["more"], images=IMAGES[:1], payloads=[{"one more": 1}])
        with pytest.raises(TooManyFields):
            index.update_payloads(["full"], [{"one more": 1}])
        assert index.generation == before and "more" not in index
        index.add(["known"], images=IMAGES[:1], payloads=[full])
        monkeypatch.setattr(mutations, "MAX_FIELDS", 500)  # a file of old, with more than it may have now
        index.add(["old"], images=IMAGES[:1], payloads=[{"f1": 1}])
        with pytest.raises(TooManyFields):
            index.add(["new"], images=IMAGES[:1], payloads=[{"one more": 1}])


@pytest.mark.parametrize(
    ("ids", "payloads", "error"),
    [
        (["p1", "absent"], [{}, {}], UnknownId),
        (["p1", "p1"], [{}, {}], DuplicateId),
        (["p1"], [{}, {}], InvalidInput),
        (["p1"], [5], InvalidInput),
        (["p1"], {"a": 1}, InvalidInput),
        (["p1"], [{"x": float("nan")}], InvalidInput),
        (["p1"], [{"x": "y" * 2**20}], PayloadTooLarge),
        (["p1"], [{str(n): 1 for n in range(1000)}], TooManyFields),
        (["1"], [{}], UnknownId),
        ([True], [{}], InvalidInput),
        ("p1", [{}], InvalidInput),
    ],
)
def test_bad_updates_are_refused(
    made: tuple[Index, Twin], ids: Any, payloads: Any, error: type[Exception]
) -> None:
    refused(made, lambda index: index.update_payloads(ids, payloads), error)


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        (["p1", "absent"], UnknownId), (["p1", "p1"], DuplicateId), (["1"], UnknownId), ("p1", InvalidInput),
        ([1.0], InvalidInput), (None, InvalidInput), ([["p1"]], InvalidInput),
    ],
)  # fmt: skip
def test_bad_deletions_are_refused(made: tuple[Index, Twin], ids: Any, error: type[Exception]) -> None:
    refused(made, lambda index: index.delete(ids), error)


@pytest.mark.parametrize("id", [None, 1.0, True, b"p1", ["p1"], "\ud800", "x" * 1025, 2**70])
def test_get_refuses_what_can_be_no_id(made: tuple[Index, Twin], id: Any) -> None:
    refused(made, lambda index: index.get(id), InvalidInput)


# Queries

SEARCHES: dict[str, tuple[dict[str, Any], type[Exception]]] = {
    "no kind": ({"images": None}, InvalidInput),
    "two kinds": ({"texts": TEXTS}, InvalidInput),
    "like and images": ({"like": "p1"}, InvalidInput),
    "k 0": ({"k": 0}, InvalidInput),
    "k negative": ({"k": -1}, InvalidInput),
    "k float": ({"k": 2.0}, InvalidInput),
    "k bool": ({"k": True}, InvalidInput),
    "k none": ({"k": None}, InvalidInput),
    "k text": ({"k": "5"}, InvalidInput),
    "target": ({"target": "images"}, InvalidInput),
    "target of another type": ({"target": 1}, InvalidInput),
    "distinct": ({"distinct": "id"}, InvalidInput),
    "distinct bool": ({"distinct": True}, InvalidInput),
    "max_distance text": ({"max_distance": "1"}, InvalidInput),
    "max_distance nan": ({"max_distance": float("nan")}, InvalidInput),
    "max_distance bool": ({"max_distance": True}, InvalidInput),
    "rescore": ({"rescore": 5}, InvalidInput),
    "candidates below k": ({"candidates": 3, "rescore": lambda _, hits: hits.distances}, InvalidInput),
    "candidates float": ({"candidates": 30.0, "rescore": lambda _, hits: hits.distances}, InvalidInput),
    "width": ({"images": IMAGES[:, :3]}, InvalidInput),
    "width alone": ({"images": IMAGES[0, :3]}, InvalidInput),
    "a number": ({"images": 5.0}, InvalidInput),
    "no features": ({"images": []}, InvalidInput),
    "three dimensions": ({"images": IMAGES[None]}, InvalidInput),
    "masked": ({"images": np.ma.masked_less(IMAGES, 0)}, NotFinite),
    "masked alone": ({"images": np.ma.masked_less(IMAGES[0], IMAGES[0].max())}, NotFinite),
    "text": ({"images": "abcdef"}, InvalidInput),
    "nan": ({"images": IMAGES * np.nan}, NotFinite),
    "infinity": ({"images": IMAGES * np.inf}, NotFinite),
    "filter that does not parse": ({"where": "year >> 3"}, FilterError),
    "empty filter": ({"where": ""}, FilterError),
    "filter of another type": ({"where": {"year": 3}}, FilterError),
    "unknown field": ({"where": "yeer = 3"}, UnknownField),
    "filter like SQL": ({"where": "1 = 1; DROP TABLE records"}, FilterError),
    "unknown like": ({"images": None, "like": "absent"}, UnknownId),
    "one unknown like": ({"images": None, "like": ["p1", "absent"]}, UnknownId),
    "like of another type": ({"images": None, "like": "1"}, UnknownId),
    "like float": ({"images": None, "like": 1.5}, InvalidInput),
    "like bool": ({"images": None, "like": True}, InvalidInput),
    "like bytes": ({"images": None, "like": b"\1"}, InvalidInput),
    "like a mapping": ({"images": None, "like": {"p1": 1}}, InvalidInput),
}


@pytest.mark.parametrize("name", SEARCHES)
def test_bad_searches_are_refused(made: tuple[Index, Twin], name: str) -> None:
    wrong, error = SEARCHES[name]
    refused(made, lambda index: index.search(**({"images": IMAGES} | wrong)), error)


def test_ragged_features_are_refused(made: tuple[Index, Twin]) -> None:
    ragged = [[1.0] * 6, [1.0] * 5]
    for call in (lambda i: i.add(["a", "b"], images=ragged), lambda i: i.search(images=ragged)):
        refused(made, call, InvalidInput, "rows of one length")


def test_an_unknown_field_is_answered_with_the_known_ones(made: tuple[Index, Twin]) -> None:
    refused(made, lambda index: index.search(images=IMAGES, where="yeer = 3"), UnknownField, "year")


def test_an_empty_index_knows_no_field(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i.cb", small_model()) as index, pytest.raises(UnknownField):
        index.search(images=IMAGES, where="year = 3")


# Numbers at the edge


@pytest.mark.parametrize("scale", [0.0, -0.0, 1e-45, 1e-30])
def test_small_features_are_ordinary(tmp_path: Path, scale: float) -> None:
    index, twin = sample(tmp_path / "i.cb")
    images, texts = np.full_like(IMAGES, scale), np.full_like(TEXTS, scale)
    with index:
        for target in (index, twin):
            target.add(["a", "b"], images=images, texts=texts)
            target.add(["c", "d"], images=images)
        compare(index, twin)
        for hits in index.search(images=images, target="document", k=1000):
            assert len(hits) == 94


@pytest.mark.parametrize("scale", [1e16, 1e20, 1e30, 1e38, 1e100, 1e149])
@pytest.mark.parametrize("mapping", ["cca", "sparse"])
def test_huge_features_are_ordinary(tmp_path: Path, mapping: str, scale: float) -> None:
    """Their squares are not finite in float32: never a warning, never an answer that means nothing."""
    index, twin = sample(tmp_path / "i.cb", _model(mapping))
    images, texts = IMAGES * np.float64(scale), TEXTS * np.float64(scale)
    if scale < 1e38:
        images, texts = images.astype(np.float32), texts.astype(np.float32)
    with index:
        for target in (index, twin):
            target.add(["a", "b"], images=images, texts=texts)
            target.add(["c", "d"], texts=texts)
        compare(index, twin)
        for query in ({"images": images}, {"texts": texts}):
            found = index.search(**query, target="document", k=1000)
            assert all(len(hits) == 94 and np.isfinite(hits.distances).all() for hits in found)


@cache
def _model(mapping: str) -> CMCQ:
    model = CMCQ(16, mapping=mapping, n_components=3, n_atoms=16, max_iter=1, random_state=0, n_jobs=1)
    return model.fit(*features(60, seed=0))


# Files


def test_something_that_is_there_is_never_overwritten(tmp_path: Path) -> None:
    model = small_model()
    path = tmp_path / "i.cb"
    index, twin = sample(path)
    index.close()
    before = path.read_bytes()
    for make in (Index.create, Index.from_training):
        with pytest.raises(IndexExists):
            make(path, model)
    (tmp_path / "note").write_text("mine")
    (tmp_path / "folder").mkdir()
    for name in ("note", "folder"):
        with pytest.raises(IndexExists):
            Index.create(tmp_path / name, model)
    assert (path.read_bytes(), (tmp_path / "note").read_text()) == (before, "mine")
    with Index.open(path, "rw") as index:
        with pytest.raises(IndexExists):
            index.backup(tmp_path / "note")
        with pytest.raises(IndexExists):
            index.backup(path)
        compare(index, twin)
    assert sorted(os.listdir(tmp_path)) == ["folder", "i.cb", "note"]


def _write_database(path: Path) -> None:
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE mine (x)")
    connection.commit()
    connection.close()


def _other_format(path: Path) -> None:
    index, _ = sample(path)
    index.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.commit()
    connection.close()


def _damage(path: Path) -> None:
    index, _ = sample(path)
    index.close()
    data = bytearray(path.read_bytes())
    place = data.rindex(small_model().to_bytes()[:64])
    data[place] ^= 1
    path.write_bytes(data)


def _cut(path: Path) -> None:
    index, _ = sample(path)
    index.close()
    path.write_bytes(path.read_bytes()[:-4096])


FILES: dict[str, tuple[Callable[[Path], Any], type[Exception]]] = {
    "missing": (lambda path: None, FileNotFoundError),
    "empty": (lambda path: path.write_bytes(b""), ForeignIndexFile),
    "a directory": (lambda path: path.mkdir(), ForeignIndexFile),
    "a text": (lambda path: path.write_text("Dear diary, " * 500), ForeignIndexFile),
    "a model": (lambda path: path.write_bytes(small_model().to_bytes()), ForeignIndexFile),
    "a database of others": (_write_database, ForeignIndexFile),
    "a newer format": (_other_format, NewerIndexFile),
    "damaged": (_damage, DamagedIndexFile),
    "cut off": (_cut, DamagedIndexFile),
}


@pytest.mark.parametrize("mode", ["r", "rw"])
@pytest.mark.parametrize("name", FILES)
def test_what_is_no_good_index_is_not_opened_nor_touched(tmp_path: Path, name: str, mode: str) -> None:
    make, error = FILES[name]
    path = tmp_path / "i.cb"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(error) as caught:
        Index.open(path, mode)
    assert type(caught.value) is error
    assert "i.cb" in str(caught.value)
    assert before == (path.read_bytes() if path.is_file() else None)
    assert os.listdir(tmp_path) == ([] if name == "missing" else ["i.cb"])


@pytest.mark.parametrize("mode", ["w", "a", "", None, "rb", 1])
def test_an_unknown_mode_is_refused(made: tuple[Index, Twin], mode: Any) -> None:
    refused(made, lambda index: Index.open(index.path, mode), InvalidInput, "mode")


def test_only_fitted_models_make_an_index(tmp_path: Path) -> None:
    for make in (Index.create, Index.from_training):
        with pytest.raises(NotFitted):
            make(tmp_path / "i.cb", CMCQ(16))
        for model in (None, "model.cbm", CMCQ):
            with pytest.raises(InvalidInput, match="CMCQ"):
                make(tmp_path / "i.cb", model)
    assert os.listdir(tmp_path) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        Index.create(tmp_path / "no" / "i.cb", small_model())
    with pytest.raises(FileNotFoundError):
        Index.open(tmp_path / "no" / "i.cb")
    assert os.listdir(tmp_path) == []
