"""What every quality benchmark shares: seeds side by side, and scores that no method computes for itself."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.datasets import Dataset, shares_label
from crossbyte import CMCQ
from crossbyte.compute.executor import Workers
from crossbyte.lab.methods.additive import table_distances
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.chance import chance_mean_average_precision, chance_recall
from crossbyte.metrics.ranks import nearest_ties_by_column
from crossbyte.model.fit import learn_points
from crossbyte.model.space.gaussian import FoldMoments

__all__ = [
    "SEEDS",
    "chance_map",
    "chance_recall_10",
    "code_documents",
    "document_kind",
    "item_points",
    "map_at_50",
    "map_of_model",
    "side_by_side",
    "table_path",
    "training_points",
    "unit_space",
]

SEEDS = range(5)
DEPTH = 50

Points = NDArray[np.float32]


def side_by_side(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Run a function for every job, one process per core; models inside should use ``n_jobs=1``."""
    jobs = list(jobs)
    if len(jobs) == 1:
        return [function(jobs[0])]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        return list(pool.map(function, jobs))


def map_at_50(distances: NDArray[np.float32], relevant: NDArray[np.bool_]) -> float:
    """MAP@50 with the paper's denominator."""
    return mean_average_precision(
        np.take_along_axis(relevant, nearest_ties_by_column(distances, DEPTH), axis=1), DEPTH
    )


def chance_map(data: Dataset) -> float:
    """MAP@50 of a random ranking of the training documents."""
    relevant = shares_label(data.query.labels, data.train.labels)
    return chance_mean_average_precision(relevant.mean(axis=1), DEPTH, len(data.train))


def map_of_model(model: CMCQ, data: Dataset) -> tuple[float, float]:
    """MAP@50 of both tasks, I→T and T→I, over the training documents with their learned codes."""
    relevant = shares_label(data.query.labels, data.train.labels)
    return (
        map_at_50(model.training_distances(images=data.query.images), relevant),
        map_at_50(model.training_distances(texts=data.query.texts), relevant),
    )


def chance_recall_10(n_items: int) -> float:
    """Recall@10 of a random ranking."""
    return chance_recall(n_items, 10)


# What a model hands over to others, and its own codes of documents


def item_points(model: CMCQ, *, images: Any = None, texts: Any = None) -> Points:
    """The points (n, D) of items known by image, by text, or by both, in the space of the query points."""
    with Workers(model.n_jobs) as workers:
        points = model.fitted_.item_points(images, texts, workers)
    side = "document" if images is not None and texts is not None else "text" if images is None else "image"
    return model.fitted_.quantizers[side].from_coding(points)


def training_points(model: CMCQ, images: Any, texts: Any) -> dict[str, Points]:
    """The points that the model's codewords are learned from, by what is known: image, text, document.

    Out of fold, of at most 20,000 pairs, as the fit has them (its folds are others); documents in sample as
    well.
    """
    learned, rng = model.fitted_, np.random.default_rng(0)
    groups = np.arange(images.shape[0])
    with Workers(model.n_jobs) as workers:
        rows = (
            learned.image_preparation.apply(images, workers),
            learned.text_preparation.apply(texts, workers),
        )
        moments = FoldMoments.of(*rows, groups, rng, workers)
        _, found = learn_points(learned.settings, moments, rows, groups, rng, workers, [])
    sides = zip(("image", "text", "document"), found.points.points, strict=True)
    return {side: learned.quantizers[side].from_coding(points) for side, points in sides}


def document_kind(model: CMCQ) -> str:
    """Under which name the model has the quantizer of documents known by both halves."""
    return "document" if "document" in model.fitted_.quantizers else "image"


def code_documents(model: CMCQ, images: Any, texts: Any) -> NDArray[np.uint8]:
    """One code (n, M) per document; of a model with two codes, the image's, which knows the text."""
    if document_kind(model) == "document":
        return model.encode_documents(images, texts)
    return model.encode_pairs(images, texts)[0]


def table_path(
    model: CMCQ, kind: str, queries: Points, codes: NDArray[np.uint8]
) -> tuple[NDArray[np.float32], Points]:
    """Distances (n_queries, n_items) as a search adds them up, and the points that the codes stand for."""
    quantizer = model.fitted_.quantizers[kind]
    with Workers(model.n_jobs) as workers:
        scanned = quantizer.scan_codes(codes, workers)
        return table_distances(quantizer, queries, scanned, workers), quantizer.decode(codes, workers)


def unit_space(n_dims: int, ridge: float, **parameters: Any) -> CMCQ:
    """A model to be fitted for its space alone: plain canonical correlation, points of unit length."""
    model = CMCQ(
        8,
        mapping="cca",
        scoring="unit",
        n_components=n_dims,
        ridge=ridge,
        max_iter=1,
        random_state=0,
        n_jobs=1,
        **parameters,
    )
    return model
