"""How sure an answer is, in words: thresholds, the order of verdicts; no hit is surer than its answer."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from crossbyte.index.verdict import (
    USUAL,
    Evidence,
    at_least,
    at_most,
    join_evidence,
    judge_answer,
    judge_hits,
    limit_verdict,
)

VERDICTS = ("nothing", "weak", "fair", "strong")


@pytest.mark.parametrize(
    ("probability", "threshold", "strong_at", "said"),
    [
        (0.0, 0.0, 0.9, "nothing"),
        (0.49, 0.5, 0.9, "nothing"),
        (0.5, 0.5, 0.9, "weak"),
        (0.7, 0.5, 0.9, "fair"),
        (0.89, 0.5, 0.9, "fair"),
        (0.9, 0.5, 0.9, "strong"),
        (0.95, 0.99, 0.9, "nothing"),
        (1.0, 0.5, 1.01, "fair"),  # nothing was right often enough to be called strong
    ],
)
def test_probabilities_become_words(
    probability: float, threshold: float, strong_at: float, said: str
) -> None:
    assert judge_answer(probability, threshold, strong_at) == said


def test_a_surer_answer_is_never_called_weaker() -> None:
    for threshold, strong_at in itertools.product((0.0, 0.5, 0.8), (0.6, 0.9, 1.01)):
        said = [VERDICTS.index(judge_answer(p, threshold, strong_at)) for p in np.linspace(0, 1, 101)]
        assert said == sorted(said)


def test_the_surer_and_the_less_sure_of_two_verdicts() -> None:
    for one, other in itertools.product(VERDICTS, VERDICTS):
        assert at_least(one, other) == VERDICTS[max(VERDICTS.index(one), VERDICTS.index(other))]
        assert at_most(one, other) == VERDICTS[min(VERDICTS.index(one), VERDICTS.index(other))]


@pytest.mark.parametrize("verdict", VERDICTS)
def test_no_hit_is_surer_than_its_answer(verdict: str) -> None:
    how = Evidence(strong_hit=1.0, fair_hit=-1.0)
    strengths = judge_hits(np.array([5.0, 0.0, -5.0]), how, verdict)  # type: ignore[arg-type]
    assert strengths[2] == min("weak", verdict, key=VERDICTS.index)
    assert all(VERDICTS.index(each) <= VERDICTS.index(verdict) for each in strengths)
    if verdict == "strong":
        assert strengths == ["strong", "fair", "weak"]


def test_no_answer_is_surer_than_its_surest_hit() -> None:
    for verdict, hit in itertools.product(VERDICTS, VERDICTS):
        strengths = ["nothing", hit]
        assert limit_verdict(verdict, strengths) == at_most(verdict, hit)  # type: ignore[arg-type]
        assert limit_verdict(verdict, ["weak"] * 10 + [hit]) == at_most(verdict, "weak")  # type: ignore
    assert limit_verdict("strong", []) == "nothing"


def test_evidence_is_of_the_first_ten_together() -> None:
    odds = np.log(np.full(30, 0.2))
    assert join_evidence(odds) == pytest.approx(np.log(2.0))
    assert Evidence().match_probability(odds) == pytest.approx(2 / 3)
    assert Evidence().match_probability(odds[:0]) == 0.0


def test_words_and_distances_add_up_to_evidence() -> None:
    ratios, scores = np.array([1.0, -2.0]), np.array([4.0, 0.0])
    both = USUAL["both"].of_hits(ratios, scores, 0.5)
    assert both == pytest.approx(ratios + USUAL["both"].word_weight * scores)
    assert USUAL["words"].of_hits(ratios, scores, 0.5) == pytest.approx(0.7 * scores)
    assert USUAL["vectors"].of_hits(ratios, scores, 0.01)[0] == pytest.approx(1.0 + np.log(0.01 / 0.99))


def test_evidence_goes_through_a_record() -> None:
    how = Evidence(0.5, 0.25, 2.0, -1.0, 0.8, 3.0, -3.0)
    assert Evidence.from_dict(how.to_dict()) == how
