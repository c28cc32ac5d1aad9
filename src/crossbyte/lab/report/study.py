"""Hold all results of an evaluation and sum them up over seeds, for every table and figure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from crossbyte.errors import InvalidInput
from crossbyte.lab.results import TASKS, Result, keep_latest, no_results_error, read_result, result_paths
from crossbyte.lab.score_tables import SummaryFigure as Estimate
from crossbyte.lab.score_tables import summarise_seeds

OURS = ("cmcq", "cmcq-cca", "cmcq-kernel", "cmcq-default", "cmcq-auto")
"""Keys of the systems that are this package's own."""

_ORDER = (
    *("cmssh", "cvh", "mlbe", "qch", "lssh", "cmfh", "ccq", "seph"),
    *("scm", "crh", "mmnn", "sm2h", "imh", "mvsh", "stmh"),
    *("cq", "cca-itq", "cca-pq", "cca-opq", "cca-rq", "cca-lsq", "cca-middle-rq"),
    *OURS,
    *("cca", "keywords", "random"),
)
_DATA_ORDER = ("wiki", "mirflickr", "nus-wide", "flickr8k", "fashion")


class System(NamedTuple):
    """A row of a table: a method, what it is taught with, and a setting of it (empty: the plain one)."""

    method: str
    similarity: str
    variant: str = ""

    @property
    def is_ours(self) -> bool:
        """Whether it is a variant of CMCQ."""
        return self.method in OURS


@dataclass(frozen=True, eq=False)
class Scope:
    """The results of one protocol on one data set.

    Attributes
    ----------
    data, protocol : str
    results : list of Result
    """

    data: str
    protocol: str
    results: Sequence[Result]

    @cached_property
    def _cells(self) -> dict[tuple[System, int], list[Result]]:
        cells: dict[tuple[System, int], list[Result]] = {}
        for result in self.results:
            cells.setdefault((_system(result), result.run.bits), []).append(result)
        return cells

    @cached_property
    def _measured(self) -> dict[tuple[System, int, str, str], Estimate | None]:
        return {}

    @cached_property
    def _abouts(self) -> dict[System, Mapping[str, Any]]:
        return {system: cell[0].about for (system, _), cell in self._cells.items()}

    @cached_property
    def every_system(self) -> list[System]:
        """All systems and settings, in the order of tables."""
        return sorted({system for system, _ in self._cells}, key=_place)

    @cached_property
    def systems(self) -> list[System]:
        """The plain systems, in the order of tables."""
        return [system for system in self.every_system if not system.variant]

    @cached_property
    def bits(self) -> list[int]:
        """Code lengths that any plain system was run with; those of settings if there is no plain one."""
        found = {bits for system, bits in self._cells if not system.variant}
        return sorted(found or {bits for _, bits in self._cells})

    @cached_property
    def tasks(self) -> list[str]:
        """Tasks with results, in the order of tables."""
        return [task for task in TASKS if any(task in result.scores for result in self.results)]

    @cached_property
    def n_seeds(self) -> int:
        """The most seeds that any system was run with."""
        return max(len({result.run.seed for result in cell}) for cell in self._cells.values())

    @cached_property
    def has_labels(self) -> bool:
        """Whether relevance by labels was scored."""
        return any("map@50" in scores for result in self.results for scores in result.scores.values())

    @property
    def main_metric(self) -> str:
        """The metric to show where there is room for one."""
        return "map@50" if self.has_labels else "recall@10"

    def at(self, system: System, bits: int) -> list[Result]:
        """Results of a system at a length, one per seed."""
        return self._cells.get((system, bits), [])

    def name(self, system: System) -> str:
        """Name a system as it calls itself, and its setting."""
        name = str(self._abouts[system].get("name") or system.method)
        return f"{name} ({system.variant})" if system.variant else name

    def is_coded(self, system: System) -> bool:
        """Whether the system codes at all; uncompressed ones are a ceiling and chance a floor."""
        return self._abouts[system].get("codes") != "none" and system.method not in ("cca", "random")

    def measure(self, system: System, bits: int, task: str, metric: str) -> Estimate | None:
        """One figure over seeds; None where it was not measured."""
        key = system, bits, task, metric
        if key not in self._measured:  # tables ask for the same figure many times, to find the best
            values = (number(result.scores.get(task, {}).get(metric)) for result in self.at(system, bits))
            self._measured[key] = estimate(values)
        return self._measured[key]

    def chance(self, task: str, metric: str) -> float | None:
        """What a random order scores; the same for every system, so the mean is only for safety."""
        found = estimate(number(result.chance.get(task, {}).get(metric)) for result in self.results)
        return None if found is None else found.mean

    def curve(
        self, system: System, bits: int, task: str, name: str
    ) -> tuple[list[float], list[float]] | None:
        """A curve over seeds, point by point; None if there is none, or the seeds do not fit together."""
        across, up = ("depths", "values") if name == "precision_curve" else ("recall", "precision")
        drawn = [result.scores.get(task, {}).get(name) for result in self.at(system, bits)]
        points = [
            (_numbers(each.get(across)), _numbers(each.get(up))) for each in drawn if isinstance(each, dict)
        ]
        points = [(xs, ys) for xs, ys in points if xs and len(xs) == len(ys)]
        points = [(xs, ys) for xs, ys in points if xs == points[0][0]]
        if not points:
            return None
        return points[0][0], [fmean(ys) for ys in zip(*(ys for _, ys in points), strict=True)]


