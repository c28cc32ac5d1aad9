"""What the parsing process says to its parent: tagged records, each with its length.

====  ===========================================================================================
tag   body
====  ===========================================================================================
D     JSON: the entries of the file, ``[[name, dtype, shape, problem], …]``; always first
A     2 bytes: length of the name; the name in UTF-8; the array in ``.npy`` form
V     JSON: ``[name, [value, …]]``, some more rows of a column that is no array
E     JSON: ``[kind, message]``: the file was refused (``refused``) or memory ran out (``memory``)
Z     nothing: all was said
====  ===========================================================================================
"""

from __future__ import annotations

import io
import json
import struct
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from crossbyte.data.files.contents import Contents, Entry
from crossbyte.data.files.npy import Stream, fill, read_array
from crossbyte.errors import DataFileError

__all__ = ["ChildEnded", "ChildRefused", "read_frames", "send", "send_array", "send_json"]

_RECORD = struct.Struct("<cQ")
_NAME = struct.Struct("<H")
_MAX_JSON = 2**28


class ChildEnded(Exception):
    """The child stopped talking before it had said everything."""


class ChildRefused(Exception):
    """The child said why it does not read the file: a kind and a message."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(kind, message)
        self.kind, self.message = kind, message


def send(out: BinaryIO, tag: bytes, body: bytes = b"") -> None:
    """Write one record."""
    out.write(_RECORD.pack(tag, len(body)))
    out.write(body)


def send_json(out: BinaryIO, tag: bytes, value: Any) -> None:
    """Write one record of JSON."""
    send(out, tag, json.dumps(value, allow_nan=False).encode())


def send_array(out: BinaryIO, name: str, values: NDArray[Any]) -> None:
    """Write one array, of at most two dimensions, without copying what is in order already."""
    fortran = values.ndim == 2 and values.flags.f_contiguous and not values.flags.c_contiguous
    stored = np.ascontiguousarray(values.T if fortran else values).reshape(-1)
    head, title = io.BytesIO(), name.encode()
    described = {"descr": values.dtype.str, "fortran_order": fortran, "shape": values.shape}
    np.lib.format.write_array_header_1_0(head, described)
    out.write(_RECORD.pack(b"A", _NAME.size + len(title) + head.tell() + stored.nbytes))
    out.write(_NAME.pack(len(title)) + title + head.getvalue())
    out.write(stored.view(np.uint8).data)


def read_frames(pipe: Stream, max_bytes: int, max_text: int) -> Contents:
    """Read all records, believing none of them.

    Parameters
    ----------
    pipe : Stream
    max_bytes : int
        Of all records.
    max_text : int
        Of those in JSON, whose values take many times their bytes in memory.

    Raises
    ------
    ChildEnded, ChildRefused, DataFileError
    """
    entries: dict[str, Entry] = {}
    loaded: dict[str, NDArray[Any] | list[Any]] = {}
    left, text_left = max_bytes, max_text
    while True:
        tag, length = _RECORD.unpack(_take(pipe, _RECORD.size))
        left -= length
        text_left -= 0 if tag == b"A" else length
        if left < 0 or text_left < 0:
            raise DataFileError(
                f"expected at most {max_bytes} bytes when unpacked, and {max_text} of text, "
                "it gives more; split the file, or save large arrays as .npy"
            )
        if tag == b"Z":
            return Contents(entries, loaded.__getitem__)
        _receive(pipe, tag, length, entries, loaded)


def _receive(
    pipe: Stream, tag: bytes, length: int, entries: dict[str, Entry], loaded: dict[str, Any]
) -> None:
    if tag == b"A":
        name, values = _read_named(pipe, length)
        loaded[name] = values
    elif tag == b"V":
        name, rows = _read_json(pipe, length)
        loaded.setdefault(str(name), []).extend(rows)
    elif tag == b"D":
        entries.update((name, _entry(name, *rest)) for name, *rest in _read_json(pipe, length))
    elif tag == b"E":
        raise ChildRefused(*map(str, _read_json(pipe, length)))
    else:
        raise ChildEnded


def _entry(name: Any, dtype: Any, shape: Any, problem: Any) -> Entry:
    return Entry(str(name), str(dtype), None if shape is None else tuple(map(int, shape)), str(problem))


def _read_named(pipe: Stream, length: int) -> tuple[str, NDArray[Any]]:
    (n_name,) = _NAME.unpack(_take(pipe, _NAME.size))
    name = _take(pipe, n_name).decode()
    size = length - _NAME.size - n_name
    return name, read_array(pipe, size, size)


def _read_json(pipe: Stream, length: int) -> Any:
    if length > _MAX_JSON:
        raise ChildEnded
    return json.loads(_take(pipe, length))


def _take(pipe: Stream, n_bytes: int) -> bytes:
    taken = bytearray(n_bytes)
    try:
        fill(pipe, memoryview(taken))
    except DataFileError as error:
        raise ChildEnded from error
    return bytes(taken)
