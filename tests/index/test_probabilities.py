"""Probabilities, 'nothing matches' and their options through a search, beside a naive computation."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from math import exp, log
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, Index
from crossbyte.calibration.calibration import Likelihood, equal_bins, expected_error
from crossbyte.errors import InvalidInput, NotCalibrated
from crossbyte.metrics.auroc import auroc
from support.calibration_samples import drawn, grouped_model, plain_model, settings, soft_level
from support.paths import GOLDEN

IMAGES, TEXTS, _ = drawn(6, 77)
NOBODY = np.zeros((1, 10))


def mixed_index(path: Path, model: CMCQ, training: bool = True) -> Index:
    """Documents of every coding; a few of each are gone again."""
    n = len(model.image_codes_) if training else 0
    index = (
        Index.from_training(path, model, payloads=[{"n": i % 7} for i in range(n)], n_jobs=1)
        if training
        else Index.create(path, model, n_jobs=1)
    )
    images, texts, _ = drawn(120, 78)
    images[:6], texts[:6] = IMAGES, TEXTS
    extra: dict[str, Any] = {
        "payloads": [{"n": i % 7} for i in range(40)],
        "groups": [i // 3 for i in range(40)],
    }
    index.add([f"p{i}" for i in range(40)], images=images[:40], texts=texts[:40], **extra)
    index.add([f"i{i}" for i in range(40)], images=images[40:80], **extra)
    index.add([f"t{i}" for i in range(40)], texts=texts[80:], **extra)
    index.delete(["p7", "i7", "t7"])
    return index


@pytest.fixture(scope="module")
def plain(tmp_path_factory: Any) -> Iterator[Index]:
    with mixed_index(tmp_path_factory.mktemp("plain") / "i.cb", plain_model()) as index:
        yield index


@pytest.fixture(scope="module")
def grouped(tmp_path_factory: Any) -> Iterator[Index]:
    with mixed_index(tmp_path_factory.mktemp("grouped") / "i.cb", grouped_model()) as index:
        yield index


# The naive computation


def naive_offset(model: CMCQ, n_items: int, query: str, target: str, coding: str) -> float:
    # A half that is asked for by itself, or the document: not all codings meet there.
    start, slope = model.calibration_.offsets.get((query, target, coding), (0.0, 0.0))
    return start + slope * log(min(max(n_items / model.calibration_.n_held_out, 0.01), 100.0))


def judge_of(model: CMCQ, query: str, target: str, coding: str) -> tuple[Likelihood, str, str]:
    """The likelihood, the coding it was learned from, and the target of the level."""
    level = coding if target == "document" and coding in ("image", "text") else target
    likes = [coding] if coding in ("image", "text") else [coding, "pair", level]
    if coding == "document":  # one code of both halves: as the half that is not asked with
        level = "text" if query == "image" else "image"
        likes = [coding, level]
    like = next(each for each in likes if (query, level, each) in model.calibration_.likelihoods)
    return model.calibration_.likelihoods[query, level, like], like, level


class Naive:
    """All distances and probabilities of one query, document by document."""

    def __init__(self, index: Index, query: str, row: np.ndarray, target: str) -> None:
        self.index, self.model, self.query, self.row, self.target = index, index.model, query, row, target

    def distance(self, document: Any) -> float:
        """As the search gives it, offset and all."""
        parts = []
        for side in ("image", "text", "document"):
            code = getattr(document, f"{side}_code")
            if code is not None and (self.target in ("document", side) or side == "document"):
                asked = {f"{self.query}s": self.row[None], f"{side}_codes": code[None]}
                parts.append(float(self.model.distances(**asked)[0, 0]))
        return sum(parts) + self._offset(document.coding)

    def _offset(self, coding: str, target: str | None = None) -> float:
        return naive_offset(self.model, len(self.index), self.query, target or self.target, coding)

    def _level(self, target: str, temperature: float) -> float:
        codes = {"image": self.model.image_codes_, "text": self.model.text_codes_}
        if self.model.fitted_.has_document_codes:
            codes["document"] = self.model.document_codes_
        step = (len(codes["image"]) - 1) / 4095
        if step > 1:
            codes = {side: each[[int(i * step) for i in range(4096)]] for side, each in codes.items()}
        return level_of(self.model, codes, self.query, self.row, target, temperature)

    def odds(self, document: Any, prior: float) -> float:
        """Of this document against none, before others share the partner."""
        (a, b, c, temperature), like, level = judge_of(self.model, self.query, self.target, document.coding)
        raw = self.distance(document) - self._offset(like)
        if document.coding == "document":
            raw = self.distance(document) - self._offset("document")
            raw += self._offset("document", level) - self._offset(like, level)
        return exp(a + b * raw + c * self._level(level, temperature)) * prior / (1 - prior)


def level_of(
    model: CMCQ, codes: dict[str, np.ndarray], query: str, row: np.ndarray, target: str, temperature: float
) -> float:
    whole = ["document"] if "document" in codes else ["image", "text"]
    sides = whole if target == "document" or "document" in codes else [target]
    asked = {f"{query}s": row[None]}
    total = sum(model.distances(**asked, **{f"{side}_codes": codes[side]})[0] for side in sides)
    return soft_level(np.asarray(total).tolist(), temperature)


def check(index: Index, query: str, rows: np.ndarray, target: str, prior: float | None, hits: Any) -> None:
    """Every probability of some answers."""
    for row, found in zip(rows, hits, strict=True):
        naive, one_in_all = Naive(index, query, row, target), 1 / len(index)
        hits_found = list(found)
        shared = 1 + sum(naive.odds(index.get(hit.id), prior or one_in_all) for hit in hits_found[:10])
        for place in range(0, len(found), max(1, len(found) // 12)):
            hit = hits_found[place]
            document = index.get(hit.id)
            assert hit.distance == pytest.approx(naive.distance(document), rel=1e-4, abs=1e-4)
            odds = naive.odds(document, prior or one_in_all)
            expected = odds / (shared if place < 10 else shared + odds)
            assert hit.probability == pytest.approx(expected, rel=2e-3, abs=1e-12)


CASES = [("plain", "image", "text"), ("plain", "text", "image")]
CASES += [("grouped", "text", target) for target in ("image", "text", "document")]


@pytest.mark.parametrize(("made", "query", "target"), CASES)
def test_probabilities_equal_a_plain_computation(request: Any, made: str, query: str, target: str) -> None:
    index, rows = request.getfixturevalue(made), {"image": IMAGES, "text": TEXTS}[query][:3]
    asked: dict[str, Any] = {f"{query}s": rows, "target": target}
    whole = index.search(**asked, k=10_000)
    check(index, query, rows, target, None, whole)
    seen = {"training" if isinstance(key, int) else key[0] for key in whole[0].ids}
    assert seen == {"training", "p"} | ({"i", "t"} if target == "document" else {target[0]})
    for options in (
        {"where": "n < 3"},
        {"distinct": "group"},
        {"max_distance": float(whole[0].distances[50])},
    ):
        some = index.search(**asked, k=60, **options)
        check(index, query, rows, target, None, some)
        for few, all_ in zip(some, whole, strict=True):
            stated = dict(zip(all_.ids, all_.probabilities, strict=True))
            before = np.array([stated[key] for key in few.ids])
            assert (few.probabilities >= before).all()  # fewer share the partner
            if few.ids[:10] == all_.ids[:10]:
                assert few.probabilities.tobytes() == before.tobytes()
    check(index, query, rows, target, 0.03, index.search(**asked, k=20, prior=0.03))


@pytest.mark.parametrize(("made", "query", "target"), CASES)
def test_probabilities_and_the_verdict_are_the_same_for_any_k(
    request: Any, made: str, query: str, target: str
) -> None:
    index, rows = request.getfixturevalue(made), {"image": IMAGES, "text": TEXTS}[query]
    asked: dict[str, Any] = {f"{query}s": rows, "target": target, "match_threshold": 0.25}
    for k in (1, 4, 10, 40):
        for some, all_ in zip(index.search(**asked, k=k), index.search(**asked, k=60), strict=True):
            assert (some.ids, some.no_match) == (all_.ids[:k], all_.no_match)
            assert some.probabilities.tobytes() == all_.probabilities[:k].tobytes()


@pytest.mark.parametrize(("made", "query", "target"), CASES)
def test_one_query_is_judged_as_among_many(request: Any, made: str, query: str, target: str) -> None:
    index, rows = request.getfixturevalue(made), {"image": IMAGES, "text": TEXTS}[query]
    many = index.search(**{f"{query}s": rows}, target=target, k=40)
    for row, expected in zip(rows, many, strict=True):
        (alone,) = index.search(**{f"{query}s": row}, target=target, k=40)
        assert (alone.ids, alone.no_match) == (expected.ids, expected.no_match)
        assert alone.probabilities.tobytes() == expected.probabilities.tobytes()


def test_probabilities_fall_as_distances_grow_within_a_coding(grouped: Index) -> None:
    for target in ("image", "text", "document"):
        for hits in grouped.search(texts=TEXTS, target=target, k=10_000):
            assert hits.probabilities.dtype == np.float64
            assert ((hits.probabilities >= 0) & (hits.probabilities <= 1)).all()
            codings = np.array(["training" if isinstance(key, int) else key[0] for key in hits.ids])
            for coding in set(codings):
                mine = hits.probabilities[codings == coding]
                assert (np.diff(mine) <= 1e-15).all()
                assert mine[0] > mine[-1]


def test_the_partner_is_probable(plain: Index) -> None:
    for texts, hits in zip(TEXTS, plain.search(texts=TEXTS, k=3, prior=0.01), strict=True):
        (others,) = plain.search(texts=texts, k=10_000, prior=0.01)
        assert hits.probabilities[0] > 20 * np.median(others.probabilities)


# Where there are none


def without(index: Index, **asked: Any) -> None:
    hits = index.search(**asked)
    assert hits
    for found in hits:
        assert found.probabilities is None
        assert found.no_match is None
        assert len(found)
        assert all(hit.probability is None for hit in found)


def test_without_calibration_there_are_no_probabilities(tmp_path: Path) -> None:
    model = CMCQ(8, mapping="cca", n_components=4, max_iter=1, random_state=0, n_jobs=1).fit(
        *drawn(60, 0)[:2]
    )
    with mixed_index(tmp_path / "i.cb", model) as index:
        without(index, texts=TEXTS)
        with pytest.raises(NotCalibrated, match=r"no probabilities; call calibrate\(images, texts\)"):
            index.search(texts=TEXTS, min_probability=0.1)


def test_rescored_hits_and_those_of_an_example_have_none(plain: Index) -> None:
    without(plain, texts=TEXTS, rescore=lambda _, hits: hits.distances)
    assert plain.search(images=IMAGES, target="text")[0].probabilities is not None
    without(plain, like=["i1", "i2"], target="text")  # asked by a picture, too
    for options in ({"texts": TEXTS, "rescore": lambda _, hits: hits.distances}, {"like": "p1"}):
        with pytest.raises(InvalidInput, match=r"min_probability: .* use max_distance with (rescore|like)="):
            plain.search(**options, min_probability=0.1)


@pytest.mark.parametrize(("query", "target"), [("text", "text"), ("image", "image"), ("image", "document")])
def test_where_no_partner_was_seen_there_are_none(plain: Index, query: str, target: str) -> None:
    rows = {"image": IMAGES, "text": TEXTS}[query]
    without(plain, **{f"{query}s": rows}, target=target)
    with pytest.raises(
        NotCalibrated, match=f"no probabilities from {query} to {target}: .*groups of several"
    ):
        plain.search(**{f"{query}s": rows}, target=target, min_probability=0.1)


def test_pictures_that_repeat_show_no_partner_among_pictures(grouped: Index) -> None:
    for target in ("image", "document"):
        without(grouped, images=IMAGES, target=target)
    assert grouped.search(images=IMAGES, target="text")[0].probabilities is not None


def test_an_old_calibration_has_offsets_and_no_probabilities(tmp_path: Path) -> None:
    (tmp_path / "i.cb").write_bytes((GOLDEN / "index-calibrated.cb").read_bytes())
    with Index.open(tmp_path / "i.cb") as index:
        assert index.model.calibration_.offsets
        width = index.model.n_features_in_
        without(index, images=np.arange(1.0, 1 + 2 * width).reshape(2, width))
        with pytest.raises(NotCalibrated, match="has no probabilities; call calibrate"):
            index.search(images=np.ones(width), min_probability=0.1)


# Options


def test_the_prior_is_one_in_all_documents_unless_it_is_given(plain: Index) -> None:
    usual, same, more, certain = (
        plain.search(texts=TEXTS[0], k=50, prior=prior)[0] for prior in (None, 1 / len(plain), 0.2, 1.0)
    )
    assert usual.probabilities.tobytes() == same.probabilities.tobytes()
    assert usual.ids == more.ids == certain.ids
    assert (more.probabilities > usual.probabilities).all()
    assert np.isfinite(certain.probabilities).all()


@pytest.mark.parametrize("value", [0, -0.1, 1.1, np.nan, np.inf, True, "0.5", [0.5]])
def test_a_senseless_prior_is_refused(plain: Index, value: Any) -> None:
    with pytest.raises(InvalidInput, match="^prior: expected"):
        plain.search(texts=TEXTS, prior=value)


@pytest.mark.parametrize("name", ["min_probability", "match_threshold"])
@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan, True, "0.5"])
def test_senseless_bounds_are_refused(plain: Index, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=f"^{name}: expected"):
        plain.search(texts=TEXTS, **{name: value})


@pytest.mark.parametrize("options", [{}, {"where": "n < 3"}, {"distinct": "group"}])
def test_min_probability_keeps_exactly_those(grouped: Index, options: Any) -> None:
    asked = {"texts": TEXTS, "target": "document", "k": 80, "prior": 0.05, **options}
    whole = grouped.search(**asked)
    for least in (0.0, 1e-6, float(whole[0].probabilities[3]), 0.3, 1.0):
        for some, all_ in zip(grouped.search(**asked, min_probability=least), whole, strict=True):
            kept = all_.probabilities >= least
            assert some.ids == [key for key, keep in zip(all_.ids, kept, strict=True) if keep]
            assert some.distances.tobytes() == all_.distances[kept].tobytes()
            assert some.probabilities.tobytes() == all_.probabilities[kept].tobytes()
            # about what was found, not about what was kept; but an empty answer is sure of nothing
            assert some.no_match == (all_.no_match or not len(some))
    assert any(not len(hits) for hits in grouped.search(**asked, min_probability=1.0))


def test_nothing_matches_where_the_first_ten_add_up_to_less_than_the_threshold(plain: Index) -> None:
    for row in TEXTS:
        (hits,) = plain.search(texts=row, k=30)
        right = float(hits.probabilities[:10].sum())
        assert hits.no_match == (right < 0.5)
        assert right < 1
        for threshold, expected in (
            (right * (1 - 1e-9), False),
            (right * (1 + 1e-9), True),
            (0.0, False),
            (1.0, True),
        ):
            assert plain.search(texts=row, k=30, match_threshold=threshold)[0].no_match is expected
        assert plain.search(texts=row, k=30, prior=1.0)[0].no_match is False


def test_a_text_without_a_word_matches_nothing(plain: Index, tmp_path: Path) -> None:
    model = CMCQ.from_bytes(plain.model.to_bytes())
    texts = np.concatenate([TEXTS[:1], NOBODY, TEXTS[1:2]])
    placed = model.transform_texts(texts)
    assert placed.any(axis=1).tolist() == [True, False, True]
    hits = plain.search(texts=texts, prior=0.9)
    assert [found.no_match for found in hits] == [False, True, False]
    np.testing.assert_allclose(hits[1].probabilities, 0.9)  # nothing was learned by looking
    assert plain.search(texts=NOBODY, match_threshold=0.0)[0].no_match is True
    model._calibration = None
    with mixed_index(tmp_path / "i.cb", model) as index:
        hits = index.search(texts=texts)
        assert [found.no_match for found in hits] == [None, True, None]
        assert hits[1].probabilities is None


# Sizes


def test_an_empty_index_matches_nothing(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i.cb", plain_model(), n_jobs=1) as index:
        for hits in index.search(texts=TEXTS):
            assert (len(hits), hits.no_match) == (0, True)
            assert hits.probabilities.shape == (0,)
        assert index.search(texts=TEXTS[:0]) == []
        assert len(index.search(texts=TEXTS, min_probability=0.5)) == 6


def test_an_index_of_one_document_may_hold_the_partner_or_not(tmp_path: Path) -> None:
    with Index.create(tmp_path / "i.cb", plain_model(), n_jobs=1) as index:
        index.add(["one"], images=IMAGES[:1])
        (hits,) = index.search(texts=TEXTS[:1], k=1000)
        check(index, "text", TEXTS[:1], "image", 0.5, [hits])
        assert (hits.ids, hits.no_match) == (["one"], False)


def test_deleted_documents_do_not_count_in_the_prior(tmp_path: Path) -> None:
    with mixed_index(tmp_path / "i.cb", plain_model(), training=False) as index:
        assert len(index) == 117
        check(index, "text", TEXTS[:2], "image", 1 / 117, index.search(texts=TEXTS[:2], k=1000))
        index.delete([f"t{i}" for i in range(40) if i != 7])
        check(index, "text", TEXTS[:2], "image", 1 / 78, index.search(texts=TEXTS[:2], k=1000))


# Are they true?


@cache
def clear_model() -> CMCQ:
    """Of pairs with less noise."""
    images, texts, _ = drawn(1200, 0, noise=0.5)
    return CMCQ(**settings(n_bits=32)).fit(images, texts).calibrate(images, texts, curve=())


@pytest.mark.parametrize(("query", "target"), [("text", "image"), ("image", "text")])
def test_probabilities_are_true_where_every_second_partner_is_missing(
    tmp_path: Path, query: str, target: str
) -> None:
    """Most of ten hits are strangers: stating 0 for all is off by less than 0.05 too, so ask for more."""
    images, texts, _ = drawn(800, 5, noise=0.5)
    rows = {"image": images, "text": texts}
    with Index.create(tmp_path / "i.cb", clear_model(), n_jobs=1) as index:
        index.add(range(0, 800, 2), **{f"{target}s": rows[target][::2]})
        hits = index.search(**{f"{query}s": rows[query]}, target=target, prior=0.5 / len(index))
    stated = np.array([found.probabilities for found in hits])
    true = np.array([[key == i for key in found.ids] for i, found in enumerate(hits)])
    assert stated.shape == (800, 10)
    assert expected_error(equal_bins(stated, true)) < 0.05
    for depth in (10, 1):
        told = expected_error(equal_bins(stated[:, :depth], true[:, :depth]))
        assert told < 0.5 * expected_error(equal_bins(0 * stated[:, :depth], true[:, :depth]))
    assert stated.sum() == pytest.approx(true.sum(), rel=0.25)


@pytest.mark.parametrize(("query", "target"), [("text", "image"), ("image", "text")])
def test_the_first_ten_are_more_probable_where_there_is_a_partner(
    tmp_path: Path, query: str, target: str
) -> None:
    images, texts, _ = drawn(800, 5, noise=0.5)
    rows = {"image": images, "text": texts}
    with Index.create(tmp_path / "i.cb", clear_model(), n_jobs=1) as index:
        index.add(range(0, 800, 2), **{f"{target}s": rows[target][::2]})
        hits = index.search(**{f"{query}s": rows[query]}, target=target)
    there = np.arange(800) % 2 == 0
    best = auroc([found.probabilities.sum() for found in hits], there)
    assert best > max(0.6, auroc([-found.distances[0] for found in hits], there))
