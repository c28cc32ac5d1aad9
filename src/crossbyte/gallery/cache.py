"""Cache features by encoder and content, so that an interrupted run goes on where it was."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from crossbyte.arrays import Raw
from crossbyte.encoders.base import EncoderState
from crossbyte.errors import DamagedIndexFile, ModelFileError
from crossbyte.gallery.companion import Database
from crossbyte.model.file_format import model_bytes, parse_model_bytes
from crossbyte.model.persistence import encoder_contents, restore_encoders

_SCHEMA = """
CREATE TABLE IF NOT EXISTS features (encoder TEXT, digest TEXT, body BLOB, PRIMARY KEY (encoder, digest));
CREATE TABLE IF NOT EXISTS encoders (key TEXT PRIMARY KEY, body BLOB);
"""
_DENSE, _SPARSE = b"d", b"s"
_BYTES_AT_ONCE = 2**20
_ROWS_AT_ONCE = 500  # SQLite takes 999 values in one statement


class FeatureCache:
    """Rows of features in a SQLite file.

    Parameters
    ----------
    path : Path
        Made if it is missing.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._database = path, Database(path, _SCHEMA, writable=True)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    # Features

    def known(self, encoder: EncoderState) -> set[str]:
        """List the digests of everything that this encoder has encoded."""
        statement = "SELECT digest FROM features WHERE encoder = ?"
        return {digest for (digest,) in self._database.rows(statement, [encoder.fingerprint])}

    def put(self, encoder: EncoderState, digests: Sequence[str], features: Raw) -> None:
        """Keep (n, d) features, a row per digest."""
        bodies = map(_encode_row, (features[[row]] for row in range(len(digests))))
        rows = [(encoder.fingerprint, digest, body) for digest, body in zip(digests, bodies, strict=True)]
        self._database.write("INSERT OR REPLACE INTO features VALUES (?, ?, ?)", rows)

    def get(self, encoder: EncoderState, digests: Sequence[str]) -> Raw:
        """Give (n, d) float32 features in the order of the digests: known ones, of which some may repeat."""
        if not len(digests):
            return np.empty((0, encoder.dimension), dtype=np.float32)
        parts: list[Any] = [
            self._get(encoder, digests[first : first + _ROWS_AT_ONCE])
            for first in range(0, len(digests), _ROWS_AT_ONCE)
        ]
        if sparse.issparse(parts[0]):
            return sparse.csr_matrix(sparse.vstack(parts, format="csr"))
        return np.concatenate(parts)

    def _get(self, encoder: EncoderState, digests: Sequence[str]) -> Raw:
        marks = ",".join("?" * len(digests))
        statement = f"SELECT digest, body FROM features WHERE encoder = ? AND digest IN ({marks})"
        bodies = dict(self._database.rows(statement, [encoder.fingerprint, *digests]))
        try:
            return _decode_rows([bodies[digest] for digest in digests], encoder.dimension)
        except (KeyError, ValueError, IndexError, TypeError) as error:
            raise self._damaged(error) from error

    # Encoders that learned from a sample

    def encoder(self, key: str) -> EncoderState | None:
        """Give the encoder that was learned from the sample of this key."""
        found = self._database.rows("SELECT body FROM encoders WHERE key = ?", [key])
        if not found:
            return None
        try:
            contents = parse_model_bytes(found[0][0], str(self._path))
            (state,) = restore_encoders(contents.arrays, contents.document, str(self._path)).values()
        except (ModelFileError, ValueError, TypeError) as error:
            raise self._damaged(error) from error
        return state

    def keep_encoder(self, key: str, side: str, state: EncoderState) -> None:
        """Keep an encoder that was learned from a sample."""
        body = model_bytes(*encoder_contents({side: state}))
        self._database.write("INSERT OR REPLACE INTO encoders VALUES (?, ?)", [(key, body)])

    def _damaged(self, error: Exception) -> DamagedIndexFile:
        message = f"{self._path}: the kept features are damaged ({error}); remove this file, it is made again"
        return DamagedIndexFile(message)


def digest_text(text: str) -> str:
    """Compute the digest of a text."""
    return _make_hasher(text.encode("utf-8", "surrogatepass")).hexdigest()


def digest_file(path: Path, max_bytes: int) -> str | None:
    """Compute the digest of a picture's file; None for one that cannot be read, or is larger."""
    hasher, left = _make_hasher(), max_bytes
    try:
        if not path.is_file():
            return None
        with path.open("rb") as stream:
            while part := stream.read(_BYTES_AT_ONCE):
                hasher.update(part)
                left -= len(part)
                if left < 0:
                    return None
    except (OSError, ValueError):
        return None
    return hasher.hexdigest()


def _make_hasher(data: bytes = b"") -> Any:
    return hashlib.blake2b(data, digest_size=16)


def _encode_row(row: Raw) -> bytes:
    if sparse.issparse(row):
        columns, values = row.indices.astype("<i4"), row.data.astype("<f4")
        return _SPARSE + columns.tobytes() + values.tobytes()
    return _DENSE + np.asarray(row, dtype="<f4").tobytes()


def _decode_rows(bodies: list[bytes], dimension: int) -> Raw:
    if bodies[0][:1] == _DENSE:
        rows = [np.frombuffer(body, dtype="<f4", offset=1) for body in bodies]
        return np.stack(rows).astype(np.float32).reshape(len(bodies), dimension)
    if any(body[:1] != _SPARSE or len(body) % 8 != 1 for body in bodies):
        raise ValueError("rows of another length")
    halves = [len(body) // 8 for body in bodies]
    columns = [np.frombuffer(body, "<i4", n, 1) for body, n in zip(bodies, halves, strict=True)]
    values = [np.frombuffer(body, "<f4", n, 1 + 4 * n) for body, n in zip(bodies, halves, strict=True)]
    ends = np.concatenate([[0], np.cumsum(halves)])
    parts = np.concatenate(values).astype(np.float32), np.concatenate(columns).astype(np.int32), ends
    made = sparse.csr_matrix(parts, shape=(len(bodies), dimension))
    made.check_format()
    return made
