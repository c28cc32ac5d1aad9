"""Seconds of a fit and of an add that have not been run: from short ones on a few of the pairs.

A fit that is over in some seconds is simply run: how many rounds it takes, nothing shorter tells. Of a
longer one, what is measured is time of the processor, stage by stage, which other programs disturb less
than time on the wall. A stage's time lies between a line and a power of the rows through two pilot fits of
few rounds: their geometric mean is taken. All further rounds are taken to be like the last of these. Pilots
have no fewer than 2,048 rows if more are given, several for each of the 256 words of a codebook.
Initialisations look at 20,000 rows at most. Threads share blocks of 4,096 rows, so that a fit of 5,000 rows
hardly gains by a second thread; what the main thread did by itself is not shared.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crossbyte.blocks import BLOCK_ROWS, SAMPLE_ROWS
from crossbyte.executors.threads import Workers
from crossbyte.model.cmcq import CMCQ
from crossbyte.model.parameters import AUTOMATIC
from crossbyte.progress import Progress
from crossbyte.search.batch import Payloads
from crossbyte.search.index import Index

__all__ = ["AddTimes", "FitTimes", "WholeFit", "pilot_model", "time_adding", "time_fits", "time_two_fits"]

_ROUNDS = 5
_SMALL, _LARGE = 2048, 8192
_BUDGET = 12.0  # seconds for the larger fit
_WHOLE_BUDGET = 8.0  # seconds for a trial of the real fit
_SERIAL = 0.4  # share of the main thread, where the pilot has too few rows to show it
_LEAST_SLOPE = 0.25  # of the mean time per row: small fits can take longer than larger ones
_FEW = 256
_ADDS = 3

Rows = NDArray[np.intp]
Judge = Callable[[CMCQ], NDArray[np.float64]]
"""what a pilot finds among held-out pairs, a number for each"""


@dataclass
class _Stages:
    """A callback that adds up the time of the processor by stage, and counts rounds."""

    started: float = field(default_factory=time.process_time)
    steps: dict[str, list[float]] = field(default_factory=dict)
    rounds: dict[str, float] = field(default_factory=dict)

    def __call__(self, progress: Progress) -> None:
        self._count(progress.stage)
        if progress.stage in ("space", "alternate") and progress.total > 1:  # linear spaces have no rounds
            self.rounds[progress.stage] = progress.done / progress.total

    def finish(self) -> None:
        """Count what came after the last stage."""
        self._count("finish")

    def _count(self, stage: str) -> None:
        now = time.process_time()
        self.steps.setdefault(stage, []).append(now - self.started)
        self.started = now

    def seconds(self, rounds: int, wanted: int) -> dict[str, float]:
        """Seconds by stage, as if with all rounds: later ones are like the last, the first take longer."""
        return {
            name: sum(steps)
            + (wanted - rounds) * (self.rounds.get(name) == 1.0) * sum(steps[-(len(steps) // rounds) :])
            for name, steps in self.steps.items()
        }


class _Spent(NamedTuple):
    """Seconds on the wall, of the processor, and of the main thread."""

    wall: float
    processor: float
    own: float

    @classmethod
    def now(cls) -> _Spent:
        return cls(time.perf_counter(), time.process_time(), time.thread_time())

    def until_now(self) -> _Spent:
        return _Spent(*(end - start for end, start in zip(self.now(), self, strict=True)))

    def serial(self, n_rows: int) -> float:
        """Share of the main thread, where there were blocks for another one."""
        return min(1.0, self.own / max(self.processor, 1e-9)) if n_rows > BLOCK_ROWS else _SERIAL

    def expected(self, n_rows: int, n_jobs: int) -> float:
        """Seconds on the wall with threads that share perfectly, on a machine of their own."""
        return max(1e-9, self.processor * _on_the_wall(n_rows, self.serial(n_rows), n_jobs))


class _Timed(NamedTuple):
    """One pilot fit: rows, what it took, the processor's seconds by stage as if with all rounds.

    ``hits`` is what it found, where somebody asked it.
    """

    n_rows: int
    spent: _Spent
    seconds: dict[str, float]
    hits: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class FitTimes:
    """Two pilot fits, and the line through them.

    Attributes
    ----------
    small, large : _Timed
    mapping : str
    n_jobs : int
    """

    small: _Timed
    large: _Timed
    mapping: str
    n_jobs: int

    def seconds_at(self, n_rows: int, add: AddTimes) -> float:
        """Estimate the seconds on the wall to fit ``n_rows`` pairs."""
        total = sum(self._stage(name, n_rows) for name in self.large.seconds)
        spent, size = self.large.spent, self.large.n_rows
        seconds = total * _on_the_wall(n_rows, spent.serial(size), self.n_jobs)
        seconds *= self._stretch()
        if self.mapping == "sparse" and n_rows > SAMPLE_ROWS:  # pairs beyond the sample are folded in
            seconds += add.seconds_at(n_rows)
        return seconds

    def _stretch(self) -> float:
        """How much longer the pilots took than expected: other programs, and threads that wait."""
        pilots = (self.small, self.large)
        expected = sum(timed.spent.expected(timed.n_rows, self.n_jobs) for timed in pilots)
        return sum(timed.spent.wall for timed in pilots) / expected

    def _stage(self, name: str, n_rows: int) -> float:
        sampled = name in ("codebooks", "select") or (name == "space" and self.mapping == "sparse")
        n = min(n_rows, SAMPLE_ROWS) if sampled else n_rows
        few, many = (timed.seconds.get(name, 0.0) for timed in (self.small, self.large))
        ratio = n / self.large.n_rows
        slope = (many - few) / (self.large.n_rows - self.small.n_rows)
        line = many + max(slope * self.large.n_rows, _LEAST_SLOPE * many) * (ratio - 1)
        steps = np.log([max(many, 1e-6) / max(few, 1e-6), self.large.n_rows / self.small.n_rows])
        power = many * ratio ** np.clip(steps[0] / steps[1], _LEAST_SLOPE, 1.0)
        return float(np.sqrt(max(0.0, line) * power))


class WholeFit(NamedTuple):
    """The real fit, that was run.

    Attributes
    ----------
    seconds : float
        On the wall.
    """

    seconds: float

    def seconds_at(self, n_rows: int, add: AddTimes) -> float:
        """Seconds that it took; nobody asks for other rows."""
        return self.seconds


class _TooLong(Exception):
    """A trial of the real fit is over its budget."""


class AddTimes(NamedTuple):
    """Seconds to add documents: of a commit, and what so many took.

    Attributes
    ----------
    commit : float
    n_rows : int
    spent : _Spent
    n_jobs : int
    """

    commit: float
    n_rows: int
    spent: _Spent
    n_jobs: int

    def seconds_at(self, n_rows: int) -> float:
        """Estimate the seconds on the wall to add ``n_rows`` documents in one call."""
        perfect = self.spent.expected(self.n_rows, self.n_jobs)
        shared = _on_the_wall(n_rows, self.spent.serial(self.n_rows), self.n_jobs)
        each = self.spent.processor / self.n_rows * shared
        return self.commit + n_rows * each * self.spent.wall / perfect


def _on_the_wall(n_rows: int, serial: float, n_jobs: int) -> float:
    """Seconds on the wall for each second of the processor."""
    blocks, last = divmod(n_rows, BLOCK_ROWS)
    shared, over = divmod(blocks, n_jobs)
    longest = (shared + 1) * BLOCK_ROWS if over else shared * BLOCK_ROWS + last
    return serial + (1 - serial) * longest / max(1, n_rows)


def pilot_model(model: CMCQ, n_bits: int, images: Any, texts: Any, rounds: int = 1) -> CMCQ:
    """Fit a few pairs in few rounds: only sizes are asked of it."""
    pilot: CMCQ = clone(model).set_params(n_bits=n_bits, max_iter=rounds, callback=None)
    rows = _sample(images.shape[0], _SMALL)
    return pilot.fit(images[rows], texts[rows])


def time_fits(
    model: CMCQ, images: Any, texts: Any, train: int, report: Callable[[Progress], object]
) -> tuple[FitTimes | WholeFit, CMCQ]:
    """Fit ``train`` pairs if that is quick, else a part of them twice; also gives a model of these fits."""
    n = images.shape[0]
    first = min(_SMALL, n)
    timed = None if train <= first else _timed_fit(model, images, texts, first)
    report(Progress("plan", f"fit of {min(first, train)} pairs", 2, 4))
    # The pilot had few of the rounds, so that the real fit hardly takes less than this.
    least = 0.0 if timed is None else timed[0].spent.wall * train / first
    whole = _whole_fit(model, images, texts, train) if train <= n and least < _WHOLE_BUDGET else None
    found = whole or _two_fits(model, images, texts, timed or _timed_fit(model, images, texts, first))
    report(Progress("plan", "fit", 3, 4))
    return found


def time_two_fits(model: CMCQ, images: Any, texts: Any, judge: Judge) -> tuple[FitTimes, CMCQ]:
    """Fit a part of the pairs, and a smaller part, both of them judged; also gives the larger one's model."""
    known = _timed_fit(model, images, texts, min(_SMALL, images.shape[0]), judge)
    return _two_fits(model, images, texts, known, judge)


