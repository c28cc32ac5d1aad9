"""Read MATLAB files of version 5 and 7: checked by their first bytes, parsed by SciPy in a child process."""

from __future__ import annotations

from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.contents import CSR_PARTS, Contents, Entry, type_name
from crossbyte.data.safe_open import Limits, OpenFile
from crossbyte.data.sandbox import parse_in_child, send_array, send_json
from crossbyte.errors import DataFileError

_HDF5 = b"\x89HDF\r\n\x1a\n"


def read_mat(opened: OpenFile, limits: Limits, *, headers_only: bool = False) -> Contents:
    """Read the variables of a file."""
    _check_version(opened)
    return parse_in_child(opened, "mat", limits, headers_only=headers_only)


def _check_version(opened: OpenFile) -> None:
    head = opened.file.read(128)
    if head.startswith((b"MATLAB 7.3", _HDF5)):
        raise DataFileError(
            "is a MATLAB 7.3 file (HDF5), which is not read; in MATLAB: save(name, '-v7'), "
            "or save its arrays as .npy"
        )
    version = {b"IM": head[125:126], b"MI": head[124:125]}.get(head[126:128])
    if version != b"\x01":
        raise DataFileError(
            "expected a MATLAB file of version 5 or 7, got another (4, or none at all); "
            "in MATLAB: save(name, '-v7')"
        )


def parse_mat(file: BinaryIO, request: dict[str, Any], out: BinaryIO) -> None:
    """Parse a file in the child process: send the list of variables, then the arrays."""
    import scipy.io

    source: Any = file  # SciPy's stubs know only paths
    if request["headers_only"]:
        found = [
            [str(name), str(kind), [*map(int, shape)], ""] for name, shape, kind in scipy.io.whosmat(source)
        ]
        send_json(out, b"D", found)
        return
    variables = scipy.io.loadmat(source, appendmat=False)
    names = [name for name in variables if not name.startswith("__")]
    if len(names) > request["members"]:
        raise DataFileError(f"expected at most {request['members']} variables, got {len(names)}")
    _send_variables(out, dict(pair for name in names for pair in _variable_arrays(name, variables[name])))


def _send_variables(out: BinaryIO, parts: dict[str, NDArray[Any] | str]) -> None:
    entries = [
        Entry(name, "other", None, part)
        if isinstance(part, str)
        else Entry(name, type_name(part.dtype), part.shape)
        for name, part in parts.items()
    ]
    send_json(out, b"D", [list(entry) for entry in entries])
    for name, part in parts.items():
        if not isinstance(part, str):
            send_array(out, name, part)


def _variable_arrays(name: str, value: Any) -> list[tuple[str, NDArray[Any] | str]]:
    """Return the arrays that stand for one variable, or why there are none."""
    from scipy import sparse

    is_sparse: bool = sparse.issparse(value)
    if is_sparse:
        rows = value.tocsr()
        shape = np.array(rows.shape, dtype=np.int64)
        arrays = (rows.data, rows.indices, rows.indptr, shape)
        return [(f"{name}_{part}", array) for part, array in zip(CSR_PARTS, arrays, strict=True)]
    array = np.asarray(value)
    if array.dtype.kind == "O":
        return [(name, _cell_texts(array))]
    if array.dtype.kind not in "biufU" or array.ndim > 2:
        return [(name, f"a {array.ndim}-dimensional {_describe_kind(array)} is not read")]
    return [(name, array if array.dtype.itemsize else array.astype("U1"))]


def _describe_kind(array: NDArray[Any]) -> str:
    return "struct" if array.dtype.kind == "V" else f"{array.dtype.name} array"


def _cell_texts(cells: NDArray[Any]) -> NDArray[Any] | str:
    """Turn a cell array of texts into an array of strings of the same shape."""
    texts = [np.asarray(cell) for cell in cells.ravel()]
    if cells.ndim > 2 or not all(text.dtype.kind == "U" and text.size <= 1 for text in texts):
        return "a cell array or struct that holds more than texts is not read"
    return np.array([str(text.ravel()[0]) if text.size else "" for text in texts] or [], "U").reshape(
        cells.shape
    )
