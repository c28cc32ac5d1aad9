"""The live documents of an index that have one side, in the order of their numbers, block by block."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes
from crossbyte.errors import InvalidInput
from crossbyte.search.ids import Id
from crossbyte.search.ranking import Ranking, resolve_ids
from crossbyte.search.segment import CODINGS
from crossbyte.search.snapshot import Place, Snapshot

__all__ = ["Listing", "write_ids"]

_ROWS_AT_ONCE = 2**16  # bounds what is decoded, or made into Python objects, at a time


@dataclass(frozen=True, eq=False)
class Listing:
    """Documents with a side.

    Attributes
    ----------
    snapshot : Snapshot
    side : {"image", "text"}
    numbers : (n,) int64
        Ascending.
    codings : (n,) uint8
        Places in the list of all codings.
    rows : (n,) int64
        Places in the partitions.
    """

    snapshot: Snapshot
    side: str
    numbers: NDArray[np.int64]
    codings: NDArray[np.uint8]
    rows: NDArray[np.int64]

    @classmethod
    def of(cls, snapshot: Snapshot, side: str) -> Listing:
        """All live documents that have the side."""
        shelves = [shelf for shelf in snapshot.shelves.values() if side in shelf.codes]
        rows = [shelf.live_rows().astype(np.int64) for shelf in shelves]
        numbers = [shelf.numbers[mine] for shelf, mine in zip(shelves, rows, strict=True)]
        codings = [
            np.full(len(mine), CODINGS.index(shelf.coding)) for shelf, mine in zip(shelves, rows, strict=True)
        ]
        everything = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (numbers, codings, rows))
        whole = cls(snapshot, side, *everything)
        return whole._take(np.argsort(whole.numbers))

    @classmethod
    def to_export(cls, snapshot: Snapshot, side: str) -> Listing:
        """The same, but refuses a side that no document has where documents have the other one."""
        found = cls.of(snapshot, side)
        other = "text" if side == "image" else "image"
        if not len(found) and (there := len(cls.of(snapshot, other))):
            raise InvalidInput(
                f"the index has no {side}s to export, only {there:,} {other}s; export the {other} side"
            )
        return found

    def __len__(self) -> int:
        return len(self.rows)

    def blocks(self) -> Iterator[Listing]:
        """The same in pieces."""
        for start in range(0, len(self), _ROWS_AT_ONCE):
            yield self._take(slice(start, start + _ROWS_AT_ONCE))

    def _take(self, places: slice | NDArray[np.intp]) -> Listing:
        codings = self.codings[places].astype(np.uint8)
        return Listing(self.snapshot, self.side, self.numbers[places], codings, self.rows[places])

    def ids(self) -> list[Id]:
        """The external ids."""
        unknown = np.zeros(len(self), np.float32)
        return resolve_ids(self.snapshot, Ranking(unknown, self.numbers, self.codings, self.rows))

    def coding_names(self) -> list[str]:
        """How each was coded."""
        return [CODINGS[place] for place in self.codings.tolist()]

    def places(self) -> list[Place]:
        """Where each is."""
        return list(map(Place, self.coding_names(), self.rows.tolist()))

    def codes(self, n_codebooks: int) -> Codes:
        """Codes (n, M) uint8; with one codebook more than there are, the byte of a stored cross term too."""
        codes = np.empty((len(self), n_codebooks), dtype=np.uint8)
        for place in np.unique(self.codings).tolist():
            mine = self.codings == place
            shelf = self.snapshot.shelves[CODINGS[place]]
            codes[mine] = shelf.code_rows(self.side, self.rows[mine], n_codebooks)
        return codes


def write_ids(listing: Listing, path: str) -> None:
    """Write the ids as one JSON array, block by block; strings and integers stay what they are."""
    with open(path, "x", encoding="ascii") as file:
        file.write("[")
        for number, block in enumerate(listing.blocks()):
            file.write((",\n" if number else "") + json.dumps(block.ids(), separators=(",", ":"))[1:-1])
        file.write("]\n")
