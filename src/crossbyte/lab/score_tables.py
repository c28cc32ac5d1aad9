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
from crossbyte.lab.datasets.collection import Collection
from crossbyte.lab.methods import registry
from crossbyte.lab.protocols import has_other_texts
from crossbyte.lab.results import SIDE, TASKS, Result, Run
from crossbyte.lab.runner import QUERY_DEPTHS
from crossbyte.lab.systems import KEYWORDS, OWN_QUANTIZERS, are_words, make_system
from crossbyte.model.params import LIKELIHOOD_DIMS
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
    "L": "map@50",
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
        _make_block(data, protocol, task, found)
        for data, protocol in places
        for found in [[each for each in results if (each.run.data, each.run.protocol) == (data, protocol)]]
        for task in TASKS
        if any(task in each.scores for each in found)
    ]


def _make_block(data: str, protocol: str, task: str, results: list[Result]) -> SummaryBlock:
    metric = MAIN_METRIC[protocol]
    bits = sorted({each.run.bits for each in results})
    rows = {
        name: {
            length: figure for length in bits if (figure := _make_figure(results, name, length, task, metric))
        }
        for name in dict.fromkeys(map(_row_name, results))
    }
    chance = next(float(each.chance[task].get(metric) or 0.0) for each in results if task in each.chance)
    return SummaryBlock(data, protocol, task, metric, bits, rows, chance)


def _row_name(result: Result) -> str:
    run, about = result.run, result.about
    taught = " (labels)" if run.similarity == "labels" and len(about["similarities"]) > 1 else ""
    variant = _VARIANTS.get(run.variant, f" {run.variant}")
    return f"{about['name']}{variant}{taught}"


def _make_figure(
    results: Iterable[Result], name: str, bits: int, task: str, metric: str
) -> SummaryFigure | None:
    chosen = [
        each for each in results if _row_name(each) == name and each.run.bits == bits and task in each.scores
    ]
    return summarise_seeds([value for each in chosen if (value := each.score(metric, task)) is not None])


# A user's own pairs: crossbyte beside simpler systems

CHOSEN = "cmcq-auto"
UNCOMPRESSED = "cca"
ONE_CODE = "cca-middle-rq"
_DEPTH = 10
_DIRECTIONS = {"B": ("image-to-text", "text-to-image"), "C": ("text-to-image",)}
"""What is shown of each protocol: halves that look for each other, and other texts for whole documents."""


class SystemQuality(NamedTuple):
    """How one system finds true partners.

    Attributes
    ----------
    key, name : str
    n_bytes : int or None
        Per item; None for chance. Of keyword overlap, those of its words, in the mean.
    recall : dict of direction to dict of depth to Estimate
        Share of queries whose partner is among the first 1, 5 and 10.
    gain : Estimate or None
        Recall@10 of crossbyte minus this system's, mean of all directions, document by document.
    """

    key: str
    name: str
    n_bytes: int | None
    recall: dict[str, dict[int, Estimate]]
    gain: Estimate | None = None

    def mean_recall(self) -> float:
        """Recall@10, mean of all directions."""
        return fmean(by_depth[_DEPTH].value for by_depth in self.recall.values())


class QualityTable(NamedTuple):
    """All systems by one protocol at one length of code, and a few words on who wins.

    By protocol B, halves of unseen pairs look for each other. By protocol C, other texts look for unseen
    documents of which both halves are known.
    """

    protocol: str
    n_bits: int
    n_train: int
    n_items: int
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


def plan_own_runs(collection: Collection, digest: str, bits: Sequence[int], seed: int = 0) -> list[Run]:
    """List the runs of the tables.

    They are by protocol B, and by C where there are other texts to ask with; there keyword overlap takes
    part, if texts are words. Systems have their own settings, but for as many dimensions as ``CMCQ()`` has;
    in as many as bits, as they are by default, they find less.

    Raises
    ------
    InvalidInput
        One of the systems does not have one of the lengths.
    """
    quantizers = registry.GROUPS["quantizers"] if is_installed("faiss") else tuple(OWN_QUANTIZERS)
    simple, wide = (UNCOMPRESSED, ONE_CODE, *quantizers), {"n_components": LIKELIHOOD_DIMS}
    keys = {"B": (CHOSEN, *simple)}
    if has_other_texts(collection.query):
        keys["C"] = (*keys["B"], *((KEYWORDS,) if are_words(collection.train.texts) else ()))
    runs = [
        Run(
            collection.name,
            digest,
            protocol,
            key,
            length,
            seed,
            parameters=dict(wide) if key in simple else {},
        )
        for protocol, some in keys.items()
        for length in bits
        for key in some
    ]
    for run in runs:
        make_system(run)
    return runs


