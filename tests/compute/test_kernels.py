"""The five kernels: NumPy against naive loops, and the C++ ones, at each level, against NumPy."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute import kernels, kernels_numpy
from crossbyte.compute.kernels import CodewordTables, CrossPenalty
from support import oracles

NATIVE = kernels._native


def _levels() -> list[str]:
    """Levels of the extension that this machine has; none where it is switched off."""
    if NATIVE is None:
        return []
    found = []
    for level in ("portable", "avx2", "avx512"):
        NATIVE.limit_level(level)
        found += [level] if NATIVE.level() == level else []
    NATIVE.limit_level("avx512")
    return found


@pytest.fixture(params=["numpy", *_levels()])
def level(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Run a test with each implementation that is at hand."""
    if request.param == "numpy":
        monkeypatch.setattr(kernels, "_native", None)
        yield "numpy"
        return
    NATIVE.limit_level(request.param)
    yield request.param
    NATIVE.limit_level("avx512")


def test_implementation_names_what_runs(level: str) -> None:
    assert kernels.implementation() == level


# --- lasso ----------------------------------------------------------------------------------------------


def _lasso_problem(seed: int, n: int = 40, n_atoms: int = 48, d: int = 16) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    atoms = oracles.unit_rows(rng.standard_normal((n_atoms, d))).astype(np.float32)
    rows = oracles.unit_rows(rng.standard_normal((n, d))).astype(np.float32)
    return atoms, rows


def _lasso(atoms: Any, rows: Any, z: Any, start: Any = None, tolerance: float = 1e-4) -> Any:
    gram = (atoms.astype(float) @ atoms.T).astype(np.float32)
    products = (rows.astype(float) @ atoms.T).astype(np.float32)
    start = sparse.csr_matrix(products.shape, dtype=np.float32) if start is None else start
    penalty = np.broadcast_to(np.float32(z), len(rows)).copy()
    return gram, products, kernels.lasso(gram, products, penalty, start, tolerance)


@pytest.mark.parametrize("z", [0.05, 0.15, 0.5])
@pytest.mark.parametrize("seed", range(3))
def test_lasso_is_as_good_as_scikit_learn(level: str, seed: int, z: float) -> None:
    atoms, rows = _lasso_problem(seed)
    _, _, found = _lasso(atoms, rows, z)
    for row, weights in zip(rows, found.toarray(), strict=True):
        best = oracles.lasso_objective(atoms, row, oracles.lasso(atoms, row, z), z)
        assert oracles.lasso_objective(atoms, row, weights, z) <= best + 1e-6


# Small penalties with more atoms than dimensions converge slowly, and the kernels stop at their limit of
# sweeps: there the conditions hold to 1 % of z only.
@pytest.mark.parametrize(("z", "slack"), [(0.02, 1e-2), (0.15, 1e-3), (0.5, 1e-3)])
@pytest.mark.parametrize("shape", [(16, 8), (33, 20), (48, 12)])
def test_lasso_meets_its_optimality_conditions(
    level: str, shape: tuple[int, int], z: float, slack: float
) -> None:
    atoms, rows = _lasso_problem(5, n=60, n_atoms=shape[0], d=shape[1])
    gram, products, found = _lasso(atoms, rows, z)
    assert found.has_sorted_indices
    for q, weights in zip(products, found.toarray(), strict=True):
        assert oracles.lasso_violation(gram, q, weights, z) <= slack * z


def test_lasso_with_a_penalty_per_row(level: str) -> None:
    atoms, rows = _lasso_problem(6)
    z = np.linspace(0.01, 1.1, len(rows), dtype=np.float32)
    gram, products, found = _lasso(atoms, rows, z)
    for q, weights, own in zip(products, found.toarray(), z, strict=True):
        assert oracles.lasso_violation(gram, q, weights, float(own)) <= 1e-3 * own
    assert found[-1].nnz == 0  # |q| <= 1 for unit rows, so z > 1 keeps nothing


