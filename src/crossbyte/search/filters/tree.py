"""The tree of a filter: frozen, hashable, and without any behaviour.

Equal trees select equal documents, so a tree may be the key of a cache.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = [
    "And",
    "Between",
    "Comparison",
    "Condition",
    "IsNull",
    "Leaf",
    "Like",
    "Literal",
    "Member",
    "Not",
    "Or",
    "exact_number",
]


@dataclass(frozen=True, slots=True)
class Literal:
    """A value in a filter; its kind keeps 1 and TRUE apart."""

    kind: str
    """"bool", "number" or "text" """
    value: str | int | float | bool


@dataclass(frozen=True, slots=True)
class Leaf:
    """What every condition on one field has in common."""

    field: str
    negated: bool


@dataclass(frozen=True, slots=True)
class Comparison(Leaf):
    """``field < literal`` and the like; ``!=`` is a negated ``=``."""

    operator: str
    """"=", "<", "<=", ">" or ">=" """
    literal: Literal


@dataclass(frozen=True, slots=True)
class Member(Leaf):
    """``field IN (literal, …)``."""

    literals: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Between(Leaf):
    """``field BETWEEN low AND high``: one value lies between both, ends included."""

    low: Literal
    high: Literal


@dataclass(frozen=True, slots=True)
class Like(Leaf):
    """``field LIKE pattern``."""

    pattern: str
    escape: str
    """One character, or "" for none."""


@dataclass(frozen=True, slots=True)
class IsNull(Leaf):
    """``field IS NULL``."""


@dataclass(frozen=True, slots=True)
class Not:
    """``NOT condition``."""

    operand: Condition


@dataclass(frozen=True, slots=True)
class And:
    """``condition AND condition …``."""

    operands: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """``condition OR condition …``."""

    operands: tuple[Condition, ...]


Condition = Leaf | Not | And | Or


def exact_number(value: int | float) -> int | float:
    """Give a number as filters know it: integers beyond 64 bits as the nearest float64.

    Parameters
    ----------
    value : int or float

    Returns
    -------
    int or float
        An integer beyond the range of float64 becomes an infinity.
    """
    if isinstance(value, float) or -(2**63) <= value < 2**63:
        return value
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
