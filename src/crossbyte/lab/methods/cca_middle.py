"""Code each document once, by the middle of the canonical points of its halves: CCA followed by RQ.

It is the simplest rival of one code per document, and given the benefit of the doubt: its codewords are
learned from the very middles that they code, by the survivors of a beam, and distances are exact ones to
what the codes stand for. It needs no FAISS.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from crossbyte.arrays import Codes, Float32
from crossbyte.calibration.baselines import learn_residual_quantizer
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.lab.methods.additive import relative_error
from crossbyte.lab.methods.cca import CanonicalMethod, blend_points, squared_distances
from crossbyte.lab.methods.method import INTRA_DOCUMENT, About, Side
from crossbyte.model.params import LIKELIHOOD_DIMS
from crossbyte.model.quantization.quantizer import Quantizer


@dataclass(kw_only=True)
class CCAMiddleRQ(CanonicalMethod):
    """One residual code of the middle of both halves' canonical points; it answers either task.

    A document of which a single half is known is coded by that half's point, with the same codewords.

    Attributes
    ----------
    n_components : int or None
        Dimensions of the space, as many as ``CMCQ()`` has by default; None for ``n_bits``, in which
        it finds less.
    """

    about: ClassVar[About] = About(
        key="cca-middle-rq",
        name="CCA + RQ of the middle",
        source="Y. Chen, T. Guan, C. Wang: Approximate nearest neighbor search by residual vector "
        "quantization. Sensors 2010",
        relations=(INTRA_DOCUMENT,),
        codes="unified",
        coding="quantization",
        distance="table",
        in_paper=False,
        reconstructed="It codes one modality; here the middle of both halves. Codewords are learned from the "
        "survivors of a beam, as FAISS learns them.",
        bit_step=8,
    )

    n_components: int | None = LIKELIHOOD_DIMS

    _quantizer: Quantizer = field(init=False, repr=False)
    _training_codes: Codes = field(init=False, repr=False)
    _error: float = field(init=False, repr=False, default=0.0)

    @property
    def details(self) -> dict[str, Any]:
        """``n_components``, and the ``quantization_error`` of documents: lost squares over all squares."""
        return super().details | {"quantization_error": {"document": self._error}}

    def _learn_codes(self, points: dict[Side, Float32], workers: Workers) -> None:
        rng = np.random.default_rng(self.random_state)
        middles = blend_points(points["image"], points["text"])
        chosen = sample_rows(len(middles), rng)
        sample = middles if chosen is None else middles[chosen]
        self._quantizer = learn_residual_quantizer(sample, self.n_bits // 8, rng, workers)
        self._training_codes = self._quantizer.encode(middles, workers)
        self._error = relative_error(middles, self._quantizer.decode(self._training_codes, workers))

    def training_items(self, side: Side) -> Codes:
        """Codes (N, M) of the training documents; the same for either ``side``."""
        self._require_fitted()
        return self._training_codes

    def side_items(self, side: Side, rows: Any) -> Codes:
        """Codes (n, M) of documents of which only the searched side is known."""
        return self._encode(self.queries(side, rows))

    def pair_items(self, side: Side, images: Any, texts: Any) -> Codes:
        """Codes (n, M) of the middles of both halves; the same for either ``side``."""
        return self._encode(self._blend_sides(images, texts))

    def _encode(self, points: Float32) -> Codes:
        with Workers(self.n_jobs) as workers:
            return self._quantizer.encode(points, workers)

    def distances(self, side: Side, queries: Any, items: Any) -> Float32:
        """Squared Euclidean distances (n, N) from points to what the codes stand for."""
        self._require_fitted()
        with Workers(self.n_jobs) as workers:
            return squared_distances(queries, self._quantizer.decode(items, workers), workers)
