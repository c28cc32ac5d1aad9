"""Quantize canonical correlation with FAISS, each side by itself: CCA followed by PQ, OPQ, RQ or LSQ.

The simplest thing that anybody would do with the same bytes, and it is given the benefit of the doubt:
distances are exact ones to what the codes stand for, whatever they would cost at search. For product codes
that is the usual table sum; for the others it takes the cross term of the item's codewords besides.

Each is brought to one form: codebooks of whole vectors, of which an item is the sum of one codeword each. A
product quantizer's codewords are zero outside their part, an optimised one's are turned back. So one piece of
code decodes them all and measures distances to what the codes stand for. FAISS runs on one thread, because
its results may depend on the number of threads.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from crossbyte.arrays import Codes, Float32
from crossbyte.compute.executor import Workers, row_blocks
from crossbyte.compute.kernels import N_CODEWORDS
from crossbyte.errors import InvalidInput
from crossbyte.extras import import_extra
from crossbyte.lab.methods.additive import relative_error, table_distances
from crossbyte.lab.methods.cca import CanonicalMethod
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.model.quantization.codebooks import cross_terms, deal_dimensions, decode
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.validation import check_integer

_MOST_POINTS = 256 * N_CODEWORDS  # that a quantizer learns from: FAISS's own limit for k-means
_BEAM = 5  # FAISS's default, written down because results depend on it
Items = NDArray[np.void]
"""(n,) records: ``codes``, (M,) uint8, and ``cross``, float32, the cross term of the item's codewords"""


@dataclass(kw_only=True)
class CCAQuantized(CanonicalMethod):
    """Points of the canonical space, coded side by side; queries are compared uncoded.

    A document of which both halves are known is coded as one point blended of them, by the quantizer of the
    searched side: the blended point answers captions that were never indexed better than that of either half
    (see :class:`crossbyte.lab.methods.cca.CCA`), at no cost in bytes.

    ``n_bits`` is a multiple of 8, or less than 8 for one codebook of 2**n_bits codewords.
    """

    _quantizers: dict[Side, TrainedQuantizer] = field(init=False, repr=False, default_factory=dict)
    _training_items: dict[Side, Items] = field(init=False, repr=False, default_factory=dict)
    _errors: dict[Side, float] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse lengths that are neither whole bytes nor part of one, and a missing library."""
        super().__post_init__()
        if self.n_bits > 8 and self.n_bits % 8:
            raise InvalidInput(
                f"n_bits of {self.about.name} must be a multiple of 8, or less than 8; got {self.n_bits}"
            )
        require_faiss()

    @property
    def details(self) -> dict[str, Any]:
        """``n_components``, and each side's ``quantization_error``: lost squares over all squares."""
        return super().details | {"quantization_error": dict(self._errors)}

    @abstractmethod
    def _train(self, points: Float32) -> TrainedQuantizer:
        """Learn a quantizer from points (N, D) of one side."""

    def _learn_codes(self, points: dict[Side, Float32], workers: Workers) -> None:
        for side, own in points.items():
            quantizer = self._quantizers[side] = self._train(own)
            items = self._training_items[side] = _code_items(quantizer, own, workers)
            self._errors[side] = relative_error(own, decode(quantizer.codewords, items["codes"], workers))

    def training_items(self, side: Side) -> Items:
        """Items of one side of the training documents, coded from it alone."""
        self._require_fitted()
        return self._training_items[side]

    def side_items(self, side: Side, rows: Any) -> Items:
        """Items of documents of which only the searched side is known."""
        return self._encode(side, self.queries(side, rows))

    def pair_items(self, side: Side, images: Any, texts: Any) -> Items:
        """Items blended of both halves, coded as the searched side is."""
        return self._encode(side, self._blend_sides(images, texts))

    def _encode(self, side: Side, points: Float32) -> Items:
        with Workers(self.n_jobs) as workers:
            return _code_items(self._quantizers[side], points, workers)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Squared Euclidean distances (n, N) from points to what the items' codes stand for."""
        self._require_fitted()
        quantizer = Quantizer(self._quantizers[side].codewords, 0.0, 0.0, None)
        with Workers(self.n_jobs) as workers:
            distances = table_distances(quantizer, queries, np.ascontiguousarray(items["codes"]), workers)
        distances += items["cross"]
        return distances


def _about_faiss(quantizer: str, source: str, reconstructed: str = "") -> About:
    return About(
        key=f"cca-{quantizer.lower()}",
        name=f"CCA + {quantizer}",
        source=f"{source}; as in FAISS",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
        coding="quantization",
        distance="table",
        in_paper=False,
        reconstructed=reconstructed,
    )


