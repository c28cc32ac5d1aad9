"""Model a pair as two noisy views of one latent point, in canonical coordinates, and score by likelihood.

In canonical coordinates of unit variance, with the correlation r of each, the two halves of a pair are

    u = √r z + √(1 - r) e,    v = √r z + √(1 - r) e'

of a latent z, all standard normal. An item known from n views (its image, its captions) lets a query be
expected at t = r Σ views / (1 + (n - 1) r), the farther from the origin the more views agree. Speaker
recognition calls this PLDA. The correlations, like everything that is learned about points, are measured
**out of fold**: in points that maps learned without them have placed. In-sample correlations are far too
high, and what is learned from them serves no item that is added later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse import csgraph

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Executor, row_blocks
from crossbyte.data.preparation import PreparedRows, row_signs
from crossbyte.errors import InvalidInput
from crossbyte.metrics.ranks import partner_ranks_ties_by_column
from crossbyte.model.space.cca import add_ridge, project_rows, second_moments, unit_rows

N_FOLDS = 5
_RANK_CUT = 1e-6  # of the strongest relation
_STRONGEST = 0.999  # a correlation of 1 would leave no variance to divide by
_WEAKEST = 1e-3
_LEAST_SPREAD = 1e-9
_LEAST_SLOPE = 1e-6  # so that what is decoded can be coded again
_CODING_POWER = -1 / 6  # of the variance: 0 spends a code evenly, -1/2 is the metric of the likelihood
_MOST_HELD = 2_000  # pairs that ridges are compared on
_QUERIES_AT_ONCE = 256
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)

Moments = tuple[Float64, Float64, Float64]
"""X'X, Y'Y and X'Y over prepared rows."""


@dataclass(frozen=True, eq=False)
class GaussianSpace:
    """Canonical coordinates of both sides, and what a code tells of a query in them.

    Attributes
    ----------
    image_matrix : (d_I, D) float64
        Prepared images times this are canonical coordinates u, of unit variance out of fold.
    text_matrix : (d_T, D) float64
        The same for texts: v.
    correlations : (D,) float64
        r, out of fold.
    query_scales : (D,) float64
        One over the standard deviation of a query around what the code of its partner says.
    coding_metric : (D,) float64
        Weights of the coordinates when items are coded, :func:`coding_points`.
    """

    image_matrix: Float64
    text_matrix: Float64
    correlations: Float64
    query_scales: Float64
    coding_metric: Float64

    @property
    def n_dims(self) -> int:
        """Dimensions of the common space."""
        return len(self.correlations)

    def transform_images(self, images: PreparedRows, workers: Executor) -> Float32:
        """Place prepared image queries (n, d_I) in the common space (n, D)."""
        return project_rows(images, self.query_matrix("image"), workers)

    def transform_texts(self, texts: PreparedRows, workers: Executor) -> Float32:
        """Place prepared text queries (n, d_T) in the common space (n, D)."""
        return project_rows(texts, self.query_matrix("text"), workers)

    def item_points(
        self, images: PreparedRows | None, texts: PreparedRows | None, workers: Executor
    ) -> Float32:
        """Place items known from their image, their text or both: the points (n, D) that are coded.

        A point is the direction in which the item's query is expected, :func:`coding_points`.
        """
        views = [
            (rows, matrix)
            for rows, matrix in ((images, self.image_matrix), (texts, self.text_matrix))
            if rows is not None
        ]

        def place(block: slice) -> Float32:
            total = sum(rows[block].times(matrix) for rows, matrix in views)
            return coding_points(total, self.correlations, len(views), self.coding_metric)

        points: Float32 = workers.rows(place, views[0][0].shape[0], (self.n_dims,), np.float32)
        return points

    def query_matrix(self, side: str) -> Float64:
        """Return the (d, D) matrix that places prepared queries of one side, "image" or "text"."""
        return (self.image_matrix if side == "image" else self.text_matrix) * self.query_scales

    def with_query_scales(self, scales: Float64) -> GaussianSpace:
        """Return the space with these query scales."""
        return replace(self, query_scales=scales)


