"""Choosing parameters: splits by group, the rules, the limits, and what mapping="auto" records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crossbyte import CMCQ, InvalidInput
from crossbyte.data.synthetic import make_pairs
from crossbyte.model import fit as fitting
from crossbyte.model import selection as auto
from crossbyte.model.params import LIKELIHOOD_RIDGE
from crossbyte.model.selection import (
    EXTENDED_GRID,
    MAX_FITS,
    MAX_PAIRS,
    PAIR_GRID,
    PAPER_GRID,
    Trial,
    pick_trial,
    select_by_labels,
    select_by_pairs,
    split_groups,
)
from crossbyte.model.space.gaussian import RIDGES

PAIRS = make_pairs(240, 12, 20, n_classes=4, random_state=2)
SMALL = {"n_bits": 8, "n_components": 4, "n_atoms": 16, "max_iter": 2, "random_state": 0}


class SpyCMCQ(CMCQ):
    """Remembers the first image column and the groups of every fit; a class attribute survives clone."""

    fits: list[tuple[np.ndarray, Any]] = []

    def fit(self, images: Any, texts: Any, groups: Any = None) -> SpyCMCQ:
        SpyCMCQ.fits.append((images[:, 0].copy(), groups))
        return super().fit(images, texts, groups)


@pytest.fixture
def spy() -> SpyCMCQ:
    SpyCMCQ.fits.clear()
    return SpyCMCQ(**SMALL, mapping="cca")


# Splits


@pytest.mark.parametrize("seed", range(5))
def test_a_group_is_never_on_both_sides(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = np.unique(rng.integers(60, size=300), return_inverse=True)[1]
    split = split_groups(groups, rng)
    assert not set(groups[split.train]) & set(groups[split.held_out])
    assert sorted([*split.train, *split.held_out]) == list(range(300))
    n_groups = groups.max() + 1
    assert len(set(groups[split.held_out])) == round(0.1 * n_groups)


def test_the_same_seed_gives_the_same_split() -> None:
    one, two = (split_groups(np.arange(50), np.random.default_rng(4)) for _ in range(2))
    assert all(np.array_equal(a, b) for a, b in zip(one, two, strict=True))


def test_more_pairs_than_allowed_are_sampled_by_group() -> None:
    groups = np.arange(1000) // 5
    split = split_groups(groups, np.random.default_rng(0), max_pairs=300)
    used = np.concatenate([split.train, split.held_out])
    assert len(used) <= 300
    counts = np.bincount(groups[used])
    assert set(counts) <= {0, 5}
    assert MAX_PAIRS == 20_000


def test_split_of_very_many_pairs_uses_at_most_20000() -> None:
    split = split_groups(np.arange(50_000), np.random.default_rng(0))
    assert 19_000 < len(split.train) + len(split.held_out) <= 20_000


@pytest.mark.parametrize("seed", range(4))
def test_groups_of_very_different_size_do_not_break_the_limit(seed: int) -> None:
    groups = np.concatenate([np.zeros(190, dtype=np.intp), np.arange(1, 111)])
    split = split_groups(groups, np.random.default_rng(seed), max_pairs=200)
    assert 20 <= len(split.train) + len(split.held_out) <= 200


def test_where_all_groups_are_large_the_smallest_are_taken() -> None:
    groups = np.concatenate([np.full(30 + number, number) for number in range(25)])
    split = split_groups(groups, np.random.default_rng(0), max_pairs=100)
    assert set(groups[split.train]) | set(groups[split.held_out]) == set(range(20))
    assert len(set(groups[split.held_out])) == 2


def test_too_few_groups_are_refused() -> None:
    assert len(split_groups(np.arange(20), np.random.default_rng(0)).held_out) == 2
    with pytest.raises(InvalidInput, match="at least 20 groups, got 19"):
        split_groups(np.arange(190) % 19, np.random.default_rng(0))


# The rule


def trials(name: str, *rows: tuple[float, float, float]) -> list[Trial]:
    return [Trial({name: value}, score, error) for value, score, error in rows]


def test_correlation_is_the_largest_within_one_standard_error() -> None:
    rows = ((0.0, 0.50, 0.02), (0.3, 0.52, 0.02), (1.0, 0.505, 0.01), (3.0, 0.499, 0.01))
    assert pick_trial(trials("correlation", *rows), "correlation").params == {"correlation": 1.0}


def test_correlation_does_not_go_beyond_one_standard_error() -> None:
    rows = ((0.3, 0.52, 0.001), (1.0, 0.515, 0.5), (3.0, 0.1, 0.5))
    assert pick_trial(trials("correlation", *rows), "correlation").params == {"correlation": 0.3}


def test_other_parameters_are_simply_the_best() -> None:
    rows = ((0.1, 0.52, 0.02), (1.0, 0.51, 0.02))
    assert pick_trial(trials("cross_penalty", *rows), "cross_penalty").params == {"cross_penalty": 0.1}


def test_by_labels_correlation_is_simply_the_best_too() -> None:
    rows = ((0.1, 0.52, 0.02), (5.0, 0.52, 0.02), (1.0, 0.51, 0.02))
    assert pick_trial(trials("correlation", *rows), "correlation", prefer_large=False).params == {
        "correlation": 0.1
    }


# The grids


def test_the_paper_grid_is_the_papers() -> None:
    assert list(PAPER_GRID) == ["sparsity", "text_weight", "alignment", "correlation"]
    assert set(PAPER_GRID.values()) == {(0.1, 0.3, 0.5, 0.7)}
    assert max(EXTENDED_GRID["alignment"]) == 5.0
    assert set(EXTENDED_GRID) == set(PAPER_GRID)


# By labels


def planted_space() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Labels that only a space of more than one dimension can tell apart."""
    rng = np.random.default_rng(0)
    labels = np.arange(240) % 6
    angle = labels * np.pi / 3
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    images, texts = (
        circle @ rng.standard_normal((2, 8)) + 0.05 * rng.standard_normal((240, 8)) for _ in "it"
    )
    return images, texts, labels


