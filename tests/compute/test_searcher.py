"""One call from points to documents gives what its steps give, bit for bit, at every level."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crossbyte.compute import kernels_numpy
from crossbyte.compute.kernels import (
    AskedPart,
    CellPoints,
    CellRun,
    Searcher,
    SearchPart,
    TableSource,
    pack_codes,
    take_texts,
)
from crossbyte.errors import NumericalError
from support.kernel_levels import LEVELS, NATIVE, _as_before, at_level  # noqa: F401  (a fixture for all tests)

N_CELLS = 70

Array = np.ndarray


def same(left: Any, right: Any) -> bool:
    return all(a.dtype == b.dtype and a.tobytes() == b.tobytes() for a, b in zip(left, right, strict=True))


# The choice of cells


def _wide(rng: Any, n: int, d: int) -> Array:
    return rng.standard_normal((n, d)) * 10.0 ** rng.integers(-20, 17, (n, 1))


POINTS: dict[str, Callable[[Any, int, int], Array]] = {
    "any": lambda rng, n, d: rng.standard_normal((n, d)),
    "ties": lambda rng, n, d: rng.integers(-1, 2, (n, d)) / 2,
    "equal": lambda rng, n, d: np.full((n, d), 0.3),
    "zero": lambda rng, n, d: np.zeros((n, d)),
    "neighbours": lambda rng, n, d: 1.0 + rng.integers(0, 3, (n, d)) * np.finfo(np.float32).eps,
    "far from the origin": lambda rng, n, d: 1e5 + rng.standard_normal((n, d)),
    "wide": _wide,
    "tiny": lambda rng, n, d: rng.standard_normal((n, d)) * 1e-30,
    "denormal": lambda rng, n, d: rng.integers(-9, 9, (n, d)) * 1e-44,
    "huge": lambda rng, n, d: rng.standard_normal((n, d)) * 1e16,
    "one large dimension": lambda rng, n, d: rng.standard_normal((n, d)) * np.where(np.arange(d), 1.0, 1e6),
}
OFFSETS: dict[str, Callable[[Any, int], Array]] = {
    "none": lambda rng, n: np.zeros(n),
    "any": lambda rng, n: rng.standard_normal(n),
    "ties": lambda rng, n: rng.integers(0, 2, n) * 1.0,
    "swamping": lambda rng, n: rng.choice([-1e9, 1e9], n),
}


@pytest.mark.parametrize("kind", POINTS)
def test_cells_are_chosen_as_a_full_sort_would(kind: str) -> None:
    for seed, (offset, n_dims) in enumerate((o, d) for o in OFFSETS for d in (1, 2, 7, 64, 300)):
        rng = np.random.default_rng([seed, len(kind)])
        n_cells = int(rng.choice([1, 15, 16, 17, 64, 65, 300, 2100]))
        points = POINTS[kind](rng, n_cells, n_dims).astype(np.float32)
        cells = CellPoints(points, OFFSETS[offset](rng, n_cells).astype(np.float32))
        queries = np.concatenate([POINTS[each](rng, 1, n_dims) for each in (kind, "any", "zero", "ties")])
        queries = np.concatenate([queries.astype(np.float32), points[:1]])
        for count in {1, min(5, n_cells), max(1, n_cells // 5), n_cells}:
            expected = kernels_numpy.choose_cells(cells, queries, count)
            for level in LEVELS:
                at_level(level)
                found = cells.choose(queries, count)
                assert same([found], [expected]), (seed, offset, n_dims, n_cells, count, level)


def test_no_bound_is_trusted_where_values_are_not_finite() -> None:
    rng = np.random.default_rng(0)
    points, queries = rng.standard_normal((2, 90, 3)).astype(np.float32)
    for value in (np.nan, np.inf, -np.inf, 3e38):
        spoiled = points.copy()
        spoiled[7, 1] = value
        for level in LEVELS:
            at_level(level)
            for cells in (CellPoints(spoiled, points[:, 0]), CellPoints(points, spoiled[:, 1])):
                with np.errstate(all="ignore"):
                    chosen = cells.choose(queries[:4], 5)
                assert ((chosen >= 0) & (chosen < 90)).all()
            with np.errstate(all="ignore"):
                chosen = CellPoints(points, points[:, 0]).choose(spoiled, 5)
            assert ((chosen >= 0) & (chosen < 90)).all()


# The whole way


def _part(rng: Any, coding: int, sources: list[TableSource], quantizers: tuple[int, ...]) -> SearchPart:
    """Documents in cells, where they have one side; numbers in one of the three ways that they are kept."""
    n_items, n_dims = int(rng.integers(0, 1500)), sources[0].codewords_by_dim.shape[1]
    sides, plain = [], []
    for quantizer in quantizers:
        source = sources[quantizer]
        n_tables = len(source.codewords_by_dim) + (source.cross_levels is not None)
        plain.append(rng.integers(0, rng.choice([3, 256]), (n_items, n_tables)).astype(np.uint8))
        sides.append((quantizer, pack_codes(plain[-1])))
    steps = None
    if coding % 3:
        steps = np.cumsum(rng.integers(1, 4, n_items)).astype(np.uint32 if coding % 3 == 1 else np.uint64)
    part = SearchPart(coding, tuple(sides), n_items, int(rng.integers(0, 2**40)), steps)
    if len(quantizers) > 1:
        return part
    cells = rng.integers(0, N_CELLS // 2, n_items)  # half of them are empty
    router = CellPoints(
        rng.standard_normal((N_CELLS, n_dims)).astype(np.float32), np.zeros(N_CELLS, np.float32)
    )
    runs, cut = [], n_items // 3
    for rows in (np.arange(n_items - cut), np.arange(n_items - cut, n_items)):
        order = rows[np.argsort(cells[rows], kind="stable")]
        starts = np.searchsorted(cells[order], np.arange(N_CELLS + 1)).astype(np.int64)
        runs.append(CellRun(pack_codes(plain[0][order]), order.astype(np.uint32), starts))
    return part._replace(cells=router, runs=tuple(runs))


def _sources(rng: Any, n_dims: int) -> list[TableSource]:
    """Two quantizers, one of them with a stored cross term, and coarse words, so that distances are equal."""
    words = rng.integers(-2, 3, (2, 3, n_dims, 256)).astype(np.float32) / 2
    levels = np.linspace(-1, 1, 256).astype(np.float32)
    return [TableSource(words[0], levels, 0.7), TableSource(words[1], None, 0.1)]


def _case(seed: int) -> tuple[Searcher, Array, list[AskedPart]]:
    rng = np.random.default_rng(seed)
    n_dims = int(rng.choice([1, 3, 8, 17]))
    sources = _sources(rng, n_dims)
    wanted = [((0,), (1,), (0, 1), (0, 0))[i] for i in rng.permutation(4)[: rng.integers(0, 4)]]
    parts = [_part(rng, coding, sources, sides) for coding, sides in enumerate(wanted)]
    asked = []
    for place in rng.permutation(len(parts)).tolist():
        n_blocks = -(-parts[place].n_items // 64)
        allowed = rng.integers(0, 2**64, n_blocks, dtype=np.uint64)
        if n_blocks and seed % 2:
            allowed[:] = 2**64 - 1
        n_probe = int(rng.choice([0, 1, 9, N_CELLS])) if parts[place].cells is not None else 0
        asked.append(AskedPart(place, float(rng.choice([0.0, -0.0, 0.375, 1 / 3])), allowed, n_probe))
    points = rng.integers(-3, 4, (int(rng.choice([1, 2, 40])), n_dims)).astype(np.float32) / 2
    return Searcher(sources, parts), points, asked


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_documents_are_those_of_the_steps(first: int) -> None:
    for seed in range(first, first + 10):
        searcher, points, asked = _case(seed)
        asked = [each._replace(allowed=_clear_tail(searcher, each)) for each in asked]
        for k, limit in ((1, np.inf), (25, np.inf), (25, 1.5), (5000, np.inf)):
            expected = kernels_numpy.search(searcher, points, asked, k, limit)
            for level in LEVELS:
                at_level(level)
                for n_threads in (1, 3):
                    found = searcher.search(points, asked, k, max_distance=limit, n_threads=n_threads)
                    assert same(found, expected), (seed, k, limit, level, n_threads)


def _clear_tail(searcher: Searcher, asked: AskedPart) -> Array:
    """No bit is set beyond the last document, as in every bitset of an index."""
    n_items, allowed = searcher.parts[asked.part].n_items, asked.allowed.copy()
    if n_items % 64:
        allowed[-1] &= np.uint64(2 ** (n_items % 64) - 1)
    return allowed


def test_a_query_finds_alone_what_it_finds_in_a_batch() -> None:
    for seed in range(20):
        searcher, points, asked = _case(seed)
        for level in LEVELS:
            at_level(level)
            whole = searcher.search(points, asked, 7)
            ends = np.cumsum(whole.counts)
            for row, (start, end) in enumerate(zip(ends - whole.counts, ends, strict=True)):
                alone = searcher.search(points[row : row + 1], asked, 7)
                assert same(alone[1:], [each[start:end] for each in whole[1:]]), (seed, level, row)


def test_points_may_lie_at_any_address() -> None:
    """As Ray hands them to an actor: in the middle of a message."""
    searcher, points, asked = _case(3)
    message = np.empty(points.nbytes + 1, np.uint8)
    moved = message[1:].view(np.float32).reshape(points.shape)
    moved[...] = points
    assert not moved.flags.aligned
    source = searcher.sources[0]
    for level in LEVELS:
        at_level(level)
        assert same(searcher.search(moved, asked, 7), searcher.search(points, asked, 7))
        assert same(source.make_tables(moved), source.make_tables(points))


def test_a_query_beyond_float32_is_refused() -> None:
    searcher, points, asked = _case(3)
    for level in LEVELS:
        at_level(level)
        for value in (2e16, np.inf, np.nan):
            far = points.copy()
            far[-1, -1] = value
            with pytest.raises(NumericalError, match="too far"):
                searcher.search(far, asked, 3)


def test_no_queries_and_no_parts_find_nothing() -> None:
    searcher, points, asked = _case(3)
    for level in LEVELS:
        at_level(level)
        assert [len(each) for each in searcher.search(points[:0], asked, 3)] == [0] * 5
        assert [len(each) for each in searcher.search(points, [], 3)] == [len(points), 0, 0, 0, 0]


def test_texts_are_taken_as_they_are() -> None:
    texts = ["", "a", "ä€𝄞", "photo-0000001", "", "x" * 300]
    ends = np.cumsum([len(text.encode()) for text in texts]).astype(np.int64)
    whole, rows = "".join(texts).encode(), np.array([5, 0, 2, 2, 1, 4, 3], dtype=np.int64)
    for level in LEVELS:
        at_level(level)
        assert take_texts(whole, ends, rows) == [texts[row] for row in rows]
        assert take_texts(whole, ends, rows[:0]) == []


# What is not there


if NATIVE is not None:  # NumPy has its own messages

    def test_wrong_arrays_are_refused() -> None:
        rng = np.random.default_rng(1)
        sources = _sources(rng, 4)
        part = _part(rng, 1, sources, (0,))
        words, levels, epsilon = sources[0]
        for wrong in (
            [],
            [sources[0]._replace(codewords_by_dim=words[:, :, :255].copy())],
            [sources[0]._replace(codewords_by_dim=words[:0])],
            [sources[0]._replace(cross_levels=np.zeros(255, np.float32))],
            [sources[0], TableSource(words[:, :3].copy(), levels, epsilon)],
        ):
            with pytest.raises(ValueError, match=r"must|one codebook|256"):
                Searcher(wrong, [part]).search(np.zeros((1, 4), np.float32), [], 3)
        assert part.cells is not None
        narrow = CellPoints(part.cells.points[:, :3], part.cells.offsets)
        run = part.runs[0]
        for other in (
            part._replace(coding=256),
            part._replace(sides=()),
            part._replace(sides=((2, part.sides[0][1]),)),
            part._replace(sides=((1, part.sides[0][1]),)),
            part._replace(n_items=part.n_items + 64),
            part._replace(n_items=2**32),
            part._replace(steps=np.zeros(part.n_items + 1, np.uint32)),
            part._replace(cells=narrow),
            part._replace(cells=None),
            part._replace(runs=(run._replace(starts=run.starts[:-1]),)),
            part._replace(runs=(run._replace(rows=np.resize(run.rows, len(run.rows) + 64)),)),
        ):
            with pytest.raises(ValueError, match=r"must|one side|one step|of one side|router"):
                Searcher(sources, [other]).search(np.zeros((1, 4), np.float32), [], 3)

    def test_wrong_questions_are_refused() -> None:
        rng = np.random.default_rng(1)
        part = _part(rng, 1, _sources(rng, 4), (0,))
        searcher, points = Searcher(_sources(rng, 4), [part]), np.zeros((2, 4), np.float32)
        bits = np.full(-(-part.n_items // 64), 2**64 - 1, np.uint64)
        right = AskedPart(0, 0.0, bits, 3)
        for asked in (
            right._replace(part=1),
            right._replace(part=-1),
            right._replace(allowed=bits[:-1]),
            right._replace(n_probe=-1),
            right._replace(n_probe=N_CELLS + 1),
        ):
            with pytest.raises(ValueError, match="must"):
                searcher.search(points, [asked], 3)
        with pytest.raises(ValueError, match="must"):
            searcher.search(points[:, :3], [right], 3)
        for arguments in ((0, 1), (3, 0)):
            with pytest.raises(ValueError, match="positive"):
                searcher.search(points, [right], arguments[0], n_threads=arguments[1])

    def test_rows_that_are_not_in_the_part_are_refused() -> None:
        rng = np.random.default_rng(1)
        part = _part(rng, 1, _sources(rng, 4), (0,))
        runs = tuple(run._replace(rows=np.full_like(run.rows, part.n_items)) for run in part.runs)
        searcher = Searcher(_sources(rng, 4), [part._replace(runs=runs)])
        bits = np.full(-(-part.n_items // 64), 2**64 - 1, np.uint64)
        with pytest.raises(ValueError, match="must"):
            searcher.search(np.zeros((1, 4), np.float32), [AskedPart(0, 0.0, bits, N_CELLS)], 3)

    def test_wrong_cells_and_texts_are_refused() -> None:
        points = np.zeros((5, 3), np.float32)
        cells = CellPoints(points, np.zeros(5, np.float32))
        with pytest.raises(ValueError, match="one offset"):
            CellPoints(points, np.zeros(4, np.float32)).choose(points, 1)
        with pytest.raises(ValueError, match="dimensions"):
            cells.choose(points[:, :2], 1)
        with pytest.raises(ValueError, match="no more cells"):
            cells.choose(points, 6)
        ends = np.array([2, 4], np.int64)
        for wrong in (np.array([2]), np.array([-1]), np.array([2**62])):
            with pytest.raises(ValueError, match="must"):
                take_texts(b"abcd", ends, wrong)
        for other in ([2, 5], [3, 2], [-1, 4], [-(2**63), 2**63 - 1]):
            with pytest.raises(ValueError, match="must"):
                take_texts(b"abcd", np.array(other, np.int64), np.array([0, 1]))
