"""Read tables of captions: CSV, TSV and JSON lines.

Columns of pictures and captions are recognised by their names and values. A bad row is listed and left out, a
bad file refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

from crossbyte.data.captions.raw_documents import DocumentBuilder, Skipped, clean_caption
from crossbyte.data.captions.scan import PictureFinder, names_picture, picture_kinds
from crossbyte.data.safe_open import Limits, OpenFile, file_extension, open_regular
from crossbyte.data.tables import csv_rows, infer_column, parse_object, read_lines
from crossbyte.errors import DataFileError

JSON_LINES = (".jsonl", ".ndjson")
TABLES = (".csv", ".tsv", *JSON_LINES)

_DELIMITERS = ",;\t|"
_QUOTED = re.compile(r'"[^"]*"')

Row = tuple[int, dict[str, Any]]
"""line and values by column"""


class Table(NamedTuple):
    """The rows of a table that could be read.

    Attributes
    ----------
    names : list of str
        All columns.
    rows : list of (line, dict)
        Texts for CSV, JSON values for JSON lines.
    bad : list of Skipped
        Rows that could not be read.
    is_text : bool
        Whether the values are texts that may stand for numbers.
    """

    names: list[str]
    rows: list[Row]
    bad: list[Skipped]
    is_text: bool

    def type_columns(self, names: list[str]) -> None:
        """Parse numbers and booleans in columns that hold nothing else."""
        for name in names if self.is_text else ():
            typed = infer_column([values[name] for _, values in self.rows])
            for (_, values), value in zip(self.rows, typed, strict=True):
                values[name] = value


def read_table(path: Path, title: str, limits: Limits, at_most: int | None = None) -> Table:
    """Read a table.

    Parameters
    ----------
    path : Path
    title : str
        The name of the table in the list of bad rows.
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

    read = _json_rows if file_extension(path) in JSON_LINES else _csv_rows
    with open_regular(path) as opened:
        names, found = read(opened, limits, on_bad)
        rows = list(islice(found, at_most))
    if not rows:
        raise DataFileError(_no_rows_error(bad))
    return Table(names or _list_names(rows), rows, bad, is_text=read is _csv_rows)


def _no_rows_error(bad: list[Skipped]) -> str:
    first = f"; {bad[0].name}: {bad[0].reason}" if bad else ""
    return f"expected a row for each caption, got none that can be read{first}"


def _list_names(rows: list[Row]) -> list[str]:
    return list(dict.fromkeys(name for _, values in rows for name in values))


# JSON lines


def _json_rows(
    opened: OpenFile, limits: Limits, on_bad: Callable[[int, str], None]
) -> tuple[list[str], Iterator[Row]]:
    return [], _parse_objects(opened, limits, on_bad)


def _parse_objects(opened: OpenFile, limits: Limits, on_bad: Callable[[int, str], None]) -> Iterator[Row]:
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
    opened: OpenFile, limits: Limits, on_bad: Callable[[int, str], None]
) -> tuple[list[str], Iterator[Row]]:
    delimiter = _guess_delimiter(next(read_lines(opened, limits), ""))
    opened.file.seek(0)
    rows = csv_rows(opened, limits, delimiter=delimiter, on_bad=on_bad)
    first = next(rows, None)
    if first is None:
        return [], iter(())
    has_header = not any(map(names_picture, first[1]))  # Flickr8k's own lists begin with a picture at once
    names = (
        _check_header(first[1]) if has_header else [f"column_{number + 1}" for number in range(len(first[1]))]
    )
    return names, _name_fields(names, rows, None if has_header else first)


def _guess_delimiter(line: str) -> str:
    """Guess the delimiter from the first line: the most frequent outside of quotes, or a comma."""
    plain = _QUOTED.sub("", line)
    return max(_DELIMITERS, key=plain.count)


def _check_header(fields: list[str]) -> list[str]:
    # pandas leaves the name of its index empty
    names = [name.strip() or f"column_{number + 1}" for number, name in enumerate(fields)]
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataFileError(
            f"line 1: expected a header with distinct names, got {twice!r} twice; rename one of the columns"
        )
    return names


def _name_fields(
    names: list[str], rows: Iterator[tuple[int, list[str]]], first: tuple[int, list[str]] | None
) -> Iterator[Row]:
    for line, fields in chain([first] if first else [], rows):
        yield line, dict(zip(names, fields, strict=True))


_IMAGES = [
    *("image", "image_path", "image_file", "image_name", "image_filename", "img", "img_path", "img_name"),
    *("file_name", "filename", "file_path", "filepath", "file", "path", "photo", "picture", "pic", "images"),
    *("image_id", "img_id", "photo_id"),
]
"""Usual names of columns of pictures, the surest first."""

_TEXTS = [
    *("caption", "text", "sentence", "description", "desc", "alt", "alt_text"),
    *("title", "comment", "prompt"),
]
"""Usual names of columns of captions; the first that occurs is used, with its numbers (caption_0, …)."""

_SAMPLED_ROWS = 1000


class ColumnRoles(NamedTuple):
    """Columns of pictures, captions and ids in a table; all others are payload."""

    image: str
    texts: tuple[str, ...]
    id: str | None


