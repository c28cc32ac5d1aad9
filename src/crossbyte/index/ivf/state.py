"""Hold the cells (IVF) of an index: as a record of the file, in memory, and as users see them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.index.ivf.centres import MAX_CELLS, Centres, Metric
from crossbyte.index.ivf.router import CellRouter
from crossbyte.index.segment import check_amount, check_count
from crossbyte.index.storage.records import NewRecord, Record
from crossbyte.index.storage.store import Store
from crossbyte.validation import check_choice, check_number

KIND = "cells"
_VERSION = 1
_FARTHEST = 1e16  # a coordinate, so that squared distances are finite in float32
_CENTRES = "centres"  # the router that is not stored

Assignments = Mapping[tuple[str, str], NDArray[np.uint16]]
"""cells of the rows of a partition, by coding and side"""


def direction_name(kind: str, target: str) -> str:
    """Name a direction."""
    return f"{kind}-to-{target}"


class SideCells(NamedTuple):
    """Hold the cells of images, of texts, or of documents with one code.

    Attributes
    ----------
    centres : Centres
    n_documents : int
        When the cells were built.
    distance : float
        Mean squared distance to be expected of documents like those to the centres of their cells.
    imbalance : float
        How many times more documents a random document's cell has than it would if all had as many.
    n_added, added_distance : int, float
        Documents added since, and the sum of their squared distances.
    """

    centres: Centres
    n_documents: int
    distance: float
    imbalance: float
    n_added: int = 0
    added_distance: float = 0.0


class Curve(NamedTuple):
    """Shares by the number of cells visited.

    Attributes
    ----------
    cells : list of int
        Cells visited, ascending.
    items : list of float
        Share of the documents in them, on average.
    partners : list of float or None
        Of the true partners that the exhaustive search has among its first ten: the share that is in the
        visited cells. None where too few of them were found to say.
    nearest : list of float
        Of the first ten documents of the exhaustive search: the share that is in the visited cells.
    n_queries, n_partners : int
        Held-out queries, and how many partners the exhaustive search found among its first ten.
    """

    cells: list[int]
    items: list[float]
    partners: list[float] | None
    nearest: list[float]
    n_queries: int
    n_partners: int

    @property
    def kept(self) -> list[float]:
        """The share that counts: of partners where it is known, else of the nearest documents."""
        return self.nearest if self.partners is None else self.partners

    def at(self, n_cells: int) -> tuple[float, float]:
        """Interpolate the shares of items visited and of what is kept for a number of cells."""
        items, kept = (float(np.interp(n_cells, self.cells, values)) for values in (self.items, self.kept))
        return items, kept

    def enough(self, recall: float) -> int:
        """Find the least number of cells, of those measured, that keeps this share."""
        return next(
            (n for n, kept in zip(self.cells, self.kept, strict=True) if kept >= recall), self.cells[-1]
        )

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON."""
        return self._asdict()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Curve:
        """Read what :meth:`to_dict` gave; KeyError, TypeError or ValueError for anything else."""
        curve = cls(**{name: values[name] for name in cls._fields})
        shares = [curve.items, curve.nearest, *([] if curve.partners is None else [curve.partners])]
        cells = [check_count(count, "cells") for count in curve.cells]
        if not cells or cells != sorted(set(cells)) or any(len(each) != len(cells) for each in shares):
            raise ValueError("shares of another number")
        for share in (each for values in shares for each in values):
            check_amount(share, "a share", 1.0)
        check_count(curve.n_queries, "queries")
        check_count(curve.n_partners, "partners")
        return curve


class Direction(NamedTuple):
    """Hold how queries of one kind are routed to cells of one side."""

    choice: str
    router: CellRouter
    n_probe: int
    curve: Curve


