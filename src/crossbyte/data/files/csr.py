"""Sparse matrices from their parts, every number checked: SciPy's own loops believe them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.files.contents import CSR_PARTS, Contents
from crossbyte.errors import DataFileError

if TYPE_CHECKING:
    from scipy import sparse

__all__ = ["is_scipy_archive", "read_scipy_archive", "read_sparse"]

_LARGEST = 2**31 - 1  # SciPy's small index type


def read_sparse(contents: Contents, name: str) -> sparse.csr_matrix:
    """Read the matrix stored as NAME_data, NAME_indices, NAME_indptr and NAME_shape."""
    from scipy import sparse

    data, indices, indptr, shape = (contents.array(f"{name}_{part}") for part in CSR_PARTS)
    parts = _checked(data, indices, indptr, _shape(shape))
    return sparse.csr_matrix(parts, shape=_shape(shape))


def is_scipy_archive(contents: Contents) -> bool:
    """Whether the file was written by ``scipy.sparse.save_npz``."""
    return "format" in contents.entries and "shape" in contents.entries


def read_scipy_archive(contents: Contents) -> sparse.csr_matrix:
    """Read what ``scipy.sparse.save_npz`` wrote, if it is compressed by rows or columns."""
    from scipy import sparse

    kind = str(contents.array("format").astype("U")[()])
    if kind not in ("csr", "csc"):
        raise DataFileError(f"expected a sparse matrix in CSR form, got {kind[:20]!r}; save matrix.tocsr()")
    data, indices, indptr, shape = (contents.array(part) for part in CSR_PARTS)
    n_rows, n_columns = _shape(shape)
    if kind == "csr":
        return sparse.csr_matrix(
            _checked(data, indices, indptr, (n_rows, n_columns)), shape=(n_rows, n_columns)
        )
    by_columns = _checked(data, indices, indptr, (n_columns, n_rows))
    return sparse.csr_matrix(sparse.csc_matrix(by_columns, shape=(n_rows, n_columns)))


def _shape(shape: NDArray[Any]) -> tuple[int, int]:
    if shape.shape != (2,) and shape.shape not in ((1, 2), (2, 1)) or shape.dtype.kind not in "iu":
        raise DataFileError("expected the shape of a sparse matrix as two whole numbers; save it anew")
    n_rows, n_columns = (int(size) for size in shape.ravel())
    if not (0 <= n_rows <= _LARGEST and 0 <= n_columns <= _LARGEST):
        raise DataFileError(
            f"expected a sparse matrix of at most 2^31 rows and columns, got {n_rows} × {n_columns}"
        )
    return n_rows, n_columns


def _checked(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the parts of a matrix whose rows are compressed, or say which of them lies."""
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
    small = np.int32 if len(data) <= _LARGEST else np.int64
    return data, indices.astype(small, copy=False), indptr.astype(small, copy=False)