def test_labels_choose_the_planted_better_value(spy: SpyCMCQ) -> None:
    images, texts, labels = planted_space()
    selection = select_by_labels(spy, images, texts, labels, {"n_components": (1, 2)})
    by_value = {trial.params["n_components"]: trial.score for trial in selection.trials}
    assert selection.params == {"n_components": 2}
    assert by_value[2] > by_value[1] + 0.1
    assert spy.n_components == 4
    assert not hasattr(spy, "_learned")


def test_labels_never_fit_on_held_out_rows(spy: SpyCMCQ) -> None:
    grid = {"correlation": (0.1, 0.3), "cross_penalty": (0.1, 1.0)}
    selection = select_by_labels(spy, PAIRS.images, PAIRS.texts, PAIRS.labels, grid)
    sizes = {len(column) for column, _ in SpyCMCQ.fits}
    assert sizes == {216}
    seen = [frozenset(column.tolist()) for column, _ in SpyCMCQ.fits]
    assert len(set(seen)) == 1
    assert len(set(PAIRS.images[:, 0].tolist()) - seen[0]) == 24
    assert len(SpyCMCQ.fits) == len(selection.trials) == 3


def test_labels_may_be_one_column_or_a_table(spy: SpyCMCQ) -> None:
    table = PAIRS.labels[:, None] == np.arange(4)
    grid = {"correlation": (0.3, 0.7)}
    by_table, by_column = (
        select_by_labels(spy, PAIRS.images, PAIRS.texts, labels, grid) for labels in (table, PAIRS.labels)
    )
    assert by_table == by_column


@pytest.mark.parametrize("labels", [np.zeros(239), np.zeros((239, 3)), np.zeros((240, 2, 2))])
def test_labels_that_do_not_fit_are_refused(spy: SpyCMCQ, labels: np.ndarray) -> None:
    with pytest.raises(InvalidInput, match="labels: expected one row per pair"):
        select_by_labels(spy, PAIRS.images, PAIRS.texts, labels)
    assert not SpyCMCQ.fits


