"""Measure a model on held-out pairs: refit it without them, rank partners, learn likelihoods, report."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from crossbyte.arrays import Float64
from crossbyte.calibration import holdout
from crossbyte.calibration.baselines import Baselines, has_words, keyword_distances
from crossbyte.calibration.calibration import (
    Calibration,
    HeldOutDistances,
    Key,
    Likelihood,
    fit_coding_offsets,
    fit_cooler_likelihood,
    fit_likelihood,
    fit_temperature,
    measure_reliability,
)
from crossbyte.compute.executor import Workers
from crossbyte.metrics.chance import chance_recall
from crossbyte.metrics.ranks import partner_ranks_ties_by_column
from crossbyte.model.fit import FittedModel
from crossbyte.model.params import Settings
from crossbyte.model.partner_ranks import PartnerRanks, point_ranks
from crossbyte.model.selection import MAX_PAIRS, split_groups
from crossbyte.model.space.gaussian import GaussianSpace
from crossbyte.progress import Progress, ProgressCallback
from crossbyte.report import measurements
from crossbyte.report.model_report import Report
from crossbyte.validation import check_groups, is_stored

CURVE = (2, 4, 8, 16)
Pairs = tuple[Any, Any, NDArray[np.intp]]
"""images, texts, groups"""

_MIN_OTHER_ROWS = 50  # groups with a second row; from fewer, nothing is learned
_FLOAT_BYTES = 4
_DEPTH = 10
_SMALLEST_SIZE = 0.125  # times the held-out number
_LARGEST_SIZE = 1_000.0
_LOG_BETA = (-5.0, 12.0)  # bounds of the logarithms of both Beta parameters
_N_RESAMPLES = 1_000
_INTERVAL = (2.5, 97.5)


# The whole measurement


def load_pairs(pairs: Pairs, rng: np.random.Generator) -> Pairs:
    """Bring pairs that are on disk into memory: a sample of whole groups, where they are more than 20,000.

    Pairs that are in memory already stay as they are, and all of them are used.
    """
    images, texts, groups = pairs
    if not (is_stored(images) or is_stored(texts)):
        return pairs
    rows = np.arange(len(groups))
    if len(groups) > MAX_PAIRS:
        holdout.check_groups_to_hold_out(groups)
        rows = np.sort(np.concatenate(split_groups(groups, rng)))
    return images[rows], texts[rows], check_groups(groups[rows], len(rows))


def measure_model(
    settings_at: Callable[[int], Settings],
    n_bytes: int,
    pairs: Pairs,
    curve: Sequence[int] | None,
    rng: np.random.Generator,
    report: ProgressCallback,
    workers: Workers,
) -> tuple[Calibration, Report | None]:
    """Measure the model of ``n_bytes`` and the curve; pairs are checked, and groups numbered from 0.

    Without a curve (None) there is no report, but the same calibration.
    """
    context = _Context(rng, report, workers)
    widths = sorted({*curve, n_bytes}) if curve else []
    setup = _HeldOutSetup.of(
        context, settings_at(max([n_bytes, *widths])), pairs, holdout.hold_out(pairs[2], rng)
    )
    refit = context.fit(settings_at(n_bytes), setup.training)
    sample = holdout.HeldOutSample.of(refit, setup.rows.known, *_held_out_pairs(pairs, setup.rows), workers)
    report(Progress("calibrate", "held-out pairs", 1, 2 + len(widths)))
    likelihoods, reliability = _fit_likelihoods(sample, setup.rows, pairs, rng, workers)
    calibration = Calibration(fit_coding_offsets(sample, workers), len(sample), likelihoods)
    if curve is None:
        return calibration, None
    ranks = _rank_systems(sample, setup.baselines, n_bytes, context)
    ranks["uncompressed"] = _uncompressed_ranks(sample, *_held_out_pairs(pairs, setup.rows), workers)
    report(Progress("calibrate", "probabilities", 2, 2 + len(widths)))
    points, n_curve_pairs = _measure_curve(context, settings_at, pairs, widths, setup, {n_bytes: ranks})
    quality = Report(
        n_pairs=pairs[0].shape[0],
        n_held_out=len(sample),
        n_bytes=n_bytes,
        mapping=refit.settings.mapping,
        n_components=refit.settings.n_components,
        systems=_score_systems(ranks, n_bytes, refit.settings.n_components, setup.bootstrap),
        gains=measure_gains(ranks, setup.bootstrap),
        curve=points,
        n_curve_pairs=n_curve_pairs,
        reliability=reliability,
        documents=_compare_documents(context, sample, setup, pairs, n_bytes),
    )
    return calibration, quality


class _Context(NamedTuple):
    """Generator, callback and threads that every step uses."""

    rng: np.random.Generator
    report: ProgressCallback
    workers: Workers

    def fit(self, settings: Settings, training: holdout.TrainingRows) -> FittedModel:
        return training.fit(settings, self.rng, self.report)


class _HeldOutSetup(NamedTuple):
    """Held-out and training rows, baselines and resamples: the same for every code length."""

    rows: holdout.HoldOutRows
    training: holdout.TrainingRows
    baselines: Baselines
    bootstrap: Bootstrap

    @classmethod
    def of(
        cls, context: _Context, broadest: Settings, pairs: Pairs, rows: holdout.HoldOutRows
    ) -> _HeldOutSetup:
        """Split the pairs, and learn the baselines' space with the dimensions of the longest code."""
        images, texts, groups = (part[rows.train] for part in pairs)
        training = holdout.TrainingRows(images, texts, groups, context.workers)
        baselines = Baselines.of(
            broadest,
            training,
            _held_out_pairs(pairs, rows),
            pairs[1][rows.again],
            context.rng,
            context.workers,
        )
        return cls(rows, training, baselines, Bootstrap(len(rows.held), context.rng))


