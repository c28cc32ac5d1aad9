"""Make the tables of a model's report: every number as text, once, for the plain report and for the page."""

from __future__ import annotations

from crossbyte._format import count, percent, plural
from crossbyte.report.content import Row, Table, plain_row
from crossbyte.report.measurements import (
    DEPTHS,
    DIRECTIONS,
    CurvePoint,
    Estimate,
    Measurements,
    Reliability,
)

__all__ = [
    "LOOKING",
    "SHORT",
    "curve_systems",
    "curve_tables",
    "describe_direction",
    "reliability_tables",
    "size_table",
    "system_tables",
]

SHORT = {
    "crossbyte": "crossbyte",
    "uncompressed": "uncompressed",
    "cca_pq": "CCA + PQ",
    "cca_rq": "CCA + RQ",
    "chance": "chance",
}
"""Names of the systems that fit into a table or a plot."""

LOOKING = {
    "image_to_text": "Pictures looking for their texts",
    "text_to_image": "Texts looking for their pictures",
}
"""What happens in each direction."""

_MAX_SIZES = 8  # rows; more say nothing new


def curve_systems(report: Measurements) -> list[str]:
    """Names of the systems that every point of the curve has."""
    return [name for name in SHORT if report.curve and all(name in point.recall for point in report.curve)]


def system_tables(report: Measurements) -> list[Table]:
    """All systems, one table per direction."""
    header = ("system", "bytes", *(f"recall@{depth}" for depth in DEPTHS), "median rank")
    return [
        Table(LOOKING[direction], header, _system_rows(report, direction))
        for direction in reversed(DIRECTIONS)
    ]


def _system_rows(report: Measurements, direction: str) -> list[Row]:
    rows = []
    for system in report.systems:
        scores = system.directions[direction]
        shares = (_share(scores.recall[depth]) for depth in DEPTHS)
        size = "–" if system.n_bytes is None else count(system.n_bytes)
        rows.append(plain_row((SHORT[system.name], size, *shares, _rank(scores.median_rank))))
    return rows


def _share(found: Estimate) -> str:
    return _with_interval(percent(found.value), percent(found.low), percent(found.high))


def _rank(found: Estimate) -> str:
    return _with_interval(count(found.value), count(round(found.low)), count(round(found.high)))


def _with_interval(value: str, low: str, high: str) -> str:
    return value if low == high else f"{value} ({low}–{high})"


def curve_tables(report: Measurements) -> list[Table]:
    """Recall@10 over bytes, one table per direction."""
    names = curve_systems(report)
    header = ("bytes", *(SHORT[name] for name in names))
    return [
        Table(
            f"{LOOKING[direction]}, recall@10",
            header,
            [
                plain_row((count(point.n_bytes), *(_share(point.recall[name][direction]) for name in names)))
                for point in report.curve
            ],
        )
        for direction in reversed(DIRECTIONS)
        if report.curve
    ]


def size_table(report: Measurements) -> Table:
    """Recall@10 of crossbyte expected among other numbers of items, a column for each number of bytes."""
    sizes = _thinned(sorted({size for point in report.curve for size, _ in point.by_size}))
    header = ("items", *(plural(point.n_bytes, "byte") for point in report.curve))
    rows = [plain_row((count(size), *(_at(point, size) for point in report.curve))) for size in sizes]
    return Table("Recall@10 of crossbyte in larger indexes, mean of both directions", header, rows)


def _thinned(sizes: list[int]) -> list[int]:
    last = len(sizes) - 1
    if last < _MAX_SIZES:
        return sizes
    return [sizes[round(place * last / (_MAX_SIZES - 1))] for place in range(_MAX_SIZES)]


def _at(point: CurvePoint, size: int) -> str:
    found = dict(point.by_size).get(size)
    return "–" if found is None else percent(found)


def reliability_tables(report: Measurements) -> list[Table]:
    """Stated probabilities beside what came true, one table per direction."""
    header = ("hits", "stated, mean %", "true, %")
    return [
        Table(describe_direction(each), header, _bin_rows(each)) for each in report.reliability if each.bins
    ]


def describe_direction(each: Reliability) -> str:
    """Name the direction of a reliability."""
    return LOOKING.get(f"{each.query}_to_{each.target}", f"From {each.query} to {each.target}")


def _bin_rows(each: Reliability) -> list[Row]:
    return [
        plain_row((count(number), f"{100 * stated:.2f}", f"{100 * share:.2f}"))
        for stated, share, number in each.bins
    ]
