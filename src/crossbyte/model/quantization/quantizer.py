"""Encode, decode and compute distances with the fitted quantizer of one modality."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.compute.executor import Executor
from crossbyte.compute.kernels import CodewordTables, CrossPenalty, TableSource
from crossbyte.model.quantization import codebooks, collaborative

_LEVELS = 256  # a stored cross term is one byte
_KEPT_CODEBOOKS = 16  # 64 MB of inner products


@dataclass(frozen=True, eq=False)
class DistanceTable:
    """What a search adds up for some queries.

    Attributes
    ----------
    tables : (n, M', 256) float32
        ``tables[q, m, code]``; one table per codebook, and one more for a stored cross term.
    offsets : (n,) float32
        Added last: -(M - 1)|x'|², and ε where the cross term is not stored.
    """

    tables: Float32
    offsets: Float32

    def distances(self, scan_codes: Codes) -> Float32:
        """Compute distances (n, N) float32 to items given by their scan codes (N, M').

        The canonical sum: float32, table after table, the offset last.
        """
        total = self.tables[:, 0, scan_codes[:, 0]]
        for m in range(1, scan_codes.shape[1]):
            total += self.tables[:, m, scan_codes[:, m]]
        total += self.offsets[:, None]
        return total


@dataclass(frozen=True, eq=False)
class Quantizer:
    """Codebooks of one side, and how their cross term is treated.

    Attributes
    ----------
    codewords : (M, 256, d) float32
        Codebooks C or D.
    epsilon : float
        Mean cross term of the training items.
    cross_penalty : float
        μ, for coding items on their own.
    cross_levels : (256,) float32 or None
        Values that a stored cross term is rounded to; None with the paper's constant cross term.
    coding_scales : (d,) float64 or None
        Codewords times these are in the metric that items are coded in, where that is not the metric of
        distances; None where it is.
    """

    codewords: Float32
    epsilon: float
    cross_penalty: float
    cross_levels: Float32 | None
    coding_scales: Float64 | None = None

    @cached_property
    def table_source(self) -> TableSource:
        """What the distance tables of queries are made of."""
        by_dim = np.ascontiguousarray(self.codewords.transpose(0, 2, 1))
        return TableSource(by_dim, self.cross_levels, self.epsilon)

    @property
    def tables(self) -> CodewordTables:
        """What coding needs to know of the codewords; kept while it is small (it grows with M²)."""
        return self._kept_tables if len(self.codewords) <= _KEPT_CODEBOOKS else self._make_tables()

    @cached_property
    def _kept_tables(self) -> CodewordTables:
        return self._make_tables()

    def _make_tables(self) -> CodewordTables:
        scales = self.coding_scales
        return CodewordTables.of(self.codewords if scales is None else self.codewords * scales)

    @property
    def penalty(self) -> CrossPenalty:
        """The penalty when coding one side alone; a stored cross term needs none."""
        return CrossPenalty(self.cross_penalty if self.cross_levels is None else 0.0, self.epsilon)

    def to_coding(self, points: NDArray[Any]) -> Float32:
        """Take points (n, d) from the metric of distances to the metric that items are coded in."""
        scales = self.coding_scales
        return np.asarray(points if scales is None else points * scales, dtype=np.float32)

    def from_coding(self, points: NDArray[Any]) -> Float32:
        """Take points (n, d) from the metric that items are coded in to the metric of distances."""
        scales = self.coding_scales
        return np.asarray(points if scales is None else points / scales, dtype=np.float32)

    def with_cross_term(
        self, cross_term: str, codes: Codes, workers: Executor, margin: float = 0.1
    ) -> Quantizer:
        """Return it with the cross term ``"stored"`` (levels from these codes) or ``"constant"``."""
        if cross_term == "constant":
            return replace(self, cross_levels=None)
        cross = codebooks.cross_terms(self.codewords, codes, workers)
        return replace(self, cross_levels=_cross_levels(cross, margin))

    def encode(self, points: Float32, workers: Executor) -> Codes:
        """Code points (n, d), in the metric of coding: (n, M) uint8."""
        return collaborative.encode(self.tables, points, self.penalty, workers)

    def decode(self, codes: Codes, workers: Executor) -> Float32:
        """Decode codes (n, M) into the points (n, d) that they stand for."""
        return codebooks.decode(self.codewords, codes, workers)

    def scan_codes(self, codes: Codes, workers: Executor) -> Codes:
        """Make the codes that a search reads, with one more byte where the cross term is stored."""
        if self.cross_levels is None:
            return codes
        cross = codebooks.cross_terms(self.codewords, codes, workers)
        low, high = float(self.cross_levels[0]), float(self.cross_levels[-1])
        step = (high - low) / (_LEVELS - 1)
        byte = np.clip(np.rint((cross - low) / (step or 1.0)), 0, _LEVELS - 1).astype(np.uint8)
        return np.column_stack([codes, byte])

    def table(self, points: Float32) -> DistanceTable:
        """Make the distance table of query points (n, d); a query's does not depend on the others.

        Raises
        ------
        NumericalError
            A query lies so far away that the order of its distances would mean nothing.
        """
        return DistanceTable(*self.table_source.make_tables(points))


def _cross_levels(cross: NDArray[np.float64], margin: float) -> Float32:
    """Space 256 even levels over the range of the training items' cross terms, and a share of it beyond."""
    low, high = float(cross.min()), float(cross.max())
    beyond = margin * (high - low)
    return np.linspace(low - beyond, high + beyond, _LEVELS).astype(np.float32)
