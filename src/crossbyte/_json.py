"""Write and read JSON: one spelling for each value, and nothing changed on the way in or out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from datetime import date, time
from functools import cache
from typing import Any, NoReturn

import numpy as np

from crossbyte.errors import InvalidInput

_MAX_DEPTH = 64  # far below any recursion limit, so what was written can be read from anywhere


def canonical_json(value: Any) -> str:
    """Write a JSON value in the one canonical way: sorted keys, ASCII, no spaces.

    Parameters
    ----------
    value : JSON value

    Returns
    -------
    str

    Raises
    ------
    ValueError
        A number is not finite, or an integer has more digits than Python converts.
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def parse_json(text: str, parse_float: Callable[[str], float] = float) -> Any:
    """Parse JSON; refuse repeated keys and the constants NaN and Infinity.

    Parameters
    ----------
    text : str
    parse_float : callable
        Reads the numbers that are no integers.

    Returns
    -------
    JSON value
        A number too large for float64 comes back as infinity, which `canonical_json` refuses.

    Raises
    ------
    ValueError, RecursionError
        Not JSON, or nested too deeply.
    """
    return _make_decoder(parse_float).decode(text)


@cache
def _make_decoder(parse_float: Callable[[str], float]) -> json.JSONDecoder:
    """Make a decoder, once: that takes longer than reading a payload."""
    return json.JSONDecoder(
        object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant, parse_float=parse_float
    )


def plain_json(value: Any, where: str, depth: int = 0, *, scalars: bool = False) -> Any:
    """Copy a value into plain JSON types; refuse what would not come back as it went.

    Parameters
    ----------
    value : mapping, list, tuple, str, int, float, bool or None
        Tuples become lists.
    where : str
        The place of the value, for messages.
    depth : int
        How many levels lie above.
    scalars : bool
        Whether scalars of NumPy are taken, too, as Python's, and dates and times as their ISO texts, which
        sort as they do.

    Returns
    -------
    JSON value

    Raises
    ------
    InvalidInput
        A key that is no string, a number that is not finite, invalid Unicode, another type, or more than
        64 levels.
    """
    if depth > _MAX_DEPTH:
        raise InvalidInput(f"expected a document at most {_MAX_DEPTH} levels deep; {where[:80]} goes deeper")
    if isinstance(value, Mapping):
        pairs = [(_plain_text(key, f"a key of {where}"), item) for key, item in value.items()]
        return {key: plain_json(item, f"{where}.{key}", depth + 1, scalars=scalars) for key, item in pairs}
    if isinstance(value, list | tuple):
        return [plain_json(item, f"{where}[{i}]", depth + 1, scalars=scalars) for i, item in enumerate(value)]
    return _plain_scalar(_replace_scalar(value) if scalars else value, where)


def _replace_scalar(value: Any) -> Any:
    if isinstance(value, np.datetime64) and isinstance(value.item(), int):  # finer than Python's
        value = value.astype("datetime64[us]")
    if isinstance(value, np.generic):
        value = value.item()
    return value.isoformat() if isinstance(value, date | time) else value


def _plain_scalar(value: Any, where: str) -> Any:
    if isinstance(value, str):
        return _plain_text(value, where)
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"expected finite numbers, got {value!r} at {where}; store None instead")
    if value is None or isinstance(value, bool | int | float):
        return value
    kind = type(value).__name__
    raise InvalidInput(f"expected a JSON value at {where}, got {kind}; convert it (an array: .tolist())")


def _plain_text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"expected {where} to be a string, got {type(value).__name__} {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(f"expected valid Unicode at {where}, got {value!r}") from error
    return value


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice")
    return result


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")
