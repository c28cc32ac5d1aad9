"""Hash by boosted pairs of hash functions (CMSSH: Bronstein and others, CVPR 2010)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import PreparedRows, principal_directions
from crossbyte.lab.methods import regression
from crossbyte.lab.methods.hashing import LinearBits, LinearHashing, sign_values
from crossbyte.lab.methods.labels import SignedPairs, draw_signed_pairs
from crossbyte.lab.methods.method import INTER_MODALITY, About
from crossbyte.validation import check_choice, check_integer

_MOST_TURNS = 20  # of the search for both thresholds; it ends earlier as soon as nothing is gained


@dataclass(kw_only=True)
class CMSSH(LinearHashing):
    """Bits sign(p'x + a) and sign(q'y + b) that agree for pairs that are alike and differ for the others.

    Pairs (x_i, y_i) with signs s_i have weights w_i, at first equal. For each bit,

    1. p and q are the leading singular vectors of C = Σ w_i s_i x_i y_i' (rows centred): what is left of the
       weighted agreement r = Σ w_i s_i sign(p'x_i + a) sign(q'y_i + b) when signs are dropped;
    2. a and b are searched one after the other, each over all thresholds that make a difference, until r does
       not grow any more;
    3. w_i is multiplied with exp(-α s_i sign(p'x_i + a) sign(q'y_i + b)), so that the next bit attends to the
       pairs that this one has wrong.

    The step α is AdaBoost's, ½ log((1 + r) / (1 - r)), after which this bit agrees with the new weights no
    better than chance. The plain step α = 1 is far too long for bits as weak as these (r of 0.1 to 0.2):
    after it the best next bit is this one with one side turned round, which takes back in the Hamming
    distance what it had said. On Wiki, that leaves nothing above chance. Distances are unweighted, as in
    comparisons.

    Attributes
    ----------
    n_pairs : int
        Signed pairs, half of them alike (n).
    step : {"adaboost", "unit"}
        Length of the boosting step α.
    """

    about: ClassVar[About] = About(
        key="cmssh",
        name="CMSSH",
        source="M. Bronstein, A. Bronstein, F. Michel, N. Paragios: Data fusion through cross-modality "
        "metric learning using similarity-sensitive hashing. CVPR 2010",
        relations=(INTER_MODALITY,),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed="the boosting step is AdaBoost's: with the plain step of 1 the second of two weak bits "
        "takes back the first",
    )

    n_pairs: int = 20_000
    step: Literal["adaboost", "unit"] = "adaboost"

    _agreements: list[float] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        check_integer(self.n_pairs, "n_pairs", 2)
        check_choice(self.step, "step", ("adaboost", "unit"))

    @property
    def details(self) -> Mapping[str, Any]:
        """Weighted agreement r of each bit."""
        return {"agreements": self._agreements}

    def _learn_functions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        rng = np.random.default_rng(self.random_state)
        pairs = draw_signed_pairs(images.shape[0], self.n_pairs, rng, labels)
        bits, self._agreements = boost_bits(
            regression.take_paired_rows(images, texts, pairs), self.n_bits, self.step
        )
        p, a, q, b = (np.array(part) for part in zip(*bits, strict=True))
        return LinearBits(p.T, a), LinearBits(q.T, b)


def boost_bits(
    seen: regression.PairedRows, n_bits: int, step: str
) -> tuple[list[regression.HashPair], list[float]]:
    """Learn bits one after another; the weighted agreement of each comes with them."""
    pairs = seen.pairs
    weights = regression.uniform_weights(pairs)
    bits: list[regression.HashPair] = []
    agreements: list[float] = []
    for _ in range(n_bits):
        p, q = leading_directions(seen, weights * pairs.signs)
        u, v = seen.images @ p, np.asarray(seen.texts.times(q[:, None]), dtype=np.float64)[:, 0]
        a, b = search_thresholds(u, v, pairs, weights)
        agreeing = pairs.signs * sign_values(u + a)[pairs.left] * sign_values(v + b)[pairs.right]
        bits.append(regression.HashPair(p, a, q, b))
        agreements.append(float(weights @ agreeing))
        alpha = 1.0 if step == "unit" else regression.adaboost_step(agreements[-1])
        weights = regression.update_pair_weights(weights, agreeing, alpha)
    return bits, agreements


def leading_directions(seen: regression.PairedRows, signed_weights: Float64) -> tuple[Float64, Float64]:
    """The leading singular vectors p (d_I,) and q (d_T,) of C = Σ w_i s_i x_i y_i'; zeros for a C of zeros.

    C = X'MY with one cell of M per pair is never formed: a few products with thin matrices are enough, and
    on wide features they are far cheaper.
    """
    X, Y, pairs = seen
    shape = len(X), Y.shape[0]
    M = sparse.csr_matrix((signed_weights, (pairs.left, pairs.right)), shape=shape)

    def times_C(B: Float64) -> Float64:
        return X.T @ np.asarray(M @ Y.times(B))

    def times_gram(B: Float64) -> Float64:
        return Y.cross(np.asarray(M.T @ (X @ times_C(B)))).T

    found = principal_directions(times_gram, Y.shape[1], 1)
    q = found[0] if len(found) else np.zeros(Y.shape[1])
    p = times_C(q[:, None])[:, 0]
    return p / (np.sqrt(p @ p) or 1.0), q


def search_thresholds(u: Float64, v: Float64, pairs: SignedPairs, weights: Float64) -> tuple[float, float]:
    """Offsets a and b of projections u (n_I,) and v (n_T,) with a large weighted agreement.

    Exact in each of them given the other, from b = 0; the agreement never falls.
    """
    left, right = np.argsort(u, kind="stable"), np.argsort(v, kind="stable")
    signed = weights * pairs.signs
    a, b, reached = 0.0, 0.0, -np.inf
    for _ in range(_MOST_TURNS):
        by_text = sign_values(v + b)[pairs.right]
        a, _ = _best_offset(u, left, _sum_by_row(pairs.left, signed * by_text, len(u)))
        by_image = sign_values(u + a)[pairs.left]
        b, agreement = _best_offset(v, right, _sum_by_row(pairs.right, signed * by_image, len(v)))
        if agreement <= reached + 1e-12:
            break
        reached = agreement
    return a, b


def _sum_by_row(rows: NDArray[np.intp], values: Float64, n_rows: int) -> Float64:
    """Sum of the values of all pairs of each row."""
    return np.bincount(rows, values, n_rows).astype(np.float64, copy=False)


def _best_offset(values: Float64, order: NDArray[np.intp], gains: Float64) -> tuple[float, float]:
    """The offset t with the largest Σ gain · sign(value + t), and that sum.

    Between two neighbours in the order of the values, the sum is all gains less twice those below.
    """
    ordered, below = values[order], np.cumsum(gains[order])
    sums = np.where(ordered[1:] > ordered[:-1], below[-1] - 2.0 * below[:-1], -np.inf)
    if not np.isfinite(sums).any():  # all values are equal: there is nothing to tell apart
        return -float(ordered[0]), -float(below[-1])
    best = int(np.argmax(sums))
    return -float(ordered[best] + ordered[best + 1]) / 2, float(sums[best])
