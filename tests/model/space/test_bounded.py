"""Least squares with rows in the unit ball: optimal, feasible, and not beaten by plain projection."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossbyte.model.space.sparse import bounded_least_squares, optimality_gap
from support import oracles


def _problem(kind: str, seed: int) -> tuple[Any, Any, Any]:
    """G, H and a start of 12 to 24 rows in 6 dimensions."""
    rng = np.random.default_rng(seed)
    Z = rng.standard_normal((60, 16))
    T = rng.standard_normal((60, 6))
    if kind == "tight":  # most rows end on their ball
        T *= 50.0
    if kind == "loose":  # none does
        T *= 0.01
    if kind == "rank-deficient":
        Z = Z[:, :5] @ rng.standard_normal((5, 16))
    if kind == "unequal":
        Z *= 10.0 ** rng.uniform(-3, 1, size=16)
    if kind == "unused":
        Z[:, [2, 9]] = 0.0
    if kind == "sparse":
        Z *= rng.random(Z.shape) < 0.15
    if kind == "twins":
        Z[:, 8:] = Z[:, :8]
    return Z.T @ Z, Z.T @ T, oracles.unit_rows(rng.standard_normal((16, 6)))


KINDS = ["random", "tight", "loose", "rank-deficient", "unequal", "unused", "sparse", "twins"]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimality_conditions_hold(kind: str, seed: int) -> None:
    G, H, start = _problem(kind, seed)
    W = bounded_least_squares(G, H, start)
    assert optimality_gap(G, H, W) <= 1e-6
    assert np.linalg.norm(W, axis=1).max() <= 1 + 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_a_projected_gradient_run_long_is_not_better(kind: str) -> None:
    G, H, start = _problem(kind, 7)
    found = oracles.bounded_objective(G, H, bounded_least_squares(G, H, start))
    expected = oracles.bounded_objective(G, H, oracles.bounded_least_squares(G, H, 5000))
    assert found <= expected + 1e-6 * abs(expected)


def test_rows_that_fit_freely_are_least_squares() -> None:
    G, H, start = _problem("loose", 1)
    np.testing.assert_allclose(bounded_least_squares(G, H, start), np.linalg.solve(G, H), atol=1e-5)


def test_one_row_has_a_closed_form() -> None:
    G, H = np.array([[4.0]]), np.array([[3.0, 4.0]])
    start = np.array([[0.0, 1.0]])
    np.testing.assert_allclose(bounded_least_squares(G, H, start), [[0.6, 0.8]], atol=1e-6)
    np.testing.assert_allclose(bounded_least_squares(G, H / 10, start), [[0.075, 0.1]], atol=1e-6)


def test_rows_that_no_sample_uses_stay() -> None:
    G, H, start = _problem("unused", 3)
    W = bounded_least_squares(G, H, start)
    np.testing.assert_array_equal(W[[2, 9]], start[[2, 9]])
    zeros = np.zeros_like(G)
    np.testing.assert_array_equal(bounded_least_squares(zeros, np.zeros_like(H), start), start)


def test_the_arguments_are_left_alone() -> None:
    G, H, start = _problem("random", 4)
    copies = G.copy(), H.copy(), start.copy()
    bounded_least_squares(G, H, start)
    for argument, copy in zip((G, H, start), copies, strict=True):
        np.testing.assert_array_equal(argument, copy)


def test_a_start_outside_the_balls_is_brought_in() -> None:
    G, H, start = _problem("tight", 5)
    W = bounded_least_squares(G, H, 10 * start)
    assert np.linalg.norm(W, axis=1).max() <= 1 + 1e-12
    assert optimality_gap(G, H, W) <= 1e-6


def test_starting_at_the_optimum_stays_there() -> None:
    G, H, start = _problem("random", 6)
    W = bounded_least_squares(G, H, start)
    np.testing.assert_allclose(bounded_least_squares(G, H, W), W, atol=1e-6)


def test_the_gap_sees_what_is_not_optimal() -> None:
    G, H, start = _problem("random", 8)
    assert optimality_gap(G, H, start) > 1e-2
    W = bounded_least_squares(G, H, start)
    W[0] *= 0.99
    assert optimality_gap(G, H, W) > 1e-4
