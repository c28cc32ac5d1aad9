"""Regress onto codes: kernel features of anchors, ridge, boosting of pairs, and logistic regression.

Anchors are k-means centres, the kernel is Gaussian, and its width is the mean squared distance between
training rows. No matrix of all training rows against all of them is ever formed.

Kernel logistic regression serves many bits at once. For one bit with targets h = ±1, on kernel features φ of
k anchors whose own kernel is K::

    min over w, b:  Σ_i log(1 + exp(-h_i (φ_i w + b)))  +  penalty · w'Kw

It is solved in other coordinates, shared by all bits, in which the Hessian of the first step is the unit
matrix, so that L-BFGS needs few steps: with K = LL' and centred features, the eigenvectors of
``L⁻¹ φ'φ L'⁻¹`` make both terms diagonal, and each coordinate is divided by the root of its curvature. The
intercept b is not penalised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import linalg, optimize

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers, deterministic_product, row_blocks, sample_rows
from crossbyte.data.preparation import DenseRows, PreparedRows
from crossbyte.lab.methods.dense_preparation import CentredPreparation
from crossbyte.lab.methods.hashing import LinearBits
from crossbyte.lab.methods.labels import SignedPairs
from crossbyte.lab.methods.neighbours import row_products
from crossbyte.model.quantization.codebooks import kmeans
from crossbyte.model.space.cca import add_ridge, project_rows


@dataclass(frozen=True, eq=False)
class AnchorFeatures:
    """What was learned about one side.

    Attributes
    ----------
    preparation : CentredPreparation
        Applied to rows before distances are taken.
    anchors : (k, d) float64
        k-means centres of the prepared training rows.
    width : float
        Mean squared distance between two training rows; 1 if all are equal.
    """

    preparation: CentredPreparation
    anchors: Float64
    width: float

    @classmethod
    def fit(
        cls, rows: Raw, n_anchors: int, rng: np.random.Generator, workers: Workers, *, unit: bool, name: str
    ) -> AnchorFeatures:
        """Learn from (n, d) training rows, dense or sparse; at most n anchors are made.

        Parameters
        ----------
        rows : (n, d) array or CSR matrix
            Validated features.
        n_anchors : int
            How many centres.
        rng : numpy.random.Generator
            Chooses where k-means starts, and which rows it sees where they are very many.
        workers : Workers
            Threads of k-means; the result does not depend on them.
        unit : bool
            Whether rows are brought to unit length after centring.
        name : str
            What messages call the rows.
        """
        preparation = CentredPreparation.fit(rows, unit=unit, name=name, n_jobs=workers.n_jobs)
        chosen = sample_rows(rows.shape[0], rng)
        points = preparation.apply(rows if chosen is None else rows[chosen])
        anchors = kmeans(points.astype(np.float32), min(n_anchors, len(points)), rng, workers)
        return cls(preparation, anchors, mean_squared_distance(points) or 1.0)

    def apply(self, rows: Raw) -> Float64:
        """Kernel features (n, k) of (n, d) rows; each row by itself alone."""
        features = np.empty((rows.shape[0], len(self.anchors)))
        for block in row_blocks(rows.shape[0]):
            features[block] = gaussian_kernel(self.preparation.apply(rows[block]), self.anchors, self.width)
        return features

    def gram(self) -> Float64:
        """The kernel (k, k) between the anchors themselves."""
        return gaussian_kernel(self.anchors, self.anchors, self.width)


def gaussian_kernel(rows: Float64, anchors: Float64, width: float) -> Float64:
    """``exp(-|x - a|² / width)`` for (n, d) rows and (k, d) anchors: (n, k)."""
    distances = squared_distances(rows, anchors)
    distances /= -width
    return np.exp(distances, out=distances)


def squared_distances(rows: Float64, anchors: Float64) -> Float64:
    """``|x - a|²`` for (n, d) rows and (k, d) anchors: (n, k); each row by itself alone."""
    distances = deterministic_product(rows, np.ascontiguousarray(anchors.T))
    distances *= -2.0
    distances += np.einsum("nd,nd->n", rows, rows)[:, None]
    distances += np.einsum("kd,kd->k", anchors, anchors)
    return np.maximum(distances, 0.0, out=distances)  # rounding


def mean_squared_distance(rows: Float64) -> float:
    """Mean of ``|x_i - x_j|²`` over all i and j, equal ones included: ``2 mean |x - mean(x)|²``."""
    return float(2.0 * np.square(rows - rows.mean(axis=0)).sum() / len(rows))


def fit_ridge(rows: PreparedRows, values: Float64, ridge: float, workers: Workers) -> Float64:
    """W = (X'X + r I)⁻¹ X'V, (d, c), of centred rows X (N, d) and values V (N, c).

    The ridge r is in units of the mean variance. Where there are fewer rows than dimensions, their products
    are the smaller matrix: W = X'(XX' + r I)⁻¹ V.
    """
    n, d = rows.shape
    if n < d:
        products = add_ridge(row_products(rows, workers), ridge * n / d)
        return rows.cross(np.linalg.solve(products, values)).T

    def sums(block: slice) -> tuple[Float64, Float64]:
        return rows[block].gram(), rows[block].cross(values[block])

    gram, cross = workers.total(sums, n)
    return np.linalg.solve(add_ridge(gram, ridge), cross.T)


def fit_regression_bits(rows: PreparedRows, values: Float64, ridge: float, workers: Workers) -> LinearBits:
    """Functions of centred rows (N, d) nearest to values (N, c); bits are cut at the values' means."""
    return LinearBits(fit_ridge(rows, values, ridge, workers), np.zeros(values.shape[1]))