@pytest.mark.parametrize("select", [select_by_labels, select_by_pairs])
def test_an_unknown_parameter_in_the_grid_is_refused_before_any_fit(spy: SpyCMCQ, select: Any) -> None:
    extra = (PAIRS.labels,) if select is select_by_labels else ()
    with pytest.raises((InvalidInput, KeyError)):
        select(spy, PAIRS.images, PAIRS.texts, *extra, grid={"colour": (1, 2)})
    assert not SpyCMCQ.fits


@pytest.mark.parametrize("seed", [np.random.RandomState, np.random.default_rng])
def test_selection_accepts_any_random_state_that_fit_accepts(seed: Any) -> None:
    model = CMCQ(**(SMALL | {"random_state": seed(0)}), mapping="cca")
    selection = select_by_pairs(model, PAIRS.images, PAIRS.texts, grid={"correlation": (0.3,)})
    assert selection.params == {"correlation": 0.3}


# By pairs


@pytest.mark.parametrize("max_fits", [1, 3, 8])
def test_pairs_obey_the_number_of_fits(spy: SpyCMCQ, max_fits: int) -> None:
    grid = {"correlation": (0.0, 0.3, 1.0, 3.0, 10.0), "cross_penalty": (0.01, 0.1, 1.0, 3.0, 10.0)}
    selection = select_by_pairs(spy, PAIRS.images, PAIRS.texts, grid=grid, max_fits=max_fits)
    assert len(SpyCMCQ.fits) == len(selection.trials) == max_fits
    assert set(selection.params) == set(grid)
    assert selection.params in [trial.params for trial in selection.trials]


def test_pairs_try_at_most_eight_fits_by_default(spy: SpyCMCQ) -> None:
    selection = select_by_pairs(spy, PAIRS.images, PAIRS.texts)
    assert len(SpyCMCQ.fits) <= MAX_FITS == 8
    assert set(selection.params) == set(PAIR_GRID)
    assert all(0 <= trial.score <= 1 and trial.standard_error >= 0 for trial in selection.trials)


def test_pairs_follow_the_rule_for_correlation(spy: SpyCMCQ) -> None:
    selection = select_by_pairs(spy, PAIRS.images, PAIRS.texts, grid={"correlation": (0.0, 1.0, 10.0)})
    assert selection.params == pick_trial(selection.trials, "correlation").params


def test_pairs_split_by_group_and_pass_the_groups_on(spy: SpyCMCQ) -> None:
    groups = np.arange(240) // 4
    select_by_pairs(spy, PAIRS.images, PAIRS.texts, groups, grid={"correlation": (0.3,)})
    column, passed = SpyCMCQ.fits[0]
    rows = np.flatnonzero(np.isin(PAIRS.images[:, 0], column))
    assert len(rows) == 216
    assert set(np.bincount(groups[rows])) <= {0, 4}
    np.testing.assert_array_equal(np.unique(passed, return_inverse=True)[1],
                                  np.unique(groups[rows], return_inverse=True)[1])  # fmt: skip


def test_the_model_given_is_not_changed(spy: SpyCMCQ) -> None:
    before = spy.get_params()
    select_by_pairs(spy, PAIRS.images, PAIRS.texts, grid={"correlation": (0.0, 1.0)})
    assert spy.get_params() == before
    assert not hasattr(spy, "_learned")


# mapping="auto"


@pytest.fixture(scope="module")
def chosen() -> CMCQ:
    return CMCQ(**SMALL, mapping="auto").fit(PAIRS.images, PAIRS.texts)


def test_auto_records_what_it_tried(chosen: CMCQ) -> None:
    names = {"image_power", "text_power", "image_components", "n_components", "ridge", "text_ridge"}
    preparations = [trial for trial in chosen.selection_ if set(trial.params) == names]
    assert [(t.params["image_power"], t.params["text_power"]) for t in preparations][:2] == [
        (1.0, 1.0),
        (0.5, 1.0),
    ]
    assert len(preparations) == 3
    others = [trial for trial in chosen.selection_ if trial not in preparations]
    assert {frozenset(trial.params) for trial in others} == {
        frozenset({"ridge", "text_ridge", "compressed"}),
        frozenset({"memory_strength", "compressed"}),
    }
    assert all(trial.score <= 0 <= trial.standard_error for trial in chosen.selection_)


