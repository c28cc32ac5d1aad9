"""The matrix of inputs, storages and calls: each case has one declared outcome.

Either the call answers exactly as for plain float64 rows of the same values, or it raises a typed error; of a
value that is not finite the error names its row and column. Values that a storage cannot hold (NaN as an
integer) are no cases.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ
from crossbyte.errors import InvalidInput, NotFinite
from support.covering import covering

N, D = 24, 6
K = 256


def base(n: int = N, d: int = D, seed: int = 0) -> np.ndarray:
    """Small integers, so that every storage holds them exactly."""
    return np.rint(2.5 * np.random.default_rng([seed, n]).standard_normal((n, d))).clip(-8, 8)


def with_value(rows: Any, columns: Any, value: float) -> np.ndarray:
    values = base()
    values[rows, columns] = value
    return values


class Case(NamedTuple):
    """Values, and what each kind of call does with them: "ok", "refused", or the cell that is not finite."""

    values: Callable[[], np.ndarray]
    fit: Any = "ok"
    query: Any = "ok"
    score: Any = None  # where it is not that of the other queries


CASES = {
    "nan cell": Case(lambda: with_value(5, 3, np.nan), (5, 3), (5, 3)),
    "nan row": Case(lambda: with_value(7, slice(None), np.nan), (7, 0), (7, 0)),
    "+inf": Case(lambda: with_value(0, 5, np.inf), (0, 5), (0, 5)),
    "-inf": Case(lambda: with_value(23, 0, -np.inf), (23, 0), (23, 0)),
    "zero row": Case(lambda: with_value(4, slice(None), 0.0)),
    "all zero": Case(lambda: 0 * base(), "refused"),
    "constant column": Case(lambda: with_value(slice(None), 2, 3.0)),
    "zero column": Case(lambda: with_value(slice(None), 2, 0.0)),
    "all rows equal": Case(lambda: np.repeat(base(1), N, axis=0), "refused"),
    "duplicated pairs": Case(lambda: np.repeat(base(N // 2), 2, axis=0)),
    "rank 1": Case(lambda: np.outer(np.arange(N) % 3, [1, 2, 0, 3, 4, 5.0])),
    "N = 0": Case(lambda: base(0), "refused", "ok", "refused"),
    "N = 1": Case(lambda: base(1), "refused"),
    "N < K": Case(lambda: base(K - 1)),
    "N = K": Case(lambda: base(K)),
    "D = 1": Case(lambda: base(d=1), "ok", "refused"),
    "D < M": Case(lambda: base(d=2), "ok", "refused"),
    "scale 1e-30": Case(lambda: 1e-30 * base()),
    "scale 1e+30": Case(lambda: 1e30 * base()),
    "denormals": Case(lambda: 2.0**-1060 * base()),
    "mixed scale": Case(lambda: base() * np.logspace(-4, 3, D)),
}

# The storages that round some values away, and what is left of them then.
ROUNDED_TO_ZERO = {
    "float16": {"scale 1e-30", "denormals"},
    "float32": {"denormals"},
    "int8": {"scale 1e-30", "denormals"},
    "bool": set(),
}
ROUNDED_TO_INFINITY = {"float16": {"scale 1e+30"}}


def strided(values: np.ndarray) -> np.ndarray:
    wide = np.full((2 * values.shape[0], 3 * values.shape[1]), np.nan)
    wide[::2, ::3] = values
    return wide[::2, ::3]


def read_only(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.setflags(write=False)
    return values


def saturated(values: np.ndarray) -> np.ndarray:
    return np.rint(values).clip(-127, 127).astype(np.int8)


def rounded(dtype: str) -> Callable[[np.ndarray], np.ndarray]:
    def convert(values: np.ndarray) -> np.ndarray:
        with np.errstate(over="ignore", under="ignore"):
            return values.astype(dtype)

    return convert


STORAGES: dict[str, Callable[[np.ndarray], Any]] = {
    "float16": rounded("f2"),
    "float32": rounded("f4"),
    "float64": lambda values: values,
    "int8": saturated,
    "bool": lambda values: values != 0,
    "big-endian": lambda values: values.astype(">f8"),
    "fortran": np.asfortranarray,
    "strided": strided,
    "read-only": read_only,
    "masked": np.ma.masked_array,
    "object": lambda values: values.astype(object),
    "csr": sparse.csr_array,
    "csc": sparse.csc_matrix,
}
CALLS = ("fit", "transform", "encode", "encode_pairs", "score")


def is_possible(case: str, storage: str) -> bool:
    return storage not in ("int8", "bool") or case not in ("nan cell", "nan row", "+inf", "-inf")


def declared(case: str, storage: str, call: str) -> Any:
    if case in ROUNDED_TO_INFINITY.get(storage, ()):
        return tuple(np.argwhere(base())[0])
    if case in ROUNDED_TO_ZERO.get(storage, ()):
        case = "all zero"
    one = CASES[case]
    if call == "fit":
        return one.fit
    return one.score if call == "score" and one.score is not None else one.query


def new_model(**changes: Any) -> CMCQ:
    params = {"n_bits": 8, "n_components": 4, "n_atoms": 8, "max_iter": 1, "random_state": 0}
    return CMCQ(**(params | changes))


def other_side(n: int) -> np.ndarray:
    """The half of the pairs that is not under test; some of it zero, as words are."""
    return np.maximum(base(n, seed=1), 0) + np.eye(n, D)


@cache
def fitted() -> CMCQ:
    return new_model().fit(base(60), other_side(60))


def pair(side: str, values: Any) -> tuple[Any, Any]:
    other = other_side(values.shape[0])
    return (values, other) if side == "images" else (other, values)


def answer(side: str, call: str, values: Any) -> Any:
    """What a call gives, as bytes that can be compared."""
    images, texts = pair(side, values)
    if call == "fit":
        # D < M needs more codebooks than columns.
        few = values.shape[1] == 2
        return fit_bytes(images, texts, 24 if few else 8, "sparse" if side == "images" else "cca")
    if call in ("transform", "encode"):
        return getattr(fitted(), f"{call}_{side}")(values)
    return getattr(fitted(), call)(images, texts)


def fit_bytes(images: Any, texts: Any, n_bits: int, mapping: str) -> bytes:
    model = new_model(n_bits=n_bits, mapping=mapping).fit(images, texts)
    totals = [record.total for record in model.objective_history_]
    assert np.isfinite(model.image_codebooks_).all()
    assert np.isfinite(model.text_codebooks_).all()
    assert all(b <= a * (1 + 1e-8) for a, b in zip(totals, totals[1:], strict=False))
    return model.to_bytes()


@cache
def plain_answer(side: str, call: str, shape: tuple[int, int], data: bytes) -> Any:
    return answer(side, call, np.frombuffer(data).reshape(shape))


def check_answer(side: str, call: str, values: Any) -> None:
    got = answer(side, call, values)
    plain = np.ascontiguousarray(values, dtype=np.float64)
    expected = plain_answer(side, call, plain.shape, plain.tobytes())
    if isinstance(got, bytes | float):
        assert got == expected
        return
    got, expected = (parts if isinstance(parts, tuple) else (parts,) for parts in (got, expected))
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        assert one.shape[0] == values.shape[0]
        np.testing.assert_array_equal(one, other)
        assert np.isfinite(one).all()


def check_case(side: str, case: str, storage: str, call: str) -> None:
    values = STORAGES[storage](CASES[case].values())
    outcome = declared(case, storage, call)
    if outcome == "ok":
        check_answer(side, call, values)
    elif outcome == "refused":
        with pytest.raises(InvalidInput) as caught:
            answer(side, call, values)
        # Of too few pairs, the images are counted first.
        assert side in str(caught.value) or case.startswith("N = ")
    else:
        with pytest.raises(NotFinite, match=f"^{side}: .* row {outcome[0]}, column {outcome[1]};"):
            answer(side, call, values)


def covered(storages: Iterable[str]) -> list[Any]:
    """Every call with every case, every call with every storage, and every case with every storage."""
    rows = covering(
        list(CASES), list(storages), CALLS, possible=lambda case, storage, _: is_possible(case, storage)
    )
    return [pytest.param(*row, id=", ".join(map(str, row))) for row in rows]


DENSE = [storage for storage in STORAGES if not storage.startswith("cs")]


@pytest.mark.parametrize(("case", "storage", "call"), covered(DENSE))
def test_images_have_their_declared_outcome(case: str, storage: str, call: str) -> None:
    check_case("images", case, storage, call)


@pytest.mark.filterwarnings("ignore:.* pairs are equal")  # one dimension has only two directions
@pytest.mark.parametrize(("case", "storage", "call"), covered(["float16", "float64", "int8"]))
def test_texts_have_their_declared_outcome(case: str, storage: str, call: str) -> None:
    check_case("texts", case, storage, call)


@pytest.mark.parametrize(("case", "sparse_side", "call"), covered(["images csr", "texts csr", "texts csc"]))
def test_sparse_rows_have_the_outcome_of_dense_ones(case: str, sparse_side: str, call: str) -> None:
    """Rounding differs between sparse and dense products, so here answers need only be near."""
    side, storage = sparse_side.split()
    values = CASES[case].values()
    if declared(case, storage, call) != "ok":
        check_case(side, case, storage, call)
    elif call == "transform":
        near = answer(side, call, values)
        np.testing.assert_allclose(answer(side, call, STORAGES[storage](values)), near, atol=1e-3)
    else:
        got = answer(side, call, STORAGES[storage](values))
        for part in got if isinstance(got, tuple) else (got,):
            assert not isinstance(part, np.ndarray) or part.shape == (len(values), 1)


@pytest.mark.parametrize("storage", ["float64", "csr"])
@pytest.mark.parametrize("side", ["images", "texts"])
def test_queries_far_larger_than_the_training_rows_keep_their_direction(side: str, storage: str) -> None:
    near, far = (answer(side, "transform", STORAGES[storage](scale * base())) for scale in (1e20, 1e60))
    np.testing.assert_allclose(far, near, atol=1e-5)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("side", ["images", "texts"])
def test_a_masked_cell_is_refused_in_every_call(side: str, call: str) -> None:
    values = np.ma.masked_array(base())
    values[6, 2] = np.ma.masked
    with pytest.raises(NotFinite, match=f"{side}: .*masked one at row 6, column 2"):
        answer(side, call, values)


NO_TABLES = {
    "strings": np.full((N, D), "word"),
    "complex": np.full((N, D), 1j),
    "objects": np.full((N, D), None, dtype=object),
    "dates": np.zeros((N, D), dtype="M8[s]"),
    "no column": np.zeros((N, 0)),
    "3-d": np.zeros((N, D, 1)),
    "1-d": np.zeros(N),
    "sparse complex": sparse.csr_array(np.full((N, D), 1j)),
}


@pytest.mark.parametrize("side", ["images", "texts"])
@pytest.mark.parametrize("name", NO_TABLES)
def test_what_is_no_table_of_numbers_is_refused_in_every_call(side: str, name: str) -> None:
    values: Any = NO_TABLES[name]
    ask = call_with if values.ndim == 1 or values.shape[1] != D else answer
    for call in CALLS:
        with pytest.raises(InvalidInput, match=f"^{side}: "):
            ask(side, call, values)


def call_with(side: str, call: str, values: Any) -> Any:
    images, texts = (values, other_side(N)) if side == "images" else (base(), values)
    if call == "fit":
        return new_model().fit(images, texts)
    if call in ("transform", "encode"):
        return getattr(fitted(), f"{call}_{side}")(values)
    return getattr(fitted(), call)(images, texts)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("storage", ["float32", "float64", "csr", "unsorted csr"])
def test_arguments_are_never_written_to(call: str, storage: str) -> None:
    if storage == "unsorted csr":
        # Column indices in falling order: a form that scipy likes to repair in place.
        plain = sparse.csr_array(base())
        values: Any = sparse.csr_array((plain.data[::-1].copy(), plain.indices[::-1].copy(), falling(plain)))
    else:
        values = STORAGES[storage](base())
    images, texts = values.copy(), values.copy()
    parts = [part for each in (images, texts) for part in buffers(each)]
    before = [part.copy() for part in parts]
    for side in ("images", "texts"):
        answer_both(side, call, images, texts)
    assert all(np.array_equal(part, old) for part, old in zip(parts, before, strict=True))


def falling(plain: Any) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.diff(plain.indptr)[::-1])])


def buffers(values: Any) -> list[np.ndarray]:
    return [values.data, values.indices, values.indptr] if sparse.issparse(values) else [values]


def answer_both(side: str, call: str, images: Any, texts: Any) -> None:
    if call in ("transform", "encode"):
        getattr(fitted(), f"{call}_{side}")(images if side == "images" else texts)
    elif call == "fit":
        new_model().fit(images, texts)
    else:
        getattr(fitted(), call)(images, texts)
