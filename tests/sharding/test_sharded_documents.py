"""Documents of one code in shards: what one file answers, and the format of all files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from crossbyte import Index, split_index
from crossbyte.cli import app
from crossbyte.errors import InvalidInput
from crossbyte.index.scan import Query
from crossbyte.sharding.index import ShardedIndex
from crossbyte.sharding.wire import make_sendable, pack_query, unpack_query
from support.index_twin import TARGETS, document_model, features, small_model
from support.sharded_samples import assert_same, live_through, made, told


def asked(kind: str) -> dict[str, Any]:
    images, texts = features(3, seed=99)
    return {"images": images} if kind == "image" else {"texts": texts}


def compare(index: Index, shards: ShardedIndex, **options: Any) -> None:
    for target in TARGETS:
        for query in (asked("image"), asked("text"), {"like": ["p6", "i3", "s3"]}):
            for where in (None, "year >= 2002"):
                wanted = {**query, "target": target, "where": where, "k": 9, **options}
                assert_same(index.search(**wanted), shards.search(**wanted))
    assert index.ids() == shards.ids()
    assert [told(index.get(id)) for id in index.ids()] == [told(shards.get(id)) for id in index.ids()]
    hits = index.search(**asked("text"), target="document", k=50)[0]
    assert index.sides(hits) == shards.sides(hits)


def add_two_codes(target: Any) -> None:
    images, texts = features(9, seed=31)
    target.add([f"s{i}" for i in range(9)], images=images, texts=texts, codes="sides")


@pytest.mark.parametrize("calibrated", [False, True])
def test_shards_answer_as_one_file(tmp_path: Path, calibrated: bool) -> None:
    index, shards = made(tmp_path, document_model(calibrated=calibrated))
    with index, shards:
        add_two_codes(index)
        add_two_codes(shards)
        assert index.format == shards.format == 2
        assert set(index.stats()["codings"]) == {"document", "image", "text", "pair"}
        whole = shards.stats()
        assert {name: whole[name] for name in ("format", "codes", "codings", "items")} == {
            name: index.stats()[name] for name in ("format", "codes", "codings", "items")
        }
        compare(index, shards)
        shards.compact()
        shards.verify()
        compare(index, shards)
        for target in TARGETS:
            query = {"texts": features(1, seed=99)[1], "target": target}
            assert index.explain("p6", **query) == shards.explain("p6", **query)


def test_shards_keep_format_and_cells(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a.cb", document_model(), n_jobs=1) as index:
        live_through(index)
        add_two_codes(index)
        images, texts = features(120, seed=77)
        index.build_cells(images=images, texts=texts, n_cells=5, recall=0.5)
        split_index(index.path, tmp_path / "a.cbs", 3)
        with ShardedIndex.open(tmp_path / "a.cbs", "rw", n_jobs=1) as shards:
            assert shards.format == 2 and shards.cells is not None and index.cells is not None
            assert shards.cells.n_probe == index.cells.n_probe and "text-to-document" in shards.cells.n_probe
            compare(index, shards)
            for n_probe in (1, 3):
                for kind in ("image", "text"):
                    for target in TARGETS:
                        wanted = {**asked(kind), "target": target, "n_probe": n_probe, "k": 9}
                        assert_same(index.search(**wanted), shards.search(**wanted))
            for target in (index, shards):
                target.add(["late 1", "late 2"], images=images[:2], texts=texts[:2])
            compare(index, shards)
            shards.backup(tmp_path / "b.cbs")
        with ShardedIndex.open(tmp_path / "b.cbs", n_jobs=1) as again:
            assert again.format == 2
            compare(index, again)


def test_shards_of_format_1_stay_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, (images, texts) = document_model(), features(4, seed=1)
    with ShardedIndex.create(tmp_path / "a.cbs", model, 2, format=1, n_jobs=1) as shards:
        assert shards.format == 1 and shards.pinned().format == 1
        shards.add(range(4), images=images, texts=texts)
        assert shards.stats()["codings"] == {"pair": 4} and shards.stats()["codes"] == "sides"
        with pytest.raises(InvalidInput, match='this one has format 1; create a new index.*codes="sides"'):
            shards.add(range(10, 14), images=images, texts=texts, codes="document")
        with pytest.raises(InvalidInput, match="this one has format 1"):
            shards.upsert(range(4), document_codes=model.encode_documents(images, texts))
        assert len(shards) == 4
    assert app.run(["info", str(tmp_path / "a.cbs")]) == 0
    assert "format 1: two codes" in capsys.readouterr().out
    with pytest.raises(InvalidInput, match="format"):
        ShardedIndex.create(tmp_path / "b.cbs", model, 2, format=3)
    assert not (tmp_path / "b.cbs").exists()
    with ShardedIndex.create(tmp_path / "c.cbs", small_model(), 2, n_jobs=1) as shards:
        assert shards.format == 1


def test_queries_with_cells_by_side_travel() -> None:
    points = document_model().transform_texts(features(2, seed=3)[1])
    offsets = {"document": 0.25}
    query = Query(points, "image", 5, 1.5, lambda coding: offsets.get(coding, 0.0), "text")
    query = query._replace(n_probe={"document": 3, "image": 2})
    again, rest = unpack_query(pack_query(make_sendable(query), None, True))
    assert again.n_probe == query.n_probe and rest == [None, True]
    assert (again.offset("document"), again.offset("pair")) == (0.25, 0.0)
