"""Models with a calibration, and one part of it in plain loops."""

from __future__ import annotations

from functools import cache
from math import exp, log
from typing import Any

import numpy as np

from crossbyte import CMCQ


def drawn(
    n_groups: int, seed: int, n_texts: int = 1, noise: float = 1.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Pictures with so many texts each: images (n, 12) that repeat, texts (n, 10), and their groups."""
    rng = np.random.default_rng(seed)
    topics = rng.normal(size=(n_groups, 8))
    views = np.random.default_rng(99)
    pictures = topics @ views.normal(size=(8, 12)) + noise * rng.normal(size=(n_groups, 12))
    groups = np.repeat(np.arange(n_groups), n_texts)
    texts = topics[groups] @ views.normal(size=(8, 10)) + noise * rng.normal(size=(len(groups), 10))
    return pictures[groups], texts, groups


def settings(**changes: Any) -> dict[str, Any]:
    base: dict[str, Any] = {"n_bits": 16, "mapping": "cca", "n_components": 8, "max_iter": 1}
    base |= {"scoring": "unit", "cross_term": "constant"}
    return base | {"random_state": 0, "n_jobs": 1} | changes


@cache
def plain_model() -> CMCQ:
    images, texts, _ = drawn(1200, 0)
    return CMCQ(**settings(n_bits=32)).fit(images, texts).calibrate(images, texts, curve=())


@cache
def grouped_model() -> CMCQ:
    """Three texts to a picture, and cross terms stored."""
    return CMCQ(**settings(cross_term="stored")).fit(*drawn(600, 1, 3)).calibrate(*drawn(600, 1, 3), curve=())


def naive_levels(model: CMCQ, codes: dict[str, np.ndarray], texts: np.ndarray, target: str) -> np.ndarray:
    """Mean of the nearest 1/64 of all plain distances."""
    sides = ["image", "text"] if target == "document" else [target]
    total = sum(model.distances(texts=texts, **{f"{side}_codes": codes[side]}) for side in sides)
    near = max(1, len(codes["image"]) // 64)
    return np.array([np.mean(sorted(row.tolist())[:near]) for row in np.asarray(total)])


def soft_level(distances: list[float], temperature: float) -> float:
    """Log of the mean of exp(-distance / temperature); the nearest counts for 0, and so do the far 7/8."""
    counted = sorted(distances)[: max(2, len(distances) // 8)][1:]
    top = -counted[0] / temperature
    return top + log(sum(exp(-each / temperature - top) for each in counted) / len(distances))
