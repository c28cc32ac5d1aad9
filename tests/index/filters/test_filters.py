"""Filters over columns: against one naive evaluation per document, and bytes that cannot be trusted."""

from __future__ import annotations

import contextlib
import math
import operator
import re
import sqlite3
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbyte.errors import InvalidInput, UnknownField
from crossbyte.index.filters.columns import Column, build_columns, join_columns
from crossbyte.index.filters.conditions import check_fields, evaluate_condition, fields_of
from crossbyte.index.filters.grammar import (
    And,
    Between,
    Comparison,
    Condition,
    IsNull,
    Leaf,
    Like,
    Literal,
    Member,
    Not,
    Or,
    exact_number,
    flatten_payload,
    parse_filter,
)

Payload = Mapping[str, Any] | None

# The naive twin: Python's own values and comparisons, one document at a time

OPERATORS = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}


def type_of(value: object) -> str:
    return {bool: "bool", int: "number", float: "number", str: "text", type(None): "null"}[type(value)]


def values_ref(payload: Payload, field: str) -> list[Any]:
    found = [value for name, value in flatten_payload(payload or {}) if name == field and value is not None]
    return [exact_number(value) if type_of(value) == "number" else value for value in found]


def holds_ref(how: str, value: Any, literal: Literal) -> bool:
    return type_of(value) == literal.kind and OPERATORS[how](value, literal.value)


def like_ref(text: str, pattern: str, escape: str) -> bool:
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == "%" and escape != "%":
        return any(like_ref(text[start:], rest, escape) for start in range(len(text) + 1))
    if head == escape:
        head, rest = rest[0], rest[1:]
    elif head == "_":
        return bool(text) and like_ref(text[1:], rest, escape)
    return bool(text) and ascii_lower(text[0]) == ascii_lower(head) and like_ref(text[1:], rest, escape)


def ascii_lower(text: str) -> str:
    return re.sub("[A-Z]", lambda match: match[0].lower(), text)


def satisfies_ref(leaf: Leaf, value: Any) -> bool:
    if isinstance(leaf, Comparison):
        return holds_ref(leaf.operator, value, leaf.literal)
    if isinstance(leaf, Member):
        return any(holds_ref("=", value, literal) for literal in leaf.literals)
    if isinstance(leaf, Between):
        return holds_ref(">=", value, leaf.low) and holds_ref("<=", value, leaf.high)
    assert isinstance(leaf, Like)
    return type_of(value) == "text" and like_ref(value, leaf.pattern, leaf.escape)


def evaluate_ref(condition: Condition, payload: Payload) -> bool:
    if isinstance(condition, Not):
        return not evaluate_ref(condition.operand, payload)
    if isinstance(condition, And):
        return all(evaluate_ref(operand, payload) for operand in condition.operands)
    if isinstance(condition, Or):
        return any(evaluate_ref(operand, payload) for operand in condition.operands)
    values = values_ref(payload, condition.field)
    if isinstance(condition, IsNull):
        return bool(values) == condition.negated
    found = any(satisfies_ref(condition, value) for value in values)
    return bool(values) and not found if condition.negated else found


# What is tried

EDGES = [0, 1, -1, 127, 128, 255, 256, -129, 2**31, 2**53, 2**53 + 1, 2**53 - 1, -(2**53) - 1, 2**63 - 1]
EDGES += [-(2**63), 2**63, 2**64, 2**64 + 1, -(10**30), 10**400, -(10**400)]
FRACTIONS = [0.1, 0.5, -0.0, 1.0, 2.0**53, 2.0**63, -(2.0**63), 1e300, -1e300, 1e-300, 3.4028236e38, 5e-324]
FRACTIONS += [float(np.float32(0.1)), 2.0**24 + 1, 1e22, 255.5, -0.5]
TEXTS = [
    "",
    "a",
    "A",
    "ab",
    "aB%",
    "a_b",
    "é",
    "É",
    "ß",
    "\n",
    "\x00",
    "a\x00",
    "￿",
    "𐀀",
    "zz",
    "%",
    "k",
    "K",
]

