"""Rank partners by simpler systems of the same bytes: canonical correlation, and an ordinary quantizer.

The quantizers are our own, so that the report needs no further library; the laboratory compares with FAISS.
Both get the best conditions: distances to what the codes stand for are exact, and residual codes are found
by the same beam search as crossbyte's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from crossbyte.arrays import Float32
from crossbyte.calibration.holdout import TrainingRows
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.compute.kernels import N_CODEWORDS
from crossbyte.model.params import Settings, canonical_settings
from crossbyte.model.quantization import codebooks
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.selection import PartnerRanks, point_ranks
from crossbyte.model.space.cca import LinearSpace, canonical_correlation


@dataclass(frozen=True, eq=False)
class Baselines:
    """A canonical space with training and held-out points of both sides.

    Attributes
    ----------
    train, held : dict of side to (n, D) float32
        The training points are a sample where there are many.
    """

    train: Mapping[str, Float32]
    held: Mapping[str, Float32]

    @classmethod
    def of(
        cls, settings: Settings, train: TrainingRows, held: tuple[Any, Any], rng: Any, workers: Workers
    ) -> Baselines:
        """Learn the space from training pairs, with the dimensions of the settings."""
        settings = canonical_settings(settings, train.texts.shape[1])
        preparations, rows = train.prepare(settings)
        space = canonical_correlation(
            *rows, settings.n_components, settings.ridge, workers, settings.text_ridge
        )
        chosen = sample_rows(rows[0].shape[0], rng)
        some = rows if chosen is None else (rows[0][chosen], rows[1][chosen])
        unseen = tuple(part.apply(side, workers) for part, side in zip(preparations, held, strict=True))
        return cls(_place_sides(space, some, workers), _place_sides(space, unseen, workers))

    def ranks(self, name: str, n_bytes: int, n_dims: int, rng: Any, workers: Workers) -> PartnerRanks:
        """Rank held-out partners in the first ``n_dims`` dimensions, by ``"cca_pq"`` or ``"cca_rq"``."""
        quantize = {"cca_pq": product_quantize, "cca_rq": residual_quantize}[name]
        held = {side: np.ascontiguousarray(points[:, :n_dims]) for side, points in self.held.items()}
        coded = {
            side: quantize(np.ascontiguousarray(points[:, :n_dims]), held[side], n_bytes, rng, workers)
            for side, points in self.train.items()
        }
        groups = np.arange(len(held["image"]))
        return PartnerRanks(
            point_ranks(held["image"], coded["text"], groups, workers),
            point_ranks(held["text"], coded["image"], groups, workers),
        )


def _place_sides(space: LinearSpace, rows: tuple[Any, ...], workers: Workers) -> dict[str, Float32]:
    return {
        "image": space.transform_images(rows[0], workers),
        "text": space.transform_texts(rows[1], workers),
    }


def product_quantize(
    train: Float32, items: Float32, n_bytes: int, rng: np.random.Generator, workers: Workers
) -> Float32:
    """Code items by product quantization and decode them; dimensions are dealt to vary alike."""
    decoded = np.empty_like(items)
    for part in codebooks.deal_dimensions(train.var(axis=0), n_bytes):
        dims = np.sort(part[part >= 0])
        codewords = codebooks.kmeans(np.ascontiguousarray(train[:, dims]), N_CODEWORDS, rng, workers)
        labels, _ = codebooks.nearest_centres(np.ascontiguousarray(items[:, dims]), codewords, workers)
        decoded[:, dims] = codewords[labels]
    return decoded


def residual_quantize(
    train: Float32, items: Float32, n_bytes: int, rng: np.random.Generator, workers: Workers
) -> Float32:
    """Code items by residual quantization and decode them."""
    codewords = codebooks.beam_codebooks(train, n_bytes, rng, workers).astype(np.float32)
    quantizer = Quantizer(codewords, 0.0, 0.0, None)
    return quantizer.decode(quantizer.encode(items, workers), workers)
