"""Build cells (IVF) from an index and pairs: centres, a router for each direction, and its measured curve.

The pairs are cut into three parts that share no group: to learn routers from, to choose among them, and to
measure how much is found for how many cells visited.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.compute.executor import Executor, Workers, row_blocks
from crossbyte.errors import InvalidInput
from crossbyte.index.ivf.centres import MAX_CELLS, Centres, Metric, train_centres
from crossbyte.index.ivf.router import (
    CellRouter,
    RouterTrainingSet,
    fit_linear_router,
    fit_means_router,
    fit_softmax_router,
)
from crossbyte.index.ivf.state import Assignments, CellState, Curve, Direction, SideCells, measure_imbalance
from crossbyte.index.partition import Partition
from crossbyte.index.probabilities import coding_offset
from crossbyte.index.scan import Query, Ranking, scan_snapshot
from crossbyte.index.segment import CODINGS, SIDES
from crossbyte.index.snapshot import Snapshot
from crossbyte.model.estimator import CMCQ
from crossbyte.model.quantization.quantizer import Quantizer
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.validation import check_integer

ENOUGH_PARTNERS = 100  # that the exhaustive search finds; fewer say too little about 0.95 of them
FEWEST_GROUPS = 20
NEAREST = 10
_ASKING = {"image": ("text",), "text": ("image",), "document": ("image", "text")}  # queries not of its own
_HELD_OUT = 0.15  # of the groups, to choose by, and as many to measure with
_MOST = {"learn": 20_000, "choose": 4_000, "measure": 4_000}  # pairs
_PILOT = 100_000  # documents that the metric is chosen on
_ROWS_AT_ONCE = 256
_ROWS_PER_BLOCK = 16 * 4096
_DISTANCES_AT_ONCE = 1024


# The build


class CellRequest(NamedTuple):
    """Hold the arguments of ``Index.build_cells``, of which only ``recall`` is checked."""

    images: Any
    texts: Any
    n_cells: Any
    recall: float
    groups: Any


def build_cell_state(
    model: CMCQ, snapshot: Snapshot, n_threads: int, request: CellRequest, callback: ProgressCallback
) -> CellState:
    """Check the arguments, and learn cells for the documents of a snapshot."""
    counts = _check_cell_counts(request.n_cells, _count_documents(snapshot))
    samples = split_pairs(
        model, request.images, request.texts, request.groups, _coded_as_pairs(snapshot, counts)
    )
    with Workers(model.n_jobs) as workers:
        context = BuildContext(model, snapshot, n_threads, workers)
        return _build_sides(context, counts, samples, request.recall, callback)


def _count_documents(snapshot: Snapshot) -> dict[str, int]:
    """Count the live documents of each side."""
    partitions = snapshot.partitions.values()
    counts = {side: sum(s.n_live for s in partitions if side in s.codes) for side in _ASKING}
    return {side: count for side, count in counts.items() if count}


def _check_cell_counts(n_cells: Any, documents: Mapping[str, int]) -> dict[str, int]:
    """Decide the number of cells of each side: as given, but not more than documents; or by default."""
    if not documents:
        raise InvalidInput("expected documents to put into cells, but the index has none; add some first")
    if n_cells is None:
        return {side: _default_cell_count(count) for side, count in documents.items()}
    given = check_integer(n_cells, "n_cells", 1, min(MAX_CELLS, max(documents.values())))
    return {side: min(given, count) for side, count in documents.items()}


def _default_cell_count(n_documents: int) -> int:
    """Compute four times the root of the number of documents, within limits."""
    return max(1, min(MAX_CELLS, round(4 * n_documents**0.5), n_documents // 4))


def _coded_as_pairs(snapshot: Snapshot, sides: Mapping[str, int]) -> dict[str, bool]:
    """Say whether most documents of a side were coded together with their other half."""
    return {side: len(SIDES[find_main_coding(snapshot, side)]) == 2 for side in sides}


def _build_sides(
    context: BuildContext,
    counts: Mapping[str, int],
    samples: Mapping[str, PairSample],
    recall: float,
    callback: ProgressCallback,
) -> CellState:
    sides: dict[str, SideCells] = {}
    assignments: dict[tuple[str, str], NDArray[np.uint16]] = {}
    directions: dict[tuple[str, str], Direction] = {}
    steps, step = 3 * len(counts), 0
    for target, count in counts.items():
        build = _SideBuild(context, samples, target, recall)
        sides[target], assigned = build.side(count)
        assignments |= assigned.assignments
        callback(Progress("cells", f"{target} centres", step := step + 1, steps))
        for kind in ("image", "text"):
            directions[kind, target] = build.direction(kind, assigned)
            callback(Progress("cells", f"{kind} to {target}", step := step + 1, steps))
    return CellState.of(recall, sides, directions, assignments)


class _AssignedSide(NamedTuple):
    """Hold the documents of a side in cells: centres, the cell of every row, live documents by cell."""

    centres: Centres
    assignments: Assignments
    sizes: NDArray[np.int64]

    def trial(self, queries: PairQueries, workers: Executor) -> ProbeTrial:
        """List the cells in which queries find their partners and nearest documents."""
        own = self.partners(queries, workers)
        return ProbeTrial(queries.points, self.nearest(queries), np.where(queries.found, own, -1))

    def partners(self, queries: PairQueries, workers: Executor) -> NDArray[np.int64]:
        """Find the cells (n,) of the partners of the queries."""
        return self.centres.cells_of(queries.partners, workers)[0].astype(np.int64)

    def nearest(self, queries: PairQueries) -> NDArray[np.int64]:
        """Look up the cells (n, found) of what the queries find."""
        whole = Ranking.join(queries.rankings)
        cells = np.empty(len(whole.rows), dtype=np.int64)
        for (coding, _), own in self.assignments.items():
            mine = whole.codings == CODINGS.index(coding)
            cells[mine] = own[whole.rows[mine]]
        return cells.reshape(len(queries.rankings), -1)


class _SideBuild:
    """Build the cells of one side, the target."""

    def __init__(
        self, context: BuildContext, samples: Mapping[str, PairSample], target: str, recall: float
    ) -> None:
        self._context, self._target, self._recall = context, target, recall
        self._documents = SideDocuments(context, target)
        others = [(part, kind) for part in ("learn", "choose", "measure") for kind in _ASKING[target]]
        own = [("measure", kind) for kind in ("image", "text") if kind == target]
        self._queries = {
            (part, kind): PairQueries.of(
                context, kind, target, samples[part].points[kind], samples[part].codes[target]
            )
            for part, kind in (*others, *own)
        }

    # Cells

    def side(self, n_cells: int) -> tuple[SideCells, _AssignedSide]:
        """Train centres, and assign all rows to cells."""
        documents, metric = self._documents, self._choose_metric()
        centres = train_centres(documents.decode, len(documents), n_cells, self._context.workers, metric)
        assignments, sizes, by_cell = {}, np.zeros(n_cells, dtype=np.int64), np.zeros(n_cells)
        for partition, rows in zip(documents.partitions, documents.live, strict=True):
            cells, distances = documents.cells_of(partition, centres)
            assignments[partition.coding, self._target] = cells
            sizes += np.bincount(cells[rows], minlength=n_cells)
            by_cell += np.bincount(cells[rows], weights=distances[rows], minlength=n_cells)
        side = SideCells(
            centres, len(documents), _expected_distance(sizes, by_cell), measure_imbalance(sizes)
        )
        return side, _AssignedSide(centres, assignments, sizes)

    def _choose_metric(self) -> Metric | None:
        """Learn a metric from pairs; None unless its cells serve a sample of the documents better."""
        learn = [self._queries["learn", kind] for kind in _ASKING[self._target]]
        partners = np.concatenate([queries.partners for queries in learn])
        metric = Metric.learn(partners, np.concatenate([queries.points for queries in learn]))
        if metric is None:
            return None
        sample = np.sort(np.random.default_rng(1).permutation(len(self._documents))[:_PILOT])
        points = self._documents.decode(sample)
        return metric if self._measure_visited(points, metric) < self._measure_visited(points, None) else None

    def _measure_visited(self, points: Float32, metric: Metric | None) -> float:
        """Measure the share of documents, at points (n, D), that held-out queries must visit."""
        workers, n_cells = self._context.workers, _default_cell_count(len(points))
        centres = train_centres(lambda rows: points[rows], len(points), n_cells, workers, metric)
        sizes = np.bincount(centres.cells_of(points, workers)[0], minlength=n_cells)
        router, shares = centres.router(is_own=False), []
        for kind in _ASKING[self._target]:
            queries = self._queries["choose", kind]
            own = centres.cells_of(queries.partners, workers)[0].astype(np.int64)
            trial = ProbeTrial(queries.points, own[:, None], np.where(queries.found, own, -1))
            shares.append(count_needed_cells(router, trial, sizes, self._recall)[1])
        return float(np.mean(shares))

    # Routers

    def direction(self, kind: str, assigned: _AssignedSide) -> Direction:
        """Choose a router by one part of the held-out pairs, and measure its curve with the other."""
        best, best_router = "centres", assigned.centres.router(is_own=kind == self._target)
        if kind != self._target:
            trial = assigned.trial(self._queries["choose", kind], self._context.workers)
            routers = dict(self._fit_routers(kind, assigned))
            visited = {
                name: count_needed_cells(each, trial, assigned.sizes, self._recall)[1]
                for name, each in routers.items()
            }
            best = min(visited, key=lambda name: visited[name])
            best_router = routers[best]
        measured = assigned.trial(self._queries["measure", kind], self._context.workers)
        curve, count = measure_curve(best_router, measured, assigned.sizes, self._recall)
        return Direction(best, best_router, count, curve)

    def _fit_routers(self, kind: str, assigned: _AssignedSide) -> Iterator[tuple[str, CellRouter]]:
        queries, centres = self._queries["learn", kind], assigned.centres
        training_set = RouterTrainingSet(
            queries.points, assigned.partners(queries, self._context.workers), assigned.nearest(queries)
        )
        plain, linear = centres.router(is_own=False), fit_linear_router(centres.points, training_set)
        yield "centres", plain
        yield "means", fit_means_router(centres.points, training_set)
        yield "learned", fit_softmax_router([plain, linear], training_set)


def _expected_distance(sizes: NDArray[np.int64], by_cell: NDArray[np.float64]) -> float:
    """Estimate the mean squared distance to their centres of documents that these were not trained on.

    A document draws the centre of its cell to itself; to the mean of the n - 1 others in the cell its
    distance is n / (n - 1) times as long.
    """
    several = sizes > 1
    if not several.any():
        return 0.0
    n, sums = sizes[several], by_cell[several]
    return float((sums * (n / (n - 1)) ** 2).sum() / n.sum())


# Pairs


@dataclass(frozen=True, eq=False)
class PairSample:
    """Hold some pairs: points and codes of both halves.

    Attributes
    ----------
    points : mapping of side to (n, D) float32
        Where the halves are as queries.
    codes : mapping of side to (n, M) uint8
        As the halves would be in the index.
    """

    points: Mapping[str, Float32]
    codes: Mapping[str, Codes]


def split_pairs(
    model: CMCQ, images: Any, texts: Any, groups: Any, as_pairs: Mapping[str, bool]
) -> dict[str, PairSample]:
    """Check pairs and cut them into "learn", "choose" and "measure".

    Parameters
    ----------
    as_pairs : mapping of side to bool
        Whether the documents of that side were coded together with their other half.
    """
    images, texts, group_numbers = model.fitted_.check_pairs(images, texts, groups)
    n_groups = int(group_numbers.max()) + 1
    if n_groups < FEWEST_GROUPS:
        raise InvalidInput(
            f"expected at least {FEWEST_GROUPS} pairs (or groups of them) to learn cells from, got {n_groups}"
        )
    return {
        part: _encode_sample(model, images[rows], texts[rows], as_pairs)
        for part, rows in _split_groups(group_numbers).items()
    }


def _split_groups(groups: NDArray[np.intp]) -> dict[str, NDArray[np.intp]]:
    """Divide the groups at random, the same way every time, and give the rows of each part."""
    rng, n_groups = np.random.default_rng(0), int(groups.max()) + 1
    held = max(1, round(_HELD_OUT * n_groups))
    place = rng.permutation(n_groups)[groups]
    limits = {"measure": (0, held), "choose": (held, 2 * held), "learn": (2 * held, n_groups)}
    parts = {}
    for part, (low, high) in limits.items():
        rows = np.flatnonzero((place >= low) & (place < high))
        parts[part] = np.sort(rng.permutation(rows)[: _MOST[part]])
    return parts


def _encode_sample(model: CMCQ, images: Any, texts: Any, as_pairs: Mapping[str, bool]) -> PairSample:
    points = {"image": model.transform_images(images), "text": model.transform_texts(texts)}
    codes = {
        side: _encode_side(model, side, images, texts) for side, together in as_pairs.items() if not together
    }
    if len(codes) < len(as_pairs):
        both = dict(zip(("image", "text"), model.encode_pairs(images, texts), strict=True))
        codes |= {side: both[side] for side, together in as_pairs.items() if together}
    return PairSample(points, codes)


def _encode_side(model: CMCQ, side: str, images: Any, texts: Any) -> Codes:
    """Encode one side alone, or both as one."""
    if side == "document":
        return model.encode_documents(images, texts)
    return model.encode_images(images) if side == "image" else model.encode_texts(texts)


# Documents and queries


class BuildContext(NamedTuple):
    """Hold what every step of a build works on."""

    model: CMCQ
    snapshot: Snapshot
    n_threads: int
    workers: Executor

    def decode(self, side: str, codes: Codes) -> Float32:
        """Decode codes (n, M) of a side to points (n, D)."""
        return self.snapshot.quantizers[side].decode(codes, self.workers)


class SideDocuments:
    """Hold the live documents of one side, in the order of their partitions."""

    def __init__(self, context: BuildContext, side: str) -> None:
        self._context, self._side = context, side
        self.partitions = [
            partition for partition in context.snapshot.partitions.values() if side in partition.codes
        ]
        self.live = [partition.live_rows() for partition in self.partitions]
        self._ends = np.cumsum([len(rows) for rows in self.live])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def decode(self, places: NDArray[np.intp]) -> Float32:
        """Decode some documents to points (n, D); their places are in ascending order."""
        parts = np.split(places, np.searchsorted(places, self._ends[:-1]))
        starts = [0, *self._ends[:-1].tolist()]
        each = zip(self.partitions, self.live, parts, starts, strict=True)
        codes = [self._codes(partition, own[part - start]) for partition, own, part, start in each]
        return self._context.decode(self._side, np.concatenate(codes))

    def cells_of(self, partition: Partition, centres: Centres) -> tuple[NDArray[np.uint16], Float32]:
        """Assign all rows of a partition to cells, deleted ones too; also gives distances to the centres."""
        cells, distances = np.empty(len(partition), np.uint16), np.empty(len(partition), np.float32)
        for rows in row_blocks(len(partition), _ROWS_PER_BLOCK):
            points = self._context.decode(
                self._side, self._codes(partition, np.arange(rows.start, rows.stop))
            )
            cells[rows], distances[rows] = centres.cells_of(points, self._context.workers)
        return cells, distances

    def _codes(self, partition: Partition, rows: NDArray[np.intp]) -> Codes:
        return partition.code_rows(self._side, rows, len(self._context.model.image_codebooks_))


class PairQueries(NamedTuple):
    """Hold halves of pairs as queries that search all documents for their other halves.

    Attributes
    ----------
    points : (n, D) float32
        Where the queries are.
    partners : (n, D) float32
        What the codes of their other halves stand for.
    rankings : list of Ranking
        The nearest ten documents of each.
    found : (n,) bool
        Whether the other half, or the document, would be among those; of halves of the target's own kind,
        none is.
    """

    points: Float32
    partners: Float32
    rankings: list[Ranking]
    found: NDArray[np.bool_]

    @classmethod
    def of(cls, context: BuildContext, kind: str, target: str, points: Float32, codes: Codes) -> PairQueries:
        """Search documents of a side with points of one kind; ``codes`` (n, M) are those of the partners."""
        snapshot = context.snapshot
        offset = coding_offset(context.model, kind, target, len(snapshot))
        query = Query(points, target, NEAREST, np.inf, offset)
        allowed = {
            c: partition.live for c, partition in snapshot.partitions.items() if target in partition.codes
        }
        rankings = scan_snapshot(snapshot, query, allowed, context.n_threads)
        partners = context.decode(target, codes)
        if kind == target:
            return cls(points, partners, rankings, np.zeros(len(points), dtype=bool))
        farthest = np.array([ranking.distances[-1] for ranking in rankings])
        own = _partner_distances(snapshot.quantizers[target], points, codes, context.workers)
        own = own + np.float32(offset(find_main_coding(snapshot, target)))
        return cls(points, partners, rankings, own <= farthest)


def find_main_coding(snapshot: Snapshot, side: str) -> str:
    """Find the coding that most documents of a side have."""
    partitions = [partition for partition in snapshot.partitions.values() if side in partition.codes]
    return max(partitions, key=lambda partition: partition.n_live).coding


def _partner_distances(quantizer: Quantizer, points: Float32, codes: Codes, workers: Executor) -> Float32:
    """Compute the distance of every point to its own code, as a search would have it."""
    scan, parts = quantizer.scan_codes(codes, workers), []
    for rows in row_blocks(len(points), _DISTANCES_AT_ONCE):
        table, own = quantizer.table(points[rows]), scan[rows]
        places = np.arange(len(own))
        total = table.tables[places, 0, own[:, 0]]
        for m in range(1, own.shape[1]):
            total = total + table.tables[places, m, own[:, m]]
        parts.append(total + table.offsets)
    return np.concatenate(parts)


# How many cells are enough


class ProbeTrial(NamedTuple):
    """Hold queries, and what the exhaustive search finds for them.

    Attributes
    ----------
    points : (n, D) float32
    nearest : (n, up to 10) int
        Cells of the nearest documents.
    partners : (n,) int
        Cell of the true partner; -1 where there is none, or where the exhaustive search does not have it
        among the first ten.
    """

    points: NDArray[np.float32]
    nearest: NDArray[np.int64]
    partners: NDArray[np.int64]


class CellRanks(NamedTuple):
    """Hold how many cells come before those that queries must visit.

    Attributes
    ----------
    partners : (found,) int64
        Cells that come before the partner's, query by query, of those that have one.
    nearest : (n * up to 10,) int64
        Cells that come before those of the nearest documents.
    items : (n_cells,) float64
        Share of the documents in the first 1, 2, … cells of a query, on average.
    """

    partners: NDArray[np.int64]
    nearest: NDArray[np.int64]
    items: NDArray[np.float64]


def rank_cells(router: CellRouter, trial: ProbeTrial, sizes: NDArray[np.int64]) -> CellRanks:
    """Rank all cells for every query; ``sizes`` are the documents of each cell."""
    partners, nearest = [], []
    items = np.zeros(len(sizes))
    for start in range(0, len(trial.points), _ROWS_AT_ONCE):
        rows = slice(start, start + _ROWS_AT_ONCE)
        order = np.argsort(router.scores(trial.points[rows]), axis=1, kind="stable")
        rank = np.empty_like(order)
        np.put_along_axis(rank, order, np.arange(len(sizes))[None], axis=1)
        items += np.cumsum(sizes[order], axis=1).sum(axis=0)
        there = trial.partners[rows] >= 0
        partners.append(rank[there, trial.partners[rows][there]])
        nearest.append(np.take_along_axis(rank, trial.nearest[rows], axis=1).ravel())
    share = items / max(1, len(trial.points)) / max(1, sizes.sum())
    return CellRanks(np.concatenate(partners), np.concatenate(nearest), share)


def count_needed_cells(
    router: CellRouter, trial: ProbeTrial, sizes: NDArray[np.int64], recall: float
) -> tuple[int, float]:
    """Count the cells that keep the wanted share, and the share of the items in them."""
    ranks = rank_cells(router, trial, sizes)
    count = _count_cells(ranks, recall)
    return count, float(ranks.items[count - 1])


def measure_curve(
    router: CellRouter, trial: ProbeTrial, sizes: NDArray[np.int64], recall: float
) -> tuple[Curve, int]:
    """Measure the curve, and the number of cells that keep the wanted share."""
    ranks = rank_cells(router, trial, sizes)
    count = _count_cells(ranks, recall)
    steps = {*np.unique(np.geomspace(1, len(sizes), 24).round().astype(int)).tolist(), count}
    cells = sorted(steps)
    known = len(ranks.partners) >= ENOUGH_PARTNERS
    curve = Curve(
        cells,
        [float(ranks.items[n - 1]) for n in cells],
        _measure_shares(ranks.partners, cells) if known else None,
        _measure_shares(ranks.nearest, cells),
        len(trial.points),
        len(ranks.partners),
    )
    return curve, count


def _count_cells(ranks: CellRanks, recall: float) -> int:
    decisive = np.sort(ranks.partners if len(ranks.partners) >= ENOUGH_PARTNERS else ranks.nearest)
    if not len(decisive):
        return len(ranks.items)
    return int(decisive[max(0, int(np.ceil(recall * len(decisive))) - 1)]) + 1


def _measure_shares(ranks: NDArray[np.int64], cells: list[int]) -> list[float]:
    return (np.searchsorted(np.sort(ranks), cells, side="left") / max(1, len(ranks))).tolist()