@pytest.mark.parametrize("shape", [(16, 32), (48, 64)])
def test_lasso_from_a_warm_start_ends_where_the_cold_one_does(level: str, shape: tuple[int, int]) -> None:
    # fewer atoms than dimensions: the minimum is unique
    atoms, rows = _lasso_problem(7, n_atoms=shape[0], d=shape[1])
    _, _, cold = _lasso(atoms, rows, 0.1)
    start = sparse.random(*cold.shape, density=0.3, format="csr", dtype=np.float32, random_state=0)
    for warm_start in (start, cold):
        _, _, warm = _lasso(atoms, rows, 0.1, warm_start)
        np.testing.assert_allclose(warm.toarray(), cold.toarray(), atol=1e-4)


def test_lasso_leaves_its_start_alone(level: str) -> None:
    atoms, rows = _lasso_problem(8)
    start = sparse.random(len(rows), len(atoms), density=0.3, format="csr", dtype=np.float32, random_state=1)
    before = start.toarray()
    _lasso(atoms, rows, 0.1, start)
    np.testing.assert_array_equal(start.toarray(), before)


def test_lasso_never_uses_atoms_that_are_zero(level: str) -> None:
    atoms, rows = _lasso_problem(9)
    atoms[[0, 7, 47]] = 0.0
    gram, products, found = _lasso(atoms, rows, 0.1)
    assert not found[:, [0, 7, 47]].nnz
    assert max(map(oracles.lasso_violation, [gram] * len(rows), products, found.toarray(), [0.1] * 99)) < 1e-4


def test_lasso_with_atoms_twice(level: str) -> None:
    atoms, rows = _lasso_problem(10, n_atoms=20)
    twice = np.vstack([atoms, atoms])
    _, _, once = _lasso(atoms, rows, 0.1)
    _, _, found = _lasso(twice, rows, 0.1)
    for row, a, b in zip(rows, once.toarray(), found.toarray(), strict=True):
        expected = oracles.lasso_objective(atoms, row, a, 0.1)
        assert oracles.lasso_objective(twice, row, b, 0.1) == pytest.approx(expected, abs=1e-5)


def test_lasso_of_zero_rows_and_of_none(level: str) -> None:
    atoms, rows = _lasso_problem(11)
    rows[[0, 5]] = 0.0
    _, _, found = _lasso(atoms, rows, 0.1)
    assert found[[0, 5]].nnz == 0 and found[1].nnz > 0
    assert _lasso(atoms, rows[:0], 0.1)[2].shape == (0, len(atoms))


def test_lasso_without_penalty_solves_least_squares(level: str) -> None:
    atoms, rows = _lasso_problem(12, n_atoms=16, d=32)
    _, _, found = _lasso(atoms, rows, 0.0)
    expected = np.linalg.lstsq(atoms.T.astype(float), rows.T.astype(float), rcond=None)[0].T
    np.testing.assert_allclose(found.toarray(), expected, atol=1e-3)


# --- codes ----------------------------------------------------------------------------------------------


def _books(seed: int, n: int, M: int, d: int, scale: float = 1.0) -> tuple[CodewordTables, Any, Any]:
    rng = np.random.default_rng(seed)
    tables = CodewordTables.of(scale * rng.standard_normal((M, 256, d)) / np.sqrt(d * M))
    targets = oracles.unit_rows(rng.standard_normal((n, d))).astype(np.float32)
    return tables, targets, rng.integers(256, size=(n, M)).astype(np.uint8)


PENALTIES = [CrossPenalty(0.0, 0.0), CrossPenalty(0.1, -0.05), CrossPenalty(10.0, 0.3)]


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("M", [1, 2, 4])
def test_one_sweep_of_icm_is_the_brute_force_one(level: str, M: int, penalty: CrossPenalty) -> None:
    tables, targets, codes = _books(M, 6, M, 8)
    found = kernels.icm(tables, targets, penalty, codes, 1)
    for target, code, new in zip(targets, codes, found, strict=True):
        swept = oracles.icm_sweep(tables.codewords, target, code, *penalty)
        expected = oracles.row_objective(tables.codewords, target, swept, *penalty)
        # float32 scores may prefer another word that is as good
        assert oracles.row_objective(tables.codewords, target, new, *penalty) == pytest.approx(
            expected, abs=1e-5
        )


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("M", [1, 2, 3, 4])
def test_icm_makes_no_row_worse(level: str, M: int, penalty: CrossPenalty) -> None:
    tables, targets, codes = _books(20 + M, 60, M, 11)
    before = codes.copy()
    found = kernels.icm(tables, targets, penalty, codes, 10)
    np.testing.assert_array_equal(codes, before)
    for target, old, new in zip(targets, codes, found, strict=True):
        old_value = oracles.row_objective(tables.codewords, target, old, *penalty)
        assert oracles.row_objective(tables.codewords, target, new, *penalty) <= old_value * (1 + 1e-12)
    again = kernels.icm(tables, targets, penalty, found, 10)
    for target, old, new in zip(targets, found, again, strict=True):
        old_value = oracles.row_objective(tables.codewords, target, old, *penalty)
        assert oracles.row_objective(tables.codewords, target, new, *penalty) <= old_value * (1 + 1e-12)


