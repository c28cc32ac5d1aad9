"""The filter language: what it reads, and how it refuses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbyte.errors import FilterError, InvalidInput
from crossbyte.index.filters.grammar import (
    KEYWORDS,
    MAX_CHARACTERS,
    MAX_DEPTH,
    MAX_TERMS,
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
    field_parts,
    flatten_payload,
    parse_filter,
    spell_field,
)


def number(value: int | float) -> Literal:
    return Literal("number", value)


def equal(field: str, value: int = 1) -> Comparison:
    return Comparison(field, False, "=", number(value))


A, B, C = equal("a"), equal("b"), equal("c")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a = 1", A),
        ("a == 1", A),
        ("a=1", A),
        ("1 = a", A),
        ("a != 1", Comparison("a", True, "=", number(1))),
        ("a <> 1", Comparison("a", True, "=", number(1))),
        ("a < 1.5", Comparison("a", False, "<", number(1.5))),
        ("2020 <= year", Comparison("year", False, ">=", number(2020))),
        ("-3 > a", Comparison("a", False, "<", number(-3))),
        ("a >= -.5e-3", Comparison("a", False, ">=", number(-0.0005))),
        ("a = 9007199254740993", equal("a", 2**53 + 1)),
        ("a = 'it''s'", Comparison("a", False, "=", Literal("text", "it's"))),
        ('a = "say ""it\'s"""', Comparison("a", False, "=", Literal("text", 'say "it\'s"'))),
        ("a = ''", Comparison("a", False, "=", Literal("text", ""))),
        ("a = TRUE", Comparison("a", False, "=", Literal("bool", True))),
        ("a = false", Comparison("a", False, "=", Literal("bool", False))),
        ("a IN (1, 'x', true)", Member("a", False, (number(1), Literal("text", "x"), Literal("bool", True)))),
        ("a not in (1)", Member("a", True, (number(1),))),
        ("a LIKE 'x%'", Like("a", False, "x%", "")),
        ("a NOT LIKE 'x!%' ESCAPE '!'", Like("a", True, "x!%", "!")),
        ("a BETWEEN 1 AND 2", Between("a", False, number(1), number(2))),
        ("a NOT BETWEEN 'x' AND 'y'", Between("a", True, Literal("text", "x"), Literal("text", "y"))),
        ("a IS NULL", IsNull("a", False)),
        ("a is not null", IsNull("a", True)),
        ("a = 1 OR b = 1 AND c = 1", Or((A, And((B, C))))),
        ("(a = 1 OR b = 1) AND c = 1", And((Or((A, B)), C))),
        ("NOT a = 1 AND b = 1", And((Not(A), B))),
        ("NOT (a = 1 AND b = 1)", Not(And((A, B)))),
        ("not not a = 1", Not(Not(A))),
        ("a BETWEEN 1 AND 2 AND b = 1", And((Between("a", False, number(1), number(2)), B))),
        ("((a = 1))", A),
        (" \n\ta\n=\t1 ", A),
        ("größe.x_1 = 1", equal("größe.x_1")),
        ("`a`.b = 1", equal("a.b")),
        ("`a.b` = 1", equal("`a.b`")),
        ("x.`odd ``name`.`2` = 1", equal("x.`odd ``name`.`2`")),
        ("`in` = 1", equal("`in`")),
        ("not.in = 1", equal("not.in")),
        ("`` = 1", equal("``")),
    ],
)
def test_filters_are_read(text: str, expected: Condition) -> None:
    assert parse_filter(text) == expected


def test_trees_can_be_keys_and_keep_one_and_true_apart() -> None:
    assert len({parse_filter(text) for text in ("a = 1", "a = 1.0", "a == 1", "a = TRUE", "a = '1'")}) == 3


@pytest.mark.parametrize(
    ("text", "position", "message"),
    [
        ("", 1, "a condition such as year >= 2020, found the end"),
        ("year", 5, "IN, LIKE, BETWEEN, IS or NOT, found the end"),
        ("year >> 3", 7, "a number, a text in quotes, TRUE or FALSE, found >"),
        ("a = NULL", 5, "use IS NULL"),
        ("a IN (1, NULL)", 10, "use IS NULL"),
        ("(a = 1", 7, r"AND, OR or \), found the end"),
        ("a = 1)", 6, r"the end of the filter, found \)"),
        ("a = 1 b", 7, "AND, OR or the end of the filter, found b"),
        ("a = 'x", 5, "a closing '"),
        ("`a = 1", 1, "a closing `"),
        ('"year" >= 3', 11, "the name of a field, without quotes"),
        ("'x' LIKE 'y'", 5, "a comparison .* with a field"),
        ("a IN ()", 7, "a number, a text"),
        ("a IN 3", 6, r"\( and a list"),
        ("a IN (1 2)", 9, r", or \)"),
        ("a LIKE 3", 8, "a pattern such as"),
        ("a LIKE 'x' ESCAPE '!!'", 19, "one character after ESCAPE, found 2"),
        ("a LIKE '!!!' ESCAPE '!'", 8, "a character after each escape"),
        ("a BETWEEN 1 OR 2", 13, "AND and the upper end"),
        ("a BETWEEN 1 AND 'x'", 17, "a number as the lower end is one, found a text"),
        ("a IS 3", 6, "NULL or NOT NULL"),
        ("a IS NOT 3", 10, "expected NULL"),
        ("a NOT = 3", 7, "IN, LIKE or BETWEEN"),
        ("in = 3", 1, "a condition such as"),
        ("a. = 3", 2, "found '.'"),
        ("a = 1; DROP TABLE x", 6, "found ';'"),
        ("a = 2020abc", 9, "AND, OR or the end"),
        ("a = 1.2.3", 8, "AND, OR or the end"),
        ("a = 1e999", 5, "in the range of float64"),
        ("a = " + "9" * 5000, 5, "in the range of float64, found 9{40}…"),
        ("a = 1 AND", 10, "a condition"),
        ("a < b", 5, "a number, a text"),
    ],
)
def test_errors_show_the_place(text: str, position: int, message: str) -> None:
    with pytest.raises(FilterError, match=message) as caught:
        parse_filter(text)
    first, excerpt, caret = str(caught.value).split("\n")
    assert first.endswith(f"at character {position}:")
    at = caret.index("^")
    assert excerpt[at : at + 1] == text[position - 1 : position]


