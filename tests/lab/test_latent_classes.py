"""Latent classes: found where the pairs show them, in whichever half, and the same without any label."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy import stats

from crossbyte.lab.datasets.collection import Part
from crossbyte.lab.latent_classes import N_CLASSES, _fit_mixture, infer_latent_classes
from crossbyte.lab.protocols import make_trial
from crossbyte.lab.results import Run
from crossbyte.lab.runner import fit_system, measure_run
from support.laboratory import collection

N_PAIRS, N_TRUE = 600, 5


def draw_pairs() -> tuple[NDArray[np.float32], NDArray[np.float32], NDArray[np.intp]]:
    """One half that falls into classes, another that hardly follows them, and the classes."""
    rng = np.random.default_rng(0)
    classes = rng.integers(N_TRUE, size=N_PAIRS)
    clear = 4 * rng.standard_normal((N_TRUE, 8))[classes] + rng.standard_normal((N_PAIRS, 8))
    vague = 0.5 * rng.standard_normal((N_TRUE, 12))[classes] + rng.standard_normal((N_PAIRS, 12))
    return vague.astype(np.float32), clear.astype(np.float32), classes


def same_class(classes: NDArray[np.intp]) -> NDArray[np.bool_]:
    return np.asarray(classes[:, None] == classes)


def test_classes_are_found_and_the_half_that_shows_them_is_told() -> None:
    vague, clear, classes = draw_pairs()
    found = infer_latent_classes(vague, clear)
    assert found.n_classes == N_TRUE
    assert (same_class(found.classes) == same_class(classes)).mean() > 0.99
    image, text = found.within
    assert text < 0.3 and image > 0.6
    swapped = infer_latent_classes(clear, vague)
    assert np.array_equal(same_class(swapped.classes), same_class(found.classes))
    assert np.allclose(swapped.within, [text, image], atol=1e-4)


def test_neither_the_scale_of_a_half_nor_its_form_matters() -> None:
    vague, clear, _ = draw_pairs()
    found = infer_latent_classes(vague, clear)
    for images, texts in ((1000 * vague, clear), (vague, sp.csr_array(clear))):
        other = infer_latent_classes(images, texts)
        assert np.array_equal(same_class(other.classes), same_class(found.classes))
        assert other.bic == pytest.approx(found.bic, rel=1e-4)


def test_more_classes_are_taken_only_where_bic_falls() -> None:
    rng = np.random.default_rng(1)
    centres = 6 * rng.standard_normal((20, 6))
    rows = centres[np.arange(800) % 20] + rng.standard_normal((800, 6))
    assert infer_latent_classes(rows, rng.standard_normal((800, 6))).n_classes == 20
    noise = rng.standard_normal((800, 6)), rng.standard_normal((800, 6))
    assert infer_latent_classes(*noise).n_classes == N_CLASSES[0]
    assert infer_latent_classes(rows[:25], rows[:25]).n_classes == N_CLASSES[0]  # four pairs per class


def test_the_mixture_is_that_of_the_formula() -> None:
    rng = np.random.default_rng(2)
    x = 3 * rng.standard_normal((3, 4))[rng.integers(3, size=300)] + rng.standard_normal((300, 4))
    found = _fit_mixture(x, 3, np.random.default_rng(0))
    shares = found.posterior.mean(axis=0)
    means = found.posterior.T @ x / found.posterior.sum(axis=0)[:, None]
    variances = sum(found.posterior[:, k] @ (x - means[k]) ** 2 for k in range(3)) / len(x)
    assert np.allclose(found.variances, variances, rtol=1e-2)
    joint = np.stack(
        [
            share * stats.norm.pdf(x, mean, np.sqrt(variances)).prod(axis=1)
            for share, mean in zip(shares, means, strict=True)
        ],
        axis=1,
    )
    assert np.allclose(found.posterior, joint / joint.sum(axis=1, keepdims=True), atol=1e-2)
    n_parameters = 3 * 4 + 4 + 2
    expected = -2 * np.log(joint.sum(axis=1)).sum() + n_parameters * np.log(300)
    assert found.bic == pytest.approx(expected, rel=1e-4)


def test_protocol_l_judges_by_latent_classes_whatever_the_labels() -> None:
    vague, clear, classes = draw_pairs()
    labels = np.eye(N_TRUE, dtype=np.uint8)[np.random.default_rng(3).permutation(classes)]
    train = Part(vague, clear, labels)
    trial = make_trial("L", collection(train, train.take(np.arange(3))))
    unlabelled = replace(train, labels=None)
    other = make_trial("L", collection(unlabelled, unlabelled.take(np.arange(3))))
    assert np.array_equal(trial.train.images, make_trial("P", collection(train, train)).train.images)
    assert trial.database.coding == "training" and trial.tasks[0].partners is None
    assert trial.notes == {"n_classes": N_TRUE}
    for one, two in zip((trial.database, *trial.tasks), (other.database, *other.tasks), strict=True):
        assert one.labels is not None and np.array_equal(one.labels, two.labels)
        assert (one.labels.sum(axis=1) == 1).all()
    # Who learns from labels is taught with the true ones, or with none.
    assert other.train.labels is None and trial.train.labels is not None
    order = [np.flatnonzero((vague == row).all(axis=1))[0] for row in trial.train.images]
    assert np.array_equal(trial.train.labels, labels[order])
    assert trial.database.labels is not None
    found = same_class(trial.database.labels.argmax(axis=1))
    assert (found == same_class(classes[order])).mean() > 0.99


@pytest.mark.parametrize(("clear_half", "other"), [("text", "image"), ("image", "text")])
def test_latent_classes_choose_the_half_that_documents_are_coded_by(clear_half: str, other: str) -> None:
    """The same pairs with their halves exchanged: the choice must follow the classes, not the side."""
    vague, clear, _ = draw_pairs()
    train = Part(*((vague, clear) if clear_half == "text" else (clear, vague)), None)
    data = collection(train, train.take(np.arange(3)))
    trial, scores = make_trial("L", data), {}
    for item in (clear_half, other):
        given: dict[str, Any] = {"anchors": 40, "max_iter": 1, "item": item}
        run = Run("tiny", "d", "L", "cmcq-kernel", 16, 0, parameters=given)
        scores[item] = measure_run(run, data, trial, *fit_system(run, trial)).score("map@50")
    assert scores[clear_half] > scores[other] + 0.05
