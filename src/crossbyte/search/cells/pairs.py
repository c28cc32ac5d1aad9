"""Pairs that cells are learned from: points and codes of both halves, in three parts that share no group."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.errors import InvalidInput
from crossbyte.model.cmcq import CMCQ

__all__ = ["FEWEST_GROUPS", "Half", "split_pairs"]

FEWEST_GROUPS = 20
_HELD_OUT = 0.15  # of the groups, to choose by, and as many to measure with
_MOST = {"learn": 20_000, "choose": 4_000, "measure": 4_000}


@dataclass(frozen=True, eq=False)
class Half:
    """Hold some pairs: points and codes of both halves.

    Attributes
    ----------
    points : mapping of side to (n, D) float32
        Where the halves are as queries.
    codes : mapping of side to (n, M) uint8
        As the halves would be in the index.
    """

    points: Mapping[str, Float32]
    codes: Mapping[str, Codes]


def split_pairs(
    model: CMCQ, images: Any, texts: Any, groups: Any, as_pairs: Mapping[str, bool]
) -> dict[str, Half]:
    """Check pairs and cut them into "learn", "choose" and "measure".

    Parameters
    ----------
    as_pairs : mapping of side to bool
        Whether the documents of that side were coded together with their other half.
    """
    images, texts, numbered = model._check_new_pairs(images, texts, groups)
    n_groups = int(numbered.max()) + 1
    if n_groups < FEWEST_GROUPS:
        raise InvalidInput(
            f"expected at least {FEWEST_GROUPS} pairs (or groups of them) to learn cells from, got {n_groups}"
        )
    return {
        part: _coded(model, images[rows], texts[rows], as_pairs) for part, rows in _parts(numbered).items()
    }


def _parts(groups: NDArray[np.intp]) -> dict[str, NDArray[np.intp]]:
    """Deal the groups out at random, the same way every time: the rows of each part."""
    rng, n_groups = np.random.default_rng(0), int(groups.max()) + 1
    held = max(1, round(_HELD_OUT * n_groups))
    place = rng.permutation(n_groups)[groups]
    limits = {"measure": (0, held), "choose": (held, 2 * held), "learn": (2 * held, n_groups)}
    parts = {}
    for part, (low, high) in limits.items():
        rows = np.flatnonzero((place >= low) & (place < high))
        parts[part] = np.sort(rng.permutation(rows)[: _MOST[part]])
    return parts


def _coded(model: CMCQ, images: Any, texts: Any, as_pairs: Mapping[str, bool]) -> Half:
    points = {"image": model.transform_images(images), "text": model.transform_texts(texts)}
    codes = {side: _code(model, side, images, texts) for side, together in as_pairs.items() if not together}
    if len(codes) < len(as_pairs):
        both = dict(zip(("image", "text"), model.encode_pairs(images, texts), strict=True))
        codes |= {side: both[side] for side, together in as_pairs.items() if together}
    return Half(points, codes)


def _code(model: CMCQ, side: str, images: Any, texts: Any) -> Codes:
    """Encode one side alone."""
    return model.encode_images(images) if side == "image" else model.encode_texts(texts)
