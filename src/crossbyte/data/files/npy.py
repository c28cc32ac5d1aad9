"""Arrays in NumPy's ``.npy`` form, read from any stream of a known length.

The header is judged before NumPy sees anything: three known keys, a type from a closed list, at most two
dimensions, and exactly as many bytes as are there. Nothing of it is ever evaluated.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import DataFileError

__all__ = ["Header", "Stream", "fill", "read_array", "read_header"]

_MAGIC = b"\x93NUMPY"
_LENGTH_BYTES = {(1, 0): 2, (2, 0): 4, (3, 0): 4}
_MAX_HEADER = 4096
_PIECE = 2**20

_DESCR = r"""['"]descr['"]\s*:\s*['"]([^'"]*)['"]"""
_ORDER = r"""['"]fortran_order['"]\s*:\s*(True|False)"""
_EXTENT = r"""['"]shape['"]\s*:\s*\(([\d,\s]*)\)"""
_HEADER = re.compile(rf"\s*\{{\s*(?:(?:{_DESCR}|{_ORDER}|{_EXTENT})\s*(?:,\s*|(?=\}})))*\}}\s*")
_SHAPE = re.compile(r"\s*(?:\d{1,18}\s*,\s*)*(?:\d{1,18}\s*)?")
_TYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|[US]\d{1,9})")


class Stream(Protocol):
    """Source of bytes: a file, a member of an archive, a pipe."""

    def readinto(self, buffer: memoryview, /) -> int | None:
        """Fill a part of the buffer and return its length; 0 at the end."""
        ...


class Header(NamedTuple):
    """Header of an array: its type as stored, its shape, its order, and the bytes of its data."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    n_bytes: int


def read_array(stream: Stream, available: int, max_bytes: int) -> NDArray[Any]:
    """Read one array.

    Parameters
    ----------
    stream : Stream
        Stands at the first byte of the magic.
    available : int
        Bytes from there to the end: the array must take all of them.
    max_bytes : int
        The most that its data may take.

    Returns
    -------
    ndarray
        At most two-dimensional, in memory, in the machine's byte order; C or Fortran order as stored.

    Raises
    ------
    DataFileError
        Anything else than such an array.
    """
    header = read_header(stream, available, max_bytes)
    # the transpose of a C array is a Fortran array: read in place, copied never
    stored = np.empty(header.shape[::-1] if header.fortran else header.shape, header.dtype)
    fill(stream, stored.reshape(-1).view(np.uint8).data)
    _check_values(stored)
    if not stored.dtype.isnative:
        stored = stored.byteswap(inplace=True).view(stored.dtype.newbyteorder())
    return stored.T if header.fortran else stored


def read_header(stream: Stream, available: int, max_bytes: int) -> Header:
    """Read and judge the header alone; the stream then stands at the data."""
    preamble = _take(stream, 8)
    if preamble[:6] != _MAGIC:
        raise DataFileError(
            "expected an array in NumPy's .npy form, got other bytes at its start; save it with numpy.save"
        )
    width = _LENGTH_BYTES.get((preamble[6], preamble[7]))
    if width is None:
        raise DataFileError(f"expected .npy version 1, 2 or 3, got {preamble[6]}.{preamble[7]}; save it anew")
    length = int.from_bytes(_take(stream, width), "little")
    if length > _MAX_HEADER:
        raise DataFileError(
            f"expected an array header of at most {_MAX_HEADER} bytes, got {length}; save plain numbers"
        )
    header = _parse(_take(stream, length))
    _check_size(header, available - 8 - width - length, max_bytes)
    return header


def fill(stream: Stream, buffer: memoryview) -> None:
    """Fill the whole buffer, in pieces, or raise."""
    done = 0
    while done < len(buffer):
        n_read = stream.readinto(buffer[done : done + _PIECE])
        if not n_read:
            raise DataFileError("ends too early, in the middle of an array; copy or save it again")
        done += n_read


def _take(stream: Stream, n_bytes: int) -> bytes:
    taken = bytearray(n_bytes)
    fill(stream, memoryview(taken))
    return bytes(taken)


def _parse(raw: bytes) -> Header:
    text = raw.decode("latin-1")
    if not _HEADER.fullmatch(text):
        raise DataFileError(
            "expected an array header with type, order and shape, got a damaged one, or an array of records; "
            "save a plain array with numpy.save"
        )
    descr, order, extent = (re.findall(pattern, text) for pattern in (_DESCR, _ORDER, _EXTENT))
    if (len(descr), len(order), len(extent)) != (1, 1, 1):
        raise DataFileError(
            "expected the array header's three keys once each; save the array with numpy.save"
        )
    dtype, shape = _parse_type(descr[0]), _parse_shape(extent[0])
    return Header(dtype, shape, order[0] == "True" and len(shape) == 2, prod(shape) * dtype.itemsize)


def _parse_type(descr: str) -> np.dtype[Any]:
    if descr.lstrip("<>|=").startswith("O"):
        raise DataFileError(
            "holds Python objects (a pickle), which are never loaded; save numbers or strings: "
            "numpy.save(file, numpy.array(values, dtype=...))"
        )
    if not _TYPE.fullmatch(descr) or descr.lstrip("<>|=") in ("U0", "S0"):
        raise DataFileError(
            f"expected an array of numbers, booleans or strings, got type {descr[:40]!r}; "
            "convert it, e.g. with .astype('float32')"
        )
    return np.dtype(descr)


def _parse_shape(inner: str) -> tuple[int, ...]:
    if not _SHAPE.fullmatch(inner):
        raise DataFileError(
            "expected a shape of non-negative whole numbers in the header; save the array anew"
        )
    shape = tuple(int(size) for size in inner.split(",") if size.strip())
    if len(shape) > 2:
        raise DataFileError(
            f"expected at most two dimensions, got shape {shape[:6]}; reshape it to (rows, features)"
        )
    return shape


def _check_size(header: Header, available: int, max_bytes: int) -> None:
    if header.n_bytes > max_bytes or max(header.shape, default=0) > max_bytes:
        raise DataFileError(
            f"expected at most {max_bytes} bytes of data, its header claims {header.n_bytes} "
            f"(shape {header.shape}); split it, or raise the limit if you trust it"
        )
    if header.n_bytes != available:
        raise DataFileError(
            f"expected {header.n_bytes} bytes of data for shape {header.shape} and type {header.dtype}, "
            f"got {max(available, 0)}; it is cut short or damaged: copy or save it again"
        )
    if header.n_bytes == 0 and header.shape[0] > 0:
        # a shape like (10**12, 0) costs nothing in a file, and everything as rows
        raise DataFileError(f"expected at least one value in a row, got shape {header.shape}; save it anew")


def _check_values(stored: NDArray[Any]) -> None:
    """Refuse what no program writes and NumPy does not expect: booleans of 2, characters beyond Unicode."""
    flat = stored.reshape(-1)
    if stored.dtype.kind == "b" and stored.size and flat.view(np.uint8).max() > 1:
        raise DataFileError(
            "expected booleans of 0 and 1, got other bytes; the file is damaged: save it again"
        )
    if stored.dtype.kind == "U" and stored.size:
        points = flat.view(np.dtype(np.uint32).newbyteorder(stored.dtype.byteorder))
        if points.max() > 0x10FFFF or bool(((points >= 0xD800) & (points <= 0xDFFF)).any()):
            raise DataFileError("expected Unicode strings, got invalid characters; the file is damaged")
