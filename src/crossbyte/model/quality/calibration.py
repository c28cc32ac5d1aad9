"""Calibration: what a refit of the model, fitted on nine tenths of the groups, shows on the last tenth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log
from typing import Any, NamedTuple

import numpy as np

from crossbyte.arrays import Float64
from crossbyte.model.quality.likelihood import Likelihood
from crossbyte.model.quality.offsets import Line
from crossbyte.model.quality.sample import SIDES

__all__ = ["Calibration", "Key", "level_targets"]

_FARTHEST = 100.0  # times the held-out number: beyond, the line is no longer followed

Key = tuple[str, str, str]
"""(query, target, coding)"""


class _Judge(NamedTuple):
    """Which likelihood judges a coding, and as which coding's distances."""

    likelihood: Likelihood
    coding: str


@dataclass(frozen=True)
class Calibration:
    """What was measured on held-out pairs.

    Attributes
    ----------
    offsets : mapping of (query, target, coding) to Line
        See :meth:`offset`.
    n_held_out : int
        Held-out pairs, of one group each, that they were measured on.
    likelihoods : mapping of (query, target, coding) to Likelihood
        Where a true partner could be seen without looking at itself. See :meth:`log_ratios`.
    """

    offsets: Mapping[Key, Line]
    n_held_out: int
    likelihoods: Mapping[Key, Likelihood] = field(default_factory=dict)

    def offset(self, query: str, target: str, coding: str, n_items: int | None = None) -> float:
        """What to add to a distance so that items of all codings compete fairly.

        Parameters
        ----------
        query : {"image", "text"}
            Kind of the query.
        target : {"image", "text", "document"}
            What is searched.
        coding : {"training", "pair", "image", "text"}
            How the item was coded.
        n_items : int, optional
            Size of the index, all codings together; None for the number of held-out pairs. The same for
            all codings of one search, and for all shards.

        Returns
        -------
        float
            0.0 for every combination that was not measured.
        """
        line = self.offsets.get((query, target, coding), Line(0.0, 0.0))
        ratio = max(n_items or self.n_held_out, 1) / self.n_held_out
        return line.at_held_out + line.slope * log(min(max(ratio, 1 / _FARTHEST), _FARTHEST))

    def knows(self, query: str, target: str, coding: str) -> bool:
        """Whether hits of this coding have a probability."""
        return self._judge(query, target, coding) is not None

    def log_ratios(
        self, key: Key, distances: Any, levels: Mapping[str, Any], n_items: int | None = None
    ) -> Float64:
        """Log-likelihood ratios, partner against stranger, of distances that have their offset.

        Parameters
        ----------
        key : (query, target, coding)
            One that :meth:`knows`.
        distances : (n,)
            As a search gives them.
        levels : mapping of target to (n,)
            What strangers reach of each query, :class:`crossbyte.model.quality.cohort.Cohort`.
        n_items : int, optional
            As for :meth:`offset`.
        """
        query, target, coding = key
        judge = self._judge(*key)
        assert judge is not None
        raw = np.asarray(distances) - self.offset(query, target, judge.coding, n_items)
        return judge.likelihood.log_ratios(raw, levels[_own_target(target, coding)])

    def _judge(self, query: str, target: str, coding: str) -> _Judge | None:
        """The coding's own likelihood, or that of the nearest coding whose partners could be seen.

        Offsets make distances of all codings alike as far as strangers go; partners of pairs and training
        documents are rather nearer than that, so a borrowed likelihood is on the careful side.
        """
        likes = (coding, "pair", target) if coding in ("training", "pair") else (coding,)
        for like in likes:
            found = self.likelihoods.get((query, _own_target(target, like), like))
            if found is not None:
                return _Judge(found, like)
        return None


def level_targets(target: str, codings: Iterable[str]) -> list[str]:
    """Targets whose levels it takes to judge hits of these codings."""
    return sorted({_own_target(target, coding) for coding in codings})


def _own_target(target: str, coding: str) -> str:
    """A document with one side is as far as that side."""
    return coding if target == "document" and coding in SIDES else target