def _whole_fit(model: CMCQ, images: Any, texts: Any, train: int) -> tuple[WholeFit, CMCQ] | None:
    """The real fit; None if it takes too long."""
    rows = _sample(images.shape[0], train)
    some = images[rows], texts[rows]
    start = time.perf_counter()

    def watch(_: Progress) -> None:
        if time.perf_counter() - start > _WHOLE_BUDGET:
            raise _TooLong

    trial: CMCQ = clone(model).set_params(callback=watch)
    try:
        trial.fit(*some)
    except _TooLong:
        return None
    return WholeFit(time.perf_counter() - start), trial


def _two_fits(
    model: CMCQ, images: Any, texts: Any, known: tuple[_Timed, CMCQ], judge: Judge | None = None
) -> tuple[FitTimes, CMCQ]:
    """The line through the known pilot and another one, and the larger one's model."""
    n_jobs, (first, spent, *_) = Workers(model.n_jobs).n_jobs, known[0]
    # What is found depends on the size, and should depend on other programs as little as can be.
    seconds = spent.wall if judge is None else spent.expected(first, n_jobs)
    other = _timed_fit(model, images, texts, _second_size(first, images.shape[0], seconds), judge)
    small, large = sorted((known, other), key=lambda one: one[0].n_rows)
    return FitTimes(small[0], large[0], large[1].mapping_, n_jobs), large[1]


