"""Hash by one generalised eigenproblem over both sides (CVH: Kumar and Udupa, IJCAI 2011)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import PreparedRows, row_signs
from crossbyte.lab.methods.hashing import LinearBits, LinearHashing, random_rotation
from crossbyte.lab.methods.labels import label_affinity
from crossbyte.lab.methods.method import INTER_DOCUMENT, INTRA_DOCUMENT, About
from crossbyte.model.space.cca import add_ridge, second_moments
from crossbyte.validation import check_choice, check_number

_NOTHING = 1e-9  # share of a direction's variance below which one side has no part in it
_WEAK = 0.05  # of the largest correlation; less relates the sides no better than chance does


@dataclass(kw_only=True)
class CVH(LinearHashing):
    """Codes of which like documents have near ones, within each side and across.

    With affinities W of documents, the sum over all pairs of documents of W_ij times the squared distances of
    their relaxed codes, image to image, text to text and image to text, is least for the first eigenvectors
    [a; b] of the problem with blocks

        [ 2(1-w)(X'X) + 2w X'FF'X      (1-w) X'Y + w X'FF'Y ]        [ X'X       ]
        [         (its transpose)    2(1-w)(Y'Y) + 2w Y'FF'Y ]   and  [       Y'Y ]

    where W = (1-w) I + w FF', of rows that sum to about 1. Taught with pairs, w = 0, and it is canonical
    correlation: bits sign(a'x) and sign(b'y). Taught with labels, FF' is the affinity of documents that share
    labels, and w is ``label_share``. Every variance gets a ridge.

    At most as many directions relate the sides as the narrower one has dimensions (on Wiki 9: its 10 topics
    sum to 1). Bits beyond are

    - ``"eigenvectors"``: the next ones of the same problem, as published codes have it. They concern one side
      only, and say nothing; a half that is rounding error is set to zero, so that its bits are all equal and
      disturb no ranking of its own side. This is why CVH falls with longer codes in every published table.
      Left out are the last ones, whose halves are correlated negatively: they would take back what the first
      have said. Bits without a direction are never set.
    - ``"rotations"``: random rotations of the directions that do relate the sides, weighted by their
      correlations. That is no longer CVH as published, but what its directions could do.

    Attributes
    ----------
    ridge : float
        Added to every variance, in units of the side's mean variance.
    beyond_rank : {"eigenvectors", "rotations"}
        What the bits beyond the rank are.
    label_share : float
        w where labels teach, from 0 to 1.
    """

    about: ClassVar[About] = About(
        key="cvh",
        name="CVH",
        source="S. Kumar, R. Udupa: Learning hash functions for cross-view similarity search. IJCAI 2011",
        relations=(INTRA_DOCUMENT, INTER_DOCUMENT),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("pairs", "labels"),
    )

    ridge: float = 1e-4
    beyond_rank: Literal["eigenvectors", "rotations"] = "eigenvectors"
    label_share: float = 0.5

    _n_related: int = field(init=False, repr=False, default=0)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        check_number(self.ridge, "ridge", 0.0, open_low=True)
        check_choice(self.beyond_rank, "beyond_rank", ("eigenvectors", "rotations"))
        check_number(self.label_share, "label_share", 0.0, 1.0)

    @property
    def details(self) -> Mapping[str, Any]:
        """How many of the bits' directions relate the two sides."""
        return {"n_related": self._n_related}

    def _learn_functions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        found = self._learn_directions(images, texts, labels, workers)
        found = found.take(found.correlations >= 0)
        related = found.correlations > _WEAK * found.correlations.max(initial=0.0)
        self._n_related = int(related.sum())
        if self.beyond_rank == "rotations" and self._n_related:
            found = self._add_rotations(found.take(related))
        zeros = np.zeros(self.n_bits)
        return LinearBits(_pad_directions(found.A, self.n_bits), zeros), LinearBits(
            _pad_directions(found.B, self.n_bits), zeros
        )

    def _learn_directions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> Directions:
        moments = second_moments(images, texts, workers)
        if labels is None:
            empty = np.zeros((0, images.shape[1])), np.zeros((0, texts.shape[1]))
            return stacked_directions(moments, empty, 0.0, self.ridge, self.n_bits)
        affinity = label_affinity(labels)
        seen = affinity.project_side(images, workers), affinity.project_side(texts, workers)
        return stacked_directions(moments, seen, self.label_share, self.ridge, self.n_bits)

    def _add_rotations(self, found: Directions) -> Directions:
        """The related directions, and random rotations of them for all further bits."""
        n_more = self.n_bits - found.A.shape[1]
        if n_more <= 0:
            return found
        R = _stack_rotations(found.A.shape[1], n_more, np.random.default_rng(self.random_state))
        weighted = found.A * found.correlations, found.B * found.correlations
        return Directions(
            np.hstack([found.A, weighted[0] @ R]), np.hstack([found.B, weighted[1] @ R]), np.empty(0)
        )


class Directions(NamedTuple):
    """Pairs of directions, the strongest first, each half of unit variance or zero."""

    A: Float64  # (d_I, k)
    B: Float64  # (d_T, k)
    correlations: Float64  # (k,)

    def take(self, which: NDArray[np.bool_]) -> Directions:
        """Some of them."""
        return Directions(self.A[:, which], self.B[:, which], self.correlations[which])


def stacked_directions(
    moments: tuple[Float64, Float64, Float64],
    seen: tuple[Float64, Float64],
    w: float,
    ridge: float,
    n_dims: int,
) -> Directions:
    """Solve the eigenproblem of :class:`CVH`.

    Parameters
    ----------
    moments : (d_I, d_I), (d_T, d_T) and (d_I, d_T) float64
        X'X, Y'Y and X'Y.
    seen : (K, d_I) and (K, d_T) float64
        F'X and F'Y.
    w : float
        Share of FF' in the affinity.
    ridge : float
        Added to every variance, in units of the side's mean variance.
    n_dims : int
        Wanted directions; there are at most d_I + d_T.
    """
    Cxx, Cyy, Cxy = moments
    left, right = stacked_problem(moments, seen, w, ridge)
    d = len(left)
    vectors = linalg.eigh(left, right, subset_by_index=[max(0, d - n_dims), d - 1])[1][:, ::-1]
    vectors = vectors * row_signs(vectors.T)
    return _split_directions(vectors[: len(Cxx)], vectors[len(Cxx) :], Cxx, Cyy, Cxy)


def stacked_problem(
    moments: tuple[Float64, Float64, Float64], seen: tuple[Float64, Float64], w: float, ridge: float
) -> tuple[Float64, Float64]:
    """Both matrices (d_I + d_T, d_I + d_T) of the problem, as in the docstring of :class:`CVH`."""
    (Cxx, Cyy, Cxy), (Gx, Gy) = moments, seen
    Rxx, Ryy = add_ridge(Cxx, ridge), add_ridge(Cyy, ridge)
    cross = (1 - w) * Cxy + w * Gx.T @ Gy
    within = [2 * ((1 - w) * R + w * G.T @ G) for R, G in ((Rxx, Gx), (Ryy, Gy))]
    return np.block([[within[0], cross], [cross.T, within[1]]]), linalg.block_diag(Rxx, Ryy)


def _split_directions(A: Float64, B: Float64, Cxx: Float64, Cyy: Float64, Cxy: Float64) -> Directions:
    """Each half at unit variance, or zero where the other has it all; and the correlations of the two."""
    variances = np.stack([np.einsum("dk,dk->k", Z, C @ Z) for Z, C in ((A, Cxx), (B, Cyy))])
    keep = variances > _NOTHING * variances.sum(axis=0)
    factors = np.where(keep, 1.0 / np.sqrt(np.where(keep, variances, 1.0)), 0.0)
    A, B = A * factors[0], B * factors[1]
    return Directions(A, B, np.einsum("dk,dk->k", A, Cxy @ B))


def _stack_rotations(n_dims: int, n_bits: int, rng: np.random.Generator) -> Float64:
    """As many square rotations beside each other as make (n_dims, n_bits), the last one cut."""
    parts = [random_rotation(n_dims, n_dims, rng) for _ in range(-(-n_bits // n_dims))]
    return np.hstack(parts)[:, :n_bits]


def _pad_directions(directions: Float64, n_bits: int) -> Float64:
    """Directions (d, k) and zeros up to the number of bits: bits of zero directions are never set."""
    return np.pad(directions, ((0, 0), (0, n_bits - directions.shape[1])))
