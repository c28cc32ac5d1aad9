"""Calibration: what a sibling of the model, fitted on nine tenths of the groups, shows on the last tenth.

Coding offsets make items of different codings compete fairly. Codes of a pair are pulled towards both
halves, so they lie nearer to everybody's queries than codes made from one side alone; unshifted, they
crowd one-sided items out of the top. The offsets equalise false alarms: with them, a query's nearest
*strangers* are equally near under every coding. No partner takes part, so nothing can leak from a
folded-in pair to a query by its own half.

How far apart the codings are depends on how near is near: the nearest 1 % of strangers need another
offset than the nearest 0.01 %. Over the depths that can be measured it is linear in the logarithm of
that share; so an offset is a line, and the size of an index says where on it its first ten hits are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.blocks import Workers
from crossbyte.errors import InvalidInput
from crossbyte.model.fitting import fit_pairs
from crossbyte.model.learned import Learned, Settings
from crossbyte.model.selection import MIN_GROUPS, Split, split_groups
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.quantization.quantizer import DistanceTable, Quantizer

__all__ = ["CODINGS", "SIDES", "TARGETS", "Calibration", "Line", "measure"]

SIDES = ("image", "text")
TARGETS = (*SIDES, "document")
CODINGS = ("training", "pair", *SIDES)

_REFERENCE = {"image": "image", "text": "text", "document": "pair"}  # the coding whose offset is zero
_MAX_ROWS = 2_000
_QUERIES_AT_ONCE = 256
_DEPTHS = (1, 2, 3, 5, 10, 20)
_ROWS_PER_DEPTH = 10  # of few strangers even the tenth is far away, and says nothing of the top
_TOP = 10
_FARTHEST = 100.0  # times the held-out number: beyond, the line is no longer followed

By = tuple[str, str]
"""(target or side, coding)"""


class Line(NamedTuple):
    """An offset as a line over the logarithm of an index's size."""

    at_held_out: float
    """for an index of as many items as were held out"""
    slope: float
    """added for each factor e of more items"""


@dataclass(frozen=True)
class Calibration:
    """What was measured on held-out pairs.

    Attributes
    ----------
    offsets : mapping of (query, target, coding) to Line
        See :meth:`offset`.
    n_held_out : int
        Held-out pairs, of one group each, that they were measured on.
    """

    offsets: Mapping[tuple[str, str, str], Line]
    n_held_out: int

    def offset(self, query: str, target: str, coding: str, n_items: int | None = None) -> float:
        """What to add to a distance so that items of all codings compete fairly.

        Parameters
        ----------
        query : {"image", "text"}
            Kind of the query.
        target : {"image", "text", "document"}
            What is searched.
        coding : {"training", "pair", "image", "text"}
            How the item was coded.
        n_items : int, optional
            Size of the index, all codings together; None for the number of held-out pairs. The same for
            all codings of one search, and for all shards.

        Returns
        -------
        float
            0.0 for every combination that was not measured.
        """
        line = self.offsets.get((query, target, coding), Line(0.0, 0.0))
        ratio = max(n_items or self.n_held_out, 1) / self.n_held_out
        return line.at_held_out + line.slope * log(min(max(ratio, 1 / _FARTHEST), _FARTHEST))


def measure(
    settings: Settings,
    images: Any,
    texts: Any,
    groups: NDArray[np.intp],
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Workers,
) -> Calibration:
    """Fit the sibling and measure; arguments are checked raw pairs and groups numbered from 0."""
    split = _split(groups, rng)
    known, held = _strangers(groups, split, rng)
    train = split.train
    sibling = fit_pairs(settings, images[train], texts[train], groups[train], rng, report, workers)
    offsets = _coding_offsets(sibling, known, images[held], texts[held], workers)
    report(Progress("calibrate", "offsets", 1, 1))
    return Calibration(offsets, len(held))


def _split(groups: NDArray[np.intp], rng: np.random.Generator) -> Split:
    n_groups = int(groups.max()) + 1
    if n_groups < MIN_GROUPS:
        raise InvalidInput(
            f"calibrate holds out a tenth of the groups: expected at least {MIN_GROUPS} groups, "
            f"got {n_groups}; give more pairs, or do without calibration"
        )
    return split_groups(groups, rng, max_pairs=None)