def test_auto_uses_something_that_it_tried(chosen: CMCQ) -> None:
    settings = chosen.fitted_.settings
    used = {"image_power": settings.image_power, "text_power": settings.text_power, "n_components": 4}
    assert any(used.items() <= trial.params.items() for trial in chosen.selection_)
    assert {"ridge": chosen.ridge_, "text_ridge": settings.text_ridge, "compressed": False} in [
        trial.params for trial in chosen.selection_
    ]
    assert chosen.mapping == "auto" and chosen.mapping_ == "cca"
    assert len(chosen.document_codes_) == 240


def test_another_preparation_is_taken_only_where_it_is_better(chosen: CMCQ) -> None:
    preparations = [trial for trial in chosen.selection_ if "image_power" in trial.params]
    best = max(preparations, key=lambda trial: trial.score)
    settings = chosen.fitted_.settings
    (used,) = (
        trial
        for trial in preparations
        if (trial.params["image_power"], trial.params["text_power"])
        == (settings.image_power, settings.text_power)
    )
    assert used.score >= preparations[0].score
    assert used.score >= best.score - 2.5 * best.standard_error


def test_auto_finds_the_power_of_features_that_were_squared() -> None:
    pairs = make_pairs(600, 12, 20, random_state=5)
    squared = np.sign(pairs.images) * pairs.images.astype(np.float64) ** 4
    model = CMCQ(**SMALL, mapping="auto").fit(squared, pairs.texts)
    assert model.fitted_.settings.image_power == 0.5


def test_auto_chooses_the_dimension_only_where_it_is_free(chosen: CMCQ) -> None:
    def dimensions(model: CMCQ) -> set[int]:
        return {trial.params["n_components"] for trial in model.selection_ if "n_components" in trial.params}

    assert dimensions(chosen) == {4}
    free = CMCQ(**(SMALL | {"n_components": None}), mapping="auto").fit(PAIRS.images, PAIRS.texts)
    assert dimensions(free) == {128, 256}
    assert free.n_components_ == 12


def test_auto_leaves_a_given_power_alone() -> None:
    given = CMCQ(**SMALL, mapping="auto", image_power=0.7).fit(PAIRS.images, PAIRS.texts)
    assert {t.params["image_power"] for t in given.selection_ if "image_power" in t.params} == {0.7}


# The ridges of a canonical space


def tried_ridges(model: CMCQ) -> list[tuple[float, float]]:
    trials = [trial.params for trial in model.selection_ if "ridge" in trial.params]
    return [(params["ridge"], params["text_ridge"]) for params in trials]


def test_ridges_are_chosen_among_those_tried() -> None:
    model = CMCQ(**SMALL).fit(PAIRS.images, PAIRS.texts)
    tried = tried_ridges(model)
    assert {(ridge, ridge) for ridge in RIDGES} <= set(tried)
    assert len(set(tried)) == len(tried) <= len(RIDGES) + 4
    assert (model.ridge_, model.fitted_.settings.text_ridge) in tried


def test_a_given_ridge_is_used_and_no_other_is_tried() -> None:
    given = CMCQ(**SMALL, ridge=0.2).fit(PAIRS.images, PAIRS.texts)
    assert tried_ridges(given) == [] and given.ridge_ == 0.2
    both = CMCQ(**SMALL, ridge=0.2, text_ridge=0.2).fit(PAIRS.images, PAIRS.texts)
    assert np.array_equal(both.transform_texts(PAIRS.texts), given.transform_texts(PAIRS.texts))
    apart = CMCQ(**SMALL, ridge=0.2, text_ridge=3.0).fit(PAIRS.images, PAIRS.texts)
    assert not np.allclose(apart.transform_texts(PAIRS.texts), given.transform_texts(PAIRS.texts))


def test_with_a_given_text_ridge_that_of_the_images_alone_is_chosen() -> None:
    model = CMCQ(**SMALL, text_ridge=0.7).fit(PAIRS.images, PAIRS.texts)
    assert tried_ridges(model) == [(ridge, 0.7) for ridge in RIDGES]
    assert model.fitted_.settings.text_ridge == 0.7


