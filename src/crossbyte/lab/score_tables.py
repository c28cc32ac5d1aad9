"""Make short tables of scores: means over seeds, and a user's own pairs with intervals and who wins."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.calibration.measure import Bootstrap
from crossbyte.errors import InvalidInput
from crossbyte.extras import is_installed
from crossbyte.lab.methods import registry
from crossbyte.lab.results import SIDE, TASKS, Result, Run
from crossbyte.lab.runner import QUERY_DEPTHS
from crossbyte.lab.systems import OWN_QUANTIZERS, make_system
from crossbyte.model.selection import MIN_GROUPS
from crossbyte.report.measurements import Estimate
from crossbyte.report.verdict import format_difference, format_interval

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


class SummaryFigure(NamedTuple):
    """Mean over seeds, sample standard deviation (None of a single one), and how many seeds."""

    mean: float
    spread: float | None
    n_seeds: int


class SummaryBlock(NamedTuple):
    """One protocol and task.

    Attributes
    ----------
    data, protocol, task, metric : str
    bits : list of int
    rows : dict of str to dict of int to SummaryFigure
        By name of the system (with its variant, and its similarity where it was taught with labels) and
        bits.
    chance : float
    """

    data: str
    protocol: str
    task: str
    metric: str
    bits: list[int]
    rows: dict[str, dict[int, SummaryFigure]]
    chance: float

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form."""
        rows = {
            name: {str(bits): figure._asdict() for bits, figure in by_bits.items()}
            for name, by_bits in self.rows.items()
        }
        return {**self._asdict(), "rows": rows}


def summarise_seeds(values: Sequence[float]) -> SummaryFigure | None:
    """Sum up one value per seed; None if there is none."""
    if not values:
        return None
    return SummaryFigure(fmean(values), stdev(values) if len(values) > 1 else None, len(values))


def summarise_results(results: Sequence[Result]) -> list[SummaryBlock]:
    """Give a block per collection, protocol and task, of the main metric."""
    places = {(each.run.data, each.run.protocol): None for each in results}
    return [
        _make_block(
            data, protocol, task, [each for each in results if _belongs_to(each, data, protocol, task)]
        )
        for data, protocol in places
        for task in TASKS
        if any(_belongs_to(each, data, protocol, task) for each in results)
    ]


def _belongs_to(result: Result, data: str, protocol: str, task: str) -> bool:
    return result.run.data == data and result.run.protocol == protocol and task in result.scores


def _make_block(data: str, protocol: str, task: str, results: list[Result]) -> SummaryBlock:
    metric = MAIN_METRIC[protocol]
    bits = sorted({each.run.bits for each in results})
    rows = {
        name: {
            length: figure for length in bits if (figure := _make_figure(results, name, length, task, metric))
        }
        for name in dict.fromkeys(map(_row_name, results))
    }
    chance = float(results[0].chance[task].get(metric) or 0.0)
    return SummaryBlock(data, protocol, task, metric, bits, rows, chance)


def _row_name(result: Result) -> str:
    run, about = result.run, result.about
    taught = " (labels)" if run.similarity == "labels" and len(about["similarities"]) > 1 else ""
    variant = _VARIANTS.get(run.variant, f" {run.variant}")
    return f"{about['name']}{variant}{taught}"


def _make_figure(
    results: Iterable[Result], name: str, bits: int, task: str, metric: str
) -> SummaryFigure | None:
    chosen = [each for each in results if _row_name(each) == name and each.run.bits == bits]
    return summarise_seeds([value for each in chosen if (value := each.score(metric, task)) is not None])


# A user's own pairs: crossbyte beside simpler systems

CHOSEN = "cmcq-auto"
UNCOMPRESSED = "cca"
_DEPTH = 10
_DIRECTIONS = ("image-to-text", "text-to-image")


class SystemQuality(NamedTuple):
    """How one system finds true partners.

    Attributes
    ----------
    key, name : str
    n_bytes : int or None
        Per item; None for chance.
    recall : dict of direction to dict of depth to Estimate
        Share of queries whose partner is among the first 1, 5 and 10.
    gain : Estimate or None
        Recall@10 of crossbyte minus this system's, mean of both directions, query by query.
    """

    key: str
    name: str
    n_bytes: int | None
    recall: dict[str, dict[int, Estimate]]
    gain: Estimate | None = None

    def mean_recall(self) -> float:
        """Recall@10, mean of both directions."""
        return sum(self.recall[each][_DEPTH].value for each in _DIRECTIONS) / len(_DIRECTIONS)