def test_a_place_far_inside_is_shown_with_its_surroundings() -> None:
    with pytest.raises(FilterError) as caught:
        parse_filter("a = 1\nAND " * 100 + "b ? 2")
    _, excerpt, caret = str(caught.value).split("\n")
    assert excerpt[caret.index("^")] == "?"
    assert len(excerpt) < 100


@pytest.mark.parametrize("value", [None, 3, b"a = 1", {"a": 1}])
def test_only_text_is_a_filter(value: object) -> None:
    with pytest.raises(FilterError, match="expected a filter as text"):
        parse_filter(value)  # type: ignore[arg-type]


def test_limits() -> None:
    fits = " AND ".join(["a = 1"] * MAX_TERMS)
    assert len(parse_filter(fits).operands) == MAX_TERMS  # type: ignore[union-attr]
    with pytest.raises(FilterError, match=f"at most {MAX_TERMS} conditions"):
        parse_filter(fits + " OR a = 1")
    assert parse_filter("(" * MAX_DEPTH + "a = 1" + ")" * MAX_DEPTH) == A
    for opening in ("(", "NOT "):
        with pytest.raises(FilterError, match=f"at most {MAX_DEPTH} levels"):
            parse_filter(opening * (MAX_DEPTH + 1) + "a = 1")
    assert parse_filter("a = 1" + " " * (MAX_CHARACTERS - 5)) == A
    with pytest.raises(FilterError, match=f"at most {MAX_CHARACTERS} characters, got {MAX_CHARACTERS + 1}"):
        parse_filter("a = 1" + " " * (MAX_CHARACTERS - 4))


def test_nesting_is_counted_by_depth_and_not_in_total() -> None:
    assert parse_filter(" AND ".join(["(a = 1)"] * MAX_TERMS)) == And((A,) * MAX_TERMS)


WORDS = [
    *sorted(KEYWORDS),
    "a",
    "a.b",
    "`x y`",
    "1",
    "-2.5",
    "'t\n'",
    '"t"',
    *["=", "==", "!=", "<>", "<", "<=", ">", ">=", "(", ")", ",", ".", "'", "?"],
]


@given(st.text() | st.lists(st.sampled_from(WORDS), max_size=20).map(" ".join))
def test_any_text_is_a_filter_or_refused(text: str) -> None:
    try:
        condition = parse_filter(text)
    except FilterError as error:
        assert str(error).count("\n") == 2
    else:
        hash(condition)


# Fields


@given(
    st.lists(st.text() | st.sampled_from(sorted(KEYWORDS) + ["a", "in", "a.b", "`", "", "ın"]), min_size=1)
)
def test_the_spelling_of_a_field_is_read_as_that_field(parts: list[str]) -> None:
    spelled = spell_field(parts)
    assert field_parts(spelled) == parts
    if len(spelled) < MAX_CHARACTERS - 10:
        assert parse_filter(f"{spelled} = 1") == equal(spelled)


@given(st.lists(st.text() | st.sampled_from(["in", "a", "a.b", "`"]), min_size=1, max_size=4))
def test_a_nested_value_has_the_spelled_field(parts: list[str]) -> None:
    payload: object = 7
    for part in reversed(parts):
        payload = {part: payload}
    assert list(flatten_payload(payload)) == [(spell_field(parts), 7)]  # type: ignore[arg-type]


def test_a_keyword_within_a_name_is_part_of_it() -> None:
    payload = {"wind": {"speed": 1}, "in": {"x": 2}, "bandy": {"null": {"y": 3}}}
    assert dict(flatten_payload(payload)) == {"wind.speed": 1, "in.x": 2, "bandy.null.y": 3}


def test_lists_give_their_elements() -> None:
    payload = {"a": [1, [2, None]], "b": [{"c": "x"}, {"c": "y", "d": []}], "e": {}, "f": True}
    expected = [("a", 1), ("a", 2), ("a", None), ("b.c", "x"), ("b.c", "y"), ("f", True)]
    assert sorted(flatten_payload(payload), key=repr) == sorted(expected, key=repr)


def test_a_deep_payload_is_no_trouble() -> None:
    payload: object = 1
    for _ in range(5000):
        payload = [payload]
    assert list(flatten_payload({"a": payload})) == [("a", 1)]


@pytest.mark.parametrize("payload", [{"a": object()}, {3: 1}, {"a": {None: 1}}, {"a": b"x"}])
def test_what_is_not_json_is_refused(payload: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="payload"):
        list(flatten_payload(payload))


def test_integers_beyond_64_bits_are_floats() -> None:
    for value in (2**63 - 1, -(2**63), 0):
        assert isinstance(exact_number(value), int)
    assert exact_number(2**63) == 2.0**63
    assert exact_number(-(10**400)) == float("-inf")
    assert exact_number(10**400) == float("inf")
