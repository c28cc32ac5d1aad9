"""The filter language: text becomes a small tree of conditions. Nothing here touches data or SQL.

::

    condition  = all { OR all }
    all        = not { AND not }
    not        = NOT not | "(" condition ")" | predicate
    predicate  = field ( = | == | != | <> | < | <= | > | >= ) literal
               | literal ( = | == | != | <> | < | <= | > | >= ) field
               | field [NOT] IN "(" literal { "," literal } ")"
               | field [NOT] LIKE text [ ESCAPE text ]
               | field [NOT] BETWEEN literal AND literal
               | field IS [NOT] NULL
    literal    = number | 'text' | "text" | TRUE | FALSE

The rules of evaluation are in `crossbyte.search.filters.conditions` and, for users, in ``docs/filters.md``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple, NoReturn

from crossbyte.errors import FilterError
from crossbyte.search.filters.fields import PART, field_parts, is_keyword, spell_field
from crossbyte.search.filters.tree import (
    And,
    Between,
    Comparison,
    Condition,
    IsNull,
    Like,
    Literal,
    Member,
    Not,
    Or,
    exact_number,
)

__all__ = ["MAX_CHARACTERS", "MAX_DEPTH", "MAX_TERMS", "parse_filter"]

MAX_CHARACTERS = 10_000
MAX_TERMS = 200
MAX_DEPTH = 50


def parse_filter(text: str) -> Condition:
    """Read a filter.

    Parameters
    ----------
    text : str
        For example ``year >= 2020 AND kind IN ('photo', 'map')``.

    Returns
    -------
    Condition
        Frozen and hashable; equal trees select equal documents.

    Raises
    ------
    FilterError
        The text is no filter; the message shows where and says what was expected there.
    """
    if not isinstance(text, str):
        raise FilterError(f'expected a filter as text, such as "year >= 2020", got {type(text).__name__}')
    if len(text) > MAX_CHARACTERS:
        raise FilterError(f"expected a filter of at most {MAX_CHARACTERS} characters, got {len(text)}")
    return _Parser(text).parse()


# Tokens

_TOKEN = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<text>'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\")"
    rf"|(?P<name>{PART}(?:\.{PART})*)"
    r"|(?P<operator><=|>=|<>|!=|==|=|<|>)"
    r"|(?P<mark>[(),])"
)
_SPACE = re.compile(r"\s*")
_SAME = {"==": "=", "<>": "!="}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


class _Token(NamedTuple):
    kind: str  # number, text, name, operator, mark, keyword, end
    text: str  # keywords in capitals
    start: int


def _tokens(text: str) -> Iterator[_Token]:
    position = _SPACE.match(text).end()  # type: ignore[union-attr]  # it matches everywhere
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable(text, position)
        kind, found = match.lastgroup or "", match[0]
        if kind == "name" and is_keyword(found):
            kind, found = "keyword", found.upper()
        yield _Token(kind, found, position)
        position = _SPACE.match(text, match.end()).end()  # type: ignore[union-attr]
    yield _Token("end", "", len(text))


def _unreadable(text: str, position: int) -> FilterError:
    character = text[position]
    if character in "'\"`":
        return _error(text, position, f"a closing {character}", "the end of the filter")
    return _error(text, position, "a field, a literal, an operator or a parenthesis", repr(character))


def _error(text: str, position: int, expected: str, found: str) -> FilterError:
    first = max(0, position - 50)
    excerpt = _in_one_line(text[first : position + 30])
    place = f"at character {position + 1}:\n  {excerpt}\n  {' ' * (position - first)}^"
    return FilterError(f"expected {expected}, found {found} {place}")


def _in_one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


# Grammar


class _Parser:
    """One method per rule of the grammar; `token` is the next one not yet used."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokens(text)
        self.token = next(self.tokens)
        self.depth = 0
        self.n_terms = 0

    def parse(self) -> Condition:
        condition = self.any_of()
        if self.token.kind != "end":
            self.fail("AND, OR or the end of the filter")
        return condition

    def any_of(self) -> Condition:
        operands = [self.all_of()]
        while self.accept("OR"):
            operands.append(self.all_of())
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def all_of(self) -> Condition:
        operands = [self.negation()]
        while self.accept("AND"):
            operands.append(self.negation())
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def negation(self) -> Condition:
        if self.sees("NOT"):
            return Not(self.nested(self.negation))
        if self.sees("("):
            condition = self.nested(self.any_of)
            self.expect(")", "AND, OR or )")
            return condition
        return self.predicate()

    def nested(self, rule: Callable[[], Condition]) -> Condition:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            self.fail(f"at most {MAX_DEPTH} levels of parentheses and NOT")
        self.advance()
        condition = rule()
        self.depth -= 1
        return condition

    def predicate(self) -> Condition:
        self.n_terms += 1
        if self.n_terms > MAX_TERMS:
            self.fail(f"at most {MAX_TERMS} conditions")
        if self.is_literal():
            return self.reversed_comparison()
        field = self.field("a condition such as year >= 2020")
        if self.token.kind == "operator":
            return _comparison(field, self.advance().text, self.literal())
        if self.accept("IS"):
            negated = self.accept("NOT")
            self.expect("NULL", "NULL" if negated else "NULL or NOT NULL")
            return IsNull(field, negated)
        return self.test_of(field, self.accept("NOT"))

    def test_of(self, field: str, negated: bool) -> Condition:
        if self.accept("IN"):
            return Member(field, negated, self.literals())
        if self.accept("LIKE"):
            return self.like(field, negated)
        if self.accept("BETWEEN"):
            return self.between(field, negated)
        self.fail("IN, LIKE or BETWEEN" if negated else "=, !=, <, <=, >, >=, IN, LIKE, BETWEEN, IS or NOT")

    def reversed_comparison(self) -> Condition:
        literal = self.literal()
        if self.token.kind != "operator":
            self.fail("a comparison (=, !=, <, <=, >, >=) with a field; texts stand in quotes, fields do not")
        operator = self.advance().text
        field = self.field("the name of a field, without quotes or in `backquotes`")
        return _comparison(field, _FLIPPED.get(operator, operator), literal)

    def literals(self) -> tuple[Literal, ...]:
        self.expect("(", "( and a list of literals")
        found = [self.literal()]
        while self.accept(","):
            found.append(self.literal())
        self.expect(")", ", or )")
        return tuple(found)

    def like(self, field: str, negated: bool) -> Condition:
        start, pattern, escape = self.token.start, self.quoted("a pattern such as 'a%'"), ""
        if self.accept("ESCAPE"):
            place, escape = self.token.start, self.quoted("one character in quotes")
            if len(escape) != 1:
                raise _error(self.text, place, "one character after ESCAPE", f"{len(escape)} characters")
            if re.sub(re.escape(escape) + "(?s:.)", "", pattern).endswith(escape):
                raise _error(self.text, start, "a character after each escape character", "the pattern's end")
        return Like(field, negated, pattern, escape)

    def between(self, field: str, negated: bool) -> Condition:
        low = self.literal()
        self.expect("AND", "AND and the upper end")
        start, high = self.token.start, self.literal()
        if low.kind != high.kind:
            raise _error(self.text, start, f"a {low.kind} as the lower end is one", f"a {high.kind}")
        return Between(field, negated, low, high)

    def field(self, expected: str) -> str:
        if self.token.kind != "name":
            self.fail(expected)
        return spell_field(field_parts(self.advance().text))

    def is_literal(self) -> bool:
        return self.token.kind in ("number", "text") or self.token.text in ("TRUE", "FALSE")

    def literal(self) -> Literal:
        if not self.is_literal():
            null = self.token.text == "NULL"
            self.fail("a literal; use IS NULL" if null else "a number, a text in quotes, TRUE or FALSE")
        if self.token.kind == "number":
            return Literal("number", self.number())
        if self.token.kind == "text":
            return Literal("text", self.quoted("a text"))
        return Literal("bool", self.advance().text == "TRUE")

    def number(self) -> int | float:
        spelled = self.token.text
        try:
            value = exact_number(int(spelled)) if spelled.lstrip("+-").isdigit() else float(spelled)
        except ValueError:  # Python refuses integers of thousands of digits
            value = math.inf
        if math.isinf(value):
            self.fail("a number in the range of float64")
        self.advance()
        return value

    def quoted(self, expected: str) -> str:
        if self.token.kind != "text":
            self.fail(expected)
        spelled = self.advance().text
        return spelled[1:-1].replace(spelled[0] * 2, spelled[0])

    def sees(self, word: str) -> bool:
        return self.token.kind in ("keyword", "mark") and self.token.text == word

    def accept(self, word: str) -> bool:
        seen = self.sees(word)
        if seen:
            self.advance()
        return seen

    def expect(self, word: str, expected: str) -> None:
        if not self.accept(word):
            self.fail(expected)

    def advance(self) -> _Token:
        used = self.token
        if used.kind != "end":
            self.token = next(self.tokens)
        return used

    def fail(self, expected: str) -> NoReturn:
        shown = _in_one_line(self.token.text[:40]) + "…" * (len(self.token.text) > 40)
        found = shown if self.token.kind != "end" else "the end of the filter"
        raise _error(self.text, self.token.start, expected, found)


def _comparison(field: str, operator: str, literal: Literal) -> Comparison:
    operator = _SAME.get(operator, operator)
    if operator == "!=":
        return Comparison(field, True, "=", literal)
    return Comparison(field, False, operator, literal)
