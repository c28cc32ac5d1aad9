"""Hash by codes that keep the similarity of labels (SePH_km: Lin and others, CVPR 2015).

Two steps. First one code per document is learned from the labels alone: affinities of labels are a
distribution P over pairs of documents, Hamming distances of codes make another, Q, and the codes bring Q
near P. Then each side learns to predict every bit from its features; where both sides of a document are
known, their probabilities are combined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers, row_blocks, sample_rows
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods.hashing import UnifiedHashing, sign_values
from crossbyte.lab.methods.labels import check_labels, normalise_labels
from crossbyte.lab.methods.method import INTER_DOCUMENT, INTRA_DOCUMENT, About, Side
from crossbyte.lab.methods.regression import AnchorFeatures, LogisticBits, smoothed_log_odds
from crossbyte.validation import check_integer, check_number

Real = NDArray[np.floating[Any]]
_ROWS_AT_ONCE = 128  # of the matrix of all pairs; its five temporary copies stay in the cache
_MOMENTUM = 0.5
_LEAST_GAIN = 0.01


@dataclass(kw_only=True)
class SePH(UnifiedHashing):
    """Semantics-preserving hashing with k-means anchors.

    Codes H (N, c) minimise ``KL(P || Q) + (α / cN) || |H| - 1 ||²``, where ``P_ij`` is proportional to the
    cosine of the labels of documents i and j and ``Q_ij`` to ``1 / (1 + |h_i - h_j|² / 4)``; their signs are
    the bits. A query's bit is the sign of its predicted log odds. A document of which both sides are known
    has bit + iff ``p₁(+) p₂(+) / π(+) ≥ p₁(-) p₂(-) / π(-)``, π being the frequency of the bit in training.

    Attributes
    ----------
    max_documents : int
        Most documents to learn codes from, drawn at random, since every pair of them counts;
        the number is in ``details["n_learned_from"]``.
    n_anchors : int
        k-means centres per side.
    binary_weight : float
        α, which draws the values of H to ±1.
    penalty : float
        Penalty of the logistic regressions, in the norm of their kernel.
    n_iter : int
        Steps of the optimisation of H.
    learning_rate : float
        Its rate.
    """

    about: ClassVar[About] = About(
        key="seph",
        name="SePH_km",
        source="Lin, Ding, Hu, Wang, CVPR 2015",
        relations=(INTRA_DOCUMENT, INTER_DOCUMENT),
        codes="unified",
        coding="hash",
        distance="hamming",
        similarities=("labels",),
        reconstructed=(
            "The rule for documents with both sides is written from memory of the paper. Training documents "
            "beyond the subsample are coded by that rule."
        ),
    )

    max_documents: int = 5000
    n_anchors: int = 500
    binary_weight: float = 0.01
    penalty: float = 0.01
    n_iter: int = 100
    learning_rate: float = 500.0

    _views: dict[Side, _View] = field(init=False, repr=False, default_factory=dict)
    _prior: Float64 = field(init=False, repr=False)  # log odds (c,) of the learned bits
    _n_learned_from: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        for name, low in (("max_documents", 2), ("n_anchors", 1), ("n_iter", 1)):
            check_integer(getattr(self, name), name, low)
        check_number(self.binary_weight, "binary_weight", 0.0)
        for name in ("penalty", "learning_rate"):
            check_number(getattr(self, name), name, 0.0, open_low=True)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many documents the codes were learned from."""
        return {"n_learned_from": self._n_learned_from}

    def _train(self, images: Raw, texts: Raw, labels: Any, workers: Workers) -> Float64:
        """Learn codes from the labels of the training documents, and to predict them from either side.

        Documents of the subsample keep the codes that were learned; the others have what is predicted.
        """
        known = check_labels(labels, images.shape[0], self.about.name)
        rng = np.random.default_rng(self.random_state)
        chosen = sample_rows(len(known), rng, self.max_documents)
        chosen = np.arange(len(known)) if chosen is None else chosen
        signs = sign_values(self._learn_codes(normalise_labels(known[chosen]), rng, workers))
        self._prior = smoothed_log_odds(signs)
        self._views = {
            "image": self._learn_view(images[chosen], signs, rng, workers, "images"),
            "text": self._learn_view(texts[chosen], signs, rng, workers, "texts"),
        }
        self._n_learned_from = len(chosen)
        values = self._pair_bit_values(images, texts, workers)
        values[chosen] = signs
        return values

    def _bit_values(self, side: Side, rows: Raw, workers: Workers) -> Float64:
        return self._views[side].log_odds(rows)

    def _pair_bit_values(self, images: Raw, texts: Raw, workers: Workers) -> Float64:
        """Combine both predictions: log odds add up, and the prior would otherwise count twice."""
        both = self._views["image"].log_odds(images) + self._views["text"].log_odds(texts)
        return both - self._prior

    def _learn_codes(self, labels: Float64, rng: np.random.Generator, workers: Workers) -> Float64:
        start = 1e-4 * rng.standard_normal((len(labels), self.n_bits))
        return learn_codes(
            labels,
            start,
            workers,
            binary_weight=self.binary_weight,
            learning_rate=self.learning_rate,
            n_iter=self.n_iter,
        )

    def _learn_view(
        self, rows: Raw, signs: Float64, rng: np.random.Generator, workers: Workers, name: str
    ) -> _View:
        features = AnchorFeatures.fit(rows, self.n_anchors, rng, workers, unit=False, name=name)
        inputs = features.apply(rows)
        bits = LogisticBits.fit(inputs, features.gram(), signs, workers, penalty=self.penalty)
        return _View(features, bits)


