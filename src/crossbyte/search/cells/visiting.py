"""How many cells a search visits (nprobe): as asked, or as the build found to be enough."""

from __future__ import annotations

from typing import Any

import numpy as np

from crossbyte.errors import InvalidInput
from crossbyte.validation import check_integer

__all__ = ["ALL", "check_probe", "n_visited"]

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


def n_visited(n_probe: int, n_cells: int, share: float) -> int:
    """How many cells are visited where a filter allows this share of the documents; not more than all."""
    # Where it allows one document in ten, the wanted ones are spread over ten times the cells.
    count = int(np.ceil(n_probe / max(share, 1e-9)))
    return n_cells if 2 * count > n_cells and count > n_probe else min(count, n_cells)
