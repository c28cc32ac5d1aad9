"""Hypergraph-Laplacian sparse coding of both sides at once: the objective of SM2H and its two updates.

Both halves of N documents are coded with as many atoms, S = [A; B] below one another:

    ½ ‖X - A D‖² + ½ ‖Y - B E‖² + λ |S|₁ + ½ ρ ‖S‖² + ½ tr(S'LS)        rows of D and E in the unit ball

A state is a value; neither update can raise the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.data.features import DenseRows, Rows
from crossbyte.executors.threads import Workers
from crossbyte.mapping.bounded import bounded_least_squares
from crossbyte.mapping.linear import unit_rows
from crossbyte.mapping.sparse import SparseWeights, dictionary_gram, image_lasso
from crossbyte.methods.sm2h_hypergraph import Hypergraph
from crossbyte.quantization.kmeans import kmeans

__all__ = [
    "Penalties",
    "Sides",
    "State",
    "learn",
    "objective",
    "sparse_codes",
    "start",
    "update_codes",
    "update_dictionaries",
]

_STEPS = 20  # on the codes in a round; the next one starts from there

Sides = tuple[Rows, Rows]
Dictionaries = tuple[Float64, Float64]


class Penalties(NamedTuple):
    """λ and ρ."""

    sparsity: float
    shrinkage: float

    def scaled(self, factor: float) -> Penalties:
        """Both, so many times."""
        return Penalties(factor * self.sparsity, factor * self.shrinkage)


@dataclass(frozen=True, eq=False)
class State:
    """What the alternation changes."""

    codes: Float64  # (2N, c), S
    dictionaries: Dictionaries  # (c, d_I) and (c, d_T), D and E


def sparse_codes(rows: Rows, dictionary: Float64, penalties: Penalties, workers: Workers) -> Float64:
    """Codes (n, c) of rows (n, d) by themselves alone: argmin ½ |x - s D|² + λ |s|₁ + ½ ρ |s|²."""
    gram = dictionary_gram(dictionary) + np.float32(penalties.shrinkage) * np.eye(
        len(dictionary), dtype=np.float32
    )
    weights = SparseWeights(sparsity=2.0 * penalties.sparsity)  # the kernel's callers halve it
    return np.asarray(image_lasso(rows, dictionary, weights, workers, gram).toarray(), dtype=np.float64)


def start(
    sides: Sides, n_atoms: int, penalties: Penalties, rng: np.random.Generator, workers: Workers
) -> State:
    """Start from k-means of documents, both halves beside each other, and one code for both halves.

    Atoms beyond the number of documents have random directions.
    """
    documents = np.hstack([side.dense() for side in sides]).astype(np.float32)
    centres = np.zeros((n_atoms, documents.shape[1]))
    found = kmeans(documents, min(n_atoms, len(documents)), rng, workers)
    centres[: len(found)] = found
    centres[len(found) :] = rng.standard_normal(centres[len(found) :].shape)
    halves = np.split(centres, [sides[0].shape[1]], axis=1)
    D, E = (np.ascontiguousarray(unit_rows(half)) for half in halves)
    shared = sparse_codes(DenseRows(documents), np.hstack([D, E]), penalties.scaled(2.0), workers)
    return State(np.vstack([shared, shared]), (D, E))


def learn(
    state: State, sides: Sides, penalties: Penalties, graph: Hypergraph, max_iter: int
) -> tuple[State, list[float]]:
    """Take both updates in turn; the objective per document comes before the first and after each round."""
    history = [objective(state, sides, penalties, graph)]
    for _ in range(max_iter):
        state = update_dictionaries(update_codes(state, sides, penalties, graph), sides)
        history.append(objective(state, sides, penalties, graph))
    return state, history


def objective(state: State, sides: Sides, penalties: Penalties, graph: Hypergraph) -> float:
    """The whole objective, over the number of documents."""
    problem = _Problem.of(state.dictionaries, sides, penalties, graph)
    squares = sum(float(side.squares().sum()) for side in sides)
    return (problem.value(state.codes, problem.curved(state.codes)) + 0.5 * squares) / sides[0].shape[0]


def update_codes(
    state: State, sides: Sides, penalties: Penalties, graph: Hypergraph, n_steps: int = _STEPS
) -> State:
    """Accelerated proximal gradient steps on all codes together, none of which may raise the objective.

    The curvature is at most G + (ρ + degree) I for each vertex, G the products of its side's atoms, so
    every vertex has a step length of its own. A step that would raise the objective is not taken: the
    momentum is given up instead, and a step without any cannot raise it.
    """
    problem = _Problem.of(state.dictionaries, sides, penalties, graph)
    S = look = state.codes
    curved = curved_look = problem.curved(S)  # linear in S, so that one product serves value and gradient
    value, momentum = problem.value(S, curved), 1.0
    for _ in range(n_steps):
        new = problem.step(look, curved_look)
        curved_new = problem.curved(new)
        value_new = problem.value(new, curved_new)
        if value_new > value:
            if look is S:
                break  # nothing is left but rounding
            look, curved_look, momentum = S, curved, 1.0
            continue
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = (momentum - 1.0) / following
        look, curved_look = new + ahead * (new - S), curved_new + ahead * (curved_new - curved)
        S, curved, value, momentum = new, curved_new, value_new, following
    return replace(state, codes=S)


def update_dictionaries(state: State, sides: Sides) -> State:
    """D and E given the codes: least squares with rows in the unit ball."""
    halves = np.split(state.codes, 2)
    D, E = (
        bounded_least_squares(half.T @ half, side.cross(half), dictionary)
        for half, side, dictionary in zip(halves, sides, state.dictionaries, strict=True)
    )
    return replace(state, dictionaries=(D, E))


@dataclass(frozen=True, eq=False)
class _Problem:
    """The objective in the codes alone: ½ <S, Q(S)> - <S, q> + λ |S|₁, Q linear, and a constant."""

    grams: tuple[Float64, Float64]  # (c, c), of the atoms
    products: Float64  # (2N, c), q
    penalties: Penalties
    graph: Hypergraph
    steps: Float64  # (2N, 1), step lengths

    @classmethod
    def of(
        cls, dictionaries: Dictionaries, sides: Sides, penalties: Penalties, graph: Hypergraph
    ) -> _Problem:
        D, E = dictionaries
        grams = D @ D.T, E @ E.T
        products = [side.times(W.T) for side, W in zip(sides, dictionaries, strict=True)]
        largest = [
            np.full(len(part), np.linalg.eigvalsh(G)[-1]) for part, G in zip(products, grams, strict=True)
        ]
        steps = 1.0 / (np.concatenate(largest) + penalties.shrinkage + graph.degrees)
        return cls(grams, np.vstack(products).astype(np.float64), penalties, graph, steps[:, None])

    def curved(self, S: Float64) -> Float64:
        """Q(S): the codes times the products of their atoms, plus ρ S + L S."""
        A, B = np.split(S, 2)
        own = np.vstack([A @ self.grams[0], B @ self.grams[1]])
        return own + self.penalties.shrinkage * S + self.graph.laplacian_times(S)

    def value(self, S: Float64, curved: Float64) -> float:
        smooth = 0.5 * np.vdot(S, curved) - np.vdot(S, self.products)
        return float(smooth + self.penalties.sparsity * np.abs(S).sum())

    def step(self, S: Float64, curved: Float64) -> Float64:
        """Gradient step and soft threshold."""
        moved = S - self.steps * (curved - self.products)
        return np.sign(moved) * np.maximum(np.abs(moved) - self.penalties.sparsity * self.steps, 0.0)
