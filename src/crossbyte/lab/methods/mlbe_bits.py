"""Choose which bits of MLBE to flip.

For one document with code u, similarities s_j to the others and s₀ to itself, with g_j = W u_j, the terms of
the posterior that u enters are::

    -( Σ_j (s_j - u'g_j)² + (s₀ - u'W u)² ) / 2θ  +  Σ_j o_j log σ(± w u'v_j)

Turning bit k (u_k -> -u_k) changes u'M u, with M = Σ g_j g_j', by ``4 (M_kk - u_k (M u)_k)``, u'W u alike,
and the inner product with v_j by ``-2 u_k v_jk``: the gains of all bits follow from a few products.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float64
from crossbyte.compute.executor import deterministic_product
from crossbyte.lab.methods.mlbe_model import HalfState, Relations

_LEAST_GAIN = 1e-9  # rounding must not turn a bit back and forth


@dataclass(frozen=True, eq=False)
class SelfSimilarity:
    """What a learned document's similarity with itself says about its bits.

    Attributes
    ----------
    similarity : (n,) float64
        s₀.
    images : (n, c) float64
        ``W u`` before any bit was turned: the document's own part of the products M.
    weights : (c, c) float64
        W.
    """

    similarity: Float64
    images: Float64
    weights: Float64

    def of(self, rows: NDArray[np.intp]) -> SelfSimilarity:
        """The same for some of the documents."""
        return SelfSimilarity(self.similarity[rows], self.images[rows], self.weights)


@dataclass(frozen=True, eq=False)
class SimilarityGains:
    """What similarities say about the bits of n documents.

    Attributes
    ----------
    products : (c, c) float64
        M of all learned documents.
    towards : (n, c) float64
        ``Σ_j s_j g_j``, without the document itself.
    noise : float
        θ.
    itself : SelfSimilarity or None
        None for documents that are not learned from: they are not among those that they are compared with.
    """

    products: Float64
    towards: Float64
    noise: float
    itself: SelfSimilarity | None = None

    def gains(self, u: Float64) -> Float64:
        """Gain of the posterior (n, c) if each bit were turned."""
        agreeing, diagonal = (
            u * (deterministic_product(u, self.products) - self.towards),
            np.diag(self.products),
        )
        change = 4.0 * (diagonal - agreeing)
        if self.itself is not None:
            change += _self_change(u, self.itself)
        return change / (-2.0 * self.noise)

    def of(self, rows: NDArray[np.intp]) -> SimilarityGains:
        """The same for some of the documents."""
        itself = None if self.itself is None else self.itself.of(rows)
        return SimilarityGains(self.products, self.towards[rows], self.noise, itself)


def _self_change(u: Float64, itself: SelfSimilarity) -> Float64:
    """Change of ``(s₀ - u'W u)²`` (n, c), and the document's own part in that of u'M u taken off."""
    g = itself.images
    part = 4.0 * (np.square(g) - u * g * (g * u).sum(axis=1, keepdims=True))
    own = u * deterministic_product(u, itself.weights)
    change = 4.0 * (np.diag(itself.weights) - own)
    error = itself.similarity[:, None] - own.sum(axis=1, keepdims=True)
    return change * (change - 2.0 * error) - part


@dataclass(frozen=True, eq=False)
class RelationGains:
    """What relations to documents of the other half say about the bits of n documents.

    The change of ``log σ(w t)`` when the inner product t falls or rises by 2 is tabulated for t = -c … c. An
    unrelated pair has ``log σ(-w t) = log σ(w t) - w t``: a fall gains 2w more, a rise 2w less.

    Attributes
    ----------
    observed : (n, N) float64
    others : (N, c) float64
        Codes of the other half.
    apart : (n, c) float64
        ``4 w Σ_j v_j`` over the observed unrelated ones.
    both, differ : (2c + 1,) float64
        Change by a fall plus change by a rise, and the first minus the second.
    """

    observed: Float64
    others: Float64
    apart: Float64
    both: Float64
    differ: Float64

    @classmethod
    def of_relations(cls, relations: Relations, others: Float64, w: float) -> RelationGains:
        """Tabulate for a link w."""
        c = others.shape[1]
        value = -np.logaddexp(0.0, -w * np.arange(-c - 2, c + 3))
        fall, rise = value[:-4] - value[2:-2], value[4:] - value[2:-2]
        apart = 4 * w * ((relations.observed * (1 - relations.related)) @ others)
        return cls(relations.observed, others, apart, fall + rise, fall - rise)

    def gains(self, u: Float64) -> Float64:
        """Gain of the posterior (n, c) if each bit were turned."""
        t = np.rint(u @ self.others.T).astype(np.intp) + u.shape[1]
        agreeing = (self.observed * self.differ[t]) @ self.others + self.apart
        return 0.5 * ((self.observed * self.both[t]).sum(axis=1, keepdims=True) + u * agreeing)

    def of(self, rows: NDArray[np.intp]) -> RelationGains:
        """The same for some of the documents."""
        return RelationGains(self.observed[rows], self.others, self.apart[rows], self.both, self.differ)


def flip_bits(codes: Float64, pull: SimilarityGains, links: RelationGains | None) -> Float64:
    """Turn the best bit of every document as long as one gains; documents do not see each other.

    Parameters
    ----------
    codes : (n, c) float64
        Codes to start from, of ±1.
    pull : SimilarityGains
    links : RelationGains or None
        None where nothing is known of the other half.

    Returns
    -------
    (n, c) float64
        Codes none of whose bits alone can be bettered.
    """
    codes, rows = codes.copy(), np.arange(len(codes))
    while len(rows):
        gains = _total_gains(codes[rows], pull, links)
        best = gains.argmax(axis=1)
        better = gains[np.arange(len(rows)), best] > _LEAST_GAIN
        rows, best = rows[better], best[better]
        codes[rows, best] *= -1
        if not better.all():
            pull, links = pull.of(np.flatnonzero(better)), links and links.of(np.flatnonzero(better))
    return codes


def _total_gains(codes: Float64, pull: SimilarityGains, links: RelationGains | None) -> Float64:
    return pull.gains(codes) if links is None else pull.gains(codes) + links.gains(codes)


def improve_codes(half: HalfState, others: Float64, relations: Relations, link: float) -> Float64:
    """Turn bits of one document after another, of all that can gain, the best bit first.

    Parameters
    ----------
    half : HalfState
        Codes, weights and similarities of the half whose bits are turned.
    others : (N, c) float64
        Codes of the other half.
    relations : Relations
        Documents of this half in rows.
    link : float
        w.

    Returns
    -------
    (N, c) float64
        Codes that are at least as probable.
    """
    codes, links = half.codes.copy(), RelationGains.of_relations(relations, others, link)
    images = codes @ half.weights  # g_j in row j
    products = images.T @ images
    gains = _total_gains(codes, _gains_of_rows(half, images, products, np.arange(len(codes))), links)
    for i in np.flatnonzero(gains.max(axis=1) > _LEAST_GAIN):
        row = np.array([i])
        codes[row] = flip_bits(codes[row], _gains_of_rows(half, images, products, row), links.of(row))
        products -= np.outer(images[i], images[i])
        images[i] = codes[i] @ half.weights
        products += np.outer(images[i], images[i])
    return codes


def _gains_of_rows(
    half: HalfState, images: Float64, products: Float64, rows: NDArray[np.intp]
) -> SimilarityGains:
    """Pull of all documents but itself on each of the rows."""
    itself = half.similarities[rows, rows]
    towards = half.similarities[rows] @ images - itself[:, None] * images[rows]
    return SimilarityGains(products, towards, half.noise, SelfSimilarity(itself, images[rows], half.weights))
