"""Many small commits leave few records, whatever was written; nobody loses or sees anything by it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from crossbyte.errors import StaleReader, StorageFull
from crossbyte.index import merging, mutations
from crossbyte.index.index import Index
from crossbyte.index.storage.records import NewRecord
from support.index_twin import Twin, compare, features, small_model


def one(i: int) -> dict[str, Any]:
    """Arguments of ``add`` for one document; every third has a text, every second a group."""
    images, texts = features(1, seed=i)
    sides = {"images": images} | ({"texts": texts} if i % 3 == 0 else {})
    groups = [f"g{i % 5}"] if i % 2 else [None]
    return {"ids": [f"d{i}"], **sides, "payloads": [{"n": i, "tag": f"t{i % 4}"}], "groups": groups}


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Index, Twin]]:
    """An empty index and its twin."""
    with Index.create(tmp_path / "i.cb", small_model(), n_jobs=1) as index:
        yield index, Twin(small_model())


def fill(both: tuple[Index, Twin], numbers: range) -> None:
    for i in numbers:
        for each in both:
            each.add(**one(i))


def n_records(index: Index) -> int:
    with index._store.reading():
        return len(index._store.records())


# Which records are merged


@pytest.mark.parametrize("most", [2, 3, 8, 64])
def test_records_stay_few_and_are_written_seldom(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", most)
    sizes: list[int] = []
    written, worst = 0, 0
    for _ in range(20_000):
        sizes.append(1)
        first = merging.choose_first(sizes)
        if first < len(sizes):
            sizes[first:] = [sum(sizes[first:])]
            written += sizes[-1]
        worst = max(worst, len(sizes) - sum(size >= merging.MAX_ROWS for size in sizes))
    levels = next(n for n in range(1, 20) if most**n >= merging.MAX_ROWS)
    assert sum(sizes) == 20_000
    assert worst <= levels * most
    assert written <= 20_000 * levels
    assert sum(size >= merging.MAX_ROWS for size in sizes) <= 20_000 // merging.MAX_ROWS


def test_large_records_are_left_alone() -> None:
    large = merging.MAX_ROWS
    assert merging.choose_first([large] * 500) == 500
    assert merging.choose_first([1] * 63) == 63
    assert merging.choose_first([large, *[1] * 64]) == 1
    assert merging.choose_first([1] * 64 + [large] + [1] * 64) == 65
    assert merging.choose_first([]) == 0


# What is merged says the same


def test_small_commits_are_merged_and_everything_is_as_before(both: tuple[Index, Twin]) -> None:
    index, twin = both
    fill(both, range(200))
    for i in range(0, 100, 1):
        for each in both:
            each.delete([f"d{i}"])
    assert n_records(index) < 120
    assert index.stats()["segments"] < 100
    compare(index, twin.copy())
    with Index.open(index.path, n_jobs=1) as reader:
        compare(reader, twin.copy())
        found = reader.documents(where="n >= 150 AND tag = 't1'", limit=100)
        assert [each.id for each in found] == [f"d{i}" for i in range(150, 200) if i % 4 == 1]


def test_merged_documents_keep_their_cells(both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", 4)
    index, twin = both
    fill(both, range(12))
    images, texts = features(40, seed=3)
    index.build_cells(images=images, texts=texts, n_cells=1)
    fill(both, range(12, 40))
    assert index.cells is not None
    drift = index.cells.drift
    with Index.open(index.path, n_jobs=1) as reader:
        assert reader.stats()["segments"] < 20
        assert reader.cells is not None and reader.cells.drift == drift
        compare(reader, twin.copy())
    index.compact()
    compare(index, twin.copy())


def test_readers_are_told(both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", 4)
    index, twin = both
    with Index.open(index.path, n_jobs=1) as reader:
        fill(both, range(8))
        with pytest.raises(StaleReader):
            reader.ids()
        assert reader.refresh()
        compare(reader, twin.copy())


def test_threads_of_the_writer_are_not_disturbed(
    both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", 2)
    index, _ = both
    fill(both, range(3))
    errors: list[BaseException] = []
    done = threading.Event()

    def ask() -> None:
        try:
            while not done.is_set():
                hits = index.search(
                    images=features(1, seed=0)[0], target="image", where="n >= 0", payloads=True
                )
                assert len(hits[0].ids) >= 3
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    fill(both, range(3, 60))
    done.set()
    for thread in threads:
        thread.join()
    assert errors == []


# The disk is full


def limit_pages(index: Index, more: int) -> None:
    """From now on, SQLite finds the disk full when the file has so many pages more."""
    connection = index._store._session.connection
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages + more}").fetchall()


def test_a_merge_without_room_disturbs_nothing(
    both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "MERGED_AT_ONCE", 4)
    index, twin = both
    fill(both, range(3))
    refused = []

    def merge(*arguments: Any) -> Any:
        limit_pages(index, 0)
        drop, records, following = arguments
        try:
            return type(index._store).merge(index._store, [], [*records] * 200, following)
        except StorageFull as error:
            refused.append(error)
            raise
        finally:
            limit_pages(index, 10_000)

    monkeypatch.setattr(index._store, "merge", merge)
    fill(both, range(3, 6))
    assert refused
    compare(index, twin.copy())
    monkeypatch.undo()
    fill(both, range(6, 80))
    compare(index, twin.copy())


def test_a_compaction_without_room_changes_nothing_and_writing_goes_on(
    both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, twin = both
    fill(both, range(40))
    make = mutations.make_compaction

    def spoiled(snapshot: Any) -> Any:
        """More than there was before, so that it cannot go into the pages that become free."""
        made = make(snapshot)
        return made._replace(records=[*made.records, NewRecord("large", {}, {"x": bytes(10**6)})])

    monkeypatch.setattr(mutations, "make_compaction", spoiled)
    limit_pages(index, 0)
    with pytest.raises(StorageFull):
        index.compact()
    compare(index, twin.copy())
    limit_pages(index, 10_000)
    monkeypatch.undo()
    fill(both, range(100, 110))
    compare(index, twin.copy())
    index.compact()
    compare(index, twin.copy())


# Compaction beside writing


@pytest.mark.parametrize("cells", [False, True])
def test_what_is_written_meanwhile_is_in_the_compacted_file(
    both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch, cells: bool
) -> None:
    index, twin = both
    fill(both, range(20))
    if cells:
        images, texts = features(40, seed=3)
        index.build_cells(images=images, texts=texts, n_cells=1)
    for each in both:
        each.update_payloads(["d1", "d2", "d3"], [{"n": 1}, None, {"n": 3}])
        each.update_payloads(["d1", "d4"], [{"n": -1}, {"n": 4}])
        each.delete(["d5", "d4"])
    make, calls = mutations.make_compaction, []

    def spoiled(snapshot: Any) -> Any:
        made = make(snapshot)
        calls.append(snapshot.generation)
        if len(calls) == 1:
            fill(both, range(30, 34))
            for each in both:
                each.update_payloads(["d1", "d2", "d6", "d30"], [{"n": 7}, {"n": 8}, {"n": 9}, {"n": 10}])
                each.update_payloads(["d1", "d3"], [{"n": 11}, None])
                each.delete(["d7", "d31", "d6"])
                each.upsert(**one(8))
        return made

    monkeypatch.setattr(mutations, "make_compaction", spoiled)
    index.compact()
    assert len(calls) == 1, "it was made anew"
    compare(index, twin.copy())
    with Index.open(index.path, n_jobs=1) as reader:
        compare(reader, twin.copy())
    for each in both:
        each.update_payloads(["d1", "d3", "d30"], [{"n": 20}, {"n": 21}, {"n": 22}])
    index.compact()
    compare(index, twin.copy())
    assert index.snapshot().updates == {}


def test_a_compaction_is_made_anew_after_new_cells(
    both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    index, twin = both
    fill(both, range(30))
    make, calls = mutations.make_compaction, []

    def spoiled(snapshot: Any) -> Any:
        made = make(snapshot)
        calls.append(snapshot.generation)
        if len(calls) == 1:
            images, texts = features(40, seed=3)
            index.build_cells(images=images, texts=texts, n_cells=1)
        return made

    monkeypatch.setattr(mutations, "make_compaction", spoiled)
    index.compact()
    assert len(calls) == 2 and index.cells is not None
    compare(index, twin.copy())


def test_threads_write_while_another_compacts(both: tuple[Index, Twin]) -> None:
    index, twin = both
    fill(both, range(50))
    done = threading.Event()
    errors: list[BaseException] = []

    def compact() -> None:
        try:
            while not done.is_set():
                index.compact()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    fill(both, range(50, 120))
    for i in range(0, 60, 2):
        for each in both:
            each.update_payloads([f"d{i}"], [{"n": -i}])
            each.delete([f"d{i + 1}"])
    done.set()
    thread.join()
    assert errors == []
    compare(index, twin.copy())
