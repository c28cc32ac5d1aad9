"""Model a pair as two noisy views of one latent point, in canonical coordinates, and score by likelihood.

In canonical coordinates of unit variance, with the correlation r of each, the two halves of a pair are

    u = √r z + √(1 - r) e,    v = √r z + √(1 - r) e'

of a latent z, all standard normal. An item known from n views (its image, its captions) lets a query be
expected at t = r Σ views / (1 + (n - 1) r), the farther from the origin the more views agree. Speaker
recognition calls this PLDA. Two captions of one picture share more than a picture and a caption do: where
groups have several texts (or images), a query of a document is regressed on its halves instead. The
correlations, like everything that is learned about points, are measured
**out of fold**: in points that maps learned without them have placed. In-sample correlations are far too
high, and what is learned from them serves no item that is added later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse import csgraph

from crossbyte.arrays import Float32, Float64
from crossbyte.compute.executor import Executor, Workers
from crossbyte.data.preparation import PreparedRows, row_signs
from crossbyte.errors import InvalidInput
from crossbyte.model.partner_ranks import PartnerRanks, as_good_as_the_best, point_ranks
from crossbyte.model.space.cca import add_ridge, project_rows, second_moments, unit_rows
from crossbyte.model.space.memory import PairMemory, RememberedPairs, pooled_slopes

N_FOLDS = 5
_RANK_CUT = 1e-6  # of the strongest relation
_STRONGEST = 0.999  # a correlation of 1 would leave no variance to divide by
_WEAKEST = 1e-3
_LEAST_SPREAD = 1e-9
_LEAST_SLOPE = 1e-6  # so that what is decoded can be coded again
_CODING_POWER = -1 / 6  # of the variance: 0 spends a code evenly, -1/2 is the metric of the likelihood
_MOST_HELD = 2_000  # pairs that ridges are compared on
_PRIOR_QUERIES = 50  # that the pair's own model counts for beside the queries that groups know
RIDGES = (0.03, 0.1, 0.3, 1.0, 3.0)

Moments = tuple[Float64, Float64, Float64]
"""X'X, Y'Y and X'Y over prepared rows."""
Ridges = tuple[float, float]
"""Of images and of texts."""


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
    document_weights : (2, D) float64
        A query of a document is expected at these times its image u and its text v, added up.
    memory : PairMemory or None
        What tells more of items that are known from one half.
    """

    image_matrix: Float64
    text_matrix: Float64
    correlations: Float64
    query_scales: Float64
    coding_metric: Float64
    document_weights: Float64
    memory: PairMemory | None = None

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
        is_document = images is not None and texts is not None
        weights = self.document_weights if is_document else [self.correlations] * 2
        sides = zip((images, texts), (self.image_matrix, self.text_matrix), weights, strict=True)
        memory = None if is_document else self.memory
        views = [
            (rows, matrix * weight if memory is None else matrix)
            for rows, matrix, weight in sides
            if rows is not None
        ]

        def place(block: slice) -> Float32:
            expected: Any = sum(rows[block].times(matrix) for rows, matrix in views)
            if memory is not None:
                expected = memory.expected_query(expected, "text" if images is None else "image")
            return coding_points(expected, self.coding_metric)

        points: Float32 = workers.rows(place, views[0][0].shape[0], (self.n_dims,), np.float32)
        return points

    def query_matrix(self, side: str) -> Float64:
        """Return the (d, D) matrix that places prepared queries of one side, "image" or "text"."""
        return self._query_matrices[side]

    @cached_property
    def _query_matrices(self) -> dict[str, Float64]:
        sides = {"image": self.image_matrix, "text": self.text_matrix}
        return {side: matrix * self.query_scales for side, matrix in sides.items()}

    def draw_queries(self, views: Sequence[Float32], rng: np.random.Generator) -> Float32:
        """Draw the point (n, D) of a query for each item, given the query points (n, D) of one half or both.

        One more view of the item: normal around what the known ones let expect, as the model has it.
        """
        weights = self.document_weights if len(views) == 2 else [self.correlations]
        expected = sum(weight * view for weight, view in zip(weights, views, strict=True)) / self.query_scales
        told = sum(weight**2 for weight in weights)
        if len(views) == 2:
            told += 2 * weights[0] * weights[1] * self.correlations
        noise = rng.standard_normal(expected.shape) * np.sqrt(np.maximum(1.0 - told, 1.0 - _STRONGEST))
        return np.asarray((expected + noise) * self.query_scales, dtype=np.float32)

    def with_query_scales(self, scales: Float64) -> GaussianSpace:
        """Return the space with these query scales."""
        return replace(self, query_scales=scales)


def view_weights(r: Float64, n_views: int) -> Float64:
    """Compute r / (1 + (n - 1) r): an item's query is expected at the sum of its n views times this."""
    return np.asarray(r / (1.0 + (n_views - 1) * r))


