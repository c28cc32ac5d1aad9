"""The model file: what is damaged, newer or foreign is refused, each in its own words."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st

from crossbyte.errors import (
    DamagedModelFile,
    ForeignModelFile,
    ModelFileError,
    NewerModelFile,
    TruncatedModelFile,
)
from crossbyte.model import file_format as model_file
from crossbyte.model.file_format import (
    FORMAT,
    MAX_HEADER_BYTES,
    model_bytes,
    parse_model_bytes,
    read_model_file,
    write_model_file,
)
from support.model_files import (
    ARRAYS,
    DOCUMENT,
    damaged_copy,
    header_of,
    json_values,
    same,
    with_header,
    with_text,
)

# Damage


def test_every_single_bit_flip_is_refused() -> None:
    data = bytearray(model_bytes(ARRAYS, DOCUMENT))
    assert len(data) <= 2048
    accepted = []
    for position in range(len(data) * 8):
        data[position // 8] ^= 1 << position % 8
        try:
            parse_model_bytes(bytes(data), "m")
            accepted.append(position)
        except ModelFileError:
            pass
        data[position // 8] ^= 1 << position % 8
    assert accepted == []
    assert same(parse_model_bytes(bytes(data), "m").arrays, ARRAYS)


def test_a_flip_in_the_arrays_or_in_a_value_is_called_damage() -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    for place in (len(data) - 1, data.index(b"caf") + 1):
        flipped = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        with pytest.raises(DamagedModelFile, match="digest"):
            parse_model_bytes(flipped, "m")


def test_every_truncation_is_refused() -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    for length in range(len(data)):
        with pytest.raises(ForeignModelFile if length <= 8 else TruncatedModelFile):
            parse_model_bytes(data[:length], "m")


@pytest.mark.parametrize("tail", [b"\0", b" ", b"x" * 100, model_bytes(ARRAYS, DOCUMENT)])
@pytest.mark.parametrize("arrays", [ARRAYS, {}], ids=["arrays", "no arrays"])
def test_trailing_bytes_are_refused(tail: bytes, arrays: dict[str, np.ndarray]) -> None:
    with pytest.raises(DamagedModelFile, match=f"{len(tail)} bytes follow"):
        parse_model_bytes(model_bytes(arrays, DOCUMENT) + tail, "m")


@pytest.mark.parametrize(
    "changes",
    [
        {"document": {**DOCUMENT, "n": 4}},
        {"document": []},
        {"digest": "0" * 64},
        {"digest": None},
        {"format": 0},
        {"format": True},
        {"format": 1.0},
        {"format": "1"},
        {"format": None},
        {"extra": 1},
    ],
)
def test_a_changed_envelope_is_damage(changes: dict[str, Any]) -> None:
    assert same(parse_model_bytes(damaged_copy(), "m").arrays, ARRAYS)  # without a change it is whole
    with pytest.raises(DamagedModelFile):
        parse_model_bytes(damaged_copy(**changes), "m")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"n":3', '"n":3,"n":3'),
        ('"n":3', '"n":NaN'),
        ('"n":3', '"n":-Infinity'),
        ('"n":3', '"n":1e999'),
        ('"n":3', '"n": 3'),
        ("1e-22", "1E-22"),
        ("\\u00e9", "\\u00E9"),
        ("\\u00e9", "é"),
        ('"n":3', '"n":3.0'),
        ('"n":3', '"n":' + "[" * 100_000 + "]" * 100_000),
        ('"n":3', '"n":' + "1" * 5000),
        ('"n":3', '"n":'),
    ],
)
def test_another_spelling_of_the_document_is_damage(old: str, new: str) -> None:
    text = header_of(model_bytes(ARRAYS, DOCUMENT))["__metadata__"]["crossbyte"]
    assert old in text
    assert same(parse_model_bytes(with_text(text), "m").arrays, ARRAYS)
    with pytest.raises(DamagedModelFile):
        parse_model_bytes(with_text(text.replace(old, new)), "m")


def test_keys_twice_in_the_header_are_damage() -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    text = json.dumps(header_of(data), separators=(",", ":"))
    codes = json.dumps({"codes": header_of(data)["codes"]}, separators=(",", ":"))[1:-1]
    for twice in (text[:-1] + "," + codes + "}", text.replace('"dtype":"U8"', '"dtype":"U8","dtype":"U8"')):
        assert len(twice) > len(text)
        with pytest.raises(DamagedModelFile, match="twice"):
            parse_model_bytes(with_header(twice, data), "m")


@pytest.mark.parametrize(
    "entry",
    [
        {"data_offsets": [0, 12]},
        {"data_offsets": [13, 18]},
        {"data_offsets": [12, 18, 18]},
        {"note": "outside the digest"},
        {"data_offsets": [18, 12]},
        {"data_offsets": [12, -1]},
        {"data_offsets": [12]},
        {"data_offsets": 5},
        {"data_offsets": None},
        {"data_offsets": {}},
        {"shape": [2, 3]},
        {"data_offsets": [12, 18.0]},
        {"data_offsets": ["12", "18"]},
        {"shape": [-3, -2]},
        {"shape": None},
        {"shape": [2**63, 2]},
        {"shape": [6, 1.0]},
        {"shape": [2**70]},
        {"dtype": "I8"},
        {"dtype": "BF16"},
        {"dtype": "F4"},
        {"dtype": ["U8"]},
        {"dtype": None},
        {"dtype": "X"},
    ],
)
def test_an_impossible_entry_of_an_array_is_damage(entry: dict[str, Any]) -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    header = header_of(data)
    assert header["codes"] == {"dtype": "U8", "shape": [3, 2], "data_offsets": [12, 18]}
    with pytest.raises(DamagedModelFile):
        parse_model_bytes(with_header({**header, "codes": {**header["codes"], **entry}}, data), "m")


def test_the_words_for_a_constant_that_json_lacks() -> None:
    with pytest.raises(DamagedModelFile, match="NaN is no JSON number"):
        parse_model_bytes(with_text('{"n":NaN}'), "m")


def test_a_header_over_the_limit_is_refused() -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    text = json.dumps(header_of(data), separators=(",", ":"))
    assert same(parse_model_bytes(with_header(text.ljust(MAX_HEADER_BYTES), data), "m").arrays, ARRAYS)
    with pytest.raises(DamagedModelFile, match=f"more than {MAX_HEADER_BYTES}"):
        parse_model_bytes(with_header(text.ljust(MAX_HEADER_BYTES + 1), data), "m")


@pytest.mark.parametrize("entry", [None, [], "U8", 3, {}])
def test_an_array_without_an_entry_is_damage(entry: Any) -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    with pytest.raises(DamagedModelFile):
        parse_model_bytes(with_header({**header_of(data), "codes": entry}, data), "m")


def test_arrays_exchanged_renamed_or_dropped_are_damage() -> None:
    data = model_bytes({"a": np.zeros(2), "b": np.ones(2)}, {})
    header = header_of(data)
    exchanged = {**header, "a": header["b"], "b": header["a"]}
    renamed = {("c" if key == "a" else key): value for key, value in header.items()}
    dropped = {key: value for key, value in header.items() if key != "a"}
    overlapping = {**header, "a": header["b"]}
    extra = {**header, "c": {"dtype": "U8", "shape": [0], "data_offsets": [32, 32]}}
    more_metadata = {**header, "__metadata__": {**header["__metadata__"], "author": "x"}}
    assert len(parse_model_bytes(with_header(header, data), "m").arrays) == 2
    for changed in (exchanged, renamed, dropped, overlapping, extra, more_metadata):
        with pytest.raises(DamagedModelFile):
            parse_model_bytes(with_header(changed, data), "m")


class Panic(BaseException):
    """As a fault inside the Rust library arrives: no Exception."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (Panic("p"), DamagedModelFile),
        (KeyError("k"), DamagedModelFile),
        (MemoryError(), MemoryError),
        (KeyboardInterrupt(), KeyboardInterrupt),
    ],
)
def test_whatever_safetensors_raises_is_translated(
    monkeypatch: pytest.MonkeyPatch, error: BaseException, expected: type[BaseException]
) -> None:
    def fail(data: bytes) -> None:
        raise error

    monkeypatch.setattr(safetensors, "deserialize", fail)
    with pytest.raises(expected):
        parse_model_bytes(model_bytes(ARRAYS, DOCUMENT), "m")


