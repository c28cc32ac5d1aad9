"""Read text tables: lines of limited length, CSV, and JSON lines."""

from __future__ import annotations

import csv
import json
import math
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte._json import parse_json
from crossbyte.data.safe_open import Limits, OpenFile
from crossbyte.errors import DataFileError

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"  # some editors put this byte-order mark before UTF-8


def read_lines(opened: OpenFile, limits: Limits) -> Iterator[str]:
    """Yield the lines of a UTF-8 file, with their ends.

    Raises
    ------
    DataFileError
        The file or a line is too long, is not UTF-8, or has NUL characters; the message names the line.
    """
    if opened.size > limits.text_bytes:
        raise DataFileError(
            f"expected at most {limits.text_bytes} bytes of text, got {opened.size}; split the file"
        )
    number = 1
    while raw := opened.file.readline(limits.line_bytes + 1):
        yield _decode_line(raw.removeprefix(_BYTE_ORDER_MARK) if number == 1 else raw, number, limits)
        number += 1


def _decode_line(raw: bytes, number: int, limits: Limits) -> str:
    if len(raw) > limits.line_bytes:
        raise DataFileError(f"line {number}: expected at most {limits.line_bytes} bytes; is it text?")
    if b"\0" in raw:
        raise DataFileError(f"line {number}: expected text, got a NUL character; save the file as UTF-8")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        wrong = raw[error.start]
        raise DataFileError(
            f"line {number}: expected UTF-8, got byte 0x{wrong:02x}; save the file as UTF-8"
        ) from error


_NUMBER = re.compile(
    r"\s*[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?|nan|inf(?:inity)?)\s*", re.ASCII | re.I
)
_INTEGER = re.compile(r"-?(?:0|[1-9]\d{0,18})", re.ASCII)
# not more digits before the point than float64 keeps
_DECIMAL = re.compile(r"-?(?:0|[1-9]\d{0,14})(?:\.\d+)?(?:[eE][+-]?\d{1,3})?", re.ASCII)
_BOOLEANS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}


def csv_matrix(opened: OpenFile, limits: Limits) -> NDArray[np.float64]:
    """Read a matrix of numbers, (n, d) float64; a first line without any number is a header and skipped."""
    cells, width, n_rows = array("d"), 0, 0
    for line, row in csv_rows(opened, limits):
        if not width:
            width = len(row)
            if _is_header(line, row):
                continue
        cells.extend(_parse_numbers(line, row))
        n_rows += 1
    if not n_rows:
        raise DataFileError("expected rows of numbers, got none")
    return np.frombuffer(cells, dtype=np.float64).reshape(n_rows, width)


def csv_header(opened: OpenFile, limits: Limits) -> list[str]:
    """Return the names in the first line, which must differ."""
    return _check_names(next(csv_rows(opened, limits), (1, [])))


def csv_columns(opened: OpenFile, limits: Limits) -> dict[str, list[Any]]:
    """Read the columns below a header, each with one type.

    A column whose every value is an integer (64 bits, no leading zeros) becomes integers; decimal numbers,
    floats; true or false, booleans; in these, an empty field is None. Every other column stays text as it is.
    """
    rows = csv_rows(opened, limits)
    names = _check_names(next(rows, (1, [])))
    columns: list[list[str]] = [[] for _ in names]
    for _, row in rows:
        for column, field in zip(columns, row, strict=True):
            column.append(field)
    return {name: infer_column(column) for name, column in zip(names, columns, strict=True)}


def csv_rows(
    opened: OpenFile,
    limits: Limits,
    *,
    delimiter: str = ",",
    on_bad: Callable[[int, str], None] | None = None,
) -> Iterator[tuple[int, list[str]]]:
    """Yield line number and fields of each row, all of one width; empty lines may stand at the end only.

    With ``on_bad``, rows that cannot be read are reported to it, by line and reason, and left out, and empty
    lines may stand anywhere.
    """
    reader = csv.reader(read_lines(opened, limits), strict=True, delimiter=delimiter)
    width, n_rows, empty = 0, 0, 0
    while (row := _next_row(reader, on_bad)) is not None:
        if not row:
            empty = empty or reader.line_num
            continue
        width = width or len(row)
        n_rows += 1
        _check_count(reader.line_num, n_rows, limits)
        try:
            _check_row(reader.line_num, row, width, 0 if on_bad else empty)
            _check_extent(reader.line_num, row, limits)
        except DataFileError as error:
            if on_bad is None:
                raise
            on_bad(reader.line_num, str(error).partition(": ")[2])
        else:
            yield reader.line_num, row


def _next_row(reader: Any, on_bad: Callable[[int, str], None] | None) -> list[str] | None:
    """Return the next row, or None at the end; the reader goes on with the line after one that is broken."""
    while True:
        begin = reader.line_num + 1
        try:
            return next(reader, None)
        except csv.Error as error:
            if on_bad is None:
                raise DataFileError(
                    f"line {reader.line_num}: expected comma-separated values, got {error}"
                ) from error
            on_bad(begin, f"expected quoted fields to end before line {reader.line_num + 1}, got {error}")


