"""Features on disk: read as they are, and refused where they are not what they claim."""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from scipy import sparse

from crossbyte.data.ondisk import ArrayFile, ConcatenatedRows, RowSubset, SpooledRows, coerce_rows, open_rows
from crossbyte.data.safe_open import Limits
from crossbyte.errors import DataFileError, InvalidInput, NotFinite
from crossbyte.validation import check_features, check_pairs, is_stored
from support.hostile import MATRIX, npy, raw_npy

ROWS = np.random.default_rng(0).normal(size=(50, 6)).astype(np.float32)
SPARSE = sparse.csr_matrix(np.where(np.abs(ROWS) > 1, ROWS, 0))
CHOSEN = np.array([0, 7, 8, 21, 49])
PARTS = [slice(None), slice(5, 25), slice(19, 21), slice(40, 90), slice(3, 3), CHOSEN, CHOSEN[:0]]
CUTS = (0, 20, 21, 41, 50)


def cut(values: Any) -> list[Any]:
    return [values[start:stop] for start, stop in zip(CUTS, CUTS[1:], strict=False)]


def shards(folder: Path, values: Any, save: Callable[[Path, Any], object], ending: str) -> Path:
    """Shards 1, 2, 10 and 11, which are not in the order of their letters."""
    folder.mkdir()
    for number, part in zip((1, 2, 10, 11), cut(values), strict=True):
        save(folder / f"part-{number}{ending}", part)
    return folder


def save_parquet(path: Path, values: Any) -> None:
    column = pyarrow.array(list(values), pyarrow.list_(pyarrow.float32()))
    pyarrow.parquet.write_table(pyarrow.table({"features": column}), path)


def save_npy(path: Path, values: Any) -> Path:
    np.save(path, values)
    return path


def equal(left: Any, right: Any) -> bool:
    if not sparse.issparse(right):
        return left.dtype == right.dtype and np.array_equal(left, right)
    return left.dtype == right.dtype and left.has_canonical_format and (left != right).nnz == 0


# Files


FORMS = {
    "plain": ROWS,
    "fortran": np.asfortranarray(ROWS),
    "big-endian": ROWS.astype(">f4"),
    "float16": ROWS.astype(np.float16),
    "int": (100 * ROWS).astype(np.int16),
    "bool": ROWS > 0,
    "fortran big-endian": np.asfortranarray(ROWS.astype(">f8")),
}


@pytest.mark.parametrize("form", FORMS)
def test_rows_of_a_file(form: str, tmp_path: Path) -> None:
    values = FORMS[form]
    stored = open_rows(save_npy(tmp_path / "rows.npy", values))
    assert isinstance(stored, ArrayFile) and is_stored(stored) and not stored.is_sparse
    assert stored.shape == (50, 6) and len(stored) == 50 and stored.dtype == values.dtype.newbyteorder("=")
    for rows in PARTS:
        assert equal(stored[rows], values[rows].astype(stored.dtype))


def test_rows_of_a_folder_in_natural_order(tmp_path: Path) -> None:
    folder = shards(tmp_path / "images", ROWS, np.save, ".npy")
    (folder / "_SUCCESS").touch()
    (folder / ".part-0.npy").touch()
    (folder / "notes.txt").touch()
    stored = open_rows(folder)
    assert isinstance(stored, ConcatenatedRows)
    assert [piece.name for piece in stored.pieces] == [f"part-{n}.npy" for n in (1, 2, 10, 11)]
    for rows in PARTS:
        assert equal(stored[rows], ROWS[rows])


def test_shards_of_several_types_have_the_widest(tmp_path: Path) -> None:
    np.save(tmp_path / "0.npy", ROWS[:20])
    np.save(tmp_path / "1.npy", ROWS[20:].astype(np.float64))
    stored = open_rows(tmp_path)
    assert stored.dtype == np.float64
    for rows in PARTS:
        assert equal(stored[rows], ROWS[rows].astype(np.float64))


def test_sparse_shards(tmp_path: Path) -> None:
    stored = open_rows(shards(tmp_path / "texts", SPARSE, sparse.save_npz, ".npz"))
    assert isinstance(stored, SpooledRows) and stored.is_sparse and stored.shape == (50, 6)
    for rows in PARTS:
        assert equal(stored[rows], SPARSE[rows])


def test_parquet_shards(tmp_path: Path) -> None:
    stored = open_rows(shards(tmp_path / "images", ROWS, save_parquet, ".parquet"))
    for rows in PARTS:
        assert equal(stored[rows], ROWS[rows])