def cut_at_medians(bits: LinearBits, rows: PreparedRows, workers: Workers) -> LinearBits:
    """The same functions, cut at their medians over the training rows: every bit halves these."""
    medians = np.median(project_rows(rows, bits.weights, workers).astype(np.float64), axis=0)
    return LinearBits(bits.weights, -medians)


@dataclass(frozen=True, eq=False)
class KernelBits:
    """Bits by regression from kernels on anchors.

    Attributes
    ----------
    features : AnchorFeatures
        Rows of one side.
    bits : LinearBits
        Functions of these features.
    """

    features: AnchorFeatures
    bits: LinearBits

    @classmethod
    def fit(
        cls, features: AnchorFeatures, rows: Raw, values: Float64, ridge: float, workers: Workers
    ) -> KernelBits:
        """Regress values (N, c) on the kernel features of rows (N, d); bits are cut at the values' means."""
        inputs = features.apply(rows)
        mean = inputs.mean(axis=0)
        weights = fit_ridge(DenseRows((inputs - mean).astype(np.float32)), values, ridge, workers)
        return cls(features, LinearBits(weights, -mean @ weights))

    def values(self, rows: Raw) -> Float64:
        """Values (n, c) of rows, dense or sparse, each by itself alone."""
        return self.bits.values(self.features.apply(rows))


_SURE = 1.0 - 1e-6  # agreement that is still short of infinite weight


class HashPair(NamedTuple):
    """One pair of hash functions: sign(p'x + a) and sign(q'y + b)."""

    p: Float64
    a: float
    q: Float64
    b: float


class PairedRows(NamedTuple):
    """The rows that occur in pairs, and where each pair finds its own among them."""

    images: Float64  # (n_I, d_I)
    texts: PreparedRows  # (n_T, d_T)
    pairs: SignedPairs


def take_paired_rows(images: PreparedRows, texts: PreparedRows, pairs: SignedPairs) -> PairedRows:
    """Take the rows (N, d_I) and (N, d_T) that occur in pairs, each once; images dense, as float64."""
    left, at_left = np.unique(pairs.left, return_inverse=True)
    right, at_right = np.unique(pairs.right, return_inverse=True)
    dense = images[left].dense().astype(np.float64)
    return PairedRows(dense, texts[right], SignedPairs(at_left, at_right, pairs.signs))


def uniform_weights(pairs: SignedPairs) -> Float64:
    """Weights (P,) of sum 1 before the first bit."""
    return np.full(len(pairs.signs), 1.0 / len(pairs.signs))


def adaboost_step(agreement: float) -> float:
    """½ log((1 + r) / (1 - r)), after which a bit of agreement r agrees no better than chance."""
    return float(np.arctanh(np.clip(agreement, -_SURE, _SURE)))


def update_pair_weights(weights: Float64, agreeing: Float64, step: float) -> Float64:
    """Weights (P,) of sum 1, less for pairs that a bit has right (1) and more for those it has wrong (-1)."""
    weights = weights * np.exp(-step * agreeing)
    return weights / weights.sum()


_BITS_AT_ONCE = 8  # share one line search; few enough that no bit waits long for the others
_JITTER = 1e-8  # on the kernel of the anchors, whose diagonal is 1: two of them may coincide
_FLAT = 1e-3  # of the penalty; features with less variance than that could not change a decision


