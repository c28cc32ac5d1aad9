"""Remember pairs, to tell of an item known from one half what its other half may look like.

In canonical coordinates (``gaussian``) the query of an item u known from one half alone is expected at r u,
which is linear. A memory of pairs (u_j, v_j) adds what is not: where partners of items like this one are,

    m(u) = Σ_j p_j v_j,    p = softmax_j(cos(r u, r u_j) / 0.04),    t = c (u + β m(u))

with the slopes c by regression of queries, per coordinate. (Statistics calls m a Nadaraya-Watson estimate,
a regression by a kernel.) Items that come with both halves need no memory,
and queries have none, so a search costs what it costs without. The coordinates of the pairs, and everything
that is learned about the memory, are out of fold: no pair ever finds one of its own fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import TILE_ROWS, Executor, deterministic_product, row_blocks, sample_rows
from crossbyte.model.partner_ranks import PartnerRanks, as_good_as_the_best, point_ranks
from crossbyte.model.space.cca import unit_rows

MOST_PAIRS = 12_000
STRENGTHS = (0.0, 0.15, 0.3, 0.6, 1.0)
_TEMPERATURE = 0.04
_MOST_HELD = 2_000  # pairs that strengths are compared on
_LEAST_SPREAD = 1e-9
_LEAST_VARIANCE = 1e-3

Folds = NDArray[np.intp]


@dataclass(frozen=True, eq=False)
class PairMemory:
    """Pairs that are remembered, and what to make of them.

    Attributes
    ----------
    images, texts : (m, D) float32
        Canonical coordinates u_j and v_j, out of fold.
    correlations : (D,) float64
        r, which weighs coordinates when items are compared.
    strength : float
        β.
    slopes : (D,) float64
        c: what a unit of u + β m(u) tells of a query.
    """

    images: Float32
    texts: Float32
    correlations: Float64
    strength: float
    slopes: Float64

    def __len__(self) -> int:
        """Pairs."""
        return len(self.images)

    def expected_query(self, views: Float64, side: str) -> Float64:
        """Compute t (n, D) of items known from one half, given their coordinates (n, D) and that side."""
        own, other = self._image_tables if side == "image" else self._text_tables
        partners = _mean_partners(unit_rows(views * self.correlations), own, other)
        return np.asarray(self.slopes * (views + self.strength * partners))

    @cached_property
    def _image_tables(self) -> tuple[Float32, Float32]:
        return _tables(self.images, self.texts, self.correlations)

    @cached_property
    def _text_tables(self) -> tuple[Float32, Float32]:
        return _tables(self.texts, self.images, self.correlations)


def _tables(own: Float32, other: Float32, r: Float64) -> tuple[Float32, Float32]:
    """Prepare what is compared, (D, m), and what is averaged, (m, D + 1) with a column of ones."""
    compared = unit_rows(own * r).T.astype(np.float32, order="C")
    averaged = np.column_stack([other, np.ones(len(other))]).astype(np.float32)
    return compared, averaged


def _mean_partners(directions: Float64, compared: Float32, averaged: Float32) -> Float64:
    """Compute m(u) (n, D) of unit rows; a row's does not depend on the rows beside it."""
    found = np.empty(directions.shape)
    for rows in row_blocks(len(directions), TILE_ROWS):
        cosines = deterministic_product(directions[rows].astype(np.float32), compared)
        sums = deterministic_product(np.exp((cosines - np.float32(1.0)) / np.float32(_TEMPERATURE)), averaged)
        found[rows] = sums[:, :-1] / sums[:, -1:]
    return found


# Learning what to make of pairs


class UnseenPairs(NamedTuple):
    """Coordinates of pairs as maps place them that were learned without their fold."""

    image: Float64
    """(n, D) u"""
    text: Float64
    """(n, D) v"""
    folds: Folds
    """(n,)"""
    kept: NDArray[np.intp]
    """(m,) the pairs to be remembered"""

    @classmethod
    def of(
        cls, image: Float64, text: Float64, folds: Folds, most: int, rng: np.random.Generator
    ) -> UnseenPairs:
        """Draw at most ``most`` pairs to be remembered."""
        sample = sample_rows(len(folds), rng, most)
        return cls(image, text, folds, np.arange(len(folds)) if sample is None else sample)

    def mean_partners(
        self, r: Float64, fold: int, rows: NDArray[np.intp], workers: Executor
    ) -> tuple[Float64, Float64]:
        """Compute m(u) and m(v) (k, D) of some rows of a fold, from remembered pairs of the other folds."""
        kept = self.kept[self.folds[self.kept] != fold]

        def recall(own: Float64, other: Float64) -> Float64:
            tables = _tables(own[kept].astype(np.float32), other[kept].astype(np.float32), r)
            asked = own[rows]

            def means(block: slice) -> Float64:
                return _mean_partners(unit_rows(asked[block] * r), *tables)

            return np.asarray(workers.rows(means, len(rows), (own.shape[1],), np.float64, TILE_ROWS))

        return recall(self.image, self.text), recall(self.text, self.image)


