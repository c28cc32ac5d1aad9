"""What a fit may be given beside arrays: paths, memory maps and blocks become stored rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from typing import Any

import numpy as np
from scipy import sparse

from crossbyte.data.stored.array_file import ArrayFile
from crossbyte.data.stored.opening import open_rows
from crossbyte.data.stored.spooling import spool
from crossbyte.validation import is_stored

__all__ = ["accept"]


def accept(values: Any, name: str) -> Any:
    """Give stored rows for what is or should stay on disk, and everything else as it is.

    Parameters
    ----------
    values : path, memory map, iterable of blocks, or anything else
        A path is opened by :func:`open_rows`. A map is read through its file. An iterable of blocks (arrays
        or sparse matrices) is read once, into scratch files; an iterator is used up by it.
    name : str
        What the side is called in errors.
    """
    if isinstance(values, str | os.PathLike):
        return open_rows(values)
    if isinstance(values, np.memmap):
        return ArrayFile.under(values) or values
    if _are_blocks(values):
        return spool(_numbered(values, name), name)
    return values


def _are_blocks(values: Any) -> bool:
    """Whether to iterate; sequences without a matrix in front are arrays that somebody wrote as lists."""
    plain = isinstance(values, np.ndarray | bytes | bytearray | memoryview | Mapping | Set)
    known = plain or sparse.issparse(values) or hasattr(values, "__array__") or is_stored(values)
    if known or not isinstance(values, Iterable):
        return False
    if isinstance(values, Iterator) or not hasattr(values, "__len__"):
        return True
    first = next(iter(values), None)
    return first is not None and len(getattr(first, "shape", ())) == 2


def _numbered(blocks: Iterable[Any], name: str) -> Iterator[tuple[str, Any]]:
    return ((f"{name}, block {number}", block) for number, block in enumerate(blocks))
