"""The index as documented: opening, adding, changing, reading, many handles, compaction."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest

from crossbyte import CMCQ, Index
from crossbyte.errors import (
    ClosedIndex,
    DuplicateId,
    IndexLocked,
    InvalidInput,
    ReadOnlyIndex,
    StaleReader,
    UnknownId,
    WrongModel,
)
from crossbyte.progress import Progress
from support.id_twins import twin_of
from support.index_samples import COUNT, IMAGES, PAIRS, TEXTS, fill, group, parts, payload, sample
from support.index_twin import Twin, compare, compare_documents, compare_hits, features, small_model


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "i.cb"


@pytest.fixture
def made(path: Path) -> Iterator[tuple[Index, Twin]]:
    index, twin = sample(path)
    with index:
        yield index, twin


@pytest.fixture
def empty(path: Path) -> Iterator[Index]:
    with Index.create(path, small_model(), n_jobs=1) as index:
        yield index


# Opening and closing


def test_a_new_index_is_empty(empty: Index) -> None:
    assert (len(empty), empty.ids(), empty.get("a"), "a" in empty) == (0, [], None, False)
    images, texts = features(3, seed=1)
    for target in (None, "image", "text", "document"):
        for query in ({"images": images}, {"texts": texts}):
            assert [hits.ids for hits in empty.search(**query, target=target)] == [[], [], []]
    empty.verify()
    compare(empty, Twin(small_model()))


def test_everything_is_there_again_after_opening(path: Path, made: tuple[Index, Twin]) -> None:
    index, twin = made
    with Index.open(path, n_jobs=1) as reader:
        compare(reader, twin)
    index.close()
    with Index.open(path, "rw", n_jobs=1) as writer:
        compare(writer, twin)
    with Index.open(str(path), mode="r") as reader:
        assert reader.path == os.path.realpath(path)
        assert repr(reader) == f"Index({reader.path!r}, 90 documents, generation {reader.generation})"


def test_the_model_is_part_of_the_file(path: Path, empty: Index) -> None:
    given = small_model()
    assert empty.model.to_bytes() == given.to_bytes()
    assert empty.model is not given
    with Index.open(path) as reader:
        assert reader.model.to_bytes() == given.to_bytes()
    with Index.open(path, model=given) as reader:
        assert reader.model is given


def test_a_model_that_changes_later_does_not_change_the_index(path: Path) -> None:
    images, texts = features(60, seed=2)
    model = CMCQ(16, mapping="cca", n_components=3, max_iter=1, random_state=0).fit(images, texts)
    before = model.to_bytes()
    with Index.create(path, model) as index:
        model.set_params(random_state=1).fit(texts, images)
        index.add(["a"], images=images[:1])
        assert index.model.to_bytes() == before


def test_another_model_is_refused(path: Path, made: tuple[Index, Twin]) -> None:
    index, _ = made
    generation = index.generation
    for mode in ("r", "rw"):
        index.close()
        with pytest.raises(WrongModel, match="another model"):
            Index.open(path, mode, model=small_model(seed=1))
    with Index.open(path, "rw") as again:  # the lock was given back
        assert again.generation == generation


def test_a_closed_index_says_so(made: tuple[Index, Twin]) -> None:
    index, _ = made
    index.close()
    index.close()
    image = features(1, seed=1)[0]
    calls = (
        lambda: index.search(images=image), lambda: index.add(["a"], images=image), lambda: index.get("p1"),
        lambda: index.delete(["p1"]), index.compact, index.verify, index.stats, index.refresh,
        lambda: index.update_payloads(["p1"], [None]), lambda: index.backup(index.path + "2"),
        lambda: index.upsert(["p1"], images=image),
    )  # fmt: skip
    for call in calls:
        with pytest.raises(ClosedIndex, match="closed"):
            call()
    assert not os.path.exists(index.path + "2")


def test_leaving_the_context_closes(path: Path) -> None:
    with pytest.raises(ZeroDivisionError), Index.create(path, small_model()) as index:
        index.add(["a"], images=features(1, seed=1)[0])
        raise ZeroDivisionError
    with pytest.raises(ClosedIndex):
        index.stats()
    with Index.open(path, "rw") as again:
        assert again.ids() == ["a"]


# Adding


def test_codes_are_those_of_the_model(made: tuple[Index, Twin]) -> None:
    compare_documents(*made)


def test_ready_codes_give_the_same_index(tmp_path: Path, made: tuple[Index, Twin]) -> None:
    index, twin = made
    with Index.create(tmp_path / "codes.cb", small_model(), n_jobs=1) as other:
        for part in parts():
            codes = [index.get(key) for key in part["ids"]]
            given = {name: value for name, value in part.items() if name not in ("images", "texts")}
            for side in ("image", "text"):
                if f"{side}s" in part:
                    given[f"{side}_codes"] = np.array([getattr(c, f"{side}_code") for c in codes])
            assert other.add(**given) == COUNT
        compare(other, twin)


def test_blocks_of_an_iterator_are_commits_of_their_own(path: Path, empty: Index) -> None:
    seen = []

    def blocks() -> Iterator[dict[str, Any]]:
        for part in parts():
            with Index.open(path) as reader:
                seen.append(len(reader))
            yield part

    twin = Twin(small_model())
    fill(twin)
    before = empty.generation
    assert empty.add(blocks()) == 3 * COUNT
    assert seen == [0, COUNT, 2 * COUNT]
    assert empty.generation == before + 3
    compare(empty, twin)
    assert empty.upsert(iter(parts()[:1])) == COUNT
    assert empty.add(iter([])) == 0


def test_a_bad_block_leaves_those_before_it(empty: Index) -> None:
    good, bad = parts()[:2]
    for wrong in (
        {**bad, "ids": bad["ids"][:3]},
        {**bad, "colour": 1},
        {"images": bad["images"]},
        "p1",
        None,
    ):
        with pytest.raises(InvalidInput):
            empty.upsert(iter([good, wrong]))
        assert empty.ids() == PAIRS
    with pytest.raises(InvalidInput, match="iterator"):
        empty.add(iter([good]), images=good["images"])


def test_coding_tells_how_far_it_is(empty: Index) -> None:
    steps: list[Progress] = []
    for part in parts():
        empty.add(**part, callback=steps.append)
    assert [(s.stage, s.detail, s.done, s.total) for s in steps] == [
        ("code", coding, COUNT, COUNT) for coding in ("pair", "image", "text")
    ]


def test_an_error_in_the_callback_leaves_nothing(empty: Index) -> None:
    def stop(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        empty.add(**parts()[0], callback=stop)
    assert (len(empty), empty.generation) == (0, 1)
    fill(empty)


def test_batches_do_not_change_the_codes(tmp_path: Path, made: tuple[Index, Twin]) -> None:
    _, twin = made
    with Index.create(tmp_path / "slow.cb", small_model(), n_jobs=2) as index:
        for part in parts():
            for start in range(0, COUNT, 7):
                rows = slice(start, start + 7)
                index.add(**{name: value[rows] for name, value in part.items()})
        compare(index, twin)


def test_no_documents_are_no_commit(made: tuple[Index, Twin]) -> None:
    index, twin = made
    before = index.generation
    nothing = np.empty((0, 6), np.float32)
    assert index.add([], images=nothing) == index.upsert([], images=nothing) == 0
    assert index.delete([]) == index.update_payloads([], []) == 0
    assert index.generation == before
    compare(index, twin)


def test_many_kinds_of_arguments_are_taken(empty: Index) -> None:
    from scipy import sparse

    images, texts = features(4, seed=3)
    empty.add(np.array([1, 2]), images=images[:2].tolist(), groups=np.array([1, 1]))
    empty.add(("a", "b"), texts=sparse.csr_matrix(texts[:2]), payloads=({"x": 1}, None))
    empty.add({"c": 0}.keys(), images=images[2:3].astype(np.float64), payloads=(p for p in [{"y": [1]}]))
    assert empty.ids() == [1, 2, "a", "b", "c"]
    np.testing.assert_array_equal(empty.get(1).image_code, small_model().encode_images(images[:1])[0])
    np.testing.assert_array_equal(empty.get("b").text_code, small_model().encode_texts(texts[1:2])[0])
    assert empty.get("c").payload == {"y": [1]}


def test_a_payload_comes_back_as_it_was(empty: Index) -> None:
    value = {
        "text": "é\u0000😀", "int": 2**70, "negative": -1, "float": 0.1, "deep": {"a": [{"b": None}, []]},
        "": 1, "big": "x" * 100_000, "true": True, "dots.and`ticks": "k",
    }  # fmt: skip
    empty.add(["a", "b", "c"], images=features(3, seed=1)[0], payloads=[value, {}, None])
    assert [empty.get(key).payload for key in "abc"] == [value, {}, None]
    value["text"] = "changed"
    assert empty.get("a").payload["text"] == "é\u0000😀"


def test_payloads_take_scalars_of_numpy_and_dates(empty: Index) -> None:
    given = {
        "n": np.int64(3), "x": np.float32(0.5), "yes": np.bool_(True), "name": np.str_("a"),
        "list": [np.uint8(7)],
        "day": date(2019, 7, 1), "at": datetime(2019, 7, 1, 12, 30), "clock": time(9, 5),
        "day64": np.datetime64("2019-07-01"), "ns": np.datetime64("2019-07-01T12:30:00.123456789"),
    }  # fmt: skip
    wanted = {
        "n": 3, "x": 0.5, "yes": True, "name": "a", "list": [7], "day": "2019-07-01",
        "at": "2019-07-01T12:30:00", "clock": "09:05:00", "day64": "2019-07-01",
        "ns": "2019-07-01T12:30:00.123456",
    }  # fmt: skip
    images = features(2, seed=1)[0]
    empty.add(["a", "b"], images=images, payloads=[given, {"day": date(2020, 1, 2)}])
    assert empty.get("a").payload == wanted
    assert [type(empty.get("a").payload[name]) for name in ("n", "yes")] == [int, bool]
    assert empty.search(images=images[:1], target="image", where="day >= '2020-01-01'")[0].ids == ["b"]


def test_payloads_may_be_a_table(empty: Index) -> None:
    table = pandas.DataFrame(
        {
            "year": pandas.array([2001, None, 2003], dtype="Int64"),
            "title": ["a", "b", None],
            "when": pandas.to_datetime(["2001-05-06", None, "2003-01-01 10:00"], format="ISO8601"),
            "x": [0.5, float("nan"), 1.5],
        },
        index=[9, 9, 4],
    )
    images = features(3, seed=1)[0]
    empty.add(["a", "b", "c"], images=images, payloads=table)
    assert [empty.get(key).payload for key in "abc"] == [
        {"year": 2001, "title": "a", "when": "2001-05-06T00:00:00", "x": 0.5},
        {"title": "b"},
        {"year": 2003, "when": "2003-01-01T10:00:00", "x": 1.5},
    ]
    empty.update_payloads(["a"], table[["title"]][1:2])
    assert empty.get("a").payload == {"title": "b"}


def test_ids_of_every_kind_live_together(empty: Index) -> None:
    keys = [1, "1", "", -5, "é", "x" * 1024, 2**63 - 1, -(2**63), "abc", twin_of("abc")]
    images, _ = features(len(keys), seed=4)
    for start in (0, 3, 6):
        empty.add(keys[start : start + 3], images=images[start : start + 3])
    empty.add(keys[9:], images=images[9:])
    found = empty.ids()
    assert (found, list(map(type, found))) == (keys, list(map(type, keys)))
    empty.verify()
    for number, key in enumerate(keys):
        assert key in empty
        assert empty.get(key).number == number
    assert empty.delete(["abc"]) == 1
    assert (empty.get("abc"), empty.get(twin_of("abc")).number) == (None, 9)
    with pytest.raises(DuplicateId):
        empty.add([twin_of("abc")], images=images[:1])
    empty.compact()
    assert empty.ids() == [key for key in keys if key != "abc"]
    assert [empty.get(key).number for key in empty.ids()] == [0, 1, 2, 3, 4, 5, 6, 7, 9]


# The paper's search


@pytest.mark.parametrize("cross_term", ["constant", "stored"])
def test_training_documents_rank_as_the_model_says(path: Path, cross_term: str) -> None:
    model = small_model(16, cross_term)
    with Index.from_training(path, model) as index:
        assert index.generation == 1  # one commit: killed in the middle, nothing is there
        assert index.ids() == list(range(60))
        assert index.get(3).coding == "training"
        np.testing.assert_array_equal(index.get(7).text_code, model.text_codes_[7])
        images, texts = features(5, seed=7)
        for query in ({"images": images}, {"texts": texts}):
            expected = model.training_distances(**query)
            for hits, distances in zip(index.search(**query, k=100), expected, strict=True):
                order = np.lexsort((np.arange(60), distances))
                assert hits.ids == order.tolist()
                assert hits.distances.tobytes() == distances[order].tobytes()
        index.verify()


def test_training_documents_with_ids_payloads_and_groups(path: Path) -> None:
    keys = [f"d{i}" for i in range(60)]
    values = [{"n": i} for i in range(60)]
    with Index.from_training(path, small_model(), keys, values, groups=[i // 2 for i in range(60)]) as index:
        assert index.ids() == keys
        assert (index.get("d5").payload, index.get("d5").group) == ({"n": 5}, 2)
        index.add(["new"], images=features(1, seed=1)[0])
        assert len(index) == 61


@pytest.mark.parametrize(
    "wrong", [{"ids": [1, 2]}, {"ids": [1] * 60}, {"payloads": [1] * 60}, {"groups": ["a"]}]
)
def test_training_documents_that_are_refused_leave_no_file(path: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        Index.from_training(path, small_model(), **wrong)
    assert os.listdir(path.parent) == []


# Changing


def test_upsert_replaces_everything(made: tuple[Index, Twin]) -> None:
    index, twin = made
    images, texts = features(4, seed=9)
    keys = ["p3", "new", 5, "i2"]
    assert index.upsert(keys, texts=texts, payloads=[{"fresh": 1}, None, None, {}]) == 4
    twin.upsert(keys, texts=texts, payloads=[{"fresh": 1}, None, None, {}])
    compare(index, twin.copy())
    assert [index.get(key).number for key in keys] == [90, 91, 92, 93]
    assert (index.get("p3").group, index.get("p3").image_code, len(index)) == (None, None, 91)
    index.upsert(["p3"], images=images[:1])
    assert index.get("p3").payload is None
    assert index.get("p3").number == 94


def test_updated_payloads_keep_codes_and_numbers(made: tuple[Index, Twin]) -> None:
    index, twin = made
    keys, values = ["p1", "i6", 2, "p2"], [{"year": 1990}, {"extra": "x"}, None, {}]
    for _ in range(2):
        assert index.update_payloads(keys, values) == len(keys)
        twin.update_payloads(keys, values)
        compare(index, twin.copy())
        keys, values = ["p1", "p2", 3], [None, {"year": 1991}, {"year": "text"}]
    assert [index.get(key).number for key in ("p1", "i6", 2)] == [1, 36, 62]
    assert index.update_payloads(["p5", "p6"], None) == 2
    assert index.get("p5").payload is None


def test_delete_forgets_documents(made: tuple[Index, Twin]) -> None:
    index, twin = made
    keys = ["p3", 7, "i29", "p0"]
    assert index.delete(keys) == 4
    twin.delete(keys)
    compare(index, twin.copy())
    assert [key in index for key in keys] == [False] * 4
    assert [index.get(key) for key in keys] == [None] * 4
    with pytest.raises(UnknownId, match="'p3'"):
        index.delete(["p1", "p3"])
    assert "p1" in index
    assert index.delete(["p1", "p3", "absent"], missing_ok=True) == 1
    before = index.generation
    assert index.delete(["p3"], missing_ok=True) == 0
    assert index.generation == before
    index.add(["p3"], images=features(1, seed=3)[0])
    assert index.get("p3").number == 90


def test_an_index_can_be_emptied_and_filled_again(made: tuple[Index, Twin]) -> None:
    index, _ = made
    assert index.delete(index.ids()) == 90
    nothing = Twin(small_model())
    compare(index, nothing.copy())
    index.compact()
    compare(index, nothing.copy())
    fill(index)
    nothing.next_number = 90
    fill(nothing)
    compare(index, nothing)
    assert index.get("p0").number == 90


# Reading


def test_get_gives_the_whole_document(made: tuple[Index, Twin]) -> None:
    index, _ = made
    document = index.get("p4")
    assert (document.id, document.number, document.coding) == ("p4", 4, "pair")
    assert (document.payload, document.group) == (payload(4), group(4))
    assert (document.image_code.shape, document.text_code.dtype) == ((2,), np.uint8)
    assert (index.get("i1").text_code, index.get(1).image_code) == (None, None)
    assert (index.get("i1").coding, index.get(1).coding) == ("image", "text")
    assert [index.get(key) for key in ("absent", "1", "", 99)] == [None] * 4
    assert [key in index for key in ("p1", 1, np.int64(1), "1", True, 1.0, None, [1], "\ud800")] == [
        True, True, True, *[False] * 6
    ]  # fmt: skip


def test_ids_are_in_the_order_of_numbers(made: tuple[Index, Twin]) -> None:
    index, _ = made
    assert index.ids() == [*PAIRS, *IMAGES, *TEXTS]
    index.upsert(["p1", 2], images=features(2, seed=1)[0])
    assert index.ids()[-2:] == ["p1", 2]
    index.compact()
    assert index.ids()[-2:] == ["p1", 2]


# Handles


def test_a_reader_may_not_write(path: Path, made: tuple[Index, Twin]) -> None:
    made[0].close()
    with Index.open(path) as reader:
        calls = (
            lambda: reader.add(["a"], images=features(1, seed=1)[0]), reader.compact,
            lambda: reader.upsert(["p1"], images=features(1, seed=1)[0]), lambda: reader.delete(["p1"]),
            lambda: reader.update_payloads(["p1"], [None]),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(ReadOnlyIndex, match="rw"):
                call()
        compare(reader, made[1])


def test_a_reader_sees_one_generation_until_it_refreshes(path: Path, made: tuple[Index, Twin]) -> None:
    index, twin = made
    with Index.open(path, n_jobs=1) as reader:
        assert not reader.refresh()
        old = twin.copy()
        for change in (
            lambda t: t.delete(["p1", 3]),
            lambda t: t.upsert(["p2"], images=features(1, seed=2)[0]),
            lambda t: t.update_payloads(["p5", "p2"], [{"new": 1}, {"year": 2004}]),
        ):
            change(index)
            change(twin)
            assert reader.generation < index.generation
            compare_documents(reader, old)
        assert reader.refresh()
        assert reader.generation == index.generation
        assert not reader.refresh()
        compare(reader, twin)


def test_a_reader_of_a_file_long_at_rest_still_notices_a_compaction(
    path: Path, made: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file whose time of change has passed is asked no more, until it changes."""
    long_ago = os.stat(path).st_mtime_ns - 60 * 10**9
    image = features(1, seed=1)[0]
    os.utime(path, ns=(long_ago, long_ago))
    with Index.open(path) as reader:
        reader.search(images=image)
        with monkeypatch.context() as patch:
            patch.setattr(type(reader.snapshot().store._session), "transaction", None)  # must not be needed
            reader.search(images=image)
        made[0].compact()
        with pytest.raises(StaleReader, match=r"refresh\(\)"):
            reader.search(images=image)


