"""The covering arrays of the tests: every pair that can occur does, in few rows, always in the same."""

from __future__ import annotations

from itertools import product

import pytest

from support.covering import covering, pairs_of

SIZES = [(2, 2), (5, 1), (3, 3, 3), (2, 3, 4, 5), (5, 3, 21), (4, 4, 4, 4)]


@pytest.mark.parametrize("sizes", SIZES)
def test_every_pair_occurs_in_few_rows(sizes: tuple[int, ...]) -> None:
    factors = [[f"{name}{i}" for i in range(size)] for name, size in zip("abcd", sizes, strict=False)]
    rows = covering(*factors)
    everything = set().union(*map(pairs_of, product(*factors)))
    assert set().union(*map(pairs_of, rows)) == everything
    assert len(set(rows)) == len(rows) and set(rows) <= set(product(*factors))
    least = sorted(sizes)[-1] * sorted(sizes)[-2]
    assert least <= len(rows) <= 1.6 * least
    assert rows == covering(*factors)


def test_what_is_impossible_does_not_occur_and_all_else_does() -> None:
    factors = ["abc", range(4), (True, False)]

    def possible(letter: str, number: int, flag: bool) -> bool:
        return not (letter == "a" and flag) and not (number == 3 and letter != "c")

    rows = covering(*factors, possible=possible)
    assert all(possible(*row) for row in rows)
    everything = set().union(*(pairs_of(row) for row in product(*factors) if possible(*row)))
    assert set().union(*map(pairs_of, rows)) == everything


def test_nothing_possible_gives_no_rows() -> None:
    assert covering("ab", "cd", possible=lambda *row: False) == []
    assert covering("ab", "") == []
