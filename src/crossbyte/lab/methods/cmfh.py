"""Hash by collective matrix factorization (CMFH: Ding, Guo and Zhou, CVPR 2014)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import linalg

from crossbyte.arrays import Float64, Raw
from crossbyte.compute.executor import Workers, deterministic_product
from crossbyte.data.preparation import MAX_GRAM_DIMS
from crossbyte.errors import InvalidInput, NumericalError
from crossbyte.lab.methods.dense_preparation import CentredPreparation
from crossbyte.lab.methods.hashing import UnifiedHashing
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.validation import check_integer, check_number

_RANK_CUT = 1e-9  # of the mean variance; far below what shrinkage leaves of a direction
Both = tuple[Float64, Float64]  # images, texts


@dataclass(kw_only=True)
class CMFH(UnifiedHashing):
    """Both sides of a document as products with one latent row, whose signs are the code.

    ``α |X - V U₁|² + (1 - α) |Y - V U₂|² + μ (|V - X P₁|² + |V - Y P₂|²) + γ (|V|² + |U|² + |P|²)`` is
    minimised by closed forms in turn. A document is coded by the sign of its latent row, in which both
    halves meet; a query, or a document known by one half, by the sign of that half's projection.

    Attributes
    ----------
    image_share : float
        α.
    projection_weight : float
        μ.
    shrinkage : float
        γ.
    max_iter : int
        Rounds; it ends before when a round lowers the objective by less than a millionth.

    Notes
    -----
    Features are centred with the training means and not scaled: unit length costs accuracy here. An optimal
    V is linear in the rows of the pair, so the alternation runs on their products alone, the mean of V that
    the paper takes off is zero, and new pairs are coded exactly as training pairs are. Of a random start the
    latent rows alone are taken, and U and P updated first: random positive U and P, as in the authors' code,
    would begin with bits that are all alike.
    """

    about: ClassVar[About] = About(
        key="cmfh",
        name="CMFH",
        source="Ding, Guo and Zhou, CVPR 2014",
        relations=(INTRA_DOCUMENT,),
        codes="unified",
        coding="hash",
        distance="hamming",
        reconstructed="the random start; when to stop",
    )

    image_share: float = 0.5
    projection_weight: float = 100.0
    shrinkage: float = 0.01
    max_iter: int = 60

    _centrings: dict[Side, CentredPreparation] = field(init=False, repr=False, default_factory=dict)
    _projections: dict[Side, Float64] = field(init=False, repr=False, default_factory=dict)
    _maps: dict[Side, Float64] = field(init=False, repr=False, default_factory=dict)
    _objectives: list[float] = field(init=False, repr=False, default_factory=list)

    def __post_init__(self) -> None:
        """Refuse weights without a minimum."""
        super().__post_init__()
        check_number(self.image_share, "image_share", 0.0, 1.0 - 1e-9, open_low=True)
        check_number(self.projection_weight, "projection_weight", 0.0, open_low=True)
        check_number(self.shrinkage, "shrinkage", 0.0, open_low=True)
        check_integer(self.max_iter, "max_iter", 1)

    @property
    def details(self) -> dict[str, Any]:
        """Rounds of the fit, and the objective at its end."""
        return (
            {"rounds": len(self._objectives), "objective": self._objectives[-1]} if self._objectives else {}
        )

    def _learn(self, images: Raw, texts: Raw, workers: Workers) -> None:
        centrings = CentredPreparation.fit(images, name="images"), CentredPreparation.fit(texts, name="texts")
        self._centrings = {"image": centrings[0], "text": centrings[1]}
        products = _sum_products(images, texts, centrings, workers)
        factors = self._alternate(products)
        if not np.isfinite(factors.W).all():
            raise NumericalError("CMFH: the factors are not finite; scale the features or raise shrinkage")
        self._projections = {"image": factors.P[0], "text": factors.P[1]}
        parts = (np.ascontiguousarray(factors.W[side]) for side in products.sides)
        self._maps = {"image": next(parts), "text": next(parts)}

    def _alternate(self, products: Products) -> Factors:
        weights = Weights(self.image_share, self.projection_weight, self.shrinkage)
        inverses = projection_inverses(products, weights)
        factors = _initial_factors(products, self.n_bits, np.random.default_rng(self.random_state))
        self._objectives = []
        for _ in range(self.max_iter):
            factors = update_bases(factors, products, weights)
            factors = update_projections(factors, products, inverses)
            factors = update_map(factors, products, weights)
            self._objectives.append(objective(factors, products, weights))
            if len(self._objectives) > 1 and _has_converged(*self._objectives[-2:]):
                break
        return update_projections(factors, products, inverses)

    def _bit_values(self, side: Side, rows: Raw, workers: Workers) -> Float64:
        return _project_centred(rows, self._centrings[side], self._projections[side], workers)

    def _pair_bit_values(self, images: Raw, texts: Raw, workers: Workers) -> Float64:
        parts = (
            _project_centred(rows, self._centrings[side], self._maps[side], workers)
            for side, rows in _pair_with_sides(images, texts)
        )
        return next(parts) + next(parts)


class Weights(NamedTuple):
    """The weights α, μ and γ of the objective."""

    image_share: float
    projection: float
    shrinkage: float

    @property
    def shares(self) -> tuple[float, float]:
        """α of the images, 1 - α of the texts."""
        return self.image_share, 1.0 - self.image_share


class Products(NamedTuple):
    """All that the updates need to know of the centred training rows Z = [X, Y]."""

    gram: Float64
    """(d, d), Z'Z"""
    n_images: int
    """d_I: where the texts begin"""

    @property
    def sides(self) -> tuple[slice, slice]:
        """The dimensions of images and of texts."""
        return slice(0, self.n_images), slice(self.n_images, len(self.gram))


