"""Hash by codes whose products are the similarities of labels (SCM: Zhang and Li, AAAI 2014)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import PreparedRows, principal_directions
from crossbyte.lab.methods.hashing import LinearBits, LinearHashing, sign_values
from crossbyte.lab.methods.labels import label_similarity, solve_related_directions, whiten_relation
from crossbyte.lab.methods.method import INTER_MODALITY, About
from crossbyte.model.space.cca import second_moments
from crossbyte.validation import check_choice, check_number

_PASSES = 12  # of the search for the leading pair: taking away bits leaves relations that are nearly equal

Moments = tuple[Float64, Float64, Float64]


@dataclass(kw_only=True)
class SCM(LinearHashing):
    """Bits sign(a'x) and sign(b'y) of which the products, over all bits, are the similarities of documents.

    With S = 2 LL' - 11' of label rows L at unit length (1 for equal labels, -1 for none in common), centred
    images X and centred texts Y, it looks for the least

        ‖c S - Σ_k sign(X a_k) sign(Y b_k)'‖²        c the number of bits

    which without the signs, and under a'X'Xa = b'Y'Yb = N, is the largest a'(X'RY)b for what is left, R, of
    c S. S is never formed: X'SY takes one pass over the documents, and so does every bit.

    - ``"sequential"``: each bit is the leading pair of directions for X'RY, from which its
      (X'sign(Xa))(Y'sign(Yb))' is then taken away. It ends when that relation rises: the bit before has taken
      away more than was there, and the next one would take it back.
    - ``"orthogonal"``: all bits at once are the leading pairs for X'SY, a problem of canonical correlation.

    All of this is published, as is what fills the bits that the sequence leaves: the directions of canonical
    correlation (X'Y), strongest first. Ours are the ridge in units of the mean variance, and that
    directions fewer than bits (9 on Wiki, where 10 topics sum to 1) are taken again from the first; repeated,
    they weigh more, where noise would disturb the ranking.

    Taught with pairs, which is ours, each document is a class of its own: S = 2 I - 11'. No code comes near
    that (nearly all documents would have to be opposites of each other), so the sequence ends after its first
    bit, and what remains is canonical correlation.

    Attributes
    ----------
    variant : {"sequential", "orthogonal"}
    ridge : float
        Added to every variance, in units of the side's mean variance.
    """

    about: ClassVar[About] = About(
        key="scm",
        name="SCM",
        source="D. Zhang, W.-J. Li: Large-scale supervised multimodal hashing with semantic correlation "
        "maximization. AAAI 2014",
        relations=(INTER_MODALITY,),
        codes="separate",
        coding="hash",
        distance="hamming",
        similarities=("labels", "pairs"),
        reconstructed="the unit of the ridge, and that directions fewer than bits are repeated; where pairs "
        "teach, also that each document is a class of its own",
    )

    variant: Literal["sequential", "orthogonal"] = "sequential"
    ridge: float = 0.01

    _relations: list[float] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        """Refuse parameters that cannot be meant."""
        super().__post_init__()
        check_choice(self.variant, "variant", ("sequential", "orthogonal"))
        check_number(self.ridge, "ridge", 0.0, open_low=True)

    @property
    def details(self) -> Mapping[str, Any]:
        """How strongly the leading pair of each sequential bit is related, per document; none, if orthogonal.

        Bits beyond are directions of canonical correlation.
        """
        return {"relations": self._relations, "n_sequential": len(self._relations)}

    def _learn_functions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        moments = second_moments(images, texts, workers)
        # Rows are centred, so of the S of pairs only 2 I is left between them.
        similar = (
            2.0 * moments[2] if labels is None else label_similarity(labels).cross(images, texts, workers)
        )
        find = self._sequential if self.variant == "sequential" else self._orthogonal
        A, B = find(Sides(images, texts, workers), moments, similar)
        zeros = np.zeros(self.n_bits)
        return LinearBits(A, zeros), LinearBits(B, zeros)

    def _orthogonal(self, sides: Sides, moments: Moments, similar: Float64) -> tuple[Float64, Float64]:
        self._relations = []
        return self._repeat_directions((*moments[:2], similar), self.n_bits)

    def _sequential(self, sides: Sides, moments: Moments, similar: Float64) -> tuple[Float64, Float64]:
        found = learn_sequence(sides, (*moments[:2], self.n_bits * similar), self.n_bits, self.ridge)
        self._relations = (found.relations / sides.images.shape[0]).tolist()
        A, B = self._repeat_directions(moments, self.n_bits - found.A.shape[1])
        return np.hstack([found.A, A]), np.hstack([found.B, B])

    def _repeat_directions(self, moments: Moments, n_bits: int) -> tuple[Float64, Float64]:
        """Leading pairs, (d_I, n_bits) and (d_T, n_bits), from the first again where there are fewer."""
        A, B = (np.zeros((len(C), 0)) for C in moments[:2])
        if n_bits:
            A, B = solve_related_directions(*moments, n_bits, self.ridge)
        if not A.shape[1]:  # sides that have nothing to do with each other: bits are never set
            return np.zeros((len(A), n_bits)), np.zeros((len(B), n_bits))
        again = np.arange(n_bits) % A.shape[1]
        return A[:, again], B[:, again]


class Sides(NamedTuple):
    """Centred rows of both sides."""

    images: PreparedRows  # (N, d_I)
    texts: PreparedRows  # (N, d_T)
    workers: Workers


class BitSequence(NamedTuple):
    """Directions of the bits as columns, and how strongly each pair is related in what was left for it."""

    A: Float64  # (d_I, k)
    B: Float64  # (d_T, k)
    relations: Float64  # (k,)


def learn_sequence(sides: Sides, moments: Moments, n_bits: int, ridge: float) -> BitSequence:
    """Learn at most ``n_bits`` bits one after another, until their relation rises.

    Parameters
    ----------
    moments : (d_I, d_I), (d_T, d_T) and (d_I, d_T) float64
        X'X, Y'Y and c X'SY.
    """
    U, V, left = whiten_relation(*moments, ridge)
    bits: list[tuple[Float64, Float64, float]] = []
    for _ in range(n_bits):
        u, v, relation = leading_pair(left)
        if bits and relation > bits[-1][2]:
            break
        a, b = linalg.solve_triangular(U, u), linalg.solve_triangular(V, v)
        bits.append((a, b, relation))
        x, y = (correlate_with_signs(*each, sides.workers) for each in ((sides.images, a), (sides.texts, b)))
        left -= np.outer(linalg.solve_triangular(U, x, trans="T"), linalg.solve_triangular(V, y, trans="T"))
    A, B, relations = (np.array(part) for part in zip(*bits, strict=True))
    return BitSequence(A.T, B.T, relations)


def correlate_with_signs(side: PreparedRows, direction: Float64, workers: Workers) -> Float64:
    """Z'sign(Zw), (d,), of one side Z (N, d) and a direction w (d,)."""

    def one_block(rows: slice) -> Float64:
        values = np.asarray(side[rows].times(direction[:, None]), dtype=np.float64)
        return side[rows].cross(sign_values(values))[0]

    found: Float64 = workers.total(one_block, side.shape[0])
    return found


def leading_pair(matrix: Float64) -> tuple[Float64, Float64, float]:
    """Singular vectors (m,) and (n,) of the largest singular value, and that value; zeros for zeros."""
    found = principal_directions(lambda B: matrix.T @ (matrix @ B), matrix.shape[1], 1, _PASSES)
    v = found[0] if len(found) else np.zeros(matrix.shape[1])
    u = matrix @ v
    value = float(np.sqrt(u @ u))
    return u / (value or 1.0), v, value
