"""When a search says that nothing matches: where ``no_match`` does, and how surely."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crossbyte.gallery.verdict import find_match_auroc, judge_hits
from crossbyte.index.hits import Hits


def found(*probabilities: float) -> Hits:
    """An answer as a search gives it: nothing matches where less than half a right one is to be expected."""
    no_match = sum(probabilities) < 0.5
    numbers = np.arange(len(probabilities))
    distances = np.zeros(len(numbers), np.float32)
    return Hits(
        numbers.tolist(), distances, numbers, probabilities=np.array(probabilities), no_match=no_match
    )


@pytest.mark.parametrize(
    ("hits", "auroc", "said"),
    [
        (found(), 0.9, "unlikely"),  # nothing was found
        (found(0.9), 0.9, "likely"),
        (found(*[0.06] * 10), 0.9, "likely"),  # ten that share it: more than half a right one among them
        (found(0.497, 0.2), 0.9, "likely"),
        (found(0.02, 0.01), 0.9, "unlikely"),
        (found(0.02, 0.01), 0.7, "unsure"),
        (found(0.02, 0.01), 0.5, "unsure"),  # a model that guesses is never sure
        (found(0.02, 0.01), None, "unlikely"),  # as the option says, where nothing was measured
        (found(*[0.001] * 10), 0.5, "unlikely"),  # words that say nothing: all are as likely as any
    ],
)
def test_what_is_said_of_an_answer(hits: Hits, auroc: float | None, said: str) -> None:
    assert judge_hits(hits, auroc, 1000) == said


def test_a_verdict_never_contradicts_no_match() -> None:
    answers = [found(), found(0.9), found(0.3, 0.3), found(0.3, 0.1), found(0.02), found(0.001)]
    for hits in [*answers, replace(found(0.1), no_match=None, probabilities=None)]:
        for auroc in (None, 0.4, 0.59, 0.7, 0.9):
            for text in (None, "cat", "a cat on the mat"):
                assert (judge_hits(hits, auroc, 1000, text) == "likely") == (hits.no_match is not True)


@pytest.mark.parametrize(
    ("text", "said"), [("cat", "unsure"), ("a cat on the mat", "unlikely"), (None, "unlikely")]
)
def test_of_a_word_or_two_nothing_sure_is_said(text: str | None, said: str) -> None:
    assert judge_hits(found(0.02, 0.01), 0.9, 1000, text) == said


def test_how_well_a_model_can_tell_goes_by_direction() -> None:
    ways = [SimpleNamespace(query="text", target="image", match_auroc=0.7)]
    report: Any = SimpleNamespace(reliability=ways)
    assert find_match_auroc(report, "text", "image") == 0.7
    assert (
        find_match_auroc(report, "image", "text") is None and find_match_auroc(None, "text", "image") is None
    )
