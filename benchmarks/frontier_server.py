"""A peer library in a process of its own: it trains, holds and searches indexes on command, and times itself.

Run by the interpreter of the environment that the library is installed in; knows nothing of crossbyte. Each
line of the standard input is a command in JSON, and each line of the standard output is the answer to one:

    {"do": "about", "library": "faiss"}
        {"release": "1.15.1", "simd": "AVX512"}
    {"do": "build", "library": "faiss", "key": "OPQ16,IVF4096,PQ16x4fsr", "folder": DIR, "points": FILE,
     "threads": 2}, in one line
        {"bytes": 17.2}, in the file, per item; an index that is in the folder already is not made again
    {"do": "search", …, "queries": FILE, "n": 50, "k": 10, "single": true, "clock": "wall",
     "knobs": {"nprobe": 16}}, in one line
        {"seconds": 0.0001}, per query, after one uncounted call, one thread
    {"do": "answers", …, "queries": FILE, "k": 10, "knobs": {"nprobe": 16}}
        {"rows": [[17, 4, …], …]}

Every index is as a strong user would make it: FAISS's product quantizers learn from 65,536 points (by default
4,096 for codes of four bits), behind a rotation that is learned for codes of their size, of residuals where
these are coded; coarse centres from 256 points each, once for all indexes with as many.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

LEARNING_POINTS = 65_536
POINTS_PER_CENTRE = 256
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}


def draw(points: Any, count: int) -> Any:
    """Some of the points, the same ones each time."""
    if len(points) <= count:
        return np.ascontiguousarray(points)
    rows = np.sort(np.random.default_rng(0).permutation(len(points))[:count])
    return np.ascontiguousarray(points[rows])


def bytes_in(place: Path) -> int:
    """Bytes of a file, or of all files of a folder."""
    return sum(each.stat().st_size for each in [place, *place.glob("**/*")] if each.is_file())


class Faiss:
    """Indexes by their factory strings; "r" behind "fs" codes residuals."""

    def __init__(self) -> None:
        import faiss

        self.faiss = faiss

    def about(self) -> dict[str, Any]:
        """Release, and the instructions that it uses."""
        faiss = self.faiss
        config = getattr(faiss, "SIMDConfig", None)
        level = faiss.get_compile_options().strip() if config is None else config.get_level_name()
        return {"release": faiss.__version__, "simd": level}

    def build(self, key: str, points: Any, place: Path, threads: int) -> None:
        """Train, fill and write an index."""
        faiss = self.faiss
        faiss.omp_set_num_threads(threads)
        index = faiss.index_factory(points.shape[1], key)
        whole, first = index, faiss.downcast_index(getattr(index, "base_index", index))
        rotated = isinstance(first, faiss.IndexPreTransform)
        inner = faiss.downcast_index(first.index) if rotated else first
        is_ivf, rotation = isinstance(inner, faiss.IndexIVF), None
        centres = self._centres(points, inner.nlist, place.parent) if is_ivf else None
        if rotated:
            rotation = faiss.downcast_VectorTransform(first.chain.at(0))
            self._learn_rotation(rotation, inner, points, centres)
        if centres is not None:
            turned = centres if rotation is None else rotation.apply(centres)
            inner.quantizer.train(turned)
            inner.quantizer.add(turned)
        if hasattr(inner, "pq"):
            inner.pq.cp.max_points_per_centroid = LEARNING_POINTS // inner.pq.ksub
        if hasattr(inner, "hnsw"):
            inner.hnsw.efConstruction = 128
        whole.train(draw(points, 4 * LEARNING_POINTS))
        for start in range(0, len(points), 100_000):
            whole.add(points[start : start + 100_000])
        faiss.write_index(whole, str(place))

    def _centres(self, points: Any, count: int, folder: Path) -> Any:
        path = folder / f"centres-{count}.npy"
        if not path.exists():
            kmeans = self.faiss.Kmeans(
                points.shape[1], count, niter=10, seed=0, max_points_per_centroid=POINTS_PER_CENTRE
            )
            kmeans.train(draw(points, POINTS_PER_CENTRE * count))
            np.save(path, kmeans.centroids)
        return np.load(path)

    def _learn_rotation(self, rotation: Any, inner: Any, points: Any, centres: Any) -> None:
        faiss, some = self.faiss, draw(points, LEARNING_POINTS)
        if centres is not None and inner.by_residual:
            flat = faiss.IndexFlatL2(some.shape[1])
            flat.add(centres)
            some = some - centres[flat.search(some, 1)[1][:, 0]]
        product = faiss.ProductQuantizer(some.shape[1], inner.pq.M, inner.pq.nbits)
        rotation.pq = product
        rotation.train(some)
        rotation.pq = None

    def open(self, place: Path) -> Any:
        """Read an index."""
        return self.faiss.read_index(str(place))

    def search(self, index: Any, queries: Any, k: int) -> Any:
        """Rows (n, k) of what is found."""
        return index.search(queries, k)[1]

    def turn(self, index: Any, knobs: dict[str, Any]) -> None:
        """Set how hard an index looks."""
        self.faiss.omp_set_num_threads(1)
        space = self.faiss.ParameterSpace()
        for name, value in knobs.items():
            space.set_index_parameter(index, name, value)


class Scann:
    """Trees with product codes of two dimensions in four bits; "tree1024,reorder" keeps vectors as well."""

    def __init__(self) -> None:
        import scann

        self.scann = scann
        self.asked: dict[int, dict[str, Any]] = {}

    def about(self) -> dict[str, Any]:
        """Release."""
        from importlib.metadata import version

        return {"release": version("scann")}

    def build(self, key: str, points: Any, place: Path, threads: int) -> None:
        """Train, fill and write an index."""
        leaves = int(re.fullmatch(r"tree(\d+)(,reorder)?", key)[1])  # type: ignore[index]
        builder = self.scann.scann_ops_pybind.builder(points, 10, "squared_l2")
        builder.set_n_training_threads(threads)
        builder.tree(leaves, 16, training_sample_size=min(len(points), POINTS_PER_CENTRE * leaves))
        builder.score_ah(2, training_sample_size=min(len(points), 4 * LEARNING_POINTS))
        if key.endswith("reorder"):
            builder.reorder(100)
        place.mkdir()
        builder.build().serialize(str(place), relative_path=True)

    def open(self, place: Path) -> Any:
        """Read an index."""
        return self.scann.scann_ops_pybind.load_searcher(str(place))

    def search(self, index: Any, queries: Any, k: int) -> Any:
        """Rows (n, k) of what is found."""
        asked = self.asked[id(index)]
        if len(queries) == 1:
            return index.search(queries[0], final_num_neighbors=k, **asked)[0]
        return index.search_batched(queries, final_num_neighbors=k, **asked)[0]

    def turn(self, index: Any, knobs: dict[str, Any]) -> None:
        """Set how hard an index looks."""
        self.asked[id(index)] = knobs


class Usearch:
    """A graph over vectors of 16 or 32 bits: "f16", "f32"."""

    def about(self) -> dict[str, Any]:
        """Release, and the instructions that it uses."""
        import usearch
        from usearch.index import Index

        return {"release": usearch.__version__, "simd": Index(ndim=64, metric="l2sq").hardware_acceleration}

    def build(self, key: str, points: Any, place: Path, threads: int) -> None:
        """Fill and write an index."""
        from usearch.index import Index

        index = Index(ndim=points.shape[1], metric="l2sq", dtype=key, connectivity=16, expansion_add=128)
        index.add(np.arange(len(points)), points, threads=threads)
        index.save(str(place))

    def open(self, place: Path) -> Any:
        """Read an index."""
        from usearch.index import Index

        return Index.restore(str(place))

    def search(self, index: Any, queries: Any, k: int) -> Any:
        """Rows (n, k) of what is found."""
        return index.search(queries, k, threads=1).keys.reshape(len(queries), -1)

    def turn(self, index: Any, knobs: dict[str, Any]) -> None:
        """Set how hard an index looks."""
        for name, value in knobs.items():
            setattr(index, name, value)


LIBRARIES: dict[str, Any] = {"faiss": Faiss, "scann": Scann, "usearch": Usearch}


class PeerServer:
    """The indexes that are open, and what can be asked of them."""

    def __init__(self) -> None:
        self.libraries: dict[str, Any] = {}
        self.indexes: dict[tuple[str, str], Any] = {}
        self.queries: dict[str, Any] = {}

    def about(self, library: str) -> dict[str, Any]:
        """Release of a library."""
        return dict(self._library(library).about())

    def build(self, library: str, key: str, folder: str, points: str, threads: int) -> dict[str, Any]:
        """Make an index where there is none, and say how large it is."""
        place, data = self._place(library, key, folder), np.load(points)
        if not place.exists():
            unfinished = place.with_name(f"{place.name}.unfinished")
            self._library(library).build(key, data, unfinished, threads)
            unfinished.rename(place)
        return {"bytes": bytes_in(place) / len(data)}

    def search(
        self, n: int, k: int, single: bool, clock: str, queries: str, knobs: dict[str, Any], **which: str
    ) -> dict[str, Any]:
        """Time a search: all queries at once, or one by one."""
        library, index, points = self._prepare(queries, knobs, **which)
        some = points[:n]
        calls = [some[row : row + 1] for row in range(n)] if single else [some]
        library.search(index, calls[0], k)
        now = CLOCKS[clock]
        start = now()
        for each in calls:
            library.search(index, each, k)
        return {"seconds": (now() - start) / n}

    def answers(self, k: int, queries: str, knobs: dict[str, Any], **which: str) -> dict[str, Any]:
        """What is found."""
        library, index, points = self._prepare(queries, knobs, **which)
        return {"rows": np.asarray(library.search(index, points, k)).astype(np.int64).tolist()}

    def close(self) -> dict[str, Any]:
        """Forget all indexes."""
        self.indexes.clear()
        return {}

    def _prepare(self, queries: str, knobs: dict[str, Any], **which: str) -> tuple[Any, Any, Any]:
        library, place = self._library(which["library"]), self._place(**which)
        name = (which["library"], str(place))
        if name not in self.indexes:
            self.indexes[name] = library.open(place)
        if queries not in self.queries:
            self.queries[queries] = np.load(queries)
        library.turn(self.indexes[name], knobs)
        return library, self.indexes[name], self.queries[queries]

    def _library(self, name: str) -> Any:
        if name not in self.libraries:
            self.libraries[name] = LIBRARIES[name]()
        return self.libraries[name]

    @staticmethod
    def _place(library: str, key: str, folder: str) -> Path:
        return Path(folder) / f"{library}-{key}"


def main() -> None:
    """Answer commands until there are no more."""
    # What the libraries themselves print must not stand among the answers.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    server = PeerServer()
    for line in sys.stdin:
        command = json.loads(line)
        answer = getattr(server, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
