"""Times of several systems, measured in turns, and what was wanted beside what was measured.

Systems take turns (A B C A B C …), so that whatever else the machine does meets all of them alike; each has
one turn to warm up, which is not counted. A figure is the median of its turns; a ratio is one of medians.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from benchmarks.tables import Measurement

__all__ = [
    "CLOCKS",
    "Clock",
    "Goal",
    "Turn",
    "measurements",
    "medians",
    "print_goals",
    "print_times",
    "seconds_per_call",
    "take_turns",
    "keep_wanted",
]

Clock = Callable[[], float]
Turn = Callable[[], float]

CLOCKS: dict[str, Clock] = {
    "wall": time.perf_counter,
    "cpu": time.process_time,  # of the whole process, all threads: fair for one thread on a loaded machine
}


class Goal(NamedTuple):
    """One line of a table: a figure, and what it should be.

    Attributes
    ----------
    system, score : str
        What was measured, and what was counted.
    value : float
    wanted : float, optional
        None where the figure is only shown.
    at_most : bool
        Whether ``wanted`` is the most that is allowed, or the least.
    """

    system: str
    score: str
    value: float
    wanted: float | None = None
    at_most: bool = False

    @property
    def verdict(self) -> str:
        """Whether the figure is what it should be; empty where nothing was asked for."""
        if self.wanted is None:
            return ""
        reached = self.value <= self.wanted if self.at_most else self.value >= self.wanted
        return "reached" if reached else "MISSED"


def seconds_per_call(clock: Clock, calls: Sequence[Callable[[], Any]], *, warm: bool = True) -> float:
    """Time that the calls take on average, one after the other.

    With ``warm`` the first one is made once before, uncounted: the caches are another system's at the start
    of a turn. The FAISS processes do the same.
    """
    if warm:
        calls[0]()
    start = clock()
    for call in calls:
        call()
    return (clock() - start) / len(calls)


def take_turns(turns: Mapping[str, Turn], repetitions: int) -> dict[str, list[float]]:
    """Let every system measure itself, in turns; seconds by name, one per repetition."""
    for turn in turns.values():
        turn()
    rounds = [{name: turn() for name, turn in turns.items()} for _ in range(repetitions)]
    return {name: [found[name] for found in rounds] for name in turns}


def print_goals(title: str, goals: Iterable[Goal]) -> None:
    """Print one line per figure: measured, wanted, verdict."""
    table = _table(title, ("system", "score"), ("measured", "wanted"))
    for goal in goals:
        table.add_row(goal.system, goal.score, f"{goal.value:.4g}", *_wanted(goal))
    Console().print(table)


def print_times(title: str, found: Mapping[str, float], goals: Iterable[Goal]) -> None:
    """Print one line per system: median time in milliseconds, and its goal if it has one."""
    by_system = {goal.system: goal for goal in goals}
    table = _table(title, ("system",), ("ms per query", "times crossbyte's", "wanted"))
    for name, seconds in found.items():
        goal = by_system.get(name)
        ratio = ("", "", "") if goal is None else (f"{goal.value:.2f}", *_wanted(goal))
        table.add_row(name, f"{1e3 * seconds:.4f}", *ratio)
    Console().print(table)


def _table(title: str, texts: Sequence[str], numbers: Sequence[str]) -> Table:
    table = Table(*texts, title=title)
    for heading in numbers:
        table.add_column(heading, justify="right")
    table.add_column("")
    return table


def _wanted(goal: Goal) -> tuple[str, str]:
    sign = "≤" if goal.at_most else "≥"
    return "–" if goal.wanted is None else f"{sign} {goal.wanted:g}", goal.verdict


def measurements(
    seconds: Mapping[str, Sequence[float]], score: str, goals: Iterable[Goal] = ()
) -> list[Measurement]:
    """What is kept: every repetition's time in milliseconds, and the figures made of their medians."""
    times = [Measurement(name, score, [1e3 * one for one in values]) for name, values in seconds.items()]
    return times + [Measurement(g.system, g.score, [g.value], target=g.wanted) for g in goals]


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median of every system's repetitions."""
    return {name: median(values) for name, values in seconds.items()}


def keep_wanted(goals: Iterable[Goal], full_size: bool) -> list[Goal]:
    """Keep what is wanted of the figures only at the full size; smaller runs are just shown."""
    return [goal if full_size else goal._replace(wanted=None) for goal in goals]
