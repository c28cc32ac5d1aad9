"""Other libraries, each in a process of its own and, where it needs one, an environment of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from benchmarks.coded import cache_folder

__all__ = ["ServerProcess", "interpreter_with"]

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class ServerProcess:
    """A script behind a pipe: one command in JSON a line, one answer in JSON a line."""

    def __init__(self, python: str | Path, script: Path) -> None:
        self._script = script.name
        self._process = subprocess.Popen(
            [str(python), "-I", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD,
            text=True,
        )

    def ask(self, what: str, **how: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._script} ended at {what!r}; what it said is above")
        return dict(json.loads(answer))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its input, which ends it


def interpreter_with(name: str, wanted: Sequence[str]) -> Path:
    """The interpreter of an environment that has these packages; made now by pip if it is not there.

    Raises
    ------
    subprocess.CalledProcessError
        They have no wheels for this machine, or cannot be fetched.
    """
    folder = cache_folder() / f"{name}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    made = folder / "made"
    if not made.exists():
        print(f"installing {', '.join(wanted)} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        subprocess.run([*pip, *wanted], check=True)
        made.touch()
    return python