# Newer and foreign


def test_a_newer_format_is_told_apart_before_anything_else_is_judged() -> None:
    data = damaged_copy(format=FORMAT + 1, novelty={}, digest="other")
    header = header_of(data)
    header["codes"] = {"dtype": "F4", "place": "elsewhere"}
    header["__metadata__"]["more"] = "keys"
    for each in (data, with_header(header, data), data + b"tail", damaged_copy(format=10**30)):
        with pytest.raises(NewerModelFile, match=r"^name\.cbm: .*upgrade"):
            parse_model_bytes(each, "name.cbm")


def zip_bytes(folder: Path) -> bytes:
    with zipfile.ZipFile(folder / "z.zip", "w") as archive:
        archive.writestr("a", "b")
    return (folder / "z.zip").read_bytes()


@pytest.mark.parametrize(
    "make",
    [
        lambda _: b"",
        lambda _: b"\0" * 8,
        lambda _: b"\0" * 100,
        lambda _: b"a text of somebody\n" * 20,
        zip_bytes,
        lambda _: safetensors.numpy.save(ARRAYS),
        lambda _: safetensors.numpy.save(ARRAYS, {"format": "pt"}),
        lambda _: safetensors.numpy.save(ARRAYS, {"crossbyte": '{"name":"another"}'}),
        lambda _: safetensors.numpy.save(ARRAYS, {"format": "pt"})[:-1],
        lambda _: with_header("[1]", b"\0" * 8),
        lambda _: with_header('{"__metadata__":3}', b"\0" * 8),
        lambda _: with_header('{"__metadata__":{"crossbyte":3}}', b"\0" * 8),
        lambda _: with_header("[" * 200_000, b"\0" * 8),
        lambda _: (2**63).to_bytes(8, "little") + b'{"a":1}',
    ],
)
def test_a_foreign_file_is_told_apart(tmp_path: Path, make: Callable[[Path], bytes]) -> None:
    path = tmp_path / "foreign"
    path.write_bytes(make(tmp_path))
    with pytest.raises(ForeignModelFile, match="foreign: expected a crossbyte model"):
        read_model_file(path)


