"""A view of an index that stays at one generation, and ids in writing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from crossbyte.errors import StaleReader
from crossbyte.index.docids import resolve_id
from support.index_samples import COUNT, sample
from support.index_twin import features


def test_a_pinned_view_stays_while_the_index_moves_on(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    images, texts = features(2, seed=9)
    view = index.pinned()
    before, hits = view.generation, view.search(texts=texts, k=5)
    index.add(["late"], images=images[:1], texts=texts[:1])
    index.delete([hits[0].ids[0]])
    assert (view.generation, index.generation) == (before, before + 2)
    assert "late" in index and "late" not in view and len(view) == 3 * COUNT
    again = view.search(texts=texts, k=5)
    for first, second in zip(hits, again, strict=True):
        assert first.ids == second.ids and np.array_equal(first.distances, second.distances)
    assert index.pinned().generation == index.generation
    index.close()


def test_a_compaction_ends_a_pinned_view(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    view = index.pinned()
    index.compact()
    with pytest.raises(StaleReader):
        view.search(like="p0")
    assert len(index.pinned().search(like="p0")[0]) == 10
    index.close()


def test_payloads_and_sides_of_hits_are_those_of_their_documents(tmp_path: Path) -> None:
    index, _ = sample(tmp_path / "a.cb")
    index.update_payloads(["p1", "p2"], [{"new": 1}, None])
    texts = features(3, seed=9)[1]
    for hits in index.search(texts=texts, target="document", k=40, payloads=True):
        assert index.payloads(hits) == hits.payloads
        documents = [index.get(id) for id in hits.ids]
        expected = [
            tuple(
                side
                for side, code in (("image", d.image_code), ("text", d.text_code))  # type: ignore[union-attr]
                if code is not None
            )
            for d in documents
        ]
        assert index.sides(hits) == expected
    none = index.search(texts=texts[:1], k=5, max_distance=-1e30)[0]
    assert index.payloads(none) == [] and index.sides(none) == []
    index.close()


def test_an_id_in_writing_is_the_text_or_else_the_number() -> None:
    known = {"5", 5, 6, -7}
    assert resolve_id(known, "5") == "5" and resolve_id(known, "6") == 6 and resolve_id(known, "-7") == -7
    assert resolve_id(known, "8") == "8" and resolve_id(known, "٦") == "٦"
    assert resolve_id(known, "9" * 5000) == "9" * 5000
