"""The alternation: every block recorded, the objective never up, and the ablations of the paper."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import DenseRows
from crossbyte.model.objective import Objective, ObjectiveRecord, Points, Problem, State, measure_terms
from crossbyte.model.quantization.collaborative import QuantizationWeights
from crossbyte.model.space.cca import canonical_correlation
from crossbyte.model.space.sparse import SparseWeights, initial_state
from crossbyte.model.training import (
    Block,
    alternate,
    document_blocks,
    initial_item_sides,
    initial_sides,
    item_blocks,
    mapping_blocks,
    quantization_blocks,
)
from support import oracles

N = 400  # more than codewords, or every point would be learned by heart


class Case(NamedTuple):
    """One way of training."""

    weights: SparseWeights = SparseWeights()
    quantization: QuantizationWeights = QuantizationWeights(0.3, 0.1)
    shared: bool = False
    linear: bool = False
    n_codebooks: int = 2


CASES = {
    "full": Case(),
    "gamma=0": Case(quantization=QuantizationWeights(0.0, 0.1)),
    "lambda=0": Case(SparseWeights(alignment=0.0)),
    "mu=0": Case(quantization=QuantizationWeights(0.3, 0.0)),
    "strong": Case(SparseWeights(0.7, 5.0, 5.0), QuantizationWeights(5.0, 1.0)),
    "shared": Case(shared=True),
    "cca": Case(linear=True, quantization=QuantizationWeights(1.0, 0.1, 0.2)),
    "cca shared": Case(linear=True, shared=True, quantization=QuantizationWeights(1.0, 0.1, 0.2)),
    "one codebook": Case(n_codebooks=1),
    "three codebooks": Case(n_codebooks=3),
}


@pytest.fixture
def workers() -> Iterator[Workers]:
    with Workers(1) as entered:
        yield entered


def _problem(case: Case, seed: int, workers: Workers) -> Problem:
    images, texts = oracles.paired_rows(np.random.default_rng(seed), N, (12, 10))
    return Problem(DenseRows(images), DenseRows(texts), case.weights, case.quantization, workers)


def _start(case: Case, problem: Problem, rng: np.random.Generator) -> tuple[State, list[ObjectiveRecord]]:
    """The mapping alone, before the quantizers."""
    X, Y, workers = problem.images, problem.texts, problem.workers
    if case.linear:
        return State(Points(*canonical_correlation(X, Y, 6, 0.1, workers).fold_in(X, Y, workers))), []
    state = State(initial_state(X, Y, 24, 8, case.weights, rng, workers))
    return alternate(problem, state, mapping_blocks(case.weights.ratio), 3, 0.0, _ignore)


def _ignore(_: ObjectiveRecord) -> None:
    return None


def _train(case: Case, seed: int, workers: Workers, max_iter: int = 3) -> tuple[Problem, State, Any, Any]:
    rng = np.random.default_rng(seed)
    problem = _problem(case, seed, workers)
    state, early = _start(case, problem, rng)
    state = initial_sides(problem, state, case.n_codebooks, case.shared, rng)
    blocks = quantization_blocks(case.shared)
    if not case.linear:
        blocks = mapping_blocks(case.weights.ratio) + blocks
    state, history = alternate(problem, state, blocks, max_iter, 0.0, _ignore)
    return problem, state, early, history


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", CASES)
def test_the_objective_never_rises(name: str, seed: int, workers: Workers) -> None:
    problem, state, early, history = _train(CASES[name], seed, workers, max_iter=2)
    for records in (early, history):
        totals = [record.total for record in records]
        for before, after in zip(totals, totals[1:], strict=False):
            assert after <= before * (1 + 1e-8)
    assert history[-1].total < history[0].total
    # what was recorded block by block is the objective of the final state
    assert history[-1].total == pytest.approx(
        measure_terms(problem, state, Objective._fields).total, rel=1e-10
    )


@pytest.mark.parametrize("name", CASES)
def test_every_block_helps_or_stays_without_the_guard(name: str, workers: Workers) -> None:
    case = CASES[name]
    rng = np.random.default_rng(5)
    problem = _problem(case, 5, workers)
    state = initial_sides(problem, _start(case, problem, rng)[0], case.n_codebooks, case.shared, rng)
    blocks = quantization_blocks(case.shared) + ([] if case.linear else mapping_blocks(False))
    terms = measure_terms(problem, state, Objective._fields)
    for block in blocks:
        state = block.update(problem, state)
        new = measure_terms(problem, state, Objective._fields)
        assert new.total <= terms.total * (1 + 1e-8), block.letter
        for term in set(Objective._fields) - set(block.changes):
            assert getattr(new, term) == pytest.approx(getattr(terms, term), rel=1e-12), (block.letter, term)
        terms = new


def _document_case(seed: int, workers: Workers) -> tuple[Problem, State]:
    """Points of images, of texts, and of documents, of which there are fewer, with their start."""
    rng = np.random.default_rng(seed)
    images, texts = oracles.paired_rows(rng, 2 * N, (8, 8))
    points = Points(images, texts, ((images + texts) / 2)[:N].astype(np.float32))
    rows = DenseRows(images), DenseRows(texts)
    problem = Problem(*rows, SparseWeights(), QuantizationWeights(0.0, 0.0, 0.5), workers)
    return problem, initial_item_sides(problem, State(points), 2, rng)


@pytest.mark.parametrize("seed", range(3))
def test_the_objective_of_halves_and_documents_never_rises(seed: int, workers: Workers) -> None:
    problem, state = _document_case(seed, workers)
    shared, history = alternate(problem, state, item_blocks(), 2, 0.0, _ignore)
    assert [record.block for record in history] == ["start", *["C", "P", "Q", "b"] * 2]
    for side in shared.sides:
        np.testing.assert_array_equal(side.codewords, shared.sides[0].codewords)
    final, further = alternate(problem, shared, document_blocks(), 2, 0.0, _ignore)
    assert [record.block for record in further] == ["start", *["E", "b"] * 2]
    assert further[0].total == pytest.approx(history[-1].total, rel=1e-12)
    history += further[1:]
    totals = [record.total for record in history]
    assert all(after <= before * (1 + 1e-8) for before, after in zip(totals, totals[1:], strict=False))
    assert totals[-1] < totals[0]
    assert totals[-1] == pytest.approx(measure_terms(problem, final, Objective._fields).total, rel=1e-10)
    images, texts, documents = final.sides
    np.testing.assert_array_equal(images.codewords, texts.codewords)
    assert not np.array_equal(images.codewords, documents.codewords)


def test_every_block_of_halves_and_documents_helps_or_stays_without_the_guard(workers: Workers) -> None:
    problem, state = _document_case(5, workers)
    terms = measure_terms(problem, state, Objective._fields)
    for block in item_blocks() * 2 + document_blocks() * 2:
        new_state = block.update(problem, state)
        new = measure_terms(problem, new_state, Objective._fields)
        assert new.total <= terms.total * (1 + 1e-8), block.letter
        for term in set(Objective._fields) - set(block.changes):
            assert getattr(new, term) == pytest.approx(getattr(terms, term), rel=1e-12), (block.letter, term)
        if block.letter == "E":  # the halves are left as they were
            assert new_state.sides[:2] == state.sides[:2]
        state, terms = new_state, new


def test_every_block_is_recorded(workers: Workers) -> None:
    sparse_letters = ["Y'", "S", "U", "B", "R"]
    codes = ["C", "ε₁", "P", "D", "ε₂", "Q"]
    expected = {
        "full": sparse_letters + codes,
        "shared": [*sparse_letters, "C=D", "ε₁", "P", "ε₂", "Q"],
        "cca": codes,
    }
    for name, letters in expected.items():
        _, _, _, history = _train(CASES[name], 0, workers, max_iter=2)
        assert (history[0].round, history[0].block) == (0, "start")
        found = [(record.round, record.block) for record in history[1:]]
        assert found == [(number, letter) for number in (1, 2) for letter in letters]


def test_shared_codebooks_stay_shared(workers: Workers) -> None:
    _, state, _, _ = _train(CASES["shared"], 1, workers)
    np.testing.assert_array_equal(state.sides[0].codewords, state.sides[1].codewords)


def test_correlation_draws_the_codes_together(workers: Workers) -> None:
    gaps = []
    for gamma in (0.0, 5.0):
        _, state, _, _ = _train(Case(quantization=QuantizationWeights(gamma, 0.1)), 2, workers)
        decoded = [oracles.decode(side.codewords, side.codes) for side in state.sides]
        gaps.append(((decoded[0] - decoded[1]) ** 2).sum())
    assert gaps[1] < 0.5 * gaps[0]


def test_the_penalty_makes_cross_terms_alike(workers: Workers) -> None:
    spreads = []
    for mu in (0.0, 10.0):
        _, state, _, _ = _train(Case(quantization=QuantizationWeights(0.3, mu)), 3, workers)
        side = state.sides[0]
        spreads.append(np.std([oracles.cross_term(side.codewords, code) for code in side.codes]))
    assert spreads[1] < 0.5 * spreads[0]


def test_ratio_mode_runs_and_only_its_sparse_codes_may_raise(workers: Workers) -> None:
    case = Case(SparseWeights(ratio=True))
    _, state, early, history = _train(case, 4, workers)
    for records in (early, history):
        for before, after in zip(records, records[1:], strict=False):
            assert after.block == "S" or after.total <= before.total * (1 + 1e-8), after.block
    assert all(np.isfinite(record.total) for record in history)
    assert np.isfinite(state.mapping.image_points).all()


@pytest.mark.parametrize("name", ["full", "shared", "cca"])
def test_training_is_a_function_of_data_and_seed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbyte.compute.executor.BLOCK_ROWS", 150)
    found = []
    for n_jobs in (1, 2):
        with Workers(n_jobs) as workers:
            _, state, _, history = _train(CASES[name], 6, workers, max_iter=1)
            found.append(
                (history, [(side.codewords.tobytes(), side.codes.tobytes()) for side in state.sides])
            )
    assert found[0] == found[1]


# --- the loop itself --------------------------------------------------------------------------------------


def _counting_block(values: list[float]) -> Block:
    """A block that sets γ|CP - DQ|² to the next value: the images' decoded points move, nothing else."""
    left = iter(values)

    def update(_: Problem, state: State) -> State:
        points = np.full((1, 1), np.sqrt(next(left)), dtype=np.float64)
        return state.with_side(0, state.sides[0]._replace(decoded=points))

    return Block("X", update, ("correlation",))


