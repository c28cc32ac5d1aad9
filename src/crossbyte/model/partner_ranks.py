"""Rank the partners of held-out pairs, by codes or by points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute.executor import Executor, row_blocks
from crossbyte.metrics.ranks import partner_ranks_ties_by_column
from crossbyte.model.quantization.quantizer import Quantizer

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

    def log_ranks(self) -> Float64:
        """Per pair the mean of log(1 + rank) of its two queries: (n,)."""
        return np.asarray(np.mean([np.log1p(ranks) for ranks in self], axis=0))

    def hits(self, k: int = 10) -> Float64:
        """Per pair the share of its two queries that found their partner: (n,)."""
        return np.mean([ranks < k for ranks in self], axis=0)


def as_good_as_the_best(log_ranks: Sequence[Float64]) -> list[int]:
    """List which of several settings rank partners as well as the best.

    That is within one standard error, pair by pair. ``log_ranks`` are, for each setting, those (n,) of the
    same held-out pairs.
    """
    best = min(log_ranks, key=lambda each: float(each.mean()))
    gaps = [each - best for each in log_ranks]
    return [
        place for place, gap in enumerate(gaps) if float(gap.mean()) <= float(gap.std()) / np.sqrt(len(gap))
    ]


def code_ranks(
    queries: Float32, quantizer: Quantizer, codes: Codes, groups: NDArray[np.intp], workers: Executor
) -> Ranks:
    """Rank each query's partner by table distance to the codes (n, M) of the items."""
    codes = quantizer.scan_codes(codes, workers)

    def ranks(rows: slice) -> Ranks:
        distances = quantizer.table(queries[rows]).distances(codes)
        return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

    return _rank_in_parts(ranks, len(queries), workers)


def point_ranks(queries: Float32, items: Float32, groups: NDArray[np.intp], workers: Executor) -> Ranks:
    """Rank each query's partner by distance to the items themselves, uncompressed."""
    squares = np.einsum("nd,nd->n", items, items)

    def ranks(rows: slice) -> Ranks:
        distances = squares - 2 * (queries[rows] @ items.T)
        return partner_ranks_ties_by_column(distances, query_groups=groups[rows], item_groups=groups)

    return _rank_in_parts(ranks, len(queries), workers)


def _rank_in_parts(ranks: Callable[[slice], Ranks], n_queries: int, workers: Executor) -> Ranks:
    return np.concatenate(list(workers.map(ranks, row_blocks(n_queries, _QUERIES_AT_ONCE))))
