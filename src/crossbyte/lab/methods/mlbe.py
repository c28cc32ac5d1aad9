"""Hash by latent binary embedding, learned by coordinate ascent (MLBE: Zhen and Yeung, KDD 2012).

Each block is replaced by its maximum given the others, or, for codes, by better ones; whatever rounding does,
a block is taken over only if the posterior does not fall.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import deterministic_product, row_blocks
from crossbyte.lab.methods import mlbe_model
from crossbyte.lab.methods.hashing import SeparateHashing, pack_signs
from crossbyte.lab.methods.labels import check_labels, share_a_label
from crossbyte.lab.methods.method import INTER_MODALITY, INTRA_MODALITY, About, Side
from crossbyte.lab.methods.mlbe_bits import RelationGains, SimilarityGains, flip_bits, improve_codes
from crossbyte.validation import check_integer, check_number

_RIDGE = 1e-3  # of the mean of the diagonal: bits that repeat each other do no harm
_LEAST_LINK = 1e-3  # w must stay positive: without a link the halves would never hear of each other again
_LARGEST_LINK = 1e3
_ENOUGH = 1e-2  # gain of a whole sweep below which nothing is expected any more
Update = Callable[[mlbe_model.PosteriorState], mlbe_model.PosteriorState]
_ROWS_AT_ONCE = 1024  # training documents that are coded together, with their relations to all learned ones
Related = Callable[[NDArray[np.intp]], NDArray[np.bool_]]
"""Takes numbers of n training documents to whether each is related to each of the N learned ones: (n, N)."""


@dataclass(kw_only=True)
class MLBE(SeparateHashing):
    """Multimodal latent binary embedding.

    Codes, weights and variances maximise the posterior of :mod:`crossbyte.lab.methods.mlbe_model`, by
    coordinate ascent from random codes, given the similarities within each half and the relations between
    halves of some training documents. Every other document is coded by the rule for a single bit, with the
    learned codes fixed: a query by its similarities to the learned documents of its own side and by nothing
    else; a training document that was not learned from also by its relations to them, as in learning.

    Attributes
    ----------
    max_documents : int
        Most training documents to learn from, drawn at random, since all pairs of them count;
        ``details["n_learned_from"]`` says how many it was.
    n_neighbours : int
        With ``similarity="pairs"``: image i and text j are related if document j is among the
        ``n_neighbours`` nearest to i, by the sum of the similarities of both halves. With 1, only if i = j.
    negatives : float
        Unrelated pairs that are observed for each related one.
    width : float
        Width of the kernel within a half, relative to the mean squared distance.
    noise : float
        Variance of similarities expected beforehand (θ₀), relative to their mean square: the larger, the more
        relations count.
    n_sweeps : int
        Most sweeps over all blocks; fewer where they cease to gain.
    """

    about: ClassVar[About] = About(
        key="mlbe",
        name="MLBE",
        source="Zhen, Yeung, KDD 2012",
        relations=(INTRA_MODALITY, INTER_MODALITY),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed=(
            "Similarities and priors are ours, as the source leaves them to its user: centred Gaussian "
            "kernels, and weak priors but for the noise of similarities, which would otherwise drown the "
            "relations. With pairs alone, documents that are near each other in both halves count as "
            "related, since pairs by themselves say too little. The link is maximised exactly instead of by "
            "gradient steps, and the best bit of a document is turned first. Training documents beyond the "
            "subsample are coded by their similarities and relations to it; a query's relations are never "
            "known."
        ),
    )

    max_documents: int = 500
    n_neighbours: int = 50
    negatives: float = 1.0
    width: float = 0.5
    noise: float = 10.0
    n_sweeps: int = 30

    _coders: dict[Side, BitCoder] = field(init=False, repr=False, default_factory=dict)
    _learned_codes: dict[Side, Float64] = field(init=False, repr=False, default_factory=dict)
    _details: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        for name, low in (("max_documents", 2), ("n_neighbours", 1), ("n_sweeps", 0)):
            check_integer(getattr(self, name), name, low)
        check_number(self.negatives, "negatives", 0.0)
        for name in ("width", "noise"):
            check_number(getattr(self, name), name, 0.0, open_low=True)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many documents were learned from, and the log posterior at the start and after every sweep."""
        return self._details

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs, or from labels of the training documents, whose codes are kept as learned."""
        super().fit(images, texts, labels)
        self._training_codes = {side: pack_signs(codes) for side, codes in self._learned_codes.items()}
        self._learned_codes = {}
        return self

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        rng = np.random.default_rng(self.random_state)
        sides: dict[Side, Raw] = {"image": images, "text": texts}
        chosen = np.sort(rng.permutation(images.shape[0])[: self.max_documents])
        kernels = {
            side: mlbe_model.CentredKernel.fit(rows[chosen], self.width, f"{side}s")
            for side, rows in sides.items()
        }
        related = self._relate_documents(sides, kernels, labels, chosen)
        state, history = self._ascend(kernels, related(chosen), rng)
        self._details = {"n_learned_from": len(chosen), "log_posterior": history}
        halves: dict[Side, mlbe_model.HalfState] = {"image": state.image, "text": state.text}
        self._coders = {side: BitCoder.of_half(kernels[side], half) for side, half in halves.items()}
        self._learned_codes = self._code_training(sides, state, related, rng)
        for side, half in halves.items():
            self._learned_codes[side][chosen] = half.codes

    def _relate_documents(
        self,
        sides: dict[Side, Raw],
        kernels: dict[Side, mlbe_model.CentredKernel],
        labels: Any,
        chosen: NDArray[np.intp],
    ) -> Related:
        """Say what makes training documents related: a label in common, or being near in both halves."""
        if self.similarity == "labels":
            known = check_labels(labels, sides["image"].shape[0], self.about.name)
            return lambda rows: share_a_label(known[rows], known[chosen])

        def near(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
            parts = [
                kernel.similarities(sides[side][rows]) / kernel.scale for side, kernel in kernels.items()
            ]
            return mlbe_model.mark_nearest_documents(parts[0] + parts[1], self.n_neighbours)

        return near

    def _ascend(
        self,
        kernels: dict[Side, mlbe_model.CentredKernel],
        related: NDArray[np.bool_],
        rng: np.random.Generator,
    ) -> tuple[mlbe_model.PosteriorState, list[float]]:
        """Learn from the chosen documents; if one is related to the other, so is the other to the one."""
        image, text = self._initial_half(kernels["image"], rng), self._initial_half(kernels["text"], rng)
        state = mlbe_model.PosteriorState(
            image, text, mlbe_model.observe_relations(related | related.T, self.negatives, rng)
        )
        sweeps = list(ascend_posterior(state, self.n_sweeps))
        return sweeps[-1][0], [value for _, value in sweeps]

    def _initial_half(
        self, kernel: mlbe_model.CentredKernel, rng: np.random.Generator
    ) -> mlbe_model.HalfState:
        """Random codes that explain nothing yet."""
        similarities = kernel.own_similarities()
        codes = np.where(rng.random((len(similarities), self.n_bits)) < 0.5, -1.0, 1.0)
        return mlbe_model.HalfState(
            similarities, codes, np.zeros((self.n_bits, self.n_bits)), self.noise * kernel.scale**2
        )

    def _code_training(
        self,
        sides: dict[Side, Raw],
        state: mlbe_model.PosteriorState,
        related: Related,
        rng: np.random.Generator,
    ) -> dict[Side, Float64]:
        """Code all training documents (N, c) by similarities and relations to the learned ones."""
        n = sides["image"].shape[0]
        others: dict[Side, Float64] = {"image": state.text.codes, "text": state.image.codes}
        codes: dict[Side, Float64] = {side: np.empty((n, self.n_bits)) for side in sides}
        for block in row_blocks(n, _ROWS_AT_ONCE):
            relations = mlbe_model.observe_relations(
                related(np.arange(block.start, block.stop)), self.negatives, rng
            )
            for side, rows in sides.items():
                links = RelationGains.of_relations(relations, others[side], state.link)
                codes[side][block] = self._coders[side].code(rows[block], links)
        return codes

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        signs = np.empty((rows.shape[0], self.n_bits))
        for block in row_blocks(len(signs)):
            signs[block] = self._coders[side].code(rows[block])
        return signs


@dataclass(frozen=True, eq=False)
class BitCoder:
    """The rule for a single bit, with all learned codes of one half fixed.

    Attributes
    ----------
    kernel : CentredKernel
        Similarity to the documents learned from.
    images : (N, c) float64
        ``W u_j`` of each of them.
    products : (c, c) float64
        Products of these, summed over documents.
    inverse : (c, c) float64
        Takes ``Σ_j s_j W u_j`` to the least-squares solution of u.
    noise : float
        θ; of no account where only similarities are known.
    """

    kernel: mlbe_model.CentredKernel
    images: Float64
    products: Float64
    inverse: Float64
    noise: float

    @classmethod
    def of_half(cls, kernel: mlbe_model.CentredKernel, half: mlbe_model.HalfState) -> BitCoder:
        """Make the rule from what was learned of one half."""
        images = np.ascontiguousarray(half.codes @ half.weights)
        products = images.T @ images
        ridge = _RIDGE * np.trace(products) / len(products) + np.finfo(float).tiny
        inverse = np.ascontiguousarray(linalg.inv(products + ridge * np.eye(len(products))))
        return cls(kernel, images, products, inverse, half.noise)

    def code(self, rows: Raw, links: RelationGains | None = None) -> Float64:
        """Codes (n, c) of ±1 for (n, d) features, each by itself alone.

        Starts from the signs of the least-squares solution. Relations to the other half are known of training
        documents only: for queries ``links`` is None.
        """
        towards = deterministic_product(self.kernel.similarities(rows), self.images)
        start = np.where(deterministic_product(towards, self.inverse) > 0, 1.0, -1.0)
        return flip_bits(start, SimilarityGains(self.products, towards, self.noise), links)


def ascend_posterior(
    state: mlbe_model.PosteriorState, n_sweeps: int
) -> Iterator[tuple[mlbe_model.PosteriorState, float]]:
    """Yield the state and its log posterior, at the start and after every sweep over the ten blocks."""
    value = mlbe_model.log_posterior(state)
    yield state, value
    for _ in range(n_sweeps):
        before = value
        for update in BLOCKS:
            proposed = update(state)
            gain = _posterior_gain(state, proposed)
            if gain >= 0:
                state, value = proposed, value + gain
        yield state, value
        if value - before < _ENOUGH:
            return


def _posterior_gain(state: mlbe_model.PosteriorState, proposed: mlbe_model.PosteriorState) -> float:
    """How much the log posterior rises; only what changed is computed."""
    gain = 0.0
    for left, right in ((state.image, proposed.image), (state.text, proposed.text)):
        if left is not right:
            gain += mlbe_model.half_log_posterior(right) - mlbe_model.half_log_posterior(left)
    weights_alone = state.link == proposed.link and state.link_spread == proposed.link_spread
    if not (weights_alone and _same_codes(state, proposed)):
        gain += mlbe_model.link_log_posterior(proposed) - mlbe_model.link_log_posterior(state)
    return gain


def _same_codes(state: mlbe_model.PosteriorState, proposed: mlbe_model.PosteriorState) -> bool:
    return state.image.codes is proposed.image.codes and state.text.codes is proposed.text.codes


def update_weights(half: mlbe_model.HalfState, max_iter: int = 30) -> mlbe_model.HalfState:
    """Ridge regression of the similarities' upper triangle on products of bits.

    A sum over i <= j is half the sum over all i and j plus half the one over i = j, so with A = U'U and D(·)
    the diagonal of a matrix alone, symmetric W solve::

        (A W A + U' D(U W U') U) / θ + (W + D(W)) / φ  =  (U' S U + U' D(S) U) / θ

    Nothing larger than (c, c) is formed: conjugate gradients from the present W, preconditioned by the part
    without diagonals, which the eigenvectors of A solve exactly.
    """
    U, S, theta, phi = half.codes, half.similarities, half.noise, half.spread
    A = U.T @ U
    values, Q = linalg.eigh(A)
    curvature = np.outer(values, values) / theta + 1.0 / phi

    def apply(W: Float64) -> Float64:
        own = np.einsum("nc,nc->n", U @ W, U)  # the diagonal of U W U'
        ridge = (W + np.diag(np.diag(W))) / phi
        return (A @ W @ A + (U * own[:, None]).T @ U) / theta + ridge

    def precondition(residual: Float64) -> Float64:
        return Q @ ((Q.T @ residual @ Q) / curvature) @ Q.T

    wanted = (U.T @ S @ U + (U * np.diag(S)[:, None]).T @ U) / theta
    W = _conjugate_gradients(apply, precondition, wanted, half.weights, max_iter)
    return replace(half, weights=(W + W.T) / 2)


def _conjugate_gradients(
    apply: Callable[[Float64], Float64],
    precondition: Callable[[Float64], Float64],
    wanted: Float64,
    start: Float64,
    max_iter: int,
) -> Float64:
    """Solve ``apply(X) = wanted`` for a symmetric positive definite operator on matrices."""
    solution, residual = start, wanted - apply(start)
    direction = turned = precondition(residual)
    product = np.vdot(residual, turned)
    enough = 1e-12 * np.vdot(wanted, precondition(wanted))
    for _ in range(max_iter):
        if product <= enough:
            break
        applied = apply(direction)
        step = product / np.vdot(direction, applied)
        solution, residual = solution + step * direction, residual - step * applied
        turned = precondition(residual)
        product, before = np.vdot(residual, turned), product
        direction = turned + (product / before) * direction
    return solution


def update_spread(half: mlbe_model.HalfState) -> mlbe_model.HalfState:
    """Variance φ of the weights."""
    return replace(half, spread=mlbe_model.likeliest_spread(half))


def update_noise(half: mlbe_model.HalfState) -> mlbe_model.HalfState:
    """Variance θ of the similarities."""
    return replace(half, noise=mlbe_model.likeliest_noise(half))


def update_link(state: mlbe_model.PosteriorState) -> mlbe_model.PosteriorState:
    """Link w, where the (falling) derivative of its log posterior is 0.

    Inner products are whole numbers, so related and unrelated pairs are counted by them first.
    """
    products, related, unrelated = _count_inner_products(state)

    def slope(w: float) -> float:
        with np.errstate(over="ignore"):  # 1 / inf is the right limit
            towards = related / (1 + np.exp(w * products)) - unrelated / (1 + np.exp(-w * products))
        return float((products * towards).sum() - w / state.link_spread)

    if slope(_LEAST_LINK) <= 0:
        return replace(state, link=_LEAST_LINK)
    return replace(state, link=float(optimize.brentq(slope, _LEAST_LINK, _LARGEST_LINK)))


def _count_inner_products(state: mlbe_model.PosteriorState) -> tuple[Float64, Float64, Float64]:
    """Inner products -c … c, and how many observed pairs have each: related, and unrelated."""
    c = state.image.codes.shape[1]
    columns = np.rint(state.image.codes @ state.text.codes.T).astype(np.intp).ravel() + c
    related = (state.relations.related * state.relations.observed).ravel()
    unrelated = state.relations.observed.ravel() - related
    counts = [
        np.bincount(columns, weights, minlength=2 * c + 1).astype(np.float64)
        for weights in (related, unrelated)
    ]
    return np.arange(-c, c + 1.0), counts[0], counts[1]


def update_link_spread(state: mlbe_model.PosteriorState) -> mlbe_model.PosteriorState:
    """Variance ω of the link."""
    return replace(state, link_spread=mlbe_model.likeliest_link_spread(state.link))


def update_image_codes(state: mlbe_model.PosteriorState) -> mlbe_model.PosteriorState:
    """Turn bits of the images."""
    codes = improve_codes(state.image, state.text.codes, state.relations, state.link)
    return replace(state, image=replace(state.image, codes=codes))


def update_text_codes(state: mlbe_model.PosteriorState) -> mlbe_model.PosteriorState:
    """Turn bits of the texts."""
    codes = improve_codes(state.text, state.image.codes, state.relations.transpose(), state.link)
    return replace(state, text=replace(state.text, codes=codes))


def _for_image_half(update: Callable[[mlbe_model.HalfState], mlbe_model.HalfState]) -> Update:
    return lambda state: replace(state, image=update(state.image))


def _for_text_half(update: Callable[[mlbe_model.HalfState], mlbe_model.HalfState]) -> Update:
    return lambda state: replace(state, text=update(state.text))


BLOCKS: tuple[Update, ...] = (
    _for_image_half(update_weights),
    _for_text_half(update_weights),
    _for_image_half(update_spread),
    _for_text_half(update_spread),
    _for_image_half(update_noise),
    _for_text_half(update_noise),
    update_image_codes,
    update_text_codes,
    update_link,
    update_link_spread,
)
"""The ten blocks, in the order of a sweep."""
