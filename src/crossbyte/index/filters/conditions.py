"""Evaluate a condition over columns: which documents satisfy a filter.

Two-valued logic. A condition on a field is true when *some* value of the field has the literal's type and
satisfies it; its negated form (``!=``, ``NOT IN``, ``NOT LIKE``, ``NOT BETWEEN``) when the document has a
value that is not null, and none satisfies it. ``NOT condition`` is plain negation.
"""

from __future__ import annotations

import difflib
import math
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbyte.errors import UnknownField
from crossbyte.index.filters import grammar
from crossbyte.index.filters.columns import Column, ColumnPart
from crossbyte.index.filters.vocabulary import Vocabulary, compile_like_pattern

Mask = NDArray[np.bool_]

_MAX_LISTED = 20
_MAX_PASSES = 32  # comparisons of a whole array; up to here they are quicker than np.isin
_KINDS = {"bool": ("bool",), "number": ("integer", "float"), "text": ("text",)}


def evaluate_condition(condition: grammar.Condition, columns: Mapping[str, Column], n_rows: int) -> Mask:
    """Say which documents satisfy a condition.

    Parameters
    ----------
    condition : Condition
    columns : mapping of str to Column
        By field, all of `n_rows` rows. In a missing column no document has a value.
    n_rows : int

    Returns
    -------
    ndarray of bool, shape (n_rows,)
        A fresh array.
    """
    if isinstance(condition, grammar.Leaf):
        return _evaluate_leaf(condition, columns.get(condition.field, Column.empty(n_rows)))
    if isinstance(condition, grammar.Not):
        result = evaluate_condition(condition.operand, columns, n_rows)
        return np.logical_not(result, out=result)
    join = np.logical_and if isinstance(condition, grammar.And) else np.logical_or
    result = evaluate_condition(condition.operands[0], columns, n_rows)
    for operand in condition.operands[1:]:
        join(result, evaluate_condition(operand, columns, n_rows), out=result)
    return result


def fields_of(condition: grammar.Condition) -> set[str]:
    """Collect the fields that a condition names.

    Parameters
    ----------
    condition : Condition

    Returns
    -------
    set of str
        As `crossbyte.index.filters.grammar.spell_field` spells them.
    """
    return {leaf.field for leaf in _leaves(condition)}


def check_fields(condition: grammar.Condition, known: Mapping[str, set[str]]) -> None:
    """Refuse a condition on a field that no document has.

    Parameters
    ----------
    condition : Condition
    known : mapping of str to set of str
        The types of each field, see `Column.types`.

    Raises
    ------
    UnknownField
        The message lists the known fields, the most similar ones first.
    """
    for field in sorted(fields_of(condition) - known.keys()):
        raise UnknownField(
            f"expected a field that some document has, got {field}; {_list_fields(field, known)}"
        )


def _leaves(condition: grammar.Condition) -> Iterator[grammar.Leaf]:
    if isinstance(condition, grammar.Leaf):
        yield condition
    else:
        for operand in (condition.operand,) if isinstance(condition, grammar.Not) else condition.operands:
            yield from _leaves(operand)


def _list_fields(field: str, known: Mapping[str, set[str]]) -> str:
    if not known:
        return "no document of this index has a payload with values"
    near = difflib.get_close_matches(field, sorted(known), n=_MAX_LISTED, cutoff=0.5)
    ordered = (near + sorted(known.keys() - set(near)))[:_MAX_LISTED]
    listed = ", ".join(f"{name} ({' or '.join(sorted(known[name]))})" for name in ordered)
    more = len(known) - len(ordered)
    return f"there are: {listed}" + (f" and {more} more" if more else "")


# Conditions on one field


def _evaluate_leaf(leaf: grammar.Leaf, column: Column) -> Mask:
    if isinstance(leaf, grammar.IsNull):
        present = column.present()
        return present if leaf.negated else ~present
    found = _match_leaf(leaf, column)
    return column.present() & ~found if leaf.negated else found


def _match_leaf(leaf: grammar.Leaf, column: Column) -> Mask:
    """Say which documents have a value that satisfies the condition, negation aside."""
    found = np.zeros(column.n_rows, bool)
    for kind in _kinds(leaf):
        part = column.parts.get(kind)
        if part is None:
            continue
        hits = (
            _match_texts(leaf, part, column.vocabulary)
            if kind == "text"
            else _match_numbers(leaf, part.values, kind)
        )
        if part.rows is None:
            found |= hits
        else:
            found[part.rows[hits]] = True
    return found


