"""One judge: an answer never says two things, whatever was asked, filtered, cut off or thresholded."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from support.service_samples import Client, client, feature_index, features, sample, scenes

ORDER = ["nothing", "weak", "fair", "strong"]
QUERIES: dict[str, dict[str, Any]] = {
    "a caption": {"text": scenes()[5].captions[0]},
    "a caption by words": {"text": scenes()[5].captions[0], "mode": "words"},
    "a caption by vectors": {"text": scenes()[5].captions[0], "mode": "vectors"},
    "words that no document has": {"text": "zeppelin zeppelins", "mode": "words"},
    "a picture's features": {"image_features": None},
}
OPTIONS: dict[str, tuple[Any, ...]] = {
    "where": (None, "year >= 2000", "year > 3000"),  # all, all, none
    "match_threshold": (0.0, 0.5, 1.0),
    "min_probability": (None, 1.0),
    "max_distance": (None, -1e9),
    "k": (1, 20),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    with client(sample(tmp_path_factory.mktemp("verdicts"))) as found:
        yield found


def ask(server: Client, queries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Ask in batches."""
    answers: list[dict[str, Any]] = []
    for first in range(0, len(queries), 256):
        response = server.post("/v1/search/batch", json={"queries": queries[first : first + 256]})
        answers += [json.loads(line) for line in response.text.splitlines()]
    assert len(answers) == len(queries)
    return answers


def check_answer(said: dict[str, Any]) -> None:
    """What must hold of every answer that has a verdict."""
    verdict, strengths = said["verdict"], [hit["strength"] for hit in said["hits"]]
    assert verdict in ORDER
    assert said["no_match"] is (verdict == "nothing")
    if not said["hits"]:
        assert verdict == "nothing"  # "likely", with no_match, was said of no hits at all
    most = max(ORDER.index(verdict), ORDER.index("weak"))
    assert all(ORDER.index(strength) <= most for strength in strengths)


@pytest.mark.parametrize("name", QUERIES)
def test_the_whole_truth_table(server: Client, name: str) -> None:
    table = [dict(zip(OPTIONS, values, strict=True)) for values in product(*OPTIONS.values())]
    if QUERIES[name].get("mode") == "words":  # which have no distances
        table = [row for row in table if row["max_distance"] is None]
    query = dict(QUERIES[name])
    if "image_features" in query:
        query["image_features"] = [float(value) for value in features()[0][3]]
    answers = ask(server, [query | row for row in table])
    seen = set()
    for row, said in zip(table, answers, strict=True):
        assert "error" not in said, (row, said)
        check_answer(said)
        if row["where"] == "year > 3000" or row["max_distance"] is not None:
            assert said["hits"] == [] and said["no_match"] is True
        seen.add((said["verdict"], bool(said["hits"])))
    assert ("nothing", False) in seen
    if name == "a caption":
        assert {("nothing", True), ("strong", True)} <= seen


def test_no_model_that_was_not_calibrated_judges(tmp_path: Path) -> None:
    row = [float(value) for value in features()[0][0]]
    with client(feature_index(tmp_path)) as server:
        queries: list[dict[str, Any]] = [{"image_features": row, "target": "image"}, {"like": "a"}]
        for said in ask(server, queries + [query | {"max_distance": -1e9} for query in queries]):
            assert said["verdict"] is said["no_match"] is None
            assert all(hit["strength"] is None for hit in said["hits"])
