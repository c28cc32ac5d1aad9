"""Alternate over the blocks of variables (Sec. 4); an update is kept only if the objective does not rise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.compute.executor import Executor, sample_rows
from crossbyte.compute.kernels import CrossPenalty
from crossbyte.model.objective import Objective, ObjectiveRecord, Problem, State, measure_terms
from crossbyte.model.quantization import codebooks, collaborative
from crossbyte.model.quantization.collaborative import Side
from crossbyte.model.space import sparse as mapping
from crossbyte.model.space.sparse import SparseState, Targets

Report = Callable[[ObjectiveRecord], object]

_ITEM_CODES = {"image": "P", "text": "Q", "document": "b"}  # letters of the codes
_OWN_CODEWORDS = {"image": "C", "text": "D", "document": "E"}
_FEW_STEPS = 4  # of L-BFGS, between codes that are found anew


class Block(NamedTuple):
    """One group of variables: the paper's letter, its update, and the terms that it changes."""

    letter: str
    update: Callable[[Problem, State], State]
    changes: tuple[str, ...]
    always_kept: bool = False


def alternate(
    problem: Problem, state: State, blocks: Sequence[Block], max_iter: int, tol: float, report: Report
) -> tuple[State, list[ObjectiveRecord]]:
    """Update the blocks in turn until a round lowers the objective by less than ``tol`` of it."""
    terms = measure_terms(problem, state, Objective._fields)
    history = [ObjectiveRecord(0, "start", terms)]
    for number in range(1, max_iter + 1):
        before = terms.total
        for block in blocks:
            state, terms = _update_block(problem, state, terms, block)
            history.append(ObjectiveRecord(number, block.letter, terms))
            report(history[-1])
        if before - terms.total <= tol * before:
            break
    return state, history


def _update_block(problem: Problem, state: State, terms: Objective, block: Block) -> tuple[State, Objective]:
    candidate = block.update(problem, state)
    new = measure_terms(problem, candidate, block.changes, terms)
    # Rounding can undo what a converged block gains; then the old value stays.
    keep = block.always_kept or new.total <= terms.total
    return (candidate, new) if keep else (state, terms)


def mapping_blocks(ratio: bool) -> list[Block]:
    """List the blocks of the sparse mapping (Sec. 4.1): Y', S, U, B, R."""
    return [
        Block("Y'", _update_text_points, ("text_fit", "alignment", "text_quantization")),
        # In ratio mode the penalty moves with the data, and S is the only block that may raise Ψ + M.
        Block("S", _update_sparse_codes, ("image_fit", "sparsity", "alignment", "image_quantization"), ratio),
        Block("U", _update_text_basis, ("text_fit",)),
        Block("B", _update_image_dictionary, ("image_fit",)),
        Block("R", _update_image_map, ("alignment", "image_quantization")),
    ]


def quantization_blocks(shared: bool) -> list[Block]:
    """List the blocks of the quantizers (Sec. 4.2): C, ε₁, P, D, ε₂, Q; shared codebooks are updated once."""
    blocks = [*_side_blocks(0, "image", ("C", "ε₁", "P")), *_side_blocks(1, "text", ("D", "ε₂", "Q"))]
    if not shared:
        return blocks
    both = tuple(dict.fromkeys(blocks[0].changes + blocks[3].changes))
    return [Block("C=D", _update_shared_codewords, both), *blocks[1:3], *blocks[4:]]


def item_blocks() -> list[Block]:
    """List the blocks of one dictionary of images, texts and documents: C, and the codes of each."""
    terms = tuple(f"{name}_quantization" for name in _ITEM_CODES)
    return [
        Block("C", _update_item_codewords, (*terms, "shrinkage")),
        *(_own_codes_block(name) for name in _ITEM_CODES),
    ]


def document_blocks() -> list[Block]:
    """List the blocks of a dictionary that is of documents alone: E, and their codes."""
    return own_blocks("document")


def own_blocks(name: str, *, at_once: bool = False) -> list[Block]:
    """List the blocks of a dictionary that is of one kind of item alone: C, D or E, and their codes.

    With ``at_once``, codewords are solved for where items are few, not improved step by step.
    """
    side, letter = list(_ITEM_CODES).index(name), _OWN_CODEWORDS[name]
    update = _solve_own_codewords if at_once else _update_own_codewords
    changes = (f"{name}_quantization", "shrinkage")
    return [Block(letter, partial(update, side=side), changes), _own_codes_block(name)]


