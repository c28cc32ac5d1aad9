"""Cells: what is visited is searched exactly, whatever happened to the index, and the curve is true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, Index
from crossbyte.cli import app
from crossbyte.compute.executor import Workers
from crossbyte.errors import DamagedIndexFile, InvalidInput, ReadOnlyIndex
from crossbyte.index import mutations
from crossbyte.index.ivf import centres as metric
from crossbyte.index.ivf.build import ProbeTrial, _SideBuild, count_needed_cells, measure_curve
from crossbyte.index.ivf.centres import Centres, train_centres
from crossbyte.index.ivf.router import (
    CellRouter,
    RouterTrainingSet,
    fit_linear_router,
    fit_means_router,
    fit_softmax_router,
)
from crossbyte.index.storage.records import NewRecord
from support.index_samples import fill, parts, sample
from support.index_twin import Twin, compare_searches, features, small_model

N_CELLS = 7
DIRECTIONS = [(kind, target) for kind in ("image", "text") for target in ("image", "text")]


def build(index: Index, **options: Any) -> None:
    images, texts = features(120, seed=77)
    index.build_cells(images=images, texts=texts, **{"n_cells": N_CELLS} | options)


@pytest.fixture(params=["plain", "paired"])
def index(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Documents of every kind in cells, each of them three times under other ids, so that all are ties."""
    taught = request.param == "paired"
    monkeypatch.setattr(metric, "_PAIRS_PER_DIMENSION", 1)
    monkeypatch.setattr(
        _SideBuild, "_measure_visited", lambda self, points, metric: float((metric is not None) != taught)
    )
    made, _ = sample(tmp_path / "a.cb")
    with made:
        for copy in "xy":
            for part in parts():
                made.add(**part | {"ids": [f"{copy}{part['ids'][0]}-{i}" for i in range(len(part["ids"]))]})
        build(made)
        assert made.cells is not None and set(made.cells.metric.values()) == {request.param}
        yield made


def asked(kind: str, n: int = 3) -> dict[str, Any]:
    images, texts = features(n, seed=99)
    return {"images": images} if kind == "image" else {"texts": texts}


def cells_by_number(index: Index, side: str) -> dict[int, int]:
    partitions = index.snapshot().partitions.values()
    found: dict[int, int] = {}
    for partition in partitions:
        if side in partition.codes:
            numbers = partition.numbers[np.arange(len(partition))].tolist()
            found |= dict(zip(numbers, partition.inverted_lists[side].cells.tolist(), strict=True))
    return found


def visited(index: Index, kind: str, target: str, n_probe: int, query: dict[str, Any]) -> list[set[int]]:
    state = index.snapshot().cells
    assert state is not None
    model = index.model
    points = (
        model.transform_images(query["images"]) if kind == "image" else model.transform_texts(query["texts"])
    )
    scores = state.directions[kind, target].router.scores(points)
    return [set(row) for row in np.argsort(scores, axis=1, kind="stable")[:, :n_probe].tolist()]


def naive(
    index: Index, kind: str, target: str, n_probe: int, query: dict[str, Any], **options: Any
) -> list[Any]:
    """All documents, sorted by the exhaustive search; those of other cells left out."""
    k = options.pop("k")
    distinct = options.pop("distinct", None)
    whole = index.search(**query, target=target, k=10**6, n_probe="all", **options)
    cells = cells_by_number(index, target)
    answers = []
    for hits, own in zip(whole, visited(index, kind, target, n_probe, query), strict=True):
        seen: set[Any] = set()
        kept: list[Any] = []
        for id, distance, number in zip(hits.ids, hits.distances, hits.numbers.tolist(), strict=True):
            document = index.get(id) if distinct else None
            group = None if document is None else document.group
            if cells[number] in own and (group is None or group not in seen):
                kept.append((id, distance, number))
                seen.add(group)
        answers.append(kept[:k])
    return answers


def compare(index: Index, probes: tuple[int, ...] = (1, 3), **options: Any) -> None:
    """Every direction, beside the naive search of the visited cells."""
    options = {"k": 6} | options
    for kind, target in DIRECTIONS:
        query = asked(kind)
        for n_probe in probes:
            expected = naive(index, kind, target, n_probe, query, **options)
            found = index.search(**query, target=target, n_probe=n_probe, **options)
            for hits, right in zip(found, expected, strict=True):
                assert hits.ids == [id for id, _, _ in right]
                assert hits.numbers.tolist() == [number for _, _, number in right]
                assert hits.distances.tobytes() == np.array([d for _, d, _ in right], np.float32).tobytes()


