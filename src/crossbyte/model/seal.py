"""From contents to the bytes of a model file; `crossbyte.model.file` describes the format."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors.numpy

from crossbyte.errors import InvalidInput
from crossbyte.strict_json import canonical_json, plain_json

__all__ = ["DTYPES", "FORMAT", "KEY", "MAX_HEADER_BYTES", "NAME", "PREFIX", "Arrays", "digest_of", "seal"]

FORMAT = 1
MAX_HEADER_BYTES = 8 * 2**20  # the document is in the header and may hold a whole report
NAME = "crossbyte-model"
KEY = "crossbyte"
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

Arrays = Mapping[str, np.ndarray[Any, Any]]


def seal(arrays: Arrays, document: Mapping[str, Any]) -> tuple[bytes, str]:
    """Give the bytes of a model file and its digest.

    Parameters
    ----------
    arrays : mapping of str to ndarray
        Of the types in `DTYPES`; any shape, memory order and byte order.
    document : mapping
        JSON values with finite numbers.

    Returns
    -------
    data : bytes
    digest : str
        64 hexadecimal digits.

    Raises
    ------
    InvalidInput
        Something cannot be stored faithfully.
    """
    stored = _storable_arrays(arrays)
    envelope = {"name": NAME, "format": FORMAT, "document": _storable_document(document)}
    try:
        digest = digest_of(stored, envelope)
        text = canonical_json({**envelope, "digest": digest})
    except ValueError as error:  # an integer of more digits than Python converts
        raise InvalidInput(f"expected a document that JSON can hold: {error}") from error
    data = safetensors.numpy.save(stored, {KEY: text})
    _check_header(int.from_bytes(data[:PREFIX], "little"))
    return data, digest


def digest_of(arrays: Arrays, envelope: Mapping[str, Any]) -> str:
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


def _storable_arrays(arrays: Arrays) -> dict[str, np.ndarray[Any, Any]]:
    for name in arrays:
        if not _ARRAY_NAME.fullmatch(_text_or_nothing(name)):
            raise InvalidInput(f"expected an array name of letters, digits, '_', '.' and '-', got {name!r}")
    return {name: _storable_array(arrays[name], name) for name in sorted(arrays)}


def _text_or_nothing(value: object) -> str:
    return value if isinstance(value, str) else ""


def _storable_array(array: Any, name: str) -> np.ndarray[Any, Any]:
    if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
        raise InvalidInput(f"expected array {name!r} to be a numpy array, got {type(array).__name__}")
    if array.dtype.newbyteorder("<") not in DTYPES.values():
        wanted = "float32, float64, uint8, int32 or int64"
        raise InvalidInput(f"expected array {name!r} to be {wanted}, got {array.dtype}; convert it")
    return _little_endian(array)


def _storable_document(document: Any) -> Any:
    if not isinstance(document, Mapping):
        raise InvalidInput(f"expected the document to be a mapping, got {type(document).__name__}")
    return plain_json(document, "document")


def _check_header(length: int) -> None:
    if length > MAX_HEADER_BYTES:
        raise InvalidInput(
            f"expected document and array names to take at most {MAX_HEADER_BYTES} bytes, got {length}; "
            "move long lists of numbers into arrays"
        )
