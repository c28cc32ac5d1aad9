"""Define encoders and the state of them in a model's file, and check what goes in and out of them."""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Raw
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_features

SIDES = ("image", "text")


class EncoderState(NamedTuple):
    """An encoder as data: enough to make it again, or to recognise it when the user gives it again.

    Attributes
    ----------
    kind : str
        Which class makes it again: a key of ``encoders.registry.KINDS``.
    name : str
        What people call it.
    dimension : int
        Width of its features.
    fingerprint : str
        Hexadecimal digest of everything that decides its features; equal ones encode equally.
    settings : dict
        JSON; no path of a machine.
    arrays : dict of str to ndarray
        Numbers that it learned; empty for encoders whose weights are in files of their own.
    """

    kind: str
    name: str
    dimension: int
    fingerprint: str
    settings: Mapping[str, Any]
    arrays: Mapping[str, NDArray[Any]]


class Encoder(Protocol):
    """Map items of one side to features. An item gives the same row, whatever it is encoded with."""

    @property
    def state(self) -> EncoderState:
        """State that goes into the model's file."""
        ...

    def encode(self, items: Sequence[Any]) -> Raw:
        """Encode a batch.

        Parameters
        ----------
        items : sequence
            Pictures as (height, width, 3) uint8 RGB arrays of any size, or texts as str.

        Returns
        -------
        (n, dimension) float32 ndarray or csr_matrix
            A text without content (empty, no letters) is a row of zeros.
        """
        ...


_DIGEST_BYTES = 16
_CHUNK = 2**20


def digest_files(*paths: Path) -> str:
    """Digest the contents of files, one after another, as 32 hexadecimal digits; names do not count."""
    digest = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for path in paths:
        digest.update(path.stat().st_size.to_bytes(8, "little"))
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def encoder_fingerprint(kind: str, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Digest everything that decides an encoder's features, in hexadecimal."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([kind, settings], sort_keys=True, ensure_ascii=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        # Little-endian bytes in C order, with name, type and shape, so that no two states read alike.
        digest.update(json.dumps([name, array.dtype.str.lstrip("<>=|"), array.shape]).encode())
        digest.update(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes())
    return digest.hexdigest()


def check_picture(picture: Any) -> NDArray[np.uint8]:
    """Return a (height, width, 3) uint8 picture; refuse anything else."""
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.shape[2:] != (3,):
        what = (
            f"{picture.dtype} {picture.shape}" if isinstance(picture, np.ndarray) else type(picture).__name__
        )
        raise InvalidInput(f"expected pictures as uint8 arrays of shape (height, width, 3), got {what}")
    if 0 in picture.shape:
        raise InvalidInput(f"expected a picture with at least one pixel, got shape {picture.shape}")
    return picture


def check_rows(rows: Any, n: int, name: str, dimension: int | None = None) -> Raw:
    """Return (n, dimension) finite features as float32; refuse anything else from an encoder."""
    raw = check_features(rows, name)
    if raw.shape[0] != n:
        raise InvalidInput(f"{name}: expected one row for each of {n} items, got shape {raw.shape}")
    if dimension is not None and raw.shape[1] != dimension:
        raise InvalidInput(f"{name}: expected rows of {dimension} values as before, got {raw.shape[1]}")
    with np.errstate(over="ignore"):  # too large for float32 is found by the second check
        narrow = raw.astype(np.float32)
    return check_features(narrow, name)


def has_content(text: str) -> bool:
    """Tell whether a text has a letter, a digit or a pictograph, not only punctuation and spaces."""
    return any(unicodedata.category(sign) == "So" or unicodedata.category(sign)[0] in "LN" for sign in text)


def encode_texts(texts: Sequence[Any], encode: Callable[[list[str]], Raw], dimension: int) -> Raw:
    """Encode the texts that have content; the others are rows of zeros.

    Parameters
    ----------
    texts : sequence of str
    encode : callable
        Returns (n, dimension) float32 features of a list of texts.
    dimension : int

    Returns
    -------
    (n, dimension) float32 ndarray or csr_matrix
    """
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInput(f"expected texts as str, got {type(text).__name__}")
    rows = [row for row, text in enumerate(texts) if has_content(text)]
    if not rows:
        return np.zeros((len(texts), dimension), dtype=np.float32)
    encoded = encode([texts[row] for row in rows])
    return encoded if len(rows) == len(texts) else _scatter_rows(encoded, rows, len(texts))


def _scatter_rows(encoded: Raw, rows: list[int], n: int) -> Raw:
    """Put rows in their places among rows of zeros."""
    if isinstance(encoded, sparse.csr_matrix):
        places = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, range(len(rows)))), (n, len(rows)))
        return sparse.csr_matrix(places @ encoded)
    result = np.zeros((n, encoded.shape[1]), dtype=np.float32)
    result[rows] = encoded
    return result
