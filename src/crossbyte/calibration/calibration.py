"""Turn distances into probabilities and make codings comparable, by what held-out pairs teach.

A likelihood ratio says how much likelier a distance is of a true partner than of a stranger, an offset makes
distances of all codings comparable, and the reliability says whether the probabilities came true.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import isfinite, log
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from crossbyte.arrays import Float32, Float64
from crossbyte.calibration.holdout import CODINGS, SIDES, TARGETS, By, HeldOutSample, target_distances
from crossbyte.compute.executor import Workers, row_blocks
from crossbyte.errors import DamagedModelFile
from crossbyte.metrics.auroc import auroc
from crossbyte.model.fit import cohort_levels
from crossbyte.report.measurements import Reliability
from crossbyte.report.model_report import Report

Key = tuple[str, str, str]
"""(query, target, coding)"""

_N_NEAREST = 32  # hits that probabilities are judged on; deeper, they matter less
N_FIRST = 10  # hits that share the query's one partner, and whose probabilities say whether anything matches
_N_SPLITS = 3  # each gives two simulated indexes, which have one half of the items each
_PENALTY = 1.0  # nothing beside hundreds of pairs, but finite where all are told apart
_SHARPER = 1.5  # than likelihoods are levels: the first hits stand beside strangers as near as first hits are
_STEEPEST = 50.0  # per standard deviation of the distances
_N_BINS = 15
_QUERIES_AT_ONCE = 256
_REFERENCE = {"image": "image", "text": "text", "document": "pair"}  # the coding whose offset is zero
_DEPTHS = (1, 2, 3, 5, 10, 20)
_ROWS_PER_DEPTH = 10  # among few strangers even the tenth is far away, and says nothing of the top
_TOP = 10
_FARTHEST = 100.0  # times the held-out number: beyond, the line is no longer followed


# What a search needs


@dataclass(frozen=True)
class Calibration:
    """Offsets and likelihoods that were learned on held-out pairs.

    Attributes
    ----------
    offsets : mapping of (query, target, coding) to Line
        See :meth:`offset`.
    n_held_out : int
        Held-out pairs, of one group each, that they were learned on.
    likelihoods : mapping of (query, target, coding) to Likelihood
        Where partners could be measured without leaks. See :meth:`log_ratios`.
    """

    offsets: Mapping[Key, Line]
    n_held_out: int
    likelihoods: Mapping[Key, Likelihood] = field(default_factory=dict)

    def offset(self, query: str, target: str, coding: str, n_items: int | None = None) -> float:
        """Return what to add to a distance so that items of all codings compete fairly.

        Parameters
        ----------
        query : {"image", "text"}
            Kind of the query.
        target : {"image", "text", "document"}
            What is searched.
        coding : {"training", "pair", "image", "text", "document"}
            How the item was coded.
        n_items : int, optional
            Size of the index, all codings together; None for the number of held-out pairs. The same for
            all codings of one search, and for all shards.

        Returns
        -------
        float
            0.0 for every combination that was not measured.
        """
        line = self.offsets.get((query, target, coding), Line(0.0, 0.0))
        ratio = max(n_items or self.n_held_out, 1) / self.n_held_out
        return line.at_held_out + line.slope * log(min(max(ratio, 1 / _FARTHEST), _FARTHEST))

    def knows(self, query: str, target: str, coding: str) -> bool:
        """Whether hits of this coding have a probability."""
        return self._find_likelihood(query, target, coding) is not None

    def log_ratios(
        self, key: Key, distances: Any, levels: Mapping[Level, Any], n_items: int | None = None
    ) -> Float64:
        """Return log-likelihood ratios, partner against stranger, of distances that have their offset.

        Parameters
        ----------
        key : (query, target, coding)
            One that :meth:`knows`.
        distances : (n,)
            As a search gives them.
        levels : mapping of Level to (n,)
            How near strangers come to each query, one that :meth:`levels` lists at least.
        n_items : int, optional
            As for :meth:`offset`.
        """
        query, target, coding = key
        found = self._find_likelihood(*key)
        assert found is not None
        raw = np.asarray(distances) - self.offset(query, target, found.coding, n_items)
        if coding == "document":  # a half that is asked by itself has no other coding to compare with
            measured = _measured_target(query, target, coding)
            raw = np.asarray(distances) - self.offset(query, target, coding, n_items)
            raw += self.offset(query, measured, coding, n_items)
            raw -= self.offset(query, measured, found.coding, n_items)
        return found.likelihood.log_ratios(raw, levels[self._find_level(*key)])

    def levels(self, query: str, target: str, codings: Iterable[str]) -> list[Level]:
        """List the levels that :meth:`log_ratios` needs for hits of these codings, which it :meth:`knows`."""
        return sorted({self._find_level(query, target, coding) for coding in codings})

    def _find_level(self, query: str, target: str, coding: str) -> Level:
        found = self._find_likelihood(query, target, coding)
        assert found is not None
        return Level(_measured_target(query, target, coding), found.likelihood.temperature)

    def _find_likelihood(self, query: str, target: str, coding: str) -> _CodingLikelihood | None:
        """Find the coding's own likelihood, or that of the nearest coding, once for all searches."""
        key = query, target, coding
        if key not in self._found:
            self._found[key] = self._search_likelihood(*key)
        return self._found[key]

    @cached_property
    def _found(self) -> dict[Key, _CodingLikelihood | None]:
        return {}

    def _search_likelihood(self, query: str, target: str, coding: str) -> _CodingLikelihood | None:
        """Find the coding's own likelihood, or that of the nearest coding whose partners could be measured.

        Offsets make distances of all codings alike as far as strangers go; partners of pairs and training
        documents are rather nearer than that, so a borrowed likelihood is on the careful side.
        """
        likes: tuple[str, ...] = (coding,)
        if coding in ("training", "pair"):
            likes = (coding, "pair", target)
        elif coding == "document":  # or one half, which the document is at least as near as
            likes = (coding, _measured_target(query, target, coding))
        for like in likes:
            measured = _measured_target(query, target, coding if coding == "document" else like)
            likelihood = self.likelihoods.get((query, measured, like))
            if likelihood is not None:
                return _CodingLikelihood(likelihood, like)
        return None


