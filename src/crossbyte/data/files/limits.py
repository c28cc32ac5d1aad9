"""How much of a user's file is believed."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Limits"]


class Limits(NamedTuple):
    """The most that reading one file may take; pass other numbers where a file is trusted and larger.

    Attributes
    ----------
    max_bytes : int
        Data of one ``.npy`` array.
    archive_bytes : int
        Everything in one ``.npz``, or everything that one ``.mat`` or Parquet file gives.
    archive_ratio : int
        Those bytes over the size of the file, once they pass 16 MiB.
    archive_members : int
        Arrays in one ``.npz``, variables in one ``.mat`` file.
    text_bytes : int
        Size of a CSV or JSON-lines file.
    rows : int
        Rows of a CSV, JSON-lines or Parquet file.
    columns : int
        Columns of a CSV or Parquet file.
    field_chars : int
        Characters of one CSV field. The standard library's own limit is the default, and binds too.
    line_bytes : int
        Bytes of one line of text.
    depth : int
        Levels of one JSON object.
    mat_memory, parquet_memory : int
        Address space of the process that parses, in bytes, libraries included.
    child_seconds : int
        CPU time of that process. Small files get less: 3 s and 1 s for each 4 MiB.
    """

    max_bytes: int = 4 * 2**30
    archive_bytes: int = 2**30
    archive_ratio: int = 100
    archive_members: int = 64
    text_bytes: int = 2**29
    rows: int = 10_000_000
    columns: int = 20_000
    field_chars: int = 131_072
    line_bytes: int = 2**24
    depth: int = 32
    mat_memory: int = 2**30
    parquet_memory: int = 3 * 2**29
    child_seconds: int = 20

    def unpacked(self, file_bytes: int) -> int:
        """Return how many bytes a file of ``file_bytes`` may unpack to."""
        # A ratio means nothing in small files: an array of ones shrinks 1,000 times.
        return min(self.archive_bytes, max(16 * 2**20, self.archive_ratio * file_bytes))
