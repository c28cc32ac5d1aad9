"""An index in shards answers, bit for bit, what one index with the same documents does."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crossbyte import Index
from crossbyte.errors import (
    ClosedIndex,
    ClusterError,
    DamagedIndexFile,
    DuplicateId,
    FilterError,
    ForeignIndexFile,
    IndexExists,
    IndexLocked,
    InvalidInput,
    NewerIndexFile,
    NotCalibrated,
    ReadOnlyIndex,
    StaleReader,
    UnknownField,
    UnknownId,
    WrongModel,
)
from crossbyte.sharding.gather import MergedHits
from crossbyte.sharding.index import ShardedIndex
from crossbyte.sharding.manifest import ATOMIC_ROWS, NOWHERE, route_documents
from crossbyte.sharding.split import split_index
from crossbyte.sharding.wire import ShardRanking
from support.index_samples import COUNT, fill
from support.index_twin import features, small_model
from support.sharded_gallery import losing
from support.sharded_samples import (
    CALIBRATED,
    IMAGES,
    QUESTIONS,
    TEXTS,
    assert_answers_alike,
    assert_same,
    live_through,
    made,
    told,
)

Both = tuple[Index, ShardedIndex]
SETTINGS = {"plain": {}, "stored": {"cross_term": "stored"}, "calibrated": {"calibrated": True}}


@pytest.fixture(scope="module", params=SETTINGS)
def both(request: Any, tmp_path_factory: Any) -> Iterator[Both]:
    """An index and its shards; no test writes to them."""
    pair = made(tmp_path_factory.mktemp("shards"), small_model(**SETTINGS[request.param]))
    with pair[0], pair[1]:
        yield pair


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Both]:
    """The same for tests that write."""
    index, shards = made(tmp_path, small_model())
    with index, shards:
        yield index, shards


# Searching


@pytest.mark.parametrize("question", QUESTIONS, ids=range(len(QUESTIONS)))
def test_every_question_has_the_same_answer(both: Both, question: dict[str, Any]) -> None:
    index, shards = both
    assert_same(index.search(**question), shards.search(**question))


def test_probabilities_are_those_of_the_whole(both: Both) -> None:
    index, shards = both
    if index.model.calibration_ is not None:
        assert_answers_alike(index, shards, CALIBRATED)
        return
    for each in both:
        with pytest.raises(NotCalibrated, match="min_probability"):
            each.search(texts=TEXTS, min_probability=0.5)


def test_bad_questions_are_refused_alike(both: Both) -> None:
    bad: list[tuple[type[Exception], dict[str, Any]]] = [
        (UnknownField, {"texts": TEXTS, "where": "colour = 'red'"}),
        (FilterError, {"texts": TEXTS, "where": "year >"}),
        (FilterError, {"texts": TEXTS, "where": {}}),
        (UnknownId, {"like": ["p1", "nobody"]}),
        (InvalidInput, {"texts": TEXTS, "images": IMAGES}),
        (InvalidInput, {"texts": TEXTS, "k": 0}),
        (InvalidInput, {"texts": TEXTS[:, :2]}),
    ]
    for error, question in bad:
        messages = []
        for each in both:
            with pytest.raises(error) as caught:
                each.search(**question)
            messages.append(str(caught.value))
        assert messages[0] == messages[1]


def test_no_queries_have_no_answers(both: Both) -> None:
    for each in both:
        assert each.search(texts=TEXTS[:0]) == [] and each.search(like=[]) == []


def test_explanations_are_the_same(both: Both) -> None:
    index, shards = both
    for question in ({"texts": TEXTS[0]}, {"images": IMAGES[1]}, {"like": "p1"}):
        for id in ("p0", "i7", "twin 1", "twin 2"):
            expected = index.explain(id, **question, target="image", n_examples=2)
            assert (
                shards.explain(id, **question, target="image", n_examples=2).to_dict() == expected.to_dict()
            )
    with pytest.raises(UnknownId):
        shards.explain("nobody", texts=TEXTS[0])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 12), st.randoms(use_true_random=False))
def test_merging_is_sorting(n_shards: int, n_queries: int, k: int, random: Any) -> None:
    """Few different distances, so that numbers decide; shards that have found nothing."""
    pool, numbers = MergedHits(), random.sample(range(1000), 60)
    expected: list[list[tuple[float, int]]] = [[] for _ in range(n_queries)]
    found = {}
    for shard in range(n_shards):
        lists = [sorted((random.randrange(3) / 2, numbers.pop()) for _ in range(random.randrange(4)))
                 for _ in range(n_queries)]  # fmt: skip
        flat = [hit for own in lists for hit in own]
        for whole, own in zip(expected, lists, strict=True):
            whole += own
        found[shard] = ShardRanking(
            [len(own) for own in lists],
            np.array([distance for distance, _ in flat], np.float32),
            np.array([number for _, number in flat], np.int64),
            np.full(len(flat), shard, np.uint8),
            [f"id {number}" for _, number in flat],
            None,
        )
    for _ in range(2):  # a pool may be filled again
        merged = pool.merge(found, k)
        for ranking, whole in zip(merged, expected, strict=True):
            pairs = list(zip(ranking.distances.tolist(), ranking.numbers.tolist(), strict=True))
            assert pairs == sorted(whole)[:k]
            assert [pool.ids[row] for row in ranking.rows] == [f"id {number}" for _, number in pairs]
            assert pool.shards[ranking.rows].tolist() == ranking.codings.tolist()


def test_many_queries_are_asked_in_parts(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    index, shards = both
    _, texts = features(2500, seed=5)
    asked: list[int] = []
    ask = shards._pool.ask

    def watched(method: str, calls: Any, **options: Any) -> dict[int, Any]:
        asked.extend(len(query.points) for _, query, *_ in calls.values())
        return ask(method, calls, **options)

    monkeypatch.setattr(shards._pool, "ask", watched)
    assert_same(index.search(texts=texts, k=3), shards.search(texts=texts, k=3))
    assert sum(asked) == shards.n_shards * len(texts) and max(asked) <= 1024


def test_cells_are_visited_as_in_one_index(tmp_path: Path) -> None:
    images, texts = features(120, seed=77)
    with Index.create(tmp_path / "one.cb", small_model(calibrated=True)) as index:
        live_through(index)
        index.build_cells(images=images, texts=texts, n_cells=9, recall=0.5)
        split_index(index.path, tmp_path / "many.cbs", 3)
        with ShardedIndex.open(tmp_path / "many.cbs", "rw") as shards:
            probes: list[dict[str, Any]] = [{"n_probe": n_probe} for n_probe in (None, 1, 3, 9, 100, "all")]
            for each in (index, shards):
                each.add(["in cells"], images=IMAGES[:1], texts=TEXTS[:1])
            asked = [question for question in QUESTIONS if not {"like"} & set(question)]
            asked = [question for question in asked if question.get("target") != "document"]
            assert_answers_alike(
                index, shards, [question | n_probe for question in asked for n_probe in probes]
            )
            assert_answers_alike(index, shards, QUESTIONS)
            some = shards.search(texts=TEXTS, k=100, n_probe=1)
            assert min(map(len, some)) < min(map(len, shards.search(texts=TEXTS, k=100)))
            for wrong in ({"texts": TEXTS, "n_probe": "some"}, {"like": "p1", "n_probe": 2}):
                for each in (index, shards):
                    with pytest.raises(InvalidInput, match="n_probe"):
                        each.search(**wrong)  # type: ignore[arg-type]


def told_of_cells(index: Index | ShardedIndex) -> Any:
    """What is known of cells, distances without their last digits: sums are taken in another order."""
    known = index.cells
    assert known is not None
    document = known.to_dict()
    for drift in document["drift"].values():
        drift["distance"] = pytest.approx(drift["distance"], rel=1e-9) if drift["distance"] else None
    return document


def test_cells_fit_as_in_one_index(tmp_path: Path) -> None:
    images, texts = features(400, seed=77)
    with Index.create(tmp_path / "one.cb", small_model()) as index:
        live_through(index)
        index.build_cells(images=images, texts=texts, n_cells=9, recall=0.5)
        index.add([f"before {row}" for row in range(11)], images=images[:11])
        split_index(index.path, tmp_path / "many.cbs", 3)
        with ShardedIndex.open(tmp_path / "many.cbs", "rw") as shards:
            assert told_of_cells(shards) == told_of_cells(index)
            for each in (index, shards):
                each.add([f"after {row}" for row in range(50)], images=images[:50], texts=texts[:50])
                each.delete(["after 0", "after 1", "before 2"])
            assert told_of_cells(shards) == told_of_cells(index)
            assert not told_of_cells(shards)["rebuild"]
            for each in (index, shards):
                each.compact()
                each.add([f"grown {row}" for row in range(400)], texts=texts)
            assert told_of_cells(shards) == told_of_cells(index)
            assert told_of_cells(shards)["drift"]["text"]["rebuild"]  # there are four times as many


def test_cells_of_shards_are_dropped_and_not_built(tmp_path: Path) -> None:
    images, texts = features(120, seed=77)
    with Index.create(tmp_path / "one.cb", small_model()) as index:
        live_through(index)
        split_index(index.path, tmp_path / "without.cbs", 2)
        index.build_cells(images=images, texts=texts, n_cells=9, recall=0.5)
        split_index(index.path, tmp_path / "many.cbs", 3)
    with ShardedIndex.open(tmp_path / "without.cbs", "rw") as shards:
        assert shards.cells is None
        with pytest.raises(InvalidInput, match="in one file and cut it"):
            shards.build_cells(images=images, texts=texts)
        shards.drop_cells()
    with ShardedIndex.open(tmp_path / "many.cbs") as reader, pytest.raises(ReadOnlyIndex):
        reader.drop_cells()
    with ShardedIndex.open(tmp_path / "many.cbs", "rw") as shards:
        with losing(shards, 1), pytest.raises(ClusterError):
            _ = shards.cells
        view = shards.pinned()
        shards.drop_cells()
        assert shards.cells is None and view.cells is not None
        with pytest.raises(InvalidInput, match="no cells"):
            shards.search(texts=TEXTS, n_probe=1)


# Documents


def test_documents_are_the_same(both: Both) -> None:
    index, shards = both
    assert shards.ids() == index.ids() and len(shards) == len(index)
    for id in index.ids():
        assert id in shards
        left, right = index.get(id), shards.get(id)
        assert told(right) == told(left)
    assert shards.get("nobody") is None and "nobody" not in shards and 2.5 not in shards


@pytest.mark.parametrize("where", [None, "year = 2003", "only = 'here'"])
def test_pages_are_the_same(both: Both, where: str | None) -> None:
    for limit in (1, 7, 1000):
        after = None
        while True:
            left, right = (each.documents(where, after, limit) for each in both)
            assert [document.number for document in left] == [document.number for document in right]
            if len(left) < limit:
                break
            after = left[-1].number
    with pytest.raises(InvalidInput, match="limit"):
        both[1].documents(limit=0)
    with pytest.raises(UnknownField):
        both[1].documents("colour = 1")


@pytest.mark.parametrize("where", [None, "year = 2003", "only = 'here'", "year = 1"])
def test_facets_are_the_same(both: Both, where: str | None) -> None:
    index, shards = both
    fields = ["year", "title", "nothing", "only", "score"]
    for limit in (1, 2, 5, 30, 100):
        assert shards.facets(where, limit=limit) == index.facets(where, limit=limit)
        assert shards.facets(where, fields, limit) == index.facets(where, fields, limit)
    with pytest.raises(UnknownField):
        shards.facets(fields=["colour"])


def test_payloads_and_sides_of_hits(both: Both) -> None:
    index, shards = both
    for hits in shards.search(texts=TEXTS, target="document", k=40):
        assert shards.payloads(hits) == index.payloads(hits)
        assert shards.sides(hits) == shards.sides(replace(hits, _codings=None)) == index.sides(hits)


def test_stats_are_the_sums(both: Both) -> None:
    index, shards = both
    expected, found = index.stats(), shards.stats()
    for name in ("documents", "deleted", "items", "codings", "fields"):
        assert found[name] == expected[name], name
    assert found["memory"]["bytes"]["codes"] >= expected["memory"]["bytes"]["codes"]
    assert not found["partial"] and len(found["shards"]) == shards.n_shards == 3
    assert sum(each["documents"] for each in found["shards"]) == len(shards)
    assert shards.generation == found["generation"] == sum(each["generation"] for each in found["shards"])
    assert shards.lost == () and "3 shards" in repr(shards)


# Splitting


@pytest.mark.parametrize("n_shards", [1, 2, 7, 40])
def test_a_split_index_answers_alike(tmp_path: Path, both: Both, n_shards: int) -> None:
    index = both[0]
    split_index(index.path, tmp_path / "s.cbs", n_shards)
    with ShardedIndex.open(tmp_path / "s.cbs", n_jobs=1) as shards:
        assert_answers_alike(index, shards, QUESTIONS if n_shards < 40 else QUESTIONS[:5])
        assert shards.ids() == index.ids()
        sizes = [each["documents"] for each in shards.stats()["shards"]]
        assert max(sizes) - min(sizes) <= 1
        for id in ("p0", "p4", "twin 1", 7):
            assert told(shards.get(id)) == told(index.get(id))
        shards.verify()


def test_training_documents_stay_training_documents(tmp_path: Path) -> None:
    model = small_model()
    with Index.from_training(tmp_path / "t.cb", model, n_jobs=1) as index:
        split_index(tmp_path / "t.cb", tmp_path / "t.cbs", 3)
        with ShardedIndex.open(tmp_path / "t.cbs") as shards:
            assert shards.stats()["codings"] == {"training": len(index)}
            assert_same(index.search(texts=TEXTS, k=15), shards.search(texts=TEXTS, k=15))


def test_a_split_index_goes_on_with_the_numbers(tmp_path: Path, pair: Both) -> None:
    index = pair[0]
    index.delete(["twin 2"])  # the last number
    split_index(index.path, tmp_path / "s.cbs", 4)
    with ShardedIndex.open(tmp_path / "s.cbs", "rw") as shards:
        for each in (index, shards):
            each.add(["later"], images=IMAGES[:1])
        assert index.get("later").number == shards.get("later").number  # type: ignore[union-attr]


def test_an_empty_index_can_be_split(tmp_path: Path) -> None:
    Index.create(tmp_path / "e.cb", small_model()).close()
    split_index(tmp_path / "e.cb", tmp_path / "e.cbs", 3)
    with ShardedIndex.open(tmp_path / "e.cbs", "rw") as shards:
        assert len(shards) == 0 and shards.ids() == [] and shards.documents() == [] and shards.facets() == []
        assert [len(hits) for hits in shards.search(texts=TEXTS)] == [0] * len(TEXTS)
        fill(shards)
        assert len(shards) == 3 * COUNT


def test_splitting_leaves_nothing_behind_when_it_fails(tmp_path: Path, pair: Both) -> None:
    (tmp_path / "taken.cbs").mkdir()
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(IndexExists, match="free name"):
        split_index(pair[0].path, tmp_path / "taken.cbs", 2)
    with pytest.raises(InvalidInput, match="n_shards"):
        split_index(pair[0].path, tmp_path / "none.cbs", 0)
    with pytest.raises(FileNotFoundError):
        split_index(tmp_path / "missing.cb", tmp_path / "none.cbs", 2)
    with pytest.raises(FileNotFoundError, match="make it first"):
        split_index(pair[0].path, tmp_path / "no folder" / "none.cbs", 2)
    with pytest.raises(IndexExists):
        ShardedIndex.create(tmp_path / "taken.cbs", small_model(), 2)
    with pytest.raises(InvalidInput, match="model"):
        ShardedIndex.create(tmp_path / "none.cbs", None, 2)  # type: ignore[arg-type]
    assert sorted(os.listdir(tmp_path)) == before


# Opening


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sharded index that is closed."""
    with ShardedIndex.create(tmp_path / "s.cbs", small_model(), 3) as shards:
        fill(shards)
    return tmp_path / "s.cbs"