@dataclass(kw_only=True)
class CCAPQ(CCAQuantized):
    """Product quantization: parts of the dimensions, dealt so that they vary alike, one byte each."""

    about: ClassVar[About] = _about_faiss(
        "PQ",
        "H. Jégou, M. Douze, C. Schmid: Product quantization for nearest neighbor search. PAMI 2011",
        "Dimensions are dealt to the parts by their variances; parts may differ by one dimension.",
    )

    def _train(self, points: Float32) -> TrainedQuantizer:
        return train_pq(points, self.n_bits, self.random_state)


@dataclass(kw_only=True)
class CCAOPQ(CCAQuantized):
    """Optimised product quantization: a learned rotation, then product quantization."""

    about: ClassVar[About] = _about_faiss(
        "OPQ",
        "T. Ge, K. He, Q. Ke, J. Sun: Optimized product quantization. CVPR 2013",
        "Where the parts do not divide the dimensions, the rotation leads into a few more.",
    )

    def _train(self, points: Float32) -> TrainedQuantizer:
        return train_opq(points, self.n_bits, self.random_state)


@dataclass(kw_only=True)
class CCARQ(CCAQuantized):
    """Residual quantization: each codebook codes what those before it leave over."""

    about: ClassVar[About] = _about_faiss(
        "RQ",
        "Y. Chen, T. Guan, C. Wang: Approximate nearest neighbor search by residual vector quantization. "
        "Sensors 2010",
    )

    def _train(self, points: Float32) -> TrainedQuantizer:
        return train_rq(points, self.n_bits, self.random_state)


@dataclass(kw_only=True)
class CCALSQ(CCAQuantized):
    """Local search quantization: additive codebooks, codes by iterated local search.

    Attributes
    ----------
    train_iters : int
        Training rounds; FAISS's default. Of 7,000 points, one takes about 3 seconds of one core per side at
        8 bytes, and 20 at 16.
    train_points : int
        Most points that it learns from, a random sample where there are more.
    """

    about: ClassVar[About] = _about_faiss(
        "LSQ",
        "J. Martinez, S. Zakhmi, H. Hoos, J. Little: LSQ++: lower running time and higher recall in "
        "multi-codebook quantization. ECCV 2018",
    )

    train_iters: int = 25
    train_points: int = 65_536

    def _train(self, points: Float32) -> TrainedQuantizer:
        limits = (
            check_integer(self.train_iters, "train_iters", 1),
            check_integer(self.train_points, "train_points", 1),
        )
        return train_lsq(points, self.n_bits, self.random_state, *limits)


@dataclass(frozen=True, eq=False)
class TrainedQuantizer:
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
    """Import the library, or say how to install it."""
    return import_extra("faiss", "the standard quantizers need")


def train_pq(points: Float32, n_bits: int, seed: int) -> TrainedQuantizer:
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
    faiss, sample = require_faiss(), _sample_points(points, n_bits, seed)
    parts = deal_dimensions(sample.var(axis=0), _n_codebooks(n_bits))
    quantizer = _make_product_quantizer(faiss, parts.size, len(parts), n_bits, seed)
    with threadpool_limits(1):
        quantizer.train(_spread_columns(sample, parts))
    codewords = _whole_codewords(faiss, quantizer, parts, points.shape[1])
    return TrainedQuantizer(codewords, lambda some: quantizer.compute_codes(_spread_columns(some, parts)))