def _strangers(
    groups: NDArray[np.intp], split: Split, rng: np.random.Generator
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """As many training documents (by their place among them) as held-out rows, one of each group.

    Rows of one group repeat each other; five captions of a picture are one stranger, not five.
    """
    held = split.held_out[_one_per_group(groups[split.held_out], rng)[:_MAX_ROWS]]
    return _one_per_group(groups[split.train], rng)[: len(held)], held


def _one_per_group(groups: NDArray[np.intp], rng: np.random.Generator) -> NDArray[np.intp]:
    """A random row of each group, in random order."""
    order = rng.permutation(len(groups))
    _, first = np.unique(groups[order], return_index=True)
    return order[np.sort(first)]


def _coding_offsets(
    sibling: Learned, known: NDArray[np.intp], images: Any, texts: Any, workers: Workers
) -> dict[tuple[str, str, str], Line]:
    """Offsets of all combinations: known are training documents, the others are held-out pairs."""
    quantizers = {"image": sibling.image_quantizer, "text": sibling.text_quantizer}
    points = {
        "image": sibling.transform_images(images, workers),
        "text": sibling.transform_texts(texts, workers),
    }
    codes = _codes(sibling, known, images, texts, points, workers)
    scans = {by: quantizers[by[0]].scan_codes(each, workers) for by, each in codes.items()}
    offsets = {}
    for query in SIDES:
        nearest = _nearest_strangers(points[query], quantizers, scans, workers)
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


def _codes(
    sibling: Learned,
    known: NDArray[np.intp],
    images: Any,
    texts: Any,
    points: Mapping[str, Float32],
    workers: Workers,
) -> dict[By, Codes]:
    """Codes of the same number of items by side and coding."""
    pairs = sibling.encode_pairs(images, texts, workers)
    return {
        ("image", "training"): sibling.image_codes[known],
        ("text", "training"): sibling.text_codes[known],
        ("image", "pair"): pairs[0],
        ("text", "pair"): pairs[1],
        ("image", "image"): sibling.image_quantizer.encode(points["image"], workers),
        ("text", "text"): sibling.text_quantizer.encode(points["text"], workers),
    }


def _nearest_strangers(
    queries: Float32, quantizers: Mapping[str, Quantizer], scans: Mapping[By, Codes], workers: Workers
) -> dict[By, NDArray[np.float64]]:
    """Mean distance of the queries to their k-th nearest stranger, for each depth k, by target and coding."""

    def nearest(rows: slice) -> dict[By, Float32]:
        tables = {side: quantizers[side].table(queries[rows]) for side in SIDES}
        return {by: _kth_smallest(each, rows) for by, each in _distances(tables, scans).items()}

    starts = range(0, len(queries), _QUERIES_AT_ONCE)
    rows = [slice(start, min(start + _QUERIES_AT_ONCE, len(queries))) for start in starts]
    parts = list(workers.map(nearest, rows))
    return {
        by: np.concatenate([part[by] for part in parts]).mean(axis=0, dtype=np.float64) for by in parts[0]
    }


def _distances(tables: Mapping[str, DistanceTable], scans: Mapping[By, Codes]) -> dict[By, Float32]:
    """Distances (n, N) by target and coding, as a search computes them."""
    sides = {by: tables[by[0]].distances(codes) for by, codes in scans.items()}
    documents = {
        ("document", coding): sides["image", coding] + sides["text", coding]
        for coding in ("training", "pair")
    }
    return sides | documents | {("document", side): sides[side, side].copy() for side in SIDES}


def _kth_smallest(distances: Float32, rows: slice) -> Float32:
    """Per query the k-th smallest distance to a stranger, for each depth k; item i is query i's own.

    Training documents are strangers to every query, but one is left out of them all the same: the
    smallest of more is smaller.
    """
    distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
    deepest = max(1, distances.shape[1] // _ROWS_PER_DEPTH)
    places = [depth - 1 for depth in _DEPTHS if depth <= deepest]
    return np.partition(distances, places, axis=1)[:, places]
