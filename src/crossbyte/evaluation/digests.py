"""What a collection is known by: a digest of its contents, whatever file they came from."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from crossbyte.data.collections.collection import Collection, Part

__all__ = ["collection_digest"]


def collection_digest(collection: Collection) -> str:
    """32 hexadecimal digits of all features and labels; names and descriptions do not count."""
    digest = hashlib.blake2b(digest_size=16)
    for array in (*_arrays(collection.train), *_arrays(collection.query)):
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def _arrays(part: Part) -> Iterator[NDArray[Any]]:
    for rows in (part.images, part.texts, part.labels, *part.other_texts):
        if rows is not None:
            yield from _stored(rows)


def _stored(rows: Any) -> Iterator[NDArray[Any]]:
    is_sparse = bool(sparse.issparse(rows))
    if not is_sparse:
        yield np.asarray(rows)
        return
    yield np.asarray(rows.shape, dtype=np.int64)
    # positions as int64: their type depends on how the matrix was made
    yield from (rows.data, rows.indices.astype(np.int64), rows.indptr.astype(np.int64))
