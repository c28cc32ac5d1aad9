"""Measure a model: fit its siblings, and let held-out pairs speak."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.blocks import Workers
from crossbyte.metrics import partner_ranks
from crossbyte.model.fitting import fit_pairs
from crossbyte.model.learned import Learned, Settings
from crossbyte.model.quality import comparing
from crossbyte.model.quality.bootstrap import Bootstrap
from crossbyte.model.quality.calibration import Calibration, Key
from crossbyte.model.quality.cohort import Cohort
from crossbyte.model.quality.likelihood import Likelihood, NearItems, fit_likelihood
from crossbyte.model.quality.offsets import coding_offsets
from crossbyte.model.quality.peers import Peers
from crossbyte.model.quality.reliability import measure_reliability
from crossbyte.model.quality.sample import SIDES, Rows, Sample, distances, hold_out
from crossbyte.model.report.report import CurvePoint, Reliability, Report, System
from crossbyte.model.scoring import PartnerRanks, point_ranks
from crossbyte.model.selection import MAX_PAIRS
from crossbyte.progress import Progress, ProgressCallback

__all__ = ["CURVE", "measure"]

CURVE = (2, 4, 8, 16)

_MIN_OTHER_ROWS = 50  # groups with a second row, below which nothing is learned from them
_FLOAT_BYTES = 4

Pairs = tuple[Any, Any, NDArray[np.intp]]
"""images, texts, groups"""


class _Context(NamedTuple):
    """What every step needs."""

    rng: np.random.Generator
    report: ProgressCallback
    workers: Workers

    def fit(self, settings: Settings, pairs: Pairs, rows: NDArray[np.intp]) -> Learned:
        images, texts, groups = pairs
        return fit_pairs(
            settings, images[rows], texts[rows], groups[rows], self.rng, self.report, self.workers
        )


class _Seen(NamedTuple):
    """A sibling's view of the held-out pairs, with all it takes to compare."""

    rows: Rows
    sample: Sample
    peers: Peers
    bootstrap: Bootstrap


def measure(
    settings_at: Callable[[int], Settings],
    n_bytes: int,
    pairs: Pairs,
    curve: Sequence[int],
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Workers,
) -> tuple[Calibration, Report]:
    """Measure the model of ``n_bytes`` and the curve; pairs are checked, and groups numbered from 0."""
    context = _Context(rng, report, workers)
    n_steps = 2 + len(_widths(curve, n_bytes))
    rows = hold_out(pairs[2], rng)
    broadest = settings_at(max([n_bytes, *curve]))
    seen = _look(context, settings_at(n_bytes), pairs, rows, _peers(context, broadest, pairs, rows))
    report(Progress("calibrate", "held-out pairs", 1, n_steps))
    offsets = coding_offsets(seen.sample, workers)
    likelihoods, reliability = _probabilities(seen, pairs, workers)
    ranks = _ranks(seen, n_bytes, context, uncompressed=True)
    report(Progress("calibrate", "probabilities", 2, n_steps))
    points, n_curve_pairs = _curve(context, settings_at, n_bytes, pairs, curve, seen, ranks)
    found = Report(
        n_pairs=pairs[0].shape[0],
        n_held_out=len(seen.sample),
        n_bytes=n_bytes,
        mapping=seen.sample.sibling.settings.mapping,
        n_components=seen.sample.sibling.settings.n_components,
        systems=_systems(seen, n_bytes, ranks),
        gains=comparing.gains(ranks, seen.bootstrap),
        curve=tuple(points),
        n_curve_pairs=n_curve_pairs,
        reliability=tuple(reliability),
    )
    return Calibration(offsets, len(seen.sample), likelihoods), found


def _look(context: _Context, settings: Settings, pairs: Pairs, rows: Rows, peers: Peers) -> _Seen:
    images, texts, _ = pairs
    sibling = context.fit(settings, pairs, rows.train)
    sample = Sample.of(sibling, rows.known, images[rows.held], texts[rows.held], context.workers)
    return _Seen(rows, sample, peers, Bootstrap(len(rows.held), context.rng))


def _peers(context: _Context, broadest: Settings, pairs: Pairs, rows: Rows) -> Peers:
    images, texts, _ = pairs
    train, held = (images[rows.train], texts[rows.train]), (images[rows.held], texts[rows.held])
    return Peers.of(broadest, train, held, context.rng, context.workers)


# Ranks


def _ranks(
    seen: _Seen, n_bytes: int, context: _Context, uncompressed: bool = False
) -> dict[str, PartnerRanks]:
    """Ranks of the held-out partners by every system, at this number of bytes."""
    sample, n_dims = seen.sample, seen.sample.sibling.settings.n_components
    ranks = {"crossbyte": _own_ranks(sample)}
    if uncompressed:
        points, groups = sample.points, np.arange(len(sample))
        ranks["uncompressed"] = PartnerRanks(
            point_ranks(points["image"], points["text"], groups, context.workers),
            point_ranks(points["text"], points["image"], groups, context.workers),
        )
    for name in ("cca_pq", "cca_rq"):
        ranks[name] = seen.peers.ranks(name, n_bytes, n_dims, context.rng, context.workers)
    return ranks


