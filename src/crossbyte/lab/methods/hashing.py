"""Share what hashing systems have: packed bits, Hamming distances, rotations; and the floor, random codes.

A bit is the sign of a value; eight bits share a byte. Codes whose length is no multiple of eight end in
bits that are always 0, so they never count. Ties, which are many between short codes, are left as they are:
whoever ranks decides about them.

Values of fewer dimensions than bits are turned as if zeros filled them up to that many: of the rotation only
the rows that meet the values remain, and those are orthonormal.
"""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from crossbyte.arrays import Codes, Float32, Float64, Raw
from crossbyte.compute.executor import Workers, deterministic_product, row_blocks
from crossbyte.data.preparation import CentredSparseRows, DenseRows, Preparation, PreparedRows
from crossbyte.errors import InvalidInput
from crossbyte.lab.methods.dense_preparation import to_dense_rows
from crossbyte.lab.methods.labels import check_labels
from crossbyte.lab.methods.method import About, Method, Side
from crossbyte.validation import check_codes, check_features, check_pairs, check_rows_agree

_BLOCK_ENTRIES = 2**18  # distances computed at a time: their words stay in the cache


def pack_signs(values: Any) -> Codes:
    """Pack the signs of (n, c) values into (n, ceil(c / 8)) bytes; a bit is set where a value is above 0."""
    signs = np.asarray(values)
    if signs.ndim != 2 or signs.shape[1] == 0:
        raise InvalidInput(
            f"values: expected one row of at least one value per item, got shape {signs.shape}"
        )
    return np.packbits(signs > 0, axis=1)


