"""SePH_km: codes that keep the similarity of labels, and kernel logistic regression to predict them.

Two steps. First one code per document is learned from the labels alone: affinities of labels are a
distribution P over pairs of documents, Hamming distances of codes make another, Q, and the codes bring Q
near P. Then each side learns to predict every bit from its features; where both sides of a document are
known, their probabilities are combined.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float64, Raw
from crossbyte.blocks import Workers, row_blocks
from crossbyte.errors import InvalidInput, NotFitted
from crossbyte.methods.anchors import AnchorFeatures
from crossbyte.methods.hamming import Hashing, pack_signs
from crossbyte.methods.label_rows import check_labels, unit_labels
from crossbyte.methods.logistic import LogisticBits
from crossbyte.methods.protocol import INTER_DOCUMENT, INTRA_DOCUMENT, About, Side
from crossbyte.validation import check_features, check_pairs, check_rows_agree

__all__ = ["Divergence", "SePH", "divergence", "learn_codes"]

Real = NDArray[np.floating[Any]]

_ROWS_AT_ONCE = 128  # of the matrix of all pairs; its five temporary copies stay in the cache
_MOMENTUM = 0.5
_LEAST_GAIN = 0.01


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


@dataclass(kw_only=True)
class SePH(Hashing):
    """Semantics-preserving hashing with k-means anchors.

    Codes H (N, c) minimise ``KL(P || Q) + (α / cN) || |H| - 1 ||²``, where ``P_ij`` is proportional to the
    cosine of the labels of documents i and j and ``Q_ij`` to ``1 / (1 + |h_i - h_j|² / 4)``; their signs are
    the bits. A query's bit is the sign of its predicted log odds. A document of which both sides are known
    has bit + iff ``p₁(+) p₂(+) / π(+) ≥ p₁(-) p₂(-) / π(-)``, π being the frequency of the bit in training.

    Attributes
    ----------
    max_documents : int
        The codes are learned from a random part of at most so many documents, since every pair of them
        counts; the number is in ``details["n_learned_from"]``.
    n_anchors : int
        k-means centres per side.
    binary_weight : float
        α, which draws the values of H to ±1.
    penalty : float
        Of the logistic regressions, in the norm of their kernel.
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
    _training_codes: Codes = field(init=False, repr=False)
    _n_learned_from: int = field(init=False, repr=False, default=0)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many documents the codes were learned from."""
        return {"n_learned_from": self._n_learned_from}

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn codes from the labels of the training documents, and to predict them from either side."""
        images, texts = check_pairs(images, texts)
        known = check_labels(labels, images.shape[0], self.about.name)
        rng = np.random.default_rng(self.random_state)
        chosen = _subsample(len(known), self.max_documents, rng)
        with Workers(self.n_jobs) as workers:
            values = self._learn_codes(unit_labels(known[chosen]), rng, workers)
            signs = np.where(values > 0, 1.0, -1.0)
            self._prior = _log_frequencies(signs)
            self._views = {
                "image": self._learn_view(images[chosen], signs, rng, workers, "images"),
                "text": self._learn_view(texts[chosen], signs, rng, workers, "texts"),
            }
            self._training_codes = self._unified(images, texts)
        self._training_codes[chosen] = pack_signs(signs)
        self._n_learned_from = len(chosen)
        return self

    def queries(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) predicted from features of one side."""
        with Workers(self.n_jobs):
            return pack_signs(self._view(side).log_odds(self._checked(side, rows)))

    def training_items(self, side: Side) -> Codes:
        """Packed codes (N, B) of the training documents: as learned, beyond the subsample as predicted."""
        self._view(side)
        return self._training_codes

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of documents of which only the searched side is known: those of queries."""
        return self.queries(side, rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Packed codes (n, B) of documents of which both sides are known; the same for either side."""
        images, texts = self._checked("image", images), self._checked("text", texts)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs):
            return self._unified(images, texts)

    def _unified(self, images: Raw, texts: Raw) -> Codes:
        """Combine both predictions: log odds add up, and the prior would otherwise count twice."""
        both = self._view("image").log_odds(images) + self._view("text").log_odds(texts)
        return pack_signs(both - self._prior)

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

    def _checked(self, side: Side, rows: Any) -> Raw:
        return check_features(rows, f"{side}s", len(self._view(side).features.preparation.mean))

    def _view(self, side: Side) -> _View:
        if not self._views:
            raise NotFitted(f"{self.about.name} has not learned anything yet; call fit with labels first")
        return self._views[side]


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
        now = divergence(values.astype(np.float32), labels, workers, binary_weight=binary_weight)
        if now.value < lowest:
            best, lowest = values, now.value
        turned = (now.gradient > 0) == (speed > 0)
        gains = np.maximum(np.where(turned, gains * 0.8, gains + 0.2), _LEAST_GAIN)
        speed = _MOMENTUM * speed - learning_rate * gains * now.gradient
        values = values + speed
        values = values - values.mean(axis=0)
    return best


def divergence(values: Real, labels: Float64, workers: Workers, *, binary_weight: float) -> Divergence:
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
        pairs = _pairs(left, right, rows)
        pull[rows], push[rows] = pairs.pull, pairs.push
        return pairs.log_near, pairs.near

    blocks = row_blocks(N, _ROWS_AT_ONCE)
    log_near, Z = np.sum(list(workers.map(pass_over, blocks)), axis=0)
    distance = np.abs(values) - 1.0
    weight = binary_weight / (c * N)
    gradient = pull - push / Z + 2.0 * weight * distance * np.sign(values)
    return Divergence(float(np.log(Z) - log_near + weight * np.square(distance).sum()), gradient)


class _Pairs(NamedTuple):
    """What some documents, paired with all, add to the objective and to its gradient."""

    pull: Real  # (b, c): Σ_j P n (h_i - h_j)
    push: Real  # (b, c): Σ_j n² (h_i - h_j)
    log_near: float  # Σ P log n
    near: float  # Σ n


def _pairs(H: Real, L: Real, rows: slice) -> _Pairs:
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
    return _Pairs(pull, push, log_near, sum_near)


def _subsample(n_rows: int, size: int, rng: np.random.Generator) -> NDArray[np.intp]:
    """Numbers of at most ``size`` random rows, in order."""
    if n_rows <= size:
        return np.arange(n_rows)
    return np.sort(rng.choice(n_rows, size, replace=False))


def _log_frequencies(signs: Float64) -> Float64:
    """Log odds (c,) of each bit among the learned codes; one of each sign more, so that none is infinite."""
    positive = (signs > 0).sum(axis=0)
    return np.log((positive + 1.0) / (len(signs) - positive + 1.0))
