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
NEAREST = 10
_ROWS_AT_ONCE = 256


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
    """Hold how far queries must go through the cells.

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


_ROWS_PER_BLOCK = 16 * 4096
_DISTANCES_AT_ONCE = 1024


class BuildContext(NamedTuple):
    """Hold what every step of a build works on."""

    model: CMCQ
    snapshot: Snapshot
    n_threads: int
    workers: Executor

    def decode(self, side: str, codes: Codes) -> Float32:
        """Give the points (n, D) that codes (n, M) of a side stand for."""
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

    def decoded(self, places: NDArray[np.intp]) -> Float32:
        """Give the points (n, D) of some, named in ascending order."""
        parts = np.split(places, np.searchsorted(places, self._ends[:-1]))
        starts = [0, *self._ends[:-1].tolist()]
        each = zip(self.partitions, self.live, parts, starts, strict=True)
        codes = [self._codes(partition, own[part - start]) for partition, own, part, start in each]
        return self._context.decode(self._side, np.concatenate(codes))

    def cells_of(self, partition: Partition, centres: Centres) -> tuple[NDArray[np.uint16], Float32]:
        """Find the cells of all rows of a partition, deleted ones too, and distances to the centres."""
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
        Whether the other half would be among those; of halves of the target's own kind, none is.
    """

    points: Float32
    partners: Float32
    rankings: list[Ranking]
    found: NDArray[np.bool_]

    @classmethod
    def of(cls, context: BuildContext, kind: str, target: str, points: Float32, codes: Codes) -> PairQueries:
        """Let points of one kind ask for documents of a side; ``codes`` (n, M) are those of the partners."""
        snapshot = context.snapshot
        offset = coding_offset(context.model, kind, target, len(snapshot))
        query = Query(points, target, NEAREST, np.inf, offset)
        allowed = {coding: partition.live for coding, partition in snapshot.partitions.items()}
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


FEWEST_GROUPS = 20
_HELD_OUT = 0.15  # of the groups, to choose by, and as many to measure with
_MOST = {"learn": 20_000, "choose": 4_000, "measure": 4_000}


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
    images, texts, numbered = model.fitted_.check_pairs(images, texts, groups)
    n_groups = int(numbered.max()) + 1
    if n_groups < FEWEST_GROUPS:
        raise InvalidInput(
            f"expected at least {FEWEST_GROUPS} pairs (or groups of them) to learn cells from, got {n_groups}"
        )
    return {
        part: _encode_sample(model, images[rows], texts[rows], as_pairs)
        for part, rows in _split_groups(numbered).items()
    }


def _split_groups(groups: NDArray[np.intp]) -> dict[str, NDArray[np.intp]]:
    """Deal the groups out at random, the same way every time: the rows of each part."""
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
    """Encode one side alone."""
    return model.encode_images(images) if side == "image" else model.encode_texts(texts)


_OTHER = {"image": "text", "text": "image"}
_PILOT = 100_000  # documents that the metric is chosen on


class CellRequest(NamedTuple):
    """Hold what is asked of new cells, of which only ``recall`` is checked: ``Index.build_cells``."""

    images: Any
    texts: Any
    n_cells: Any
    recall: float
    groups: Any


def build_cell_state(
    model: CMCQ, snapshot: Snapshot, n_threads: int, request: CellRequest, callback: ProgressCallback
) -> CellState:
    """Check everything, and learn cells for the documents of a snapshot."""
    counts = _check_cell_counts(request.n_cells, _count_documents(snapshot))
    halves = split_pairs(
        model, request.images, request.texts, request.groups, _coded_as_pairs(snapshot, counts)
    )
    with Workers(model.n_jobs) as workers:
        context = BuildContext(model, snapshot, n_threads, workers)
        return _build_sides(context, counts, halves, request.recall, callback)


