"""Features of documents with several captions: the mean of their captions, each encoded by itself."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from crossbyte.arrays import Raw
from crossbyte.gallery.encode import mean_rows

COUNTS = [1, 3, 2, 1]


def mean_rows_ref(rows: np.ndarray, counts: list[int]) -> np.ndarray:
    means, first = [], 0
    for count in counts:
        means.append(sum(rows[first + n] for n in range(count)) / count)
        first += count
    return np.array(means)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_rows_are_averaged_by_document(is_sparse: bool) -> None:
    dense = np.random.default_rng(0).normal(size=(sum(COUNTS), 5)).astype(np.float32)
    rows: Raw = sparse.csr_matrix(dense) if is_sparse else dense
    found = mean_rows(rows, COUNTS)
    assert sparse.issparse(found) == is_sparse and found.dtype == np.float32
    values = found.toarray() if is_sparse else found
    np.testing.assert_allclose(values, mean_rows_ref(dense, COUNTS), rtol=1e-6)


def test_single_captions_stay_as_they_are() -> None:
    rows = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)
    assert mean_rows(rows, [1] * 4) is rows
