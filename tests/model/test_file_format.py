"""The model file: what goes in comes out, and equal contents give equal bytes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from crossbyte.errors import InvalidInput
from crossbyte.model import file_format as model_file
from crossbyte.model.file_format import (
    MAX_HEADER_BYTES,
    model_bytes,
    parse_model_bytes,
    read_model_file,
    write_model_file,
)
from support.model_files import (
    ARRAYS,
    DOCUMENT,
    json_values,
    same,
    text,
)

# What goes in comes out


@pytest.mark.parametrize("dtype", ["float32", "float64", "uint8", "int32", "int64"])
def test_round_trip_of_every_dtype_and_shape(tmp_path: Path, dtype: str) -> None:
    for shape in [(), (1,), (7,), (2, 3), (2, 3, 4), (0,), (0, 5), (3, 0)]:
        array = np.random.default_rng(0).integers(0, 250, shape).astype(dtype)
        written, path = {"a": array, "b": np.ones_like(array)}, tmp_path / f"{shape}.cbm"
        digest = write_model_file(path, written, {})
        arrays, document, read_digest = read_model_file(path)
        assert same(arrays, written), shape
        assert arrays["a"].dtype.isnative and arrays["a"].flags.c_contiguous and arrays["a"].flags.writeable
        assert document == {} and read_digest == digest and len(bytes.fromhex(digest)) == 32


def test_extreme_floats_keep_their_bits() -> None:
    bits = np.array([0x7FC00001, 0xFF800000, 0x80000000, 1], dtype=np.uint32).view(np.float32)
    assert parse_model_bytes(model_bytes({"a": bits}, {}), "m").arrays["a"].tobytes() == bits.tobytes()


@given(document=st.dictionaries(text, json_values))
def test_round_trip_of_any_document(document: dict[str, Any]) -> None:
    read = parse_model_bytes(model_bytes({}, document), "m").document
    assert json.dumps(read, sort_keys=True) == json.dumps(document, sort_keys=True)


def test_no_arrays_and_tuples_as_lists() -> None:
    contents = parse_model_bytes(model_bytes({}, {"a": (1, (2.5, None))}), "m")
    assert contents.arrays == {} and contents.document == {"a": [1, [2.5, None]]}


def test_the_safetensors_library_opens_it_and_finds_one_key(tmp_path: Path) -> None:
    digest = write_model_file(tmp_path / "m.cbm", ARRAYS, DOCUMENT)
    with safetensors.safe_open(tmp_path / "m.cbm", framework="np") as opened:
        assert list(opened.metadata()) == ["crossbyte"]
        envelope = json.loads(opened.metadata()["crossbyte"])
        assert same({key: opened.get_tensor(key) for key in opened.keys()}, ARRAYS)  # noqa: SIM118
    assert envelope == {"name": "crossbyte-model", "format": 1, "digest": digest, "document": DOCUMENT}


# Equal contents, equal bytes


def test_order_of_the_mappings_does_not_matter() -> None:
    many = {f"a{i}": np.full(i % 3, i, dtype=["f4", "f8", "u1", "i4", "i8"][i % 5]) for i in range(40)}
    document = {f"k{i}": {"x": i, "y": i} for i in range(40)}
    backwards = {key: dict(reversed(value.items())) for key, value in reversed(document.items())}
    assert model_bytes(dict(reversed(many.items())), backwards) == model_bytes(many, document)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_memory_order_and_byte_order_do_not_matter(dtype: str) -> None:
    array = np.arange(24, dtype=dtype).reshape(2, 3, 4)
    expected = model_bytes({"a": array}, {})
    strided = np.zeros((4, 6, 8), dtype=dtype)[::2, ::2, ::-2]
    strided[:] = array
    variants = [np.asfortranarray(array), array.astype(array.dtype.newbyteorder(">")), strided]
    assert [model_bytes({"a": variant}, {}) == expected for variant in variants] == [True] * 3
    assert same(parse_model_bytes(expected, "m").arrays, {"a": array})


def test_another_process_with_another_hash_seed_writes_the_same_bytes() -> None:
    script = (
        "import sys, numpy as np; from crossbyte.model.file_format import model_bytes\n"
        "arrays = {k: np.arange(3, dtype='f4') for k in {'x', 'y', 'z', 'w'}}\n"
        "sys.stdout.write(model_bytes(arrays, {k: 1 for k in {'p', 'q', 'r'}}).hex())"
    )
    source = str(Path(model_file.__file__).parents[2])
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            check=True,
            capture_output=True,
            env={**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": source},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1


def test_the_identity_is_pinned() -> None:
    """A change here makes every file that is out there unreadable: raise FORMAT instead."""
    digest = "bf3e9a94126f842e2e7b831ebb8582a7d550cf147bc729ce39505a0edbfd2655"
    assert parse_model_bytes(model_bytes(ARRAYS, DOCUMENT), "m").digest == digest


def test_different_contents_have_different_identities() -> None:
    zeros = np.zeros(4, dtype=np.uint8)
    contents = [
        ({"a": zeros}, {}),
        ({"b": zeros}, {}),
        ({"a": zeros.reshape(2, 2)}, {}),
        ({"a": zeros.view("i4")}, {}),
        ({"a": zeros.view("f4")}, {}),
        ({"a": zeros[:2], "b": zeros[2:]}, {}),
        ({"a": zeros[:3], "b": zeros[3:]}, {}),
        ({"a": zeros}, {"x": 1}),
        ({"a": zeros}, {"x": 1.0}),
        ({"a": zeros}, {"x": True}),
        ({}, {}),
    ]
    assert len({parse_model_bytes(model_bytes(*each), "m").digest for each in contents}) == len(contents)


# What cannot be stored is refused


@pytest.mark.parametrize(
    ("document", "place"),
    [
        ({"a": {"b": [1.0, float("nan")]}}, r"document\.a\.b\[1\]"),
        ({"a": float("inf")}, r"document\.a"),
        ({"a": np.float64("-inf")}, r"document\.a"),
        ({"a": np.int64(1)}, r"document\.a"),
        ({"a": np.zeros(2)}, r"document\.a"),
        ({"a": b"bytes"}, r"document\.a"),
        ({"a": {1: 2}}, r"a key of document\.a"),
        ({"a": "\ud800"}, r"document\.a"),
        ({"\ud800": 1}, "a key of document"),
        ({"a": 10**5000}, "JSON"),
        ([1], "mapping"),
    ],
)
def test_a_document_that_json_would_bend_is_refused(tmp_path: Path, document: Any, place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        write_model_file(tmp_path / "m.cbm", {}, document)
    assert list(tmp_path.iterdir()) == []


def test_depth_is_limited_and_a_circle_is_no_crash() -> None:
    deep: dict[str, Any] = {}
    for _ in range(64):
        deep = {"a": deep}
    assert parse_model_bytes(model_bytes({}, deep), "m").document == deep
    circle: dict[str, Any] = {}
    circle["a"] = circle
    for document in ({"a": deep}, circle):
        with pytest.raises(InvalidInput, match="64 levels"):
            model_bytes({}, document)


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, "f2"),
        np.zeros(2, bool),
        np.zeros(2, "c8"),
        np.array(["a"]),
        np.array([None]),
        [1.0],
        np.zeros(2, [("x", "f4")]),
        np.ma.masked_array([1.0], [True]),
        np.zeros(2, "M8[s]"),
        np.zeros(2, "u4"),
    ],
)
def test_an_array_of_another_type_is_refused(array: Any) -> None:
    with pytest.raises(InvalidInput, match="'a'"):
        model_bytes({"a": array}, {})


@pytest.mark.parametrize("name", ["", "__metadata__", "a b", "é", "a\n", "x" * 201, 3])
def test_an_array_name_that_json_could_spell_twice_is_refused(name: Any) -> None:
    with pytest.raises(InvalidInput, match="array name"):
        model_bytes({name: np.zeros(1)}, {})


def test_what_could_not_be_read_again_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=str(MAX_HEADER_BYTES)):
        write_model_file(tmp_path / "m.cbm", {}, {"a": "x" * MAX_HEADER_BYTES})
    with pytest.raises(InvalidInput, match="max_bytes"):
        write_model_file(tmp_path / "m.cbm", {"a": np.zeros(100)}, {}, max_bytes=800)
    assert list(tmp_path.iterdir()) == []
    large = {"a": "x" * (MAX_HEADER_BYTES - 1000)}
    assert parse_model_bytes(model_bytes({}, large), "m").document == large
