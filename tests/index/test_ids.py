"""External ids, the way from them to document numbers, the numbers themselves, and sets of rows as bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crossbyte.errors import DuplicateId, InvalidInput
from crossbyte.index import bitset, docids
from crossbyte.index.docids import DocIds, IdLookup, PackedIds, check_id, check_ids
from support.id_twins import twin_of

LIMITS = [-(2**63), -1, 0, 1, 2**63 - 1]
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
INTEGERS = st.integers(-(2**63), 2**63 - 1)
SAMPLES: dict[str, list[Any]] = {
    "none": [],
    "integers": [5, -7, *LIMITS],
    "ascii": ["a", "bc", "", "1", "x" * 1024],
    "unicode": ["é", "", "日本", "a\x00b", "😀" * 256],
    "empty ids at both ends": ["", "x"],
    "empty id last": ["x", "yy", ""],
    "mixed": [1, "1", "", -5, "i1", "s1", 2**63 - 1, "é"],
}


# Judging


@pytest.mark.parametrize("value", ["", "a", "1", "é" * 512, "x" * 1024, "😀" * 256, *LIMITS])
def test_good_ids_stay_as_they_are(value: Any) -> None:
    assert check_id(value) == value
    assert check_ids([value]) == [value]


def test_ids_of_numpy_become_plain() -> None:
    for array in (np.array([1, 2]), np.array([3], np.uint8), np.array(["a", "bc"]), np.array([2**62])):
        found = check_ids(array)
        assert found == array.tolist()
        assert {type(value) for value in found} <= {int, str}


BAD = [
    True, False, np.True_, None, 1.0, np.float64(2), float("nan"), b"a", (1,), ["a"], {}, object(), 1j,
    2**63, -(2**63) - 1, np.uint64(2**63), "x" * 1025, "é" * 513, "😀" * 257, "\ud800", "ok\udfff",
]  # fmt: skip


@pytest.mark.parametrize("value", BAD, ids=lambda value: repr(value)[:20])
def test_bad_ids_are_refused_wherever_they_stand(value: Any) -> None:
    with pytest.raises(InvalidInput, match="ids"):
        check_id(value)
    for others in ([], [1], ["a"], [1, "a"]):
        with pytest.raises(InvalidInput, match="ids"):
            check_ids([*others, value])


@pytest.mark.parametrize("values", ["abc", b"abc", {"a": 1}, 5, None, 1.5])
def test_what_is_no_sequence_is_refused(values: Any) -> None:
    with pytest.raises(InvalidInput, match="sequence"):
        check_ids(values)


@pytest.mark.parametrize("values", [[1, 2, 1], ["a", "a"], [1, "a", 1], [np.int8(1), 1]])
def test_an_id_may_come_once(values: list[Any]) -> None:
    with pytest.raises(DuplicateId, match="twice"):
        check_ids(values)


def test_one_and_the_text_one_are_different() -> None:
    assert check_ids([1, "1"]) == [1, "1"]


# Packing


def same_ids(packed: PackedIds, expected: list[Any]) -> None:
    found = list(packed)
    assert found == expected
    assert list(map(type, found)) == list(map(type, expected))
    assert len(packed) == len(expected)


@pytest.mark.parametrize("values", SAMPLES.values(), ids=SAMPLES)
def test_packed_ids_come_back(values: list[Any]) -> None:
    packed = PackedIds.of(values)
    same_ids(packed, values)
    assert [packed[row] for row in range(len(values))] == values
    again = PackedIds.from_parts(packed.kind, packed.to_parts(), len(values))
    same_ids(again, values)
    assert again.kind == packed.kind
    assert packed.n_bytes >= len(packed.text)


@pytest.mark.parametrize("values", SAMPLES.values(), ids=SAMPLES)
def test_some_rows_can_be_taken_and_packed_again(values: list[Any], rng: Any) -> None:
    packed = PackedIds.of(values)
    for count in (0, 1, 2, 9) if values else (0,):
        rows = rng.integers(0, max(len(values), 1), count)
        expected = [values[row] for row in rows]
        assert packed.take(rows) == expected
        same_ids(packed.select(rows), expected)


@pytest.mark.parametrize("left", SAMPLES.values(), ids=SAMPLES)
def test_packed_ids_can_be_joined(left: list[Any]) -> None:
    for right in SAMPLES.values():
        same_ids(PackedIds.join([PackedIds.of(left), PackedIds.of(right)]), left + right)
    same_ids(PackedIds.join([PackedIds.of(left)]), left)


@given(st.lists(TEXTS | INTEGERS, max_size=8), st.lists(TEXTS | INTEGERS, max_size=8))
def test_a_hash_depends_on_the_id_alone(left: list[Any], right: list[Any]) -> None:
    """Not on the ids beside it, nor on how they are packed."""
    together = PackedIds.of([*left, *right]).hashes()
    joined = PackedIds.join([PackedIds.of(left), PackedIds.of(right)]).hashes()
    alone = [PackedIds.of([value]).hashes()[0] for value in [*left, *right]]
    assert together.tolist() == joined.tolist() == alone
    same_ids(PackedIds.of([*left, *right]), [*left, *right])


def test_hashing_goes_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    values = [f"{'é' * (i % 3)}{i}" * (i % 2) or str(i) for i in range(50)] + [""]
    whole = PackedIds.of(values).hashes()
    for rows in (1, 7, 50, 51):
        monkeypatch.setattr(docids, "_ROWS_AT_ONCE", rows)
        assert PackedIds.of(values).hashes().tolist() == whole.tolist()


def test_hashes_of_similar_ids_differ() -> None:
    texts = [f"{a}{b}" for a in "abcdefgh" for b in range(2000)]
    values = [*texts, *(text[::-1] for text in texts if text != text[::-1]), "", "\0", "\0\0"]
    assert len(np.unique(PackedIds.of(sorted(set(values))).hashes())) == len(set(values))
    assert len(np.unique(PackedIds.of(list(range(-5000, 5000))).hashes())) == 10_000


@pytest.mark.parametrize(
    ("kind", "parts", "n_rows"),
    [
        ("integer", {"ids": bytes(16)}, 3),
        ("integer", {"ids": bytes(15)}, 2),
        ("text", {"ids": b"\1\0\1\0", "ids.text": b"a"}, 2),
        ("text", {"ids": b"\1\0\1\0"}, 2),
        ("text", {"ids": b"", "ids.text": b"a"}, 0),
        ("tagged", {"ids": b"\1\0", "ids.text": b"a"}, 2),
        ("other", {"ids": bytes(8)}, 1),
    ],
)
def test_parts_that_do_not_fit_together_are_refused(kind: str, parts: dict[str, bytes], n_rows: int) -> None:
    with pytest.raises(ValueError, match="ids of|multiple"):
        PackedIds.from_parts(kind, parts, n_rows)


# Lookup


def candidates(lookup: IdLookup, wanted: list[Any]) -> list[set[int]]:
    places, numbers = lookup.candidates(wanted)
    found: list[set[int]] = [set() for _ in wanted]
    for place, number in zip(places.tolist(), numbers.tolist(), strict=True):
        found[place].add(number)
    return found


def test_documents_are_found_by_their_ids_after_any_growth(rng: Any) -> None:
    lookup, known = IdLookup(), {}
    for _ in range(60):
        count = int(rng.integers(0, 40))
        first = len(known)
        new = [f"n{i}" if i % 2 else i for i in range(first, first + count)]
        lookup = lookup.with_documents(PackedIds.of(new), np.arange(first, first + count))
        known |= {value: first + i for i, value in enumerate(new)}
        lengths = [len(run[0]) for run in lookup.runs]
        assert all(left > 2 * right for left, right in zip(lengths, lengths[1:], strict=False))
    wanted = [*known, "absent", -1]
    found = candidates(lookup, wanted)
    assert all(number in found[place] for place, number in enumerate(known.values()))
    assert found[-2:] == [set(), set()]
    assert candidates(lookup, []) == []
    assert lookup.n_bytes == 16 * len(known)


def test_growing_leaves_the_old_lookup_alone() -> None:
    old = IdLookup().with_documents(PackedIds.of(["a"]), np.array([3]))
    new = old.with_documents(PackedIds.of(["b", "a"]), np.array([4, 5]))
    assert candidates(old, ["a", "b"]) == [{3}, set()]
    assert candidates(new, ["a", "b"]) == [{3, 5}, {4}]


def test_ids_of_one_hash_are_all_candidates() -> None:
    twin = twin_of("abc")
    assert PackedIds.of([twin]).hashes()[0] == PackedIds.of(["abc"]).hashes()[0]
    lookup = IdLookup().with_documents(PackedIds.of(["abc", twin, 7]), np.array([0, 1, 2]))
    assert candidates(lookup, [twin, "abc", 7]) == [{0, 1}, {0, 1}, {2}]


def test_an_empty_lookup_has_no_candidates() -> None:
    assert candidates(IdLookup(), ["a", 1]) == [set(), set()]


# Numbers


ASCENDING = {
    "none": [],
    "one": [7],
    "gapless": [3, 4, 5, 6],
    "gaps": [3, 5, 6, 100],
    "wide": [1, 2**32, 2**40],
    "just 32 bits": [1, 2**32 - 1],
    "large": [2**61, 2**61 + 1, 2**62],
}


def all_of(numbers: DocIds) -> list[int]:
    return numbers[np.arange(numbers.count)].tolist()


@pytest.mark.parametrize("values", ASCENDING.values(), ids=ASCENDING)
def test_numbers_come_back(values: list[int]) -> None:
    numbers = DocIds.of(np.array(values, dtype=np.int64))
    assert (numbers.count, all_of(numbers)) == (len(values), values)
    again = DocIds.from_parts(numbers.first, numbers.count, numbers.to_parts())
    assert all_of(again) == values
    assert numbers.n_bytes == sum(map(len, numbers.to_parts().values()))


@pytest.mark.parametrize("values", ASCENDING.values(), ids=ASCENDING)
def test_numbers_are_found_or_not_there(values: list[int]) -> None:
    numbers = DocIds.of(np.array(values, dtype=np.int64))
    wanted = sorted({0, 1, 2**33, 2**62 + 1, *values, *(v + 1 for v in values), *(v - 1 for v in values)})
    rows, there = numbers.find(np.array(wanted, dtype=np.int64))
    assert there.tolist() == [value in values for value in wanted]
    assert rows[there].tolist() == [values.index(value) for value in wanted if value in values]


def test_numbers_without_gaps_take_no_memory() -> None:
    parts = [DocIds(0, 5), DocIds(5, 3), DocIds(8, 0), DocIds(8, 1)]
    joined = DocIds.join(parts)
    assert (joined.steps, joined.n_bytes, joined.to_parts()) == (None, 0, {})
    assert all_of(joined) == list(range(9))
    assert DocIds.of(np.array([3, 5])).n_bytes == 8
    assert DocIds.of(np.array([3, 2**40])).n_bytes == 16


@pytest.mark.parametrize("left", ["none", "one", "gapless", "gaps"])
def test_numbers_can_be_joined(left: str) -> None:
    values = ASCENDING[left]
    for right in ASCENDING:
        above = [value + 1000 for value in ASCENDING[right]]
        parts = [DocIds.of(np.array(part, dtype=np.int64)) for part in (values, above)]
        assert all_of(DocIds.join(parts)) == values + above, right


@pytest.mark.parametrize(
    ("count", "steps"), [(2, [0, 0]), (2, [1, 2]), (3, [0, 2, 1]), (2, [0, 1, 2]), (0, [0]), (2, [])]
)
def test_numbers_that_do_not_ascend_are_refused(count: int, steps: list[int]) -> None:
    with pytest.raises(ValueError, match="ascend"):
        DocIds.from_parts(5, count, {"numbers.32": np.array(steps, "<u4").tobytes()})


# Bits


@pytest.mark.parametrize("n", [0, 1, 7, 8, 63, 64, 65, 128, 1000])
def test_bits_come_back(rng: Any, n: int) -> None:
    values = rng.random(n) < 0.5
    words = bitset.pack_bits(values)
    assert (words.dtype, len(words)) == (np.uint64, -(-n // 64))
    np.testing.assert_array_equal(bitset.unpack_bits(words, n), values)
    assert bitset.unpack_bits(words, n).dtype == bool
    assert bitset.count_bits(words) == values.sum()
    assert all(int(words[i // 64]) >> i % 64 & 1 == values[i] for i in range(n))
    np.testing.assert_array_equal(bitset.test_bits(words, np.arange(n)), values)


def test_bits_are_cleared_in_a_copy(rng: Any) -> None:
    values = rng.random(300) < 0.8
    words = bitset.pack_bits(values)
    before = words.copy()
    for rows in ([], [0], [5, 5, 6, 69, 70, 299, 5], list(range(300))):
        cleared = bitset.unpack_bits(bitset.clear_bits(words, np.array(rows, dtype=np.int64)), 300)
        expected = values & ~np.isin(np.arange(300), rows)
        np.testing.assert_array_equal(cleared, expected)
    np.testing.assert_array_equal(words, before)
