"""The parts of calibration and report, each beside a naive computation of the same thing."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from math import exp
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from crossbyte import CMCQ
from crossbyte.calibration import baselines
from crossbyte.calibration import calibration as reliability
from crossbyte.calibration.calibration import (
    HeldOutDistances,
    fit_cooler_likelihood,
    fit_likelihood,
    fit_temperature,
)
from crossbyte.calibration.holdout import HeldOutSample, hold_out
from crossbyte.calibration.measure import Bootstrap, expected_recall, score_chance
from crossbyte.compute.executor import Workers
from crossbyte.errors import DamagedModelFile
from crossbyte.metrics.auroc import auroc
from crossbyte.model.file_format import model_bytes, parse_model_bytes
from crossbyte.model.fit import Cohort, cohort_levels
from crossbyte.model.quantization.codebooks import beam_codebooks, deal_dimensions, kmeans
from support.calibration_samples import drawn, naive_levels, plain_model, settings, soft_level
from support.index_twin import features, small_model
from support.paths import GOLDEN

DIRECTIONS = ("image_to_text", "text_to_image")


# Held-out rows


@pytest.mark.parametrize("max_pairs", [None, 150, 10_000])
def test_groups_are_split_whole_and_give_one_row_each(max_pairs: int | None) -> None:
    for seed in range(8):
        check_split(seed, max_pairs)


def check_split(seed: int, max_pairs: int | None) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.permutation(np.repeat(np.arange(120), rng.integers(1, 5, 120)))
    rows = hold_out(groups, rng, max_pairs)
    sampled = max_pairs is not None and max_pairs < len(groups)
    held, train = groups[rows.held].tolist(), groups[rows.train].tolist()
    assert not set(held) & set(train)
    assert len(set(held)) == len(held) == len(rows.known) == round(0.1 * len({*held, *train}))
    assert len(set(groups[rows.train][rows.known])) == len(rows.known)
    all_rows = np.flatnonzero(np.isin(groups, [*held, *train]))
    assert len(all_rows) <= max_pairs if sampled and max_pairs else len(all_rows) == len(groups)
    assert sorted(rows.train) == [row for row in all_rows if groups[row] not in held]
    for row, other in zip(rows.held, rows.again, strict=True):
        assert groups[row] == groups[other]
        assert (row == other) == ((groups == groups[row]).sum() == 1)


# How near strangers come


@pytest.mark.parametrize("target", ["image", "text", "document"])
@pytest.mark.parametrize("cross_term", ["constant", "stored"])
@pytest.mark.parametrize("n_rows", [1, 60, 127, 128, 700, 5000])
def test_a_level_is_the_mean_of_the_nearest_training_documents(
    cross_term: str, target: str, n_rows: int
) -> None:
    model, texts = small_model(16, cross_term), features(5, seed=4)[1]
    draw = np.random.default_rng(n_rows)
    codes = {side: draw.integers(0, 256, (n_rows, 2), dtype=np.uint8) for side in ("image", "text")}
    chosen = [i * (n_rows - 1) // 4095 for i in range(4096)] if n_rows > 4096 else list(range(n_rows))
    cohort = Cohort.of(model.fitted_.quantizers, codes)
    points = model.transform_texts(texts)
    found = cohort.levels(points, target)
    assert cohort.n_items == len(chosen)
    expected = naive_levels(model, {side: each[chosen] for side, each in codes.items()}, texts, target)
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
    alone = [cohort.levels(points[i : i + 1], target)[0] for i in range(5)]
    assert found.tolist() == alone


def test_the_cohort_of_a_model_are_its_training_documents() -> None:
    model, texts = small_model(), features(5, seed=4)[1]
    near = max(1, len(model.image_codes_) // 64)
    if model.fitted_.has_document_codes:
        one = np.sort(model.distances(texts=texts, document_codes=model.document_codes_), axis=1)
        for target in ("image", "text", "document"):
            found = model.fitted_.cohort.levels(model.transform_texts(texts), target)
            np.testing.assert_allclose(found, one[:, :near].mean(axis=1), rtol=1e-5, atol=1e-6)
    model = CMCQ(**settings()).fit(*drawn(300, 0)[:2])
    codes, texts = {"image": model.image_codes_, "text": model.text_codes_}, drawn(5, 1)[1]
    found = model.fitted_.cohort.levels(model.transform_texts(texts), "image")
    np.testing.assert_allclose(found, naive_levels(model, codes, texts, "image"), rtol=1e-6)


def test_a_level_with_a_temperature_is_a_log_mean_over_the_cohort() -> None:
    model, images = plain_model(), drawn(5, 1)[0]
    points = model.transform_images(images)
    found = model.fitted_.cohort.levels(points, "text", 0.3)
    plain = model.distances(images=images, text_codes=model.text_codes_)
    np.testing.assert_allclose(found, [soft_level(row.tolist(), 0.3) for row in plain], rtol=1e-4, atol=1e-4)
    alone = [model.fitted_.cohort.levels(points[i : i + 1], "text", 0.3)[0] for i in range(5)]
    assert found.tolist() == alone


def test_the_rows_of_a_querys_own_document_are_no_strangers() -> None:
    """Two captions of each picture: the document is in the cohort twice."""
    images, texts = drawn(150, 3)[:2]
    images, texts = np.repeat(images, 2, axis=0), np.repeat(texts, 2, axis=0)
    texts[1::2] += 0.01 * np.random.default_rng(0).standard_normal(texts[1::2].shape)
    params = {"n_bits": 16, "n_components": 6, "max_iter": 1, "random_state": 0, "memory": 0}
    model = CMCQ(**params).fit(images, texts, np.repeat(np.arange(150), 2))
    assert model.fitted_.settings.group_size == model.fitted_.cohort.n_left_out == 2
    points = model.transform_texts(texts[:40:2])
    found = model.fitted_.cohort.nearest(points, "image")
    plain = np.sort(model.distances(texts=texts[:40:2], document_codes=model.document_codes_), axis=1)
    assert found.shape == (20, 300 // 8 - 2)
    np.testing.assert_allclose(found, plain[:, 2 : 300 // 8], rtol=1e-4, atol=1e-4)
    alone = CMCQ(**params).fit(images[::2], texts[::2])
    assert alone.fitted_.settings.group_size == alone.fitted_.cohort.n_left_out == 1


def test_of_a_sample_of_the_rows_fewer_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    model = plain_model()
    codes = {"image": model.image_codes_, "text": model.text_codes_}
    monkeypatch.setattr("crossbyte.model.fit._COHORT_SIZE", len(model.image_codes_) // 4)
    left_out = [Cohort.of(model.fitted_.quantizers, codes, size).n_left_out for size in (1, 2, 8, 20)]
    assert left_out == [1, 1, 2, 5]
    few = Cohort.of(model.fitted_.quantizers, {side: each[:3] for side, each in codes.items()}, 5)
    assert few.nearest(model.transform_images(drawn(4, 1)[0]), "text").shape == (4, 1)


# The likelihood ratio

SPREAD = 0.8


def gaussian_distances(
    n: int, n_items: int, seed: int, partner_at: float = 1.0, fringe: float = 1.0
) -> HeldOutDistances:
    """Distances of one partner and many strangers (mean 3) around each query's own level."""
    rng = np.random.default_rng(seed)
    levels = fringe * rng.normal(size=n)
    partners = rng.integers(0, n_items, n)
    distances = rng.normal(3.0, SPREAD, (n, n_items))
    distances[np.arange(n), partners] += partner_at - 3.0
    cohort = np.sort(rng.normal(3.0, SPREAD, (n, 1000)), axis=1)[:, 1:125]
    return HeldOutDistances(distances + levels[:, None], partners, cohort + levels[:, None], 1000)


