"""The file of a model: named arrays and one JSON document, sealed by a digest.

A model file is a safetensors file (any safetensors reader can open it) with exactly one
metadata key, ``crossbyte``, whose value is canonical JSON (sorted keys, ASCII, no spaces)::

    {"digest": "<blake2b-256, hex>", "document": {...}, "format": 1, "name": "crossbyte-model"}

One key, because safetensors writes several in random order. The digest covers everything else: name,
format, document, and the name, dtype, shape and little-endian bytes of each array. Equal contents give
equal bytes. The digest finds accidents; it is no signature and does not prove who wrote the file.

What a reader is told, in the order in which it is decided:

==========================  =============================================================
``ForeignModelFile``        not a regular file, not safetensors, or without our key
``NewerModelFile``          a format number larger than `FORMAT`
``TruncatedModelFile``      fewer bytes than the header promises
``DamagedModelFile``        anything else that disagrees, the digest last
==========================  =============================================================
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import safetensors

from crossbyte._fs import read_regular_file, replace_file
from crossbyte.errors import (
    DamagedModelFile,
    ForeignModelFile,
    InvalidInput,
    NewerModelFile,
    TruncatedModelFile,
)
from crossbyte.model.seal import (
    DTYPES,
    FORMAT,
    KEY,
    MAX_HEADER_BYTES,
    NAME,
    PREFIX,
    Arrays,
    digest_of,
    seal,
)
from crossbyte.strict_json import canonical_json, parse_json

__all__ = [
    "FORMAT",
    "MAX_FILE_BYTES",
    "MAX_HEADER_BYTES",
    "ModelContents",
    "model_bytes",
    "parse_model_bytes",
    "read_model_file",
    "write_model_file",
]

MAX_FILE_BYTES = 4 * 2**30

_ENVELOPE = {"digest", "document", "format", "name"}
_OPENING = b'{"__metadata__":{"crossbyte":"'  # how our files go on after the header's length


class ModelContents(NamedTuple):
    """What a model file holds.

    Attributes
    ----------
    arrays : dict of str to ndarray
        In order of their names; C order, native byte order, writable.
    document : dict
        Plain JSON values.
    digest : str
        64 hexadecimal digits: the identity of the model.
    """

    arrays: dict[str, np.ndarray[Any, Any]]
    document: dict[str, Any]
    digest: str


def write_model_file(
    path: str | os.PathLike[str],
    arrays: Arrays,
    document: Mapping[str, Any],
    *,
    max_bytes: int = MAX_FILE_BYTES,
) -> str:
    """Write a model, all or nothing.

    The bytes go to a temporary file in the same folder, are flushed to the disk, and take the place
    of `path` in one step; on any failure until then the old file is untouched and the temporary file
    is removed. If flushing the folder fails after that step, the error is raised with the new,
    complete file in place. An existing file keeps its permissions. A symbolic link stays a link:
    what it points to is replaced.

    Parameters
    ----------
    path : path-like
        A regular file to replace, or a name not yet taken.
    arrays, document
        See `model_bytes`.
    max_bytes : int
        Refuse to write more: a reader with the same limit could not read it.

    Returns
    -------
    str
        The digest that identifies the model, 64 hexadecimal digits.

    Raises
    ------
    InvalidInput
        Arrays or document cannot be stored, or `path` is no regular file; nothing was written.
    OSError
        The system refused; the message names `path`.
    """
    data, digest = seal(arrays, document)
    if len(data) > max_bytes:
        raise InvalidInput(f"expected a model of at most {max_bytes} bytes, got {len(data)}; raise max_bytes")
    replace_file(os.fspath(path), data)
    return digest


def model_bytes(arrays: Arrays, document: Mapping[str, Any]) -> bytes:
    """Give the bytes of a model file; equal contents give equal bytes.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        float32, float64, uint8, int32 or int64, of any shape, memory order and byte order. Names
        are made of ASCII letters, digits, ``_``, ``.`` and ``-``.
    document : mapping
        JSON values with finite numbers; tuples come back as lists.

    Returns
    -------
    bytes

    Raises
    ------
    InvalidInput
        Something cannot be stored faithfully; the message says where it is.
    """
    return seal(arrays, document)[0]


def read_model_file(path: str | os.PathLike[str], *, max_bytes: int = MAX_FILE_BYTES) -> ModelContents:
    """Read a model file and verify every byte of it.

    Parameters
    ----------
    path : path-like
    max_bytes : int
        Refuse a larger file before reading it.

    Returns
    -------
    ModelContents

    Raises
    ------
    ModelFileError
        One of its subclasses says what is wrong; the class itself when the file is too large or
        changes while it is read.
    FileNotFoundError
        There is no such file. Other errors of the system pass through as well.
    """
    name = os.fspath(path)
    return parse_model_bytes(read_regular_file(name, max_bytes), name)


def parse_model_bytes(data: bytes, name: str) -> ModelContents:
    """Read a model from bytes and verify every one of them.

    Parameters
    ----------
    data : bytes
        A whole model file.
    name : str
        What to call it in messages.

    Returns
    -------
    ModelContents

    Raises
    ------
    ModelFileError
        One of its subclasses says what is wrong.
    """
    header, start = _read_header(data, name)
    text, envelope = _read_envelope(header, name)
    _check_format(envelope, name)
    _check_envelope(header, text, envelope, name)
    _check_length(len(data), start, _tensors(header), name)
    arrays = _read_arrays(data, name)
    if digest_of(arrays, envelope) != envelope["digest"]:
        _damaged(name, "its contents do not match their digest")
    return ModelContents(arrays, envelope["document"], envelope["digest"])


def _damaged(name: str, what: str, cause: BaseException | None = None) -> NoReturn:
    message = f"{name}: the model is damaged: {what}; restore it from a copy or fit again"
    raise DamagedModelFile(message) from cause


def _foreign(name: str, what: str, cause: BaseException | None = None) -> NoReturn:
    raise ForeignModelFile(f"{name}: expected a crossbyte model, but {what}; check the path") from cause


def _truncated(name: str, expected: int, got: int) -> NoReturn:
    raise TruncatedModelFile(
        f"{name}: the model is cut short: expected {expected} bytes, got {got}; copy or download it again"
    )


def _read_header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    """Give the header of a safetensors file and where its tensors begin."""
    if len(data) <= PREFIX:
        _foreign(name, f"it has only {len(data)} bytes")
    # Only for choosing the right words: a file of ours with a bad header is damaged, not foreign.
    ours = data[PREFIX : PREFIX + len(_OPENING)] == _OPENING[: len(data) - PREFIX]
    refuse = _damaged if ours else _foreign
    length = int.from_bytes(data[:PREFIX], "little")
    if length > MAX_HEADER_BYTES:
        refuse(name, f"its header would have {length} bytes, more than {MAX_HEADER_BYTES}")
    start = PREFIX + length
    if ours and len(data) < start:
        _truncated(name, start, len(data))
    try:
        header = parse_json(data[PREFIX:start].decode())
    except (ValueError, RecursionError) as error:
        refuse(name, f"its header is not valid JSON ({error})", error)
    if not isinstance(header, dict):
        _foreign(name, "its header is not a JSON object")
    return header, start


def _read_envelope(header: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    metadata = header.get("__metadata__")
    text = metadata.get(KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        _foreign(name, f"its metadata has no text under {KEY!r}")
    try:
        envelope = parse_json(text)
    except (ValueError, RecursionError) as error:
        _damaged(name, f"its document is not valid JSON ({error})", error)
    if not isinstance(envelope, dict) or envelope.get("name") != NAME:
        _foreign(name, f"its metadata is not named {NAME!r}")
    return text, envelope


def _check_format(envelope: dict[str, Any], name: str) -> None:
    """Decide by the number alone: all the rest may be different in a newer format."""
    number = envelope.get("format")
    if type(number) is not int or number < 1:
        _damaged(name, f"its format number is {str(number)[:40]}")
    if number > FORMAT:
        got = str(number)[:40]
        raise NewerModelFile(f"{name}: expected model format {FORMAT} or older, got {got}; upgrade crossbyte")


def _check_envelope(header: dict[str, Any], text: str, envelope: dict[str, Any], name: str) -> None:
    if len(header["__metadata__"]) != 1 or set(envelope) != _ENVELOPE:
        _damaged(name, "its metadata has missing or unknown keys")
    if not isinstance(envelope["document"], dict):
        _damaged(name, "its document is not a JSON object")
    try:
        same = canonical_json(envelope) == text
    except (ValueError, RecursionError):  # 1e999 is read as infinity
        same = False
    if not same:
        _damaged(name, "its document is not in canonical form")


def _tensors(header: dict[str, Any]) -> list[Any]:
    return [entry for key, entry in header.items() if key != "__metadata__"]


def _check_length(size: int, start: int, tensors: list[Any], name: str) -> None:
    """Compare the size of the file with the largest offset in its header."""
    if not all(_is_possible(entry) for entry in tensors):
        _damaged(name, "an array has an unknown dtype or an impossible place")
    expected = start + max((entry["data_offsets"][1] for entry in tensors), default=0)
    if size < expected:
        _truncated(name, expected, size)
    if size > expected:
        _damaged(name, f"{size - expected} bytes follow its end")


def _is_possible(entry: Any) -> bool:
    """Look only at what is needed before safetensors itself checks the rest."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return False
    dtype, place = entry["dtype"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES or not isinstance(place, list):
        return False
    return len(place) == 2 and all(type(offset) is int and offset >= 0 for offset in place)


def _read_arrays(data: bytes, name: str) -> dict[str, np.ndarray[Any, Any]]:
    try:
        entries = sorted(_entries(data), key=lambda entry: entry[0])
        return {key: _native_array(entry) for key, entry in entries}
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        _damaged(name, f"its arrays cannot be read ({error})", error)


def _entries(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    deserialize: Any = safetensors.deserialize  # its stub has no types
    return list(deserialize(data))


def _native_array(entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    # Not safetensors.numpy.load, which forgets to swap bytes on big-endian machines.
    dtype = DTYPES[entry["dtype"]]
    array: np.ndarray[Any, Any] = np.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])
    return array.astype(dtype.newbyteorder("="), copy=False)