class QualityTable(NamedTuple):
    """All systems at one length of code, and one sentence on who wins."""

    n_bits: int
    n_train: int
    n_queries: int
    systems: list[SystemQuality]
    verdict: str

    def to_dict(self) -> dict[str, Any]:
        """Its JSON form."""
        return {
            **self._asdict(),
            "systems": [
                {
                    **system._asdict(),
                    "recall": {
                        direction: {str(depth): value._asdict() for depth, value in by_depth.items()}
                        for direction, by_depth in system.recall.items()
                    },
                    "gain": None if system.gain is None else system.gain._asdict(),
                }
                for system in self.systems
            ],
        }


def check_enough_pairs(n_train: int) -> None:
    """Refuse pairs that are too few for crossbyte to choose its settings on.

    Raises
    ------
    InvalidInput
    """
    if n_train < MIN_GROUPS:
        raise InvalidInput(
            f"expected at least {MIN_GROUPS} pairs to learn from, got {n_train}: with so few, no system can "
            "be told from another; give more pairs"
        )


def plan_own_runs(data: str, digest: str, bits: Sequence[int], seed: int = 0) -> list[Run]:
    """List the runs of the table: by protocol B, with the systems' own settings.

    Raises
    ------
    InvalidInput
        One of the systems does not have one of the lengths.
    """
    quantizers = registry.GROUPS["quantizers"] if is_installed("faiss") else tuple(OWN_QUANTIZERS)
    keys = (CHOSEN, UNCOMPRESSED, *quantizers)
    runs = [Run(data, digest, "B", key, length, seed) for length in bits for key in keys]
    for run in runs:
        make_system(run)
    return runs


def make_quality_table(results: Sequence[Result], n_bits: int) -> QualityTable:
    """Make the table of one length of code from its results; that of crossbyte must be among them."""
    by_key = {each.run.method: each for each in results if each.run.bits == n_bits}
    own = by_key[CHOSEN]
    bootstrap = Bootstrap(own.data["n_queries"], np.random.default_rng(0))
    systems = [_measure_quality(each, own, bootstrap) for each in by_key.values()]
    systems.append(_chance_quality(own))
    verdict = _say_who_wins(systems)
    return QualityTable(n_bits, own.data["n_train"], own.data["n_queries"], systems, verdict)


def _measure_quality(result: Result, own: Result, bootstrap: Bootstrap) -> SystemQuality:
    recall = {
        direction: {
            depth: bootstrap.mean(result.per_query[direction][f"recall@{depth}"]) for depth in QUERY_DEPTHS
        }
        for direction in _DIRECTIONS
    }
    gain = None if result is own else bootstrap.mean(_hits_by_query(own) - _hits_by_query(result))
    key = result.run.method
    name = "crossbyte" if key == CHOSEN else str(result.about["name"])
    return SystemQuality(key, name, _bytes_per_item(result), recall, gain)


def _hits_by_query(result: Result) -> Float64:
    """Share of each query's two directions in which the partner is among the first ten."""
    both = [result.per_query[direction][f"recall@{_DEPTH}"] for direction in _DIRECTIONS]
    return np.asarray(np.mean(both, axis=0), dtype=np.float64)


def _bytes_per_item(result: Result) -> int:
    if result.run.method != UNCOMPRESSED:
        return -(-result.run.bits // 8)
    n_dims = result.details.get("n_components") or result.run.bits
    return 4 * int(n_dims)


def _chance_quality(own: Result) -> SystemQuality:
    recall = {
        direction: {
            depth: _exact_estimate(own.chance[direction][f"recall@{depth}"]) for depth in QUERY_DEPTHS
        }
        for direction in _DIRECTIONS
    }
    return SystemQuality("chance", "chance", None, recall)


def _exact_estimate(value: float) -> Estimate:
    return Estimate(value, value, value)


def _say_who_wins(systems: Sequence[SystemQuality]) -> str:
    """Say who wins at the same number of bytes, or that nobody can tell."""
    baselines = [each for each in systems if each.key not in (CHOSEN, UNCOMPRESSED, "chance")]
    if not baselines:
        return "No simpler system was measured at the same number of bytes."
    best = max(baselines, key=SystemQuality.mean_recall)
    gain = best.gain
    assert gain is not None
    said = f"{format_difference(gain.value)} of 100 partners among the first ten ({format_interval(gain)})"
    if gain.low > 0:
        return f"crossbyte wins: it finds {said} than the best simpler system of its size, {best.name}."
    if gain.high < 0:
        return f"A simpler system wins: crossbyte finds {said} than {best.name}, which has the same size."
    return (
        f"crossbyte and the best simpler system of its size, {best.name}, cannot be told apart on these "
        f"pairs: crossbyte finds {said}."
    )
