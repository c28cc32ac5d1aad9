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
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.chance import chance_mean_average_precision, chance_recall
from crossbyte.metrics.ranks import nearest_ties_by_column, partner_ranks_ties_by_column

__all__ = [
    "SEEDS",
    "chance_map",
    "chance_recall_10",
    "map_at_50",
    "map_of_model",
    "recall_of_codes",
    "side_by_side",
]

SEEDS = range(5)
DEPTH = 50


def side_by_side(function: Callable[[Any], Any], jobs: Iterable[Any]) -> list[Any]:
    """Run a function for every job, one process per core; models inside should use ``n_jobs=1``."""
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


def recall_of_codes(model: CMCQ, images: Any, texts: Any) -> tuple[float, float]:
    """Recall@10 of the true partner, I→T and T→I, every item coded from its own side alone."""
    codes = model.encode_images(images), model.encode_texts(texts)
    both = (
        model.distances(images=images, text_codes=codes[1]),
        model.distances(texts=texts, image_codes=codes[0]),
    )
    first, second = (float((partner_ranks_ties_by_column(distances) < 10).mean()) for distances in both)
    return first, second


def chance_recall_10(n_items: int) -> float:
    """Recall@10 of a random ranking."""
    return chance_recall(n_items, 10)
