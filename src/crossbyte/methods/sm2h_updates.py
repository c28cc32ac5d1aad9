"""Hypergraph-Laplacian sparse coding of both sides at once: the objective of SM2H and its two updates.

Both halves of N documents are coded with as many atoms, S = [A; B] below one another:

    ½ ‖X - A D‖² + ½ ‖Y - B E‖² + λ |A|₁ + λ' |B|₁ + ½ ρ ‖S‖² + ½ tr(S'LS)

with rows of D and E in the unit ball and L the Laplacian of a hypergraph of all images and texts.
A state is a value; neither update can raise the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from crossbyte.arrays import Float32, Float64
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
    """λ of either side, and ρ."""

    sparsities: tuple[float, float]
    shrinkage: float


@dataclass(frozen=True, eq=False)
class State:
    """What the alternation changes."""

    codes: Float64  # (2N, c), S
    dictionaries: Dictionaries  # (c, d_I) and (c, d_T), D and E


def sparse_codes(
    rows: Rows, dictionary: Float64, sparsity: float, shrinkage: float, workers: Workers
) -> Float64:
    """Codes (n, c) of rows (n, d) by themselves alone: argmin ½ |x - s D|² + λ |s|₁ + ½ ρ |s|²."""
    gram = dictionary_gram(dictionary) + np.float32(shrinkage) * np.eye(len(dictionary), dtype=np.float32)
    weights = SparseWeights(2.0 * sparsity)  # of an objective twice as large
    return np.asarray(image_lasso(rows, dictionary, weights, workers, gram).toarray(), dtype=np.float64)


def start(
    sides: Sides, n_atoms: int, sparsity: float, shrinkage: float, rng: np.random.Generator, workers: Workers
) -> tuple[State, Penalties]:
    """Start from k-means of documents, both halves beside each other, and one code for both halves.

    Atoms beyond the number of documents have random directions. The sparsity is a share of the penalty that
    would leave a row without any code, in the mean over the rows of a side with these atoms, so that codes of
    both sides are about as sparse whatever the features are.
    """
    documents = np.hstack([side.dense() for side in sides]).astype(np.float32)
    halves = np.split(_centres(documents, n_atoms, rng, workers), [sides[0].shape[1]], axis=1)
    D, E = (np.ascontiguousarray(unit_rows(half)) for half in halves)
    lam = sparsity * _largest_product(sides[0], D), sparsity * _largest_product(sides[1], E)
    shared = sparse_codes(DenseRows(documents), np.hstack([D, E]), sum(lam), 2.0 * shrinkage, workers)
    return State(np.vstack([shared, shared]), (D, E)), Penalties(lam, shrinkage)


def _centres(documents: Float32, n_atoms: int, rng: np.random.Generator, workers: Workers) -> Float64:
    """Centres (c, d), at random where there are fewer documents."""
    found = kmeans(documents, min(n_atoms, len(documents)), rng, workers)
    return np.vstack([found, rng.standard_normal((n_atoms - len(found), documents.shape[1]))])


def _largest_product(rows: Rows, dictionary: Float64) -> float:
    """Mean over the rows of the largest product with an atom."""
    return float(np.abs(rows.times(dictionary.T)).max(axis=1).mean())


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
    """The objective in the codes alone: ½ <S, Q(S)> - <S, q> + |λ S|₁, Q linear, and a constant."""

    grams: tuple[Float64, Float64]  # (c, c), of the atoms
    products: Float64  # (2N, c), q
    sparsities: Float64  # (2N, 1), λ
    shrinkage: float
    graph: Hypergraph
    steps: Float64  # (2N, 1), step lengths

    @classmethod
    def of(
        cls, dictionaries: Dictionaries, sides: Sides, penalties: Penalties, graph: Hypergraph
    ) -> _Problem:
        D, E = dictionaries
        grams = D @ D.T, E @ E.T
        products: Any = np.vstack([sides[0].times(D.T), sides[1].times(E.T)])  # as precise as the atoms
        largest = np.repeat([np.linalg.eigvalsh(gram)[-1] for gram in grams], len(products) // 2)
        steps = 1.0 / (largest + penalties.shrinkage + graph.degrees)
        sparsities = np.repeat(penalties.sparsities, len(products) // 2)
        return cls(grams, products, sparsities[:, None], penalties.shrinkage, graph, steps[:, None])

    def curved(self, S: Float64) -> Float64:
        """Q(S): the codes times the products of their atoms, plus ρ S + L S."""
        A, B = np.split(S, 2)
        own = np.vstack([A @ self.grams[0], B @ self.grams[1]])
        return own + self.shrinkage * S + self.graph.laplacian_times(S)

    def value(self, S: Float64, curved: Float64) -> float:
        """The objective but for its constant; ``curved`` is Q(S)."""
        return float(np.vdot(S, 0.5 * curved - self.products) + np.sum(self.sparsities * np.abs(S)))

    def step(self, S: Float64, curved: Float64) -> Float64:
        """Gradient step and soft threshold."""
        moved = S - self.steps * (curved - self.products)
        return np.sign(moved) * np.maximum(np.abs(moved) - self.sparsities * self.steps, 0.0)