numbers = (
    st.sampled_from(EDGES + FRACTIONS) | st.integers(-3, 3) | st.floats(allow_nan=False, allow_infinity=False)
)
texts = st.sampled_from(TEXTS) | st.text(alphabet="aAbé%_!", max_size=4)
scalars = st.none() | st.booleans() | numbers | texts
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3), max_leaves=4)
payloads = st.none() | st.dictionaries(
    st.sampled_from(["a", "b", "in", "a.b"]), values | st.dictionaries(st.sampled_from(["b", "c d"]), values)
)
collections = st.lists(payloads, max_size=12)
FIELDS = ["a", "b", "`in`", "`a.b`", "a.b", "in.b", "a.`c d`", "missing"]

finite = numbers.map(exact_number).filter(math.isfinite)  # the parser refuses others
literals = st.one_of(
    st.booleans().map(lambda value: Literal("bool", value)),
    finite.map(lambda value: Literal("number", value)),
    texts.map(lambda value: Literal("text", value)),
)
same_kind = st.tuples(literals, literals).filter(lambda pair: pair[0].kind == pair[1].kind)
patterns = st.tuples(st.text(alphabet="aAbé%_!k", max_size=5), st.sampled_from(["", "!", "%", "_"])).filter(
    lambda pair: not pair[1] or not re.sub(re.escape(pair[1]) + "(?s:.)", "", pair[0]).endswith(pair[1])
)
field, flag = st.sampled_from(FIELDS), st.booleans()
leaves = st.one_of(
    st.builds(Comparison, field, st.just(False), st.sampled_from(list(OPERATORS)), literals),
    st.builds(Comparison, field, st.just(True), st.just("="), literals),
    st.builds(Member, field, flag, st.lists(literals, min_size=1, max_size=4).map(tuple)),
    st.builds(lambda name, negated, pair: Between(name, negated, *pair), field, flag, same_kind),
    st.builds(lambda name, negated, pair: Like(name, negated, *pair), field, flag, patterns),
    st.builds(IsNull, field, flag),
)
conditions = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(Not, inner),
        st.builds(And, st.lists(inner, min_size=2, max_size=3).map(tuple)),
        st.builds(Or, st.lists(inner, min_size=2, max_size=3).map(tuple)),
    ),
    max_leaves=5,
)


def check(documents: Sequence[Payload], condition: Condition) -> None:
    found = evaluate_condition(condition, build_columns(documents, len(documents)), len(documents))
    assert found.dtype == bool
    assert found.tolist() == [evaluate_ref(condition, document) for document in documents]


@settings(max_examples=400)
@given(collections, conditions)
def test_filters_select_what_the_naive_evaluation_selects(
    documents: list[Payload], condition: Condition
) -> None:
    check(documents, condition)


@settings(max_examples=300)
@given(st.lists(numbers, min_size=1, max_size=8), finite, st.sampled_from(list(OPERATORS)))
def test_numbers_are_compared_exactly(found: list[int | float], literal: int | float, how: str) -> None:
    check([{"a": value} for value in found], Comparison("a", False, how, Literal("number", literal)))


@pytest.mark.parametrize("how", list(OPERATORS))
def test_edges_of_numbers_are_compared_exactly(how: str) -> None:
    """Each column alone, so that each dtype occurs."""
    literals = [number for number in map(exact_number, EDGES + FRACTIONS) if math.isfinite(number)]
    for value in EDGES + FRACTIONS:
        for literal in literals:
            check([{"a": value}], Comparison("a", False, how, Literal("number", literal)))


@given(texts, patterns)
def test_like_is_that_of_sqlite(text: str, pair: tuple[str, str]) -> None:
    pattern, escape = pair
    if "\x00" in text or escape == "%" or escape == "_":  # SQLite's texts end at a zero; wildcards go first
        return
    sql = "SELECT ? LIKE ?" + (" ESCAPE ?" if escape else "")
    connection = sqlite3.connect(":memory:")
    (expected,) = connection.execute(sql, (text, pattern, escape)[: 2 + bool(escape)]).fetchone()
    connection.close()
    columns = build_columns([{"a": text}], 1)
    assert evaluate_condition(Like("a", False, pattern, escape), columns, 1).tolist() == [bool(expected)]


