"""How many cells a search visits (nprobe): as asked, or as the build found to be enough."""

from __future__ import annotations

import numpy as np

__all__ = ["ALL", "n_visited"]

ALL = "all"


def n_visited(n_probe: int, n_cells: int, share: float) -> int:
    """Count the cells to visit where a filter allows this share of the documents; not more than all."""
    # Where it allows one document in ten, the wanted ones are spread over ten times the cells.
    count = int(np.ceil(n_probe / max(share, 1e-9)))
    return n_cells if 2 * count > n_cells and count > n_probe else min(count, n_cells)
