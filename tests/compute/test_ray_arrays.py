"""Rows in shares, without Ray: some of them are what an array or a CSR matrix would give; and Ray missing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from crossbyte.compute.executor import keep_connected
from crossbyte.compute.ray_workers import (
    RayArray,
    RaySparse,
    cut_shares,
    find_needed_shares,
    pickle_without_rows,
)
from crossbyte.errors import MissingExtra

N_ROWS = 50
BLOCKS = [[slice(0, 8), slice(8, 16)], [slice(16, 24), slice(24, 32)], [slice(32, 40), slice(40, N_ROWS)]]
DENSE = np.arange(3 * N_ROWS, dtype=np.float32).reshape(N_ROWS, 3)
THIN = sparse.csr_matrix(DENSE * (DENSE % 4 == 1))


def in_shares(kind: Any, rows: Any) -> Any:
    """Rows whose references are the shares themselves."""
    shares = [rows[share[0].start : share[-1].stop] for share in BLOCKS]
    return kind.of(BLOCKS, (3,), np.float32, shares, lambda share: share)


ARRAY, SPARSE = in_shares(RayArray, DENSE), in_shares(RaySparse, THIN)
BOUND = st.none() | st.integers(-60, 60)
STEP = st.none() | st.integers(-7, 7).filter(bool)


@given(BOUND, BOUND, STEP)
def test_slices(start: int | None, stop: int | None, step: int | None) -> None:
    rows = slice(start, stop, step)
    np.testing.assert_array_equal(ARRAY[rows], DENSE[rows])
    np.testing.assert_array_equal(SPARSE[rows].toarray(), THIN.toarray()[rows])


@given(st.lists(st.integers(0, N_ROWS - 1)))
def test_chosen_rows(rows: list[int]) -> None:
    chosen = np.array(rows, dtype=np.intp)
    np.testing.assert_array_equal(ARRAY[chosen], DENSE[chosen])
    np.testing.assert_array_equal(SPARSE[chosen].toarray(), THIN.toarray()[chosen])


def test_tells_its_shape() -> None:
    assert (ARRAY.shape, ARRAY.ndim, len(ARRAY), ARRAY.dtype) == ((N_ROWS, 3), 2, N_ROWS, np.float32)
    assert SPARSE.shape == (N_ROWS, 3)
    np.testing.assert_array_equal(np.asarray(ARRAY, dtype=np.float64), DENSE)
    assert [len(share) for share in cut_shares(40_000)] == [4, 4, 2]


@given(st.integers(0, 2), st.sampled_from([None, N_ROWS]))
def test_a_task_gets_the_shares_of_its_blocks(share: int, n_rows: int | None) -> None:
    assert find_needed_shares([ARRAY, SPARSE], BLOCKS[share], n_rows) == [(0, share), (1, share)]
    assert find_needed_shares([ARRAY], BLOCKS[share][1], n_rows) == [(0, share)]


def test_of_other_rows_it_gets_all() -> None:
    assert find_needed_shares([ARRAY], [slice(0, 8)], 77) == [(0, 0), (0, 1), (0, 2)]
    assert find_needed_shares([ARRAY], "a run", None) == [(0, 0), (0, 1), (0, 2)]
    assert find_needed_shares([], "a run", None) == []


def test_a_function_is_sent_without_its_rows() -> None:
    with pickle_without_rows() as rows:
        first, again, other = ARRAY.__reduce__(), ARRAY.__reduce__(), SPARSE.__reduce__()
    assert rows == [ARRAY, SPARSE]
    assert [values[3] for _, values in (first, again, other)] == [[0, 1, 2]] * 3
    assert [values[4].__self__.place for _, values in (first, again, other)] == [0, 0, 1]
    assert ARRAY.__reduce__()[1][3] is ARRAY.references
    kind, values = first
    with pytest.raises(RuntimeError, match="outside of its block"):  # no task has put its shares there
        kind(*values)[0:1]


def test_ray_is_asked_for_only_when_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    modules = "crossbyte.compute.ray_workers, crossbyte.index.index, crossbyte.sharding.index"
    subprocess.run(
        [sys.executable, "-c", f"import sys, {modules}; assert 'ray' not in sys.modules"], check=True
    )
    monkeypatch.setitem(sys.modules, "ray", None)
    with keep_connected(None):
        pass
    from crossbyte.compute.executor import make_executor

    with pytest.raises(
        MissingExtra, match=r"a cluster needs Ray; install it with: pip install 'crossbyte\[ray\]'"
    ):
        make_executor(1, cluster="local")
