"""Parse the filter language: text becomes a small tree of conditions. Nothing here touches data or SQL.

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

A field is the way down to a value: ``{"exif": {"year": 2020}}`` has the field ``exif.year``. Keys that are
no plain words are spelled in backquotes (a backquote inside is doubled), so that each field has exactly one
spelling, and that spelling can be used in a filter: ``{"a.b": 1}`` has the field `` `a.b` ``.

The tree is frozen and hashable. Equal trees select equal documents, so a tree may be the key of a cache. The
rules of evaluation are in `crossbyte.index.filters.conditions` and, for users, in ``docs/filters.md``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple, NoReturn

from crossbyte.errors import FilterError, InvalidInput

KEYWORDS = frozenset(["AND", "OR", "NOT", "IN", "LIKE", "ESCAPE", "BETWEEN", "IS", "NULL", "TRUE", "FALSE"])
"""Words of the filter language, in any case; a field of this name is spelled in backquotes."""

PART = r"(?:[^\W\d]\w*|`(?:[^`]|``)*`)"
"""Regular expression of one part of a field's spelling."""

Scalar = str | int | float | bool | None

_SCALARS = (str, int, float, type(None))
_WORD = re.compile(r"[^\W\d]\w*")
_PART_PATTERN = re.compile(PART)


def flatten_payload(payload: Mapping[str, Any]) -> Iterator[tuple[str, Scalar]]:
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
            stack.extend((_child_field(field, key), item) for key, item in value.items())
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
    spelled = ".".join(part if _WORD.fullmatch(part) else _quote_part(part) for part in parts)
    return _quote_part(spelled) if is_keyword(spelled) else spelled


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
    parts = _PART_PATTERN.findall(spelled)
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
def _child_field(field: str, key: Any) -> str:
    if not isinstance(key, str):
        raise InvalidInput(f"expected text as keys of a payload, got {type(key).__name__} {key!r}")
    if not field:
        return spell_field([key])
    is_quoted = field.startswith("`") and is_keyword(field[1:-1])  # only while it stood alone
    above = field[1:-1] if is_quoted else field
    return f"{above}.{key if _WORD.fullmatch(key) else _quote_part(key)}"


def _quote_part(part: str) -> str:
    return "`" + part.replace("`", "``") + "`"


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


def _tokenize(text: str) -> Iterator[_Token]:
    position = _SPACE.match(text).end()  # type: ignore[union-attr]  # it matches everywhere
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise _unreadable_error(text, position)
        kind, found = match.lastgroup or "", match[0]
        if kind == "name" and is_keyword(found):
            kind, found = "keyword", found.upper()
        yield _Token(kind, found, position)
        position = _SPACE.match(text, match.end()).end()  # type: ignore[union-attr]
    yield _Token("end", "", len(text))


def _unreadable_error(text: str, position: int) -> FilterError:
    character = text[position]
    if character in "'\"`":
        return _syntax_error(text, position, f"a closing {character}", "the end of the filter")
    return _syntax_error(text, position, "a field, a literal, an operator or a parenthesis", repr(character))


def _syntax_error(text: str, position: int, expected: str, found: str) -> FilterError:
    first = max(0, position - 50)
    excerpt = _on_one_line(text[first : position + 30])
    place = f"at character {position + 1}:\n  {excerpt}\n  {' ' * (position - first)}^"
    return FilterError(f"expected {expected}, found {found} {place}")


def _on_one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


# Grammar


class _Parser:
    """One method per rule of the grammar; `token` is the next one not yet used."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = _tokenize(text)
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
            return _make_comparison(field, self.advance().text, self.literal())
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
        return _make_comparison(field, _FLIPPED.get(operator, operator), literal)

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
                raise _syntax_error(
                    self.text, place, "one character after ESCAPE", f"{len(escape)} characters"
                )
            if re.sub(re.escape(escape) + "(?s:.)", "", pattern).endswith(escape):
                raise _syntax_error(
                    self.text, start, "a character after each escape character", "the pattern's end"
                )
        return Like(field, negated, pattern, escape)

    def between(self, field: str, negated: bool) -> Condition:
        low = self.literal()
        self.expect("AND", "AND and the upper end")
        start, high = self.token.start, self.literal()
        if low.kind != high.kind:
            raise _syntax_error(self.text, start, f"a {low.kind} as the lower end is one", f"a {high.kind}")
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
        shown = _on_one_line(self.token.text[:40]) + "…" * (len(self.token.text) > 40)
        found = shown if self.token.kind != "end" else "the end of the filter"
        raise _syntax_error(self.text, self.token.start, expected, found)


def _make_comparison(field: str, operator: str, literal: Literal) -> Comparison:
    operator = _SAME.get(operator, operator)
    if operator == "!=":
        return Comparison(field, True, "=", literal)
    return Comparison(field, False, operator, literal)
