"""How many pairs are enough to fit on: the arithmetic, the drawing, and a plan that says it."""

import json

import numpy as np
import pytest

from crossbyte import CMCQ
from crossbyte.data.synthetic import make_pairs
from crossbyte.errors import InvalidInput
from crossbyte.index.plan import pilot, size_model
from crossbyte.index.plan import pilot as sampling
from crossbyte.index.plan import pilot as trying
from crossbyte.index.plan.pilot import (
    WORTH,
    PilotRecall,
    draw_pairs,
    draw_pilot_pairs,
    expected_recall,
    recommend_pairs,
)
from crossbyte.index.plan.plan import plan
from crossbyte.index.plan.size_model import ALWAYS_ALL, SampleSize

PLENTY = 10**9


def tried(slope, n_pairs=(2048, 8192), top=0.6):
    """Two pilots that find exactly r − a / √n of every pair."""
    return [PilotRecall(n, np.full(50, top - slope / np.sqrt(n))) for n in n_pairs]


def quick(_):
    return 1.0


def gain_of_doubling(slope, n):
    return slope / np.sqrt(n) - slope / np.sqrt(2 * n)


# The rule


@pytest.mark.parametrize("slope", [8.0, 20.0, 60.0])
def test_the_size_is_the_first_at_which_a_doubling_gains_too_little(slope):
    found = recommend_pairs(*tried(slope), PLENTY, quick)
    assert found.why == "gain" and found.gain == pytest.approx(gain_of_doubling(slope, found.pairs))
    assert found.gain <= WORTH < gain_of_doubling(slope, 0.9 * found.pairs)
    assert found.tried == [
        (2048, pytest.approx(0.6 - slope / 2048**0.5)),
        (8192, pytest.approx(0.6 - slope / 8192**0.5)),
    ]


def test_the_law_goes_through_both_pilots():
    few, many = tried(20.0)
    for n in (2048, 8192, 10**6):
        assert expected_recall(few, many, n) == pytest.approx(0.6 - 20 / np.sqrt(n))


def test_the_size_has_two_figures():
    found = recommend_pairs(*tried(8.0), PLENTY, quick)
    assert str(found.pairs).rstrip("0") == str(found.pairs)[:2]


def test_more_to_learn_takes_more_pairs():
    sizes = [recommend_pairs(*tried(slope), PLENTY, quick).pairs for slope in (1.0, 8.0, 12.0, 40.0)]
    assert sizes == sorted(sizes) and len(set(sizes)) == 4


def test_doubt_takes_more_pairs():
    few, many = tried(20.0)
    rng = np.random.default_rng(0)
    noise = rng.permutation(np.repeat([-0.2, 0.2], 25))
    doubtful = recommend_pairs(few, PilotRecall(many.n_pairs, many.hits + noise), PLENTY, quick)
    assert doubtful.pairs > recommend_pairs(few, many, PLENTY, quick).pairs


def test_never_fewer_than_are_always_taken_and_never_more_than_there_are():
    least = recommend_pairs(*tried(-1.0), PLENTY, quick)
    assert (least.pairs, least.why, least.gain) == (ALWAYS_ALL, "least", 0.0)
    assert "never fewer than 100,000" in str(least)
    everything = recommend_pairs(*tried(60.0), 120_000, quick)
    assert (everything.pairs, everything.why) == (120_000, "all")


def test_no_more_than_are_fitted_within_an_hour():
    found = recommend_pairs(*tried(60.0), PLENTY, lambda n: n / 100)
    assert found.why == "time" and found.gain > WORTH and "over an hour" in str(found)
    assert 350_000 <= found.pairs <= 360_000
    assert (
        recommend_pairs(*tried(60.0), PLENTY, lambda n: n / 10).pairs == ALWAYS_ALL
    )  # the least counts more


def test_where_nothing_was_tried_all_are_taken():
    assert SampleSize.all_of(500).why == "all" and "all are taken" in str(SampleSize.all_of(500))
    assert SampleSize.all_of(10**7).why == "unknown" and "too few" in str(SampleSize.all_of(10**7))


# Drawing


def test_a_seed_draws_the_same_rows_in_their_order():
    rows = draw_pairs(10_000, 700, seed=3)
    assert len(rows) == len(set(rows.tolist())) == 700 and (np.diff(rows) > 0).all()
    assert np.array_equal(rows, draw_pairs(10_000, 700, seed=3))
    assert not np.array_equal(rows, draw_pairs(10_000, 700, seed=4))
    assert draw_pairs(30, 30).tolist() == list(range(30))


