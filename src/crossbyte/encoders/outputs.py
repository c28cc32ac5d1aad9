"""Check what goes into an encoder, and what comes out of one that is not ours, before it is relied on."""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.arrays import Raw
from crossbyte.errors import InvalidInput
from crossbyte.validation import check_features

__all__ = ["check_picture", "checked_rows", "encode_texts", "says_something"]


def check_picture(picture: Any) -> NDArray[np.uint8]:
    """Return a (height, width, 3) uint8 picture, or say what came instead."""
    if not isinstance(picture, np.ndarray) or picture.dtype != np.uint8 or picture.shape[2:] != (3,):
        what = (
            f"{picture.dtype} {picture.shape}" if isinstance(picture, np.ndarray) else type(picture).__name__
        )
        raise InvalidInput(f"expected pictures as uint8 arrays of shape (height, width, 3), got {what}")
    if 0 in picture.shape:
        raise InvalidInput(f"expected a picture with at least one pixel, got shape {picture.shape}")
    return picture


def checked_rows(rows: Any, n: int, name: str, dimension: int | None = None) -> Raw:
    """Return (n, dimension) finite features as float32, or say what the encoder did wrong."""
    raw = check_features(rows, name)
    if raw.shape[0] != n:
        raise InvalidInput(f"{name}: expected one row for each of {n} items, got shape {raw.shape}")
    if dimension is not None and raw.shape[1] != dimension:
        raise InvalidInput(f"{name}: expected rows of {dimension} values as before, got {raw.shape[1]}")
    with np.errstate(over="ignore"):  # too large for float32 is found by the second check
        narrow = raw.astype(np.float32)
    return check_features(narrow, name)


def says_something(text: str) -> bool:
    """Whether a text has a letter, a digit or a picture sign: punctuation and spaces alone say nothing."""
    return any(unicodedata.category(sign) == "So" or unicodedata.category(sign)[0] in "LN" for sign in text)


def encode_texts(texts: Sequence[Any], encode: Callable[[list[str]], Raw], dimension: int) -> Raw:
    """Encode the texts that say something; the others are rows of zeros.

    Parameters
    ----------
    texts : sequence of str
    encode : callable
        Gives (n, dimension) float32 features of a list of texts.
    dimension : int

    Returns
    -------
    (n, dimension) float32 ndarray or csr_matrix
    """
    for text in texts:
        if not isinstance(text, str):
            raise InvalidInput(f"expected texts as str, got {type(text).__name__}")
    rows = [row for row, text in enumerate(texts) if says_something(text)]
    if not rows:
        return np.zeros((len(texts), dimension), dtype=np.float32)
    said = encode([texts[row] for row in rows])
    return said if len(rows) == len(texts) else _spread(said, rows, len(texts))


def _spread(said: Raw, rows: list[int], n: int) -> Raw:
    """Put rows in their places among rows of zeros."""
    if isinstance(said, sparse.csr_matrix):
        places = sparse.csr_matrix((np.ones(len(rows), np.float32), (rows, range(len(rows)))), (n, len(rows)))
        return sparse.csr_matrix(places @ said)
    result = np.zeros((n, said.shape[1]), dtype=np.float32)
    result[rows] = said
    return result
