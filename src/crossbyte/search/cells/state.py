"""The cells of an index as one record of the file holds them, and back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.search.cells.centres import MAX_CELLS, Centres
from crossbyte.search.cells.chooser import Chooser
from crossbyte.search.cells.metric import Metric
from crossbyte.search.storage.store import NewRecord, Record, Store

__all__ = [
    "KIND",
    "CellState",
    "Curve",
    "Direction",
    "Numbered",
    "Side",
    "check_cells",
    "direction_name",
    "no_cells",
]

KIND = "cells"
_VERSION = 1
_CENTRES = "centres"  # the choice that needs no part of its own

Numbered = Mapping[tuple[str, str], NDArray[np.uint16]]
"""cells of the rows of a partition, by coding and side"""


def direction_name(kind: str, target: str) -> str:
    """Name a direction."""
    return f"{kind}-to-{target}"


class Side(NamedTuple):
    """Hold the cells of images, or of texts.

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
        """How many cells keep this share, on the careful side: the next number that was measured."""
        return next(
            (n for n, kept in zip(self.cells, self.kept, strict=True) if kept >= recall), self.cells[-1]
        )

    def to_dict(self) -> dict[str, Any]:
        """Give it as JSON."""
        return self._asdict()

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Curve:
        """Take it back; KeyError or TypeError where something is missing."""
        return cls(**{name: values[name] for name in cls._fields})


class Direction(NamedTuple):
    """Hold how queries of one kind are routed to cells of one side."""

    choice: str
    chooser: Chooser
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
        What was wanted.
    sides : mapping of side to Side
    directions : mapping of (query, target) to Direction
    numbered : Numbered
        Cells of all rows that were there when these were built; empty once they are laid out.
    """

    digest: str
    recall: float
    sides: Mapping[str, Side]
    directions: Mapping[tuple[str, str], Direction]
    numbered: Numbered = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recall: float,
        sides: Mapping[str, Side],
        directions: Mapping[tuple[str, str], Direction],
        numbered: Numbered,
    ) -> CellState:
        """Put new cells together."""
        digest = hashlib.blake2b(digest_size=8, person=b"crossbyte cells")
        for name, side in sorted(sides.items()):
            digest.update(name.encode() + np.ascontiguousarray(side.centres.points, "<f4").tobytes())
            digest.update(b"" if side.centres.metric is None else side.centres.metric.to_array().tobytes())
        return cls(digest.hexdigest(), recall, sides, directions, numbered)

    def settled(self) -> CellState:
        """Forget the cells of rows, once these are laid out."""
        return replace(self, numbered={}) if self.numbered else self

    def grown(self, document: Mapping[str, Any]) -> CellState:
        """Count documents that were added; ``document`` is what their record says of its cells."""
        sides = dict(self.sides)
        for name, (count, distance) in document.get("added", {}).items():
            old = sides[name]
            sides[name] = old._replace(
                n_added=old.n_added + int(count), added_distance=old.added_distance + float(distance)
            )
        return replace(self, sides=sides)

    # The file

    def to_record(self) -> NewRecord:
        """Give what is written."""
        document = {
            "version": _VERSION,
            "digest": self.digest,
            "recall": self.recall,
            "sides": {name: _side_document(side) for name, side in self.sides.items()},
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
            f"cells.{c}.{s}": cells.astype("<u2") for (c, s), cells in self.numbered.items()
        }
        for name, side in self.sides.items():
            parts[f"centres.{name}"] = np.ascontiguousarray(side.centres.points, "<f4")
            if side.centres.metric is not None:
                parts[f"metric.{name}"] = side.centres.metric.to_array()
        for direct, direction in self.directions.items():
            if direction.choice != _CENTRES:
                chooser = direction.chooser
                parts[f"choice.{direction_name(*direct)}"] = np.column_stack(
                    [chooser.points, chooser.offsets]
                ).astype("<f4")
        return NewRecord(KIND, document, parts)

    @classmethod
    def load(cls, store: Store, record: Record) -> CellState | None:
        """Read them; None for cells that were dropped, or are of a kind that only a later version knows."""
        document = record.document
        if document["version"] != _VERSION or document["digest"] is None:
            return None
        sides = {name: _load_side(store, record, name) for name in document["sides"]}
        directions = {
            _direction_of(name): _load_direction(store, record, name, sides)
            for name in document["directions"]
        }
        return cls(
            str(document["digest"]),
            float(document["recall"]),
            sides,
            directions,
            _numbered(store, record, sides),
        )


def no_cells() -> NewRecord:
    """Give what is written when cells are dropped."""
    return NewRecord(KIND, {"version": _VERSION, "digest": None})


def check_cells(cells: NDArray[np.uint16], count: int, n_cells: int) -> NDArray[np.uint16]:
    """Refuse cells of another number of documents, or that there are not; ValueError."""
    if len(cells) != count or (count and int(cells.max()) >= n_cells):
        raise ValueError("cells that do not fit their documents")
    return cells


def _side_document(side: Side) -> dict[str, Any]:
    return {
        "cells": len(side.centres),
        "documents": side.n_documents,
        "distance": side.distance,
        "imbalance": side.imbalance,
        "added": [side.n_added, side.added_distance],
    }


def _load_side(store: Store, record: Record, name: str) -> Side:
    values = record.document["sides"][name]
    n_cells = int(values["cells"])
    if name not in ("image", "text") or not 1 <= n_cells <= MAX_CELLS:
        raise ValueError("cells of no side")
    points = _floats(store, record, f"centres.{name}", n_cells)
    metric = None
    if f"metric.{name}" in record.parts:
        metric = Metric.from_array(_floats(store, record, f"metric.{name}", 2 * points.shape[1] + 1))
    count, distance = values["added"]
    known = int(values["documents"]), float(values["distance"]), float(values["imbalance"])
    return Side(Centres(points, metric), *known, int(count), float(distance))


def _load_direction(store: Store, record: Record, name: str, sides: Mapping[str, Side]) -> Direction:
    values = record.document["directions"][name]
    kind, target = _direction_of(name)
    centres = sides[target].centres
    if values["choice"] == _CENTRES:
        chooser = centres.chooser(is_own=kind == target)
    else:
        table = _floats(store, record, f"choice.{name}", len(centres))
        chooser = Chooser(np.ascontiguousarray(table[:, :-1]), np.ascontiguousarray(table[:, -1]))
    if chooser.points.shape != centres.points.shape:
        raise ValueError("a choice among other cells")
    n_probe = int(values["probe"])
    if not 1 <= n_probe <= len(centres):
        raise ValueError("a choice of more cells than there are")
    return Direction(str(values["choice"]), chooser, n_probe, Curve.from_dict(values["curve"]))


def _direction_of(name: str) -> tuple[str, str]:
    kind, target = name.split("-to-")
    return kind, target


def _floats(store: Store, record: Record, name: str, n_rows: int) -> Float32:
    values = np.frombuffer(store.part(record, name), "<f4").astype(np.float32).reshape(n_rows, -1)
    if not np.isfinite(values).all():
        raise ValueError("a value that is not finite")
    return values


def _numbered(store: Store, record: Record, sides: Mapping[str, Side]) -> Numbered:
    found = {}
    for name in record.parts:
        if name.startswith("cells."):
            _, coding, side = name.split(".")
            cells = np.frombuffer(store.part(record, name), "<u2").astype(np.uint16)
            found[coding, side] = check_cells(cells, len(cells), len(sides[side].centres))
    return found