def test_too_few_pairs_keep_the_ridge_where_the_choice_begins() -> None:
    model = CMCQ(**SMALL).fit(PAIRS.images[:60], PAIRS.texts[:60])
    assert model.selection_ == [] and model.ridge_ == LIKELIHOOD_RIDGE


def test_a_given_ridge_with_auto_is_used_and_auto_tries_no_other() -> None:
    given = CMCQ(**SMALL, mapping="auto", ridge=0.2).fit(PAIRS.images, PAIRS.texts)
    assert {ridge for ridge, _ in tried_ridges(given)} == {0.2} == {given.ridge_}


def test_ridges_of_unit_length_are_one() -> None:
    spaces = [
        CMCQ(**SMALL, scoring="unit", ridge=ridge).fit(PAIRS.images, PAIRS.texts)
        for ridge in (None, 1.0, 0.2)
    ]
    placed = [space.transform_texts(PAIRS.texts) for space in spaces]
    assert np.array_equal(placed[0], placed[1]) and not np.allclose(placed[0], placed[2])
    apart = CMCQ(**SMALL, scoring="unit", text_ridge=0.2).fit(PAIRS.images, PAIRS.texts)
    assert not np.allclose(apart.transform_texts(PAIRS.texts), placed[0])
    same = CMCQ(**SMALL, scoring="unit", text_ridge=1.0).fit(PAIRS.images, PAIRS.texts)
    assert np.array_equal(same.transform_texts(PAIRS.texts), placed[0])


def test_no_whole_fit_is_made_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    original = fitting.fit_prepared

    def counting(settings: Any, preparations: Any, rows: Any, *arguments: Any, **keywords: Any) -> Any:
        sizes.append(rows[0].shape[0])
        return original(settings, preparations, rows, *arguments, **keywords)

    monkeypatch.setattr(fitting, "fit_prepared", counting)
    CMCQ(**SMALL, mapping="auto").fit(PAIRS.images, PAIRS.texts)
    assert sizes == [240]


def test_auto_splits_by_group(monkeypatch: pytest.MonkeyPatch) -> None:
    splits: list[Any] = []
    original = auto.split_groups
    monkeypatch.setattr(auto, "split_groups", lambda *args: splits.append(original(*args)) or splits[-1])
    groups = np.arange(240) // 6
    CMCQ(**(SMALL | {"max_iter": 1}), mapping="auto").fit(PAIRS.images, PAIRS.texts, groups)
    assert not set(groups[splits[0].train]) & set(groups[splits[0].held_out])
    assert len(splits[0].held_out) == 24


def test_auto_with_too_few_groups_is_refused() -> None:
    with pytest.raises(InvalidInput, match="at least 20 groups, got 12"):
        CMCQ(**SMALL, mapping="auto").fit(PAIRS.images, PAIRS.texts, np.arange(240) // 20)
    with pytest.raises(InvalidInput, match="at least 20 groups"):
        CMCQ(**SMALL, mapping="auto").fit(PAIRS.images[:19], PAIRS.texts[:19])


def test_auto_learns_from_at_most_20000_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the limit lowered, so that the test stays short."""
    monkeypatch.setattr(auto, "split_groups", lambda groups, rng: split_groups(groups, rng, max_pairs=100))
    sizes: list[int] = []
    original = auto.prepare_pairs

    def counting(settings: Any, images: Any, texts: Any, workers: Any) -> Any:
        sizes.append(images.shape[0])
        return original(settings, images, texts, workers)

    monkeypatch.setattr(auto, "prepare_pairs", counting)
    model = CMCQ(**SMALL, mapping="auto").fit(PAIRS.images, PAIRS.texts)
    assert set(sizes) == {90}
    assert len(model.image_codes_) == 240


def test_auto_tells_its_progress() -> None:
    steps: list[Any] = []
    CMCQ(**(SMALL | {"max_iter": 1}), mapping="auto", callback=steps.append).fit(PAIRS.images, PAIRS.texts)
    selecting = [step for step in steps if step.stage == "select"]
    assert [step.done for step in selecting] == list(range(1, len(selecting) + 1))
    assert all(step.done <= step.total for step in selecting)
    assert steps[-1].stage == "alternate"
