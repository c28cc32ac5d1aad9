"""Tell who is like whom: labels of documents, signed pairs, and similarities that are never formed.

Both come from the pairs alone (a document's halves are alike, anything else is not) or from labels of the
training documents (alike are those that share one). A similarity of N documents is a matrix of low rank, or
the identity: products with it cost no more than a few passes over the documents.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from crossbyte.arrays import Float64
from crossbyte.compute.executor import Workers
from crossbyte.data.preparation import PreparedRows
from crossbyte.errors import InvalidInput
from crossbyte.model.space.cca import add_ridge, leading_singular_pairs
from crossbyte.validation import check_features


def check_labels(labels: Any, n_rows: int, who: str) -> NDArray[np.bool_]:
    """Return (N, C) labels, dense or sparse, as booleans, or say what is wrong with them.

    Parameters
    ----------
    labels : (N, C) array or sparse matrix of 0 and 1
        One column per label; a document may have several, or none.
    n_rows : int
        Number of training documents N.
    who : str
        Name of the system that asks.
    """
    if labels is None:
        raise InvalidInput(f"{who} learns from labels here and got none; pass fit(images, texts, labels)")
    rows: Any = check_features(labels, "labels")
    values = np.asarray(rows.toarray() if hasattr(rows, "toarray") else rows)
    if len(values) != n_rows:
        raise InvalidInput(f"labels: expected one row per document ({n_rows}), got {len(values)} rows")
    if not ((values == 0) | (values == 1)).all():
        raise InvalidInput("labels: expected only 0 and 1, one column per label; got other values")
    return values.astype(bool)


def normalise_labels(labels: NDArray[np.bool_]) -> Float64:
    """Rows (N, C) of unit length, so that products are cosines; a document without labels is all zeros."""
    counts = np.maximum(labels.sum(axis=1, dtype=np.float64), 1.0)
    return labels / np.sqrt(counts)[:, None]


def share_a_label(left: NDArray[Any], right: NDArray[Any]) -> NDArray[np.bool_]:
    """Whether documents have a label in common: (n, m) booleans for (n, C) and (m, C) labels of 0 and 1."""
    # float32: counts below 2^24 are exact, and integer products are slow
    return np.asarray(left.astype(np.float32) @ right.T.astype(np.float32) > 0)


Indices = NDArray[np.intp]
Labels = NDArray[np.bool_]

_MOST_ROUNDS = 1000  # of drawing; beyond, what is looked for is too rare to be learned from


@dataclass(frozen=True, eq=False)
class SignedPairs:
    """Rows beside rows, alike or not: images and texts, or rows of one side.

    Attributes
    ----------
    left : (P,) int
        Row of each pair's image, or of the first of the two.
    right : (P,) int
        Row of each pair's text, or of the second.
    signs : (P,) float64
        1 for a pair that is alike, -1 for one that is not.
    """

    left: Indices
    right: Indices
    signs: Float64


def draw_signed_pairs(
    n_documents: int, n_pairs: int, rng: np.random.Generator, labels: Labels | None = None
) -> SignedPairs:
    """Draw as many pairs that are alike as pairs that are not.

    Parameters
    ----------
    n_documents : int
        Number of training documents N, at least two.
    n_pairs : int
        Number of pairs, both kinds together; an odd one is rounded down.
    rng : numpy Generator
    labels : (N, C) bool, optional
        Without them, the alike are the documents, each as often as any other (but for one), and the unlike
        are random images and texts of different documents. With them, the alike are random pairs that share
        a label, each of these as likely as any other, and the unlike share none.
    """
    half = max(1, n_pairs // 2)
    if labels is None:
        same = _cycle_documents(n_documents, half, rng)
        return _join_pairs(np.stack([same, same]), _draw_mismatched(n_documents, half, rng))
    if not labels.any():
        raise InvalidInput("labels: expected documents with labels, got none with any")
    alike = _draw_until_enough(lambda: _draw_sharing(labels, half, rng), half, "share a label")
    return _join_pairs(
        alike, _draw_until_enough(lambda: _draw_not_sharing(labels, half, rng), half, "share no label")
    )


def draw_signed_neighbours(graph: sparse.csr_array, n_pairs: int, rng: np.random.Generator) -> SignedPairs:
    """Draw as many pairs of rows of one side that are joined in a graph as pairs that are not.

    Parameters
    ----------
    graph : (N, N) sparse
        Symmetric, as :func:`.neighbours.neighbour_graph` gives it; who is near, where no labels say
        who is alike.
    n_pairs : int
        Number of pairs, both kinds together; an odd one is rounded down.
    rng : numpy Generator
    """
    half, edges = max(1, n_pairs // 2), np.stack(graph.nonzero()).astype(np.intp)
    if not edges.size:
        raise InvalidInput("rows: expected some with neighbours, got none")

    def apart() -> Indices:
        pairs = _draw_mismatched(graph.shape[0], half, rng)
        return pairs[:, np.asarray(graph[pairs[0], pairs[1]]).ravel() == 0]

    near = edges[:, rng.integers(edges.shape[1], size=half)]
    return _join_pairs(near, _draw_until_enough(apart, half, "are not neighbours"))


def _join_pairs(alike: Indices, unlike: Indices) -> SignedPairs:
    rows = np.concatenate([alike, unlike], axis=1)
    return SignedPairs(rows[0], rows[1], np.repeat([1.0, -1.0], [alike.shape[1], unlike.shape[1]]))


def _cycle_documents(n_documents: int, n_pairs: int, rng: np.random.Generator) -> Indices:
    """Every document, over and over, in an order of chance: (P,)."""
    orders = [rng.permutation(n_documents) for _ in range(-(-n_pairs // n_documents))]
    return np.concatenate(orders)[:n_pairs]


def _draw_mismatched(n_documents: int, n_pairs: int, rng: np.random.Generator) -> Indices:
    """Two different documents, at random: (2, P)."""
    first = rng.integers(n_documents, size=n_pairs)
    return np.stack([first, (first + rng.integers(1, n_documents, size=n_pairs)) % n_documents])


def _draw_sharing(labels: Labels, n_pairs: int, rng: np.random.Generator) -> Indices:
    """At most P random pairs that share a label, each such pair as likely as any other: (2, ≤ P).

    A pair drawn through one of its labels comes up once per label that it shares, so it is kept with one
    over their number as its chance.
    """
    column, member = np.nonzero(labels.T)  # sorted by label
    counts = np.bincount(column, minlength=labels.shape[1])
    chosen = rng.choice(len(counts), size=n_pairs, p=counts**2 / (counts**2).sum())
    places = (rng.random((2, n_pairs)) * counts[chosen]).astype(np.intp)
    pairs = member[(np.cumsum(counts) - counts)[chosen] + places]
    return pairs[:, rng.random(n_pairs) * _count_shared(labels, pairs) < 1.0]


def _draw_not_sharing(labels: Labels, n_pairs: int, rng: np.random.Generator) -> Indices:
    """At most P random pairs of different documents that share no label: (2, ≤ P)."""
    pairs = _draw_mismatched(len(labels), n_pairs, rng)
    return pairs[:, _count_shared(labels, pairs) == 0]


def _count_shared(labels: Labels, pairs: Indices) -> NDArray[np.intp]:
    return (labels[pairs[0]] & labels[pairs[1]]).sum(axis=1)


def _draw_until_enough(draw: Callable[[], Indices], n_pairs: int, what: str) -> Indices:
    """Draw until there are enough; what is not found in many rounds is not there to be learned from."""
    parts: list[Indices] = []
    for _ in range(_MOST_ROUNDS):
        parts.append(draw())
        if sum(part.shape[1] for part in parts) >= n_pairs:
            return np.concatenate(parts, axis=1)[:, :n_pairs]
    raise InvalidInput(f"expected pairs of documents that {what}, found too few to learn from")


class Similarity(Protocol):
    """A symmetric (N, N) matrix S of similarities between documents, known by its products."""

    def times(self, values: Float64) -> Float64:
        """S times (N, k) values."""


class PairSimilarity:
    """Every document is like itself and no other: S = I."""

    def times(self, values: Float64) -> Float64:
        """The values."""
        return values


@dataclass(frozen=True, eq=False)
class LowRankSimilarity:
    """S = F diag(w) F'.

    Attributes
    ----------
    factors : (N, K) float64
        F.
    weights : (K,) float64
        w.
    """

    factors: Float64
    weights: Float64

    def times(self, values: Float64) -> Float64:
        """F (w · F'values)."""
        return self.factors @ (self.weights[:, None] * (self.factors.T @ values))

    def cross(self, images: PreparedRows, texts: PreparedRows, workers: Workers) -> Float64:
        """X'SY = (F'X)' (w · F'Y), (d_I, d_T), of images X (N, d_I) and texts Y (N, d_T)."""
        return self.project_side(images, workers).T @ (
            self.weights[:, None] * self.project_side(texts, workers)
        )

    def project_side(self, side: PreparedRows, workers: Workers) -> Float64:
        """F'Z, (K, d), of one side Z (N, d)."""
        return workers.total(lambda rows: side[rows].cross(self.factors[rows]), side.shape[0])

    def centre(self) -> LowRankSimilarity:
        """HSH with H = I - 11'/N: no document is like, or unlike, all others at once."""
        return LowRankSimilarity(self.factors - self.factors.mean(axis=0), self.weights)

    def take(self, rows: Indices) -> LowRankSimilarity:
        """The similarities of some of the documents."""
        return LowRankSimilarity(self.factors[rows], self.weights)


def label_similarity(labels: Labels) -> LowRankSimilarity:
    """S = 2 L L' - 1 1' with label rows L of unit length: 1 for equal labels, -1 for none in common."""
    ones = np.ones((len(labels), 1))
    return LowRankSimilarity(
        np.hstack([normalise_labels(labels), ones]), np.append(np.full(labels.shape[1], 2.0), -1.0)
    )


def label_affinity(labels: Labels) -> LowRankSimilarity:
    """W = D^-1/2 L L' D^-1/2 with label rows L of unit length and D the sums of the rows of L L'.

    Never negative, and of largest eigenvalue 1: products with it are about means over like documents.
    """
    rows = normalise_labels(labels)
    degrees = rows @ rows.sum(axis=0)
    factors = rows / np.sqrt(np.where(degrees > 0, degrees, 1.0))[:, None]
    return LowRankSimilarity(factors, np.ones(labels.shape[1]))


def solve_related_directions(
    Cxx: Float64, Cyy: Float64, Cxy: Float64, n_dims: int, ridge: float
) -> tuple[Float64, Float64]:
    """Directions A and B with the largest a'Cxy b under a'Cxx a = b'Cyy b = 1, weighted by that relation.

    With Cxy = X'Y this is canonical correlation; with X'SY it relates each image to all texts like its own.
    They are the singular vectors of what :func:`whiten_relation` gives, taken back.

    Returns
    -------
    A : (d_I, k), B : (d_T, k) float64
        k is ``n_dims``, or the rank where that is lower.
    """
    U, V, whitened = whiten_relation(Cxx, Cyy, Cxy, ridge)
    A, B, weights = leading_singular_pairs(whitened, n_dims)
    return linalg.solve_triangular(U, A) * weights, linalg.solve_triangular(V, B) * weights


def whiten_relation(
    Cxx: Float64, Cyy: Float64, Cxy: Float64, ridge: float
) -> tuple[Float64, Float64, Float64]:
    """Cholesky factors U'U = Cxx + r I and V'V = Cyy + r I, and U'^-1 Cxy V^-1, (d_I, d_T)."""
    U, V = (linalg.cholesky(add_ridge(C, ridge)) for C in (Cxx, Cyy))
    return U, V, linalg.solve_triangular(U, linalg.solve_triangular(V, Cxy.T, trans="T").T, trans="T")
