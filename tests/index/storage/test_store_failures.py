"""The index file: a failure changes nothing, and creations and copies are whole or not there."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from crossbyte.errors import (
    DamagedIndexFile,
    ForeignIndexFile,
    IndexBusy,
    IndexExists,
    IndexLocked,
    InvalidInput,
    ReadOnlyIndex,
    StorageFailed,
    StorageFull,
    WriteRefused,
)
from crossbyte.index.storage import creation, records
from crossbyte.index.storage import database as connection_module
from crossbyte.index.storage.records import Change, NewRecord
from crossbyte.index.storage.store import Store
from support.store_samples import MODEL, add, contents, rows, run, segment

# Failures leave everything as it was


class Stop(Exception):
    pass


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, MemoryError])
def test_a_failure_in_the_middle_of_a_commit_is_rolled_back(
    writer: Store, reader: Store, error: type[BaseException]
) -> None:
    add(writer, 0, 3)
    before = contents(writer)

    def payloads() -> Iterator[tuple[int, int, bytes]]:
        yield from rows(3, 1000)
        raise error

    with pytest.raises(error):
        writer.commit(Change([segment(3, 1000)], payloads(), next_number=1000))
    assert contents(reader) == contents(writer) == before
    add(writer, 3, 5)
    writer.verify()


def test_ctrl_c_at_any_moment_leaves_whole_commits(writer: Store) -> None:
    numbers = random.Random(1)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGALRM, interrupt)
    interrupted = 0
    try:
        for _ in range(80):
            with writer.reading() as catalogue:
                start = catalogue.next_number
            try:
                signal.setitimer(signal.ITIMER_REAL, numbers.uniform(1e-5, 1.2e-2))
                add(writer, start, start + 5)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert interrupted > 5
    catalogue, _, _, bodies = contents(writer)
    assert len(bodies) == catalogue.n_payloads == catalogue.next_number
    assert catalogue.n_records == catalogue.generation == 1 + catalogue.next_number // 5
    writer.verify()


def test_a_full_disk_changes_nothing_and_writing_goes_on_after_opening_again(writer: Store) -> None:
    add(writer, 0, 3)
    before = contents(writer)
    connection = writer._session.connection
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages + 2}").fetchall()
    with pytest.raises(StorageFull, match="make space"):
        writer.commit(
            Change([NewRecord("documents", {}, {"codes": bytes(100_000)})], rows(3, 9), next_number=9)
        )
    assert contents(writer) == before
    with pytest.raises(WriteRefused, match="a commit failed"):
        add(writer, 3, 9)
    writer.close()
    with closing(Store.open(writer.path, writable=True)) as again:
        assert contents(again) == before
        add(again, 3, 9)
        again.verify()


LIMITED = """
import os, resource, sys
from crossbyte.errors import StorageFailed, StorageFull, WriteRefused
from crossbyte.index.storage.store import Change, NewRecord, Store