def _held_out_pairs(pairs: Pairs, rows: holdout.HoldOutRows) -> tuple[Any, Any]:
    return pairs[0][rows.held], pairs[1][rows.held]


def _measure_curve(
    context: _Context,
    settings_at: Callable[[int], Settings],
    pairs: Pairs,
    widths: Sequence[int],
    setup: _HeldOutSetup,
    ranks: dict[int, dict[str, PartnerRanks]],
) -> tuple[tuple[measurements.CurvePoint, ...], int]:
    """Measure quality at each number of bytes; of many pairs, with a sample at every one of them.

    ``ranks`` are those known already, by number of bytes. Also returns how many pairs were used.
    """
    if widths and pairs[0].shape[0] > MAX_PAIRS:
        rows, ranks = holdout.hold_out(pairs[2], context.rng, MAX_PAIRS), {}
        setup = _HeldOutSetup.of(context, settings_at(widths[-1]), pairs, rows)
    points = []
    for done, width in enumerate(widths, start=3):
        if width not in ranks:
            refit = context.fit(settings_at(width), setup.training)
            sample = holdout.HeldOutSample.one_sided(
                refit, *_held_out_pairs(pairs, setup.rows), context.workers
            )
            ranks[width] = _rank_systems(sample, setup.baselines, width, context)
        points.append(score_curve_point(width, ranks[width], setup.bootstrap))
        context.report(Progress("calibrate", f"{width} bytes", done, 2 + len(widths)))
    return tuple(points), len(setup.rows.train) + len(setup.rows.held)


# Ranks


def _rank_systems(
    sample: holdout.HeldOutSample, baselines: Baselines, n_bytes: int, context: _Context
) -> dict[str, PartnerRanks]:
    """Rank the held-out partners by every system that compresses, at this number of bytes."""
    n_dims = sample.refit.settings.n_components
    return {"crossbyte": _crossbyte_ranks(sample)} | {
        name: baselines.ranks(name, n_bytes, n_dims, context.rng, context.workers)
        for name in ("cca_pq", "cca_rq")
    }


def _uncompressed_ranks(
    sample: holdout.HeldOutSample, images: Any, texts: Any, workers: Workers
) -> PartnerRanks:
    """Rank the held-out partners by what would be coded of each half, in the metric of distances."""
    refit, groups = sample.refit, np.arange(len(sample))
    items = {
        "image": refit.item_points(images, None, workers),
        "text": refit.item_points(None, texts, workers),
    }
    items = {side: sample.quantizers[side].from_coding(points) for side, points in items.items()}
    image, text = sample.points["image"], sample.points["text"]
    return PartnerRanks(
        point_ranks(image, items["text"], groups, workers), point_ranks(text, items["image"], groups, workers)
    )


def _crossbyte_ranks(sample: holdout.HeldOutSample) -> PartnerRanks:
    return PartnerRanks(
        *(partner_ranks_ties_by_column(_one_sided_distances(sample, query)) for query in holdout.SIDES)
    )