def hamming_distances(queries: Any, items: Any) -> Float32:
    """Count the bits in which packed codes differ.

    Parameters
    ----------
    queries : (n, B) uint8
    items : (N, B) uint8

    Returns
    -------
    (n, N) float32
        Whole numbers, exactly.
    """
    items = np.asarray(items)
    items = check_codes(items, items.shape[-1] if items.ndim else 0)
    left, right = _view_as_integers(check_codes(queries, items.shape[1])), _view_as_integers(items)
    distances = np.empty((len(left), len(right)), dtype=np.float32)
    size = max(1, _BLOCK_ENTRIES // max(1, len(right)))
    for rows in row_blocks(len(left), size):
        distances[rows] = sum(
            np.bitwise_count(left[rows, None, word] ^ right[None, :, word]).astype(np.uint16)
            for word in range(left.shape[1])
        )
    return distances


def _view_as_integers(codes: Codes) -> NDArray[np.unsignedinteger[Any]]:
    """View (n, B) bytes as as few words as possible, filled up with zeros: (n, W) of 1, 2, 4 or 8 bytes."""
    n_bytes = codes.shape[1]
    size = next((size for size in (1, 2, 4) if n_bytes <= size), 8)
    filled = np.zeros((len(codes), -(-n_bytes // size) * size), dtype=np.uint8)
    filled[:, :n_bytes] = codes
    return filled.view(f"u{size}")


@dataclass(kw_only=True)
class Hashing(Method):
    """A system whose queries and items are packed bits, compared by the number of bits that differ."""

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Hamming distances (n, N) between packed queries and packed items; ties stay ties."""
        return hamming_distances(queries, items)


@dataclass(kw_only=True)
class SeparateHashing(Hashing):
    """A hashing system in which each half of a document has a code of its own, made from it alone.

    A subclass learns (:meth:`_learn`) and gives the values whose signs are the bits (:meth:`_bit_values`);
    queries, items and the codes of the training documents follow. Both are called with validated features
    and with BLAS held to one thread.
    """

    _training_codes: dict[Side, Codes] = field(init=False, repr=False, default_factory=dict)
    _widths: dict[Side, int] = field(init=False, repr=False, default_factory=dict)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs (and labels, where asked to), and keep the packed codes of both halves."""
        images, texts = check_pairs(images, texts)
        with Workers(self.n_jobs):
            self._learn(images, texts, labels)
            codes = pack_signs(self._bit_values("image", images)), pack_signs(self._bit_values("text", texts))
        self._training_codes = {"image": codes[0], "text": codes[1]}
        self._widths = {"image": images.shape[1], "text": texts.shape[1]}
        return self

    def queries(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of features of one side."""
        self._check_fitted()
        raw = check_features(rows, f"{side}s", self._widths[side])
        with Workers(self.n_jobs):
            return pack_signs(self._bit_values(side, raw))

    def training_items(self, side: Side) -> Codes:
        """Packed codes (N, B) of one side of the training documents."""
        self._check_fitted()
        return self._training_codes[side]

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of documents of which only the searched side is known: those of queries."""
        return self.queries(side, rows)

    @abstractmethod
    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        """Learn from validated pairs; labels come as the caller gave them."""

    @abstractmethod
    def _bit_values(self, side: Side, rows: Raw) -> NDArray[np.floating[Any]]:
        """Values (n, n_bits) of which the signs are the bits, row by row."""

    def _check_taught_labels(self, labels: Any, n_rows: int) -> NDArray[np.bool_] | None:
        """Labels (n_rows, C) as booleans where they teach; None where pairs do, whatever was given."""
        return check_labels(labels, n_rows, self.about.name) if self.similarity == "labels" else None

    def _check_fitted(self) -> None:
        if not self._widths:
            raise self._not_fitted_error()


@dataclass(frozen=True, eq=False)
class LinearBits:
    """One linear function per bit: ``rows @ weights + offsets``.

    Attributes
    ----------
    weights : (d, c) float64
    offsets : (c,) float64
    """

    weights: Float64
    offsets: Float64

    def values(self, rows: Raw) -> Float64:
        """Values (n, c) of rows, dense or sparse, each by itself alone."""
        values = np.empty((rows.shape[0], self.weights.shape[1]))
        for block in row_blocks(rows.shape[0]):
            values[block] = self._product(rows[block])
        return values + self.offsets

    def _product(self, block: Any) -> Float64:
        if hasattr(block, "toarray"):
            return np.asarray(block.astype(np.float64) @ self.weights)
        return deterministic_product(np.asarray(block, dtype=np.float64), self.weights)

    def of_raw(self, learned: Preparation) -> LinearBits:
        """Take functions of scaled and centred rows to the same functions of raw rows."""
        weights = np.ascontiguousarray(self.weights * learned.scale)
        return LinearBits(weights, self.offsets - learned.mean @ self.weights)


@dataclass(kw_only=True)
class LinearHashing(SeparateHashing):
    """Separate codes by one linear function per bit and side, learned from centred features.

    A subclass gives the functions (:meth:`_learn_functions`). Sparse features stay sparse.
    """

    _bits: dict[Side, LinearBits] = field(init=False, repr=False, default_factory=dict)

    @abstractmethod
    def _learn_functions(
        self, images: PreparedRows, texts: PreparedRows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        """Functions of the centred images (N, d_I) and texts (N, d_T); no labels where pairs teach."""

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        known = self._check_taught_labels(labels, images.shape[0])
        with Workers(self.n_jobs) as workers:
            learned = (
                Preparation.fit(images, None, "images", workers),
                Preparation.fit(texts, None, "texts", workers),
            )
            rows = centre_rows(images, learned[0]), centre_rows(texts, learned[1])
            found = self._learn_functions(*rows, known, workers)
        self._bits = {"image": found[0].of_raw(learned[0]), "text": found[1].of_raw(learned[1])}

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        return self._bits[side].values(rows)


def centre_rows(raw: Any, learned: Preparation) -> PreparedRows:
    """Rows (n, d) scaled and centred, not brought to unit length; sparse rows stay sparse."""
    if hasattr(raw, "toarray"):
        values = sparse.csr_matrix(
            ((raw.data * learned.scale).astype(np.float32), raw.indices, raw.indptr), shape=raw.shape
        )
        return CentredSparseRows(values, learned.mean, np.ones(raw.shape[0]))
    dense = np.empty(raw.shape, dtype=np.float32)
    for block in row_blocks(raw.shape[0]):
        dense[block] = np.asarray(raw[block], dtype=np.float64) * learned.scale - learned.mean
    return DenseRows(dense)


@dataclass(kw_only=True)
class UnifiedHashing(Hashing):
    """A hashing system with one code per document, whichever side is searched.

    A subclass learns (:meth:`_learn`; where labels teach, :meth:`_train`) and gives the values whose signs
    are the bits, of one half alone (:meth:`_bit_values`) or of both (:meth:`_pair_bit_values`). All are
    called with validated features, inside the workers that they get.
    """

    _training_codes: Codes | None = field(init=False, repr=False, default=None)
    _widths: dict[Side, int] = field(init=False, repr=False, default_factory=dict)

    def fit(self, images: Any, texts: Any, labels: Any = None) -> Self:
        """Learn from pairs (and labels, where asked to), and keep the packed codes of the documents."""
        images, texts = check_pairs(images, texts)
        with Workers(self.n_jobs) as workers:
            self._training_codes = pack_signs(self._train(images, texts, labels, workers))
        self._widths = {"image": images.shape[1], "text": texts.shape[1]}
        return self

    def queries(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of features of one side."""
        raw = self._check_rows(side, rows)
        with Workers(self.n_jobs) as workers:
            return pack_signs(self._bit_values(side, raw, workers))

    def training_items(self, side: Side) -> Codes:
        """Packed codes (N, B) of the training documents, the same for both sides."""
        if self._training_codes is None:
            raise self._not_fitted_error()
        return self._training_codes

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of documents of which only one side is known: those of queries."""
        return self.queries(side, rows)

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Packed codes (n, B) of documents of which both sides are known, the same for both sides."""
        images, texts = self._check_rows("image", images), self._check_rows("text", texts)
        check_rows_agree(images, texts)
        with Workers(self.n_jobs) as workers:
            return pack_signs(self._pair_bit_values(images, texts, workers))

    def _train(self, images: Raw, texts: Raw, labels: Any, workers: Workers) -> NDArray[np.floating[Any]]:
        """Learn, and give the values (N, n_bits) of which the signs are the training documents' bits.

        Labels come as the caller gave them; here they are not looked at.
        """
        self._learn(images, texts, workers)
        return self._pair_bit_values(images, texts, workers)

    def _learn(self, images: Raw, texts: Raw, workers: Workers) -> None:
        """Learn from validated pairs."""
        raise NotImplementedError

    @abstractmethod
    def _bit_values(self, side: Side, rows: Raw, workers: Workers) -> NDArray[np.floating[Any]]:
        """Values (n, n_bits) of which the signs are the bits of one half alone."""

    @abstractmethod
    def _pair_bit_values(self, images: Raw, texts: Raw, workers: Workers) -> NDArray[np.floating[Any]]:
        """Values (n, n_bits) of which the signs are the bits of both halves together."""

    def _check_rows(self, side: Side, rows: Any) -> Raw:
        if not self._widths:
            raise self._not_fitted_error()
        return check_features(rows, f"{side}s", self._widths[side])


def learn_rotation(values: Float64, n_bits: int, rng: np.random.Generator, max_iter: int = 50) -> Float64:
    """Find R with the least ‖B - V R‖² over signs B and rotations R, alternating from a random rotation.

    Parameters
    ----------
    values : (n, r) float64
        V, centred, of at most ``n_bits`` dimensions.
    n_bits : int
        c.
    rng : numpy Generator
        For the start.
    max_iter : int
        Rounds; fewer where no sign changes any more.

    Returns
    -------
    (r, c) float64
        R, with orthonormal rows.

    Notes
    -----
    R R' = I makes ‖V R‖ a constant, so both steps are exact and the error never rises.
    """
    if values.shape[1] > n_bits:
        raise InvalidInput(f"values: expected at most {n_bits} dimensions, got {values.shape[1]}")
    R = random_rotation(values.shape[1], n_bits, rng)
    B = sign_values(values @ R)
    for _ in range(max_iter):
        R = nearest_rotation(values.T @ B)
        before, B = B, sign_values(values @ R)
        if np.array_equal(B, before):
            break
    return R


def quantization_error(values: Float64, rotation: Float64) -> float:
    """‖B - V R‖² with the best signs B, over the number of bits of all rows."""
    turned = values @ rotation
    return float(np.mean((sign_values(turned) - turned) ** 2))


def sign_values(values: Float64) -> Float64:
    """1 where a value is above 0, else -1: what a packed bit says."""
    return np.where(values > 0, 1.0, -1.0)


def nearest_rotation(matrix: Float64) -> Float64:
    """The polar factor of (r, c): orthonormal rows, or columns where these are fewer, nearest to it."""
    left, _, right = linalg.svd(matrix, full_matrices=False)
    return left @ right


def random_rotation(n_dims: int, n_bits: int, rng: np.random.Generator) -> Float64:
    """A rotation (r, c) at random: orthonormal rows, or columns where these are fewer."""
    return nearest_rotation(rng.standard_normal((n_dims, n_bits)))


@dataclass(kw_only=True)
class RandomCodes(SeparateHashing):
    """Bits at random, decided by the seed, the side and the features of a row alone.

    The same row has the same code in any batch and at any time, as in any other system, and the two halves
    of a document have nothing in common.
    """

    about: ClassVar[About] = About(
        key="random",
        name="Random codes",
        source="no system: what codes score that know nothing",
        relations=(),
        codes="separate",
        coding="hash",
        distance="hamming",
        in_paper=False,
    )

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        """Nothing is learned."""

    def _bit_values(self, side: Side, rows: Raw) -> Float64:
        n_bytes = -(-self.n_bits // 8)
        salt = f"{self.random_state} {side} ".encode()
        drawn = bytearray()
        for block in row_blocks(rows.shape[0]):
            # a row is the same however it is stored, and 0 is -0
            for row in to_dense_rows(rows[block]) + 0.0:
                drawn += hashlib.shake_128(salt + row.tobytes()).digest(n_bytes)
        bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8).reshape(-1, n_bytes), axis=1)
        return bits[:, : self.n_bits].astype(np.float64) - 0.5
