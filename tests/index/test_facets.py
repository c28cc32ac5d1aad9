"""Facets and browsing agree with a count by hand over the payloads, whatever was changed before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbyte import Index
from crossbyte.errors import FilterError, InvalidInput, StaleReader, UnknownField
from crossbyte.index.docids import DocIds
from crossbyte.index.facets import Facet
from crossbyte.index.filters.grammar import flatten_payload
from crossbyte.index.scroll import _find_row
from support.index_samples import COUNT, parts, sample
from support.index_twin import features, small_model

Payload = dict[str, Any] | None
KIND = {str: "text", bool: "boolean", int: "number", float: "number"}
ORDER = ["text", "number", "boolean"]  # of two kinds that are equally common, the first
CHOOSABLE = ["deep.n", "good", "kind", "score", "tags", "title", "year"]


def values_of(payload: Payload, field: str) -> set[tuple[str, Any]]:
    found = flatten_payload(payload) if payload else ()
    return {(KIND[type(value)], value) for name, value in found if name == field and value is not None}


def naive(all_payloads: list[Payload], allowed: list[Payload], field: str, limit: int) -> Facet:
    """Count one field by hand; the kind is judged by all documents, deleted ones apart."""
    kinds = Counter(kind for payload in all_payloads for kind, _ in values_of(payload, field))
    kind = max(ORDER, key=lambda kind: kinds[kind])
    mine = [{value for own, value in values_of(payload, field) if own == kind} for payload in allowed]
    counts = Counter(value for values in mine for value in values)
    ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    ends = (float(min(counts)), float(max(counts))) if counts and kind == "number" else (None, None)
    n_others = sum(count for _, count in ordered[limit:])
    return Facet(field, kind, sum(map(bool, mine)), ordered[:limit], n_others, *ends)


def payloads_of(index: Index, accepts: Callable[[Payload], bool] = lambda _: True) -> list[Payload]:
    found = [index.get(id) for id in index.ids()]
    return [document.payload for document in found if document and accepts(document.payload)]


def check(index: Index, where: str | None, accepts: Callable[[Payload], bool], limit: int = 12) -> None:
    everything, allowed = payloads_of(index), payloads_of(index, accepts)
    for field in [*CHOOSABLE, "nothing"]:
        (facet,) = index.facets(where=where, fields=[field], limit=limit)
        assert facet == naive(everything, allowed, field, limit)
        assert [type(value) for value, _ in facet.values] == [
            type(value) for value, _ in naive(everything, allowed, field, limit).values
        ]
    by_default = {facet.field for facet in index.facets(where=where, limit=limit)}
    assert by_default <= set(CHOOSABLE)


FILTERS: list[tuple[str | None, Callable[[Payload], bool]]] = [
    (None, lambda payload: True),
    ("year >= 2003", lambda payload: bool(payload) and payload.get("year", 0) >= 2003),
    ("kind = 'b' AND good = TRUE", lambda p: bool(p) and p.get("kind") == "b" and p.get("good") is True),
    ("tags = 't1'", lambda payload: bool(payload) and "t1" in payload.get("tags", [])),
    ("year > 9999", lambda payload: False),
]


def test_facets_of_a_sample(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    with index:
        assert [facet.field for facet in index.facets()] == CHOOSABLE
        good = index.facets(fields=["good"])[0]
        assert good == Facet("good", "boolean", 78, [(True, 39), (False, 39)][::-1], 0, None, None)
        year = index.facets(fields=["year"], limit=2)[0]
        assert (year.kind, year.low, year.high, year.n_documents) == ("number", 2000.0, 2004.0, 78)
        assert sum(count for _, count in year.values) + year.n_others == 78
        tags = index.facets(fields=["tags"])[0]
        assert tags.n_documents == 78 and sum(count for _, count in tags.values) > 78
        for where, accepts in FILTERS:
            check(index, where, accepts)
            check(index, where, accepts, limit=1)


def test_facets_follow_every_change(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    with index:
        index.delete(["p0", "i3", 7, 8])
        index.update_payloads(
            ["p1", "i1", 1], [{"year": 1990, "kind": "new"}, None, {"good": 3, "year": "old"}]
        )
        index.upsert(["p2"], images=parts()[0]["images"][:1], payloads=[{"year": 2.5, "kind": ["a", "z"]}])
        for field in CHOOSABLE:
            everything = payloads_of(index)
            assert index.facets(fields=[field], limit=5)[0] == naive(everything, everything, field, 5)
        before = index.facets()
        index.compact()
        assert index.facets() == before
        with Index.open(tmp_path / "a.cb") as reader:
            assert reader.facets() == before
            index.delete([2])
            assert reader.facets() == before and index.facets() != before
            reader.refresh()
            assert reader.facets() == index.facets()
            index.compact()
            with pytest.raises(StaleReader):
                reader.facets()


VALUES = st.one_of(
    st.sampled_from(["a", "b", "é", "", "🐈"]),
    st.integers(-3, 3),
    st.sampled_from([2**63 - 1, 2**63 - 2, -(2**63), 0.5, -0.0, 1e300, 2.0**63]),
    st.booleans(),
    st.none(),
)
PAYLOADS = st.one_of(
    st.none(), st.fixed_dictionaries({}, optional={"f": st.one_of(VALUES, st.lists(VALUES))})
)


@settings(max_examples=25, deadline=None)
@given(st.lists(PAYLOADS, min_size=1, max_size=12), st.data())
def test_facets_of_any_values(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Payload], data: Any
) -> None:
    path = tmp_path_factory.mktemp("facets") / "a.cb"
    images, texts = features(len(rows), seed=1)
    cut = data.draw(st.integers(0, len(rows)))
    with Index.create(path, small_model(), n_jobs=1) as index:
        if cut:
            index.add(list(range(cut)), images=images[:cut], payloads=rows[:cut])
        if cut < len(rows):
            index.add(list(range(cut, len(rows))), texts=texts[cut:], payloads=rows[cut:])
        gone = data.draw(st.sets(st.sampled_from(range(len(rows)))))
        index.delete(sorted(gone))
        left = [row for number, row in enumerate(rows) if number not in gone]
        if any(values_of(row, "f") for row in rows):
            assert index.facets(fields=["f"], limit=3) == [naive(left, left, "f", 3)]


def test_what_nobody_can_choose_from_is_left_out(tmp_path: Path) -> None:
    images, _ = features(200, seed=2)
    payloads = [
        {"captions": [f"one {i}", f"two {i}"], "file": f"{i}.jpg", "title": f"A long title {i}", "size": i,
         "kind": "ab"[i % 2], "keywords": [f"w{i % 99}", f"w{i % 7}"], "label": ["x", "y", "z"][: i % 4]}
        for i in range(200)
    ]  # fmt: skip
    with Index.create(tmp_path / "a.cb", small_model(), n_jobs=1) as index:
        assert index.facets() == []
        index.add(range(200), images=images, payloads=payloads)
        assert [facet.field for facet in index.facets()] == ["kind", "label", "size"]
        assert [facet.field for facet in index.facets(where="label IS NULL")] == ["kind", "size"]
        asked = index.facets(fields=["title", "captions", "label"], where="label IS NULL")
        assert [facet.n_documents for facet in asked] == [50, 50, 0]
        assert asked[0].values[0] == ("A long title 0", 1) and asked[0].n_others == 38
        size = index.facets(fields=["size"])[0]
        assert (size.low, size.high, len(size.values), size.n_others) == (0.0, 199.0, 12, 188)


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    with index:
        with pytest.raises(UnknownField, match="got yeer; there are: year"):
            index.facets(fields=["yeer"])
        with pytest.raises(InvalidInput, match="fields: expected a list of names"):
            index.facets(fields="year")
        with pytest.raises(InvalidInput, match="limit"):
            index.facets(limit=0)
        with pytest.raises(FilterError):
            index.facets(where="year >")
        with pytest.raises(InvalidInput, match="limit"):
            index.documents(limit=0)
        with pytest.raises(InvalidInput, match="after"):
            index.documents(after="p1")  # type: ignore[arg-type]


# Browsing


def test_pages_of_documents(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    with index:
        index.delete(["p0", "p29", "i29", 0])
        everything = index.documents(limit=1000)
        assert [document.id for document in everything] == index.ids()
        for document in everything:
            twin = index.get(document.id)
            assert twin is not None and repr(twin) == repr(document)
        pages, after = [], None
        while page := index.documents(after=after, limit=7):
            pages.append(page)
            after = page[-1].number
        assert [len(page) for page in pages[:-1]] == [7] * (len(pages) - 1)
        assert [document.number for page in pages for document in page] == [d.number for d in everything]
        assert index.documents(after=10**18) == [] and index.documents(after=-1, limit=1)[0].id == "p1"


def test_pages_of_a_filter(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    with index:
        index.delete(["p5"])
        index.compact()  # numbers have a gap now
        for where, accepts in FILTERS:
            wanted = [document.id for document in index.documents(limit=1000) if accepts(document.payload)]
            assert [document.id for document in index.documents(where=where, limit=1000)] == wanted
            first = index.documents(where=where, limit=3)
            rest = index.documents(where=where, after=first[-1].number, limit=1000) if first else []
            assert [document.id for document in [*first, *rest]] == wanted
        after_gap = index.documents(after=4, limit=1)[0]
        assert after_gap.number == 6 and COUNT == 30


def test_pages_across_words_of_bits(tmp_path: Path) -> None:
    images, _ = features(200, seed=3)
    with Index.create(tmp_path / "a.cb", small_model(), n_jobs=1) as index:
        index.add(range(200), images=images)
        index.delete(range(60, 130))
        for after in (0, 58, 59, 63, 64, 129, 130, 198):
            assert [document.id for document in index.documents(after=after, limit=2)] == [
                id for id in [*range(60), *range(130, 200)] if id > after
            ][:2]


@pytest.mark.parametrize("number", [2**31, 2**62, 2**63 - 1])
def test_pages_after_large_numbers(number: int) -> None:
    """The row after a document is not that document, however large its number is."""
    numbers = DocIds.of(np.array([3, 5, number]))
    assert [_find_row(numbers, first) for first in (0, 4, number, number + 1)] == [0, 1, 2, 3]
    assert _find_row(numbers, 2**63) == 3 and _find_row(DocIds(0, 5), 2**63) == 5
    assert _find_row(DocIds(0, 0), 7) == 0