def _second_size(first: int, n_rows: int, seconds: float) -> int:
    """As many rows as there are and the budget allows; fewer than the first if these are hardly more."""
    affordable = int(
        first * (_BUDGET / max(seconds, 1e-3)) ** 1.5
    )  # part of the time is for any number of rows
    wanted = min(_LARGE, n_rows, affordable)
    return wanted if wanted >= 1.5 * first else max(2, first // 2)


def _timed_fit(
    model: CMCQ, images: Any, texts: Any, n_rows: int, judge: Judge | None = None
) -> tuple[_Timed, CMCQ]:
    rounds = model.max_iter if model.mapping in AUTOMATIC else min(_ROUNDS, model.max_iter)
    rows = _sample(images.shape[0], n_rows)
    some = images[rows], texts[rows]
    start, stages = _Spent.now(), _Stages()
    pilot: CMCQ = clone(model).set_params(max_iter=rounds, callback=stages)
    pilot.fit(*some)
    stages.finish()
    spent = start.until_now()
    hits = None if judge is None else judge(pilot)
    return _Timed(n_rows, spent, stages.seconds(rounds, model.max_iter), hits), pilot


def _sample(n_rows: int, count: int) -> Rows:
    """Rows drawn at random, always the same, in their order."""
    return np.sort(np.random.default_rng(0).permutation(n_rows)[:count])


def time_adding(model: CMCQ, sides: dict[str, Any], payloads: Payloads | None, folder: Path) -> AddTimes:
    """Add a few documents, then more, to an index of a pilot model."""
    n = next(iter(sides.values())).shape[0]
    rows = _sample(n, _LARGE)
    with Index.create(folder / "times.cb", model, n_jobs=model.n_jobs) as index:
        add = _adder(index, sides, payloads)
        few = min(add(rows[:_FEW]).wall for _ in range(2))
        spent = min((add(rows) for _ in range(_ADDS)), key=lambda one: one.wall)  # the least disturbed
    commit = max(0.0, few - spent.wall * min(_FEW, len(rows)) / len(rows))
    return AddTimes(commit, len(rows), spent, Workers(model.n_jobs).n_jobs)


def _adder(index: Index, sides: dict[str, Any], payloads: Payloads | None) -> Callable[[Rows], _Spent]:
    """Adds rows under new ids, and says what it took."""

    def add(rows: Rows) -> _Spent:
        documents: dict[str, Any] = {side: features[rows] for side, features in sides.items()}
        if payloads is not None:
            documents["payloads"] = [payloads.objects[row] for row in rows.tolist()]
        start = _Spent.now()
        index.add(range(len(index), len(index) + len(rows)), **documents)
        return start.until_now()

    return add
