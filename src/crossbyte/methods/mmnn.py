"""Multimodal similarity-preserving hashing: a small network per side, both taught with signed pairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.blocks import sample_rows
from crossbyte.data.features import DenseRows
from crossbyte.data.preparation import Preparation
from crossbyte.executors.threads import Workers
from crossbyte.methods.graphs import neighbour_graph
from crossbyte.methods.hamming import LinearBits, SeparateHashing
from crossbyte.methods.protocol import INTER_MODALITY, INTRA_MODALITY, About, Side
from crossbyte.methods.siamese import Descent, Lesson, Network, Relation, start, train
from crossbyte.methods.similarity import SignedPairs, signed_neighbours, signed_pairs
from crossbyte.validation import check_integer, check_number

__all__ = ["MMNN", "scaled_inputs"]

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
        Of the weights (δ).
    n_pairs : int
        Signed pairs of each kind, half of them alike.
    n_neighbours : int
        Neighbours of a row, where pairs teach; at most a quarter of the rows.
    max_documents : int
        Where pairs teach, neighbours are looked for in a random part of at most so many documents; the
        number is in ``details["n_neighbours_among"]``. Pairs across the sides are of all documents.
    n_components : int
        Principal directions per side, at most.
    ridge : float
        Added to every direction's variance before scaling, in units of their mean.
    learning_rate : float
        Of the first epoch.
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
        known = self._taught_labels(labels, images.shape[0])
        with Workers(self.n_jobs) as workers:
            inputs = [
                scaled_inputs(rows, name, self.n_components, self.ridge, workers)
                for rows, name in ((images, "images"), (texts, "texts"))
            ]
            sides = inputs[0].values(images), inputs[1].values(texts)
            relations = self._relations(sides, known, rng, workers)
            lesson = Lesson(sides, relations, self.margin * np.sqrt(2.0 * self.n_bits), self.decay)
            first, second = (start(side.shape[1], self.n_hidden, self.n_bits, rng) for side in sides)
            descent = Descent(self.learning_rate, self.n_epochs, _PAIRS_AT_ONCE)
            networks, self._losses = train((first, second), lesson, descent, rng)
        self._layers = {"image": _layers(inputs[0], networks[0]), "text": _layers(inputs[1], networks[1])}

    def _signs(self, side: Side, rows: Raw) -> Float64:
        hidden, outputs = self._layers[side]
        return outputs.values(np.tanh(hidden.values(rows)))

    def _relations(
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
                return signed_pairs(n, self.n_pairs, rng, labels)
            near = DenseRows(rows[chosen].astype(np.float32))
            graph = neighbour_graph(near, min(self.n_neighbours, max(1, len(chosen) // 4)), workers)
            found = signed_neighbours(graph, self.n_pairs, rng)
            return SignedPairs(chosen[found.left], chosen[found.right], found.signs)

        across = Relation((0, 1), signed_pairs(n, self.n_pairs, rng, labels), 1.0)
        weights = self.image_weight, self.text_weight
        own = [Relation((k, k), within(sides[k]), weights[k]) for k in (0, 1) if weights[k] > 0]
        return across, *own


def scaled_inputs(raw: Raw, name: str, n_dims: int, ridge: float, workers: Workers) -> LinearBits:
    """Functions of raw rows (N, d): centred principal directions, at most so many, of about unit variance."""
    learned = Preparation.fit(raw, n_dims, name, workers)
    turned = np.eye(raw.shape[1]) if learned.components is None else learned.components.T
    plain = LinearBits(turned, np.zeros(turned.shape[1])).of_raw(learned)
    variances = plain.values(raw).var(axis=0)
    shares = variances / variances.mean()
    # The weakest directions are mostly noise: the ridge keeps them small. Together they have unit variance.
    scale = 1.0 / np.sqrt((shares + ridge) * np.mean(shares / (shares + ridge)) * variances.mean())
    return LinearBits(plain.weights * scale, plain.offsets * scale)


def _layers(inputs: LinearBits, network: Network) -> tuple[LinearBits, LinearBits]:
    """The network's two layers as functions of raw rows, and of hidden units."""
    first = LinearBits(inputs.weights @ network.W, inputs.offsets @ network.W + network.a)
    return first, LinearBits(network.V, network.b)
