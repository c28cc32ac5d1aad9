"""Open the SQLite database of an index with every setting checked, and check that it has our tables.

====================  ==============================================================================
``catalogue``         one row: the state after the last commit, with a checksum
``records``           immutable records: head (JSON) and its checksum
``pieces``            the bytes of the records' parts, at most 64 MB in a row
``payloads``          one row for each version of a document's payload, with a checksum
``words``             in format 3: the words of documents, by number, as SQLite's FTS5 keeps them
====================  ==============================================================================
"""

from __future__ import annotations

import os
import sqlite3
import stat
from pathlib import Path
from typing import Final

from crossbyte._fs import new_file_mode
from crossbyte.errors import ForeignIndexFile, IndexExists, InvalidInput, NewerIndexFile, StorageFailed
from crossbyte.index.storage.records import (
    MAX_PIECE_BYTES,
    raise_damaged,
    raise_foreign,
    translate_sqlite_errors,
    translate_system_errors,
)

APPLICATION = 0x63726279  # "crby"
FORMATS = (1, 2, 3)
"""From format 2 on, a document with both halves may have one code; format 3 has a table of words."""
WORDS_FORMAT = 3

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
# Words come folded and cut by us (any script), so the tokenizer splits at spaces and takes English stems.
_WORDS = (
    "CREATE VIRTUAL TABLE words USING fts5(text, version UNINDEXED,"
    " tokenize = \"porter unicode61 remove_diacritics 0 categories 'L* N* M* Co'\")"
)
_WORDS_TABLES = {f"words_{name}" for name in ("config", "content", "data", "docsize", "idx")}


def write_schema(connection: sqlite3.Connection, format: int) -> None:
    """Make an empty database ours, inside the caller's transaction."""
    connection.execute("PRAGMA application_id = 1668440697").fetchall()
    connection.execute(f"PRAGMA user_version = {format:d}").fetchall()
    for statement in _TABLES:
        connection.execute(statement)
    if format >= WORDS_FORMAT:
        connection.execute(_WORDS)


