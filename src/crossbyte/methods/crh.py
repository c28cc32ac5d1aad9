"""Co-regularized hashing: pairs of hash functions with margins, each by convex steps, boosted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.data.features import DenseRows, Rows
from crossbyte.executors.threads import Workers
from crossbyte.methods.boosting import Seen, adaboost_step, equal_weights, reweighted, seen_rows
from crossbyte.methods.cmssh import leading_directions
from crossbyte.methods.crh_turns import Half, Problem
from crossbyte.methods.hamming import LinearBits, LinearHashing
from crossbyte.methods.itq import signs_of_values
from crossbyte.methods.protocol import INTER_MODALITY, About
from crossbyte.methods.similarity import SignedPairs, signed_pairs
from crossbyte.validation import check_integer, check_number

__all__ = ["CRH"]

Halves = tuple[Half, Half]


@dataclass(kw_only=True)
class CRH(LinearHashing):
    """Bits sign(u'x) and sign(v'y): values far from 0, near for pairs that are alike, apart for the others.

    Pairs (x_n, y_n) have weights w_n of sum 1, at first equal. For each bit, with d_n = u'x_n - v'y_n,

        mean [1 - |u'x|]₊ + mean [1 - |v'y|]₊ + γ Σ_alike w_n d_n² + γ Σ_unlike w_n τ(d_n) + ½ l (‖u‖² + ‖v‖²)

    is lowered, where τ, an inverted parabola that levels off, is largest at 0 and ends at |d| = 1. Every term
    is a difference of convex functions. Given v, the concave parts are replaced by their tangents at u (the
    concave-convex procedure), and what is then convex is lowered by stochastic sub-gradient steps on few rows
    and pairs, as in Pegasos; then v given u, and so on. AdaBoost reweights the pairs, so that the next bit
    attends to those whose signs this one has wrong.

    That much is the paper's, by notes: the paper itself was not at hand. Ours are

    - the scale: each side's mean squared length is 1, so that margin and weights mean the same whatever the
      features;
    - γ = 10 where the paper has 1,000: both are as good on Wiki, the larger one is worse on Flickr8k. With
      either, values stay well below the margin, because sides that are but weakly related cannot be near
      each other and far from 0 at once: the hinge is then a push away from 0;
    - that means are over the rows that occur in the pairs (``details["n_rows"]``), not over all images and
      texts;
    - that weights are equal again after a bit that agrees with the weighted pairs no better than chance:
      AdaBoost's step would be negative, and give more weight to what the bit has right. On Wiki this is one
      or two of 64 bits;
    - the start of each bit, the leading singular vectors of Σ ±w_n x_n y_n' (those of CMSSH) at unit
      variance; from random ones less is found;
    - the step 1 / (l t + 2 γ e), with e the largest eigenvalue of the side's mean xx': the first of Pegasos'
      own, 1 / (l t), would be hundreds of times too long here;
    - that a turn ends at the mean of the second half of its steps, and only if this does not raise the
      objective.

    Attributes
    ----------
    similarity_weight : float
        Weight of the pairs (γ).
    shrinkage : float
        Weight of the squared lengths (l).
    n_pairs : int
        Signed pairs, half of them alike.
    n_rounds : int
        Turns of u and v, for each bit.
    n_steps, batch_size : int
        Sub-gradient steps of each turn; rows, and pairs, of each step.
    """

    about: ClassVar[About] = About(
        key="crh",
        name="CRH",
        source="Y. Zhen, D.-Y. Yeung: Co-regularized hashing for multimodal data. NIPS 2012",
        relations=(INTER_MODALITY,),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed="made from notes, not from the paper: scale of the features, weight of the pairs, "
        "means over the rows in pairs, start and lengths of steps are ours, that no turn may raise the "
        "objective, and that boosting starts again after a bit no better than chance",
    )

    similarity_weight: float = 10.0
    shrinkage: float = 0.01
    n_pairs: int = 20_000
    n_rounds: int = 5
    n_steps: int = 50
    batch_size: int = 100

    _agreements: list[float] = field(init=False, repr=False, default_factory=list)
    _n_rows: tuple[int, int] = field(init=False, repr=False, default=(0, 0))

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        for name in ("similarity_weight", "shrinkage"):
            check_number(getattr(self, name), name, 0.0, open_low=True)
        check_integer(self.n_pairs, "n_pairs", 2)
        for name in ("n_rounds", "n_steps", "batch_size"):
            check_integer(getattr(self, name), name, 1)

    @property
    def details(self) -> Mapping[str, Any]:
        """Weighted agreement of each bit's signs with those of the pairs; images and texts in these."""
        return {"agreements": self._agreements, "n_rows": self._n_rows}

    def _functions(
        self, images: Rows, texts: Rows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        rng = np.random.default_rng(self.random_state)
        seen = seen_rows(images, texts, signed_pairs(images.shape[0], self.n_pairs, rng, labels))
        halves = (
            Half.of(DenseRows(seen.images), seen.pairs.left, workers),
            Half.of(seen.texts, seen.pairs.right, workers),
        )
        self._n_rows = halves[0].rows.shape[0], halves[1].rows.shape[0]
        bits = self._boosted(seen, halves, rng)
        u, v = (
            LinearBits(np.column_stack(part) * half.scale, np.zeros(self.n_bits))
            for part, half in zip(zip(*bits, strict=True), halves, strict=True)
        )
        return u, v

    def _boosted(self, seen: Seen, halves: Halves, rng: np.random.Generator) -> list[list[Float64]]:
        """Directions u and v of one bit after another."""
        weights, bits = equal_weights(seen.pairs), []
        self._agreements = []
        for _ in range(self.n_bits):
            bits.append(self._lower_objective(start(seen, halves, weights), seen, halves, weights, rng))
            signs = [signs_of_values(half.at_pairs(w)) for half, w in zip(halves, bits[-1], strict=True)]
            agreeing = seen.pairs.signs * signs[0] * signs[1]
            self._agreements.append(float(weights @ agreeing))
            weights = next_weights(seen.pairs, weights, agreeing)
        return bits

    def _lower_objective(
        self, bit: list[Float64], seen: Seen, halves: Halves, weights: Float64, rng: np.random.Generator
    ) -> list[Float64]:
        """Let u and v take all their turns."""
        size = self.n_steps, self.batch_size
        for this, other in [(0, 1), (1, 0)] * self.n_rounds:
            others = halves[other].at_pairs(bit[other])
            problem = Problem(
                halves[this], others, seen.pairs.signs > 0, weights, self.similarity_weight, self.shrinkage
            )
            rows = rng.integers(halves[this].rows.shape[0], size=size)
            pairs = rng.choice(len(weights), size=size, p=weights)
            bit[this] = problem.turn(bit[this], rows, pairs)
        return bit


def next_weights(pairs: SignedPairs, weights: Float64, agreeing: Float64) -> Float64:
    """Weights (P,) after AdaBoost's step; equal ones after a bit that agrees no better than chance."""
    agreement = float(weights @ agreeing)
    if agreement <= 0.0:
        return equal_weights(pairs)
    return reweighted(weights, agreeing, adaboost_step(agreement))


def start(seen: Seen, halves: Halves, weights: Float64) -> list[Float64]:
    """The leading singular vectors of Σ ±w_n x_n y_n', each with values of unit variance."""
    found = leading_directions(seen, weights * seen.pairs.signs)
    return [w / (half.values(w).std() or 1.0) for half, w in zip(halves, found, strict=True)]
