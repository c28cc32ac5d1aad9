"""How near strangers are to a query: what a distance is judged beside.

A distance of 0.4 is near for a query of the crowd's fringe and far for one in its midst. The cohort is a
sample of the training documents, which are strangers to any new query; the mean distance to the nearest of
them says what a stranger can reach. (Speaker verification calls this adaptive score normalisation.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte import kernels
from crossbyte.arrays import Codes, Float32
from crossbyte.blocks import row_blocks
from crossbyte.executors.threads import Workers
from crossbyte.kernels import ScanSide
from crossbyte.quantization.quantizer import Quantizer

__all__ = ["Cohort"]

_SIZE = 2_048
_NEAREST = 64  # one of so many counts as near
_QUERIES_AT_ONCE = 1024  # bounds the memory of the tables


@dataclass(frozen=True, eq=False)
class Cohort:
    """Some training documents with their learned codes.

    Attributes
    ----------
    quantizers : dict of side to Quantizer
    packed : dict of side to (blocks, M', 64) uint8
        Their scan codes, laid out for the scan.
    n_items : int
    """

    quantizers: Mapping[str, Quantizer]
    packed: Mapping[str, Codes]
    n_items: int

    @classmethod
    def of(cls, quantizers: Mapping[str, Quantizer], codes: Mapping[str, Codes]) -> Cohort:
        """At most 2,048 training documents, evenly over their rows; both arguments are by side."""
        n_rows = len(codes["image"])
        rows = np.linspace(0, n_rows - 1, min(n_rows, _SIZE)).astype(np.intp)
        with Workers(1) as workers:
            packed = {
                side: kernels.pack_codes(quantizers[side].scan_codes(each[rows], workers))
                for side, each in codes.items()
            }
        return cls(quantizers, packed, len(rows))

    def levels(self, points: Float32, target: str, n_threads: int = 1) -> NDArray[np.float64]:
        """Mean distance (n,) of query points (n, D) to the nearest of the cohort."""
        blocks = row_blocks(len(points), _QUERIES_AT_ONCE)
        parts = [self._levels(points[rows], target, n_threads) for rows in blocks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])

    def _levels(self, points: Float32, target: str, n_threads: int) -> NDArray[np.float64]:
        sides = tuple(self.packed) if target == "document" else (target,)
        tables = {side: self.quantizers[side].table(points) for side in sides}
        scans = [
            ScanSide(self.packed[side], np.ascontiguousarray(table.tables), table.offsets)
            for side, table in tables.items()
        ]
        near = max(1, self.n_items // _NEAREST)
        found = kernels.scan(scans, self.n_items, near, n_threads=n_threads)
        return found.distances.reshape(len(points), near).mean(axis=1, dtype=np.float64)