def find_roles(
    table: Table, image_column: str | None, text_columns: Sequence[str] | None, id_column: str | None
) -> ColumnRoles:
    """Recognise the columns, or use those that are given.

    Raises
    ------
    DataFileError
        A given column is not there, or none is recognised as that of the pictures.
    """
    given = [column for column in (image_column, *(text_columns or ()), id_column) if column is not None]
    for column in given:
        if column not in table.names:
            raise DataFileError(f"expected a column called {column!r}, got {_list_columns(table)}")
    image = image_column or find_image_column(table)
    if image is None:
        raise DataFileError(
            "expected a column that names pictures (called image, file_name, path …, or with values that end "
            f"in {picture_kinds()}), got {_list_columns(table)}; say which it is with image_column="
        )
    texts = tuple(text_columns) if text_columns is not None else _find_text_columns(table, image, id_column)
    return ColumnRoles(image, texts, id_column)


def find_image_column(table: Table) -> str | None:
    """Return the column of pictures: by its values and the surer name, else by its name alone."""
    named = sorted((name for name in table.names if _normalize_name(name) in _IMAGES), key=_rank_name)
    filled = [name for name in table.names if _holds_pictures(table, name)]
    both = [name for name in named if name in filled]
    return next(iter([*both, *filled, *named]), None)


def names_pictures(table: Table) -> bool:
    """Tell whether some column's values are names of picture files."""
    return any(_holds_pictures(table, name) for name in table.names)


def _find_text_columns(table: Table, image: str, id_column: str | None) -> tuple[str, ...]:
    others = [name for name in table.names if name not in (image, id_column)]
    for stem in _TEXTS:
        pattern = re.compile(rf"(?:image_|img_)?{stem}s?(?:_?\d+)?")
        found = tuple(name for name in others if pattern.fullmatch(_normalize_name(name)))
        if found:
            return found
    wordy = [name for name in others if _holds_words(table, name)]
    return (wordy[0],) if len(wordy) == 1 else ()


def _normalize_name(name: str) -> str:
    return re.sub(r"[\s\-.]+", "_", name.strip().lower())


def _rank_name(name: str) -> int:
    return _IMAGES.index(_normalize_name(name))


def _holds_pictures(table: Table, name: str) -> bool:
    values = _nonempty_values(table, name)
    return 2 * sum(isinstance(value, str) and names_picture(value) for value in values) > len(values)


def _holds_words(table: Table, name: str) -> bool:
    values = _nonempty_values(table, name)
    return 2 * sum(isinstance(value, str) and " " in value.strip() for value in values) > len(values)


def _nonempty_values(table: Table, name: str) -> list[Any]:
    values = (values.get(name) for _, values in islice(table.rows, _SAMPLED_ROWS))
    return [value for value in values if value not in (None, "")]


def _list_columns(table: Table) -> str:
    shown = ", ".join(repr(name[:40]) for name in table.names[:30])
    return f"the columns {shown}" + (" and more" if len(table.names) > 30 else "")


def gather_rows(
    builder: DocumentBuilder,
    finder: PictureFinder,
    table: Table,
    roles: ColumnRoles,
    title: str,
    folder: str,
) -> None:
    """Gather the rows of a table into documents.

    Parameters
    ----------
    builder : DocumentBuilder
    finder : PictureFinder
    table : Table
    roles : ColumnRoles
    title : str
        The table's relative name.
    folder : str
        The relative name of its folder, "" for the one that was scanned.
    """
    payload_columns = [name for name in table.names if name not in (roles.image, *roles.texts, roles.id)]
    table.type_columns(payload_columns)
    builder.skipped += table.bad
    for line, values in table.rows:
        _gather_row(builder, finder, roles, f"{title}, line {line}", values, folder)


def _gather_row(
    builder: DocumentBuilder,
    finder: PictureFinder,
    roles: ColumnRoles,
    where: str,
    values: dict[str, Any],
    folder: str,
) -> None:
    captions = [text for name in roles.texts for text in parse_captions(values.get(name))]
    written, id = values.get(roles.image), _row_id(values, roles)
    found = None if written in (None, "") else finder.find(str(written), folder)
    reason = _reason_to_skip_row(roles, captions, written, id)
    if found is not None and found.name is None:
        reason = f"{str(written)[:200]!r}: {found.reason}"
    if reason:
        builder.skip(where, reason)
        return
    for name in roles.texts:
        skip_if_no_text(builder, where, values.get(name))
    used = (roles.image, *roles.texts, roles.id)
    payload = {name: value for name, value in values.items() if name not in used and value not in (None, "")}
    builder.add(where, None if found is None else found.name, captions, payload, id)


def _reason_to_skip_row(roles: ColumnRoles, captions: list[str], written: Any, id: str | None) -> str:
    if written in (None, "") and not captions:
        return "neither a picture nor a caption"
    return f"nothing in the id column {roles.id!r}" if roles.id is not None and id is None else ""


def _row_id(values: dict[str, Any], roles: ColumnRoles) -> str | None:
    value = None if roles.id is None else values.get(roles.id)
    return None if value in (None, "") else str(value)


def parse_captions(value: Any) -> list[str]:
    """Return the captions that a value holds: a text, a number, or a list of such; empty ones are dropped."""
    if isinstance(value, list):
        return [text for one in value for text in parse_captions(one) if not isinstance(one, list)]
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        text = clean_caption(str(value))
        return [text] if text else []
    return []


def skip_if_no_text(builder: DocumentBuilder, where: str, caption: Any) -> None:
    """List a caption that is neither a text nor empty, such as an object: something is lost with it."""
    if isinstance(caption, dict | bool):
        kind = "an object" if isinstance(caption, dict) else str(caption).lower()
        builder.skip(where, f"expected a text or a list of texts as caption, got {kind}; it is left out")