def test_icm_makes_no_row_worse_where_single_precision_is_coarse(level: str) -> None:
    rng = np.random.default_rng(36)
    tables = CodewordTables.of(1e4 + rng.standard_normal((2, 256, 8)))
    codes = rng.integers(256, size=(40, 2)).astype(np.uint8)
    targets = oracles.decode(tables.codewords, codes).astype(np.float32)  # these codes are the best there are
    found = kernels.icm(tables, targets, PENALTIES[0], codes, 5)
    for target, old, new in zip(targets, codes, found, strict=True):
        old_value = oracles.row_objective(tables.codewords, target, old, 0.0, 0.0)
        assert oracles.row_objective(tables.codewords, target, new, 0.0, 0.0) <= old_value


def test_icm_with_one_codebook_finds_the_nearest_word(level: str) -> None:
    tables, targets, codes = _books(30, 50, 1, 9)
    nearest = ((targets[:, None].astype(float) - tables.codewords[0]) ** 2).sum(axis=2).argmin(axis=1)
    np.testing.assert_array_equal(kernels.icm(tables, targets, PENALTIES[0], codes, 3)[:, 0], nearest)
    np.testing.assert_array_equal(kernels.beam_search(tables, targets, PENALTIES[0], 1)[:, 0], nearest)


def test_a_beam_wide_enough_finds_the_best_code(level: str) -> None:
    tables, targets, _ = _books(31, 8, 2, 8)
    found = kernels.beam_search(tables, targets, CrossPenalty(0.0, 0.0), 256)
    np.testing.assert_array_equal(found, oracles.best_pair_codes(tables.codewords, targets))


def test_a_wider_beam_is_better_on_average(level: str) -> None:
    tables, targets, _ = _books(32, 50, 4, 10)
    errors = [
        oracles.codebook_objective(tables.codewords, found, targets, 0.0, 0.0)
        for found in (kernels.beam_search(tables, targets, PENALTIES[0], width) for width in (1, 4, 16))
    ]
    assert errors[0] > errors[1] > errors[2]


def test_the_penalty_decides_between_finished_codes(level: str) -> None:
    tables, targets, _ = _books(33, 40, 2, 8)
    strict = CrossPenalty(100.0, 0.2)
    gaps = [
        np.mean([abs(oracles.cross_term(tables.codewords, code) - strict.epsilon) for code in codes])
        for codes in (kernels.beam_search(tables, targets, p, 16) for p in (PENALTIES[0], strict))
    ]
    assert gaps[1] < gaps[0] / 2


@pytest.mark.parametrize("shape", [(1, 1, 8), (200, 1, 5), (200, 2, 13), (150, 3, 16), (90, 4, 20)])
def test_codes_are_those_of_numpy_to_the_last_bit(level: str, shape: tuple[int, int, int]) -> None:
    tables, targets, codes = _books(sum(shape), *shape)
    for penalty, sweeps in product(PENALTIES, (1, 10)):
        np.testing.assert_array_equal(
            kernels.icm(tables, targets, penalty, codes, sweeps),
            kernels_numpy.icm(tables, targets, penalty, codes, sweeps),
        )
    for penalty, width, sweeps in product(PENALTIES, (1, 16), (0, 10)):
        np.testing.assert_array_equal(
            kernels.beam_search(tables, targets, penalty, width, sweeps),
            kernels_numpy.beam_search(tables, targets, penalty, width, sweeps),
        )


