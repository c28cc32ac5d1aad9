"""Hold what was measured of a model on held-out pairs, and turn it into JSON and back."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any, NamedTuple, Self

DEPTHS = (1, 10, 100)
MAPPINGS = ("sparse", "cca", "contrastive", "joint")
DIRECTIONS = ("image_to_text", "text_to_image")
NAMES = {
    "crossbyte": "crossbyte",
    "uncompressed": "the same space, uncompressed",
    "cca_pq": "CCA + product quantization",
    "cca_rq": "CCA + residual quantization",
    "chance": "chance",
}
DOCUMENT_NAMES = {
    "crossbyte": "crossbyte, one code",
    "uncompressed": "the same, uncompressed",
    "middle_rq": "CCA + RQ of the middle of both halves",
    "keywords": "keyword overlap with the document's own text",
    "chance": "chance",
}
"""Systems that find documents known from both halves."""

HINT, CLEAR = 0.6, 0.8
"""AUROC from which on queries without a match are recognised roughly, and surely."""

_COUNTS = ("n_pairs", "n_held_out", "n_bytes", "n_components", "n_curve_pairs")


class Estimate(NamedTuple):
    """A measured value with its 95 % bootstrap interval over held-out pairs."""

    value: float
    low: float
    high: float


class Scores(NamedTuple):
    """How one system finds true partners in one direction.

    Attributes
    ----------
    recall : dict of int to Estimate
        Share of queries whose partner is among the first 1, 10 and 100.
    median_rank : Estimate
        From 1.
    """

    recall: dict[int, Estimate]
    median_rank: Estimate


class System(NamedTuple):
    """One compared system in both directions.

    Attributes
    ----------
    name : str
        A key of :data:`NAMES`.
    n_bytes : int or None
        Per item; None for chance.
    directions : dict of str to Scores
        By :data:`DIRECTIONS`.
    """

    name: str
    n_bytes: int | None
    directions: dict[str, Scores]

    def recall(self, depth: int = 10) -> float:
        """Return the mean recall of both directions."""
        return sum(self.directions[each].recall[depth].value for each in DIRECTIONS) / len(DIRECTIONS)


class DocumentSystem(NamedTuple):
    """How one system finds documents that are known from both halves, asked by another text about them.

    Attributes
    ----------
    name : str
        A key of :data:`DOCUMENT_NAMES`.
    n_bytes : int or None
        Per document; None for chance, and for keywords, which need the words themselves.
    recall : Estimate
        Share of queries whose document is among the first 10.
    gain : Estimate or None
        Recall@10 of crossbyte minus this system's, query by query; None for crossbyte itself.
    """

    name: str
    n_bytes: int | None
    recall: Estimate
    gain: Estimate | None


class CurvePoint(NamedTuple):
    """Quality at one code length.

    Attributes
    ----------
    n_bytes : int
        Per item and side.
    recall : dict of system to dict of direction to Estimate
        Recall@10 among the held-out items.
    by_size : list of (n_items, recall)
        Recall@10 of crossbyte, mean of both directions, expected among other numbers of items.
    """

    n_bytes: int
    recall: dict[str, dict[str, Estimate]]
    by_size: list[tuple[int, float]]

    def recall_at(self, n_items: int) -> float | None:
        """Expect the recall@10 of crossbyte in an index of ``n_items`` items, mean of both directions.

        Between the sizes it is taken from the straight line over the logarithm of the size; below them it is
        that of the smallest, and beyond them None: nothing that was seen says anything of such an index.
        """
        size = max(n_items, self.by_size[0][0])
        if size > self.by_size[-1][0]:
            return None
        for (low, first), (high, last) in pairwise(self.by_size):
            if low <= size <= high:
                return first + (last - first) * log(size / low) / log(high / low)
        return self.by_size[0][1]


class Reliability(NamedTuple):
    """Whether probabilities are true, in one direction.

    Attributes
    ----------
    query, target : {"image", "text"}
    bins : list of (probability, share, count)
        First ten hits in bins of equal number: their mean probability, and how many were true partners.
        Every second query has lost its partner.
    error : float
        Expected calibration error: mean gap of the bins.
    match_auroc : float
        How well the sum of the first ten probabilities, which ``no_match`` goes by, tells queries with a
        partner from those without one; chance is 0.5.
    distance_auroc : float
        The same for the smallest distance.
    """

    query: str
    target: str
    bins: list[tuple[float, float, int]]
    error: float
    match_auroc: float
    distance_auroc: float


@dataclass(frozen=True)
class Measurements:
    """How well a model finds true partners among pairs it has not seen, beside other systems.

    Attributes
    ----------
    n_pairs, n_held_out : int
        Pairs that were given; held-out pairs, of one group each, that everything was measured on.
    n_bytes : int
        Per item and side.
    mapping : str
    n_components : int
    systems : tuple of System
        crossbyte first, chance last.
    gains : dict of str to Estimate
        Recall@10 of crossbyte minus that of each other system, mean of both directions, pair by pair.
    curve : tuple of CurvePoint
        By growing number of bytes; empty if it was not asked for.
    n_curve_pairs : int
        Pairs that the curve was measured with; a sample where there were many.
    reliability : tuple of Reliability
        One per direction.
    documents : tuple of DocumentSystem
        crossbyte first, chance last; empty unless the model has one code for a document and enough groups
        have a second text to ask with.
    """

    n_pairs: int
    n_held_out: int
    n_bytes: int
    mapping: str
    n_components: int
    systems: tuple[System, ...]
    gains: Mapping[str, Estimate]
    curve: tuple[CurvePoint, ...]
    n_curve_pairs: int
    reliability: tuple[Reliability, ...]
    documents: tuple[DocumentSystem, ...] = ()

    def system(self, name: str) -> System:
        """Find one of the systems by its name."""
        return next(each for each in self.systems if each.name == name)

    def recall(self, depth: int = 10) -> float:
        """Return the recall of crossbyte, mean of both directions."""
        return self.system("crossbyte").recall(depth)

    # JSON

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain JSON values; :meth:`from_dict` is the way back."""
        # Without documents there is no such entry: older versions can read the report, too.
        documents = {"documents": [_document_document(each) for each in self.documents]}
        return (documents if self.documents else {}) | {
            "n_pairs": self.n_pairs,
            "n_held_out": self.n_held_out,
            "n_bytes": self.n_bytes,
            "mapping": self.mapping,
            "n_components": self.n_components,
            "systems": [_system_document(system) for system in self.systems],
            "gains": {name: list(gain) for name, gain in self.gains.items()},
            "curve": [_point_document(point) for point in self.curve],
            "n_curve_pairs": self.n_curve_pairs,
            "reliability": [
                each._asdict() | {"bins": [list(b) for b in each.bins]} for each in self.reliability
            ],
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Rebuild the measurements from what :meth:`to_dict` returned.

        Raises
        ------
        KeyError, TypeError, ValueError
            If the document is not one of :meth:`to_dict`.
        """
        systems = tuple(map(_parse_system, document["systems"]))
        if not systems or systems[0].name != "crossbyte":
            raise ValueError("systems that do not begin with crossbyte")
        parts: dict[str, Any] = {
            "systems": systems,
            "gains": {
                _check_one_of(name, NAMES): _parse_estimate(gain)
                for name, gain in dict(document["gains"]).items()
            },
            "curve": tuple(map(_parse_point, document["curve"])),
            "reliability": tuple(map(_parse_reliability, document["reliability"])),
            "mapping": _check_one_of(document["mapping"], MAPPINGS),
            "documents": tuple(map(_parse_document_system, document.get("documents", ()))),
        }
        parts |= {name: _check_count(document[name]) for name in _COUNTS}
        return cls(**{**document, **parts})


def recalls(report: Measurements) -> dict[str, dict[str, Estimate]]:
    """List the recall@10 of every system in the report, by system and direction."""
    return {
        system.name: {each: system.directions[each].recall[10] for each in DIRECTIONS}
        for system in report.systems
    }


def mean_of_directions(by: Mapping[str, Estimate]) -> float:
    """Return the mean of both directions."""
    return sum(by[each].value for each in DIRECTIONS) / len(DIRECTIONS)


# JSON


def _system_document(system: System) -> dict[str, Any]:
    directions = {
        name: {
            "recall": {str(depth): list(found) for depth, found in scores.recall.items()},
            "median_rank": list(scores.median_rank),
        }
        for name, scores in system.directions.items()
    }
    return {"name": system.name, "n_bytes": system.n_bytes, "directions": directions}


def _document_document(system: DocumentSystem) -> dict[str, Any]:
    gain = None if system.gain is None else list(system.gain)
    return system._asdict() | {"recall": list(system.recall), "gain": gain}


def _point_document(point: CurvePoint) -> dict[str, Any]:
    recall = {
        system: {direction: list(found) for direction, found in by.items()}
        for system, by in point.recall.items()
    }
    return {"n_bytes": point.n_bytes, "recall": recall, "by_size": [list(pair) for pair in point.by_size]}


def _parse_system(document: Mapping[str, Any]) -> System:
    size = document["n_bytes"]
    return System(
        _check_one_of(document["name"], NAMES),
        None if size is None else _check_count(size, 1),
        {name: _parse_scores(document["directions"][name]) for name in DIRECTIONS},
    )


def _parse_document_system(document: Mapping[str, Any]) -> DocumentSystem:
    size, gain = document["n_bytes"], document["gain"]
    return DocumentSystem(
        _check_one_of(document["name"], DOCUMENT_NAMES),
        None if size is None else _check_count(size, 1),
        _parse_estimate(document["recall"]),
        None if gain is None else _parse_estimate(gain),
    )


def _parse_scores(document: Mapping[str, Any]) -> Scores:
    recall = {depth: _parse_estimate(document["recall"][str(depth)]) for depth in DEPTHS}
    return Scores(recall, _parse_estimate(document["median_rank"]))


def _parse_estimate(values: Sequence[float]) -> Estimate:
    value, low, high = map(_check_number, values)
    return Estimate(value, low, high)


def _parse_point(document: Mapping[str, Any]) -> CurvePoint:
    recall = {
        _check_one_of(system, NAMES): {direction: _parse_estimate(by[direction]) for direction in DIRECTIONS}
        for system, by in dict(document["recall"]).items()
    }
    if "crossbyte" not in recall:
        raise ValueError("a point of the curve without crossbyte")
    sizes = [(_check_count(size, 1), _check_number(recall)) for size, recall in document["by_size"]]
    if not sizes or any(low[0] >= high[0] for low, high in pairwise(sizes)):
        raise ValueError("sizes of the curve that do not grow")
    return CurvePoint(_check_count(document["n_bytes"], 1), recall, sizes)


def _parse_reliability(document: Mapping[str, Any]) -> Reliability:
    bins = [
        (_check_number(p), _check_number(share), _check_count(count)) for p, share, count in document["bins"]
    ]
    sides = {name: _check_one_of(document[name], ("image", "text")) for name in ("query", "target")}
    numbers = {name: _check_number(document[name]) for name in ("error", "match_auroc", "distance_auroc")}
    return Reliability(**{**document, **sides, **numbers, "bins": bins})


def _check_number(value: Any) -> float:
    if type(value) not in (int, float) or not -1e300 < value < 1e300:
        raise ValueError(f"{value!r} where a number was expected")
    return float(value)


def _check_count(value: Any, least: int = 0) -> int:
    if type(value) is not int or not least <= value < 2**63:
        raise ValueError(f"{value!r} where a whole number was expected")
    return value


def _check_one_of(value: Any, known: Collection[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(f"{value!r} where one of {', '.join(known)} was expected")
    return value