def true_ratio(centred: Any) -> Any:
    """log N(distance - level; 1, s) / N(distance - level; 3, s)"""
    return ((centred - 3.0) ** 2 - (centred - 1.0) ** 2) / (2 * SPREAD**2)


def test_the_nearest_items_are_chosen_with_their_partner() -> None:
    rng = np.random.default_rng(0)
    distances, partners = rng.normal(size=(7, 400)).astype(np.float32), rng.integers(0, 400, 7)
    whole = HeldOutDistances(distances, partners, distances, 400)
    for columns in (np.arange(400), np.arange(1, 400, 2)):
        items = whole.nearest(32, columns)
        for i in range(7):
            order = sorted(columns.tolist(), key=lambda j: (distances[i, j], j))[:32]
            assert items.distances[i].tolist() == [float(distances[i, j]) for j in order]
            assert items.partner[i].tolist() == [j == partners[i] for j in order]
    some = whole.take([4, 2])
    assert some.partners.tolist() == partners[[4, 2]].tolist()
    np.testing.assert_array_equal(some.items, distances[[4, 2]])


def test_the_temperature_is_that_of_the_true_ratio() -> None:
    held_out = gaussian_distances(2000, 200, 2)
    assert fit_temperature(held_out.items, held_out.partners) == pytest.approx(SPREAD**2 / 2, rel=0.06)


def test_the_likelihood_ratio_is_near_the_true_one() -> None:
    held_out = gaussian_distances(2000, 200, 2, partner_at=1.8)
    found = fit_likelihood(held_out)
    items = held_out.nearest(10)
    levels = cohort_levels(held_out.cohort, held_out.n_cohort, found.temperature)
    stated = reliability.posterior(found.log_ratios(items.distances, levels[:, None]), 1 / 200)
    for depth in (1, 10):
        bins = reliability.equal_bins(stated[:, :depth], items.partner[:, :depth])
        assert reliability.expected_error(bins) < 0.04


def test_few_pairs_leave_the_ratio_near_that_of_the_model() -> None:
    """Fifteen partners that are all found first must not end in probabilities of a few per cent."""
    held_out = gaussian_distances(15, 15, 3, partner_at=0.0)
    assert (held_out.nearest(1).partner).all()
    found = fit_likelihood(held_out)
    temperature = fit_temperature(held_out.items, held_out.partners)
    assert found.distance * temperature == pytest.approx(-1.0, abs=0.5)
    new = gaussian_distances(200, 150, 4, partner_at=0.0)
    levels = cohort_levels(new.cohort, new.n_cohort, found.temperature)
    first = new.nearest(1)
    stated = reliability.posterior(found.log_ratios(first.distances, levels[:, None]), 1 / 150)
    assert np.median(stated) > 0.3