def test_a_stale_reader_says_refresh(path: Path, made: tuple[Index, Twin]) -> None:
    index, twin = made
    index.delete(["p1"])
    twin.delete(["p1"])
    with Index.open(path, n_jobs=1) as reader:
        index.compact()
        image = features(1, seed=1)[0]
        calls = (
            lambda: reader.search(images=image), lambda: reader.get("p2"), reader.stats,
            lambda: reader.search(images=image, where="year > 1", payloads=True),
        )  # fmt: skip
        for call in calls:
            with pytest.raises(StaleReader, match=r"refresh\(\)"):
                call()
        assert reader.refresh()
        compare(reader, twin)


def test_a_second_writer_is_told_who_holds_it(path: Path, made: tuple[Index, Twin]) -> None:
    script = "import sys; from crossbyte import Index; Index.open(sys.argv[1], 'rw')"
    result = subprocess.run([sys.executable, "-c", script, str(path)], capture_output=True, text=True)
    assert f"IndexLocked: {path}: process {os.getpid()} on" in result.stderr
    with pytest.raises(IndexLocked, match=f"process {os.getpid()} .*this process"):
        Index.open(path, "rw")
    made[0].add(["a"], images=features(1, seed=1)[0])
    made[0].close()
    Index.open(path, "rw").close()


