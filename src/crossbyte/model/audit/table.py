"""A table of an audit as CSV that a spreadsheet can open without running anything in it."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crossbyte._fs import check_free, replace_file
from crossbyte.errors import InvalidInput

__all__ = ["write_table"]

_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_NAMED = ("best_text", "same_image_as", "same_text_as")
"""columns that hold row numbers, and get the ids of these rows beside them"""

Entry = dict[str, Any]


def write_table(
    path: str | os.PathLike[str],
    entries: Sequence[Entry],
    n_rows: int,
    ids: Sequence[Any] | None,
    payloads: Sequence[Any] | None,
    overwrite: bool,
) -> None:
    """Write entries, all with the same keys and a ``row``, with ids and payload fields of their rows."""
    name = os.fspath(path)
    check_free(name, overwrite=overwrite)
    if ids is not None:
        entries = [_with_ids(entry, _one_per_row(ids, n_rows, "ids")) for entry in entries]
    columns = list(entries[0])
    table = [[entry[column] for column in columns] for entry in entries]
    if payloads is not None:
        columns, table = _with_payloads(columns, table, entries, _one_per_row(payloads, n_rows, "payloads"))
    replace_file(name, _csv_bytes(columns, table))


def _one_per_row(values: Sequence[Any], n_rows: int, name: str) -> Sequence[Any]:
    if len(values) != n_rows:
        raise InvalidInput(f"{name}: expected {n_rows}, one per pair, got {len(values)}")
    return values


def _with_ids(entry: Entry, ids: Sequence[Any]) -> Entry:
    named: Entry = {"row": entry["row"], "id": ids[entry["row"]]}
    for key, value in entry.items():
        named[key] = value
        if key in _NAMED:
            named[f"{key}_id"] = None if value is None else ids[value]
    return named


def _with_payloads(
    columns: list[str], table: list[list[Any]], entries: Sequence[Entry], payloads: Sequence[Any]
) -> tuple[list[str], list[list[Any]]]:
    """One more column for every field of the payloads."""
    chosen: list[Mapping[str, Any]] = [payloads[entry["row"]] or {} for entry in entries]
    fields = list(dict.fromkeys(str(field) for payload in chosen for field in payload))
    wider = [
        [*line, *(payload.get(field) for field in fields)]
        for line, payload in zip(table, chosen, strict=True)
    ]
    return [*columns, *(f"payload.{field}" for field in fields)], wider


def _csv_bytes(columns: Sequence[str], table: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)  # its line end, CR LF, is what makes it quote a lone CR
    writer.writerow([_cell(column) for column in columns])
    writer.writerows([_cell(value) for value in line] for line in table)
    return text.getvalue().encode("utf-8", "backslashreplace")


def _cell(value: Any) -> Any:
    """A cell that is shown and never run: numbers as they are, text with formulas escaped."""
    if isinstance(value, np.generic):
        value = value.item()
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return "'" + text if text.startswith(_FORMULA) else text