class Line(NamedTuple):
    """An offset as a line over the logarithm of an index's size."""

    at_held_out: float
    """for an index of as many items as were held out"""
    slope: float
    """added for each factor e of more items"""


class Level(NamedTuple):
    """Which level of a query is meant, :meth:`crossbyte.model.fit.Cohort.levels`."""

    target: str
    temperature: float


class Likelihood(NamedTuple):
    """log p(distance | partner) / p(distance | stranger) = intercept + slopes · (distance, level).

    The level says how near strangers come to the query. With a temperature it is the logarithm of the mean of
    exp(-distance / temperature) over the cohort. A distance that grows with those of all strangers says the
    same as before: the slope of the distance is that of the level over the temperature, or steeper.
    """

    intercept: float
    distance: float
    """at most 0"""
    level: float
    temperature: float = 0.0
    """0 in files before 0.7.0: the level is the mean distance to the nearest of the cohort"""

    def log_ratios(self, distances: Any, levels: Any) -> Float64:
        """Return the log-likelihood ratios of distances, given the levels of their queries."""
        distances, levels = np.asarray(distances, np.float64), np.asarray(levels, np.float64)
        return np.asarray(self.intercept + self.distance * distances + self.level * levels)

    def along(self, start: float, slope: float) -> Likelihood:
        """Return the likelihood whose log ratios are ``start`` plus ``slope`` times those of this one."""
        return Likelihood(
            start + slope * self.intercept, slope * self.distance, slope * self.level, self.temperature
        )


class _CodingLikelihood(NamedTuple):
    """A likelihood, and the coding whose distances it was learned from."""

    likelihood: Likelihood
    coding: str


def _measured_target(query: str, target: str, coding: str) -> str:
    """Return the target whose distance an item has: a document with one side is as far as that side.

    A document with one code of both halves has one distance, whatever the target, and counts as the half that
    was not asked with.
    """
    if coding == "document":
        return "text" if query == "image" else "image"
    return coding if target == "document" and coding in SIDES else target


