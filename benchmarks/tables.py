"""Results as a table on the terminal and as a small JSON file to keep."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = ["Measurement", "print_table", "save"]

RESULTS = Path(__file__).resolve().parent / "results"


@dataclass(frozen=True)
class Measurement:
    """One number of one system, measured once or with several seeds.

    Attributes
    ----------
    system : str
        What was measured ("CCA + RQ, 4 bytes").
    score : str
        What was counted ("recall@10 I→T").
    values : sequence of float
        One value per seed.
    target : float, optional
        What was to be reached: the paper's value, or an earlier one.
    chance : float, optional
        What a random ranking scores.
    interval : (float, float), optional
        The 95 % interval of the mean, where one was estimated.
    """

    system: str
    score: str
    values: Sequence[float]
    target: float | None = None
    chance: float | None = None
    interval: tuple[float, float] | None = None

    @property
    def mean(self) -> float:
        """Mean over seeds."""
        return fmean(self.values)

    @property
    def spread(self) -> float | None:
        """Sample standard deviation over seeds; None for a single seed, which says nothing of it."""
        return stdev(self.values) if len(self.values) > 1 else None


def print_table(title: str, measurements: Sequence[Measurement], console: Console | None = None) -> None:
    """Print one line per measurement: mean ± spread, interval, number of seeds, target and chance."""
    table = Table("system", "score", title=title)
    for heading in ("mean ± spread", "seeds", "target", "chance"):
        table.add_column(heading, justify="right")
    for entry in measurements:
        numbers = (_spread(entry), str(len(entry.values)), _number(entry.target), _number(entry.chance))
        table.add_row(entry.system, entry.score, *numbers)
    (console or Console()).print(table)


def save(name: str, measurements: Sequence[Measurement], settings: Mapping[str, Any]) -> Path:
    """Write ``benchmarks/results/<name>.json`` and return its path.

    ``settings`` says how the numbers were made (sizes, parameters, versions); no times or hosts, so that the
    file changes only when a number or a setting does.
    """
    if not re.fullmatch(r"[a-z0-9][a-z0-9_-]*", name):
        raise ValueError(f"a result's name is made of a-z, 0-9, '-' and '_'; got {name!r}.")
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    text = json.dumps(_record(measurements, settings), indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def load(name: str) -> list[Measurement]:
    """Read what :func:`save` wrote; nothing if there is none."""
    entries = _read(name).get("measurements", [])
    fields = ("system", "score", "values", "target", "chance", "interval")
    return [Measurement(**{field: entry[field] for field in fields if field in entry}) for entry in entries]


def load_settings(name: str) -> dict[str, Any]:
    """Read how the numbers of :func:`save` were made; nothing if there are none."""
    return dict(_read(name).get("settings", {}))


def _read(name: str) -> dict[str, Any]:
    path = RESULTS / f"{name}.json"
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def _record(measurements: Sequence[Measurement], settings: Mapping[str, Any]) -> dict[str, Any]:
    entries = [asdict(entry) | {"mean": entry.mean, "spread": entry.spread} for entry in measurements]
    for entry in entries:
        if entry["interval"] is None:
            del entry["interval"]
    return {"settings": dict(settings), "measurements": entries}


def _spread(entry: Measurement) -> str:
    mean = _number(entry.mean) if entry.spread is None else f"{entry.mean:.4f} ± {entry.spread:.4f}"
    return mean if entry.interval is None else f"{mean} [{entry.interval[0]:.4f}, {entry.interval[1]:.4f}]"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