def test_like_takes_no_exponential_time() -> None:
    columns = build_columns([{"a": "a" * 5000}], 1)
    assert not evaluate_condition(parse_filter(f"a LIKE '{'%a' * 100}%b'"), columns, 1).any()


def test_long_lists_find_what_short_ones_find() -> None:
    documents = [{"a": value} for value in [*range(-50, 50), 0.5, 1e300, "1", True, 2**62]]
    for step in (1, 7):
        wanted = (*range(-200, 200, step), 0.5, 2**62, 1e300, 10**20)
        check(documents, Member("a", False, tuple(Literal("number", value) for value in wanted)))
    check(documents[:100], Member("a", True, tuple(Literal("number", value) for value in range(0, 1000, 3))))


DOCUMENTS: list[Payload] = [
    {"year": 2020, "kind": "photo", "tags": ["sea", "sky"], "exif": {"iso": 100}},
    {"year": 2021.5, "kind": "map", "tags": [], "public": True},
    {"year": "2020", "kind": None, "tags": ["sky", 3]},
    None,
    {"year": [1999, 2020], "kind": "Photo", "exif": {"iso": None}},
]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("year = 2020", [0, 4]),
        ("year != 2020", [1, 2]),
        ("NOT year = 2020", [1, 2, 3]),
        ("year = '2020'", [2]),
        ("year < 2000", [4]),
        ("year BETWEEN 2000 AND 2010", []),
        ("year > 2000 AND year < 2010", [4]),
        ("kind LIKE 'photo'", [0, 4]),
        ("kind = 'photo'", [0]),
        ("kind IS NULL", [2, 3]),
        ("kind IS NOT NULL", [0, 1, 4]),
        ("kind NOT IN ('map')", [0, 4]),
        ("tags = 'sky'", [0, 2]),
        ("tags != 'sky'", []),
        ("tags IS NULL", [1, 3, 4]),
        ("tags NOT LIKE 's%'", []),
        ("exif.iso >= 100", [0]),
        ("exif.iso IS NULL", [1, 2, 3, 4]),
        ("public = TRUE", [1]),
        ("public = 1", []),
        ("public IN (1, TRUE)", [1]),
        ("public < TRUE", []),
        ("year >= 2020 AND NOT (kind = 'map' OR tags = 'sea')", [4]),
    ],
)
def test_the_rules_of_the_documentation(text: str, expected: list[int]) -> None:
    found = evaluate_condition(parse_filter(text), build_columns(DOCUMENTS, 5), 5)
    assert np.flatnonzero(found).tolist() == expected


# Fields


def test_fields_of_a_condition() -> None:
    condition = parse_filter("a = 1 AND (NOT b.c IS NULL OR `d e` IN (1)) AND 'x' < a")
    assert fields_of(condition) == {"a", "b.c", "`d e`"}


def test_an_unknown_field_names_the_known_ones() -> None:
    known = {"year": {"number", "text"}, "kind": {"text"}} | {
        f"x{number:02}": {"bool"} for number in range(30)
    }
    check_fields(parse_filter("year = 1 AND kind = 'a'"), known)
    with pytest.raises(UnknownField) as caught:
        check_fields(parse_filter("yaer = 1"), known)
    message = str(caught.value)
    assert "got yaer; there are: year (number or text), " in message
    assert message.endswith("and 12 more")
    assert message.count("(") == 20
    with pytest.raises(UnknownField, match="no document of this index"):
        check_fields(parse_filter("a = 1"), {})


# Columns


def same(first: Mapping[str, Column], second: Mapping[str, Column]) -> bool:
    contents = [{field: column.to_bytes() for field, column in each.items()} for each in (first, second)]
    return contents[0] == contents[1]


def kept(columns: Mapping[str, Column]) -> dict[str, Column]:
    return {field: column for field, column in columns.items() if column.parts}


@settings(max_examples=200)
@given(st.lists(collections, max_size=4))
def test_joined_columns_are_those_of_all_documents(segments: list[list[Payload]]) -> None:
    built = [build_columns(segment, len(segment)) for segment in segments]
    lengths = [len(segment) for segment in segments]
    fields = sorted(set().union(*built))
    joined = {field: join_columns([each.get(field) for each in built], lengths) for field in fields}
    assert same(joined, build_columns(sum(segments, []), sum(lengths)))