def posterior(log_ratios: Any, prior: float) -> Float64:
    """Compute the probabilities (..., k) that hits are the query's partner.

    Parameters
    ----------
    log_ratios : (..., k)
        Log-likelihood ratios of a query's hits, nearest first. At most one of the first ten is the partner,
        so they share what probability there is: two that are equally near are half as likely each. A later
        hit shares with these ten.
    prior : float
        Of any one item before looking; its odds are those of the item against no partner at all.
    """
    odds = np.asarray(log_ratios, np.float64) + prior_odds(prior)
    odds = np.clip(odds, -700, 700)
    first = np.logaddexp(0.0, np.logaddexp.reduce(odds[..., :N_FIRST], axis=-1, keepdims=True))
    later = np.logaddexp(first, odds[..., N_FIRST:])
    return np.exp(odds - np.concatenate([np.repeat(first, odds.shape[-1] - later.shape[-1], -1), later], -1))


# Likelihood ratios


class HeldOutDistances(NamedTuple):
    """Distances of held-out queries to items among which each has one partner.

    Attributes
    ----------
    items : (n, N) float
    partners : (n,) intp
        The column of each query's partner.
    cohort : (n, c) float
        To the nearest strangers of the cohort, :meth:`crossbyte.model.fit.Cohort.nearest`.
    n_cohort : int
        How many documents are in the cohort.
    """

    items: Any
    partners: NDArray[np.intp]
    cohort: Any
    n_cohort: int

    def take(self, queries: Any) -> HeldOutDistances:
        """Take some of the queries."""
        return self._replace(
            items=self.items[queries], partners=self.partners[queries], cohort=self.cohort[queries]
        )

    def nearest(self, depth: int, columns: NDArray[np.intp] | None = None) -> NearItems:
        """Find the nearest items of every query, among all or among some columns."""
        columns = np.arange(self.items.shape[1]) if columns is None else columns
        distances = self.items[:, columns]
        near = np.argsort(distances, axis=1, kind="stable")[:, :depth]
        chosen = np.take_along_axis(distances, near, axis=1).astype(np.float64)
        return NearItems(chosen, columns[near] == self.partners[:, None])


class NearItems(NamedTuple):
    """The nearest items of some queries.

    Attributes
    ----------
    distances : (n, k) float64
        Ascending.
    partner : (n, k) bool
        Which of them is the query's partner; at most one.
    """

    distances: Float64
    partner: NDArray[np.bool_]


def fit_likelihood(held_out: HeldOutDistances) -> Likelihood:
    """Fit a likelihood ratio: the model's form first, which has one parameter, then a line through it.

    The temperature is that with which exp(-distance / temperature), over the sum of all items, is the most
    likely share of the partners. Far partners count in it like near ones; so the ratio is then stretched
    and shifted to fit the first hits of simulated indexes, which have lost half of the partners, the less
    the fewer pairs there are. A query that is farther from everything, strangers and all, never has a
    likelier partner for that: it may be unlike any that was learned from.
    """
    model = _model_likelihood(held_out, fit_temperature(held_out.items, held_out.partners))
    return model.along(*_fit_line_of_ratios(_simulate(held_out, model)))


def fit_cooler_likelihood(held_out: HeldOutDistances, ratio: float) -> Likelihood:
    """Fit the likelihood of items that nobody has asked for, whose temperature is ``ratio`` times this one.

    It has the model's form, and the shift of the items that were asked for: how these are stretched says
    nothing of others.
    """
    temperature = fit_temperature(held_out.items, held_out.partners)
    simulated = _simulate(held_out, _model_likelihood(held_out, temperature))
    return _model_likelihood(held_out, ratio * temperature).along(
        *_fit_line_of_ratios(simulated, stretched=False)
    )


def _model_likelihood(held_out: HeldOutDistances, temperature: float) -> Likelihood:
    """Make the ratio of exp(-distance / temperature) to its mean over the cohort, by a sharper level.

    The mean over all strangers is that of the sharper level and a constant, on average. First hits
    are the nearest of all items, and the sharper level looks at the nearest strangers, too: only beside
    those do first hits tell a query that has a partner from one that is near to everybody.
    """
    sharper = temperature / _SHARPER
    level, near = (cohort_levels(held_out.cohort, held_out.n_cohort, each) for each in (temperature, sharper))
    return Likelihood(float((near / _SHARPER - level).mean()), -1 / temperature, -1 / _SHARPER, sharper)


