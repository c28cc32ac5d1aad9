"""The tables, the sentences and the picture of docs/frontier.md, from what ``frontier.py`` measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from math import inf
from statistics import geometric_mean, median
from typing import NamedTuple

from benchmarks.tables import Measurement, load, load_settings
from crossbyte.report.content import Axis, Line, LineChart, Style, linear_axis, log_axis
from crossbyte.report.svg import sheet_file

__all__ = [
    "BATCH",
    "BYTES",
    "MAPPING",
    "ONE",
    "OVERLAP",
    "RECALL",
    "UNCOMPRESSED",
    "Point",
    "above",
    "beside",
    "picture",
    "print_frontier",
    "read_points",
    "tables",
]

RECALL, OVERLAP = "recall@10 of partners", "overlap@10 with the exact neighbours"
BYTES = "bytes in memory per item"
ONE, BATCH = "one query, milliseconds", "batch of 100, milliseconds per query"
UNCOMPRESSED, MAPPING = "uncompressed: all", "mapping alone"
OWN = "crossbyte"
LOWEST, HIGHEST = 0.8, 0.99  # share of the uncompressed recall, between which curves are compared
SHARES = (0.8, 0.9, 0.95, 0.99)
SHOWN = 0.5  # shares below are not in the picture
MODES = {"one query": ONE, "batch of 100": BATCH}
SET_NAMES = {"gapped": "generated pairs with a gap", "places": "places"}

_STYLES = {
    "crossbyte, 8 bytes": Style("s8", "disc", width=3.2),
    "crossbyte, 16 bytes": Style("s8", "diamond", "6 3", 3.2),
    "crossbyte, 8 bytes, from points": Style("s8", "disc", "2 3", 1.6),
    "crossbyte, 16 bytes, from points": Style("s8", "diamond", "2 3", 1.6),
    "FAISS IVF,PQ16x4fs": Style("s0", "square"),
    "FAISS IVF,PQ32x4fs": Style("s0", "triangle", "6 3"),
    "FAISS IVF,PQ64x4fs": Style("s0", "star", "2 3"),
    "FAISS IVF,PQ16x4fs,SQfp16": Style("s1", "square"),
    "FAISS IVF,RQ": Style("s5", "pentagon"),
    "FAISS IVF,RaBitQfs": Style("s5", "hexagon", "6 3"),
    "FAISS PQFastScan": Style("s3", "cross", "4 3"),
    "FAISS HNSW": Style("s2", "triangle down"),
    "ScaNN": Style("s6", "plus"),
    "ScaNN, reordered": Style("s6", "cross", "6 3"),
    "USearch": Style("s7", "triangle left"),
}


class Point(NamedTuple):
    """One setting of one system.

    Attributes
    ----------
    system, setting : str
        The curve, and the place on it.
    share : float
        Its recall of partners over that of the uncompressed search.
    overlap, n_bytes : float
    milliseconds : dict
        Of a query, by the keys of ``MODES``.
    """

    system: str
    setting: str
    share: float
    overlap: float
    n_bytes: float
    milliseconds: dict[str, float]

    def rate(self, mode: str) -> float:
        """Queries per second."""
        return 1e3 / self.milliseconds[mode]


def beside(score: str, peer: str) -> str:
    """The score of a time of crossbyte that was measured in turns with a peer."""
    return f"{score}, beside {peer}"


# Reading


def read_points(entries: Iterable[Measurement]) -> dict[str, list[Point]]:
    """All settings that were timed, by set."""
    by_set: dict[str, dict[str, dict[str, Measurement]]] = {}
    for entry in entries:
        set_name, _, system = entry.system.partition(": ")
        by_set.setdefault(set_name, {}).setdefault(system, {})[entry.score] = entry
    return {name: list(_points_of(systems)) for name, systems in by_set.items()}


def _points_of(systems: dict[str, dict[str, Measurement]]) -> Iterator[Point]:
    whole = systems[UNCOMPRESSED][RECALL].mean
    own = {name: scores for name, scores in systems.items() if name.startswith(OWN)}
    timed = {name.partition(": ")[0] for name, scores in systems.items() if ONE in scores}
    if not timed:
        return
    usual = {
        (name, score): median(scores[beside(score, peer)].mean for peer in timed)
        for name, scores in own.items()
        for score in MODES.values()
    }
    pace = {
        (peer, score): geometric_mean(
            usual[name, score] / scores[beside(score, peer)].mean for name, scores in own.items()
        )
        for peer in timed
        for score in MODES.values()
    }
    from_points = []
    for name, scores in systems.items():
        system, _, setting = name.partition(": ")
        if RECALL not in scores or (name not in own and system not in timed):
            continue
        about = scores[RECALL].mean / whole, scores[OVERLAP].mean, scores[BYTES].mean
        if name in own:
            times = {mode: usual[name, score] for mode, score in MODES.items()}
            mapping = f"{system}: {MAPPING}"
            rest = {mode: times[mode] - usual[mapping, score] for mode, score in MODES.items()}
            from_points.append(Point(f"{system}, from points", setting, *about, rest))
        else:
            times = {
                mode: median(scores[score].values) * pace[system, score] for mode, score in MODES.items()
            }
        yield Point(system, setting, *about, times)
    yield from from_points


# Comparing


def above(ours: Sequence[Point], others: Iterable[Point], mode: str) -> dict[str, list[tuple[Point, float]]]:
    """Which settings of peers are above our curve, by peer, and how many times as fast as it they are.

    Those of at most twice the bytes that our curve takes at most, with a share of recall of ``LOWEST`` at
    least; what finds more than ``HIGHEST`` counts as that. Our curve at a share is the fastest of our
    settings that reaches it; infinity where none does.
    """
    most = 2 * max(point.n_bytes for point in ours)
    found: dict[str, list[tuple[Point, float]]] = {}
    for other in others:
        share = min(other.share, HIGHEST)
        if other.n_bytes > most or share < LOWEST:
            continue
        rate = max((point.rate(mode) for point in ours if point.share >= share), default=0.0)
        ratio = other.rate(mode) / rate if rate else inf
        if ratio > 1:
            found.setdefault(other.system, []).append((other, ratio))
    return found


def _sentences(name: str, points: Sequence[Point]) -> Iterator[str]:
    """What the curves say, for every length of our codes and both ways to ask."""
    own = [point for point in points if point.system.startswith(OWN)]
    others = [point for point in points if not point.system.startswith(OWN)]
    for system, some in groupby(own, lambda point: point.system):
        ours = list(some)
        limit = f"{2 * max(point.n_bytes for point in ours):.0f} bytes"
        for mode in MODES:
            found = above(ours, others, mode)
            start = f"- {SET_NAMES[name]}, {system}, {mode}: "
            if not found:
                yield f"{start}no peer of at most {limit} lies above our curve."
                continue
            told = "; ".join(_tell(peer, places) for peer, places in found.items())
            yield f"{start}of peers of at most {limit} these lie above our curve: {told}."


def _tell(peer: str, places: Sequence[tuple[Point, float]]) -> str:
    shares = [point.share for point, _ in places]
    where = f"{peer} at {_range(shares)}"
    reached = [(point, ratio) for point, ratio in places if ratio < inf]
    said = []
    if reached:
        best, ratio = max(reached, key=lambda each: each[1])
        said.append(f"{ratio:.2f} times as fast at {best.share:.3f}")
    beyond = [point.share for point, ratio in places if ratio == inf]
    if beyond:
        said.append(f"at {_range(beyond)} no setting of ours")
    return f"{where} ({', '.join(said)})"


def _range(shares: Sequence[float]) -> str:
    low, high = min(shares), max(shares)
    return f"{low:.3f}" if f"{low:.3f}" == f"{high:.3f}" else f"{low:.3f} to {high:.3f}"


# Writing


def tables() -> dict[str, str]:
    """What stands between the marks of docs/frontier.md."""
    found, settings = read_points(load("frontier")), load_settings("frontier")
    written = dict.fromkeys(SET_NAMES, "Not in the kept results.\n")
    written |= {name: _table(points) for name, points in found.items()}
    sentences = [line for name, points in found.items() for line in _sentences(name, points)]
    return written | {"above": "\n".join(sentences) + "\n", "how": _how(settings)}


def _how(settings: dict[str, object]) -> str:
    """Processor, releases, sizes."""
    peers, missing = settings["peers"], settings["missing"]
    assert isinstance(peers, dict) and isinstance(missing, dict)
    names = {"faiss": "FAISS", "scann": "ScaNN", "usearch": "USearch"}
    told = [
        f"{names[library]} {about['release']}" + (f" ({about['simd']})" if "simd" in about else "")
        for library, about in peers.items()
    ]
    told += [f"without {names[library]} ({why})" for library, why in missing.items()]
    sizes = settings["items"]
    assert isinstance(sizes, dict)
    clock = "time of the processor" if settings["clock"] == "cpu" else "on the wall"
    items = ", ".join(f"{SET_NAMES[name]}: {size:,} items" for name, size in sizes.items())
    return (
        f"Processor: {settings['cpu']}, one thread; crossbyte's kernels: {settings['kernels']}; "
        f"{', '.join(told)}. {items[0].upper()}{items[1:]}. {settings['queries']:,} queries for recall, "
        f"{settings['repetitions']} turns for times, {clock}; load average {settings['load_average']}.\n"
    )


def _table(points: Sequence[Point]) -> str:
    """One line for each system: the fastest setting that reaches each share of recall."""
    heads = [f"{share:g}: queries/s, one / batch" for share in SHARES]
    rows = [
        f"| system | bytes | most recall | overlap there | {' | '.join(heads)} |",
        "|---|---|---|---|" + "---|" * len(SHARES),
    ]
    for system, some in groupby(points, lambda point: point.system):
        ours = list(some)
        best = max(ours, key=lambda point: point.share)
        sizes = sorted({round(point.n_bytes) for point in ours})
        size = f"{sizes[0]}" if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
        cells = [_rates(ours, share) for share in SHARES]
        rows.append(f"| {system} | {size} | {best.share:.3f} | {best.overlap:.3f} | {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def _rates(points: Sequence[Point], share: float) -> str:
    reaching = [point for point in points if point.share >= share]
    if not reaching:
        return "–"
    return " / ".join(f"{max(point.rate(mode) for point in reaching):,.0f}" for mode in MODES)


def print_frontier(entries: Iterable[Measurement]) -> None:
    """The same tables and sentences on the terminal."""
    for name, points in read_points(entries).items():
        if points:
            print(f"\n{SET_NAMES[name]}\n{_table(points)}")
            print("\n".join(_sentences(name, points)))


def picture() -> str:
    """Draw recall against queries per second for every set and both ways to ask."""
    found = read_points(load("frontier"))
    charts = [_chart(name, points, mode) for name, points in found.items() for mode in MODES]
    return sheet_file("Recall against queries per second", charts, 2)


def _chart(name: str, points: Sequence[Point], mode: str) -> LineChart:
    lines = []
    for system, some in groupby(points, lambda point: point.system):
        best = _fastest([point for point in some if point.share >= SHOWN], mode)
        if best:
            rates = [point.rate(mode) for point in best]
            lines.append(Line(system, _STYLES[system], [point.share for point in best], rates))
    title = f"{SET_NAMES[name].capitalize()}, {mode}"
    said = f"Queries per second against recall, {len(lines)} systems; the page has the figures as a table."
    shares = [share for line in lines for share in line.across]
    x: Axis = linear_axis("share of the uncompressed recall@10", shares)
    y = log_axis("queries per second", [rate for line in lines for rate in line.up])
    key = f"frontier-{name}-{mode.replace(' ', '-')}"
    return LineChart(key, title, said, x, y, lines)


def _fastest(points: Sequence[Point], mode: str) -> list[Point]:
    """Settings than which no other is faster and finds as much, by share."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda each: (each.share, each.rate(mode)), reverse=True):
        if not kept or point.rate(mode) > kept[-1].rate(mode):
            kept.append(point)
    return kept[::-1]
