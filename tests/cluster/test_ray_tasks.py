"""Ray as an executor: the same sums and rows as with threads, errors as themselves, nothing left behind."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute import kernels, ray_session, ray_workers
from crossbyte.compute.executor import Executor, Workers
from crossbyte.compute.ray_session import connection
from crossbyte.compute.ray_workers import RayArray, RaySparse, RayWorkers
from crossbyte.errors import ClusterError, InvalidInput, TaskDied

N_ROWS = 40_000  # three shares, the last one of two blocks and a half

WITHOUT_CROSSBYTE = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "crossbyte":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


@pytest.fixture
def dense(rng: np.random.Generator) -> np.ndarray:
    return rng.standard_normal((N_ROWS, 3)).astype(np.float32)


@pytest.fixture
def thin(rng: np.random.Generator) -> sparse.csr_matrix:
    return sparse.random(N_ROWS, 7, density=0.2, format="csr", dtype=np.float32, rng=rng)


def steps(workers: Executor, dense: Any, thin: Any) -> list[Any]:
    """A sum, rows, sparse rows, and a sum over both of them."""
    X, S = workers.hold(dense), workers.hold(thin)
    gram, norm = workers.total(lambda b: (X[b].T @ X[b], float(np.square(X[b]).sum())), N_ROWS)
    doubled = workers.rows(lambda b: X[b] @ gram, N_ROWS, (3,), np.float32)
    fine = workers.rows(lambda b: doubled[b].sum(axis=1), N_ROWS, (), np.float64, size=1000)
    scaled = workers.sparse_rows(lambda b: S[b] * np.float32(norm), N_ROWS, 7)
    cross = workers.total(lambda b: scaled[b].T @ doubled[b] * fine[b].sum(), N_ROWS)
    pieces = list(workers.map(lambda b: float(fine[b].sum()), [slice(5, 9), slice(16_000, 33_000)]))
    chosen = np.array([39_999, 4, 17_000, 4, 16_384])
    return [gram, norm, doubled, scaled[:], cross, pieces, fine[chosen], scaled[chosen], X[20_000:20_000]]


def test_gives_the_bits_of_threads(cluster: str, dense: np.ndarray, thin: sparse.csr_matrix) -> None:
    with Workers(2) as workers:
        expected = steps(workers, dense, thin)
    with RayWorkers(cluster, 2) as workers:
        found = steps(workers, dense, thin)
    for left, right in zip(expected, found, strict=True):
        if sparse.issparse(left):
            assert left.dtype == right.dtype and (left != right).nnz == 0
        else:
            np.testing.assert_array_equal(np.asarray(left), np.asarray(right))
            assert np.asarray(left).dtype == np.asarray(right).dtype


def test_leaves_rows_in_the_object_store(cluster: str, dense: np.ndarray, thin: sparse.csr_matrix) -> None:
    with RayWorkers(cluster) as workers:
        X, S = workers.hold(dense), workers.hold(thin)
        assert isinstance(X, RayArray) and isinstance(S, RaySparse)
        assert workers.hold(X) is X
        assert (X.shape, X.dtype, len(X), X.ndim) == ((N_ROWS, 3), np.float32, N_ROWS, 2)
        assert S.shape == (N_ROWS, 7)
        assert len(X.references) == 3
        np.testing.assert_array_equal(np.asarray(X), dense)
        np.testing.assert_array_equal(X[::7000], dense[::7000])
        assert (S[10:20_000] != thin[10:20_000]).nnz == 0


def test_reads_stored_rows_share_by_share(cluster: str, dense: np.ndarray) -> None:
    class Stored:
        shape, dtype, is_sparse = dense.shape, dense.dtype, False
        most = 0

        def __getitem__(self, rows: slice) -> np.ndarray:
            self.most = max(self.most, rows.stop - rows.start)
            return dense[rows]

    stored = Stored()
    with RayWorkers(cluster) as workers:
        np.testing.assert_array_equal(workers.hold(stored)[:], dense)
    assert stored.most == 16_384


def test_results_can_be_written_to(cluster: str) -> None:
    with RayWorkers(cluster) as workers:
        gram = workers.total(lambda b: np.ones((300, 300)), 10)
        gram += 1
        (piece,) = workers.map(lambda n: (np.zeros((n, n)),), [300])
        piece[0][0] = 1


def test_nothing_has_no_rows(cluster: str) -> None:
    with RayWorkers(cluster) as workers:
        assert workers.rows(lambda b: None, 0, (2,), np.float32)[:].shape == (0, 2)
        assert workers.sparse_rows(lambda b: None, 0, 5)[:].shape == (0, 5)
        assert workers.hold(np.empty((0, 4), np.float32))[:].shape == (0, 4)
        assert list(workers.map(abs, [])) == []


def test_an_error_of_a_task_comes_as_itself(cluster: str, tmp_path: Path) -> None:
    def refuse(block: slice) -> np.ndarray:
        with (tmp_path / "calls").open("a") as file:
            file.write("x")
        raise InvalidInput(f"row {block.start} is bad")

    with RayWorkers(cluster, 1) as workers:
        for call in (
            lambda: workers.total(refuse, 10),
            lambda: workers.rows(refuse, 10, (), np.float32),
            lambda: list(workers.map(refuse, [slice(0, 3)])),
        ):
            with pytest.raises(InvalidInput, match="^row 0 is bad$") as caught:
                call()
            assert type(caught.value) is InvalidInput
        assert workers.total(lambda b: 1, 10) == 1
    assert (tmp_path / "calls").read_text() == "xxx"  # none is tried again


def test_no_task_waits_for_a_longer_one(cluster: str, tmp_path: Path) -> None:
    others_are_done = tmp_path / "others"

    def double(number: int) -> int:
        end = time.monotonic() + 60
        while number == 0 and not others_are_done.exists() and time.monotonic() < end:
            time.sleep(0.01)
        return 2 * number

    seen = []
    with RayWorkers(cluster, 2) as workers:  # four at a time: all others must be begun while the first works
        for number, get in workers.map_unordered(double, range(9)):
            seen.append(number)
            assert get() == 2 * number
            if len(seen) == 8:
                others_are_done.touch()
        assert list(workers.map_unordered(double, [])) == []
    assert seen[-1] == 0
    assert sorted(seen) == list(range(9))


def test_a_function_keeps_to_its_block(cluster: str, dense: np.ndarray) -> None:
    with RayWorkers(cluster) as workers:
        X = workers.hold(dense)
        with pytest.raises(RuntimeError, match="outside of its block"):
            workers.total(lambda b: X[0:1].sum(), N_ROWS)


def test_tasks_have_one_thread_and_the_same_kernels(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def setting(_: int) -> tuple[str, int, list[int]]:
        from threadpoolctl import threadpool_info

        return kernels.implementation(), workers.n_jobs, [pool["num_threads"] for pool in threadpool_info()]

    with RayWorkers(cluster) as workers:
        (found,) = workers.map(setting, [0])
        assert found[:2] == (kernels.implementation(), 1)
        assert set(found[2]) == {1}
    if kernels.implementation() == "numpy":
        return
    monkeypatch.setenv("CROSSBYTE_NO_NATIVE", "1")
    with RayWorkers(cluster) as workers, pytest.raises(ClusterError, match="kernels native and numpy"):
        list(workers.map(setting, [0]))  # this process has loaded the others already


def test_a_killed_worker_costs_its_task_only(cluster: str, dense: np.ndarray, tmp_path: Path) -> None:
    def once(block: slice) -> np.ndarray:
        mark = tmp_path / f"{block.start}"
        if block.start in (0, 20_480) and not mark.exists():
            mark.touch()
            os.kill(os.getpid(), 9)
        return X[block] * 2

    with RayWorkers(cluster, 2) as workers:
        X = workers.hold(dense)
        doubled = workers.rows(once, N_ROWS, (3,), np.float32)
        np.testing.assert_array_equal(doubled[:], dense * 2)
    assert len(list(tmp_path.iterdir())) == 2


def test_a_task_that_always_dies_is_not_a_lost_cluster(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_session, "RETRIES", 1)
    with RayWorkers(cluster, 2) as workers:
        with pytest.raises(TaskDied, match="^the process of a task died 2 times, perhaps for want of memory"):
            workers.total(lambda b: os.kill(os.getpid(), 9), 10)
        assert workers.total(lambda b: 1, 10) == 1


def test_a_worker_without_crossbyte_is_told(
    cluster: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_CROSSBYTE)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(ray_workers, "_PASSED_VARIABLES", ("PYTHONPATH",))
    with RayWorkers(cluster) as workers, pytest.raises(ClusterError) as caught:
        list(workers.map(abs, [1]))
    assert str(caught.value) == (
        "cluster: a worker could not load what it was sent (ModuleNotFoundError: No module named "
        "'crossbyte'); install the same crossbyte, and what it needs, on every machine"
    )


def test_a_ray_without_cpus_is_refused(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    users = connection._users
    with monkeypatch.context() as patched:
        patched.setattr(ray, "cluster_resources", lambda: {"memory": 1e9})
        for n_jobs in (None, 2):
            with pytest.raises(ClusterError, match="^cluster: expected a Ray with a CPU for tasks, got one"):
                RayWorkers(cluster, n_jobs).__enter__()
    assert connection._users == users


def test_more_tasks_than_there_is_room_for_wait(cluster: str) -> None:
    with RayWorkers(cluster, 5) as workers:
        assert workers.n_jobs == 5
        assert list(workers.map(abs, range(-7, 0))) == [7, 6, 5, 4, 3, 2, 1]


def test_uses_the_ray_that_is_there_and_leaves_it(cluster: str) -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    with RayWorkers(address) as workers:
        assert workers.n_jobs == 2
    assert ray.is_initialized()
    with pytest.raises(ClusterError, match=f"is connected to {address}; give cluster="):
        RayWorkers("10.0.0.1:6379").__enter__()
    assert ray.is_initialized()
