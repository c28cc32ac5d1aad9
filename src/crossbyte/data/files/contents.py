"""What a file of several arrays holds: names, types and shapes now, the data on request."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import DataFileError

__all__ = ["CSR_PARTS", "Contents", "Entry", "plain_values", "type_name"]

CSR_PARTS = ("data", "indices", "indptr", "shape")
"""A sparse matrix KEY is stored as the arrays KEY_data, KEY_indices, KEY_indptr and KEY_shape."""


class Entry(NamedTuple):
    """One array, variable or column of a file.

    Attributes
    ----------
    name : str
    dtype : str
        NumPy's name of a type of numbers, ``text``, ``bytes``, or what the format calls it.
    shape : tuple of int, or None
        None where it takes reading to know.
    problem : str
        Why the entry cannot be read; empty when it can.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None
    problem: str = ""

    def __str__(self) -> str:
        shape = "" if self.shape is None else f" {self.shape}"
        return f"{self.name} {self.dtype}{shape}" + (f" ({self.problem})" if self.problem else "")

    @property
    def is_matrix(self) -> bool:
        """Whether this is a two-dimensional array of real numbers."""
        numeric = self.dtype.startswith(("float", "int", "uint", "bool"))
        return not self.problem and numeric and self.shape is not None and len(self.shape) == 2


@dataclass(frozen=True)
class Contents:
    """The entries of one file, and the function that reads one of them.

    Attributes
    ----------
    entries : dict of str to Entry
    load : callable
        Takes a name; returns an array, or a list of JSON values where the column is no array.
    """

    entries: dict[str, Entry]
    load: Callable[[str], NDArray[Any] | list[Any]]

    def array(self, name: str) -> NDArray[Any]:
        """Read one entry as an array."""
        values = self._read(name)
        if isinstance(values, list):
            raise DataFileError(f"expected {name} to be an array of numbers, got {self.entries[name].dtype}")
        return values

    def values(self, name: str) -> list[Any]:
        """Read one entry as a list of JSON values, one for each row; a missing number (NaN) is None."""
        values = self._read(name)
        return values if isinstance(values, list) else plain_values(values)

    def has_sparse(self, name: str) -> bool:
        """Whether the four arrays of a sparse matrix of this name are there."""
        return all(f"{name}_{part}" in self.entries for part in CSR_PARTS)

    def sparse_names(self) -> list[str]:
        """Return the names of all sparse matrices."""
        names = (name.removesuffix("_indptr") for name in self.entries if name.endswith("_indptr"))
        return [name for name in names if self.has_sparse(name)]

    def listing(self) -> str:
        """Return what is there, for messages."""
        return ", ".join(str(entry)[:80] for entry in self.entries.values())[:1500] or "nothing"

    def _read(self, name: str) -> NDArray[Any] | list[Any]:
        if name not in self.entries:
            raise DataFileError(f"expected an array called {name!r}; there are: {self.listing()}")
        if self.entries[name].problem:
            raise DataFileError(f"{name}: {self.entries[name].problem}")
        return self.load(name)


def type_name(dtype: np.dtype[Any]) -> str:
    """Return NumPy's name of a type of numbers, ``text`` or ``bytes``."""
    return {"U": "text", "S": "bytes"}.get(dtype.kind, dtype.name)


def plain_values(array: NDArray[Any]) -> list[Any]:
    """Turn an array into Python values; NaN, which JSON does not have, becomes None."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "strict")
    values: list[Any] = array.tolist()
    if array.dtype.kind == "f" and np.isnan(array).any():
        return _without_nan(values)
    return values


def _without_nan(values: list[Any]) -> list[Any]:
    return [
        _without_nan(value) if isinstance(value, list) else None if value != value else value
        for value in values
    ]
