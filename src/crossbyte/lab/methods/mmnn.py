"""Hash by a small network per side, taught with pairs (MMNN: Masci and others, TPAMI 2014).

A network has one hidden layer, and both of its layers end in a hyperbolic tangent. Each end of a pair, be it
within one side or across the two, passes through the network of its side: pairs that are alike are drawn
together, the others are pushed apart up to a margin.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.data.preparation import DenseRows, Preparation
from crossbyte.lab.methods.hashing import LinearBits, SeparateHashing
from crossbyte.lab.methods.labels import SignedPairs, draw_signed_neighbours, draw_signed_pairs
from crossbyte.lab.methods.method import INTER_MODALITY, INTRA_MODALITY, About, Side
from crossbyte.lab.methods.neighbours import neighbour_graph
from crossbyte.validation import check_integer, check_number

_MOMENTUM = 0.9
_PAIRS_AT_ONCE = 100  # of each kind


@dataclass(kw_only=True)
class MMNN(SeparateHashing):
    """A reconstruction: two coupled siamese networks whose outputs have the codes as their signs.

    Each side has a network u = tanh(tanh(x W + a) V + b) with one output per bit. They minimise

        ℓ(image, text) + α₁ ℓ(image, image) + α₂ ℓ(text, text) + ½ δ (sum of all squared weights)

    where ℓ is the mean over signed pairs of |u - v|² for those that are alike and of max(0, m - |u - v|)²
    for those that are not, by stochastic gradient descent. A bit is the sign of an output.

    From the paper's abstract: the coupled siamese networks, one treatment of similarities within and across
    modalities, functions that are not linear. From memory of it: one hidden layer, hyperbolic tangents, the
    loss, descent on pairs, signs. Ours is the rest:

    - inputs are centred and reduced to a few principal directions, each scaled to nearly unit variance, so
      that hidden units are neither idle nor stuck and wide sparse texts cost no more than others;
    - where labels teach, those that share one are alike, within and across. Where pairs teach, a document's
      halves are alike, and within a side near neighbours are;
    - the margin follows the number of bits; weights decay, without which the networks learn the training
      images by heart; steps have momentum and become shorter; the epoch with the least loss counts.

    Nothing else balances the bits: offsets are learned, and cutting at medians instead was worse. Defaults
    were chosen on a validation part of the training documents of Wiki, by its labels (protocol V).

    Attributes
    ----------
    n_hidden : int
        Hidden units per side.
    image_weight, text_weight : float
        Weights of the pairs within a side (α₁, α₂) beside those across.
    margin : float
        m, in units of the distance √(2c) of two codes that differ in half of their c bits.
    decay : float
        Decay of the weights (δ).
    n_pairs : int
        Signed pairs of each kind, half of them alike.
    n_neighbours : int
        Neighbours of a row, where pairs teach; at most a quarter of the rows.
    max_documents : int
        Most documents among which neighbours are looked for where pairs teach, drawn at random; the
        number is in ``details["n_neighbours_among"]``. Pairs across the sides are of all documents.
    n_components : int
        Principal directions per side, at most.
    ridge : float
        Added to every direction's variance before scaling, in units of their mean.
    learning_rate : float
        Rate of the first epoch.
    n_epochs : int
        Passes over all pairs.
    """

    about: ClassVar[About] = About(
        key="mmnn",
        name="MMNN",
        source="J. Masci, M. Bronstein, A. Bronstein, J. Schmidhuber: Multimodal similarity-preserving "
        "hashing. TPAMI 2014",
        relations=(INTRA_MODALITY, INTER_MODALITY),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed="only the abstract was at hand; layers and loss are from memory. Inputs, sizes, unit "
        "of the margin, decay, steps, and neighbours as pairs within a side are ours",
    )

    n_hidden: int = 128
    image_weight: float = 0.3
    text_weight: float = 0.3
    margin: float = 1.0
    decay: float = 0.03
    n_pairs: int = 20_000
    n_neighbours: int = 10
    max_documents: int = 5000
    n_components: int = 128
    ridge: float = 0.1
    learning_rate: float = 0.005
    n_epochs: int = 10

    _layers: dict[Side, tuple[LinearBits, LinearBits]] = field(init=False, repr=False, default_factory=dict)
    _losses: list[float] = field(init=False, repr=False, default_factory=list)
    _n_neighbours_among: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        least = {"n_hidden": 1, "n_pairs": 2, "n_neighbours": 1, "max_documents": 3, "n_components": 1}
        for name, low in (least | {"n_epochs": 0}).items():
            check_integer(getattr(self, name), name, low)
        for name in ("image_weight", "text_weight", "decay"):
            check_number(getattr(self, name), name, 0.0)
        for name in ("margin", "ridge", "learning_rate"):
            check_number(getattr(self, name), name, 0.0, open_low=True)

    @property
    def details(self) -> Mapping[str, Any]:
        """Loss at the start and after each epoch; among how many documents neighbours were looked for."""
        return {"losses": self._losses, "n_neighbours_among": self._n_neighbours_among}

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        rng = np.random.default_rng(self.random_state)
        known = self._check_taught_labels(labels, images.shape[0])
        with Workers(self.n_jobs) as workers:
            inputs = [
                learn_input_scaling(rows, name, self.n_components, self.ridge, workers)
                for rows, name in ((images, "images"), (texts, "texts"))
            ]
            sides = inputs[0].values(images), inputs[1].values(texts)
            relations = self._draw_relations(sides, known, rng, workers)
            lesson = TrainingPairs(sides, relations, self.margin * np.sqrt(2.0 * self.n_bits), self.decay)
            first, second = (
                initial_network(side.shape[1], self.n_hidden, self.n_bits, rng) for side in sides
            )
            descent = DescentSettings(self.learning_rate, self.n_epochs, _PAIRS_AT_ONCE)
            networks, self._losses = train_networks((first, second), lesson, descent, rng)
        self._layers = {
            "image": _layers_as_functions(inputs[0], networks[0]),
            "text": _layers_as_functions(inputs[1], networks[1]),
        }

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        hidden, outputs = self._layers[side]
        return outputs.values(np.tanh(hidden.values(rows)))

    def _draw_relations(
        self,
        sides: tuple[Float64, Float64],
        labels: NDArray[np.bool_] | None,
        rng: np.random.Generator,
        workers: Workers,
    ) -> tuple[Relation, ...]:
        """Signed pairs across and within the sides (N, d)."""
        n = len(sides[0])
        chosen = sample_rows(n, rng, self.max_documents) if labels is None else None
        chosen = np.arange(n) if chosen is None else chosen
        self._n_neighbours_among = len(chosen) if labels is None else 0

        def within(rows: Float64) -> SignedPairs:
            if labels is not None:
                return draw_signed_pairs(n, self.n_pairs, rng, labels)
            near = DenseRows(rows[chosen].astype(np.float32))
            graph = neighbour_graph(near, min(self.n_neighbours, max(1, len(chosen) // 4)), workers)
            found = draw_signed_neighbours(graph, self.n_pairs, rng)
            return SignedPairs(chosen[found.left], chosen[found.right], found.signs)

        across = Relation((0, 1), draw_signed_pairs(n, self.n_pairs, rng, labels), 1.0)
        weights = self.image_weight, self.text_weight
        own = [Relation((k, k), within(sides[k]), weights[k]) for k in (0, 1) if weights[k] > 0]
        return across, *own


class Network(NamedTuple):
    """tanh(tanh(x W + a) V + b); a gradient by all of these has the same form."""

    W: Float64  # (d, h)
    a: Float64  # (h,)
    V: Float64  # (h, c)
    b: Float64  # (c,)


Networks = tuple[Network, Network]


class ForwardPass(NamedTuple):
    """Rows, and what a network made of them."""

    rows: Float64  # (n, d)
    hidden: Float64  # (n, h)
    outputs: Float64  # (n, c)


class ContrastiveLoss(NamedTuple):
    """Mean loss of some pairs, and its gradients by the outputs (P, c) at their left and right ends."""

    value: float
    slopes: tuple[Float64, Float64]


class Relation(NamedTuple):
    """Signed pairs, of which sides (0 or 1) their ends are, and how much they count."""

    ends: tuple[int, int]
    pairs: SignedPairs
    weight: float


class TrainingPairs(NamedTuple):
    """What the networks are to learn: rows (N, d) of each side, and equally many pairs of each relation."""

    sides: tuple[Float64, Float64]
    relations: tuple[Relation, ...]
    margin: float  # distance of outputs at which pairs that are not alike are far enough apart
    decay: float  # of the weights, not of the offsets


class DescentSettings(NamedTuple):
    """How they learn it: gradient steps with momentum on a few pairs of each relation at a time."""

    rate: float  # of the first epoch; it falls along half a wave to nothing
    n_epochs: int
    n_pairs_at_once: int


def initial_network(n_inputs: int, n_hidden: int, n_outputs: int, rng: np.random.Generator) -> Network:
    """Random weights (d, h) and (h, c) under which values neither shrink nor swell; offsets of 0."""
    W = rng.standard_normal((n_inputs, n_hidden)) / np.sqrt(n_inputs)
    V = rng.standard_normal((n_hidden, n_outputs)) / np.sqrt(n_hidden)
    return Network(W, np.zeros(n_hidden), V, np.zeros(n_outputs))


def pass_forward(network: Network, rows: Float64) -> ForwardPass:
    """Pass rows (n, d) through a network."""
    hidden = np.tanh(rows @ network.W + network.a)
    return ForwardPass(rows, hidden, np.tanh(hidden @ network.V + network.b))


def backpropagate(network: Network, passed: ForwardPass, slopes: Float64) -> Network:
    """Gradient by the network of a loss, of which ``slopes`` (n, c) is the gradient by the outputs."""
    by_output = slopes * (1.0 - np.square(passed.outputs))
    by_hidden = by_output @ network.V.T * (1.0 - np.square(passed.hidden))
    return Network(
        passed.rows.T @ by_hidden,
        by_hidden.sum(axis=0),
        passed.hidden.T @ by_output,
        by_output.sum(axis=0),
    )


def contrastive_loss(u: Float64, v: Float64, signs: Float64, margin: float) -> ContrastiveLoss:
    """Mean of |u - v|² over the pairs that are alike and of max(0, m - |u - v|)² over the others, together.

    Parameters
    ----------
    u, v : (P, c) float64
        Outputs at the ends of the pairs.
    signs : (P,) float64
        1 for a pair that is alike, -1 for one that is not.
    margin : float
        m. An unlike pair with u = v could go any way; it stays.
    """
    difference = u - v
    distances = np.sqrt(np.einsum("pc,pc->p", difference, difference))
    missing = np.maximum(margin - distances, 0.0)
    push = np.divide(missing, distances, out=np.zeros_like(missing), where=distances > 0)
    slopes = (2.0 / len(signs) * np.where(signs > 0, 1.0, -push))[:, None] * difference
    return ContrastiveLoss(float(np.mean(np.where(signs > 0, distances, missing) ** 2)), (slopes, -slopes))


def total_loss(networks: Networks, lesson: TrainingPairs) -> float:
    """Σ weight · mean loss of a relation's pairs + ½ decay · Σ weights²."""
    squares = sum(float(np.sum(np.square(part))) for net in networks for part in (net.W, net.V))
    outputs = [pass_forward(net, rows).outputs for net, rows in zip(networks, lesson.sides, strict=True)]
    total = 0.5 * lesson.decay * squares
    for (left, right), pairs, weight in lesson.relations:
        u, v = outputs[left][pairs.left], outputs[right][pairs.right]
        total += weight * contrastive_loss(u, v, pairs.signs, lesson.margin).value
    return total