def _check_row(line: int, row: list[str], width: int, empty: int) -> None:
    if empty:
        raise DataFileError(f"line {empty}: expected a row, got an empty line; remove it")
    if len(row) != width:
        raise DataFileError(
            f"line {line}: expected {width} fields as in the first line, got {len(row)}; "
            "quote fields that hold commas"
        )


def _check_count(line: int, n_rows: int, limits: Limits) -> None:
    if n_rows > limits.rows:
        raise DataFileError(f"line {line}: expected at most {limits.rows} rows, got more; split the file")


def _check_extent(line: int, row: list[str], limits: Limits) -> None:
    if len(row) > limits.columns:
        raise DataFileError(
            f"line {line}: expected at most {limits.columns} columns, got {len(row)}; save a .npy file"
        )
    if max(map(len, row)) > limits.field_chars:
        raise DataFileError(
            f"line {line}: expected at most {limits.field_chars} characters in a field, got more"
        )


def _check_names(first: tuple[int, list[str]]) -> list[str]:
    line, row = first
    names = [name.strip() for name in row]
    if not names or "" in names or len(set(names)) != len(names):
        raise DataFileError(
            f"line {line}: expected a header with one distinct name for each column, got {names[:10]}"
        )
    return names


def _is_header(line: int, row: list[str]) -> bool:
    if len(row) > 2 and row == [str(column) for column in range(len(row))]:
        raise DataFileError(
            f"line {line} holds column numbers (0, 1, 2, …), which are no features; "
            "remove it (pandas: header=False, index=False)"
        )
    return not any(_NUMBER.fullmatch(field) for field in row) and any(field.strip() for field in row)


def _parse_numbers(line: int, row: list[str]) -> Iterator[float]:
    for column, field in enumerate(row):
        if not _NUMBER.fullmatch(field):
            raise DataFileError(
                f"line {line}, column {column + 1}: expected a number, got {field[:40]!r}; "
                "use decimal points, commas between fields, and no empty field"
            )
        yield float(field)


def infer_column(column: list[str]) -> list[Any]:
    """Convert texts to integers, floats or booleans where all of them are; see `csv_columns`."""
    given = [field for field in column if field]
    if not given:
        return list(column)
    if all(map(_INTEGER.fullmatch, given)):
        return _keep_text_if_large(column, [int(field) if field else None for field in column], 2**63)
    if all(map(_DECIMAL.fullmatch, given)):
        return _keep_text_if_large(column, [float(field) if field else None for field in column], np.inf)
    if all(field in _BOOLEANS for field in given):
        return [_BOOLEANS[field] if field else None for field in column]
    return list(column)


def _keep_text_if_large(column: list[str], values: Sequence[float | None], end: float) -> list[Any]:
    """Return the values, or the texts where a value is too large to be kept as a number."""
    return list(column) if any(value is not None and abs(value) >= end for value in values) else list(values)


def jsonl_rows(opened: OpenFile, limits: Limits, at_most: int | None = None) -> list[dict[str, Any]]:
    """Read the objects of a file, at most ``at_most`` of them; empty lines may stand at the end only."""
    rows: list[dict[str, Any]] = []
    empty = 0
    for number, line in enumerate(read_lines(opened, limits), start=1):
        if not line.strip():
            empty = empty or number
            continue
        if empty:
            raise DataFileError(f"line {empty}: expected a JSON object, got an empty line; remove it")
        rows.append(parse_object(line, number, limits.depth))
        if len(rows) == at_most:
            break
        if len(rows) > limits.rows:
            raise DataFileError(
                f"line {number}: expected at most {limits.rows} rows, got more; split the file"
            )
    if not rows:
        raise DataFileError("expected a JSON object in each line, got none")
    return rows


def parse_object(line: str, number: int, depth: int) -> dict[str, Any]:
    """Parse one line; refuse repeated keys, NaN, Infinity, broken Unicode and more than ``depth`` levels."""
    try:
        value = parse_json(line, parse_float=_parse_finite)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise DataFileError(f"line {number}: expected a JSON object: {reason[:200]}") from error
    if not isinstance(value, dict):
        raise DataFileError(f"line {number}: expected a JSON object {{…}}, got a {type(value).__name__}")
    _check_depth(line, value, number, depth)
    _check_unicode(line, value, number)
    return value


def _check_depth(line: str, value: Any, number: int, depth: int) -> None:
    opening = line.count("[") + line.count("{")  # no deeper than this, and cheaper than a walk
    if opening > depth and _is_deeper_than(value, depth):
        raise DataFileError(f"line {number}: expected at most {depth} levels, got more; flatten the object")


def _is_deeper_than(value: Any, depth: int) -> bool:
    """Tell whether a value has more than ``depth`` levels, without going deeper."""
    if not isinstance(value, dict | list):
        return False
    if depth == 0:
        return True
    return any(
        _is_deeper_than(item, depth - 1) for item in (value.values() if isinstance(value, dict) else value)
    )


def _check_unicode(line: str, value: Any, number: int) -> None:
    if "\\u" not in line:  # the line was UTF-8; only escapes can spell half a character
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataFileError(f"line {number}: expected valid Unicode, got half a surrogate pair") from error


def _parse_finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value
