"""Fit pilot models on samples, and extrapolate quality and the number of pairs that a fit needs.

A fit that is over in some seconds is simply run: how many rounds it takes, nothing shorter tells. For a
longer one, processor time is measured stage by stage, which other programs disturb less than time on the
wall. A stage's time lies between a line and a power of the rows through two pilot fits of few rounds: their
geometric mean is taken. All further rounds are taken to be like the last of these. Pilots have no fewer than
2,048 rows if more are given, several for each of the 256 codewords of a codebook. Initialisations look at
20,000 rows at most. Threads share blocks of 4,096 rows, so that a fit of 5,000 rows hardly gains by a second
thread; what the main thread did by itself is not shared.

Recall is taken to grow with the pairs n as r − a / √n, the usual law of what is estimated from samples. Two
pilot fits of n₁ < n₂ pairs, asked with the same held-out pairs, give a. Twice as many pairs as n then find
a (1 − 1/√2) / √n more, and beyond some n that is not worth the time. Since a is measured on few queries, one
standard error is added to the difference that it comes from: rather too many pairs than too few.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone

from crossbyte.compute.executor import BLOCK_ROWS, SAMPLE_ROWS, Workers, sample_rows
from crossbyte.data.ondisk import coerce_rows
from crossbyte.errors import InvalidInput
from crossbyte.index.index import Index
from crossbyte.index.mutations import Payloads
from crossbyte.index.plan.size_model import ALWAYS_ALL, SampleSize
from crossbyte.model.estimator import CMCQ
from crossbyte.model.selection import MAX_PAIRS, MIN_GROUPS, sample_groups, split_groups
from crossbyte.progress import Progress, ProgressCallback, ignore_progress
from crossbyte.validation import check_groups, check_integer, check_pairs

WORTH = 0.005  # recall@10: what twice as many pairs must find more to be worth fitting on
TIME_BUDGET = 3600.0  # seconds of a fit

_DOUBLING = 1 - 0.5**0.5


class PilotRecall(NamedTuple):
    """Recall of a pilot fit: its pairs, and per held-out pair the share of its two queries that succeed."""

    n_pairs: int
    hits: NDArray[np.float64]


class PilotPairs(NamedTuple):
    """Pairs to fit pilots on, and held-out pairs, of other groups, to measure their recall with.

    Attributes
    ----------
    images, texts
        Features to fit on.
    held_images, held_texts, held_groups
        Features of the held-out pairs, and their groups.
    """

    images: Any
    texts: Any
    held_images: Any
    held_texts: Any
    held_groups: NDArray[np.intp]

    def hits(self, model: Any) -> NDArray[np.float64]:
        """Measure recall@10 of a fitted model per held-out pair: (n,)."""
        ranks = model.partner_ranks(self.held_images, self.held_texts, self.held_groups)
        return np.asarray(ranks.hits(10))


def recommend_pairs(
    few: PilotRecall, many: PilotRecall, n_pairs: int, seconds_at: Callable[[int], float]
) -> SampleSize:
    """Say how many of ``n_pairs`` to fit on, from two pilot fits and the time that a fit takes.

    The size at which twice as many pairs are expected to gain less than ``WORTH`` recall@10, in two figures;
    no more than are fitted within ``TIME_BUDGET``, and no fewer than ``ALWAYS_ALL``.
    """
    slope = _slope(few, many)
    wanted = _round_up((slope * _DOUBLING / WORTH) ** 2)
    affordable = _affordable(n_pairs, seconds_at)
    pairs = min(n_pairs, max(ALWAYS_ALL, min(wanted, affordable)))
    tried = [(one.n_pairs, float(one.hits.mean())) for one in (few, many)]
    why = _reason(pairs, n_pairs, wanted)
    return SampleSize(pairs, why, float(slope * _DOUBLING / np.sqrt(pairs)), tried)


def _reason(pairs: int, n_pairs: int, wanted: int) -> str:
    if pairs == n_pairs:
        return "all"
    if pairs == wanted:
        return "gain"
    return "least" if wanted < pairs else "time"


def expected_recall(few: PilotRecall, many: PilotRecall, n_pairs: float) -> float:
    """Extrapolate recall@10 to ``n_pairs`` pairs by r − a / √n through two pilots, with no error added."""
    gain = float((many.hits - few.hits).mean())
    return float(many.hits.mean()) + gain * (many.n_pairs**-0.5 - n_pairs**-0.5) / _root_difference(few, many)


def _slope(few: PilotRecall, many: PilotRecall) -> float:
    """Fit the a of r − a / √n through two pilots, plus a standard error of the gain; never below 0."""
    gains = many.hits - few.hits
    gain = gains.mean() + gains.std() / np.sqrt(len(gains))
    return float(max(0.0, gain) / _root_difference(few, many))


def _root_difference(few: PilotRecall, many: PilotRecall) -> float:
    """Compute by how much 1 / √n is less with many pairs."""
    return float(few.n_pairs**-0.5 - many.n_pairs**-0.5)


def _affordable(n_pairs: int, seconds_at: Callable[[int], float]) -> int:
    """Find the most pairs that can be fitted within the time budget, in two figures; all if possible."""
    if seconds_at(n_pairs) <= TIME_BUDGET:
        return n_pairs
    low, high = 2, n_pairs
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if seconds_at(middle) <= TIME_BUDGET else (low, middle)
    return low - low % _second_figure(low)


def _round_up(number: float) -> int:
    """Round up to two figures; more would suggest a false precision."""
    whole = max(2, int(np.ceil(number)))
    return -(-whole // _second_figure(whole)) * _second_figure(whole)


def _second_figure(number: int) -> int:
    """Give the unit of the second figure of a number."""
    return int(10 ** max(0, len(str(number)) - 2))


# Drawing


def draw_pairs(n_pairs: int, count: int, groups: Any = None, *, seed: int = 0) -> NDArray[np.intp]:
    """Draw rows to fit on, the same ones for the same seed.

    Parameters
    ----------
    n_pairs : int
        How many there are.
    count : int
        How many to draw; with groups, at most as many, since groups stay whole. At least 20 groups are drawn,
        and a group of more than a twentieth of ``count`` is not, if that leaves 20.
    groups : (n_pairs,) labels, optional
        Rows of one group are drawn together.
    seed : int

    Returns
    -------
    (m,) intp, ascending
    """
    check_integer(count, "count", 2)
    if count >= n_pairs:
        return np.arange(n_pairs)
    rng = np.random.default_rng(seed)
    if groups is None:
        found = sample_rows(n_pairs, rng, count)
        assert found is not None
        return found
    numbers = check_groups(groups, n_pairs)
    sizes = np.bincount(numbers)
    _check_groups_to_draw(len(sizes))
    return np.flatnonzero(np.isin(numbers, sample_groups(rng.permutation(len(sizes)), sizes, count)))


def _check_groups_to_draw(n_groups: int) -> None:
    if n_groups < MIN_GROUPS:
        raise InvalidInput(
            f"groups: a sample takes whole groups, expected at least {MIN_GROUPS} of them, got {n_groups}; "
            "fit on all pairs, or leave the groups out"
        )


def draw_pilot_pairs(images: Any, texts: Any, groups: Any = None) -> PilotPairs:
    """Draw pairs for pilots: at most 18,000 to fit on, and 2,000 of other groups to measure recall with."""
    n_pairs = images.shape[0]
    rows = draw_pairs(n_pairs, MAX_PAIRS, groups)
    labels = None if groups is None else check_groups(groups, n_pairs)[rows]
    numbers = check_groups(labels, len(rows))
    split = split_groups(numbers, np.random.default_rng(0))
    train, held = rows[split.train], rows[split.held_out]
    return PilotPairs(images[train], texts[train], images[held], texts[held], numbers[split.held_out])


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
        """Estimate seconds by stage with all rounds: later ones are like the last, the first take longer."""
        return {
            name: sum(steps)
            + (wanted - rounds) * (self.rounds.get(name) == 1.0) * sum(steps[-(len(steps) // rounds) :])
            for name, steps in self.steps.items()
        }


class _ElapsedTime(NamedTuple):
    """Seconds of wall time, of all threads together, and of the main thread."""

    wall: float
    processor: float
    own: float

    @classmethod
    def now(cls) -> _ElapsedTime:
        return cls(time.perf_counter(), time.process_time(), time.thread_time())

    def until_now(self) -> _ElapsedTime:
        return _ElapsedTime(*(end - start for end, start in zip(self.now(), self, strict=True)))

    def serial(self, n_rows: int) -> float:
        """Compute the share of the main thread, where there were blocks for another one."""
        return min(1.0, self.own / max(self.processor, 1e-9)) if n_rows > BLOCK_ROWS else _SERIAL

    def expected(self, n_rows: int, n_jobs: int) -> float:
        """Compute the wall time with threads that share the work perfectly, on an idle machine."""
        return max(1e-9, self.processor * _wall_seconds_per_cpu_second(n_rows, self.serial(n_rows), n_jobs))


class _TimedFit(NamedTuple):
    """One pilot fit: rows, what it took, the processor's seconds by stage as if with all rounds.

    ``hits`` is its recall per held-out pair, where that was measured.
    """

    n_rows: int
    spent: _ElapsedTime
    seconds: dict[str, float]
    hits: NDArray[np.float64] | None = None


@dataclass(frozen=True)
class FitTimes:
    """Two pilot fits, and the line through them.

    Attributes
    ----------
    small, large : _TimedFit
    mapping : str
    n_jobs : int
    one_code : bool
        Whether codewords are learned from a sample of the pairs, as they are where a document has one code.
    """

    small: _TimedFit
    large: _TimedFit
    mapping: str
    n_jobs: int
    one_code: bool = False

    def seconds_at(self, n_rows: int, add: AddTimes) -> float:
        """Estimate the seconds on the wall to fit ``n_rows`` pairs."""
        total = sum(self._stage(name, n_rows) for name in self.large.seconds)
        spent, size = self.large.spent, self.large.n_rows
        seconds = total * _wall_seconds_per_cpu_second(n_rows, spent.serial(size), self.n_jobs)
        seconds *= self._stretch()
        if self.mapping == "sparse" and n_rows > SAMPLE_ROWS:  # pairs beyond the sample are folded in
            seconds += add.seconds_at(n_rows)
        return seconds

    def _stretch(self) -> float:
        """Compute how much longer the pilots took than expected: other programs, and threads that wait."""
        pilots = (self.small, self.large)
        expected = sum(timed.spent.expected(timed.n_rows, self.n_jobs) for timed in pilots)
        return sum(timed.spent.wall for timed in pilots) / expected

    def _stage(self, name: str, n_rows: int) -> float:
        sampled = name in ("codebooks", "select") or (name == "space" and self.mapping == "sparse")
        sampled = sampled or (name == "alternate" and self.one_code)
        n = min(n_rows, SAMPLE_ROWS) if sampled else n_rows
        few, many = (timed.seconds.get(name, 0.0) for timed in (self.small, self.large))
        ratio = n / self.large.n_rows
        slope = (many - few) / (self.large.n_rows - self.small.n_rows)
        line = many + max(slope * self.large.n_rows, _LEAST_SLOPE * many) * (ratio - 1)
        steps = np.log([max(many, 1e-6) / max(few, 1e-6), self.large.n_rows / self.small.n_rows])
        power = many * ratio ** np.clip(steps[0] / steps[1], _LEAST_SLOPE, 1.0)
        return float(np.sqrt(max(0.0, line) * power))


class WholeFit(NamedTuple):
    """The time of the whole fit, which was quick enough to be run.

    Attributes
    ----------
    seconds : float
        On the wall.
    """

    seconds: float

    def seconds_at(self, n_rows: int, add: AddTimes) -> float:
        """Give the seconds that it took; other numbers of rows are never needed."""
        return self.seconds


class _TooLong(Exception):
    """A trial of the real fit is over its budget."""


class AddTimes(NamedTuple):
    """Seconds to add documents: of a commit alone, and of adding ``n_rows`` documents.

    Attributes
    ----------
    commit : float
    n_rows : int
    spent : _ElapsedTime
    n_jobs : int
    """

    commit: float
    n_rows: int
    spent: _ElapsedTime
    n_jobs: int

    def seconds_at(self, n_rows: int) -> float:
        """Estimate the seconds on the wall to add ``n_rows`` documents in one call."""
        perfect = self.spent.expected(self.n_rows, self.n_jobs)
        shared = _wall_seconds_per_cpu_second(n_rows, self.spent.serial(self.n_rows), self.n_jobs)
        each = self.spent.processor / self.n_rows * shared
        return self.commit + n_rows * each * self.spent.wall / perfect


def _wall_seconds_per_cpu_second(n_rows: int, serial: float, n_jobs: int) -> float:
    """Compute the wall time for each second of all threads together."""
    blocks, last = divmod(n_rows, BLOCK_ROWS)
    shared, over = divmod(blocks, n_jobs)
    longest = (shared + 1) * BLOCK_ROWS if over else shared * BLOCK_ROWS + last
    return serial + (1 - serial) * longest / max(1, n_rows)


def pilot_model(model: CMCQ, n_bits: int, images: Any, texts: Any, rounds: int = 1) -> CMCQ:
    """Fit a few pairs in few rounds: only the model's size is measured."""
    pilot: CMCQ = clone(model).set_params(n_bits=n_bits, max_iter=rounds, callback=None)
    rows = _sample(images.shape[0], _SMALL)
    return pilot.fit(images[rows], texts[rows])


