"""Keep the files beside an index: thumbnails, features, JSON notes. The index works without them."""

from __future__ import annotations

import json
import os
import sqlite3
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from crossbyte._fs import flush_folder, replace_file
from crossbyte._json import parse_json
from crossbyte.encoders.base import SIDES
from crossbyte.errors import IndexFileError
from crossbyte.index.docids import Id
from crossbyte.index.storage.records import translate_sqlite_errors

_BUSY_SECONDS = 10
_MAX_JSON_BYTES = 2**24  # far above what is ever written
_SCHEMA = "CREATE TABLE IF NOT EXISTS thumbnails (id TEXT PRIMARY KEY, digest TEXT, jpeg BLOB) WITHOUT ROWID"
_CLIP = "clip:"  # begins the specification of a CLIP folder
_JPEG = b"\xff\xd8\xff"  # what every JPEG begins with


class CompanionFiles(NamedTuple):
    """Names of the files that belong to an index; none of them need be there.

    Attributes
    ----------
    folder : Path
        ``photos.cb.files`` for ``photos.cb``.
    """

    folder: Path

    @classmethod
    def of(cls, index: str | os.PathLike[str]) -> CompanionFiles:
        """Name the files of the index at this path, whether it is there yet or not."""
        return cls(Path(os.path.realpath(os.fspath(index)) + ".files"))

    @property
    def thumbnails(self) -> Path:
        """The file of small pictures by document id."""
        return self.folder / "thumbnails.sqlite"

    @property
    def features(self) -> Path:
        """The file of features by encoder and content, with which encoding goes on where it was."""
        return self.folder / "features.sqlite"

    def make(self) -> None:
        """Make the folder; its name is on the disk before anything is kept in it."""
        if not self.folder.is_dir():
            self.folder.mkdir(exist_ok=True)
            flush_folder(str(self.folder.parent))

    def local_encoders(self) -> dict[str, str]:
        """Read the paths of ONNX files and CLIP folders here, by side; never anything that is imported."""
        found = _read_json(self.folder / "local.json")
        paths = found if isinstance(found, dict) else {}
        return {side: paths[side] for side in SIDES if _locate_files(paths.get(side)) is not None}

    def keep_local_encoders(self, specs: Mapping[str, str]) -> None:
        """Remember where ONNX files and CLIP folders lie; the model, or the user, names other encoders."""
        located = {side: _locate_files(spec) for side, spec in specs.items()}
        paths = {side: path for side, path in located.items() if path is not None}
        self.make()
        _write_json(self.folder / "local.json", paths)

    def audit(self) -> dict[str, Any] | None:
        """Read the audit of the pairs that was kept; None without one."""
        found = _read_json(self.folder / "audit.json")
        return found if isinstance(found, dict) and isinstance(found.get("rows"), list) else None

    def training(self) -> list[Id] | None:
        """Read the ids of the documents that the model was fitted on, row by row; None without them.

        A document with two captions has two rows.
        """
        found = _read_json(self.folder / "training.json")
        return found if isinstance(found, list) and all(isinstance(id, str | int) for id in found) else None

    def keep_training(self, ids: list[Id]) -> None:
        """Keep which documents the model was fitted on."""
        self.make()
        _write_json(self.folder / "training.json", ids)

    def keep_audit(self, document: dict[str, Any] | None) -> None:
        """Keep an audit, in the place of an earlier one; None for no audit."""
        if document is None:
            (self.folder / "audit.json").unlink(missing_ok=True)
        else:
            self.make()
            _write_json(self.folder / "audit.json", document)


def _locate_files(spec: Any) -> str | None:
    """Locate an ONNX file, its description or a CLIP folder, which are read and never imported; else None."""
    if not isinstance(spec, str):
        return None
    if spec.startswith(_CLIP) and len(spec) > len(_CLIP):
        return _CLIP + os.path.abspath(os.path.expanduser(spec.removeprefix(_CLIP)))
    if spec.lower().endswith((".onnx", ".json")):
        return os.path.abspath(os.path.expanduser(spec))
    folder = os.path.abspath(os.path.expanduser(spec))
    return _CLIP + folder if os.path.isdir(folder) and spec else None