def loss_gradients(networks: Networks, lesson: TrainingPairs) -> Networks:
    """Gradients of :func:`total_loss` by both networks."""
    found = [Network(lesson.decay * n.W, 0.0 * n.a, lesson.decay * n.V, 0.0 * n.b) for n in networks]
    for ends, pairs, weight in lesson.relations:
        rows = [lesson.sides[side][at] for side, at in zip(ends, (pairs.left, pairs.right), strict=True)]
        u, v = (pass_forward(networks[side], of) for side, of in zip(ends, rows, strict=True))
        slopes = contrastive_loss(u.outputs, v.outputs, pairs.signs, lesson.margin).slopes
        for side, passed, slope in zip(ends, (u, v), slopes, strict=True):
            found[side] = _add_networks(
                1.0, found[side], weight, backpropagate(networks[side], passed, slope)
            )
    return found[0], found[1]


def train_networks(
    networks: Networks, lesson: TrainingPairs, descent: DescentSettings, rng: np.random.Generator
) -> tuple[Networks, list[float]]:
    """Descend, epoch by epoch, each over all pairs in an order of chance.

    Returns
    -------
    (networks, losses)
        The networks as they were at the end of the epoch with the least loss over all pairs, or at the start;
        and that loss at the start and after each epoch.
    """
    losses = [total_loss(networks, lesson)]
    best, velocities = networks, _add_both_networks(0.0, networks, 0.0, networks)
    for epoch in range(descent.n_epochs):
        rate = 0.5 * descent.rate * (1.0 + np.cos(np.pi * epoch / descent.n_epochs))
        for part in _batches(lesson, descent.n_pairs_at_once, rng):
            velocities = _add_both_networks(_MOMENTUM, velocities, -rate, loss_gradients(networks, part))
            networks = _add_both_networks(1.0, networks, 1.0, velocities)
        losses.append(total_loss(networks, lesson))
        best = networks if losses[-1] == min(losses) else best
    return best, losses


