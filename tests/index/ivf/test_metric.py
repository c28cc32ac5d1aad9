"""Distances for cells that pairs teach: the order that they promise, and that they serve queries better."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from crossbyte import CMCQ, Index
from crossbyte.compute.executor import Workers
from crossbyte.index.ivf.build import ProbeTrial, count_needed_cells
from crossbyte.index.ivf.centres import Metric, train_centres

N, D = 6000, 8
Rows = NDArray[np.float32]


def told(seed: int = 0, n: int = N) -> tuple[Rows, Rows]:
    """Documents, and queries that tell much of two of their properties and next to nothing of the others."""
    rng = np.random.default_rng(seed)
    documents = rng.standard_normal((n, D))
    off = np.array([0.1, 0.1, *[4.0] * (D - 2)])
    queries = documents @ turned() + off * rng.standard_normal((n, D)) @ turned() + 0.5
    return documents.astype(np.float32), queries.astype(np.float32)


def turned() -> NDArray[np.float64]:
    return np.asarray(np.linalg.qr(np.random.default_rng(9).standard_normal((D, D)))[0])


def taught() -> Metric:
    found = Metric.learn(*told())
    assert found is not None
    return found


def test_queries_choose_the_centres_that_are_nearest_by_the_metric() -> None:
    metric, (_, queries) = taught(), told(1, 50)
    centres = np.random.default_rng(2).standard_normal((30, D)).astype(np.float32)
    for index, row in enumerate(metric.query_router(centres).choose(queries, 30)):
        apart = np.square(queries[index] @ metric.query_matrix - centres).sum(axis=1)
        assert (np.diff(apart[row]) > -1e-3).all()


def test_documents_choose_the_centres_of_their_own_cells_first() -> None:
    metric, (documents, _) = taught(), told(1, 500)
    with Workers(1) as workers:
        centres = train_centres(lambda rows: documents[rows], 500, 20, workers, metric)
        cells, distances = centres.cells_of(documents, workers)
    assert (centres.router(is_own=True).choose(documents, 1)[:, 0] == cells).mean() > 0.99
    own = np.square(metric.place(documents) - centres.points[cells]).sum(axis=1)
    np.testing.assert_allclose(distances, own, atol=1e-2)


def test_a_likelier_document_is_nearer() -> None:
    """The distance is that of the likelihood: what queries are silent about hardly counts."""
    metric, (documents, queries) = taught(), told(3, 2000)
    placed, asked = metric.place(documents), queries @ metric.query_matrix
    rank = [
        int((np.square(placed - q).sum(axis=1) < np.square(p - q).sum()).sum())
        for q, p in zip(asked[:200], placed[:200], strict=True)
    ]
    plain = [
        int((np.square(documents - q).sum(axis=1) < np.square(p - q).sum()).sum())
        for q, p in zip(queries[:200], documents[:200], strict=True)
    ]
    assert np.median(rank) < np.median(plain) / 10


def test_cells_by_the_metric_are_visited_less() -> None:
    documents, queries = told(4)
    needed = []
    for metric in (None, taught()):
        with Workers(1) as workers:
            centres = train_centres(lambda rows: documents[rows], N, 80, workers, metric)
            cells = centres.cells_of(documents, workers)[0].astype(np.int64)
        trial = ProbeTrial(queries, cells[:, None], cells)
        sizes = np.bincount(cells, minlength=80)
        needed.append(count_needed_cells(centres.router(is_own=False), trial, sizes, 0.9)[1])
    assert needed[1] < needed[0] / 3


def test_few_pairs_teach_nothing() -> None:
    documents, queries = told()
    assert Metric.learn(documents[: 10 * D - 1], queries[: 10 * D - 1]) is None
    assert Metric.learn(documents[: 10 * D], queries[: 10 * D]) is not None


@pytest.mark.parametrize("alike", ["documents", "queries", "both"])
def test_equal_rows_do_no_harm(alike: str) -> None:
    documents, queries = told()
    if alike != "queries":
        documents = np.full_like(documents, 2.0)
    if alike != "documents":
        queries = np.full_like(queries, 3.0)
    found = Metric.learn(documents, queries)
    assert found is not None and all(np.isfinite(part).all() for part in found)


def test_it_goes_through_its_array() -> None:
    metric = taught()
    again = Metric.from_array(metric.to_array())
    assert all(np.array_equal(one, other) for one, other in zip(metric, again, strict=True))


def test_an_index_takes_it_where_it_serves_better(tmp_path: Path) -> None:
    def views(seed: int, n: int) -> tuple[Any, Any]:
        rng = np.random.default_rng(seed)
        shared = rng.standard_normal((n, 12))
        loud = np.array([0.1] * 3 + [3.0] * 9)
        return shared + 0.05 * rng.standard_normal((n, 12)), shared + loud * rng.standard_normal((n, 12))

    model = CMCQ(n_bits=32, mapping="cca", scoring="unit", n_components=12, random_state=0).fit(
        *views(0, 2000)
    )
    images, texts = views(1, 4000)
    with Index.create(tmp_path / "a.cb", model) as index:
        index.add(range(4000), images=images)
        index.build_cells(images=views(2, 4000)[0], texts=views(2, 4000)[1])
        known = index.cells
        assert known is not None and known.metric["image"] == "paired"
        whole = index.search(texts=texts[:300], n_probe="all")
        some = index.search(texts=texts[:300])
    with Index.open(tmp_path / "a.cb") as again:
        assert again.cells is not None and again.cells.to_dict() == known.to_dict()
        assert [hits.ids for hits in again.search(texts=texts[:300])] == [hits.ids for hits in some]
    found = [sum(n in hits.ids for n, hits in enumerate(answers)) for answers in (whole, some)]
    assert found[1] >= 0.9 * found[0] > 0
