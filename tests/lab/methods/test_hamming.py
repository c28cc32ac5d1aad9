"""Packed signs and Hamming distances against counting bit by bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossbyte.errors import InvalidInput
from crossbyte.lab.methods import hashing
from crossbyte.lab.methods.hashing import hamming_distances, pack_signs

LENGTHS = [1, 7, 8, 9, 16, 17, 31, 33, 64, 65, 100, 128, 129, 600]


def counted(queries: Any, items: Any) -> Any:
    """Number of signs that differ, one pair and one bit at a time."""
    rows = [[sum((a > 0) != (b > 0) for a, b in zip(q, i, strict=True)) for i in items] for q in queries]
    return np.array(rows, dtype=np.float32)


@pytest.mark.parametrize("n_bits", LENGTHS)
def test_distances_are_counts_of_differing_signs(n_bits: int) -> None:
    rng = np.random.default_rng(n_bits)
    queries, items = rng.standard_normal((5, n_bits)), rng.standard_normal((9, n_bits))
    distances = hamming_distances(pack_signs(queries), pack_signs(items))
    assert distances.dtype == np.float32
    np.testing.assert_array_equal(distances, counted(queries, items))


@pytest.mark.parametrize("n_bits", LENGTHS)
def test_a_code_and_its_opposite_differ_in_every_bit_and_padding_never_counts(n_bits: int) -> None:
    values = np.random.default_rng(0).choice([-1.0, 1.0], (4, n_bits))
    codes = pack_signs(values)
    assert codes.shape == (4, -(-n_bits // 8))
    np.testing.assert_array_equal(np.diag(hamming_distances(codes, codes)), 0)
    np.testing.assert_array_equal(np.diag(hamming_distances(codes, pack_signs(-values))), n_bits)


def test_only_values_above_zero_set_a_bit() -> None:
    np.testing.assert_array_equal(pack_signs(np.array([[0.0, -0.0, 1e-300, -1e-300, 2.0]])), [[0b00101000]])
    np.testing.assert_array_equal(pack_signs([[True, False]]), [[0b10000000]])


def test_ties_are_kept() -> None:
    items = pack_signs(np.array([[1.0, -1], [1, -1], [-1, 1], [1, 1]]))
    np.testing.assert_array_equal(hamming_distances(items[:1], items), [[0, 0, 2, 1]])


def test_blocks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    queries, items = (rng.integers(0, 256, (n, 11), dtype=np.uint8) for n in (50, 40))
    whole = hamming_distances(queries, items)
    monkeypatch.setattr(hashing, "_BLOCK_ENTRIES", 130)
    np.testing.assert_array_equal(hamming_distances(queries, items), whole)


def test_no_queries_and_no_items() -> None:
    codes = pack_signs(np.ones((3, 12)))
    assert hamming_distances(codes[:0], codes).shape == (0, 3)
    assert hamming_distances(codes, codes[:0]).shape == (3, 0)


def test_codes_of_another_length_or_type_are_refused() -> None:
    codes = pack_signs(np.ones((3, 12)))
    with pytest.raises(InvalidInput, match=r"\(n, 2\)"):
        hamming_distances(pack_signs(np.ones((3, 20))), codes)
    with pytest.raises(InvalidInput, match="uint8"):
        hamming_distances(codes, codes.astype(np.int64))
    with pytest.raises(InvalidInput, match="shape"):
        pack_signs(np.ones(3))