def _batches(lesson: TrainingPairs, size: int, rng: np.random.Generator) -> Iterator[TrainingPairs]:
    """All pairs, a few of each relation at a time, in an order of chance."""
    orders = [rng.permutation(len(relation.pairs.signs)) for relation in lesson.relations]
    for first in range(0, len(orders[0]), size):
        yield lesson._replace(
            relations=tuple(
                relation._replace(pairs=_take_pairs(relation.pairs, order[first : first + size]))
                for relation, order in zip(lesson.relations, orders, strict=True)
            )
        )


def _take_pairs(pairs: SignedPairs, which: NDArray[np.intp]) -> SignedPairs:
    return SignedPairs(pairs.left[which], pairs.right[which], pairs.signs[which])


def _add_networks(s: float, left: Network, t: float, right: Network) -> Network:
    """Part by part, s · left + t · right."""
    return Network(*(s * a + t * b for a, b in zip(left, right, strict=True)))


def _add_both_networks(s: float, left: Networks, t: float, right: Networks) -> Networks:
    return _add_networks(s, left[0], t, right[0]), _add_networks(s, left[1], t, right[1])


def learn_input_scaling(raw: Raw, name: str, n_dims: int, ridge: float, workers: Workers) -> LinearBits:
    """Learn functions of raw rows (N, d): principal directions, centred and of about unit variance."""
    learned = Preparation.fit(raw, n_dims, name, workers)
    turned = np.eye(raw.shape[1]) if learned.components is None else learned.components.T
    plain = LinearBits(turned, np.zeros(turned.shape[1])).of_raw(learned)
    variances = plain.values(raw).var(axis=0)
    shares = variances / variances.mean()
    # The weakest directions are mostly noise: the ridge keeps them small. Together they have unit variance.
    scale = 1.0 / np.sqrt((shares + ridge) * np.mean(shares / (shares + ridge)) * variances.mean())
    return LinearBits(plain.weights * scale, plain.offsets * scale)


def _layers_as_functions(inputs: LinearBits, network: Network) -> tuple[LinearBits, LinearBits]:
    """The network's two layers as functions of raw rows, and of hidden units."""
    first = LinearBits(inputs.weights @ network.W, inputs.offsets @ network.W + network.a)
    return first, LinearBits(network.V, network.b)
