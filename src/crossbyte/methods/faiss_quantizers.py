"""Standard quantizers, as FAISS has them, with its own defaults.

Each is brought to one form: codebooks of whole vectors, of which an item is the sum of one codeword each. A
product quantizer's codewords are zero outside their part, an optimised one's are turned back. So one piece of
code decodes them all and measures distances to what the codes stand for. FAISS runs on one thread, because
its results may depend on the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from crossbyte.arrays import Codes, Float32
from crossbyte.blocks import row_blocks
from crossbyte.extras import require
from crossbyte.kernels import WORDS
from crossbyte.quantization.codebooks import dealt_dimensions

__all__ = [
    "Trained",
    "local_search",
    "optimised_product",
    "product",
    "require_faiss",
    "residual",
]

_MOST_POINTS = 256 * WORDS  # that a quantizer learns from: FAISS's own limit for k-means
_BEAM = 5  # FAISS's default, written down because results depend on it


@dataclass(frozen=True, eq=False)
class Trained:
    """A quantizer that has learned.

    Attributes
    ----------
    codewords : (M, 256, d) float32
        Codebooks; with codes of fewer than 8 bits, the codewords that no code names are zero.
    code : callable
        FAISS's codes (n, M) uint8 of points (n, d).
    """

    codewords: Float32
    code: Callable[[Float32], Codes]

    def encode(self, points: Float32) -> Codes:
        """Codes (n, M) uint8 of points (n, d), in blocks, so that memory stays bounded."""
        codes = np.empty((len(points), len(self.codewords)), dtype=np.uint8)
        with threadpool_limits(1):
            for rows in row_blocks(len(points)):
                codes[rows] = self.code(np.ascontiguousarray(points[rows]))
        return codes


def require_faiss() -> Any:
    """The library, or the command that installs it."""
    return require("faiss", "the standard quantizers need")


def product(points: Float32, n_bits: int, seed: int) -> Trained:
    """Product quantization (PQ): one byte for each part of the dimensions.

    Parameters
    ----------
    points : (N, d) float32
        To learn from.
    n_bits : int
        A multiple of 8, or fewer than 8 for one codebook of 2**n_bits codewords.
    seed : int

    Notes
    -----
    Canonical dimensions come strongest first, and equal parts in that order would spend most bytes on next to
    nothing. So dimensions are dealt to the parts in turns, there and back, in the order of their variances;
    parts may differ by one dimension, filled with zeros. With more bytes than dimensions, a dimension is a
    part and the other bytes are not used.
    """
    faiss, sample = require_faiss(), _sample(points, n_bits, seed)
    parts = dealt_dimensions(sample.var(axis=0), _n_codebooks(n_bits))
    quantizer = _product_quantizer(faiss, parts.size, len(parts), n_bits, seed)
    with threadpool_limits(1):
        quantizer.train(_spread(sample, parts))
    codewords = _whole_words(faiss, quantizer, parts, points.shape[1])
    return Trained(codewords, lambda some: quantizer.compute_codes(_spread(some, parts)))


def optimised_product(points: Float32, n_bits: int, seed: int) -> Trained:
    """Product quantization after a learned rotation (OPQ); arguments as :func:`product`.

    The rotation decides what the parts are, so dimensions stay in their order; where the parts do not divide
    them, it leads into a space with a few dimensions more.
    """
    faiss, sample = require_faiss(), _sample(points, n_bits, seed)
    d = points.shape[1]
    n_parts = min(_n_codebooks(n_bits), d)
    parts = np.arange(n_parts * -(-d // n_parts)).reshape(n_parts, -1)
    rotation = faiss.OPQMatrix(d, n_parts, parts.size)
    inner = rotation.pq = _product_quantizer(faiss, parts.size, n_parts, n_bits, seed)
    quantizer = _product_quantizer(faiss, parts.size, n_parts, n_bits, seed)
    with threadpool_limits(1):
        rotation.train(sample)
        quantizer.train(rotation.apply(sample))
    del inner  # FAISS only borrowed it
    turn = faiss.vector_to_array(rotation.A).reshape(parts.size, d)
    codewords = _whole_words(faiss, quantizer, parts, parts.size) @ turn
    return Trained(codewords, lambda some: quantizer.compute_codes(rotation.apply(some)))


def residual(points: Float32, n_bits: int, seed: int) -> Trained:
    """Residual quantization (RQ), codes by beam search; arguments as :func:`product`."""
    faiss, sample = require_faiss(), _sample(points, n_bits, seed)
    quantizer = faiss.ResidualQuantizer(points.shape[1], _n_codebooks(n_bits), min(n_bits, 8))
    quantizer.max_beam_size = _BEAM
    _seed_clustering(quantizer, seed)
    return _additive(faiss, quantizer, sample)


def local_search(
    points: Float32, n_bits: int, seed: int, train_iters: int, train_points: int = _MOST_POINTS
) -> Trained:
    """Local search quantization (LSQ++), codes by iterated local search.

    Arguments as for :func:`product`, and how many training rounds of how many points at most: a round's time
    grows with the points and with the square of the bytes.
    """
    faiss, sample = require_faiss(), _sample(points, n_bits, seed, train_points)
    quantizer = faiss.LocalSearchQuantizer(points.shape[1], _n_codebooks(n_bits), min(n_bits, 8))
    quantizer.random_seed = seed
    quantizer.train_iters = train_iters
    return _additive(faiss, quantizer, sample)


def _n_codebooks(n_bits: int) -> int:
    return -(-n_bits // 8)


def _sample(points: Float32, n_bits: int, seed: int, most: int = _MOST_POINTS) -> Float32:
    """Points to learn from: not too many, and at least one per codeword, by repeating them."""
    rows = np.arange(len(points))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return np.ascontiguousarray(points[np.resize(rows, max(len(rows), 2 ** min(n_bits, 8)))])


def _additive(faiss: Any, quantizer: Any, sample: Float32) -> Trained:
    with threadpool_limits(1):
        quantizer.train(sample)
    codewords = faiss.vector_to_array(quantizer.codebooks)
    return Trained(_filled(codewords.reshape(quantizer.M, -1, quantizer.d)), quantizer.compute_codes)


def _product_quantizer(faiss: Any, n_dims: int, n_parts: int, n_bits: int, seed: int) -> Any:
    quantizer = faiss.ProductQuantizer(n_dims, n_parts, min(n_bits, 8))
    _seed_clustering(quantizer, seed)
    return quantizer


def _seed_clustering(quantizer: Any, seed: int) -> None:
    """Seed the k-means inside, and let it take few points without printing a warning for each codebook."""
    quantizer.cp.seed = seed
    quantizer.cp.min_points_per_centroid = 1


def _spread(points: Float32, parts: NDArray[np.intp]) -> Float32:
    """Columns part after part, with zeros where a part has none."""
    flat = parts.ravel()
    spread = np.zeros((len(points), len(flat)), dtype=np.float32)
    spread[:, flat >= 0] = points[:, flat[flat >= 0]]
    return spread


def _whole_words(faiss: Any, quantizer: Any, parts: NDArray[np.intp], n_dims: int) -> Float32:
    """The parts' codewords as vectors (M, 256, d), zero outside their part."""
    n_parts, width = parts.shape
    centres = faiss.vector_to_array(quantizer.centroids).reshape(n_parts, -1, width)
    codewords = np.zeros((n_parts, centres.shape[1], n_dims), dtype=np.float32)
    for part, dims in enumerate(parts):
        codewords[part][:, dims[dims >= 0]] = centres[part][:, dims >= 0]
    return _filled(codewords)


def _filled(codewords: Float32) -> Float32:
    """Codebooks of 256 codewords, the added ones zero."""
    filled = np.zeros((len(codewords), WORDS, codewords.shape[2]), dtype=np.float32)
    filled[:, : codewords.shape[1]] = codewords
    return filled
