"""Users' files: every form comes back as it was written, and every failure names the file."""

from __future__ import annotations

import datetime
import importlib.util
import io
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
import scipy.io
from scipy import sparse

from crossbyte.data import sandbox
from crossbyte.data.dataset import Dataset
from crossbyte.data.readers import describe, read_dataset, read_features, read_rows
from crossbyte.data.safe_open import Limits
from crossbyte.data.sandbox import ChildEnded, read_frames
from crossbyte.errors import DataFileError, MissingExtra
from support import hostile

TYPES = ["bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]
TYPES += ["float16", "float32", "float64"]


@pytest.fixture
def images(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(6, 4)).astype(np.float32)


@pytest.fixture
def texts(rng: np.random.Generator) -> sparse.csr_matrix:
    return sparse.csr_matrix((rng.random((6, 5)) < 0.4).astype(np.uint8))


def parts(name: str, matrix: sparse.csr_matrix) -> dict[str, np.ndarray]:
    found = {"data": matrix.data, "indices": matrix.indices, "indptr": matrix.indptr}
    return {f"{name}_{part}": array for part, array in (found | {"shape": np.array(matrix.shape)}).items()}


def same_sparse(one: Any, other: Any) -> bool:
    return one.shape == other.shape and (one != other).nnz == 0


# One side


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("ends", ["<", ">"])
def test_npy_round_trip(tmp_path: Path, rng: np.random.Generator, ends: str, order: Any) -> None:
    for dtype in TYPES:
        matrix = (rng.random((5, 3)) * 100).astype(np.dtype(dtype).newbyteorder(ends), order=order)
        np.save(tmp_path / "a.npy", matrix)
        read = read_features(tmp_path / "a.npy")
        assert np.array_equal(read, matrix) and read.dtype == np.dtype(dtype) and read.dtype.isnative, dtype
        assert read.flags["F_CONTIGUOUS" if order == "F" else "C_CONTIGUOUS"] and type(read) is np.ndarray


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_round_trip(tmp_path: Path, images: np.ndarray, save: Callable[..., None]) -> None:
    save(tmp_path / "a.npz", images=images, more=images[:, :2].T, names=np.array(["a", "é"]))
    assert np.array_equal(read_features(tmp_path / "a.npz", key="images"), images)
    assert np.array_equal(read_features(tmp_path / "a.npz", key="more"), images[:, :2].T)
    with pytest.raises(
        DataFileError, match=r"a\.npz: expected one matrix.*choose one with key=.*images float32"
    ):
        read_features(tmp_path / "a.npz")
    with pytest.raises(DataFileError, match="expected an array called 'x'; there are: images float32"):
        read_features(tmp_path / "a.npz", key="x")
    with pytest.raises(DataFileError, match="got text of shape|got str"):
        read_features(tmp_path / "a.npz", key="names")


def test_the_only_matrix_needs_no_key(tmp_path: Path, images: np.ndarray, texts: sparse.csr_matrix) -> None:
    np.savez(tmp_path / "dense.npz", x=images, ids=np.arange(6))
    assert np.array_equal(read_features(tmp_path / "dense.npz"), images)
    np.savez(tmp_path / "sparse.npz", **parts("x", texts), ids=np.arange(6))
    assert same_sparse(read_features(tmp_path / "sparse.npz"), texts)


@pytest.mark.parametrize("kind", ["csr_matrix", "csc_matrix", "csr_array", "csc_array"])
def test_scipy_archives(tmp_path: Path, texts: sparse.csr_matrix, kind: str) -> None:
    sparse.save_npz(tmp_path / "a.npz", getattr(sparse, kind)(texts))
    read = read_features(tmp_path / "a.npz")
    assert sparse.issparse(read) and read.format == "csr" and same_sparse(read, texts)


def test_csv_matrix(tmp_path: Path, images: np.ndarray) -> None:
    np.savetxt(tmp_path / "a.csv", images, delimiter=",", header="w,x,y,z", comments="")
    read = read_features(tmp_path / "a.csv")
    assert read.dtype == np.float64 and np.allclose(read, images, rtol=1e-12, atol=0)
    (tmp_path / "b.CSV").write_text('"1", 2\r\n-3e2,.5')
    assert read_features(tmp_path / "b.CSV").tolist() == [[1, 2], [-300, 0.5]]


def test_mat_matrix(tmp_path: Path, images: np.ndarray, texts: sparse.csr_matrix) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"I_tr": images, "T_tr": texts.astype(float), "who": "me"})
    assert np.array_equal(read_features(tmp_path / "a.mat", key="I_tr"), images)
    assert same_sparse(read_features(tmp_path / "a.mat", key="T_tr"), texts)


