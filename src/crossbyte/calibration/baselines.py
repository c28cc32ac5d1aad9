"""Rank partners by simpler systems: canonical correlation with an ordinary quantizer, and keyword overlap.

The quantizers are our own, so that the report needs no further library; the laboratory compares with FAISS.
They get the best conditions: distances to what the codes stand for are exact, and residual codes are found
by the same beam search as crossbyte's own, which also trains their codewords, on the points that they code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Float32
from crossbyte.calibration.holdout import TrainingRows
from crossbyte.compute.executor import Workers, sample_rows
from crossbyte.compute.kernels import N_CODEWORDS
from crossbyte.model.params import Settings, canonical_settings
from crossbyte.model.partner_ranks import PartnerRanks, point_ranks
from crossbyte.model.quantization import codebooks
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.model.space.cca import LinearSpace, canonical_correlation, unit_rows


@dataclass(frozen=True, eq=False)
class Baselines:
    """A canonical space with training and held-out points of both sides.

    Attributes
    ----------
    train, held : dict of side to (n, D) float32
        The training points are a sample where there are many.
    other_texts : (n, D) float32
        Points of other texts about the held-out documents, or of their own where there is no other.
    """

    train: Mapping[str, Float32]
    held: Mapping[str, Float32]
    other_texts: Float32

    @classmethod
    def of(
        cls,
        settings: Settings,
        train: TrainingRows,
        held: tuple[Any, Any],
        other_texts: Any,
        rng: Any,
        workers: Workers,
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
        others = space.transform_texts(preparations[1].apply(other_texts, workers), workers)
        return cls(_place_sides(space, some, workers), _place_sides(space, unseen, workers), others)

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

    def middle_distances(
        self, asking: NDArray[np.intp], n_bytes: int, n_dims: int, rng: Any, workers: Workers
    ) -> Float32:
        """Compute distances (n, h) of other texts, by their rows, to codes of the middle of both halves."""
        train, held = (_middle(points, n_dims) for points in (self.train, self.held))
        coded = residual_quantize(train, held, n_bytes, rng, workers)
        queries = self.other_texts[asking, :n_dims]
        squares = np.einsum("nd,nd->n", coded, coded)
        return np.asarray(squares - 2 * (queries @ coded.T), dtype=np.float32)


def _middle(points: Mapping[str, Float32], n_dims: int) -> Float32:
    """Points (n, n_dims) half-way between both halves of documents, at unit length."""
    both = points["image"][:, :n_dims] + points["text"][:, :n_dims]
    return np.ascontiguousarray(unit_rows(both / 2), dtype=np.float32)


def has_words(texts: Any) -> bool:
    """Whether text features are counts or weights of words: sparse, and none of them negative."""
    is_sparse = bool(sparse.issparse(texts))
    return is_sparse and bool((texts.data >= 0).all())


def keyword_distances(queries: Any, texts: Any) -> Float32:
    """Compute 1 minus the cosine (n, N) of word counts (n, d), (N, d), both sparse; 1 without any word."""
    cosines = _unit_words(queries) @ _unit_words(texts).T
    return np.asarray(1.0 - cosines.toarray(), dtype=np.float32)


def _unit_words(counts: Any) -> Any:
    lengths = np.sqrt(np.asarray(counts.multiply(counts).sum(axis=1), dtype=np.float64).ravel())
    return sparse.diags_array(1.0 / np.where(lengths > 0, lengths, 1.0)) @ sparse.csr_array(counts)


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
    quantizer = learn_residual_quantizer(train, n_bytes, rng, workers)
    return quantizer.decode(quantizer.encode(items, workers), workers)


def learn_residual_quantizer(
    train: Float32, n_bytes: int, rng: np.random.Generator, workers: Workers
) -> Quantizer:
    """Learn a residual quantizer from points (n, D), by the survivors of a beam."""
    codewords = codebooks.beam_codebooks(train, n_bytes, rng, workers).astype(np.float32)
    return Quantizer(codewords, 0.0, 0.0, None)
