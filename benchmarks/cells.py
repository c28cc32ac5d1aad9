"""Cells beside the exhaustive scan, and beside FAISS's cells of the images alone.

    python -m benchmarks.cells                                  # 10M items, M = 8, on a quiet machine
    python -m benchmarks.cells --items 500000 --cpu             # smaller, in process time

Texts search images: pairs are drawn as ``gapped.py`` says, images are coded by a model fitted on 20,000 of
them, block by block, and go into an index; the cells are built from 30,000 other pairs. The queries are
texts whose images are in the index. The exhaustive search and the cells, as many visited as the build found
to be enough, take turns, one query at a time and in batches of 100, through ``Index.search``, one thread;
what of a query with cells is the native call, from its point to document numbers, takes turns with them.
Recall@10 is that of true partners, of 20,000 texts. What is coded is kept in the cache of the benchmarks (see
``coded.py``).

FAISS's cells: as many, k-means of the same decoded points by FAISS (10 rounds, 256 points for each centre:
its own defaults for such an index; ours learn from 128), every point in the cell of its nearest centre,
visited in the order of the distance from the query: what IndexIVFFlat does. Shown is the share of the items
that must be visited so that of the partners that the exhaustive search finds the wanted share is in visited
cells, on the same queries; and ours over that of FAISS, with the interval that holds 95 of 100 samples of
these queries.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from benchmarks.coded import cache_folder, cache_key
from benchmarks.gapped import SETTINGS, GappedPairs
from benchmarks.search import native_call
from benchmarks.tables import save
from benchmarks.timing import (
    CLOCKS,
    Goal,
    Turn,
    keep_wanted,
    measurements,
    medians,
    print_goals,
    seconds_per_call,
    take_turns,
)
from crossbyte import CMCQ, Index
from crossbyte.compute.kernels import implementation
from crossbyte.index.ivf.build import CellRanks, ProbeTrial, rank_cells
from crossbyte.index.ivf.router import CellRouter

N_ITEMS, N_BITS, K = 10_000_000, 64, 10
TRAINING, LEARNING, QUERIES = 20_000, 30_000, 20_000
BLOCK, ADDED = 50_000, 1_000_000
REPETITIONS, SINGLES, BATCH = 9, 50, 100
RECALL = 0.95
SAMPLES = 1000
VISITED = "share of items visited at 0.95 of the exhaustive recall@10"
NEEDED = "share of items to be visited for 0.95 of the partners found"
OWN, IVF = "our cells", "FAISS IVF"
LEARNING_BLOCK, TRAINING_BLOCK = 10**6, 10**6 + 1  # far from those of the items

Codes = NDArray[np.uint8]


class CodedPairs(NamedTuple):
    """A model, the codes of the items, and texts whose images are the items at ``partners``."""

    model: CMCQ
    codes: Codes
    texts: NDArray[np.float32]
    partners: NDArray[np.int64]


def load_or_make(n_items: int, n_jobs: int | None) -> CodedPairs:
    """Fit and code, or take from the cache of the benchmarks."""
    folder = cache_folder() / f"cells-{n_items}-{N_BITS}-{cache_key([SETTINGS, QUERIES])}"
    if not folder.exists():
        unfinished = Path(tempfile.mkdtemp(dir=cache_folder()))
        try:
            _write(unfinished, n_items, n_jobs)
            unfinished.rename(folder)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)
    arrays = (np.load(folder / f"{name}.npy") for name in ("codes", "texts", "partners"))
    return CodedPairs(CMCQ.load(folder / "model.cbm"), *arrays)


def _write(folder: Path, n_items: int, n_jobs: int | None) -> None:
    pairs = GappedPairs()
    model = CMCQ(n_bits=N_BITS, mapping="cca", n_components=64, max_iter=3, random_state=0, n_jobs=n_jobs)
    model.fit(*pairs.block(TRAINING_BLOCK, TRAINING))
    model.save(folder / "model.cbm")
    codes = np.empty((n_items, N_BITS // 8), dtype=np.uint8)
    each = -(-QUERIES // -(-n_items // BLOCK))  # texts that are kept of a block
    texts, partners = [], []
    for number, start in enumerate(range(0, n_items, BLOCK)):
        images, words = pairs.block(number, min(BLOCK, n_items - start))
        codes[start : start + BLOCK] = model.encode_images(images)
        texts.append(words[:each])
        partners.append(start + np.arange(len(texts[-1])))
    for name, array in (("codes", codes), ("texts", _join(texts)), ("partners", _join(partners))):
        np.save(folder / f"{name}.npy", array)


def _join(parts: list[Any]) -> Any:
    return np.concatenate(parts)[:QUERIES]


def build(path: Path, made: CodedPairs, n_jobs: int | None) -> float:
    """Write the index and its cells; seconds of the cells."""

    def blocks() -> Iterator[dict[str, Any]]:
        for start in range(0, len(made.codes), ADDED):
            some = made.codes[start : start + ADDED]
            yield {"ids": range(start, start + len(some)), "image_codes": some}

    images, texts = GappedPairs().block(LEARNING_BLOCK, LEARNING)
    with Index.create(path, made.model, n_jobs=n_jobs) as index:
        index.add(blocks())
        start = time.perf_counter()
        index.build_cells(images=images, texts=texts, recall=RECALL)
        return time.perf_counter() - start


# Recall


def find_partners(index: Index, made: CodedPairs, n_probe: Any) -> NDArray[np.bool_]:
    """Which queries have their partner among the first ten."""
    hits = index.search(texts=made.texts, k=K, n_probe=n_probe)
    return np.array([own in found.ids for own, found in zip(made.partners.tolist(), hits, strict=True)])


def share_visited(index: Index, made: CodedPairs, n_probe: int) -> float:
    """Share of the items in the cells that the queries visit, on average."""
    snapshot = index.snapshot()
    assert snapshot.cells is not None
    router = snapshot.cells.directions["text", "image"].router
    cells = router.choose(index.model.transform_texts(made.texts), n_probe)
    sizes = snapshot.cell_sizes()["image"]
    return float(sizes[cells].sum(axis=1).mean() / sizes.sum())


def share_needed(ranks: CellRanks, sample: Any = slice(None)) -> float:
    """Share of the items to be visited for the wanted share of partners, of all queries or of a sample."""
    return float(ranks.items[np.quantile(ranks.partners[sample], RECALL, method="inverted_cdf")])


def _rank_partners(
    index: Index, made: CodedPairs, found: NDArray[np.bool_], router: CellRouter, cells: NDArray[Any]
) -> CellRanks:
    """How far the queries that find their partners must go through cells, given those of all items."""
    own = cells[made.partners[found]].astype(np.int64)
    trial = ProbeTrial(index.model.transform_texts(made.texts)[found], own[:, None], own)
    return rank_cells(router, trial, np.bincount(cells, minlength=len(router.points)))


def rank_own_cells(index: Index, made: CodedPairs, found: NDArray[np.bool_]) -> CellRanks:
    """Rank partners in our own cells."""
    snapshot = index.snapshot()
    assert snapshot.cells is not None
    cells = snapshot.partitions["image"].inverted_lists["image"].cells
    return _rank_partners(index, made, found, snapshot.cells.directions["text", "image"].router, cells)


def rank_faiss_cells(index: Index, made: CodedPairs, found: NDArray[np.bool_]) -> CellRanks:
    """Rank partners in cells of FAISS, learned from the decoded images alone."""
    import faiss

    assert index.cells is not None
    n_cells, n_dims = index.cells.n_cells["image"], index.model.image_codebooks_.shape[2]
    sample = np.sort(np.random.default_rng(0).permutation(len(made.codes))[: 256 * n_cells])
    kmeans = faiss.Kmeans(n_dims, n_cells, niter=10, seed=0, max_points_per_centroid=256)
    kmeans.train(index.model.decode_images(made.codes[sample]))
    flat = faiss.IndexFlatL2(n_dims)
    flat.add(kmeans.centroids)
    cells = np.empty(len(made.codes), dtype=np.int64)
    for start in range(0, len(cells), BLOCK):
        points = index.model.decode_images(made.codes[start : start + BLOCK])
        cells[start : start + BLOCK] = flat.search(points, 1)[1][:, 0]
    return _rank_partners(index, made, found, CellRouter.at(np.ascontiguousarray(kmeans.centroids)), cells)


def ratio_goals(one: CellRanks, other: CellRanks) -> list[Goal]:
    """Items visited in some cells over those in others, for the same queries, and how sure that is."""
    rng, n = np.random.default_rng(0), len(one.partners)
    samples = rng.integers(n, size=(SAMPLES, n))
    ratios = [share_needed(one, sample) / share_needed(other, sample) for sample in samples]
    text = "items to be visited over FAISS IVF"
    return [
        Goal(OWN, text, share_needed(one) / share_needed(other), 1.0, at_most=True),
        *(
            Goal(OWN, f"{text}, {q:.1%} of samples below", float(np.quantile(ratios, q)))
            for q in (0.025, 0.975)
        ),
    ]


# All of it


def recall_goals(path: Path, made: CodedPairs, with_faiss: bool) -> list[Goal]:
    """What is found, and what must be visited for it."""
    with Index.open(path) as index:
        assert index.cells is not None
        n_probe = index.cells.n_probe["text-to-image"]
        exhaustive, found = (find_partners(index, made, asked) for asked in ("all", None))
        goals = [
            Goal("cells", "in all", index.cells.n_cells["image"]),
            Goal(
                "cells", "made by distances that pairs teach", float(index.cells.metric["image"] == "paired")
            ),
            Goal("cells", "visited", n_probe),
            Goal("cells", VISITED, share_visited(index, made, n_probe)),
            Goal("exhaustive", "recall@10", float(exhaustive.mean())),
            Goal("cells", "recall@10", float(found.mean())),
            Goal("cells", "recall@10 over the exhaustive one", found.mean() / exhaustive.mean(), RECALL),
        ]
        ranks = {OWN: rank_own_cells(index, made, exhaustive)}
        if with_faiss:
            ranks[IVF] = rank_faiss_cells(index, made, exhaustive)
    goals += [Goal(name, NEEDED, share_needed(each)) for name, each in ranks.items()]
    return goals + (ratio_goals(ranks[OWN], ranks[IVF]) if with_faiss else [])


def measure_times(path: Path, made: CodedPairs, options: Any) -> tuple[dict[str, list[float]], list[Goal]]:
    """The exhaustive search and the cells in turns, one query at a time and in a batch, one thread."""
    clock = CLOCKS[options.clock]
    batch = made.texts[:BATCH]
    with Index.open(path, n_jobs=1) as index, threadpool_limits(1):
        assert index.cells is not None
        n_probe = index.cells.n_probe["text-to-image"]
        points = index.model.transform_texts(made.texts[:SINGLES])
        calls: dict[str, list[Any]] = {}
        for name, asked in (("exhaustive", "all"), ("cells", None)):
            calls[name] = [
                partial(index.search, texts=text, k=K, n_probe=asked) for text in made.texts[:SINGLES]
            ]
            calls[f"{name}, in batches"] = [partial(index.search, texts=batch, k=K, n_probe=asked)]
        calls["cells, native call"] = [native_call(index, point[None], K, n_probe) for point in points]
        turns: dict[str, Turn] = {
            name: partial(seconds_per_call, clock, each) for name, each in calls.items()
        }
        seconds = take_turns(turns, options.repetitions)
    for name in seconds:
        if name.endswith("in batches"):
            seconds[name] = [each / BATCH for each in seconds[name]]
    found = medians(seconds)
    goals = [Goal(name, "milliseconds per query", 1e3 * value) for name, value in found.items()]
    goals.append(Goal("cells", "times as fast as exhaustive", found["exhaustive"] / found["cells"], 5.0))
    return seconds, goals


def parse() -> Any:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--items", type=int, default=N_ITEMS)
    parser.add_argument("--repetitions", type=int, default=REPETITIONS)
    parser.add_argument("--jobs", type=int, help="threads of coding and building; all cores if not given")
    parser.add_argument("--no-faiss", action="store_true")
    parser.add_argument("--cpu", dest="clock", action="store_const", const="cpu", default="wall")
    return parser.parse_args()


def main() -> None:
    """Measure, print and keep."""
    options = parse()
    made = load_or_make(options.items, options.jobs)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "index.cb"
        goals = [Goal("file", "building the cells, seconds", build(path, made, options.jobs))]
        start = time.perf_counter()
        with Index.open(path):
            goals.append(Goal("file", "open, seconds", time.perf_counter() - start))
        seconds, timed = measure_times(path, made, options)
        goals += [*timed, *recall_goals(path, made, not options.no_faiss)]
    shown = keep_wanted(goals, full_size=options.items == N_ITEMS)
    print_goals(f"cells, {options.items:,} items, M={N_BITS // 8}, {options.clock} time", shown)
    if options.items == N_ITEMS:
        settings = SETTINGS | {"items": options.items, "bits": N_BITS, "k": K, "recall": RECALL}
        settings |= {"training_pairs": TRAINING, "learning_pairs": LEARNING, "queries": QUERIES}
        settings |= {"repetitions": options.repetitions, "clock": options.clock, "kernels": implementation()}
        save("cells", measurements(seconds, "milliseconds, every repetition", shown), settings)


if __name__ == "__main__":
    main()