class Divergence(NamedTuple):
    """The objective of the codes, and its gradient."""

    value: float
    gradient: Float64
    """(N, c)"""


@dataclass(frozen=True, eq=False)
class _View:
    """One side: kernel features, and the bits that they predict."""

    features: AnchorFeatures
    bits: LogisticBits

    def log_odds(self, rows: Raw) -> Float64:
        return self.bits.log_odds(self.features.apply(rows))


def learn_codes(
    labels: Float64,
    start: Float64,
    workers: Workers,
    *,
    binary_weight: float,
    learning_rate: float,
    n_iter: int,
) -> Float64:
    """Descend from ``start`` (N, c) as t-SNE does, with a gain per coordinate; return the best H met.

    A coordinate whose gradient keeps its direction goes faster, one that turns slower. Codes are centred
    after every step, which changes no distance between them.

    Parameters
    ----------
    labels : (N, C) float64
        Rows of unit length, or zero.
    start : (N, c) float64
    workers : Workers
    binary_weight, learning_rate : float
    n_iter : int
    """
    values, speed, gains = start, np.zeros_like(start), np.ones_like(start)
    best, lowest = start, np.inf
    for _ in range(n_iter):
        now = measure_divergence(values.astype(np.float32), labels, workers, binary_weight=binary_weight)
        if now.value < lowest:
            best, lowest = values, now.value
        turned = (now.gradient > 0) == (speed > 0)
        gains = np.maximum(np.where(turned, gains * 0.8, gains + 0.2), _LEAST_GAIN)
        speed = _MOMENTUM * speed - learning_rate * gains * now.gradient
        values = values + speed
        values = values - values.mean(axis=0)
    return best


def measure_divergence(
    values: Real, labels: Float64, workers: Workers, *, binary_weight: float
) -> Divergence:
    """``KL(P || Q) + (α / cN) || |H| - 1 ||²``, but for the constant ``Σ P log P``, and its gradient.

    With ``n_ij = 1 / (1 + |h_i - h_j|² / 4)``, 0 for i = j, and its sum Z, Q is n / Z and the divergence is
    ``log Z - Σ P log n``; its gradient by h_i is ``Σ_j (P_ij - n_ij / Z) n_ij (h_i - h_j)``.

    Parameters
    ----------
    values : (N, c) float
        H; the matrices of pairs are computed in its precision, a few rows at a time.
    labels : (N, C) float64
        Rows of unit length, or zero.
    workers : Workers
    binary_weight : float
        α.
    """
    N, c = values.shape
    total = np.square(labels.sum(axis=0)).sum() - np.square(labels).sum()
    if total <= 0:
        raise InvalidInput(
            "labels: expected at least two documents of the subsample with a label in common; got none"
        )
    pull, push = np.empty((N, c)), np.empty((N, c))
    left, right = values, (labels / np.sqrt(total)).astype(values.dtype)

    def pass_over(rows: slice) -> tuple[float, float]:
        pairs = _pair_terms(left, right, rows)
        pull[rows], push[rows] = pairs.pull, pairs.push
        return pairs.log_near, pairs.near

    blocks = row_blocks(N, _ROWS_AT_ONCE)
    log_near, Z = np.sum(list(workers.map(pass_over, blocks)), axis=0)
    distance = np.abs(values) - 1.0
    weight = binary_weight / (c * N)
    gradient = pull - push / Z + 2.0 * weight * distance * np.sign(values)
    return Divergence(float(np.log(Z) - log_near + weight * np.square(distance).sum()), gradient)


class _PairTerms(NamedTuple):
    """What some documents, paired with all, add to the objective and to its gradient."""

    pull: Real  # (b, c): Σ_j P n (h_i - h_j)
    push: Real  # (b, c): Σ_j n² (h_i - h_j)
    log_near: float  # Σ P log n
    near: float  # Σ n


def _pair_terms(H: Real, L: Real, rows: slice) -> _PairTerms:
    squares = np.einsum("nc,nc->n", H, H)
    near = H[rows] @ H.T  # (b, N), turned into n in place
    near *= -0.5
    near += 0.25 * squares[rows, None] + 1.0
    near += 0.25 * squares
    np.maximum(near, 1.0, out=near)  # rounding
    np.reciprocal(near, out=near)
    itself = np.arange(len(near)), np.arange(rows.start, rows.stop)
    near[itself] = 1.0
    affinity = L[rows] @ L.T
    affinity[itself] = 0.0
    log_near = float(np.vdot(affinity, np.log(near)))
    near[itself] = 0.0
    sum_near = float(near.sum(dtype=np.float64))
    affinity *= near
    pull = affinity.sum(axis=1)[:, None] * H[rows] - affinity @ H
    np.square(near, out=near)
    push = near.sum(axis=1)[:, None] * H[rows] - near @ H
    return _PairTerms(pull, push, log_near, sum_near)