def has_word_search() -> bool:
    """Say whether the SQLite at hand can keep and search words (FTS5)."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute(_WORDS)
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


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
        raise_foreign(path, "it is an SQLite database of another application")
    _check_format(path, read_format(connection))
    _check_size(connection, path, size)
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master LIMIT 20").fetchall()
    if read_format(connection) >= WORDS_FORMAT:
        rows = _without_words(path, rows)
    if len(rows) != len(_EXPECTED) or set(rows) != _EXPECTED:
        raise_damaged(path, "it has other tables than an index of this format")


def _without_words(path: str, rows: list[tuple[str, str, str, str]]) -> list[tuple[str, str, str, str]]:
    """Check the table of words and those in which FTS5 keeps it; give the other rows of the schema."""
    if ("table", "words", "words", _WORDS) not in rows:
        raise_damaged(path, "it has no table of words, or another one than an index of this format")
    own = {row[1] for row in rows if row[0] == "table" and row[1] in _WORDS_TABLES}
    if own != _WORDS_TABLES:
        raise_damaged(path, "its table of words is not whole")
    return [row for row in rows if row[2] != "words" and row[2] not in _WORDS_TABLES]


def refuse_empty(path: str, size: int) -> None:
    """Raise ForeignIndexFile when the file has no bytes: that is what a killed creation leaves."""
    if size == 0:
        raise ForeignIndexFile(
            f"{path}: expected a crossbyte index, but the file is empty: its creation was interrupted or"
            " is still under way; create it again"
        )


def read_format(connection: sqlite3.Connection) -> int:
    """Give the number of the format that a database says it has."""
    return _number(connection, "PRAGMA user_version")


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


def _check_format(path: str, number: int) -> None:
    if number > FORMATS[-1]:
        raise NewerIndexFile(
            f"{path}: expected index format {FORMATS[-1]} or older, got {number}; upgrade crossbyte"
        )
    if number < FORMATS[0]:
        raise_damaged(path, f"its format number is {number}")


def _check_size(connection: sqlite3.Connection, path: str, size: int) -> None:
    """Compare the size of the file with that in its header.

    A vacuum first commits and then cuts the file; killed between the two, it leaves whole pages after
    the end, which SQLite ignores and the next vacuum removes.
    """
    page = _number(connection, "PRAGMA page_size")
    expected = page * _number(connection, "PRAGMA page_count")
    if size < expected or size % page:
        raise_damaged(path, f"it should have {expected} bytes and has {size}")


JOURNAL: Final = "-journal"
BUSY_SECONDS = 10
_MAX_PATH_BYTES = 512 - len(JOURNAL) - 1  # SQLite's limit on Unix
_MAX_ROW_BYTES = MAX_PIECE_BYTES + 2**20
_EXTRA = 3

# The rollback journal always, also where SQLite has no fault in its write-ahead log: the index is one file
# at every moment between commits, and there is one path to test. EXTRA flushes the folder as well, so that
# a deleted journal stays deleted after a power cut. Deleted pages are not overwritten with zeros, so that a
# compaction needs little space (it ends with a vacuum, which leaves nothing of them). The size of the cache
# would come from the file, which is not to be trusted. Pages of an unfinished commit are kept in memory up
# to 64 MB, so that readers are not locked out early (the low byte of that number must not be zero: SQLite
# would take it as OFF).
_SETTINGS: Final = (
    ("PRAGMA journal_mode = DELETE", "PRAGMA journal_mode", "delete"),
    ("PRAGMA synchronous = EXTRA", "PRAGMA synchronous", _EXTRA),
    ("PRAGMA trusted_schema = OFF", "PRAGMA trusted_schema", 0),
    ("PRAGMA cell_size_check = ON", "PRAGMA cell_size_check", 1),
    ("PRAGMA mmap_size = 0", "PRAGMA mmap_size", 0),
    ("PRAGMA secure_delete = OFF", "PRAGMA secure_delete", 0),
    ("PRAGMA cache_size = -2000", "PRAGMA cache_size", -2000),
    ("PRAGMA cache_spill = 16383", "PRAGMA cache_spill", 16383),
    ("PRAGMA busy_timeout = 10000", "PRAGMA busy_timeout", BUSY_SECONDS * 1000),
)
_QUERY_ONLY: Final = ("PRAGMA query_only = ON", "PRAGMA query_only", 1)


def real_path(path: str | os.PathLike[str]) -> str:
    """Give the absolute path without symbolic links: journal and lock lie beside the real file.

    Raises
    ------
    InvalidInput
        The name is longer than SQLite can use.
    """
    name = os.path.realpath(os.fsdecode(path))
    n_bytes = len(os.fsencode(name))
    if n_bytes > _MAX_PATH_BYTES:
        raise InvalidInput(f"expected a path of at most {_MAX_PATH_BYTES} bytes, got {n_bytes}: {name[:80]}…")
    return name


def check_file(path: str) -> None:
    """Refuse, without touching it, what is plainly no index.

    Raises
    ------
    FileNotFoundError
    ForeignIndexFile
        A directory, pipe or device, an empty file, no SQLite database, or one of another application.
    """
    try:
        status = os.stat(path)
    except FileNotFoundError as error:
        message = "there is no index here; check the path, or create one"
        raise FileNotFoundError(error.errno, message, path) from error
    if not stat.S_ISREG(status.st_mode):
        folder = stat.S_ISDIR(status.st_mode)
        raise_foreign(path, "it is a folder, as of many shards" if folder else "it is no regular file")
    refuse_empty(path, status.st_size)
    if not os.path.exists(path + JOURNAL):  # else first roll back, then judge
        _check_application(path)


def connect(path: str, *, writable: bool) -> sqlite3.Connection:
    """Connect to an existing file and set what matters.

    A reader's connection may write as far as the system is concerned, because the first to come after a
    crash must roll back the interrupted write; `query_only` keeps it from anything else. Where the
    system forbids writing, SQLite itself falls back to a read-only handle.

    Raises
    ------
    IndexFileError
    """
    with translate_sqlite_errors(path, writing=writable):
        connection = _open(path, "mode=rw")
        try:
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MAX_ROW_BYTES)
            for setting in _SETTINGS if writable else (*_SETTINGS, _QUERY_ONLY):
                _apply(connection, path, *setting)
        except BaseException:
            connection.close()
            raise
    return connection


def create_empty(path: str) -> None:
    """Make an empty file of a name that nothing has.

    Raises
    ------
    IndexExists
    FileNotFoundError
        The folder does not exist.
    ReadOnlyIndex, StorageFull, StorageFailed
    """
    try:
        with translate_system_errors(path):
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, new_file_mode()))
    except FileExistsError as error:
        message = f"{path}: expected a free name, but something is there; choose another or remove it"
        raise IndexExists(message) from error
    except FileNotFoundError as error:
        raise FileNotFoundError(error.errno, "the folder does not exist; make it first", path) from error


def _open(path: str, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{Path(path).as_uri()}?{options}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,  # transactions are begun and ended by us alone
        check_same_thread=False,  # a lock around every use instead
    )


def _apply(connection: sqlite3.Connection, path: str, setting: str, question: str, expected: object) -> None:
    """Set and read back: SQLite answers an impossible setting with silence."""
    connection.execute(setting).fetchall()
    row = connection.execute(question).fetchone()
    if row is None or row[0] != expected:
        got = None if row is None else row[0]
        raise StorageFailed(
            f"{path}: expected SQLite {sqlite3.sqlite_version} to answer {expected!r} to {question!r},"
            f" got {got!r}; use another SQLite"
        )


def _check_application(path: str) -> None:
    """Look into the header through a handle that takes no lock and leaves no trace.

    So a database of somebody else is never changed, not even by making its log ready for reading.
    """
    with translate_sqlite_errors(path, writing=False):
        connection = _open(path, "mode=ro&immutable=1")
        try:
            application = connection.execute("PRAGMA application_id").fetchone()[0]
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_NOTADB:
                raise_foreign(path, "it is no SQLite database", error)
            if error.sqlite_errorcode == sqlite3.SQLITE_CORRUPT:
                return  # perhaps a commit is under way; the look with a lock will tell
            raise
        finally:
            connection.close()
    if application != APPLICATION:
        raise_foreign(path, "it is an SQLite database of another application")