@pytest.mark.parametrize("kind", ["of one size", "smaller and smaller", "far from each other", "nearly one"])
@pytest.mark.parametrize("width", [16, 128, 129])
def test_rough_scores_leave_out_no_code(level: str, kind: str, width: int) -> None:
    rng = np.random.default_rng(40)
    words = rng.standard_normal((5, 256, 7))
    if kind == "smaller and smaller":
        words *= 0.3 ** np.arange(5)[:, None, None]
    elif kind == "far from each other":
        words += 30 * rng.standard_normal((5, 1, 7))
    elif kind == "nearly one":
        words = words[:1] + 1e-6 * words
    tables = CodewordTables.of(words)
    codes = rng.integers(256, size=(30, 5)).astype(np.uint8)
    exact = oracles.decode(tables.codewords, codes)
    for targets in (exact, exact + rng.standard_normal(exact.shape), 20 * exact):
        rows = targets.astype(np.float32)
        np.testing.assert_array_equal(
            kernels.beam_search(tables, rows, PENALTIES[0], width),
            kernels_numpy.beam_search(tables, rows, PENALTIES[0], width),
        )


def test_rounded_products_are_products_in_units() -> None:
    tables = _books(41, 1, 3, 8)[0]
    exact = np.einsum("mkd,jcd->mjck", tables.codewords, tables.codewords)
    for m in range(3):
        for j in range(m):
            rough = tables.rough[m * (m - 1) // 2 + j] * tables.units[m].astype(np.float64)
            assert np.abs(rough - 2 * exact[m, j]).max() <= 0.501 * tables.units[m]
    wild = tables.gram.copy()
    wild[2, 0, 5, 5] = np.nan
    rough, units = kernels.round_products(wild)
    assert not np.isfinite(units[2]) and not rough[1:].any() and rough[0].any()


def _awkward_books(words: Any, seed: int = 37) -> tuple[CodewordTables, Any]:
    targets = np.random.default_rng(seed).standard_normal((40, words.shape[2]))
    targets[0] = 0.0
    return CodewordTables.of(words), targets.astype(np.float32)


def _awkward_words(kind: str) -> Any:
    """Codebooks (3, 256, 6) that give many ties, zeros of both signs, or scores of any size."""
    words = np.random.default_rng(38).standard_normal((3, 256, 6))
    if kind == "few values":
        return np.sign(words) * (np.abs(words) > 1.0)
    if kind == "all equal":
        return np.broadcast_to(words[:1, :1], words.shape).copy()
    if kind == "all zero":
        return np.copysign(0.0, words)
    if kind == "one codebook of zeros":
        words[1] = -0.0
        return words
    if kind == "thrice":
        return np.repeat(words[:, :86], 3, axis=1)[:, :256]
    return words * float(kind)


@cache
def _beams_of_numpy(kind: str, width: int, penalty: CrossPenalty) -> Any:
    tables, targets = _awkward_books(_awkward_words(kind))
    return kernels_numpy.beam_search(tables, targets[:10], penalty, width)


@pytest.mark.parametrize(
    "kind",
    [
        "few values",
        "all equal",
        "all zero",
        "one codebook of zeros",
        "thrice",
        "1e-18",
        "1e-6",
        "1e6",
        "1e15",
    ],
)
def test_beams_of_any_width_are_those_of_numpy(level: str, kind: str) -> None:
    tables, targets = _awkward_books(_awkward_words(kind))
    for width, penalty in product([1, 2, 7, 16, 63, 64, 65, 256, 300], [PENALTIES[0], PENALTIES[2]]):
        np.testing.assert_array_equal(
            kernels.beam_search(tables, targets[:10], penalty, width),
            _beams_of_numpy(kind, width, penalty),
            err_msg=f"width {width}, {penalty}",
        )


def test_targets_that_are_codes_and_targets_far_away(level: str) -> None:
    tables, targets, codes = _books(39, 60, 4, 12)
    exact = oracles.decode(tables.codewords, codes).astype(np.float32)
    for rows in (exact, 1e6 * targets, 1e-12 * targets, 0.0 * targets):
        np.testing.assert_array_equal(
            kernels.beam_search(tables, rows, PENALTIES[1], 16),
            kernels_numpy.beam_search(tables, rows, PENALTIES[1], 16),
        )


def test_codes_of_equal_words_take_the_first(level: str) -> None:
    tables, targets, codes = _books(34, 30, 2, 8)
    words = tables.codewords.copy()
    words[:, 1::2] = words[:, ::2]  # every word twice
    tables = CodewordTables.of(words)
    found = kernels.beam_search(tables, targets, PENALTIES[0], 8)
    assert (found % 2 == 0).all()
    improved = kernels.icm(tables, targets, PENALTIES[0], codes & 0xFE, 10)
    assert (improved % 2 == 0).all()


def test_no_rows_give_no_codes(level: str) -> None:
    tables, targets, codes = _books(35, 3, 2, 8)
    assert kernels.icm(tables, targets[:0], PENALTIES[1], codes[:0], 5).shape == (0, 2)
    assert kernels.beam_search(tables, targets[:0], PENALTIES[1], 4).shape == (0, 2)
    assert kernels.distance_tables(targets[:0], tables.codewords_by_dim).shape == (0, 2, 256)


# --- codebooks ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", PENALTIES)
@pytest.mark.parametrize("M", [1, 2, 4])
def test_codebook_value_and_gradient(level: str, M: int, penalty: CrossPenalty) -> None:
    tables, targets, codes = _books(40 + M, 50, M, 8)
    value, gradient = kernels.codebook_value_gradient(tables.codewords, codes, targets, penalty)

    def objective(words: Any) -> float:
        return oracles.codebook_objective(words, codes, targets, *penalty)

    assert value == pytest.approx(objective(tables.codewords), rel=1e-10)
    rng = np.random.default_rng(M)
    for _ in range(3):
        direction = rng.standard_normal(tables.codewords.shape)
        slope = oracles.slope_along(objective, tables.codewords, direction, 1e-6)
        assert float(np.vdot(gradient, direction)) == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_single_entries_of_the_gradient(level: str) -> None:
    tables, targets, codes = _books(45, 20, 2, 8)
    _, gradient = kernels.codebook_value_gradient(tables.codewords, codes, targets, PENALTIES[1])
    for m, k, j in [(0, codes[0, 0], 0), (1, codes[3, 1], 7), (0, codes[9, 0], 4)]:
        direction = np.zeros_like(tables.codewords)
        direction[m, k, j] = 1.0
        slope = oracles.slope_along(
            lambda words: oracles.codebook_objective(words, codes, targets, *PENALTIES[1]),
            tables.codewords,
            direction,
            1e-6,
        )
        assert gradient[m, k, j] == pytest.approx(slope, rel=1e-5, abs=1e-7)
    unused = np.setdiff1d(np.arange(256), codes[:, 0])
    assert not gradient[0, unused].any()


@pytest.mark.parametrize("shape", [(1, 1, 8), (333, 2, 13), (200, 4, 20)])
def test_codebook_gradient_agrees_with_numpy(level: str, shape: tuple[int, int, int]) -> None:
    tables, targets, codes = _books(46, *shape)
    found = kernels.codebook_value_gradient(tables.codewords, codes, targets, PENALTIES[1])
    expected = kernels_numpy.codebook_value_gradient(tables.codewords, codes, targets, PENALTIES[1])
    assert found[0] == pytest.approx(expected[0], rel=1e-12)
    np.testing.assert_allclose(found[1], expected[1], rtol=1e-10, atol=1e-12)


# --- tables ---------------------------------------------------------------------------------------------


def test_tables_are_the_squared_distances(level: str) -> None:
    tables, points, codes = _books(50, 20, 3, 9)
    found = kernels.distance_tables(points, tables.codewords_by_dim)
    for point, table, code in zip(points, found, codes, strict=True):
        total = sum(float(table[m, k]) for m, k in enumerate(code))
        assert total == pytest.approx(oracles.table_distance(tables.codewords, point, code), rel=1e-5)


@pytest.mark.parametrize("shape", [(1, 1, 1), (7, 2, 13), (65, 4, 20), (33, 3, 8)])
def test_tables_are_those_of_numpy_to_the_last_bit(level: str, shape: tuple[int, int, int]) -> None:
    tables, points, _ = _books(51, *shape)
    found = kernels.distance_tables(points, tables.codewords_by_dim)
    expected = kernels_numpy.distance_tables(points, tables.codewords_by_dim)
    np.testing.assert_array_equal(found.view(np.uint32), expected.view(np.uint32))


def test_a_table_does_not_depend_on_its_batch(level: str) -> None:
    tables, points, _ = _books(52, 37, 2, 15)
    together = kernels.distance_tables(points, tables.codewords_by_dim)
    alone = np.concatenate(
        [kernels.distance_tables(point[None], tables.codewords_by_dim) for point in points]
    )
    np.testing.assert_array_equal(together.view(np.uint32), alone.view(np.uint32))


# --- what the extension refuses ---------------------------------------------------------------------------


def _arguments() -> dict[str, list[Any]]:
    """Right arguments of every native function."""
    tables, targets, codes = _books(60, 6, 2, 8)
    atoms, rows = _lasso_problem(60, n=6, n_atoms=16, d=8)
    gram, products = (atoms @ atoms.T), rows @ atoms.T
    books = [tables.codewords_by_dim, tables.codewords, tables.gram, tables.rough, tables.units, targets]
    books += [0.1, 0.0, 3]
    starts = [np.zeros(7, np.int32), np.zeros(0, np.int32), np.zeros(0, np.float32)]
    return {
        "lasso": [gram, products, np.full(6, 0.1, np.float32), *starts, 1e-4],
        "icm": [*books, codes],
        "beam_search": [*books, 2, codes],
        "codebook_value_gradient": [
            tables.codewords,
            codes,
            targets,
            0.1,
            0.0,
            np.zeros_like(tables.codewords),
        ],
        "distance_tables": [targets, tables.codewords_by_dim, np.zeros((6, 2, 256), np.float32)],
    }


def _wrong_type(array: Any) -> Any:
    return array.astype(
        {"f4": np.float64, "f8": np.float32, "u1": np.int16, "i2": np.int32, "i4": np.int64}[
            array.dtype.str[1:]
        ]
    )


def _wrong_shape(array: Any) -> Any:
    return np.zeros(tuple(size + 1 for size in array.shape), array.dtype)


def _wrong_dimensions(array: Any) -> Any:
    return np.zeros((*array.shape, 1), array.dtype)


def _wrong_order(array: Any) -> Any:
    return np.repeat(array, 2, axis=-1)[..., ::2]  # the same values, every second one in memory


SPOILERS = (_wrong_type, _wrong_shape, _wrong_dimensions, _wrong_order)


def _spoiled() -> Iterator[tuple[str, int, Any]]:
    """All ways of spoiling one array of one function; a vector of no entries has no order to spoil."""
    for name, arguments in _arguments().items():
        for at, argument in enumerate(arguments):
            for spoil in SPOILERS if isinstance(argument, np.ndarray) else ():
                if spoil is not _wrong_order or argument.size:
                    yield name, at, spoil


if NATIVE is not None:

    @pytest.mark.parametrize("name", list(_arguments()))
    def test_native_kernels_take_the_right_arguments(name: str) -> None:
        getattr(NATIVE, name)(*_arguments()[name])

    @pytest.mark.parametrize("name", list(_arguments()))
    @pytest.mark.parametrize("spoil", SPOILERS)
    def test_native_kernels_refuse_wrong_arrays(name: str, spoil: Any) -> None:
        places = [at for function, at, way in _spoiled() if (function, way) == (name, spoil)]
        assert places
        for at in places:
            arguments = _arguments()[name]
            arguments[at] = spoil(arguments[at])
            with pytest.raises((TypeError, ValueError)):
                getattr(NATIVE, name)(*arguments)


@pytest.mark.parametrize(
    ("n", "d", "k"), [(0, 3, 4), (1, 500, 64), (4, 10, 8), (7, 33, 5), (9, 60, 70), (5, 1, 1)]
)
def test_products_are_summed_in_order(level: str, n: int, d: int, k: int) -> None:
    rng = np.random.default_rng(n + d + k)
    rows, matrix = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-9, 9, (n, d)), rng.normal(size=(d, k))
    expected = np.zeros((n, k))
    for i in range(n):
        for j in range(k):
            for column in range(d):
                expected[i, j] += rows[i, column] * matrix[column, j]
    assert kernels.ordered_product(rows, matrix).tobytes() == expected.tobytes()