path = sys.argv[1]
store = Store.create(path, [NewRecord("model", {}, {})])
generation, n_failed = 1, 0
for limit in range(30_000, 400_000, 10_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        change = Change([NewRecord("documents", {}, {"codes": bytes(50_000)})], [(generation, 0, b"x")], 1000)
        generation = store.commit(change).generation
    except (StorageFull, StorageFailed, WriteRefused):
        n_failed += 1
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        store.verify()
        with store.reading() as catalogue:
            assert catalogue.generation == generation, (catalogue, generation)
        store.close()
        store = Store.open(path, writable=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
assert n_failed > 10 and generation > 5, (n_failed, generation)
store.verify()
try:
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    Store.create(path + "2", [NewRecord("model", {}, {"model": bytes(50_000)})])
except (StorageFull, StorageFailed):
    assert not os.path.exists(path + "2") and not os.path.exists(path + "2.lock")
else:
    raise SystemExit("a create beyond the limit went through")
try:
    store.backup(path + "3")
except (StorageFull, StorageFailed):
    assert sorted(os.listdir(os.path.dirname(path))) == ["photos.cb", "photos.cb.lock"]
else:
    raise SystemExit("a backup beyond the limit went through")
"""


def test_a_system_that_stops_writing_half_way_loses_nothing(path: str) -> None:
    run(LIMITED, path)


READ_ONLY = """
import os, sys
from crossbyte.errors import ReadOnlyIndex
from crossbyte.index.storage.store import NewRecord, Store

folder = sys.argv[1]
if os.getuid() == 0:
    os.setuid(65534)  # permissions do not bind root
whole, hot = os.path.join(folder, "whole.cb"), os.path.join(folder, "hot.cb")
store = Store.open(whole, writable=False)
with store.reading():
    assert len(store.records()) == 1
store.verify()
for use in (lambda: Store.open(whole, writable=True), lambda: Store.create(whole + "2", []),
            lambda: store.backup(whole + "2"), lambda: Store.open(hot, writable=False)):
    try:
        use()
    except ReadOnlyIndex as error:
        last = str(error)
    else:
        raise SystemExit("expected ReadOnlyIndex")
assert "rolled back" in last, last
"""


def test_a_folder_that_forbids_writing_can_be_read_from() -> None:
    with tempfile.TemporaryDirectory() as folder:
        whole, hot = os.path.join(folder, "whole.cb"), os.path.join(folder, "hot.cb")
        Store.create(whole, [MODEL]).close()
        leave_a_hot_journal(hot)
        for name in os.listdir(folder):
            os.chmod(os.path.join(folder, name), 0o644)  # new files are their owner's alone
        os.chmod(folder, 0o555)
        try:
            run(READ_ONLY, folder)
        finally:
            os.chmod(folder, 0o755)


def leave_a_hot_journal(path: str) -> None:
    """Make an index as it is after a kill in the middle of writing its pages: copy it at that moment."""
    whole = path + ".whole"
    store = Store.create(whole, [MODEL])
    add(store, 0, 50)
    connection = store._session.connection
    connection.execute("PRAGMA cache_spill = 1").fetchall()
    connection.execute("PRAGMA cache_size = 1").fetchall()

    def payloads() -> Iterator[tuple[int, int, bytes]]:
        yield from ((number, 0, os.urandom(3000)) for number in range(50, 300))
        for end in ("", "-journal"):  # by another program: here, closing it would drop SQLite's locks
            subprocess.run(["cp", whole + end, path + end], check=True)
        raise Stop

    with pytest.raises(Stop):
        store.commit(Change([segment(50, 300)], payloads(), next_number=300))
    store.close()
    os.unlink(whole)
    journal = Path(path + "-journal").read_bytes()
    assert journal[:8] == bytes.fromhex("d9d505f920a163d7"), "a journal that SQLite has made valid"
    assert os.path.getsize(path) > 100_000, "pages of the unfinished commit"


@pytest.mark.parametrize("writable", [False, True])
def test_the_first_handle_after_a_crash_rolls_back(path: str, writable: bool) -> None:
    leave_a_hot_journal(path)
    store = Store.open(path, writable=writable)
    assert not os.path.exists(path + "-journal")
    assert contents(store)[0][:5] == (2, 1, 50, 50, 2)
    store.verify()
    store.close()


def test_a_handle_whose_commit_failed_refuses_to_write_and_goes_on_reading(
    writer: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(writer, 0, 3)
    before = contents(writer)
    session = writer._session

    class Failing:
        """A connection whose flush fails at COMMIT."""

        def __init__(self, connection: sqlite3.Connection) -> None:
            self.connection = connection

        def __getattr__(self, name: str) -> Any:
            return getattr(self.connection, name)

        def execute(self, statement: str, *values: Any) -> Any:
            if statement == "COMMIT":
                raise sqlite_error(sqlite3.SQLITE_IOERR_FSYNC)
            return self.connection.execute(statement, *values)

    session.connection = Failing(session.connection)  # type: ignore[assignment]
    with pytest.raises(StorageFailed):
        add(writer, 3, 5)
    with pytest.raises(WriteRefused, match="a commit failed .*open the index again"):
        add(writer, 3, 5)
    assert contents(writer) == before
    writer.close()
    again = Store.open(writer.path, writable=True)
    add(again, 3, 5)
    again.close()


# Creation


def test_something_that_is_there_is_not_overwritten(writer: Store, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    text = tmp_path / "text"
    text.write_text("mine")
    for taken in (writer.path, folder, text):
        with pytest.raises(IndexExists, match="something is there"):
            Store.create(taken, [MODEL])
        with pytest.raises(IndexExists, match="something is there"):
            writer.backup(taken)
    assert text.read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["folder", "photos.cb", "photos.cb.lock", "text"]


def test_a_creation_that_fails_leaves_nothing(path: str) -> None:
    with pytest.raises(InvalidInput):
        Store.create(path, [MODEL, NewRecord("model", {"x": float("inf")})])
    assert os.listdir(os.path.dirname(path)) == []
    with pytest.raises(FileNotFoundError, match="folder does not exist"):
        Store.create(os.path.join(path, "nowhere", "x"), [MODEL])


def test_an_empty_file_is_an_interrupted_creation(path: str) -> None:
    Path(path).touch()
    for writable in (False, True):
        with pytest.raises(ForeignIndexFile, match="interrupted.*create it again"):
            Store.open(path, writable)
    Store.create(path, [MODEL]).close()
    Store.open(path, writable=False).close()


def test_a_creation_killed_while_writing_pages_is_taken_over(path: str) -> None:
    whole = path + ".whole"
    connection = sqlite3.connect(whole, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1").fetchall()
    connection.execute("BEGIN EXCLUSIVE")
    connection.execute("CREATE TABLE pieces (body)")
    connection.executemany("INSERT INTO pieces VALUES (?)", [(bytes(3000),)] * 100)
    for end in ("", "-journal"):
        subprocess.run(["cp", whole + end, path + end], check=True)
    connection.close()
    assert os.path.getsize(path) > 0
    for end in ("", "-journal"):
        subprocess.run(["cp", path + end, path + ".2" + end], check=True)
    with pytest.raises(ForeignIndexFile, match="create it again"):
        Store.open(path, writable=False)
    Store.create(path, [MODEL]).close()
    Store.create(path + ".2", [MODEL]).close()  # without a look in between
    Store.open(path + ".2", writable=False).verify()


# Backup


def test_a_copy_beside_a_writer_is_whole(writer: Store, reader: Store, tmp_path: Path) -> None:
    add(writer, 0, 500)
    going, failed = threading.Event(), []

    def write() -> None:
        try:
            for number in range(500, 530):
                add(writer, number, number + 1)
                going.set()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    going.wait(5)
    for turn, store in enumerate([reader, writer, reader]):
        store.backup(tmp_path / f"copy{turn}")
        copy = Store.open(tmp_path / f"copy{turn}", writable=False)
        catalogue, heads, _, bodies = contents(copy)
        assert catalogue.next_number == len(bodies) == 498 + catalogue.generation
        assert len(heads) == catalogue.generation
        copy.verify()
        copy.close()
    thread.join()
    assert failed == []
    assert not [
        name for name in os.listdir(tmp_path) if "partial" in name or "copy" in name and "lock" in name
    ]


def test_what_a_killed_backup_left_is_overwritten(writer: Store, tmp_path: Path) -> None:
    (tmp_path / "copy.partial").write_text("half a copy")
    (tmp_path / "copy.partial-journal").write_text("and its journal")
    writer.backup(tmp_path / "copy")
    assert sorted(os.listdir(tmp_path)) == ["copy", "photos.cb", "photos.cb.lock"]


def test_a_journal_in_the_way_of_a_copy_is_not_taken_for_its_own(writer: Store, tmp_path: Path) -> None:
    (tmp_path / "copy-journal").write_text("of a file that was removed")
    with pytest.raises(IndexExists, match="copy-journal"):
        writer.backup(tmp_path / "copy")


def test_two_copies_to_one_name_do_not_mix(writer: Store, tmp_path: Path) -> None:
    lock = connection_lock(tmp_path / "copy")
    with pytest.raises(IndexLocked):
        writer.backup(tmp_path / "copy")
    lock.release()
    writer.backup(tmp_path / "copy")


def connection_lock(path: Path) -> Any:
    return creation.WriterLock.acquire(os.path.realpath(path))


def test_a_name_taken_meanwhile_is_not_overwritten(
    writer: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = creation.flush_file

    def take(path: str) -> None:
        original(path)
        (tmp_path / "copy").write_text("mine")

    monkeypatch.setattr(creation, "flush_file", take)
    with pytest.raises(IndexExists, match="meanwhile"):
        writer.backup(tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["copy", "photos.cb", "photos.cb.lock"]


def test_a_file_system_without_links_will_do(
    writer: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(1, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    writer.backup(tmp_path / "copy")
    Store.open(tmp_path / "copy", writable=False).verify()
    assert sorted(os.listdir(tmp_path)) == ["copy", "photos.cb", "photos.cb.lock"]


# What SQLite says, in our words


def sqlite_error(code: int) -> sqlite3.Error:
    error = sqlite3.OperationalError(f"code {code}")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize(
    ("code", "reading", "writing"),
    [
        (sqlite3.SQLITE_FULL, StorageFull, StorageFull),
        (sqlite3.SQLITE_BUSY, IndexBusy, IndexBusy),
        (sqlite3.SQLITE_LOCKED, IndexBusy, IndexBusy),
        (sqlite3.SQLITE_READONLY_ROLLBACK, StorageFailed, ReadOnlyIndex),
        (sqlite3.SQLITE_CANTOPEN, StorageFailed, ReadOnlyIndex),
        (sqlite3.SQLITE_PERM, StorageFailed, ReadOnlyIndex),
        (sqlite3.SQLITE_CORRUPT, DamagedIndexFile, DamagedIndexFile),
        (sqlite3.SQLITE_NOTADB, DamagedIndexFile, DamagedIndexFile),
        (sqlite3.SQLITE_IOERR_READ, StorageFailed, StorageFailed),
        (sqlite3.SQLITE_IOERR_FSYNC, StorageFailed, StorageFailed),
        (sqlite3.SQLITE_IOERR_SHORT_READ, DamagedIndexFile, DamagedIndexFile),
        (sqlite3.SQLITE_NOMEM, MemoryError, MemoryError),
        (sqlite3.SQLITE_IOERR_NOMEM, MemoryError, MemoryError),
        (sqlite3.SQLITE_ERROR, DamagedIndexFile, DamagedIndexFile),
        (sqlite3.SQLITE_CONSTRAINT_UNIQUE, DamagedIndexFile, InvalidInput),
        (sqlite3.SQLITE_TOOBIG, DamagedIndexFile, InvalidInput),
    ],
)
def test_errors_of_sqlite_are_translated(
    tmp_path: Path, code: int, reading: type[Exception], writing: type[Exception]
) -> None:
    for kind, is_writing in ((reading, False), (writing, True)):
        with (
            pytest.raises(kind) as caught,
            records.translate_sqlite_errors(str(tmp_path / "x"), writing=is_writing),
        ):
            raise sqlite_error(code)
        assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_failed_write_on_a_full_disk_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "_is_full", lambda path: True)
    with pytest.raises(StorageFull), records.translate_sqlite_errors(str(tmp_path / "x"), writing=True):
        raise sqlite_error(sqlite3.SQLITE_IOERR_WRITE)


def test_values_that_python_cannot_convert_are_damage_when_read(tmp_path: Path) -> None:
    for error in (OverflowError("too large"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")):
        with pytest.raises(DamagedIndexFile), records.translate_sqlite_errors("x", writing=False):
            raise error
        with pytest.raises(type(error)), records.translate_sqlite_errors("x", writing=True):
            raise error
    with pytest.raises(sqlite3.ProgrammingError), records.translate_sqlite_errors("x", writing=False):
        raise sqlite3.ProgrammingError("a fault of ours")


def test_every_setting_is_in_force(writer: Store, reader: Store) -> None:
    for store in (writer, reader):
        for _, question, expected in connection_module._SETTINGS:
            assert store._session.connection.execute(question).fetchone() == (expected,)


def test_a_setting_that_is_not_taken_is_an_error(writer: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = (("PRAGMA unknown_setting = 1", "PRAGMA unknown_setting", 1),)
    monkeypatch.setattr(connection_module, "_SETTINGS", settings)
    with pytest.raises(StorageFailed, match="unknown_setting.* got None"):
        Store.open(writer.path, writable=False)