def fit_temperature(distances: Any, partners: NDArray[np.intp]) -> float:
    """Fit the temperature with which exp(-distance / temperature) tells partners best from other items.

    Parameters
    ----------
    distances : (n, N) float
    partners : (n,) intp
        The column of each query's partner.
    """
    items = np.asarray(distances, dtype=np.float64)
    items = items - items.min(axis=1, keepdims=True)
    own = items[np.arange(len(items)), partners]
    spread = float(items.std()) or 1.0

    def loss(log_slope: float) -> float:
        slope = np.exp(log_slope) / spread
        shares = own * slope + np.log(np.exp(-items * slope).sum(axis=1))
        return float(shares.sum() + 0.5 * _PENALTY * (slope * spread) ** 2)

    found = optimize.minimize_scalar(
        loss, bounds=(np.log(1 / _STEEPEST), np.log(_STEEPEST)), method="bounded"
    )
    return float(spread / np.exp(found.x))


def _halves(n_items: int) -> list[NDArray[np.intp]]:
    """Cut the columns into two halves, in several ways."""
    columns = np.arange(n_items)
    halves = [columns[columns >> bit & 1 == side] for bit in range(_N_SPLITS) for side in (0, 1)]
    return [half for half in halves if len(half)]


def prior_odds(prior: float) -> float:
    """Compute the log odds of a prior; nothing is certain, whatever it says."""
    prior = min(prior, 1.0 - 1e-12)
    return log(prior) - log(1.0 - prior)


class _FirstHits(NamedTuple):
    """The first hits of all queries in one simulated index.

    Attributes
    ----------
    ratios : (n, k) float64
        Log-likelihood ratios of the model.
    partner : (n, k) bool
    prior : float
        Log odds of any one item, before looking.
    """

    ratios: Float64
    partner: NDArray[np.bool_]
    prior: float


def _simulate(held_out: HeldOutDistances, model: Likelihood) -> list[_FirstHits]:
    """Find the first hits in indexes of half of the items each: half of the queries have no partner there."""
    levels = cohort_levels(held_out.cohort, held_out.n_cohort, model.temperature)
    simulated = []
    for columns in _halves(held_out.items.shape[1]):
        near = held_out.nearest(N_FIRST, columns)
        ratios = model.log_ratios(near.distances, levels[:, None])
        simulated.append(_FirstHits(ratios, near.partner, prior_odds(0.5 / len(columns))))
    return simulated


def _fit_line_of_ratios(simulated: list[_FirstHits], stretched: bool = True) -> tuple[float, float]:
    """Fit start and slope of the line on which ratios make what was found the likeliest.

    Logistic regression with one class for each of the first hits and one for none of them; with slope 1
    unless it is ``stretched``.
    """
    every = np.concatenate([each.ratios.ravel() for each in simulated])
    middle, spread = every.mean(), every.std()

    def loss(weights: Float64) -> tuple[float, Float64]:
        shift, stretch = weights
        value = 0.5 * _PENALTY * (shift**2 + (stretch * spread) ** 2)
        gradient = _PENALTY * np.array([shift, stretch * spread**2])
        for ratios, partner, prior in simulated:
            logits = prior + shift + ratios + stretch * (ratios - middle)
            shared = np.logaddexp(0.0, np.logaddexp.reduce(logits, axis=1))
            residuals = np.exp(logits - shared[:, None]) - partner
            value += shared.sum() - logits[partner].sum()
            gradient += [residuals.sum(), (residuals * (ratios - middle)).sum()]
        return float(value), gradient

    stretches = (-1.0, None) if stretched else (0.0, 0.0)  # a farther distance never speaks for a partner
    found = optimize.minimize(
        loss, np.zeros(2), jac=True, method="L-BFGS-B", bounds=[(None, None), stretches]
    )
    shift, stretch = found.x
    return float(shift - stretch * middle), float(1.0 + stretch)


# Reliability of the probabilities


