"""Which cells a search visits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput
from crossbyte.search.bits import Words, count_bits
from crossbyte.search.cells.state import CellState, Direction
from crossbyte.validation import check_integer

if TYPE_CHECKING:
    from crossbyte.search.ranking import Query
    from crossbyte.search.snapshot import Snapshot

__all__ = ["ALL", "check_probe", "n_visited", "visited_cells"]

ALL = "all"


def check_probe(probe: Any, state: object | None, target: str | None, like: Any) -> int | str | None:
    """Judge what was asked for: None (as built), "all", or a number of cells."""
    if probe is None or (isinstance(probe, str) and probe == ALL):
        return ALL if like is not None or target == "document" or state is None else probe
    if isinstance(probe, str):
        raise InvalidInput(f'probe: expected a number of cells, "all" or None, got {probe!r}')
    count = check_integer(probe, "probe", 1)
    if state is None:
        raise InvalidInput('probe: this index has no cells; call build_cells(), or leave it "all" or None')
    if like is not None or target == "document":
        asked = "like=" if like is not None else 'target="document"'
        raise InvalidInput(f'probe: {asked} looks at everything; leave probe "all" or None')
    return count


def visited_cells(snapshot: Snapshot, query: Query, allowed: Mapping[str, Words]) -> NDArray[np.int64] | None:
    """Cells (n, visited) of every query, best first; None where everything is searched."""
    direction = _direction(snapshot.cells, query)
    if direction is None:
        return None
    n_cells = len(direction.chooser.points)
    if query.probe is not None:
        count = int(query.probe)
    else:
        count = n_visited(direction.n_probe, n_cells, _allowed_share(snapshot, query.target, allowed))
    return None if count >= n_cells else direction.chooser.choose(query.points, count)


def n_visited(n_probe: int, n_cells: int, share: float) -> int:
    """How many cells are visited where a filter allows this share of the documents; not more than all."""
    # Where it allows one document in ten, the wanted ones are spread over ten times the cells.
    count = int(np.ceil(n_probe / max(share, 1e-9)))
    return n_cells if 2 * count > n_cells and count > n_probe else min(count, n_cells)


def _direction(state: CellState | None, query: Query) -> Direction | None:
    if state is None or query.probe == ALL:
        return None
    return state.directions.get((query.kind, query.target))


def _allowed_share(snapshot: Snapshot, target: str, allowed: Mapping[str, Words]) -> float:
    """Share of the live documents of the target that may be found."""
    shelves = [shelf for shelf in snapshot.shelves.values() if target in shelf.codes]
    if all(allowed[shelf.coding] is shelf.live for shelf in shelves):  # no filter: nothing to count
        return 1.0
    live = sum(shelf.n_live for shelf in shelves)
    return sum(count_bits(allowed[shelf.coding]) for shelf in shelves) / max(1, live)