@settings(max_examples=200)
@given(collections, st.data())
def test_taken_rows_are_those_of_the_remaining_documents(
    documents: list[Payload], data: st.DataObject
) -> None:
    rows = sorted(data.draw(st.sets(st.integers(0, len(documents) - 1)))) if documents else []
    columns = build_columns(documents, len(documents))
    taken = {field: column.take(np.array(rows, np.int64)) for field, column in columns.items()}
    assert same(kept(taken), build_columns([documents[row] for row in rows], len(rows)))


@settings(max_examples=200)
@given(collections, st.data())
def test_patched_rows_are_those_of_the_new_documents(documents: list[Payload], data: st.DataObject) -> None:
    updates = data.draw(st.dictionaries(st.integers(0, len(documents) - 1), payloads)) if documents else {}
    old, new = build_columns(documents, len(documents)), build_columns(updates.values(), len(updates))
    rows = np.array(list(updates), np.int64)
    patched = {
        field: old.get(field, Column.empty(len(documents))).patched(
            rows, new.get(field, Column.empty(len(updates)))
        )
        for field in sorted({*old, *new})
    }
    documents = [updates.get(row, document) for row, document in enumerate(documents)]
    assert same(kept(patched), build_columns(documents, len(documents)))


def test_large_vocabularies_take_a_few_more_texts() -> None:
    old = [{"a": f"text {number}"} for number in range(500)]
    new = [{"a": text} for text in ("", "text 7", "text 77x", "zzz", "text 0")]
    rows = np.array([3, 100, 250, 499, 7])
    patched = build_columns(old, 500)["a"].patched(rows, build_columns(new, 5)["a"])
    for row, document in zip(rows.tolist(), new, strict=True):
        old[row] = document
    assert patched.to_bytes() == build_columns(old, 500)["a"].to_bytes()


@settings(max_examples=200)
@given(collections)
def test_columns_come_back_from_their_bytes(documents: list[Payload]) -> None:
    n = len(documents)
    for column in build_columns(documents, n).values():
        again = Column.from_bytes(column.to_bytes(), n)
        assert again.to_bytes() == column.to_bytes()
        assert (again.types, again.n_bytes) == (column.types, column.n_bytes)


@pytest.mark.parametrize(
    ("found", "kind", "dtype", "n_bytes"),
    [
        ([1950, 2024], "integer", "uint16", 4),
        ([-1, 100], "integer", "int8", 2),
        ([1.0, 300.0], "integer", "uint16", 4),
        ([2**40, -1], "integer", "int64", 16),
        ([0.5, 3], "float", "float32", 8),
        ([0.1, 3], "float", "float64", 16),
        ([True, False], "bool", "bool", 2),
        (["b", "a"], "text", "uint8", 2 + 2 + 12),
    ],
)
def test_columns_are_small(found: list[Any], kind: str, dtype: str, n_bytes: int) -> None:
    column = build_columns([{"a": value} for value in found], 2)["a"]
    assert column.parts[kind].rows is None
    assert column.parts[kind].values.dtype == dtype
    assert column.n_bytes - (0 if kind == "text" else 4) == n_bytes


def test_integers_that_no_float_holds_stay_integers_beside_floats() -> None:
    column = build_columns([{"a": 2**53 + 1}, {"a": 0.5}, {"a": 7}], 3)["a"]
    assert column.parts["integer"].values.tolist() == [2**53 + 1]
    assert column.parts["float"].values.tolist() == [0.5, 7]


def test_types_of_a_column() -> None:
    columns = build_columns([{"a": [None, 1, 0.5, "x", False], "b": None, "c": []}], 1)
    assert columns["a"].types == {"null", "number", "text", "bool"}
    assert columns["b"].types == {"null"}
    assert "c" not in columns


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "\ud800"])
def test_values_that_cannot_be_kept_are_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="in a payload"):
        build_columns([{"a": value}], 1)


