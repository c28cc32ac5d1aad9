"""Hash by codes that correlate across the sides and lose little (QCH: Wu and others, IJCAI 2015)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.data.preparation import PreparedRows
from crossbyte.lab.methods import hashing
from crossbyte.lab.methods.labels import (
    LowRankSimilarity,
    PairSimilarity,
    Similarity,
    label_affinity,
    solve_related_directions,
)
from crossbyte.lab.methods.method import INTER_MODALITY, About
from crossbyte.model.space.cca import canonical_correlation, project_rows, second_moments
from crossbyte.validation import check_integer, check_number


@dataclass(kw_only=True)
class QCH(hashing.LinearHashing):
    """A reconstruction from what the abstract says: quantization loss and correlation of codes, in one.

    With U and V the images and texts in the directions in which the sides are related, it minimises

        ‖P - U R‖² + ‖Q - V T‖² - λ tr(P'SQ)        P, Q signs (N, c); R R' = T T' = I

    by exact steps, none of which can raise it:

    - P = sign(U R + ½ λ S Q), and Q = sign(V T + ½ λ S'P);
    - R and T are the polar factors of U'P and V'Q, because R R' = I makes ‖U R‖ a constant.

    Codes are sign(U R) and sign(V T). The directions are those of canonical correlation where pairs teach
    (S = I); where labels teach, S is the centred affinity of documents that share labels, and X'SY takes the
    place of X'Y. There are at most as many as bits; each is weighted by its relation; both sides start from
    one random rotation and are scaled so that a rotated value is about 1. It learns from at most 20,000
    documents.

    Attributes
    ----------
    correlation_weight : float
        Weight of the correlation of codes (λ).
    ridge : float
        Added to every variance, in units of the side's mean variance.
    max_iter : int
        Rounds; fewer where no sign changes any more.
    """

    about: ClassVar[About] = About(
        key="qch",
        name="QCH",
        source="B. Wu, Q. Yang, W.-S. Zheng, Y. Wang, J. Wang: Quantized correlation hashing for fast "
        "cross-modal search. IJCAI 2015",
        relations=(INTER_MODALITY,),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed="all but the idea: only the abstract was at hand. Objective, constraint, updates and "
        "start are ours",
    )

    correlation_weight: float = 0.5
    ridge: float = 1e-4
    max_iter: int = 30

    _history: list[float] = field(init=False, repr=False, default_factory=list)
    _n_learned_from: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        check_number(self.correlation_weight, "correlation_weight", 0.0)
        check_number(self.ridge, "ridge", 0.0, open_low=True)
        check_integer(self.max_iter, "max_iter", 0)

    @property
    def details(self) -> Mapping[str, Any]:
        """Objective per value and round, and the number of documents that were learned from."""
        return {"objective": self._history, "n_learned_from": self._n_learned_from}

    def _learn_functions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[hashing.LinearBits, hashing.LinearBits]:
        rng = np.random.default_rng(self.random_state)
        affinity = None if labels is None else label_affinity(labels).centre()
        A, B = self._learn_directions(images, texts, affinity, workers)
        chosen = sample_rows(images.shape[0], rng)
        if chosen is not None:
            images, texts = images[chosen], texts[chosen]
            affinity = None if affinity is None else affinity.take(chosen)
        state = self._initial_state(project_rows(images, A, workers), project_rows(texts, B, workers), rng)
        state, self._history = alternate_updates(
            state, affinity or PairSimilarity(), self.correlation_weight, self.max_iter
        )
        self._n_learned_from = images.shape[0]
        zeros = np.zeros(self.n_bits)
        return hashing.LinearBits(A @ state.R, zeros), hashing.LinearBits(B @ state.T, zeros)

    def _learn_directions(
        self, images: PreparedRows, texts: PreparedRows, affinity: LowRankSimilarity | None, workers: Workers
    ) -> tuple[Float64, Float64]:
        if affinity is None:
            space = canonical_correlation(images, texts, self.n_bits, self.ridge, workers)
            return space.image_matrix, space.text_matrix
        Cxx, Cyy, _ = second_moments(images, texts, workers)
        cross = affinity.cross(images, texts, workers)
        return solve_related_directions(Cxx, Cyy, cross, self.n_bits, self.ridge)

    def _initial_state(self, images: Any, texts: Any, rng: np.random.Generator) -> State:
        U, V = (side.astype(np.float64) * _rotation_scale(side, self.n_bits) for side in (images, texts))
        R = hashing.random_rotation(U.shape[1], self.n_bits, rng)
        return State(U, V, hashing.sign_values(U @ R), hashing.sign_values(V @ R), R, R)


def _rotation_scale(side: Any, n_bits: int) -> float:
    """What brings the mean square of a rotated value to 1; rotated, the squares spread over all bits."""
    mean_square = float(np.mean(np.einsum("nd,nd->n", side, side, dtype=np.float64))) / n_bits
    return 1.0 / np.sqrt(mean_square) if mean_square > 0 else 1.0


@dataclass(frozen=True, eq=False)
class State:
    """What the alternation changes, beside what it does not: letters as in :class:`QCH`."""

    U: Float64  # (N, r)
    V: Float64  # (N, r)
    P: Float64  # (N, c)
    Q: Float64  # (N, c)
    R: Float64  # (r, c)
    T: Float64  # (r, c)


def alternate_updates(
    state: State, similarity: Similarity, weight: float, max_iter: int
) -> tuple[State, list[float]]:
    """Take all steps in turn until no sign changes; the objective per value comes after each round."""
    history = [objective(state, similarity, weight)]
    for _ in range(max_iter):
        before, state = state, update_rotations(update_codes(state, similarity, weight))
        history.append(objective(state, similarity, weight))
        if np.array_equal(before.P, state.P) and np.array_equal(before.Q, state.Q):
            break
    return state, history


def update_codes(state: State, similarity: Similarity, weight: float) -> State:
    """P given Q, then Q given P; exact, because the objective is linear in each."""
    P = hashing.sign_values(state.U @ state.R + weight / 2 * similarity.times(state.Q))
    Q = hashing.sign_values(state.V @ state.T + weight / 2 * similarity.times(P))
    return replace(state, P=P, Q=Q)


def update_rotations(state: State) -> State:
    """R and T given the codes, by orthogonal Procrustes."""
    return replace(
        state,
        R=hashing.nearest_rotation(state.U.T @ state.P),
        T=hashing.nearest_rotation(state.V.T @ state.Q),
    )


def objective(state: State, similarity: Similarity, weight: float) -> float:
    """‖P - U R‖² + ‖Q - V T‖² - λ tr(P'SQ), over the number of values N c."""
    losses = np.sum((state.P - state.U @ state.R) ** 2) + np.sum((state.Q - state.V @ state.T) ** 2)
    correlation = np.sum(state.P * similarity.times(state.Q))
    return float(losses - weight * correlation) / state.P.size