def expected_variance(r: Float64, n_views: int) -> Float64:
    """Compute s = 1 - r + r / p, p = 1 + n r / (1 - r): the variance of a query around its expectation."""
    return np.asarray(1.0 - r + r * (1.0 - r) / (1.0 - r + n_views * r))


def make_coding_metric(r: Float64) -> Float64:
    """Weigh coordinates (D,) between evenly, as short codes are spent best, and as the likelihood does."""
    return np.asarray(expected_variance(r, 1) ** _CODING_POWER)


def coding_points(expected: Any, metric: Float64) -> Float32:
    """Compute the points (n, D) that are coded, given where the items' queries are expected (n, D).

    They are in the metric of coding, at unit length: how far from the origin an item is says little of who
    asks for it, and would cost bits.
    """
    return np.asarray(unit_rows(expected * metric), dtype=np.float32)


# Learning the coordinates


class CanonicalMaps(NamedTuple):
    """Canonical directions of both sides, strongest first: (d_I, D), (d_T, D)."""

    image: Float64
    text: Float64


class WiderSide(NamedTuple):
    """What canonical directions need of the wider side at one ridge: how the narrower is regressed on it."""

    is_images: bool
    """whether the images are the wider side"""
    moments: Float64
    """(d, d) of the narrower side"""
    coefficients: Float64
    """(w, d) that lead from rows of the wider side to what they tell of the narrower"""
    explained: Float64
    """(d, d) moments of what they tell"""

    @classmethod
    def of(cls, moments: Moments, ridges: Ridges) -> WiderSide:
        """Regress the narrower side on the wider one: a Cholesky factor, and the costly part of the maps."""
        Cxx, Cyy, Cxy = moments
        if Cxx.shape[0] > Cyy.shape[0]:
            return cls.of((Cyy, Cxx, Cxy.T), (ridges[1], ridges[0]))._replace(is_images=True)
        root = _cholesky(Cyy, ridges[1])
        half = linalg.solve_triangular(root, Cxy.T, lower=True, check_finite=False)
        coefficients = linalg.solve_triangular(root, half, lower=True, trans="T", check_finite=False)
        return cls(False, Cxx, coefficients, half.T @ half)

    def maps(self, n_dims: int, ridges: Ridges) -> CanonicalMaps:
        """Find the leading canonical directions, given the ridge of the narrower side, too."""
        root = _cholesky(self.moments, ridges[1 if self.is_images else 0])
        half = linalg.solve_triangular(root, self.explained, lower=True, check_finite=False)
        whitened = linalg.solve_triangular(root, half.T, lower=True, check_finite=False)
        squares, U = linalg.eigh(whitened, driver="evd", overwrite_a=True, check_finite=False)
        squares, U = squares[::-1], U[:, ::-1]
        keep = min(n_dims, int((squares > _RANK_CUT**2 * max(squares[0], 0.0)).sum()))
        U = U[:, :keep] * row_signs(U[:, :keep].T)
        narrow = linalg.solve_triangular(root, U, lower=True, trans="T", check_finite=False)
        wide = self.coefficients @ (narrow / np.sqrt(squares[:keep]))
        return CanonicalMaps(wide, narrow) if self.is_images else CanonicalMaps(narrow, wide)


