"""Arrays that no caller should give: the kernels answer as NumPy does or refuse, and read nothing beyond.

`make test-sanitizers` runs this file with an extension that sees every wrong access; without one, a wrong
answer or a crash must show.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte.compute import kernels, kernels_numpy
from crossbyte.compute.kernels import CodewordTables, CrossPenalty, ScanSide, pack_codes
from crossbyte.errors import NumericalError
from support.kernel_levels import LEVELS, NATIVE, _as_before, at_level  # noqa: F401  (a fixture for all tests)

INT64 = np.iinfo(np.int64)
VALUES = {"nan": np.nan, "inf": np.inf, "-inf": -np.inf, "3e38": 3e38, "-3e38": -3e38, "1e25": 1e25}
N_ITEMS, N_QUERIES, M, D = 200, 40, 3, 5

Arrays = dict[str, Any]


def _words(seed: int = 0) -> CodewordTables:
    return CodewordTables.of(np.random.default_rng(seed).standard_normal((M, 256, D)))


def _code_arrays() -> Arrays:
    rng = np.random.default_rng(1)
    targets = rng.standard_normal((20, D)).astype(np.float32)
    words = _words()
    return {  # rounded products are made anew of spoiled ones
        **{name: getattr(words, name) for name in ("codewords", "codewords_by_dim", "gram")},
        "targets": targets,
        "codes": rng.integers(256, size=(20, M)).astype(np.uint8),
    }


def _scan_arrays() -> Arrays:
    rng = np.random.default_rng(2)
    return {
        "codes": pack_codes(rng.integers(256, size=(N_ITEMS, M)).astype(np.uint8)),
        "tables": rng.random((N_QUERIES, M, 256), dtype=np.float32),
        "offsets": rng.random(N_QUERIES, dtype=np.float32),
    }


def _cell_arrays() -> Arrays:
    rng = np.random.default_rng(3)
    return {
        **_scan_arrays(),
        "rows": rng.permutation(N_ITEMS).astype(np.uint32),
        "starts": np.array([0, 3, 70, 70, N_ITEMS]),
        "cells": np.array([rng.permutation(4)[:2] for _ in range(N_QUERIES)]),
        "allowed": rng.integers(0, 2**64, 4, dtype=np.uint64),
    }


def _lasso_arrays() -> Arrays:
    atoms = np.random.default_rng(4).standard_normal((12, 8)).astype(np.float32)
    rows = np.random.default_rng(5).standard_normal((6, 8)).astype(np.float32)
    return {"gram": atoms @ atoms.T, "products": rows @ atoms.T, "penalty": np.full(6, 0.5, np.float32)}


def _icm(codewords: Any, codewords_by_dim: Any, gram: Any, targets: Any, codes: Any) -> Any:
    tables = CodewordTables(codewords, codewords_by_dim, gram, *kernels.round_products(gram))
    return kernels.icm(tables, targets, CrossPenalty(0.5, 0.25), codes, 5)


def _beam_search(codewords: Any, codewords_by_dim: Any, gram: Any, targets: Any, codes: Any) -> Any:
    tables = CodewordTables(codewords, codewords_by_dim, gram, *kernels.round_products(gram))
    return [kernels.beam_search(tables, targets, CrossPenalty(0.5, 0.25), width) for width in (1, 16, 80)]


def _native_books(arrays: Arrays) -> list[Any]:
    books = [arrays[each] for each in ("codewords_by_dim", "codewords", "gram")]
    return [*books, *kernels.round_products(arrays["gram"]), arrays["targets"]]


def _gradient(codewords: Any, codewords_by_dim: Any, gram: Any, targets: Any, codes: Any) -> Any:
    return kernels.codebook_value_gradient(codewords, codes, targets, CrossPenalty(0.5, 0.25))


def _distance_tables(codewords: Any, codewords_by_dim: Any, gram: Any, targets: Any, codes: Any) -> Any:
    return kernels.distance_tables(targets, codewords_by_dim)


def _product(codewords: Any, codewords_by_dim: Any, gram: Any, targets: Any, codes: Any) -> Any:
    return kernels.ordered_product(codewords[0], codewords[1, :D])


def _scan(k: int = 30, n_items: int = N_ITEMS, n_threads: int = 1, **arrays: Any) -> Any:
    side = ScanSide(arrays["codes"], arrays["tables"], arrays["offsets"])
    # One query alone, a group of them, and two sides.
    one = ScanSide(side.codes, side.tables[:1], side.offsets[:1])
    options: Any = {"allowed": arrays.get("allowed"), "n_threads": n_threads}
    return [kernels.scan(sides, n_items, k, **options) for sides in ([side], [one], [side, side])]


def _scan_cells(k: int = 30, **arrays: Any) -> Any:
    side = ScanSide(arrays["codes"], arrays["tables"], arrays["offsets"])
    rest = {name: arrays[name] for name in ("rows", "starts", "cells")}
    return kernels.scan_cells(side, **rest, k=k, allowed=arrays["allowed"])


CALLS: dict[str, tuple[Callable[..., Any], Callable[[], Arrays]]] = {
    "icm": (_icm, _code_arrays),
    "beam_search": (_beam_search, _code_arrays),
    "codebook_value_gradient": (_gradient, _code_arrays),
    "distance_tables": (_distance_tables, _code_arrays),
    "ordered_product": (_product, _code_arrays),
    "scan": (_scan, _scan_arrays),
    "scan_cells": (_scan_cells, _cell_arrays),
}


def _hostile() -> Iterator[tuple[str, str, str]]:
    for name, (_, make) in CALLS.items():
        for array, values in make().items():
            if values.dtype.kind == "f":
                yield from ((name, array, value) for value in VALUES)


def _spoiled(values: Any, value: float) -> Iterator[Any]:
    """One value, a twentieth of them, or all of them."""
    rng = np.random.default_rng(6)
    for where in (np.arange(values.size) == values.size // 3, rng.random(values.size) < 0.05, True):
        yield np.where(np.reshape(where, values.shape if np.ndim(where) else ()), value, values).astype(
            values.dtype
        )


def _flat(found: Any) -> list[Any]:
    return (
        [np.asarray(found)] if not isinstance(found, tuple | list) else [a for f in found for a in _flat(f)]
    )


def _same(left: Any, right: Any, name: str) -> bool:
    pairs = list(zip(_flat(left), _flat(right), strict=True))
    if name == "codebook_value_gradient":  # sums over rows in another order, so digits are lost in others
        return all(_nearly(a, b) for a, b in pairs)
    return all(np.array_equal(a, b, equal_nan=a.dtype.kind == "f") for a, b in pairs)


def _nearly(left: Any, right: Any) -> bool:
    known = np.isfinite(left) & np.isfinite(right)
    with np.errstate(over="ignore"):
        size = np.abs(left[known]).max(initial=0.0)
        return bool(np.allclose(left[known], right[known], rtol=1e-6, atol=min(1e-9 * size, 1e300)))


@pytest.mark.parametrize(("name", "array", "value"), list(_hostile()))
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # NumPy's own overflows are what is compared
def test_the_answer_is_that_of_numpy(name: str, array: str, value: str) -> None:
    call, make = CALLS[name]
    for spoiled in _spoiled(make()[array], VALUES[value]):
        arrays = make() | {array: spoiled}
        at_level("numpy")
        expected = call(**arrays)
        for level in LEVELS:
            at_level(level)
            assert _same(call(**arrays), expected, name), level


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_words_that_overflow_keep_the_codes() -> None:
    codes = _code_arrays()["codes"]
    codewords, by_dim, gram = (1e25 * each.astype(np.float64) for each in _words()[:3])
    for level in LEVELS:
        at_level(level)
        for products in (gram.astype(np.float32), np.full_like(gram, np.nan, dtype=np.float32)):
            tables = CodewordTables(
                codewords, by_dim.astype(np.float32), products, *kernels.round_products(products)
            )
            found = kernels.icm(tables, _code_arrays()["targets"], CrossPenalty(0.1, 0.0), codes, 5)
            np.testing.assert_array_equal(found, codes)


# --- lasso ------------------------------------------------------------------------------------------------


def _lasso(gram: Any, products: Any, penalty: Any, start: Any = None) -> Any:
    start = sparse.csr_matrix(products.shape, dtype=np.float32) if start is None else start
    return kernels.lasso(gram, products, penalty, start)


def _start(indptr: Any, indices: Any) -> list[Any]:
    return [
        np.asarray(indptr, np.int32),
        np.asarray(indices, np.int32),
        np.ones(len(indices), np.float32),
    ]


@pytest.mark.parametrize("array", list(_lasso_arrays()))
@pytest.mark.parametrize("value", VALUES)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_lasso_gives_finite_weights_or_refuses(
    array: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels_numpy, "_MAX_SWEEPS", 50)
    for level in LEVELS:
        at_level(level)
        for spoiled in _spoiled(_lasso_arrays()[array], VALUES[value]):
            arrays = _lasso_arrays() | {array: spoiled}
            if not np.isfinite(spoiled).all():
                with pytest.raises(NumericalError, match="overflow"):
                    _lasso(**arrays)
                if level != "numpy":
                    with pytest.raises(ValueError, match="must be finite"):
                        NATIVE.lasso(*arrays.values(), *_start([0] * 7, []), 1e-4)
                continue
            try:
                found = _lasso(**arrays)
            except NumericalError:
                continue  # the sums overflowed
            assert np.isfinite(found.data).all() and found.shape == arrays["products"].shape


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_lasso_refuses_a_start_that_is_not_finite() -> None:
    for level in LEVELS:
        at_level(level)
        start = sparse.csr_matrix(np.full((6, 12), np.nan, np.float32))
        with pytest.raises(NumericalError, match="overflow"):
            _lasso(**_lasso_arrays(), start=start)


# --- sizes of zero ----------------------------------------------------------------------------------------


def test_nothing_is_scanned_looked_up_or_multiplied() -> None:
    for level in LEVELS:
        at_level(level)
        scan, cells = _scan_arrays(), _cell_arrays()
        none = {"tables": scan["tables"][:0], "offsets": scan["offsets"][:0]}
        assert _flat(_scan(**scan | none))[1].size == 0
        assert not any(_flat(_scan(**scan | {"codes": scan["codes"][:0]}, n_items=0))[0])
        assert _scan_cells(**cells | none | {"cells": cells["cells"][:0]}).counts.size == 0
        assert not _scan_cells(**cells | {"cells": cells["cells"][:, :0]}).counts.any()
        empty = {"starts": np.zeros(5, np.int64), "rows": cells["rows"][:0], "codes": cells["codes"][:0]}
        assert not _scan_cells(**cells | empty).counts.any()
        for n, d, k in ((0, 3, 4), (3, 0, 4), (3, 4, 0), (0, 0, 0)):
            assert kernels.ordered_product(np.ones((n, d)), np.ones((d, k))).shape == (n, k)
        assert not kernels.ordered_product(np.ones((3, 0)), np.ones((0, 4))).any()


def test_points_of_no_dimension_and_codes_of_no_codebook() -> None:
    points, codes = np.zeros((4, 0), np.float32), np.ones((4, 2), np.uint8)
    for level in LEVELS:
        at_level(level)
        flat = CodewordTables.of(np.zeros((2, 256, 0)))
        assert not kernels.distance_tables(points, flat.codewords_by_dim).any()
        np.testing.assert_array_equal(kernels.icm(flat, points, CrossPenalty(0.1, 0.0), codes, 3), codes)
        assert kernels.codebook_value_gradient(flat.codewords, codes, points, CrossPenalty(0.1, 0.0))[0] == 0
        if level != "numpy":  # which has no mean of no codebook
            none = CodewordTables.of(np.zeros((0, 256, 3)))
            targets = np.zeros((4, 3), np.float32)
            assert kernels.beam_search(none, targets, CrossPenalty(0.0, 0.0), 2).shape == (4, 0)
            assert kernels.icm(none, targets, CrossPenalty(0.0, 0.0), codes[:, :0], 2).shape == (4, 0)
            assert kernels.distance_tables(targets, none.codewords_by_dim).shape == (4, 0, 256)
        wide = np.zeros((3, 0), np.float32)
        assert _lasso(np.zeros((0, 0), np.float32), wide, np.ones(3, np.float32)).shape == (3, 0)


# --- numbers at their bounds ------------------------------------------------------------------------------


def run_program(program: str) -> None:
    """Run it in a process of its own, without a sanitizer, which would not bear a limit of memory."""
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment)


_ENDLESS = """
import numpy as np
from crossbyte.compute import kernels
codes, tables = np.zeros((2, 1, 64), np.uint8), np.zeros((1, 1, 256), np.float32)
rows, starts, cells = np.arange(128, dtype=np.uint32), np.array([0, 128]), np.zeros((1, 1), np.int64)
side = kernels.ScanSide(codes, tables, np.zeros(1, np.float32))
for k in (2**63 - 1, 2**63 - 64, 2**62, 129):
    for found in (kernels.scan([side], 128, k), kernels.scan_cells(side, rows, starts, cells, k)):
        assert found.rows.tolist() == list(range(128)), k