def test_twice_the_strangers_leave_the_ratio_as_it_is() -> None:
    few, many = (fit_likelihood(gaussian_distances(3000, n_items, 3)) for n_items in (80, 160))
    level = np.log(np.exp(-3.0 / few.temperature))
    grid = np.linspace(0.5, 2.0, 6)
    gap = many.log_ratios(grid, level) - few.log_ratios(grid, level)
    assert abs(gap.mean()) < 0.5  # the odds of the sample differ by log 2 = 0.69


def test_a_farther_distance_never_speaks_for_a_partner() -> None:
    found = fit_likelihood(gaussian_distances(300, 50, 4, partner_at=5.0))
    assert -0.1 < found.distance <= 0.0
    assert np.isfinite(found).all()
    assert fit_likelihood(gaussian_distances(300, 50, 4, partner_at=2.0)).distance < -0.5


@pytest.mark.parametrize("tempting", [True, False])
def test_a_query_far_from_everything_has_no_likelier_partner(tempting: bool) -> None:
    """Even where, of those that were learned from, the farther queries have the nearer partners."""
    held_out = gaussian_distances(400, 60, 4, partner_at=1.5, fringe=3.0)
    away = held_out.cohort.mean(axis=1)
    nearer = 0.6 * (away - away.mean()) * (1 if tempting else -1)
    held_out.items[np.arange(400), held_out.partners] -= nearer
    found = fit_likelihood(held_out)
    per_step = found.distance - found.level / found.temperature  # distances and levels move together
    assert per_step <= 1e-12
    cohort = held_out.cohort[:5]
    levels = [cohort_levels(cohort + far, held_out.n_cohort, found.temperature) for far in (0.0, 50.0, 500.0)]
    ratios = [
        found.log_ratios(1.0 + far, level) for far, level in zip((0.0, 50.0, 500.0), levels, strict=True)
    ]
    assert (np.diff(ratios, axis=0) <= 1e-6).all()


def test_partners_that_are_all_told_apart_leave_the_ratio_finite() -> None:
    found = fit_likelihood(gaussian_distances(200, 50, 5, partner_at=-100.0))
    assert np.isfinite(found).all()
    assert -1e3 < found.distance < 0


@pytest.mark.parametrize("shape", [(300, 30), (2, 1), (1, 1), (5, 2)])
def test_distances_that_say_nothing_are_no_error(shape: tuple[int, int]) -> None:
    held_out = gaussian_distances(*shape, seed=6)
    assert np.isfinite(fit_likelihood(held_out)).all()
    flat = held_out._replace(items=np.full(shape, 2.0), cohort=np.full((shape[0], 9), 2.0))
    assert np.isfinite(fit_likelihood(flat)).all()


# Probabilities, and whether they are true


@pytest.mark.parametrize("prior", [1e-6, 0.01, 0.3, 0.5, 0.9])
def test_the_posterior_is_bayes_rule(prior: float) -> None:
    for ratio in (-3.0, 0.0, 0.5, 4.0):
        partner, stranger = prior * np.exp(ratio), 1 - prior
        assert reliability.posterior([ratio], prior) == pytest.approx(
            partner / (partner + stranger), rel=1e-12
        )


def test_the_posterior_grows_with_the_prior_and_stays_finite() -> None:
    ratios = np.array([-1e300, -800.0, -5.0, 0.0, 5.0, 800.0, 1e300])[:, None]  # one hit each
    priors = (5e-324, 1e-12, 0.1, 0.5, 0.99, 1.0)
    stated = np.array([reliability.posterior(ratios, prior)[:, 0] for prior in priors])
    assert np.isfinite(stated).all()
    assert (stated >= 0).all()
    assert (stated <= 1).all()
    assert (np.diff(stated, axis=0) >= 0).all()
    assert (np.diff(stated, axis=1) >= 0).all()
    assert (np.diff(stated[:, 2:5], axis=0) > 0).all()
    assert reliability.posterior([-5.0], 1.0) < 1  # nothing is certain before looking


def test_the_first_ten_share_one_partner_and_later_hits_share_with_them() -> None:
    ratios = np.random.default_rng(0).normal(3.0, 2.0, (4, 25))
    stated = reliability.posterior(ratios, 0.05)
    weights = np.exp(ratios) / 19
    for row, own in zip(weights, stated, strict=True):
        none = 1 + row[:10].sum()
        np.testing.assert_allclose(own[:10], row[:10] / none, rtol=1e-12)
        np.testing.assert_allclose(own[10:], [each / (none + each) for each in row[10:]], rtol=1e-12)
    assert (stated[:, :10].sum(axis=1) < 1).all()
    np.testing.assert_array_equal(reliability.posterior(ratios[:, :10], 0.05), stated[:, :10])
    alone, twice = reliability.posterior([800.0], 0.05), reliability.posterior([800.0, 800.0], 0.05)
    assert alone == pytest.approx(1.0) and twice == pytest.approx(0.5)
    assert reliability.posterior([], 0.05).shape == (0,)


