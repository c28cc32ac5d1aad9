"""Scores with ties, against cases worked out by hand, all orders, naive loops, and ir-measures."""

from __future__ import annotations

import json
from fractions import Fraction
from functools import partial
from typing import Any

import ir_measures
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, Success
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput, NotFinite
from crossbyte.metrics.average_precision import (
    RECALL_LEVELS,
    _hypergeometric,
    expected_average_precision,
    expected_average_precision_all,
    expected_precision,
    expected_precision_recall_curve,
    mean_average_precision,
)
from crossbyte.metrics.chance import chance_mean_average_precision, chance_recall
from crossbyte.metrics.ranks import (
    expected_partner_recall,
    nearest_ties_by_column,
    partner_places,
    partner_ranks_ties_by_column,
    recall_at,
)
from crossbyte.metrics.scorer import Scorer, expected_chance_scores
from crossbyte.metrics.ties import order_keys, rank_all_tied, rank_with_ties
from support import naive_metrics as naive

KEYS = {
    *("map@50", "map@100", "map@all", "map@50/recall", "map@100/recall", "precision_curve", "pr_curve"),
    *(f"precision@{depth}" for depth in (1, 10, 50, 100, 500, 1000)),
}
RECALLS = {f"recall@{depth}" for depth in (1, 5, 10, 50, 100)}


def one(distances: list[float], relevant: list[int], depth: int | None = None) -> Any:
    return rank_with_ties(np.float32([distances]), np.array([relevant], bool), depth)


def tied_block(
    seed: int, n: int, n_items: int, n_values: int, share: float = 0.3, scale: float = 1.0
) -> tuple[NDArray[np.float32], NDArray[np.bool_], NDArray[np.int64]]:
    """Random distances of few values, whole ones if the scale is one; relevance; partners."""
    rng = np.random.default_rng(seed)
    distances = (rng.integers(n_values, size=(n, n_items)) * scale).astype(np.float32)
    return distances, rng.random((n, n_items)) < share, rng.integers(n_items, size=n)


# By hand


def test_a_ranking_without_ties_is_the_ordinary_average_precision() -> None:
    # hits at places 1 and 3 of 4; a third relevant item at place 4
    found = one([0.1, 0.2, 0.3, 0.4], [1, 0, 1, 1])
    assert expected_average_precision(found, 3) == pytest.approx((1 + 2 / 3) / 2)
    assert expected_average_precision(found, 3, "recall") == pytest.approx((1 + 2 / 3) / 3)
    assert expected_average_precision(found, 2, "recall") == pytest.approx(1 / 2)  # min(T, relevant) is T
    assert expected_average_precision_all(found) == pytest.approx((1 + 2 / 3 + 3 / 4) / 3)


def test_a_complete_tie_by_hand() -> None:
    # first a hit, then a tie of one hit and one miss: hit second (1 + 2/2)/2 = 1, or third (1 + 2/3)/2 = 5/6
    found = one([0, 1, 1], [1, 1, 0])
    assert expected_average_precision(found, 3) == pytest.approx((1 + 5 / 6) / 2)
    assert expected_precision(found, [1, 2, 3])[0] == pytest.approx([1, 3 / 4, 2 / 3])


def test_a_tie_cut_by_the_depth_by_hand() -> None:
    # hit, then a tie of two hits and one miss, cut after one of the three. Inside is a hit with
    # probability 2/3: (1 + 2/2)/2 = 1; or the miss: 1/1 = 1
    assert expected_average_precision(one([0, 1, 1, 1], [1, 1, 1, 0]), 2) == pytest.approx(1.0)
    # miss, then the same: hit (1/2)/1 with probability 2/3, nothing with 1/3
    found = one([0, 1, 1, 1], [0, 1, 1, 0])
    assert expected_average_precision(found, 2) == pytest.approx(1 / 3)
    assert expected_average_precision(found, 2, "recall") == pytest.approx(1 / 6)  # of min(2, 2)
    # hit, miss, then a tie of one hit and three misses, cut after one of the four: with probability 1/4
    # (1 + 2/3)/2 = 5/6, with 3/4 1/1. Numerator and denominator expected apart would give
    # (1 + 1/4 · 2/3)/(1 + 1/4) = 14/15 in the place of 23/24
    found = one([0, 1, 2, 2, 2, 2], [1, 0, 0, 1, 0, 0])
    assert expected_average_precision(found, 3) == pytest.approx(23 / 24)


