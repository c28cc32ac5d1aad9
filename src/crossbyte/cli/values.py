"""Small values on the command line: sizes, ranges of rows, parameters, files with a key."""

from __future__ import annotations

import json
import os
import re
from typing import Any, NamedTuple

from crossbyte.errors import InvalidInput

__all__ = ["KeyedFile", "parse_bytes", "parse_file", "parse_parameters", "parse_rows", "parse_size"]


class KeyedFile(NamedTuple):
    """A file, and the array in it that is meant; None for the only one."""

    path: str
    key: str | None


def parse_file(text: str) -> KeyedFile:
    """Take ``FILE:KEY`` apart; a file that is there under the whole name is that file."""
    path, colon, key = text.rpartition(":")
    if not colon or os.path.exists(text) or "/" in key or "\\" in key or len(path) < 2:  # C:\ is a drive
        return KeyedFile(text, None)
    return KeyedFile(path, key)


def parse_size(text: str | None, option: str) -> int | None:
    """Read a number of bytes such as ``200MB`` or ``1.5 GiB``, as the library does."""
    from crossbyte.executors.choosing import parse_memory

    return None if text is None else parse_memory(text, option)


def parse_rows(text: str) -> slice:
    """Read a range of rows such as ``10:20``, ``:5`` or ``100:``."""
    match = re.fullmatch(r"(\d*):(\d*)", text.strip())
    if match is None:
        raise InvalidInput(f"--rows: expected a range of rows, got {text!r}; give one such as 0:10")
    first, end = (int(part) if part else None for part in match.groups())
    return slice(first, end)


def parse_bytes(text: str) -> list[int]:
    """Read code lengths such as ``2,4,8``; an empty text is none."""
    if not re.fullmatch(r"\s*(\d+\s*(,\s*\d+\s*)*)?", text):
        raise InvalidInput(f"--curve: expected numbers of bytes, got {text!r}; give some such as 2,4,8")
    return [int(part) for part in text.split(",") if part.strip()]


def parse_parameters(texts: list[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs; a value is read as JSON where it is JSON, else it is text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.isidentifier() or name in found:
            raise InvalidInput(
                f"--param: expected name=value, each name once, got {text!r}; see docs/arrays.md"
            )
        found[name] = _json_or_text(value)
    return found


def _json_or_text(value: str) -> Any:
    try:
        return json.loads(value)
    except ValueError:
        return value
