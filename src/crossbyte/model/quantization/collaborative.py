"""Quantize collaboratively: learn two additive quantizers whose codes agree on pairs (Sec. 3 and 4.2).

With everything of the other side fixed, one side is plain composite quantization of a blended target:

    |x - Cp|² + γ |Cp - Dq|² + μ(…)²  =  (1 + γ) |t - Cp|² + μ(…)² + const,   t = (x + γ Dq) / (1 + γ)

so one set of functions serves images and texts, and γ = 0 is composite quantization itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute import kernels
from crossbyte.compute.executor import Executor, sample_rows
from crossbyte.compute.kernels import CodewordTables, CrossPenalty
from crossbyte.errors import NumericalError
from crossbyte.model.quantization import codebooks

BEAM_WIDTH = 16
MAX_SWEEPS = 10
_ROWS_AT_ONCE = 1024  # items are coded each for itself, so small blocks keep all threads busy to the end


class Side(NamedTuple):
    """The quantizer of one modality and what it makes of the training points."""

    codewords: Float64
    """(M, K, d) codebooks: C or D"""
    codes: Codes
    """(N, M): P or Q"""
    epsilon: float
    """what the cross terms should be: ε₁ or ε₂"""
    decoded: Float32
    """(N, d): C P or D Q"""


class QuantizationWeights(NamedTuple):
    """The weights of what draws codes and codewords away from their own points.

    These are γ (towards the other half of the pair), μ (towards constant cross terms) and τ (of the
    codewords towards the origin).
    """

    correlation: float = 0.0
    cross_penalty: float = 0.1
    shrinkage: float = 0.0

    def penalty(self, epsilon: float) -> CrossPenalty:
        """Make the penalty beside a blended target, whose error counts 1 + γ times."""
        return CrossPenalty(self.cross_penalty / (1.0 + self.correlation), epsilon)


def blend_targets(points: Float32, other: Float32, correlation: float) -> Float32:
    """Compute the target (x + γ Dq) / (1 + γ) of one side, given the decoded other half of each pair."""
    if correlation == 0.0:
        return points
    mixed = (points + np.float32(correlation) * other) / np.float32(1.0 + correlation)
    return np.asarray(mixed, dtype=np.float32)


def encode(tables: CodewordTables, targets: Float32, penalty: CrossPenalty, workers: Executor) -> Codes:
    """Code new items: a beam search, then the code update from there.

    Raises
    ------
    NumericalError
        An item has no finite place in the common space.
    """

    def code(rows: slice) -> Codes:
        some = targets[rows]
        if not np.isfinite(some).all():
            row = rows.start + int(np.flatnonzero(~np.isfinite(some).all(axis=1))[0])
            raise NumericalError(
                f"expected a finite place in the common space for every item, got none for item {row}; "
                "scale its features as those of the training were"
            )
        return kernels.beam_search(tables, some, penalty, BEAM_WIDTH, MAX_SWEEPS)

    codes: Codes = workers.rows(code, len(targets), (len(tables.codewords),), np.uint8, _ROWS_AT_ONCE)
    return codes


def improve_codes(
    tables: CodewordTables, targets: Float32, penalty: CrossPenalty, codes: Codes, workers: Executor
) -> Codes:
    """Improve codes from where they are; no row gets worse."""

    def update(rows: slice) -> Codes:
        return kernels.icm(tables, targets[rows], penalty, codes[rows], MAX_SWEEPS)

    better: Codes = workers.rows(update, len(codes), (len(tables.codewords),), np.uint8, _ROWS_AT_ONCE)
    return better


def initial_side(
    points: Float32,
    n_codebooks: int,
    weights: QuantizationWeights,
    rng: np.random.Generator,
    workers: Executor,
) -> Side:
    """Initialise one side on its own by composite quantization; of many points, of a sample."""
    chosen = sample_rows(len(points), rng)
    some = np.asarray(points) if chosen is None else points[chosen]
    side = composite_quantization(some, n_codebooks, weights, rng, workers.local)
    if chosen is not None:
        return code_points(side.codewords, points, weights.penalty(side.epsilon), workers)
    return side._replace(codes=workers.hold(side.codes), decoded=workers.hold(side.decoded))


def composite_quantization(
    points: Float32,
    n_codebooks: int,
    weights: QuantizationWeights,
    rng: np.random.Generator,
    workers: Executor,
) -> Side:
    """Quantize points in memory by composite quantization, from residual k-means."""
    codewords = codebooks.residual_codebooks(points, n_codebooks, rng, workers)
    return refine(code_points(codewords, points, CrossPenalty(0.0, 0.0), workers), points, weights, workers)


class LastTables:
    """The tables of the codewords that were asked for last.

    Sides that share a dictionary are coded one after the other, and tables of 64 codebooks take seconds.
    Codewords are never written to: an update makes new ones.
    """

    def __init__(self) -> None:
        self._last: tuple[Float64, CodewordTables] | None = None

    def of(self, codewords: Float64) -> CodewordTables:
        """Make the tables of codewords (M, K, d), or give those made last for these very ones."""
        if self._last is None or self._last[0] is not codewords:
            self._last = None  # before the next, which may be 1 GB as well
            self._last = codewords, CodewordTables.of(codewords)
        return self._last[1]


def code_points(
    codewords: Float64,
    points: Float32,
    penalty: CrossPenalty,
    workers: Executor,
    known: LastTables | None = None,
) -> Side:
    """Code the points from nothing with these codewords."""
    codes = encode((known or LastTables()).of(codewords), points, penalty, workers)
    side = Side(codewords, codes, 0.0, codebooks.decode(codewords, codes, workers))
    return update_epsilon(side, workers)


def refine(
    side: Side, points: Float32, weights: QuantizationWeights, workers: Executor, n_rounds: int = 5
) -> Side:
    """Alternate codebooks, ε and codes of composite quantization, the other half left out."""
    alone = weights._replace(correlation=0.0)
    for _ in range(n_rounds):
        side = update_codewords(side, points, side.decoded, alone, workers)
        side = update_epsilon(side, workers)
        side = update_codes(side, points, side.decoded, alone, workers)
    return update_epsilon(side, workers)


def _blend_all_targets(points: Float32, other: Float32, correlation: float, workers: Executor) -> Float32:
    """Blend the targets of all rows."""
    if correlation == 0.0:
        return points
    targets: Float32 = workers.rows(
        lambda rows: blend_targets(points[rows], other[rows], correlation),
        len(points),
        points.shape[1:],
        np.float32,
    )
    return targets


def update_codewords(
    side: Side,
    points: Float32,
    other: Float32,
    weights: QuantizationWeights,
    workers: Executor,
    max_iter: int = 12,
) -> Side:
    """C: L-BFGS on the blended target."""
    targets = _blend_all_targets(points, other, weights.correlation, workers)
    codewords = codebooks.update_codebooks(
        side.codewords,
        side.codes,
        targets,
        weights.penalty(side.epsilon),
        weights.shrinkage / (1.0 + weights.correlation),  # beside a blended target, as the penalty
        workers,
        max_iter,
    )
    return side._replace(codewords=codewords, decoded=codebooks.decode(codewords, side.codes, workers))


def solve_codewords(
    side: Side, points: Float32, weights: QuantizationWeights, workers: Executor, max_iter: int
) -> Side:
    """C of a side alone, without a penalty: at once where items or codewords are few, else by L-BFGS."""
    codewords = codebooks.solve_codebooks(side.codes, points, weights.shrinkage)
    if codewords is None:
        return update_codewords(side, points, side.decoded, weights, workers, max_iter)
    return side._replace(codewords=codewords, decoded=codebooks.decode(codewords, side.codes, workers))


def update_epsilon(side: Side, workers: Executor) -> Side:
    """ε: the mean of the cross terms."""
    return side._replace(epsilon=codebooks.mean_cross(side.codewords, side.codes, workers))


def update_codes(
    side: Side, points: Float32, other: Float32, weights: QuantizationWeights, workers: Executor
) -> Side:
    """P: iterated conditional modes on the blended target."""
    targets = _blend_all_targets(points, other, weights.correlation, workers)
    codes = improve_codes(
        CodewordTables.of(side.codewords), targets, weights.penalty(side.epsilon), side.codes, workers
    )
    return side._replace(codes=codes, decoded=codebooks.decode(side.codewords, codes, workers))


def recode(side: Side, points: Float32, workers: Executor, known: LastTables | None = None) -> Side:
    """Code all points from nothing, as new items will be, and keep a code where the old one is better."""
    new = code_points(side.codewords, points, CrossPenalty(0.0, 0.0), workers, known)

    def improves(rows: slice) -> NDArray[np.bool_]:
        errors = (
            np.square(points[rows] - decoded[rows], dtype=np.float64).sum(axis=1)
            for decoded in (side.decoded, new.decoded)
        )
        old_error, new_error = errors
        return np.asarray(new_error < old_error)

    better = np.asarray(workers.rows(improves, len(points), (), np.bool_))[:, None]
    return side._replace(
        codes=np.where(better, new.codes, side.codes), decoded=np.where(better, new.decoded, side.decoded)
    )


def update_shared_codewords(
    sides: tuple[Side, ...], points: tuple[Float32, ...], weights: QuantizationWeights, workers: Executor
) -> tuple[Side, ...]:
    """C = D: L-BFGS on the joint objective of all sides."""
    codewords = codebooks.update_shared_codebooks(
        sides[0].codewords,
        tuple(side.codes for side in sides),
        points,
        tuple(CrossPenalty(weights.cross_penalty, side.epsilon) for side in sides),
        weights.correlation,
        len(sides) * weights.shrinkage,  # the codewords serve all sides, and count once for each
        workers,
    )
    return tuple(
        side._replace(codewords=codewords, decoded=codebooks.decode(codewords, side.codes, workers))
        for side in sides
    )


def encode_pairs(
    tables: tuple[CodewordTables, CodewordTables],
    points: tuple[Float32, Float32],
    epsilons: tuple[float, float],
    weights: QuantizationWeights,
    workers: Executor,
    max_rounds: int = 10,
) -> tuple[Codes, Codes]:
    """Code new pairs, both halves known: P and Q alternately on their blended targets.

    Starts from the codes that each half would get if the other could follow it freely: min over the other's
    point of |x' - a|² + |y' - b|² + γ|a - b|² is |x' - a|² + w|y' - a|² with w = γ / (1 + γ). From the codes
    of each half alone, the larger γ is, the sooner the alternation is stuck. Ends when no code changes.
    """
    penalties = tuple(weights.penalty(epsilon) for epsilon in epsilons)
    w = weights.correlation / (1.0 + weights.correlation)
    starts = [blend_targets(points[i], points[1 - i], w) for i in (0, 1)]
    codes = [encode(tables[i], starts[i], penalties[i], workers) for i in (0, 1)]
    moving = np.arange(len(points[0]))  # a pair whose codes stay for a round will keep them
    for _ in range(max_rounds if weights.correlation > 0 else 0):
        changed = np.zeros(len(moving), dtype=bool)
        for i in (0, 1):
            other = codebooks.decode(tables[1 - i].codewords, codes[1 - i][moving], workers)
            target = blend_targets(points[i][moving], other, weights.correlation)
            old = codes[i][moving]
            new = improve_codes(tables[i], target, penalties[i], old, workers)
            codes[i][moving] = new
            changed |= (new != old).any(axis=1)
        moving = moving[changed]
        if not len(moving):
            break
    return codes[0], codes[1]