@pytest.mark.parametrize("size", [4, -1])
def test_parquet_matrix(tmp_path: Path, images: np.ndarray, size: int) -> None:
    column = pyarrow.array(images.tolist(), pyarrow.list_(pyarrow.float32(), size))
    table = pyarrow.table({"v": column, "name": list("abcdef")})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=4)
    assert np.array_equal(read_features(tmp_path / "a.parquet"), images)


def test_parquet_columns_of_numbers(tmp_path: Path, images: np.ndarray) -> None:
    table = pyarrow.table({f"x{i}": column for i, column in enumerate(images.T)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert np.array_equal(read_features(tmp_path / "a.parquet"), images)


# Payloads


def test_csv_rows_have_typed_columns(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(
        'n,x,zip,yes,word,nothing\n1,1.5,01234,true,"a, ""b""",\n'
        '-20,,10115,FALSE,,\n,2e3,99,,"two\nlines",\n',
        encoding="utf-8-sig",
    )
    keys = ("n", "x", "zip", "yes", "word", "nothing")
    assert read_rows(tmp_path / "a.csv") == [
        dict(zip(keys, (1, 1.5, "01234", True, 'a, "b"', ""), strict=True)),
        dict(zip(keys, (-20, None, "10115", False, "", ""), strict=True)),
        dict(zip(keys, (None, 2000.0, "99", None, "two\nlines", ""), strict=True)),
    ]


def test_csv_keeps_as_text_what_numbers_would_bend(tmp_path: Path) -> None:
    words = (
        "12345678901234567890",
        "9223372036854775808",
        "1e999",
        "+1",
        "1_0",
        "1234567890123456.5",
        "nan",
        "1 ",
    )
    (tmp_path / "a.csv").write_text(f"{','.join('abcdefgh')}\n{','.join(words)}\n{'1,' * 7}1\n")
    first, second = read_rows(tmp_path / "a.csv")
    assert tuple(first.values()) == words and set(second.values()) == {"1"}
    (tmp_path / "b.csv").write_text("a,b\n9223372036854775807,-9223372036854775807\n")
    assert read_rows(tmp_path / "b.csv") == [{"a": 2**63 - 1, "b": 1 - 2**63}]


@pytest.mark.parametrize("names", ["a,a", "a,", " ,b"])
def test_csv_header_names_each_column(tmp_path: Path, names: str) -> None:
    (tmp_path / "a.csv").write_text(f"{names}\n1,2\n")
    with pytest.raises(DataFileError, match=r"a\.csv: line 1: expected a header"):
        read_rows(tmp_path / "a.csv")


def test_jsonl_rows(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": 1, "b": [1.5, null, {"c": "é"}]}\n{}\n', encoding="utf-8")
    assert read_rows(tmp_path / "a.jsonl") == [{"a": 1, "b": [1.5, None, {"c": "é"}]}, {}]
    (tmp_path / "b.jsonl").write_text('{"a": 1}\n{"a": 2,}\n')
    with pytest.raises(DataFileError, match=r"b\.jsonl: line 2: expected a JSON object"):
        read_rows(tmp_path / "b.jsonl")


def test_parquet_rows(tmp_path: Path) -> None:
    day = datetime.date(2020, 5, 17)
    columns = {"n": [1, None], "x": [0.5, float("nan")], "t": ["é", None], "l": [["a"], []], "d": [day, None]}
    columns |= {"s": [{"k": 1}, None], "v": [[1, 2], [3, 4]], "b": [True, False]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    assert read_rows(tmp_path / "a.parquet") == [
        {"n": 1, "x": 0.5, "t": "é", "l": ["a"], "d": "2020-05-17", "s": {"k": 1}, "v": [1, 2], "b": True},
        {"n": None, "x": None, "t": None, "l": [], "d": None, "s": None, "v": [3, 4], "b": False},
    ]


def test_many_parquet_rows_stay_in_order(tmp_path: Path) -> None:
    words = [f"w{i}" for i in range(1234)]
    pyarrow.parquet.write_table(pyarrow.table({"w": words}), tmp_path / "a.parquet", row_group_size=77)
    assert [row["w"] for row in read_rows(tmp_path / "a.parquet")] == words


# Datasets


def layout(images: np.ndarray, texts: sparse.csr_matrix) -> dict[str, np.ndarray]:
    """The layout of our shared data, with everything that may be there."""
    n_rows = len(images)
    return {
        "image_train": images,
        **parts("text_train", texts),
        "image_query": images[:2],
        "text_query": texts[:2].toarray(),
        "name_train": np.array([f"p{i}.jpg" for i in range(n_rows)]),
        "group_train": np.array([0, 0, 1, 1, 2, 2]),
        "class_train": np.arange(n_rows, dtype=np.int16),
        "score_train": np.array([0.5, np.nan, 1, 2, 3, 4], dtype=np.float32),
        "good_train": np.array([True, False] * 3),
        "captions_train": np.array([["a dog", "a cat"]] * n_rows),
        "label_train": np.eye(n_rows, dtype=np.uint8),
        "id_query": np.array(["x", "y"]),
        "vocabulary": np.array(["one", "two", "three", "four", "five"]),
        "class_names": np.array(["c"] * n_rows),
    }


FIRST = {"class": 0, "score": 0.5, "good": True, "captions": ["a dog", "a cat"]}


def test_dataset_of_the_shared_layout(tmp_path: Path, images: np.ndarray, texts: sparse.csr_matrix) -> None:
    np.savez_compressed(tmp_path / "a.npz", **layout(images, texts))
    data = read_dataset(tmp_path / "a.npz")
    assert len(data) == 6 and np.array_equal(data.images, images) and same_sparse(data.texts, texts)
    assert data.ids == [f"p{i}.jpg" for i in range(6)] and data.groups == [0, 0, 1, 1, 2, 2]
    assert data.payloads is not None and data.payloads[0] == FIRST and data.payloads[1]["score"] is None
    assert data.vocabulary == ["one", "two", "three", "four", "five"]
    query = read_dataset(tmp_path / "a.npz", split="query")
    assert len(query) == 2 and query.ids == ["x", "y"] and query.payloads is None and query.groups is None
    assert isinstance(query.texts, np.ndarray) and query.vocabulary == data.vocabulary


def test_names_that_repeat_are_payloads(tmp_path: Path, images: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", image_train=images, name_train=np.array(list("aabcde")))
    data = read_dataset(tmp_path / "a.npz")
    assert data.ids is None and data.payloads is not None and data.payloads[1] == {"name": "a"}


@pytest.mark.parametrize("name", ["id_train", "group_train"])
@pytest.mark.parametrize(
    ("values", "message"),
    [
        (np.array([0, 1, 2, np.nan, 4, 5]), "got nothing in row 3; fill it in"),
        (np.array(["a", "", "c", "d", "e", "f"]), "got nothing in row 1; fill it in"),
        (np.array([0.5, 1, 2, 3, 4, 5]), "got 0.5 in row 0"),
        (np.arange(5), r"each of the 6 rows, got \w+ int64 \(5,\); mend the column"),
    ],
)
def test_ids_and_groups_that_cannot_serve_are_refused(
    tmp_path: Path, images: np.ndarray, name: str, values: np.ndarray, message: str
) -> None:
    """Groups left out in silence would leak held-out pairs; ids would become row numbers."""
    np.savez(tmp_path / "a.npz", image_train=images, **{name: values})
    with pytest.raises(DataFileError, match=rf"a\.npz: {name}: expected a string or whole number.*{message}"):
        read_dataset(tmp_path / "a.npz")


@pytest.mark.parametrize("name", ["ids", "id"])
def test_ids_that_repeat_are_refused(tmp_path: Path, images: np.ndarray, name: str) -> None:
    np.savez(tmp_path / "a.npz", images=images, **{name: np.array([7, 8, 9, 8, 7, 3])})
    with pytest.raises(DataFileError, match=f"{name}: expected different ids, got 8 in rows 1 and 3; make"):
        read_dataset(tmp_path / "a.npz")


def test_dataset_from_matlab(tmp_path: Path, images: np.ndarray, texts: sparse.csr_matrix) -> None:
    """MATLAB has only matrices, cells of texts, and floats."""
    given: dict[str, Any] = {"image_train": images.astype(float), "text_train": texts.astype(float)}
    given |= {"id_train": np.arange(6.0)[:, None], "captions_train": np.array([["a", "b"]] * 6, object)}
    given |= {"name_train": np.array([f"p{i}" for i in range(6)], object), "year_train": np.arange(6) + 2000}
    given |= {"vocabulary": np.array(["one", "two", "three", "four", ""], object), "s": {"x": 1}}
    scipy.io.savemat(tmp_path / "a.mat", given, do_compression=True)
    data = read_dataset(tmp_path / "a.mat")
    assert np.allclose(data.images, images) and same_sparse(data.texts, texts)
    assert data.ids == [0, 1, 2, 3, 4, 5] and all(type(value) is int for value in data.ids)
    assert data.payloads is not None and data.payloads[5] == {
        "captions": ["a", "b"],
        "name": "p5",
        "year": 2005,
    }
    assert data.vocabulary == ["one", "two", "three", "four", ""]


def test_dataset_from_parquet(tmp_path: Path, images: np.ndarray) -> None:
    columns = {"image": images.tolist(), "text": images[:, :3].tolist(), "id": list("abcdef")}
    columns |= {"caption": ["x", None] * 3, "year": list(range(6))}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    data = read_dataset(tmp_path / "a.parquet")
    assert np.allclose(data.images, images) and data.texts is not None and data.texts.shape == (6, 3)
    assert data.ids == list("abcdef") and data.payloads is not None
    assert data.payloads[1] == {"caption": None, "year": 1}


@pytest.mark.parametrize("names", [("images", "texts", "ids"), ("image", "text", "id")])
def test_dataset_with_plain_names(tmp_path: Path, images: np.ndarray, names: tuple[str, str, str]) -> None:
    np.savez(tmp_path / "a.npz", **dict(zip(names, (images, images[:, :2], np.arange(6)), strict=True)))
    data = read_dataset(tmp_path / "a.npz")
    assert data.images is not None and data.texts is not None and data.ids == list(range(6))


def test_dataset_of_one_side(tmp_path: Path, images: np.ndarray) -> None:
    """A column of texts called text is a payload, not a side."""
    np.savez(tmp_path / "a.npz", image=images, text=np.array(list("abcdef")), other=np.arange(5))
    data = read_dataset(tmp_path / "a.npz")
    assert data.texts is None and data.ids is None and data.payloads is not None
    assert data.payloads[2] == {"text": "c"}


def test_dataset_says_what_is_there_when_nothing_fits(tmp_path: Path, images: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", I_tr=images)
    with pytest.raises(
        DataFileError, match=r"a\.npz: expected image_SPLIT.*there are: I_tr float32 \(6, 4\)"
    ):
        read_dataset(tmp_path / "a.npz")
    with pytest.raises(DataFileError, match="looked for image_dev, text_dev"):
        read_dataset(tmp_path / "a.npz", split="dev")


def test_sides_must_agree_in_rows(tmp_path: Path, images: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", images=images, texts=images[:5])
    with pytest.raises(DataFileError, match=r"a\.npz: expected as many of everything.*6 images, 5 texts"):
        read_dataset(tmp_path / "a.npz")
    with pytest.raises(DataFileError, match="6 images, 2 ids"):
        Dataset(images=images, ids=[1, 2])
    assert len(Dataset()) == 0 and len(Dataset(payloads=[{}])) == 1


def test_a_side_of_objects_is_an_error_and_not_a_gap(tmp_path: Path, images: np.ndarray) -> None:
    np.savez(tmp_path / "a.npz", images=images, texts=np.array([None] * 6, dtype=object))
    with pytest.raises(DataFileError, match="texts: holds Python objects"):
        read_dataset(tmp_path / "a.npz")


# What is there


def test_describe(tmp_path: Path, images: np.ndarray, texts: sparse.csr_matrix) -> None:
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "a.npz", x=images, names=np.array(["a"]), bad=np.array([None], dtype=object))
    scipy.io.savemat(tmp_path / "a.mat", {"x": images})
    pyarrow.parquet.write_table(pyarrow.table({"x": [1, 2]}), tmp_path / "a.parquet")
    (tmp_path / "a.csv").write_text("x,y\n1,2\n")
    (tmp_path / "a.jsonl").write_text('{"x": 1}\nnot read\n')
    told = {path.suffix: [str(entry) for entry in describe(path)] for path in sorted(tmp_path.iterdir())}
    assert told.pop(".npz")[:2] == ["x float32 (6, 4)", "names text (1,)"]
    assert told == {
        ".npy": ["array float32 (6, 4)"],
        ".mat": ["x single (6, 4)"],
        ".parquet": ["x int64 (2,)"],
        ".csv": ["x text", "y text"],
        ".jsonl": ["x int"],
    }
    assert "Python objects" in str(describe(tmp_path / "a.npz")[2])


# Failures


def test_missing_and_forbidden_files_stay_what_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for reader in (read_features, read_rows, read_dataset, describe):
        with pytest.raises(FileNotFoundError):
            reader(tmp_path / "none.parquet")

    def forbid(*_: object) -> int:
        raise PermissionError(13, "forbidden")

    monkeypatch.setattr(os, "open", forbid)
    with pytest.raises(PermissionError):
        read_features(tmp_path / "a.npy")


def test_other_endings_and_needless_keys_are_refused(tmp_path: Path, images: np.ndarray) -> None:
    with pytest.raises(DataFileError, match=r"a\.h5: expected a file that ends in \.npy"):
        read_features(tmp_path / "a.h5")
    with pytest.raises(DataFileError, match=r"ends in \.csv, \.jsonl, \.ndjson, \.parquet, got '\.npy'"):
        read_rows(tmp_path / "a.npy")
    with pytest.raises(DataFileError, match="no ending"):
        read_dataset(tmp_path / "a")
    np.save(tmp_path / "a.npy", images)
    with pytest.raises(DataFileError, match=r"one matrix and no keys, got key 'x'"):
        read_features(tmp_path / "a.npy", key="x")
    with pytest.raises(DataFileError, match="null"):
        read_features("a\0b.npy")


def test_parquet_without_pyarrow_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"x": [1]}), tmp_path / "a.parquet")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"pip install 'crossbyte\[arrow\]'"):
        read_features(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "limits", "message"),
    [
        ("a.npy", Limits(max_bytes=95), "at most 95 bytes of data, its header claims 96"),
        ("a.npz", Limits(archive_bytes=200), "at most 200 bytes when unpacked"),
        ("a.npz", Limits(archive_members=0), "at most 0 arrays, got 1"),
        ("a.csv", Limits(text_bytes=10), "at most 10 bytes of text"),
        ("a.csv", Limits(rows=5), "line 6: expected at most 5 rows"),
        ("a.csv", Limits(columns=3), "line 1: expected at most 3 columns, got 4"),
        ("a.csv", Limits(field_chars=2), "line 1: expected at most 2 characters in a field"),
        ("a.csv", Limits(line_bytes=20), "line 1: expected at most 20 bytes"),
        ("a.mat", Limits(archive_bytes=100), "at most 100 bytes when unpacked"),
        ("a.mat", Limits(archive_members=0), "at most 0 variables, got 1"),
        ("a.parquet", Limits(rows=5), "at most 5 rows and 20000 columns, it claims 6 and 4"),
        ("a.parquet", Limits(columns=3), "at most 10000000 rows and 3 columns"),
    ],
)
def test_limits_bind_and_can_be_met(
    tmp_path: Path, images: np.ndarray, name: str, limits: Limits, message: str
) -> None:
    np.save(tmp_path / "a.npy", images)
    np.savez(tmp_path / "a.npz", x=images)
    np.savetxt(tmp_path / "a.csv", images, delimiter=",")
    scipy.io.savemat(tmp_path / "a.mat", {"x": images})
    pyarrow.parquet.write_table(
        pyarrow.table({f"x{i}": images[:, i] for i in range(4)}), tmp_path / "a.parquet"
    )
    if name not in ("a.mat", "a.parquet"):  # each costs a process, and others show that they are read
        assert read_features(tmp_path / name).shape == (6, 4)
    with pytest.raises(DataFileError, match=f"{name}: .*{message}"):
        read_features(tmp_path / name, limits=limits)


def test_jsonl_limits(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": [1]}\n{"a": [1]}\n')
    for limits, message in (
        (Limits(rows=1), "line 2: expected at most 1 rows"),
        (Limits(depth=1), "at most 1 levels"),
    ):
        with pytest.raises(DataFileError, match=message):
            read_rows(path, limits=limits)
    assert len(read_rows(path, limits=Limits(rows=2, depth=2))) == 2


def test_a_ratio_over_the_whole_archive_and_not_of_one_member(
    tmp_path: Path, rng: np.random.Generator
) -> None:
    """Ones shrink 1,000 times; beside real features that is no bomb."""
    ones, noise = np.ones(24 * 2**20, np.uint8), rng.integers(0, 256, (1024, 512)).astype(np.uint8)
    np.savez_compressed(tmp_path / "alone.npz", ones=ones)
    np.savez_compressed(tmp_path / "beside.npz", ones=ones, noise=noise)
    assert np.array_equal(read_features(tmp_path / "beside.npz"), noise)
    with pytest.raises(DataFileError, match="100 times the file"):
        read_features(tmp_path / "alone.npz")
    with pytest.raises(DataFileError, match="one matrix of numbers, got 0"):
        read_features(tmp_path / "alone.npz", limits=Limits(archive_ratio=2000))


# The process that parses

LIMIT = (  # from where the parent has its modules, as the real program does
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from crossbyte.data.sandbox import limit_resources"
)


@pytest.fixture
def children(monkeypatch: pytest.MonkeyPatch) -> list[subprocess.Popen[bytes]]:
    """Every process that the reader starts."""
    started: list[subprocess.Popen[bytes]] = []
    real = subprocess.Popen

    def start(*arguments: Any, **options: Any) -> subprocess.Popen[bytes]:
        started.append(real(*arguments, **options))
        return started[-1]

    monkeypatch.setattr(sandbox.subprocess, "Popen", start)
    return started


@pytest.fixture
def mat_file(tmp_path: Path, images: np.ndarray) -> Path:
    scipy.io.savemat(tmp_path / "a.mat", {"x": images})
    return tmp_path / "a.mat"


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("import time; time.sleep(600)", "took longer than 0 s"),
        (f"{LIMIT}; limit_resources(2**33, 0)\nwhile True: pass", "took longer than 0 s"),
        ("import os; os.abort()", r"crashed \(signal 6\)"),
        ("import os; os._exit(3)", r"crashed \(exit code 3\)"),
        ("pass", r"crashed \(exit code 0\)"),
        ("print('hello' * 100)", "refused|unpacked"),
        ("raise SystemExit('no')", r"crashed \(exit code 1\)"),
    ],
)
def test_however_the_child_ends_the_parent_answers(
    mat_file: Path, monkeypatch: pytest.MonkeyPatch, children: list[Any], program: str, message: str
) -> None:
    monkeypatch.setattr(sandbox, "_PROGRAM", program)
    monkeypatch.setattr(sandbox, "_STARTING_SECONDS", 2 if "sleep" in program else 60)
    with pytest.raises(DataFileError, match=rf"a\.mat: .*(?:{message})"):
        read_features(mat_file, limits=Limits(child_seconds=0))
    assert [child.returncode is not None for child in children] == [True]


def test_too_little_memory_is_said(tmp_path: Path, children: list[Any]) -> None:
    scipy.io.savemat(tmp_path / "a.mat", {"x": np.zeros((4000, 4000))}, do_compression=True)
    with pytest.raises(DataFileError, match="wanted more memory than 192 MiB"):
        read_features(tmp_path / "a.mat", limits=Limits(mat_memory=192 * 2**20))
    assert [child.returncode is not None for child in children] == [True]


def test_ctrl_c_ends_the_child(mat_file: Path, monkeypatch: pytest.MonkeyPatch, children: list[Any]) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sandbox, "read_frames", interrupt)
    with pytest.raises(KeyboardInterrupt):
        read_features(mat_file)
    assert [child.returncode is not None for child in children] == [True]


