"""Contents that were changed and sealed again: refused, or answered rightly."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from crossbyte import CMCQ, Index
from crossbyte.compute.executor import Workers
from crossbyte.errors import DamagedIndexFile, DamagedModelFile, NumericalError
from crossbyte.model.file_format import model_bytes, parse_model_bytes
from support.index_twin import document_model, features, small_model

from . import cases, resealed


@pytest.mark.long
def test_a_case_that_kills_or_stops_its_process_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The campaign sees what it is there for: a child is started that dies, and one that hangs."""
    monkeypatch.setattr(cases, "TIME_LIMIT", 1.0)
    for planted, expected in (("os.abort()", "died"), ("time.sleep(1e6)", "no step")):
        program = (
            "import os, sys, time; from pathlib import Path\n"
            "Path(sys.argv[1]).write_text('0\\n0 refused\\n1\\n')\n" + planted
        )
        report = tmp_path / "lines"
        child = subprocess.Popen([sys.executable, "-c", program, str(report)])
        assert expected in cases.wait(child, report)


# --- models -----------------------------------------------------------------------------------------------


def _resealed(model: CMCQ, array: str, change: object) -> bytes:
    contents = parse_model_bytes(model.to_bytes(), "model")
    value = change(contents.arrays[array]) if callable(change) else change
    return model_bytes({**contents.arrays, array: value}, contents.document)


def _first(value: float) -> object:
    def change(array: np.ndarray) -> np.ndarray:
        array = array.copy()
        array.reshape(-1)[0] = value
        return array

    return change


MODELS = {
    "sides": small_model,
    "stored": lambda: small_model(cross_term="stored"),
    "documents": document_model,
}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e38, -1e38])
def test_no_number_of_a_model_may_overflow(kind: str, value: float) -> None:
    model = MODELS[kind]()
    arrays = parse_model_bytes(model.to_bytes(), "model").arrays
    floats = [name for name, array in arrays.items() if array.dtype.kind == "f" and name != "history"]
    assert len(floats) >= 6
    for name in floats:
        with pytest.raises(DamagedModelFile, match="do not fit together"):
            CMCQ.from_bytes(_resealed(model, name, _first(value)))


@pytest.mark.parametrize("kind", MODELS)
def test_words_times_1e25_are_refused(kind: str) -> None:
    """Finite, and with a right digest: the sums of their search would not be."""
    with pytest.raises(DamagedModelFile, match="too far for float32"):
        CMCQ.from_bytes(_resealed(MODELS[kind](), "image.words", lambda words: words * np.float32(1e25)))


def test_a_model_may_be_as_large_as_it_says() -> None:
    """What is just within bounds has finite answers."""
    model = small_model(cross_term="stored")
    data = _resealed(model, "image.words", lambda words: words * np.float32(1e10))
    images, texts = features(20, 1)
    loaded = CMCQ.from_bytes(data)
    assert np.isfinite(loaded.distances(texts=texts, image_codes=loaded.encode_images(images))).all()


@pytest.mark.parametrize("kind", MODELS)
def test_features_whose_squares_overflow_are_refused(kind: str) -> None:
    """They became rows of zeros, or of NaN, without a word."""
    contents = parse_model_bytes(MODELS[kind]().to_bytes(), "model")
    contents.document["image.scale"] = 1e300
    model = CMCQ.from_bytes(model_bytes(contents.arrays, contents.document))
    with pytest.raises(NumericalError, match="squares overflow"):
        model.transform_images(features(3, 0)[0])
    with pytest.raises(NumericalError, match="squares overflow"):
        model.encode_images(features(3, 0)[0])


@pytest.mark.parametrize("value", [np.nan, np.inf, -1e17])
def test_points_without_a_place_are_refused(value: float) -> None:
    quantizer = small_model().fitted_.image_quantizer
    points = np.zeros((3, 3), np.float32)
    points[1, 2] = value
    with pytest.raises(NumericalError, match="too far"):
        quantizer.table(points)
    with Workers(1) as workers:
        if np.isfinite(value):
            assert quantizer.encode(points, workers).shape == (3, 2)
        else:
            with pytest.raises(NumericalError, match="none for item 1"):
                quantizer.encode(points, workers)


@pytest.mark.parametrize("kind", MODELS)
def test_types_and_shapes_of_a_model_are_those_of_its_settings(kind: str) -> None:
    model = MODELS[kind]()
    for name, array in parse_model_bytes(model.to_bytes(), "model").arrays.items():
        for change in (array[:-1], array[None], array.astype(np.int64), array[..., :0]):
            if kind == "documents" and name == "image_codes" and change.shape == (59, 2):
                continue  # one training document less is another model
            with pytest.raises(DamagedModelFile):
                CMCQ.from_bytes(_resealed(model, name, np.ascontiguousarray(change)))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n_codebooks", 2.0),
        ("n_codebooks", 0),
        ("n_codebooks", True),
        ("n_components", "3"),
        ("mapping", "auto"),
        ("image_power", 0.0),
        ("text_power", 2.0),
        ("group_size", 0),
        ("memory", -1),
        ("cross_term", None),
        ("shared_codebooks", 1),
        ("max_iter", 10**400),
        ("tol", -1.0),
        ("pull", {"correlation": 1e300, "cross_penalty": 0.1, "shrinkage": 1.0}),
        ("weights", {"sparsity": "x", "text_weight": 0.7, "alignment": 0.7, "ratio": False}),
    ],
)
def test_settings_that_no_fit_has_are_refused(name: str, value: object) -> None:
    contents = parse_model_bytes(small_model().to_bytes(), "model")
    contents.document["settings"][name] = value
    with pytest.raises(DamagedModelFile):
        CMCQ.from_bytes(model_bytes(contents.arrays, contents.document))