def canonical_maps(moments: Moments, n_dims: int, ridges: Ridges) -> CanonicalMaps:
    """Find the leading canonical directions of regularised second moments.

    By Cholesky factors and the eigenvectors of the narrower side, which is an order of magnitude cheaper
    than singular vectors of whitened moments, and is done once per fold.
    """
    return WiderSide.of(moments, ridges).maps(n_dims, ridges)


def _cholesky(C: Float64, ridge: float) -> Float64:
    """Factor C + r I; without a ridge, a little is added so that there is a factor."""
    least = 1e-9
    shifted = add_ridge(C, max(ridge, least))
    return np.asarray(linalg.cholesky(shifted.T, lower=True, overwrite_a=True, check_finite=False))


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


class PairCoordinates(NamedTuple):
    """Canonical coordinates of some pairs.

    Most are out of fold: as maps place them that were learned without these pairs, every coordinate of unit
    variance.
    """

    image: Float64
    """(m, D) u"""
    text: Float64
    """(m, D) v"""

    def correlations(self) -> Float64:
        """Measure r of every coordinate."""
        return np.clip((self.image * self.text).mean(axis=0), _WEAKEST, _STRONGEST)

    def half_points(
        self, space: GaussianSpace, remembered: RememberedPairs | None = None
    ) -> tuple[Float32, Float32]:
        """Compute what would be coded of the images alone and of the texts alone.

        With a memory, ``remembered`` is what it says of these pairs, each without its own fold.
        """
        r, metric = space.correlations, space.coding_metric
        image, text = (
            (r * self.image, r * self.text) if remembered is None else (remembered.image, remembered.text)
        )
        return coding_points(image, metric), coding_points(text, metric)

    def expected(self, weights: Float64) -> Float64:
        """Compute where queries of the documents are expected (m, D), given the weights of both halves."""
        return weights[0] * self.image + weights[1] * self.text


def fit_gaussian_space(
    moments: FoldMoments,
    X: PreparedRows,
    Y: PreparedRows,
    n_dims: int,
    ridges: Ridges,
    sample: NDArray[np.intp] | None,
    workers: Executor,
) -> tuple[GaussianSpace, PairCoordinates]:
    """Learn the coordinates from all rows, and correlations out of fold from a sample of them.

    A query of a document is expected as the model of the pair has it; groups may tell more,
    :func:`learn_document_queries`.

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

    def align_fold(rest: Moments) -> CanonicalMaps:
        return align_maps(canonical_maps(rest, maps.image.shape[1], ridges), maps, rest)

    rests = (moments.without(fold, X, Y, workers) for fold in range(moments.n_folds))
    for fold, aligned in enumerate(workers.local.map(align_fold, rests)):
        mine = np.flatnonzero(moments.folds[rows] == fold)
        u[mine] = place_rows(X, rows[mine], aligned.image, workers.local)
        v[mine] = place_rows(Y, rows[mine], aligned.text, workers.local)
    spreads = [np.maximum(np.sqrt((side**2).mean(axis=0)), _LEAST_SPREAD) for side in (u, v)]
    unseen = PairCoordinates(u / spreads[0], v / spreads[1])
    r = unseen.correlations()
    space = GaussianSpace(
        maps.image / spreads[0],
        maps.text / spreads[1],
        r,
        1.0 / np.sqrt(expected_variance(r, 1)),
        make_coding_metric(r),
        np.stack([view_weights(r, 2)] * 2),
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


# What a document tells of a query


class DocumentQueries(NamedTuple):
    """Where a query of a document is expected, and how far around: per coordinate."""

    weights: Float64
    """(2, D) of the document's image and text"""
    variances: Float64
    """(D,)"""


