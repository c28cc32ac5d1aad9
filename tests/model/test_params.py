"""What parameters that are not given become: powers and dimensions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from crossbyte import CMCQ, open_rows
from crossbyte.model.params import Settings, check_parameters, take_roots

RNG = np.random.default_rng(0)
POSITIVE = RNG.random((3000, 6)) ** 2
SIGNED = RNG.standard_normal((3000, 6))
WORDS = sparse.csr_array(POSITIVE * (POSITIVE > 0.5))
SMALL = {"n_bits": 8, "n_components": 4, "max_iter": 1, "random_state": 0}


def powers(settings: Settings, images: Any, texts: Any) -> tuple[float, float]:
    found = take_roots(settings, images, texts)
    assert found._replace(image_power=1.0, text_power=1.0) == settings._replace(
        image_power=1.0, text_power=1.0
    )
    return found.image_power, found.text_power


# Powers


def test_roots_are_taken_of_dense_features_that_are_nowhere_negative() -> None:
    settings = check_parameters(CMCQ())
    assert settings.open_powers == (True, True) and (settings.image_power, settings.text_power) == (1.0, 1.0)
    assert powers(settings, POSITIVE, SIGNED) == (0.5, 1.0)
    assert powers(settings, SIGNED, POSITIVE) == (1.0, 0.5)
    assert powers(settings, POSITIVE, WORDS) == (0.5, 1.0)  # sparse rows stay as they are
    assert powers(settings, POSITIVE > 0.5, np.zeros((3000, 2), np.uint8)) == (0.5, 0.5)
    few_signs = POSITIVE.copy()
    few_signs[-1, 3] = -1e-9
    assert powers(settings, few_signs, POSITIVE) == (1.0, 0.5)


def test_rows_on_disk_have_the_powers_of_rows_in_memory(tmp_path: Path) -> None:
    settings = check_parameters(CMCQ())
    for name, rows, power in (("positive", POSITIVE, 0.5), ("signed", SIGNED, 1.0)):
        np.save(tmp_path / f"{name}.npy", rows)
        assert powers(settings, open_rows(tmp_path / f"{name}.npy"), SIGNED) == (power, 1.0)
    sparse.save_npz(tmp_path / "words.npz", WORDS)
    assert powers(settings, POSITIVE, open_rows(tmp_path / "words.npz")) == (0.5, 1.0)


@pytest.mark.parametrize("given", [{"image_power": 1.0}, {"image_power": 0.7}])
def test_a_given_power_is_left_alone(given: dict[str, float]) -> None:
    assert powers(check_parameters(CMCQ(**given)), POSITIVE, POSITIVE) == (given["image_power"], 0.5)


@pytest.mark.parametrize("model", [CMCQ.paper(), CMCQ(scoring="unit"), CMCQ(mapping="contrastive")])
def test_only_likelihoods_take_roots_by_themselves(model: CMCQ) -> None:
    assert powers(check_parameters(model), POSITIVE, POSITIVE) == (1.0, 1.0)


def test_a_fit_with_roots_is_that_with_the_power_given() -> None:
    open_, given = (
        CMCQ(**SMALL, **powers).fit(POSITIVE[:200], SIGNED[:200])
        for powers in ({}, {"image_power": 0.5, "text_power": 1.0})
    )
    np.testing.assert_array_equal(open_.transform_images(POSITIVE), given.transform_images(POSITIVE))
    np.testing.assert_array_equal(open_.document_codes_, given.document_codes_)
    assert (open_.fitted_.settings.image_power, open_.fitted_.settings.text_power) == (0.5, 1.0)
    assert open_.fitted_.settings.open_powers == (False, False)


@pytest.mark.parametrize(
    ("images", "given", "tried"),
    [
        (POSITIVE, {}, {(0.5, 1.0), (1.0, 1.0), (0.5, 0.5), (1.0, 0.5)}),
        (SIGNED, {}, {(1.0, 1.0), (0.5, 1.0), (1.0, 0.5), (0.5, 0.5)}),
        (POSITIVE, {"text_power": 1.0}, {(0.5, 1.0), (1.0, 1.0)}),
        (POSITIVE, {"image_power": 1.0, "text_power": 1.0}, {(1.0, 1.0)}),
    ],
)
def test_auto_tries_the_other_power_where_none_is_given(
    images: Any, given: dict[str, float], tried: set[tuple[float, float]]
) -> None:
    model = CMCQ(**SMALL, mapping="auto", ridge=0.3, memory=0, **given).fit(images[:200], SIGNED[:200])
    params = [trial.params for trial in model.selection_ if "image_power" in trial.params]
    found = [(each["image_power"], each["text_power"]) for each in params]
    assert found[0] == (1.0 if images is SIGNED or "image_power" in given else 0.5, 1.0)
    assert set(found) <= tried and len(set(found)) == 1 + (2 - len(given))


# Dimensions


@pytest.mark.parametrize(("n_bits", "n_dims"), [(8, 128), (32, 128), (56, 128), (64, 256), (128, 256)])
def test_codes_of_eight_bytes_tell_of_more_dimensions(n_bits: int, n_dims: int) -> None:
    for mapping in ("cca", "auto"):
        assert check_parameters(CMCQ(n_bits, mapping=mapping)).n_components == n_dims
        assert check_parameters(CMCQ(n_bits, mapping=mapping, n_components=40)).n_components == 40
    assert check_parameters(CMCQ(n_bits, scoring="unit")).n_components == n_bits
    assert check_parameters(CMCQ.paper(n_bits=n_bits)).n_components == n_bits


def test_a_fit_of_eight_bytes_has_them() -> None:
    rng = np.random.default_rng(1)
    images, texts = rng.standard_normal((320, 260)), rng.standard_normal((320, 270))
    fitted = [CMCQ(bits, ridge=0.3, memory=0, max_iter=1).fit(images, texts) for bits in (56, 64)]
    assert [model.n_components_ for model in fitted] == [128, 256]


def test_other_lengths_of_a_model_have_their_own_dimensions() -> None:
    """As the curve of a report measures them."""
    model = CMCQ(**(SMALL | {"n_components": None}), ridge=0.3, memory=0).fit(SIGNED[:200], POSITIVE[:200])
    assert model.n_components_ == 6
    assert [model._settings_at(n).n_components for n in (1, 4, 8, 16)] == [6, 128, 256, 256]
    given = CMCQ(**SMALL, ridge=0.3, memory=0).fit(SIGNED[:200], POSITIVE[:200])
    assert [given._settings_at(n).n_components for n in (1, 4, 8)] == [4, 4, 4]
    unit = CMCQ(8, scoring="unit", random_state=0).fit(SIGNED[:200], POSITIVE[:200])
    assert [unit._settings_at(n).n_components for n in (2, 8)] == [16, 64]
