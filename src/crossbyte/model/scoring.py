"""Recall of true pairs through the codes, each item coded from its own side alone."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.executors.protocol import Executor
from crossbyte.metrics import partner_ranks_ties_by_column
from crossbyte.model.learned import Learned
from crossbyte.quantization.quantizer import Quantizer

__all__ = ["PartnerRanks", "auroc", "code_ranks", "held_out_ranks", "point_ranks"]

Ranks = NDArray[np.int64]

_QUERIES_AT_ONCE = 256


class PartnerRanks(NamedTuple):
    """0-based rank of each query's best-placed partner, in both directions."""

    image_to_text: Any
    text_to_image: Any

    def recall(self, k: int = 10) -> float:
        """Mean of the two directions' recall@k."""
        return float(np.mean([(ranks < k).mean() for ranks in self]))

    def mean_log_rank(self) -> float:
        """Mean of log(1 + rank) over all queries: less noisy than recall where recall is low."""
        return float(np.mean([np.log1p(ranks).mean() for ranks in self]))

    def hits(self, k: int = 10) -> NDArray[np.float64]:
        """Per pair the share of its two queries that found their partner: (n,)."""
        return np.mean([ranks < k for ranks in self], axis=0)


def auroc(scores: Any, truth: Any) -> float:
    """Chance that a true one scores above another; equal scores count half, and one kind alone gives 0.5."""
    scores, truth = np.asarray(scores), np.asarray(truth, dtype=bool)
    n_true, n_false = int(truth.sum()), int((~truth).sum())
    if not n_true or not n_false:
        return 0.5
    values, places, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[places]
    return float((ranks[truth].sum() - n_true * (n_true + 1) / 2) / (n_true * n_false))


def held_out_ranks(
    learned: Learned, images: Any, texts: Any, groups: NDArray[np.intp], workers: Executor
) -> PartnerRanks:
    """Ranks among unseen pairs, as an index of one-sided items would give them."""
    points = learned.transform_images(images, workers), learned.transform_texts(texts, workers)
    quantizers = learned.image_quantizer, learned.text_quantizer
    return PartnerRanks(
        code_ranks(points[0], quantizers[1], points[1], groups, workers),
        code_ranks(points[1], quantizers[0], points[0], groups, workers),
    )


def code_ranks(
    queries: Float32, quantizer: Quantizer, items: Float32, groups: NDArray[np.intp], workers: Executor
) -> Ranks:
    """Ranks by table distance to the codes of the items."""
    codes = quantizer.scan_codes(quantizer.encode(items, workers), workers)

    def ranks(rows: slice) -> Ranks:
        distances = quantizer.table(queries[rows]).distances(codes)
        return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

    return _in_parts(ranks, len(queries), workers)


def point_ranks(queries: Float32, items: Float32, groups: NDArray[np.intp], workers: Executor) -> Ranks:
    """Ranks by distance to the items themselves, uncompressed."""
    squares = np.einsum("nd,nd->n", items, items)

    def ranks(rows: slice) -> Ranks:
        distances = squares - 2 * (queries[rows] @ items.T)
        return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

    return _in_parts(ranks, len(queries), workers)


def _in_parts(ranks: Any, n_queries: int, workers: Executor) -> Ranks:
    starts = range(0, n_queries, _QUERIES_AT_ONCE)
    parts = workers.map(ranks, [slice(start, min(start + _QUERIES_AT_ONCE, n_queries)) for start in starts])
    return np.concatenate(list(parts))
