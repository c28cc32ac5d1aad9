"""Make systems as runs ask for them: their limits and needs, and quantizers where FAISS is missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np

from crossbyte.arrays import Float32
from crossbyte.calibration.baselines import has_words, product_quantize, residual_quantize
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.errors import InvalidInput
from crossbyte.lab.datasets.collection import to_sparse_if_thin
from crossbyte.lab.methods import registry
from crossbyte.lab.methods.cca import CCA
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Method, Side
from crossbyte.lab.results import Run


def _about_own(quantizer: str) -> About:
    return About(
        key=f"own-{quantizer.lower()}",
        name=f"CCA + {quantizer}",
        source="crossbyte's own, as in its quality report",
        relations=(INTRA_DOCUMENT,),
        codes="separate",
        coding="quantization",
        distance="table",
        in_paper=False,
        bit_step=8,
    )


@dataclass(kw_only=True)
class OwnQuantized(CCA):
    """Items are what codes of the points stand for; distances to them are exact."""

    quantize: ClassVar[Callable[..., Float32]]

    _learned_from: dict[Side, Float32] = field(init=False, repr=False, default_factory=dict)

    def _learn_codes(self, points: dict[Side, Float32], workers: Workers) -> None:
        super()._learn_codes(points, workers)
        chosen = sample_rows(len(points["image"]), np.random.default_rng(self.random_state))
        self._learned_from = {side: own if chosen is None else own[chosen] for side, own in points.items()}

    def training_items(self, side: Side) -> Float32:
        """What the codes of the training documents stand for."""
        return self._quantize(side, super().training_items(side))

    def side_items(self, side: Side, rows: Any) -> Float32:
        """What codes of documents stand for of which only the searched side is known."""
        return self._quantize(side, super().side_items(side, rows))

    def pair_items(self, side: Side, images: Any, texts: Any) -> Float32:
        """What codes of the points blended of both halves stand for."""
        return self._quantize(side, super().pair_items(side, images, texts))

    def _quantize(self, side: Side, points: Float32) -> Float32:
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            return type(self).quantize(self._learned_from[side], points, self.n_bits // 8, rng, workers)


@dataclass(kw_only=True)
class OwnPQ(OwnQuantized):
    """Product quantization."""

    about: ClassVar[About] = _about_own("PQ")
    quantize: ClassVar[Callable[..., Float32]] = staticmethod(product_quantize)


@dataclass(kw_only=True)
class OwnRQ(OwnQuantized):
    """Residual quantization."""

    about: ClassVar[About] = _about_own("RQ")
    quantize: ClassVar[Callable[..., Float32]] = staticmethod(residual_quantize)


OWN_QUANTIZERS: dict[str, type[Method]] = {"own-pq": OwnPQ, "own-rq": OwnRQ}
"""By key; they are not among the systems of the laboratory, which has FAISS's."""


KEYWORDS = "keywords"
"""Key of the system that compares words."""

MOST_BITS: Mapping[str, int] = MappingProxyType({"mlbe": 64})
"""Longest codes of systems whose time grows too fast; ``--full`` lifts it."""

_FULL: Mapping[str, Mapping[str, Any]] = MappingProxyType({"mlbe": {"max_documents": 10**9}})
"""Parameters that lift a system's own limits."""


def make_system(run: Run) -> Method:
    """Make the system of a run; it has learned nothing yet."""
    if run.method in OWN_QUANTIZERS:
        return OWN_QUANTIZERS[run.method](n_bits=run.bits, random_state=run.seed, **run.parameters)
    lifted = _FULL.get(run.method, {}) if run.full else {}
    return registry.make_method(
        run.method,
        run.bits,
        seed=run.seed,
        similarity=run.similarity,
        parameters={**lifted, **run.parameters},
        n_jobs=1,
    )


def needs_faiss(key: str) -> bool:
    """Whether a system is FAISS's."""
    return key in registry.GROUPS["quantizers"]


def compares_words(key: str) -> bool:
    """Whether a system compares the words of texts, and so can do nothing with other features."""
    return key == KEYWORDS


def are_words(texts: Any) -> bool:
    """Whether text features (n, d) are counts or weights of words: none negative, most of them zero."""
    return has_words(to_sparse_if_thin(texts))


def choose_similarity(key: str, asked: str | None, *, has_labels: bool) -> str:
    """Choose what a system is taught with: what was asked for if it knows that, else the first it can do.

    Raises
    ------
    InvalidInput
        It learns from labels alone, and there are none.
    """
    about = registry.about_method(key)
    usable = [each for each in about.similarities if has_labels or each != "labels"]
    if not usable:
        raise InvalidInput(f"{about.name} learns from labels, and these data have none; leave it out")
    return asked if asked in usable else usable[0]
