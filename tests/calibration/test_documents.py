"""Documents known from both halves, asked by another text: crossbyte's one code beside its peers."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ
from crossbyte.calibration.baselines import has_words, keyword_distances
from crossbyte.data.synthetic import make_pairs
from crossbyte.report.measurements import DOCUMENT_NAMES, Estimate
from crossbyte.report.model_report import Report

N_GROUPS = 600


@cache
def captioned() -> tuple[Any, Any, Any]:
    """Pictures with two texts each: some words of one text, chosen twice; the picture twice."""
    drawn = make_pairs(
        N_GROUPS, 24, 60, n_classes=6, n_topics=16, noise=0.2, words_per_text=40, random_state=0
    )
    rng = np.random.default_rng(0)
    words = np.concatenate([drawn.texts.toarray()] * 2)
    texts = sparse.csr_array(words * (rng.random(words.shape) < 0.3).astype(np.float32))
    return np.concatenate([drawn.images] * 2), texts, np.tile(np.arange(N_GROUPS), 2)


def report_of(model: CMCQ, texts: Any = None, groups: Any = None) -> Report:
    images, own, numbers = captioned()
    texts, groups = own if texts is None else texts, numbers if groups is None else groups
    model.fit(images, texts, groups)
    return model.calibrate(images, texts, groups, curve=()).report_


def small_model(**parameters: Any) -> CMCQ:
    return CMCQ(n_bits=16, n_components=12, max_iter=1, random_state=0, n_jobs=1, **parameters)


@cache
def measured() -> Report:
    return report_of(small_model())


def test_all_peers_are_measured_where_texts_are_words() -> None:
    report = measured()
    assert [each.name for each in report.documents] == list(DOCUMENT_NAMES)
    by = {each.name: each for each in report.documents}
    assert [by[name].n_bytes for name in DOCUMENT_NAMES] == [2, 48, 2, None, None]
    own, chance = by["crossbyte"].recall, by["chance"].recall
    assert by["crossbyte"].gain is None and by["chance"].gain is None
    assert chance == pytest.approx([10 / report.n_held_out] * 3)
    for name in ("crossbyte", "uncompressed", "middle_rq", "keywords"):
        found = by[name]
        assert found.recall.low <= found.recall.value <= found.recall.high
        assert found.recall.low > 1.5 * chance.value
        if found.gain is not None:
            assert found.gain.value == pytest.approx(own.value - found.recall.value)
            assert found.gain.low <= found.gain.value <= found.gain.high


def test_dense_texts_have_no_keywords() -> None:
    report = report_of(small_model(), texts=captioned()[1].toarray())
    assert [each.name for each in report.documents] == [
        "crossbyte",
        "uncompressed",
        "middle_rq",
        "chance",
    ]


@pytest.mark.filterwarnings("ignore:.*equal, once prepared")
def test_nothing_is_compared_without_a_second_text_or_with_two_codes() -> None:
    images, texts, _ = captioned()
    alone = report_of(small_model(), groups=np.arange(len(images)))
    two_codes = report_of(small_model(scoring="unit"))
    twice = sparse.vstack([texts[:N_GROUPS]] * 2).tocsr()  # each text again: it would find itself
    repeated = report_of(small_model(), texts=twice)
    for report in (alone, two_codes, repeated):
        assert report.documents == () and "documents" not in report.to_dict()
        assert "Documents known from both halves" not in report.to_text()


def test_it_is_kept_and_told() -> None:
    report = measured()
    again = Report.from_dict(json.loads(json.dumps(report.to_dict())))
    assert again == report
    text = report.to_text()
    assert "Documents known from both halves" in text
    assert all(DOCUMENT_NAMES[each.name] in text for each in report.documents)
    assert "keyword overlap" in report.to_html()


@pytest.mark.parametrize(
    "change", [{"name": "x"}, {"n_bytes": 0}, {"recall": [1, 2]}, {"gain": ["0", 0, 0]}, {"recall": None}]
)
def test_documents_that_make_no_sense_are_refused(change: dict[str, Any]) -> None:
    damaged = measured().to_dict()
    damaged["documents"][1] |= change
    with pytest.raises((KeyError, TypeError, ValueError)):
        Report.from_dict(damaged)


def test_a_peer_that_finds_more_is_named() -> None:
    report = measured()
    worse = [
        each._replace(gain=Estimate(-0.2, -0.3, -0.1)) if each.name == "keywords" else each
        for each in report.documents
    ]
    damning = Report.from_dict(
        report.to_dict() | {"documents": [{**each._asdict(), "recall": list(each.recall)} for each in worse]}
    )
    assert "Keyword overlap with the document's own text found more than crossbyte." in damning.to_text()


def test_keyword_overlap_is_the_cosine_of_words() -> None:
    queries = sparse.csr_array(np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]]))
    texts = sparse.csr_array(np.array([[2.0, 0.0, 4.0], [0.0, 3.0, 0.0], [1.0, 0.0, 0.0]]))
    expected = np.array([[0.0, 1.0, 1 - 1 / np.sqrt(5)], [1.0, 1.0, 1.0]])
    assert np.allclose(keyword_distances(queries, texts), expected, atol=1e-6)
    assert has_words(texts) and has_words(sparse.csr_array((2, 3)))
    assert not has_words(texts.toarray()) and not has_words(-texts)