def expected_query(views: Any, r: Float64, n_views: int) -> Any:
    """Compute t = r Σ views / (1 + (n - 1) r), given the sum (n, D) of an item's views."""
    return views * (r / (1.0 + (n_views - 1) * r))


def expected_variance(r: Float64, n_views: int) -> Float64:
    """Compute s = 1 - r + r / p, p = 1 + n r / (1 - r): the variance of a query around its expectation."""
    return np.asarray(1.0 - r + r * (1.0 - r) / (1.0 - r + n_views * r))


def make_coding_metric(r: Float64) -> Float64:
    """Weigh coordinates (D,) between evenly, as short codes are spent best, and as the likelihood does."""
    return np.asarray(expected_variance(r, 1) ** _CODING_POWER)


def coding_points(views: Any, r: Float64, n_views: int, metric: Float64) -> Float32:
    """Compute the points (n, D) that are coded, given the sum (n, D) of the items' views.

    They are expected queries in the metric of coding, at unit length: how far from the origin an item is
    says little of who asks for it, and would cost bits.
    """
    return np.asarray(unit_rows(expected_query(views, r, n_views) * metric), dtype=np.float32)


# Learning the coordinates


class CanonicalMaps(NamedTuple):
    """Canonical directions of both sides, strongest first: (d_I, D), (d_T, D)."""

    image: Float64
    text: Float64


def canonical_maps(moments: Moments, n_dims: int, ridges: tuple[float, float]) -> CanonicalMaps:
    """Find the leading canonical directions of regularised second moments.

    By Cholesky factors and the eigenvectors of the narrower side, which is an order of magnitude cheaper
    than singular vectors of whitened moments, and is done once per fold and ridge.
    """
    Cxx, Cyy, Cxy = moments
    if Cxx.shape[0] > Cyy.shape[0]:
        text, image = canonical_maps((Cyy, Cxx, Cxy.T), n_dims, (ridges[1], ridges[0]))
        return CanonicalMaps(image, text)
    left, right = _cholesky(Cxx, ridges[0]), _cholesky(Cyy, ridges[1])
    half = linalg.solve_triangular(left, Cxy, lower=True, check_finite=False)
    K = linalg.solve_triangular(right, half.T, lower=True, check_finite=False).T
    squares, U = linalg.eigh(K @ K.T)
    squares, U = squares[::-1], U[:, ::-1]
    keep = min(n_dims, int((squares > _RANK_CUT**2 * max(squares[0], 0.0)).sum()))
    U = U[:, :keep] * row_signs(U[:, :keep].T)
    V = K.T @ (U / np.sqrt(squares[:keep]))
    return CanonicalMaps(
        linalg.solve_triangular(left, U, lower=True, trans="T", check_finite=False),
        linalg.solve_triangular(right, V, lower=True, trans="T", check_finite=False),
    )


def _cholesky(C: Float64, ridge: float) -> Float64:
    """Factor C + r I; without a ridge, a little is added so that there is a factor."""
    least = 1e-9
    return np.asarray(linalg.cholesky(add_ridge(C, max(ridge, least)), lower=True, check_finite=False))


class FoldMoments(NamedTuple):
    """Second moments of all rows, and which fold each row is in."""

    total: Moments
    folds: NDArray[np.intp]
    """(N,) 0 to n_folds - 1"""

    @property
    def n_folds(self) -> int:
        """The number of folds."""
        return int(self.folds.max()) + 1

    @classmethod
    def of(
        cls,
        X: PreparedRows,
        Y: PreparedRows,
        groups: NDArray[np.intp],
        rng: np.random.Generator,
        workers: Executor,
    ) -> FoldMoments:
        """Deal groups to folds and sum over all rows."""
        return cls(second_moments(X, Y, workers), deal_folds(groups, rng))

    def without(self, fold: int, X: PreparedRows, Y: PreparedRows, workers: Executor) -> Moments:
        """Sum over the rows that are not in a fold."""

        def sums(block: slice) -> Moments:
            rows = np.flatnonzero(self.folds[block] == fold)
            x, y = X[block][rows], Y[block][rows]
            return x.gram(), y.gram(), y.cross(x.dense())

        own = workers.total(sums, X.shape[0])
        Cxx, Cyy, Cxy = (whole - part for whole, part in zip(self.total, own, strict=True))
        return Cxx, Cyy, Cxy


