"""Canonical correlation, then a standard quantizer for each side: PQ, OPQ, RQ and LSQ of FAISS.

The simplest thing that anybody would do with the same bytes, and it is given the benefit of the doubt:
distances are exact ones to what the codes stand for, whatever they would cost at search. For product codes
that is the usual table sum; for the others it takes the cross term of the item's codewords besides.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.errors import InvalidInput
from crossbyte.executors.threads import Workers
from crossbyte.methods import faiss_quantizers
from crossbyte.methods.canonical import Canonical
from crossbyte.methods.faiss_quantizers import Trained
from crossbyte.methods.protocol import INTRA_DOCUMENT, About, Side
from crossbyte.methods.tables import relative_error, table_distances
from crossbyte.quantization.codebooks import cross_terms, decode
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.validation import check_integer

__all__ = ["CCALSQ", "CCAOPQ", "CCAPQ", "CCARQ", "CCAQuantized"]

Items = NDArray[np.void]
"""(n,) records: ``codes``, (M,) uint8, and ``cross``, float32, the cross term of the item's codewords"""


@dataclass(kw_only=True)
class CCAQuantized(Canonical):
    """Points of the canonical space, coded side by side; queries are compared uncoded.

    A document of which both halves are known is coded as one point blended of them, by the quantizer of the
    searched side: the blended point answers captions that were never indexed better than that of either half
    (see :class:`crossbyte.methods.cca.CCA`), at no cost in bytes.

    ``n_bits`` is a multiple of 8, or less than 8 for one codebook of 2**n_bits codewords.
    """

    _quantizers: dict[Side, Trained] = field(init=False, repr=False, default_factory=dict)
    _training_items: dict[Side, Items] = field(init=False, repr=False, default_factory=dict)
    _errors: dict[Side, float] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        """Refuse lengths that are neither whole bytes nor part of one, and a missing library."""
        super().__post_init__()
        if self.n_bits > 8 and self.n_bits % 8:
            raise InvalidInput(
                f"n_bits of {self.about.name} must be a multiple of 8, or less than 8; got {self.n_bits}"
            )
        faiss_quantizers.require_faiss()

    @property
    def details(self) -> dict[str, Any]:
        """``n_components``, and each side's ``quantization_error``: lost squares over all squares."""
        return super().details | {"quantization_error": dict(self._errors)}

    @abstractmethod
    def _train(self, points: Float32) -> Trained:
        """Learn a quantizer from points (N, D) of one side."""

    def _learn_codes(self, points: dict[Side, Float32], workers: Workers) -> None:
        for side, own in points.items():
            quantizer = self._quantizers[side] = self._train(own)
            items = self._training_items[side] = _items(quantizer, own, workers)
            self._errors[side] = relative_error(own, decode(quantizer.codewords, items["codes"], workers))

    def training_items(self, side: Side) -> Items:
        """Items of one side of the training documents, coded from it alone."""
        self._fitted()
        return self._training_items[side]

    def side_items(self, side: Side, rows: Any) -> Items:
        """Items of documents of which only the searched side is known."""
        return self._coded(side, self.queries(side, rows))

    def pair_items(self, side: Side, images: Any, texts: Any) -> Items:
        """Items blended of both halves, coded as the searched side is."""
        return self._coded(side, self._blended(images, texts))

    def _coded(self, side: Side, points: Float32) -> Items:
        with Workers(self.n_jobs) as workers:
            return _items(self._quantizers[side], points, workers)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Squared Euclidean distances (n, N) from points to what the items' codes stand for."""
        self._fitted()
        quantizer = Quantizer(self._quantizers[side].codewords, 0.0, 0.0, None)
        with Workers(self.n_jobs) as workers:
            distances = table_distances(quantizer, queries, np.ascontiguousarray(items["codes"]), workers)
        distances += items["cross"]
        return distances


def _items(quantizer: Trained, points: Float32, workers: Workers) -> Items:
    codes = quantizer.encode(points)
    items = np.empty(len(codes), dtype=[("codes", np.uint8, codes.shape[1:]), ("cross", np.float32)])
    items["codes"], items["cross"] = codes, cross_terms(quantizer.codewords, codes, workers)
    return items


def _about(quantizer: str, source: str, reconstructed: str = "") -> About:
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

    about: ClassVar[About] = _about(
        "PQ",
        "H. Jégou, M. Douze, C. Schmid: Product quantization for nearest neighbor search. PAMI 2011",
        "Dimensions are dealt to the parts by their variances; parts may differ by one dimension.",
    )

    def _train(self, points: Float32) -> Trained:
        return faiss_quantizers.product(points, self.n_bits, self.random_state)


@dataclass(kw_only=True)
class CCAOPQ(CCAQuantized):
    """Optimised product quantization: a learned rotation, then product quantization."""

    about: ClassVar[About] = _about(
        "OPQ",
        "T. Ge, K. He, Q. Ke, J. Sun: Optimized product quantization. CVPR 2013",
        "Where the parts do not divide the dimensions, the rotation leads into a few more.",
    )

    def _train(self, points: Float32) -> Trained:
        return faiss_quantizers.optimised_product(points, self.n_bits, self.random_state)


@dataclass(kw_only=True)
class CCARQ(CCAQuantized):
    """Residual quantization: each codebook codes what those before it leave over."""

    about: ClassVar[About] = _about(
        "RQ",
        "Y. Chen, T. Guan, C. Wang: Approximate nearest neighbor search by residual vector quantization. "
        "Sensors 2010",
    )

    def _train(self, points: Float32) -> Trained:
        return faiss_quantizers.residual(points, self.n_bits, self.random_state)


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

    about: ClassVar[About] = _about(
        "LSQ",
        "J. Martinez, S. Zakhmi, H. Hoos, J. Little: LSQ++: lower running time and higher recall in "
        "multi-codebook quantization. ECCV 2018",
    )

    train_iters: int = 25
    train_points: int = 65_536

    def _train(self, points: Float32) -> Trained:
        limits = (
            check_integer(self.train_iters, "train_iters", 1),
            check_integer(self.train_points, "train_points", 1),
        )
        return faiss_quantizers.local_search(points, self.n_bits, self.random_state, *limits)