def _one_sided_distances(sample: holdout.HeldOutSample, query: str) -> Any:
    """Compute the distances (h, h) of queries to items of the other side, coded from that side alone."""
    target = _other_side(query)
    return sample.quantizers[target].table(sample.points[query]).distances(sample.scans[target, target])


def _other_side(side: str) -> str:
    return "text" if side == "image" else "image"


# Documents known from both halves


def _compare_documents(
    context: _Context, sample: holdout.HeldOutSample, setup: _HeldOutSetup, pairs: Pairs, n_bytes: int
) -> tuple[measurements.DocumentSystem, ...]:
    """Let other texts about held-out documents look for them: by crossbyte's one code and by its peers.

    A document's own text would find itself, so only groups with a second, different text ask. Nothing is
    compared for models with two codes for a document.
    """
    refit, rows, workers = sample.refit, setup.rows, context.workers
    quantizer = refit.document_quantizer
    if quantizer is None:
        return ()
    points = refit.transform_texts(pairs[1][rows.again], workers)
    asking = np.flatnonzero((rows.again != rows.held) & (points != sample.points["text"]).any(axis=1))
    if len(asking) < _MIN_OTHER_ROWS:
        return ()
    n_dims = refit.settings.n_components
    held = _held_out_pairs(pairs, rows)
    whole = quantizer.from_coding(refit.item_points(*held, workers))
    queries = points[asking]
    distances = {
        "crossbyte": quantizer.table(queries).distances(sample.scans["document", "document"]),
        "uncompressed": np.einsum("nd,nd->n", whole, whole) - 2 * (queries @ whole.T),
        "middle_rq": setup.baselines.middle_distances(asking, n_bytes, n_dims, context.rng, workers),
    }
    if has_words(pairs[1]):
        distances["keywords"] = keyword_distances(pairs[1][rows.again[asking]], held[1])
    sizes = {"crossbyte": n_bytes, "middle_rq": n_bytes, "uncompressed": _FLOAT_BYTES * n_dims}
    hits = {name: partner_ranks_ties_by_column(each, asking) < _DEPTH for name, each in distances.items()}
    bootstrap = Bootstrap(len(asking), context.rng)
    own = hits["crossbyte"].astype(np.float64)
    systems = [
        measurements.DocumentSystem(
            name,
            sizes.get(name),
            bootstrap.mean(each),
            None if name == "crossbyte" else bootstrap.mean(own - each),
        )
        for name, each in hits.items()
    ]
    chance = _exact_estimate(chance_recall(len(sample), _DEPTH))
    return (*systems, measurements.DocumentSystem("chance", None, chance, None))


# Likelihoods


def _fit_likelihoods(
    sample: holdout.HeldOutSample,
    rows: holdout.HoldOutRows,
    pairs: Pairs,
    rng: np.random.Generator,
    workers: Workers,
) -> tuple[dict[Key, Likelihood], tuple[measurements.Reliability, ...]]:
    """Fit likelihoods wherever partners can be measured without leaks, and measure how true they are."""
    cohort = sample.refit.cohort
    likelihoods: dict[Key, Likelihood] = {}
    reliability = []
    for query in holdout.SIDES:
        target = _other_side(query)
        held_out = HeldOutDistances(
            _one_sided_distances(sample, query),
            np.arange(len(sample)),
            cohort.nearest(sample.points[query], target),
            cohort.n_items,
        )
        likelihoods[query, target, target] = fit_likelihood(held_out)
        reliability.append(measure_reliability(held_out, query, target))
        if sample.refit.has_document_codes:
            ratio = _document_temperature(sample, target, rng)
            likelihoods[query, target, "document"] = fit_cooler_likelihood(held_out, ratio)
    return likelihoods | _fit_likelihoods_by_other_rows(sample, rows, pairs, workers), tuple(reliability)


def _document_temperature(sample: holdout.HeldOutSample, target: str, rng: np.random.Generator) -> float:
    """Measure the temperature of documents known from both halves over that of one half, ``target``.

    Where a document has no third view, none can ask for it: its halves would find themselves. So both are
    measured with queries that the model draws for them.
    """
    refit, partners = sample.refit, np.arange(len(sample))
    assert isinstance(refit.space, GaussianSpace)
    views = {target: [sample.points[target]], "document": list(sample.points.values())}
    temperatures = {}
    for coding, known in views.items():
        table = refit.quantizers[coding].table(refit.space.draw_queries(known, rng))
        temperatures[coding] = fit_temperature(table.distances(sample.scans[coding, coding]), partners)
    return min(temperatures["document"] / temperatures[target], 1.0)


