"""Building cells: the centres, the choice among them that pairs teach, and the curve that they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Codes, Float32
from crossbyte.blocks import row_blocks
from crossbyte.errors import InvalidInput
from crossbyte.executors.protocol import Executor
from crossbyte.executors.threads import Workers
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.quantization.quantizer import Quantizer
from crossbyte.search.cells.cells import imbalance_of
from crossbyte.search.cells.centres import MAX_CELLS, Centres, train_centres
from crossbyte.search.cells.chooser import Chooser
from crossbyte.search.cells.curve import NEAREST, Trial, measure_curve, wanted_cells
from crossbyte.search.cells.learning import Lessons, learned_chooser, means_chooser
from crossbyte.search.cells.pairs import Half, split_pairs
from crossbyte.search.cells.state import CellState, Direction, Numbered, Side
from crossbyte.search.handle import Handle
from crossbyte.search.offsets import coding_offset
from crossbyte.search.ranking import Query, Ranking, rank
from crossbyte.search.segment import CODINGS, SIDES
from crossbyte.search.shelf import Shelf
from crossbyte.search.snapshot import Snapshot
from crossbyte.validation import check_integer, check_number

__all__ = ["build_cells"]

_ROWS_AT_ONCE = 16 * 4096
_DISTANCES_AT_ONCE = 1024


def build_cells(
    handle: Handle,
    images: Any,
    texts: Any,
    n_cells: Any,
    recall: Any,
    groups: Any,
    callback: ProgressCallback,
) -> None:
    """Judge everything, learn cells, and write them in one commit."""
    wanted = check_number(recall, "recall", 0.0, 1.0, open_low=True)
    with handle.writing:
        handle.latest()
        snapshot = handle.current().snapshot
        counts = _check_count(n_cells, _documents(snapshot))
        halves = split_pairs(handle.model, images, texts, groups, _as_pairs(snapshot, counts))
        with Workers(handle.model.n_jobs) as workers:
            site = _Site(handle.model, snapshot, handle.n_threads, workers)
            state = _built(site, counts, halves, wanted, callback)
        handle.commit([state.to_record()])


class _Site(NamedTuple):
    """What everything here works on."""

    model: CMCQ
    snapshot: Snapshot
    n_threads: int
    workers: Executor

    def quantizer(self, side: str) -> Quantizer:
        return self.snapshot.quantizers[side]

    @property
    def n_codebooks(self) -> int:
        return len(self.model.image_codebooks_)


def _documents(snapshot: Snapshot) -> dict[str, int]:
    """Live documents by side."""
    shelves = snapshot.shelves.values()
    counts = {side: sum(s.n_live for s in shelves if side in s.codes) for side in ("image", "text")}
    return {side: count for side, count in counts.items() if count}


def _check_count(n_cells: Any, documents: Mapping[str, int]) -> dict[str, int]:
    """Cells of each side: as asked, or four times the root of its documents."""
    if not documents:
        raise InvalidInput("expected documents to put into cells, but the index has none; add some first")
    if n_cells is None:
        roots = {side: round(4 * count**0.5) for side, count in documents.items()}
        return {side: max(1, min(MAX_CELLS, root, documents[side] // 4)) for side, root in roots.items()}
    most = min(MAX_CELLS, *documents.values())
    return dict.fromkeys(documents, check_integer(n_cells, "n_cells", 1, most))


def _as_pairs(snapshot: Snapshot, sides: Mapping[str, int]) -> dict[str, bool]:
    """Whether most documents of a side were coded together with their other half."""
    return {side: len(SIDES[_main_coding(snapshot, side)]) == 2 for side in sides}


def _main_coding(snapshot: Snapshot, side: str) -> str:
    shelves = [shelf for shelf in snapshot.shelves.values() if side in shelf.codes]
    return max(shelves, key=lambda shelf: shelf.n_live).coding


def _built(
    site: _Site,
    counts: Mapping[str, int],
    halves: Mapping[str, Half],
    recall: float,
    callback: ProgressCallback,
) -> CellState:
    sides: dict[str, Side] = {}
    numbered: dict[tuple[str, str], NDArray[np.uint16]] = {}
    directions: dict[tuple[str, str], Direction] = {}
    steps, step = 3 * len(counts), 0
    for target, count in counts.items():
        sides[target], own, sizes = _numbered_side(site, target, count)
        numbered |= own
        callback(Progress("cells", f"{target} centres", step := step + 1, steps))
        trials = _Trials(site, sides[target].centres, own, halves, target)
        for kind in ("image", "text"):
            directions[kind, target] = _direction(trials, kind, sizes, recall)
            callback(Progress("cells", f"{kind} to {target}", step := step + 1, steps))
    return CellState.of(recall, sides, directions, numbered)


# Cells of one side


def _numbered_side(site: _Site, side: str, n_cells: int) -> tuple[Side, Numbered, NDArray[np.int64]]:
    """Centres, the cells of all rows, and how many live documents each has."""
    shelves = [shelf for shelf in site.snapshot.shelves.values() if side in shelf.codes]
    live = [shelf.live_rows() for shelf in shelves]
    ends = np.cumsum([len(rows) for rows in live])

    def decoded(rows: NDArray[np.intp]) -> Float32:
        parts = np.split(rows, np.searchsorted(rows, ends[:-1]))
        starts = [0, *ends[:-1].tolist()]
        codes = [
            shelf.code_rows(side, own[part - start], site.n_codebooks)
            for shelf, own, part, start in zip(shelves, live, parts, starts, strict=True)
        ]
        return site.quantizer(side).decode(np.concatenate(codes), site.workers)

    centres = train_centres(decoded, int(ends[-1]), n_cells, site.workers)
    numbered, sizes, by_cell = {}, np.zeros(n_cells, dtype=np.int64), np.zeros(n_cells)
    for shelf, rows in zip(shelves, live, strict=True):
        cells, distances = _cells_of_shelf(site, shelf, side, centres)
        numbered[shelf.coding, side] = cells
        sizes += np.bincount(cells[rows], minlength=n_cells)
        by_cell += np.bincount(cells[rows], weights=distances[rows], minlength=n_cells)
    distance = _distance_of_others(sizes, by_cell)
    return Side(centres, int(ends[-1]), distance, imbalance_of(sizes)), numbered, sizes


def _distance_of_others(sizes: NDArray[np.int64], by_cell: NDArray[np.float64]) -> float:
    """Mean squared distance to be expected of documents that the centres were not learned from.

    A document draws the centre of its cell to itself; to the mean of the n - 1 others in the cell its
    distance is n / (n - 1) times as long.
    """
    several = sizes > 1
    if not several.any():
        return 0.0
    n, sums = sizes[several], by_cell[several]
    return float((sums * (n / (n - 1)) ** 2).sum() / n.sum())


def _cells_of_shelf(
    site: _Site, shelf: Shelf, side: str, centres: Centres
) -> tuple[NDArray[np.uint16], Float32]:
    cells, distances = np.empty(len(shelf), np.uint16), np.empty(len(shelf), np.float32)
    for rows in row_blocks(len(shelf), _ROWS_AT_ONCE):
        codes = shelf.code_rows(side, np.arange(rows.start, rows.stop), site.n_codebooks)
        points = site.quantizer(side).decode(codes, site.workers)
        cells[rows], distances[rows] = centres.cells_of(points, site.workers)
    return cells, distances


# The choice


class _Trials(NamedTuple):
    """Pairs against the cells of one side."""

    site: _Site
    centres: Centres
    numbered: Numbered
    halves: Mapping[str, Half]
    target: str

    def of(self, part: str, kind: str) -> tuple[Trial, NDArray[np.int64]]:
        """What is to be found from one part of the pairs, and the cells of all partners."""
        half = self.halves[part]
        points, codes = half.points[kind], half.codes[self.target]
        quantizer, workers = self.site.quantizer(self.target), self.site.workers
        cells = self.centres.cells_of(quantizer.decode(codes, workers), workers)[0].astype(np.int64)
        snapshot = self.site.snapshot
        offset = coding_offset(self.site.model, kind, self.target, len(snapshot))
        query = Query(points, self.target, NEAREST, np.inf, offset)
        allowed = {coding: shelf.live for coding, shelf in snapshot.shelves.items()}
        rankings = rank(snapshot, query, allowed, self.site.n_threads)
        farthest = np.array([ranking.distances[-1] for ranking in rankings])
        own = _own_distances(quantizer, points, codes, workers) + np.float32(
            offset(_main_coding(snapshot, self.target))
        )
        found = (own <= farthest) if kind != self.target else np.zeros(len(own), dtype=bool)
        return Trial(points, self._cells(rankings), np.where(found, cells, -1)), cells

    def _cells(self, rankings: list[Ranking]) -> NDArray[np.int64]:
        """Cells (n, found) of what was found."""
        whole = Ranking.join(rankings)
        cells = np.empty(len(whole.rows), dtype=np.int64)
        for coding, numbered in ((coding, own) for (coding, _), own in self.numbered.items()):
            mine = whole.codings == CODINGS.index(coding)
            cells[mine] = numbered[whole.rows[mine]]
        return cells.reshape(len(rankings), -1)


def _own_distances(quantizer: Quantizer, points: Float32, codes: Codes, workers: Executor) -> Float32:
    """The distance of every point to its own code, as a search would have it."""
    scan, parts = quantizer.scan_codes(codes, workers), []
    for rows in row_blocks(len(points), _DISTANCES_AT_ONCE):
        table, own = quantizer.table(points[rows]), scan[rows]
        places = np.arange(len(own))
        total = table.tables[places, 0, own[:, 0]]
        for m in range(1, own.shape[1]):
            total = total + table.tables[places, m, own[:, m]]
        parts.append(total + table.offsets)
    return np.concatenate(parts)


def _direction(trials: _Trials, kind: str, sizes: NDArray[np.int64], recall: float) -> Direction:
    """Choose by one part of the held-out pairs, measure with the other."""
    best, best_chooser = "centres", Chooser.at(trials.centres.points)
    if kind != trials.target:
        chosen, _ = trials.of("choose", kind)
        choosers = dict(_choosers(trials, kind))
        visited = {name: wanted_cells(each, chosen, sizes, recall)[1] for name, each in choosers.items()}
        best = min(visited, key=lambda name: visited[name])
        best_chooser = choosers[best]
    curve, count = measure_curve(best_chooser, trials.of("measure", kind)[0], sizes, recall)
    return Direction(best, best_chooser, count, curve)


def _choosers(trials: _Trials, kind: str) -> Iterator[tuple[str, Chooser]]:
    centres = trials.centres.points
    yield "centres", Chooser.at(centres)
    trial, partners = trials.of("learn", kind)
    lessons = Lessons(trial.points, partners, trial.nearest)
    yield "means", means_chooser(centres, lessons)
    yield "learned", learned_chooser(centres, lessons)
