"""What ``frontier.py`` compares with: other libraries' indexes, and how hard each is told to look."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import log2, sqrt
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from benchmarks.frontier_sets import FrontierSet, K
from benchmarks.processes import ServerProcess, interpreter_with

__all__ = ["PEERS", "Peer", "PeerProcesses", "Setting"]

SCRIPT = Path(__file__).resolve().parent / "frontier_server.py"
PROBES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
BREADTHS = (10, 16, 32, 64, 128, 256, 512)
WANTED = {"scann": ("scann",), "usearch": ("usearch",)}  # what FAISS needs is installed beside crossbyte


class Setting(NamedTuple):
    """An index, by a key that its library's server understands, and how hard it looks."""

    key: str
    knobs: Mapping[str, int]

    @property
    def name(self) -> str:
        """How it is called in results."""
        return " ".join([self.key, *(f"{name}={value}" for name, value in self.knobs.items())])


class Peer(NamedTuple):
    """One curve: a library, and the settings for a set with some number of cells."""

    library: str
    settings: Callable[[int], Iterator[Setting]]


def _swept(keys: Sequence[str], n_cells: int, **knobs: Sequence[int]) -> Iterator[Setting]:
    """All settings; knobs that count cells stay within them."""
    for key, values in product(keys, product(*knobs.values())):
        setting = Setting(key.format(cells=n_cells), dict(zip(knobs, values, strict=True)))
        if all(value <= n_cells for name, value in setting.knobs.items() if name in ("nprobe", _LEAVES)):
            yield setting


_LEAVES = "leaves_to_search"


def _peer(library: str, *keys: str, **knobs: Sequence[int]) -> Peer:
    return Peer(library, partial(_swept, keys, **knobs))


PEERS = {
    "FAISS IVF,PQ16x4fs": _peer(
        "faiss", "OPQ16,IVF{cells},PQ16x4fs", "OPQ16,IVF{cells},PQ16x4fsr", nprobe=PROBES
    ),
    "FAISS IVF,PQ32x4fs": _peer(
        "faiss", "OPQ32,IVF{cells},PQ32x4fs", "OPQ32,IVF{cells},PQ32x4fsr", nprobe=PROBES
    ),
    "FAISS IVF,PQ64x4fs": _peer("faiss", "OPQ64,IVF{cells},PQ64x4fsr", nprobe=PROBES),
    "FAISS IVF,PQ16x4fs,SQfp16": _peer(
        "faiss", "OPQ16,IVF{cells},PQ16x4fsr,Refine(SQfp16)", nprobe=PROBES, k_factor_rf=(2, 8, 32)
    ),
    "FAISS IVF,RQ": _peer("faiss", "IVF{cells},RQ8x8_Nqint8", "IVF{cells},RQ16x4fs_Nrq2x4", nprobe=PROBES),
    "FAISS IVF,RaBitQfs": _peer("faiss", "IVF{cells},RaBitQfs", nprobe=PROBES),
    "FAISS PQFastScan": _peer("faiss", "OPQ16,PQ16x4fs", "OPQ32,PQ32x4fs"),
    "FAISS HNSW": _peer("faiss", "HNSW32", efSearch=BREADTHS),
    "ScaNN": _peer("scann", "tree{cells}", leaves_to_search=PROBES),
    "ScaNN, reordered": _peer(
        "scann", "tree{cells},reorder", leaves_to_search=PROBES, pre_reorder_num_neighbors=(20, 80, 320)
    ),
    "USearch": _peer("usearch", "f16", expansion_search=BREADTHS),
}


def count_cells(n_items: int) -> int:
    """The power of two nearest to four roots of the number of items, as FAISS's guidelines have it."""
    return int(2 ** round(log2(4 * sqrt(n_items))))


class PeerProcesses:
    """The processes of the libraries, started when they are needed first.

    Attributes
    ----------
    missing : dict
        Why a library is not there, by its name.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads
        self._processes: dict[str, ServerProcess] = {}
        self.missing: dict[str, str] = {}
        self.about: dict[str, Any] = {}

    def has(self, library: str) -> bool:
        """Start a library's process if it can be had."""
        if library not in self._processes and library not in self.missing:
            try:
                python = (
                    interpreter_with(f"frontier-{library}", WANTED[library])
                    if library in WANTED
                    else sys.executable
                )
            except subprocess.CalledProcessError as error:
                self.missing[library] = f"pip install {library} ended with {error.returncode}"
                return False
            process = self._processes[library] = ServerProcess(python, SCRIPT)
            self.about[library] = process.ask("about", library=library)
        return library in self._processes

    def build(self, peer: Peer, key: str, of: FrontierSet) -> float:
        """Make an index if it is not there; bytes per item."""
        asked = self._index(peer, key, of) | {"points": str(of.points), "threads": self._threads}
        return float(self._processes[peer.library].ask("build", **asked)["bytes"])

    def rows(self, peer: Peer, setting: Setting, of: FrontierSet) -> NDArray[np.int64]:
        """What every query finds, (n_queries, k)."""
        asked = self._index(peer, setting.key, of) | {"queries": str(of.queries), "k": K}
        answer = self._processes[peer.library].ask("answers", **asked, knobs=setting.knobs)
        return np.array(answer["rows"])

    def seconds(self, peer: Peer, setting: Setting, of: FrontierSet, **how: Any) -> float:
        """Seconds per query; ``how`` has n, single and clock."""
        asked = self._index(peer, setting.key, of) | {"queries": str(of.queries), "k": K}
        ask = self._processes[peer.library].ask
        return float(ask("search", **asked, knobs=setting.knobs, **how)["seconds"])

    def close_indexes(self) -> None:
        """Give memory back."""
        for process in self._processes.values():
            process.ask("close")

    @staticmethod
    def _index(peer: Peer, key: str, of: FrontierSet) -> dict[str, str]:
        return {"library": peer.library, "key": key, "folder": str(of.folder)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        for process in self._processes.values():
            process.__exit__(None, None, None)
