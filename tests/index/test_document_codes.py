"""One code per document: every target finds it, whatever else there is, and it takes half the bytes."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow.parquet as parquet
import pytest

from crossbyte import CMCQ, Index
from crossbyte.cli import app
from crossbyte.compute.executor import Workers
from crossbyte.errors import DamagedIndexFile, InvalidInput
from crossbyte.index.export.faiss_index import export_faiss, faiss_distances, faiss_queries
from crossbyte.index.export.trec import write_trec
from crossbyte.index.export.vectors import export_vectors
from crossbyte.index.ivf.build import _SideBuild
from crossbyte.index.segment import CODINGS, known_halves, scanned_sides
from support.index_samples import COUNT, PAIRS, group, parts, payload
from support.index_twin import (
    TARGETS,
    Twin,
    compare,
    compare_documents,
    compare_hits,
    document_model,
    features,
    small_model,
    standard_queries,
)
from support.paths import GOLDEN

SIDES = [f"s{i}" for i in range(COUNT)]


def mixed_parts() -> list[dict[str, Any]]:
    """Documents of one code, of an image, of a text, and of two codes: arguments of ``add``."""
    images, texts = features(COUNT, seed=6)
    two_codes = {"ids": SIDES, "images": images, "texts": texts, "codes": "sides"}
    two_codes |= {"payloads": [payload(i) for i in range(COUNT)], "groups": [group(i) for i in range(COUNT)]}
    return [*parts(), two_codes]


def mixed(path: Path, model: CMCQ | None = None) -> tuple[Index, Twin]:
    """An index of documents of all these kinds, open for writing, and its twin."""
    model = model or document_model()
    index, twin = Index.create(path, model, n_jobs=1), Twin(model)
    for part in mixed_parts():
        index.add(**part)
        twin.add(**part)
    return index, twin


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[Index, Twin]]:
    index, twin = mixed(tmp_path / "a.cb")
    with index:
        yield index, twin


def asked(kind: str, n: int = 3) -> dict[str, Any]:
    images, texts = features(n, seed=99)
    return {"images": images} if kind == "image" else {"texts": texts}


# What is scanned


def test_a_code_of_the_whole_document_serves_every_target() -> None:
    table = {coding: [scanned_sides(coding, target) for target in TARGETS] for coding in CODINGS}
    assert table["document"] == [("document",)] * 3
    assert table["pair"] == table["training"] == [("image",), ("text",), ("image", "text")]
    assert table["image"] == [("image",), (), ("image",)] and table["text"] == [(), ("text",), ("text",)]
    assert known_halves("document") == known_halves("pair") == ("image", "text")
    assert known_halves("image") == ("image",)


@pytest.mark.parametrize("cross_term", ["constant", "stored"])
@pytest.mark.parametrize("calibrated", [False, True])
def test_a_mixed_index_is_its_twin(tmp_path: Path, cross_term: str, calibrated: bool) -> None:
    index, twin = mixed(tmp_path / "a.cb", document_model(cross_term, calibrated))
    with index:
        assert index.stats()["codings"] == {"document": COUNT, "image": COUNT, "text": COUNT, "pair": COUNT}
        compare(index, twin)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kind", ["image", "text"])
def test_distances_are_those_to_what_the_code_stands_for(tmp_path: Path, kind: str, target: str) -> None:
    """Nothing of the scan takes part on the right side: decode, subtract, square, sum, sort."""
    model, (images, texts) = document_model("stored"), features(200, seed=8)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        index.add(range(200), images=images, texts=texts)
        query = asked(kind)
        points = model.transform_images(**query) if kind == "image" else model.transform_texts(**query)
        codes, quantizer = model.encode_documents(images, texts), model.fitted_.quantizers["document"]
        chosen = quantizer.codewords[np.arange(codes.shape[1]), codes].astype(np.float64)
        decoded = chosen.sum(axis=1)
        expected = ((points[:, None].astype(np.float64) - decoded[None]) ** 2).sum(axis=2)
        # A stored cross term is one of 256 levels; and the coding has its constant.
        cross, levels = (decoded**2).sum(axis=1) - (chosen**2).sum(axis=(1, 2)), quantizer.cross_levels
        assert levels is not None
        nearest = levels[np.abs(cross[:, None] - levels).argmin(axis=1)]
        expected += nearest - cross + model.fitted_.document_constant
        for hits, row in zip(index.search(**query, target=target, k=200), expected, strict=True):
            assert len(hits) == 200
            np.testing.assert_allclose(hits.distances, row[hits.ids], rtol=1e-5, atol=1e-4)
            np.testing.assert_allclose(hits.distances, np.sort(row), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("target", [None, *TARGETS])
def test_a_document_asks_with_its_one_code(both: tuple[Index, Twin], target: str | None) -> None:
    index, twin = both
    found = index.search(like="p3", target=target, k=8)
    compare_hits(found, twin.search(like="p3", target=target or "document", k=8))
    several = index.search(like=["p3", "i4", "s5", 6], target=target, k=3)
    alone = [index.search(like=name, target=target, k=3)[0] for name in ("p3", "i4", "s5", 6)]
    assert [hits.ids for hits in several] == [hits.ids for hits in alone]


def test_filters_groups_and_limits_apply(both: tuple[Index, Twin]) -> None:
    index, twin = both
    for target in TARGETS:
        for query in (asked("image"), asked("text")):
            wanted = {"target": target, "k": 9, **query}
            kept = twin.search(**wanted, keep=lambda payload: (payload.get("year") or 0) >= 2003)
            compare_hits(index.search(**wanted, where="year >= 2003"), kept)
            compare_hits(index.search(**wanted, distinct="group"), twin.search(**wanted, distinct="group"))
            near = twin.search(**wanted, max_distance=1.0)
            compare_hits(index.search(**wanted, max_distance=1.0), near)


def test_documents_are_told_with_their_code_and_both_sides(both: tuple[Index, Twin]) -> None:
    index, twin = both
    document = index.get("p3")
    assert document is not None and document.document_code is not None
    assert document.image_code is None and document.text_code is None
    assert document.coding == "document" and document.sides == ("image", "text")
    assert [each.coding for each in index.documents(limit=1, where="year >= 2000")] == ["document"]
    hits = index.search(texts=features(1, seed=3)[1], target="document", k=4 * COUNT)[0]
    known = {"p": ("image", "text"), "s": ("image", "text"), "i": ("image",)}
    assert index.sides(hits) == [known.get(str(id)[0], ("text",)) for id in hits.ids]
    assert index.facets(fields=["year"])[0].n_documents == sum(
        "year" in (entry.payload or {}) for entry in twin.entries.values()
    )
    assert index.stats()["items"] == {"image": 3 * COUNT, "text": 3 * COUNT}


@pytest.mark.parametrize("target", TARGETS)
def test_explanations_add_up(both: tuple[Index, Twin], target: str) -> None:
    index, _ = both
    texts = features(1, seed=3)[1]
    hits = index.search(texts=texts, target=target, k=4 * COUNT)[0]
    for rank, (name, distance) in enumerate(zip(hits.ids, hits.distances.tolist(), strict=True), 1):
        reasons = index.explain(name, texts=texts, target=target)
        assert (reasons.distance, reasons.rank, reasons.n_ranked) == (distance, rank, len(hits))
        total = sum(share.share for share in reasons.shares) + reasons.constant
        assert total == pytest.approx(distance, abs=1e-5)
    own = index.explain("p3", texts=texts, target=target)
    assert own.coding == "document" and {share.side for share in own.shares} == {"document"}
    assert own.examples and all(set(example.shared) == {"document"} for example in own.examples)
    assert index.explain("p3", like="p4").query == "document"


# Changes


def test_it_lives_through_changes_and_a_compaction(both: tuple[Index, Twin]) -> None:
    index, twin = both
    images, texts = features(3, seed=12)
    for target in (index, twin):
        target.delete(["p2", "i4", 6, "s1"])
        target.upsert(["p3", "i5", "s7"], images=images, texts=texts, payloads=[{"year": 1999}, None, None])
        target.upsert(["p8"], images=images[:1])
        target.upsert(["p9"], images=images[:1], texts=texts[:1], codes="sides")
        target.update_payloads(["p4"], [{"year": 2004, "only": "here"}])
    compare(index, twin)
    index.compact()
    compare(index, twin)
    assert index.format == 2
    with Index.open(index.path) as reader:
        compare(reader, twin)


def test_ready_codes_blocks_and_features_give_the_same(tmp_path: Path) -> None:
    model, (images, texts) = document_model(), features(40, seed=4)
    codes = model.encode_documents(images, texts)
    blocks = [
        {"ids": range(i, i + 10), "images": images[i : i + 10], "texts": texts[i : i + 10]}
        for i in range(0, 40, 10)
    ]
    given: list[dict[str, Any]] = [
        {"ids": range(40), "images": images, "texts": texts},
        {"ids": range(40), "images": images, "texts": texts, "codes": "document"},
        {"ids": range(40), "document_codes": codes},
        {"ids": iter(blocks)},
        {"ids": iter(blocks), "codes": "document"},
    ]
    for place, arguments in enumerate(given):
        with Index.create(tmp_path / f"{place}.cb", model, n_jobs=1) as index:
            assert index.add(**arguments) == 40
            assert index.stats()["codings"] == {"document": 40}
            assert [index.get(i).document_code.tolist() for i in range(40)] == codes.tolist()
    with Index.create(tmp_path / "sides.cb", model, n_jobs=1) as index:
        index.add(iter(blocks), codes="sides")
        index.add(iter([blocks[0] | {"ids": range(90, 100), "codes": "document"}]), codes="sides")
        assert index.stats()["codings"] == {"pair": 40, "document": 10}


def test_training_documents_have_the_learned_codes(tmp_path: Path) -> None:
    model = document_model()
    with Index.from_training(tmp_path / "a.cb", model, n_jobs=1) as index:
        assert index.format == 2 and index.stats()["codings"] == {"document": 60}
        assert index.get(7).document_code.tolist() == model.document_codes_[7].tolist()


@pytest.mark.parametrize("options", [{"codes": "sides"}, {"format": 1}, {"format": 1, "codes": "sides"}])
def test_two_codes_that_were_not_learned_are_refused(tmp_path: Path, options: dict[str, Any]) -> None:
    """A code of both halves is none of an image: it has another scale, and tells of the text, too."""
    asked = 'codes="sides"' if "codes" in options else "format=1"
    told = f"^{asked}: expected .* two codes .* got one .* Index.create.* add"
    with pytest.raises(InvalidInput, match=told):
        Index.from_training(tmp_path / "a.cb", document_model(), **options)
    assert not list(tmp_path.iterdir())


def test_two_codes_that_were_learned_are_taken(tmp_path: Path) -> None:
    model = small_model()
    for format in (1, 2):
        for codes in (None, "sides"):
            path = tmp_path / f"{format} {codes}.cb"
            with Index.from_training(path, model, codes=codes, format=format, n_jobs=1) as index:
                assert index.stats()["codings"] == {"training": 60} and index.format == format
                assert index.get(7).image_code.tolist() == model.image_codes_[7].tolist()


# Bytes


@pytest.mark.parametrize("cross_term", ["constant", "stored"])
def test_one_code_takes_half_the_bytes_of_two(tmp_path: Path, cross_term: str) -> None:
    model, (images, texts) = document_model(cross_term), features(640, seed=4)
    stats = {}
    for codes in ("document", "sides"):
        with Index.create(tmp_path / f"{codes}.cb", model, n_jobs=1) as index:
            index.add(range(640), images=images, texts=texts, codes=codes)
            stats[codes] = index.stats()
            store = index.snapshot().store
            with store.reading():
                heads = [record.parts for record in store.records() if record.kind == "documents"]
            names = {name for parts in heads for name in parts if name.startswith("codes.")}
            expected = ["codes.document"] if codes == "document" else ["codes.image", "codes.text"]
            assert sorted(names) == expected
            assert sum(parts[name].n_bytes for parts in heads for name in names) == 640 * 2 * len(expected)
    memory = {codes: each["memory"]["bytes"]["codes"] for codes, each in stats.items()}
    assert 2 * memory["document"] == memory["sides"] == 2 * 640 * (2 + (cross_term == "stored"))


# Cells


def build(index: Index, **options: Any) -> None:
    images, texts = features(120, seed=77)
    index.build_cells(images=images, texts=texts, **{"n_cells": 7} | options)


def compare_all_cells(index: Index, twin: Twin) -> None:
    """Everything that an index says if a search visits all of its cells."""
    index.verify()
    compare_documents(index, twin)
    for query in standard_queries():
        compare_hits(index.search(**query, n_probe=100), twin.search(**query))


def test_cells_that_are_all_visited_find_what_the_whole_scan_finds(both: tuple[Index, Twin]) -> None:
    index, twin = both
    build(index)
    assert index.cells is not None
    assert index.cells.n_cells == {"image": 7, "text": 7, "document": 7}
    assert {"image-to-document", "text-to-document"} < set(index.cells.n_probe)
    images, texts = features(2, seed=13)
    for target in (index, twin):
        target.add(["later 1", "later 2"], images=images, texts=texts)
        target.delete(["p4"])
    compare_all_cells(index, twin)
    for kind in ("image", "text"):
        for wanted in TARGETS:
            whole = index.search(**asked(kind), target=wanted, k=20, n_probe="all")
            for n_probe in (7, 100):
                found = index.search(**asked(kind), target=wanted, k=20, n_probe=n_probe)
                assert [hits.ids for hits in found] == [hits.ids for hits in whole]
    index.compact()
    compare_all_cells(index, twin)
    index.drop_cells()
    assert index.cells is None
    compare(index, twin)


@pytest.mark.parametrize("learned", [False, True])
def test_visited_cells_are_searched_exactly(
    both: tuple[Index, Twin], monkeypatch: pytest.MonkeyPatch, learned: bool
) -> None:
    """What a search of three cells finds is the nearest of the documents in them, side by side."""
    monkeypatch.setattr("crossbyte.index.ivf.centres._PAIRS_PER_DIMENSION", 1)
    monkeypatch.setattr(
        _SideBuild, "_measure_visited", lambda self, points, metric: float((metric is not None) != learned)
    )
    index, _ = both
    build(index)
    assert index.cells is not None
    assert set(index.cells.metric.values()) == {"paired" if learned else "plain"}
    snapshot = index.snapshot()
    assert snapshot.cells is not None
    for kind in ("image", "text"):
        for target in TARGETS:
            query = {name: rows[:1] for name, rows in asked(kind).items()}
            points = index.model.transform_images(**query) if kind == "image" else (
                index.model.transform_texts(**query)
            )  # fmt: skip
            whole = index.search(**query, target=target, k=4 * COUNT, n_probe="all")[0]
            visited = set()
            for coding, partition in snapshot.partitions.items():
                sides = scanned_sides(coding, target)
                if target == "document" and coding != "document":  # all of them, by sums or not
                    visited |= set(partition.ids.take(np.arange(len(partition))))
                    continue
                for side in sides:
                    chosen = snapshot.cells.directions[kind, side].router.choose(points, 3)
                    rows = np.flatnonzero(np.isin(partition.inverted_lists[side].cells, chosen[0]))
                    visited |= set(partition.ids.take(rows))
            found = index.search(**query, target=target, k=4 * COUNT, n_probe=3)[0]
            assert found.ids == [name for name in whole.ids if name in visited]
            assert 0 < len(found) < len(whole)


def test_documents_of_a_side_without_cells_are_all_searched(tmp_path: Path) -> None:
    model, (images, texts) = document_model(), features(60, seed=4)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        index.add(range(40), images=images[:40])
        build(index)
        index.add(range(40, 60), images=images[40:], texts=texts[40:])
        found = index.search(texts=texts[:3], k=60, n_probe=1)
        assert all(set(range(40, 60)) <= set(hits.ids) and len(hits) < 60 for hits in found)
        with Index.open(index.path) as reader:
            again = reader.search(texts=texts[:3], k=60, n_probe=1)
        assert [hits.ids for hits in again] == [hits.ids for hits in found]


def test_filtered_searches_in_cells_find_enough(both: tuple[Index, Twin]) -> None:
    index, _ = both
    build(index, recall=0.2)
    for where in (None, "year = 2003", "kind = 'a' AND good = true"):
        found = index.search(**asked("text"), target="image", k=10, where=where)
        assert all(len(hits) == min(10, len(whole)) for hits, whole in zip(
            found, index.search(**asked("text"), target="image", k=200, where=where, n_probe="all"),
            strict=True,
        ))  # fmt: skip


# Probabilities


def test_documents_of_one_code_have_probabilities(tmp_path: Path) -> None:
    model = document_model(calibrated=True)
    images, texts = features(300, seed=1)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        index.add(range(300), images=images, texts=texts)
        for target in ("image", "document"):
            for hits in index.search(texts=texts[:5], target=target, k=5):
                assert hits.probabilities is not None and hits.no_match is not None
                assert ((hits.probabilities >= 0) & (hits.probabilities <= 1)).all()
                assert (np.diff(hits.probabilities) <= 0).all()
            some = index.search(texts=texts[:5], target=target, k=300, min_probability=0.01)
            assert all((hits.probabilities >= 0.01).all() for hits in some)


# Exports


@pytest.mark.parametrize("target", ["image", "text"])
def test_exports_have_the_one_code(tmp_path: Path, target: str) -> None:
    model, (images, texts) = document_model("stored"), features(80, seed=4)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        index.add([f"d{i}" for i in range(60)], images=images[:60], texts=texts[:60])
        assert export_faiss(index, tmp_path / "a.faiss", target=target) == 60
        assert export_vectors(index, tmp_path / "a.npy", target=target) == 60
        assert export_vectors(index, tmp_path / "a.parquet", target=target) == 60
        kind = "text" if target == "image" else "image"
        query = asked(kind)
        vectors = faiss_queries(model, **query)
        scores, places = faiss.read_index(str(tmp_path / "a.faiss")).search(vectors, 10)
        ids = json.loads((tmp_path / "a.faiss.ids.json").read_text())
        constant = json.loads((tmp_path / "a.faiss.json").read_text())["constant"]
        hits = index.search(**query, target=target, k=10)
        np.testing.assert_allclose(
            faiss_distances(vectors, scores, constant), [each.distances for each in hits], atol=1e-5
        )
        for row, each in zip(places, hits, strict=True):  # but for ties, and for those that did not fit in
            clear = each.distances < each.distances[-1] - 1e-4
            assert {ids[place] for place in row} >= {id for id, c in zip(each.ids, clear, strict=True) if c}
        with Workers(1) as workers:
            decoded = model.fitted_.quantizers["document"].decode(
                model.encode_documents(images[:60], texts[:60]), workers
            )
        np.testing.assert_array_equal(np.load(tmp_path / "a.npy")[:60], decoded)
        assert parquet.read_table(tmp_path / "a.parquet")["coding"].to_pylist()[:60] == ["document"] * 60
        assert write_trec(tmp_path / "a.trec", hits, ["a", "b", "c"]) == 30


def test_vectors_of_whole_documents_and_of_one_side_are_exported_together(tmp_path: Path) -> None:
    """Their codewords have the same numbers and other lengths: FAISS, which has one set, is refused."""
    model, (images, texts) = document_model(), features(80, seed=4)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        index.add([f"d{i}" for i in range(60)], images=images[:60], texts=texts[:60])
        index.add([f"i{i}" for i in range(20)], images=images[60:])
        assert export_vectors(index, tmp_path / "a.npy", target="image") == 80
        vectors = np.load(tmp_path / "a.npy")
        np.testing.assert_array_equal(vectors[60:], model.decode_images(model.encode_images(images[60:])))
        coded = model.encode_documents(images[:60], texts[:60])
        np.testing.assert_array_equal(vectors[:60], model.decode_documents(coded))
        with pytest.raises(InvalidInput, match="codes of images and of whole documents"):
            export_faiss(index, tmp_path / "a.faiss", target="image")
        assert not (tmp_path / "a.faiss").exists()


# Formats


def test_the_format_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = {
        "new": (document_model(), None, 2, "document"),
        "older": (document_model(), 1, 1, "sides"),
        "two": (small_model(), None, 1, "sides"),
        "no use": (small_model(), 2, 2, "sides"),
    }
    for name, (model, wanted, format, codes) in made.items():
        path = tmp_path / f"{name}.cb"
        with Index.create(path, model, format=wanted, n_jobs=1) as index:
            assert index.format == format
            assert (index.stats()["format"], index.stats()["codes"]) == (format, codes)
            images, texts = features(3, seed=1)
            index.add(range(3), images=images, texts=texts)
            assert index.stats()["codings"] == {"document" if codes == "document" else "pair": 3}
        with sqlite3.connect(path) as connection:
            assert connection.execute("PRAGMA user_version").fetchone() == (format,)
        with Index.open(path) as reader:
            assert reader.format == reader.pinned().format == format
            reader.backup(tmp_path / f"{name} again.cb")
        with Index.open(tmp_path / f"{name} again.cb") as copy:
            assert copy.format == format
        assert app.run(["info", str(path)]) == 0
        words = "one code" if codes == "document" else "two codes"
        assert f"format {format}: {words} for a new document" in capsys.readouterr().out


@pytest.mark.parametrize("format", [0, 3, "2", True, 1.0])
def test_other_formats_are_refused(tmp_path: Path, format: Any) -> None:
    with pytest.raises(InvalidInput, match="format"):
        Index.create(tmp_path / "a.cb", document_model(), format=format)
    with pytest.raises(InvalidInput, match="format"):
        Index.from_training(tmp_path / "a.cb", document_model(), format=format)
    assert not list(tmp_path.iterdir())


def test_a_format_1_index_refuses_what_only_format_2_has(tmp_path: Path) -> None:
    model, (images, texts) = document_model(), features(3, seed=1)
    codes = model.encode_documents(images, texts)
    with Index.create(tmp_path / "a.cb", model, format=1, n_jobs=1) as index:
        for wrong in (
            {"images": images, "texts": texts, "codes": "document"},
            {"images": images, "codes": "document"},
            {"document_codes": codes},
        ):
            for write in (index.add, index.upsert):
                with pytest.raises(
                    InvalidInput, match=r'format 2, and this one has format 1; create a new.*"sides"'
                ):
                    write(range(3), **wrong)
        assert index.generation == 1 and len(index) == 0
    with pytest.raises(InvalidInput, match="this one has format 1"):
        Index.from_training(tmp_path / "b.cb", model, format=1, codes="document")
    assert not (tmp_path / "b.cb").exists()


def test_a_model_without_document_codes_is_told(tmp_path: Path) -> None:
    model, (images, texts) = small_model(), features(3, seed=1)
    for format in (1, 2):
        with Index.create(tmp_path / f"{format}.cb", model, format=format, n_jobs=1) as index:
            with pytest.raises(InvalidInput, match=r'model has no codes of whole documents.*codes="sides"'):
                index.add(range(3), images=images, texts=texts, codes="document")
            with pytest.raises(InvalidInput, match="document_codes: the model has no codes of whole"):
                index.add(range(3), document_codes=np.zeros((3, 2), np.uint8))
            assert index.generation == 1
    with pytest.raises(InvalidInput, match="no codes of whole documents"):
        Index.from_training(tmp_path / "a.cb", model, format=2, codes="document")


def test_codes_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    model, (images, texts) = document_model(), features(3, seed=1)
    codes = model.encode_documents(images, texts)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"images": images, "texts": texts, "codes": "both"}, "codes: expected"),
        ({"images": images, "texts": texts, "codes": 1}, "codes: expected"),
        ({"document_codes": codes, "image_codes": codes}, "document_codes= alone"),
        ({"document_codes": codes, "codes": "sides"}, "expected image_codes= and text_codes="),
        ({"image_codes": codes, "text_codes": codes, "codes": "document"}, "expected document_codes="),
        ({"document_codes": codes, "images": images}, "got both kinds"),
        ({"document_codes": codes[:2]}, r"one document per id \(3\), got 2 rows"),
        ({"document_codes": codes[:, :1]}, "codes"),
        ({"codes": "document"}, "got neither"),
    ]
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        for arguments, message in wrong:
            with pytest.raises(InvalidInput, match=message):
                index.add(range(3), **arguments)
        assert index.generation == 1 and len(index) == 0
        index.add(range(3), image_codes=codes, text_codes=codes)
        assert index.stats()["codings"] == {"pair": 3}  # ready codes say what they are


def test_golden_files_keep_their_format(tmp_path: Path) -> None:
    for golden in GOLDEN.glob("index-*.cb"):
        path, format = tmp_path / golden.name, 2 if golden.name.startswith("index-documents") else 1
        shutil.copy(golden, path)
        with Index.open(path, "rw") as index:
            assert index.format == format
            assert index.stats()["codes"] == ("document" if format == 2 else "sides")
            index.compact()
            assert index.format == format


def test_document_codes_in_a_file_of_format_1_are_damage(both: tuple[Index, Twin], tmp_path: Path) -> None:
    both[0].backup(tmp_path / "b.cb")
    with sqlite3.connect(tmp_path / "b.cb") as connection:
        connection.execute("PRAGMA user_version = 1")
    with pytest.raises(DamagedIndexFile, match="codes that neither its format nor its model knows"):
        Index.open(tmp_path / "b.cb")


# Crashes

_VICTIM = """
import os, signal, sys
import numpy as np
from crossbyte import Index
from crossbyte.index.storage import records, store
index = Index.open(sys.argv[1], "rw", n_jobs=1)
codes = np.zeros((500, 2), np.uint8)
index.add(range(1000, 1500), document_codes=codes)
def die(*arguments, **options):
    written = write(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
write, store.write_change = store.write_change, die
index.add(range(2000, 2500), document_codes=codes)
"""


def test_a_killed_writer_leaves_the_last_commit(both: tuple[Index, Twin]) -> None:
    index, twin = both
    path = index.path
    index.close()
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run([sys.executable, "-c", _VICTIM, path], env=environment, check=False)
    assert ended.returncode == -signal.SIGKILL
    twin.add(range(1000, 1500), document_codes=np.zeros((500, 2), np.uint8))
    with Index.open(path, "rw") as again:
        assert again.format == 2
        again.verify()
        compare_documents(again, twin)
        again.delete(list(range(1000, 1500)))
        again.compact()
        assert again.get(PAIRS[0]) is not None and len(again) == 4 * COUNT
