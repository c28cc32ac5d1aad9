"""What a trial on held-out captions chooses: bytes, the weight of words, and how sure answers are called."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from crossbyte.gallery.trial import (
    WEIGHTS,
    AskedAnswers,
    LengthTrial,
    choose_trial,
    choose_weight,
    find_strong,
    learn_evidence,
)
from crossbyte.index.lexical import USUAL_WEIGHT
from crossbyte.index.verdict import Evidence, join_evidence

N = 250
rng = np.random.default_rng(0)
NOISE = rng.normal(size=N)


def ranks(mean_log: float, spread: float = 0.5, seed: int = 0) -> np.ndarray:
    """Ranks whose logarithms have about this mean."""
    noise = np.random.default_rng(seed).normal(size=N)
    return np.maximum(1, np.rint(np.exp(mean_log + spread * noise))).astype(np.int64)


def trial(n_bytes: int, mean_log: float, uncompressed: float | None = 1.0, seed: int = 0) -> LengthTrial:
    own = ranks(mean_log, seed=seed)
    whole = None if uncompressed is None else ranks(uncompressed)
    return LengthTrial(n_bytes, 1.0, {"both": own, "vectors": own, "words": own}, whole, 1000)


def test_the_fewest_bytes_are_chosen_that_no_others_beat() -> None:
    assert choose_trial([trial(4, 2.0), trial(8, 1.5), trial(16, 1.5), trial(32, 1.5)]).n_bytes == 8
    assert choose_trial([trial(4, 1.0), trial(8, 1.0)]).n_bytes == 4
    assert choose_trial([trial(4, 2.0), trial(8, 1.6), trial(16, 1.2)]).n_bytes == 16


def test_more_bytes_are_tried_while_compression_loses() -> None:
    assert not trial(4, 2.0).loses_nothing
    assert trial(16, 1.0).loses_nothing
    assert trial(16, 0.8).loses_nothing  # codes may even be better than what they stand for
    assert not trial(16, 1.0, uncompressed=None).loses_nothing  # nobody knows


def test_the_usual_weight_is_kept_where_none_is_shown_to_be_better() -> None:
    same = {weight: ranks(1.0) for weight in WEIGHTS}
    assert choose_weight(same) == USUAL_WEIGHT
    assert choose_weight(same | {0.0: np.roll(ranks(1.0), 1)}) == USUAL_WEIGHT


def test_a_weight_that_is_better_is_chosen() -> None:
    assert choose_weight({weight: ranks(1.0 + weight) for weight in WEIGHTS}) == 0.0
    assert choose_weight({weight: ranks(3.0 - weight / 3) for weight in WEIGHTS}) > USUAL_WEIGHT


def answers(gap: float, n: int = 200, n_words: float = 0.0) -> AskedAnswers:
    """Fifty hits each; the partner is first, with so much more evidence than the others."""
    own = np.random.default_rng(1)
    asked = AskedAnswers([], [], [], 1e-3)
    for _ in range(n):
        ratios = np.sort(own.normal(0.0, 1.0, size=50))[::-1]
        ratios[0] += gap
        asked.partners.append(0)
        asked.log_ratios.append(ratios)
        asked.scores.append(n_words * (np.arange(50) == 0))
    return asked


def test_evidence_tells_answers_from_what_is_far() -> None:
    how, auroc = learn_evidence(answers(8.0), "vectors")
    joined = answers(8.0).join(how)
    present = 1 / (1 + np.exp(-(how.slope * joined.whole + how.intercept)))
    absent = 1 / (1 + np.exp(-(how.slope * joined.far + how.intercept)))
    assert present.min() > 0.5 > absent.max() and auroc > 0.99
    assert how.strong_at <= 1.0 and how.word_weight == 0.0


def test_words_are_evidence_where_vectors_know_nothing() -> None:
    how, auroc = learn_evidence(answers(0.0, n_words=10.0), "both")
    assert how.word_weight > 0.1 and auroc > 0.95
    with_words = answers(0.0, n_words=10.0).join(how).whole
    assert how.slope * np.median(with_words) + how.intercept > 0


def test_nothing_is_called_strong_where_answers_are_wrong() -> None:
    wrong = replace(answers(5.0), partners=[None] * 200)
    assert learn_evidence(wrong, "vectors")[0].strong_at > 1.0


@pytest.mark.parametrize("share", [0.5, 0.8, 0.95, 1.0])
def test_strong_answers_are_right_in_nine_of_ten(share: float) -> None:
    probabilities = np.linspace(1.0, 0.5, 400)
    truth = np.random.default_rng(2).random(400) < share
    least = find_strong(probabilities, truth)
    if share < 0.9:
        assert least > 1.0 or truth[probabilities >= least].mean() >= 0.9
    else:
        assert truth[probabilities >= least].mean() >= 0.9 and least < 0.6


def test_evidence_is_joined_as_single_answers_are() -> None:
    asked = answers(3.0, n=7, n_words=2.0)
    asked.partners[3], asked.partners[5] = None, 20
    asked.log_ratios[2], asked.scores[2] = asked.log_ratios[2][:4], asked.scores[2][:4]
    how = Evidence(0.7, 0.3)
    joined = asked.join(how)
    for row, place in enumerate(asked.partners):
        evidence = how.of_hits(asked.log_ratios[row], asked.scores[row], asked.prior)
        others = evidence if place is None else np.delete(evidence, place)
        assert joined.whole[row] == pytest.approx(join_evidence(evidence))
        assert joined.alone[row] == pytest.approx(join_evidence(others))
        far = others[10:]
        assert joined.far[row] == pytest.approx(join_evidence(far) if len(far) else -50.0)
    assert joined.found.tolist() == [place is not None and place < 10 for place in asked.partners]
