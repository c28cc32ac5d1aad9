"""Take the space that two encoders share (CLIP and its kind) as it is, and let pairs refine it.

Prepared rows have unit length, and each side is centred by its own mean where both are known: pictures and
texts of such encoders lie apart (the modality gap). An image x and a text y are compared by

    x W y',    W = I without pairs,    W = T S⁻¹ with pairs

of the Gaussian model y ~ N(x T, S): its log-likelihood, up to what does not depend on both. A few hundred
pairs do not tell much of 512 x 512 numbers, so T is a ridge regression **towards the space itself** instead
of towards zero, and S is shrunk to a multiple of the identity:

    T = (X'X + λ v I)⁻¹ (X'Y + λ v c I),    S = (1 - a) Y'Y / n + a s I

with v and s the mean variances of images and texts, and c what an image tells of its text along the same
direction. λ = ∞ and a = 1 is W ∝ I. Both are chosen out of fold; "as it is" is among what is tried, and stays
unless partners of unseen pairs rank better by more than a standard error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Executor, Workers, row_blocks
from crossbyte.data.preparation import PreparedRows, fix_signs
from crossbyte.model.partner_ranks import PartnerRanks, as_good_as_the_best, point_ranks
from crossbyte.model.space.cca import second_moments, unit_rows
from crossbyte.model.space.gaussian import FoldMoments, GaussianSpace, Moments

TOLD = 0.3  # of its query an item tells, where no pairs say it: pairs of CLIP have such cosines
_LEAST_TOLD, _MOST_TOLD = 0.05, 0.95
_LEAST_GAIN = 0.05  # c
_LEAST_SPREAD = 1e-6  # of the mean variance, for directions that no training row has
_IMAGES_AT_ONCE = 1_024
_MOST_HELD = 1_000  # pairs of a fold that refinements are compared on


class Refinement(NamedTuple):
    """How far pairs move the space."""

    ridge: float
    """λ, in units of the images' mean variance times the number of pairs' moments: the less, the farther"""
    shrinkage: float
    """a, of the spread of texts: 1 takes it for the same in all directions"""


REFINEMENTS = tuple(
    Refinement(ridge, a) for a in (1.0, 0.9, 0.8, 0.6) for ridge in (300.0, 100.0, 30.0, 10.0)
)


def joint_moments(X: PreparedRows, Y: PreparedRows, paired: bool, workers: Executor) -> Moments:
    """Sum X'X, Y'Y and X'Y; zeros for what is not known: texts, or which text belongs to which image."""
    if paired:
        return second_moments(X, Y, workers)
    return _gram(X, workers), _gram(Y, workers), np.zeros((X.shape[1], X.shape[1]))


def _gram(rows: PreparedRows, workers: Executor) -> Float64:
    if not rows.shape[0]:
        return np.zeros((rows.shape[1], rows.shape[1]))
    return np.asarray(workers.total(lambda block: rows[block].gram(), rows.shape[0]))


def refine(moments: Moments, refinement: Refinement) -> Float64:
    """Compute W (d, d) from the second moments of pairs."""
    told, spread = _regress_texts(moments, refinement.ridge), _spread(moments[1], refinement.shrinkage)
    return np.asarray(linalg.solve(spread, told.T, assume_a="pos", check_finite=False).T)


def _regress_texts(moments: Moments, ridge: float) -> Float64:
    """Compute T (d, d)."""
    Cxx, _, Cxy = moments
    identity = np.eye(len(Cxx))
    added = ridge * (np.trace(Cxx) or 1.0) / len(Cxx)
    gain = max(float(np.trace(Cxy)) / (float(np.trace(Cxx)) or 1.0), _LEAST_GAIN)
    return np.asarray(
        linalg.solve(
            Cxx + added * identity, Cxy + added * gain * identity, assume_a="pos", check_finite=False
        )
    )


def _spread(Cyy: Float64, shrinkage: float) -> Float64:
    """Compute S (d, d), with a mean variance of 1."""
    scaled = Cyy * (len(Cyy) / (float(np.trace(Cyy)) or 1.0))
    return np.asarray((1.0 - shrinkage) * scaled + shrinkage * np.eye(len(Cyy)))


