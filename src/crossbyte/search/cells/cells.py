"""What a user is told of an index's cells: how many, how well they are chosen, and whether they still fit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.search.cells.state import CellState, Curve, Side, direction_name
from crossbyte.validation import check_choice, check_number

__all__ = ["Cells", "Drift", "cells_of", "drift_of", "imbalance_of"]

FARTHER = 1.25  # times the distance at build, of documents added since: they come from elsewhere
CROWDED = 1.5  # times the imbalance at build
GROWN = 4.0  # times the documents at build: more cells would be better
_FEW = 100  # documents added since say nothing yet
_ALIKE = 1e-3  # of the variance of the centres


class Drift(NamedTuple):
    """Say how documents fit cells that were built for others.

    Attributes
    ----------
    n_documents : int
        When the cells were built.
    n_added : int
        Since then, those deleted again included.
    distance : float or None
        Mean squared distance of documents added since to the centre of their cell, over that of those at
        build; None before anything was added.
    imbalance : float
        How many times more documents a random document's cell has than it would if all had as many, over
        the same at build.
    rebuild : bool
        Whether the cells should be built again: new documents are far from their centres, crowd into few
        cells, or are so many that there should be more cells.
    """

    n_documents: int
    n_added: int
    distance: float | None
    imbalance: float
    rebuild: bool


@dataclass(frozen=True, eq=False)
class Cells:
    """Describe the cells (IVF) of an index.

    Attributes
    ----------
    n_cells : dict of side to int
    recall : float
        The share of what the exhaustive search finds that was wanted.
    nprobe : dict of direction to int
        Cells that a search visits, unless told otherwise; by "text-to-image", "image-to-text", ….
    choice : dict of direction to str
        How cells are chosen: "centres", "means" or "learned", whichever did best on held-out pairs.
    curve : dict of direction to Curve
        What is found for how many cells visited.
    drift : dict of side to Drift
    metric : dict of side to str
        What documents of one cell have in common: they are near each other in the common space ("plain"), or
        in what queries of the other kind tell of them ("paired"), whichever did better on held-out pairs.
    """

    n_cells: dict[str, int]
    recall: float
    nprobe: dict[str, int]
    choice: dict[str, str]
    curve: dict[str, Curve]
    drift: dict[str, Drift]
    metric: dict[str, str]

    @property
    def rebuild(self) -> bool:
        """Whether the cells of some side no longer fit its documents."""
        return any(drift.rebuild for drift in self.drift.values())

    def enough(self, direction: str, recall: float) -> int:
        """How many cells a search must visit for another recall than that of the build, by its curve.

        Parameters
        ----------
        direction : str
            Such as "text-to-image".
        recall : float
            The wanted share of what the exhaustive search finds.

        Raises
        ------
        InvalidInput
            For a direction that there is not, or a share that is none.
        """
        check_choice(direction, "direction", tuple(self.curve))
        return self.curve[direction].enough(check_number(recall, "recall", 0.0, 1.0, open_low=True))

    def to_dict(self) -> dict[str, Any]:
        """Give everything as JSON."""
        return {
            "n_cells": self.n_cells,
            "recall": self.recall,
            "nprobe": self.nprobe,
            "choice": self.choice,
            "metric": self.metric,
            "curve": {name: curve.to_dict() for name, curve in self.curve.items()},
            "drift": {side: drift._asdict() for side, drift in self.drift.items()},
            "rebuild": self.rebuild,
        }


def cells_of(state: CellState | None, sizes: Mapping[str, NDArray[np.int64]]) -> Cells | None:
    """Say what is known of cells, given how many live documents each cell of a side has."""
    if state is None:
        return None
    named = {direction_name(*name): direction for name, direction in state.directions.items()}
    return Cells(
        {name: len(side.centres) for name, side in state.sides.items()},
        state.recall,
        {name: direction.n_probe for name, direction in named.items()},
        {name: direction.choice for name, direction in named.items()},
        {name: direction.curve for name, direction in named.items()},
        {name: drift_of(side, sizes[name]) for name, side in state.sides.items()},
        {name: "plain" if side.centres.metric is None else "paired" for name, side in state.sides.items()},
    )


def imbalance_of(sizes: NDArray[np.int64]) -> float:
    """Measure how many times more documents a random document's cell has than if all had as many."""
    total = float(sizes.sum())
    return float(len(sizes) * np.square(sizes / total).sum()) if total else 1.0


def drift_of(side: Side, sizes: NDArray[np.int64]) -> Drift:
    """Measure how documents fit the cells of a side, given how many live ones each cell has."""
    distance = None
    if side.n_added:
        # Where all documents of a cell are alike, any distance would be many times theirs.
        apart = float(np.var(side.centres.points, axis=0).sum())
        distance = side.added_distance / side.n_added / max(side.distance, _ALIKE * apart, 1e-30)
    imbalance = imbalance_of(sizes) / max(side.imbalance, 1e-30)
    farther = side.n_added >= _FEW and distance is not None and distance > FARTHER
    crowded = side.n_added >= _FEW and imbalance > CROWDED
    rebuild = farther or crowded or bool(sizes.sum() > GROWN * max(1, side.n_documents))
    return Drift(side.n_documents, side.n_added, distance, imbalance, rebuild)
