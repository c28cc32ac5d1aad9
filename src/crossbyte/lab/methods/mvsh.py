"""Hash bit after bit from one average of what all views call near (MVSH: Kim, Kang and Choi, ECCV 2012)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.data.preparation import row_signs
from crossbyte.lab.methods.hashing import SeparateHashing, sign_values
from crossbyte.lab.methods.labels import normalise_labels
from crossbyte.lab.methods.method import INTER_DOCUMENT, INTRA_DOCUMENT, About, Side
from crossbyte.lab.methods.regression import AnchorFeatures, KernelBits, squared_distances
from crossbyte.validation import check_integer, check_number

_DIRECTIONS_PER_BIT = 4  # of the affinity, from which bits are made; more change little
_NOTHING = 1e-9  # below, a distance or what is left of a bit is rounding error


@dataclass(kw_only=True)
class MVSH(SeparateHashing):
    """A reconstruction from the abstract: averaged distances, and bits that are spectral one after another.

    Three things are the paper's. Distances of documents, one matrix per view, become one by an α-average,
    which has the least α-divergence from them: with f(x) = x^((1-α)/2), or log x for α = 1, it is
    f⁻¹(Σ w f(D)), the arithmetic mean for α = -1, the geometric for 1, the harmonic for 3. Bits are found in
    sequence, each by a spectral problem. And each is decorrelated from those before it.

    Ours is the rest. A view's distances are squared ones over their mean; the affinity is
    S = exp(-D / width) with D over its mean, centred, and cut to its strongest directions. The relaxed bit y
    is the leading eigenvector of S among the vectors that are orthogonal to all signs so far, and the new
    signs are those of y. Orthogonal to the *signs*, not to the y before, which would make plain eigenvectors;
    with labels these are worse by a fifth on validation parts of Wiki. Each view predicts the signs on its
    own, by ridge regression from Gaussian kernels on anchors, and its bits are set where it predicts more
    than the mean. Taught with pairs, the views are the two halves of a document; taught with labels, these
    are a third one, at distance one less the cosine of label rows. It learns from a subsample. Defaults were
    chosen on validation parts of the training documents of Wiki and Flickr8k.

    Attributes
    ----------
    alpha : float
        Which average of distances (α), from -9 to 9; the larger, the more one near view is enough.
    label_share : float
        Weight of the labels in the average, where they teach; the halves share the rest.
    width : float
        Width of the affinity, in units of the mean distance.
    n_anchors : int
        Anchors per view.
    ridge : float
        Ridge of the regressions, in units of the mean variance.
    max_documents : int
        Documents to learn from; time grows with the third power of their number.
    """

    about: ClassVar[About] = About(
        key="mvsh",
        name="MVSH",
        source="S. Kim, Y. Kang, S. Choi: Sequential spectral learning to hash with multiple "
        "representations. ECCV 2012",
        relations=(INTRA_DOCUMENT, INTER_DOCUMENT),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
        reconstructed="all but the idea: only the abstract was at hand. Affinity, decorrelation from signs, "
        "hash functions of each half by kernel regression and labels as a third view are ours",
    )

    alpha: float = 1.0
    label_share: float = 0.5
    width: float = 1.0
    n_anchors: int = 500
    ridge: float = 1e-3
    max_documents: int = 3000

    _views: dict[Side, KernelBits] = field(init=False, repr=False, default_factory=dict)
    _n_learned_from: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        check_number(self.alpha, "alpha", -9.0, 9.0)
        check_number(self.label_share, "label_share", 0.0, 1.0)
        for name in ("width", "ridge"):
            check_number(getattr(self, name), name, 0.0, open_low=True)
        for name, low in (("n_anchors", 1), ("max_documents", 2)):
            check_integer(getattr(self, name), name, low)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many documents the bits were learned from."""
        return {"n_learned_from": self._n_learned_from}

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        n_rows = images.shape[0]
        known = self._check_taught_labels(labels, n_rows)
        rng = np.random.default_rng(self.random_state)
        chosen = sample_rows(n_rows, rng, self.max_documents)
        chosen = np.arange(n_rows) if chosen is None else chosen
        self._n_learned_from = len(chosen)
        with Workers(self.n_jobs) as workers:
            kernels = [
                AnchorFeatures.fit(side, self.n_anchors, rng, workers, unit=False, name=name)
                for side, name in ((images, "images"), (texts, "texts"))
            ]
            some = images[chosen], texts[chosen]
            halves = list(zip(kernels, some, strict=True))
            points = [each.preparation.apply(rows) for each, rows in halves]
            signs = self._learn_signs(points, None if known is None else normalise_labels(known[chosen]))
            views = [KernelBits.fit(each, rows, signs, self.ridge, workers) for each, rows in halves]
        self._views = {"image": views[0], "text": views[1]}

    def _learn_signs(self, points: list[Float64], labels: Float64 | None) -> Float64:
        """Signs (n, n_bits) of documents with these halves; zeros for bits that nothing is left for."""
        views = [divide_by_mean(squared_distances(each, each)) for each in points]
        weights = [0.5, 0.5]
        if labels is not None:
            views.append(divide_by_mean(1.0 - labels @ labels.T))
            weights = [(1 - self.label_share) / 2] * 2 + [self.label_share]
        S = np.exp(-divide_by_mean(alpha_average(views, weights, self.alpha)) / self.width)
        return sequential_bits(spectral_factors(S, _DIRECTIONS_PER_BIT * self.n_bits), self.n_bits)

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        return self._views[side].values(rows)


