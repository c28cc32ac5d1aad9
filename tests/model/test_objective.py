"""The objective, term by term, against the formulas of the paper written with loops."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.model.objective import TERMS, Objective, ObjectiveRecord, Points, Problem, State, measure_terms
from crossbyte.model.quantization.collaborative import QuantizationWeights
from crossbyte.model.space.sparse import SparseWeights, initial_state
from crossbyte.model.training import initial_sides
from support import oracles

N = 400


@pytest.fixture(params=[1, 2])
def problem(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Problem]:
    """A small problem, over several blocks."""
    monkeypatch.setattr("crossbyte.compute.executor.BLOCK_ROWS", 128)
    images, texts = oracles.paired_rows(np.random.default_rng(0), N, (12, 10))
    weights, quantization = SparseWeights(0.2, 0.5, 0.9), QuantizationWeights(0.4, 0.6, 0.05)
    with Workers(request.param) as workers:
        yield Problem(DenseRows(images), DenseRows(texts), weights, quantization, workers)


def _state(problem: Problem, n_codebooks: int = 2) -> State:
    rng = np.random.default_rng(1)
    mapping = initial_state(problem.images, problem.texts, 20, 8, problem.weights, rng, problem.workers)
    state = initial_sides(problem, State(mapping), n_codebooks, False, rng)
    # somewhere on the way: no term is at its own minimum
    images, texts = state.sides
    return state._replace(sides=(images._replace(epsilon=0.3), texts._replace(epsilon=-0.2)))


def _squares(left: np.ndarray, right: np.ndarray) -> float:
    total = 0.0
    for a, b in zip(left, right, strict=True):
        for x, y in zip(a, b, strict=True):
            total += (float(x) - float(y)) ** 2
    return total


def _naive(problem: Problem, state: State) -> Objective:
    mapping, (images, texts) = state.mapping, state.sides
    S, Yp = mapping.S.toarray(), mapping.text_points
    CP, DQ = (oracles.decode(side.codewords, side.codes) for side in state.sides)
    gaps = [
        sum((oracles.cross_term(side.codewords, code) - side.epsilon) ** 2 for code in side.codes)
        for side in state.sides
    ]
    return Objective(
        image_fit=_squares(problem.images.dense(), S @ mapping.B),
        sparsity=0.2 * sum(abs(float(value)) for value in S.ravel()),
        text_fit=0.5 * _squares(problem.texts.dense(), Yp @ mapping.U),
        alignment=0.9 * _squares(Yp, S @ mapping.R),
        image_quantization=_squares(S @ mapping.R, CP),
        text_quantization=_squares(Yp, DQ),
        correlation=0.4 * _squares(CP, DQ),
        image_penalty=0.6 * gaps[0],
        text_penalty=0.6 * gaps[1],
        shrinkage=0.05 * float((images.codewords**2).sum() + (texts.codewords**2).sum()),
    )


@pytest.mark.parametrize("n_codebooks", [1, 2])
def test_every_term_is_its_formula(problem: Problem, n_codebooks: int) -> None:
    state = _state(problem, n_codebooks)
    found, expected = measure_terms(problem, state, Objective._fields), _naive(problem, state)
    for name in Objective._fields:
        value = pytest.approx(getattr(expected, name), rel=1e-6, abs=1e-9)
        assert getattr(found, name) == value, name
    assert found.total == pytest.approx(sum(expected), rel=1e-6)


def test_the_total_is_the_sum_of_the_terms() -> None:
    terms = Objective(*(2.0**i for i in range(len(Objective._fields))))
    assert terms.total == 2.0 ** len(Objective._fields) - 1
    assert ObjectiveRecord(3, "C", terms).total == terms.total
    assert tuple(TERMS) == Objective._fields


def test_only_the_named_terms_are_measured_again(problem: Problem) -> None:
    state = _state(problem)
    known = Objective(*range(10, 20))
    found = measure_terms(problem, state, ("alignment", "shrinkage"), known)
    for name in Objective._fields:
        again = name in ("alignment", "shrinkage")
        assert getattr(found, name) == (TERMS[name](problem, state) if again else getattr(known, name))


def test_before_the_quantizers_there_is_only_the_mapping(problem: Problem) -> None:
    terms = measure_terms(problem, State(_state(problem).mapping), Objective._fields)
    assert min(terms[:4]) > 0 and not any(terms[4:])


def test_points_that_stay_have_no_mapping_terms(problem: Problem) -> None:
    full = _state(problem)
    state = State(Points(*full.mapping.points), full.sides)
    terms = measure_terms(problem, state, Objective._fields)
    assert not any(terms[:4])
    assert terms[4:] == measure_terms(problem, full, Objective._fields)[4:]


def test_one_codebook_has_no_cross_term(problem: Problem) -> None:
    state = _state(problem, 1)
    sides = tuple(side._replace(epsilon=0.0) for side in state.sides)
    terms = measure_terms(problem, state._replace(sides=sides), Objective._fields)
    assert terms.image_penalty == pytest.approx(0.0, abs=1e-20)


def test_with_side_replaces_one_side(problem: Problem) -> None:
    state = _state(problem)
    for which in (0, 1):
        other = state.with_side(which, state.sides[1 - which])
        assert other.sides == (state.sides[1 - which],) * 2