@dataclass(frozen=True, eq=False)
class CellState:
    """Hold the cells (IVF) that documents have now.

    Attributes
    ----------
    digest : str
        Of the centres: documents that were given cells of another digest have none of these.
    recall : float
        The share of the exhaustive search's answers to be found.
    sides : mapping of side to SideCells
    directions : mapping of (query, target) to Direction
    assignments : Assignments
        The cell of every row that was there when the cells were built; empty once rows are in their lists.
    """

    digest: str
    recall: float
    sides: Mapping[str, SideCells]
    directions: Mapping[tuple[str, str], Direction]
    assignments: Assignments = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recall: float,
        sides: Mapping[str, SideCells],
        directions: Mapping[tuple[str, str], Direction],
        assignments: Assignments,
    ) -> CellState:
        """Make new cells, and their digest."""
        digest = hashlib.blake2b(digest_size=8, person=b"crossbyte cells")
        for name, side in sorted(sides.items()):
            digest.update(name.encode() + np.ascontiguousarray(side.centres.points, "<f4").tobytes())
            digest.update(b"" if side.centres.metric is None else side.centres.metric.to_array().tobytes())
        return cls(digest.hexdigest(), recall, sides, directions, assignments)

    def without_assignments(self) -> CellState:
        """Leave out the cells of rows, once these are in their lists."""
        return replace(self, assignments={}) if self.assignments else self

    def with_added(self, document: Mapping[str, Any]) -> CellState:
        """Count documents that were added; ``document`` is the entry "cells" of their record."""
        sides = dict(self.sides)
        for name, (count, distance) in document.get("added", {}).items():
            old = sides[name]
            sides[name] = old._replace(
                n_added=old.n_added + int(count), added_distance=old.added_distance + float(distance)
            )
        return replace(self, sides=sides)

    # The file

    def to_record(self) -> NewRecord:
        """Make the record that is written."""
        document = {
            "version": _VERSION,
            "digest": self.digest,
            "recall": self.recall,
            "sides": {name: _describe_side(side) for name, side in self.sides.items()},
            "directions": {
                direction_name(*name): {
                    "choice": direction.choice,
                    "probe": direction.n_probe,
                    "curve": direction.curve.to_dict(),
                }
                for name, direction in self.directions.items()
            },
        }
        parts: dict[str, Any] = {
            f"cells.{c}.{s}": cells.astype("<u2") for (c, s), cells in self.assignments.items()
        }
        for target, side in self.sides.items():
            parts[f"centres.{target}"] = np.ascontiguousarray(side.centres.points, "<f4")
            if side.centres.metric is not None:
                parts[f"metric.{target}"] = side.centres.metric.to_array()
        for name, direction in self.directions.items():
            if direction.choice != _CENTRES:
                table = np.column_stack([direction.router.points, direction.router.offsets])
                parts[f"choice.{direction_name(*name)}"] = table.astype("<f4")
        return NewRecord(KIND, document, parts)

    @classmethod
    def load(cls, store: Store, record: Record) -> CellState | None:
        """Read them; None for cells that were dropped, or are of a kind that only a later version knows."""
        document = record.document
        if document["version"] != _VERSION or document["digest"] is None:
            return None
        sides = {name: _load_side(store, record, name) for name in document["sides"]}
        directions = {
            _parse_direction(name): _load_direction(store, record, name, sides)
            for name in document["directions"]
        }
        return cls(
            str(document["digest"]),
            check_amount(document["recall"], "a recall", 1.0),
            sides,
            directions,
            _load_assignments(store, record, sides),
        )


def dropped_cells_record() -> NewRecord:
    """Make the record that is written when cells are dropped."""
    return NewRecord(KIND, {"version": _VERSION, "digest": None})


def check_cells(cells: NDArray[np.uint16], count: int, n_cells: int) -> NDArray[np.uint16]:
    """Refuse cells of another number of documents, or that there are not; ValueError."""
    if len(cells) != count or (count and int(cells.max()) >= n_cells):
        raise ValueError("cells that do not fit their documents")
    return cells


def _describe_side(side: SideCells) -> dict[str, Any]:
    return {
        "cells": len(side.centres),
        "documents": side.n_documents,
        "distance": side.distance,
        "imbalance": side.imbalance,
        "added": [side.n_added, side.added_distance],
    }


def _load_side(store: Store, record: Record, name: str) -> SideCells:
    values = record.document["sides"][name]
    n_cells = check_count(values["cells"], "cells")
    if name not in ("image", "text", "document") or not 1 <= n_cells <= MAX_CELLS:
        raise ValueError("cells of no side")
    points = _load_floats(store, record, f"centres.{name}", n_cells)
    metric = None
    if f"metric.{name}" in record.parts:
        metric = Metric.from_array(_load_floats(store, record, f"metric.{name}", 2 * points.shape[1] + 1))
    count, distance = values["added"]
    return SideCells(
        Centres(points, metric),
        check_count(values["documents"], "documents"),
        check_amount(values["distance"], "a distance"),
        check_amount(values["imbalance"], "an imbalance"),
        check_count(count, "documents"),
        check_amount(distance, "a distance"),
    )


def _load_direction(store: Store, record: Record, name: str, sides: Mapping[str, SideCells]) -> Direction:
    values = record.document["directions"][name]
    kind, target = _parse_direction(name)
    if kind not in ("image", "text") or not isinstance(values["choice"], str):
        raise ValueError("a choice of no queries")
    centres = sides[target].centres
    if values["choice"] == _CENTRES:
        router = centres.router(is_own=kind == target)
    else:
        table = _load_floats(store, record, f"choice.{name}", len(centres))
        router = CellRouter(np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1]))
    if router.points.shape != centres.points.shape:
        raise ValueError("a choice among other cells")
    if not (np.abs(router.points) <= _FARTHEST).all() or not (np.abs(router.offsets) <= _FARTHEST**2).all():
        raise ValueError("a choice too far from everything")
    n_probe = check_count(values["probe"], "cells")
    if not 1 <= n_probe <= len(centres):
        raise ValueError("a choice of more cells than there are")
    return Direction(str(values["choice"]), router, n_probe, Curve.from_dict(values["curve"]))