def test_precision_and_recall_swept_by_hand() -> None:
    # hit, then a tie of one hit and three misses. Expected hits 1, 5/4, 6/4, 7/4, 2 of 2: recall 0.5 at the
    # first place, up to 0.625 at the second, 0.75 at the third, 0.875 at the fourth, 1 at the fifth
    curve = expected_precision_recall_curve(one([0, 1, 1, 1, 1], [1, 1, 0, 0, 0]))
    at = dict(zip(RECALL_LEVELS, curve, strict=True))
    assert [at[level] for level in (0.0, 0.25, 0.5)] == [1, 1, 1]
    assert [at[level] for level in (0.55, 0.6)] == pytest.approx([5 / 8, 5 / 8])
    assert [at[level] for level in (0.65, 0.75)] == pytest.approx([1 / 2, 1 / 2])
    assert [at[level] for level in (0.8, 0.85)] == pytest.approx([7 / 16, 7 / 16])
    assert [at[level] for level in (0.9, 1.0)] == pytest.approx([2 / 5, 2 / 5])


def test_partners_by_hand() -> None:
    # one item nearer, the partner ties with two others: at place 2, 3 or 4
    places = partner_places(np.float32([[1, 0, 1, 1, 2]]), [2])
    assert expected_partner_recall(places, [1, 2, 3, 4, 9])[0] == pytest.approx([0, 1 / 3, 2 / 3, 1, 1])
    assert places.expected_rank == pytest.approx([2.0])
    # two of the three tied items are partners: the first of them is at place 2 or 3, never 4; missed at
    # place 2 with probability 1/3. A third partner, farther, does not matter
    for partners in (
        np.array([[2, 0]], np.uint8),
        [[0, 2]],
        [[2, 0]],
        [[0, 2, 4]],
        [[0, 2, 2, 0]],
        [[True, False, True, False, False]],
    ):
        places = partner_places(np.float32([[1, 0, 1, 1, 2]]), np.array(partners))
        assert expected_partner_recall(places, [1, 2, 3, 4])[0] == pytest.approx([0, 2 / 3, 1, 1])
        assert places.expected_rank == pytest.approx([1 + 1 / 3])


def test_a_query_without_a_relevant_item_scores_zero_and_counts() -> None:
    scorer = Scorer(3)
    scorer.add(np.float32([[0, 1, 1], [0, 1, 1]]), np.array([[True, True, False], [False] * 3]))
    scores = scorer.scores()
    assert scores["map@50"] == pytest.approx((11 / 12 + 0) / 2)
    assert scores["precision@1"] == 0.5
    assert scores["pr_curve"]["precision"][0] == 0.5
    assert scores["pr_curve"]["precision"][-1] == pytest.approx((2 / 3) / 2)  # its recall is not counted
    assert scorer.per_query()["ap@50"] == pytest.approx([11 / 12, 0])


def test_nothing_relevant_to_anybody() -> None:
    scorer = Scorer(3)
    scorer.add(np.float32([[0, 1, 1]]), np.zeros((1, 3), bool))
    scores, chance = scorer.scores(), scorer.chance()
    assert scores["map@50"] == scores["map@all"] == scores["precision@1"] == 0.0
    assert scores["pr_curve"]["precision"] == [0.0] * 21
    assert chance["map@50"] == 0.0