def learn_document_queries(unseen: PairCoordinates, r: Float64, groups: NDArray[np.intp]) -> DocumentQueries:
    """Regress the other members of a group on a row's image and text.

    Whoever asks for a document says it in words that are not its own: like the next caption of its picture,
    where the groups (m,) of the rows have several. The moments of the pair's own model count for 50 queries:
    without any others, the weights are the model's, r / (1 + r) for each half.
    """
    one = np.ones_like(r)
    views, queries, total = np.array([[one, r], [r, one]]), np.array([r, r]), one.copy()
    views, queries, total = (_PRIOR_QUERIES * each for each in (views, queries, total))
    n_queries = _PRIOR_QUERIES
    halves = np.stack([unseen.image, unseen.text])
    row, other = _next_in_group(groups)
    for side in halves:
        asked = (side[row] != side[other]).any(axis=1)
        known, query = halves[:, row[asked]], side[other[asked]]
        views = views + np.einsum("and,bnd->abd", known, known)
        queries = queries + np.einsum("and,nd->ad", known, query)
        total = total + (query**2).sum(axis=0)
        n_queries += len(query)
    solved = np.linalg.solve(views.transpose(2, 0, 1), queries.T[:, :, None])[:, :, 0].T
    weights = np.maximum(solved, 0.0)
    left = total - 2 * (weights * queries).sum(axis=0) + np.einsum("ad,abd,bd->d", weights, views, weights)
    return DocumentQueries(weights, np.maximum(left / n_queries, 1.0 - _STRONGEST))