def test_what_is_no_regular_file_is_foreign_and_never_waits(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path, tmp_path / "pipe", "/dev/null"):
        with pytest.raises(ForeignModelFile, match="regular file"):
            read_model_file(path)


def test_a_missing_file_is_simply_missing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        read_model_file(tmp_path / "missing.cbm")
    assert not isinstance(caught.value, ModelFileError)


def test_a_file_over_the_limit_is_refused(tmp_path: Path) -> None:
    write_model_file(tmp_path / "m.cbm", ARRAYS, DOCUMENT)
    size = (tmp_path / "m.cbm").stat().st_size
    assert read_model_file(tmp_path / "m.cbm", max_bytes=size).document == DOCUMENT
    with pytest.raises(ModelFileError, match="max_bytes"):
        read_model_file(tmp_path / "m.cbm", max_bytes=size - 1)
    with (tmp_path / "sparse").open("wb") as stream:
        stream.truncate(model_file.MAX_FILE_BYTES + 1)
    with pytest.raises(ModelFileError, match="max_bytes"):
        read_model_file(tmp_path / "sparse")


@given(data=st.binary(max_size=300))
def test_random_bytes_give_nothing_but_a_model_file_error(data: bytes) -> None:
    framed = len(data).to_bytes(8, "little") + data
    ours = with_header('{"__metadata__":{"crossbyte":"', b"\0" * 8) + data
    for each in (data, framed, ours, ours[:38] + data + b'"}}', b"\x50" + b"\0" * 7 + data):
        with pytest.raises(ModelFileError):
            parse_model_bytes(each, "random")


@given(header=st.dictionaries(st.sampled_from(["__metadata__", "codes", "map"]), json_values))
def test_random_headers_give_nothing_but_a_model_file_error(header: dict[str, Any]) -> None:
    data = model_bytes(ARRAYS, DOCUMENT)
    for each in (header, {**header, "__metadata__": header_of(data)["__metadata__"]}):
        with pytest.raises(ModelFileError):
            parse_model_bytes(with_header(each, data), "random")