class Factors(NamedTuple):
    """What is learned, in row form: X ≈ V U₁, Y ≈ V U₂, V ≈ X P₁ ≈ Y P₂, and V = Z W."""

    U: Both
    """(c, d_I) and (c, d_T) bases"""
    P: Both
    """(d_I, c) and (d_T, c) projections"""
    W: Float64
    """(d, c): the latent rows V are linear in the pair once they are optimal"""
    cross: Float64
    """(d, c), Z'V: all that U and P need to know of the rows"""


def update_map(factors: Factors, products: Products, weights: Weights) -> Factors:
    """V = Σ X_t (α_t U_t' + μ P_t) (Σ α_t U_t U_t' + (2μ + γ) I)⁻¹, kept as the matrix W of V = Z W."""
    _, mu, gamma = weights
    terms = list(zip(weights.shares, factors.U, factors.P, strict=True))
    pull = np.vstack([share * U.T + mu * P for share, U, P in terms])
    inner = sum((share * U @ U.T for share, U, _ in terms), (2 * mu + gamma) * np.eye(pull.shape[1]))
    W = linalg.solve(inner, pull.T, assume_a="pos").T
    return factors._replace(W=W, cross=products.gram @ W)


def update_bases(factors: Factors, products: Products, weights: Weights) -> Factors:
    """U_t = (V'V + (γ/α_t) I)⁻¹ V'X_t."""
    inner = factors.W.T @ factors.cross  # V'V
    first, second = (
        linalg.solve(
            inner + weights.shrinkage / share * np.eye(len(inner)), factors.cross[side].T, assume_a="pos"
        )
        for share, side in zip(weights.shares, products.sides, strict=True)
    )
    return factors._replace(U=(first, second))


def update_projections(factors: Factors, products: Products, inverses: Both) -> Factors:
    """P_t = (X_t'X_t + (γ/μ) I)⁻¹ X_t'V, with the inverses of :func:`projection_inverses`."""
    first, second = (
        inverse @ factors.cross[side] for inverse, side in zip(inverses, products.sides, strict=True)
    )
    return factors._replace(P=(first, second))


def projection_inverses(products: Products, weights: Weights) -> Both:
    """(X_t'X_t + (γ/μ) I)⁻¹ of both sides: the same in every round."""
    ridge = weights.shrinkage / weights.projection
    blocks = (products.gram[side, side] for side in products.sides)
    first, second = (linalg.inv(block + ridge * np.eye(len(block))) for block in blocks)
    return first, second


def objective(factors: Factors, products: Products, weights: Weights) -> float:
    """Σ α_t |X_t - V U_t|² + μ |V - X_t P_t|² + γ (|U_t|² + |P_t|²) + γ |V|²."""
    _, mu, gamma = weights
    inner = factors.W.T @ factors.cross
    value = gamma * np.trace(inner)
    for share, side, U, P in zip(weights.shares, products.sides, factors.U, factors.P, strict=True):
        block = products.gram[side, side]
        value += share * (np.trace(block) - 2 * np.vdot(U, factors.cross[side].T) + np.vdot(U, inner @ U))
        value += mu * (np.trace(inner) - 2 * np.vdot(P, factors.cross[side]) + np.vdot(P, block @ P))
        value += gamma * (np.vdot(U, U) + np.vdot(P, P))
    return float(value)


def _pair_with_sides(images: Raw, texts: Raw) -> tuple[tuple[Side, Raw], tuple[Side, Raw]]:
    return ("image", images), ("text", texts)


def _initial_factors(products: Products, n_bits: int, rng: np.random.Generator) -> Factors:
    """Random latent rows, in so far as they are linear in the pairs; U and P are set by their first update.

    With G = L L', products Z'V = L N of the rows with Gaussian noise V are drawn as such, N Gaussian (d, c):
    no side and no dimension is preferred, whatever its scale. Then W = G⁻¹ L N.
    """
    gram, (left, right) = products.gram, products.sides
    ridge = _RANK_CUT * np.trace(gram) / len(gram)
    lower = linalg.cholesky(gram + ridge * np.eye(len(gram)), lower=True)
    noise = rng.standard_normal((len(gram), n_bits))
    W = linalg.solve_triangular(lower, noise, lower=True, trans="T")
    none = np.zeros((n_bits, len(gram)))
    return Factors((none[:, left], none[:, right]), (none[:, left].T, none[:, right].T), W, gram @ W)


def _has_converged(before: float, after: float) -> bool:
    return before - after <= 1e-6 * abs(before)


def _sum_products(
    images: Raw, texts: Raw, centrings: tuple[CentredPreparation, CentredPreparation], workers: Workers
) -> Products:
    width = sum(centring.n_dims for centring in centrings)
    if width > MAX_GRAM_DIMS:
        raise InvalidInput(
            f"CMFH needs all products of dimensions, and {width} of both sides are over {MAX_GRAM_DIMS}; "
            "reduce the features first"
        )

    def gram(rows: slice) -> Float64:
        pairs = np.hstack([centrings[0].apply(images[rows]), centrings[1].apply(texts[rows])])
        return pairs.T @ pairs

    return Products(workers.total(gram, images.shape[0]), centrings[0].n_dims)


def _project_centred(rows: Raw, centring: CentredPreparation, matrix: Float64, workers: Workers) -> Float64:
    """Centred rows times a matrix, block by block: the centred rows are never all there."""
    values = np.empty((rows.shape[0], matrix.shape[1]))

    def place(block: slice) -> None:
        values[block] = deterministic_product(centring.apply(rows[block]), matrix)

    workers.each(place, rows.shape[0])
    return values
