"""Measure a model: fit its refits, and let held-out pairs speak."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.executors.threads import Workers
from crossbyte.metrics import partner_ranks_ties_by_column
from crossbyte.model.learned import Learned
from crossbyte.model.parameters import Settings
from crossbyte.model.quality.bootstrap import Bootstrap
from crossbyte.model.quality.calibration import Calibration, Key
from crossbyte.model.quality.comparing import chance, curve_point, gains, score
from crossbyte.model.quality.likelihood import Likelihood, NearItems, fit_likelihood
from crossbyte.model.quality.offsets import coding_offsets
from crossbyte.model.quality.peers import Peers
from crossbyte.model.quality.reliability import measure_reliability
from crossbyte.model.quality.sample import SIDES, Rows, Sample, check_groups_to_hold_out, distances, hold_out
from crossbyte.model.quality.training_rows import TrainingRows
from crossbyte.model.scoring import PartnerRanks, point_ranks
from crossbyte.model.selection import MAX_PAIRS, split_groups
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.report.measurements import CurvePoint, Reliability, System
from crossbyte.report.model_report import Report
from crossbyte.validation import check_groups, is_stored

__all__ = ["CURVE", "in_memory", "measure"]

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

    def fit(self, settings: Settings, training: TrainingRows) -> Learned:
        return training.fit(settings, self.rng, self.report)


class _Seen(NamedTuple):
    """What is held out, and what simpler systems and resamples make of it: the same for every code length."""

    rows: Rows
    training: TrainingRows
    baselines: Peers
    bootstrap: Bootstrap

    @classmethod
    def of(cls, context: _Context, broadest: Settings, pairs: Pairs, rows: Rows) -> _Seen:
        """Learn the baselines' space, with as many dimensions as the longest code has."""
        images, texts, groups = (part[rows.train] for part in pairs)
        training = TrainingRows(images, texts, groups, context.workers)
        baselines = Peers.of(broadest, training, _held(pairs, rows), context.rng, context.workers)
        return cls(rows, training, baselines, Bootstrap(len(rows.held), context.rng))


def in_memory(pairs: Pairs, rng: np.random.Generator) -> Pairs:
    """Bring pairs that are on disk into memory: a sample of whole groups, where they are more than 20,000.

    Pairs that are in memory already stay as they are, and all of them are used.
    """
    images, texts, groups = pairs
    if not (is_stored(images) or is_stored(texts)):
        return pairs
    rows = np.arange(len(groups))
    if len(groups) > MAX_PAIRS:
        check_groups_to_hold_out(groups)
        rows = np.sort(np.concatenate(split_groups(groups, rng)))
    return images[rows], texts[rows], check_groups(groups[rows], len(rows))


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
    widths = sorted({*curve, n_bytes}) if curve else []
    seen = _Seen.of(context, settings_at(max([n_bytes, *widths])), pairs, hold_out(pairs[2], rng))
    refit = context.fit(settings_at(n_bytes), seen.training)
    sample = Sample.of(refit, seen.rows.known, *_held(pairs, seen.rows), workers)
    report(Progress("calibrate", "held-out pairs", 1, 2 + len(widths)))
    likelihoods, reliability = _probabilities(sample, seen.rows, pairs, workers)
    calibration = Calibration(coding_offsets(sample, workers), len(sample), likelihoods)
    ranks = _ranks(sample, seen.baselines, n_bytes, context) | _uncompressed(sample, workers)
    report(Progress("calibrate", "probabilities", 2, 2 + len(widths)))
    points, n_curve_pairs = _curve(context, settings_at, pairs, widths, seen, {n_bytes: ranks})
    found = Report(
        n_pairs=pairs[0].shape[0],
        n_held_out=len(sample),
        n_bytes=n_bytes,
        mapping=refit.settings.mapping,
        n_components=refit.settings.n_components,
        systems=_systems(ranks, n_bytes, refit.settings.n_components, seen.bootstrap),
        gains=gains(ranks, seen.bootstrap),
        curve=points,
        n_curve_pairs=n_curve_pairs,
        reliability=reliability,
    )
    return calibration, found


def _held(pairs: Pairs, rows: Rows) -> tuple[Any, Any]:
    return pairs[0][rows.held], pairs[1][rows.held]


# Ranks


def _ranks(sample: Sample, baselines: Peers, n_bytes: int, context: _Context) -> dict[str, PartnerRanks]:
    """Ranks of the held-out partners by every system, at this number of bytes."""
    n_dims = sample.refit.settings.n_components
    return {"crossbyte": _own_ranks(sample)} | {
        name: baselines.ranks(name, n_bytes, n_dims, context.rng, context.workers)
        for name in ("cca_pq", "cca_rq")
    }