def rewrite(folder: Path, **changes: Any) -> None:
    name = folder / "shards.json"
    name.write_text(json.dumps(json.loads(name.read_text()) | changes))


def test_a_missing_shard_is_named(folder: Path) -> None:
    (folder / "shard-0001.cb").unlink()
    with pytest.raises(DamagedIndexFile, match=r"shard-0001\.cb is missing"):
        ShardedIndex.open(folder)


def test_a_shard_of_another_model_is_refused(folder: Path) -> None:
    (folder / "shard-0001.cb").unlink()
    Index.create(folder / "shard-0001.cb", small_model(seed=5)).close()
    with pytest.raises(WrongModel, match=r"shard-0001\.cb.*another model"):
        ShardedIndex.open(folder)


def test_a_damaged_shard_is_refused(folder: Path) -> None:
    (folder / "shard-0002.cb").write_bytes(b"SQLite format 3\0" + bytes(5000))
    with pytest.raises((DamagedIndexFile, ForeignIndexFile), match=r"shard-0002\.cb"):
        ShardedIndex.open(folder)


@pytest.mark.parametrize(
    "changes",
    [
        {"version": 0}, {"version": "1"}, {"more": 1}, {"shards": []}, {"shards": "shard-0000.cb"},
        {"model": 3}, {"shards": ["../shard-0000.cb"]}, {"shards": ["shard-0000.cb", "shard-0000.cb"]},
        {"shards": [1]}, {"shards": [".."]},
    ],
    ids=str,
)  # fmt: skip
def test_a_manifest_that_is_not_ours_is_refused(folder: Path, changes: dict[str, Any]) -> None:
    rewrite(folder, **changes)
    with pytest.raises(DamagedIndexFile, match="cannot be understood"):
        ShardedIndex.open(folder)