def make_space(moments: Moments, W: Float64 | None, n_dims: int, told: float = TOLD) -> GaussianSpace:
    """Make the space in which inner products are x W y', in its strongest ``n_dims`` directions.

    Parameters
    ----------
    moments : Moments
        Of the prepared rows, to find the directions in which they differ most.
    W : (d, d) float64, or None for the identity
    told : float
        What an item tells of its query: a query is expected at this times the item.
    """
    Cxx, Cyy, _ = moments
    image = text = np.eye(len(Cxx))
    if W is not None:
        left, strengths, right = linalg.svd(W, check_finite=False)
        roots = np.sqrt(strengths / strengths.mean())
        image, text = left * roots, right.T * roots
    pooled = image.T @ Cxx @ image + text.T @ Cyy @ text
    first = max(0, len(pooled) - n_dims)
    variances, directions = linalg.eigh(pooled, subset_by_index=[first, len(pooled) - 1])
    axes = fix_signs(directions.T[::-1]).T
    variances = np.maximum(variances[::-1], _LEAST_SPREAD * (float(np.trace(pooled)) or 1.0) / len(pooled))
    scales = np.sqrt(variances / variances.sum())
    return GaussianSpace(
        image_matrix=image @ axes / scales,
        text_matrix=text @ axes / scales,
        correlations=np.full(len(scales), told),
        query_scales=scales,
        coding_metric=scales,
        document_weights=np.full((2, len(scales)), told / (1.0 + told)),
    )


def measure_told(space: GaussianSpace, x: PreparedRows, y: PreparedRows) -> float:
    """Measure what items of these pairs tell of their queries: the mean cosine of their points."""
    points = (unit_rows(rows.times(space.query_matrix(side))) for rows, side in ((x, "image"), (y, "text")))
    image, text = points
    return float(np.clip((image * text).sum(axis=1).mean(), _LEAST_TOLD, _MOST_TOLD))


def told_by_both(told: float) -> float:
    """Compute what a document tells of its query, given what each of its halves does: c √(2 / (1 + c))."""
    return float(told * np.sqrt(2.0 / (1.0 + told)))


def find_nearest(images: Float32, texts: Float32, workers: Executor) -> NDArray[np.intp]:
    """Find the text that is nearest to each image, both points (n, D) of unit length: (n,)."""

    def nearest(block: slice) -> NDArray[np.intp]:
        return np.asarray((images[block] @ texts.T).argmax(axis=1))

    blocks = row_blocks(len(images), _IMAGES_AT_ONCE)
    return np.concatenate(list(workers.local.map(nearest, blocks)))


# Choosing the refinement


class RefinementTrial(NamedTuple):
    """A refinement (None: the space as it is), and the log rank (n,) of each held-out pair."""

    refinement: Refinement | None
    log_ranks: Float64


def try_refinements(
    moments: FoldMoments, X: PreparedRows, Y: PreparedRows, groups: NDArray[np.intp], workers: Executor
) -> list[RefinementTrial]:
    """Rank partners of every fold's pairs with what the other folds tell: uncompressed, both directions."""

    def rank_fold(fold: int) -> list[Float64]:
        alone = Workers(1)  # folds are tried side by side
        held = np.flatnonzero(moments.folds == fold)[:_MOST_HELD]
        rest = moments.without(fold, X, Y, alone)
        x, y = (np.asarray(rows[held].dense(), dtype=np.float64) for rows in (X, Y))
        regressions = {ridge: _regress_texts(rest, ridge) for ridge in {each.ridge for each in REFINEMENTS}}
        inverses = {
            a: linalg.inv(_spread(rest[1], a), check_finite=False)
            for a in {each.shrinkage for each in REFINEMENTS}
        }
        bilinear = (regressions[each.ridge] @ inverses[each.shrinkage] for each in REFINEMENTS)
        return [
            _log_ranks(x, y, groups[held], alone),
            *(_log_ranks(x @ W, y, groups[held], alone, x, y @ W.T) for W in bilinear),
        ]

    found = list(workers.local.map(rank_fold, range(moments.n_folds)))
    by_trial = [np.concatenate(parts) for parts in zip(*found, strict=True)]
    return [RefinementTrial(*each) for each in zip((None, *REFINEMENTS), by_trial, strict=True)]


def _log_ranks(
    images: Float64,
    texts: Float64,
    groups: NDArray[np.intp],
    workers: Executor,
    image_queries: Float64 | None = None,
    text_items: Float64 | None = None,
) -> Float64:
    """Rank items at unit length: mean log(1 + rank) of both directions, (n,)."""

    def rank(queries: Any, items: Any) -> NDArray[np.int64]:
        unit = unit_rows(items)
        return point_ranks(queries.astype(np.float32), unit.astype(np.float32), groups, workers)

    asked = images if image_queries is None else image_queries
    told = texts if text_items is None else text_items
    return PartnerRanks(rank(asked, told), rank(texts, images)).log_ranks()


def choose_refinement(trials: Sequence[RefinementTrial]) -> Refinement | None:
    """Choose the best mean log rank; the space as it is, where that is within one standard error of it."""
    good = as_good_as_the_best([trial.log_ranks for trial in trials])
    if any(trials[place].refinement is None for place in good):
        return None
    return min(trials, key=lambda trial: float(trial.log_ranks.mean())).refinement