def deal_folds(
    groups: NDArray[np.intp], rng: np.random.Generator, n_folds: int = N_FOLDS
) -> NDArray[np.intp]:
    """Deal groups (N,), numbered from 0, to folds of about equal numbers of groups: (N,)."""
    n_groups = int(groups.max()) + 1
    if n_groups < 2:
        raise InvalidInput(
            f"groups: expected at least 2, as everything about points is learned out of fold, but all "
            f"{len(groups)} rows are in one group; leave groups out, or use CMCQ.paper(…)"
        )
    return rng.permutation(n_groups)[groups] % min(n_folds, n_groups)


def join_equal_pairs(
    X: PreparedRows, Y: PreparedRows, groups: NDArray[np.intp], workers: Executor
) -> tuple[NDArray[np.intp], int]:
    """Join groups that share a pair: what was learned from a pair must not place its copy out of fold.

    Two rows are taken for equal if two random projections of both halves are equal to the last bit.

    Returns
    -------
    (N,) intp
        Groups, numbered from 0; as they were where this would join them all.
    int
        Pairs that are equal to a pair of another group.
    """
    rng = np.random.default_rng(0)
    left, right = (rng.standard_normal((rows.shape[1], 2)) for rows in (X, Y))

    def project(block: slice) -> Float64:
        return np.asarray(X[block].times(left) + Y[block].times(right) + 0.0)

    keys = np.asarray(workers.rows(project, X.shape[0], (2,), np.float64))
    _, kinds = np.unique(np.ascontiguousarray(keys).view(np.complex128).ravel(), return_inverse=True)
    first = np.full(int(kinds.max()) + 1, -1, dtype=np.intp)
    first[kinds[::-1]] = groups[::-1]
    spans = np.zeros(len(first), dtype=bool)
    spans[kinds[groups != first[kinds]]] = True
    n_equal = int(spans[kinds].sum())
    if not n_equal:
        return groups, 0
    n_groups = int(groups.max()) + 1
    links = sparse.coo_array((np.ones(len(groups)), (groups, first[kinds])), shape=(n_groups, n_groups))
    n_joined, numbers = csgraph.connected_components(links, directed=False)
    return (numbers[groups].astype(np.intp) if n_joined > 1 else groups), n_equal


class OutOfFold(NamedTuple):
    """Canonical coordinates of some pairs, as maps place them that were learned without these pairs.

    Standardised: every coordinate has unit variance.
    """

    image: Float64
    """(m, D) u"""
    text: Float64
    """(m, D) v"""

    def correlations(self) -> Float64:
        """Measure r of every coordinate."""
        return np.clip((self.image * self.text).mean(axis=0), _WEAKEST, _STRONGEST)

    def coding_points(self, space: GaussianSpace) -> tuple[Float32, Float32, Float32]:
        """Compute what would be coded of the images alone, the texts alone, and both."""
        r, metric = space.correlations, space.coding_metric
        return (
            coding_points(self.image, r, 1, metric),
            coding_points(self.text, r, 1, metric),
            coding_points(self.image + self.text, r, 2, metric),
        )


