"""FAISS of any release, in a process of its own: it holds indexes and times its own searches on command.

Run by the interpreter of the environment that the release is installed in; knows nothing of crossbyte. Each
line of the standard input is a command in JSON, and each line of the standard output is the answer to one:

    {"do": "about"}
        {"release": "1.9.0", "simd": "AVX512", "numpy": "2.0.0"}
    {"do": "build", "kind": "IndexPQ", "n_codebooks": 8, "points": FILE, "codes": FILE, "words": FILE}
        {"items": 1000000}
    {"do": "search", "kind": "IndexPQ", "queries": FILE, "n": 100, "k": 100, "single": false,
     "clock": "wall", "warm": true}, in one line
        {"seconds": 0.001}, per query
    {"do": "answers", "kind": "IndexPQ", "queries": FILE, "n": 100, "k": 100}
        {"rows": [[17, 4, …], …]}
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import faiss
import numpy as np

TRAINING_POINTS = 50_000
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def index_pq(n_codebooks: int, files: dict[str, str]) -> Any:
    """A product quantizer, one byte per codebook, trained on the items."""
    points = np.load(files["points"])
    return _train(faiss.IndexPQ(points.shape[1], n_codebooks, 8), points)


def index_fast_scan(n_codebooks: int, files: dict[str, str]) -> Any:
    """A product quantizer with twice as many codebooks of four bits: the same bytes, scanned in registers."""
    points = np.load(files["points"])
    return _train(faiss.IndexPQFastScan(points.shape[1], 2 * n_codebooks, 4), points)


def index_additive(n_codebooks: int, files: dict[str, str]) -> Any:
    """FAISS's index of additive codes, holding the codebooks and the codes of the model.

    Its cheapest search (a table without norms) ranks by inner products alone. One dimension more, |c|² of
    every word, multiplied by -½ in the query, makes that the model's own order.
    """
    words, codes = np.load(files["words"]), np.load(files["codes"])
    squares = (words * words).sum(axis=2, keepdims=True)
    longer = np.concatenate([words, squares], axis=2)
    kind = faiss.AdditiveQuantizer.ST_LUT_nonorm
    index = faiss.IndexResidualQuantizer(longer.shape[2], n_codebooks, 8, faiss.METRIC_INNER_PRODUCT, kind)
    faiss.copy_array_to_vector(np.ascontiguousarray(longer, np.float32).ravel(), index.rq.codebooks)
    index.rq.is_trained = index.is_trained = True
    _put_codes(index, codes)
    return index


def _train(index: Any, points: Any) -> Any:
    index.train(points[:TRAINING_POINTS])
    index.add(points)
    return index


def _put_codes(index: Any, codes: Any) -> None:
    if hasattr(index, "add_sa_codes"):
        index.add_sa_codes(codes)
    else:  # before 1.10 or so
        faiss.copy_array_to_vector(codes.ravel(), index.codes)
        index.ntotal = len(codes)


KINDS = {"IndexPQ": index_pq, "PQFastScan": index_fast_scan, "additive": index_additive}


class FaissServer:
    """The indexes that were built, and what can be asked of them."""

    def __init__(self) -> None:
        self.indexes: dict[str, Any] = {}

    def about(self) -> dict[str, Any]:
        """Release, and the instructions that it uses."""
        config = getattr(faiss, "SIMDConfig", None)
        level = faiss.get_compile_options().strip() if config is None else config.get_level_name()
        return {"release": faiss.__version__, "simd": level, "numpy": np.__version__}

    def build(self, kind: str, n_codebooks: int, **files: str) -> dict[str, Any]:
        """Make an index and keep it."""
        self.indexes[kind] = KINDS[kind](n_codebooks, files)
        return {"items": self.indexes[kind].ntotal}

    def search(self, kind: str, k: int, single: bool, clock: str, warm: bool, **asked: Any) -> dict[str, Any]:
        """Time a search: all queries at once, or one by one; if ``warm``, after one uncounted call."""
        index, queries, now = self.indexes[kind], self._queries(kind, **asked), CLOCKS[clock]
        calls = [queries[row : row + 1] for row in range(len(queries))] if single else [queries]
        if warm:
            index.search(calls[0], k)
        start = now()
        for some in calls:
            index.search(some, k)
        return {"seconds": (now() - start) / len(queries)}

    def answers(self, kind: str, k: int, **asked: Any) -> dict[str, Any]:
        """What was found, to see that it is what it should be."""
        return {"rows": self.indexes[kind].search(self._queries(kind, **asked), k)[1].tolist()}

    def _queries(self, kind: str, queries: str, n: int) -> Any:
        points = np.load(queries)[:n]
        if kind == "additive":
            points = np.column_stack([points, np.full(len(points), -0.5, np.float32)])
        return np.ascontiguousarray(points, np.float32)


def main() -> None:
    """Answer commands until there are no more."""
    # What the library itself prints must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    faiss.omp_set_num_threads(1)
    server = FaissServer()
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(server, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