def _fit_likelihoods_by_other_rows(
    sample: holdout.HeldOutSample, rows: holdout.HoldOutRows, pairs: Pairs, workers: Workers
) -> dict[Key, Likelihood]:
    """Fit likelihoods with one row of a group as the query, and another row of it as the partner.

    Only so can partners be measured in codes of pairs, or on the query's own side: a pair that is queried by
    its own half would find itself.
    """
    with_other = rows.again != rows.held
    if with_other.sum() < _MIN_OTHER_ROWS:
        return {}
    others = holdout.HeldOutSample.of(
        sample.refit, rows.known, pairs[0][rows.again], pairs[1][rows.again], workers
    )
    found: dict[Key, Likelihood] = {}
    for query in holdout.SIDES:
        # Five captions of one picture: another text, but the same picture again.
        differs = (sample.points[query] != others.points[query]).any(axis=1)
        rows_with_other = np.flatnonzero(with_other & differs)
        if len(rows_with_other) >= _MIN_OTHER_ROWS:
            points = sample.points[query][rows_with_other]
            found |= _fit_query_likelihoods(query, points, rows_with_other, others)
    return found


def _fit_query_likelihoods(
    query: str, points: Any, partners: NDArray[np.intp], others: holdout.HeldOutSample
) -> dict[Key, Likelihood]:
    cohort = others.refit.cohort
    tables = {side: quantizer.table(points) for side, quantizer in others.quantizers.items()}
    wanted = {(target, coding) for target in holdout.TARGETS for coding in ("pair", "document")}
    wanted |= {(query, query)}
    return {
        (query, target, coding): fit_likelihood(
            HeldOutDistances(each, partners, cohort.nearest(points, target), cohort.n_items)
        )
        for (target, coding), each in holdout.target_distances(tables, others.scans).items()
        if (target, coding) in wanted
    }


# Scores, with intervals