@dataclass(frozen=True, eq=False)
class LogisticBits:
    """What was learned: the log odds of each bit are affine in the kernel features.

    Attributes
    ----------
    weights : (k, c) float64
    intercepts : (c,) float64
    """

    weights: Float64
    intercepts: Float64

    @classmethod
    def fit(
        cls,
        features: Float64,
        gram: Float64,
        signs: Float64,
        workers: Workers,
        *,
        penalty: float = 0.01,
        max_iter: int = 200,
    ) -> LogisticBits:
        """Learn (n, c) bits of ±1 from (n, k) kernel features; ``gram`` (k, k) is the anchors' own kernel.

        A bit that is the same for all rows would drive its intercept to infinity; it is given the log odds of
        its frequency with one success and one failure added, and no weights.
        """
        mean = features.mean(axis=0)
        turn, shares = _whitening_coordinates(features - mean, gram, penalty)
        scale = 2.0 / np.sqrt(len(features))  # makes the curvature of the intercept 1 as well
        inputs = np.column_stack([(features - mean) @ turn, np.full(len(features), scale)])
        penalties = np.append(shares, 0.0)
        solution = np.zeros((len(penalties), signs.shape[1]))
        solution[-1] = smoothed_log_odds(signs) / scale
        mixed = np.flatnonzero(np.abs(signs.sum(axis=0)) < len(signs))
        groups = [mixed[start : start + _BITS_AT_ONCE] for start in range(0, len(mixed), _BITS_AT_ONCE)]
        found = workers.map(lambda bits: _minimise(inputs, signs[:, bits], penalties, max_iter), groups)
        for bits, values in zip(groups, found, strict=True):
            solution[:, bits] = values
        weights = np.ascontiguousarray(turn @ solution[:-1])
        return cls(weights, scale * solution[-1] - mean @ weights)

    def log_odds(self, features: Float64) -> Float64:
        """Log odds (n, c) of +1 against -1, from (n, k) kernel features; each row by itself alone."""
        return np.asarray(deterministic_product(features, self.weights) + self.intercepts)


def loss_and_gradient(
    solution: Float64, inputs: Float64, signs: Float64, penalties: Float64
) -> tuple[float, Float64]:
    """Give ``Σ log(1 + exp(-h z'x)) + Σ penalty z²``, summed over bits, and its gradient.

    Parameters
    ----------
    solution : (p, c) float64
        The coefficients z of each bit.
    inputs : (n, p) float64
    signs : (n, c) float64
        Targets h, ±1.
    penalties : (p,) float64
        Penalty of the square of each coefficient.
    """
    margins = signs * (inputs @ solution)
    small = np.exp(-np.abs(margins))
    loss = (np.log1p(small) - np.minimum(margins, 0.0)).sum()
    wrong = np.where(margins >= 0, small, 1.0) / (1.0 + small)  # probability of the other sign
    weighted = penalties[:, None] * solution
    gradient = 2.0 * weighted - inputs.T @ (signs * wrong)
    return float(loss + (weighted * solution).sum()), gradient


def _whitening_coordinates(centred: Float64, gram: Float64, penalty: float) -> tuple[Float64, Float64]:
    """Coefficients (k, p) that turn features into the inputs, and the penalty (p,) of each of them."""
    factor = linalg.cholesky(gram + _JITTER * np.eye(len(gram)), lower=True)
    half = linalg.solve_triangular(factor, centred.T @ centred, lower=True)
    whole = linalg.solve_triangular(factor, half.T, lower=True)
    variances, directions = linalg.eigh((whole + whole.T) / 2)
    keep = variances > _FLAT * penalty
    curvature = variances[keep] / 4 + 2 * penalty  # of the objective at 0, where every probability is 1/2
    turned = directions[:, keep] / np.sqrt(curvature)
    return linalg.solve_triangular(factor, turned, lower=True, trans="T"), penalty / curvature


def _minimise(inputs: Float64, signs: Float64, penalties: Float64, max_iter: int) -> Float64:
    shape = inputs.shape[1], signs.shape[1]

    def objective(flat: Float64) -> tuple[float, Float64]:
        loss, gradient = loss_and_gradient(flat.reshape(shape), inputs, signs, penalties)
        return loss, gradient.ravel()

    found = optimize.minimize(
        objective,
        np.zeros(shape[0] * shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": max_iter, "maxcor": 10, "ftol": 1e-7, "gtol": 1e-3},
    )
    return np.asarray(found.x, dtype=np.float64).reshape(shape)


def smoothed_log_odds(signs: Float64) -> Float64:
    """Log odds (c,) of + among (n, c) signs; one of each more, so that none is infinite."""
    positive = (signs > 0).sum(axis=0)
    return np.log((positive + 1.0) / (len(signs) - positive + 1.0))
