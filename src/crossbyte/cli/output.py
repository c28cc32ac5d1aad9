"""What a command prints on stdout: one JSON document, or text and tables for people."""

from __future__ import annotations

import json
import math
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Table", "clean", "emit"]


class Table(NamedTuple):
    """Rows of cells under headings; headings that end in ``>`` stand, with their cells, to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def emit(document: Any, parts: Iterable[str | Table], *, as_json: bool) -> None:
    """Print a command's result: the document as JSON, or its parts as text.

    Parameters
    ----------
    document : JSON-safe object
        NumPy numbers and arrays are taken, too; what is not finite becomes null.
    parts : iterable of str or Table
        Read only if text is wanted.
    as_json : bool
    """
    if as_json:
        print(json.dumps(_plain(document), indent=2, allow_nan=False))
        return
    for part in parts:
        _print_text(part) if isinstance(part, str) else _print_table(part)


def clean(value: object) -> str:
    """Give text in which what a terminal would obey, and line ends, are visible and harmless."""
    text = str(value)
    return text if text.isprintable() else "".join(map(_visible, text))


def _visible(letter: str) -> str:
    if letter.isprintable() or unicodedata.category(letter) == "Zs":  # a wide or narrow space
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def _plain(value: Any) -> Any:
    """Make a value of JSON's own types."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _print_text(text: str) -> None:
    for line in text.rstrip("\n").split("\n"):
        print(clean(line))


def _print_table(table: Table) -> None:
    headings = [heading.removesuffix(">") for heading in table.headings]
    to_the_right = [heading.endswith(">") for heading in table.headings]
    rows = [[clean(cell) for cell in row] for row in table.rows]
    show = _print_for_terminal if sys.stdout.isatty() else _print_plain
    show(headings, to_the_right, rows)


def _print_plain(headings: list[str], to_the_right: list[bool], rows: list[list[str]]) -> None:
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, to_the_right, strict=True)
        )
        print("  ".join(cells).rstrip())


def _print_for_terminal(headings: list[str], to_the_right: list[bool], rows: list[list[str]]) -> None:
    from rich import box, console, table, text

    shown = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, right in zip(headings, to_the_right, strict=True):
        shown.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(text.Text, row))  # text: what stands in brackets is no markup
    console.Console().print(shown)
