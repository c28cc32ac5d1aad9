"""Quantize by composite correlation (CCQ: Long, Cao, Wang and Yu, SIGIR 2016)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute.executor import Workers, deterministic_product
from crossbyte.compute.kernels import N_CODEWORDS, CrossPenalty
from crossbyte.data.preparation import principal_directions
from crossbyte.lab.methods.additive import relative_error
from crossbyte.lab.methods.dense_preparation import CentredPreparation
from crossbyte.lab.methods.hashing import nearest_rotation
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Method, Side
from crossbyte.model.quantization.codebooks import decode, kmeans, nearest_centres, update_codebooks
from crossbyte.model.quantization.quantizer import DistanceTable
from crossbyte.validation import check_integer, check_number, check_pairs, check_rows_agree

_FREE = CrossPenalty(0.0, 0.0)  # the norm of an item is stored, so nothing is asked of the cross terms


@dataclass(kw_only=True)
class CCQ(Method):
    """Both sides of a document, each turned into one space, as one sum of codewords.

    ``|X - B C R₁'|² + λ |Y - B C R₂'|²`` with orthonormal columns in R₁ and R₂ is minimised block by block.
    A query stays a point: the ridge regression of the learned sums on its side. It is compared with items by
    ``|q|² - 2 q·c + |c|²``, the middle by tables of q's products with the codewords, the last stored with
    each item as four bytes behind its code; so nothing is asked of the codewords' inner products.

    Attributes
    ----------
    text_weight : float
        λ.
    ridge : float
        τ, on the codewords and on the regressions.
    unit : bool
        Whether centred features are brought to unit length.
    max_iter : int
        Rounds; it ends before when the objective falls by less than 1e-4 of itself.

    Notes
    -----
    Orthonormal columns need as many dimensions as there are columns, so the space has min(d_I, d_T, bits)
    dimensions (10 on Wiki). Ours: the start (the strongest common directions and residual k-means, where the
    authors take the first dimensions and random points); greedy codes are kept only where they are better
    than those before, so that no step raises the objective; bits that do not fill a byte have a last
    codebook of fewer codewords.
    """

    about: ClassVar[About] = About(
        key="ccq",
        name="CCQ",
        source="Long, Cao, Wang and Yu, SIGIR 2016",
        relations=(INTRA_DOCUMENT,),
        codes="unified",
        coding="quantization",
        distance="table",
        reconstructed="the start; greedy codes only where better; at most min(d_I, d_T, bits) dimensions",
    )

    text_weight: float = 1.0
    ridge: float = 1e-3
    unit: bool = True
    max_iter: int = 30

    _centrings: dict[Side, CentredPreparation] = field(init=False, repr=False, default_factory=dict)
    _maps: dict[Side, Float64] = field(init=False, repr=False, default_factory=dict)
    _codewords: Float64 = field(init=False, repr=False)
    _training_codes: Codes = field(init=False, repr=False)
    _details: dict[str, Any] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse weights without a minimum."""
        super().__post_init__()
        check_number(self.text_weight, "text_weight", 0.0, open_low=True)
        check_number(self.ridge, "ridge", 0.0, open_low=True)
        check_integer(self.max_iter, "max_iter", 0)

    @property
    def details(self) -> Mapping[str, Any]:
        """Relative quantization error of each side's points, rounds, and dimensions of the space."""
        return dict(self._details)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs; labels are not looked at."""
        images, texts = check_pairs(images, texts)
        self._centrings = {
            "image": CentredPreparation.fit(images, unit=self.unit, name="images"),
            "text": CentredPreparation.fit(texts, unit=self.unit, name="texts"),
        }
        pairs = Pairs(self._centrings["image"].apply(images), self._centrings["text"].apply(texts))
        with Workers(self.n_jobs) as workers:
            state, n_rounds = self._alternate(pairs, workers)
            self._store_fit(state, pairs, workers)
        self._details["rounds"] = n_rounds
        return self

    @property
    def _codebook_sizes(self) -> list[int]:
        """Codewords of each codebook: 256, and 2 to the power of the bits that are left over."""
        whole, rest = divmod(self.n_bits, 8)
        return [N_CODEWORDS] * whole + [2**rest] * (rest > 0)

    @property
    def _weights(self) -> Weights:
        return Weights(self.text_weight, self.ridge)

    def _alternate(self, pairs: Pairs, workers: Workers) -> tuple[State, int]:
        rng, weights, sizes = np.random.default_rng(self.random_state), self._weights, self._codebook_sizes
        n_dims = min(pairs.images.shape[1], pairs.texts.shape[1], self.n_bits)
        state = initial_state(pairs, n_dims, sizes, self.text_weight, rng, workers)
        before = objective(state, pairs, weights, workers)
        for number in range(1, self.max_iter + 1):
            state = update_rotations(state, pairs, workers)
            targets = blend_targets(state.rotations, pairs, self.text_weight)
            state = update_codewords(state, targets, weights, workers)
            state = update_codes(state, targets, sizes, workers)
            after = objective(state, pairs, weights, workers)
            if before - after <= 1e-4 * before:
                return state, number
            before = after
        return state, self.max_iter

    def _store_fit(self, state: State, pairs: Pairs, workers: Workers) -> None:
        """Keep codewords and codes, and regressions in place of the rotations."""
        decoded = decode(state.codewords, state.codes, workers)
        first, second = (fit_regressor(rows, decoded, self.ridge) for rows in pairs)
        errors = [relative_error(rows @ R, decoded) for rows, R in zip(pairs, state.rotations, strict=True)]
        self._maps = {"image": first, "text": second}
        self._codewords, self._training_codes = state.codewords, state.codes
        self._details = {
            "quantization_error": {"image": errors[0], "text": errors[1]},
            "n_dims": decoded.shape[1],
        }

    def queries(self, side: Side, rows: Any) -> Float32:
        """Points (n, d) of features of one side; they are not quantized."""
        self._check_fitted()
        return deterministic_product(self._centrings[side].apply(rows), self._maps[side]).astype(np.float32)

    def training_items(self, side: Side) -> Codes:
        """Codes and norms (N, M + 4) of the training documents, the same for both sides."""
        self._check_fitted()
        return self._attach_norms(self._training_codes)

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Codes and norms (n, M + 4) of documents of which only one side is known."""
        return self._encode(self.queries(side, rows))

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes and norms (n, M + 4) of documents of which both sides are known, the same for both sides."""
        points = self.queries("image", images), self.queries("text", texts)
        check_rows_agree(*points)
        blend = (points[0] + self.text_weight * points[1]) / (1.0 + self.text_weight)
        return self._encode(blend.astype(np.float32))

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Squared distances (n, N) from points to what codes stand for; equal codes are equally far."""
        self._check_fitted()
        points, stored = np.asarray(queries, dtype=np.float32), np.asarray(items, dtype=np.uint8)
        codes, norms = stored[:, :-4], np.ascontiguousarray(stored[:, -4:]).view(np.float32)[:, 0]
        flat = self._codewords.reshape(-1, self._codewords.shape[2]).astype(np.float32)
        tables = -2 * deterministic_product(points, np.ascontiguousarray(flat.T))
        shaped = tables.reshape(len(points), -1, N_CODEWORDS)
        total = DistanceTable(shaped, _squared_norms(points).astype(np.float32)).distances(codes)
        total += norms
        return total

    def _encode(self, points: Float32) -> Codes:
        with Workers(self.n_jobs) as workers:
            return self._attach_norms(encode_greedily(self._codewords, points, self._codebook_sizes, workers))

    def _attach_norms(self, codes: Codes) -> Codes:
        """Codes (n, M), and behind each the squared length of what it stands for, as bytes of a float32."""
        with Workers(self.n_jobs) as workers:
            norms = _squared_norms(decode(self._codewords, codes, workers)).astype(np.float32)
        return np.hstack([codes, norms[:, None].view(np.uint8)])

    def _check_fitted(self) -> None:
        if not self._maps:
            raise self._not_fitted_error()


