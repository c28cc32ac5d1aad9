"""Coding offsets make items of different codings compete fairly.

Codes of a pair are pulled towards both halves, so they lie nearer to everybody's queries than codes made
from one side alone; unshifted, they crowd one-sided items out of the top. The offsets equalise false
alarms: with them, a query's nearest *strangers* are equally near under every coding. No partner takes part,
so nothing can leak from a folded-in pair to a query by its own half.

How far apart the codings are depends on how near is near: the nearest 1 % of strangers need another
offset than the nearest 0.01 %. Over the depths that can be measured it is linear in the logarithm of
that share; so an offset is a line, and the size of an index says where on it its first ten hits are.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.blocks import row_blocks
from crossbyte.executors.threads import Workers
from crossbyte.model.quality.sample import SIDES, By, Sample, distances

__all__ = ["QUERIES_AT_ONCE", "Line", "coding_offsets"]

QUERIES_AT_ONCE = 256

_REFERENCE = {"image": "image", "text": "text", "document": "pair"}  # the coding whose offset is zero
_DEPTHS = (1, 2, 3, 5, 10, 20)
_ROWS_PER_DEPTH = 10  # of few strangers even the tenth is far away, and says nothing of the top
_TOP = 10


class Line(NamedTuple):
    """An offset as a line over the logarithm of an index's size."""

    at_held_out: float
    """for an index of as many items as were held out"""
    slope: float
    """added for each factor e of more items"""


def coding_offsets(sample: Sample, workers: Workers) -> dict[tuple[str, str, str], Line]:
    """Offsets by (query, target, coding)."""
    offsets = {}
    for query in SIDES:
        nearest = _nearest_strangers(sample, query, workers)
        for target, coding in nearest:
            gaps = nearest[target, _REFERENCE[target]] - nearest[target, coding]
            offsets[query, target, coding] = _line(gaps)
    return offsets


def _line(gaps: NDArray[np.float64]) -> Line:
    """Least squares over the logarithm of the share that each depth is; flat if there is but one depth."""
    depths = np.array(_DEPTHS[: len(gaps)])
    log_sizes = np.log(_TOP - 0.5) - np.log(depths - 0.5)  # where a top ten is as deep, over n_held
    spread = log_sizes - log_sizes.mean()
    slope = float(spread @ gaps / max(spread @ spread, 1e-12))
    return Line(float(gaps.mean() - slope * log_sizes.mean()), slope)


def _nearest_strangers(sample: Sample, query: str, workers: Workers) -> dict[By, NDArray[np.float64]]:
    """Mean distance of the queries to their k-th nearest stranger, for each depth k, by target and coding."""
    queries, quantizers = sample.points[query], sample.quantizers

    def nearest(rows: slice) -> dict[By, Float32]:
        tables = {side: quantizers[side].table(queries[rows]) for side in SIDES}
        return {by: _kth_smallest(each, rows) for by, each in distances(tables, sample.scans).items()}

    parts = list(workers.map(nearest, row_blocks(len(queries), QUERIES_AT_ONCE)))
    return {
        by: np.concatenate([part[by] for part in parts]).mean(axis=0, dtype=np.float64) for by in parts[0]
    }


def _kth_smallest(distances: Float32, rows: slice) -> Float32:
    """Per query the k-th smallest distance to a stranger, for each depth k; item i is query i's own.

    Training documents are strangers to every query, but one is left out of them all the same: the
    smallest of more is smaller.
    """
    distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
    deepest = max(1, distances.shape[1] // _ROWS_PER_DEPTH)
    places = [depth - 1 for depth in _DEPTHS if depth <= deepest]
    return np.partition(distances, places, axis=1)[:, places]
