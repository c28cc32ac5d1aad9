"""One writer at a time: two processes, a killed holder, a fork, a lock file that somebody else removes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from crossbyte.errors import IndexLocked, ReadOnlyIndex, StorageFailed, StorageFull
from crossbyte.index.storage import lock as lock_module
from crossbyte.index.storage.lock import WriterLock

HOLDER = """
import sys, time
from crossbyte.index.storage.lock import WriterLock
lock = WriterLock.acquire(sys.argv[1])
print("held", flush=True)
time.sleep(60)
"""


@pytest.fixture
def index_path(tmp_path: Path) -> str:
    return str(tmp_path / "photos.cb")


def start_holder(path: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLDER, path], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


def stop(process: subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()


def test_the_lock_is_taken_given_back_and_leaves_no_file(index_path: str) -> None:
    for _ in range(3):
        lock = WriterLock.acquire(index_path)
        note = json.loads(Path(lock.path).read_text())
        assert note["pid"] == os.getpid()
        assert set(note) == {"host", "pid", "since"}
        lock.release()
        lock.release()  # does nothing
        assert not os.path.exists(lock.path)


def test_the_same_process_gets_it_only_once(index_path: str) -> None:
    lock = WriterLock.acquire(index_path)
    with pytest.raises(IndexLocked, match=rf"process {os.getpid()} on .* \(this process\) since 2"):
        WriterLock.acquire(index_path)
    lock.release()
    WriterLock.acquire(index_path).release()


def test_another_process_is_named_and_when_it_is_killed_its_lock_is_taken_over(index_path: str) -> None:
    holder = start_holder(index_path)
    try:
        with pytest.raises(IndexLocked, match=f"process {holder.pid} on") as caught:
            WriterLock.acquire(index_path)
        assert index_path in str(caught.value)
        assert "this process" not in str(caught.value)
    finally:
        holder.send_signal(signal.SIGKILL)
        stop(holder)
    assert os.path.exists(index_path + ".lock"), "a killed process cannot remove its file"
    lock = WriterLock.acquire(index_path)
    assert json.loads(Path(lock.path).read_text())["pid"] == os.getpid()
    lock.release()
    assert not os.path.exists(index_path + ".lock")


FORK = """
import os, sys, time
from crossbyte.errors import IndexLocked
from crossbyte.index.storage.lock import WriterLock
path = sys.argv[1]
lock = WriterLock.acquire(path)
if os.fork() == 0:
    lock.release()  # nothing to give back in the child
    time.sleep(60)
    os._exit(0)
assert os.path.exists(path + ".lock")
try:
    WriterLock.acquire(path)
except IndexLocked:
    pass
else:
    raise SystemExit("the child gave back the parent's lock")
lock.release()
WriterLock.acquire(path).release()  # the child, still alive, does not keep it
os.killpg(0, 9)
"""


def test_a_forked_child_neither_keeps_nor_gives_back_the_lock(index_path: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", FORK, index_path], stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL, errors


def test_a_lock_file_that_vanishes_between_opening_and_locking_is_made_again(
    index_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = lock_module._try_lock, []

    def remove_first(descriptor: int) -> bool:
        calls.append(descriptor)
        if len(calls) < 4:
            os.unlink(index_path + ".lock")
        return original(descriptor)

    monkeypatch.setattr(lock_module, "_try_lock", remove_first)
    lock = WriterLock.acquire(index_path)
    assert len(calls) == 4
    assert os.path.exists(lock.path)
    lock.release()


def test_a_lock_file_that_vanishes_for_ever_is_an_error(
    index_path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lock_module, "_is_at", lambda *_: False)
    n_descriptors = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else None
    with pytest.raises(StorageFailed, match="again and again"):
        WriterLock.acquire(index_path)
    if n_descriptors is not None:
        assert len(os.listdir("/proc/self/fd")) == n_descriptors


def test_a_new_lock_of_somebody_else_is_not_removed(index_path: str) -> None:
    first = WriterLock.acquire(index_path)
    os.unlink(first.path)  # by a tidy user
    second = WriterLock.acquire(index_path)
    first.release()
    assert os.path.exists(second.path)
    with pytest.raises(IndexLocked):
        WriterLock.acquire(index_path)
    second.release()


@pytest.mark.parametrize("note", [b"", b"{", b"[]", b'{"pid": "x"}', b"\xff\xfe", b"[" * 5000])
def test_any_note_gives_a_message(index_path: str, note: bytes) -> None:
    lock = WriterLock.acquire(index_path)
    Path(lock.path).write_bytes(note)
    with pytest.raises(IndexLocked, match="another writer is writing"):
        WriterLock.acquire(index_path)
    lock.release()


def test_a_pipe_or_a_link_in_the_place_of_the_lock_is_refused_at_once(index_path: str) -> None:
    os.mkfifo(index_path + ".lock")
    with pytest.raises(StorageFailed, match="no regular file"):
        WriterLock.acquire(index_path)
    os.unlink(index_path + ".lock")
    os.symlink("/dev/null", index_path + ".lock")
    with pytest.raises(StorageFailed):
        WriterLock.acquire(index_path)


@pytest.mark.parametrize(
    ("number", "kind"),
    [(28, StorageFull), (122, StorageFull), (30, ReadOnlyIndex), (13, ReadOnlyIndex), (5, StorageFailed)],
)
def test_what_the_system_refuses_is_told_in_our_words(
    index_path: str, number: int, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(kind):
        WriterLock.acquire(index_path)


def test_a_full_disk_costs_the_note_only(index_path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise OSError(28, os.strerror(28))

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", refuse)
        lock = WriterLock.acquire(index_path)
    with pytest.raises(IndexLocked, match="another writer"):
        WriterLock.acquire(index_path)
    lock.release()