def test_first_hits_that_share_a_partner_are_told_the_truth() -> None:
    """Of the first hits of indexes that lost half of the partners; each judged by itself would be doubted."""
    found = fit_likelihood(gaussian_distances(2000, 200, 2, partner_at=1.2))
    new = gaussian_distances(4000, 200, 11, partner_at=1.2)
    near = new.nearest(10, np.arange(0, 200, 2))
    levels = cohort_levels(new.cohort, new.n_cohort, found.temperature)
    ratios = found.log_ratios(near.distances, levels[:, None])
    shared = reliability.posterior(ratios, 0.5 / 100)
    alone = reliability.posterior(ratios[:, :1], 0.5 / 100)
    true = near.partner[:, :1]
    assert shared.sum() == pytest.approx(near.partner.sum(), rel=0.06)
    errors = [reliability.expected_error(reliability.equal_bins(p, true)) for p in (shared[:, :1], alone)]
    assert errors[0] < 0.03 < errors[1]


def test_items_that_nobody_asked_for_have_the_form_of_the_model() -> None:
    held_out = gaussian_distances(600, 100, 2, partner_at=1.8)
    temperature = fit_temperature(held_out.items, held_out.partners)
    found = {ratio: fit_cooler_likelihood(held_out, ratio) for ratio in (1.0, 0.5)}
    for ratio, each in found.items():
        assert each.distance == pytest.approx(-1 / (ratio * temperature), rel=1e-9)
        assert each.level / each.temperature == pytest.approx(each.distance, rel=1e-9)
    for each in (found[1.0], fit_likelihood(held_out)):  # both are true of the items that were asked for
        levels = cohort_levels(held_out.cohort, held_out.n_cohort, each.temperature)
        near = held_out.nearest(10, np.arange(0, 100, 2))
        stated = reliability.posterior(each.log_ratios(near.distances, levels[:, None]), 0.5 / 50)
        assert stated.sum() == pytest.approx(near.partner.sum(), rel=0.1)


@pytest.mark.parametrize("seed", range(6))
def test_auroc_is_that_of_scikit_learn_with_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    truth = rng.random(60) < 0.3
    scores = np.round(rng.normal(size=60) + truth, seed % 3)
    assert auroc(scores, truth) == pytest.approx(roc_auc_score(truth, scores), abs=1e-12)


def test_auroc_of_one_kind_alone_is_that_of_chance() -> None:
    assert auroc([1.0, 2.0], [True, True]) == auroc([1.0], [False]) == 0.5


def test_bins_and_error_by_hand() -> None:
    bins = reliability.equal_bins([0.9, 0.1, 0.5, 0.3, 0.8], [True, False, True, False, False], 2)
    assert [b[2] for b in bins] == [3, 2]
    np.testing.assert_allclose(bins, [(0.3, 1 / 3, 3), (0.85, 0.5, 2)])
    assert reliability.expected_error(bins) == pytest.approx((3 * abs(0.3 - 1 / 3) + 2 * 0.35) / 5)
    assert len(reliability.equal_bins([0.2, 0.4], [True, False])) == 2
    assert reliability.expected_error([]) == 0.0


def test_reliability_equals_a_plain_computation_where_queries_judge_each_other() -> None:
    held_out = gaussian_distances(122, 300, 8, partner_at=0.9)
    held_out.items[[5, 6, 40], held_out.partners[[5, 6, 40]]] = 9.0  # farther than the nearest 32
    found = reliability.measure_reliability(held_out, "text", "image")
    teachers = [fit_likelihood(held_out.take(slice(1 - parity, None, 2))) for parity in (0, 1)]
    items = held_out.nearest(32)
    assert not items.partner[[5, 6, 40]].any()
    stated: list[float] = []
    true, best, smallest, matched = [], [], [], []
    for i in range(122):
        cohort = held_out.cohort[i : i + 1]
        level = cohort_levels(cohort, held_out.n_cohort, teachers[i % 2].temperature)[0]
        matched.append(i % 4 in (0, 1))
        there = [j for j in range(32) if matched[-1] or not items.partner[i, j]][:10]
        odds = [exp(teachers[i % 2].log_ratios(items.distances[i, j], level)) / 599 for j in there]
        stated += [each / (1 + sum(odds)) for each in odds]
        true += items.partner[i, there].tolist()
        best.append(sum(odds))
        smallest.append(-items.distances[i, there].min())
    order = sorted(range(1220), key=lambda hit: stated[hit])
    sizes = [82] * 5 + [81] * 10  # 1,220 hits in 15 bins
    for (probability, share, count), size in zip(found.bins, sizes, strict=True):
        part, order = order[:size], order[size:]
        assert count == size
        assert probability == pytest.approx(np.mean([stated[hit] for hit in part]), rel=1e-9)
        assert share == pytest.approx(np.mean([true[hit] for hit in part]), abs=1e-12)
    assert found[:2] == ("text", "image")
    assert found.error == pytest.approx(sum(c * abs(p - s) for p, s, c in found.bins) / 1220)
    assert found.match_auroc == pytest.approx(roc_auc_score(matched, best))
    assert found.distance_auroc == pytest.approx(roc_auc_score(matched, smallest))
    assert found.match_auroc > found.distance_auroc + 0.05  # levels differ, and the ratio knows them


