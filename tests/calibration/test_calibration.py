"""Calibration: fair offsets between codings, measured without a leak, kept with the model."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone

from crossbyte import CMCQ, FitInterrupted, InvalidInput, NotFitted
from crossbyte.calibration import calibration as offsets
from crossbyte.calibration import holdout
from crossbyte.calibration.calibration import Calibration, Line
from crossbyte.calibration.holdout import CODINGS, SIDES, TARGETS
from crossbyte.errors import DamagedModelFile
from crossbyte.model.file_format import model_bytes, parse_model_bytes
from support.paths import GOLDEN


def noisy_pairs(n: int, n_topics: int = 24) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that are half noise, so that a half alone is coded far worse than a pair: (n, 60) and (n, 50)."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(n, n_topics))
    images, texts = (
        topics @ rng.normal(size=(n_topics, width)) + np.sqrt(n_topics) * rng.normal(size=(n, width))
        for width in (60, 50)
    )
    return images, texts


ALL_IMAGES, ALL_TEXTS = noisy_pairs(1500)
IMAGES, TEXTS = ALL_IMAGES[:1000], ALL_TEXTS[:1000]
NEW_IMAGES, NEW_TEXTS = ALL_IMAGES[1000:], ALL_TEXTS[1000:]
SMALL: dict[str, Any] = {
    "n_bits": 32,
    "mapping": "cca",
    "scoring": "unit",
    "n_components": 24,
    "correlation": 10.0,
    "cross_term": "stored",
    "max_iter": 3,
    "random_state": 0,
    "n_jobs": 1,
}

MEASURED = {
    (query, target, coding)
    for query in SIDES
    for target in TARGETS
    for coding in CODINGS
    if coding in ("training", "pair") or (coding in SIDES and target in (coding, "document"))
}
MEASURED_OF_ONE_CODE = {
    (query, target, coding)
    for query in SIDES
    for target in TARGETS
    for coding in ("pair", "document", *SIDES)
    if target == "document" or coding in ("pair", "document", target)
}


@pytest.fixture(scope="module")
def model() -> CMCQ:
    return CMCQ(**SMALL).fit(IMAGES, TEXTS).calibrate(IMAGES, TEXTS, curve=())


def small_model(**changes: Any) -> CMCQ:
    return CMCQ(**(SMALL | {"n_bits": 8, "max_iter": 1} | changes)).fit(IMAGES[:100], TEXTS[:100])


# What an offset is


def test_every_combination_that_can_occur_is_measured(model: CMCQ) -> None:
    assert model.calibration_ is not None
    assert set(model.calibration_.offsets) == MEASURED
    assert model.calibration_.n_held_out == 100
    assert all(np.isfinite(line).all() for line in model.calibration_.offsets.values())


@pytest.mark.parametrize("n_items", [None, 1, 10_000_000])
def test_the_reference_codings_and_unknown_ones_have_no_offset(model: CMCQ, n_items: int | None) -> None:
    assert model.calibration_ is not None
    for query in SIDES:
        for target, coding in (
            *(("image", "image"), ("text", "text"), ("document", "pair")),
            *(("image", "text"), ("text", "image"), ("sound", "pair"), ("image", "")),
        ):
            assert model.calibration_.offset(query, target, coding, n_items) == 0.0
    assert model.calibration_.offset("sound", "image", "pair", n_items) == 0.0


def test_an_offset_follows_its_line_over_the_size_of_the_index_but_not_for_ever() -> None:
    one = Calibration({("text", "image", "pair"): Line(0.5, -0.1)}, n_held_out=200)
    key = ("text", "image", "pair")
    assert one.offset(*key) == one.offset(*key, n_items=200) == 0.5
    assert one.offset(*key, n_items=2000) == pytest.approx(0.5 - 0.1 * np.log(10))
    assert one.offset(*key, n_items=20) == pytest.approx(0.5 + 0.1 * np.log(10))
    assert one.offset(*key, n_items=20_000) == one.offset(*key, n_items=10**9)
    assert (
        one.offset(*key, n_items=2) == one.offset(*key, n_items=1) == pytest.approx(0.5 + 0.1 * np.log(100))
    )


def test_an_empty_index_is_no_error() -> None:
    one = Calibration({("text", "image", "pair"): Line(0.5, -0.1)}, n_held_out=200)
    assert np.isfinite(one.offset("text", "image", "pair", n_items=0))


def test_a_calibration_cannot_be_changed(model: CMCQ) -> None:
    assert model.calibration_ is not None
    with pytest.raises(AttributeError):
        model.calibration_.n_held_out = 3  # type: ignore[misc]


# What offsets are for


def distances(model: CMCQ, query: str, target: str, coding: str, offset: float) -> np.ndarray:
    """Distances among the new pairs, coded as said."""
    images, texts = {
        "pair": lambda: model.encode_pairs(NEW_IMAGES, NEW_TEXTS),
        "image": lambda: (model.encode_images(NEW_IMAGES), None),
        "text": lambda: (None, model.encode_texts(NEW_TEXTS)),
    }[coding]()
    asked = {"images": NEW_IMAGES} if query == "image" else {"texts": NEW_TEXTS}
    sides = []
    if images is not None and target != "text":
        sides.append(model.distances(**asked, image_codes=images))
    if texts is not None and target != "image":
        sides.append(model.distances(**asked, text_codes=texts))
    return np.asarray(np.add.reduce(sides) + offset)


def share_of_pairs(model: CMCQ, query: str, target: str, one_sided: str, shifted: bool) -> float:
    """Share of strangers folded in as pairs among the first ten, when half of all documents are."""
    calibration, n = model.calibration_, len(NEW_IMAGES)
    assert calibration is not None
    pair, other = (
        distances(model, query, target, c, calibration.offset(query, target, c, n) if shifted else 0.0)
        for c in ("pair", one_sided)
    )
    is_pair = np.arange(n) % 2 == 0
    mixed = np.where(is_pair, pair, other)
    np.fill_diagonal(mixed, np.inf)
    return float(is_pair[np.argsort(mixed, axis=1, kind="stable")[:, :10]].mean())


MIXTURES = [("image", "image"), ("text", "text"), ("document", "image"), ("document", "text")]


@pytest.mark.parametrize("query", SIDES)
@pytest.mark.parametrize(("target", "one_sided"), MIXTURES)
def test_only_with_offsets_are_strangers_of_both_codings_equally_frequent_in_the_top(
    model: CMCQ, query: str, target: str, one_sided: str
) -> None:
    assert share_of_pairs(model, query, target, one_sided, shifted=True) == pytest.approx(0.5, abs=0.06)
    share = share_of_pairs(model, query, target, one_sided, shifted=False)
    if target == "document":  # one distance is less than the sum of two
        assert share < 0.05
    else:
        assert share > (0.55 if one_sided == "text" else 0.63)


# How it is measured


def test_offsets_equal_a_plain_computation(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    original = holdout.HeldOutSample.of

    def spy(*args: Any) -> Any:
        seen.append(args)
        return original(*args)

    monkeypatch.setattr(holdout.HeldOutSample, "of", spy)
    model = CMCQ(**SMALL).fit(IMAGES, TEXTS).calibrate(IMAGES, TEXTS, curve=())
    refit_learned, known, images, texts, _ = seen[0]
    refit = CMCQ.from_bytes(model.to_bytes())
    refit._learned = refit_learned
    assert len(refit.image_codes_) == 900
    assert len(known) == len(images) == 100

    pairs = refit.encode_pairs(images, texts)
    pair, alone, trained = (
        refit.distances(texts=texts, image_codes=codes)
        for codes in (pairs[0], refit.encode_images(images), refit.image_codes_[known])
    )
    both = pair + refit.distances(texts=texts, text_codes=pairs[1])
    for key, found, reference in (
        (("text", "image", "pair"), pair, alone),
        (("text", "image", "training"), trained, alone),
        (("text", "document", "image"), alone, both),
    ):
        gaps = []
        for depth in (1, 2, 3, 5, 10):
            kth = [
                np.mean([sorted(np.delete(row, i))[depth - 1] for i, row in enumerate(each)])
                for each in (reference, found)
            ]
            gaps.append(kth[0] - kth[1])
        size_with_that_top_ten = 100 * 9.5 / (np.array([1, 2, 3, 5, 10]) - 0.5)
        slope, at_1 = np.polyfit(np.log(size_with_that_top_ten), gaps, 1)
        assert model.calibration_ is not None
        for n_items in (100, 3000):
            wanted = at_1 + slope * np.log(n_items)
            assert model.calibration_.offset(*key, n_items=n_items) == pytest.approx(wanted, abs=1e-5)


def test_a_query_never_meets_its_own_document() -> None:
    near = np.full((3, 40), 5.0, dtype=np.float32)
    near[np.arange(3), np.arange(10, 13)] = -100.0
    np.testing.assert_array_equal(offsets._kth_smallest(near, slice(10, 13)), np.full((3, 3), 5.0))


def test_one_depth_gives_a_flat_line() -> None:
    assert offsets._fit_line(np.array([0.25])) == Line(0.25, 0.0)


def test_one_row_of_each_group_is_measured_and_no_group_on_both_sides() -> None:
    groups = np.repeat(np.arange(60), 5)
    rows = holdout.hold_out(groups, np.random.default_rng(0))
    assert len(set(groups[rows.held])) == len(rows.held) == 6
    assert len(set(groups[rows.train][rows.known])) == len(rows.known) == 6
    assert not set(groups[rows.train]) & set(groups[rows.held])
    np.testing.assert_array_equal(groups[rows.again], groups[rows.held])
    assert (rows.again != rows.held).all()


def test_groups_of_one_row_have_no_other_row() -> None:
    groups = np.concatenate([np.arange(60), np.arange(30)])
    rows = holdout.hold_out(groups, np.random.default_rng(0))
    np.testing.assert_array_equal(groups[rows.again], groups[rows.held])
    np.testing.assert_array_equal(rows.again != rows.held, groups[rows.held] < 30)


def test_groups_are_held_out_together() -> None:
    model = small_model()
    model.calibrate(IMAGES[:100], TEXTS[:100], groups=np.arange(100) // 2, curve=())
    assert model.calibration_ is not None
    assert model.calibration_.n_held_out == 5


def test_many_held_out_pairs_are_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holdout, "MAX_ROWS", 30)
    model = small_model().calibrate(IMAGES, TEXTS, curve=())
    assert model.calibration_ is not None
    assert model.calibration_.n_held_out == 30


@pytest.mark.parametrize("mapping", ["sparse", "contrastive", "auto"])
def test_every_mapping_can_be_calibrated(mapping: str) -> None:
    model = small_model(mapping=mapping, n_components=4, n_atoms=16)
    found = model.calibrate(IMAGES[:100], TEXTS[:100], curve=()).calibration_
    assert found is not None
    assert set(found.offsets) == MEASURED


def test_the_smallest_number_of_groups_will_do() -> None:
    model = small_model().calibrate(IMAGES[:20], TEXTS[:20], curve=())
    assert model.calibration_ is not None
    assert model.calibration_.n_held_out == 2
    assert all(line.slope == 0.0 for line in model.calibration_.offsets.values())


# The estimator


def test_a_model_is_not_calibrated_until_asked_and_forgets_it_when_fitted_again() -> None:
    model = small_model()
    assert model.calibration_ is None
    assert model.calibrate(IMAGES[:100], TEXTS[:100], curve=()) is model
    assert model.calibration_ is not None
    assert model.fit(IMAGES[:100], TEXTS[:100]).calibration_ is None
    assert not hasattr(clone(model), "_calibration")


def test_an_unfitted_model_says_so() -> None:
    with pytest.raises(NotFitted):
        CMCQ().calibrate(IMAGES, TEXTS, curve=())
    with pytest.raises(NotFitted):
        _ = CMCQ().calibration_


def test_calibration_is_deterministic_with_any_number_of_threads(model: CMCQ) -> None:
    again = CMCQ(**(SMALL | {"n_jobs": 2})).fit(IMAGES, TEXTS).calibrate(IMAGES, TEXTS, curve=())
    assert again.to_bytes() == model.to_bytes()
    other = CMCQ.from_bytes(model.to_bytes()).set_params(random_state=1).calibrate(IMAGES, TEXTS, curve=())
    assert other.calibration_ != model.calibration_


def test_calibration_changes_nothing_else(model: CMCQ) -> None:
    plain = CMCQ(**SMALL).fit(IMAGES, TEXTS)
    before, after = (parse_model_bytes(each.to_bytes(), "model") for each in (plain, model))
    assert set(after.document) - set(before.document) == {"calibration", "report"}
    assert before.document.items() <= after.document.items()
    assert before.arrays.keys() == after.arrays.keys()
    for name, array in before.arrays.items():
        np.testing.assert_array_equal(array, after.arrays[name])


def test_nothing_given_is_changed() -> None:
    images, texts = IMAGES[:100].copy(), TEXTS[:100].copy()
    small_model().calibrate(images, texts, curve=())
    np.testing.assert_array_equal(images, IMAGES[:100])
    np.testing.assert_array_equal(texts, TEXTS[:100])


@pytest.mark.parametrize(
    ("images", "texts", "groups", "message"),
    [
        (IMAGES[:19], TEXTS[:19], None, "expected at least 20 groups, got 19; give more pairs"),
        (IMAGES[:100], TEXTS[:100], np.arange(100) // 10, "expected at least 20 groups, got 10"),
        (IMAGES[:100, :-1], TEXTS[:100], None, "59 features"),
        (IMAGES[:100], TEXTS[:100, :-1], None, "49 features"),
        (IMAGES[:100], TEXTS[:99], None, "100 images and 99 texts"),
        (IMAGES[:100], TEXTS[:100], np.arange(99), "groups: expected one label per row"),
        (IMAGES[:100] * np.nan, TEXTS[:100], None, "NaN"),
        (IMAGES[:0], TEXTS[:0], None, "at least 1 rows"),
        (IMAGES[:100], None, None, "2D"),
    ],
)
def test_bad_input_is_refused_and_nothing_changed(images: Any, texts: Any, groups: Any, message: str) -> None:
    model = small_model().calibrate(IMAGES[:100], TEXTS[:100], curve=())
    before = model.to_bytes()
    with pytest.raises(InvalidInput, match=message):
        model.calibrate(images, texts, groups)
    assert model.to_bytes() == before


def test_an_interrupted_calibration_leaves_the_model_as_it_was() -> None:
    model = small_model().calibrate(IMAGES[:100], TEXTS[:100], curve=())
    before, steps = model.to_bytes(), []

    def interrupt(progress: Any) -> None:
        steps.append(progress)
        if len(steps) == 3:
            raise KeyboardInterrupt

    model.callback = interrupt
    with pytest.raises(FitInterrupted, match="calibrate was interrupted after .*as it was before"):
        model.calibrate(IMAGES[:90], TEXTS[:90], curve=())
    assert model.to_bytes() == before


def test_progress_ends_with_the_curve() -> None:
    steps: list[Any] = []
    model = small_model()
    model.callback = steps.append
    model.calibrate(IMAGES[:100], TEXTS[:100], curve=(1, 2))
    assert steps[-1][:4] == ("calibrate", "2 bytes", 4, 4)


def test_texts_too_wide_for_canonical_correlation_are_reduced_for_the_baselines() -> None:
    rng = np.random.default_rng(0)
    texts = sparse.random(60, 9000, 0.01, format="csr", random_state=0, dtype=np.float32)
    images = rng.normal(size=(60, 20))
    model = CMCQ.paper(n_bits=8, n_atoms=16, max_iter=1, random_state=0).fit(images, texts)
    report = model.calibrate(images, texts, curve=()).report_
    assert [system.name for system in report.systems][2:4] == ["cca_pq", "cca_rq"]


def test_of_many_pairs_a_sample_draws_the_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("crossbyte.calibration.measure.MAX_PAIRS", 400)
    groups = np.arange(1000) // 4
    model = CMCQ(**(SMALL | {"n_bits": 8, "max_iter": 1})).fit(IMAGES, TEXTS)
    report = model.calibrate(IMAGES, TEXTS, groups, curve=(1, 2)).report_
    assert (report.n_pairs, report.n_held_out) == (1000, 25)
    assert report.n_curve_pairs == 370  # 90 groups of four to learn from, and one row each of ten
    assert [point.n_bytes for point in report.curve] == [1, 2]
    assert all(10 in dict(point.by_size) for point in report.curve)


# The file


def test_a_calibration_is_kept_in_the_file(model: CMCQ, tmp_path: Path) -> None:
    model.save(tmp_path / "model.cbm")
    loaded = CMCQ.load(tmp_path / "model.cbm")
    assert loaded.calibration_ == model.calibration_
    assert loaded.to_bytes() == model.to_bytes()


def test_a_model_without_calibration_has_none_in_its_file() -> None:
    model = small_model()
    assert "calibration" not in parse_model_bytes(model.to_bytes(), "model").document
    assert CMCQ.from_bytes(model.to_bytes()).calibration_ is None


def golden_maker() -> Any:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_the_golden_calibrated_model_answers_as_it_did() -> None:
    expected = json.loads((GOLDEN / "calibrated.json").read_text())
    data = (GOLDEN / "calibrated.cbm").read_bytes()
    model = CMCQ.from_bytes(data)
    assert model.calibration_ is not None
    assert golden_maker().offsets(model.calibration_) == expected["offsets"]
    assert model.to_bytes() == data
    assert parse_model_bytes(data, "calibrated").digest == expected["digest"]


@pytest.mark.parametrize("name", ["sparse", "cca-stored", "auto"])
def test_golden_models_from_before_have_no_calibration(name: str) -> None:
    assert CMCQ.load(GOLDEN / f"{name}.cbm").calibration_ is None


def with_line(*line: Any) -> Callable[[dict[str, Any]], Any]:
    return lambda found: found | {"offsets": [list(line)]}


SPOILT: dict[str, Callable[[dict[str, Any]], Any]] = {
    "nothing": lambda _: None,
    "a list": lambda _: [1, 2],
    "no offsets": lambda found: {"n_held_out": found["n_held_out"]},
    "no number of pairs": lambda found: {"offsets": found["offsets"]},
    "something more": lambda found: found | {"colour": "red"},
    "offsets that are a number": lambda found: found | {"offsets": 3},
    "offsets of numbers": lambda found: found | {"offsets": [1, 2]},
    "an offset that is there twice": lambda found: found | {"offsets": found["offsets"] * 2},
    "an unknown query": with_line("sound", "image", "pair", 0.1, 0.0),
    "an unknown target": with_line("text", "sound", "pair", 0.1, 0.0),
    "an unknown coding": with_line("text", "image", "sound", 0.1, 0.0),
    "a name that is a list": with_line(["text"], "image", "pair", 0.1, 0.0),
    "text for an offset": with_line("text", "image", "pair", "0.1", 0.0),
    "true for an offset": with_line("text", "image", "pair", True, 0.0),
    "an offset without slope": with_line("text", "image", "pair", 0.1),
    "an offset with three numbers": with_line("text", "image", "pair", 0.1, 0.0, 0.0),
    "a huge integer": with_line("text", "image", "pair", 10**400, 0.0),
    "no held-out pairs": lambda found: found | {"n_held_out": 0},
    "half a pair": lambda found: found | {"n_held_out": 1.5},
}


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT.keys())
def test_whole_files_with_a_senseless_calibration_are_refused_as_damaged(model: CMCQ, change: Any) -> None:
    contents = parse_model_bytes(model.to_bytes(), "model")
    contents.document["calibration"] = change(contents.document["calibration"])
    data = model_bytes(contents.arrays, contents.document)
    with pytest.raises(DamagedModelFile, match=r"^spoilt.cbm: the calibration"):
        CMCQ.from_bytes(data, "spoilt.cbm")


# One code for a document


@pytest.fixture(scope="module")
def one_code() -> CMCQ:
    likelihood = {"scoring": None, "correlation": 0.3}
    return CMCQ(**(SMALL | likelihood)).fit(IMAGES, TEXTS).calibrate(IMAGES, TEXTS, curve=())


def test_every_combination_of_one_code_is_measured(one_code: CMCQ) -> None:
    assert one_code.calibration_ is not None
    assert set(one_code.calibration_.offsets) == MEASURED_OF_ONE_CODE
    assert all(np.isfinite(line).all() for line in one_code.calibration_.offsets.values())


@pytest.mark.parametrize("n_items", [None, 1, 10_000_000])
def test_documents_with_one_code_are_the_reference(one_code: CMCQ, n_items: int | None) -> None:
    assert one_code.calibration_ is not None
    for query in SIDES:
        for target in TARGETS:
            assert one_code.calibration_.offset(query, target, "document", n_items) == 0.0


@pytest.mark.parametrize("query", SIDES)
@pytest.mark.parametrize("one_sided", SIDES)
def test_strangers_of_one_code_and_of_one_half_are_equally_frequent_in_the_top(
    one_code: CMCQ, query: str, one_sided: str
) -> None:
    calibration, n = one_code.calibration_, len(NEW_IMAGES)
    assert calibration is not None
    asked = {"images": NEW_IMAGES} if query == "image" else {"texts": NEW_TEXTS}
    whole = one_code.distances(**asked, document_codes=one_code.encode_documents(NEW_IMAGES, NEW_TEXTS))
    half = distances(one_code, query, "document", one_sided, 0.0)
    is_whole = np.arange(n) % 2 == 0
    mixed = np.where(
        is_whole,
        whole + calibration.offset(query, "document", "document", n),
        half + calibration.offset(query, "document", one_sided, n),
    )
    np.fill_diagonal(mixed, np.inf)
    share = is_whole[np.argsort(mixed, axis=1, kind="stable")[:, :10]].mean()
    assert share == pytest.approx(0.5, abs=0.08)


def test_one_code_has_a_probability_whatever_the_target(one_code: CMCQ) -> None:
    calibration = one_code.calibration_
    assert calibration is not None
    for query in SIDES:
        for target in TARGETS:
            assert calibration.knows(query, target, "document")
            levels = {each: np.zeros(3) for each in calibration.levels(query, target, ["document"])}
            assert len(levels) == 1
            ratios = calibration.log_ratios((query, target, "document"), np.array([0.0, 5.0, 50.0]), levels)
            assert np.isfinite(ratios).all() and (np.diff(ratios) <= 0).all()


def test_a_calibration_of_one_code_comes_back_from_its_file(one_code: CMCQ) -> None:
    loaded = CMCQ.from_bytes(one_code.to_bytes())
    assert loaded.calibration_ == one_code.calibration_
    assert str(loaded.report_) == str(one_code.report_)
    assert loaded.to_bytes() == one_code.to_bytes()


def test_one_code_is_calibrated_the_same_with_any_number_of_threads(one_code: CMCQ) -> None:
    changes = {"scoring": None, "correlation": 0.3, "n_jobs": 2}
    again = CMCQ(**(SMALL | changes)).fit(IMAGES, TEXTS).calibrate(IMAGES, TEXTS, curve=())
    assert again.to_bytes() == one_code.to_bytes()


@pytest.mark.parametrize("coding", ["documents", "training ", ""])
def test_an_offset_of_an_unknown_coding_is_refused_as_damaged(one_code: CMCQ, coding: str) -> None:
    contents = parse_model_bytes(one_code.to_bytes(), "model")
    contents.document["calibration"]["offsets"].append(["text", "document", coding, 0.0, 0.0])
    with pytest.raises(DamagedModelFile):
        CMCQ.from_bytes(model_bytes(contents.arrays, contents.document, 2))
