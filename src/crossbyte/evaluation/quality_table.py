"""What a user's own pairs say: crossbyte beside simpler systems and chance, with intervals, and who wins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.errors import InvalidInput
from crossbyte.evaluation.measuring import QUERY_DEPTHS
from crossbyte.evaluation.own_quantizers import OWN_QUANTIZERS
from crossbyte.evaluation.results import Result
from crossbyte.evaluation.runs import Run
from crossbyte.evaluation.systems import system_of
from crossbyte.extras import is_installed
from crossbyte.methods import registry
from crossbyte.model.quality.bootstrap import Bootstrap
from crossbyte.model.selection import MIN_GROUPS
from crossbyte.report.measurements import Estimate
from crossbyte.report.verdict import format_difference, format_interval

__all__ = [
    "CHOSEN",
    "UNCOMPRESSED",
    "QualityTable",
    "SystemQuality",
    "check_enough",
    "own_runs",
    "quality_table",
]

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


def check_enough(n_train: int) -> None:
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


def own_runs(data: str, digest: str, bits: Sequence[int], seed: int = 0) -> list[Run]:
    """The runs of the table: by protocol B, with the systems' own settings.

    Raises
    ------
    InvalidInput
        One of the systems does not have one of the lengths.
    """
    quantizers = registry.GROUPS["quantizers"] if is_installed("faiss") else tuple(OWN_QUANTIZERS)
    keys = (CHOSEN, UNCOMPRESSED, *quantizers)
    runs = [Run(data, digest, "B", key, length, seed) for length in bits for key in keys]
    for run in runs:
        system_of(run)
    return runs


def quality_table(results: Sequence[Result], n_bits: int) -> QualityTable:
    """Make the table of one length of code from its results; that of crossbyte must be among them."""
    by_key = {each.run.method: each for each in results if each.run.bits == n_bits}
    own = by_key[CHOSEN]
    bootstrap = Bootstrap(own.data["n_queries"], np.random.default_rng(0))
    systems = [_quality(each, own, bootstrap) for each in by_key.values()]
    systems.append(_chance(own))
    verdict = _verdict(systems)
    return QualityTable(n_bits, own.data["n_train"], own.data["n_queries"], systems, verdict)


def _quality(result: Result, own: Result, bootstrap: Bootstrap) -> SystemQuality:
    recall = {
        direction: {
            depth: bootstrap.mean(result.per_query[direction][f"recall@{depth}"]) for depth in QUERY_DEPTHS
        }
        for direction in _DIRECTIONS
    }
    gain = None if result is own else bootstrap.mean(_hits(own) - _hits(result))
    key = result.run.method
    name = "crossbyte" if key == CHOSEN else str(result.about["name"])
    return SystemQuality(key, name, _n_bytes(result), recall, gain)


def _hits(result: Result) -> Float64:
    """Share of each query's two directions in which the partner is among the first ten."""
    both = [result.per_query[direction][f"recall@{_DEPTH}"] for direction in _DIRECTIONS]
    return np.asarray(np.mean(both, axis=0), dtype=np.float64)


def _n_bytes(result: Result) -> int:
    if result.run.method != UNCOMPRESSED:
        return -(-result.run.bits // 8)
    n_dims = result.details.get("n_components") or result.run.bits
    return 4 * int(n_dims)


def _chance(own: Result) -> SystemQuality:
    recall = {
        direction: {depth: _exact(own.chance[direction][f"recall@{depth}"]) for depth in QUERY_DEPTHS}
        for direction in _DIRECTIONS
    }
    return SystemQuality("chance", "chance", None, recall)


def _exact(value: float) -> Estimate:
    return Estimate(value, value, value)


def _verdict(systems: Sequence[SystemQuality]) -> str:
    """Say who wins at the same number of bytes, or that nobody can tell."""
    peers = [each for each in systems if each.key not in (CHOSEN, UNCOMPRESSED, "chance")]
    if not peers:
        return "No simpler system was measured at the same number of bytes."
    best = max(peers, key=SystemQuality.mean_recall)
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