def test_one_array_of_several(tmp_path: Path) -> None:
    np.savez(tmp_path / "both.npz", images=ROWS, texts=ROWS[:, :3])
    assert equal(open_rows(tmp_path / "both.npz", key="texts")[:], ROWS[:, :3])
    with pytest.raises(DataFileError, match="key="):
        open_rows(tmp_path / "both.npz")
    with pytest.raises(DataFileError, match="expected no key"):
        open_rows(save_npy(tmp_path / "one.npy", ROWS), key="texts")


# Some rows of a side


DRAWN = {
    "every row": np.arange(50),
    "all but a few": np.delete(np.arange(50), [0, 13, 14, 37]),
    "a part": np.arange(2, 50, 3),
    "far ones": np.array([1, 3, 4, 30, 49]),
    "one": np.array([41]),
    "none": np.arange(0),
}


def kinds(folder: Path) -> Iterator[tuple[Any, Any]]:
    """Stored sides of several kinds, and what they hold."""
    yield open_rows(save_npy(folder / "rows.npy", ROWS)), ROWS
    yield open_rows(save_npy(folder / "columns.npy", np.asfortranarray(ROWS))), ROWS
    yield open_rows(shards(folder / "shards", ROWS, np.save, ".npy")), ROWS
    yield coerce_rows(cut(ROWS), "images"), ROWS
    yield coerce_rows(cut(SPARSE), "texts"), SPARSE


@pytest.mark.parametrize("block_rows", [16, 4096])
@pytest.mark.parametrize("drawn", DRAWN)
def test_chosen_rows_are_those_of_the_side(
    drawn: str, block_rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbyte.data.ondisk.BLOCK_ROWS", block_rows)
    numbers = DRAWN[drawn]
    for stored, values in kinds(tmp_path):
        some, expected = RowSubset(stored, numbers), values[numbers]
        assert is_stored(some) and some.shape == expected.shape and len(some) == len(numbers)
        assert some.is_sparse == stored.is_sparse and some.dtype == stored.dtype
        assert sum(piece.n_rows for piece in some.pieces) == len(numbers)
        within = np.arange(len(numbers))
        for rows in (slice(None), slice(2, 4), slice(1, 90), slice(3, 3), within[::-2], within > 2):
            assert equal(some[rows], expected[rows]), (type(stored), rows)


def test_chosen_rows_are_read_when_they_are_asked_for_and_few_beside_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbyte.data.ondisk.BLOCK_ROWS", 8)
    stored, read = open_rows(save_npy(tmp_path / "rows.npy", ROWS)), []
    plain = ArrayFile.__getitem__
    monkeypatch.setattr(
        ArrayFile, "__getitem__", lambda self, rows: (found := plain(self, rows), read.append(len(found)))[0]
    )
    some = RowSubset(RowSubset(stored, np.arange(0, 50, 2)), np.arange(3, 25))
    assert not read
    assert equal(some[:], ROWS[6:50:2]) and max(read) <= 8
    read.clear()
    far = RowSubset(stored, np.array([0, 49]))
    assert equal(far[:], ROWS[[0, 49]]) and sum(read) == 2


def test_chosen_rows_know_what_they_came_in(tmp_path: Path) -> None:
    stored = open_rows(shards(tmp_path / "images", ROWS, np.save, ".npy"))
    some = RowSubset(stored, np.array([3, 19, 20, 45]))
    assert [tuple(piece) for piece in some.pieces] == [
        ("part-1.npy", 2), ("part-2.npy", 1), ("part-10.npy", 0), ("part-11.npy", 1),
    ]  # fmt: skip
    assert equal(pickle.loads(pickle.dumps(some))[:], ROWS[[3, 19, 20, 45]])
    assert check_features(some, "images", 6) is some
    with pytest.raises(DataFileError, match="changed"):
        save_npy(tmp_path / "images" / "part-1.npy", ROWS)
        some[:]


@pytest.mark.parametrize("numbers", [[3, 2], [3, 3], [-1, 2], [4, 50]])
def test_rows_that_cannot_be_chosen(numbers: list[int], tmp_path: Path) -> None:
    stored = open_rows(save_npy(tmp_path / "rows.npy", ROWS))
    with pytest.raises(IndexError, match="ascending row numbers from 0 to 49"):
        RowSubset(stored, np.array(numbers))


# What is refused


def test_a_shard_of_another_width_is_named(tmp_path: Path) -> None:
    folder = shards(tmp_path / "images", ROWS, np.save, ".npy")
    np.save(folder / "part-10.npy", ROWS[:, :4])
    with pytest.raises(DataFileError, match=r"part-10\.npy: expected 6 columns as in part-1\.npy, got 4"):
        open_rows(folder)


def test_mixed_empty_and_missing_folders(tmp_path: Path) -> None:
    with pytest.raises(DataFileError, match="an empty folder"):
        open_rows(tmp_path)
    np.save(tmp_path / "0.npy", ROWS)
    sparse.save_npz(tmp_path / "1.npz", SPARSE)
    with pytest.raises(DataFileError, match=r"\.npy and \.npz"):
        open_rows(tmp_path)
    with pytest.raises(FileNotFoundError):
        open_rows(tmp_path / "missing.npy")
    (tmp_path / "rows.txt").write_text("1 2 3")
    with pytest.raises(DataFileError, match="convert it"):
        open_rows(tmp_path / "rows.txt")


def pickled() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([[{}]], dtype=object), allow_pickle=True)
    return file.getvalue()


