"""CCA followed by quantizers of our own, for a table where FAISS is not installed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from crossbyte.arrays import Float32
from crossbyte.blocks import sample_rows
from crossbyte.executors.threads import Workers
from crossbyte.methods.cca import CCA
from crossbyte.methods.protocol import INTRA_DOCUMENT, About, Method, Side
from crossbyte.model.quality.peers import product_quantized, residual_quantized

__all__ = ["OWN_QUANTIZERS", "OwnQuantized"]


def _about(quantizer: str) -> About:
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
        return self._decoded(side, super().training_items(side))

    def side_items(self, side: Side, rows: Any) -> Float32:
        """What codes of documents stand for of which only the searched side is known."""
        return self._decoded(side, super().side_items(side, rows))

    def pair_items(self, side: Side, images: Any, texts: Any) -> Float32:
        """What codes of the points blended of both halves stand for."""
        return self._decoded(side, super().pair_items(side, images, texts))

    def _decoded(self, side: Side, points: Float32) -> Float32:
        rng = np.random.default_rng(self.random_state)
        with Workers(self.n_jobs) as workers:
            return type(self).quantize(self._learned_from[side], points, self.n_bits // 8, rng, workers)


@dataclass(kw_only=True)
class OwnPQ(OwnQuantized):
    """Product quantization."""

    about: ClassVar[About] = _about("PQ")
    quantize: ClassVar[Callable[..., Float32]] = staticmethod(product_quantized)


@dataclass(kw_only=True)
class OwnRQ(OwnQuantized):
    """Residual quantization."""

    about: ClassVar[About] = _about("RQ")
    quantize: ClassVar[Callable[..., Float32]] = staticmethod(residual_quantized)


OWN_QUANTIZERS: dict[str, type[Method]] = {"own-pq": OwnPQ, "own-rq": OwnRQ}
"""By key; they are not among the systems of the laboratory, which has FAISS's."""
