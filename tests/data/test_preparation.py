"""Preparation: centre, PCA, unit length; the same bits whatever the storage of the same values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute.executor import BLOCK_ROWS, Workers
from crossbyte.data import preparation
from crossbyte.data.preparation import CentredSparseRows, Preparation
from crossbyte.errors import InvalidInput
from support import oracles


def _prepare(raw: Any, n_components: int | None = None, new: Any = None) -> tuple[Preparation, Any]:
    with Workers(1) as workers:
        learned = Preparation.fit(raw, n_components, "images", workers)
        return learned, learned.apply(raw if new is None else new, workers).dense()


def _counts(seed: int = 0, n: int = 80, d: int = 15) -> Any:
    """Small whole numbers: every numeric type can hold them. Rows 0 and 9 are zero."""
    raw = np.random.default_rng(seed).poisson(0.8, size=(n, d)).astype(np.float64)
    raw[[0, 9]] = 0.0
    return raw


def _naive(raw: Any, components: Any = None) -> Any:
    centred = raw - raw.mean(axis=0)
    reduced = centred if components is None else centred @ components.T
    lengths = np.linalg.norm(reduced, axis=1, keepdims=True)
    return np.where(raw.any(axis=1, keepdims=True), reduced / lengths, 0.0)


def test_rows_are_centred_and_brought_to_unit_length() -> None:
    raw = _counts()
    learned, rows = _prepare(raw)
    np.testing.assert_allclose(rows, _naive(raw), atol=1e-6)
    assert rows.dtype == np.float32
    assert learned.n_features == learned.n_dims == 15
    lengths = np.linalg.norm(rows, axis=1)
    np.testing.assert_allclose(np.delete(lengths, [0, 9]), 1.0, atol=1e-6)
    assert not rows[[0, 9]].any()


@pytest.mark.parametrize("power", [0.5, 0.3])
@pytest.mark.parametrize("n_components", [None, 5])
def test_values_are_taken_to_a_power_before_everything_else(n_components: int | None, power: float) -> None:
    raw = _counts(2) * np.where(np.arange(15) % 2, 1.0, -1.0) * 7.0
    powered = np.sign(raw) * np.abs(raw) ** power
    expected = _prepare(powered, n_components)[1]
    with Workers(1) as workers:
        for stored in (raw, sparse.csr_matrix(raw)):
            learned = Preparation.fit(stored, n_components, "images", workers, power)
            np.testing.assert_allclose(learned.apply(stored, workers).dense(), expected, atol=1e-6)


@pytest.mark.parametrize("n_components", [1, 5, 14])
def test_reduction_is_principal_component_analysis(n_components: int) -> None:
    raw = _counts(1)
    learned, rows = _prepare(raw, n_components)
    expected = oracles.principal_directions(raw, n_components)
    signs = np.sign((learned.components * expected).sum(axis=1))
    np.testing.assert_allclose(learned.components, expected * signs[:, None], atol=1e-8)
    np.testing.assert_allclose(rows, _naive(raw, learned.components), atol=1e-6)
    assert learned.n_dims == rows.shape[1] == n_components


def test_more_components_than_dimensions_mean_no_reduction() -> None:
    assert _prepare(_counts(), 15)[0].components is None
    assert _prepare(_counts(), 64)[0].components is None


def test_components_stop_at_the_rank(rng: np.random.Generator) -> None:
    raw = rng.standard_normal((50, 3)) @ rng.standard_normal((3, 12)) + 5.0
    assert _prepare(raw, 8)[0].components.shape == (3, 12)


@pytest.mark.parametrize("n_components", [None, 6])
def test_sparse_and_dense_are_prepared_alike(n_components: int | None) -> None:
    raw = _counts(2)
    dense, dense_rows = _prepare(raw, n_components)
    found, rows = _prepare(sparse.csr_matrix(raw), n_components)
    np.testing.assert_allclose(found.mean, dense.mean, atol=1e-12)
    np.testing.assert_allclose(rows, dense_rows, atol=1e-6)
    assert not rows[[0, 9]].any()


def test_sparse_rows_stay_sparse_without_reduction() -> None:
    raw = sparse.csr_matrix(_counts())
    with Workers(1) as workers:
        learned = Preparation.fit(raw, None, "texts", workers)
        assert isinstance(learned.apply(raw, workers), CentredSparseRows)


@pytest.mark.parametrize("n_components", [None, 6])
def test_new_rows_use_what_was_learned(n_components: int | None) -> None:
    raw, new = _counts(3), _counts(4, n=12)
    learned, rows = _prepare(raw, n_components, new)
    centred = new - raw.mean(axis=0)
    reduced = centred if learned.components is None else centred @ learned.components.T
    expected = oracles.unit_rows(reduced) * new.any(axis=1, keepdims=True)
    np.testing.assert_allclose(rows, expected, atol=1e-6)


# --- storage --------------------------------------------------------------------------------------------


def _same_bits(left: tuple[Preparation, Any], right: tuple[Preparation, Any]) -> None:
    assert left[1].tobytes() == right[1].tobytes()
    assert left[0].scale == right[0].scale and left[0].mean.tobytes() == right[0].mean.tobytes()
    for a, b in zip([left[0].components], [right[0].components], strict=True):
        assert (a is None) == (b is None) and (a is None or a.tobytes() == b.tobytes())


@pytest.mark.parametrize("n_components", [None, 6])
@pytest.mark.parametrize("dtype", ["f2", "f4", ">f4", ">f8", "i1", "u1", "i2", ">i4", "i8", "u8"])
def test_every_numeric_type_gives_the_same_bits(dtype: str, n_components: int | None) -> None:
    raw = _counts()
    _same_bits(_prepare(raw.astype(dtype), n_components), _prepare(raw, n_components))


@pytest.mark.parametrize("n_components", [None, 6])
def test_truth_values_are_zeros_and_ones(n_components: int | None) -> None:
    raw = _counts() > 0
    _same_bits(_prepare(raw, n_components), _prepare(raw.astype(float), n_components))


def _strided(raw: Any, _: Path) -> Any:
    return np.repeat(np.repeat(raw, 2, axis=0), 3, axis=1)[::2, ::3]


def _backwards(raw: Any, _: Path) -> Any:
    return np.ascontiguousarray(raw[::-1, ::-1])[::-1, ::-1]


def _mapped(raw: Any, folder: Path) -> Any:
    np.save(folder / "rows.npy", raw)
    return np.load(folder / "rows.npy", mmap_mode="r")


def _fortran(raw: Any, _: Path) -> Any:
    return np.asfortranarray(raw)


def _read_only(raw: Any, _: Path) -> Any:
    raw = raw.copy()
    raw.flags.writeable = False
    return raw


@pytest.mark.parametrize("n_components", [None, 6])
@pytest.mark.parametrize("store", [_strided, _backwards, _mapped, _fortran, _read_only])
def test_every_memory_order_gives_the_same_bits(store: Any, n_components: int | None, tmp_path: Path) -> None:
    raw = np.random.default_rng(5).standard_normal((90, 15)).astype(np.float32)
    _same_bits(_prepare(store(raw, tmp_path), n_components), _prepare(raw, n_components))


@pytest.mark.parametrize("n_components", [None, 6])
def test_the_number_of_threads_does_not_change_a_bit(
    n_components: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crossbyte.compute.executor.BLOCK_ROWS", 16)
    raw = np.random.default_rng(6).standard_normal((90, 15))
    found = []
    for n_jobs in (1, 3):
        with Workers(n_jobs) as workers:
            learned = Preparation.fit(raw, n_components, "images", workers)
            found.append((learned, learned.apply(raw, workers).dense()))
    _same_bits(*found)


# --- ranges ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n_components", [None, 6])
@pytest.mark.parametrize("scale", [1e-100, 1e-30, 1e30, 1e100])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_the_unit_of_measurement_does_not_matter(kind: Any, scale: float, n_components: int | None) -> None:
    raw = _counts(7)
    _, expected = _prepare(kind(raw), n_components)
    _, rows = _prepare(kind(raw * scale), n_components)
    np.testing.assert_allclose(np.abs(rows), np.abs(expected), atol=1e-5)


def test_a_power_of_two_changes_no_bit() -> None:
    raw = np.random.default_rng(8).standard_normal((40, 9))
    assert _prepare(raw * 2.0**40)[1].tobytes() == _prepare(raw)[1].tobytes()


@pytest.mark.parametrize("scale", [1e-30, 1e30])
def test_single_precision_at_the_ends_of_its_range(scale: float) -> None:
    raw = _counts(9)
    _, rows = _prepare((raw * scale).astype(np.float32))
    np.testing.assert_allclose(rows, _prepare(raw)[1], atol=1e-5)


@pytest.mark.parametrize("n_components", [3, 6])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_wide_sides_are_reduced_without_their_gram_matrix(
    kind: Any, n_components: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(10)
    raw = rng.standard_normal((200, 30)) * 0.6 ** np.arange(30)
    narrow, narrow_rows = _prepare(raw, n_components)
    monkeypatch.setattr(preparation, "MAX_GRAM_DIMS", 8)
    wide, wide_rows = _prepare(kind(raw), n_components)
    np.testing.assert_allclose(wide.components, narrow.components, atol=1e-5)
    np.testing.assert_allclose(wide_rows, narrow_rows, atol=1e-4)


@pytest.mark.parametrize("value", [0.0, 1.0, -3.5, 1e100])
@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
@pytest.mark.parametrize("n_components", [None, 3])
def test_equal_rows_are_refused(kind: Any, value: float, n_components: int | None) -> None:
    with pytest.raises(InvalidInput, match="images: expected rows that differ"):
        _prepare(kind(np.full((20, 5), value)), n_components)


def test_a_whole_block_of_empty_rows_may_come_first() -> None:
    raw = sparse.random_array((BLOCK_ROWS + 500, 9), density=0.3, rng=np.random.default_rng(3)).tolil()
    raw[:BLOCK_ROWS] = 0.0
    learned, rows = _prepare(sparse.csr_matrix(raw), 3)
    assert np.isfinite(rows).all() and np.isfinite(learned.mean).all()


@pytest.mark.parametrize("n_components", [None, 5])
def test_constant_columns_change_nothing(n_components: int | None) -> None:
    raw = np.random.default_rng(11).standard_normal((60, 8))
    wider = np.insert(raw, [0, 4, 8], [[7.0, 0.0, -2.0]], axis=1)
    learned, rows = _prepare(wider, n_components)
    expected = _prepare(raw, n_components)[1]
    np.testing.assert_allclose(
        rows if n_components else np.delete(rows, [0, 5, 10], axis=1), expected, atol=1e-6
    )
    assert np.isfinite(learned.mean).all()


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_row_that_is_the_mean_becomes_zero(kind: Any) -> None:
    raw = np.array([[1.0, 3.0], [3.0, 1.0], [2.0, 2.0]])
    np.testing.assert_allclose(
        _prepare(kind(raw))[1], [[-(0.5**0.5), 0.5**0.5], [0.5**0.5, -(0.5**0.5)], [0, 0]], atol=1e-6
    )
