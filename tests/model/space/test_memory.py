"""The memory of pairs: against a naive twin, without a leak, chosen only where it helps, and in files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, InvalidInput
from crossbyte.compute.executor import Workers
from crossbyte.errors import DamagedModelFile
from crossbyte.model.file_format import model_bytes, parse_model_bytes
from crossbyte.model.space import memory
from crossbyte.model.space.gaussian import GaussianSpace
from crossbyte.model.space.memory import PairMemory, StrengthTrial, UnseenPairs

D = 6
SMALL = {"n_bits": 16, "n_components": 10, "max_iter": 1, "random_state": 0}


def kinds(n: int, n_kinds: int = 80, seed: int = 0) -> tuple[Any, Any]:
    """Pairs of kinds of things: which texts belong to which images follows no linear rule."""
    rng = np.random.default_rng(7)
    image_kinds, text_kinds = rng.standard_normal((n_kinds, 12)), rng.standard_normal((n_kinds, 10))
    rng = np.random.default_rng(seed)
    kind = rng.integers(n_kinds, size=n)
    return tuple(
        (of_kind[kind] + 0.3 * rng.standard_normal((n, of_kind.shape[1]))).astype(np.float32)
        for of_kind in (image_kinds, text_kinds)
    )


def views(n: int, seed: int = 0) -> tuple[Any, Any]:
    """Two noisy linear views of one latent point: nothing for a memory to add."""
    shared, own = np.random.default_rng(3), np.random.default_rng(seed)
    maps = [shared.standard_normal((5, width)) for width in (12, 10)]
    latent = own.standard_normal((n, 5))
    return tuple((latent @ m + own.standard_normal((n, m.shape[1]))).astype(np.float32) for m in maps)


@pytest.fixture(scope="module")
def model() -> CMCQ:
    return CMCQ(**SMALL).fit(*kinds(900))


def some_memory(m: int = 40) -> PairMemory:
    rng = np.random.default_rng(1)
    images, texts = (rng.standard_normal((m, D)).astype(np.float32) for _ in "it")
    return PairMemory(images, texts, np.linspace(0.9, 0.1, D), 0.6, np.linspace(1.0, 0.5, D))


def naive_partner(point: Any, own: Any, other: Any, r: Any) -> Any:
    """m(u) of one item, by the formula."""
    likeness = []
    for remembered in own.astype(np.float64):
        a, b = point * r, remembered * r
        likeness.append(a @ b / np.linalg.norm(a) / np.linalg.norm(b))
    weights = np.exp(np.array(likeness) / 0.04)
    return sum(w * each for w, each in zip(weights / weights.sum(), other.astype(np.float64), strict=True))


# The formula


@pytest.mark.parametrize("side", ["image", "text"])
def test_expected_queries_are_those_of_the_formula(side: str) -> None:
    held, points = some_memory(), np.random.default_rng(2).standard_normal((300, D))
    own, other = (held.images, held.texts) if side == "image" else (held.texts, held.images)
    expected = [
        held.slopes * (point + held.strength * naive_partner(point, own, other, held.correlations))
        for point in points
    ]
    np.testing.assert_allclose(held.expected_query(points, side), expected, atol=2e-4)


def test_an_item_is_expected_at_the_same_bits_in_any_batch() -> None:
    held, points = some_memory(3_000), np.random.default_rng(2).standard_normal((300, D))
    together = held.expected_query(points, "image")
    for rows in ([0], [299], [5, 17, 280], range(100), range(40, 300)):
        np.testing.assert_array_equal(held.expected_query(points[list(rows)], "image"), together[list(rows)])


def test_an_item_without_direction_has_the_mean_of_all_partners() -> None:
    held = some_memory()
    found = held.expected_query(np.zeros((1, D)), "image")
    expected = held.slopes * held.strength * held.texts.mean(axis=0)
    np.testing.assert_allclose(found[0], expected, atol=1e-5)


# Out of fold


def unseen(n: int = 60, most: int = 60) -> UnseenPairs:
    rng = np.random.default_rng(4)
    image = rng.standard_normal((n, D))
    text = 0.7 * image + 0.7 * rng.standard_normal((n, D))
    return UnseenPairs.of(image, text, np.arange(n) % 5, most, rng)


def test_no_pair_remembers_its_own_fold() -> None:
    pairs, r = unseen(most=50), np.full(D, 0.5)
    with Workers(2) as workers:
        found = memory.remember_pairs(pairs, r, 0.3, workers)
    assert len(found.memory) == 50
    for row in range(60):
        kept = [j for j in pairs.kept if pairs.folds[j] != pairs.folds[row]]
        partner = naive_partner(pairs.image[row], pairs.image[kept], pairs.text[kept], r)
        expected = found.memory.slopes * (pairs.image[row] + 0.3 * partner)
        np.testing.assert_allclose(found.image[row], expected, atol=1e-4)


def test_slopes_are_least_squares_of_both_directions() -> None:
    pairs, r = unseen(), np.full(D, 0.5)
    with Workers(1) as workers:
        found = memory.remember_pairs(pairs, r, 0.3, workers)
    told = np.concatenate([found.image, found.text])
    errors = np.concatenate([pairs.text, pairs.image]) - told
    np.testing.assert_allclose((errors * told).sum(axis=0), 0.0, atol=1e-9)


# The choice


def test_the_least_strength_within_one_standard_error_is_chosen() -> None:
    base = np.tile([1.0, 2.0], 50)
    noise = np.tile([0.1, 0.1, -0.1, -0.1], 25)
    trials = [
        StrengthTrial(0.0, base),
        StrengthTrial(0.3, base - 0.5),
        StrengthTrial(1.0, base - 0.505 + noise),
    ]
    assert memory.choose_strength(trials) == 0.3
    assert memory.choose_strength([StrengthTrial(0.0, base), StrengthTrial(0.3, base)]) == 0.0


def test_pairs_of_kinds_are_remembered_and_new_ones_found_better(model: CMCQ) -> None:
    images, texts = kinds(600, seed=1)
    without = CMCQ(**SMALL, memory=0).fit(*kinds(900))
    assert model.memory_ == 900 and without.memory_ == 0
    assert not any("memory_strength" in trial.params for trial in without.selection_)
    gain = (
        without.partner_ranks(images, texts).mean_log_rank()
        - model.partner_ranks(images, texts).mean_log_rank()
    )
    assert gain > 0.1


def test_none_is_chosen_where_the_relation_is_linear() -> None:
    chosen = CMCQ(**SMALL).fit(*views(900))
    tried = [
        trial.params["memory_strength"] for trial in chosen.selection_ if "memory_strength" in trial.params
    ]
    assert tried == list(memory.STRENGTHS)
    assert chosen.memory_ == 0 and chosen.fitted_.space.memory is None
    assert chosen.to_bytes() != CMCQ(**SMALL, memory=0).fit(*views(900)).to_bytes()  # the trials are told
    np.testing.assert_array_equal(
        chosen.document_codes_, CMCQ(**SMALL, memory=0).fit(*views(900)).document_codes_
    )


def test_no_more_pairs_are_kept_than_asked_for() -> None:
    kept = CMCQ(**SMALL, memory=300).fit(*kinds(900))
    assert kept.memory_ == 300 and kept.fitted_.space.memory.images.shape == (300, 10)


def test_too_few_pairs_to_choose_have_no_memory() -> None:
    assert CMCQ(**SMALL).fit(*kinds(60)).memory_ == 0


@pytest.mark.parametrize("parameters", [{"mapping": "sparse"}, {"scoring": "unit"}])
def test_points_of_unit_length_have_no_memory(parameters: dict[str, str]) -> None:
    with pytest.raises(InvalidInput, match="^memory: expected None or 0"):
        CMCQ(**SMALL | parameters, memory=100).fit(*kinds(60))


# What it changes, and what not


def test_queries_and_whole_documents_are_placed_without_memory(model: CMCQ) -> None:
    learned, (images, texts) = model.fitted_, kinds(50, seed=2)
    assert isinstance(learned.space, GaussianSpace)
    plain = replace(learned, space=replace(learned.space, memory=None))
    with Workers(1) as workers:
        for place in ("transform_texts", "encode_texts"):
            same = np.array_equal(
                getattr(plain, place)(texts, workers), getattr(learned, place)(texts, workers)
            )
            assert same == (place == "transform_texts")
        np.testing.assert_array_equal(
            plain.item_points(images, texts, workers), learned.item_points(images, texts, workers)
        )


def test_any_number_of_threads_gives_the_same_bytes(model: CMCQ) -> None:
    assert CMCQ(**SMALL, n_jobs=3).fit(*kinds(900)).to_bytes() == model.to_bytes()


def test_an_item_alone_has_the_code_it_has_in_a_batch(model: CMCQ) -> None:
    images, texts = kinds(30, seed=2)
    for encode, rows in ((model.encode_images, images), (model.encode_texts, texts)):
        one_by_one = np.concatenate([encode(rows[i : i + 1]) for i in range(len(rows))])
        np.testing.assert_array_equal(one_by_one, encode(rows))


# Files


def test_a_loaded_model_remembers_the_same(model: CMCQ) -> None:
    loaded, (images, texts) = CMCQ.from_bytes(model.to_bytes()), kinds(50, seed=2)
    assert loaded.memory_ == 900 and loaded.to_bytes() == model.to_bytes()
    np.testing.assert_array_equal(loaded.encode_images(images), model.encode_images(images))
    np.testing.assert_array_equal(loaded.encode_texts(texts), model.encode_texts(texts))


def settings_with(**changes: Any) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda arrays, document: document["settings"].update(changes)


def array_with(name: str, change: Callable[[Any], Any]) -> Callable[[dict[str, Any], dict[str, Any]], None]:
    return lambda arrays, document: arrays.update({name: change(arrays[name])})


def with_nan(array: Any) -> Any:
    return np.where(np.arange(array.size).reshape(array.shape) == 0, np.nan, array).astype(array.dtype)


SPOILT = {
    **{f"no {name}": (lambda arrays, document, name=name: arrays.pop(f"memory.{name}"))
       for name in ("images", "texts", "slopes")},
    "fewer images": array_with("memory.images", lambda side: side[:-1]),
    "narrower texts": array_with("memory.texts", lambda side: side[:, :-1]),
    "texts of another type": array_with("memory.texts", lambda side: side.astype(np.float64)),
    "images that are not finite": array_with("memory.images", with_nan),
    "fewer slopes": array_with("memory.slopes", lambda slopes: slopes[:-1]),
    "slopes that are not finite": array_with("memory.slopes", with_nan),
    "another number of pairs": settings_with(memory=3),
    "a number of pairs that is text": settings_with(memory="many"),
    "no strength": settings_with(memory_strength=None),
    "a strength that is text": settings_with(memory_strength="strong"),
    "a strength of nothing": settings_with(memory=0),
}  # fmt: skip


@pytest.mark.parametrize("change", SPOILT.values(), ids=SPOILT.keys())
def test_files_with_a_spoilt_memory_are_refused(model: CMCQ, change: Any) -> None:
    contents = parse_model_bytes(model.to_bytes(), "whole")
    arrays, document = dict(contents.arrays), dict(contents.document)
    change(arrays, document)
    data = model_bytes(arrays, document, 2)
    with pytest.raises(DamagedModelFile, match="^spoilt.cbm: "):
        CMCQ.from_bytes(data, "spoilt.cbm")