class RememberedPairs(NamedTuple):
    """A memory, and what it says of the pairs it was learned from, each without its own fold."""

    memory: PairMemory
    image: Float64
    """(n, D) expected queries of the images alone"""
    text: Float64
    """(n, D) of the texts alone"""


def remember_pairs(pairs: UnseenPairs, r: Float64, strength: float, workers: Executor) -> RememberedPairs:
    """Make the memory of unseen pairs, with slopes by regression of each half on what the other tells."""
    u, v = (np.empty(pairs.image.shape) for _ in range(2))
    for fold in np.unique(pairs.folds):
        rows = np.flatnonzero(pairs.folds == fold)
        of_images, of_texts = pairs.mean_partners(r, int(fold), rows, workers)
        u[rows] = pairs.image[rows] + strength * of_images
        v[rows] = pairs.text[rows] + strength * of_texts
    slopes = pooled_slopes([(u, pairs.text), (v, pairs.image)])
    images, texts = (side[pairs.kept].astype(np.float32) for side in (pairs.image, pairs.text))
    return RememberedPairs(PairMemory(images, texts, r, strength, slopes), slopes * u, slopes * v)


def pooled_slopes(pairs: Sequence[tuple[Any, Float64]]) -> Float64:
    """Regress queries on what is known of their items, both (n, D), per coordinate: (D,), at least 0.

    Each pair of arrays is one direction of asking; all directions have the same slopes.
    """
    products = sum((known * queries).sum(axis=0, dtype=np.float64) for known, queries in pairs)
    squares = sum((known.astype(np.float64) ** 2).sum(axis=0) for known, _ in pairs)
    return np.asarray(np.maximum(products / np.maximum(squares, _LEAST_SPREAD), 0.0))


class StrengthTrial(NamedTuple):
    """A strength β, and the log rank (n,) of each held-out pair, mean of both directions."""

    strength: float
    log_ranks: Float64


def try_strengths(
    pairs: UnseenPairs, r: Float64, groups: NDArray[np.intp], workers: Executor
) -> list[StrengthTrial]:
    """Rank the partners of one fold by likelihood, with memories of the other folds, and with none."""
    held = np.flatnonzero(pairs.folds == 0)[:_MOST_HELD]
    of_images, of_texts = pairs.mean_partners(r, 0, held, workers)
    image, text = pairs.image[held], pairs.text[held]
    return [
        StrengthTrial(
            strength,
            _log_ranks(
                image + strength * of_images, text + strength * of_texts, image, text, groups[held], workers
            ),
        )
        for strength in STRENGTHS
    ]


def choose_strength(trials: Sequence[StrengthTrial]) -> float:
    """Choose the least strength within one standard error of the best mean log rank, pair by pair."""
    good = as_good_as_the_best([trial.log_ranks for trial in trials])
    return min(trials[place].strength for place in good)


def _log_ranks(
    u: Float64, v: Float64, image: Float64, text: Float64, groups: NDArray[np.intp], workers: Executor
) -> Float64:
    """Rank images by what texts tell, and texts by what images tell: mean log(1 + rank) of each pair (n,)."""
    slopes = pooled_slopes([(u, text), (v, image)])
    errors = ((text - slopes * u) ** 2 + (image - slopes * v) ** 2).mean(axis=0) / 2
    scales = 1.0 / np.sqrt(np.maximum(errors, _LEAST_VARIANCE))

    def rank(queries: Float64, told: Float64) -> Any:
        items = (slopes * told * scales).astype(np.float32)
        return point_ranks((queries * scales).astype(np.float32), items, groups, workers)

    return PartnerRanks(rank(image, v), rank(text, u)).log_ranks()