def test_the_label_of_a_query_says_nothing_of_its_own_probability() -> None:
    held_out = gaussian_distances(60, 80, 9)
    before = reliability._cross_fit(held_out, held_out.nearest(32))
    held_out.partners[4] = (held_out.partners[4] + 40) % 80
    after = reliability._cross_fit(held_out, held_out.nearest(32))
    np.testing.assert_array_equal(after[0::2], before[0::2])
    assert (after[1::2] != before[1::2]).all()


@pytest.mark.parametrize("n", [1, 2, 3])
def test_reliability_of_few_queries_is_no_error(n: int) -> None:
    found = reliability.measure_reliability(gaussian_distances(n, 2, 0), "image", "text")
    assert np.isfinite(found[3:]).all()


# Intervals


@pytest.mark.parametrize("n", [1, 2, 3, 8, 20, 31])
def test_intervals_are_percentiles_of_resamples(n: int) -> None:
    values = np.round(np.random.default_rng(n).normal(size=n), 1)
    bootstrap = Bootstrap(n, np.random.default_rng(5))
    counts = np.random.default_rng(5).multinomial(n, [1 / n] * n, size=1000)
    resamples = [np.repeat(values, each) for each in counts]
    medians = [sorted(each)[(n - 1) // 2] for each in resamples]
    for found, value, each in (
        (bootstrap.mean(values), values.mean(), [r.mean() for r in resamples]),
        (bootstrap.median(values), sorted(values)[(n - 1) // 2], medians),
    ):
        np.testing.assert_allclose(found, [value, *np.percentile(each, [2.5, 97.5])], atol=1e-12)
    assert bootstrap.mean(values) == Bootstrap(n, np.random.default_rng(5)).mean(values)


def test_intervals_cover_the_truth() -> None:
    rng = np.random.default_rng(0)
    covered = np.zeros(2)
    for _ in range(150):
        bootstrap, values = Bootstrap(80, rng), rng.exponential(size=80)
        for place, (found, truth) in enumerate(
            [(bootstrap.mean(values < 0.5), 1 - np.exp(-0.5)), (bootstrap.median(values), np.log(2))]
        ):
            covered[place] += found.low <= truth <= found.high
    assert (covered / 150 > 0.88).all()
    assert (covered / 150 < 1.0).all()


# Simpler systems


def spread_points(n: int, seed: int, width: int = 7) -> np.ndarray:
    scales = np.array([3, 0.2, 1, 2, 0.5, 1.5, 0.7])[:width]
    return (np.random.default_rng(seed).normal(size=(n, width)) * scales).astype(np.float32)


@pytest.mark.parametrize("n_dims", [1, 2, 5, 7, 16])
@pytest.mark.parametrize("n_parts", [1, 2, 3, 5])
def test_dealt_dimensions_are_a_partition(n_dims: int, n_parts: int) -> None:
    variances = np.random.default_rng(0).random(n_dims)
    parts = [part[part >= 0].tolist() for part in deal_dimensions(variances, n_parts)]
    assert len(parts) == min(n_parts, n_dims)
    assert sorted(sum(parts, [])) == list(range(n_dims))
    assert max(map(len, parts)) - min(map(len, parts)) <= 1


def test_product_codes_stand_for_the_nearest_words_of_each_part() -> None:
    train, items = spread_points(600, 0), spread_points(40, 1)
    with Workers(1) as workers:
        found = baselines.product_quantize(train, items, 3, np.random.default_rng(2), workers)
        rng, expected = np.random.default_rng(2), np.empty_like(items)
        for dims in ([0, 1, 4], [3, 6], [2, 5]):  # by variance 0 3 5 | 2 6 4 backwards | 1
            words = kmeans(np.ascontiguousarray(train[:, dims]), 256, rng, workers)
            for i, item in enumerate(items[:, dims]):
                expected[i, dims] = words[((words - item) ** 2).sum(axis=1).argmin()]
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("n_bytes", [1, 2, 3])
def test_residual_codes_are_sums_of_words_and_no_worse_than_greedy_ones(n_bytes: int) -> None:
    train, items = spread_points(600, 0), spread_points(40, 1)
    with Workers(1) as workers:
        found = baselines.residual_quantize(train, items, n_bytes, np.random.default_rng(2), workers)
        words = beam_codebooks(train, n_bytes, np.random.default_rng(2), workers)
    rest = items.astype(float)
    for book in words:
        rest -= book[((rest[:, None] - book) ** 2).sum(axis=2).argmin(axis=1)]
    own, greedy = ((items - found) ** 2).sum(axis=1), (rest**2).sum(axis=1)
    assert own.mean() <= greedy.mean() * (1 + 1e-5)
    if n_bytes == 1:
        np.testing.assert_allclose(own, greedy, atol=1e-4)
    if n_bytes == 2:
        sums = (words[0][:, None] + words[1]).reshape(-1, 7)
        for item, row in zip(items, found, strict=True):
            assert ((sums - row) ** 2).sum(axis=1).min() < 1e-8
            assert ((sums - item) ** 2).sum(axis=1).min() <= ((row - item) ** 2).sum() + 1e-5


@pytest.mark.parametrize("quantize", [baselines.product_quantize, baselines.residual_quantize])
def test_more_bytes_are_nearer_and_few_points_are_kept_whole(quantize: Any) -> None:
    train, items = spread_points(600, 0), spread_points(200, 1)
    with Workers(1) as workers:
        errors = [
            ((items - quantize(train, items, n, np.random.default_rng(0), workers)) ** 2).mean()
            for n in (1, 2, 4, 7, 9)
        ]
        few = quantize(train[:50], train[:50], 1, np.random.default_rng(0), workers)
    assert items.var() > 3 * errors[0] > 6 * errors[1] > 12 * errors[2]
    assert errors[2] >= (1 - 1e-4) * errors[3]
    # More than one byte for each dimension: products have no use for them.
    assert errors[4] <= errors[3] * (1 + 1e-4)
    assert quantize is baselines.residual_quantize or errors[4] == pytest.approx(errors[3], rel=1e-4)
    np.testing.assert_allclose(few, train[:50], atol=1e-5)


# Other sizes


@pytest.mark.parametrize("size", range(1, 9))
def test_recall_among_fewer_items_is_that_of_all_subsets(size: int) -> None:
    for rank in range(8):  # strangers 0 … rank - 1 are nearer
        subsets = list(combinations(range(7), size - 1))
        share = np.mean([sum(stranger < rank for stranger in each) < 3 for each in subsets])
        assert expected_recall(np.array([rank]), 8, [size], depth=3)[0] == pytest.approx(share, abs=1e-12)
    mixed = np.array([0, 0, 5, 7])
    each = [expected_recall(np.array([rank]), 8, [size], depth=3)[0] for rank in mixed]
    assert expected_recall(mixed, 8, [size], depth=3)[0] == pytest.approx(np.mean(each))


def ranks_in_parts(n_dims: int, noise: float) -> tuple[list[np.ndarray], float]:
    """Gaussian pairs: ranks of partners within ten parts of 500, and recall@10 among all 5,000."""
    rng = np.random.default_rng(0)
    items = rng.normal(size=(5000, n_dims)).astype(np.float32)
    queries = items + noise * rng.normal(size=items.shape).astype(np.float32)
    seen, truth = [], []
    for start in range(0, 5000, 500):
        mine = slice(start, start + 500)
        gaps = (items**2).sum(axis=1) - 2 * queries[mine] @ items.T
        own = gaps[np.arange(500), np.arange(start, start + 500)][:, None]
        seen.append((gaps[:, mine] < own).sum(axis=1))
        truth.append(((gaps < own).sum(axis=1) < 10).mean())
    return seen, float(np.mean(truth))


EASY_TO_HARD = [(64, 0.6), (16, 0.6), (6, 0.35), (16, 0.9), (6, 0.6), (6, 0.9), (16, 1.5), (6, 1.5)]


@pytest.mark.parametrize(("n_dims", "noise"), EASY_TO_HARD)
def test_recall_in_a_larger_index_meets_what_was_seen_falls_and_is_near_the_truth(
    n_dims: int, noise: float
) -> None:
    seen, truth = ranks_in_parts(n_dims, noise)
    sizes = (50, 200, 500, 1000, 2000, 5000, 50_000)
    curve = np.array([expected_recall(ranks, 500, sizes) for ranks in seen])
    np.testing.assert_allclose(curve[:, 2], [(ranks < 10).mean() for ranks in seen])
    assert (np.diff(curve, axis=1) <= 1e-9).all()
    assert curve[:, 5].mean() == pytest.approx(truth, abs=0.02)
    if noise >= 0.9 and n_dims == 6:
        assert curve[:, 2].mean() - truth > 0.15  # there is something to tell


def test_partners_that_come_last_are_no_error() -> None:
    assert expected_recall(np.full(2000, 1999), 2000, [4000])[0] == 0.0
    assert 0.0 <= expected_recall(np.array([0, *[1999] * 1999]), 2000, [4000])[0] <= 1 / 2000


# All together: the report


class Watched:
    """A model that was calibrated while somebody noted what its refits were shown."""

    def __init__(self, pairs: tuple[np.ndarray, ...], curve: tuple[int, ...], **changes: Any) -> None:
        self.samples: list[tuple[Any, ...]] = []
        self.model = CMCQ(**settings(**changes)).fit(*pairs)
        original = HeldOutSample.one_sided

        def spy(*args: Any) -> Any:
            self.samples.append(args)
            return original(*args)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(HeldOutSample, "one_sided", spy)
            self.model.calibrate(*pairs, curve=curve)

    def refit(self, place: int = 0) -> CMCQ:
        refit = CMCQ.from_bytes(self.model.to_bytes())
        refit._learned = self.samples[place][0]
        return refit

    def held(self, place: int = 0) -> tuple[Any, Any]:
        return self.samples[place][1:3]


def ranks_of(distances: np.ndarray) -> list[int]:
    """How many come before item i for query i; equal ones by their place."""
    return [
        sorted(range(len(row)), key=lambda j, row=row: (row[j], j)).index(i)
        for i, row in enumerate(np.asarray(distances))
    ]


@cache
def watched() -> Watched:
    return Watched(drawn(400, 3)[:2], (1, 2), n_components=6)


def test_the_report_says_what_the_refit_finds_among_pairs_it_has_not_seen() -> None:
    refit, (images, texts), report = watched().refit(), watched().held(), watched().model.report_
    all_images = drawn(400, 3)[0]
    unseen = [np.flatnonzero((all_images == image).all(axis=1))[0] for image in images]
    assert len(set(unseen)) == report.n_held_out == 40
    assert (report.n_pairs, report.n_bytes, report.n_components, report.mapping) == (400, 2, 6, "cca")
    refitted = CMCQ(**settings(n_components=6)).fit(*(np.delete(x, unseen, 0) for x in drawn(400, 3)[:2]))
    np.testing.assert_allclose(  # the space has no chance in it: it was learned from the other 360 rows
        np.abs(refit.transform_texts(texts)), np.abs(refitted.transform_texts(texts)), rtol=1e-3, atol=1e-4
    )
    points = refit.transform_images(images), refit.transform_texts(texts)
    gaps = ((points[0][:, None] - points[1]) ** 2).sum(axis=2)
    ranks = {
        ("crossbyte", 0): ranks_of(refit.distances(images=images, text_codes=refit.encode_texts(texts))),
        ("crossbyte", 1): ranks_of(refit.distances(texts=texts, image_codes=refit.encode_images(images))),
        ("uncompressed", 0): ranks_of(gaps),
        ("uncompressed", 1): ranks_of(gaps.T),
    }
    for (name, place), found in ranks.items():
        scores = report.system(name).directions[DIRECTIONS[place]]
        for depth in (1, 10, 100):
            assert scores.recall[depth].value == np.mean([rank < depth for rank in found])
        assert scores.median_rank.value == sorted(found)[19] + 1
    assert ranks["crossbyte", 0] != ranks["crossbyte", 1]
    assert 0.3 < report.recall() < 1  # neither chance nor certainty


def test_gains_bytes_and_curve_agree_with_the_systems() -> None:
    report = watched().model.report_
    own, *others, last = report.systems
    assert [each.name for each in report.systems] == [
        "crossbyte",
        "uncompressed",
        "cca_pq",
        "cca_rq",
        "chance",
    ]
    assert [each.n_bytes for each in report.systems] == [2, 24, 2, 2, None]
    assert last == score_chance(40)
    assert set(report.gains) == {each.name for each in others}
    for each in others:
        assert report.gains[each.name].value == pytest.approx(own.recall() - each.recall(), abs=1e-12)
    for each in report.systems:
        for scores in each.directions.values():
            for value, low, high in (*scores.recall.values(), scores.median_rank):
                assert low <= value <= high
    assert [point.n_bytes for point in report.curve] == [1, 2]
    assert report.n_curve_pairs == 400
    for name, by in report.curve[1].recall.items():
        assert by == {way: report.system(name).directions[way].recall[10] for way in DIRECTIONS}
    one = watched().refit(1).partner_ranks(*watched().held(1))
    assert [point.recall_at(40) for point in report.curve] == pytest.approx([one.recall(), report.recall()])
    assert [report.curve[0].recall["crossbyte"][way].value for way in DIRECTIONS] == [
        (ranks < 10).mean() for ranks in one
    ]


def test_chance_is_exact() -> None:
    for n in (1, 7, 40, 250):
        for scores in score_chance(n).directions.values():
            shares = [min(1.0, k / n) for k in (1, 10, 100)]
            assert [each.value for each in scores.recall.values()] == pytest.approx(shares, abs=1e-15)
            assert all(each.low == each.value == each.high for each in scores.recall.values())
            assert scores.median_rank == ((n + 1) // 2,) * 3


def test_report_and_calibration_do_not_depend_on_threads_and_survive_the_file(tmp_path: Path) -> None:
    model = watched().model
    again = Watched(drawn(400, 3)[:2], (1, 2), n_components=6, n_jobs=2).model
    assert again.to_bytes() == model.to_bytes()
    model.save(tmp_path / "m.cbm")
    loaded = CMCQ.load(tmp_path / "m.cbm")
    assert (loaded.report_, loaded.calibration_) == (model.report_, model.calibration_)
    assert loaded.calibration_.likelihoods
    assert loaded.to_bytes() == model.to_bytes() == (tmp_path / "m.cbm").read_bytes()


def line(*values: Any) -> Callable[[Any], Any]:
    return lambda _: [list(values)]


SPOILT: dict[str, Callable[[Any], Any]] = {
    "a number": lambda _: 3,
    "numbers": lambda _: [1, 2],
    "text": lambda _: "none",
    "one twice": lambda found: found * 2,
    "an unknown query": line("sound", "image", "image", 0.1, -1.0, 1.0),
    "an unknown target": line("text", "sound", "image", 0.1, -1.0, 1.0),
    "an unknown coding": line("text", "image", "sound", 0.1, -1.0, 1.0),
    "a missing number": line("text", "image", "image", 0.1, -1.0),
    "one number more": line("text", "image", "image", 0.1, -1.0, 1.0, 0.0, 0.0),
    "a temperature below zero": line("text", "image", "image", 0.1, -1.0, 1.0, -0.5),
    "text for a number": line("text", "image", "image", 0.1, "-1.0", 1.0),
    "true for a number": line("text", "image", "image", True, -1.0, 1.0),
    "nothing for a number": line("text", "image", "image", 0.1, None, 1.0),
    "a huge integer": line("text", "image", "image", 0.1, -(10**400), 1.0),
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT.keys())
def test_whole_files_with_senseless_likelihoods_are_refused_as_damaged(change: Any) -> None:
    contents = parse_model_bytes(watched().model.to_bytes(), "model")
    calibration = contents.document["calibration"]
    assert len(calibration["likelihoods"]) == 2
    calibration["likelihoods"] = change(calibration["likelihoods"])
    with pytest.raises(DamagedModelFile, match=r"^spoilt.cbm: the calibration"):
        CMCQ.from_bytes(model_bytes(contents.arrays, contents.document), "spoilt.cbm")


# Which likelihoods there are


def test_without_groups_only_the_other_side_is_known() -> None:
    assert set(plain_model().calibration_.likelihoods) == {
        ("image", "text", "text"),
        ("text", "image", "image"),
    }


def plain_held_out(
    model: CMCQ, codes: dict[str, np.ndarray], texts: np.ndarray, target: str, distances: Any
) -> HeldOutDistances:
    """Distances of texts to their partners and to the cohort, all training documents, by plain sums."""
    sides = ["image", "text"] if target == "document" else [target]
    total = sum(model.distances(texts=texts, **{f"{side}_codes": codes[side]}) for side in sides)
    near = np.sort(np.asarray(total), axis=1)[:, 1 : len(codes["image"]) // 8]
    return HeldOutDistances(np.asarray(distances), np.arange(len(texts)), near, len(codes["image"]))


def test_likelihoods_are_those_of_one_sided_partners() -> None:
    refit, (images, texts) = watched().refit(), watched().held()
    codes = {"image": refit.image_codes_, "text": refit.text_codes_}
    distances = refit.distances(texts=texts, image_codes=refit.encode_images(images))
    expected = fit_likelihood(plain_held_out(refit, codes, texts, "image", distances))
    found = watched().model.calibration_.likelihoods["text", "image", "image"]
    np.testing.assert_allclose(found, expected, atol=2e-3, rtol=2e-3)


@cache
def watched_groups() -> Watched:
    return Watched(drawn(600, 1, 3), (), correlation=3.0)


def test_texts_of_one_picture_show_partners_among_pairs_but_the_picture_itself_does_not() -> None:
    known = set(watched_groups().model.calibration_.likelihoods)
    assert known == {
        *(("image", "text", "text"), ("text", "image", "image"), ("text", "text", "text")),
        *(("text", "image", "pair"), ("text", "text", "pair"), ("text", "document", "pair")),
    }


@pytest.mark.parametrize("target", ["image", "text", "document"])
def test_ratios_of_pairs_come_from_another_text_of_the_group(target: str) -> None:
    refit, texts = watched_groups().refit(), watched_groups().held(0)[1]
    other_images, other_texts = watched_groups().held(1)
    assert (texts != other_texts).any(axis=1).all()
    learned = {}
    for name, pairs in {"own": watched_groups().held(0), "other": (other_images, other_texts)}.items():
        coded = dict(zip(("image", "text"), refit.encode_pairs(*pairs), strict=True))
        sides = coded if target == "document" else [target]
        parts = [refit.distances(texts=texts, **{f"{side}_codes": coded[side]}) for side in sides]
        codes = {"image": refit.image_codes_, "text": refit.text_codes_}
        learned[name] = fit_likelihood(plain_held_out(refit, codes, texts, target, sum(parts)))
    found = watched_groups().model.calibration_.likelihoods["text", target, "pair"]
    np.testing.assert_allclose(found, learned["other"], atol=5e-3, rtol=5e-3)
    assert not np.allclose(found, learned["own"], atol=0.02, rtol=0.02)


def test_few_groups_with_a_second_row_teach_nothing() -> None:
    images, texts, groups = drawn(200, 1, 2)
    known = CMCQ(**settings(n_bits=8)).fit(images, texts, groups).calibrate(images, texts, groups, curve=())
    assert len(known.calibration_.likelihoods) == 2


def test_an_old_file_without_likelihoods_is_as_it_was() -> None:
    model = CMCQ.load(GOLDEN / "calibrated.cbm")
    assert model.calibration_.likelihoods == {}
    assert not model.calibration_.knows("text", "image", "image")
