"""Both releases of FAISS that searches are compared with, each in a process of its own.

The newest is the one installed beside crossbyte. The older one gets a virtual environment in the cache folder
of the benchmarks, made by pip when it is needed first.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.coded import Coded, cache_folder
from crossbyte import CMCQ

__all__ = ["KINDS", "OLDER", "FaissProcess", "faiss_processes", "interpreter_of", "write_codebooks"]

OLDER = "1.9.0"
KINDS = ("IndexPQ", "PQFastScan", "additive")
SCRIPT = Path(__file__).resolve().parent / "faiss_server.py"
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


class FaissProcess:
    """One release of FAISS behind a pipe; see ``faiss_server.py`` for its commands."""

    def __init__(self, python: str | Path) -> None:
        self._process = subprocess.Popen(
            [str(python), "-I", str(SCRIPT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | ONE_THREAD,
            text=True,
        )
        self.about: dict[str, Any] = self.ask("about")

    @property
    def name(self) -> str:
        """The name and the release."""
        return f"FAISS {self.about['release']}"

    def ask(self, what: str, **how: Any) -> dict[str, Any]:
        """Give a command and wait for its answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": what, **how}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the FAISS process ended at {what!r}; what it said is above")
        return dict(json.loads(answer))

    def build(self, kind: str, coded: Coded) -> None:
        """Make an index of the coded items."""
        names = {name: str(coded.folder / f"{name}.npy") for name in ("points", "codes", "words")}
        self.ask("build", kind=kind, n_codebooks=coded.codes.shape[1], **names)

    def seconds(self, kind: str, coded: Coded, **how: Any) -> float:
        """Seconds per query; ``how`` has n, k, single, clock and warm."""
        queries = str(coded.folder / "queries.npy")
        return float(self.ask("search", kind=kind, queries=queries, **how)["seconds"])

    def rows(self, kind: str, coded: Coded, n: int, k: int) -> NDArray[np.int64]:
        """Rows (n, k) of the items that are found."""
        queries = str(coded.folder / "queries.npy")
        return np.array(self.ask("answers", kind=kind, queries=queries, n=n, k=k)["rows"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()  # closes its input, which ends it


@contextmanager
def faiss_processes(with_older: bool = True) -> Iterator[list[FaissProcess]]:
    """Start the releases that are compared with, the older one first."""
    with FaissProcess(sys.executable) as newest:
        if not with_older:
            yield [newest]
            return
        with FaissProcess(interpreter_of(OLDER)) as older:
            yield [older, newest]


def interpreter_of(release: str) -> Path:
    """The interpreter of an environment that has this release of FAISS; made now if it is not there."""
    folder = cache_folder() / f"faiss-{release}-python{sys.version_info[0]}.{sys.version_info[1]}"
    python = folder / "bin" / "python"
    made = folder / "made"
    if not made.exists():
        print(f"installing FAISS {release} into {folder}", flush=True)
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        wanted = [f"faiss-cpu=={release}", "numpy>=1.25,<3"]
        pip = [str(python), "-m", "pip", "install", "--quiet", "--only-binary", ":all:"]
        subprocess.run([*pip, *wanted], check=True)
        made.touch()
    return python


def write_codebooks(coded: Coded, model: CMCQ) -> None:
    """Put the image codebooks where the FAISS processes can read them."""
    np.save(coded.folder / "words.npy", model.image_codebooks_)