class Pairs(NamedTuple):
    """Prepared training rows."""

    images: Float64
    """(N, d_I), X"""
    texts: Float64
    """(N, d_T), Y"""


class Weights(NamedTuple):
    """The weight λ of the texts, and the ridge τ on the codewords."""

    text_weight: float = 1.0
    ridge: float = 1e-3


class State(NamedTuple):
    """What is learned, in row form: X ≈ (B C) R₁', Y ≈ (B C) R₂'."""

    rotations: tuple[Float64, Float64]
    """R₁ (d_I, d) and R₂ (d_T, d) with orthonormal columns"""
    codewords: Float64
    """(M, 256, d) codebooks C of both sides; where bits are left over, the last uses its first codewords"""
    codes: Codes
    """(N, M), B"""


def objective(state: State, pairs: Pairs, weights: Weights, workers: Workers) -> float:
    """|X - B C R₁'|² + λ |Y - B C R₂'|² + τ |C|², each error as |x|² - 2 x R·c + |c|²."""
    decoded = decode(state.codewords, state.codes, workers).astype(np.float64)
    images, texts = (
        np.vdot(rows, rows) - 2 * np.vdot(rows @ R, decoded) + np.vdot(decoded, decoded)
        for rows, R in zip(pairs, state.rotations, strict=True)
    )
    return float(
        images + weights.text_weight * texts + weights.ridge * np.vdot(state.codewords, state.codewords)
    )