HOSTILE = {
    "pickle": pickled(),
    "empty": b"",
    "cut short": npy(MATRIX)[:-1],
    "longer": npy(MATRIX) + b"0",
    "no header": b"\x93NUMPY\x01\x00",
    "huge claim": raw_npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3), }"),
    "evaluated": raw_npy("{'descr': __import__('os'), 'fortran_order': False, 'shape': (4, 3), }"),
    "one dimension": npy(MATRIX.ravel()),
    "texts": npy(np.array([["a", "b"]])),
    "no columns": npy(np.empty((3, 0))),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / "rows.npy"
    path.write_bytes(HOSTILE[name])
    with pytest.raises(DataFileError, match=r"rows\.npy: "):
        open_rows(path)


def test_a_pipe_is_refused_without_waiting(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.npy")
    with pytest.raises(DataFileError, match="a pipe"):
        open_rows(tmp_path / "rows.npy")


def test_a_file_that_changes_is_refused(tmp_path: Path) -> None:
    stored = open_rows(save_npy(tmp_path / "rows.npy", ROWS))
    np.save(tmp_path / "rows.npy", ROWS[:40])
    with pytest.raises(DataFileError, match=r"rows\.npy: was changed"):
        stored[:]


def test_limits_hold_for_every_shard(tmp_path: Path) -> None:
    folder = shards(tmp_path / "texts", SPARSE, sparse.save_npz, ".npz")
    with pytest.raises(DataFileError, match=r"part-1\.npz"):
        open_rows(folder, limits=Limits(archive_bytes=10))


# Memory maps


def mapped(path: Path, values: Any = ROWS, mode: Any = "r") -> Any:
    return np.load(save_npy(path, values), mmap_mode=mode)


@pytest.mark.parametrize("mode", ["r", "r+"])
@pytest.mark.parametrize("form", ["plain", "fortran", "big-endian"])
def test_a_map_is_read_through_its_file(form: str, mode: str, tmp_path: Path) -> None:
    values = mapped(tmp_path / "rows.npy", FORMS[form], mode)
    stored = coerce_rows(values, "images")
    assert isinstance(stored, ArrayFile)
    for rows in PARTS:
        assert equal(stored[rows], ROWS[rows].astype(stored.dtype))


def test_parts_of_a_map(tmp_path: Path) -> None:
    values = mapped(tmp_path / "rows.npy")
    assert equal(coerce_rows(values[7:30], "images")[:], ROWS[7:30])
    assert equal(coerce_rows(values[7:30][3:], "images")[CHOSEN[:2]], ROWS[10:30][CHOSEN[:2]])
    assert coerce_rows(values[:, :3], "images")[5:9].shape == (4, 3)  # not in one piece, so it stays a map


def test_a_map_of_plain_bytes_with_an_offset(tmp_path: Path) -> None:
    (tmp_path / "rows.bin").write_bytes(b"x" * 5000 + ROWS.tobytes())
    values = np.memmap(tmp_path / "rows.bin", np.float32, "r", 5000, ROWS.shape)
    assert equal(coerce_rows(values, "images")[:], ROWS) and is_stored(coerce_rows(values, "images"))


def test_what_was_written_to_a_map_is_seen(tmp_path: Path) -> None:
    shared, private = mapped(tmp_path / "a.npy", mode="r+"), mapped(tmp_path / "b.npy", mode="c")
    shared[3] = private[3] = 9
    assert (coerce_rows(shared, "images")[3:4] == 9).all() and (
        coerce_rows(private, "images")[3:4] == 9
    ).all()


def test_a_map_whose_file_is_gone_or_another(tmp_path: Path) -> None:
    gone, other = mapped(tmp_path / "a.npy"), mapped(tmp_path / "b.npy")
    (tmp_path / "a.npy").unlink()
    (tmp_path / "b.npy").unlink()
    np.save(tmp_path / "b.npy", ROWS[::-1])
    assert coerce_rows(gone, "images") is gone and coerce_rows(other, "images") is other


# Blocks


class Blocks:
    """Can be iterated as often as one likes, and nothing else."""

    def __init__(self, values: Any) -> None:
        self._values = values

    def __iter__(self) -> Iterator[Any]:
        return iter(cut(self._values))


@pytest.mark.parametrize("values", [ROWS, SPARSE, SPARSE.tocsc(), ROWS.astype(">f4"), ROWS.astype(np.int8)])
@pytest.mark.parametrize("form", [Blocks, cut, lambda values: (block for block in cut(values)), tuple])
def test_blocks_are_written_once(values: Any, form: Any) -> None:
    given = form(values) if form is not tuple else tuple(cut(values))
    stored = coerce_rows(given, "images")
    assert isinstance(stored, SpooledRows) and [piece.n_rows for piece in stored.pieces] == [20, 1, 20, 9]
    expected = sparse.csr_matrix(values) if sparse.issparse(values) else values.astype(stored.dtype)
    for rows in PARTS:
        assert equal(stored[rows], expected[rows])


def test_arrays_and_lists_stay_what_they_are() -> None:
    for values in (ROWS, SPARSE, ROWS.tolist(), list(ROWS), None, 3, {"a": ROWS}, b"rows"):
        assert coerce_rows(values, "images") is values


def test_sparse_blocks_become_canonical() -> None:
    block = sparse.csr_matrix(([1.0, 2.0, 0.0], [2, 0, 1], [0, 3]), shape=(1, 3))
    found = coerce_rows([block, block], "texts")[:]
    assert found.has_canonical_format and found.indices.tolist() == [0, 2, 0, 2]
    assert block.indices.tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("blocks", "message"),
    [
        ([ROWS, ROWS[:, :4]], "images, block 1: expected 6 columns as in images, block 0, got 4"),
        ([ROWS, SPARSE], "images, block 1: expected dense rows as in images, block 0, got sparse"),
        ([SPARSE, ROWS], "images, block 1: expected sparse rows as in images, block 0, got dense"),
        ([ROWS, ROWS.astype(float)], "images, block 1: expected values of float32 .* got float64"),
        ([ROWS, ROWS[0]], "images, block 1: Expected 2D array"),
        ([ROWS, ROWS.astype(complex)], "images, block 1: Complex"),
        (iter([]), "images: expected blocks of rows, got none; an iterator"),
        (iter([1, 2]), "images, block 0: Expected 2D"),
    ],
)
def test_blocks_that_change_are_named(blocks: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        coerce_rows(blocks, "images")


def test_narrower_blocks_take_the_type_of_the_first() -> None:
    assert coerce_rows([ROWS, ROWS.astype(np.float16)], "images")[:].dtype == np.float32


# The judge


def test_stored_rows_pass_and_keep_their_place(tmp_path: Path) -> None:
    stored = open_rows(save_npy(tmp_path / "rows.npy", ROWS))
    assert check_features(stored, "images", 6) is stored
    with pytest.raises(InvalidInput, match="expecting 5 features"):
        check_features(stored, "images", 5)
    with pytest.raises(InvalidInput, match="at least 60 rows"):
        check_features(stored, "images", min_rows=60)


def test_values_that_are_not_finite_are_found_in_later_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbyte.compute.executor.BLOCK_ROWS", 16)
    values = ROWS.copy()
    values[37, 2] = np.nan
    with pytest.raises(NotFinite, match="images: .* NaN at row 37, column 2"):
        check_features(open_rows(save_npy(tmp_path / "rows.npy", values)), "images")
    with pytest.raises(NotFinite, match="images, block 2: .* NaN at row 16, column 2"):
        coerce_rows(Blocks(values), "images")


def test_sides_that_disagree_name_the_block(tmp_path: Path) -> None:
    images = coerce_rows(cut(ROWS), "images")
    texts = coerce_rows(
        [block[:-1] if number == 2 else block for number, block in enumerate(cut(SPARSE))], "texts"
    )
    expected = (
        "50 images and 49 texts; they first differ at 20 rows in images, block 2 beside 19 rows in texts"
    )
    with pytest.raises(InvalidInput, match=expected):
        check_pairs(images, texts)
    folder = shards(tmp_path / "texts", ROWS, np.save, ".npy")
    (folder / "part-11.npy").unlink()
    with pytest.raises(InvalidInput, match="at 9 rows in images, block 3 beside nothing"):
        check_pairs(images, coerce_rows(folder, "texts"))
