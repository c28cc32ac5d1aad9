"""Hold all documents of one coding in memory, laid out for the scan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.compute.executor import Workers
from crossbyte.compute.kernels import pack_codes, unpack_codes
from crossbyte.index.bitset import Bitset, clear_bits, count_bits, pack_bits, unpack_bits
from crossbyte.index.docids import DocIds, PackedIds
from crossbyte.index.ivf.lists import InvertedLists, PartitionRows, build_lists
from crossbyte.index.ivf.state import CellState
from crossbyte.index.segment import Segment
from crossbyte.index.storage.records import Record
from crossbyte.model.quantization.quantizer import Quantizer

Quantizers = Mapping[str, Quantizer]
"""Quantizers by side."""


class SegmentRows(NamedTuple):
    """The record that rows of a partition come from, from which their columns and groups are read."""

    record: Record
    n_rows: int


@dataclass(frozen=True, eq=False)
class Partition:
    """Documents of one coding in the order of their numbers; a row is a place in the partition.

    Attributes
    ----------
    coding : str
    numbers : DocIds
    ids : PackedIds
    codes : mapping of side to (blocks, M', 64) uint8
        What the scan reads, with one byte more than the codes where the cross term is stored.
    live : Bitset
        Which documents are not deleted.
    with_payload : Bitset
        Which documents had a payload when they were added.
    segments : tuple of SegmentRows
        In the order of the rows.
    inverted_lists : mapping of side to InvertedLists
        The codes once more, cell after cell (IVF); empty for an index without cells.
    """

    coding: str
    numbers: DocIds
    ids: PackedIds
    codes: Mapping[str, Codes]
    live: Bitset
    with_payload: Bitset
    segments: tuple[SegmentRows, ...]
    inverted_lists: Mapping[str, InvertedLists] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.numbers.count

    @cached_property
    def n_live(self) -> int:
        """Documents that are not deleted."""
        return count_bits(self.live)

    def live_rows(self) -> NDArray[np.intp]:
        """Give the rows of the documents that are not deleted."""
        return np.flatnonzero(unpack_bits(self.live, len(self)))

    def without(self, rows: NDArray[np.integer[Any]]) -> Partition:
        """Give the same partition with these rows deleted."""
        return replace(self, live=clear_bits(self.live, rows))

    def code_rows(self, side: str, rows: NDArray[np.integer[Any]], n_codebooks: int) -> Codes:
        """Unpack the codes (n, M) of some rows."""
        return np.ascontiguousarray(unpack_codes(self.codes[side], rows)[:, :n_codebooks])

    @classmethod
    def join(
        cls,
        partition: Partition | None,
        segments: Sequence[tuple[Segment, Record]],
        quantizers: Quantizers,
        workers: Workers,
    ) -> Partition:
        """Append segments to a partition, or begin one; their numbers are larger than those before."""
        new = [segment for segment, _ in segments]
        count = sum(segment.numbers.count for segment in new)
        before = () if partition is None else (partition,)
        coding = new[0].coding
        return cls(
            coding,
            DocIds.join([part.numbers for part in (*before, *new)]),
            PackedIds.join([part.ids for part in (*before, *new)]),
            {
                side: _join_codes(
                    partition, [segment.codes[side] for segment in new], side, quantizer, workers
                )
                for side, quantizer in quantizers.items()
                if side in new[0].codes
            },
            _join_bits(
                partition.live if partition else None,
                len(partition) if partition else 0,
                [np.ones(count, dtype=bool)],
            ),
            _join_bits(
                partition.with_payload if partition else None,
                len(partition) if partition else 0,
                [unpack_bits(segment.with_payload, segment.numbers.count) for segment in new],
            ),
            (
                *(partition.segments if partition else ()),
                *(SegmentRows(r, s.numbers.count) for s, r in segments),
            ),
            partition.inverted_lists if partition else {},
        )

    def with_lists(
        self, state: CellState | None, new: Sequence[Segment], quantizers: Quantizers, workers: Workers
    ) -> Partition:
        """Give the same partition with inverted lists; ``new`` are the segments that were just appended."""
        rows = PartitionRows(self.coding, self.codes, len(self), new)
        return replace(
            self, inverted_lists=build_lists(self.inverted_lists, state, rows, quantizers, workers)
        )

    def memory(self) -> dict[str, int]:
        """Count bytes in memory by part."""
        return {
            "codes": sum(codes.nbytes for codes in self.codes.values()),
            "ids": self.ids.n_bytes,
            "numbers": self.numbers.n_bytes,
            "marks": self.live.nbytes + self.with_payload.nbytes,
            "cells": sum(lists.n_bytes for lists in self.inverted_lists.values()),
        }


def _join_codes(
    partition: Partition | None, new: Sequence[Codes], side: str, quantizer: Quantizer, workers: Workers
) -> Codes:
    parts = [quantizer.scan_codes(codes, workers) for codes in new]
    whole = len(partition) // 64 * 64 if partition is not None else 0
    if partition is not None and whole < len(partition):  # the last block is not full: fill it up
        parts.insert(0, unpack_codes(partition.codes[side], np.arange(whole, len(partition))))
    packed = pack_codes(parts[0] if len(parts) == 1 else np.concatenate(parts))
    return packed if partition is None else np.concatenate([partition.codes[side][: whole // 64], packed])


def _join_bits(old: Bitset | None, n_old: int, new: Sequence[NDArray[np.bool_]]) -> Bitset:
    if old is None:
        return pack_bits(np.concatenate(new))
    return pack_bits(np.concatenate([unpack_bits(old, n_old), *new]))
