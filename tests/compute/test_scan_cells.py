"""The scan of visited cells gives what a full sort of their items gives, bit for bit, at every level."""

from __future__ import annotations

import numpy as np
import pytest

from crossbyte.compute import kernels_numpy
from crossbyte.compute.kernels import ScanResult, ScanSide, pack_codes, scan, scan_cells
from support.kernel_levels import LEVELS, NATIVE, _as_before, at_level  # noqa: F401  (a fixture for all tests)
from support.scan_cases import TABLES

N_CELLS = 9


def case(seed: int) -> tuple[ScanSide, dict[str, np.ndarray]]:
    """Items in shuffled cells (one of them empty, one large), and queries that visit some."""
    rng = np.random.default_rng(seed)
    n_items, n_books = int(rng.integers(0, 3000)), int(rng.integers(1, 6))
    kind = list(TABLES)[seed % len(TABLES)]
    n_queries, n_visited = int(rng.integers(1, 5)), int(rng.integers(0, N_CELLS + 1))
    codes = rng.integers(0, 256 if seed % 3 else 3, (n_items, n_books)).astype(np.uint8)
    cells = np.sort(rng.choice(N_CELLS, n_items, p=[0.5, 0, 0.2, 0.1, 0.1, 0.05, 0.03, 0.01, 0.01]))
    tables = TABLES[kind](rng, (n_queries, n_books, 256)).astype(np.float32)
    offsets = rng.random(n_queries).astype(np.float32)
    visited = np.array([rng.permutation(N_CELLS)[:n_visited] for _ in range(n_queries)], dtype=np.int64)
    arrays = {
        "rows": rng.permutation(n_items + 70)[:n_items].astype(np.uint32),
        "starts": np.searchsorted(cells, np.arange(N_CELLS + 1)).astype(np.int64),
        "cells": visited.reshape(n_queries, n_visited),
    }
    return ScanSide(pack_codes(codes), tables, offsets), arrays


def same(left: ScanResult, right: ScanResult) -> bool:
    return all(a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_visited_cells_are_sorted_exactly(first: int) -> None:
    for seed in range(first, first + 10):
        check_visited_cells(seed)


def check_visited_cells(seed: int) -> None:
    side, arrays = case(seed)
    rng = np.random.default_rng(seed)
    n_words = (len(arrays["rows"]) + 70) // 64 + 1
    allowed = None if seed % 2 else rng.integers(0, 2**64, n_words, dtype=np.uint64)
    k, extra = int(rng.choice([1, 10, 100, 5000])), float(rng.choice([0.0, 0.375]))
    limit = float(rng.choice([np.inf, 1.0]))
    expected = kernels_numpy.scan_cells(side, *arrays.values(), k, extra, allowed, limit)
    for level in LEVELS:
        at_level(level)
        for n_threads in (1, 3):
            found = scan_cells(
                side, **arrays, k=k, extra=extra, allowed=allowed, max_distance=limit, n_threads=n_threads
            )
            assert same(found, expected), (seed, level, n_threads)


def test_all_cells_in_the_order_of_rows_are_the_plain_scan() -> None:
    for seed in range(20):
        side, arrays = case(seed)
        n_items, n_queries = len(arrays["rows"]), len(side.tables)
        everything = np.tile(np.arange(N_CELLS), (n_queries, 1))
        rows = np.arange(n_items, dtype=np.uint32)
        found = scan_cells(side, rows, arrays["starts"], everything, 20)
        assert same(found, scan([side], n_items, 20)), seed


def test_wrong_arrays_are_refused() -> None:
    if NATIVE is None:  # NumPy has its own messages
        return
    side, arrays = case(2)
    arrays["cells"] = np.zeros((len(side.tables), 1), dtype=np.int64)
    for wrong in (
        {"cells": np.full((len(side.tables), 1), N_CELLS)},
        {"cells": np.full((len(side.tables), 1), -1)},
        {"cells": np.zeros((len(side.tables) + 1, 1), dtype=np.int64)},
        {"starts": np.array([0, len(arrays["rows"]) + 1])},
        {"allowed": np.full(1, 2**64 - 1, dtype=np.uint64)},
    ):
        with pytest.raises(ValueError, match="must"):
            scan_cells(side, **(arrays | wrong), k=9)
