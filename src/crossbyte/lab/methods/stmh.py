"""Hash by topics of texts and concepts of images (STMH: Wang and others, IJCAI 2015).

With documents as rows, images X (N, d_I) and texts Y (N, d_T)::

    r₁ Σ_i √(|x_i - v_i B|² + ε²) + r₂ Σ_ij G_ij |y_i - f_j|² + λ |G - V R|² + γ (|F|² + |B|² + |R|² + |V|²)

G has a fixed number of ones in each row. The first sum is the L2,1 loss, smoothed so that it has a slope at
zero. It is minimised through a quadratic that lies above it and touches it at the present residuals s_i,
``(|x_i - v_i B|² + ε² + s_i²) / 2 s_i``: what lowers that, lowers the loss.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import Preparation, PreparedRows
from crossbyte.lab.methods.hashing import UnifiedHashing
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.model.space.cca import unit_rows
from crossbyte.model.space.sparse import basis_in_span
from crossbyte.validation import check_integer, check_number

_SMOOTHING = 1e-3  # ε; rows have unit length


@dataclass(kw_only=True)
class STMH(UnifiedHashing):
    """One bit per topic: whether a text is near it, or an image's concepts speak of it.

    In the source, a text has half of the topics (an odd number rounded down), images are a robust (L2,1)
    product of concepts, and a matrix takes concepts to topics::

        r₁ Σ |x_i - v_i B| + r₂ Σ_ij G_ij |y_i - f_j|² + λ |G - V R|² + γ (|F|² + |B|² + |R|² + |V|²)

    is minimised block by block. A training document's code is its row of G. A text that asks has the nearest
    half of the topics; an image x those above the median of ``x B'(B B' + (γ/r₁) I)⁻¹ R``, its own over all
    topics; a new document those with the least ``r₂ |y - f_j|² - 2 λ`` times that value.

    Attributes
    ----------
    image_weight, text_weight : float
        r₁ and r₂.
    link_weight : float
        λ.
    shrinkage : float
        γ; the source has 1e-4.
    max_iter : int
        Rounds.
    tolerance : float
        It ends before when a round lowers the objective by less.

    Notes
    -----
    From the source, as we know it, come the objective, its updates, the weights ½, ten rounds, and how
    queries are coded. A text has a distance to each of its topics, so that a topic is the mean of its texts
    and not a part of a sum.

    Ours are the start, the scale, γ, and that the L2,1 loss is smoothed at zero, where it has no slope: a
    residual s counts as √(s² + 10⁻⁶). Figures are MAP@50 on a validation part of Wiki's training documents,
    means of four seeds, at 16, 32 and 64 bits: those of γ and of the weight of the texts are trials of
    ``crossbyte tune wiki.npz --methods stmh --bits 16,32,64 --seeds 4``, other starts were tried once.

    *Scale.* The loss of images grows with their length, that of texts with its square, the link with
    neither: what the weights mean is in the units of the features. Both sides are centred and brought to
    unit length, so that no unit matters and the published weights can stay.

    *Shrinkage.* Images tell topics apart but weakly, so concepts nearly depend on each other (at 32 bits the
    condition of B B' is 2e5), and an image's share of each is the solution of a system that γ alone steadies.
    Images find texts with 0.209, 0.221, 0.198 for the published 1e-4, with 0.231, 0.239, 0.240 for 1, and
    with 0.211, 0.226, 0.231 for 3 (chance 0.170); on Flickr8k at 32 bits with 0.520, 0.652 and 0.650.

    *Start.* The text loss alone prefers topics that are copies of two (2-means, half of the topics each) to
    wherever 400 rounds led from a random start; the link is what holds topics apart. With ½ for the texts no
    bit leaves its start, with 5 one in nine does, with 20 one in five, and texts find images with 0.608,
    0.629, 0.633, then with 0.597, 0.611, 0.624, then with 0.567, 0.596, 0.611. So the start decides. Topics
    begin as unit vectors spread over the span of the texts, each the topic of 39 to 63% of the texts at 32
    bits; with random texts or k-means centres it is 27 to 80%, and the figures are 0.553, 0.590, 0.609 and
    0.527, 0.586, 0.616. Concepts begin as topics.
    """

    about: ClassVar[About] = About(
        key="stmh",
        name="STMH",
        source="D. Wang, X. Gao, X. Wang, L. He: Semantic topic multimodal hashing for cross-media "
        "retrieval. IJCAI 2015",
        relations=(INTRA_DOCUMENT,),
        codes="unified",
        coding="hash",
        distance="hamming",
        reconstructed="the start; unit length of both sides; how strongly all is shrunk; the smoothing of "
        "the L2,1 loss by 1e-3",
    )

    image_weight: float = 0.5
    text_weight: float = 0.5
    link_weight: float = 0.5
    shrinkage: float = 1.0
    max_iter: int = 10
    tolerance: float = 0.01

    _preparations: dict[Side, Preparation] = field(init=False, repr=False, default_factory=dict)
    _topics: Float64 | None = field(init=False, repr=False, default=None)
    _image_map: Float64 | None = field(init=False, repr=False, default=None)
    _details: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse weights without a minimum."""
        super().__post_init__()
        for name in ("image_weight", "text_weight", "link_weight"):
            check_number(getattr(self, name), name, 0.0, open_low=True)
        check_number(self.shrinkage, "shrinkage", 1e-8)
        check_number(self.tolerance, "tolerance", 0.0)
        check_integer(self.max_iter, "max_iter", 1)

    @property
    def details(self) -> dict[str, Any]:
        """The objective at the start and after each round, and the share of bits that are not the start's."""
        return dict(self._details)

    @property
    def _weights(self) -> Weights:
        return Weights(self.image_weight, self.text_weight, self.link_weight, self.shrinkage)

    def _train(self, images: Raw, texts: Raw, labels: Any, workers: Workers) -> Float64:
        self._preparations = {
            "image": Preparation.fit(images, None, "images", workers),
            "text": Preparation.fit(texts, None, "texts", workers),
        }
        X, Y = self._prepare("image", images, workers), self._prepare("text", texts, workers)
        state = self._alternate(X, Y, workers)
        self._topics, self._image_map = state.F, image_to_topic_map(state, self._weights)
        return state.G

    def _alternate(self, X: PreparedRows, Y: PreparedRows, workers: Workers) -> State:
        rng = np.random.default_rng(self.random_state)
        state = initial_state(X, Y, self.n_bits, self._weights, rng, workers)
        start, values = state.G, [objective(state, X, Y, self._weights, workers)]
        for _ in range(self.max_iter):
            state = update_all_blocks(state, X, Y, self._weights, workers)
            values.append(objective(state, X, Y, self._weights, workers))
            if values[-2] - values[-1] < self.tolerance:
                break
        self._details = {"objective": values, "changed_bits": float(np.mean(start != state.G))}
        return state

    def _prepare(self, side: Side, rows: Raw, workers: Workers) -> PreparedRows:
        return self._preparations[side].apply(rows, workers)

    def _bit_values(self, side: Side, rows: Raw, workers: Workers) -> Float64:
        costs = self._text_costs(rows, workers) if side == "text" else -self._image_topics(rows, workers)
        return choose_members(costs)

    def _pair_bit_values(self, images: Raw, texts: Raw, workers: Workers) -> Float64:
        from_image = self._image_topics(images, workers)
        return choose_members(self._text_costs(texts, workers) - 2 * self.link_weight * from_image)

    def _text_costs(self, texts: Raw, workers: Workers) -> Float64:
        assert self._topics is not None
        return topic_costs(self._prepare("text", texts, workers), self._topics, self._weights, workers)

    def _image_topics(self, images: Raw, workers: Workers) -> Float64:
        assert self._image_map is not None
        return project_rows(self._prepare("image", images, workers), self._image_map, workers)


class Weights(NamedTuple):
    """The weights r₁, r₂, λ and γ of the objective."""

    image: float
    text: float
    link: float
    shrinkage: float


class State(NamedTuple):
    """What is learned, by the letters of the source, in row form."""

    F: Float64
    """(c, d_T): topics"""
    B: Float64
    """(c, d_I): concepts"""
    R: Float64
    """(c, c): from concepts to topics"""
    G: Float64
    """(N, c): 1 where a text has a topic, else 0"""
    V: Float64
    """(N, c): how much an image has of each concept"""
    XB: Float64
    """(N, c), X B': what the updates need to know of the images"""


def update_all_blocks(
    state: State, X: PreparedRows, Y: PreparedRows, weights: Weights, workers: Workers
) -> State:
    """F, B, V, R and G in turn; none raises the objective."""
    state = update_topics(state, Y, weights, workers)
    state = update_concepts(state, X, weights, workers)
    state = update_latent(state, X, weights)
    state = update_link(state, weights)
    return update_members(state, Y, weights, workers)


def update_topics(state: State, Y: PreparedRows, weights: Weights, workers: Workers) -> State:
    """f_j = r₂ Σ_i G_ij y_i / (r₂ Σ_i G_ij + γ): the mean of its texts; 0, the mean of all, without any."""
    sums = workers.total(lambda rows: Y[rows].cross(state.G[rows]), Y.shape[0])
    counts = state.G.sum(axis=0)[:, None]
    return state._replace(F=weights.text * sums / (weights.text * counts + weights.shrinkage))


def update_concepts(state: State, X: PreparedRows, weights: Weights, workers: Workers) -> State:
    """B = (V'W V + γ I)⁻¹ V'W X with W = diag(r₁ / 2 s_i)."""
    weighted = _image_weights(state, X, weights)[:, None] * state.V
    pull = workers.total(lambda rows: X[rows].cross(weighted[rows]), X.shape[0])
    B = _ridge_solution(weighted.T @ state.V, pull, weights.shrinkage)
    return state._replace(B=B, XB=project_rows(X, B.T, workers))


def update_latent(state: State, X: PreparedRows, weights: Weights) -> State:
    """v_i = (w_i x_i B' + λ g_i R') (w_i B B' + λ R R' + γ I)⁻¹ with w_i = r₁ / 2 s_i.

    One pair of quadratic forms for all rows: with Q'(λ R R' + γ I) Q = I and Q'B B'Q = diag(e), the inverse
    is Q diag(1 / (1 + w_i e)) Q'.
    """
    _, _, lam, gamma = weights
    w = _image_weights(state, X, weights)[:, None]
    e, Q = linalg.eigh(state.B @ state.B.T, lam * state.R @ state.R.T + gamma * np.eye(len(state.R)))
    pull = w * state.XB + lam * state.G @ state.R.T
    return state._replace(V=(pull @ Q / (1.0 + w * np.maximum(e, 0.0))) @ Q.T)


def update_link(state: State, weights: Weights) -> State:
    """R = (λ V'V + γ I)⁻¹ λ V'G."""
    lam = weights.link
    return state._replace(
        R=_ridge_solution(lam * state.V.T @ state.V, lam * state.V.T @ state.G, weights.shrinkage)
    )


def update_members(state: State, Y: PreparedRows, weights: Weights, workers: Workers) -> State:
    """g_i: the topics with the least r₂ |y_i - f_j|² - 2 λ (v_i R)_j, as many as before."""
    costs = topic_costs(Y, state.F, weights, workers) - 2 * weights.link * state.V @ state.R
    return state._replace(G=choose_members(costs))


def topic_costs(Y: PreparedRows, F: Float64, weights: Weights, workers: Workers) -> Float64:
    """r₂ (|f_j|² - 2 y_i·f_j), (n, c): squared distances to topics, less |y_i|² of each text."""
    return weights.text * (np.einsum("cd,cd->c", F, F) - 2 * project_rows(Y, F.T, workers))


def choose_members(costs: Float64) -> Float64:
    """1 for the cheaper half of each row's (n, c) topics, rounded down, at least one; the first of equals."""
    chosen = np.argsort(costs, axis=1, kind="stable")[:, : max(1, costs.shape[1] // 2)]
    G = np.zeros(costs.shape)
    np.put_along_axis(G, chosen, 1.0, axis=1)
    return G


def image_to_topic_map(state: State, weights: Weights) -> Float64:
    """B'(B B' + (γ/r₁) I)⁻¹ R, (d_I, c): an image's concepts without its text, and their topics."""
    ridge = weights.shrinkage / weights.image
    return np.ascontiguousarray(_ridge_solution(state.B @ state.B.T, state.B, ridge).T @ state.R)


def objective(state: State, X: PreparedRows, Y: PreparedRows, weights: Weights, workers: Workers) -> float:
    """The objective of this module, never forming distances of texts to topics that they have not."""
    F, B, R, G, V, _ = state
    sums = workers.total(lambda rows: Y[rows].cross(G[rows]), Y.shape[0])
    chosen = G.sum(axis=1) @ Y.squares() - 2 * np.vdot(F, sums) + G.sum(axis=0) @ (F**2).sum(axis=1)
    return float(
        weights.image * image_residuals(state, X).sum()
        + weights.text * chosen
        + weights.link * np.square(G - V @ R).sum()
        + weights.shrinkage * sum(np.vdot(part, part) for part in (F, B, R, V))
    )


def image_residuals(state: State, X: PreparedRows) -> Float64:
    """s_i = √(|x_i - v_i B|² + ε²), (N,)."""
    inner = np.einsum("nc,nc->n", state.V, state.V @ (state.B @ state.B.T) - 2 * state.XB)
    return np.sqrt(np.maximum(X.squares() + inner, 0.0) + _SMOOTHING**2)


def project_rows(rows: PreparedRows, matrix: Float64, workers: Workers) -> Float64:
    """Rows (n, d) times a (d, k) matrix in double precision, each by itself alone."""
    steady = np.ascontiguousarray(matrix)
    values: Float64 = workers.rows(
        lambda block: rows[block].times(steady), rows.shape[0], (steady.shape[1],), np.float64
    )
    return values


def _image_weights(state: State, X: PreparedRows, weights: Weights) -> Float64:
    """r₁ / 2 s_i, (N,): images that are ill explained count less."""
    return weights.image / (2 * image_residuals(state, X))


def _ridge_solution(gram: Float64, right: Float64, ridge: float) -> Float64:
    solution: Float64 = linalg.solve(gram + ridge * np.eye(len(gram)), right, assume_a="pos")
    return solution


def initial_state(
    X: PreparedRows,
    Y: PreparedRows,
    n_topics: int,
    weights: Weights,
    rng: np.random.Generator,
    workers: Workers,
) -> State:
    """Topics spread over the texts, and concepts that begin as the topics: V = G, R and B at their best."""
    F = initial_topics(Y, n_topics, weights, rng, workers)
    G = choose_members(topic_costs(Y, F, weights, workers))
    none = np.zeros((n_topics, X.shape[1]))
    state = State(F, none, np.zeros((n_topics, n_topics)), G, G, np.zeros(G.shape))
    return update_concepts(update_link(state, weights), X, weights, workers)


def initial_topics(
    Y: PreparedRows, n_topics: int, weights: Weights, rng: np.random.Generator, workers: Workers
) -> Float64:
    """Topics (c, d_T) of unit length that point anywhere within the texts' span, apart from each other.

    A topic that no text would have starts at a text instead: at those that are farthest from their topics.
    """
    F: Float64 = unit_rows(basis_in_span(Y, n_topics, rng, workers))
    costs = topic_costs(Y, F, weights, workers)
    G = choose_members(costs)
    empty = np.flatnonzero(G.sum(axis=0) == 0)
    worst = np.argsort(-(G * costs).sum(axis=1), kind="stable")
    F[empty] = Y[np.resize(worst, len(empty))].dense()
    return F