def _own_codes_block(name: str) -> Block:
    side = list(_ITEM_CODES).index(name)
    return Block(_ITEM_CODES[name], partial(_recode, side=side), (f"{name}_quantization",))


def _side_blocks(side: int, name: str, letters: tuple[str, str, str]) -> list[Block]:
    """List codebooks, ε and codes of one side; the same functions serve both."""
    codes_change = (f"{name}_quantization", "correlation", f"{name}_penalty")
    return [
        Block(letters[0], partial(_update_codewords, side=side), (*codes_change, "shrinkage")),
        Block(letters[1], partial(_update_epsilon, side=side), (f"{name}_penalty",)),
        Block(letters[2], partial(_update_codes, side=side), codes_change),
    ]


def initial_sides(
    problem: Problem, state: State, n_codebooks: int, shared: bool, rng: np.random.Generator
) -> State:
    """Initialise the quantizers by composite quantization: each side alone, or both with one dictionary."""
    points, workers = state.mapping.points, problem.workers
    if not shared:
        images, texts = (
            collaborative.initial_side(side, n_codebooks, problem.quantization_weights, rng, workers)
            for side in points
        )
        return state._replace(sides=(images, texts))
    n = len(points[0])
    chosen = sample_rows(2 * n, rng)
    some = _stack_points(points, chosen)
    joint = collaborative.composite_quantization(
        some, n_codebooks, problem.quantization_weights, rng, workers.local
    )
    if chosen is None:
        images, texts = (_take_side(joint, at, workers) for at in (slice(n), slice(n, 2 * n)))
    else:
        penalty = problem.quantization_weights.penalty(joint.epsilon)
        images, texts = (
            collaborative.code_points(joint.codewords, side, penalty, workers) for side in points
        )
    return state._replace(sides=(images, texts))


def initial_item_sides(
    problem: Problem,
    state: State,
    n_codebooks: int,
    rng: np.random.Generator,
    stages: codebooks.BeamStages | None = None,
) -> State:
    """Initialise one dictionary of images, texts and documents by the survivors of a beam.

    ``stages`` have the codebooks that were learned from the same points for another code length.
    """
    points = np.vstack(state.mapping.points)
    chosen = sample_rows(len(points), rng, codebooks.MOST_POINTS)
    some = points if chosen is None else points[chosen]
    stages = codebooks.BeamStages() if stages is None else stages
    codewords = stages.learn(some, n_codebooks, rng, problem.workers)
    none = CrossPenalty(0.0, 0.0)
    sides = (
        collaborative.code_points(codewords, each, none, problem.workers, problem.tables)
        for each in state.mapping.points
    )
    return state._replace(sides=tuple(sides))


def initial_own_sides(
    problem: Problem, state: State, n_codebooks: int, n_sides: int, rng: np.random.Generator
) -> State:
    """Initialise a dictionary of each of the first kinds of items alone by the survivors of a beam."""
    none = CrossPenalty(0.0, 0.0)
    sides = []
    for points in state.mapping.points[:n_sides]:
        chosen = sample_rows(len(points), rng, codebooks.MOST_POINTS)
        some = points if chosen is None else points[chosen]
        codewords = codebooks.beam_codebooks(some, n_codebooks, rng, problem.workers)
        sides.append(collaborative.code_points(codewords, points, none, problem.workers, problem.tables))
    return state._replace(sides=tuple(sides))


def _stack_points(points: tuple[Float32, Float32], chosen: NDArray[np.intp] | None) -> Float32:
    """Stack the points of both sides, or those chosen."""
    if chosen is None:
        return np.vstack([np.asarray(side) for side in points])
    n = len(points[0])
    return np.vstack([points[0][chosen[chosen < n]], points[1][chosen[chosen >= n] - n]])


def _take_side(joint: Side, at: slice, workers: Executor) -> Side:
    side = joint._replace(codes=workers.hold(joint.codes[at]), decoded=workers.hold(joint.decoded[at]))
    return collaborative.update_epsilon(side, workers)