def measure_reliability(held_out: HeldOutDistances, query: str, target: str) -> Reliability:
    """Measure how true probabilities are: learned from one half of the queries, judged on the other.

    Every second query, of either half, loses its partner, and the prior says so.
    """
    items = held_out.nearest(_N_NEAREST)
    ratios = _cross_fit(held_out, items)
    matched = np.arange(len(ratios)) // 2 % 2 == 0
    lost = items.partner & ~matched[:, None]
    first = np.argsort(lost, axis=1, kind="stable")[:, : max(1, min(N_FIRST, items.partner.shape[1] - 1))]
    probabilities = posterior(np.take_along_axis(ratios, first, 1), 0.5 / held_out.items.shape[1])
    bins = equal_bins(probabilities, np.take_along_axis(items.partner, first, 1))
    return Reliability(
        query,
        target,
        bins,
        expected_error(bins),
        auroc(probabilities.sum(axis=1), matched),
        auroc(-np.take_along_axis(items.distances, first, 1)[:, 0], matched),
    )


def _cross_fit(held_out: HeldOutDistances, items: NearItems) -> Float64:
    """Compute log-likelihood ratios (n, k), each learned from the other half of the queries."""
    half = np.arange(len(held_out.partners)) % 2 == 0
    ratios = np.empty_like(items.distances)
    for judged in (half, ~half):
        if judged.any():
            own = held_out.take(judged)
            likelihood = fit_likelihood(held_out.take(~judged) if not judged.all() else own)
            levels = cohort_levels(own.cohort, own.n_cohort, likelihood.temperature)
            ratios[judged] = likelihood.log_ratios(items.distances[judged], levels[:, None])
    return ratios


def equal_bins(probabilities: Any, truth: Any, n_bins: int = _N_BINS) -> list[tuple[float, float, int]]:
    """Cut hits into bins of equal number by probability: mean probability, share of true ones and number."""
    p, y = np.ravel(probabilities), np.ravel(truth)
    parts = np.array_split(np.argsort(p, kind="stable"), n_bins)
    return [(float(p[part].mean()), float(y[part].mean()), len(part)) for part in parts if len(part)]


def expected_error(bins: list[tuple[float, float, int]]) -> float:
    """Compute the expected calibration error: the mean gap between probability and share, hit by hit."""
    total = sum(count for _, _, count in bins)
    return sum(abs(p - share) * count for p, share, count in bins) / max(total, 1)


# Offsets between codings


def fit_coding_offsets(sample: HeldOutSample, workers: Workers) -> dict[tuple[str, str, str], Line]:
    """Fit the offsets by (query, target, coding) with which a query's nearest strangers are equally near.

    Codes of a pair are pulled towards both halves, so they lie nearer to everybody's queries than codes made
    from one side alone; unshifted, they crowd one-sided items out of the top. The offsets equalise false
    alarms. No partner takes part, so nothing can leak from a folded-in pair to a query by its own half.

    How far apart the codings are depends on how near is near: the nearest 1 % of strangers need another
    offset than the nearest 0.01 %. Over the depths that can be measured it is linear in the logarithm of
    that share; so an offset is a line, and the size of an index says where on it its first ten hits are.
    """
    offsets = {}
    for query in SIDES:
        nearest = _nearest_strangers(sample, query, workers)
        for target, coding in nearest:
            reference = "document" if (target, "document") in nearest else _REFERENCE[target]
            gaps = nearest[target, reference] - nearest[target, coding]
            offsets[query, target, coding] = _fit_line(gaps)
    return offsets


def _nearest_strangers(sample: HeldOutSample, query: str, workers: Workers) -> dict[By, NDArray[np.float64]]:
    """Average each query's distance to its k-th nearest stranger, for each depth k, by target and coding."""
    queries, quantizers = sample.points[query], sample.quantizers

    def nearest(rows: slice) -> dict[By, Float32]:
        tables = {side: quantizer.table(queries[rows]) for side, quantizer in quantizers.items()}
        return {by: _kth_smallest(each, rows) for by, each in target_distances(tables, sample.scans).items()}

    parts = list(workers.map(nearest, row_blocks(len(queries), _QUERIES_AT_ONCE)))
    return {
        by: np.concatenate([part[by] for part in parts]).mean(axis=0, dtype=np.float64) for by in parts[0]
    }


