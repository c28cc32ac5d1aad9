"""Index files that are not ours, or no longer: refused or noticed, whatever was changed."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from crossbyte.errors import DamagedIndexFile, ForeignIndexFile, IndexFileError, NewerIndexFile
from crossbyte.index.storage import records
from crossbyte.index.storage.records import Change, NewRecord
from crossbyte.index.storage.store import Store
from support.store_samples import MODEL, add, contents, segment

# Files that are not ours, or no longer


def edited(store: Store, *statements: str) -> str:
    """Change a file behind our back, with valid SQL."""
    store.close()
    connection = sqlite3.connect(store.path, isolation_level=None)
    connection.execute("PRAGMA writable_schema = ON")
    for statement in statements:
        connection.execute(statement)
    connection.close()
    return store.path


def test_there_is_no_file(path: str) -> None:
    for writable in (False, True):
        with pytest.raises(FileNotFoundError, match="no index here"):
            Store.open(path, writable)
    assert os.listdir(os.path.dirname(path)) == []


def test_what_is_no_index_is_refused_at_once_and_left_alone(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_bytes(b"hello " * 1000)
    (tmp_path / "short").write_bytes(b"x")
    for mode in ("delete", "wal"):
        other = sqlite3.connect(tmp_path / mode)
        other.execute(f"PRAGMA journal_mode = {mode}").fetchall()
        other.execute("CREATE TABLE t (a)")
        other.close()
    before = sorted(os.listdir(tmp_path))
    for name in ["pipe", "folder", "text", "short", "delete", "wal"]:
        for writable in (False, True):
            with pytest.raises(ForeignIndexFile, match="expected a crossbyte index, but"):
                Store.open(tmp_path / name, writable)
    with pytest.raises(ForeignIndexFile, match="no regular file"):
        Store.open("/dev/zero", writable=False)
    assert sorted(os.listdir(tmp_path)) == before


def test_a_newer_format_is_named(writer: Store) -> None:
    with pytest.raises(NewerIndexFile, match="format 3 or older, got 4; upgrade"):
        Store.open(edited(writer, "PRAGMA user_version = 4"), writable=False)


@pytest.mark.parametrize(
    "statement",
    [
        "PRAGMA user_version = 0",
        "CREATE TABLE more (a)",
        "CREATE INDEX more ON pieces (body)",
        "CREATE TRIGGER more AFTER INSERT ON records BEGIN DELETE FROM records; END",
        "CREATE VIEW more AS SELECT 1",
        "DROP INDEX payload_key",
        "ALTER TABLE records ADD COLUMN more",
        "UPDATE sqlite_master SET sql = replace(sql, 'oldest', 'Oldest') WHERE name = 'catalogue'",
        "UPDATE catalogue SET generation = 3",
        "UPDATE catalogue SET oldest = 2",
        "UPDATE catalogue SET n_payloads = 'many'",
        "UPDATE catalogue SET digest = 'text'",
        "UPDATE catalogue SET checksum = zeroblob(16)",
        "DELETE FROM catalogue",
        "INSERT INTO catalogue SELECT 2, generation, oldest, next_number, n_payloads, n_records, next_record,"
        " payload_bytes, digest, checksum FROM catalogue",
    ],
)
def test_a_changed_schema_or_catalogue_is_noticed_at_opening(writer: Store, statement: str) -> None:
    add(writer, 0, 3)
    path = edited(writer, statement)
    with pytest.raises(DamagedIndexFile, match="restore it from a backup"):
        Store.open(path, writable=False)


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM records WHERE number = 2",
        "INSERT INTO records SELECT 9, head, checksum FROM records WHERE number = 2",
        "UPDATE records SET head = head || ' ' WHERE number = 2",
        "UPDATE records SET head = zeroblob(9000000) WHERE number = 2",
        "UPDATE records SET head = 'text' WHERE number = 2",
        "UPDATE records SET checksum = 'text' WHERE number = 2",
        "UPDATE records SET number = 3 WHERE number = 2",
    ],
)
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_lost_foreign_or_changed_record_is_noticed(writer: Store, statement: str, after: int) -> None:
    add(writer, 0, 3)
    store = Store.open(edited(writer, statement), writable=False)
    heads = "SET head" in statement
    with store.reading():
        if not (heads and after == 2):  # heads seen before are not read again
            with pytest.raises(DamagedIndexFile):
                store.records(after)
    with pytest.raises(DamagedIndexFile):
        store.verify()
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM pieces WHERE place >= 2097152",
        "UPDATE pieces SET body = zeroblob(length(body)) WHERE place >= 2097152",
        "UPDATE pieces SET body = body || x'00' WHERE place >= 2097152",
        "UPDATE pieces SET body = substr(body, 2) WHERE place >= 2097152",
        "UPDATE pieces SET body = 7 WHERE place >= 2097152",
    ],
)
def test_a_changed_part_is_noticed_when_it_is_read(writer: Store, statement: str) -> None:
    add(writer, 0, 3)
    store = Store.open(edited(writer, statement), writable=False)
    with store.reading():
        model, documents = store.records()
        assert store.part(model, "model") == b"the model"
        with pytest.raises(DamagedIndexFile):
            store.part(documents, "numbers")
    with pytest.raises(DamagedIndexFile):
        store.verify()
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM payloads WHERE number = 1",
        "UPDATE payloads SET body = x'7b7d' WHERE number = 1",
        "UPDATE payloads SET body = CAST(body AS TEXT) WHERE number = 1",
        "UPDATE payloads SET version = 1 WHERE number = 1",
        "UPDATE payloads SET checksum = zeroblob(8) WHERE number = 1",
        "UPDATE payloads SET checksum = 3 WHERE number = 1",
        "UPDATE payloads SET body = (SELECT body FROM payloads WHERE number = 2) WHERE number = 1",
    ],
)
def test_a_changed_payload_is_noticed_when_it_is_read(writer: Store, statement: str) -> None:
    add(writer, 0, 3)
    store = Store.open(edited(writer, statement), writable=False)
    assert store.payloads([(0, 0), (2, 0)], 2) == [b'{"n":0}', b'{"n":2}']
    with pytest.raises(DamagedIndexFile, match="document 1"):
        store.payloads([(1, 0)], 2)
    with pytest.raises(DamagedIndexFile):
        store.verify()
    store.close()


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO payloads VALUES (9, 0, x'', x'')",
        "INSERT INTO payloads VALUES ('x', 'y', x'', x'')",
        "INSERT INTO pieces VALUES (1, x'00')",
        "DELETE FROM payloads",
    ],
)
def test_rows_that_nobody_counts_are_noticed_by_verify(writer: Store, statement: str) -> None:
    add(writer, 0, 3)
    store = Store.open(edited(writer, statement), writable=False)
    with pytest.raises(DamagedIndexFile):
        store.verify()
    store.close()


def test_a_compaction_does_not_hide_damage(writer: Store) -> None:
    add(writer, 0, 3)
    add(writer, 3, 6)
    store = Store.open(edited(writer, "DELETE FROM records WHERE number = 2"), writable=True)
    with pytest.raises(DamagedIndexFile):
        store.replace([3], [segment(3, 6)], (), (), next_number=6)
    store.close()


HEADS = [
    b"",
    b"[]",
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"document":{},"generation":"1","kind":"k","parts":{}}',
    b'{"document":[],"generation":1,"kind":"k","parts":{}}',
    b'{"document":{},"generation":1,"kind":null,"parts":{}}',
    b'{"document":{},"generation":1,"kind":"k","parts":[]}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":3}}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":{"bytes":-1,"checksum":"","first":0,"pieces":1}}}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":{"bytes":1e9,"checksum":"","first":0,"pieces":1}}}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":{"bytes":99999999999,"checksum":"","first":0,"pieces":1}}}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":{"bytes":1,"checksum":"","first":7,"pieces":1}}}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":{"bytes":1,"checksum":"zz","first":0,"pieces":1}}}',
    b'{"document":{},"generation":1,"kind":"k","parts":{"a":{"bytes":9999999,"checksum":"","first":0,"pieces":9999999}}}',
    b'{"document":{"a":1,"a":2},"generation":1,"kind":"k","parts":{}}',
    b'{"document":{"a":NaN},"generation":1,"kind":"k","parts":{}}',
]


@pytest.mark.parametrize("head", HEADS, ids=range(len(HEADS)))
def test_a_head_with_a_right_checksum_and_wrong_contents_is_refused(head: bytes) -> None:
    with pytest.raises(DamagedIndexFile, match="record 1 cannot be understood"):
        records.parse_head("file", 1, head)


def small_file(path: str) -> tuple[bytes, Any]:
    store = Store.create(path, [MODEL])
    add(store, 0, 4)
    store.commit(Change([NewRecord("deletions", {}, {"numbers": b"\1"})], [(1, 1, b"[1]")], next_number=4))
    answers = contents(store)
    store.close()
    return Path(path).read_bytes(), answers


def look(path: str, answers: Any) -> str:
    """Open, read and verify a damaged file: the kind of error, or that nothing has changed."""
    try:
        store = Store.open(path, writable=False)
    except IndexFileError as error:
        return type(error).__name__
    try:
        assert contents(store) == answers
        store.verify()
        return "the same"
    except IndexFileError as error:
        return type(error).__name__
    finally:
        store.close()


def test_damage_of_any_bit_is_noticed_or_does_no_harm(path: str) -> None:
    data, answers = small_file(path)
    numbers = random.Random(0)
    damaged_path = path + ".damaged"
    places = {*range(0, 100), *numbers.sample(range(len(data)), 500)}
    outcomes: dict[str, int] = {}
    for place in sorted(places):
        changed = bytearray(data)
        changed[place] ^= 1 << numbers.randrange(8)
        Path(damaged_path).write_bytes(changed)
        outcome = look(damaged_path, answers)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    assert set(outcomes) <= {"the same", "DamagedIndexFile", "ForeignIndexFile", "NewerIndexFile"}, outcomes
    assert outcomes["DamagedIndexFile"] > 50


def test_every_truncation_is_noticed(path: str) -> None:
    data, answers = small_file(path)
    numbers = random.Random(0)
    pages = range(0, len(data), 4096)
    for size in sorted({*range(0, 120), *pages, *numbers.sample(range(len(data)), 150)}):
        Path(path).write_bytes(data[:size])
        assert look(path, answers) in ("DamagedIndexFile", "ForeignIndexFile"), size


def test_bytes_after_the_end_are_noticed_unless_a_killed_vacuum_left_them(path: str) -> None:
    data, answers = small_file(path)
    Path(path).write_bytes(data + b"\0" * 10)
    assert look(path, answers) == "DamagedIndexFile"
    Path(path).write_bytes(data + os.urandom(2 * 4096))  # a vacuum commits first and then cuts the file
    assert look(path, answers) == "the same"
    store = Store.open(path, writable=True)
    add(store, 4, 40)
    store.verify()
    store.close()
