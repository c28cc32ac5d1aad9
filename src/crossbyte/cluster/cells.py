"""The cells of many shards: all have the same ones, and each a part of the documents in them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from crossbyte.cluster.messages import CellSums
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.cluster.moment import Moment
    from crossbyte.search.cells.cells import Cells
    from crossbyte.search.cells.state import Side

__all__ = ["cells_of_shards", "no_building", "part_of"]


def cells_of_shards(moment: Moment) -> Cells | None:
    """Say of the cells of all shards what one index would; None unless all of them have the same.

    Raises
    ------
    ShardLost
        How well cells fit cannot be told without a part of the documents.
    """
    if moment.cells is None:
        return None
    parts = moment.ask_all("cell_sums")
    sums = {side: _added([part[side] for part in parts]) for side in parts[0]}
    told: Cells = next(iter(moment.ask("cells", sums).values()))
    return told


def _added(parts: Sequence[CellSums]) -> CellSums:
    return CellSums(
        sum(part.n_documents for part in parts),
        sum(part.n_added for part in parts),
        sum(part.added_distance for part in parts),
        np.sum([part.sizes for part in parts], axis=0),
    )


def part_of(side: Side, shard: int, n_shards: int) -> Side:
    """What one of the shards of a cut index is told of a side: counts that add up to the whole again."""
    documents, added = (
        count * (shard + 1) // n_shards - count * shard // n_shards
        for count in (side.n_documents, side.n_added)
    )
    distance = side.added_distance * added / max(1, side.n_added)
    return side._replace(n_documents=documents, n_added=added, added_distance=distance)


def no_building(path: str | os.PathLike[str]) -> InvalidInput:
    """The error that cells cannot be built over shards."""
    return InvalidInput(
        f"{os.fspath(path)}: cells are learned from all documents, and no shard has them all; build the "
        "cells in one file and cut it with `crossbyte shard` (split_index in Python): its shards keep them"
    )