def _kth_smallest(distances: Float32, rows: slice) -> Float32:
    """Find each query's k-th smallest distance to a stranger, for each depth k; item i is query i's own.

    Training documents are strangers to every query, but one is left out of them all the same: the
    smallest of more is smaller.
    """
    distances[np.arange(len(distances)), np.arange(rows.start, rows.stop)] = np.inf
    deepest = max(1, distances.shape[1] // _ROWS_PER_DEPTH)
    places = [depth - 1 for depth in _DEPTHS if depth <= deepest]
    return np.partition(distances, places, axis=1)[:, places]


def _fit_line(gaps: NDArray[np.float64]) -> Line:
    """Fit a line over the logarithm of each depth's share, by least squares; flat if there is one depth."""
    depths = np.array(_DEPTHS[: len(gaps)])
    log_sizes = np.log(_TOP - 0.5) - np.log(depths - 0.5)  # where a top ten is as deep, over n_held
    spread = log_sizes - log_sizes.mean()
    slope = float(spread @ gaps / max(spread @ spread, 1e-12))
    return Line(float(gaps.mean() - slope * log_sizes.mean()), slope)


# The calibration in a model file


def calibration_document(calibration: Calibration | None, report: Report | None) -> dict[str, Any]:
    """Make the optional part of the document; nothing for a model that was not calibrated."""
    document: dict[str, Any] = {}
    if calibration is not None:
        document["calibration"] = {
            "offsets": _list_entries(calibration.offsets),
            "n_held_out": calibration.n_held_out,
        }
        if calibration.likelihoods:  # files of version 0.2 have none, and stay as they are
            document["calibration"]["likelihoods"] = _list_entries(calibration.likelihoods)
    if report is not None:
        document["report"] = report.to_dict()
    return document


def _list_entries(measured: Mapping[Key, Any]) -> list[list[Any]]:
    return [[*key, *values] for key, values in sorted(measured.items())]


def restore_calibration(document: Mapping[str, Any], name: str) -> Calibration | None:
    """Rebuild the calibration, if there is one; one that makes no sense is refused as damaged."""
    if "calibration" not in document:
        return None
    try:
        return _restore_parts(**document["calibration"])
    except (OverflowError, TypeError, ValueError) as error:
        raise DamagedModelFile(f"{name}: the calibration of the model makes no sense ({error})") from error


def restore_report(document: Mapping[str, Any], name: str) -> Report | None:
    """Rebuild the report, if there is one; one that makes no sense is refused as damaged."""
    if "report" not in document:
        return None
    try:
        return Report.from_dict(document["report"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise DamagedModelFile(f"{name}: the report of the model makes no sense ({error!r})") from error


def _restore_parts(
    *, offsets: list[list[Any]], n_held_out: int, likelihoods: list[list[Any]] | None = None
) -> Calibration:
    _require(type(n_held_out) is int and n_held_out > 0, "a number of held-out pairs that is no number")
    found = _restore_entries([] if likelihoods is None else likelihoods, "a likelihood")
    ratios = {key: Likelihood(*values) for key, values in found.items()}
    _require(all(each.temperature >= 0 for each in ratios.values()), "a temperature below zero")
    _require(all(each.distance <= 0 for each in ratios.values()), "a likelihood that grows with the distance")
    lines = {key: Line(*values) for key, values in _restore_entries(offsets, "an offset").items()}
    return Calibration(lines, n_held_out, ratios)


def _restore_entries(rows: list[list[Any]], what: str) -> dict[Key, list[float]]:
    found: dict[Key, list[float]] = {}
    _require(type(rows) is list, f"{what} outside of a list")
    for query, target, coding, *values in rows:
        _require((query, target, coding) not in found, f"{what} that is there twice")
        _require(
            query in SIDES and target in TARGETS and coding in CODINGS, f"{what} of an unknown combination"
        )
        _require(target == "document" or coding not in SIDES or coding == target, f"{what} of no item")
        _require(all(type(v) in (int, float) and isfinite(v) for v in values), f"{what} that is no number")
        found[query, target, coding] = values
    return found


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(message)
