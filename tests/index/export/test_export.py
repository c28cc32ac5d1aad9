"""What other systems get is what crossbyte has: same distances, same order, and whole files."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import faiss
import numpy as np
import pyarrow.parquet as parquet
import pytest

from crossbyte import Index
from crossbyte._fs import stage_files
from crossbyte.errors import InvalidInput, MissingExtra
from crossbyte.index.export import faiss_index
from crossbyte.index.export import vectors as listing
from crossbyte.index.export.faiss_index import export_faiss, faiss_distances, faiss_queries
from crossbyte.index.export.trec import write_trec
from crossbyte.index.export.vectors import export_vectors
from crossbyte.index.hits import Hits
from support.index_samples import payload, sample
from support.index_twin import features, small_model
from support.random_models import random_index, random_model, random_queries

N_QUERIES = 1000
K = 10
OTHER = {"image": "text", "text": "image"}


def read_export(path: Path) -> tuple[Any, list[Any], dict[str, Any]]:
    """The three files of a FAISS export, read with nothing of crossbyte."""
    about = json.loads(Path(f"{path}.json").read_text())
    return faiss.read_index(str(path)), json.loads(Path(f"{path}.ids.json").read_text()), about


def check_alike(index: Index, path: Path, target: str, kind: str) -> None:
    """The same distances, and the same ids wherever distances differ by more than they may."""
    exported, ids, about = read_export(path)
    queries = random_queries(N_QUERIES, seed=3)[f"{kind}s"]
    vectors = faiss_queries(index.model, **{f"{kind}s": queries})
    scores, places = exported.search(vectors, K + 1)
    distances = faiss_distances(vectors, scores, about["constant"])
    hits = index.search(**{f"{kind}s": queries}, target=target, k=K + 1)
    expected = np.array([hit.distances for hit in hits])
    allowed = 1e-6 * (2 + len(index.model.image_codebooks_))  # float32: an error for each addition
    assert np.abs(distances - expected).max() <= allowed
    gaps = np.pad(np.diff(expected, axis=1), ((0, 0), (1, 0)), constant_values=np.inf)
    clear = (gaps[:, :-1] > 2 * allowed) & (gaps[:, 1:] > 2 * allowed)
    found = [[ids[place] for place in row] for row in places]
    same = np.array(
        [[a == b for a, b in zip(*pair, strict=True)] for pair in zip(found, _ids(hits), strict=True)]
    )
    assert same[:, :K][clear].all() and clear.mean() > 0.5  # with one codebook, many are tied


def _ids(hits: list[Hits]) -> list[list[Any]]:
    return [hit.ids for hit in hits]


@pytest.mark.parametrize("cross_term", ["constant", "stored"])
@pytest.mark.parametrize("n_codebooks", [1, 2, 4, 8, 16])
def test_faiss_ranks_alike(n_codebooks: int, cross_term: str, tmp_path: Path) -> None:
    """Four codings with an offset each, and deletions; 1,000 queries for each target."""
    model = random_model(n_codebooks, cross_term)
    with random_index(tmp_path / "a.cb", model, count=60) as index:
        for target in ("image", "text"):
            path = tmp_path / f"{target}.faiss"
            n_items = export_faiss(index, path, target=target)
            assert n_items == 59 + 59 + 59  # training, pairs and one-sided, the first of each deleted
            check_alike(index, path, target, OTHER[target])
            extra = 1 + (cross_term == "stored")
            assert read_export(path)[0].code_size == n_codebooks + extra


@pytest.mark.parametrize("calibrated", [False, True])
def test_faiss_ranks_alike_with_a_fitted_model_and_queries_of_the_same_kind(
    calibrated: bool, tmp_path: Path
) -> None:
    model = small_model(32, "stored", calibrated=calibrated)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        images, _ = features(300, seed=1)
        index.add(range(300), images=images)
        export_faiss(index, tmp_path / "a.faiss", target="image", query="image")
        exported, ids, about = read_export(tmp_path / "a.faiss")
        assert ids == list(range(300)) and exported.code_size == 5  # one coding: its offset is a constant
        assert (about["items"], about["query"], about["dimension"]) == (300, "image", 4)
        vectors = faiss_queries(model, images=images[:50])
        scores, _ = exported.search(vectors, 5)
        hits = index.search(images=images[:50], target="image", k=5)
        expected = np.array([hit.distances for hit in hits])
        np.testing.assert_allclose(faiss_distances(vectors, scores, about["constant"]), expected, atol=6e-6)


def test_faiss_of_nothing_finds_nothing(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a.cb", small_model(16)) as index:
        assert export_faiss(index, tmp_path / "a.faiss", target="image") == 0
        exported, ids, about = read_export(tmp_path / "a.faiss")
        vectors = faiss_queries(index.model, texts=features(2, seed=0)[1])
    scores, places = exported.search(vectors, 3)
    assert ids == [] and (places == -1).all()
    assert np.isposinf(faiss_distances(vectors, scores, about["constant"])).all()


def test_older_faiss_takes_codes_as_a_vector() -> None:
    codes = np.arange(12, dtype=np.uint8).reshape(4, 3)
    older = SimpleNamespace(codes=faiss.UInt8Vector(), ntotal=0)
    faiss_index._fill(faiss, older, codes)
    assert older.ntotal == 4 and (faiss.vector_to_array(older.codes) == codes.ravel()).all()


def test_faiss_arguments_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Index.create(tmp_path / "a.cb", small_model(16)) as index:
        with pytest.raises(InvalidInput, match="target"):
            export_faiss(index, tmp_path / "a.faiss", target="document")
        with pytest.raises(InvalidInput, match="query"):
            export_faiss(index, tmp_path / "a.faiss", target="image", query="both")
        with pytest.raises(InvalidInput, match="one kind"):
            faiss_queries(index.model)
        monkeypatch.setitem(sys.modules, "faiss", None)
        with pytest.raises(MissingExtra, match=r"pip install 'crossbyte\[faiss\]'"):
            export_faiss(index, tmp_path / "a.faiss", target="image")
    assert os.listdir(tmp_path) == ["a.cb"]


# Vectors


@pytest.mark.parametrize("rows_at_once", [7, 1000])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_vectors_are_the_decoded_codes(
    dtype: str, rows_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "_ROWS_AT_ONCE", rows_at_once)
    index, twin = sample(tmp_path / "a.cb")
    index.delete(["p3", 5])
    twin.delete(["p3", 5])
    entries = [entry for entry in twin.entries.values() if entry.text_code is not None]
    expected = index.model.decode_texts(np.array([entry.text_code for entry in entries], dtype=np.uint8))
    assert export_vectors(index, tmp_path / "a.npy", target="text", dtype=dtype) == len(entries) == 58
    vectors = np.load(tmp_path / "a.npy", mmap_mode="r", allow_pickle=False)
    assert vectors.dtype == dtype and np.array_equal(vectors, expected.astype(dtype))
    assert json.loads((tmp_path / "a.npy.ids.json").read_text()) == [entry.id for entry in entries]
    index.close()


def test_squared_distances_to_the_vectors_are_those_of_the_search(tmp_path: Path) -> None:
    """But for the rounding of the stored cross term: half a level."""
    model = small_model(32, "stored")
    images, texts = features(100, seed=2)
    with Index.create(tmp_path / "a.cb", model, n_jobs=1) as index:
        index.add(range(100), images=images)
        export_vectors(index, tmp_path / "a.npy", target="image")
        hits = index.search(texts=texts[0], k=100)[0]
    apart = model.transform_texts(texts[:1]) - np.load(tmp_path / "a.npy")[hits.ids]
    levels = model.fitted_.image_quantizer.cross_levels
    assert levels is not None
    inside = (apart**2).sum(axis=1)
    assert np.median(np.abs(inside - hits.distances)) <= np.diff(levels).max() / 2 + 1e-6


@pytest.mark.parametrize("rows_at_once", [7, 1000])
def test_parquet_holds_documents(rows_at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listing, "_ROWS_AT_ONCE", rows_at_once)
    index, twin = sample(tmp_path / "a.cb")
    assert export_vectors(index, tmp_path / "a.parquet", target="image", dtype="float16") == 60
    table = parquet.read_table(tmp_path / "a.parquet")
    assert table.column_names == ["id", "number", "coding", "vector", "payload"]
    entries = [entry for entry in twin.entries.values() if entry.image_code is not None]
    columns = table.to_pydict()
    assert columns["id"] == [entry.id for entry in entries]
    assert columns["number"] == [entry.number for entry in entries]
    assert columns["coding"] == [entry.coding for entry in entries]
    payloads = [None if text is None else json.loads(text) for text in columns["payload"]]
    assert payloads == [payload(i) for i in range(30)] * 2
    expected = index.model.decode_images(np.array([entry.image_code for entry in entries], dtype=np.uint8))
    assert np.array_equal(np.array(columns["vector"], np.float16), expected.astype(np.float16))
    assert table.schema.field("vector").type.list_size == 3
    assert export_vectors(index, tmp_path / "b", target="text", form="parquet") == 60
    ids = parquet.read_table(tmp_path / "b")["id"]
    assert str(ids.type) == "string" and ids.to_pylist()[-1] == "29"  # strings and integers: strings
    index.delete(twin_pairs := [entry.id for entry in twin.entries.values() if entry.coding == "pair"])
    assert len(twin_pairs) == 30 and export_vectors(index, tmp_path / "c.parquet", target="text") == 30
    assert str(parquet.read_table(tmp_path / "c.parquet")["id"].type) == "int64"
    index.close()


def test_vectors_of_nothing(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a.cb", small_model(16)) as index:
        for name in ("a.npy", "a.parquet"):
            assert export_vectors(index, tmp_path / name, target="text") == 0
    assert np.load(tmp_path / "a.npy").shape == (0, 3)
    assert parquet.read_table(tmp_path / "a.parquet").num_rows == 0


def test_vectors_arguments_are_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, _ = sample(tmp_path / "a.cb")
    for name, arguments in (
        ("a.csv", {"target": "image"}),
        ("a.npy", {"target": "document"}),
        ("a.npy", {"target": "image", "dtype": "int8"}),
        ("a.npy", {"target": "image", "form": "csv"}),
    ):
        with pytest.raises(InvalidInput):
            export_vectors(index, tmp_path / name, **arguments)
    with pytest.raises(FileNotFoundError, match="no such folder"):
        export_vectors(index, tmp_path / "nowhere" / "a.npy", target="image")
    words = index.model.image_codebooks_  # of the index's own copy of the model
    words *= 1e6
    with pytest.raises(InvalidInput, match="float16 holds at most 65504"):
        export_vectors(index, tmp_path / "a.npy", target="image", dtype="float16")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingExtra, match=r"pip install 'crossbyte\[arrow\]'"):
        export_vectors(index, tmp_path / "a.parquet", target="image")
    index.close()
    assert os.listdir(tmp_path) == ["a.cb"]


def test_a_side_that_no_document_has_is_refused(tmp_path: Path) -> None:
    with Index.create(tmp_path / "a.cb", small_model(16)) as index:
        index.add(range(3), images=features(3, seed=0)[0])
        for export, name in (
            (export_faiss, "a.faiss"),
            (export_vectors, "a.npy"),
            (export_vectors, "a.parquet"),
        ):
            with pytest.raises(InvalidInput, match="no texts to export, only 3 images"):
                export(index, tmp_path / name, target="text")
    assert os.listdir(tmp_path) == ["a.cb"]


# Files


def test_nothing_is_overwritten_unless_asked(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    for name, companion in (("a.npy", ".ids.json"), ("a.faiss", ".json"), ("a.parquet", "")):
        taken = tmp_path / (name + companion)
        taken.write_text("mine")
        write: Any = export_faiss if name == "a.faiss" else export_vectors
        with pytest.raises(InvalidInput, match="something is there already"):
            write(index, tmp_path / name, target="image")
        assert taken.read_text() == "mine" and (taken.name == name or not (tmp_path / name).exists())
        write(index, tmp_path / name, target="image", overwrite=True)
        write(index, tmp_path / name, target="text", overwrite=True)
        assert taken.read_bytes() != b"mine"
    index.close()
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".tmp")]


def test_a_failure_leaves_what_was_there(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_text("old")
    with pytest.raises(KeyboardInterrupt), stage_files([old, new], overwrite=True) as names:
        Path(names[0]).write_text("half")
        raise KeyboardInterrupt
    assert old.read_text() == "old" and os.listdir(tmp_path) == ["old"]
    with pytest.raises(InvalidInput, match="regular file"), stage_files([tmp_path], overwrite=True):
        pass
    with pytest.raises(InvalidInput, match="already"), stage_files([new], overwrite=False) as names:
        Path(names[0]).write_text("ours")
        new.write_text("somebody else's")
    assert new.read_text() == "somebody else's" and len(os.listdir(tmp_path)) == 2


# TREC


def hits_of(ids: list[Any], distances: list[float]) -> Hits:
    return Hits(ids, np.array(distances, np.float32), np.arange(len(ids)))


def test_trec_runs(tmp_path: Path) -> None:
    hits = [hits_of(["a", 7], [0.1, 2.5]), hits_of([], []), hits_of(["b"], [0.0])]
    assert write_trec(tmp_path / "a.run", hits, ["q1", 2, "q3"], run_name="mine") == 3
    lines = (tmp_path / "a.run").read_text().splitlines()
    assert lines == ["q1 Q0 a 1 -0.100000001 mine", "q1 Q0 7 2 -2.5 mine", "q3 Q0 b 1 0 mine"]
    scores = [np.float32(line.split()[4]) for line in lines]
    assert scores == [np.float32(-0.1), np.float32(-2.5), np.float32(0)]  # every bit is there
    stream = io.StringIO()
    assert write_trec(stream, hits, ["q1", 2, "q3"]) == 3
    assert stream.getvalue().startswith("q1 Q0 a 1 -0.100000001 crossbyte\n")


def test_trec_runs_of_a_search(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    hits = index.search(texts=features(4, seed=8)[1], k=6)
    index.close()
    write_trec(tmp_path / "a.run", hits, range(4))
    rows = [line.split() for line in (tmp_path / "a.run").read_text().splitlines()]
    assert [row[2] for row in rows] == [str(id) for hit in hits for id in hit.ids]
    assert [row[3] for row in rows] == [str(rank) for _ in range(4) for rank in range(1, 7)]
    scores = np.array([float(row[4]) for row in rows], np.float32)
    assert np.array_equal(scores, -np.concatenate([hit.distances for hit in hits]))


def test_trec_refuses_what_it_cannot_say(tmp_path: Path) -> None:
    path = tmp_path / "a.run"
    one = [hits_of(["a"], [1.0])]
    for hits, queries, run in (
        (one, ["a b"], "run"),
        (one, [""], "run"),
        (one, ["q"], "my run"),
        (one, ["q", "r"], "run"),
        (one * 2, [1, "1"], "run"),
        ([hits_of(["a b"], [1.0])], ["q"], "run"),
        ([hits_of(["a\u2003b"], [1.0])], ["q"], "run"),
        ([hits_of([1, "1"], [1.0, 2.0])], ["q"], "run"),
    ):
        with pytest.raises(InvalidInput):
            write_trec(path, hits, queries, run)
    assert not path.exists()
    write_trec(path, one, ["q"])
    with pytest.raises(InvalidInput, match="already"):
        write_trec(path, one, ["q"])
    assert write_trec(path, one * 2, ["q", "r"], overwrite=True) == 2