class Bootstrap:
    """Resamples of n pairs, each drawn with replacement.

    Parameters
    ----------
    n_pairs : int
    rng : Generator
    """

    def __init__(self, n_pairs: int, rng: np.random.Generator) -> None:
        share = np.full(n_pairs, 1.0 / n_pairs)
        self._counts = rng.multinomial(n_pairs, share, size=_N_RESAMPLES).astype(np.float64)

    def mean(self, values: Any) -> measurements.Estimate:
        """Estimate the mean of one value per pair, with its interval."""
        values = np.asarray(values, dtype=np.float64)
        return _estimate(values.mean(), self._counts @ values / len(values))

    def median(self, values: Any) -> measurements.Estimate:
        """Estimate the lower median of one value per pair, with its interval."""
        order = np.argsort(values, kind="stable")
        ascending = np.asarray(values)[order]
        below = np.cumsum(self._counts[:, order], axis=1)
        middles = (below >= 0.5 * len(ascending)).argmax(axis=1)
        return _estimate(ascending[(len(ascending) - 1) // 2], ascending[middles])


def _estimate(value: Any, resampled: Float64) -> measurements.Estimate:
    low, high = np.percentile(resampled, _INTERVAL)
    return measurements.Estimate(float(value), float(low), float(high))


def _exact_estimate(value: float) -> measurements.Estimate:
    return measurements.Estimate(float(value), float(value), float(value))


def _score_systems(
    ranks: Mapping[str, PartnerRanks], n_bytes: int, n_dims: int, bootstrap: Bootstrap
) -> tuple[measurements.System, ...]:
    sizes = dict.fromkeys(ranks, n_bytes) | {"uncompressed": _FLOAT_BYTES * n_dims}
    order = ("crossbyte", "uncompressed", "cca_pq", "cca_rq")
    systems = [score_system(name, sizes[name], ranks[name], bootstrap) for name in order]
    return (*systems, score_chance(len(ranks["crossbyte"].image_to_text)))


def score_system(name: str, n_bytes: int, ranks: PartnerRanks, bootstrap: Bootstrap) -> measurements.System:
    """Score one system by recall and median rank."""
    return measurements.System(
        name,
        n_bytes,
        {
            direction: measurements.Scores(
                {depth: bootstrap.mean(found < depth) for depth in measurements.DEPTHS},
                bootstrap.median(found + 1),
            )
            for direction, found in zip(measurements.DIRECTIONS, ranks, strict=True)
        },
    )


def score_chance(n_items: int) -> measurements.System:
    """Score a random order, exactly."""
    recall = {depth: _exact_estimate(chance_recall(n_items, depth)) for depth in measurements.DEPTHS}
    scores = measurements.Scores(recall, _exact_estimate((n_items + 1) // 2))
    return measurements.System("chance", None, dict.fromkeys(measurements.DIRECTIONS, scores))


def measure_gains(
    ranks: Mapping[str, PartnerRanks], bootstrap: Bootstrap
) -> dict[str, measurements.Estimate]:
    """Measure the recall@10 of crossbyte minus that of each other system, pair by pair."""
    own = ranks["crossbyte"].hits(_DEPTH)
    return {
        name: bootstrap.mean(own - other.hits(_DEPTH)) for name, other in ranks.items() if name != "crossbyte"
    }


def score_curve_point(
    n_bytes: int, ranks: Mapping[str, PartnerRanks], bootstrap: Bootstrap
) -> measurements.CurvePoint:
    """Score the systems at one code length."""
    recall = {
        name: {
            direction: bootstrap.mean(found < _DEPTH)
            for direction, found in zip(measurements.DIRECTIONS, each, strict=True)
        }
        for name, each in ranks.items()
        if name != "uncompressed"
    }
    return measurements.CurvePoint(n_bytes, recall, _recall_by_size(ranks["crossbyte"]))


def _recall_by_size(ranks: PartnerRanks) -> list[tuple[int, float]]:
    """Expect the recall@10 in indexes of growing size, mean of both directions."""
    n_held = len(ranks.image_to_text)
    sizes = _index_sizes(n_held)
    both = np.mean([expected_recall(each, n_held, sizes) for each in ranks], axis=0)
    return list(zip(sizes, both.tolist(), strict=True))


def _index_sizes(n_held: int) -> list[int]:
    """List sizes of an index, doubling, the held-out number among them."""
    low, high = int(np.log2(_SMALLEST_SIZE)), int(np.log2(_LARGEST_SIZE)) + 1
    return sorted({max(2, round(n_held * 2.0**step)) for step in range(low, high + 1)})


def expected_recall(
    ranks: NDArray[np.int64], n_seen: int, sizes: Sequence[int], depth: int = _DEPTH
) -> NDArray[np.float64]:
    """Expect the recall among other numbers of items than the ranks were measured in: one per size.

    Among fewer items, the strangers are a part of those seen: hypergeometric, without assumption. Among more,
    the share of strangers that come before a partner is taken for Beta distributed over the queries. Its
    parameters are those that make the ranks seen most likely; given a query's own rank, how many of the
    others come before its partner is beta-binomial. The whole is scaled so that it meets what was seen.
    """
    from scipy.stats import betabinom, hypergeom  # half a second to import, and only needed here

    places, counts = np.unique(ranks, return_counts=True)
    a, b = _fit_beta(places, counts, n_seen)

    def recall_among_more(size: int) -> float:
        return float(betabinom.cdf(depth - 1, size - 1, places + a, n_seen - 1 - places + b) @ counts)

    def recall_among_fewer(size: int) -> float:
        return float(hypergeom.cdf(depth - 1, n_seen - 1, places, size - 1) @ counts / counts.sum())

    seen = float((ranks < depth).mean())
    scale = seen / recall_among_more(n_seen) if seen else 0.0
    return np.array(
        [recall_among_fewer(size) if size <= n_seen else scale * recall_among_more(size) for size in sizes]
    )


def _fit_beta(places: NDArray[np.int64], counts: NDArray[np.int64], n_seen: int) -> tuple[float, float]:
    """Fit the Beta distribution of the share of strangers before a partner, by maximum likelihood."""
    from scipy.stats import betabinom

    def loss(logs: NDArray[np.float64]) -> float:
        return -float(betabinom.logpmf(places, n_seen - 1, *np.exp(logs)) @ counts)

    found = optimize.minimize(loss, np.log([0.5, 5.0]), method="L-BFGS-B", bounds=[_LOG_BETA, _LOG_BETA])
    a, b = np.exp(found.x)
    return float(a), float(b)
