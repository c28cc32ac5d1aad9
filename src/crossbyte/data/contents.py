"""List the arrays of a file, choose the matrix that the user means, and read sparse matrices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import DataFileError

if TYPE_CHECKING:
    from scipy import sparse

    from crossbyte.arrays import Raw


CSR_PARTS = ("data", "indices", "indptr", "shape")
"""A sparse matrix KEY is stored as the arrays KEY_data, KEY_indices, KEY_indptr and KEY_shape."""


_MAX_INT32 = 2**31 - 1  # SciPy's small index type


class Entry(NamedTuple):
    """One array, variable or column of a file.

    Attributes
    ----------
    name : str
    dtype : str
        NumPy's name of a type of numbers, ``text``, ``bytes``, or what the format calls it.
    shape : tuple of int, or None
        None where only reading would tell.
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
        """Tell whether this is a two-dimensional array of real numbers."""
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
        """Tell whether the four arrays of a sparse matrix of this name are there."""
        return all(f"{name}_{part}" in self.entries for part in CSR_PARTS)

    def sparse_names(self) -> list[str]:
        """Return the names of all sparse matrices."""
        names = (name.removesuffix("_indptr") for name in self.entries if name.endswith("_indptr"))
        return [name for name in names if self.has_sparse(name)]

    def listing(self) -> str:
        """List the entries in words, for messages."""
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
    """Convert an array to Python values; NaN, which JSON does not have, becomes None."""
    if array.dtype.kind == "S":
        array = np.char.decode(array, "utf-8", "strict")
    values: list[Any] = array.tolist()
    if array.dtype.kind == "f" and np.isnan(array).any():
        return _replace_nan(values)
    return values


def _replace_nan(values: list[Any]) -> list[Any]:
    return [
        _replace_nan(value) if isinstance(value, list) else None if value != value else value
        for value in values
    ]


def columns_to_rows(columns: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Turn columns of equal length into one dict per row."""
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


# The matrix that the user means


def choose_matrix(contents: Contents, key: str | None, *, join: bool) -> Raw:
    """Read the matrix of a key, or the only one.

    Parameters
    ----------
    contents : Contents
    key : str or None
    join : bool
        Without a key and without a matrix, put columns of numbers side by side.

    Returns
    -------
    (n, d) ndarray or csr_matrix
    """
    if key is None and is_scipy_archive(contents):
        return read_scipy_archive(contents)
    key = _find_only_matrix(contents, join) if key is None else key
    if key is None:
        return _join_columns(contents)
    return read_sparse(contents, key) if contents.has_sparse(key) else as_matrix(contents.array(key))


def _find_only_matrix(contents: Contents, join: bool) -> str | None:
    sparse_names = contents.sparse_names()
    parts = {f"{name}_{part}" for name in sparse_names for part in CSR_PARTS}
    dense = [name for name, entry in contents.entries.items() if entry.is_matrix and name not in parts]
    found = sparse_names + dense
    if join and not found:
        return None
    if len(found) != 1:
        raise DataFileError(
            f"expected one matrix of numbers, got {len(found)}; choose one with key=; "
            f"there are: {contents.listing()}"
        )
    return found[0]


def _join_columns(contents: Contents) -> NDArray[Any]:
    columns = [contents.array(name) for name in contents.entries]
    if not columns or any(column.ndim != 1 or column.dtype.kind not in "biuf" for column in columns):
        raise DataFileError(
            f"expected a column of lists, or nothing but columns of numbers; there are: {contents.listing()}"
        )
    return np.column_stack(columns)


def as_matrix(values: NDArray[Any]) -> NDArray[Any]:
    """Return the array if it is a matrix of real numbers; refuse it otherwise."""
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"expected a matrix of numbers (rows × features), got {values.dtype.name} of shape {values.shape}"
        )
    return values


# Sparse matrices stored in parts


def read_sparse(contents: Contents, name: str) -> sparse.csr_matrix:
    """Read the matrix stored as NAME_data, NAME_indices, NAME_indptr and NAME_shape."""
    from scipy import sparse

    data, indices, indptr, shape = (contents.array(f"{name}_{part}") for part in CSR_PARTS)
    parts = _check_csr(data, indices, indptr, _check_shape(shape))
    return sparse.csr_matrix(parts, shape=_check_shape(shape))


def is_scipy_archive(contents: Contents) -> bool:
    """Tell whether the file was written by ``scipy.sparse.save_npz``."""
    return "format" in contents.entries and "shape" in contents.entries


def read_scipy_archive(contents: Contents) -> sparse.csr_matrix:
    """Read what ``scipy.sparse.save_npz`` wrote, if it is compressed by rows or columns."""
    from scipy import sparse

    kind = str(contents.array("format").astype("U")[()])
    if kind not in ("csr", "csc"):
        raise DataFileError(f"expected a sparse matrix in CSR form, got {kind[:20]!r}; save matrix.tocsr()")
    data, indices, indptr, shape = (contents.array(part) for part in CSR_PARTS)
    n_rows, n_columns = _check_shape(shape)
    if kind == "csr":
        return sparse.csr_matrix(
            _check_csr(data, indices, indptr, (n_rows, n_columns)), shape=(n_rows, n_columns)
        )
    by_columns = _check_csr(data, indices, indptr, (n_columns, n_rows))
    return sparse.csr_matrix(sparse.csc_matrix(by_columns, shape=(n_rows, n_columns)))


def _check_shape(shape: NDArray[Any]) -> tuple[int, int]:
    if shape.shape != (2,) and shape.shape not in ((1, 2), (2, 1)) or shape.dtype.kind not in "iu":
        raise DataFileError("expected the shape of a sparse matrix as two whole numbers; save it anew")
    n_rows, n_columns = (int(size) for size in shape.ravel())
    if not (0 <= n_rows <= _MAX_INT32 and 0 <= n_columns <= _MAX_INT32):
        raise DataFileError(
            f"expected a sparse matrix of at most 2^31 rows and columns, got {n_rows} × {n_columns}"
        )
    return n_rows, n_columns


def _check_csr(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Check the parts of a CSR matrix, and return them with the smallest index type."""
    if data.ndim != 1 or indices.ndim != 1 or indptr.ndim != 1 or data.dtype.kind not in "biuf":
        raise DataFileError("expected the parts of a sparse matrix as one-dimensional numbers; save it anew")
    if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu" or len(data) != len(indices):
        raise DataFileError(
            "expected as many whole-number indices as values in a sparse matrix; save it anew"
        )
    if len(indptr) != shape[0] + 1:
        raise DataFileError(f"expected {shape[0] + 1} row starts for {shape[0]} rows, got {len(indptr)}")
    if indptr[0] != 0 or indptr[-1] != len(data) or bool((indptr[1:] < indptr[:-1]).any()):
        raise DataFileError("expected row starts that rise from 0 to the number of values; save it anew")
    if len(indices) and not (int(indices.min()) >= 0 and int(indices.max()) < shape[1]):
        raise DataFileError(f"expected columns from 0 to {shape[1] - 1} in a sparse matrix, got others")
    small = np.int32 if len(data) <= _MAX_INT32 else np.int64
    return data, indices.astype(small, copy=False), indptr.astype(small, copy=False)
