"""The scan gives the rows and distances of a full sort, bit for bit, at every level, however it is asked."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from crossbyte.compute.kernels import ScanResult, ScanSide, pack_codes, scan, unpack_codes
from support.kernel_levels import LEVELS, NATIVE, _as_before, at_level  # noqa: F401  (a fixture for all tests)
from support.scan_cases import KINDS, Case, Job, expected, large_cases, make, small_cases

PER_KIND = 160


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> str:
    at_level(request.param)
    return str(request.param)


def split(result: ScanResult) -> list[tuple[Any, Any]]:
    ends = np.cumsum(result.counts)[:-1]
    return list(zip(np.split(result.rows, ends), np.split(result.distances, ends), strict=True))


def same(found: list[tuple[Any, Any]], truth: list[tuple[Any, Any]]) -> bool:
    pairs = list(zip(found, truth, strict=True))
    return all(
        (rows.tobytes(), distances.tobytes()) == (right.tobytes(), sums.tobytes())
        for (rows, distances), (right, sums) in pairs
    )


def slices(job: Job) -> list[slice]:
    """The whole batch, and its first and last query alone."""
    last = job.case.n_queries - 1
    alone = [slice(0, 1), slice(last, last + 1)] if last else []
    return [slice(0, last + 1), *alone]


def check(case: Case) -> None:
    """One case: every level, one and two threads, single and batch."""
    job = make(case)
    truth = expected(job)
    for queries in slices(job):
        sides, n_items, k, options = job.arguments(queries)
        for level in LEVELS:
            at_level(level)
            for n_threads in (1,) if level == "numpy" else (1, 2):
                found = split(scan(sides, n_items, k, **options, n_threads=n_threads))
                assert same(found, truth[queries]), f"{level}, {n_threads} threads, {queries}: {case}"


@pytest.mark.parametrize("kind", KINDS)
def test_small_cases_agree_with_a_full_sort(kind: str) -> None:
    for case in small_cases(kind, PER_KIND):
        check(case)


@pytest.mark.parametrize("part", range(3))
def test_large_cases_agree_with_a_full_sort(part: int) -> None:
    for case in large_cases()[part::3]:
        check(case)


def test_there_are_at_least_three_thousand_cases_and_they_cover_what_they_should() -> None:
    cases = [*(case for kind in KINDS for case in small_cases(kind, PER_KIND)), *large_cases()]
    print(f"{len(cases)} cases")
    assert len(set(cases)) >= 3000
    assert {0, 1, 63, 64, 65, 127, 4096, 40_000} <= {case.n_items for case in cases}
    assert {1, 5, 16, 31, 47, 48, 64, 65, 100, 130} <= {case.n_queries for case in cases}
    assert {(1,), (64,), (64, 64)} <= {case.n_codebooks for case in cases}
    assert {1, 2, 100} <= {case.k for case in cases}
    assert sum(case.k > case.n_items for case in cases) > 100


# Beside the cases


def sides_of(codes: Any, tables: Any, offsets: Any = None) -> list[ScanSide]:
    zeros = np.zeros(len(tables), np.float32)
    return [ScanSide(pack_codes(codes), tables, zeros if offsets is None else offsets)]


@pytest.mark.parametrize("n_rows", [0, 1, 63, 64, 65, 200])
def test_packed_codes_can_be_unpacked(rng: Any, n_rows: int) -> None:
    codes = rng.integers(0, 256, (n_rows, 3), dtype=np.uint8)
    packed = pack_codes(codes)
    assert packed.shape == (-(-n_rows // 64), 3, 64)
    rows = np.arange(n_rows)
    np.testing.assert_array_equal(unpack_codes(packed, rows), codes)
    np.testing.assert_array_equal(unpack_codes(packed, rows[::-1]), codes[::-1])
    padding = packed.transpose(0, 2, 1).reshape(-1, 3)[n_rows:]
    assert not padding.any()


def test_padding_is_never_found(level: str, rng: Any) -> None:
    """The items behind the last one have code 0, which here is the nearest."""
    codes = rng.integers(1, 256, (70, 2), dtype=np.uint8)
    tables = np.ones((20, 2, 256), np.float32)
    tables[:, :, 0] = 0
    everywhere = np.full(2, np.iinfo(np.uint64).max, np.uint64)
    for allowed in (None, everywhere):
        for n_queries in (1, 20):
            found = scan(sides_of(codes, tables[:n_queries]), 70, 200, allowed=allowed)
            assert found.counts.tolist() == [70] * n_queries
            assert found.rows.tolist() == list(range(70)) * n_queries


def test_no_query_finds_nothing(level: str) -> None:
    for n_items in (0, 100):
        found = scan(
            sides_of(np.zeros((n_items, 2), np.uint8), np.zeros((0, 2, 256), np.float32)), n_items, 5
        )
        assert [len(part) for part in found] == [0, 0, 0]
        assert [part.dtype for part in found] == [np.int64, np.float32, np.int64]


def test_sums_that_overflow_are_infinitely_far(level: str) -> None:
    codes = np.array([[1, 1], [0, 0], [1, 0], [1, 1]], np.uint8)
    tables = np.zeros((17, 2, 256), np.float32)
    tables[:, :, 1] = 3e38
    for n_queries in (1, 17):
        with np.errstate(over="ignore"):
            found = scan(sides_of(codes, tables[:n_queries]), 4, 4)
        assert found.rows[:4].tolist() == [1, 2, 0, 3]
        assert found.distances[:4].tolist() == [0, float(np.float32(3e38)), np.inf, np.inf]


def test_threads_share_one_set_of_codes(level: str, rng: Any) -> None:
    """Callers in several threads do not disturb each other."""
    job = make(Case(3, "any", 5000, 20, (4,), 30))
    sides, n_items, k, options = job.arguments(slice(None))
    truth = expected(job)
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: split(scan(sides, n_items, k, **options, n_threads=2)), range(12)))
    assert all(same(answer, truth) for answer in answers)


def test_more_threads_than_blocks_do_no_harm(level: str) -> None:
    for n_items in (0, 1, 64, 3000):
        job = make(Case(5, "ties", n_items, 3, (4,), 9))
        sides, _, k, options = job.arguments(slice(None))
        assert same(split(scan(sides, n_items, k, **options, n_threads=64)), expected(job))


@pytest.mark.parametrize("max_distance", [np.inf, -np.inf, 3e38, -3e38, 0.5, 0.0, -0.0])
def test_any_limit_will_do(level: str, max_distance: float) -> None:
    tables = np.tile(np.arange(256, dtype=np.float32) / 4, (1, 1, 1))
    found = scan(sides_of(np.arange(9, dtype=np.uint8)[:, None], tables), 9, 20, max_distance=max_distance)
    assert found.rows.tolist() == [row for row in range(9) if row / 4 <= max_distance]


def _wrong() -> dict[str, tuple[list[ScanSide], Any]]:
    codes, tables = np.zeros((2, 3, 64), np.uint8), np.zeros((4, 3, 256), np.float32)
    good = ScanSide(codes, tables, np.zeros(4, np.float32))
    return {
        "too few codes": ([good._replace(codes=codes[:1])], None),
        "codebooks without tables": ([good._replace(tables=tables[:, :2].copy())], None),
        "too few words": ([good._replace(tables=tables[:, :, :255].copy())], None),
        "too few offsets": ([good._replace(offsets=good.offsets[:3])], None),
        "too few queries": ([good, good._replace(tables=tables[:3], offsets=good.offsets[:3])], None),
        "no side": ([], None),
        "too few bits": ([good], np.zeros(1, np.uint64)),
        "bits of a wrong type": ([good], np.zeros(2, np.int64)),
    }


def test_the_extension_refuses_what_it_would_read_beyond() -> None:
    for level in set(LEVELS) - {"numpy"}:
        at_level(level)
        for sides, allowed in _wrong().values():
            with pytest.raises((ValueError, TypeError)):
                scan(sides, 128, 5, allowed=allowed)


@pytest.mark.parametrize("n_queries", [1, 70])
@pytest.mark.parametrize("order", ["near first", "near last", "nearest in one place", "far in between"])
def test_what_was_assumed_of_rows_that_are_to_come_may_be_wrong(
    level: str, rng: Any, order: str, n_queries: int
) -> None:
    """The scan expects what it has seen to go on: where it does not, rows must not be missed."""
    n_items, k = 40_000, 100
    codes = rng.integers(128, 256, (n_items, 2), dtype=np.uint8)
    near = {
        "near first": np.arange(8000),
        "near last": np.arange(32_000, n_items),
        "nearest in one place": np.arange(5000, 5200),
        "far in between": np.flatnonzero(np.arange(n_items) // 64 % 5 != 0),
    }[order]
    codes[near] = rng.integers(0, 256, (len(near), 2), dtype=np.uint8)
    tables = np.sort(rng.random((n_queries, 2, 256), dtype=np.float32), axis=2)
    found = scan(sides_of(codes, tables), n_items, k)
    for query, (rows, distances) in enumerate(split(found)):
        sums = tables[query, 0, codes[:, 0]] + tables[query, 1, codes[:, 1]]
        best = np.lexsort((np.arange(n_items), sums))[:k]
        np.testing.assert_array_equal(rows, best)
        np.testing.assert_array_equal(distances, sums[best])
