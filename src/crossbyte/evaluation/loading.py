"""Where a collection comes from, in words that another process can follow."""

from __future__ import annotations

from dataclasses import dataclass

from crossbyte.data.collections.collection import Collection
from crossbyte.data.collections.reading import read_collection

__all__ = ["Source"]


@dataclass(frozen=True)
class Source:
    """What DATA names on the command line.

    Attributes
    ----------
    data : str
        A file, a folder, or ``generated:…``.
    name : str or None
        What the collection shall be called.
    seed : int
        Of the split, where the data have none, and of what is generated.
    """

    data: str
    name: str | None = None
    seed: int = 0

    def read(self) -> Collection:
        """Read or generate it: the same each time, in whatever process."""
        return read_collection(self.data, name=self.name, seed=self.seed)
