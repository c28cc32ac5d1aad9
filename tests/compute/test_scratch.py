"""Rows in scratch files are the rows of memory, and a full disk is said."""

from __future__ import annotations

import gc
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute import executor, scratch
from crossbyte.compute.executor import Workers, default_memory, make_executor, parse_memory
from crossbyte.compute.scratch import DiskArray, DiskSparse, ScratchWorkers
from crossbyte.errors import InvalidInput, StorageFailed, StorageFull

ROWS = np.random.default_rng(0).normal(size=(100, 7)).astype(np.float32)
FEW = (np.abs(ROWS) > 1) & ~((np.arange(100) // 5) == 8)[:, None]  # none at all in rows 40 to 44
SPARSE = sparse.csr_matrix(np.where(FEW, ROWS, 0))
CHOSEN = np.array([0, 3, 4, 41, 42, 99])


def same(left: Any, right: sparse.csr_matrix) -> bool:
    parts = ("data", "indices", "indptr")
    return left.shape == right.shape and all(
        np.array_equal(getattr(left, part), getattr(right, part))
        and getattr(left, part).dtype == getattr(right, part).dtype
        for part in parts
    )


def on_disk(values: Any = ROWS) -> DiskArray:
    disk = DiskArray(len(values), values.shape[1:], values.dtype)
    disk.write(60, values[60:])
    disk.write(0, values[:60])
    return disk


def sparse_on_disk(size: int = 33) -> DiskSparse:
    disk = DiskSparse(7, np.float32)
    for start in range(0, 100, size):
        disk.append(SPARSE[start : start + size])
    return disk


@pytest.mark.parametrize(
    "rows", [slice(None), slice(10, 35), slice(90, 200), slice(5, 5), CHOSEN, CHOSEN[:0]]
)
@pytest.mark.parametrize("values", [ROWS, ROWS[:, 0], np.arange(100, dtype=np.uint8)])
def test_dense_rows_come_back(values: Any, rows: Any) -> None:
    disk = on_disk(values)
    assert disk.shape == values.shape and len(disk) == 100 and disk.dtype == values.dtype
    found = disk[rows]
    assert np.array_equal(found, values[rows]) and found.dtype == values.dtype and found.flags.writeable
    assert np.array_equal(np.asarray(disk), values)


@pytest.mark.parametrize(
    "rows", [slice(None), slice(10, 44), slice(41, 43), slice(99, 200), CHOSEN, CHOSEN[:0]]
)
def test_sparse_rows_come_back(rows: Any) -> None:
    for size in (1, 33, 100):
        disk = sparse_on_disk(size)
        assert disk.shape == (100, 7) and disk.nnz == SPARSE.nnz
        assert same(disk[rows], SPARSE[rows])


def test_chosen_rows_may_be_in_any_order() -> None:
    order = np.array([7, 99, 7, 0])
    assert np.array_equal(on_disk()[order], ROWS[order])
    assert same(sparse_on_disk()[order], SPARSE[order])


def test_rows_as_scikit_learn_asks_for_them() -> None:
    mask = np.arange(100) % 7 == 0
    assert np.array_equal(on_disk()[CHOSEN, ...], ROWS[CHOSEN]) and np.array_equal(
        on_disk()[mask], ROWS[mask]
    )
    assert same(sparse_on_disk()[CHOSEN, ...], SPARSE[CHOSEN])


@pytest.mark.parametrize(
    "rows", [np.array([100]), np.array([-1]), slice(0, 9, 2), np.array([[1]]), [True, False], [0.5]]
)
def test_other_rows_are_refused(rows: Any) -> None:
    for disk in (on_disk(), sparse_on_disk()):
        with pytest.raises(IndexError, match="expected row"):
            disk[rows]


def test_rows_of_another_shape_are_not_written() -> None:
    with pytest.raises(ValueError, match="expected rows"):
        on_disk().write(99, ROWS[:2])
    with pytest.raises(ValueError, match="expected rows"):
        on_disk().write(0, ROWS[:, :3])
    with pytest.raises(ValueError, match="expected float32"):
        sparse_on_disk().append(SPARSE.astype(np.float64))


def test_files_have_no_name_and_go_with_their_object(tmp_path: Path) -> None:
    before = set(os.listdir("/dev/fd"))
    disk = DiskArray(100, (7,), np.float32, str(tmp_path))
    disk.write(0, ROWS)
    assert list(tmp_path.iterdir()) == [] and len(os.listdir("/dev/fd")) > len(before)
    del disk
    gc.collect()
    assert set(os.listdir("/dev/fd")) == before


# The executor


@pytest.mark.parametrize("n_jobs", [1, 2])
@pytest.mark.parametrize("max_memory", [1, 32 * 600, 10**9])
def test_rows_are_those_of_memory(monkeypatch: pytest.MonkeyPatch, n_jobs: int, max_memory: int) -> None:
    monkeypatch.setattr(executor, "BLOCK_ROWS", 16)
    with ScratchWorkers(n_jobs, max_memory) as workers:
        dense = workers.rows(lambda block: 2 * ROWS[block], 100, (7,), np.float32)
        thin = workers.sparse_rows(lambda block: SPARSE[block], 100, 7)
        assert workers.local.rows(lambda block: ROWS[block], 100, (7,), np.float32).flags.owndata
        assert workers.total(lambda block: ROWS[block].sum(axis=0), 100).shape == (7,)
    assert isinstance(dense, DiskArray) == (max_memory < 10**9)
    assert isinstance(thin, DiskSparse) == (max_memory < 10**9)
    assert np.array_equal(dense[:], 2 * ROWS) and same(thin[:], SPARSE)


def test_no_rows_at_all() -> None:
    with ScratchWorkers(1, 1) as workers:
        assert workers.rows(lambda block: ROWS[block], 0, (7,), np.float32).shape == (0, 7)
        assert workers.sparse_rows(lambda block: SPARSE[block], 0, 7).shape == (0, 7)


# A full disk


@contextmanager
def largest_file(n_bytes: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_full_disk_is_said(n_jobs: int) -> None:
    with (
        ScratchWorkers(n_jobs, 1) as workers,
        largest_file(4096),
        pytest.raises(StorageFull, match=r"scratch folder .*TMPDIR"),
    ):
        workers.rows(lambda block: np.zeros((block.stop - block.start, 7)), 10_000, (7,), np.float64)


def test_a_passed_quota_is_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(scratch.errno.EDQUOT, "Disk quota exceeded")

    monkeypatch.setattr(os, "pwrite", refuse)
    with pytest.raises(StorageFull, match="quota"):
        sparse_on_disk()


def test_that_no_folder_has_space_is_a_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    def none_is_usable() -> str:
        raise FileNotFoundError(2, "No usable temporary directory found")

    monkeypatch.setattr(tempfile, "gettempdir", none_is_usable)
    with pytest.raises(StorageFull, match="TMPDIR"):
        sparse_on_disk()


def test_a_failing_disk_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = on_disk()
    monkeypatch.setattr(os, "preadv", lambda *_: 0)
    with pytest.raises(StorageFailed, match="expected 28 bytes"):
        disk[:1]


def test_no_folder_for_scratch_files(tmp_path: Path) -> None:
    with pytest.raises(StorageFailed, match="TMPDIR"):
        DiskArray(1, (), np.float32, str(tmp_path / "missing"))


def test_systems_without_pread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "preadv")
    monkeypatch.delattr(os, "pwrite")
    assert np.array_equal(on_disk()[CHOSEN], ROWS[CHOSEN])


# Choosing


@pytest.mark.parametrize(
    ("amount", "n_bytes"),
    [
        (12, 12), ("12", 12), ("1.5GB", 1_500_000_000), ("512 MiB", 2**29), ("2g", 2 * 10**9), ("1KB", 1000),
        ("0.5TiB", 2**39),
    ],
)  # fmt: skip
def test_amounts_of_memory(amount: Any, n_bytes: int) -> None:
    assert parse_memory(amount) == n_bytes


@pytest.mark.parametrize("amount", [0, -1, "0", "-1GB", "much", "", "1e9", True, 1.5, float("inf"), b"1GB"])
def test_no_amounts_of_memory(amount: Any) -> None:
    with pytest.raises(InvalidInput, match="max_memory"):
        parse_memory(amount)


def test_the_executor_is_chosen_by_what_is_asked() -> None:
    assert type(make_executor(2)) is Workers and make_executor(2).n_jobs == 2
    assert type(make_executor(2, max_memory="1GB")) is ScratchWorkers
    assert default_memory() > 2**20


@pytest.mark.parametrize(("granted", "usual"), [("4096\n", 1024), ("max\n", None)])
def test_a_container_may_have_less(
    granted: str, usual: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "memory.max").write_text(granted)
    monkeypatch.setattr("crossbyte.compute.executor._CGROUP_LIMIT", tmp_path / "memory.max")
    assert default_memory() == usual or (usual is None and default_memory() > 2**20)


@pytest.mark.parametrize("cluster", ["", 3])
def test_no_address_of_a_cluster(cluster: Any) -> None:
    with pytest.raises(InvalidInput, match="cluster"):
        make_executor(1, cluster=cluster)
