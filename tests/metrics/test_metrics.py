"""Scores against naive loops and cases worked out by hand."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput, NotFinite
from crossbyte.metrics.average_precision import mean_average_precision
from crossbyte.metrics.chance import chance_mean_average_precision, chance_recall
from crossbyte.metrics.ranks import nearest_ties_by_column, partner_ranks_ties_by_column, recall_at


def average_precision_ref(found: NDArray[Any]) -> float:
    hits, total = 0, 0.0
    for place, relevant in enumerate(found, start=1):
        if relevant:
            hits += 1
            total += hits / place
    return total / hits if hits else 0.0


def rank_ref(distances: NDArray[Any], relevant: NDArray[Any]) -> int:
    order = sorted(range(len(distances)), key=lambda column: (distances[column], column))
    return next(rank for rank, column in enumerate(order) if relevant[column])


@pytest.fixture
def tied() -> NDArray[np.float32]:
    """Distances with many ties: five values over 40 columns."""
    return np.random.default_rng(0).integers(5, size=(30, 40)).astype(np.float32)


class TestMeanAveragePrecision:
    def test_by_hand(self) -> None:
        # hits at places 1 and 3: (1/1 + 2/3) / 2
        assert mean_average_precision([[True, False, True]], 3) == pytest.approx(5 / 6)

    def test_divides_by_the_retrieved_not_by_the_depth(self) -> None:
        assert mean_average_precision([[True] + [False] * 49], 50) == 1.0

    def test_query_without_hit_scores_zero_and_stays_in_the_mean(self) -> None:
        assert mean_average_precision([[True, True], [False, False]], 2) == 0.5

    def test_results_beyond_the_depth_do_not_count(self) -> None:
        assert mean_average_precision([[True, False, True]], 2) == 1.0

    def test_agrees_with_loop(self) -> None:
        found = np.random.default_rng(0).random((50, 30)) < 0.1
        expected = np.mean([average_precision_ref(row[:20]) for row in found])
        assert mean_average_precision(found, 20) == pytest.approx(expected)

    @pytest.mark.parametrize("depth", [0, 4])
    def test_refuses_depth_outside_the_results(self, depth: int) -> None:
        with pytest.raises(InvalidInput, match="depth must be at least 1 and at most 3"):
            mean_average_precision([[True, False, True]], depth)

    def test_refuses_a_vector(self) -> None:
        with pytest.raises(InvalidInput, match="one row per query"):
            mean_average_precision([True, False], 1)


class TestChanceMap:
    @pytest.mark.parametrize("depth", [1, 2, 4, 6])
    @pytest.mark.parametrize("n_relevant", [0, 1, 3, 6])
    def test_is_the_mean_over_all_orders(self, depth: int, n_relevant: int) -> None:
        found = np.array(list(permutations([True] * n_relevant + [False] * (6 - n_relevant))))
        expected = mean_average_precision(found, depth)
        assert chance_mean_average_precision([n_relevant / 6], depth, n_items=6) == pytest.approx(expected)

    def test_large_database_agrees_with_random_draws(self) -> None:
        proportions = np.array([0.02, 0.1, 0.3])
        draws = np.random.default_rng(0).random((3, 20_000, 50)) < proportions[:, None, None]
        sampled = np.mean([mean_average_precision(found, 50) for found in draws])
        assert chance_mean_average_precision(proportions, 50) == pytest.approx(sampled, abs=0.002)

    def test_size_of_the_database_matters_less_as_it_grows(self) -> None:
        limit = chance_mean_average_precision([0.1], 50)
        assert chance_mean_average_precision([0.1], 50, n_items=10**6) == pytest.approx(limit, abs=1e-5)

    @pytest.mark.parametrize("proportions", [[1.2], [-0.1], [], [[0.1]], [np.nan]])
    def test_refuses_what_is_no_share(self, proportions: list[Any]) -> None:
        with pytest.raises(InvalidInput, match="between 0 and 1"):
            chance_mean_average_precision(proportions, 5)


class TestRecall:
    def test_counts_ranks_below_k(self) -> None:
        assert recall_at([0, 9, 10, 50], 10) == 0.5

    @pytest.mark.parametrize(("ranks", "k"), [([], 1), ([[0]], 1), ([0], 0)])
    def test_refuses_nonsense(self, ranks: list[Any], k: int) -> None:
        with pytest.raises(InvalidInput):
            recall_at(ranks, k)

    def test_chance(self) -> None:
        assert chance_recall(958, 10) == pytest.approx(10 / 958)
        assert chance_recall(5, 10) == 1.0

    def test_chance_with_several_partners(self) -> None:
        # two of four items are partners, one draw misses with 2/4, the second then with 1/3
        assert chance_recall(4, 2, n_relevant=2) == pytest.approx(1 - 1 / 6)

    @pytest.mark.parametrize(("n_items", "k", "n_relevant"), [(0, 1, 1), (5, 0, 1), (5, 1, 6), (5, 1, 0)])
    def test_chance_refuses_nonsense(self, n_items: int, k: int, n_relevant: int) -> None:
        with pytest.raises(InvalidInput):
            chance_recall(n_items, k, n_relevant)


class TestPartnerRanks:
    def test_by_hand(self) -> None:
        assert partner_ranks_ties_by_column([[3.0, 1.0, 2.0]], [2]).tolist() == [1]

    def test_equal_distance_with_smaller_column_comes_before(self) -> None:
        assert partner_ranks_ties_by_column([[1.0, 1.0, 1.0]] * 3, [0, 1, 2]).tolist() == [0, 1, 2]

    def test_one_partner_agrees_with_loop(self, tied: NDArray[np.float32]) -> None:
        partners = np.random.default_rng(1).integers(40, size=30)
        expected = [
            rank_ref(row, np.arange(40) == partner) for row, partner in zip(tied, partners, strict=True)
        ]
        assert partner_ranks_ties_by_column(tied, partners).tolist() == expected

    def test_groups_agree_with_loop(self, tied: NDArray[np.float32]) -> None:
        queries, items = np.arange(30) % 7, np.arange(40) % 7
        expected = [rank_ref(row, items == group) for row, group in zip(tied, queries, strict=True)]
        assert (
            partner_ranks_ties_by_column(tied, query_groups=queries, item_groups=items).tolist() == expected
        )

    def test_groups_may_be_strings(self) -> None:
        assert partner_ranks_ties_by_column(
            [[1.0, 2.0]], query_groups=["b"], item_groups=["a", "b"]
        ).tolist() == [1]

    def test_square_block_has_its_pairs_on_the_diagonal(self, tied: NDArray[np.float32]) -> None:
        assert (
            partner_ranks_ties_by_column(tied[:, :30]).tolist()
            == partner_ranks_ties_by_column(tied[:, :30], np.arange(30)).tolist()
        )

    def test_infinite_distance_is_last_but_exact(self) -> None:
        far = [[np.inf, np.inf, 0.0]]
        assert partner_ranks_ties_by_column(far, query_groups=[1], item_groups=[0, 1, 0]).tolist() == [2]

    def test_agrees_with_ranking(self, tied: NDArray[np.float32]) -> None:
        order = nearest_ties_by_column(tied, 40)
        assert partner_ranks_ties_by_column(tied, order[:, 7]).tolist() == [7] * 30

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            ({}, "no diagonal"),
            ({"partners": [0]}, "one per row"),
            ({"partners": [0.0, 1.0]}, "one per row"),
            ({"partners": [0, 3]}, "from 0 to 2"),
            ({"partners": [-1, 0]}, "from 0 to 2"),
            ({"query_groups": [0, 1]}, "belong together"),
            ({"query_groups": [0], "item_groups": [0, 1, 1]}, "one group per row"),
            ({"query_groups": [0, 5], "item_groups": [0, 1, 1]}, "first: row 1"),
            ({"partners": [0, 1], "query_groups": [0, 1], "item_groups": [0, 1, 1]}, "both given"),
        ],
    )
    def test_refuses_unclear_partners(self, arguments: dict[str, Any], message: str) -> None:
        with pytest.raises(InvalidInput, match=message):
            partner_ranks_ties_by_column(np.zeros((2, 3), dtype=np.float32), **arguments)

    def test_refuses_nan(self) -> None:
        with pytest.raises(NotFinite, match="row 0, column 1"):
            partner_ranks_ties_by_column([[0.0, np.nan]], [0])


class TestRanking:
    @pytest.mark.parametrize("depth", [1, 2, 17, 39, 40])
    def test_is_a_stable_argsort_with_ties(self, tied: NDArray[np.float32], depth: int) -> None:
        full = np.argsort(tied, axis=1, kind="stable")
        np.testing.assert_array_equal(nearest_ties_by_column(tied, depth), full[:, :depth])

    def test_is_a_stable_argsort_without_ties(self) -> None:
        distances = np.random.default_rng(0).random((20, 300), dtype=np.float32)
        full = np.argsort(distances, axis=1, kind="stable")
        np.testing.assert_array_equal(nearest_ties_by_column(distances, 10), full[:, :10])

    def test_all_equal_is_column_order(self) -> None:
        assert nearest_ties_by_column(np.zeros((1, 100), dtype=np.float32), 5).tolist() == [[0, 1, 2, 3, 4]]

    def test_signed_zeros_are_equal(self) -> None:
        assert nearest_ties_by_column([[0.0, -0.0, 0.0]], 3).tolist() == [[0, 1, 2]]

    def test_refuses_more_than_there_is(self) -> None:
        with pytest.raises(InvalidInput, match="at most 3"):
            nearest_ties_by_column([[0.0, 1.0, 2.0]], 4)
