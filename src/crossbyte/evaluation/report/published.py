"""The figures that the paper prints, to stand beside ours."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte.strict_json import parse_json

__all__ = ["Categories", "categories", "data_sizes", "published", "quoted", "table3", "table3_data"]


class Categories(NamedTuple):
    """A row of the paper's Table 1."""

    name: str
    key: str
    relations: tuple[str, ...]
    codes: str
    coding: str


def categories() -> list[Categories]:
    """Rows of the paper's Table 1."""
    rows = _document()["table1"]
    return [Categories(**(row | {"relations": tuple(row["relations"])})) for row in rows]


def published(metric: str, data: str, task: str, method: str, bits: int) -> float | None:
    """What the paper measured (Table 2); None where it prints nothing."""
    return _found("table2", metric, "measured", data, task, method, str(bits))


def quoted(metric: str, data: str, task: str, method: str, bits: int) -> float | None:
    """What the paper quotes from another paper (Table 2, in parentheses); None where it quotes nothing."""
    return _found("table2", metric, "quoted", data, task, method, str(bits))


def table3(part: str, task: str, method: str, bits: int) -> float | None:
    """A figure of the paper's Table 3, part "A" or "B"."""
    return _found("table3", part, task, method, str(bits))


def table3_data() -> str:
    """Name of the data set of the paper's Table 3."""
    return str(_document()["table3"]["data"])


def data_sizes(data: str) -> tuple[int, int] | None:
    """Training documents and queries of a data set in the paper; None for other sets."""
    found = _document()["data_sets"].get(data)
    return found and (found["n_train"], found["n_queries"])


def _found(*way: str) -> float | None:
    place: Any = _document()
    for step in way:
        place = place.get(step)
        if place is None:
            return None
    return float(place)


@cache
def _document() -> dict[str, Any]:
    text = (Path(__file__).parent / "published.json").read_text(encoding="utf-8")
    document: dict[str, Any] = parse_json(text)
    return document
