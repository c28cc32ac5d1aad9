"""Learn codebooks by k-means, improve them, sum their codewords, and number these for the scan."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, optimize, sparse

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute import kernels
from crossbyte.compute.executor import Executor, row_blocks, sample_rows
from crossbyte.compute.kernels import N_CODEWORDS, CrossPenalty

_ROWS_AT_ONCE = 512  # their distances to all centres stay in the cache of a core
_TOGETHER = 4  # codewords that share their six high bits
_SURVIVORS = 5  # of a beam, in training
MOST_POINTS = 256 * N_CODEWORDS  # that a codebook is learned from; more tell it nothing new
_FIRST_DIMS, _DIM_STEPS = 4, 5
_STEP_ITERATIONS, _LAST_ITERATIONS = 4, 5
_ROWS_FOR_AXES = 8_192  # are enough to find principal dimensions
_MOST_SOLVED = 4_096  # equations that are solved at once; beyond, steps towards the solution are quicker


def kmeans(
    points: Float32, n_codewords: int, rng: np.random.Generator, workers: Executor, n_iter: int = 12
) -> Float64:
    """Find (n_codewords, d) centres by Lloyd's k-means; with fewer points than centres, points are repeated.

    Written here because the result must not depend on the number of threads (scikit-learn's does) and the
    assignment is one matrix product per block anyway.
    """
    order = rng.permutation(len(points))
    centres = points[np.resize(order, n_codewords)].astype(np.float64)
    if len(points) <= n_codewords:
        return centres
    wide = points.astype(np.float64)
    for _ in range(n_iter):
        labels, errors = nearest_centres(points, centres, workers)
        centres = _update_means(wide, labels, errors, centres)
    return centres


def nearest_centres(points: Float32, centres: Float64, workers: Executor) -> tuple[NDArray[np.intp], Float32]:
    """Find the index of the nearest centre of each point, and the squared distance to it."""
    table, offsets = -2 * centres.T.astype(np.float32), (centres**2).sum(axis=1).astype(np.float32)

    def assign(block: slice) -> tuple[NDArray[np.intp], Float32]:
        labels = np.empty(block.stop - block.start, dtype=np.intp)
        errors = np.empty(len(labels), dtype=np.float32)
        own = points[block]
        room = np.empty((min(len(own), _ROWS_AT_ONCE), len(centres)), dtype=np.float32)
        for rows in row_blocks(len(own), _ROWS_AT_ONCE):
            scores = np.matmul(own[rows], table, out=room[: rows.stop - rows.start])
            scores += offsets
            labels[rows] = best = scores.argmin(axis=1)
            errors[rows] = scores[np.arange(len(best)), best]
        errors += np.einsum("nd,nd->n", own, own)
        return labels, errors

    found = list(workers.map(assign, row_blocks(len(points))))
    no_labels, no_errors = np.empty(0, dtype=np.intp), np.empty(0, dtype=np.float32)
    labels = np.concatenate([no_labels, *(part[0] for part in found)])
    return labels, np.concatenate([no_errors, *(part[1] for part in found)])


def _update_means(
    points: NDArray[Any], labels: NDArray[np.intp], errors: Float32, centres: Float64
) -> Float64:
    """Average the points of each centre; sums are as precise as the points are."""
    counts = np.bincount(labels, minlength=len(centres))
    ones = np.ones(len(labels), dtype=points.dtype)
    members = sparse.csc_matrix((ones, labels, np.arange(len(labels) + 1)), (len(centres), len(labels)))
    sums = np.asarray(members @ points, dtype=np.float64)
    empty = np.flatnonzero(counts == 0)
    if len(empty):  # an empty codeword takes over the worst-served points, one each
        sums[empty] = points[np.argsort(-errors, kind="stable")[: len(empty)]]
    return sums / np.maximum(counts, 1)[:, None]


def decode(codewords: NDArray[Any], codes: Codes, workers: Executor) -> Float32:
    """Sum the chosen codewords (M, K, d) of each row of (n, M) codes: (n, d) float32."""
    points: Float32 = workers.rows(
        lambda rows: _decode_block(codewords, codes[rows]), len(codes), (codewords.shape[2],), np.float32
    )
    return points


def _decode_block(codewords: NDArray[Any], codes: Codes) -> Float32:
    total = np.zeros((len(codes), codewords.shape[2]))
    for m, chosen in enumerate(codes.T):
        total += codewords[m, chosen]
    return total.astype(np.float32)


def cross_terms(codewords: NDArray[Any], codes: Codes, workers: Executor) -> Float64:
    """Sum the inner products of the chosen codewords over ordered pairs of codebooks: (n,) float64."""
    own = codeword_squares(codewords)
    cross: Float64 = workers.rows(
        lambda rows: block_cross_terms(codewords, own, codes[rows]), len(codes), (), np.float64
    )
    return cross


def codeword_squares(codewords: NDArray[Any]) -> Float64:
    """Compute the squared lengths (M, K) of the codewords, for :func:`block_cross_terms`."""
    return np.asarray((codewords.astype(np.float64) ** 2).sum(axis=2))


def block_cross_terms(codewords: NDArray[Any], own: Float64, codes: Codes) -> Float64:
    """Compute the cross terms (n,) of one block of codes."""
    total = np.zeros((len(codes), codewords.shape[2]))
    squares = np.zeros(len(codes))
    for m, chosen in enumerate(codes.T):
        total += codewords[m, chosen]
        squares += own[m, chosen]
    return np.einsum("nd,nd->n", total, total) - squares


def mean_cross(codewords: NDArray[Any], codes: Codes, workers: Executor) -> float:
    """Compute the mean of the cross terms."""
    own = codeword_squares(codewords)
    total = workers.total(lambda rows: block_cross_terms(codewords, own, codes[rows]).sum(), len(codes))
    return float(total) / len(codes)


def cross_spread(codewords: NDArray[Any], codes: Codes, around: float, workers: Executor) -> float:
    """Sum the squared differences of the cross terms from a number."""
    own = codeword_squares(codewords)

    def one_block(rows: slice) -> float:
        gap = block_cross_terms(codewords, own, codes[rows]) - around
        return float(gap @ gap)

    return float(workers.total(one_block, len(codes)))


def deal_dimensions(variances: NDArray[Any], n_parts: int) -> NDArray[np.intp]:
    """Deal dimensions (M, width) to the parts of a product quantizer so that all parts vary alike.

    The strongest first, there and back; -1 where a part has one less. There are at most as many parts as
    dimensions.
    """
    n_parts = min(n_parts, len(variances))
    rounds = np.full((-(-len(variances) // n_parts), n_parts), -1)
    rounds.flat[: len(variances)] = np.argsort(-variances, kind="stable")
    rounds[1::2] = rounds[1::2, ::-1].copy()
    return np.ascontiguousarray(rounds.T)


def residual_codebooks(
    points: Float32, n_codebooks: int, rng: np.random.Generator, workers: Executor
) -> Float64:
    """Learn one codebook after another by k-means of what the ones before leave over."""
    codewords = np.empty((n_codebooks, N_CODEWORDS, points.shape[1]))
    rest = points.copy()
    for m in range(n_codebooks):
        codewords[m] = kmeans(rest, N_CODEWORDS, rng, workers)
        labels, _ = nearest_centres(rest, codewords[m], workers)
        rest -= codewords[m].astype(np.float32)[labels]
    return codewords


def beam_codebooks(points: Float32, n_codebooks: int, rng: np.random.Generator, workers: Executor) -> Float64:
    """Learn one codebook after another from what the survivors of a beam search leave over.

    A codeword then serves the codes that items will really be given, not only the greedy ones, and has five
    times as many points to learn from, so that unseen points are coded better. FAISS's residual quantizer is
    trained so; it is written here because results must not depend on threads.
    """
    return BeamStages().learn(points, n_codebooks, rng, workers)


class BeamStages:
    """Learns the codebooks of :func:`beam_codebooks`: a longer code begins with those of a shorter one.

    All calls must give the same points, and a generator in the same state.
    """

    def __init__(self) -> None:
        self._codewords: list[Float64] = []
        self._states: list[Any] = []  # of the generator, after each codebook
        self._rest: Float32 | None = None  # what the last codebook was learned from

    def learn(
        self, points: Float32, n_codebooks: int, rng: np.random.Generator, workers: Executor
    ) -> Float64:
        """Give (n_codebooks, K, d) codewords; only those are learned that are not known yet."""
        if self._rest is None:
            self._rest = np.ascontiguousarray(points, dtype=np.float32)[:, None, :]
        for m in range(len(self._codewords), n_codebooks):
            if m:
                rng.bit_generator.state = self._states[-1]
                self._rest = _survive(self._rest, self._codewords[-1].astype(np.float32), workers)
            flat = self._rest.reshape(-1, points.shape[1])
            chosen = sample_rows(len(flat), rng, MOST_POINTS)
            some = flat if chosen is None else flat[chosen]
            self._codewords.append(progressive_kmeans(some, N_CODEWORDS, rng, workers))
            self._states.append(rng.bit_generator.state)
        rng.bit_generator.state = self._states[n_codebooks - 1]
        return np.stack(self._codewords[:n_codebooks])


def _survive(rest: Float32, codewords: Float32, workers: Executor) -> Float32:
    """Subtract a codeword from each of the remainders (n, L, d), and keep the shortest few of each item."""
    squares = np.einsum("kd,kd->k", codewords, codewords)
    n, width, d = rest.shape
    kept = min(_SURVIVORS, width * len(codewords))

    def shorten(rows: slice) -> Float32:
        own = rest[rows]
        scores = (own.reshape(-1, d) @ codewords.T).reshape(len(own), width, len(codewords))
        scores *= -2
        scores += squares
        scores += np.einsum("nld,nld->nl", own, own)[:, :, None]
        best = np.sort(_find_smallest(scores.reshape(len(own), -1), kept), axis=1)
        parents, chosen = np.divmod(best, len(codewords))
        return np.take_along_axis(own, parents[:, :, None], axis=1) - codewords[chosen]

    parts = list(workers.map(shorten, row_blocks(n, _ROWS_AT_ONCE)))
    return np.concatenate([np.empty((0, kept, d), np.float32), *parts])


def _find_smallest(scores: Float32, k: int) -> NDArray[np.intp]:
    """Find the places (n, k) of the k smallest scores (n, m) of each row, m a multiple of 16.

    Places are dealt to parts of 16; the k smallest are in the k parts with the smallest minima.
    """
    n, m = scores.shape
    width = m // 16
    if width <= k:
        return np.argpartition(scores, k - 1, axis=1)[:, :k]
    minima = scores.reshape(n, 16, width).min(axis=1)
    parts = np.argpartition(minima, k - 1, axis=1)[:, :k]
    places = (parts[:, :, None] + width * np.arange(16)).reshape(n, -1)
    best = np.argpartition(np.take_along_axis(scores, places, axis=1), k - 1, axis=1)[:, :k]
    return np.take_along_axis(places, best, axis=1)


def progressive_kmeans(
    points: Float32, n_codewords: int, rng: np.random.Generator, workers: Executor
) -> Float64:
    """Find (n_codewords, d) centres by k-means in more and more of the points' principal dimensions.

    Centres settle in the few strongest dimensions first, where there are points enough, and take the others
    in as they are: they learn less of single points by heart than centres that start in all dimensions.
    """
    if len(points) <= n_codewords:
        return kmeans(points, n_codewords, rng, workers)
    mean = points.mean(axis=0, dtype=np.float64)
    centred = points - mean.astype(np.float32)
    some = centred[:: max(1, len(points) // _ROWS_FOR_AXES)]
    covariance = workers.total(lambda rows: _gram(some[rows]), len(some))
    axes = np.linalg.eigh(covariance)[1][:, ::-1]
    rotated = centred @ axes.astype(np.float32)
    steps = np.geomspace(min(_FIRST_DIMS, points.shape[1]), points.shape[1], _DIM_STEPS)
    centres = rotated[rng.permutation(len(points))[:n_codewords]].astype(np.float64)
    known = 0
    for n_dims in np.unique(np.rint(steps).astype(int)).tolist():
        if known:
            centres[:, known:] = 0.0
        leading = np.ascontiguousarray(rotated[:, :n_dims])
        for _ in range(_LAST_ITERATIONS if n_dims == points.shape[1] else _STEP_ITERATIONS):
            labels, errors = nearest_centres(leading, centres[:, :n_dims], workers)
            centres[:, :n_dims] = _update_means(leading, labels, errors, centres[:, :n_dims])
        known = n_dims
    return np.asarray(centres @ axes.T + mean)


def _gram(rows: Float32) -> Float64:
    wide = rows.astype(np.float64)
    return np.asarray(wide.T @ wide)


def update_codebooks(
    codewords: Float64,
    codes: Codes,
    targets: Float32,
    penalty: CrossPenalty,
    shrinkage: float,
    workers: Executor,
    max_iter: int = 12,
) -> Float64:
    """Minimise Σ |t - C p|² + μ (cross - ε)² + τ |C|² over the codewords; never worse than the start.

    τ (``shrinkage``) acts like τ items at the origin per codeword: a codeword that few items share would
    otherwise learn them by heart and serve new items badly.
    """

    def objective(candidate: Float64) -> tuple[float, Float64]:
        value, gradient = _value_gradient(candidate, codes, targets, penalty, workers)
        return _add_shrinkage(value, gradient, candidate, shrinkage)

    return minimise(objective, codewords, codeword_counts(codes, workers) + shrinkage, max_iter)


def solve_codebooks(codes: Codes, targets: Float32, shrinkage: float) -> Float64 | None:
    """Minimise Σ |t - C p|² + τ |C|² over the codewords (M, K, d) at once; None where that takes too long.

    With the codes as rows of a matrix P of zeros and ones, C is (P'P + τ I)⁻¹ P'T = P' (PP' + τ I)⁻¹ T; the
    smaller system is solved. PP' counts the codewords that two items share.
    """
    n, n_codebooks = codes.shape
    n_codewords = n_codebooks * N_CODEWORDS
    if min(n, n_codewords) > _MOST_SOLVED or not n or not shrinkage > 0:
        return None
    chosen = (codes.astype(np.intp) + N_CODEWORDS * np.arange(n_codebooks)).ravel()
    ends = np.arange(0, len(chosen) + 1, n_codebooks)
    P = sparse.csr_array((np.ones(len(chosen)), chosen, ends), shape=(n, n_codewords))
    few_items = n <= n_codewords
    G = (P @ P.T if few_items else P.T @ P).toarray()
    G.flat[:: len(G) + 1] += shrinkage
    right = targets.astype(np.float64) if few_items else np.asarray(P.T @ targets.astype(np.float64))
    solved = linalg.solve(G, right, assume_a="pos", overwrite_a=True, overwrite_b=True, check_finite=False)
    codewords = np.asarray(P.T @ solved) if few_items else solved
    return np.ascontiguousarray(codewords.reshape(n_codebooks, N_CODEWORDS, targets.shape[1]))


def _value_gradient(
    codewords: Float64, codes: Codes, targets: Float32, penalty: CrossPenalty, workers: Executor
) -> tuple[float, Float64]:
    def one_block(rows: slice) -> tuple[float, Float64]:
        return kernels.codebook_value_gradient(codewords, codes[rows], targets[rows], penalty)

    value, gradient = workers.total(one_block, len(codes))
    return value, gradient


def update_shared_codebooks(
    codewords: Float64,
    codes: tuple[Codes, ...],
    points: tuple[Float32, ...],
    penalties: tuple[CrossPenalty, ...],
    correlation: float,
    shrinkage: float,
    workers: Executor,
    max_iter: int = 12,
) -> Float64:
    """Minimise all sides' objectives plus γ |C (P - Q)|² over one set of codewords.

    Here the blended target would move with the codewords, so the term in γ is taken as it is: its value
    is the error of one side's codes against the other side's decoded points, and its gradient is the
    sum of the two gradients with the opposite side held still.
    """

    def one_block(rows: slice, candidate: Float64) -> tuple[float, Float64]:
        value, gradient = 0.0, np.zeros_like(candidate)
        own = [_decode_block(candidate, side[rows]) for side in codes[:2]] if correlation else []
        for i, side in enumerate(codes):
            part = kernels.codebook_value_gradient(candidate, side[rows], points[i][rows], penalties[i])
            if i >= len(own):
                value, gradient = value + part[0], gradient + part[1]
                continue
            tie = kernels.codebook_value_gradient(candidate, side[rows], own[1 - i], CrossPenalty(0.0, 0.0))
            value += part[0] + correlation * tie[0] / 2
            gradient += part[1] + correlation * tie[1]
        return value, gradient

    def objective(candidate: Float64) -> tuple[float, Float64]:
        value, gradient = workers.total(lambda rows: one_block(rows, candidate), len(codes[0]))
        return _add_shrinkage(value, gradient, candidate, shrinkage)

    used = np.sum([codeword_counts(side, workers) for side in codes], axis=0)
    return minimise(objective, codewords, used + shrinkage, max_iter)


def _add_shrinkage(
    value: float, gradient: Float64, codewords: Float64, shrinkage: float
) -> tuple[float, Float64]:
    return value + shrinkage * float(np.vdot(codewords, codewords)), gradient + 2 * shrinkage * codewords


def codeword_counts(codes: Codes, workers: Executor) -> NDArray[np.intp]:
    """Count the rows that use each codeword: (M, K)."""

    def one_block(rows: slice) -> NDArray[np.intp]:
        return np.stack([np.bincount(column, minlength=N_CODEWORDS) for column in codes[rows].T])

    counts: NDArray[np.intp] = workers.total(one_block, len(codes))
    return counts


def minimise(objective: Any, codewords: Float64, counts: NDArray[Any], max_iter: int) -> Float64:
    """Minimise by L-BFGS over codewords scaled by the square root of their use.

    The scaling makes the diagonal of the Hessian constant: a codeword of 500 items and a codeword of one then
    need the same step, and a dozen iterations do the work of hundreds.
    """
    scale = np.sqrt(np.maximum(counts, 1.0))[:, :, None]

    def scaled(flat: Float64) -> tuple[float, Float64]:
        value, gradient = objective(np.ascontiguousarray(flat.reshape(codewords.shape) / scale))
        return value, (gradient / scale).ravel()

    start = (codewords * scale).ravel()
    before, _ = scaled(start)
    found = optimize.minimize(
        scaled, start, jac=True, method="L-BFGS-B", options={"maxiter": max_iter, "ftol": 1e-6}
    )
    better = found.fun < before and np.isfinite(found.x).all()
    return found.x.reshape(codewords.shape) / scale if better else codewords


def renumber_codewords(codewords: Float32, codes: Codes) -> tuple[Float32, Codes]:
    """Renumber codebooks (M, K, d) and codes (n, M) so that codewords with equal high bits are close.

    The number of a codeword means nothing to the method. The scan uses it: where a processor can hold only 64
    table entries in registers, it looks up the smallest entry of the four codewords that share their six high
    bits, and the closer these are, the more items that bound rules out.
    """
    orders = np.stack([_order_codewords(book.astype(np.float64), np.arange(len(book))) for book in codewords])
    numbers = np.argsort(orders, axis=1)  # from old to new
    new_codes = np.stack([numbers[m, column] for m, column in enumerate(codes.T)], axis=1)
    return np.take_along_axis(codewords, orders[:, :, None], axis=1), new_codes.astype(np.uint8)


def _order_codewords(book: NDArray[np.float64], codewords: NDArray[np.intp]) -> NDArray[np.intp]:
    """Halve the codewords along their widest direction, and each half again."""
    if len(codewords) <= _TOGETHER:
        return np.sort(codewords)
    points = book[codewords] - book[codewords].mean(axis=0)
    place = points @ _widest_direction(points)
    ranked = codewords[np.argsort(place, kind="stable")]
    half = len(codewords) // 2
    return np.concatenate([_order_codewords(book, ranked[:half]), _order_codewords(book, ranked[half:])])


def _widest_direction(points: NDArray[np.float64]) -> NDArray[Any]:
    direction = np.linalg.svd(points, full_matrices=False)[2][0]
    return direction * (1.0 if direction[np.abs(direction).argmax()] >= 0 else -1.0)  # one of two signs
