"""The conventions of scikit-learn: its own checks, cloning, grids, and the documentation of parameters."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier, is_regressor
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.utils.estimator_checks import check_estimator
from sklearn.utils.validation import check_is_fitted

from crossbyte import CMCQ
from crossbyte.data.synthetic import make_pairs

PAIRS = make_pairs(120, 10, 16, random_state=5)
SMALL = {"n_bits": 8, "n_components": 4, "n_atoms": 16, "max_iter": 2, "random_state": 0}

EXPECTED_FAILURES = {
    "check_fit_score_takes_y": "the second argument is called `texts`, which says more than `y`",
    "check_n_features_in_after_fitting": "calls score(images, y=...) by the name that it does not have",
    "check_dtype_object": "a cell that is no number raises InvalidInput, a ValueError, and no TypeError",
}


@pytest.mark.parametrize("mapping", ["sparse", "cca"])
def test_the_checks_of_scikit_learn_pass(mapping: str) -> None:
    estimator = CMCQ(**SMALL, mapping=mapping)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the checks warn on purpose
        results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {r["check_name"]: r["exception"] for r in results if r["status"] == "failed"}
    unexpected = {name: repr(error)[:300] for name, error in failed.items() if name not in EXPECTED_FAILURES}
    assert unexpected == {}
    assert set(failed) == set(EXPECTED_FAILURES), "an excuse is no longer needed: take it off the list"
    assert len(results) > 30


# Parameters


def test_parameters_come_back_as_they_were_given() -> None:
    given = {"n_bits": 24, "mapping": "cca", "alignment": 0.1, "n_jobs": 2, "random_state": 5}
    model = CMCQ(**given)
    assert given.items() <= model.get_params().items()
    model.set_params(alignment=0.2, callback=print)
    assert (model.alignment, model.callback) == (0.2, print)
    with pytest.raises(ValueError, match="colour"):
        model.set_params(colour="red")


def test_only_the_bits_may_be_given_by_position() -> None:
    assert CMCQ(16).n_bits == 16
    with pytest.raises(TypeError):
        CMCQ(16, "cca")  # type: ignore[misc]


def test_a_clone_has_the_parameters_and_nothing_learned() -> None:
    model = CMCQ(**SMALL, mapping="cca").fit(PAIRS.images, PAIRS.texts)
    copy = clone(model)
    assert copy.get_params() == model.get_params()
    with pytest.raises(NotFittedError):
        check_is_fitted(copy)
    check_is_fitted(model)
    assert copy.fit(PAIRS.images, PAIRS.texts).to_bytes() == model.to_bytes()


def test_the_representation_names_what_differs_from_the_defaults() -> None:
    assert repr(CMCQ(16, mapping="cca")) == "CMCQ(n_bits=16)"
    assert repr(CMCQ.paper(16)) == "CMCQ(cross_term='constant', mapping='sparse', n_bits=16)"


def test_it_is_neither_classifier_nor_regressor() -> None:
    assert not is_classifier(CMCQ())
    assert not is_regressor(CMCQ())


def test_the_defaults_are_those_of_the_design() -> None:
    expected = {
        "n_bits": 32, "mapping": "cca", "scoring": None, "n_components": None, "n_atoms": 512,
        "image_components": None,
        "text_components": None, "image_power": None, "text_power": None, "ridge": None, "text_ridge": None,
        "memory": None,
        "sparsity": 0.3, "text_weight": 0.7, "alignment": 0.7, "correlation": 0.3, "cross_penalty": 0.1,
        "sparsity_mode": "absolute", "query_map": "paper", "shared_codebooks": False,
        "cross_term": "stored", "max_iter": 10, "tol": 1e-4, "random_state": None, "n_jobs": None,
        "callback": None,
    }  # fmt: skip
    assert CMCQ().get_params() == expected
    assert CMCQ.paper().get_params() == expected | {"mapping": "sparse", "cross_term": "constant"}
    assert CMCQ.paper(16, sparsity=0.1).get_params()["sparsity"] == 0.1


# Model selection of scikit-learn


def grid(**options: Any) -> GridSearchCV:
    folds = KFold(2, shuffle=True, random_state=0)
    return GridSearchCV(CMCQ(**SMALL), {"mapping": ["sparse", "cca"]}, cv=folds, **options)


@pytest.mark.parametrize("texts", [PAIRS.texts.toarray(), PAIRS.texts], ids=["dense", "sparse"])
def test_a_grid_search_works_unwrapped(texts: Any) -> None:
    search = grid(error_score="raise").fit(PAIRS.images, texts)
    assert search.best_score_ > 1.2 * 10 / 60  # chance
    assert search.best_estimator_.image_codes_.shape == (120, 1)
    assert search.score(PAIRS.images, texts) == search.best_estimator_.score(PAIRS.images, texts)


def test_a_grid_search_over_numbers_of_numpy_gives_a_model_that_can_be_saved() -> None:
    search = GridSearchCV(
        CMCQ(**SMALL, mapping="cca"), {"correlation": np.logspace(-1, 0, 2), "n_bits": np.array([8])}, cv=2
    )
    best = search.fit(PAIRS.images, PAIRS.texts).best_estimator_
    assert CMCQ.from_bytes(best.to_bytes()).correlation == best.correlation


def test_the_score_is_the_mean_recall_of_both_directions() -> None:
    model = CMCQ(**SMALL, mapping="cca").fit(PAIRS.images[:80], PAIRS.texts[:80])
    ranks = model.partner_ranks(PAIRS.images[80:], PAIRS.texts[80:])
    expected = np.mean([(ranks.image_to_text < 10).mean(), (ranks.text_to_image < 10).mean()])
    assert model.score(PAIRS.images[80:], PAIRS.texts[80:]) == pytest.approx(expected)


def test_cross_validation_takes_dense_texts() -> None:
    """Sparse ones are refused by scikit-learn itself; a grid search takes both."""
    scores = cross_val_score(CMCQ(**SMALL, mapping="cca"), PAIRS.images, PAIRS.texts.toarray(), cv=3)
    assert scores.shape == (3,)
    assert scores.min() > 10 / 40


# Documentation


def test_documented_parameters_are_those_of_the_signature() -> None:
    doc = inspect.getdoc(CMCQ)
    assert doc is not None
    section = doc.split("Parameters\n----------\n")[1].split("Attributes\n")[0]
    lines = re.findall(r"^(\w[\w, ]*) : ", section, re.M)
    documented = [name for line in lines for name in line.split(", ")]
    assert documented == list(inspect.signature(CMCQ).parameters)


def test_documented_defaults_are_those_of_the_signature() -> None:
    doc = inspect.getdoc(CMCQ)
    assert doc is not None
    parameters = inspect.signature(CMCQ).parameters
    for names, default in re.findall(r"^(\w[\w, ]*) : .*default=(\S+)$", doc, re.M):
        for name in names.split(", "):
            assert parameters[name].default == ast.literal_eval(default)


def test_every_public_method_is_documented() -> None:
    inherited = {"get_params", "set_params", "get_metadata_routing"}
    for name, member in inspect.getmembers(CMCQ):
        if not name.startswith(("_", "set_", "get_")) and name not in inherited:
            assert inspect.getdoc(member), name