def test_groups_are_drawn_whole():
    groups = [f"picture {row // 5}" for row in range(5000)]
    rows = draw_pairs(5000, 702, groups, seed=1)
    assert len(rows) == 700 and (np.bincount(rows // 5, minlength=1000) % 5 == 0).all()


def test_a_huge_group_leaves_room_for_others():
    groups = np.concatenate([np.zeros(6000, int), np.arange(1, 4001)])
    rows = draw_pairs(10_000, 1000, groups)
    assert len(rows) == 1000 and rows.min() >= 6000


def test_few_groups_are_refused():
    with pytest.raises(InvalidInput, match=r"at least 20 of them, got 4; fit on all pairs"):
        draw_pairs(1000, 100, np.arange(1000) % 4)


def test_pilots_are_asked_with_other_groups_than_they_were_fitted_on():
    groups = np.arange(24_000) // 3
    columns = np.repeat(groups[:, None], 2, axis=1).astype(np.float32)
    trials = draw_pilot_pairs(columns, columns, groups)
    fitted, held = set(trials.images[:, 0].tolist()), set(trials.held_images[:, 0].tolist())
    assert len(trials.images) + len(trials.held_images) == 19_998 and len(trials.held_images) == 2001
    assert not fitted & held and len(set(trials.held_groups.tolist())) == len(held)


# The plan


@pytest.fixture
def small(monkeypatch):
    """As if 1,000 pairs were many, and pilots small."""
    for module in (size_model, sampling, trying):
        monkeypatch.setattr(module, "ALWAYS_ALL", 1000)
    monkeypatch.setattr(trying, "_PAIRS_TO_TRY", 600)
    monkeypatch.setattr(pilot, "_SMALL", 300)


def planned(n, **asked):
    images, texts, _ = make_pairs(n, 12, 20, n_classes=20, random_state=0)
    model = CMCQ(8, mapping="cca", max_iter=1, random_state=0)
    return plan(images, texts, **({"items": 10**6, "model": model} | asked))


def test_a_plan_for_few_pairs_takes_all_of_them(monkeypatch):
    found = planned(400)
    assert found.fit_pairs == found.train == 400 and found.enough.why == "all"
    assert found.sample_seconds == found.fit_seconds and "enough" not in str(found)


def test_a_plan_for_many_pairs_says_how_many_are_enough(small):
    steps = []
    found = planned(800, train=10**7, callback=lambda step: steps.append(step.done))
    assert steps == [1, 2, 3, 4]
    assert 1000 <= found.fit_pairs < 10**7 and found.sample_seconds < found.fit_seconds
    assert [n for n, _ in found.enough.tried] == [300, 720]
    assert f"enough:  {found.fit_pairs:,} of these pairs, about" in str(found)
    told = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert told["fit_pairs"] == found.fit_pairs and told["enough"]["why"] == found.enough.why


def test_a_plan_from_too_few_pairs_says_that_it_cannot_tell(small):
    found = planned(400, train=10**7)
    assert found.fit_pairs == 10**7 and "too few pairs or groups were given" in str(found)
    groups = np.arange(800) % 30
    assert planned(800, train=10**7, groups=groups).enough.why == "unknown"


def test_wrong_groups_are_refused_before_the_pilot():
    with pytest.raises(InvalidInput, match="groups: expected one label per row"):
        planned(400, groups=[1, 2, 3])


def test_pairs_to_fit_says_what_the_plan_says(small):
    images, texts, _ = make_pairs(1200, 12, 20, n_classes=20, random_state=0)
    model = CMCQ(8, mapping="cca", max_iter=1, random_state=0)
    few = trying.find_sample_size(images[:900], texts[:900], model=model)
    assert (few.pairs, few.tried) == (900, [])
    many = trying.find_sample_size(images, texts, model=model)
    assert many.tried and many.tried == plan(images, texts, items=10, model=model).enough.tried


def test_pairs_are_taken_from_where_a_fit_takes_them(small, tmp_path):
    images, texts, _ = make_pairs(1200, 12, 20, n_classes=20, random_state=0)
    model = CMCQ(8, mapping="cca", max_iter=1, random_state=0)
    np.save(tmp_path / "images.npy", images)
    blocks = [texts[start : start + 500] for start in range(0, 1200, 500)]
    expected = trying.find_sample_size(images, texts, model=model).tried
    assert trying.find_sample_size(tmp_path / "images.npy", iter(blocks), model=model).tried == expected
    assert plan(tmp_path / "images.npy", blocks, items=10, model=model).enough.tried == expected
    few = trying.find_sample_size(images[:30].tolist(), texts[:30], model=model)
    assert (few.pairs, few.tried) == (30, [])
