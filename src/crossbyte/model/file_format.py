"""Write and read the file of a model: named arrays and one JSON document, sealed by a digest.

A model file is a safetensors file (any safetensors reader can open it) with exactly one
metadata key, ``crossbyte``, whose value is canonical JSON (sorted keys, ASCII, no spaces)::

    {"digest": "<blake2b-256, hex>", "document": {...}, "format": 1, "name": "crossbyte-model"}

One key, because safetensors writes several in random order. The digest covers everything else: name,
format, document, and the name, dtype, shape and little-endian bytes of each array. Equal contents give
equal bytes. The digest finds accidents; it is no signature and does not prove who wrote the file.

What a reader raises, in the order in which it is decided:

==========================  =============================================================
``ForeignModelFile``        not a regular file, not safetensors, or without our key
``NewerModelFile``          a format number larger than `FORMAT`
``TruncatedModelFile``      fewer bytes than the header promises
``DamagedModelFile``        anything else that disagrees, the digest last
==========================  =============================================================
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np
import safetensors
import safetensors.numpy

from crossbyte import errors
from crossbyte._fs import read_regular_file, replace_file
from crossbyte._json import canonical_json, parse_json, plain_json

FORMAT = 3
"""The newest that is read; 2 has models with one code per document, which earlier programs cannot use."""
NAME = "crossbyte-model"
KEY = "crossbyte"
MAX_HEADER_BYTES = 8 * 2**20  # the document is in the header and may hold a whole report
MAX_FILE_BYTES = 4 * 2**30
PREFIX = 8  # bytes of the header's length, little-endian, with which safetensors begins
DTYPES: dict[str, np.dtype[Any]] = {  # the spelling of safetensors: ours on disk
    "F32": np.dtype("<f4"),
    "F64": np.dtype("<f8"),
    "U8": np.dtype("u1"),
    "I32": np.dtype("<i4"),
    "I64": np.dtype("<i8"),
}
# Nothing that JSON could spell in two ways, as it can control characters.
_ARRAY_NAME = re.compile(r"(?!__metadata__\Z)[A-Za-z0-9_.\-]{1,200}")
_ENVELOPE_KEYS = {"digest", "document", "format", "name"}
_OPENING = b'{"__metadata__":{"crossbyte":"'  # how our files go on after the header's length

Arrays = Mapping[str, np.ndarray[Any, Any]]


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


# Writing


def write_model_file(
    path: str | os.PathLike[str],
    arrays: Arrays,
    document: Mapping[str, Any],
    *,
    format: int = 1,
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
    arrays, document, format
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
    data, digest = _serialize_model(arrays, document, format)
    if len(data) > max_bytes:
        raise errors.InvalidInput(
            f"expected a model of at most {max_bytes} bytes, got {len(data)}; raise max_bytes"
        )
    replace_file(os.fspath(path), data)
    return digest


def model_bytes(arrays: Arrays, document: Mapping[str, Any], format: int = 1) -> bytes:
    """Give the bytes of a model file; equal contents give equal bytes.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        float32, float64, uint8, int32 or int64, of any shape, memory order and byte order. Names
        are made of ASCII letters, digits, ``_``, ``.`` and ``-``.
    document : mapping
        JSON values with finite numbers; tuples come back as lists.
    format : int
        The oldest format that can hold the contents.

    Returns
    -------
    bytes

    Raises
    ------
    InvalidInput
        Something cannot be stored faithfully; the message says where it is.
    """
    return _serialize_model(arrays, document, format)[0]


def _serialize_model(arrays: Arrays, document: Mapping[str, Any], format: int) -> tuple[bytes, str]:
    """Return the bytes of a model file and its digest; see `model_bytes`."""
    stored = _check_arrays(arrays)
    envelope = {"name": NAME, "format": format, "document": _check_document(document)}
    try:
        digest = model_digest(stored, envelope)
        text = canonical_json({**envelope, "digest": digest})
    except ValueError as error:  # an integer of more digits than Python converts
        raise errors.InvalidInput(f"expected a document that JSON can hold: {error}") from error
    data = safetensors.numpy.save(stored, {KEY: text})
    _check_header_size(int.from_bytes(data[:PREFIX], "little"))
    return data, digest


def model_digest(arrays: Arrays, envelope: Mapping[str, Any]) -> str:
    """Digest the arrays and everything in the envelope but its own ``digest``.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    envelope : mapping
        Name, format and document.

    Returns
    -------
    str
        blake2b-256, 64 hexadecimal digits.
    """
    names = sorted(arrays)
    # With dtypes and shapes listed ahead, the bytes of the arrays can be divided in one way only.
    listed = [[name, arrays[name].dtype.name, list(arrays[name].shape)] for name in names]
    rest = {key: value for key, value in envelope.items() if key != "digest"}
    text = canonical_json([rest, listed]).encode()
    digest = hashlib.blake2b(len(text).to_bytes(8, "little") + text, digest_size=32)
    for name in names:
        digest.update(_little_endian(arrays[name]).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def _little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    # safetensors takes memory as it lies: another order than C would be stored wrongly without a word.
    return np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")


def _check_arrays(arrays: Mapping[Any, Any]) -> dict[str, np.ndarray[Any, Any]]:
    for name in arrays:
        if not isinstance(name, str) or not _ARRAY_NAME.fullmatch(name):
            raise errors.InvalidInput(
                f"expected an array name of letters, digits, '_', '.' and '-', got {name!r}"
            )
    return {name: _check_array(arrays[name], name) for name in sorted(arrays)}


def _check_array(array: Any, name: str) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise errors.InvalidInput(f"expected array {name!r} to be a numpy array, got {type(array).__name__}")
    if array.dtype.newbyteorder("<") not in DTYPES.values():
        wanted = "float32, float64, uint8, int32 or int64"
        raise errors.InvalidInput(f"expected array {name!r} to be {wanted}, got {array.dtype}; convert it")
    return _little_endian(array)


def _check_document(document: Any) -> Any:
    if not isinstance(document, Mapping):
        raise errors.InvalidInput(f"expected the document to be a mapping, got {type(document).__name__}")
    return plain_json(document, "document")


def _check_header_size(length: int) -> None:
    if length > MAX_HEADER_BYTES:
        raise errors.InvalidInput(
            f"expected document and array names to take at most {MAX_HEADER_BYTES} bytes, got {length}; "
            "move long lists of numbers into arrays"
        )


# Reading


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
    _check_length(len(data), start, _tensor_entries(header), name)
    arrays = _read_arrays(data, name)
    if model_digest(arrays, envelope) != envelope["digest"]:
        _raise_damaged(name, "its contents do not match their digest")
    return ModelContents(arrays, envelope["document"], envelope["digest"])


def _read_header(data: bytes, name: str) -> tuple[dict[str, Any], int]:
    """Return the header of a safetensors file and where its tensors begin."""
    if len(data) <= PREFIX:
        _raise_foreign(name, f"it has only {len(data)} bytes")
    # Only for the right message: a file of ours with a bad header is damaged, not foreign.
    ours = data[PREFIX : PREFIX + len(_OPENING)] == _OPENING[: len(data) - PREFIX]
    refuse = _raise_damaged if ours else _raise_foreign
    length = int.from_bytes(data[:PREFIX], "little")
    if length > MAX_HEADER_BYTES:
        refuse(name, f"its header would have {length} bytes, more than {MAX_HEADER_BYTES}")
    start = PREFIX + length
    if ours and len(data) < start:
        _raise_truncated(name, start, len(data))
    try:
        header = parse_json(data[PREFIX:start].decode())
    except (ValueError, RecursionError) as error:
        refuse(name, f"its header is not valid JSON ({error})", error)
    if not isinstance(header, dict):
        _raise_foreign(name, "its header is not a JSON object")
    return header, start


def _read_envelope(header: dict[str, Any], name: str) -> tuple[str, dict[str, Any]]:
    metadata = header.get("__metadata__")
    text = metadata.get(KEY) if isinstance(metadata, dict) else None
    if not isinstance(text, str):
        _raise_foreign(name, f"its metadata has no text under {KEY!r}")
    try:
        envelope = parse_json(text)
    except (ValueError, RecursionError) as error:
        _raise_damaged(name, f"its document is not valid JSON ({error})", error)
    if not isinstance(envelope, dict) or envelope.get("name") != NAME:
        _raise_foreign(name, f"its metadata is not named {NAME!r}")
    return text, envelope


def _check_format(envelope: dict[str, Any], name: str) -> None:
    """Decide by the number alone: all the rest may be different in a newer format."""
    number = envelope.get("format")
    if type(number) is not int or number < 1:
        _raise_damaged(name, f"its format number is {str(number)[:40]}")
    if number > FORMAT:
        got = str(number)[:40]
        raise errors.NewerModelFile(
            f"{name}: expected model format {FORMAT} or older, got {got}; upgrade crossbyte"
        )


def _check_envelope(header: dict[str, Any], text: str, envelope: dict[str, Any], name: str) -> None:
    if len(header["__metadata__"]) != 1 or set(envelope) != _ENVELOPE_KEYS:
        _raise_damaged(name, "its metadata has missing or unknown keys")
    if not isinstance(envelope["document"], dict):
        _raise_damaged(name, "its document is not a JSON object")
    try:
        same = canonical_json(envelope) == text
    except (ValueError, RecursionError):  # 1e999 is read as infinity
        same = False
    if not same:
        _raise_damaged(name, "its document is not in canonical form")


def _tensor_entries(header: dict[str, Any]) -> list[Any]:
    return [entry for key, entry in header.items() if key != "__metadata__"]


def _check_length(size: int, start: int, tensors: list[Any], name: str) -> None:
    """Compare the size of the file with the largest offset in its header."""
    if not all(map(_is_possible_entry, tensors)):
        _raise_damaged(name, "an array has an unknown dtype or an impossible place")
    expected = start + max((entry["data_offsets"][1] for entry in tensors), default=0)
    if size < expected:
        _raise_truncated(name, expected, size)
    if size > expected:
        _raise_damaged(name, f"{size - expected} bytes follow its end")


def _is_possible_entry(entry: Any) -> bool:
    """Look only at what is needed before safetensors itself checks the rest."""
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        return False
    dtype, place = entry["dtype"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in DTYPES or not isinstance(place, list):
        return False
    return len(place) == 2 and all(type(offset) is int and offset >= 0 for offset in place)


def _read_arrays(data: bytes, name: str) -> dict[str, np.ndarray[Any, Any]]:
    try:
        entries = sorted(_deserialize(data), key=lambda entry: entry[0])
        return {key: _native_array(entry) for key, entry in entries}
    except (MemoryError, KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # a panic in Rust is no Exception
        _raise_damaged(name, f"its arrays cannot be read ({error})", error)


def _deserialize(data: bytes) -> list[tuple[str, dict[str, Any]]]:
    deserialize: Any = safetensors.deserialize  # its stub has no types
    return list(deserialize(data))


def _native_array(entry: Mapping[str, Any]) -> np.ndarray[Any, Any]:
    # Not safetensors.numpy.load, which forgets to swap bytes on big-endian machines.
    dtype = DTYPES[entry["dtype"]]
    array: np.ndarray[Any, Any] = np.frombuffer(entry["data"], dtype=dtype).reshape(entry["shape"])
    return array.astype(dtype.newbyteorder("="), copy=False)


def _raise_damaged(name: str, what: str, cause: BaseException | None = None) -> NoReturn:
    message = f"{name}: the model is damaged: {what}; restore it from a copy or fit again"
    raise errors.DamagedModelFile(message) from cause


def _raise_foreign(name: str, what: str, cause: BaseException | None = None) -> NoReturn:
    raise errors.ForeignModelFile(
        f"{name}: expected a crossbyte model, but {what}; check the path"
    ) from cause


def _raise_truncated(name: str, expected: int, got: int) -> NoReturn:
    raise errors.TruncatedModelFile(
        f"{name}: the model is cut short: expected {expected} bytes, got {got}; copy or download it again"
    )
