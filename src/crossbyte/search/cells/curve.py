"""How much is found for how many cells visited, measured on queries that nothing was learned from."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.cells.chooser import Chooser
from crossbyte.search.cells.state import Curve

__all__ = ["ENOUGH_PARTNERS", "Ranks", "Trial", "cell_ranks", "measure_curve", "wanted_cells"]

ENOUGH_PARTNERS = 100  # that the exhaustive search finds; fewer say too little about 0.95 of them
NEAREST = 10
_ROWS_AT_ONCE = 256


class Trial(NamedTuple):
    """Hold queries, and what the exhaustive search finds for them.

    Attributes
    ----------
    points : (n, D) float32
    nearest : (n, up to 10) int
        Cells of the nearest documents.
    partners : (n,) int
        Cell of the true partner; -1 where there is none, or where the exhaustive search does not have it
        among the first ten.
    """

    points: NDArray[np.float32]
    nearest: NDArray[np.int64]
    partners: NDArray[np.int64]


class Ranks(NamedTuple):
    """Hold how far queries must go through the cells.

    Attributes
    ----------
    partners : (found,) int64
        Cells that come before the partner's, query by query, of those that have one.
    nearest : (n * up to 10,) int64
        Cells that come before those of the nearest documents.
    items : (n_cells,) float64
        Share of the documents in the first 1, 2, … cells of a query, on average.
    """

    partners: NDArray[np.int64]
    nearest: NDArray[np.int64]
    items: NDArray[np.float64]


def cell_ranks(chooser: Chooser, trial: Trial, sizes: NDArray[np.int64]) -> Ranks:
    """Rank all cells for every query; ``sizes`` are the documents of each cell."""
    partners, nearest = [], []
    items = np.zeros(len(sizes))
    for start in range(0, len(trial.points), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        order = np.argsort(chooser.scores(trial.points[rows]), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(sizes))[None], axis=1)
        items += np.cumsum(sizes[order], axis=1).sum(axis=0)
        there = trial.partners[rows] >= 0
        partners.append(rank[there, trial.partners[rows][there]])
        nearest.append(np.take_along_axis(rank, trial.nearest[rows], axis=1).ravel())
    share = items / max(1, len(trial.points)) / max(1, sizes.sum())
    return Ranks(np.concatenate(partners), np.concatenate(nearest), share)


def wanted_cells(
    chooser: Chooser, trial: Trial, sizes: NDArray[np.int64], recall: float
) -> tuple[int, float]:
    """Count the cells that keep the wanted share, and the share of the items in them."""
    ranks = cell_ranks(chooser, trial, sizes)
    count = _count(ranks, recall)
    return count, float(ranks.items[count - 1])


def measure_curve(
    chooser: Chooser, trial: Trial, sizes: NDArray[np.int64], recall: float
) -> tuple[Curve, int]:
    """Measure the curve, and the number of cells that keep the wanted share."""
    ranks = cell_ranks(chooser, trial, sizes)
    count = _count(ranks, recall)
    steps = {*np.unique(np.geomspace(1, len(sizes), 24).round().astype(int)).tolist(), count}
    cells = sorted(steps)
    known = len(ranks.partners) >= ENOUGH_PARTNERS
    curve = Curve(
        cells,
        [float(ranks.items[n - 1]) for n in cells],
        _shares(ranks.partners, cells) if known else None,
        _shares(ranks.nearest, cells),
        len(trial.points),
        len(ranks.partners),
    )
    return curve, count


def _count(ranks: Ranks, recall: float) -> int:
    decisive = np.sort(ranks.partners if len(ranks.partners) >= ENOUGH_PARTNERS else ranks.nearest)
    if not len(decisive):
        return len(ranks.items)
    return int(decisive[max(0, int(np.ceil(recall * len(decisive))) - 1)]) + 1


def _shares(ranks: NDArray[np.int64], cells: list[int]) -> list[float]:
    return (np.searchsorted(np.sort(ranks), cells, side="left") / max(1, len(ranks))).tolist()