def fit_gaussian_space(
    moments: FoldMoments,
    X: PreparedRows,
    Y: PreparedRows,
    n_dims: int,
    ridges: tuple[float, float],
    sample: NDArray[np.intp] | None,
    workers: Executor,
) -> tuple[GaussianSpace, OutOfFold]:
    """Learn the coordinates from all rows, and correlations out of fold from a sample of them.

    Parameters
    ----------
    moments : FoldMoments
        Of X and Y.
    n_dims : int
        Wanted dimensions; fewer are returned where the data have fewer.
    ridges : (float, float)
        Added to every variance, in units of the side's mean variance: of images, of texts.
    sample : (m,) rows, or None for all
    """
    maps = canonical_maps(moments.total, n_dims, ridges)
    rows = np.arange(X.shape[0]) if sample is None else sample
    u, v = (np.empty((len(rows), maps.image.shape[1])) for _ in range(2))
    for fold in range(moments.n_folds):
        rest = moments.without(fold, X, Y, workers)
        aligned = align_maps(canonical_maps(rest, maps.image.shape[1], ridges), maps, rest)
        mine = np.flatnonzero(moments.folds[rows] == fold)
        u[mine] = place_rows(X, rows[mine], aligned.image, workers.local)
        v[mine] = place_rows(Y, rows[mine], aligned.text, workers.local)
    spreads = [np.maximum(np.sqrt((side**2).mean(axis=0)), _LEAST_SPREAD) for side in (u, v)]
    unseen = OutOfFold(u / spreads[0], v / spreads[1])
    r = unseen.correlations()
    space = GaussianSpace(
        maps.image / spreads[0],
        maps.text / spreads[1],
        r,
        1.0 / np.sqrt(expected_variance(r, 1)),
        make_coding_metric(r),
    )
    return space, unseen


def align_maps(maps: CanonicalMaps, like: CanonicalMaps, moments: Moments) -> CanonicalMaps:
    """Rotate the maps of a fold so that rows come to lie nearest to where the other maps place them.

    Canonical directions of nearly equal correlation turn into each other from fold to fold. The rotation
    (Procrustes) needs nothing but the moments of the fold's own training rows.
    """
    Cxx, Cyy, _ = moments
    agreement = maps.image.T @ Cxx @ like.image + maps.text.T @ Cyy @ like.text
    left, _, right = linalg.svd(agreement, full_matrices=False)
    rotation = left @ right
    return CanonicalMaps(maps.image @ rotation, maps.text @ rotation)


def place_rows(rows: PreparedRows, chosen: NDArray[np.intp], matrix: Float64, workers: Executor) -> Float64:
    """Multiply some of the rows by a matrix: (m, D) float64."""
    return project_rows(rows[chosen], matrix, workers).astype(np.float64)


# What a code tells of a query


class CodedLikelihood(NamedTuple):
    """What the code of an item tells of its query, coordinate by coordinate.

    A query is expected at ``slopes`` times what the code decodes to, with ``variances`` around it. A
    coordinate that codes do not tell has slope 0 and variance 1.
    """

    slopes: Float64
    """(D,)"""
    variances: Float64
    """(D,)"""


def regress_queries(unseen: OutOfFold, decoded: Sequence[Float32]) -> CodedLikelihood:
    """Learn what codes of one half tell of the other, pooled over both directions.

    ``decoded`` are the images and texts (m, D) of the unseen pairs, as their codes have them.
    """
    pairs = list(zip(decoded, (unseen.text, unseen.image), strict=True))
    slopes = _slopes(pairs)
    total = sum(((queries - slopes * codes) ** 2).mean(axis=0) for codes, queries in pairs)
    return CodedLikelihood(slopes, np.maximum(total / len(pairs), 1.0 - _STRONGEST))


def regress_expectations(unseen: OutOfFold, r: Float64, decoded: Float32) -> CodedLikelihood:
    """Learn what codes of whole documents tell of a query, through its expectation given both halves.

    The halves themselves are no queries here: their own code has seen them.
    """
    expected = expected_query(unseen.image + unseen.text, r, 2)
    slopes = _slopes([(decoded, expected)])
    lost = ((expected - slopes * decoded) ** 2).mean(axis=0)
    return CodedLikelihood(slopes, np.maximum(expected_variance(r, 2) + lost, 1.0 - _STRONGEST))


def likelihood_constant(own: CodedLikelihood, common: CodedLikelihood) -> float:
    """Compute what to add to distances in the common metric so that likelihoods of two codings compare.

    -2 log p(q | code) is Σ (q - t)² / s + Σ log s with the coding's own variances s. In the metric of the
    common variances c, its mean over true pairs is met by adding Σ log(s / c) + 1 - s / c.
    """
    ratio = own.variances / common.variances
    return float((np.log(ratio) + 1.0 - ratio).sum())


