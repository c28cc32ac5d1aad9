"""The shim: compile it, start Python under it, and arm it."""

from __future__ import annotations

import ctypes
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.paths import TESTS

SOURCE = Path(__file__).with_name("shim.c")

BEFORE, HALF, AFTER, FAIL = range(4)
WHEN = {"before": BEFORE, "half": HALF, "after": AFTER}
KINDS = ("none", "write", "sync", "truncate", "unlink", "rename", "link")


def compiler() -> list[str] | None:
    """The C compiler of this machine, as a command; None where there is none or the shim cannot work."""
    command = shlex.split(os.environ.get("CC", "cc"))
    return command if sys.platform == "linux" and shutil.which(command[0]) else None


def build(folder: Path) -> Path:
    """Compile the shim into ``folder``."""
    command, library = compiler(), folder / "shim.so"
    assert command is not None, "the kill points need Linux and a C compiler (cc, or the one named by CC)"
    options = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([*command, *options, "-o", str(library), str(SOURCE), "-ldl"], check=True)
    return library


def memory_folder() -> str | None:
    """A folder in memory where there is one: a kill does not tell it from a disk, and fsync costs nothing."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def environment(library: Path | None) -> dict[str, str]:
    """The environment of a process under the shim; it finds the same crossbyte and the same tests."""
    paths = [str(TESTS), *(path for path in sys.path if path)]
    one_thread = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    preload = {} if library is None else {"LD_PRELOAD": str(library)}
    return os.environ | one_thread | preload | {"PYTHONPATH": os.pathsep.join(paths)}


def run(library: Path | None, module: str, scratch: Path, workload: str, *options: str) -> dict[str, Any]:
    """Run a driver under the shim, in a process of its own, and give its report."""
    folder = Path(tempfile.mkdtemp(dir=scratch))
    command = [sys.executable, "-m", module, str(folder / "run"), workload, *options]
    done = subprocess.run(
        command, env=environment(library), capture_output=True, text=True, timeout=6 * 3600, cwd=folder
    )
    shutil.rmtree(folder)
    assert done.returncode == 0, done.stderr
    report: dict[str, Any] = json.loads(done.stdout)
    return report


class NoShim:
    """Where nothing was preloaded: a process can only be killed from outside."""

    def arm(
        self, folder: Path, at: int, action: int = BEFORE, error: int = 0, for_ever: bool = False
    ) -> None:
        """Do nothing."""

    def disarm(self) -> None:
        """Do nothing."""

    def calls(self) -> int:
        return 0

    def kind(self) -> str:
        return "none"


class Shim:
    """The shim of this very process."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None)  # everything loaded, so also what was preloaded
        self._library.crash_arm.argtypes = [ctypes.c_char_p, ctypes.c_long] + [ctypes.c_int] * 3
        self._library.crash_arm.restype = None
        self._library.crash_calls.restype = ctypes.c_long
        self._library.crash_calls_of.restype = ctypes.c_long
        self._library.crash_record.argtypes = [ctypes.c_char_p, ctypes.c_char_p]
        self._library.crash_record.restype = None
        self._library.crash_mark.argtypes = [ctypes.c_char_p]
        self._library.crash_mark.restype = None
        self.arm(Path("/nowhere"), 0)  # makes the memory that children will share

    def arm(
        self, folder: Path, at: int, action: int = BEFORE, error: int = 0, for_ever: bool = False
    ) -> None:
        """From now on, act at call number ``at`` (0: only count) on a file inside ``folder``."""
        self._library.crash_arm(os.fsencode(folder), at, action, error, int(for_ever))

    def record(self, folder: Path, log: Path) -> None:
        """From now on, write every change inside ``folder`` to ``log``; :mod:`crash.disk` reads it."""
        self._library.crash_record(os.fsencode(folder), os.fsencode(log))

    def mark(self, what: str) -> None:
        """Write a mark into the recording: what was acknowledged."""
        self._library.crash_mark(what.encode())

    def disarm(self) -> None:
        """Let everything pass."""
        self._library.crash_disarm()

    def calls(self) -> int:
        """Calls since armed, in this process or in the child that was armed last."""
        return int(self._library.crash_calls())

    def kind(self) -> str:
        """What call number ``at`` was; "none" when it never came."""
        return KINDS[self._library.crash_kind()]

    def calls_by_kind(self) -> dict[str, int]:
        """Calls since armed, of each kind."""
        return {kind: int(self._library.crash_calls_of(i)) for i, kind in enumerate(KINDS) if i}