def test_the_child_may_not_write_files(
    mat_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write = f"open({str(tmp_path / 'written')!r}, 'wb', buffering=0).write(b'x')"
    monkeypatch.setattr(sandbox, "_PROGRAM", f"{LIMIT}; limit_resources(2**33, 9); {write}")
    with pytest.raises(DataFileError, match="crashed"):
        read_features(mat_file)
    assert (tmp_path / "written").stat().st_size == 0


def test_the_environment_and_folder_cannot_lead_the_child_astray(
    mat_file: Path, images: np.ndarray, monkeypatch: pytest.MonkeyPatch
) -> None:
    (mat_file.parent / "scipy.py").write_text("raise SystemExit")
    (mat_file.parent / "json.py").write_text("raise SystemExit")
    monkeypatch.chdir(mat_file.parent)
    monkeypatch.setenv("PYTHONPATH", str(mat_file.parent))
    assert np.array_equal(read_features(mat_file), images)


RECORDS = [
    struct.pack("<cQ", b"A", 2**62),
    struct.pack("<cQ", b"D", 900) + b" " * 900,
    struct.pack("<cQ", b"V", 2**20),
    struct.pack("<cQ", b"A", 2) + struct.pack("<H", 9),
    struct.pack("<cQ", b"A", 3 + 128) + struct.pack("<H", 1) + b"x" + hostile.raw_npy(hostile.header("'|O'")),
    struct.pack("<cQ", b"D", 8) + b'[["a"]] ',
    struct.pack("<cQ", b"Q", 0),
    b"A",
    b"",
]


@pytest.mark.parametrize("record", RECORDS, ids=range(len(RECORDS)))
def test_the_parent_does_not_believe_the_child(record: bytes) -> None:
    with pytest.raises((DataFileError, ChildEnded, ValueError, TypeError)):
        read_frames(io.BytesIO(record), 1000, 1000)


def test_reading_imports_nothing_heavy() -> None:
    code = "import sys, crossbyte.data.readers; sys.exit(not {'scipy', 'pyarrow'}.isdisjoint(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], timeout=60).returncode == 0