def _kinds(leaf: grammar.Leaf) -> tuple[str, ...]:
    """Name the parts of a column that hold values of the literals' types."""
    return tuple(kind for literal in _literals(leaf) for kind in _KINDS[literal])


def _literals(leaf: grammar.Leaf) -> list[str]:
    if isinstance(leaf, grammar.Comparison):
        return [leaf.literal.kind]
    if isinstance(leaf, grammar.Between):
        return [leaf.low.kind]
    return (
        sorted({literal.kind for literal in leaf.literals}) if isinstance(leaf, grammar.Member) else ["text"]
    )


# Numbers and booleans: exact, whatever the dtype

_EITHER_WAY = {"=": operator.eq, "<": operator.lt, "<=": operator.le}
_OPPOSITE = {">": "<=", ">=": "<"}


def _match_numbers(leaf: grammar.Leaf, values: NDArray[Any], kind: str) -> Mask:
    plain = values.view(np.uint8) if kind == "bool" else values
    if isinstance(leaf, grammar.Comparison):
        return _compare(plain, leaf.operator, leaf.literal)
    if isinstance(leaf, grammar.Between):
        return _compare(plain, ">=", leaf.low) & _compare(plain, "<=", leaf.high)
    assert isinstance(leaf, grammar.Member)
    return _match_any(plain, [literal.value for literal in leaf.literals if kind in _KINDS[literal.kind]])


def _compare(values: NDArray[Any], how: str, literal: grammar.Literal) -> Mask:
    if how in _OPPOSITE:
        opposite = _compare(values, _OPPOSITE[how], literal)
        return np.logical_not(opposite, out=opposite)
    assert not isinstance(literal.value, str)
    bound, is_exact = _floor(values.dtype, literal.value)
    if not is_exact and how == "=":
        return np.zeros(len(values), bool)
    return _EITHER_WAY[how if is_exact else "<="](values, bound)


def _match_any(values: NDArray[Any], wanted: list[Any]) -> Mask:
    bounds = [bound for bound, is_exact in (_floor(values.dtype, value) for value in wanted) if is_exact]
    inside = [bound for bound in bounds if values.dtype.kind == "f" or _in_range(values.dtype, bound)]
    if len(inside) > _MAX_PASSES:
        return np.isin(values, np.array(inside, values.dtype))
    found = np.zeros(len(values), bool)
    for bound in inside:
        found |= values == bound
    return found


def _in_range(dtype: np.dtype[Any], value: int) -> bool:
    return bool(np.iinfo(dtype).min <= value <= np.iinfo(dtype).max)


def _floor(dtype: np.dtype[Any], value: int | float) -> tuple[Any, bool]:
    """Give the largest number of a dtype that is not above a literal, and whether it equals the literal.

    NumPy would round the literal to the dtype of the values, or both to float64, and so find what is not
    there. Python compares integers with floats exactly, and NumPy compares integers of any dtype with
    Python's integers exactly.
    """
    if dtype.kind != "f":
        bound = math.floor(value)
        return bound, bound == value
    with np.errstate(over="ignore"):
        near = dtype.type(value)
    if float(near) > value:
        near = np.nextafter(near, dtype.type(-np.inf))
    return near, float(near) == value


# Texts: each text of the vocabulary is judged once, documents by their codes


def _match_texts(leaf: grammar.Leaf, part: ColumnPart, vocabulary: Vocabulary) -> Mask:
    if isinstance(leaf, grammar.Comparison):
        return _match_codes(part.values, *vocabulary.range_of(leaf.operator, str(leaf.literal.value)))
    if isinstance(leaf, grammar.Between):
        first, _ = vocabulary.range_of(">=", str(leaf.low.value))
        _, last = vocabulary.range_of("<=", str(leaf.high.value))
        return _match_codes(part.values, first, last)
    if isinstance(leaf, grammar.Like):
        return vocabulary.matching(compile_like_pattern(leaf.pattern, leaf.escape))[part.values]
    assert isinstance(leaf, grammar.Member)
    chosen = np.zeros(len(vocabulary), bool)
    for literal in leaf.literals:
        if literal.kind == "text":
            chosen[slice(*vocabulary.range_of("=", str(literal.value)))] = True
    return chosen[part.values]


def _match_codes(codes: NDArray[Any], first: int, last: int) -> Mask:
    if last - first == 1:
        return codes == first
    return (codes >= first) & (codes < last)
