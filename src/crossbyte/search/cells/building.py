"""Building cells: the centres, the choice among them that pairs teach, and the curve that they show."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.arrays import Float32
from crossbyte.errors import InvalidInput
from crossbyte.executors.protocol import Executor
from crossbyte.executors.threads import Workers
from crossbyte.model.cmcq import CMCQ
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.search.cells.cells import imbalance_of
from crossbyte.search.cells.centres import MAX_CELLS, Centres, train_centres
from crossbyte.search.cells.chooser import Chooser
from crossbyte.search.cells.curve import Trial, measure_curve, wanted_cells
from crossbyte.search.cells.learning import Lessons, expected_chooser, learned_chooser, means_chooser
from crossbyte.search.cells.metric import Metric
from crossbyte.search.cells.pairs import Half, split_pairs
from crossbyte.search.cells.site import Asked, Documents, Site, main_coding
from crossbyte.search.cells.state import CellState, Direction, Numbered, Side
from crossbyte.search.ranking import Ranking
from crossbyte.search.segment import CODINGS, SIDES
from crossbyte.search.snapshot import Snapshot
from crossbyte.validation import check_integer

__all__ = ["CellRequest", "build_cell_state"]

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
    counts = _check_count(request.n_cells, _n_documents(snapshot))
    halves = split_pairs(model, request.images, request.texts, request.groups, _as_pairs(snapshot, counts))
    with Workers(model.n_jobs) as workers:
        site = Site(model, snapshot, n_threads, workers)
        return _built(site, counts, halves, request.recall, callback)


def _n_documents(snapshot: Snapshot) -> dict[str, int]:
    """Count the live documents of each side."""
    shelves = snapshot.shelves.values()
    counts = {side: sum(s.n_live for s in shelves if side in s.codes) for side in ("image", "text")}
    return {side: count for side, count in counts.items() if count}


def _check_count(n_cells: Any, documents: Mapping[str, int]) -> dict[str, int]:
    """Decide the cells of each side: as asked, but not more than it has documents; or by their number."""
    if not documents:
        raise InvalidInput("expected documents to put into cells, but the index has none; add some first")
    if n_cells is None:
        return {side: _usual_count(count) for side, count in documents.items()}
    asked = check_integer(n_cells, "n_cells", 1, min(MAX_CELLS, max(documents.values())))
    return {side: min(asked, count) for side, count in documents.items()}


def _usual_count(n_documents: int) -> int:
    """Give four times the root of the documents."""
    return max(1, min(MAX_CELLS, round(4 * n_documents**0.5), n_documents // 4))


def _as_pairs(snapshot: Snapshot, sides: Mapping[str, int]) -> dict[str, bool]:
    """Say whether most documents of a side were coded together with their other half."""
    return {side: len(SIDES[main_coding(snapshot, side)]) == 2 for side in sides}


def _built(
    site: Site,
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
        build = _SideBuild(site, halves, target, recall)
        sides[target], laid = build.side(count)
        numbered |= laid.numbered
        callback(Progress("cells", f"{target} centres", step := step + 1, steps))
        for kind in ("image", "text"):
            directions[kind, target] = build.direction(kind, laid)
            callback(Progress("cells", f"{kind} to {target}", step := step + 1, steps))
    return CellState.of(recall, sides, directions, numbered)


class _Laid(NamedTuple):
    """Hold the documents of a side in cells: centres, the cell of every row, live documents by cell."""

    centres: Centres
    numbered: Numbered
    sizes: NDArray[np.int64]

    def trial(self, asked: Asked, workers: Executor) -> Trial:
        """List what queries are to find in which cells."""
        own = self.partners(asked, workers)
        return Trial(asked.points, self.nearest(asked), np.where(asked.found, own, -1))

    def partners(self, asked: Asked, workers: Executor) -> NDArray[np.int64]:
        """Find the cells (n,) of the other halves of the queries."""
        return self.centres.cells_of(asked.partners, workers)[0].astype(np.int64)

    def nearest(self, asked: Asked) -> NDArray[np.int64]:
        """Look up the cells (n, found) of what the queries find."""
        whole = Ranking.join(asked.rankings)
        cells = np.empty(len(whole.rows), dtype=np.int64)
        for (coding, _), own in self.numbered.items():
            mine = whole.codings == CODINGS.index(coding)
            cells[mine] = own[whole.rows[mine]]
        return cells.reshape(len(asked.rankings), -1)


class _SideBuild:
    """Builds the cells of one side, the target."""

    def __init__(self, site: Site, halves: Mapping[str, Half], target: str, recall: float) -> None:
        self._site, self._target, self._recall = site, target, recall
        self._documents = Documents(site, target)
        asking = [(part, _OTHER[target]) for part in ("learn", "choose", "measure")]
        self._asked = {
            (part, kind): Asked.of(site, kind, target, halves[part].points[kind], halves[part].codes[target])
            for part, kind in (*asking, ("measure", target))
        }

    # Cells

    def side(self, n_cells: int) -> tuple[Side, _Laid]:
        """Learn centres, and put all rows into cells."""
        documents, metric = self._documents, self._chosen_metric()
        centres = train_centres(documents.decoded, len(documents), n_cells, self._site.workers, metric)
        numbered, sizes, by_cell = {}, np.zeros(n_cells, dtype=np.int64), np.zeros(n_cells)
        for shelf, rows in zip(documents.shelves, documents.live, strict=True):
            cells, distances = documents.cells_of(shelf, centres)
            numbered[shelf.coding, self._target] = cells
            sizes += np.bincount(cells[rows], minlength=n_cells)
            by_cell += np.bincount(cells[rows], weights=distances[rows], minlength=n_cells)
        side = Side(centres, len(documents), _distance_of_others(sizes, by_cell), imbalance_of(sizes))
        return side, _Laid(centres, numbered, sizes)

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
        workers, n_cells = self._site.workers, _usual_count(len(points))
        centres = train_centres(lambda rows: points[rows], len(points), n_cells, workers, metric)
        sizes = np.bincount(centres.cells_of(points, workers)[0], minlength=n_cells)
        asked = self._asked["choose", _OTHER[self._target]]
        own = centres.cells_of(asked.partners, workers)[0].astype(np.int64)
        trial = Trial(asked.points, own[:, None], np.where(asked.found, own, -1))
        return wanted_cells(centres.chooser(is_own=False), trial, sizes, self._recall)[1]

    # The choice

    def direction(self, kind: str, laid: _Laid) -> Direction:
        """Choose by one part of the held-out pairs, measure with the other."""
        best, best_chooser = "centres", laid.centres.chooser(is_own=kind == self._target)
        if kind != self._target:
            chosen = laid.trial(self._asked["choose", kind], self._site.workers)
            choosers = dict(self._choosers(kind, laid))
            visited = {
                name: wanted_cells(each, chosen, laid.sizes, self._recall)[1]
                for name, each in choosers.items()
            }
            best = min(visited, key=lambda name: visited[name])
            best_chooser = choosers[best]
        measured = laid.trial(self._asked["measure", kind], self._site.workers)
        curve, count = measure_curve(best_chooser, measured, laid.sizes, self._recall)
        return Direction(best, best_chooser, count, curve)

    def _choosers(self, kind: str, laid: _Laid) -> Iterator[tuple[str, Chooser]]:
        asked, centres = self._asked["learn", kind], laid.centres
        lessons = Lessons(asked.points, laid.partners(asked, self._site.workers), laid.nearest(asked))
        yield "centres", (plain := centres.chooser(is_own=False))
        yield "means", means_chooser(centres.points, lessons)
        yield "learned", learned_chooser([plain, expected_chooser(centres.points, lessons)], lessons)


def _distance_of_others(sizes: NDArray[np.int64], by_cell: NDArray[np.float64]) -> float:
    """Expect a mean squared distance of documents that the centres were not learned from.

    A document draws the centre of its cell to itself; to the mean of the n - 1 others in the cell its
    distance is n / (n - 1) times as long.
    """
    several = sizes > 1
    if not several.any():
        return 0.0
    n, sums = sizes[several], by_cell[several]
    return float((sums * (n / (n - 1)) ** 2).sum() / n.sum())
