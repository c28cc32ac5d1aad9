"""An index with a history, the same in shards, and how their answers are compared."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from crossbyte import CMCQ, Document, Hits, Index
from crossbyte.sharding.index import ShardedIndex
from support.index_samples import fill
from support.index_twin import features

IMAGES, TEXTS = features(6, seed=21)


def live_through(target: Any) -> None:
    """Fill an index of either kind, and change it in every way."""
    fill(target)
    target.delete(["p2", "i4", 6])
    target.upsert(["p3", "new", "i5"], images=IMAGES[:3], payloads=[{"year": 1999, "kind": "a"}, None, None])
    target.update_payloads(["p4", "p5", 7], [{"year": 2004, "only": "here"}, None, {"year": "late"}])
    for name, group in (("twin 1", "g"), ("twin 2", None)):  # as near, and each in a shard of its own
        target.add([name], images=IMAGES[4:5], texts=TEXTS[4:5], groups=[group])
    target.delete(["p5"])


def made(folder: Path, model: CMCQ, n_shards: int = 3) -> tuple[Index, ShardedIndex]:
    """One index and one of shards, both with the same history and open for writing."""
    index = Index.create(folder / "one.cb", model, n_jobs=1)
    shards = ShardedIndex.create(folder / "many.cbs", model, n_shards, n_jobs=1)
    live_through(index)
    live_through(shards)
    return index, shards


def bits(hits: Hits) -> tuple[Any, ...]:
    """All that an answer says."""
    probabilities = None if hits.probabilities is None else hits.probabilities.tobytes()
    arrays = hits.distances.tobytes(), hits.numbers.tobytes(), probabilities
    said = hits.verdict, hits.no_match, hits.strengths, hits.found_by, hits.unknown_words
    return hits.ids, hits.distances.dtype, *arrays, *said, hits.payloads, hits.partial


def told(document: Document | None) -> dict[str, Any]:
    """All that a document says, comparable."""
    assert document is not None
    return {name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in vars(document).items()}  # fmt: skip


def assert_same(expected: Sequence[Hits], found: Sequence[Hits]) -> None:
    """Answers are equal bit for bit."""
    assert [bits(hits) for hits in found] == [bits(hits) for hits in expected]


def halved(number: int, hits: Hits) -> Any:
    """Distances for ``rescore`` that turn the order around."""
    return -np.asarray(hits.distances) / 2


QUESTIONS: list[dict[str, Any]] = [
    {"texts": TEXTS},
    {"images": IMAGES, "target": "image", "k": 3},
    {"texts": TEXTS[0], "target": "document", "k": 1000},
    {"images": IMAGES[:1], "target": "document", "k": 7, "payloads": True},
    {"texts": TEXTS, "k": 5, "where": "year >= 2002 AND kind IN ('a', 'b')", "payloads": True},
    {"texts": TEXTS, "k": 5, "where": "only = 'here'"},
    {"texts": TEXTS, "k": 5, "where": "NOT only = 'here' OR year = 'late'", "target": "document"},
    {"texts": TEXTS, "k": 40, "max_distance": 1.0},
    {"texts": TEXTS, "k": 4, "max_distance": -1e30},
    {"texts": TEXTS, "k": 6, "distinct": "group", "target": "document"},
    {"images": IMAGES, "k": 1000, "distinct": "group"},
    {"like": ["p1", "i7", 3, "twin 1", "new"], "k": 8},
    {"like": "twin 2", "target": "document", "k": 4, "payloads": True},
    {"like": [5, "p7"], "target": "text", "k": 4},
    {"texts": TEXTS, "k": 4, "rescore": halved},
    {"texts": TEXTS, "k": 4, "rescore": halved, "candidates": 9, "distinct": "group", "payloads": True},
    {"texts": TEXTS, "k": 4, "rescore": halved, "max_distance": -0.2, "target": "document"},
    {"texts": np.zeros_like(TEXTS[:1]), "k": 3},
    {"texts": TEXTS, "k": 5, "prior": 0.2, "match_threshold": 0.3},
]
CALIBRATED: list[dict[str, Any]] = [
    {"texts": TEXTS, "k": 20, "min_probability": 0.05},
    {"images": IMAGES, "k": 20, "min_probability": 0.05, "prior": 0.3},
]


def assert_answers_alike(index: Any, shards: Any, questions: Sequence[dict[str, Any]] = QUESTIONS) -> None:
    """Everything that can be read is the same."""
    for question in questions:
        assert_same(index.search(**question), shards.search(**question))