def _own_ranks(sample: Sample) -> PartnerRanks:
    return PartnerRanks(*(partner_ranks(_one_sided(sample, query)) for query in SIDES))


def _one_sided(sample: Sample, query: str) -> Any:
    """Distances (h, h) of queries to items of the other side, coded from that side alone."""
    target = _other(query)
    return sample.quantizers[target].table(sample.points[query]).distances(sample.scans[target, target])


def _other(side: str) -> str:
    return "text" if side == "image" else "image"


def _systems(seen: _Seen, n_bytes: int, ranks: dict[str, PartnerRanks]) -> tuple[System, ...]:
    floats = _FLOAT_BYTES * seen.sample.sibling.settings.n_components
    systems = [
        comparing.score(name, floats if name == "uncompressed" else n_bytes, found, seen.bootstrap)
        for name, found in ranks.items()
    ]
    return (*systems, comparing.chance(len(seen.sample)))


def _curve(
    context: _Context,
    settings_at: Callable[[int], Settings],
    n_bytes: int,
    pairs: Pairs,
    curve: Sequence[int],
    seen: _Seen,
    ranks: dict[str, PartnerRanks],
) -> tuple[list[CurvePoint], int]:
    """Quality at each number of bytes; of many pairs a sample is used, at every one of them."""
    widths = _widths(curve, n_bytes)
    rows, peers, known = seen.rows, seen.peers, {n_bytes: ranks}
    if widths and pairs[0].shape[0] > MAX_PAIRS:
        rows, known = hold_out(pairs[2], context.rng, MAX_PAIRS), {}
        peers = _peers(context, settings_at(widths[-1]), pairs, rows)
    points = []
    for done, width in enumerate(widths, start=3):
        if width not in known:
            there = _look(context, settings_at(width), pairs, rows, peers)
            known[width] = _ranks(there, width, context)
        points.append(comparing.curve_point(width, known[width], seen.bootstrap))
        context.report(Progress("calibrate", f"{width} bytes", done, 2 + len(widths)))
    return points, len(rows.train) + len(rows.held)


def _widths(curve: Sequence[int], n_bytes: int) -> list[int]:
    return sorted({*curve, n_bytes}) if curve else []


# Probabilities


def _probabilities(
    seen: _Seen, pairs: Pairs, workers: Workers
) -> tuple[dict[Key, Likelihood], list[Reliability]]:
    """Likelihoods wherever a partner can be seen without looking at itself, and how true they are."""
    sample, cohort = seen.sample, seen.sample.sibling.cohort
    likelihoods: dict[Key, Likelihood] = {}
    reliability = []
    for query in SIDES:
        target = _other(query)
        levels = cohort.levels(sample.points[query], target)
        items = NearItems.among(_one_sided(sample, query), np.arange(len(sample)), levels)
        likelihoods[query, target, target] = fit_likelihood(items)
        reliability.append(measure_reliability(items, query, target))
    return likelihoods | _by_other_rows(seen, pairs, cohort, workers), reliability


def _by_other_rows(seen: _Seen, pairs: Pairs, cohort: Cohort, workers: Workers) -> dict[Key, Likelihood]:
    """Where groups have several rows, one of them asks for what was made of another.

    Only there can a partner be seen in codes of pairs, or on the query's own side: a pair asked for by its
    own half would find itself.
    """
    rows, sample = seen.rows, seen.sample
    with_other = rows.again != rows.held
    if with_other.sum() < _MIN_OTHER_ROWS:
        return {}
    others = Sample.of(sample.sibling, rows.known, pairs[0][rows.again], pairs[1][rows.again], workers)
    found: dict[Key, Likelihood] = {}
    for query in SIDES:
        # Five captions of one picture: another text, but the same picture again.
        asking = np.flatnonzero(with_other & (sample.points[query] != others.points[query]).any(axis=1))
        if len(asking) >= _MIN_OTHER_ROWS:
            found |= _likelihoods_of(query, sample.points[query][asking], asking, others, cohort)
    return found


def _likelihoods_of(
    query: str, points: Any, partners: NDArray[np.intp], others: Sample, cohort: Cohort
) -> dict[Key, Likelihood]:
    tables = {side: quantizer.table(points) for side, quantizer in others.quantizers.items()}
    wanted = {("image", "pair"), ("text", "pair"), ("document", "pair"), (query, query)}
    return {
        (query, target, coding): fit_likelihood(
            NearItems.among(each, partners, cohort.levels(points, target))
        )
        for (target, coding), each in distances(tables, others.scans).items()
        if (target, coding) in wanted
    }