# What is found


@pytest.mark.parametrize("options", [{"k": 1}, {"k": 6}, {"k": 1000}, {"max_distance": 0.6}])
def test_visited_cells_are_searched_exactly(index: Index, options: dict[str, Any]) -> None:
    compare(index, (1, 2, 5), **options)


def test_filters_and_groups(index: Index) -> None:
    compare(index, where="year >= 2002 AND kind IN ('a', 'b')")
    compare(index, distinct="group", k=4)
    compare(index, distinct="group", where="good = true", k=3)


def test_everything_goes_on_after_the_build(index: Index) -> None:
    images, texts = features(40, seed=3)
    index.add([f"new{i}" for i in range(20)], images=images[:20], texts=texts[:20])
    compare(index)
    index.add([f"more{i}" for i in range(3)], texts=texts[20:23])
    index.delete(["p1", "i3", "new4"])
    index.upsert(["p5", "i7"], images=images[30:32])
    compare(index)
    index.compact()
    compare(index)
    with Index.open(index.path) as other:
        compare(other)
        index.add(["late"], images=images[39:])
        view = other.pinned()
        assert other.refresh() and "late" in other and "late" not in view
        compare(other)
        assert cells_by_number(other, "image") == cells_by_number(index, "image")
    index.verify()


def test_no_cells_means_everything(index: Index, tmp_path: Path) -> None:
    twin = Twin(index.model)
    fill(twin)
    index.delete([id for id in index.ids() if str(id)[0] in "xy"])
    for kind, target in DIRECTIONS:
        query = asked(kind)
        for n_probe in ("all", N_CELLS, 10**6):
            hits = index.search(**query, target=target, k=9, n_probe=n_probe)
            for found, (ids, distances) in zip(hits, twin.search(**query, target=target, k=9), strict=True):
                assert (found.ids, found.distances.tobytes()) == (ids, distances.tobytes())
    index.drop_cells()
    assert index.cells is None
    compare_searches(index, twin)


def test_probabilities_are_those_of_the_documents_that_were_visited(tmp_path: Path) -> None:
    made, _ = sample(tmp_path / "a.cb", small_model(calibrated=True))
    with made as index:
        build(index)
        query = asked("text")
        whole = index.search(**query, k=100, n_probe="all")
        for hits, everything in zip(index.search(**query, k=5, n_probe=2), whole, strict=True):
            known = dict(zip(everything.ids, everything.probabilities, strict=True))
            assert (hits.probabilities >= [known[id] for id in hits.ids]).all()  # fewer share the partner
        for n_probe in (N_CELLS, "all"):
            for hits, everything in zip(index.search(**query, k=5, n_probe=n_probe), whole, strict=True):
                assert hits.probabilities.tobytes() == everything.probabilities[:5].tobytes()


def test_examples_and_documents_look_at_everything(index: Index) -> None:
    images, _ = features(2, seed=5)
    for query in ({"like": "p3"}, {"images": images, "target": "document"}):
        found, whole = index.search(**query), index.search(**query, n_probe="all")
        assert [hits.ids for hits in found] == [hits.ids for hits in whole]
        with pytest.raises(InvalidInput, match="looks at everything"):
            index.search(**query, n_probe=2)


def test_a_rare_filter_still_finds_all_there_are(index: Index) -> None:
    where = "deep.n = 3"
    for kind, target in DIRECTIONS:
        found = index.search(**asked(kind), target=target, where=where, k=5)
        whole = index.search(**asked(kind), target=target, where=where, k=5, n_probe="all")
        assert [hits.ids for hits in found] == [hits.ids for hits in whole]


def test_a_query_alone_and_in_a_batch_visit_the_same(index: Index) -> None:
    images, _ = features(70, seed=8)
    together = index.search(images=images, k=4, n_probe=2)
    alone = [index.search(images=image, k=4, n_probe=2)[0] for image in images]
    assert [hits.ids for hits in together] == [hits.ids for hits in alone]
    assert all(a.distances.tobytes() == b.distances.tobytes() for a, b in zip(together, alone, strict=True))


# What is written


def test_cells_outlive_the_process_and_a_copy(index: Index, tmp_path: Path) -> None:
    known = index.cells
    assert known is not None
    index.backup(tmp_path / "copy.cb")
    for path in (Path(index.path), tmp_path / "copy.cb"):
        with Index.open(path) as other:
            assert other.cells is not None and other.cells.to_dict() == known.to_dict()
            compare(other, (2,))
    assert any(name.startswith("cells:") for name in index.stats()["disk"]["bytes"])
    assert index.stats()["memory"]["bytes"]["cells"] > 0


