"""From rankings to answers: one hit per group, and finer distances from outside."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import InvalidInput
from crossbyte.search.hits import Hits
from crossbyte.search.ids import Id
from crossbyte.search.ranking import Query, Ranking
from crossbyte.search.searched import Searched

__all__ = ["Rescore", "answers", "first_of_groups", "rank_groups", "rescored"]

Rescore = Callable[[int, Hits], Any]
"""Given the number of a query and its candidates: the distances that count, one per candidate."""


def first_of_groups(ranking: Ranking, labels: Sequence[Id | None]) -> Ranking:
    """Keep the first document of every group; documents without a group all stay."""
    seen: set[Id] = set()
    kept = []
    for place, label in enumerate(labels):
        if label is None or label not in seen:
            kept.append(place)
        if label is not None:
            seen.add(label)
    return ranking.take(np.array(kept, dtype=np.intp))


def rank_groups(
    query: Query,
    rank: Callable[[Query], list[Ranking]],
    groups: Callable[[Ranking], Sequence[Id | None]],
) -> list[Ranking]:
    """Find the k nearest groups of every query point, each by its nearest document.

    Looks further until there are enough groups, or nothing is left.
    """
    chosen: list[Ranking | None] = [None] * len(query.points)
    waiting, k = np.arange(len(query.points)), 4 * query.k + 64
    while len(waiting):
        rankings = rank(query._replace(points=query.points[waiting], k=k))
        for place, ranking in zip(waiting.tolist(), rankings, strict=True):
            nearest = first_of_groups(ranking, groups(ranking))
            if len(nearest.rows) >= query.k or len(ranking.rows) < k:
                chosen[place] = nearest.take(slice(query.k))
        waiting = np.array([place for place in waiting.tolist() if chosen[place] is None], dtype=np.intp)
        k *= 4
    return [ranking for ranking in chosen if ranking is not None]


def rescored(number: int, rescore: Rescore, ranking: Ranking, candidates: Hits) -> Ranking:
    """Order the candidates of a query by the distances that the caller gives."""
    given = rescore(number, candidates)
    try:
        distances = np.asarray(given)
    except ValueError as error:
        raise InvalidInput(f"rescore: expected one number per candidate ({error})") from error
    if distances.shape != (len(candidates),) or distances.dtype.kind not in "fiu":
        raise InvalidInput(
            f"rescore: expected {len(candidates)} distances, one per candidate, got "
            f"{distances.dtype} of shape {distances.shape}"
        )
    if not (np.abs(distances) <= np.finfo(np.float32).max).all():
        raise InvalidInput("rescore: expected finite distances of float32; leave out no candidate")
    finer: NDArray[np.float32] = distances.astype(np.float32)
    changed = Ranking(finer, ranking.numbers, ranking.codings, ranking.rows)
    return changed.ordered(len(candidates))


def answers(searched: Searched, rankings: Sequence[Ranking], payloads: bool) -> list[Hits]:
    """Give the ranked documents of several queries as a user knows them; all ids are resolved at once."""
    whole = rankings[0] if len(rankings) == 1 else Ranking.join(rankings)
    ids = searched.ids(whole)
    bodies = searched.payloads(whole) if payloads else None
    hits, start = [], 0
    for ranking in rankings:
        rows = slice(start, start + len(ranking.rows))
        own = None if bodies is None else bodies[rows]
        judged = ranking.probabilities, ranking.no_match, searched.partial
        hits.append(Hits(ids[rows], ranking.distances, ranking.numbers, own, *judged, ranking.codings))
        start = rows.stop
    return hits
