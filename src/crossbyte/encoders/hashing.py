"""Make stable digests of an encoder's whole contents."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["fingerprint_of"]


def fingerprint_of(kind: str, settings: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Hexadecimal digest of everything that decides an encoder's features."""
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([kind, settings], sort_keys=True, ensure_ascii=True).encode())
    for name in sorted(arrays):
        array = arrays[name]
        # Little-endian bytes in C order, with name, type and shape, so that no two states read alike.
        digest.update(json.dumps([name, array.dtype.str.lstrip("<>=|"), array.shape]).encode())
        digest.update(np.ascontiguousarray(array.astype(array.dtype.newbyteorder("<"), copy=False)).tobytes())
    return digest.hexdigest()
