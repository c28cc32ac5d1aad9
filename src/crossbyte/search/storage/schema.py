"""The tables of an index file, and the check that a file has exactly these.

====================  ==============================================================================
``catalogue``         one row: the state after the last commit, with a checksum
``records``           immutable records: head (JSON) and its checksum
``pieces``            the bytes of the records' parts, at most 64 MB in a row
``payloads``          one row for each version of a document's payload, with a checksum
====================  ==============================================================================
"""

from __future__ import annotations

import os
import sqlite3

from crossbyte.errors import ForeignIndexFile, NewerIndexFile
from crossbyte.search.storage.failures import damaged, foreign

__all__ = ["APPLICATION", "FORMAT", "check_database", "refuse_empty", "write_schema"]

APPLICATION = 0x63726279  # "crby"
FORMAT = 1

# A rowid table for payloads: in one WITHOUT ROWID, a row of more than 1 kB would take a page of its own.
_TABLES = (
    "CREATE TABLE catalogue (one INTEGER PRIMARY KEY, generation INTEGER NOT NULL, oldest INTEGER NOT NULL,"
    " next_number INTEGER NOT NULL, n_payloads INTEGER NOT NULL, n_records INTEGER NOT NULL,"
    " next_record INTEGER NOT NULL, payload_bytes INTEGER NOT NULL, digest BLOB NOT NULL,"
    " checksum BLOB NOT NULL)",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, head BLOB NOT NULL, checksum BLOB NOT NULL)",
    "CREATE TABLE pieces (place INTEGER PRIMARY KEY, body BLOB NOT NULL)",
    "CREATE TABLE payloads (number INTEGER NOT NULL, version INTEGER NOT NULL, body BLOB NOT NULL,"
    " checksum BLOB NOT NULL)",
    "CREATE UNIQUE INDEX payload_key ON payloads (number, version)",
)
_EXPECTED = {
    ("table", "catalogue", "catalogue", _TABLES[0]),
    ("table", "records", "records", _TABLES[1]),
    ("table", "pieces", "pieces", _TABLES[2]),
    ("table", "payloads", "payloads", _TABLES[3]),
    ("index", "payload_key", "payloads", _TABLES[4]),
}


def write_schema(connection: sqlite3.Connection) -> None:
    """Make an empty database ours, inside the caller's transaction."""
    connection.execute("PRAGMA application_id = 1668440697").fetchall()
    connection.execute("PRAGMA user_version = 1").fetchall()
    for statement in _TABLES:
        connection.execute(statement)


def check_database(connection: sqlite3.Connection, path: str) -> None:
    """Refuse a database that is not exactly as this version would write it.

    Call it inside a read transaction: then an interrupted write has been rolled back, and no other
    process can change the size of the file.

    Raises
    ------
    ForeignIndexFile
        Empty, or of another application.
    NewerIndexFile
        Of a later format.
    DamagedIndexFile
        Cut short, or with other tables than ours.
    """
    connection.execute("SELECT count(*) FROM sqlite_master").fetchone()  # takes the lock, rolls back
    size = os.stat(path).st_size  # never open the file beside SQLite: closing it would drop SQLite's locks
    refuse_empty(path, size)
    if _number(connection, "PRAGMA application_id") != APPLICATION:
        foreign(path, "it is an SQLite database of another application")
    _check_format(path, _number(connection, "PRAGMA user_version"))
    _check_size(connection, path, size)
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 9").fetchall()
    if len(rows) != len(_EXPECTED) or set(rows) != _EXPECTED:
        damaged(path, "it has other tables than an index of this format")


def refuse_empty(path: str, size: int) -> None:
    """Raise ForeignIndexFile when the file has no bytes: that is what a killed creation leaves."""
    if size == 0:
        raise ForeignIndexFile(
            f"{path}: expected a crossbyte index, but the file is empty: its creation was interrupted or"
            " is still under way; create it again"
        )


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


def _check_format(path: str, number: int) -> None:
    if number > FORMAT:
        raise NewerIndexFile(
            f"{path}: expected index format {FORMAT} or older, got {number}; upgrade crossbyte"
        )
    if number < 1:
        damaged(path, f"its format number is {number}")


def _check_size(connection: sqlite3.Connection, path: str, size: int) -> None:
    """Compare the size of the file with that in its header.

    A vacuum first commits and then cuts the file; killed between the two, it leaves whole pages after
    the end, which SQLite ignores and the next vacuum removes.
    """
    page = _number(connection, "PRAGMA page_size")
    expected = page * _number(connection, "PRAGMA page_count")
    if size < expected or size % page:
        damaged(path, f"it should have {expected} bytes and has {size}")
