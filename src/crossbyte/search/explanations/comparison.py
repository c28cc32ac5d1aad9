"""One query beside one side of one item: the distance, codebook by codebook, and what would be nearer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32, Float64
from crossbyte.executors.threads import Workers
from crossbyte.kernels import WORDS
from crossbyte.quantization.quantizer import DistanceTable, Quantizer
from crossbyte.search.explanations.explanation import Share, Swap

__all__ = ["Comparison"]


@dataclass(frozen=True, eq=False)
class Comparison:
    """A query and one side of an item.

    Attributes
    ----------
    side : {"image", "text"}
    quantizer : Quantizer
        Of that side.
    point : (1, D) float32
        The query.
    code : (1, M) uint8
        The item.
    training : (N, M) uint8
        Codes of the training pairs on that side.
    """

    side: str
    quantizer: Quantizer
    point: Float32
    code: Codes
    training: Codes

    @cached_property
    def table(self) -> DistanceTable:
        """What a search adds up for this query."""
        return self.quantizer.table(self.point)

    @cached_property
    def distance(self) -> np.float32:
        """The distance of this side, as a search computes it."""
        return self._distances(self.code)[0]

    @cached_property
    def squared_length(self) -> float:
        """|x'|² of the query, summed as the search does."""
        return float(np.add.accumulate(self.point * self.point, axis=1)[0, -1])

    @property
    def cross_term(self) -> float:
        """The constant that stands for the cross term; zero where each item has its own."""
        return self.quantizer.epsilon if self.quantizer.cross_levels is None else 0.0

    @property
    def decoded(self) -> Float64:
        """The point (D,) that the item's code stands for."""
        with Workers(1) as workers:
            return self.quantizer.decode(self.code, workers)[0].astype(np.float64)

    @cached_property
    def n_shared(self) -> NDArray[np.int64]:
        """How many codewords each training pair (N,) shares with the item."""
        return np.asarray((self.training == self.code).sum(axis=1))

    # Shares

    def shares(self, n_examples: int) -> list[Share]:
        """One per codebook, and one for a stored cross term."""
        codewords = self._scan(self.code)[0].tolist()
        return [self._share(m, codeword, n_examples) for m, codeword in enumerate(codewords)]

    def _share(self, m: int, codeword: int, n_examples: int) -> Share:
        entries = self.table.tables[0, m]
        entry, best = float(entries[codeword]), int(entries.argmin())
        if m == len(self.quantizer.codewords):
            return Share(self.side, None, codeword, entry, entry, best, float(entries[best]), None, ())
        alike = np.flatnonzero(self.training[:, m] == codeword)
        rows = alike[np.argsort(-self.n_shared[alike], kind="stable")[:n_examples]]
        share = entry - self.squared_length
        values = share, entry, best, float(entries[best]), len(alike), tuple(rows.tolist())
        return Share(self.side, m, codeword, *values)

    # What would be nearer

    @cached_property
    def swaps(self) -> list[Swap]:
        """For each codebook, the codeword that would bring the item nearest with the others as they are."""
        n_codebooks = len(self.quantizer.codewords)
        codes = np.tile(self.code, (n_codebooks, WORDS, 1))
        codes[range(n_codebooks), :, range(n_codebooks)] = np.arange(WORDS)
        distances = self._distances(codes.reshape(-1, n_codebooks)).reshape(n_codebooks, WORDS)
        return [self._swap(m, each) for m, each in enumerate(distances)]

    def _swap(self, m: int, distances: Float32) -> Swap:
        own, best = int(self.code[0, m]), int(distances.argmin())
        if distances[best] == distances[own]:
            best = own
        return Swap(self.side, m, best, float(distances[own]) - float(distances[best]))

    @property
    def best_distance(self) -> np.float32:
        """Distance of the best code for this query: see ``Nearer``."""
        if self.quantizer.cross_levels is None:
            n_codebooks = len(self.quantizer.codewords)
            nearest = self.table.tables[:, :n_codebooks].argmin(axis=2).astype(np.uint8)
            return self._distances(nearest)[0]
        with Workers(1) as workers:
            found = self._distances(self.quantizer.encode(self.point, workers))[0]
        swapped = min(float(self.distance) - swap.gain for swap in self.swaps)
        return np.float32(min(float(found), swapped))

    def _distances(self, codes: Codes) -> Float32:
        return self.table.distances(self._scan(codes))[0]

    def _scan(self, codes: Codes) -> Codes:
        with Workers(1) as workers:
            return self.quantizer.scan_codes(codes, workers)