def _slopes(pairs: Sequence[tuple[Float32, Float64]]) -> Float64:
    products = sum((codes * queries).sum(axis=0, dtype=np.float64) for codes, queries in pairs)
    squares = sum((codes.astype(np.float64) ** 2).sum(axis=0) for codes, _ in pairs)
    return np.maximum(products / np.maximum(squares, _LEAST_SPREAD), _LEAST_SLOPE)


# Choosing the ridges


class RidgeTrial(NamedTuple):
    """Ridges of images and texts, and the log rank (n,) of each held-out pair, mean of both directions."""

    ridges: tuple[float, float]
    log_ranks: Float64


def try_ridges(
    moments: FoldMoments,
    X: PreparedRows,
    Y: PreparedRows,
    groups: NDArray[np.intp],
    n_dims: int,
    start: tuple[float, float],
    is_open: tuple[bool, bool],
    workers: Executor,
) -> list[RidgeTrial]:
    """Rank the partners of one fold in spaces of different ridges that were learned without it.

    First both ridges alike, over the whole range, then each one alone, a step up and down from the best.
    """
    held = np.flatnonzero(moments.folds == 0)[:_MOST_HELD]
    rest = moments.without(0, X, Y, workers)
    x, y = X[held], Y[held]
    tried: dict[tuple[float, float], RidgeTrial] = {}

    def attempt(ridges: tuple[float, float]) -> None:
        if ridges not in tried:
            maps = canonical_maps(rest, n_dims, ridges)
            u, v = (
                project_rows(rows, matrix, workers.local).astype(np.float64)
                for rows, matrix in ((x, maps.image), (y, maps.text))
            )
            tried[ridges] = RidgeTrial(ridges, _log_ranks(u, v, groups[held], workers.local))

    for ridge in RIDGES:
        attempt((ridge if is_open[0] else start[0], ridge if is_open[1] else start[1]))
    best = min(tried.values(), key=lambda trial: float(trial.log_ranks.mean())).ridges
    for side in (0, 1):
        at = RIDGES.index(best[side]) if is_open[side] and best[side] in RIDGES else -1
        for near in RIDGES[max(at - 1, 0) : at + 2] if at >= 0 and all(is_open) else ():
            attempt((near, best[1]) if side == 0 else (best[0], near))
    return list(tried.values())


def choose_ridges(trials: Sequence[RidgeTrial]) -> tuple[float, float]:
    """Choose the strongest ridges within one standard error of the best mean log rank, pair by pair."""
    best = min(trials, key=lambda trial: float(trial.log_ranks.mean()))

    def is_close(trial: RidgeTrial) -> bool:
        gap = trial.log_ranks - best.log_ranks
        return float(gap.mean()) <= float(gap.std()) / np.sqrt(len(gap))

    return max(
        (trial.ridges for trial in trials if is_close(trial)), key=lambda pair: (pair[0] * pair[1], pair)
    )


def _log_ranks(u: Float64, v: Float64, groups: NDArray[np.intp], workers: Executor) -> Float64:
    """Rank partners by likelihood, both directions: the mean of log(1 + rank) of each pair (n,)."""
    u, v = (side / np.maximum(np.sqrt((side**2).mean(axis=0)), _LEAST_SPREAD) for side in (u, v))
    r = OutOfFold(u, v).correlations()
    weights = 1.0 / expected_variance(r, 1)
    ranks = []
    for queries, views in ((u, v), (v, u)):
        items = expected_query(views, r, 1)
        squares = (items**2 * weights).sum(axis=1)
        weighted = (queries * weights).astype(np.float32)
        table = items.T.astype(np.float32)

        def rank(rows: slice, weighted: Any = weighted, table: Any = table, squares: Any = squares) -> Any:
            distances = squares - 2 * (weighted[rows] @ table)
            return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

        ranks.append(np.concatenate(list(workers.map(rank, row_blocks(len(u), _QUERIES_AT_ONCE)))))
    return np.asarray(np.mean([np.log1p(each) for each in ranks], axis=0))