def test_other_things_are_no_sharded_index(folder: Path, tmp_path: Path) -> None:
    rewrite(folder, version=2)
    with pytest.raises(NewerIndexFile, match="upgrade"):
        ShardedIndex.open(folder)
    rewrite(folder, format="other")
    with pytest.raises(ForeignIndexFile):
        ShardedIndex.open(folder)
    (folder / "shards.json").write_text("{")
    with pytest.raises(DamagedIndexFile):
        ShardedIndex.open(folder)
    (folder / "shards.json").unlink()
    for other in (folder, folder / "shard-0000.cb"):
        with pytest.raises(ForeignIndexFile, match="split_index"):
            ShardedIndex.open(other)
    with pytest.raises(FileNotFoundError, match="no sharded index"):
        ShardedIndex.open(tmp_path / "missing")


def test_options_are_checked(folder: Path) -> None:
    with pytest.raises(InvalidInput, match="mode"):
        ShardedIndex.open(folder, "w")
    with pytest.raises(InvalidInput, match="timeout"):
        ShardedIndex.open(folder, timeout=0)


def test_there_is_one_writer(folder: Path) -> None:
    with ShardedIndex.open(folder, "rw"), pytest.raises(IndexLocked):
        ShardedIndex.open(folder, "rw")
    with ShardedIndex.open(folder, "rw") as shards:  # nothing was left locked
        shards.delete(["p0"])
    with pytest.raises(ClosedIndex):
        shards.search(texts=TEXTS)
    shards.close()


