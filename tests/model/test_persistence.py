"""Models on disk: the same answers after loading, golden files of format 1, and refusals."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, InvalidInput, ModelFileError
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import DamagedModelFile, ForeignModelFile, TruncatedModelFile
from crossbyte.model.file_format import model_bytes, parse_model_bytes
from support.paths import GOLDEN

PAIRS = make_pairs(120, 12, 20, random_state=1)
IMAGES, TEXTS = PAIRS.images[:90], PAIRS.texts[:90]
NEW_IMAGES, NEW_TEXTS = PAIRS.images[90:], PAIRS.texts[90:]
SMALL = {"n_bits": 16, "n_components": 4, "n_atoms": 16, "max_iter": 2, "random_state": 7}

PAPER = {"mapping": "sparse", "cross_term": "constant"}
UNIT = {"mapping": "cca", "scoring": "unit", "cross_term": "constant"}
VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "likelihood constant": {"cross_term": "constant"},
    "likelihood powers": {"image_power": 0.5, "text_power": 0.7, "ridge": 0.3, "text_ridge": 2.0},
    "sparse": PAPER,
    "sparse ridge": PAPER | {"query_map": "ridge", "sparsity_mode": "ratio"},
    "sparse stored": PAPER | {"cross_term": "stored", "text_components": 8},
    "shared": PAPER | {"shared_codebooks": True},
    "cca": UNIT,
    "cca stored": UNIT | {"cross_term": "stored", "image_components": 6},
    "powers": UNIT | {"image_power": 0.5, "text_power": 0.7, "ridge": 0.3, "text_ridge": 2.0},
    "contrastive": {"mapping": "contrastive", "cross_term": "constant"},
    "auto": {"mapping": "auto"},
}
FITTED: dict[str, CMCQ] = {}


def fitted(variant: str) -> CMCQ:
    if variant not in FITTED:
        FITTED[variant] = CMCQ(**(SMALL | VARIANTS[variant])).fit(IMAGES, TEXTS)
    return FITTED[variant]


@pytest.fixture(params=VARIANTS)
def model(request: pytest.FixtureRequest) -> CMCQ:
    return fitted(request.param)


def all_answers(model: CMCQ) -> list[np.ndarray]:
    return [
        model.transform_images(NEW_IMAGES),
        model.transform_texts(NEW_TEXTS),
        model.encode_images(NEW_IMAGES),
        model.encode_texts(NEW_TEXTS),
        *model.encode_pairs(NEW_IMAGES, NEW_TEXTS),
        model.training_distances(images=NEW_IMAGES),
        model.training_distances(texts=NEW_TEXTS),
        *model.partner_ranks(NEW_IMAGES, NEW_TEXTS),
        model.image_codes_,
        model.text_codes_,
        model.image_codebooks_,
        *(document_answers(model) if model.fitted_.has_document_codes else ()),
    ]


def document_answers(model: CMCQ) -> list[np.ndarray]:
    codes = model.encode_documents(NEW_IMAGES, NEW_TEXTS)
    return [
        codes,
        model.decode_documents(codes),
        model.distances(texts=NEW_TEXTS, document_codes=codes),
        np.array(model.fitted_.document_constant),
    ]


# Round trips


def test_a_loaded_model_answers_bit_by_bit_as_before(model: CMCQ, tmp_path: Path) -> None:
    digest = model.save(tmp_path / "model.cbm")
    loaded = CMCQ.load(tmp_path / "model.cbm")
    assert len(digest) == 64
    for before, after in zip(all_answers(model), all_answers(loaded), strict=True):
        assert before.dtype == after.dtype
        np.testing.assert_array_equal(before, after)


def test_a_loaded_model_keeps_everything_else(model: CMCQ) -> None:
    loaded = CMCQ.from_bytes(model.to_bytes())
    assert loaded.get_params() == model.get_params()
    assert loaded.selection_ == model.selection_
    assert loaded.objective_history_ == model.objective_history_
    assert loaded.n_features_in_ == model.n_features_in_
    for name in ("mapping_", "n_components_", "correlation_", "cross_penalty_", "cross_term_", "ridge_",
                 "image_cross_", "text_cross_", "n_text_features_"):  # fmt: skip
        assert getattr(loaded, name) == getattr(model, name)


def test_saving_again_gives_the_same_bytes(model: CMCQ, tmp_path: Path) -> None:
    model.save(tmp_path / "one.cbm")
    CMCQ.load(tmp_path / "one.cbm").save(tmp_path / "two.cbm")
    assert (tmp_path / "one.cbm").read_bytes() == (tmp_path / "two.cbm").read_bytes() == model.to_bytes()


@pytest.mark.parametrize("variant", ["default", "likelihood constant", "likelihood powers", "auto"])
def test_what_documents_have_of_their_own_is_loaded_to_the_bit(variant: str) -> None:
    model = CMCQ(**(SMALL | VARIANTS[variant])).fit(IMAGES, TEXTS, np.arange(90) // 2)
    own, loaded = model.fitted_, CMCQ.from_bytes(model.to_bytes()).fitted_
    for name in ("codewords", "coding_scales", "cross_levels"):
        before, after = (getattr(each.document_quantizer, name) for each in (own, loaded))
        np.testing.assert_array_equal(before, after)
    assert loaded.document_quantizer.epsilon == own.document_quantizer.epsilon
    assert not np.array_equal(loaded.document_quantizer.codewords, loaded.image_quantizer.codewords)
    np.testing.assert_array_equal(loaded.space.document_weights, own.space.document_weights)
    r = own.space.correlations
    assert not np.allclose(own.space.document_weights, r / (1 + r), rtol=1e-3)


def test_a_loaded_model_can_be_fitted_again() -> None:
    loaded = CMCQ.from_bytes(fitted("cca").to_bytes())
    assert loaded.fit(IMAGES, TEXTS).to_bytes() == fitted("cca").to_bytes()


def test_a_query_map_changed_after_fitting_is_kept() -> None:
    model = CMCQ.from_bytes(fitted("sparse").to_bytes())
    model.query_map = "ridge"
    loaded = CMCQ.from_bytes(model.to_bytes())
    np.testing.assert_array_equal(loaded.transform_images(NEW_IMAGES), model.transform_images(NEW_IMAGES))


def test_selection_survives() -> None:
    loaded = CMCQ.from_bytes(fitted("auto").to_bytes())
    assert len(loaded.selection_) >= 3
    assert loaded.selection_ == fitted("auto").selection_


# What is in the file


def test_nothing_of_the_machine_is_in_the_file(model: CMCQ, tmp_path: Path) -> None:
    document = parse_model_bytes(model.to_bytes(), "model").document
    text = json.dumps(document)
    traces = {platform.node(), os.getcwd(), str(tmp_path), str(Path.home())}
    # A host called "image" would prove nothing.
    assert not [trace for trace in traces if len(trace) > 5 and trace in text]
    for word in ("n_jobs", "thread", "host", "time", "date", "version", "callback", "path"):
        assert word not in text


def test_threads_and_callbacks_do_not_change_the_file() -> None:
    for name in ("default", "cca"):
        params = SMALL | VARIANTS[name] | {"n_jobs": 2, "callback": lambda _: None}
        assert CMCQ(**params).fit(IMAGES, TEXTS).to_bytes() == fitted(name).to_bytes()


@pytest.mark.parametrize("make", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_saved_as_null(make: Callable[[int], Any]) -> None:
    model = CMCQ(**(SMALL | {"random_state": make(3), "mapping": "cca"})).fit(IMAGES, TEXTS)
    assert CMCQ.from_bytes(model.to_bytes()).random_state is None


def test_numbers_of_numpy_are_saved_as_numbers() -> None:
    params = SMALL | {
        "mapping": "cca",
        "n_bits": np.int64(16),
        "random_state": np.int64(7),
        "correlation": np.float64(0.3),
        "tol": np.float32(1e-3),
        "shared_codebooks": np.False_,
    }
    loaded = CMCQ.from_bytes(CMCQ(**params).fit(IMAGES, TEXTS).to_bytes())
    assert (loaded.n_bits, loaded.random_state, loaded.correlation) == (16, 7, 0.3)
    assert loaded.tol == pytest.approx(1e-3)
    assert loaded.shared_codebooks is False


# Golden files


def golden_maker() -> Any:
    spec = importlib.util.spec_from_file_location("golden_make", GOLDEN / "make.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["sparse", "cca-stored", "auto"])
def test_golden_models_of_format_1_answer_as_they_did(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    model = CMCQ.load(GOLDEN / f"{name}.cbm")
    found = golden_maker().answers(model)
    np.testing.assert_allclose(found.pop("distances"), expected["answers"].pop("distances"), atol=2e-5)
    assert found == expected["answers"]
    assert expected["params"].items() <= model.get_params().items()
    assert (model.selection_ != []) == (name == "auto")


@pytest.mark.parametrize("name", ["sparse", "cca-stored", "auto"])
def test_golden_models_are_written_again_as_they_were(name: str) -> None:
    data = (GOLDEN / f"{name}.cbm").read_bytes()
    digest = json.loads((GOLDEN / f"{name}.json").read_text())["digest"]
    assert CMCQ.from_bytes(data).to_bytes() == data
    assert parse_model_bytes(data, name).digest == digest
    assert len(data) < 60_000


@pytest.mark.parametrize("name", golden_maker().FORMAT_2)
def test_golden_models_of_format_2_answer_as_they_did(name: str) -> None:
    """One code per document; read and written again to the byte."""
    expected, data = json.loads((GOLDEN / f"{name}.json").read_text()), (GOLDEN / f"{name}.cbm").read_bytes()
    model = CMCQ.load(GOLDEN / f"{name}.cbm")
    found = golden_maker().answers(model)
    np.testing.assert_allclose(found.pop("distances"), expected["answers"].pop("distances"), atol=2e-4)
    assert found == expected["answers"]
    assert model.fitted_.has_document_codes and model.to_bytes() == data and len(data) < 60_000
    assert parse_model_bytes(data, name).digest == expected["digest"]
    calibration = model.calibration_
    assert (calibration is None) == ("offsets" not in expected)
    if calibration is not None:
        assert golden_maker().offsets(calibration) == expected["offsets"]
        assert any(coding == "document" for _, _, coding in calibration.offsets)


def test_the_papers_estimator_is_that_of_older_versions() -> None:
    """The golden file was written by ``CMCQ()`` when the paper's method was its default.

    Bytes are equal on one kind of processor and one set of libraries only; elsewhere, the settings and the
    form of everything are, and basis and objective to rounding.
    """
    maker = golden_maker()
    data = (GOLDEN / "sparse.cbm").read_bytes()
    parameters = maker.COMMON | maker.GOLDEN["sparse"]
    del parameters["mapping"]
    written = CMCQ.paper(**parameters).fit(*maker.pairs(40)).to_bytes()
    old, new = (parse_model_bytes(each, "model") for each in (data, written))
    for name in ("settings", "parameters", "history", "selection"):
        assert new.document[name] == old.document[name]
    assert new.document.keys() == old.document.keys() and new.arrays.keys() == old.arrays.keys()
    for name, array in old.arrays.items():
        assert (new.arrays[name].dtype, new.arrays[name].shape) == (array.dtype, array.shape)
    if written != data:
        np.testing.assert_allclose(new.arrays["space.text_basis"], old.arrays["space.text_basis"], atol=1e-3)
        np.testing.assert_allclose(new.arrays["history"], old.arrays["history"], rtol=1e-3, atol=1e-6)


# Refusals


def resealed(variant: str, change: Callable[[dict[str, Any], dict[str, Any]], object]) -> bytes:
    """A file whose digest is right, but whose parts were changed."""
    contents = parse_model_bytes(fitted(variant).to_bytes(), "model")
    change(contents.arrays, contents.document)
    number = 2 if fitted(variant).fitted_.has_document_codes else 1
    return model_bytes(contents.arrays, contents.document, number)


def drop(name: str) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    return lambda arrays, document: arrays.pop(name) if name in arrays else document.pop(name)


def put(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], object]:
    def apply(arrays: dict[str, Any], document: dict[str, Any]) -> None:
        home = arrays if name in arrays else document
        home[name] = change(home[name])

    return apply


def with_nan(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flat[0] = np.nan
    return array


SPOILT = {
    **{f"no {name}": drop(name) for name in (
        "image_codes", "text_codes", "history", "image.mean", "text.mean", "image.words", "text.words",
        "image.scale", "image.epsilon", "settings", "parameters", "selection",
        "space.image_dictionary", "space.text_basis", "space.image_map")},
    "short image codes": put("image_codes", lambda codes: codes[:-1]),
    "wide codes": put("text_codes", lambda codes: np.hstack([codes, codes])),
    "codes of another type": put("image_codes", lambda codes: codes.astype(np.int32)),
    "codes in one dimension": put("image_codes", lambda codes: codes.ravel()),
    "fewer words": put("image.words", lambda words: words[:, :255]),
    "words of other dimensions": put("text.words", lambda words: words[:, :, :-1]),
    "words that are not finite": put("image.words", with_nan),
    "a mean that is too short": put("image.mean", lambda mean: mean[:-1]),
    "a mean that is not finite": put("text.mean", with_nan),
    "a dictionary of another width": put("space.image_dictionary", lambda matrix: matrix[:, :-1]),
    "a basis of another width": put("space.text_basis", lambda matrix: matrix[:, :-1]),
    "a map with another number of atoms": put("space.image_map", lambda matrix: matrix[:-1]),
    "a shorter history": put("history", lambda history: history[:-1]),
    "unknown settings": put("settings", lambda settings: settings | {"colour": "red"}),
    "missing settings": put("settings", lambda settings: {k: v for k, v in settings.items() if k != "tol"}),
    "another mapping": put("settings", lambda settings: settings | {"mapping": "cca"}),
    "unknown parameters": put("parameters", lambda parameters: parameters | {"colour": "red"}),
    "parameters that are a list": put("parameters", lambda _: [1, 2]),
    "a selection that is a number": put("selection", lambda _: 3),
    "trials of another shape": put("selection", lambda _: [[1, 2]]),
    "text for a scale": put("image.scale", lambda _: "large"),
    "text for epsilon": put("text.epsilon", lambda _: None),
}  # fmt: skip


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT.keys())
def test_whole_files_with_inconsistent_parts_are_refused_as_damaged(change: Any) -> None:
    data = resealed("sparse", change)
    with pytest.raises(DamagedModelFile, match="^spoilt.cbm: "):
        CMCQ.from_bytes(data, "spoilt.cbm")


SPOILT_LIKELIHOODS = {
    **{f"no {name}": drop(name) for name in (
        "image_codes", "history", "image.words", "document.words", "image.coding_scales",
        "document.coding_scales", "image.cross_levels", "document.cross_levels", "image.epsilon",
        "document.epsilon", "document.constant", "space.image_matrix", "space.text_matrix",
        "space.correlations", "space.query_scales")},
    "wide codes": put("image_codes", lambda codes: np.hstack([codes, codes])),
    "words of other dimensions": put("document.words", lambda words: words[:, :, :-1]),
    "words that are not finite": put("document.words", with_nan),
    "fewer coding scales": put("image.coding_scales", lambda scales: scales[:-1]),
    "coding scales that are not finite": put("document.coding_scales", with_nan),
    "fewer correlations": put("space.correlations", lambda numbers: numbers[:-1]),
    "correlations that are not finite": put("space.correlations", with_nan),
    "no document weights": drop("space.document_weights"),
    "document weights of one half": put("space.document_weights", lambda weights: weights[:1]),
    "fewer document weights": put("space.document_weights", lambda weights: weights[:, :-1]),
    "document weights of a half after the other": put("space.document_weights", lambda weights: weights.T),
    "document weights that are not finite": put("space.document_weights", with_nan),
    "fewer query scales": put("space.query_scales", lambda numbers: numbers[:-1]),
    "query scales that are not finite": put("space.query_scales", with_nan),
    "a narrower text matrix": put("space.text_matrix", lambda matrix: matrix[:, :-1]),
    "fewer levels": put("document.cross_levels", lambda levels: levels[:-1]),
    "levels that are not finite": put("document.cross_levels", with_nan),
    "a constant that is text": put("document.constant", lambda _: "small"),
    "a constant that is not a number": put("document.constant", lambda _: None),
    "a shorter history": put("history", lambda terms: terms[:-1]),
    "a group without rows": put("settings", lambda settings: settings | {"group_size": 0}),
    "a group of half a row": put("settings", lambda settings: settings | {"group_size": 0.5}),
    "a group of many rows": put("settings", lambda settings: settings | {"group_size": "many"}),
    "another scoring": put("settings", lambda settings: settings | {"scoring": "unit"}),
}  # fmt: skip


@pytest.mark.parametrize("change", SPOILT_LIKELIHOODS.values(), ids=SPOILT_LIKELIHOODS.keys())
def test_likelihood_models_with_inconsistent_parts_are_refused_as_damaged(change: Any) -> None:
    data = resealed("default", change)
    with pytest.raises(DamagedModelFile, match="^spoilt.cbm: "):
        CMCQ.from_bytes(data, "spoilt.cbm")


def test_the_format_is_the_oldest_that_can_hold_the_model() -> None:
    for name in VARIANTS:
        data = fitted(name).to_bytes()
        one = fitted(name).fitted_.has_document_codes
        envelope = data[: data.index(b"crossbyte-model")]
        assert envelope.count(b'\\"format\\":2') == one, name
        assert envelope.count(b'\\"format\\":1') == (not one), name


@pytest.mark.parametrize("name", ["space.image_matrix", "space.text_matrix", "image.components"])
def test_linear_spaces_with_inconsistent_parts_are_refused_as_damaged(name: str) -> None:
    data = resealed("cca stored", put(name, lambda matrix: matrix[:, :-1]))
    with pytest.raises(DamagedModelFile):
        CMCQ.from_bytes(data)


def test_cross_levels_that_do_not_fit_are_refused_as_damaged() -> None:
    for change in (drop("image.cross_levels"), put("text.cross_levels", lambda levels: levels[:-1])):
        with pytest.raises(DamagedModelFile):
            CMCQ.from_bytes(resealed("cca stored", change))


def test_damage_truncation_and_foreign_files_have_their_own_errors(tmp_path: Path) -> None:
    data = fitted("cca").to_bytes()
    flipped = bytearray(data)
    flipped[-20] ^= 1
    for spoilt, error in (
        (bytes(flipped), DamagedModelFile),
        (data[:-1], TruncatedModelFile),
        (b"PK\x03\x04 no model at all", ForeignModelFile),
    ):
        (tmp_path / "model.cbm").write_bytes(spoilt)
        with pytest.raises(error, match=r"model\.cbm") as caught:
            CMCQ.load(tmp_path / "model.cbm")
        assert isinstance(caught.value, ModelFileError)


def test_a_missing_file_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        CMCQ.load(tmp_path / "nowhere.cbm")


def test_saving_over_a_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises((InvalidInput, OSError)):
        fitted("cca").save(tmp_path)
