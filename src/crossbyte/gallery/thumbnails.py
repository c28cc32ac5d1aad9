"""Small pictures by document id, in a SQLite file beside the index."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self

from crossbyte.errors import IndexFileError
from crossbyte.gallery.database import Database
from crossbyte.search.ids import Id

__all__ = ["Thumbnail", "Thumbnails", "exchange"]

_SCHEMA = "CREATE TABLE IF NOT EXISTS thumbnails (id TEXT PRIMARY KEY, digest TEXT, jpeg BLOB) WITHOUT ROWID"
_JPEG = b"\xff\xd8\xff"  # what every JPEG begins with


class Thumbnail(NamedTuple):
    """The thumbnail of one document, and the digest of the file that it was made of."""

    id: Id
    digest: str
    jpeg: bytes


class Thumbnails:
    """Thumbnails of an index; made by :meth:`open` or :meth:`write`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @classmethod
    def open(cls, path: Path) -> Self | None:
        """Open what is there for reading; None if there is nothing that can be read."""
        try:
            return cls(Database(path, _SCHEMA, writable=False)) if path.is_file() else None
        except IndexFileError:
            return None  # an index works without its thumbnails

    @classmethod
    def write(cls, path: Path) -> Self:
        """Open for writing, or make it."""
        return cls(Database(path, _SCHEMA, writable=True))

    def get(self, id: Id) -> bytes | None:
        """The JPEG of a document, or None."""
        try:
            found = self._database.rows("SELECT jpeg FROM thumbnails WHERE id = ?", [_key(id)])
        except (IndexFileError, sqlite3.ProgrammingError):  # damaged, or closed meanwhile
            return None
        jpeg = found[0][0] if found else None
        return jpeg if isinstance(jpeg, bytes) and jpeg.startswith(_JPEG) else None

    def digest(self, id: Id) -> str | None:
        """Digest of the file that a document's thumbnail was made of, or None."""
        found = self._database.rows("SELECT digest FROM thumbnails WHERE id = ?", [_key(id)])
        return found[0][0] if found else None

    def put(self, thumbnails: Sequence[Thumbnail]) -> None:
        """Keep thumbnails, in the place of those of the same ids."""
        rows = [(_key(each.id), each.digest, each.jpeg) for each in thumbnails]
        self._database.write("INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?)", rows)

    def remove(self, ids: Iterable[Id]) -> None:
        """Forget thumbnails; ids without one are passed over."""
        self._database.write("DELETE FROM thumbnails WHERE id = ?", [(_key(id),) for id in ids])

    def keep_only(self, ids: Iterable[Id]) -> None:
        """Forget all others."""
        wanted = {_key(id) for id in ids}
        there = [key for (key,) in self._database.rows("SELECT id FROM thumbnails")]
        rows = [(key,) for key in there if key not in wanted]
        self._database.write("DELETE FROM thumbnails WHERE id = ?", rows)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def exchange(path: Path, forgotten: Iterable[Id], made: Sequence[Thumbnail]) -> None:
    """Forget the thumbnails of some documents in a file, and keep new ones there."""
    thumbnails = Thumbnails.write(path)
    try:
        thumbnails.remove(forgotten)
        thumbnails.put(made)
    finally:
        thumbnails.close()


def _key(id: Id) -> str:
    """Text that tells 1 and "1" apart."""
    return json.dumps(id)