# Against all orders


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6), st.integers(1, 6))
def test_scores_are_means_over_all_orders(items: list[tuple[int, bool]], depth: int) -> None:
    distances, relevant = [item[0] for item in items], [item[1] for item in items]
    found, mean = one([1.5 * d for d in distances], relevant), partial(naive.expected, distances, relevant)
    assert expected_average_precision(found, depth)[0] == pytest.approx(
        float(mean(lambda hits: naive.ap_retrieved(hits, depth)))
    )
    assert expected_average_precision(found, depth, "recall")[0] == pytest.approx(
        float(mean(lambda hits: naive.ap_recall(hits, depth)))
    )
    assert expected_average_precision_all(found)[0] == pytest.approx(
        float(mean(lambda hits: naive.ap_recall(hits, len(items))))
    )
    if depth <= len(items):
        wanted = mean(lambda hits: naive.precision(hits, depth))
        assert expected_precision(found, [depth])[0, 0] == pytest.approx(float(wanted))
    if any(relevant):
        places = partner_places([distances], [relevant])
        wanted = mean(lambda hits: naive.any_found(hits, depth))
        assert expected_partner_recall(places, [depth])[0, 0] == pytest.approx(float(wanted))
        assert places.expected_rank[0] == pytest.approx(float(mean(naive.first_rank)))


