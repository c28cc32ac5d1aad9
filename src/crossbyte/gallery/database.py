"""A small SQLite file that many threads use, one at a time."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from crossbyte.search.storage.failures import translated

__all__ = ["Database"]

_BUSY_SECONDS = 10


class Database:
    """One connection behind a lock.

    Parameters
    ----------
    path : Path
    schema : str
        ``CREATE TABLE IF NOT EXISTS`` statements, run if it may be written.
    writable : bool
        Make the file if it is missing; else it must be there.
    """

    def __init__(self, path: Path, schema: str, *, writable: bool) -> None:
        self._path, self._lock = str(path), threading.Lock()
        mode = "rwc" if writable else "ro"
        with translated(self._path, writing=writable):
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
        """Everything that a query finds."""
        with self._lock, translated(self._path, writing=False):
            return self._connection.execute(statement, values).fetchall()

    def write(self, statement: str, rows: Iterable[Sequence[Any]]) -> None:
        """Run a statement for every row: all of it or nothing."""
        with self._lock, translated(self._path, writing=True):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                self._connection.executemany(statement, rows)
                self._connection.execute("COMMIT")
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise

    def close(self) -> None:
        """Close the file; may be called again."""
        with self._lock:
            self._connection.close()
