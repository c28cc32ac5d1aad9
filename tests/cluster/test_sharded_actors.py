"""Shards in actors: the same answers through Ray; a lost one is said, missed by none in silence, and back."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from crossbyte import Index
from crossbyte.errors import ClusterError, DamagedIndexFile, IndexLocked, StaleReader, UnknownId
from crossbyte.sharding.index import ShardedIndex
from crossbyte.sharding.split import split_index
from support.index_twin import features, small_model
from support.killed_shards import killed
from support.sharded_samples import (
    CALIBRATED,
    IMAGES,
    QUESTIONS,
    TEXTS,
    assert_answers_alike,
    assert_same,
    live_through,
    told,
)

Both = tuple[Index, ShardedIndex]
N_SHARDS, SECONDS = 2, 60.0


@pytest.fixture(scope="module")
def both(cluster: str, tmp_path_factory: Any) -> Iterator[Both]:
    """An index, and its shards in actors; every test leaves both with the same documents."""
    tmp_path: Path = tmp_path_factory.mktemp("shards")
    index = Index.create(tmp_path / "one.cb", small_model(calibrated=True), n_jobs=1)
    live_through(index)
    split_index(index.path, tmp_path / "many.cbs", N_SHARDS)
    with index, ShardedIndex.open(tmp_path / "many.cbs", "rw", cluster=cluster) as shards:
        yield index, shards


def until(happens: Callable[[], bool]) -> None:
    """Wait for something that must come."""
    end = time.monotonic() + SECONDS
    while not happens():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)


def test_actors_answer_as_one_index_does(both: Both, cluster: str) -> None:
    index, shards = both
    assert_answers_alike(index, shards, [*QUESTIONS, *CALIBRATED])
    assert shards.ids() == index.ids() and shards.facets() == index.facets()
    assert [told(d) for d in shards.documents(limit=9)] == [told(d) for d in index.documents(limit=9)]
    expected = index.explain("i7", texts=TEXTS[0]).to_dict()
    assert shards.explain("i7", texts=TEXTS[0]).to_dict() == expected
    view = shards.pinned()
    for each in both:
        each.upsert(["late", "p9"], images=IMAGES[:2])
        each.delete(["p10"])
    assert shards.add(["coded there"], images=IMAGES[2:3], cluster=cluster) == 1
    index.add(["coded there"], images=IMAGES[2:3])
    assert "late" in shards and "late" not in view and "p10" in view
    assert_answers_alike(index, shards, QUESTIONS[:4])
    with pytest.raises(UnknownId, match="'nobody'; nothing was changed"):
        shards.delete(["nobody"])
    shards.compact()
    shards.verify()
    with pytest.raises(StaleReader):
        view.search(texts=TEXTS)
    assert_answers_alike(index, shards, QUESTIONS[:4])


def test_actors_tell_of_their_cells_and_drop_them(cluster: str, tmp_path: Path) -> None:
    images, texts = features(120, seed=77)
    with Index.create(tmp_path / "one.cb", small_model()) as index:
        live_through(index)
        index.build_cells(images=images, texts=texts, n_cells=9, recall=0.5)
        split_index(index.path, tmp_path / "many.cbs", 2)
        with ShardedIndex.open(tmp_path / "many.cbs", "rw", cluster=cluster) as shards:
            assert index.cells is not None and shards.cells is not None
            assert shards.cells.to_dict() == index.cells.to_dict()
            shards.drop_cells()
            assert shards.cells is None


def test_a_lost_shard_is_said_until_it_is_back(both: Both) -> None:
    index, shards = both
    view, size, n_hits = shards.pinned(), len(index), {"k": 1000, "target": "document"}
    whole = [set(hits.ids) for hits in index.search(texts=TEXTS, **n_hits)]  # type: ignore[arg-type]
    with killed(shards, 1):
        assert shards.search(texts=TEXTS, payloads=True)[0].partial
        answers = shards.search(texts=TEXTS, **n_hits)  # type: ignore[arg-type]
        assert all(hits.partial and 0 < len(hits) < size for hits in answers)
        assert all(set(hits.ids) < ids for hits, ids in zip(answers, whole, strict=True))
        assert len(shards) == size and shards.lost == ("shard-0001.cb",)
    until(lambda: not shards.search(texts=TEXTS)[0].partial)
    assert shards.lost == () and not shards.stats()["partial"]
    assert_answers_alike(index, shards)
    assert_same(index.search(texts=TEXTS), view.search(texts=TEXTS))


@contextmanager
def silenced(shards: ShardedIndex, shard: int) -> Iterator[None]:
    """Have an actor not answer, as if its machine were cut off; others need not wait long for it."""
    pool: Any = shards._pool
    process = pool.ask("process", {shard: ()})[shard]
    os.kill(process, signal.SIGSTOP)
    seconds, pool._liveness.timeout = pool._liveness.timeout, 0.5
    try:
        yield
    finally:
        pool._liveness.timeout = seconds
        os.kill(process, signal.SIGCONT)


def test_nothing_is_written_or_left_out_while_a_shard_is_lost(both: Both) -> None:
    index, shards = both
    before = shards.ids()
    with silenced(shards, 0):
        hits = shards.search(texts=TEXTS, k=1000, target="document")[0]
        assert hits.partial and 0 < len(hits) < len(before) and shards.lost == ("shard-0000.cb",)
        assert shards.payloads(hits) == index.payloads(hits) and shards.sides(hits) == index.sides(hits)
        whole = index.search(texts=TEXTS, k=1000, target="document")[0]
        for ask in (
            lambda: shards.payloads(whole),
            lambda: shards.add(["x"], images=IMAGES[:1]),
            lambda: shards.delete(before[:3]),
            lambda: shards.update_payloads(before[:3], [None] * 3),
            lambda: shards.compact(),
            lambda: shards.ids(),
            lambda: shards.get("nobody"),
            lambda: shards.documents(),
            lambda: shards.facets(),
            lambda: shards.explain(hits.ids[0], texts=TEXTS[0], target="document"),
            lambda: shards.search(like="nobody"),
        ):
            with pytest.raises(ClusterError, match=r"shard-0000\.cb of 2 shards cannot be reached"):
                ask()
        assert len(shards) == len(before) and shards.get(hits.ids[0]) is not None
        stats = shards.stats()
        assert stats["partial"] and [each["lost"] for each in stats["shards"]] == [True, False]
    until(lambda: not shards.search(texts=TEXTS)[0].partial)
    assert shards.ids() == before and shards.lost == ()
    assert_answers_alike(index, shards)
    for each in both:
        each.add(["x"], images=IMAGES[:1])
    assert shards.ids() == index.ids()


def test_all_shards_lost_is_an_error(both: Both) -> None:
    index, shards = both
    with killed(shards, 0, 1), pytest.raises(ClusterError, match="none of its 2 shards answers"):
        shards.search(texts=TEXTS)
    until(lambda: _answers(shards))
    assert_answers_alike(index, shards, QUESTIONS[:4])


def _answers(shards: ShardedIndex) -> bool:
    try:
        return not shards.search(texts=TEXTS)[0].partial
    except ClusterError:
        return False


def test_what_a_restarted_shard_has_more_is_seen(both: Both) -> None:
    """Killed right after a commit of which the driver never heard, a shard comes back with it."""
    index, shards = both
    view = shards.pinned()
    shards._pool.ask("delete", {0: (["p11"], ())})  # behind the driver's back
    with killed(shards, 0):
        assert shards.search(texts=TEXTS)[0].partial
    until(lambda: not shards.search(texts=TEXTS)[0].partial)
    assert "p11" not in shards
    with pytest.raises(StaleReader):
        view.search(texts=TEXTS)
    index.delete(["p11"])
    assert_answers_alike(index, shards, [{"texts": TEXTS}])


def test_what_is_wrong_with_a_file_is_said_as_itself(both: Both, cluster: str) -> None:
    _, shards = both
    with pytest.raises(IndexLocked):
        ShardedIndex.open(shards.path, "rw", cluster=cluster)
    with ShardedIndex.open(shards.path, cluster=cluster) as reader:
        assert len(reader) == len(shards)


def test_a_broken_shard_and_a_wrong_address_are_refused(cluster: str, tmp_path: Path) -> None:
    ShardedIndex.create(tmp_path / "s.cbs", small_model(), 2).close()
    with pytest.raises(ClusterError, match="connected to"):
        ShardedIndex.open(tmp_path / "s.cbs", cluster="127.0.0.1:1")
    name = tmp_path / "s.cbs" / "shard-0001.cb"
    data = bytearray(name.read_bytes())
    data[-3000:] = bytes(3000)
    name.write_bytes(data)
    with pytest.raises(DamagedIndexFile):
        ShardedIndex.open(tmp_path / "s.cbs", cluster=cluster)