def _uncompressed(sample: Sample, workers: Workers) -> dict[str, PartnerRanks]:
    images, texts, groups = sample.points["image"], sample.points["text"], np.arange(len(sample))
    ranks = point_ranks(images, texts, groups, workers), point_ranks(texts, images, groups, workers)
    return {"uncompressed": PartnerRanks(*ranks)}


def _own_ranks(sample: Sample) -> PartnerRanks:
    return PartnerRanks(*(partner_ranks_ties_by_column(_one_sided(sample, query)) for query in SIDES))


def _one_sided(sample: Sample, query: str) -> Any:
    """Distances (h, h) of queries to items of the other side, coded from that side alone."""
    target = _other(query)
    return sample.quantizers[target].table(sample.points[query]).distances(sample.scans[target, target])


def _other(side: str) -> str:
    return "text" if side == "image" else "image"


def _systems(
    ranks: Mapping[str, PartnerRanks], n_bytes: int, n_dims: int, bootstrap: Bootstrap
) -> tuple[System, ...]:
    sizes = dict.fromkeys(ranks, n_bytes) | {"uncompressed": _FLOAT_BYTES * n_dims}
    order = ("crossbyte", "uncompressed", "cca_pq", "cca_rq")
    systems = [score(name, sizes[name], ranks[name], bootstrap) for name in order]
    return (*systems, chance(len(ranks["crossbyte"].image_to_text)))


def _curve(
    context: _Context,
    settings_at: Callable[[int], Settings],
    pairs: Pairs,
    widths: Sequence[int],
    seen: _Seen,
    known: dict[int, dict[str, PartnerRanks]],
) -> tuple[tuple[CurvePoint, ...], int]:
    """Quality at each number of bytes; of many pairs a sample is used, at every one of them."""
    if widths and pairs[0].shape[0] > MAX_PAIRS:
        rows, known = hold_out(pairs[2], context.rng, MAX_PAIRS), {}
        seen = _Seen.of(context, settings_at(widths[-1]), pairs, rows)
    points = []
    for done, width in enumerate(widths, start=3):
        if width not in known:
            refit = context.fit(settings_at(width), seen.training)
            sample = Sample.one_sided(refit, *_held(pairs, seen.rows), context.workers)
            known[width] = _ranks(sample, seen.baselines, width, context)
        points.append(curve_point(width, known[width], seen.bootstrap))
        context.report(Progress("calibrate", f"{width} bytes", done, 2 + len(widths)))
    return tuple(points), len(seen.rows.train) + len(seen.rows.held)


# Probabilities


def _probabilities(
    sample: Sample, rows: Rows, pairs: Pairs, workers: Workers
) -> tuple[dict[Key, Likelihood], tuple[Reliability, ...]]:
    """Likelihoods wherever a partner can be seen without looking at itself, and how true they are."""
    cohort = sample.refit.cohort
    likelihoods: dict[Key, Likelihood] = {}
    reliability = []
    for query in SIDES:
        target = _other(query)
        levels = cohort.levels(sample.points[query], target)
        items = NearItems.among(_one_sided(sample, query), np.arange(len(sample)), levels)
        likelihoods[query, target, target] = fit_likelihood(items)
        reliability.append(measure_reliability(items, query, target))
    return likelihoods | _by_other_rows(sample, rows, pairs, workers), tuple(reliability)


def _by_other_rows(sample: Sample, rows: Rows, pairs: Pairs, workers: Workers) -> dict[Key, Likelihood]:
    """Where groups have several rows, one of them asks for what was made of another.

    Only there can a partner be seen in codes of pairs, or on the query's own side: a pair asked for by its
    own half would find itself.
    """
    with_other = rows.again != rows.held
    if with_other.sum() < _MIN_OTHER_ROWS:
        return {}
    others = Sample.of(sample.refit, rows.known, pairs[0][rows.again], pairs[1][rows.again], workers)
    found: dict[Key, Likelihood] = {}
    for query in SIDES:
        # Five captions of one picture: another text, but the same picture again.
        asking = np.flatnonzero(with_other & (sample.points[query] != others.points[query]).any(axis=1))
        if len(asking) >= _MIN_OTHER_ROWS:
            found |= _likelihoods_of(query, sample.points[query][asking], asking, others)
    return found


def _likelihoods_of(
    query: str, points: Any, partners: NDArray[np.intp], others: Sample
) -> dict[Key, Likelihood]:
    cohort = others.refit.cohort
    tables = {side: quantizer.table(points) for side, quantizer in others.quantizers.items()}
    wanted = {("image", "pair"), ("text", "pair"), ("document", "pair"), (query, query)}
    return {
        (query, target, coding): fit_likelihood(
            NearItems.among(each, partners, cohort.levels(points, target))
        )
        for (target, coding), each in distances(tables, others.scans).items()
        if (target, coding) in wanted
    }