"""


def test_a_scan_for_more_than_there_is_ends() -> None:
    run_program(_ENDLESS)


_TOO_FEW_THREADS = """
import resource
import numpy as np
from crossbyte.compute import kernels
codes = np.random.default_rng(0).integers(256, size=(1024, 2, 64)).astype(np.uint8)
tables = np.random.default_rng(1).random((3, 2, 256), dtype=np.float32)
sides = [kernels.ScanSide(codes, tables, np.zeros(3, np.float32))]
alone = kernels.scan(sides, 65536, 9)
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + 60 * 2**20  # room for the stacks of a few threads
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
together = kernels.scan(sides, 65536, 9, n_threads=64)
assert all(np.array_equal(a, b) for a, b in zip(alone, together))
"""


def test_a_scan_ends_where_the_system_has_no_more_threads() -> None:
    run_program(_TOO_FEW_THREADS)


if NATIVE is not None:

    @pytest.mark.parametrize("k", [0, -1, INT64.min, 2**63, 2**64, 1.5, None])
    def test_k_must_be_a_positive_number_of_64_bits(k: Any) -> None:
        for call, make in ((_scan, _scan_arrays), (_scan_cells, _cell_arrays)):
            with pytest.raises((ValueError, TypeError)):
                call(k=k, **make())

    @pytest.mark.parametrize("n_items", [-1, INT64.min, 0, 128, 257, 2**32, INT64.max, 2**63])
    def test_items_are_those_of_the_codes(n_items: int) -> None:
        with pytest.raises((ValueError, TypeError)):
            _scan(n_items=n_items, **_scan_arrays())

    @pytest.mark.parametrize("n_threads", [0, -1, INT64.min, 2**63, None])
    def test_threads_are_a_positive_number(n_threads: Any) -> None:
        with pytest.raises((ValueError, TypeError)):
            _scan(n_threads=n_threads, **_scan_arrays())

    def test_any_number_of_threads_gives_the_same() -> None:
        expected = _scan(**_scan_arrays())
        for n_threads in (2, 1025, INT64.max):
            assert _same(_scan(n_threads=n_threads, **_scan_arrays()), expected, "scan")

    @pytest.mark.parametrize(
        ("name", "most"), [("icm", 2**31), ("beam_search", 2**16)], ids=["icm", "beam_search"]
    )
    def test_sweeps_and_widths_are_bounded(name: str, most: int) -> None:
        arrays = _code_arrays()
        books = _native_books(arrays)
        rest = [0] if name == "beam_search" else []  # no sweeps
        for effort in (0, -1, INT64.min, most + 1, INT64.max, 2**63):
            with pytest.raises((ValueError, TypeError)):
                getattr(NATIVE, name)(*books, 0.1, 0.0, effort, *rest, arrays["codes"])
        for mu, epsilon in ((np.nan, 0.0), (0.1, np.nan), (np.inf, 0.0), (0.1, -np.inf)):
            with pytest.raises(ValueError, match="finite"):
                getattr(NATIVE, name)(*books, mu, epsilon, 3, *rest, arrays["codes"])
        for sweeps in (-1, 2**31 + 1):
            with pytest.raises((ValueError, TypeError)):
                NATIVE.beam_search(*books, 0.1, 0.0, 3, sweeps, arrays["codes"])

    def test_sweeps_without_end_stop_at_the_best_codes() -> None:
        arrays = _code_arrays()
        gram = arrays["gram"]
        tables = CodewordTables(
            arrays["codewords"], arrays["codewords_by_dim"], gram, *kernels.round_products(gram)
        )
        found = [
            kernels.icm(tables, arrays["targets"], CrossPenalty(0.1, 0.0), arrays["codes"], sweeps)
            for sweeps in (100, 2**31)
        ]
        np.testing.assert_array_equal(*found)

    @pytest.mark.parametrize(
        ("name", "wrong"),
        [
            *(("cells", each) for each in (-1, 4, INT64.min, INT64.max)),
            *(("starts", each) for each in (-1, N_ITEMS + 1, INT64.min, INT64.max)),
            ("rows", 256),
            ("rows", 2**32 - 1),
        ],
    )
    def test_cells_places_and_rows_are_those_there_are(name: str, wrong: int) -> None:
        arrays = _cell_arrays()
        spoiled = np.full_like(arrays[name], wrong)
        if name == "starts":  # only one of them, in every place
            for place in range(5):
                some = arrays["starts"].copy()
                some[place] = wrong
                every = np.tile(np.arange(4), (N_QUERIES, 1))
                falls = place == 0 if wrong > 0 else place == 4
                if falls:  # a cell that ends before it begins holds nothing
                    _scan_cells(**arrays | {"starts": some, "cells": every})
                else:
                    with pytest.raises(ValueError, match="must"):
                        _scan_cells(**arrays | {"starts": some, "cells": every})
            return
        with pytest.raises(ValueError, match="must"):
            _scan_cells(**arrays | {name: spoiled})

    @pytest.mark.parametrize("level", sorted(set(LEVELS) - {"numpy"}))
    def test_starts_that_fall_hold_nothing(level: str) -> None:
        at_level(level)
        every = np.tile(np.arange(4), (N_QUERIES, 1))
        found = _scan_cells(**_cell_arrays() | {"starts": np.array([200, 100, 50, 7, 0]), "cells": every})
        assert not found.counts.any()

    @pytest.mark.parametrize(
        ("indptr", "indices"),
        [
            ([1, 1, 1, 1, 1, 1, 1], [0]),
            ([0, 2, 1, 2, 2, 2, 2], [0, 1]),
            ([0, 0, 0, 0, 0, 0, 3], [0, 1]),
            ([0, -1, 0, 0, 0, 0, 2], [0, 1]),
            ([0, 2**31 - 1, 2, 2, 2, 2, 2], [0, 1]),
            ([0, 0, 0, 0, 0, 0, 2], [0, 12]),
            ([0, 0, 0, 0, 0, 0, 2], [0, -1]),
            ([0, 0, 0, 0, 0, 0, 2], [2**31 - 1, -(2**31)]),
        ],
    )
    def test_sparse_rows_must_be_rows_of_columns(indptr: Any, indices: Any) -> None:
        with pytest.raises(ValueError, match="ind"):
            NATIVE.lasso(*_lasso_arrays().values(), *_start(indptr, indices), 1e-4)

    def test_a_start_may_name_an_atom_twice() -> None:
        twice = _start([0, 30, 30, 30, 30, 30, 30], [3, 3, 3] * 10)
        found = NATIVE.lasso(*_lasso_arrays().values(), *twice, 1e-4)
        assert all(np.isfinite(each).all() for each in found)

    @pytest.mark.parametrize("tolerance", [0.0, -1.0, np.nan, np.inf])
    def test_the_tolerance_is_positive(tolerance: float) -> None:
        with pytest.raises(ValueError, match="tolerance"):
            NATIVE.lasso(*_lasso_arrays().values(), *_start([0] * 7, []), tolerance)

    # --- memory that is not as it should be ---------------------------------------------------------------

    def _misaligned(values: Any) -> Any:
        octets = b"\0" + np.ascontiguousarray(values).tobytes()
        return np.frombuffer(octets, np.uint8)[1:].view(values.dtype).reshape(values.shape)

    def _other_order(values: Any) -> Any:
        return values.astype(values.dtype.newbyteorder(">"))

    def _strided(values: Any) -> Any:
        return np.repeat(values, 2, axis=-1)[..., ::2]

    def _backwards(values: Any) -> Any:
        return values[::-1]

    def _columns_first(values: Any) -> Any:
        return np.asfortranarray(values)

    def _without_strides(values: Any) -> Any:
        return np.broadcast_to(values.reshape(-1)[0], values.shape)

    MEMORY = (_misaligned, _other_order, _strided, _backwards, _columns_first, _without_strides)

    def _wrong_memory() -> Iterator[Any]:
        for name, (_, make) in (CALLS | {"lasso": (_lasso, _lasso_arrays)}).items():
            for array, values in make().items():
                for change in MEMORY:
                    changed = change(values)
                    plain = changed.flags.c_contiguous and changed.flags.aligned and changed.dtype.isnative
                    if not plain:
                        yield pytest.param(name, array, change, id=f"{name}-{array}-{change.__name__}")

    _UNUSED = {
        "codebook_value_gradient": ("codewords_by_dim", "gram"),
        "distance_tables": ("codewords", "gram", "codes"),
        "ordered_product": ("codewords_by_dim", "gram", "targets", "codes"),
        "beam_search": ("codes",),
        "icm": ("codes",),  # is copied first
    }

    @pytest.mark.parametrize(("name", "array", "change"), list(_wrong_memory()))
    def test_memory_in_another_order_is_refused_or_read_rightly(name: str, array: str, change: Any) -> None:
        call, make = CALLS.get(name, (_lasso, _lasso_arrays))
        changed = change(make()[array])
        arrays = make() | {array: changed}
        if array in _UNUSED.get(name, ()):
            call(**arrays)
            return
        try:
            found = call(**arrays)
        except (TypeError, ValueError):
            return
        expected = call(**make() | {array: np.ascontiguousarray(changed, changed.dtype.newbyteorder("="))})
        for left, right in zip(_flat(found), _flat(expected), strict=True):
            np.testing.assert_array_equal(left, right)

    def test_outputs_that_are_read_only_are_refused() -> None:
        arrays = _code_arrays()
        books = _native_books(arrays)
        codes = arrays["codes"].copy()
        codes.flags.writeable = False
        for name, effort in (("icm", [3]), ("beam_search", [3, 0])):
            with pytest.raises(TypeError):
                getattr(NATIVE, name)(*books, 0.1, 0.0, *effort, codes)
        out = np.zeros((20, M, 256), np.float32)
        out.flags.writeable = False
        with pytest.raises(TypeError):
            NATIVE.distance_tables(arrays["targets"], arrays["codewords_by_dim"], out)
        out = np.zeros((20, 3))
        out.flags.writeable = False
        with pytest.raises(TypeError):
            NATIVE.ordered_product(np.ones((20, 4)), np.ones((4, 3)), out)

    @pytest.mark.parametrize("wrong", [None, 3, "text", [1.0], object(), np.float32(1), np.zeros(())])
    def test_what_is_no_array_is_refused(wrong: Any) -> None:
        for name, (call, make) in CALLS.items():
            for array in make().keys() - set(_UNUSED.get(name, ())) - {"allowed", "codewords", "targets"}:
                if name in ("scan", "scan_cells") and array in ("codes", "rows", "starts", "cells"):
                    with pytest.raises((TypeError, ValueError)):
                        call(**make() | {array: wrong})
        with pytest.raises((TypeError, ValueError)):
            NATIVE.scan(wrong, 0.0, None, 0, 1, 1.0, 1)
        with pytest.raises((TypeError, ValueError)):
            NATIVE.ordered_product(wrong, np.ones((1, 1)), np.ones((1, 1)))

    def test_codes_wider_than_a_byte_are_refused() -> None:
        arrays = _scan_arrays()
        with pytest.raises(TypeError):
            _scan(**arrays | {"codes": arrays["codes"].astype(np.int64) + 300})
