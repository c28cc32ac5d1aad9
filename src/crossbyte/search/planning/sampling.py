"""How many pairs are enough to fit on, and which: from two pilot fits and what they find.

Recall is taken to grow with the pairs n as r − a / √n, the usual law of what is estimated from samples. Two
pilot fits of n₁ < n₂ pairs, asked with the same held-out pairs, give a. Twice as many pairs as n then find
a (1 − 1/√2) / √n more, and beyond some n that is not worth the time. Since a is measured on few queries, one
standard error is added to the difference that it comes from: rather too many pairs than too few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crossbyte.blocks import sample_rows
from crossbyte.errors import InvalidInput
from crossbyte.model.selection import MAX_PAIRS, MIN_GROUPS, sample_of_groups, split_groups
from crossbyte.search.planning.costs import ALWAYS_ALL, Enough
from crossbyte.validation import check_groups, check_integer

__all__ = ["WORTH", "Trials", "Tried", "draw_pairs", "enough_pairs", "expected_recall", "trial_rows"]

WORTH = 0.005  # recall@10: what twice as many pairs must find more to be worth fitting on
TIME_BUDGET = 3600.0  # seconds of a fit

_DOUBLING = 1 - 0.5**0.5


class Tried(NamedTuple):
    """A pilot fit: its pairs, and per held-out pair the share of its two queries that found their partner."""

    n_pairs: int
    hits: NDArray[np.float64]


class Trials(NamedTuple):
    """Pairs for pilot fits, and others, of other groups, to ask them with.

    Attributes
    ----------
    images, texts
        Features to fit on.
    held_images, held_texts, held_groups
        Features to ask with, and their groups.
    """

    images: Any
    texts: Any
    held_images: Any
    held_texts: Any
    held_groups: NDArray[np.intp]

    def hits(self, model: Any) -> NDArray[np.float64]:
        """What a fitted model finds among the first ten, per held-out pair: (n,)."""
        ranks = model.partner_ranks(self.held_images, self.held_texts, self.held_groups)
        return np.asarray(ranks.hits(10))


def enough_pairs(few: Tried, many: Tried, n_pairs: int, seconds_at: Callable[[int], float]) -> Enough:
    """Say how many of ``n_pairs`` to fit on, from two pilot fits and the time that a fit takes.

    The size at which twice as many pairs are expected to gain less than ``WORTH`` recall@10, in two figures;
    no more than are fitted within ``TIME_BUDGET``, and no fewer than ``ALWAYS_ALL``.
    """
    slope = _slope(few, many)
    wanted = _rounded_up((slope * _DOUBLING / WORTH) ** 2)
    affordable = _affordable(n_pairs, seconds_at)
    pairs = min(n_pairs, max(ALWAYS_ALL, min(wanted, affordable)))
    tried = [(one.n_pairs, float(one.hits.mean())) for one in (few, many)]
    why = _reason(pairs, n_pairs, wanted)
    return Enough(pairs, why, float(slope * _DOUBLING / np.sqrt(pairs)), tried)


def _reason(pairs: int, n_pairs: int, wanted: int) -> str:
    if pairs == n_pairs:
        return "all"
    if pairs == wanted:
        return "gain"
    return "least" if wanted < pairs else "time"


def expected_recall(few: Tried, many: Tried, n_pairs: float) -> float:
    """Extrapolate recall@10 to ``n_pairs`` pairs by r − a / √n through two pilots, with no error added."""
    gain = float((many.hits - few.hits).mean())
    return float(many.hits.mean()) + gain * (many.n_pairs**-0.5 - n_pairs**-0.5) / _fallen(few, many)


def _slope(few: Tried, many: Tried) -> float:
    """The a of r − a / √n through two pilots, a standard error of their difference added; never below 0."""
    gains = many.hits - few.hits
    gain = gains.mean() + gains.std() / np.sqrt(len(gains))
    return float(max(0.0, gain) / _fallen(few, many))


def _fallen(few: Tried, many: Tried) -> float:
    """By how much 1 / √n is less with many pairs."""
    return float(few.n_pairs**-0.5 - many.n_pairs**-0.5)


def _affordable(n_pairs: int, seconds_at: Callable[[int], float]) -> int:
    """The most pairs that are fitted within the budget, in two figures; all if they are."""
    if seconds_at(n_pairs) <= TIME_BUDGET:
        return n_pairs
    low, high = 2, n_pairs
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (middle, high) if seconds_at(middle) <= TIME_BUDGET else (low, middle)
    return low - low % _step(low)


def _rounded_up(number: float) -> int:
    """Two figures; more would be false."""
    whole = max(2, int(np.ceil(number)))
    return -(-whole // _step(whole)) * _step(whole)


def _step(number: int) -> int:
    """What the second figure of a number counts."""
    return int(10 ** max(0, len(str(number)) - 2))


# Drawing


def draw_pairs(n_pairs: int, count: int, groups: Any = None, *, seed: int = 0) -> NDArray[np.intp]:
    """Draw rows to fit on, the same ones for the same seed.

    Parameters
    ----------
    n_pairs : int
        How many there are.
    count : int
        How many to draw; with groups, at most so many, since groups stay whole. At least 20 groups are drawn,
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
    return np.flatnonzero(np.isin(numbers, sample_of_groups(rng.permutation(len(sizes)), sizes, count)))


def _check_groups_to_draw(n_groups: int) -> None:
    if n_groups < MIN_GROUPS:
        raise InvalidInput(
            f"groups: a sample takes whole groups, expected at least {MIN_GROUPS} of them, got {n_groups}; "
            "fit on all pairs, or leave the groups out"
        )


def trial_rows(images: Any, texts: Any, groups: Any = None) -> Trials:
    """Take pairs for pilots out of all: at most 18,000 to fit on, and 2,000 of other groups to ask with."""
    n_pairs = images.shape[0]
    rows = draw_pairs(n_pairs, MAX_PAIRS, groups)
    labels = None if groups is None else check_groups(groups, n_pairs)[rows]
    numbers = check_groups(labels, len(rows))
    split = split_groups(numbers, np.random.default_rng(0))
    train, held = rows[split.train], rows[split.held_out]
    return Trials(images[train], texts[train], images[held], texts[held], numbers[split.held_out])
