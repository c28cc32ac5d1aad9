"""JSON lines: one object in each line, nothing bent on the way in."""

from __future__ import annotations

import json
import math
from typing import Any

from crossbyte.data.files.limits import Limits
from crossbyte.data.files.lines import read_lines
from crossbyte.data.files.opening import Opened
from crossbyte.errors import DataFileError
from crossbyte.strict_json import parse_json

__all__ = ["jsonl_rows", "parse_object"]


def jsonl_rows(opened: Opened, limits: Limits, at_most: int | None = None) -> list[dict[str, Any]]:
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
        value = parse_json(line, parse_float=_finite)
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
    if opening > depth and _deeper_than(value, depth):
        raise DataFileError(f"line {number}: expected at most {depth} levels, got more; flatten the object")


def _deeper_than(value: Any, depth: int) -> bool:
    """Whether there are more levels; goes down ``depth`` levels at most."""
    if not isinstance(value, dict | list):
        return False
    if depth == 0:
        return True
    return any(
        _deeper_than(item, depth - 1) for item in (value.values() if isinstance(value, dict) else value)
    )


def _check_unicode(line: str, value: Any, number: int) -> None:
    if "\\u" not in line:  # the line was UTF-8; only escapes can spell half a character
        return
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise DataFileError(f"line {number}: expected valid Unicode, got half a surrogate pair") from error


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value
