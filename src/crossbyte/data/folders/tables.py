"""Tables of captions: CSV, TSV and JSON lines; a bad row is listed and left out, a bad file refused."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte.data.files.csv_table import csv_rows, typed_column
from crossbyte.data.files.jsonl import parse_object
from crossbyte.data.files.limits import Limits
from crossbyte.data.files.lines import read_lines
from crossbyte.data.files.opening import Opened, extension, open_regular
from crossbyte.data.folders.documents import Skipped
from crossbyte.data.folders.scanning import names_picture
from crossbyte.errors import DataFileError

__all__ = ["JSON_LINES", "TABLES", "Table", "read_table"]

JSON_LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv", *JSON_LINES)

_DELIMITERS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')

Row = tuple[int, dict[str, Any]]
"""line and values by column"""


class Table(NamedTuple):
    """The rows of a table that were understood.

    Attributes
    ----------
    names : list of str
        Of all columns.
    rows : list of (line, dict)
        Of CSV, texts; of JSON lines, JSON values.
    bad : list of Skipped
        Rows that were not understood.
    is_text : bool
        Whether the values are texts that may stand for numbers.
    """

    names: list[str]
    rows: list[Row]
    bad: list[Skipped]
    is_text: bool

    def type_columns(self, names: list[str]) -> None:
        """Read numbers and booleans in columns that hold nothing else."""
        for name in names if self.is_text else ():
            typed = typed_column([values[name] for _, values in self.rows])
            for (_, values), value in zip(self.rows, typed, strict=True):
                values[name] = value


def read_table(path: Path, title: str, limits: Limits, at_most: int | None = None) -> Table:
    """Read a table.

    Parameters
    ----------
    path : Path
    title : str
        What to call the table in the list of bad rows.
    limits : Limits
    at_most : int, optional
        How many rows to read.

    Raises
    ------
    DataFileError
        The file as a whole cannot be used: another encoding, too large, no header, or no row at all.
    """
    bad: list[Skipped] = []

    def on_bad(line: int, reason: str) -> None:
        bad.append(Skipped(f"{title}, line {line}", reason))

    read = _json_rows if extension(path) in JSON_LINES else _csv_rows
    with open_regular(path) as opened:
        names, found = read(opened, limits, on_bad)
        rows = list(islice(found, at_most))
    if not rows:
        raise DataFileError(_nothing(bad))
    return Table(names or _names_in(rows), rows, bad, is_text=read is _csv_rows)


def _nothing(bad: list[Skipped]) -> str:
    first = f"; {bad[0].name}: {bad[0].reason}" if bad else ""
    return f"expected a row for each caption, got none that can be read{first}"


def _names_in(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for _, values in rows for name in values))


# JSON lines


def _json_rows(
    opened: Opened, limits: Limits, on_bad: Callable[[int, str], None]
) -> tuple[list[str], Iterator[Row]]:
    return [], _objects(opened, limits, on_bad)


def _objects(opened: Opened, limits: Limits, on_bad: Callable[[int, str], None]) -> Iterator[Row]:
    for number, line in enumerate(read_lines(opened, limits), start=1):
        if number > limits.rows:
            raise DataFileError(
                f"line {number}: expected at most {limits.rows} rows, got more; split the file"
            )
        if line.strip():
            try:
                yield number, parse_object(line, number, limits.depth)
            except DataFileError as error:
                on_bad(number, str(error).partition(": ")[2])


# Comma-separated values


def _csv_rows(
    opened: Opened, limits: Limits, on_bad: Callable[[int, str], None]
) -> tuple[list[str], Iterator[Row]]:
    delimiter = _delimiter(next(read_lines(opened, limits), ""))
    opened.file.seek(0)
    rows = csv_rows(opened, limits, delimiter=delimiter, on_bad=on_bad)
    first = next(rows, None)
    if first is None:
        return [], iter(())
    headed = not any(map(names_picture, first[1]))  # Flickr8k's own lists begin with a picture at once
    names = _header(first[1]) if headed else [f"column_{number + 1}" for number in range(len(first[1]))]
    return names, _named(names, rows, None if headed else first)


def _delimiter(line: str) -> str:
    """Guess from the first line: the most frequent outside of quotes; commas where there is none."""
    plain = _QUOTED.sub("", line)
    return max(_DELIMITERS, key=plain.count)


def _header(fields: list[str]) -> list[str]:
    # pandas leaves the name of its index empty
    names = [name.strip() or f"column_{number + 1}" for number, name in enumerate(fields)]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataFileError(
            f"line 1: expected a header with distinct names, got {twice!r} twice; rename one of the columns"
        )
    return names


def _named(
    names: list[str], rows: Iterator[tuple[int, list[str]]], first: tuple[int, list[str]] | None
) -> Iterator[Row]:
    for line, fields in chain([first] if first else [], rows):
        yield line, dict(zip(names, fields, strict=True))
