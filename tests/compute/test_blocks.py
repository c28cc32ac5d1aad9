"""Canonical blocks: the same cuts, order and sums whatever the number of threads."""

from __future__ import annotations

import threading
import time
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_info, threadpool_limits

from crossbyte.compute import executor
from crossbyte.compute.executor import BLOCK_ROWS, Workers, available_cores, row_blocks


def _blas_threads() -> list[int]:
    return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor, "BLOCK_ROWS", 7)


@pytest.mark.parametrize("n", [0, 1, BLOCK_ROWS - 1, BLOCK_ROWS, BLOCK_ROWS + 1, 3 * BLOCK_ROWS + 5])
def test_blocks_cover_every_row_once_and_in_order(n: int) -> None:
    cuts = row_blocks(n)
    assert [row for cut in cuts for row in range(cut.start, cut.stop)] == list(range(n))
    assert all(cut.stop - cut.start == BLOCK_ROWS for cut in cuts[:-1])


@pytest.mark.parametrize("n_jobs", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(n_jobs: int) -> None:
    def slow_at_first(item: int) -> int:
        time.sleep(0.01 if item % 4 == 0 else 0.0)
        return item * item

    with Workers(n_jobs) as workers:
        assert list(workers.map(slow_at_first, range(30))) == [item * item for item in range(30)]


def test_threads_really_share_the_work() -> None:
    meeting = threading.Barrier(2, timeout=10)
    with Workers(2) as workers:
        assert len(list(workers.map(lambda _: meeting.wait(), range(2)))) == 2


def test_only_a_few_items_are_taken_ahead() -> None:
    taken: list[int] = []

    def items() -> Any:
        for item in range(1000):
            taken.append(item)
            yield item

    with Workers(2) as workers:
        next(workers.map(lambda item: item, items()))
        assert len(taken) <= 6


@pytest.mark.usefixtures("small_blocks")
def test_sums_do_not_depend_on_the_number_of_threads(rng: np.random.Generator) -> None:
    rows = rng.standard_normal((100, 9)) * 10.0 ** rng.integers(-8, 8, size=(100, 1))

    def sums(block: slice) -> tuple[Any, Any]:
        return rows[block].T @ rows[block], float(rows[block].sum())

    found = []
    for n_jobs in (1, 2, 4):
        with Workers(n_jobs) as workers:
            found.append(workers.total(sums, 100))
    for gram, total in found[1:]:
        assert gram.tobytes() == found[0][0].tobytes() and total == found[0][1]
    np.testing.assert_allclose(found[0][0], rows.T @ rows, rtol=1e-9, atol=1e-3)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_each_calls_every_block_once(n_jobs: int) -> None:
    seen = np.zeros(50, dtype=int)

    def visit(rows: slice) -> None:
        seen[rows] += 1

    with Workers(n_jobs) as workers:
        workers.each(visit, 50)
    assert (seen == 1).all()


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_jobs", [1, 3])
def test_rows_come_together_in_order(n_jobs: int) -> None:
    with Workers(n_jobs) as workers:
        rows = workers.rows(lambda block: np.arange(block.start, block.stop)[:, None] + [0, 1], 50, (2,), int)
        single = workers.rows(lambda block: np.arange(block.start, block.stop), 50, (), np.uint8, size=3)
    assert (rows == np.arange(50)[:, None] + [0, 1]).all()
    assert (single == np.arange(50)).all() and single.dtype == np.uint8


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_rows", [0, 5, 50])
def test_sparse_rows_come_together_in_order(n_rows: int) -> None:
    whole = sparse.random(n_rows, 9, 0.3, format="csr", dtype=np.float32, random_state=0)
    with Workers(2) as workers:
        again = workers.sparse_rows(lambda block: whole[block], n_rows, 9)
    assert again.shape == whole.shape and (again != whole).nnz == 0


@pytest.mark.usefixtures("small_blocks")
def test_sums_are_taken_over_shares_of_blocks(rng: np.random.Generator) -> None:
    values = rng.standard_normal(100) * 10.0 ** rng.integers(-8, 8, size=100)
    parts = [values[rows].sum() for rows in row_blocks(100)]
    shares = [sum(parts[at + 1 : at + 4], start=parts[at]) for at in range(0, len(parts), 4)]
    with Workers(2) as workers:
        assert workers.total(lambda rows: values[rows].sum(), 100) == sum(shares[1:], start=shares[0])


def test_total_takes_nested_tuples() -> None:
    with Workers(1) as workers:
        total = workers.total(lambda rows: (1, (rows.stop - rows.start, 0.5)), 2 * BLOCK_ROWS + 1)
    assert total == (3, (2 * BLOCK_ROWS + 1, 1.5))


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_in_a_thread_reaches_the_caller(n_jobs: int) -> None:
    def fail(rows: slice) -> None:
        if rows.start == 14:
            raise ZeroDivisionError("block 2")

    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        with pytest.raises(ZeroDivisionError, match="block 2"), Workers(n_jobs) as workers:
            workers.each(fail, 50)
        assert _blas_threads() == before
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("crossbyte")]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_blas_has_one_thread_inside_and_its_own_number_after(n_jobs: int) -> None:
    with threadpool_limits(2, user_api="blas"):
        before = _blas_threads()
        assert 2 in before
        with Workers(n_jobs):
            assert set(_blas_threads()) == {1}
        assert _blas_threads() == before


def test_workers_can_be_entered_again() -> None:
    workers = Workers(2)
    for _ in range(2):
        with workers:
            assert list(workers.map(abs, [-1, -2])) == [1, 2]


@pytest.mark.parametrize(("n_jobs", "expected"), [(None, "all"), (-1, "all"), (1, 1), (3, 3), (0, 1)])
def test_number_of_threads(n_jobs: int | None, expected: Any) -> None:
    assert Workers(n_jobs).n_jobs == (available_cores() if expected == "all" else expected)


def test_concurrent_workers_restore_blas_only_when_the_last_one_leaves() -> None:
    def blas_threads() -> list[int]:
        return [entry["num_threads"] for entry in threadpool_info() if entry["user_api"] == "blas"]

    before = blas_threads()
    first, second = Workers(1), Workers(1)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert set(blas_threads()) == {1}
    second.__exit__(None, None, None)
    assert blas_threads() == before
