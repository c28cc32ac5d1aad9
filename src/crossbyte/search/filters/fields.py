"""The fields of a document: how a nested payload becomes named values, and how the names are spelled.

A field is the way down to a value: ``{"exif": {"year": 2020}}`` has the field ``exif.year``. Keys that are
no plain words are spelled in backquotes (a backquote inside is doubled), so that each field has exactly one
spelling, and that spelling can be used in a filter: ``{"a.b": 1}`` has the field `` `a.b` ``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from crossbyte.errors import InvalidInput

__all__ = ["KEYWORDS", "PART", "Scalar", "field_parts", "flatten", "is_keyword", "spell_field"]

KEYWORDS = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"])
"""Words of the filter language, in any case; a field of this name is spelled in backquotes."""

PART = r"(?:[^\W\d]\w*|`(?:[^`]|``)*`)"
"""Regular expression of one part of a field's spelling."""

Scalar = str | int | float | bool | None

_SCALARS = (str, int, float, type(None))
_WORD = re.compile(r"[^\W\d]\w*")
_PART = re.compile(PART)


def flatten(payload: Mapping[str, Any]) -> Iterator[tuple[str, Scalar]]:
    """Give the fields of a payload with their values.

    Nested objects have dotted names. A list gives each of its elements under its own name, so that a field
    may have several values; an empty list or object has none.

    Parameters
    ----------
    payload : mapping
        A JSON object.

    Yields
    ------
    tuple of str and scalar
        Field and value, in no particular order.

    Raises
    ------
    InvalidInput
        A key or a value is not JSON.
    """
    stack: list[tuple[str, Any]] = [("", payload)]
    while stack:  # no recursion: the depth of a payload is the user's choice
        field, value = stack.pop()
        if isinstance(value, _SCALARS):
            yield field, value
        elif isinstance(value, dict | Mapping):  # in this order, because the second is slow to tell
            stack.extend((_below(field, key), item) for key, item in value.items())
        elif isinstance(value, list | tuple):
            stack.extend((field, item) for item in value)
        else:
            raise InvalidInput(f"expected JSON values in a payload, got {type(value).__name__} at {field}")


def spell_field(parts: Sequence[str]) -> str:
    """Spell a field as it is written in a filter.

    Parameters
    ----------
    parts : sequence of str
        The keys on the way down, at least one.

    Returns
    -------
    str
        For example ``exif.year``, `` `odd name`.year ``.
    """
    spelled = ".".join(part if _WORD.fullmatch(part) else _quoted(part) for part in parts)
    return _quoted(spelled) if is_keyword(spelled) else spelled


def field_parts(spelled: str) -> list[str]:
    """Give the keys on the way down to a field.

    Parameters
    ----------
    spelled : str
        As `spell_field` gives it; superfluous backquotes are allowed.

    Returns
    -------
    list of str
    """
    parts = _PART.findall(spelled)
    return [part[1:-1].replace("``", "`") if part[0] == "`" else part for part in parts]


def is_keyword(word: str) -> bool:
    """Say whether a word belongs to the filter language.

    Parameters
    ----------
    word : str

    Returns
    -------
    bool
    """
    return word.isascii() and word.upper() in KEYWORDS  # Unicode would turn a dotless i into I


@lru_cache(maxsize=4096)  # the same few keys come again in each document
def _below(field: str, key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"expected text as keys of a payload, got {type(key).__name__} {key!r}")
    if not field:
        return spell_field([key])
    above = field[1:-1] if is_keyword(field[1:-1]) else field  # quoted only while it stood alone
    return f"{above}.{key if _WORD.fullmatch(key) else _quoted(key)}"


def _quoted(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"