def test_threads_change_no_byte(tmp_path: Path) -> None:
    written = []
    for n_jobs in (1, 2):
        made, _ = sample(tmp_path / f"{n_jobs}.cb", n_jobs=n_jobs)
        with made as index:
            build(index)
            with index.snapshot().store.reading():
                record = index.snapshot().store.records()[-1]
            written.append((record.document, {name: head.checksum for name, head in record.parts.items()}))
    assert written[0] == written[1]


def test_a_build_that_fails_changes_nothing(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    known, generation = index.cells, index.generation
    assert known is not None

    def full(*_: Any) -> None:
        raise OSError("no space")

    monkeypatch.setattr(index.snapshot().store, "commit", full)
    with pytest.raises(OSError, match="no space"):
        build(index, n_cells=3)
    monkeypatch.undo()
    with Index.open(index.path) as other:
        assert other.generation == generation and other.cells is not None
        assert other.cells.n_cells == known.n_cells


def test_building_again_and_dropping(index: Index) -> None:
    build(index, n_cells=4)
    assert index.cells is not None and index.cells.n_cells == {"image": 4, "text": 4}
    compare(index)
    with Index.open(index.path) as other:
        compare(other)
        index.drop_cells()
        generation = index.generation
        index.drop_cells()
        assert index.generation == generation
        other.refresh()
        assert other.cells is None
        build(index, n_cells=3)
        other.refresh()
        compare(other)


def test_documents_of_a_version_without_cells_are_given_theirs(
    index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, texts = features(12, seed=4)
    monkeypatch.setattr(mutations, "_assign_cells", lambda snapshot, segments, n_jobs: segments)
    index.add([f"old{i}" for i in range(6)], images=images[:6], texts=texts[:6])
    monkeypatch.undo()
    index.add([f"new{i}" for i in range(6)], images=images[:6], texts=texts[:6])
    with Index.open(index.path) as other:
        compare(other)
        cells = cells_by_number(other, "image")
        documents = [(other.get(f"old{i}"), other.get(f"new{i}")) for i in range(6)]
        assert all(a and b and cells[a.number] == cells[b.number] for a, b in documents)


def test_cells_of_a_later_version_are_left_alone(index: Index) -> None:
    index._commit(
        mutations.Commit([NewRecord("cells", {"version": 2, "digest": "what a later version writes"})])
    )
    assert index.cells is None
    images, _ = features(2, seed=4)
    assert len(index.search(images=images, k=3)[0]) == 3


@pytest.mark.parametrize("change", ["numbers", "cells", "centres", "choice"])
def test_damaged_cells_are_refused(index: Index, change: str) -> None:
    state = index.snapshot().cells
    assert state is not None
    partitions = index.snapshot().partitions
    numbered = {
        (c, s): x.cells.copy()
        for c, partition in partitions.items()
        for s, x in partition.inverted_lists.items()
    }
    record = type(state).of(0.9, state.sides, state.directions, numbered).to_record()
    wrong: dict[str, Any] = {
        "numbers": {"cells.pair.image": numbered["pair", "image"][:-1]},
        "cells": {"cells.pair.image": np.full_like(numbered["pair", "image"], N_CELLS)},
        "centres": {"centres.image": np.full((N_CELLS, 3), np.nan, np.float32)},
        "choice": {"choice.text-to-image": np.zeros((N_CELLS, 9), np.float32)},
    }[change]
    document = record.document
    if change == "choice":
        document["directions"]["text-to-image"]["choice"] = "learned"
    index.snapshot().store.commit(changes_of(NewRecord("cells", document, {**record.parts, **wrong}), index))
    with pytest.raises(DamagedIndexFile):
        Index.open(index.path)


def changes_of(record: NewRecord, index: Index) -> Any:
    from crossbyte.index.storage.records import Change

    return Change([record], (), index.snapshot().catalogue.next_number)


def test_another_recall_is_read_off_the_curve(index: Index) -> None:
    cells = index.cells
    assert cells is not None
    for direction, curve in cells.curve.items():
        assert cells.enough(direction, cells.recall) <= cells.n_probe[direction]
        assert cells.enough(direction, 1e-9) == curve.cells[0] and cells.enough(direction, 1.0) <= N_CELLS
        for recall in (0.3, 0.6, 0.9):
            assert curve.at(cells.enough(direction, recall))[1] >= recall
    for wrong in (("text-to-sound", 0.5), ("text-to-image", 0.0), ("text-to-image", 1.5)):
        with pytest.raises(InvalidInput):
            cells.enough(*wrong)


def test_a_side_of_few_documents_has_as_many_cells_as_it_can(tmp_path: Path) -> None:
    images, texts = features(60, seed=3)
    with Index.create(tmp_path / "a.cb", small_model()) as index:
        index.add(range(60), images=images)
        index.add(["a", "b", "c"], texts=texts[:3])
        build(index, n_cells=20)
        assert index.cells is not None and index.cells.n_cells == {"image": 20, "text": 3}
        with pytest.raises(InvalidInput, match="n_cells"):
            build(index, n_cells=61)


# Bad input


def test_bad_input_is_refused_before_anything_is_written(index: Index) -> None:
    images, texts = features(120, seed=77)
    generation = index.generation
    for wrong in (
        {"n_cells": 0},
        {"n_cells": 2.5},
        {"n_cells": 65_537},
        {"n_cells": 10**4},
        {"recall": 0.0},
        {"recall": 1.5},
        {"recall": "much"},
        {"images": images[:19], "texts": texts[:19]},
        {"images": images[:50]},
        {"images": images[:, :3]},
        {"groups": np.zeros(120)},
        {"groups": [1, 2]},
    ):
        with pytest.raises(InvalidInput):
            index.build_cells(**{"images": images, "texts": texts} | wrong)
    for n_probe in (0, -1, 1.5, True, "many", [3]):
        with pytest.raises(InvalidInput):
            index.search(images=images[:1], n_probe=n_probe)  # type: ignore[arg-type]
    assert index.generation == generation


def test_an_index_without_documents_or_cells(tmp_path: Path) -> None:
    images, texts = features(60, seed=1)
    with Index.create(tmp_path / "a.cb", small_model()) as index:
        with pytest.raises(InvalidInput, match="has none"):
            index.build_cells(images=images, texts=texts)
        index.add(range(30), images=images[:30])
        with pytest.raises(InvalidInput, match="no cells"):
            index.search(texts=texts[:1], n_probe=3)
        index.build_cells(images=images, texts=texts)
        assert index.cells is not None and set(index.cells.n_cells) == {"image"}
        index.add(range(30, 40), texts=texts[:10])  # a side that has no cells is searched whole
        assert len(index.search(images=images[:1], k=20)[0]) == 10
    with Index.open(tmp_path / "a.cb") as reader, pytest.raises(ReadOnlyIndex):
        reader.build_cells(images=images, texts=texts)


# The choice, the curve, the drift


def test_a_curve_only_rises(index: Index) -> None:
    known = index.cells
    assert known is not None
    for name, curve in known.curve.items():
        for shares in (curve.items, curve.nearest, curve.partners or [0.0, 1.0]):
            assert (np.diff(shares) >= 0).all() and shares[-1] == pytest.approx(1.0)
        assert curve.cells[-1] == N_CELLS and known.n_probe[name] in curve.cells
        assert curve.at(known.n_probe[name])[1] >= known.recall


def test_cells_are_chosen_in_the_order_of_score_and_number() -> None:
    rng = np.random.default_rng(0)
    points = rng.integers(0, 3, (700, 4)).astype(np.float32)  # many ties
    router = CellRouter(points, rng.integers(0, 2, 700).astype(np.float32))
    queries = rng.integers(0, 3, (130, 4)).astype(np.float32)
    scores = router.scores(queries)
    assert np.array_equal(scores, np.square(queries[:, None] - points).sum(axis=2) + router.offsets)
    order = np.argsort(scores, axis=1, kind="stable")
    for count in (1, 13, 700):
        assert np.array_equal(router.choose(queries, count), order[:, :count])


def test_many_centres_are_found_by_groups() -> None:
    rng = np.random.default_rng(0)
    points = rng.standard_normal((6000, 5)).astype(np.float32)
    centres = Centres(rng.standard_normal((2500, 5)).astype(np.float32))
    with Workers(1) as workers:
        cells, distances = centres.cells_of(points, workers)
        with Workers(2) as two:
            assert np.array_equal(cells, centres.cells_of(points, two)[0])
        learned = train_centres(lambda rows: points[rows], len(points), 50, workers)
        _, nearer = learned.cells_of(points, workers)
    own = np.square(points - centres.points[cells]).sum(axis=1)
    assert np.allclose(own, distances, atol=1e-4)
    best = np.array([np.square(point - centres.points).sum(axis=1).min() for point in points[:300]])
    assert (distances[:300] <= best + 1e-4).mean() > 0.95
    assert nearer.mean() < np.square(points - points.mean(axis=0)).sum(axis=1).mean() / 2


def test_what_pairs_teach_beats_the_centres_where_the_sides_lie_apart() -> None:
    rng = np.random.default_rng(0)
    items = rng.standard_normal((6000, 8)).astype(np.float32)
    turned = np.linalg.qr(rng.standard_normal((8, 8)))[0].astype(np.float32)
    with Workers(1) as workers:
        centres = train_centres(lambda rows: items[rows], len(items), 60, workers)
        cells = centres.cells_of(items, workers)[0].astype(np.int64)
    queries = items @ turned + 0.1 * rng.standard_normal(items.shape).astype(np.float32)
    nearest = np.repeat(cells[:, None], 3, axis=1)
    sizes = np.bincount(cells, minlength=60)
    training_set = RouterTrainingSet(queries[:4000], cells[:4000], nearest[:4000])
    trial = ProbeTrial(queries[4000:], nearest[4000:], cells[4000:])
    plain = count_needed_cells(CellRouter.at(centres.points), trial, sizes, 0.95)
    means = count_needed_cells(fit_means_router(centres.points, training_set), trial, sizes, 0.95)
    starts = [centres.router(is_own=False), fit_linear_router(centres.points, training_set)]
    learned = count_needed_cells(fit_softmax_router(starts, training_set), trial, sizes, 0.95)
    assert means[1] < plain[1] / 2 and learned[1] < plain[1] / 2
    curve, count = measure_curve(CellRouter.at(centres.points), trial, sizes, 0.95)
    assert curve.partners is not None and count == plain[0] and curve.at(count)[1] >= 0.95


def test_drift_rises_with_documents_from_elsewhere(tmp_path: Path) -> None:
    model: CMCQ = small_model()
    rng = np.random.default_rng(0)
    codes = model.encode_images(features(2000, seed=2)[0])
    with Index.create(tmp_path / "a.cb", model) as index:
        index.add(range(1000), image_codes=codes[:1000])
        build(index, n_cells=10)
        assert index.cells is not None and index.cells.drift["image"].distance is None
        index.add(range(1000, 2000), image_codes=codes[1000:])
        alike = index.cells.drift["image"]
        assert alike.n_added == 1000 and alike.distance is not None and not alike.rebuild
        index.add(range(2000, 3000), image_codes=rng.integers(0, 256, (1000, 2)).astype(np.uint8))
        apart = index.cells.drift["image"]
        assert apart.distance is not None and apart.distance > 2 * alike.distance and apart.rebuild
        index.compact()
        assert index.cells.drift["image"] == apart and index.cells.rebuild
        build(index, n_cells=10)
        assert not index.cells.rebuild


# The command line


def test_the_verb(index: Index, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images, texts = features(120, seed=77)
    np.save(tmp_path / "i.npy", images)
    np.save(tmp_path / "t.npy", texts)
    index.close()
    pairs = ["--images", str(tmp_path / "i.npy"), "--texts", str(tmp_path / "t.npy")]
    assert app.run(["cells", index.path, *pairs, "--cells", "5", "--recall", "0.9", "--quiet"]) == 0
    assert "text to image" in capsys.readouterr().out
    query = ["search", index.path, "--texts", str(tmp_path / "t.npy"), "--row", "0", "--json"]
    assert app.run([*query, "--n-probe", "2"]) == 0 and app.run([*query, "--n-probe", "all"]) == 0
    assert app.run([*query, "--n-probe", "none"]) != 0
    assert app.run(["cells", index.path, "--drop", *pairs]) != 0
    assert app.run(["cells", index.path, "--drop"]) == 0
    assert "no cells" in capsys.readouterr().out


def test_the_verb_takes_a_folder_that_stays_on_disk(index: Index, tmp_path: Path) -> None:
    images, texts = features(120, seed=77)
    (tmp_path / "pairs").mkdir()
    np.save(tmp_path / "pairs" / "images.npy", images)
    np.save(tmp_path / "pairs" / "texts.npy", texts)
    index.close()
    assert app.run(["cells", index.path, str(tmp_path / "pairs"), "--cells", "5", "--quiet"]) == 0
