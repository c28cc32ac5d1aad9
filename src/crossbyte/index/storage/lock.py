"""Let one writer in at a time: a locked file beside the index, with the holder's name inside.

The lock is the system's (flock), so it dies with its holder, however that ends; the file is only the
thing that is locked. It is removed at a clean end. One left behind by a killed process locks nothing and
is taken over.
"""

from __future__ import annotations

import errno
import json
import os
import socket
import stat
import sys
import time
import weakref
from contextlib import suppress
from typing import Any, Final

from crossbyte._fs import new_file_mode
from crossbyte.errors import IndexLocked, StorageFailed
from crossbyte.index.storage.records import translate_system_errors

SUFFIX: Final = ".lock"
_MAX_NOTE_BYTES = 4096
_ATTEMPTS = 100  # each needs another process to remove the file just between our opening and locking it
_FLAGS: Final = (
    os.O_RDWR
    | os.O_CREAT
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a named pipe would wait for ever
)


class WriterLock:
    """The right to write to one index; made by `acquire`.

    Attributes
    ----------
    path : str
        The lock file.
    """

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor: int | None = descriptor
        self._process = os.getpid()
        _held.add(self)

    @classmethod
    def acquire(cls, index_path: str) -> WriterLock:
        """Take the lock at once or not at all.

        Parameters
        ----------
        index_path : str
            The real path of the index.

        Raises
        ------
        IndexLocked
            Somebody holds it, perhaps this very process; the message says who.
        FileNotFoundError
            The folder does not exist.
        ReadOnlyIndex, StorageFull, StorageFailed
            The lock file cannot be made.
        """
        path = index_path + SUFFIX
        with translate_system_errors(index_path):
            for _ in range(_ATTEMPTS):
                descriptor = _lock_file(path, index_path)
                if descriptor is not None:
                    _write_note(descriptor)
                    return cls(path, descriptor)
        raise StorageFailed(f"{path}: the lock file is removed again and again; see which program does it")

    def release(self) -> None:
        """Give the lock back and remove its file; in a forked child, do nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None or self._process != os.getpid():
            return
        if _is_at(descriptor, self.path):
            with suppress(OSError):  # only a courtesy: an unlocked file hinders nobody
                os.unlink(self.path)  # before unlocking, so that nobody's new lock is removed
        os.close(descriptor)

    def _forget(self) -> None:
        """Close the child's copy of the descriptor, which would keep the lock after the parent's end."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            with suppress(OSError):
                os.close(descriptor)


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock._forget()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)


def _lock_file(path: str, index_path: str) -> int | None:
    """Open and lock; None when the file was removed in between and all must be done again."""
    try:
        descriptor = os.open(path, _FLAGS, new_file_mode())
    except FileNotFoundError as error:
        raise FileNotFoundError(
            error.errno, "the folder does not exist; make it first", index_path
        ) from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise StorageFailed(f"{path}: expected a lock file, got no regular file; remove it")
        if not _try_lock(descriptor):
            raise IndexLocked(_describe_holder(descriptor, index_path))
        if _is_at(descriptor, path):
            return descriptor
    except BaseException:
        os.close(descriptor)
        raise
    os.close(descriptor)
    return None


if sys.platform == "win32":
    import msvcrt

    def _try_lock(descriptor: int) -> bool:
        os.lseek(descriptor, 2**30, os.SEEK_SET)  # far behind the note, which others must be able to read
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
                return False
            raise
        return True


def _is_at(descriptor: int, path: str) -> bool:
    try:
        there = os.stat(path, follow_symlinks=False)
    except OSError:
        return False
    return os.path.samestat(os.fstat(descriptor), there)


def _write_note(descriptor: int) -> None:
    note = {"host": socket.gethostname(), "pid": os.getpid(), "since": time.strftime("%Y-%m-%d %H:%M:%S%z")}
    with suppress(OSError):  # on a full disk the lock is as good without its note
        os.ftruncate(descriptor, 0)
        os.lseek(descriptor, 0, os.SEEK_SET)
        os.write(descriptor, json.dumps(note).encode())


def _describe_holder(descriptor: int, index_path: str) -> str:
    note = _read_note(descriptor)
    who = "another writer"
    if isinstance(note.get("pid"), int):
        here = note["pid"] == os.getpid() and note.get("host") == socket.gethostname()
        who = f"process {note['pid']} on {str(note.get('host'))[:64]!r}{' (this process)' if here else ''}"
        who += f" since {str(note.get('since'))[:64]}"
    return f"{index_path}: {who} is writing to this index; close it there first, or open with mode 'r'"


def _read_note(descriptor: int) -> dict[str, Any]:
    """Read the holder's note, which may be missing or half written: it is for the message only."""
    try:
        os.lseek(descriptor, 0, os.SEEK_SET)
        note = json.loads(os.read(descriptor, _MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return note if isinstance(note, dict) else {}