def update_rotations(state: State, pairs: Pairs, workers: Workers) -> State:
    """R_t: the orthonormal factor of X_t' B C."""
    decoded = decode(state.codewords, state.codes, workers).astype(np.float64)
    first, second = (nearest_rotation(rows.T @ decoded) for rows in pairs)
    return state._replace(rotations=(first, second))


def update_codewords(
    state: State, targets: Float32, weights: Weights, workers: Workers, max_iter: int = 12
) -> State:
    """C: min Σ |t - B C|² + τ / (1 + λ) |C|² over the codewords, not worse than the start.

    The paper inverts the (256 M)² matrix of common use; the same minimum is approached here without it.
    """
    ridge = weights.ridge / (1.0 + weights.text_weight)
    codewords = update_codebooks(state.codewords, state.codes, targets, _FREE, ridge, workers, max_iter)
    return state._replace(codewords=codewords)


def update_codes(state: State, targets: Float32, sizes: list[int], workers: Workers) -> State:
    """B: greedy codes of the targets, where they are better than those that are there."""
    found = encode_greedily(state.codewords, targets, sizes, workers)
    old, new = (
        _squared_norms(targets - decode(state.codewords, codes, workers)) for codes in (state.codes, found)
    )
    return state._replace(codes=np.where((new < old)[:, None], found, state.codes))


def blend_targets(rotations: tuple[Float64, Float64], pairs: Pairs, text_weight: float) -> Float32:
    """Both halves as one target t = (x R₁ + λ y R₂) / (1 + λ) (n, d).

    Up to a constant, (1 + λ) |t - c|² is the error of c on both sides.
    """
    images, texts = (rows @ R for rows, R in zip(pairs, rotations, strict=True))
    return np.asarray((images + text_weight * texts) / (1.0 + text_weight), dtype=np.float32)


def encode_greedily(codewords: Float64, targets: Float32, sizes: list[int], workers: Workers) -> Codes:
    """Codes (n, M): in each codebook the codeword nearest to what the ones before leave over."""
    codes = np.empty((len(targets), len(codewords)), dtype=np.uint8)
    rest = targets.copy()
    for m, size in enumerate(sizes):
        labels, _ = nearest_centres(rest, codewords[m, :size], workers)
        codes[:, m] = labels
        rest -= codewords[m].astype(np.float32)[labels]
    return codes


def initial_state(
    pairs: Pairs,
    n_dims: int,
    sizes: list[int],
    text_weight: float,
    rng: np.random.Generator,
    workers: Workers,
) -> State:
    """Rotations along the strongest common directions of the sides, codewords by residual k-means."""
    rotations = _common_directions(pairs, n_dims)
    rest = blend_targets(rotations, pairs, text_weight)
    codewords = np.zeros((len(sizes), N_CODEWORDS, n_dims))
    codes = np.empty((len(rest), len(sizes)), dtype=np.uint8)
    for m, size in enumerate(sizes):
        codewords[m, :size] = kmeans(rest, size, rng, workers)
        codes[:, m], _ = nearest_centres(rest, codewords[m, :size], workers)
        rest -= codewords[m].astype(np.float32)[codes[:, m]]
    return State(rotations, codewords, codes)


def _common_directions(pairs: Pairs, n_dims: int) -> tuple[Float64, Float64]:
    """The first singular vectors of X'Y, filled up where its rank is lower."""
    product = pairs.images.T @ pairs.texts  # (d_I, d_T)
    found = principal_directions(lambda basis: product.T @ (product @ basis), product.shape[1], n_dims).T
    texts = np.zeros((product.shape[1], n_dims))
    texts[:, : found.shape[1]] = found
    return nearest_rotation(product @ texts), nearest_rotation(texts)


def fit_regressor(rows: Float64, points: NDArray[Any], ridge: float) -> Float64:
    """(X'X + τ I)⁻¹ X' (B C): the (d_t, d) map that takes new rows to where their codes should be."""
    gram = rows.T @ rows + ridge * np.eye(rows.shape[1])
    return np.ascontiguousarray(linalg.solve(gram, rows.T @ points, assume_a="pos"))


def _squared_norms(rows: NDArray[Any]) -> Float64:
    return np.einsum("nd,nd->n", rows, rows, dtype=np.float64)