def _read_json(path: Path) -> Any:
    """Read a JSON document; None if it is not there or no JSON, since everything works without it."""
    try:
        with path.open("rb") as stream:
            return parse_json(stream.read(_MAX_JSON_BYTES).decode())
    except (OSError, ValueError, RecursionError):
        return None


def _write_json(path: Path, document: Any) -> None:
    replace_file(str(path), json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1).encode())


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
        """Read the JPEG of a document, or None."""
        try:
            found = self._database.rows("SELECT jpeg FROM thumbnails WHERE id = ?", [_make_key(id)])
        except (IndexFileError, sqlite3.ProgrammingError):  # damaged, or closed meanwhile
            return None
        jpeg = found[0][0] if found else None
        return jpeg if isinstance(jpeg, bytes) and jpeg.startswith(_JPEG) else None

    def digest(self, id: Id) -> str | None:
        """Read the digest of the file that a document's thumbnail was made of, or None."""
        found = self._database.rows("SELECT digest FROM thumbnails WHERE id = ?", [_make_key(id)])
        return found[0][0] if found else None

    def put(self, thumbnails: Sequence[Thumbnail]) -> None:
        """Keep thumbnails, in the place of those of the same ids."""
        rows = [(_make_key(each.id), each.digest, each.jpeg) for each in thumbnails]
        self._database.write("INSERT OR REPLACE INTO thumbnails VALUES (?, ?, ?)", rows)

    def remove(self, ids: Iterable[Id]) -> None:
        """Forget thumbnails; ids without one are passed over."""
        self._database.write("DELETE FROM thumbnails WHERE id = ?", [(_make_key(id),) for id in ids])

    def keep_only(self, ids: Iterable[Id]) -> None:
        """Forget all others."""
        wanted = {_make_key(id) for id in ids}
        there = [key for (key,) in self._database.rows("SELECT id FROM thumbnails")]
        rows = [(key,) for key in there if key not in wanted]
        self._database.write("DELETE FROM thumbnails WHERE id = ?", rows)

    def close(self) -> None:
        """Close the file."""
        self._database.close()


def replace_thumbnails(path: Path, forgotten: Iterable[Id], made: Sequence[Thumbnail]) -> None:
    """Forget the thumbnails of some documents in a file, and keep new ones there."""
    thumbnails = Thumbnails.write(path)
    try:
        thumbnails.remove(forgotten)
        thumbnails.put(made)
    finally:
        thumbnails.close()


def _make_key(id: Id) -> str:
    """Write an id as text in which 1 and "1" differ."""
    return json.dumps(id)


class Database:
    """Lets threads share one SQLite connection.

    Parameters
    ----------
    path : Path
    schema : str
        ``CREATE TABLE IF NOT EXISTS`` statements, run if the file is writable.
    writable : bool
        Make the file if it is missing; else it must be there.
    """

    def __init__(self, path: Path, schema: str, *, writable: bool) -> None:
        self._path, self._lock = str(path), threading.Lock()
        mode = "rwc" if writable else "ro"
        with translate_sqlite_errors(self._path, writing=writable):
            self._connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?mode={mode}",
                uri=True,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            self._connection.execute("PRAGMA trusted_schema = OFF")
            if writable:
                self._connection.executescript(schema)

    def rows(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Give all rows that a query finds."""
        with self._lock, translate_sqlite_errors(self._path, writing=False):
            return self._connection.execute(statement, values).fetchall()

    def write(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for every row: all of it or nothing."""
        with self._lock, translate_sqlite_errors(self._path, writing=True):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                if self._connection.in_transaction:  # SQLite rolls back by itself where the disk is full
                    self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; may be called again."""
        with self._lock:
            self._connection.close()