def train_opq(points: Float32, n_bits: int, seed: int) -> TrainedQuantizer:
    """Product quantization after a learned rotation (OPQ); arguments as :func:`train_pq`.

    The rotation decides what the parts are, so dimensions stay in their order; where the parts do not divide
    them, it leads into a space with a few dimensions more.
    """
    faiss, sample = require_faiss(), _sample_points(points, n_bits, seed)
    d = points.shape[1]
    n_parts = min(_n_codebooks(n_bits), d)
    parts = np.arange(n_parts * -(-d // n_parts)).reshape(n_parts, -1)
    rotation = faiss.OPQMatrix(d, n_parts, parts.size)
    inner = rotation.pq = _make_product_quantizer(faiss, parts.size, n_parts, n_bits, seed)
    quantizer = _make_product_quantizer(faiss, parts.size, n_parts, n_bits, seed)
    with threadpool_limits(1):
        rotation.train(sample)
        quantizer.train(rotation.apply(sample))
    del inner  # FAISS only borrowed it
    turn = faiss.vector_to_array(rotation.A).reshape(parts.size, d)
    codewords = _whole_codewords(faiss, quantizer, parts, parts.size) @ turn
    return TrainedQuantizer(codewords, lambda some: quantizer.compute_codes(rotation.apply(some)))


def train_rq(points: Float32, n_bits: int, seed: int) -> TrainedQuantizer:
    """Residual quantization (RQ), codes by beam search; arguments as :func:`train_pq`."""
    faiss, sample = require_faiss(), _sample_points(points, n_bits, seed)
    quantizer = faiss.ResidualQuantizer(points.shape[1], _n_codebooks(n_bits), min(n_bits, 8))
    quantizer.max_beam_size = _BEAM
    _seed_clustering(quantizer, seed)
    return _train_additive(faiss, quantizer, sample)


def train_lsq(
    points: Float32, n_bits: int, seed: int, train_iters: int, train_points: int = _MOST_POINTS
) -> TrainedQuantizer:
    """Local search quantization (LSQ++), codes by iterated local search.

    Arguments as for :func:`train_pq`, and how many training rounds of how many points at most: a round's time
    grows with the points and with the square of the bytes.
    """
    faiss, sample = require_faiss(), _sample_points(points, n_bits, seed, train_points)
    quantizer = faiss.LocalSearchQuantizer(points.shape[1], _n_codebooks(n_bits), min(n_bits, 8))
    quantizer.random_seed = seed
    quantizer.train_iters = train_iters
    return _train_additive(faiss, quantizer, sample)


def _n_codebooks(n_bits: int) -> int:
    return -(-n_bits // 8)


def _sample_points(points: Float32, n_bits: int, seed: int, most: int = _MOST_POINTS) -> Float32:
    """Points to learn from: not too many, and at least one per codeword, by repeating them."""
    rows = np.arange(len(points))
    if len(rows) > most:
        rows = np.sort(np.random.default_rng(seed).choice(rows, most, replace=False))
    return np.ascontiguousarray(points[np.resize(rows, max(len(rows), 2 ** min(n_bits, 8)))])


def _train_additive(faiss: Any, quantizer: Any, sample: Float32) -> TrainedQuantizer:
    with threadpool_limits(1):
        quantizer.train(sample)
    codewords = faiss.vector_to_array(quantizer.codebooks)
    return TrainedQuantizer(
        _pad_codebooks(codewords.reshape(quantizer.M, -1, quantizer.d)), quantizer.compute_codes
    )


def _make_product_quantizer(faiss: Any, n_dims: int, n_parts: int, n_bits: int, seed: int) -> Any:
    quantizer = faiss.ProductQuantizer(n_dims, n_parts, min(n_bits, 8))
    _seed_clustering(quantizer, seed)
    return quantizer


def _seed_clustering(quantizer: Any, seed: int) -> None:
    """Seed the k-means inside, and let it take few points without printing a warning for each codebook."""
    quantizer.cp.seed = seed
    quantizer.cp.min_points_per_centroid = 1


def _spread_columns(points: Float32, parts: NDArray[np.intp]) -> Float32:
    """Columns part after part, with zeros where a part has none."""
    flat = parts.ravel()
    spread = np.zeros((len(points), len(flat)), dtype=np.float32)
    spread[:, flat >= 0] = points[:, flat[flat >= 0]]
    return spread


def _whole_codewords(faiss: Any, quantizer: Any, parts: NDArray[np.intp], n_dims: int) -> Float32:
    """The parts' codewords as vectors (M, 256, d), zero outside their part."""
    n_parts, width = parts.shape
    centres = faiss.vector_to_array(quantizer.centroids).reshape(n_parts, -1, width)
    codewords = np.zeros((n_parts, centres.shape[1], n_dims), dtype=np.float32)
    for part, dims in enumerate(parts):
        codewords[part][:, dims[dims >= 0]] = centres[part][:, dims >= 0]
    return _pad_codebooks(codewords)


def _pad_codebooks(codewords: Float32) -> Float32:
    """Codebooks of 256 codewords, the added ones zero."""
    filled = np.zeros((len(codewords), N_CODEWORDS, codewords.shape[2]), dtype=np.float32)
    filled[:, : codewords.shape[1]] = codewords
    return filled


def _code_items(quantizer: TrainedQuantizer, points: Float32, workers: Workers) -> Items:
    codes = quantizer.encode(points)
    items = np.empty(len(codes), dtype=[("codes", np.uint8, codes.shape[1:]), ("cross", np.float32)])
    items["codes"], items["cross"] = codes, cross_terms(quantizer.codewords, codes, workers)
    return items
