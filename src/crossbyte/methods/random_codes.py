"""Codes that know nothing: the floor of every table, by the same way as everything else."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from crossbyte.arrays import Float64, Raw
from crossbyte.blocks import row_blocks
from crossbyte.methods.hamming import SeparateHashing
from crossbyte.methods.preparing import dense_rows
from crossbyte.methods.protocol import About, Side

__all__ = ["RandomCodes"]


@dataclass(kw_only=True)
class RandomCodes(SeparateHashing):
    """Bits at random, decided by the seed, the side and the features of a row alone.

    The same row has the same code in any batch and at any time, as in any other system, and the two halves
    of a document have nothing in common.
    """

    about: ClassVar[About] = About(
        key="random",
        name="Random codes",
        source="no system: what codes score that know nothing",
        relations=(),
        codes="separate",
        coding="hash",
        distance="hamming",
        in_paper=False,
    )

    def _learn(self, images: Raw, texts: Raw, labels: Any) -> None:
        """Nothing is learned."""

    def _signs(self, side: Side, rows: Raw) -> Float64:
        n_bytes = -(-self.n_bits // 8)
        salt = f"{self.random_state} {side} ".encode()
        drawn = bytearray()
        for block in row_blocks(rows.shape[0]):
            for row in dense_rows(rows[block]) + 0.0:  # a row is the same however it is stored, and 0 is -0
                drawn += hashlib.shake_128(salt + row.tobytes()).digest(n_bytes)
        bits = np.unpackbits(np.frombuffer(drawn, dtype=np.uint8).reshape(-1, n_bytes), axis=1)
        return bits[:, : self.n_bits].astype(np.float64) - 0.5