def test_a_folder_may_be_moved(folder: Path, tmp_path: Path) -> None:
    shutil.move(folder, tmp_path / "moved.cbs")
    with ShardedIndex.open(tmp_path / "moved.cbs") as shards:
        assert len(shards) == 3 * COUNT


# Writing


def test_writes_give_the_numbers_of_one_index(pair: Both) -> None:
    images, texts = features(60, seed=77)
    for each in pair:
        blocks = ({"ids": range(1000 + i, 1010 + i), "images": images[i : i + 10]} for i in range(0, 30, 10))
        assert each.add(blocks) == 30
        assert each.upsert([1005, "fresh", "p8"], texts=texts[:3]) == 3
        assert each.delete(["p8", "nobody"], missing_ok=True) == 1
        assert each.update_payloads([1006, "i7"], [{"year": 1}, {"year": 2}]) == 2
        assert each.add([], images=images[:0]) == 0 and each.delete([]) == 0
    numbers = [[(id, each.get(id).number) for id in each.ids()] for each in pair]  # type: ignore[union-attr]
    assert numbers[0] == numbers[1]
    assert_answers_alike(*pair)
    for each in pair:
        each.compact()
        each.verify()
    assert_answers_alike(*pair)


def test_what_is_wrong_with_documents_is_said_before_anything_is_written(pair: Both) -> None:
    index, shards = pair
    before = shards.generation
    bad: list[tuple[type[Exception], Any]] = [
        (DuplicateId, lambda each: each.add(["fresh", "p1"], images=IMAGES[:2])),
        (DuplicateId, lambda each: each.add(["x", "x"], images=IMAGES[:2])),
        (InvalidInput, lambda each: each.add(["x"], images=IMAGES[:2])),
        (InvalidInput, lambda each: each.add(iter([{"images": IMAGES}]))),
        (InvalidInput, lambda each: each.upsert(["x"], pictures=IMAGES[:1])),
        (UnknownId, lambda each: each.delete(["p1", "nobody"])),
        (UnknownId, lambda each: each.update_payloads(["p1", "nobody"], [None, None])),
        (InvalidInput, lambda each: each.update_payloads(["p1"], ["text"])),
    ]
    for error, write in bad:
        messages = []
        for each in pair:
            with pytest.raises(error) as caught:
                write(each)
            messages.append(str(caught.value).replace(each.path, ""))
        assert messages[0] == messages[1]
    assert shards.generation == before and shards.ids() == index.ids()


