"""Bits of codes, Hamming distances, and what all hashing systems have in common.

A bit is the sign of a value; eight bits share a byte. Codes whose length is no multiple of eight end in
bits that are always 0, so they never count. Ties, which are many between short codes, are left as they are:
whoever ranks decides about them.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Codes, Float32, Float64, Raw
from crossbyte.blocks import row_blocks, steady_product
from crossbyte.data.features import CentredSparseRows, DenseRows, Rows
from crossbyte.data.preparation import Preparation
from crossbyte.errors import InvalidInput
from crossbyte.executors.threads import Workers
from crossbyte.methods.label_rows import check_labels
from crossbyte.methods.protocol import Method, Side
from crossbyte.validation import check_codes, check_features, check_pairs

__all__ = [
    "Hashing",
    "LinearBits",
    "LinearHashing",
    "SeparateHashing",
    "centred_rows",
    "hamming_distances",
    "pack_signs",
]

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
    left, right = _words(check_codes(queries, items.shape[1])), _words(items)
    distances = np.empty((len(left), len(right)), dtype=np.float32)
    size = max(1, _BLOCK_ENTRIES // max(1, len(right)))
    for rows in row_blocks(len(left), size):
        distances[rows] = sum(
            np.bitwise_count(left[rows, None, word] ^ right[None, :, word]).astype(np.uint16)
            for word in range(left.shape[1])
        )
    return distances


def _words(codes: Codes) -> NDArray[np.unsignedinteger[Any]]:
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

    A subclass learns (:meth:`_learn`) and gives the values whose signs are the bits (:meth:`_signs`);
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
            codes = pack_signs(self._signs("image", images)), pack_signs(self._signs("text", texts))
        self._training_codes = {"image": codes[0], "text": codes[1]}
        self._widths = {"image": images.shape[1], "text": texts.shape[1]}
        return self

    def queries(self, side: Side, rows: Any) -> Codes:
        """Packed codes (n, B) of features of one side."""
        self._check_fitted()
        raw = check_features(rows, f"{side}s", self._widths[side])
        with Workers(self.n_jobs):
            return pack_signs(self._signs(side, raw))

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
    def _signs(self, side: Side, rows: Raw) -> NDArray[np.floating[Any]]:
        """Values (n, n_bits) of which the signs are the bits, row by row."""

    def _taught_labels(self, labels: Any, n_rows: int) -> NDArray[np.bool_] | None:
        """Labels (n_rows, C) as booleans where they teach; None where pairs do, whatever was given."""
        return check_labels(labels, n_rows, self.about.name) if self.similarity == "labels" else None

    def _check_fitted(self) -> None:
        if not self._widths:
            raise self._unfitted()


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
        return steady_product(np.asarray(block, dtype=np.float64), self.weights)

    def of_raw(self, learned: Preparation) -> LinearBits:
        """Take functions of scaled and centred rows to the same functions of raw rows."""
        weights = np.ascontiguousarray(self.weights * learned.scale)
        return LinearBits(weights, self.offsets - learned.mean @ self.weights)


@dataclass(kw_only=True)
class LinearHashing(SeparateHashing):
    """Separate codes by one linear function per bit and side, learned from centred features.

    A subclass gives the functions (:meth:`_functions`). Sparse features stay sparse.
    """

    _bits: dict[Side, LinearBits] = field(init=False, repr=False, default_factory=dict)

    @abstractmethod
    def _functions(
        self, images: Rows, texts: Rows, labels: NDArray[np.bool_] | None, workers: Workers
    ) -> tuple[LinearBits, LinearBits]:
        """Functions of the centred images (N, d_I) and texts (N, d_T); no labels where pairs teach."""

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        known = self._taught_labels(labels, images.shape[0])
        with Workers(self.n_jobs) as workers:
            learned = (
                Preparation.fit(images, None, "images", workers),
                Preparation.fit(texts, None, "texts", workers),
            )
            rows = centred_rows(images, learned[0]), centred_rows(texts, learned[1])
            found = self._functions(*rows, known, workers)
        self._bits = {"image": found[0].of_raw(learned[0]), "text": found[1].of_raw(learned[1])}

    def _signs(self, side: Side, rows: Raw) -> Float64:
        return self._bits[side].values(rows)


def centred_rows(raw: Any, learned: Preparation) -> Rows:
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
