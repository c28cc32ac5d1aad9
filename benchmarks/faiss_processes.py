"""Both releases of FAISS that searches are compared with, each in a process of its own.

The newest is the one installed beside crossbyte. The older one gets a virtual environment in the cache folder
of the benchmarks, made by pip when it is needed first.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.coded import Coded
from benchmarks.processes import ServerProcess, interpreter_with
from crossbyte import CMCQ

__all__ = ["KINDS", "OLDER", "FaissProcess", "faiss_processes", "interpreter_of", "write_codebooks"]

OLDER = "1.9.0"
KINDS = ("IndexPQ", "PQFastScan", "additive")
SCRIPT = Path(__file__).resolve().parent / "faiss_server.py"


class FaissProcess(ServerProcess):
    """One release of FAISS; see ``faiss_server.py`` for its commands."""

    def __init__(self, python: str | Path) -> None:
        super().__init__(python, SCRIPT)
        self.about: dict[str, Any] = self.ask("about")

    @property
    def name(self) -> str:
        """The name and the release."""
        return f"FAISS {self.about['release']}"

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
    return interpreter_with(f"faiss-{release}", [f"faiss-cpu=={release}", "numpy>=1.25,<3"])


def write_codebooks(coded: Coded, model: CMCQ) -> None:
    """Put the image codebooks where the FAISS processes can read them."""
    np.save(coded.folder / "words.npy", model.image_codebooks_)
