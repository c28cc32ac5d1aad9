"""Which matrix of a file is meant."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.files.contents import CSR_PARTS, Contents
from crossbyte.data.files.csr import is_scipy_archive, read_scipy_archive, read_sparse
from crossbyte.errors import DataFileError

if TYPE_CHECKING:
    from crossbyte.arrays import Raw

__all__ = ["as_matrix", "choose_matrix"]


def as_matrix(values: NDArray[Any]) -> NDArray[Any]:
    """Return an array that is a matrix of real numbers, or say what it is."""
    if values.ndim != 2 or values.dtype.kind not in "biuf":
        raise DataFileError(
            f"expected a matrix of numbers (rows × features), got {values.dtype.name} of shape {values.shape}"
        )
    return values


def choose_matrix(contents: Contents, key: str | None, *, join: bool) -> Raw:
    """Read the matrix of that key, or the only one.

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
    key = _only_matrix(contents, join) if key is None else key
    if key is None:
        return _joined(contents)
    return read_sparse(contents, key) if contents.has_sparse(key) else as_matrix(contents.array(key))


def _only_matrix(contents: Contents, join: bool) -> str | None:
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


def _joined(contents: Contents) -> NDArray[Any]:
    columns = [contents.array(name) for name in contents.entries]
    if not columns or any(column.ndim != 1 or column.dtype.kind not in "biuf" for column in columns):
        raise DataFileError(
            f"expected a column of lists, or nothing but columns of numbers; there are: {contents.listing()}"
        )
    return np.column_stack(columns)