def time_fits(
    model: CMCQ, images: Any, texts: Any, train: int, report: Callable[[Progress], object]
) -> tuple[FitTimes | WholeFit, CMCQ]:
    """Time a fit of ``train`` pairs if it is quick, else two smaller ones; also give a fitted model."""
    n = images.shape[0]
    first = min(_SMALL, n)
    timed = None if train <= first else _timed_fit(model, images, texts, first)
    report(Progress("plan", f"fit of {min(first, train)} pairs", 2, 4))
    # The pilot had few of the rounds, so that the real fit hardly takes less than this.
    least = 0.0 if timed is None else timed[0].spent.wall * train / first
    whole = _try_whole_fit(model, images, texts, train) if train <= n and least < _WHOLE_BUDGET else None
    found = whole or _fit_twice(model, images, texts, timed or _timed_fit(model, images, texts, first))
    report(Progress("plan", "fit", 3, 4))
    return found


def time_two_fits(model: CMCQ, images: Any, texts: Any, judge: Judge) -> tuple[FitTimes, CMCQ]:
    """Fit a part of the pairs, and a smaller part, both of them judged; also gives the larger one's model."""
    known = _timed_fit(model, images, texts, min(_SMALL, images.shape[0]), judge)
    return _fit_twice(model, images, texts, known, judge)


