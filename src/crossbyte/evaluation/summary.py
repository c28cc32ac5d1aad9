"""Figures of many runs for a short table: the mean over seeds, and how far they spread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

from crossbyte.evaluation.results import TASKS, Result
from crossbyte.evaluation.runs import SIDE

__all__ = ["MAIN_METRIC", "Block", "Figure", "figure_of", "summarise"]

MAIN_METRIC = {
    "A": "map@50",
    "B": "recall@10",
    "C": "recall@10",
    "D": "map@50",
    "V": "map@50",
    "P": "recall@10",
}
"""What a short table shows of each protocol."""


_VARIANTS = {"": "", SIDE: ", from the searched half"}


class Figure(NamedTuple):
    """Mean over seeds, sample standard deviation (None of a single one), and how many seeds."""

    mean: float
    spread: float | None
    n_seeds: int


class Block(NamedTuple):
    """One protocol and task.

    Attributes
    ----------
    data, protocol, task, metric : str
    bits : list of int
    rows : dict of str to dict of int to Figure
        By name of the system (with its variant, and its similarity where it was taught with labels) and
        bits.
    chance : float
    """

    data: str
    protocol: str
    task: str
    metric: str
    bits: list[int]
    rows: dict[str, dict[int, Figure]]
    chance: float

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form."""
        rows = {
            name: {str(bits): figure._asdict() for bits, figure in by_bits.items()}
            for name, by_bits in self.rows.items()
        }
        return {**self._asdict(), "rows": rows}


def figure_of(values: Sequence[float]) -> Figure | None:
    """Sum up one value per seed; None if there is none."""
    if not values:
        return None
    return Figure(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def summarise(results: Sequence[Result]) -> list[Block]:
    """Give a block per collection, protocol and task, of the main metric."""
    places = {(each.run.data, each.run.protocol): None for each in results}
    return [
        _block(data, protocol, task, [each for each in results if _is_of(each, data, protocol, task)])
        for data, protocol in places
        for task in TASKS
        if any(_is_of(each, data, protocol, task) for each in results)
    ]


def _is_of(result: Result, data: str, protocol: str, task: str) -> bool:
    return result.run.data == data and result.run.protocol == protocol and task in result.scores


def _block(data: str, protocol: str, task: str, results: list[Result]) -> Block:
    metric = MAIN_METRIC[protocol]
    bits = sorted({each.run.bits for each in results})
    rows = {
        name: {length: figure for length in bits if (figure := _figure(results, name, length, task, metric))}
        for name in dict.fromkeys(map(_name, results))
    }
    chance = float(results[0].chance[task].get(metric) or 0.0)
    return Block(data, protocol, task, metric, bits, rows, chance)


def _name(result: Result) -> str:
    run, about = result.run, result.about
    taught = " (labels)" if run.similarity == "labels" and len(about["similarities"]) > 1 else ""
    variant = _VARIANTS.get(run.variant, f" {run.variant}")
    return f"{about['name']}{variant}{taught}"


def _figure(results: Iterable[Result], name: str, bits: int, task: str, metric: str) -> Figure | None:
    chosen = [each for each in results if _name(each) == name and each.run.bits == bits]
    return figure_of([value for each in chosen if (value := each.score(metric, task)) is not None])