def _next_in_group(groups: NDArray[np.intp]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Pair each row with the next of its group, the last with the first; rows alone are left out."""
    order = np.argsort(groups, kind="stable")
    _, starts, sizes = np.unique(groups[order], return_index=True, return_counts=True)
    following = np.arange(1, len(order) + 1)
    following[starts + sizes - 1] = starts
    several = np.repeat(sizes > 1, sizes)
    return order[several], order[following[several]]


def group_means(rows: Float64, groups: NDArray[np.intp]) -> Float64:
    """Average the rows (m, D) of each group: (n_groups, D), in the order of the groups' numbers."""
    _, numbers, sizes = np.unique(groups, return_inverse=True, return_counts=True)
    if len(sizes) == len(rows):
        return rows[np.argsort(numbers)]
    members = sparse.csr_array((1.0 / sizes[numbers], (numbers, np.arange(len(rows)))))
    return np.asarray(members @ rows)


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


def regress_queries(unseen: PairCoordinates, decoded: Sequence[Float32]) -> CodedLikelihood:
    """Learn what codes of one half tell of the other, pooled over both directions.

    ``decoded`` are the images and texts (m, D) of the unseen pairs, as their codes have them.
    """
    pairs = list(zip(decoded, (unseen.text, unseen.image), strict=True))
    slopes = np.maximum(pooled_slopes(pairs), _LEAST_SLOPE)
    total = sum(((queries - slopes * codes) ** 2).mean(axis=0) for codes, queries in pairs)
    return CodedLikelihood(slopes, np.maximum(total / len(pairs), 1.0 - _STRONGEST))


def regress_expectations(expected: Float64, variances: Float64, decoded: Float32) -> CodedLikelihood:
    """Learn what codes of whole documents tell of a query, through its expectation (m, D) given both halves.

    The halves themselves are no queries here: their own code has seen them. ``variances`` (D,) are those of
    a query around its expectation, ``decoded`` are the documents as their codes have them.
    """
    slopes = np.maximum(pooled_slopes([(decoded, expected)]), _LEAST_SLOPE)
    lost = ((expected - slopes * decoded) ** 2).mean(axis=0)
    return CodedLikelihood(slopes, variances + lost)


def likelihood_constant(own: CodedLikelihood, common: CodedLikelihood) -> float:
    """Compute what to add to distances in the common metric so that likelihoods of two codings compare.

    -2 log p(q | code) is Σ (q - t)² / s + Σ log s with the coding's own variances s. In the metric of the
    common variances c, its mean over true pairs is met by adding Σ log(s / c) + 1 - s / c.
    """
    ratio = own.variances / common.variances
    return float((np.log(ratio) + 1.0 - ratio).sum())


# Choosing the ridges


class RidgeTrial(NamedTuple):
    """Ridges of images and texts, and the log rank (n,) of each held-out pair, mean of both directions."""

    ridges: Ridges
    log_ranks: Float64


def try_ridges(
    moments: FoldMoments,
    X: PreparedRows,
    Y: PreparedRows,
    groups: NDArray[np.intp],
    n_dims: int,
    start: Ridges,
    is_open: tuple[bool, bool],
    workers: Executor,
) -> list[RidgeTrial]:
    """Rank the partners of one fold in spaces of different ridges that were learned without it.

    First both ridges alike, over the whole range, then each one alone, a step up and down from the best.
    """
    held = np.flatnonzero(moments.folds == 0)[:_MOST_HELD]
    rest = moments.without(0, X, Y, workers)
    x, y = X[held], Y[held]
    wide = 0 if X.shape[1] > Y.shape[1] else 1
    sides: dict[float, WiderSide] = {}
    tried: dict[Ridges, RidgeTrial] = {}

    def regress(ridges: Ridges) -> WiderSide:
        return WiderSide.of(rest, ridges)

    def attempt(ridges: Ridges) -> RidgeTrial:
        maps = sides[ridges[wide]].maps(n_dims, ridges)
        u, v = (
            np.asarray(rows.times(matrix), np.float64) for rows, matrix in ((x, maps.image), (y, maps.text))
        )
        return RidgeTrial(ridges, _log_ranks(u, v, groups[held]))

    def attempt_all(candidates: Iterable[Ridges]) -> None:
        new = [ridges for ridges in dict.fromkeys(candidates) if ridges not in tried]
        unknown = {ridges[wide]: ridges for ridges in new if ridges[wide] not in sides}
        sides.update(zip(unknown, workers.local.map(regress, unknown.values()), strict=True))
        tried.update(zip(new, workers.local.map(attempt, new), strict=True))

    attempt_all((ridge if is_open[0] else start[0], ridge if is_open[1] else start[1]) for ridge in RIDGES)
    best = min(tried.values(), key=lambda trial: float(trial.log_ranks.mean())).ridges
    for side in (0, 1):
        at = RIDGES.index(best[side]) if is_open[side] and best[side] in RIDGES else -1
        nearby = RIDGES[max(at - 1, 0) : at + 2] if at >= 0 and all(is_open) else ()
        attempt_all((near, best[1]) if side == 0 else (best[0], near) for near in nearby)
    return list(tried.values())


def choose_ridges(trials: Sequence[RidgeTrial]) -> Ridges:
    """Choose the strongest ridges within one standard error of the best mean log rank, pair by pair."""
    good = as_good_as_the_best([trial.log_ranks for trial in trials])
    return max((trials[place].ridges for place in good), key=lambda pair: (pair[0] * pair[1], pair))


def _log_ranks(u: Float64, v: Float64, groups: NDArray[np.intp]) -> Float64:
    """Rank partners by likelihood, both directions: the mean of log(1 + rank) of each pair (n,)."""
    u, v = (side / np.maximum(np.sqrt((side**2).mean(axis=0)), _LEAST_SPREAD) for side in (u, v))
    r = PairCoordinates(u, v).correlations()
    scales = 1.0 / np.sqrt(expected_variance(r, 1))

    def rank(queries: Float64, views: Float64) -> NDArray[np.int64]:
        items = views * r * scales
        alone = Workers(1)  # ridges are tried side by side
        return point_ranks((queries * scales).astype(np.float32), items.astype(np.float32), groups, alone)

    return PartnerRanks(rank(u, v), rank(v, u)).log_ranks()