def _toy(workers: Workers) -> tuple[Problem, State]:
    from crossbyte.model.quantization.collaborative import Side

    zero = np.zeros((1, 1))
    words, codes = np.zeros((1, 256, 1)), np.zeros((1, 1), dtype=np.uint8)
    sides = (Side(words, codes, 0.0, np.full((1, 1), 4.0)), Side(words, codes, 0.0, zero))
    problem = Problem(
        DenseRows(zero), DenseRows(zero), SparseWeights(), QuantizationWeights(1.0, 0.0), workers
    )
    return problem, State(Points(zero, zero), sides)


def test_a_block_that_would_raise_the_objective_is_undone(workers: Workers) -> None:
    problem, state = _toy(workers)
    block = _counting_block([9.0, 25.0, 4.0])
    new, history = alternate(problem, state, [block] * 3, 1, 0.0, _ignore)
    assert [record.terms.correlation for record in history] == pytest.approx([16.0, 9.0, 9.0, 4.0])
    assert new.sides[0].decoded[0, 0] == pytest.approx(2.0)


def test_a_block_that_is_always_kept_may_raise_it(workers: Workers) -> None:
    problem, state = _toy(workers)
    block = _counting_block([25.0])._replace(always_kept=True)
    _, history = alternate(problem, state, [block], 1, 0.0, _ignore)
    assert history[-1].terms.correlation == pytest.approx(25.0)


def test_the_loop_stops_when_a_round_gains_little(workers: Workers) -> None:
    problem, state = _toy(workers)
    block = _counting_block([8.0, 7.99, 1.0])
    seen: list[ObjectiveRecord] = []
    _, history = alternate(problem, state, [block], 10, 1e-2, seen.append)
    assert [record.round for record in history] == [0, 1, 2]
    assert seen == history[1:]