def test_the_loops_are_means_over_all_orders() -> None:
    """The naive half that serves for more items, against the half that defines what is right."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        distances, relevant = rng.integers(3, size=6).tolist(), (rng.random(6) < 0.5).tolist()
        groups = naive.tied_groups(distances, relevant)
        for depth in range(1, 7):
            mean = partial(naive.expected, distances, relevant)
            assert naive.tied_ap(groups, depth, "retrieved") == pytest.approx(
                float(mean(lambda hits, depth=depth: naive.ap_retrieved(hits, depth)))
            )
            assert naive.tied_ap(groups, depth, "recall") == pytest.approx(
                float(mean(lambda hits, depth=depth: naive.ap_recall(hits, depth)))
            )
            wanted = mean(lambda hits, depth=depth: naive.precision(hits, depth))
            assert naive.tied_hits(groups, depth) == pytest.approx(float(wanted * depth))


# Against loops


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    flat = found | {"precision_curve": found["precision_curve"]["values"]}
    flat["pr_curve"] = found["pr_curve"]["precision"]
    assert set(flat) == set(wanted)
    for name, value in wanted.items():
        assert flat[name] == pytest.approx(value, rel=1e-11, abs=1e-12), name


@pytest.mark.parametrize(
    ("n", "n_items", "n_values", "share", "scale"),
    [
        (300, 130, 9, 0.3, 1.0),  # counted
        (300, 130, 9, 0.3, 0.1),  # sorted
        (300, 130, 60, 0.05, 0.1),  # few ties, few relevant
        (100, 40, 3, 0.5, 1.0),  # fewer items than depths
        (100, 60, 1, 0.2, 0.1),  # everything tied
        (50, 1200, 33, 0.1, 1.0),  # deep
        (50, 1200, 10**6, 0.1, 0.1),  # hardly a tie
        (30, 7, 100, 0.9, 1.0),  # more values than items
    ],
)
def test_1230_random_rankings_agree_with_loops(
    n: int, n_items: int, n_values: int, share: float, scale: float
) -> None:
    distances, relevant, partners = tied_block(n_items + n_values, n, n_items, n_values, share, scale)
    relevant[0] = False
    scorer = Scorer(n_items, partners=True)
    scorer.add(distances[: n // 3], relevant[: n // 3], partners[: n // 3])
    scorer.add(distances[n // 3 :], relevant[n // 3 :], partners[n // 3 :])
    wanted = naive.all_scores(distances.tolist(), relevant.tolist(), partners.tolist())
    assert_same(scorer.scores(), wanted)


@pytest.mark.parametrize("scale", [1.0, 0.1])
@pytest.mark.parametrize("depth", [1, 7, 50, 129, 130, 131])
def test_ranked_to_a_depth_is_ranked_to_the_end(depth: int, scale: float) -> None:
    distances, relevant, _ = tied_block(1, 60, 130, 12, scale=scale)
    near, whole = rank_with_ties(distances, relevant, depth), rank_with_ties(distances, relevant)
    np.testing.assert_array_equal(
        expected_average_precision(near, depth), expected_average_precision(whole, depth)
    )
    np.testing.assert_array_equal(
        expected_average_precision(near, depth, "recall"), expected_average_precision(whole, depth, "recall")
    )
    depths = [place for place in (1, 5, depth) if place <= min(depth, 130)]
    np.testing.assert_array_equal(expected_precision(near, depths), expected_precision(whole, depths))


def test_a_tie_larger_than_the_factorials_of_floats() -> None:
    # 60,000 tied items, a third relevant, cut at 500: C(60000, 500) is far beyond a float
    found = rank_all_tied([20_000], 60_000)
    k, probability = _hypergeometric(*(np.array([[value]]) for value in (60_000, 20_000, 500)))
    assert probability.sum() == pytest.approx(1)
    assert (k * probability).sum() == pytest.approx(500 / 3)
    assert expected_average_precision(found, 500)[0] == pytest.approx(
        chance_mean_average_precision([1 / 3], 500, 60_000), rel=1e-12
    )
    # behind 10 items with 4 hits
    groups = [(1, 1), (5, 0), (4, 3), (60_000, 20_000)]
    distances = np.repeat([0, 1, 2, 3], [size for size, _ in groups]).astype(np.float32)[None]
    relevant = np.concatenate([np.arange(size) < hits for size, hits in groups])[None]
    wanted = naive.tied_ap(groups, 500, "retrieved")
    assert expected_average_precision(rank_with_ties(distances, relevant), 500)[0] == pytest.approx(
        wanted, rel=1e-12
    )


# Against ir-measures, where they mean the same


def ir_scores(distances: NDArray[Any], marked: NDArray[np.bool_], measures: list[Any]) -> dict[Any, Any]:
    """Values by measure and query; ir-measures wants the larger score first, and text for names."""
    run = [
        ir_measures.ScoredDoc(str(q), str(d), -float(value))
        for q, row in enumerate(distances)
        for d, value in enumerate(row)
    ]
    judged = [
        ir_measures.Qrel(str(q), str(d), int(mark))
        for q, row in enumerate(marked)
        for d, mark in enumerate(row)
    ]
    found = list(ir_measures.iter_calc(measures, judged, run))
    return {(str(metric.measure), int(metric.query_id)): metric.value for metric in found}


@pytest.fixture(scope="module")
def untied() -> tuple[NDArray[np.float32], NDArray[np.bool_]]:
    rng = np.random.default_rng(5)
    distances = np.array([rng.permutation(150) for _ in range(25)], np.float32) / 7
    relevant = rng.random((25, 150)) < rng.uniform(0.02, 0.5, size=(25, 1))
    relevant[:, 0] = True  # ir-measures leaves out queries without a relevant item
    return distances, relevant


def test_average_precision_and_precision_agree_with_ir_measures(
    untied: tuple[NDArray[np.float32], NDArray[np.bool_]],
) -> None:
    distances, relevant = untied
    theirs = ir_scores(distances, relevant, [AP, P @ 1, P @ 10, P @ 50, P @ 100])
    found = rank_with_ties(distances, relevant)
    own = {"AP": expected_average_precision_all(found)}
    own |= {f"P@{k}": expected_precision(found, [k])[:, 0] for k in (1, 10, 50, 100)}
    for name, values in own.items():
        assert values == pytest.approx([theirs[name, query] for query in range(25)], abs=1e-9), name


def test_recall_denominator_agrees_where_all_relevant_items_fit(
    untied: tuple[NDArray[np.float32], NDArray[np.bool_]],
) -> None:
    # ir-measures divides AP@T by all relevant items, we by min(T, relevant): the same for few of them
    distances, relevant = untied
    theirs = ir_scores(distances, relevant, [AP @ 50, AP @ 100])
    few = np.flatnonzero(relevant.sum(axis=1) <= 50)
    assert len(few) > 10
    for depth in (50, 100):
        own = expected_average_precision(rank_with_ties(distances, relevant), depth, "recall")
        wanted = [theirs[f"AP@{depth}", query] for query in range(25)]
        assert own[few] == pytest.approx([wanted[query] for query in few], abs=1e-9)
        scale = relevant.sum(axis=1) / np.minimum(relevant.sum(axis=1), depth)
        assert own == pytest.approx(wanted * scale, abs=1e-9)  # and for many after a change of denominators


def test_recall_of_partners_agrees_with_ir_measures(
    untied: tuple[NDArray[np.float32], NDArray[np.bool_]],
) -> None:
    distances, relevant = untied
    partner = np.random.default_rng(0).integers(150, size=25)
    single = np.arange(150) == partner[:, None]
    for marks, given_as in ((single, partner), (relevant, relevant)):
        theirs = ir_scores(distances, marks, [RR, *(Success @ k for k in (1, 5, 10, 50, 100))])
        places = partner_places(distances, given_as)
        recalls = expected_partner_recall(places, [1, 5, 10, 50, 100])
        for k, values in zip((1, 5, 10, 50, 100), recalls.T, strict=True):
            assert values.tolist() == [theirs[f"Success@{k}", query] for query in range(25)]
        reciprocal = 1 / (1 + places.expected_rank)
        assert reciprocal == pytest.approx([theirs["RR", query] for query in range(25)], abs=1e-9)


def test_the_sweep_agrees_with_precision_and_recall_of_ir_measures(
    untied: tuple[NDArray[np.float32], NDArray[np.bool_]],
) -> None:
    distances, relevant = untied
    depths = range(1, 151)
    theirs = ir_scores(distances, relevant, [*(P @ k for k in depths), *(R @ k for k in depths)])
    mean = {
        name: np.array([np.mean([theirs[f"{name}@{k}", q] for q in range(25)]) for k in depths])
        for name in "PR"
    }
    wanted = [mean["P"][np.argmax(mean["R"] >= level - 1e-9)] for level in RECALL_LEVELS]
    assert expected_precision_recall_curve(rank_with_ties(distances, relevant)) == pytest.approx(
        wanted, abs=1e-9
    )


def test_without_ties_agrees_with_the_older_scores(
    untied: tuple[NDArray[np.float32], NDArray[np.bool_]],
) -> None:
    distances, relevant = untied
    found = np.take_along_axis(relevant, nearest_ties_by_column(distances, 50), axis=1)
    scores = expected_average_precision(rank_with_ties(distances, relevant, 50), 50)
    assert scores.mean() == pytest.approx(mean_average_precision(found, 50))
    partner = np.arange(25)
    places = partner_places(distances, partner)
    ranks = partner_ranks_ties_by_column(distances, partner)
    np.testing.assert_array_equal(places.expected_rank, ranks)
    assert expected_partner_recall(places, [10]).mean() == recall_at(ranks, 10)


# Chance


COUNTS = np.array([0, 1, 4, 30, 60])


def test_chance_has_the_keys_of_the_scores() -> None:
    distances, relevant, partners = tied_block(0, 20, 1500, 30)
    scorer = Scorer(1500, partners=True)
    scorer.add(distances, relevant, partners)
    assert set(scorer.scores()) == KEYS | RECALLS
    assert set(scorer.chance()) == set(expected_chance_scores([1], 1500, partners=True)) == KEYS | RECALLS
    assert set(expected_chance_scores([1], 1500)) == KEYS
    assert set(expected_chance_scores(None, 1500, True)) == RECALLS
    assert json.loads(json.dumps(scorer.scores())) == scorer.scores()


def test_chance_agrees_with_the_closed_forms() -> None:
    n_items, shares = 60, COUNTS / 60
    scores = expected_chance_scores(COUNTS, n_items, partners=True)
    assert scores["map@50"] == pytest.approx(chance_mean_average_precision(shares, 50, n_items))
    assert scores["map@100"] == pytest.approx(chance_mean_average_precision(shares, 60, n_items))
    harmonic = sum(1 / t for t in range(1, n_items + 1))
    aps = (harmonic + (COUNTS - 1) / (n_items - 1) * (n_items - harmonic)) / n_items
    assert scores["map@all"] == pytest.approx(np.mean(np.where(COUNTS > 0, aps, 0.0)))
    assert [scores[f"precision@{k}"] for k in (1, 10, 50)] == pytest.approx([shares.mean()] * 3)
    assert scores["precision_curve"]["values"] == pytest.approx([shares.mean()] * 8)
    assert scores["pr_curve"]["precision"] == pytest.approx([shares.mean()] * 21)
    assert [scores[f"recall@{k}"] for k in (1, 5, 10, 50, 100)] == pytest.approx(
        [1 / 60, 5 / 60, 10 / 60, 50 / 60, 1]
    )
    several = expected_chance_scores(None, n_items, partners=np.array([1, 5]))
    for k in (1, 5, 10, 50):
        wanted = (chance_recall(n_items, k) + chance_recall(n_items, k, 5)) / 2
        assert several[f"recall@{k}"] == pytest.approx(wanted)


def test_chance_is_what_random_rankings_score() -> None:
    rng = np.random.default_rng(1)
    counts = np.repeat([1, 4, 30], 2000)
    relevant = np.arange(60) < counts[:, None]
    distances = rng.random(relevant.shape, dtype=np.float32)  # no ties
    scorer = Scorer(60, partners=True)
    scorer.add(distances, relevant, relevant)
    scores, chance = scorer.scores(), scorer.chance()
    for name, values in scorer.per_query(*(set(scores) - {"precision_curve", "pr_curve"})).items():
        if name in chance:
            assert values is not None
            error = np.std(values) / np.sqrt(len(values))
            assert scores[name] == pytest.approx(chance[name], abs=4 * error + 1e-12), name
    curves = [given["pr_curve"]["precision"] for given in (scores, chance)]
    assert curves[0] == pytest.approx(curves[1], abs=0.02)
    assert chance == expected_chance_scores(counts, 60, counts)


# Properties


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(2, 30), st.integers(1, 12))
def test_bounds_order_of_depths_and_a_better_place(seed: int, n_items: int, n_values: int) -> None:
    distances, relevant, partners = tied_block(seed, 8, n_items, n_values)
    found = rank_with_ties(distances, relevant)
    recall = expected_partner_recall(partner_places(distances, partners), range(1, n_items + 1))
    assert np.all(np.diff(recall, axis=1) >= -1e-12) and recall[:, -1] == pytest.approx(1)
    scores = [
        expected_average_precision(found, depth, d) for depth in (1, 5, 30) for d in ("retrieved", "recall")
    ]
    assert all(np.all((values >= 0) & (values <= 1 + 1e-12)) for values in scores)
    moved = distances.copy()
    moved[relevant] -= 1  # all relevant items one step nearer: nothing gets worse
    better = rank_with_ties(moved, relevant)
    assert np.all(expected_average_precision_all(better) >= expected_average_precision_all(found) - 1e-12)
    depths = range(1, n_items + 1)
    assert np.all(expected_precision(better, depths) >= expected_precision(found, depths) - 1e-12)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=2, max_size=30))
def test_keys_keep_order_and_ties(values: list[float]) -> None:
    for dtype in (np.float32, np.float64):
        row = np.array([[*values, 0.0, -0.0, np.inf, -np.inf]], dtype)
        keys = order_keys(row)[0][0].astype(np.int64)
        np.testing.assert_array_equal(np.sign(np.subtract.outer(keys, keys)), compared(row[0]))


def compared(row: NDArray[Any]) -> NDArray[np.int64]:
    return (row[:, None] > row).astype(np.int64) - (row[:, None] < row)


@pytest.mark.parametrize("dtype", [np.uint8, np.int64, np.float16, np.float64])
def test_other_types_are_taken_as_they_are(dtype: Any) -> None:
    distances, relevant, _ = tied_block(2, 20, 80, 30)
    wanted = expected_average_precision_all(rank_with_ties(distances, relevant))
    np.testing.assert_array_equal(
        expected_average_precision_all(rank_with_ties(distances.astype(dtype), relevant)), wanted
    )
    far = distances.astype(np.float64) * 2**40 + 1  # beyond what float32 can tell apart
    np.testing.assert_array_equal(expected_average_precision_all(rank_with_ties(far, relevant)), wanted)
    np.testing.assert_array_equal(
        expected_average_precision_all(rank_with_ties(far.astype(np.int64), relevant)), wanted
    )


@pytest.mark.parametrize(
    "row", [np.full(3, 1e300), np.float32([3e38] * 3), np.array([2**64 - 1] * 3, np.uint64), [-(2**62)] * 3]
)
def test_enormous_distances_tie_like_others(row: Any) -> None:
    found = rank_with_ties(np.array([row]), np.array([[True, False, False]]))
    assert expected_average_precision_all(found) == pytest.approx((1 + 1 / 2 + 1 / 3) / 3)


def test_infinite_distances_are_the_farthest() -> None:
    found = one([np.inf, 0, np.inf], [1, 0, 0])
    assert expected_average_precision_all(found) == pytest.approx((1 / 2 + 1 / 3) / 2)
    places = partner_places(np.float32([[np.inf, 0, np.inf]]), [[True, False, False]])
    assert expected_partner_recall(places, [1, 2, 3])[0] == pytest.approx([0, 1 / 2, 1])


def test_arguments_are_not_written_to_and_views_are_welcome() -> None:
    distances, relevant, partners = tied_block(3, 24, 50, 9, scale=0.5)
    scores = []
    for order in ("C", "F"):
        given_distances, given_relevant = np.array(distances, order=order), np.array(relevant, order=order)
        for array in (given_distances, given_relevant, partners):
            array.flags.writeable = False
        scorer = Scorer(50, partners=True)
        scorer.add(given_distances[::2], given_relevant[::2], partners[::2])
        scores.append(scorer.scores())
    assert scores[0] == scores[1]


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_scores_do_not_depend_on_the_blocks(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    distances, relevant, partners = tied_block(4, 30, 70, 9, scale=scale)
    found = []
    for cells, size in ((1 << 20, 30), (200, 30), (1, 30), (1 << 20, 7), (1 << 20, 1)):
        monkeypatch.setattr("crossbyte.metrics.scorer._CELLS", cells)
        scorer = Scorer(70, partners=True)
        for start in range(0, 30, size):
            rows = slice(start, start + size)
            scorer.add(distances[rows], relevant[rows], partners[rows])
        found.append((scorer.scores(), scorer.per_query("map@all", "recall@10")))
    for scores, per_query in found[1:]:
        curve = scores.pop("pr_curve")["precision"]
        assert curve == pytest.approx(found[0][0]["pr_curve"]["precision"], rel=1e-12)
        assert scores == {name: value for name, value in found[0][0].items() if name != "pr_curve"}
        for name, values in per_query.items():
            np.testing.assert_array_equal(values, found[0][1][name])


def test_per_query_scores_average_to_the_scores() -> None:
    distances, relevant, partners = tied_block(5, 30, 70, 9)
    scorer = Scorer(70, partners=True)
    scorer.add(distances, relevant, partners)
    per_query, scores = scorer.per_query("recall@10", "precision@10"), scorer.scores()
    assert list(per_query) == ["ap@50", "recall_rank", "recall@10", "precision@10"]
    for name, key in (("ap@50", "map@50"), ("recall@10", "recall@10"), ("precision@10", "precision@10")):
        assert per_query[name].mean() == pytest.approx(scores[key])
    assert per_query["recall_rank"].min() >= 0 and "recall_rank" not in scores


def test_only_what_was_asked_for_is_scored() -> None:
    distances, relevant, partners = tied_block(6, 30, 70, 9)
    by_partner = Scorer(70, labels_relevant=False, partners=True)
    by_partner.add(distances, partners=partners)
    assert set(by_partner.scores()) == set(by_partner.chance()) == RECALLS
    assert by_partner.per_query()["ap@50"] is None
    by_label = Scorer(70)
    by_label.add(distances, relevant)
    assert by_label.per_query()["recall_rank"] is None
    assert not RECALLS & set(by_label.scores())


def test_depths_beyond_the_database() -> None:
    distances, relevant, partners = tied_block(7, 30, 40, 9)
    scorer = Scorer(40, partners=True)
    scorer.add(distances, relevant, partners)
    scores = scorer.scores()
    assert {name for name in scores if name.startswith("precision@")} == {"precision@1", "precision@10"}
    assert scores["map@50"] == scores["map@100"]  # of all there is
    assert scores["map@50"] == pytest.approx(
        expected_average_precision(rank_with_ties(distances, relevant), 40).mean()
    )
    assert scores["recall@50"] == scores["recall@100"] == 1.0
    assert scores["precision_curve"]["depths"] == [1, 2, 5, 10, 15, 20, 25]
    assert set(scorer.chance()) == set(scores)


def test_one_item_and_one_query() -> None:
    scorer = Scorer(1, partners=True)
    scorer.add([[0.5]], [[True]], [0])
    scores = scorer.scores()
    assert {scores[name] for name in ("map@50", "map@all", "precision@1", "recall@1")} == {1.0}
    assert scores["pr_curve"]["precision"] == [1.0] * 21


# Refusals


@pytest.mark.parametrize("scale", [1.0, 0.3])
def test_nan_is_refused_before_anything_is_counted(scale: float) -> None:
    distances, relevant, partners = tied_block(8, 30, 70, 9, scale=scale)
    scorer = Scorer(70, partners=True)
    scorer.add(distances, relevant, partners)
    before = scorer.scores()
    distances[29, 3] = np.nan
    for call in (
        lambda: scorer.add(distances, relevant, partners),
        lambda: rank_with_ties(distances, relevant),
        lambda: partner_places(distances, partners),
    ):
        with pytest.raises(NotFinite, match="NaN at row 29, column 3"):
            call()
    assert scorer.scores() == before


GOOD = np.zeros((2, 3), np.float32)
MARKS = np.ones((2, 3), bool)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rank_with_ties(GOOD[0], MARKS[0]), "matrix of real numbers"),
        (lambda: rank_with_ties(GOOD[:0], MARKS[:0]), "matrix of real numbers"),
        (lambda: rank_with_ties(GOOD.astype(complex), MARKS), "complex"),
        (lambda: rank_with_ties(GOOD, MARKS[:, :2]), "relevant must be bool"),
        (lambda: rank_with_ties(GOOD, MARKS.astype(int)), "relevant must be bool"),
        (lambda: rank_with_ties(GOOD, MARKS, 0), "depth must be at least 1"),
        (lambda: expected_average_precision(rank_with_ties(GOOD, MARKS), 0), "depth must be at least 1"),
        (lambda: expected_average_precision(rank_with_ties(GOOD, MARKS, 1), 2), "at most 1"),
        (lambda: expected_average_precision(rank_with_ties(GOOD, MARKS), 2, "both"), "denominator"),  # type: ignore[arg-type]
        (lambda: expected_average_precision_all(rank_with_ties(GOOD, MARKS, 1)), "at most 1"),
        (lambda: expected_precision(rank_with_ties(GOOD, MARKS), [4]), "from 1 to 3"),
        (lambda: expected_precision(rank_with_ties(GOOD, MARKS), [0]), "from 1 to 3"),
        (lambda: expected_precision_recall_curve(rank_with_ties(GOOD, MARKS, 2)), "without a depth"),
        (lambda: partner_places(GOOD, [0]), "for each of 2 rows"),
        (lambda: partner_places(GOOD, [0.0, 1.0]), "for each of 2 rows"),
        (lambda: partner_places(GOOD, [0, 3]), "from 0 to 2"),
        (lambda: partner_places(GOOD, [0, -1]), "from 0 to 2"),
        (lambda: partner_places(GOOD, MARKS[:1]), "shape"),
        (lambda: partner_places(GOOD, ~MARKS), "no partner"),
        (lambda: expected_partner_recall(partner_places(GOOD, [0, 1]), [0]), "at least 1"),
        (lambda: rank_all_tied([4], 3), "from 0 to n_items=3"),
        (lambda: rank_all_tied([0.5], 3), "from 0 to n_items=3"),
        (lambda: expected_chance_scores(None, 3, np.array([0])), "from 1 to n_items=3"),
        (lambda: Scorer(3).scores(), "nothing to score"),
        (lambda: Scorer(3).add(GOOD), "made for queries with relevant"),
        (lambda: Scorer(3).add(GOOD, MARKS, [0, 1]), "made for queries without partners"),
        (lambda: Scorer(4).add(GOOD, MARKS), "each of 4 items"),
        (lambda: filled().per_query("map@7"), "map@7"),
        (lambda: filled().per_query("precision_curve"), "names of scores"),
    ],
)
def test_refusals_say_what_was_expected(call: Any, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        call()


def filled() -> Scorer:
    scorer = Scorer(3)
    scorer.add(GOOD, MARKS)
    return scorer


def test_fractions_of_the_naive_twin_are_exact() -> None:
    # hits at places 1 and 3
    assert naive.ap_retrieved([True, False, True], 3) == Fraction(5, 6)
    assert naive.ap_recall([True, False, True], 2) == Fraction(1, 2)
