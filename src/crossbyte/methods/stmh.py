"""Semantic topic multimodal hashing (STMH)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from crossbyte.arrays import Float64, Raw
from crossbyte.data.features import Rows
from crossbyte.data.preparation import Preparation
from crossbyte.executors.threads import Workers
from crossbyte.mapping.linear import unit_rows
from crossbyte.mapping.sparse import basis_in_span
from crossbyte.methods import stmh_updates as updates
from crossbyte.methods.protocol import INTRA_DOCUMENT, About, Side
from crossbyte.methods.stmh_updates import State, Weights
from crossbyte.methods.unified import UnifiedHashing
from crossbyte.validation import check_integer, check_number

__all__ = ["STMH", "initial_state", "initial_topics"]


@dataclass(kw_only=True)
class STMH(UnifiedHashing):
    """One bit per topic: whether a text is near it, or an image's concepts speak of it.

    Of the source: a text has half of the topics (an odd number rounded down), images are a robust (L2,1)
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
    Of the source, as we know it, are the objective, its updates, the weights ½, ten rounds, and how queries
    are coded. A text has a distance to each of its topics, so that a topic is the mean of its texts and not
    a part of a sum.

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
        X, Y = self._prepared("image", images, workers), self._prepared("text", texts, workers)
        state = self._alternate(X, Y, workers)
        self._topics, self._image_map = state.F, updates.image_map(state, self._weights)
        return state.G

    def _alternate(self, X: Rows, Y: Rows, workers: Workers) -> State:
        rng = np.random.default_rng(self.random_state)
        state = initial_state(X, Y, self.n_bits, self._weights, rng, workers)
        start, values = state.G, [updates.objective(state, X, Y, self._weights, workers)]
        for _ in range(self.max_iter):
            state = updates.next_round(state, X, Y, self._weights, workers)
            values.append(updates.objective(state, X, Y, self._weights, workers))
            if values[-2] - values[-1] < self.tolerance:
                break
        self._details = {"objective": values, "changed_bits": float(np.mean(start != state.G))}
        return state

    def _prepared(self, side: Side, rows: Raw, workers: Workers) -> Rows:
        return self._preparations[side].apply(rows, workers)

    def _signs(self, side: Side, rows: Raw, workers: Workers) -> Float64:
        costs = self._text_costs(rows, workers) if side == "text" else -self._image_topics(rows, workers)
        return updates.members(costs)

    def _pair_signs(self, images: Raw, texts: Raw, workers: Workers) -> Float64:
        from_image = self._image_topics(images, workers)
        return updates.members(self._text_costs(texts, workers) - 2 * self.link_weight * from_image)

    def _text_costs(self, texts: Raw, workers: Workers) -> Float64:
        assert self._topics is not None
        return updates.topic_costs(
            self._prepared("text", texts, workers), self._topics, self._weights, workers
        )

    def _image_topics(self, images: Raw, workers: Workers) -> Float64:
        assert self._image_map is not None
        return updates.placed(self._prepared("image", images, workers), self._image_map, workers)


def initial_state(
    X: Rows, Y: Rows, n_topics: int, weights: Weights, rng: np.random.Generator, workers: Workers
) -> State:
    """Topics spread over the texts, and concepts that begin as the topics: V = G, R and B at their best."""
    F = initial_topics(Y, n_topics, weights, rng, workers)
    G = updates.members(updates.topic_costs(Y, F, weights, workers))
    none = np.zeros((n_topics, X.shape[1]))
    state = State(F, none, np.zeros((n_topics, n_topics)), G, G, np.zeros(G.shape))
    return updates.update_concepts(updates.update_link(state, weights), X, weights, workers)


def initial_topics(
    Y: Rows, n_topics: int, weights: Weights, rng: np.random.Generator, workers: Workers
) -> Float64:
    """Topics (c, d_T) of unit length that point anywhere within the texts' span, apart from each other.

    A topic that no text would have starts at a text instead: at those that are farthest from their topics.
    """
    F: Float64 = unit_rows(basis_in_span(Y, n_topics, rng, workers))
    costs = updates.topic_costs(Y, F, weights, workers)
    G = updates.members(costs)
    empty = np.flatnonzero(G.sum(axis=0) == 0)
    worst = np.argsort(-(G * costs).sum(axis=1), kind="stable")
    F[empty] = Y[np.resize(worst, len(empty))].dense()
    return F