def _try_whole_fit(model: CMCQ, images: Any, texts: Any, train: int) -> tuple[WholeFit, CMCQ] | None:
    """Run the whole fit; None if it takes too long."""
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


def _fit_twice(
    model: CMCQ, images: Any, texts: Any, known: tuple[_TimedFit, CMCQ], judge: Judge | None = None
) -> tuple[FitTimes, CMCQ]:
    """Run another pilot beside the known one, and give the times of both, and the larger one's model."""
    n_jobs, (first, spent, *_) = Workers(model.n_jobs).n_jobs, known[0]
    # What is found depends on the size, and should depend on other programs as little as can be.
    seconds = spent.wall if judge is None else spent.expected(first, n_jobs)
    other = _timed_fit(model, images, texts, _second_size(first, images.shape[0], seconds), judge)
    small, large = sorted((known, other), key=lambda one: one[0].n_rows)
    one_code = large[1].fitted_.settings.one_code
    return FitTimes(small[0], large[0], large[1].mapping_, n_jobs, one_code), large[1]


def _second_size(first: int, n_rows: int, seconds: float) -> int:
    """Choose as many rows as the budget allows; fewer than the first pilot's if that is hardly more."""
    affordable = int(
        first * (_BUDGET / max(seconds, 1e-3)) ** 1.5
    )  # part of the time is for any number of rows
    wanted = min(_LARGE, n_rows, affordable)
    return wanted if wanted >= 1.5 * first else max(2, first // 2)


def _timed_fit(
    model: CMCQ, images: Any, texts: Any, n_rows: int, judge: Judge | None = None
) -> tuple[_TimedFit, CMCQ]:
    rounds = model.max_iter if model.mapping == "auto" else min(_ROUNDS, model.max_iter)
    rows = _sample(images.shape[0], n_rows)
    some = images[rows], texts[rows]
    start, stages = _ElapsedTime.now(), _Stages()
    pilot: CMCQ = clone(model).set_params(max_iter=rounds, callback=stages)
    pilot.fit(*some)
    stages.finish()
    spent = start.until_now()
    hits = None if judge is None else judge(pilot)
    return _TimedFit(n_rows, spent, stages.seconds(rounds, model.max_iter), hits), pilot


def _sample(n_rows: int, count: int) -> Rows:
    """Draw rows at random, always the same, in ascending order."""
    return np.sort(np.random.default_rng(0).permutation(n_rows)[:count])


def time_adding(model: CMCQ, sides: dict[str, Any], payloads: Payloads | None, folder: Path) -> AddTimes:
    """Add a few documents, then more, to an index of a pilot model."""
    n = next(iter(sides.values())).shape[0]
    rows = _sample(n, _LARGE)
    with Index.create(folder / "times.cb", model, n_jobs=model.n_jobs) as index:
        add = _make_adder(index, sides, payloads)
        few = min(add(rows[:_FEW]).wall for _ in range(2))
        spent = min((add(rows) for _ in range(_ADDS)), key=lambda one: one.wall)  # the least disturbed
    commit = max(0.0, few - spent.wall * min(_FEW, len(rows)) / len(rows))
    return AddTimes(commit, len(rows), spent, Workers(model.n_jobs).n_jobs)


def _make_adder(
    index: Index, sides: dict[str, Any], payloads: Payloads | None
) -> Callable[[Rows], _ElapsedTime]:
    """Make a function that adds rows under new ids, and gives the time it took."""

    def add(rows: Rows) -> _ElapsedTime:
        documents: dict[str, Any] = {side: features[rows] for side, features in sides.items()}
        if payloads is not None:
            documents["payloads"] = [payloads.objects[row] for row in rows.tolist()]
        start = _ElapsedTime.now()
        index.add(range(len(index), len(index) + len(rows)), **documents)
        return start.until_now()

    return add


_PAIRS_TO_TRY = 5_000  # with fewer, partners among the held-out tenth are too easy to find
_GROUPS_TO_TRY = 200


def pilot_settings(model: CMCQ, n_jobs: int | None) -> CMCQ:
    """Copy the parameters of a model, with a seed, so that the same plan is made twice."""
    seed = 0 if model.random_state is None else model.random_state
    copy: CMCQ = clone(model).set_params(random_state=seed, n_jobs=n_jobs, callback=None)
    return copy


def run_pilot_fits(
    model: CMCQ,
    images: Any,
    texts: Any,
    groups: Any,
    train: int,
    report: Callable[[Progress], object],
) -> tuple[FitTimes | WholeFit, CMCQ]:
    """Run the pilot fits; with more than ``ALWAYS_ALL`` pairs to fit on, measure their recall."""
    if train <= ALWAYS_ALL or not _can_hold_out(images.shape[0], groups):
        return time_fits(model, images, texts, train, report)
    trials = draw_pilot_pairs(images, texts, groups)
    report(Progress("plan", f"sample of {images.shape[0]:,} pairs", 2, 4))
    found = time_two_fits(model, trials.images, trials.texts, trials.hits)
    report(Progress("plan", "fits", 3, 4))
    return found


def _can_hold_out(n_pairs: int, groups: Any) -> bool:
    if n_pairs < _PAIRS_TO_TRY:
        return False
    return groups is None or int(check_groups(groups, n_pairs).max()) >= _GROUPS_TO_TRY


def decide_sample_size(fits: FitTimes | WholeFit, train: int, adding: AddTimes) -> SampleSize:
    """Decide how many of the pairs are enough; all, where recall of the pilots was not measured."""
    if isinstance(fits, WholeFit) or fits.small.hits is None or fits.large.hits is None:
        return SampleSize.all_of(train)
    few, many = (
        PilotRecall(fits.small.n_rows, fits.small.hits),
        PilotRecall(fits.large.n_rows, fits.large.hits),
    )
    return recommend_pairs(few, many, train, lambda n_pairs: fits.seconds_at(n_pairs, adding))


def find_sample_size(
    images: Any,
    texts: Any,
    groups: Any = None,
    *,
    model: CMCQ | None = None,
    n_jobs: int | None = None,
    callback: ProgressCallback | None = None,
) -> SampleSize:
    """Say how many of these pairs are enough to fit on: what :func:`plan` says of it, and nothing else.

    Parameters
    ----------
    images, texts
        All pairs, as for :meth:`CMCQ.fit`; of those on disk, only a sample is in memory.
    groups : (N,) labels, optional
    model : CMCQ, optional
        Gives the parameters; None for the defaults.
    n_jobs : int or None
    callback : callable, optional

    Returns
    -------
    SampleSize
        Without a pilot where there are at most ``ALWAYS_ALL`` pairs.
    """
    images, texts = check_pairs(coerce_rows(images, "images"), coerce_rows(texts, "texts"))
    n_pairs = images.shape[0]
    if n_pairs <= ALWAYS_ALL:
        return SampleSize.all_of(n_pairs)
    settings = pilot_settings(model or CMCQ(), n_jobs)
    report = callback or ignore_progress
    fits, fitted = run_pilot_fits(settings, images, texts, groups, n_pairs, report)
    with tempfile.TemporaryDirectory(prefix="crossbyte-plan-") as folder:
        adding = time_adding(fitted, {"images": images, "texts": texts}, None, Path(folder))
    report(Progress("plan", "add", 4, 4))
    return decide_sample_size(fits, n_pairs, adding)