def _parse_direction(name: str) -> tuple[str, str]:
    kind, target = name.split("-to-")
    return kind, target


def _load_floats(store: Store, record: Record, name: str, n_rows: int) -> Float32:
    values = np.frombuffer(store.part(record, name), "<f4").astype(np.float32).reshape(n_rows, -1)
    if not (np.abs(values) <= _FARTHEST**2).all():
        raise ValueError("a value that is not finite, or too large")
    return values


def _load_assignments(store: Store, record: Record, sides: Mapping[str, SideCells]) -> Assignments:
    found = {}
    for name in record.parts:
        if name.startswith("cells."):
            _, coding, side = name.split(".")
            cells = np.frombuffer(store.part(record, name), "<u2").astype(np.uint16)
            found[coding, side] = check_cells(cells, len(cells), len(sides[side].centres))
    return found


FARTHER = 1.25  # times the distance at build, of documents added since: they come from elsewhere
CROWDED = 1.5  # times the imbalance at build
GROWN = 4.0  # times the documents at build: more cells would be better
_FEW = 100  # documents added since say nothing yet
_ALIKE = 1e-3  # of the variance of the centres


class Drift(NamedTuple):
    """Measure how well documents that were added since fit the cells.

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
    n_probe : dict of direction to int
        Cells that a search visits by default; by "text-to-image", "image-to-text", ….
    choice : dict of direction to str
        How cells are chosen: "centres", "means" or "learned", whichever did best on held-out pairs.
    curve : dict of direction to Curve
        What is found for how many cells visited.
    drift : dict of side to Drift
    metric : dict of side to str
        What documents of one cell have in common: they are near each other in the common space ("plain"), or
        in the metric that is learned from pairs ("paired"), whichever did better on held-out pairs.
    """

    n_cells: dict[str, int]
    recall: float
    n_probe: dict[str, int]
    choice: dict[str, str]
    curve: dict[str, Curve]
    drift: dict[str, Drift]
    metric: dict[str, str]

    @property
    def rebuild(self) -> bool:
        """Whether the cells of some side no longer fit its documents."""
        return any(drift.rebuild for drift in self.drift.values())

    def enough(self, direction: str, recall: float) -> int:
        """Find how many cells a search must visit for another recall than that of the build, by its curve.

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
            "n_probe": self.n_probe,
            "choice": self.choice,
            "metric": self.metric,
            "curve": {name: curve.to_dict() for name, curve in self.curve.items()},
            "drift": {side: drift._asdict() for side, drift in self.drift.items()},
            "rebuild": self.rebuild,
        }


def summarize_cells(state: CellState | None, sizes: Mapping[str, NDArray[np.int64]]) -> Cells | None:
    """Describe cells, given how many live documents each cell of a side has."""
    if state is None:
        return None
    named = {direction_name(*name): direction for name, direction in state.directions.items()}
    return Cells(
        {name: len(side.centres) for name, side in state.sides.items()},
        state.recall,
        {name: direction.n_probe for name, direction in named.items()},
        {name: direction.choice for name, direction in named.items()},
        {name: direction.curve for name, direction in named.items()},
        {name: measure_drift(side, sizes[name]) for name, side in state.sides.items()},
        {name: "plain" if side.centres.metric is None else "paired" for name, side in state.sides.items()},
    )


def measure_imbalance(sizes: NDArray[np.int64]) -> float:
    """Measure how many times more documents a random document's cell has than if all had as many."""
    total = float(sizes.sum())
    return float(len(sizes) * np.square(sizes / total).sum()) if total else 1.0


def measure_drift(side: SideCells, sizes: NDArray[np.int64]) -> Drift:
    """Measure how documents fit the cells of a side, given how many live ones each cell has."""
    distance = None
    if side.n_added:
        # Where all documents of a cell are alike, any distance would be many times theirs.
        apart = float(np.var(side.centres.points, axis=0).sum())
        distance = side.added_distance / side.n_added / max(side.distance, _ALIKE * apart, 1e-30)
    imbalance = measure_imbalance(sizes) / max(side.imbalance, 1e-30)
    farther = side.n_added >= _FEW and distance is not None and distance > FARTHER
    crowded = side.n_added >= _FEW and imbalance > CROWDED
    rebuild = farther or crowded or bool(sizes.sum() > GROWN * max(1, side.n_documents))
    return Drift(side.n_documents, side.n_added, distance, imbalance, rebuild)