FORK = """
import os, sys
import numpy as np
from crossbyte import Index
from crossbyte.errors import WriteRefused

index = Index.open(sys.argv[1], "rw", n_jobs=1)
image = np.ones((1, 6), np.float32)
child = os.fork()
if child == 0:
    uses = [lambda: index.add(["x"], images=image), lambda: index.delete(["p1"]), index.compact,
            lambda: index.update_payloads(["p1"], [None]), lambda: index.search(images=image)]
    for use in uses:
        try:
            use()
        except WriteRefused as error:
            assert "fork" in str(error)
        else:
            os._exit(2)
    with Index.open(sys.argv[1]) as own:
        assert len(own) == 90
        own.search(images=image)
    index.close()
    sys.exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert index.add(["x"], images=image) == 1
index.verify()
index.close()
"""


def test_a_forked_child_is_refused(path: Path, made: tuple[Index, Twin]) -> None:
    made[0].close()
    result = subprocess.run(
        [sys.executable, "-c", FORK, str(path)], capture_output=True, text=True, timeout=60
    )
    assert result.returncode == 0, result.stderr
    with Index.open(path) as index:
        assert len(index) == 91


@pytest.mark.parametrize("mode", ["own handle", "reader"])
def test_searches_go_on_while_a_writer_writes(path: Path, made: tuple[Index, Twin], mode: str) -> None:
    """Every answer is that of one generation: documents come and go in tens, all at the same place."""
    index, _ = made
    image = features(1, seed=11)[0]
    code = small_model().encode_images(image)
    handle = index if mode == "own handle" else Index.open(path, n_jobs=2)
    stop, wrong = threading.Event(), []

    def look() -> None:
        while not stop.is_set():
            try:
                hits = handle.search(images=image, target="image", k=500)[0]
            except StaleReader:
                handle.refresh()
                continue
            handle.refresh()
            tens = [key for key in hits.ids if isinstance(key, str) and key.startswith("x")]
            if len(tens) % 10 or sorted(set(tens)) != sorted(tens) or len(hits) - len(tens) != 60:
                wrong.append(hits.ids)

    threads = [threading.Thread(target=look) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for step in range(12):
            index.add([f"x{step}.{i}" for i in range(10)], image_codes=np.repeat(code, 10, axis=0))
            if step % 4 == 2:
                index.delete([f"x{step}.{i}" for i in range(10)])
            if step % 4 == 3:
                index.compact()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        handle.close()
    assert wrong == []


def test_writers_in_several_threads_take_turns(empty: Index) -> None:
    def work(name: int) -> None:
        for step in range(8):
            empty.add([f"{name}.{step}"], images=features(1, seed=name)[0], payloads=[{"step": step}])
            empty.update_payloads([f"{name}.{step}"], [{"step": step + 1}])
            if step % 2:
                empty.delete([f"{name}.{step}"])

    threads = [threading.Thread(target=work, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(empty.ids()) == sorted(f"{name}.{step}" for name in range(3) for step in (0, 2, 4, 6))
    assert all(empty.get(key).payload == {"step": int(key[-1]) + 1} for key in empty.ids())
    empty.verify()


# Upkeep


def test_stats_add_up(path: Path, made: tuple[Index, Twin]) -> None:
    index, _ = made
    index.delete(["p0", "i0", "i1"])
    stats = index.stats()
    assert (stats["documents"], stats["deleted"], stats["generation"]) == (87, 3, index.generation)
    assert stats["codings"] == {"pair": 29, "image": 28, "text": 30}
    assert stats["items"] == {"image": 57, "text": 59}
    assert stats["segments"] == 3
    assert stats["fields"]["year"] == ["number"]
    assert set(stats["fields"]) >= {"year", "kind", "score", "good", "tags", "deep.n", "title"}
    disk, memory = stats["disk"]["bytes"], stats["memory"]["bytes"]
    assert disk["file"] == os.path.getsize(path) == sum(size for name, size in disk.items() if name != "file")
    assert memory["total"] == sum(size for name, size in memory.items() if name != "total")
    assert disk["documents:codes.image"] == disk["documents:codes.text"] == 2 * 60
    for part in ("disk", "memory"):
        per_item = stats[part]["per_item"]
        assert per_item == {name: round(size / 116, 3) for name, size in stats[part]["bytes"].items()}
    index.compact()
    assert index.stats()["deleted"] == 0


def test_memory_holds_the_codes_once(empty: Index) -> None:
    codes = np.random.default_rng(0).integers(0, 256, (6400, 2), dtype=np.uint8)
    for start in range(0, 6400, 1600):
        empty.add(range(start, start + 1600), image_codes=codes[start : start + 1600])
    empty.search(images=features(1, seed=1)[0])
    memory = empty.stats()["memory"]["bytes"]
    assert memory["codes"] == 2 * 6400
    assert memory["numbers"] == 0
    assert memory["marks"] == 2 * 6400 // 8
    assert memory["ids"] == 8 * 6400


def test_a_backup_beside_a_writer_is_a_whole_index(tmp_path: Path, made: tuple[Index, Twin]) -> None:
    index, twin = made
    index.update_payloads(["p1"], [{"year": 1}])
    twin.update_payloads(["p1"], [{"year": 1}])
    with Index.open(index.path) as reader:
        reader.backup(tmp_path / "b.cb")
    index.backup(tmp_path / "a.cb")
    index.add(["later"], images=features(1, seed=1)[0])
    for name in ("a.cb", "b.cb"):
        with Index.open(tmp_path / name, "rw", n_jobs=1) as copy:
            assert copy.generation == index.generation - 1
            compare(copy, twin)
            copy.add(["own"], images=features(1, seed=1)[0])
    assert "own" not in index
    assert sorted(os.listdir(tmp_path)) == ["a.cb", "b.cb", "i.cb", "i.cb.lock"]


def test_backups_under_a_busy_writer(tmp_path: Path, made: tuple[Index, Twin]) -> None:
    index, _ = made
    copies = []

    def copy() -> None:
        for i in range(4):
            with Index.open(index.path) as reader:
                reader.backup(tmp_path / f"{i}.cb")
            copies.append(tmp_path / f"{i}.cb")

    thread = threading.Thread(target=copy)
    thread.start()
    for step in range(15):
        index.add([f"x{step}.{i}" for i in range(10)], images=features(10, seed=step)[0])
    thread.join()
    assert len(copies) == 4
    for name in copies:
        with Index.open(name) as taken:
            taken.verify()
            assert len(taken) % 10 == 0


def test_compaction_keeps_numbers_and_answers(made: tuple[Index, Twin]) -> None:
    index, twin = made
    for target in (index, twin):
        target.delete(["p1", "p2", 5, "i7"])
        target.upsert(["p3", "i3"], texts=features(2, seed=1)[1], payloads=[{"year": 7}, None])
        target.update_payloads(["p4", "p6", 6, "p8"], [{"year": 8}, {"n": 1}, None, {"kind": "z"}])
        target.delete(["p8"])
    numbers = {key: index.get(key).number for key in index.ids()}
    groups = {key: index.get(key).group for key in index.ids()}
    filters = {
        where: _filtered(index, where) for where in ("year >= 2002", "kind = 'z' OR n = 1", "tags = 't1'")
    }
    size = index.stats()["disk"]["bytes"]["file"]
    for _ in range(2):
        index.compact()
        compare(index, twin.copy())
        assert {key: index.get(key).number for key in index.ids()} == numbers
        assert {key: index.get(key).group for key in index.ids()} == groups
        for where, found in filters.items():
            if where.startswith("kind"):  # 'z' went with p8; n is still there
                assert _filtered(index, where) == found == ["p6"]
            assert _filtered(index, where) == found
    assert index.stats()["disk"]["bytes"]["file"] <= size
    assert index.stats()["segments"] == 3
    index.add(["after"], images=features(1, seed=1)[0])
    assert index.get("after").number == 92
    index.close()
    with Index.open(index.path, "rw") as again:
        assert again.get("after").number == 92
        again.verify()


def _filtered(index: Index, where: str) -> list[Any]:
    found = index.search(images=features(1, seed=1)[0], target="document", k=1000, where=where)[0].ids
    return sorted(found, key=str)


def test_compaction_forgets_fields_that_are_gone(made: tuple[Index, Twin]) -> None:
    index, _ = made
    index.add(["odd"], images=features(1, seed=1)[0], payloads=[{"rare": 1}])
    index.delete(["odd"])
    index.compact()
    assert "rare" not in index.stats()["fields"]


def test_an_old_payload_is_not_kept_after_compaction(path: Path, made: tuple[Index, Twin]) -> None:
    index, _ = made
    secret = "s3cret" * 40
    index.update_payloads(["p1"], [{"note": secret}])
    index.update_payloads(["p1"], [None])
    index.add(["gone"], images=features(1, seed=1)[0], payloads=[{"note": secret}])
    index.delete(["gone"])
    assert secret.encode() in path.read_bytes()
    index.compact()
    index.close()
    assert secret.encode() not in path.read_bytes()


def test_the_answers_do_not_depend_on_threads(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 256, (20_000, 2), dtype=np.uint8)
    images, texts = features(70, seed=8)
    answers = []
    for n_jobs in (1, 2, None):
        with Index.create(tmp_path / f"{n_jobs}.cb", small_model(), n_jobs=n_jobs) as index:
            index.add(range(20_000), image_codes=codes, text_codes=codes[::-1])
            index.add([f"x{i}" for i in range(70)], images=images, texts=texts)
            index.add([f"y{i}" for i in range(70)], images=images)
            batch = index.search(texts=texts, target="document", k=30)
            single = [index.search(texts=row, target="document", k=30)[0] for row in texts]
            compare_hits(single, [(hits.ids, hits.distances) for hits in batch])
            answers.append([(hits.ids, hits.distances) for hits in batch])
    compare_hits(batch, answers[0])
    compare_hits(batch, answers[1])