@pytest.mark.parametrize("name", ["image.scale", "text.scale", "image.epsilon"])
@pytest.mark.parametrize("value", [None, "1", True, 10**400, -1e30, [1.0]])
def test_numbers_of_a_model_are_numbers(name: str, value: object) -> None:
    contents = parse_model_bytes(small_model().to_bytes(), "model")
    contents.document[name] = value
    with pytest.raises(DamagedModelFile):
        CMCQ.from_bytes(model_bytes(contents.arrays, contents.document))


# --- indexes ----------------------------------------------------------------------------------------------


@pytest.fixture
def path(tmp_path: Path) -> Path:
    images, texts = features(150, 3)
    with Index.create(tmp_path / "a.cb", small_model(), n_jobs=1) as index:
        index.add(range(100), images=images[:100], texts=texts[:100], payloads=[{"n": i} for i in range(100)])
        index.build_cells(images=images, texts=texts, n_cells=4, recall=0.5)
        index.add([f"ä{i}" for i in range(10)], images=images[100:110])
        index.add(["x", 1000], texts=texts[110:112])
        index.delete([3])
    return tmp_path / "a.cb"


def _kinds(parts: resealed.Parts) -> dict[str, int]:
    return {values["kind"]: at for at, (_, values, _) in enumerate(parts.records)}


def _refused(path: Path, parts: resealed.Parts) -> None:
    parts.write()
    with pytest.raises(DamagedIndexFile):
        Index.open(path, n_jobs=1).close()


def test_a_file_taken_apart_and_put_together_is_whole(path: Path) -> None:
    resealed.Parts(path).write()
    with Index.open(path, n_jobs=1) as index:
        index.verify()
        assert len(index) == 111


@pytest.mark.parametrize(
    ("kind", "name", "value"),
    [
        ("documents", "rows", 12.0),
        ("documents", "rows", True),
        ("documents", "first", 2**62),
        ("documents", "first", -5),
        ("documents", "first", None),
        ("documents", "fields", {"n": "number"}),
        ("documents", "fields", ["n"]),
        ("documents", "fields", {"n": [7]}),
        ("documents", "ids", "integer"),
        ("documents", "cells", 7),
        ("documents", "cells", {"digest": "x", "added": 3}),
        ("cells", "recall", 2.0),
        ("cells", "recall", "1"),
        ("cells", "sides", []),
        ("cells", "directions", {"x-to-image": {}}),
        ("cells", "version", None),
    ],
)
def test_documents_of_records_are_checked(path: Path, kind: str, name: str, value: object) -> None:
    parts = resealed.Parts(path)
    at = _kinds(parts)[kind]
    parts.records[at][1]["document"][name] = value
    if (kind, name) == ("cells", "version"):  # of a later version, and ignored
        parts.write()
        with Index.open(path, n_jobs=1) as index:
            assert index.cells is None
        return
    _refused(path, parts)


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e38])
def test_centres_too_far_away_are_refused(path: Path, value: float) -> None:
    parts = resealed.Parts(path)
    _, _, data = parts.records[_kinds(parts)["cells"]]
    centres = np.frombuffer(data["centres.image"], "<f4").copy()
    centres[1] = value
    data["centres.image"] = centres.tobytes()
    _refused(path, parts)


def test_ids_that_are_no_text_are_refused(path: Path) -> None:
    for wrong in (b"\xff", b"\xa4"):
        parts = resealed.Parts(path)
        texts = [data for _, values, data in parts.records if values["document"].get("ids") == "text"]
        texts[0]["ids.text"] = wrong + texts[0]["ids.text"][1:]
        _refused(path, parts)


@pytest.mark.parametrize("wrong", [b"z", b"i"])
def test_ids_without_their_type_are_refused(path: Path, wrong: bytes) -> None:
    parts = resealed.Parts(path)
    tagged = [data for _, values, data in parts.records if values["document"].get("ids") == "tagged"]
    assert tagged[0]["ids.text"] == b"sxi1000"
    tagged[0]["ids.text"] = wrong + b"xi1000"
    _refused(path, parts)


def test_documents_that_come_twice_are_refused(path: Path) -> None:
    parts = resealed.Parts(path)
    number, values, data = parts.records[_kinds(parts)["documents"]]
    parts.records.append((number + 50, values, data))
    parts.catalogue[4] += 1
    parts.catalogue[5] = number + 51
    _refused(path, parts)


def test_numbers_of_two_codings_at_once_are_found_by_verify(path: Path) -> None:
    parts = resealed.Parts(path)
    parts.records[_kinds(parts)["documents"]][1]["document"]["first"] = 50
    parts.write()
    with Index.open(path, n_jobs=1) as index, pytest.raises(DamagedIndexFile, match="number occurs twice"):
        index.verify()


def test_an_index_without_the_bytes_of_its_model_is_refused(path: Path) -> None:
    parts = resealed.Parts(path)
    parts.records[_kinds(parts)["model"]][2].clear()
    _refused(path, parts)


@pytest.mark.parametrize(
    ("place", "value"), [*((place, 2**63 - 1) for place in range(7)), (5, 2**42)], ids=str
)
def test_numbers_of_the_catalogue_are_bounded(path: Path, place: int, value: int) -> None:
    parts = resealed.Parts(path)
    parts.catalogue[place] = value
    _refused(path, parts)


def test_numbers_that_json_can_only_spell_are_refused(path: Path) -> None:
    parts = resealed.Parts(path)
    parts.write()
    with closing(sqlite3.connect(path)) as connection:
        number, head = connection.execute("SELECT max(number), head FROM records").fetchone()
    assert b"1e999" not in head
    with pytest.raises(DamagedIndexFile):
        resealed.records.parse_head("x", number, head.replace(b'"generation":', b'"a":1e999,"generation":'))
