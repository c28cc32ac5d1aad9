"""From ranks of true partners to the report: systems side by side, and quality against bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from crossbyte.metrics import chance_recall
from crossbyte.model.quality.bootstrap import Bootstrap
from crossbyte.model.scoring import PartnerRanks
from crossbyte.report.measurements import DEPTHS, DIRECTIONS, CurvePoint, Estimate, Scores, System

__all__ = ["chance", "curve_point", "expected_recall", "gains", "score"]

_DEPTH = 10
_SMALLEST_SIZE = 0.125  # times the held-out number
_LARGEST_SIZE = 1_000.0
_LOG_BETA = (-5.0, 12.0)  # within which both parameters are sought


def score(name: str, n_bytes: int, ranks: PartnerRanks, bootstrap: Bootstrap) -> System:
    """Recall and median rank of one system."""
    return System(
        name,
        n_bytes,
        {
            direction: Scores(
                {depth: bootstrap.mean(found < depth) for depth in DEPTHS}, bootstrap.median(found + 1)
            )
            for direction, found in zip(DIRECTIONS, ranks, strict=True)
        },
    )


def chance(n_items: int) -> System:
    """What a random order would score, exactly."""
    recall = {depth: _exact(chance_recall(n_items, depth)) for depth in DEPTHS}
    scores = Scores(recall, _exact((n_items + 1) // 2))
    return System("chance", None, dict.fromkeys(DIRECTIONS, scores))


def gains(ranks: Mapping[str, PartnerRanks], bootstrap: Bootstrap) -> dict[str, Estimate]:
    """Recall@10 of crossbyte minus that of each other system, pair by pair."""
    own = ranks["crossbyte"].hits(_DEPTH)
    return {
        name: bootstrap.mean(own - other.hits(_DEPTH)) for name, other in ranks.items() if name != "crossbyte"
    }


def curve_point(n_bytes: int, ranks: Mapping[str, PartnerRanks], bootstrap: Bootstrap) -> CurvePoint:
    """Quality at one code length."""
    recall = {
        name: {
            direction: bootstrap.mean(found < _DEPTH)
            for direction, found in zip(DIRECTIONS, each, strict=True)
        }
        for name, each in ranks.items()
        if name != "uncompressed"
    }
    return CurvePoint(n_bytes, recall, _by_size(ranks["crossbyte"]))


def _by_size(ranks: PartnerRanks) -> list[tuple[int, float]]:
    """Recall@10 expected at growing sizes, mean of both directions."""
    n_held = len(ranks.image_to_text)
    sizes = _sizes(n_held)
    both = np.mean([expected_recall(each, n_held, sizes) for each in ranks], axis=0)
    return list(zip(sizes, both.tolist(), strict=True))


def expected_recall(
    ranks: NDArray[np.int64], n_seen: int, sizes: Sequence[int], depth: int = _DEPTH
) -> NDArray[np.float64]:
    """Recall expected among other numbers of items than the ranks were seen in: one per size.

    Among fewer items, the strangers are a part of those seen: hypergeometric, without assumption. Among more,
    the share of strangers that come before a partner is taken for Beta distributed over the queries. Its
    parameters are those that make the ranks seen most likely; given a query's own rank, how many of the
    others come before its partner is beta-binomial. The whole is scaled so that it meets what was seen.
    """
    from scipy.stats import betabinom, hypergeom  # half a second to import, and only needed here

    places, counts = np.unique(ranks, return_counts=True)
    a, b = _beta_of_shares(places, counts, n_seen)

    def more(size: int) -> float:
        return float(betabinom.cdf(depth - 1, size - 1, places + a, n_seen - 1 - places + b) @ counts)

    def fewer(size: int) -> float:
        return float(hypergeom.cdf(depth - 1, n_seen - 1, places, size - 1) @ counts / counts.sum())

    seen = float((ranks < depth).mean())
    scale = seen / more(n_seen) if seen else 0.0
    return np.array([fewer(size) if size <= n_seen else scale * more(size) for size in sizes])


def _beta_of_shares(places: NDArray[np.int64], counts: NDArray[np.int64], n_seen: int) -> tuple[float, float]:
    """The Beta distribution of the share of strangers before a partner, by maximum likelihood."""
    from scipy.stats import betabinom

    def loss(logs: NDArray[np.float64]) -> float:
        return -float(betabinom.logpmf(places, n_seen - 1, *np.exp(logs)) @ counts)

    found = optimize.minimize(loss, np.log([0.5, 5.0]), method="L-BFGS-B", bounds=[_LOG_BETA, _LOG_BETA])
    a, b = np.exp(found.x)
    return float(a), float(b)


def _sizes(n_held: int) -> list[int]:
    """Sizes of an index, doubling, the held-out number among them."""
    low, high = int(np.log2(_SMALLEST_SIZE)), int(np.log2(_LARGEST_SIZE)) + 1
    return sorted({max(2, round(n_held * 2.0**step)) for step in range(low, high + 1)})


def _exact(value: float) -> Estimate:
    return Estimate(float(value), float(value), float(value))