def divide_by_mean(distances: Float64) -> Float64:
    """Distances (n, n) over their mean; of a document to itself there is none."""
    apart = distances * (1.0 - np.eye(len(distances)))
    return apart / (apart.mean() or 1.0)


def alpha_average(distances: Sequence[Float64], weights: Sequence[float], alpha: float) -> Float64:
    """f⁻¹(Σ w f(D)) with f(x) = x^((1-α)/2), log x for α = 1; weights sum to 1."""
    power = (1 - alpha) / 2
    parts = [(w, np.maximum(D, _NOTHING)) for w, D in zip(weights, distances, strict=True)]
    if power == 0:
        return np.exp(np.sum([w * np.log(D) for w, D in parts], axis=0))
    return np.asarray(np.sum([w * D**power for w, D in parts], axis=0) ** (1 / power))


def spectral_factors(S: Float64, n_directions: int) -> Float64:
    """G (n, k) with GG' the strongest directions of HSH, H = I - 11'/n; none of negative strength."""
    centred = S - S.mean(axis=0)
    centred -= centred.mean(axis=1)[:, None]
    n = len(S)
    strengths, vectors = linalg.eigh(centred, subset_by_index=[max(0, n - n_directions), n - 1])
    keep = strengths > _NOTHING * max(strengths[-1], _NOTHING)
    return vectors[:, keep] * np.sqrt(strengths[keep])


def sequential_bits(G: Float64, n_bits: int) -> Float64:
    """Signs (n, n_bits), one column after another those of the leading eigenvector of PGG'P.

    P takes off the ones and all signs so far. PG and its products are followed, P itself is not formed.
    Columns are zeros where nothing is left.
    """
    signs, C = np.zeros((len(G), n_bits)), G.T @ G
    taken = np.full((len(G), 1), len(G) ** -0.5)
    for bit in range(n_bits):
        if np.trace(C) <= _NOTHING:
            break
        signs[:, bit] = sign_values(leading_vector(G, C))
        q = orthogonalise(signs[:, bit], taken)
        g = q @ G
        taken, C, G = np.column_stack([taken, q]), C - np.outer(g, g), G - np.outer(q, g)
    return signs


def leading_vector(G: Float64, C: Float64) -> Float64:
    """The leading eigenvector (n,) of GG', of any length, from that of C = G'G."""
    y = G @ linalg.eigh(C, subset_by_index=[len(C) - 1] * 2)[1][:, 0]
    return np.asarray(y * row_signs(y[None]))


def orthogonalise(b: Float64, basis: Float64) -> Float64:
    """What orthonormal columns (n, k) leave of b (n,), at unit length; zeros where that is rounding error."""
    q = b - basis @ (basis.T @ b)
    q -= basis @ (basis.T @ q)  # once more, for rounding
    length = np.linalg.norm(q)
    return q / length if length > _NOTHING else np.zeros_like(q)
