"""The index file: round trips, generations, and who may write."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte.errors import (
    ClosedIndex,
    CrossbyteError,
    DamagedIndexFile,
    IndexBusy,
    IndexLocked,
    InvalidInput,
    ReadOnlyIndex,
    StaleReader,
    WriteRefused,
)
from crossbyte.index.storage import records
from crossbyte.index.storage.records import Change, NewRecord
from crossbyte.index.storage.store import Store
from support.store_samples import MODEL, add, contents, rows, run, segment

# Round trips


def test_what_was_written_is_read_by_every_handle(writer: Store, reader: Store) -> None:
    catalogue = add(writer, 0, 5)
    assert catalogue[:5] == (2, 1, 5, 5, 2)
    assert contents(writer) == contents(reader)
    with reader.reading() as seen:
        first, second = reader.records()
        assert seen == catalogue
        assert (first.number, first.generation, first.kind) == (1, 1, "model")
        assert first.document == MODEL.document
        assert reader.part(first, "model") == b"the model"
        assert (second.number, second.generation, second.document) == (2, 2, {"rows": 5})
        assert reader.part(second, "numbers") == np.arange(5, dtype=np.int64).tobytes()
        assert second.parts["numbers"].n_bytes == 40
        assert [record.number for record in reader.records(after=1)] == [2]
        assert reader.records(after=2) == []
    assert reader.payloads([(3, 0), (0, 0), (3, 0)], 2) == [b'{"n":3}', b'{"n":0}', b'{"n":3}']
    assert reader.payloads([], 2) == []
    reader.verify()


def test_a_file_is_the_same_after_closing_and_opening(writer: Store) -> None:
    add(writer, 0, 5)
    before = contents(writer)
    writer.close()
    assert os.listdir(os.path.dirname(writer.path)) == ["photos.cb"], "one file, and nothing beside it"
    with_writer = Store.open(writer.path, writable=True)
    assert contents(with_writer) == before
    assert add(with_writer, 5, 6).generation == 3
    with_writer.close()


@pytest.mark.parametrize("size", [0, 1, 9, 10, 11, 20, 95])
def test_a_part_larger_than_a_piece_is_stored_in_several(
    path: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "MAX_PIECE_BYTES", 10)
    data = bytes(range(size))
    store = Store.create(path, [NewRecord("model", {}, {"a": b"xyz", "b": data, "c": b"z" * 25})])
    with store.reading():
        (record,) = store.records()
        assert [store.part(record, name) for name in "abc"] == [b"xyz", data, b"z" * 25]
        assert record.parts["b"].n_pieces == -(-size // 10)
    store.verify()
    store.close()


def test_every_kind_of_buffer_is_taken_and_others_are_refused(path: str) -> None:
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    parts = {
        "bytes": b"abc",
        "bytearray": bytearray(b"abc"),
        "memoryview": memoryview(b"xabc")[1:],
        "array": array,
        "empty": np.zeros((0, 8), np.uint8),
        "flags": array > 3,
    }
    store = Store.create(path, [NewRecord("model", {}, parts)])
    with store.reading():
        (record,) = store.records()
        got = {name: store.part(record, name) for name in parts}
    assert got["bytes"] == got["bytearray"] == got["memoryview"] == b"abc"
    assert got["array"] == array.tobytes()
    assert (got["empty"], got["flags"]) == (b"", (array > 3).tobytes())
    for bad in (array.T, array[:, ::2], "text", None, [1, 2]):
        with pytest.raises(InvalidInput, match="'part'"):
            store.commit(Change([NewRecord("model", {}, {"part": bad})]))  # type: ignore[dict-item]
    assert contents(store)[0].generation == 1
    store.close()


@pytest.mark.parametrize("document", [{"x": float("nan")}, {"x": {1}}, {1: "x"}, {"x": "\ud800"}])
def test_a_document_that_would_not_come_back_is_refused(writer: Store, document: Any) -> None:
    with pytest.raises(InvalidInput):
        writer.commit(Change([NewRecord("model", document)]))
    assert contents(writer)[0].generation == 1


def test_a_head_too_large_is_refused(writer: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MAX_HEAD_BYTES", 1000)
    with pytest.raises(InvalidInput, match="at most 1000 bytes"):
        writer.commit(Change([NewRecord("model", {"x": "y" * 2000})]))


def test_numbers_of_numpy_are_stored_as_numbers(writer: Store) -> None:
    keys = [(np.int64(7), np.uint32(1))]
    writer.commit(Change(payloads=[(np.int64(7), np.uint32(1), b"{}")], next_number=8))  # type: ignore[list-item]
    assert writer.payloads(keys, 2) == writer.payloads([(7, 1)], 2) == [b"{}"]  # type: ignore[arg-type]
    writer.verify()


@pytest.mark.parametrize("row", [(-1, 0, b""), (0, -1, b""), (2**63, 0, b""), (0, 0, "text"), (0, 0, None)])
def test_a_bad_payload_row_is_refused_and_nothing_is_changed(writer: Store, row: Any) -> None:
    with pytest.raises(InvalidInput):
        writer.commit(Change(payloads=[(5, 0, b"{}"), row], next_number=9))
    assert contents(writer, payloads=False)[0].n_payloads == 0


def test_a_payload_row_cannot_be_written_twice(writer: Store) -> None:
    add(writer, 0, 3)
    before = contents(writer)
    for change in (
        Change(payloads=rows(2, 3), next_number=3),
        Change(payloads=rows(3, 4) * 2, next_number=4),
    ):
        with pytest.raises(InvalidInput, match="nothing was changed"):
            writer.commit(change)
    assert contents(writer) == before
    add(writer, 3, 4)


def test_the_next_number_never_falls(writer: Store) -> None:
    add(writer, 0, 3)
    with pytest.raises(InvalidInput, match="never to fall"):
        writer.commit(Change(next_number=2))


def test_sizes_add_up_to_the_file(writer: Store) -> None:
    add(writer, 0, 100)
    writer.commit(
        Change([NewRecord("documents", {}, {"column:a": b"12", "column:b": b"3"})], next_number=100)
    )
    sizes = writer.sizes()
    assert sizes["documents:codes.image"] == 800
    assert sizes["documents:column"] == 3
    assert sizes["payloads"] == sum(len(body) for _, _, body in rows(0, 100))
    assert sizes["file"] == os.path.getsize(writer.path)
    assert sum(sizes.values()) == 2 * sizes["file"]


@pytest.mark.parametrize(
    "name",
    ["a?b", "a#b", "100%41", " a b ", "line\nbreak", "grüße-猫", "a&mode=memory", "'\";--", b"\xff\xfe"],
)
def test_odd_names_are_only_names(tmp_path: Path, name: str | bytes) -> None:
    folder = os.fsencode(tmp_path)
    path = os.fsdecode(os.path.join(folder, os.fsencode(name)))
    store = Store.create(path, [MODEL])
    add(store, 0, 2)
    store.backup(path + ".copy")
    store.close()
    Store.open(path, writable=True).verify()
    assert sorted(os.listdir(folder)) == sorted([os.fsencode(name), os.fsencode(name) + b".copy"])


def test_names_too_long_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="path of at most"):
        Store.create(str(tmp_path / "/".join(["x" * 200] * 3)), [MODEL])
    with pytest.raises(CrossbyteError):
        Store.create(str(tmp_path / ("x" * 252)), [MODEL])
    assert os.listdir(tmp_path) == []


# Generations


def test_a_reader_stays_in_one_generation_while_a_writer_commits(
    writer: Store, reader: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(writer, 0, 3)
    writer._session.connection.execute("PRAGMA busy_timeout = 50").fetchall()
    with reader.reading() as catalogue:
        with pytest.raises(IndexBusy, match="try again"):
            add(writer, 3, 6)  # waits for the reader, and gives up
        assert catalogue.generation == 2
        assert len(reader.records()) == 2
    assert add(writer, 3, 6).generation == 3, "the failed attempt left nothing behind"
    with reader.reading() as catalogue:
        assert catalogue.generation == 3
        assert len(reader.records()) == 3
    writer.verify()


def test_a_commit_waits_for_a_reader_in_another_thread(writer: Store, reader: Store) -> None:
    inside, leave = threading.Event(), threading.Event()
    generations = []

    def read() -> None:
        with reader.reading() as catalogue:
            inside.set()
            leave.wait(5)
            generations.append((catalogue.generation, len(reader.records())))

    thread = threading.Thread(target=read)
    thread.start()
    inside.wait(5)
    threading.Timer(0.2, leave.set).start()
    assert add(writer, 0, 3).generation == 2
    thread.join()
    assert generations == [(1, 1)]


def test_many_threads_read_one_handle_while_another_writes(writer: Store, reader: Store) -> None:
    add(writer, 0, 50)
    failed: list[BaseException] = []

    def read(seed: int) -> None:
        numbers = random.Random(seed)
        try:
            for _ in range(30):
                number = numbers.randrange(50)
                assert reader.payloads([(number, 0)], 2) == [b'{"n":%d}' % number]
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for number in range(50, 55):
        add(writer, number, number + 1)
    for thread in threads:
        thread.join()
    assert failed == []


def test_an_older_reader_goes_on_after_commits_and_is_stale_after_a_compaction(
    writer: Store, reader: Store
) -> None:
    add(writer, 0, 3)
    with reader.reading():
        _, old = reader.records()
    writer.commit(Change(payloads=[(1, 1, b"new")], next_number=3))
    reader.check_current(2)
    assert reader.payloads([(1, 0), (1, 1)], 2) == [b'{"n":1}', b"new"]
    catalogue = writer.replace([2], [segment(0, 2)], dead=[(1, 0), (2, 0)], renamed=[(1, 1)], next_number=3)
    assert catalogue[:5] == (4, 4, 3, 2, 2)
    for use in (
        lambda: reader.check_current(3),
        lambda: reader.payloads([(0, 0)], 3),
        lambda: reader.part(old, "numbers"),
    ):
        with pytest.raises(StaleReader, match=r"refresh\(\)"):
            use()
    reader.check_current(4)
    assert reader.payloads([(0, 0), (1, 0)], 4) == [b'{"n":0}', b"new"]
    with reader.reading():
        assert [record.number for record in reader.records()] == [1, 3], "a number is never given twice"
    writer.verify()


def test_a_dropped_last_record_does_not_free_its_number(writer: Store) -> None:
    add(writer, 0, 1)
    writer.commit(Change(drop=[2], next_number=1))
    add(writer, 1, 2)
    with writer.reading() as catalogue:
        assert [record.number for record in writer.records()] == [1, 3]
        assert catalogue.oldest == 3
    writer.verify()


def test_a_compaction_makes_the_file_small(writer: Store) -> None:
    writer.commit(Change([], [(n, 0, os.urandom(1000)) for n in range(500)], next_number=500))
    before = os.path.getsize(writer.path)
    writer.replace([], [], dead=((n, 0) for n in range(500)), renamed=(), next_number=500)
    assert os.path.getsize(writer.path) < before / 10
    assert writer.sizes()["payloads"] == 0
    writer.verify()


def test_a_compaction_stands_when_the_file_cannot_be_made_small(writer: Store, reader: Store) -> None:
    add(writer, 0, 3)
    writer._session.connection.execute("PRAGMA busy_timeout = 50").fetchall()

    def dead() -> Iterator[tuple[int, int]]:
        yield 2, 0

    original = writer._session.vacuum

    def vacuum() -> None:
        with reader.reading():
            original()

    writer._session.vacuum = vacuum  # type: ignore[method-assign]
    assert writer.replace([2], [segment(0, 2)], dead(), (), next_number=3).generation == 3
    add(writer, 3, 5)
    writer.verify()


@pytest.mark.parametrize("use", ["drop", "dead", "renamed"])
def test_a_compaction_of_what_is_not_there_changes_nothing(writer: Store, use: str) -> None:
    add(writer, 0, 3)
    before = contents(writer)
    arguments: dict[str, Any] = {"drop": [], "dead": [(0, 0)], "renamed": []}
    arguments[use] = [9] if use == "drop" else [(9, 0)]
    with pytest.raises(DamagedIndexFile, match="missing"):
        writer.replace(records=[], next_number=3, **arguments)
    assert contents(writer) == before


# Who may write


def test_a_second_writer_is_refused_and_readers_are_not(writer: Store) -> None:
    with pytest.raises(IndexLocked, match=str(os.getpid())):
        Store.open(writer.path, writable=True)
    Store.open(writer.path, writable=False).close()
    writer.close()
    Store.open(writer.path, writable=True).close()


def test_a_reader_cannot_write(reader: Store) -> None:
    with pytest.raises(ReadOnlyIndex, match="'rw'"):
        add(reader, 0, 1)
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._session.connection.execute("DELETE FROM records")


def test_nothing_is_written_inside_reading(writer: Store) -> None:
    with writer.reading(), pytest.raises(WriteRefused, match="open transaction"):
        add(writer, 0, 1)
    add(writer, 0, 1)


def test_a_closed_handle_says_so(writer: Store, reader: Store) -> None:
    for store in (writer, reader):
        store.close()
        store.close()
        for use in (store.verify, store.sizes, store.records, lambda: store.backup("x")):  # noqa: B023
            with pytest.raises(ClosedIndex, match="open it again"):
                use()


def test_a_handle_closed_while_reading_ends_quietly(reader: Store) -> None:
    with reader.reading():
        reader.close()


def test_a_forgotten_writer_gives_its_lock_back(path: str) -> None:
    store = Store.create(path, [MODEL])
    del store
    Store.open(path, writable=True).close()


def test_a_writer_whose_file_was_replaced_refuses(writer: Store, path: str) -> None:
    copy = path + ".copy"
    writer.backup(copy)
    os.replace(copy, path)
    with pytest.raises(WriteRefused, match="replaced"):
        add(writer, 0, 1)
    os.unlink(path)
    with pytest.raises(WriteRefused, match="replaced or removed"):
        add(writer, 0, 1)


def test_what_somebody_else_committed_is_not_built_upon(writer: Store) -> None:
    os.unlink(writer.path + ".lock")  # somebody breaks the rules
    other = Store.open(writer.path, writable=True)
    add(other, 0, 2)
    with pytest.raises(WriteRefused, match="expected generation 1, .*, got 2"):
        add(writer, 0, 2)
    with writer.reading() as catalogue:
        assert catalogue.generation == 2
    add(writer, 2, 3)
    other.close()


FORK = """
import os, sys
from crossbyte.errors import WriteRefused
from crossbyte.index.storage.store import Change, NewRecord, Store

path = sys.argv[1]
store = Store.create(path, [NewRecord("model", {}, {})])

def payloads():
    yield 0, 0, b"first"
    child = os.fork()
    if child == 0:  # in the middle of the parent's transaction
        uses = (store.sizes, store.verify, store.records, lambda: store.check_current(1),
                lambda: store.commit(Change()), lambda: store.backup(path + "2"))
        for use in uses:
            try:
                use()
            except WriteRefused as error:
                assert "fork" in str(error)
            else:
                os._exit(2)
        store.close()
        globals().pop("store")
        sys.exit(7)  # through the whole end of the interpreter
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    yield 1, 0, b"second"

store.commit(Change([], payloads(), 2))
assert store.payloads([(0, 0), (1, 0)], 2) == [b"first", b"second"]
store.commit(Change([], [(2, 0, b"third")], 3))
store.verify()
store.close()
assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]
"""


def test_a_forked_child_is_refused_and_does_no_harm(path: str) -> None:
    run(FORK, path)
