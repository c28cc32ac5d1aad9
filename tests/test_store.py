"""The index file: round trips, generations, refusals, and that a failure changes nothing."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte.errors import (
    ClosedIndex,
    CrossbyteError,
    DamagedIndexFile,
    ForeignIndexFile,
    IndexBusy,
    IndexExists,
    IndexFileError,
    IndexLocked,
    InvalidInput,
    NewerIndexFile,
    ReadOnlyIndex,
    StaleReader,
    StorageFailed,
    StorageFull,
    WriteRefused,
)
from crossbyte.search.storage import connection as connection_module
from crossbyte.search.storage import copying, failures, records
from crossbyte.search.storage.store import Catalogue, Change, NewRecord, Store

MODEL = NewRecord("model", {"name": "m", "numbers": [1, 2.5]}, {"model": b"the model"})
Rows = list[tuple[int, int, bytes]]


def rows(start: int, stop: int) -> Rows:
    return [(number, 0, b'{"n":%d}' % number) for number in range(start, stop)]


def segment(start: int, stop: int) -> NewRecord:
    codes = np.arange(8 * (stop - start), dtype=np.uint8).reshape(-1, 8)
    numbers = np.arange(start, stop, dtype=np.int64)
    return NewRecord("documents", {"rows": stop - start}, {"codes.image": codes, "numbers": numbers})


def add(store: Store, start: int, stop: int) -> Catalogue:
    return store.commit(Change([segment(start, stop)], rows(start, stop), next_number=stop))


def contents(store: Store, payloads: bool = True) -> Any:
    """Read everything that a file holds."""
    with store.reading() as catalogue:
        parts = {
            (record.number, name): store.part(record, name)
            for record in store.records()
            for name in record.parts
        }
        heads = [(r.number, r.generation, r.kind, r.document) for r in store.records()]
        keys = [(number, 0) for number in range(catalogue.next_number)] if payloads else []
        return catalogue, heads, parts, store.payloads(keys, catalogue.generation)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "photos.cb")


@pytest.fixture
def writer(path: str) -> Iterator[Store]:
    with_writer = Store.create(path, [MODEL])
    yield with_writer
    with_writer.close()


@pytest.fixture
def reader(writer: Store) -> Iterator[Store]:
    store = Store.open(writer.path, writable=False)
    yield store
    store.close()


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
from crossbyte.search.storage.store import Change, NewRecord, Store

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


def run(script: str, *arguments: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr


def test_a_forked_child_is_refused_and_does_no_harm(path: str) -> None:
    run(FORK, path)


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
from crossbyte.search.storage.store import Change, NewRecord, Store

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
from crossbyte.search.storage.store import NewRecord, Store

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
    return copying.WriterLock.acquire(os.path.realpath(path))


def test_a_name_taken_meanwhile_is_not_overwritten(
    writer: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original = copying.flush_file

    def take(path: str) -> None:
        original(path)
        (tmp_path / "copy").write_text("mine")

    monkeypatch.setattr(copying, "flush_file", take)
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
    with pytest.raises(NewerIndexFile, match="format 1 or older, got 2; upgrade"):
        Store.open(edited(writer, "PRAGMA user_version = 2"), writable=False)


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
        with pytest.raises(kind) as caught, failures.translated(str(tmp_path / "x"), writing=is_writing):
            raise sqlite_error(code)
        assert isinstance(caught.value.__cause__, sqlite3.Error)


def test_a_failed_write_on_a_full_disk_is_a_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "_is_full", lambda path: True)
    with pytest.raises(StorageFull), failures.translated(str(tmp_path / "x"), writing=True):
        raise sqlite_error(sqlite3.SQLITE_IOERR_WRITE)


def test_values_that_python_cannot_convert_are_damage_when_read(tmp_path: Path) -> None:
    for error in (OverflowError("too large"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")):
        with pytest.raises(DamagedIndexFile), failures.translated("x", writing=False):
            raise error
        with pytest.raises(type(error)), failures.translated("x", writing=True):
            raise error
    with pytest.raises(sqlite3.ProgrammingError), failures.translated("x", writing=False):
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
