"""A small index with documents of every kind, and its twin."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from crossbyte import CMCQ, Index
from support.index_twin import Twin, features, small_model

COUNT = 30
PAIRS = [f"p{i}" for i in range(COUNT)]
IMAGES = [f"i{i}" for i in range(COUNT)]
TEXTS = list(range(COUNT))


def payload(i: int) -> dict[str, Any] | None:
    """Fields of every type; every seventh document has none."""
    if i % 7 == 6:
        return None
    return {
        "year": 2000 + i % 5,
        "kind": "abc"[i % 3],
        "score": i / 4,
        "good": i % 2 == 0,
        "tags": [f"t{i % 4}", f"t{i % 3}"],
        "deep": {"n": i},
        "title": f"The {'sea' if i % 2 else 'sky'} {i}",
        "nothing": None,
    }


def group(i: int) -> str | int | None:
    """Groups of both types; every fifth document has none."""
    return None if i % 5 == 4 else (i % 4 if i % 2 else f"g{i % 6}")


def parts() -> list[dict[str, Any]]:
    """Documents with both sides, with an image, with a text: arguments of ``add``."""
    common: dict[str, Any] = {"payloads": [payload(i) for i in range(COUNT)]}
    common["groups"] = [group(i) for i in range(COUNT)]
    images, texts = features(3 * COUNT, seed=5)
    return [
        {"ids": PAIRS, "images": images[:COUNT], "texts": texts[:COUNT], **common},
        {"ids": IMAGES, "images": images[COUNT : 2 * COUNT], **common},
        {"ids": TEXTS, "texts": texts[2 * COUNT :], **common},
    ]


def fill(target: Any) -> None:
    """Put the documents into an index or a twin."""
    for part in parts():
        target.add(**part)


def sample(path: Path, model: CMCQ | None = None, n_jobs: int | None = 1) -> tuple[Index, Twin]:
    """An index of all the documents, open for writing, and its twin."""
    model = model or small_model()
    index, twin = Index.create(path, model, n_jobs=n_jobs), Twin(model)
    fill(index)
    fill(twin)
    return index, twin