def _sparse_state(state: State) -> SparseState:
    assert isinstance(state.mapping, SparseState)
    return state.mapping


def _targets(state: State) -> Targets | None:
    """Return the decoded codes that the points are pulled to; None before the quantizers exist."""
    return None if state.sides is None else Targets(*(side.decoded for side in state.sides))


def _update_text_points(problem: Problem, state: State) -> State:
    new = mapping.update_text_points(
        _sparse_state(state), problem.texts, _targets(state), problem.weights, problem.workers
    )
    return state._replace(mapping=new)


def _update_sparse_codes(problem: Problem, state: State) -> State:
    new = mapping.update_sparse_codes(
        _sparse_state(state), problem.images, _targets(state), problem.weights, problem.workers
    )
    return state._replace(mapping=new)


def _update_text_basis(problem: Problem, state: State) -> State:
    return state._replace(
        mapping=mapping.update_text_basis(_sparse_state(state), problem.texts, problem.workers)
    )


def _update_image_dictionary(problem: Problem, state: State) -> State:
    new = mapping.update_image_dictionary(_sparse_state(state), problem.images, problem.workers)
    return state._replace(mapping=new)


def _update_image_map(problem: Problem, state: State) -> State:
    new = mapping.update_image_map(_sparse_state(state), _targets(state), problem.weights, problem.workers)
    return state._replace(mapping=new)


def _update_shared_codewords(problem: Problem, state: State) -> State:
    assert state.sides is not None
    new = collaborative.update_shared_codewords(
        state.sides, state.mapping.points, problem.quantization_weights, problem.workers
    )
    return state._replace(sides=new)


def _update_item_codewords(problem: Problem, state: State) -> State:
    """Update the dictionary that all sides share; it shrinks once for each."""
    assert state.sides is not None
    codes, decoded = (
        np.vstack(each) for each in zip(*((s.codes, s.decoded) for s in state.sides), strict=True)
    )
    weights = problem.quantization_weights
    joint = collaborative.update_codewords(
        state.sides[0]._replace(codes=codes, decoded=decoded),
        np.vstack(state.mapping.points),
        decoded,
        weights._replace(shrinkage=len(state.sides) * weights.shrinkage),
        problem.workers,
        _FEW_STEPS,
    )
    ends = np.cumsum([len(side.codes) for side in state.sides])[:-1]
    parts = np.split(joint.decoded, ends)
    sides = (
        side._replace(codewords=joint.codewords, decoded=part)
        for side, part in zip(state.sides, parts, strict=True)
    )
    return state._replace(sides=tuple(sides))


def _update_epsilon(problem: Problem, state: State, side: int) -> State:
    assert state.sides is not None
    return state.with_side(side, collaborative.update_epsilon(state.sides[side], problem.workers))


def _update_codewords(problem: Problem, state: State, side: int) -> State:
    return _update_given_other(collaborative.update_codewords, problem, state, side)


def _update_codes(problem: Problem, state: State, side: int) -> State:
    return _update_given_other(collaborative.update_codes, problem, state, side)


def _update_own_codewords(problem: Problem, state: State, side: int) -> State:
    assert state.sides is not None
    own, points, weights = state.sides[side], state.mapping.points[side], problem.quantization_weights
    new = collaborative.update_codewords(own, points, own.decoded, weights, problem.workers, _FEW_STEPS)
    return state.with_side(side, new)


def _solve_own_codewords(problem: Problem, state: State, side: int) -> State:
    assert state.sides is not None
    own, points, weights = state.sides[side], state.mapping.points[side], problem.quantization_weights
    return state.with_side(
        side, collaborative.solve_codewords(own, points, weights, problem.workers, _FEW_STEPS)
    )


def _recode(problem: Problem, state: State, side: int) -> State:
    assert state.sides is not None
    own, points = state.sides[side], state.mapping.points[side]
    new = collaborative.recode(own, points, problem.workers, problem.tables)
    return state.with_side(side, new)


def _update_given_other(update: Callable[..., Side], problem: Problem, state: State, side: int) -> State:
    assert state.sides is not None
    own, other = state.sides[side], state.sides[1 - side]
    points = state.mapping.points[side]
    return state.with_side(
        side, update(own, points, other.decoded, problem.quantization_weights, problem.workers)
    )