class Study:
    """Results of an evaluation.

    Attributes
    ----------
    results : list of Result
    damaged : list of str
        Files that could not be read, each with why.
    """

    def __init__(self, results: Sequence[Result], damaged: Sequence[str] = ()) -> None:
        self.results = list(results)
        self.damaged = list(damaged)

    def scopes(self, *protocols: str) -> list[Scope]:
        """One scope per data set and protocol with results, the paper's data sets first."""
        names = {(result.run.protocol, result.run.data) for result in self.results}
        wanted = [(p, d) for p, d in names if not protocols or p in protocols]
        return [self._scope(data, protocol) for protocol, data in sorted(wanted, key=_scope_place)]

    def _scope(self, data: str, protocol: str) -> Scope:
        chosen = [r for r in self.results if (r.run.data, r.run.protocol) == (data, protocol)]
        return Scope(data, protocol, chosen)


def read_study(directory: Path) -> Study:
    """Read every result of an evaluation; damaged files are named and left out.

    Raises
    ------
    InvalidInput
        There is no result at all.
    """
    results, damaged = [], []
    for path in result_paths(directory):
        try:
            results.append(_check_result(read_result(path)))
        except (InvalidInput, OSError) as error:
            damaged.append(f"{path.name}: {_without_path(str(error), path)}")
    if not results:
        raise no_results_error(directory, f"{len(damaged)} damaged ({damaged[0]})" if damaged else "none")
    return Study(keep_latest(results), damaged)


def _without_path(message: str, path: Path) -> str:
    """Reports travel; where they were made is nobody's business."""
    return message.replace(f"{path}: ", "").replace(str(path), path.name)


def _check_result(result: Result) -> Result:
    """Refuse what would break a table later: names that are no text, lengths that are no numbers."""
    run = result.run
    texts = (run.data, run.protocol, run.method, run.variant, run.similarity)
    if not all(isinstance(text, str) for text in texts) or not all(map(_is_whole, (run.bits, run.seed))):
        raise InvalidInput("expected names as text and bits and seed as whole numbers in its part run")
    if run.bits < 1:
        raise InvalidInput(f"expected at least one bit; got {run.bits}")
    by_task = [*result.scores.values(), *result.chance.values(), *result.per_query.values()]
    if not all(isinstance(part, dict) for part in by_task):
        raise InvalidInput("expected scores, chance and per_query by task and metric")
    return result


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def number(value: Any) -> float | None:
    """Take a finite number from a file; None for anything else."""
    usable = isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)
    return float(value) if usable else None


def _numbers(values: Any) -> list[float]:
    found = [number(value) for value in values] if isinstance(values, list) else []
    return [value for value in found if value is not None] if None not in found else []


def estimate(values: Iterable[float | None]) -> Estimate | None:
    """Sum up figures of several seeds, as far as they are known; None if there is none."""
    return summarise_seeds([value for value in values if value is not None])


def _system(result: Result) -> System:
    return System(result.run.method, result.run.similarity, result.run.variant)


def _place(system: System) -> tuple[float, str, bool, str, str]:
    known = _ORDER.index(system.method) if system.method in _ORDER else _ORDER.index("cmcq") - 0.5
    return known, system.method, system.similarity != "pairs", system.similarity, system.variant


def _scope_place(scope: tuple[str, str]) -> tuple[str, int, str]:
    protocol, data = scope
    return protocol, _DATA_ORDER.index(data) if data in _DATA_ORDER else len(_DATA_ORDER), data
