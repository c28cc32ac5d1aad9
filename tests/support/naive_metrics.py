"""Scores in plain Python: what they mean, and loops over the formulas with ties.

The first half defines what is right. A score is given for a ranking without ties, in the words of its
definition; with ties it is the mean over all orders, written down one by one. That is for a handful of items.
The second half does the same for more, one query at a time, by loops over tied groups. It is also what the
benchmark of the metrics compares with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import chain, groupby, permutations, product
from math import comb
from typing import Any

Found = Sequence[bool]
Group = tuple[int, int]

MAP_DEPTHS = (50, 100)
PRECISION_DEPTHS = (1, 10, 50, 100, 500, 1000)
RECALL_DEPTHS = (1, 5, 10, 50, 100)
CURVE_DEPTHS = [1, 2, 5, 10, 15, 20, *range(25, 1001, 25)]


# Without ties: ``found`` says of each result, best first, whether it is relevant


def ap_retrieved(found: Found, depth: int) -> Fraction:
    places = [place for place, hit in enumerate(found[:depth], start=1) if hit]
    precisions = [Fraction(number, place) for number, place in enumerate(places, start=1)]
    return sum(precisions, Fraction()) / len(places) if places else Fraction()


def ap_recall(found: Found, depth: int) -> Fraction:
    places = [place for place, hit in enumerate(found[:depth], start=1) if hit]
    precisions = [Fraction(number, place) for number, place in enumerate(places, start=1)]
    return sum(precisions, Fraction()) / min(depth, sum(found)) if any(found) else Fraction()


def precision(found: Found, depth: int) -> Fraction:
    return Fraction(sum(found[:depth]), depth)


def any_found(found: Found, depth: int) -> Fraction:
    return Fraction(any(found[:depth]))


def first_rank(found: Found) -> Fraction:
    return Fraction(list(found).index(True))


# With ties: all orders


def orders(distances: Sequence[float]) -> Iterator[list[int]]:
    """Every order of the items that the distances allow."""
    by_distance = sorted(range(len(distances)), key=lambda item: distances[item])
    tied = [list(group) for _, group in groupby(by_distance, key=lambda item: distances[item])]
    for parts in product(*(permutations(group) for group in tied)):
        yield list(chain(*parts))


def expected(distances: Sequence[float], marked: Found, score: Callable[[Found], Fraction]) -> Fraction:
    """Mean of a score over all orders."""
    values = [score([bool(marked[item]) for item in order]) for order in orders(distances)]
    return sum(values, Fraction()) / len(values)


# With ties, by loops: ``groups`` are (size, relevant items), nearest first


def tied_groups(distances: Sequence[float], marked: Found) -> list[Group]:
    pairs = sorted(zip(distances, marked, strict=True))
    hits = [[hit for _, hit in group] for _, group in groupby(pairs, key=lambda pair: pair[0])]
    return [(len(group), sum(group)) for group in hits]


def group_gain(before: int, found: int, size: int, relevant: int, inside: int) -> float:
    """Expected sum of precisions in the first ``inside`` places of one group."""
    each = (relevant - 1) / (size - 1) if size > 1 else 0.0
    total = 0.0
    for i in range(1, inside + 1):
        total += (found + 1 + (i - 1) * each) / (before + i)
    return total * relevant / size


def tied_ap(groups: list[Group], depth: int, denominator: str) -> float:
    total_relevant = sum(relevant for _, relevant in groups)
    before, found, gain = 0, 0, 0.0
    for size, relevant in groups:
        inside = min(size, depth - before)
        if denominator == "retrieved" and inside < size:
            return cut_ap(before, found, gain, size, relevant, inside)
        if relevant:
            gain += group_gain(before, found, size, relevant, inside)
        before, found = before + size, found + relevant
        if before >= depth:
            break
    most = found if denominator == "retrieved" else min(depth, total_relevant)
    return gain / most if most else 0.0


def cut_ap(before: int, found: int, gain: float, size: int, relevant: int, inside: int) -> float:
    """AP over what was retrieved when the last places are a part of one group; a sum over what is in it."""
    score = 0.0
    for k in range(max(0, inside - (size - relevant)), min(relevant, inside) + 1):
        chance = comb(relevant, k) * comb(size - relevant, inside - k) / comb(size, inside)
        inner = group_gain(before, found, inside, k, inside) if k else 0.0
        score += chance * (gain + inner) / (found + k) if found + k else 0.0
    return score


def tied_hits(groups: list[Group], depth: int) -> float:
    before, found = 0, 0.0
    for size, relevant in groups:
        inside = min(size, depth - before)
        found += relevant * inside / size
        before += size
        if before >= depth:
            break
    return found


def tied_recall(groups: list[Group], depth: int) -> float:
    before = 0
    for size, partners in groups:
        if partners:
            inside = min(max(depth - before, 0), size)
            return 1.0 - comb(size - partners, inside) / comb(size, inside)
        before += size
    raise ValueError("no partner")


def hits_at_every_place(groups: list[Group]) -> list[float]:
    """Expected number of relevant items among the first 1, 2, … results."""
    curve, found = [], 0
    for size, relevant in groups:
        curve += [found + relevant * i / size for i in range(1, size + 1)]
        found += relevant
    return curve


def pr_curve(rankings: list[list[Group]]) -> list[float]:
    """Mean precision where the mean recall first reaches 0, 0.05, …, 1."""
    curves = [hits_at_every_place(groups) for groups in rankings]
    answerable = [curve for curve in curves if curve[-1] > 0]
    recalls = [0.0] * len(curves[0])
    precisions = [0.0] * len(curves[0])
    for t in range(len(curves[0])):
        precisions[t] = sum(curve[t] for curve in curves) / (t + 1) / len(curves)
        recalls[t] = sum(curve[t] / curve[-1] for curve in answerable) / max(len(answerable), 1)
    return [
        next((p for p, r in zip(precisions, recalls, strict=True) if r >= level / 20 - 1e-9), precisions[-1])
        for level in range(21)
    ]


# The whole set


def scores_of(groups: list[Group], n_items: int) -> dict[str, Any]:
    """All scores of one query by relevance, the curve over recall excepted."""
    scores: dict[str, Any] = {"map@all": tied_ap(groups, n_items, "recall")}
    for depth in MAP_DEPTHS:
        scores[f"map@{depth}"] = tied_ap(groups, min(depth, n_items), "retrieved")
        scores[f"map@{depth}/recall"] = tied_ap(groups, depth, "recall")
    for depth in PRECISION_DEPTHS:
        if depth <= n_items:
            scores[f"precision@{depth}"] = tied_hits(groups, depth) / depth
    depths = [depth for depth in CURVE_DEPTHS if depth <= n_items]
    scores["precision_curve"] = [tied_hits(groups, depth) / depth for depth in depths]
    return scores


def recalls_of(groups: list[Group]) -> dict[str, float]:
    """All scores of one query by partners."""
    return {f"recall@{depth}": tied_recall(groups, depth) for depth in RECALL_DEPTHS}


def all_scores(distances: Any, relevant: Any, partners: Any) -> dict[str, Any]:
    """Everything that a ``Scorer`` gives, of lists of lists; partners are one column per query."""
    n_items = len(distances[0])
    rankings = [tied_groups(*query) for query in zip(distances, relevant, strict=True)]
    queries = [scores_of(groups, n_items) for groups in rankings]
    for scores, row, partner in zip(queries, distances, partners, strict=True):
        marked = [column == partner for column in range(n_items)]
        scores.update(recalls_of(tied_groups(row, marked)))
    means: dict[str, Any] = {}
    for name in queries[0]:
        values = [scores[name] for scores in queries]
        if name == "precision_curve":
            means[name] = [sum(points) / len(points) for points in zip(*values, strict=True)]
        else:
            means[name] = sum(values) / len(values)
    return means | {"pr_curve": pr_curve(rankings)}
