"""What a fit has learned, as one value: from raw features to points, codes and distances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Raw
from crossbyte.data.features import Rows
from crossbyte.data.preparation import Preparation
from crossbyte.executors.protocol import Executor
from crossbyte.mapping.linear import LinearSpace
from crossbyte.mapping.space import SparseSpace
from crossbyte.model.objective import ObjectiveRecord
from crossbyte.model.parameters import Settings
from crossbyte.model.quality.cohort import Cohort
from crossbyte.quantization import collaborative
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.validation import check_features, check_groups, check_rows_agree

__all__ = ["Learned"]


@dataclass(frozen=True, eq=False)
class Learned:
    """A fitted model without its constructor."""

    settings: Settings
    image_preparation: Preparation
    text_preparation: Preparation
    space: SparseSpace | LinearSpace
    image_quantizer: Quantizer
    text_quantizer: Quantizer
    image_codes: Codes
    text_codes: Codes
    history: list[ObjectiveRecord]

    @property
    def quantizers(self) -> dict[str, Quantizer]:
        """By side."""
        return {"image": self.image_quantizer, "text": self.text_quantizer}

    @cached_property
    def cohort(self) -> Cohort:
        """Training documents that tell how near strangers come to a query."""
        return Cohort.of(self.quantizers, {"image": self.image_codes, "text": self.text_codes})

    def check_pairs(self, images: Any, texts: Any, groups: Any) -> tuple[Raw, Raw, NDArray[np.intp]]:
        """Check new pairs that this model can code: both sides and their numbered groups."""
        images = check_features(images, "images", self.image_preparation.n_features, min_rows=1)
        texts = check_features(texts, "texts", self.text_preparation.n_features, min_rows=1)
        check_rows_agree(images, texts)
        return images, texts, check_groups(groups, images.shape[0])

    def transform_images(self, images: Any, workers: Executor) -> Float32:
        """Raw image features (n, d_I) to points (n, D)."""
        return self.space.transform_images(self.image_preparation.apply(images, workers), workers)

    def transform_texts(self, texts: Any, workers: Executor) -> Float32:
        """Raw text features (n, d_T) to points (n, D)."""
        return self.space.transform_texts(self.text_preparation.apply(texts, workers), workers)

    def encode_images(self, images: Any, workers: Executor) -> Codes:
        """Codes (n, M) of raw image features that come without their texts."""
        return self.image_quantizer.encode(self.transform_images(images, workers), workers)

    def encode_texts(self, texts: Any, workers: Executor) -> Codes:
        """Codes (n, M) of raw text features that come without their images."""
        return self.text_quantizer.encode(self.transform_texts(texts, workers), workers)

    def fold_in(self, images: Any, texts: Any, workers: Executor) -> tuple[Float32, Float32]:
        """Raw features of pairs to points, each half knowing the other."""
        rows: tuple[Rows, Rows] = (
            self.image_preparation.apply(images, workers),
            self.text_preparation.apply(texts, workers),
        )
        return self.space.fold_in(*rows, workers)

    def with_cross_term(self, cross_term: str, workers: Executor) -> Learned:
        """The same codes with their cross term stored, or taken for constant."""
        image, text = (
            quantizer.with_cross_term(cross_term, codes, workers)
            for quantizer, codes in (
                (self.image_quantizer, self.image_codes),
                (self.text_quantizer, self.text_codes),
            )
        )
        settings = self.settings._replace(cross_term=cross_term)
        return replace(self, settings=settings, image_quantizer=image, text_quantizer=text)

    def encode_pairs(self, images: Any, texts: Any, workers: Executor) -> tuple[Codes, Codes]:
        """Codes of both halves of new pairs."""
        quantizers = (self.image_quantizer, self.text_quantizer)
        return collaborative.encode_pairs(
            (quantizers[0].tables, quantizers[1].tables),
            self.fold_in(images, texts, workers),
            (quantizers[0].epsilon, quantizers[1].epsilon),
            self.settings.quantization_weights._replace(cross_penalty=quantizers[0].penalty.weight),
            workers,
        )
