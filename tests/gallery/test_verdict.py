"""When a search says that nothing matches: not of good answers, and not where the model cannot tell."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from crossbyte.gallery.verdict import find_match_auroc, judge_hits
from crossbyte.index.hits import Hits


def found(*probabilities: float, no_match: bool | None = True) -> Hits:
    numbers = np.arange(len(probabilities))
    distances = np.zeros(len(numbers), np.float32)
    return Hits(
        numbers.tolist(), distances, numbers, probabilities=np.array(probabilities), no_match=no_match
    )


@pytest.mark.parametrize(
    ("hits", "auroc", "said"),
    [
        (found(), 0.9, "likely"),  # nothing was found: there is nothing to doubt
        (found(0.9, no_match=False), 0.9, "likely"),
        (found(*[0.05] * 10), 0.9, "likely"),  # ten that share it: half a right one among them
        (found(0.497, 0.2), 0.9, "likely"),
        (found(0.02, 0.01), 0.9, "unlikely"),
        (found(0.02, 0.01), 0.7, "unsure"),
        (found(0.02, 0.01), 0.5, "likely"),  # guessing is not said
        (found(0.02, 0.01), None, "unlikely"),  # as the option says, where nothing was measured
        (found(*[0.001] * 10), 0.5, "unlikely"),  # words that say nothing: all are as likely as any
    ],
)
def test_what_is_said_of_an_answer(hits: Hits, auroc: float | None, said: str) -> None:
    assert judge_hits(hits, auroc, 1000) == said


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