def test_a_reader_cannot_write(folder: Path) -> None:
    with ShardedIndex.open(folder) as shards:
        for write in (
            lambda: shards.add(["x"], images=IMAGES[:1]),
            lambda: shards.delete(["p1"]),
            lambda: shards.update_payloads(["p1"], [None]),
            lambda: shards.compact(),
        ):
            with pytest.raises(ReadOnlyIndex, match="opened for reading"):
                write()


def test_documents_go_to_the_smallest_shard(tmp_path: Path) -> None:
    images = features(12, seed=1)[0]
    with ShardedIndex.create(tmp_path / "s.cbs", small_model(), 3) as shards:
        for i in range(6):
            shards.add([2 * i, 2 * i + 1], images=images[2 * i : 2 * i + 2])
        assert [each["documents"] for each in shards.stats()["shards"]] == [4, 4, 4]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.integers(0, 3 * ATOMIC_ROWS), min_size=1, max_size=6), st.integers(ATOMIC_ROWS + 1, 10**5),
    st.integers(0, 50),
)  # fmt: skip
def test_many_documents_level_the_shards(sizes: list[int], n_new: int, n_old: int) -> None:
    homes = np.full(n_new + n_old, NOWHERE)
    homes[:: max(1, len(homes) // (n_old or 1))][:n_old] = len(sizes) - 1
    chosen = route_documents(homes, sizes)
    assert (chosen[homes != NOWHERE] == len(sizes) - 1).all()
    given = np.bincount(chosen[homes == NOWHERE], minlength=len(sizes))
    after = np.asarray(sizes) + given
    grown = after[given > 0]
    assert given.sum() == (homes == NOWHERE).sum()
    assert grown.max() - grown.min() <= 1 and (after[given == 0] >= grown.max() - 1).all()


def test_a_large_batch_is_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbyte.sharding.manifest.ATOMIC_ROWS", 20)
    index, shards = made(tmp_path, small_model())
    with index, shards:
        sizes = [each["documents"] for each in shards.stats()["shards"]]
        assert max(sizes) - min(sizes) <= 8
        assert_answers_alike(index, shards)


# Moments


def test_readers_follow_a_writer(folder: Path) -> None:
    with ShardedIndex.open(folder, "rw") as writer, ShardedIndex.open(folder) as reader:
        writer.add(["late"], images=IMAGES[:1], texts=TEXTS[:1])
        assert "late" not in reader and reader.refresh() and "late" in reader and not reader.refresh()
        assert reader.generation == writer.generation
        writer.compact()
        with pytest.raises(StaleReader):
            reader.search(texts=TEXTS)
        assert reader.refresh()
        assert_answers_alike(writer, reader, [{"texts": TEXTS}])


def test_a_pinned_view_stays(pair: Both) -> None:
    index, shards = pair
    views = [each.pinned() for each in pair]
    for each in pair:
        each.add(["late"], images=IMAGES[:1], texts=TEXTS[:1])
        each.delete(["p1"])
    assert "late" in shards and "late" not in views[1] and "p1" in views[1]
    assert_answers_alike(*views)
    assert_answers_alike(*pair, [{"texts": TEXTS}])
    assert views[1].generation == shards.generation - 2
    newer = shards.pinned()
    shards.compact()
    with pytest.raises(StaleReader):
        newer.search(texts=TEXTS)
    assert_answers_alike(*pair, [{"texts": TEXTS}])


def test_searches_go_on_while_others_write(pair: Both) -> None:
    shards, images = pair[1], features(20, seed=4)[0]

    def look(_: int) -> bool:
        hits = shards.search(texts=TEXTS, k=1000, target="document", payloads=True)
        return len({len(each) for each in hits}) == 1 and len(shards.ids()) > 0

    with ThreadPoolExecutor(3) as threads:
        looked = threads.map(look, range(25))
        for i in range(0, 16, 2):
            shards.add([f"w{i}", f"w{i + 1}"], images=images[i : i + 2], payloads=[{"year": i}, None])
            shards.delete([f"w{i}"])
            if i == 10:
                shards.compact()
        assert all(looked)


def test_shards_forget_what_nobody_looks_at(pair: Both) -> None:
    shards = pair[1]
    view = shards.pinned()
    shards.delete(["p0"])
    kept = [sorted(shard._kept) for shard in shards._pool._shards]  # type: ignore[attr-defined]
    assert sum(map(len, kept)) >= 1
    del view
    shards.delete(["p1"])
    shards.refresh()
    assert [shard._kept for shard in shards._pool._shards] == [{}, {}, {}]  # type: ignore[attr-defined]


# The files


def test_a_backup_is_the_same_index(tmp_path: Path, pair: Both) -> None:
    index, shards = pair
    shards.backup(tmp_path / "copy.cbs")
    with pytest.raises(IndexExists):
        shards.backup(tmp_path / "copy.cbs")
    with ShardedIndex.open(tmp_path / "copy.cbs") as copy:
        assert_answers_alike(index, copy)
        copy.verify()


def test_verify_finds_an_id_in_two_shards(tmp_path: Path, folder: Path) -> None:
    with ShardedIndex.open(folder) as shards:
        shards.verify()
        there = shards.ids()[0]
    for name in ("shard-0000.cb", "shard-0001.cb", "shard-0002.cb"):
        with Index.open(folder / name, "rw") as index:
            if there not in index:
                index.add([there], images=IMAGES[:1])
    with ShardedIndex.open(folder) as shards, pytest.raises(DamagedIndexFile, match="same id"):
        shards.verify()


def test_a_history_may_be_lived_through_at_once(tmp_path: Path) -> None:
    """Opened again after every step: nothing is only in memory."""
    model = small_model()
    ShardedIndex.create(tmp_path / "s.cbs", model, 2).close()

    class Reopened:
        def __getattr__(self, name: str) -> Any:
            def call(*arguments: Any, **options: Any) -> Any:
                with ShardedIndex.open(tmp_path / "s.cbs", "rw") as shards:
                    return getattr(shards, name)(*arguments, **options)

            return call

    live_through(Reopened())
    with Index.create(tmp_path / "one.cb", model) as index, ShardedIndex.open(tmp_path / "s.cbs") as shards:
        live_through(index)
        assert_answers_alike(index, shards)
