"""Measure the objective Ψ + M of the paper, term by term (Sec. 3, Eq. 3 to 5 and the penalty of Sec. 4.2).

One function per term; each takes the training problem and the state and returns a float64 sum over
blocks. Terms that do not exist yet (no quantizer) or not at all (a space with fixed points) are zero.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from crossbyte.compute.executor import Executor
from crossbyte.data.preparation import PreparedRows
from crossbyte.model.quantization.codebooks import cross_spread
from crossbyte.model.quantization.collaborative import LastTables, QuantizationWeights, Side
from crossbyte.model.space.sparse import SparseState, SparseWeights


class Points(NamedTuple):
    """A mapping whose points stay where they are (canonical, contrastive)."""

    image_points: Any
    text_points: Any
    document_points: Any = None
    """what is known from both halves; None where every half has its own code"""

    @property
    def points(self) -> tuple[Any, ...]:
        """All sides, images first."""
        sides = self.image_points, self.text_points
        return sides if self.document_points is None else (*sides, self.document_points)


class Problem(NamedTuple):
    """What does not change during training: prepared pairs and weights."""

    images: PreparedRows
    """(N, d_I) prepared, X"""
    texts: PreparedRows
    """(N, d_T) prepared, Y"""
    weights: SparseWeights
    quantization_weights: QuantizationWeights
    workers: Executor
    tables: LastTables | None = None
    """of the dictionary that sides share, where they do"""


class State(NamedTuple):
    """What training changes: the mapping and the quantizers."""

    mapping: SparseState | Points
    sides: tuple[Side, ...] | None = None
    """the quantizers of images, texts and (with one code per document) documents; None before they exist"""

    def with_side(self, which: int, side: Side) -> State:
        """Return the state with one side's quantizer replaced."""
        assert self.sides is not None
        return self._replace(sides=(*self.sides[:which], side, *self.sides[which + 1 :]))


class Objective(NamedTuple):
    """Values of all terms, weights included."""

    image_fit: float = 0.0
    sparsity: float = 0.0
    text_fit: float = 0.0
    alignment: float = 0.0
    image_quantization: float = 0.0
    text_quantization: float = 0.0
    correlation: float = 0.0
    image_penalty: float = 0.0
    text_penalty: float = 0.0
    shrinkage: float = 0.0
    document_quantization: float = 0.0

    @property
    def total(self) -> float:
        """Sum of all terms."""
        return float(sum(self))


NO_TERMS = Objective()


class ObjectiveRecord(NamedTuple):
    """The objective after one block update.

    ``block`` is the paper's letter of what was updated; the first record is the start, round 0.
    """

    round: int
    block: str
    terms: Objective

    @property
    def total(self) -> float:
        """Sum of all terms."""
        return self.terms.total


def image_fit(problem: Problem, state: State) -> float:
    """|X - S B|²."""
    if not isinstance(state.mapping, SparseState):
        return 0.0
    S, B = state.mapping.S, state.mapping.B

    def one_block(rows: slice) -> float:
        rest = problem.images[rows].dense().astype(np.float64) - S[rows].astype(np.float64) @ B
        return float(np.vdot(rest, rest))

    return float(problem.workers.total(one_block, S.shape[0]))


def sparsity(problem: Problem, state: State) -> float:
    """ρ |S|₁ (in ratio mode too, where it is only a record)."""
    if not isinstance(state.mapping, SparseState):
        return 0.0
    S = state.mapping.S

    def one_block(rows: slice) -> float:
        return float(np.abs(S[rows].data).sum(dtype=np.float64))

    return problem.weights.sparsity * float(problem.workers.total(one_block, S.shape[0]))


def text_fit(problem: Problem, state: State) -> float:
    """η |Y - Y' U|² = η Σ |y|² - 2 (y U') y' + y' U U' y'."""
    if not isinstance(state.mapping, SparseState):
        return 0.0
    U, points = state.mapping.U, state.mapping.text_points
    gram = U @ U.T

    def one_block(rows: slice) -> float:
        y, p = problem.texts[rows], points[rows].astype(np.float64)
        return float(y.squares().sum() - 2 * np.vdot(y.times(U.T), p) + np.vdot(p @ gram, p))

    return problem.weights.text_weight * float(problem.workers.total(one_block, len(points)))


def alignment(problem: Problem, state: State) -> float:
    """λ |Y' - S R|²."""
    if not isinstance(state.mapping, SparseState):
        return 0.0
    mapping = state.mapping
    return problem.weights.alignment * _squared_distance(
        mapping.text_points, mapping.image_points, problem.workers
    )


def image_quantization(problem: Problem, state: State) -> float:
    """|X' - C P|²."""
    return _quantization_error(problem, state, 0)


def text_quantization(problem: Problem, state: State) -> float:
    """|Y' - D Q|²."""
    return _quantization_error(problem, state, 1)


def document_quantization(problem: Problem, state: State) -> float:
    """|T - E b|² of points that are known from both halves; not in the paper."""
    return _quantization_error(problem, state, 2)


def correlation(problem: Problem, state: State) -> float:
    """γ |C P - D Q|²."""
    if state.sides is None or problem.quantization_weights.correlation == 0.0:
        return 0.0
    images, texts = state.sides[:2]
    return problem.quantization_weights.correlation * _squared_distance(
        images.decoded, texts.decoded, problem.workers
    )


def image_penalty(problem: Problem, state: State) -> float:
    """μ Σ (cross - ε₁)²."""
    return _cross_penalty(problem, state, 0)


def text_penalty(problem: Problem, state: State) -> float:
    """μ Σ (cross - ε₂)²."""
    return _cross_penalty(problem, state, 1)


def shrinkage(problem: Problem, state: State) -> float:
    """τ (|C|² + |D|²); not in the paper, and zero with its mapping."""
    return problem.quantization_weights.shrinkage * float(
        sum(np.vdot(side.codewords, side.codewords) for side in state.sides or ())
    )


def _quantization_error(problem: Problem, state: State, side: int) -> float:
    if state.sides is None or side >= len(state.sides):
        return 0.0
    return _squared_distance(state.mapping.points[side], state.sides[side].decoded, problem.workers)


def _cross_penalty(problem: Problem, state: State, side: int) -> float:
    if state.sides is None or problem.quantization_weights.cross_penalty == 0.0:
        return 0.0
    own = state.sides[side]
    spread = cross_spread(own.codewords, own.codes, own.epsilon, problem.workers)
    return problem.quantization_weights.cross_penalty * spread


def _squared_distance(left: Any, right: Any, workers: Executor) -> float:
    def one_block(rows: slice) -> float:
        difference = left[rows].astype(np.float64) - right[rows]
        return float(np.vdot(difference, difference))

    return float(workers.total(one_block, len(left)))


TERMS: dict[str, Callable[[Problem, State], float]] = {
    function.__name__: function
    for function in (
        image_fit,
        sparsity,
        text_fit,
        alignment,
        image_quantization,
        text_quantization,
        correlation,
        image_penalty,
        text_penalty,
        shrinkage,
        document_quantization,
    )
}


def measure_terms(
    problem: Problem, state: State, names: tuple[str, ...], known: Objective = NO_TERMS
) -> Objective:
    """Measure the named terms; the others are kept as they are known."""
    return known._replace(**{name: TERMS[name](problem, state) for name in names})