def _count_documents(snapshot: Snapshot) -> dict[str, int]:
    """Count the live documents of each side."""
    partitions = snapshot.partitions.values()
    counts = {side: sum(s.n_live for s in partitions if side in s.codes) for side in ("image", "text")}
    return {side: count for side, count in counts.items() if count}


def _check_cell_counts(n_cells: Any, documents: Mapping[str, int]) -> dict[str, int]:
    """Decide the cells of each side: as asked, but not more than it has documents; or by their number."""
    if not documents:
        raise InvalidInput("expected documents to put into cells, but the index has none; add some first")
    if n_cells is None:
        return {side: _default_cell_count(count) for side, count in documents.items()}
    asked = check_integer(n_cells, "n_cells", 1, min(MAX_CELLS, max(documents.values())))
    return {side: min(asked, count) for side, count in documents.items()}


def _default_cell_count(n_documents: int) -> int:
    """Give four times the root of the documents."""
    return max(1, min(MAX_CELLS, round(4 * n_documents**0.5), n_documents // 4))


def _coded_as_pairs(snapshot: Snapshot, sides: Mapping[str, int]) -> dict[str, bool]:
    """Say whether most documents of a side were coded together with their other half."""
    return {side: len(SIDES[find_main_coding(snapshot, side)]) == 2 for side in sides}


def _build_sides(
    context: BuildContext,
    counts: Mapping[str, int],
    halves: Mapping[str, PairSample],
    recall: float,
    callback: ProgressCallback,
) -> CellState:
    sides: dict[str, SideCells] = {}
    numbered: dict[tuple[str, str], NDArray[np.uint16]] = {}
    directions: dict[tuple[str, str], Direction] = {}
    steps, step = 3 * len(counts), 0
    for target, count in counts.items():
        build = _SideBuild(context, halves, target, recall)
        sides[target], laid = build.side(count)
        numbered |= laid.numbered
        callback(Progress("cells", f"{target} centres", step := step + 1, steps))
        for kind in ("image", "text"):
            directions[kind, target] = build.direction(kind, laid)
            callback(Progress("cells", f"{kind} to {target}", step := step + 1, steps))
    return CellState.of(recall, sides, directions, numbered)


class _AssignedSide(NamedTuple):
    """Hold the documents of a side in cells: centres, the cell of every row, live documents by cell."""

    centres: Centres
    numbered: Assignments
    sizes: NDArray[np.int64]

    def trial(self, asked: PairQueries, workers: Executor) -> ProbeTrial:
        """List what queries are to find in which cells."""
        own = self.partners(asked, workers)
        return ProbeTrial(asked.points, self.nearest(asked), np.where(asked.found, own, -1))

    def partners(self, asked: PairQueries, workers: Executor) -> NDArray[np.int64]:
        """Find the cells (n,) of the other halves of the queries."""
        return self.centres.cells_of(asked.partners, workers)[0].astype(np.int64)

    def nearest(self, asked: PairQueries) -> NDArray[np.int64]:
        """Look up the cells (n, found) of what the queries find."""
        whole = Ranking.join(asked.rankings)
        cells = np.empty(len(whole.rows), dtype=np.int64)
        for (coding, _), own in self.numbered.items():
            mine = whole.codings == CODINGS.index(coding)
            cells[mine] = own[whole.rows[mine]]
        return cells.reshape(len(asked.rankings), -1)


class _SideBuild:
    """Builds the cells of one side, the target."""

    def __init__(
        self, context: BuildContext, halves: Mapping[str, PairSample], target: str, recall: float
    ) -> None:
        self._context, self._target, self._recall = context, target, recall
        self._documents = SideDocuments(context, target)
        asking = [(part, _OTHER[target]) for part in ("learn", "choose", "measure")]
        self._asked = {
            (part, kind): PairQueries.of(
                context, kind, target, halves[part].points[kind], halves[part].codes[target]
            )
            for part, kind in (*asking, ("measure", target))
        }

    # Cells

    def side(self, n_cells: int) -> tuple[SideCells, _AssignedSide]:
        """Learn centres, and put all rows into cells."""
        documents, metric = self._documents, self._chosen_metric()
        centres = train_centres(documents.decoded, len(documents), n_cells, self._context.workers, metric)
        numbered, sizes, by_cell = {}, np.zeros(n_cells, dtype=np.int64), np.zeros(n_cells)
        for partition, rows in zip(documents.partitions, documents.live, strict=True):
            cells, distances = documents.cells_of(partition, centres)
            numbered[partition.coding, self._target] = cells
            sizes += np.bincount(cells[rows], minlength=n_cells)
            by_cell += np.bincount(cells[rows], weights=distances[rows], minlength=n_cells)
        side = SideCells(
            centres, len(documents), _expected_distance(sizes, by_cell), measure_imbalance(sizes)
        )
        return side, _AssignedSide(centres, numbered, sizes)

    def _chosen_metric(self) -> Metric | None:
        """Learn a metric from pairs; None unless its cells serve a sample of the documents better."""
        learn = self._asked["learn", _OTHER[self._target]]
        taught = Metric.taught(learn.partners, learn.points)
        if taught is None:
            return None
        sample = np.sort(np.random.default_rng(1).permutation(len(self._documents))[:_PILOT])
        points = self._documents.decoded(sample)
        return taught if self._visited(points, taught) < self._visited(points, None) else None

    def _visited(self, points: Float32, metric: Metric | None) -> float:
        """Measure the share of documents (n, D) that held-out queries must visit for their partners."""
        workers, n_cells = self._context.workers, _default_cell_count(len(points))
        centres = train_centres(lambda rows: points[rows], len(points), n_cells, workers, metric)
        sizes = np.bincount(centres.cells_of(points, workers)[0], minlength=n_cells)
        asked = self._asked["choose", _OTHER[self._target]]
        own = centres.cells_of(asked.partners, workers)[0].astype(np.int64)
        trial = ProbeTrial(asked.points, own[:, None], np.where(asked.found, own, -1))
        return count_needed_cells(centres.router(is_own=False), trial, sizes, self._recall)[1]

    # The choice

    def direction(self, kind: str, laid: _AssignedSide) -> Direction:
        """Choose by one part of the held-out pairs, measure with the other."""
        best, best_chooser = "centres", laid.centres.router(is_own=kind == self._target)
        if kind != self._target:
            chosen = laid.trial(self._asked["choose", kind], self._context.workers)
            routers = dict(self._choosers(kind, laid))
            visited = {
                name: count_needed_cells(each, chosen, laid.sizes, self._recall)[1]
                for name, each in routers.items()
            }
            best = min(visited, key=lambda name: visited[name])
            best_chooser = routers[best]
        measured = laid.trial(self._asked["measure", kind], self._context.workers)
        curve, count = measure_curve(best_chooser, measured, laid.sizes, self._recall)
        return Direction(best, best_chooser, count, curve)

    def _choosers(self, kind: str, laid: _AssignedSide) -> Iterator[tuple[str, CellRouter]]:
        asked, centres = self._asked["learn", kind], laid.centres
        training_set = RouterTrainingSet(
            asked.points, laid.partners(asked, self._context.workers), laid.nearest(asked)
        )
        yield "centres", (plain := centres.router(is_own=False))
        yield "means", fit_means_router(centres.points, training_set)
        yield (
            "learned",
            fit_softmax_router([plain, fit_linear_router(centres.points, training_set)], training_set),
        )


def _expected_distance(sizes: NDArray[np.int64], by_cell: NDArray[np.float64]) -> float:
    """Expect a mean squared distance of documents that the centres were not learned from.

    A document draws the centre of its cell to itself; to the mean of the n - 1 others in the cell its
    distance is n / (n - 1) times as long.
    """
    several = sizes > 1
    if not several.any():
        return 0.0
    n, sums = sizes[several], by_cell[several]
    return float((sums * (n / (n - 1)) ** 2).sum() / n.sum())