def test_the_number_of_payloads_is_checked() -> None:
    with pytest.raises(InvalidInput, match="expected 2 payloads, got 1"):
        build_columns([None], 2)


def test_arrays_are_read_only_and_aligned() -> None:
    data = build_columns([{"a": 1000}, {"a": 2000}], 2)["a"].to_bytes()
    for buffer in (data, memoryview(b"x" + data)[1:]):
        array = Column.from_bytes(buffer, 2).parts["integer"].values  # type: ignore[arg-type]
        assert array.flags.aligned
        assert not array.flags.writeable
        assert array.tolist() == [1000, 2000]


# Bytes that cannot be trusted

MIXED = build_columns([{"a": [1, 0.5, "x", "yé", None, True]}, {"a": [2**53 + 1, "x"]}, {}, {"a": "é"}], 4)[
    "a"
]


def is_sound(column: Column) -> bool:
    """Whatever was accepted can be used without harm and says the same again."""
    for text in ("a = 'x'", "a >= 1", "a LIKE '%é'", "a IS NULL", "a IN (TRUE, 3)"):
        assert evaluate_condition(parse_filter(text), {"a": column}, 4).shape == (4,)
    column.take(np.array([0, 2]))
    return column.types <= {"null", "bool", "number", "text"}


def test_damaged_bytes_are_refused_or_harmless() -> None:
    data = bytearray(MIXED.to_bytes())
    refused = 0
    for position in range(len(data) * 8):
        data[position // 8] ^= 1 << position % 8
        try:
            assert is_sound(Column.from_bytes(bytes(data), 4))
        except ValueError:
            refused += 1
        data[position // 8] ^= 1 << position % 8
    assert refused > 0.8 * len(data) * 8


def test_truncated_and_extended_bytes_are_refused() -> None:
    data = MIXED.to_bytes()
    for wrong in [*(data[:length] for length in range(len(data))), data + bytes(8), b""]:
        with pytest.raises(ValueError, match="expected the bytes of a column"):
            Column.from_bytes(wrong, 4)
    with pytest.raises(ValueError, match="not of 5 rows"):
        Column.from_bytes(data, 5)


@given(st.binary(max_size=400), st.integers(0, 3))
def test_any_bytes_are_a_column_or_refused(data: bytes, n_rows: int) -> None:
    for attempt in (data, struct.pack("<Q", n_rows) + data):
        with contextlib.suppress(ValueError):
            Column.from_bytes(attempt, n_rows)


def text_column(*found: str) -> bytearray:
    return bytearray(build_columns([{"a": text} for text in found], len(found))["a"].to_bytes())


@pytest.mark.parametrize("n", [3, 400])
def test_a_vocabulary_out_of_order_is_refused(n: int) -> None:
    """Few texts are compared one by one, many all together."""
    found = [f"the same beginning {number:04}" for number in range(n)]
    data = text_column(*found)
    assert Column.from_bytes(bytes(data), n).to_bytes() == data
    at = data.index(found[-2].encode())
    for wrong in (found[-1], found[-1][:-1] + "\x7f", "\x00" * 23):
        data[at : at + 23] = wrong.encode()
        with pytest.raises(ValueError, match="not in order"):
            Column.from_bytes(bytes(data), n)


@given(st.lists(st.text(alphabet="a\x00é", max_size=20), min_size=1), st.integers(0, 2**32))
def test_the_order_of_many_texts_is_judged_as_python_does(found: list[str], seed: int) -> None:
    from crossbyte.index.filters import vocabulary as module

    shuffled = np.random.default_rng(seed).permutation(sorted({text.encode() for text in found})).tolist()
    for texts in (sorted(set(shuffled)), shuffled, sorted(shuffled + shuffled[:1])):
        expected = all(first < second for first, second in zip(texts, texts[1:], strict=False))
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_FEW", 0)
            assert module._is_ascending(module.Vocabulary.of(texts)) == expected


def test_texts_that_begin_inside_a_character_are_refused() -> None:
    data = text_column("é", "ê")
    starts = data.index(struct.pack("<III", 0, 2, 4))
    data[starts + 4] = 1
    with pytest.raises(ValueError, match="inside a character"):
        Column.from_bytes(bytes(data), 2)