def make_quality_table(results: Sequence[Result], n_bits: int, protocol: str = "B") -> QualityTable:
    """Make the table of one protocol and length of code; a result of crossbyte must be among the results."""
    by_key = {each.run.method: each for each in results if _is_of(each, protocol, n_bits)}
    own = by_key[CHOSEN]
    bootstrap = Bootstrap(len(_mean_hits(own)), np.random.default_rng(0))
    systems = [_measure_quality(each, own, bootstrap) for each in by_key.values()]
    systems.append(_chance_quality(own))
    n_train, n_items, n_queries = (own.data[name] for name in ("n_train", "n_items", "n_queries"))
    verdict = _say_who_wins(systems)
    return QualityTable(protocol, n_bits, n_train, n_items, n_queries, systems, verdict)


def make_quality_tables(
    results: Sequence[Result], bits: Sequence[int], protocol: str = "B"
) -> list[QualityTable]:
    """Make the tables of one protocol at every length that crossbyte was measured at."""
    measured = {
        length
        for length in bits
        if any(_is_of(each, protocol, length) and each.run.method == CHOSEN for each in results)
    }
    return [make_quality_table(results, length, protocol) for length in sorted(measured)]


def _is_of(result: Result, protocol: str, bits: int) -> bool:
    return result.run.protocol == protocol and result.run.bits == bits


def _measure_quality(result: Result, own: Result, bootstrap: Bootstrap) -> SystemQuality:
    recall = {
        direction: {depth: bootstrap.mean(_hits(result, direction, depth)) for depth in QUERY_DEPTHS}
        for direction in _DIRECTIONS[result.run.protocol]
    }
    gain = None if result is own else bootstrap.mean(_mean_hits(own) - _mean_hits(result))
    key = result.run.method
    name = "crossbyte" if key == CHOSEN else str(result.about["name"])
    return SystemQuality(key, name, _bytes_per_item(result), recall, gain)


def _hits(result: Result, direction: str, depth: int) -> Float64:
    """Share of each document's queries whose partner is among the first ``depth``: (n,).

    Several texts about one document are no independent queries, so documents are what is drawn again.
    """
    found = np.asarray(result.per_query[direction][f"recall@{depth}"], dtype=np.float64)
    return np.asarray(found.reshape(result.data.get("texts_per_item", 1), -1).mean(axis=0), dtype=np.float64)


def _mean_hits(result: Result) -> Float64:
    """Share of each document's queries, mean of all directions, whose partner is among the first ten."""
    found = [_hits(result, direction, _DEPTH) for direction in _DIRECTIONS[result.run.protocol]]
    return np.asarray(np.mean(found, axis=0), dtype=np.float64)


def _bytes_per_item(result: Result) -> int:
    if result.run.method == KEYWORDS:
        return round(result.details["bytes_per_document"])
    if result.run.method != UNCOMPRESSED:
        return -(-result.run.bits // 8)
    n_dims = result.details.get("n_components") or result.run.bits
    return 4 * int(n_dims)


def _chance_quality(own: Result) -> SystemQuality:
    recall = {
        direction: {
            depth: _exact_estimate(own.chance[direction][f"recall@{depth}"]) for depth in QUERY_DEPTHS
        }
        for direction in _DIRECTIONS[own.run.protocol]
    }
    return SystemQuality("chance", "chance", None, recall)


def _exact_estimate(value: float) -> Estimate:
    return Estimate(value, value, value)


def _say_who_wins(systems: Sequence[SystemQuality]) -> str:
    """Say who wins at the same number of bytes, or that nobody can tell; and whether words find more."""
    return " ".join([_say_who_wins_by_size(systems), *_say_if_words_win(systems)])


def _say_if_words_win(systems: Sequence[SystemQuality]) -> list[str]:
    words = next((each for each in systems if each.key == KEYWORDS), None)
    if words is None or words.gain is None or words.gain.high >= 0:
        return []
    return [
        f"Keyword overlap, which keeps the words ({words.n_bytes} bytes per document), finds more: crossbyte "
        f"finds {format_difference(words.gain.value)} of 100 ({format_interval(words.gain)})."
    ]


def _say_who_wins_by_size(systems: Sequence[SystemQuality]) -> str:
    others = (CHOSEN, UNCOMPRESSED, KEYWORDS, "chance")
    baselines = [each for each in systems if each.key not in others]
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
