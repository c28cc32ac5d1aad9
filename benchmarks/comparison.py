"""Systems side by side on the same queries: recall, spread over seeds, and our distance to the best peer.

The best peer is the one that finds most *on the queries of the test*, and of several ways to train a peer
the best counts, so the choice can only favour the peers. The interval of the difference is a paired
bootstrap over items: queries for one item (three captions of a picture) are drawn together, and seeds are
averaged before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks.tables import Measurement
from crossbyte.calibration.measure import Bootstrap
from crossbyte.metrics.chance import chance_recall
from crossbyte.metrics.ranks import partner_ranks_ties_by_column

OWN, PEER = (
    "crossbyte",
    "FAISS",
)  # how the names of systems begin; ours is compared by the one named so exactly
LEVEL = -0.005  # a difference that counts as level
DEPTH = 10

Hits = NDArray[np.bool_]
Points = NDArray[np.float32]


class Scored(NamedTuple):
    """What every system found with one seed: ``hits`` (n_queries,) bool by system, for one question.

    ``partners`` (n_queries,) is the number of the item that each query looks for, among ``n_items``.
    """

    score: str
    partners: NDArray[Any]
    n_items: int
    hits: dict[str, Hits]


def hits_of_distances(distances: NDArray[Any], partners: NDArray[Any]) -> Hits:
    """Whether each query finds its partner among the first ten: (n_queries,) bool."""
    return np.asarray(partner_ranks_ties_by_column(distances, partners) < DEPTH)


def hits_of_points(queries: Points, items: Points, partners: NDArray[Any]) -> Hits:
    """The same by exact distances to points (n_items, D)."""
    exact, asked = items.astype(np.float64), queries.astype(np.float64)
    # without the query's own square, which does not change its ranking
    return hits_of_distances((exact**2).sum(axis=1) - 2 * asked @ exact.T, partners)


def compare(seeds: Sequence[Sequence[Scored]], targets: Mapping[str, float]) -> list[Measurement]:
    """Means, spreads and chance of every system and question, and after each the difference to the best peer.

    Parameters
    ----------
    seeds : per seed the same questions
    targets : mapping of question to recall@10 that ours is to reach
    """
    return [
        entry
        for own_seeds in zip(*seeds, strict=True)
        for entry in _compare_question(own_seeds, targets.get(own_seeds[0].score))
    ]


def _compare_question(seeds: Sequence[Scored], target: float | None) -> list[Measurement]:
    first = seeds[0]
    score, chance = f"recall@{DEPTH} {first.score}", chance_recall(first.n_items, DEPTH)
    entries = [
        Measurement(
            name,
            score,
            [float(each.hits[name].mean()) for each in seeds],
            target if name == OWN else None,
            chance,
        )
        for name in first.hits
    ]
    peers = [entry for entry in entries if entry.system.startswith(PEER)]
    if not peers or OWN not in first.hits:
        return entries
    best = max(peers, key=lambda entry: entry.mean).system
    return [*entries, _difference(seeds, best, score)]


def _difference(seeds: Sequence[Scored], best: str, score: str) -> Measurement:
    """Ours minus the best peer's, of the same seeds and queries."""
    by_seed = [each.hits[OWN].astype(np.float64) - each.hits[best] for each in seeds]
    _, item = np.unique(seeds[0].partners, return_inverse=True)
    gains = np.bincount(item, np.mean(by_seed, axis=0)) / np.bincount(item)
    estimate = Bootstrap(len(gains), np.random.default_rng(0)).mean(gains)
    values = [float(each.mean()) for each in by_seed]
    return Measurement(
        f"{OWN} − {best}", score, values, LEVEL, None, (float(estimate.low), float(estimate.high))
    )
