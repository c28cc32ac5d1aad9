"""Parameters by validation, as the paper chooses them: one is varied while the others stay.

A part of the training documents asks the rest: by labels, the mean MAP@50 of both tasks (protocol V), which
is supervision; or without labels, the recall@10 of true partners that were held out (protocol P).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from crossbyte.evaluation.results import Result
from crossbyte.evaluation.running import Outcome
from crossbyte.evaluation.runs import Run
from crossbyte.evaluation.systems import system_of
from crossbyte.model.selection import EXTENDED_GRID, Trial, pick

__all__ = ["CRITERIA", "GRIDS", "Choice", "choose", "recorded_form"]

Values = Sequence[Any]
Grid = Mapping[str, Values]

_SMALL_RIDGES = (1e-4, 1e-2, 1.0)
# What CMCQ's space is offered below, and more: a comparison of codes must not be one of spaces.
_CANONICAL = {"image_power": (1.0, 0.5), "ridge": (0.1, 0.3, 1.0, 3.0, 10.0)}
_SPARSE_MAPPING = {name: values for name, values in EXTENDED_GRID.items() if name != "correlation"}

GRIDS: Mapping[str, Grid] = {
    "cmcq": EXTENDED_GRID,
    "cq": _SPARSE_MAPPING,
    "cmcq-cca": {
        "image_power": (1.0, 0.5),
        "ridge": (0.1, 0.3, 1.0, 3.0),
        "correlation": (0.0, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
        "cross_penalty": (0.1, 1.0),
    },
    "cmcq-kernel": {
        "ridge": (0.01, 0.03, 0.1, 0.3),
        "text_ridge": (0.3, 1.0, 3.0, 10.0),
        "correlation": (0.3, 1.0, 3.0, 10.0, 30.0, 100.0),
    },
    "lssh": {
        "sparsity": (0.1, 0.2, 0.3, 0.5),
        "text_weight": (0.1, 0.5, 1.0, 2.0, 5.0),
        "alignment": (0.1, 0.5, 1.0, 2.0, 5.0),
    },
    "cmfh": {
        "image_share": (0.1, 0.3, 0.5, 0.7, 0.9),
        "projection_weight": (10.0, 100.0, 1000.0),
        "shrinkage": (0.001, 0.01, 0.1),
    },
    "ccq": {
        "text_weight": (0.1, 0.3, 1.0, 3.0, 10.0),
        "ridge": (1e-4, 1e-3, 1e-2, 1e-1),
        "unit": (True, False),
    },
    "cvh": {"ridge": _SMALL_RIDGES},
    "qch": {"correlation_weight": (0.1, 0.3, 0.5, 0.7, 0.9), "ridge": _SMALL_RIDGES},
    "mlbe": {"negatives": (0.5, 1.0, 2.0)},
    "seph": {"binary_weight": (0.001, 0.01, 0.1), "penalty": (0.001, 0.01, 0.1)},
    "scm": {"variant": ("sequential", "orthogonal"), "ridge": _SMALL_RIDGES},
    "crh": {"similarity_weight": (1.0, 10.0, 100.0, 1000.0), "shrinkage": (0.001, 0.01, 0.1)},
    "mmnn": {
        "decay": (0.003, 0.01, 0.03, 0.1),
        "margin": (0.5, 1.0, 1.5),
        "image_weight": (0.0, 0.3, 1.0),
        "text_weight": (0.0, 0.3, 1.0),
    },
    "sm2h": {
        "pair_weight": (3.0, 10.0, 30.0, 100.0),
        "neighbour_weight": (0.3, 1.0, 3.0),
        "sparsity": (0.1, 0.3, 0.5),
        "shrinkage": (0.3, 1.0, 3.0),
    },
    "imh": {
        "pair_weight": (0.001, 0.01, 0.1, 1.0, 10.0),
        "ridge": (0.01, 0.1, 1.0),
        "smoothness": (0.001, 0.01, 0.1),
    },
    "mvsh": {"alpha": (-1.0, 1.0, 3.0), "width": (0.3, 1.0, 3.0), "ridge": (1e-4, 1e-3, 1e-2)},
    "stmh": {
        "shrinkage": (1e-4, 0.1, 1.0, 3.0),
        "text_weight": (0.5, 5.0, 20.0),
        "link_weight": (0.1, 0.5, 2.0),
    },
    **dict.fromkeys(("cca", "cca-itq", "cca-pq", "cca-opq", "cca-rq", "cca-lsq"), _CANONICAL),
}
"""What is tried, by system and parameter, in the order in which parameters are searched."""

CRITERIA = {"labels": ("V", "map@50", "ap@50"), "pairs": ("P", "recall@10", "recall@10")}
"""Protocol, metric, and its name for single queries, by what is chosen with."""


@dataclass
class Choice:
    """What was chosen for one system at one length, or at several together.

    Attributes
    ----------
    run : Run
        With the parameters as they are now, those at their defaults left out.
    bits : tuple of int
        Lengths that it is chosen for; scores are means over them.
    score : float or None
        On the validation part; None before anything was tried.
    trials : list of Trial
        Everything that was tried.
    """

    run: Run
    bits: tuple[int, ...]
    score: float | None = None
    trials: list[Trial] = field(default_factory=list)


class _Candidate(NamedTuple):
    """A value of one parameter, and its runs, one per length and seed."""

    parameters: dict[str, Any]
    runs: list[Run]


def choose(
    bases: Sequence[Run],
    seeds: Sequence[int],
    by: str,
    do: Callable[[list[Run]], Outcome],
    *,
    together: bool = False,
) -> tuple[list[Choice], list[Outcome]]:
    """Search parameter by parameter, all systems and lengths side by side.

    Parameters
    ----------
    bases : sequence of Run
        One per system and length; its parameters are where the search begins.
    seeds : sequence of int
        Scores are means over them.
    by : {"labels", "pairs"}
    do : callable
        Does runs, and leaves those that are done.
    together : bool
        One choice per system for all its lengths, by the mean over them: there is less chance in it.

    Returns
    -------
    (choices, outcomes)
        The second of every round, with what failed.
    """
    choices, outcomes = _open_choices(bases, together), []
    for turn in range(max((len(GRIDS.get(run.method, {})) for run in bases), default=0)):
        tried = {id(choice): list(_candidates(choice, turn, seeds)) for choice in choices}
        runs = [run for candidates in tried.values() for each in candidates for run in each.runs]
        outcome = do(list({run.digest: run for run in runs}.values()))
        outcomes.append(outcome)
        known = {result.run.digest: result for result in outcome.results}
        for choice in choices:
            _settle(choice, turn, tried[id(choice)], known, by)
    return choices, outcomes


def recorded_form(choices: Sequence[Choice], how: str) -> dict[str, Any]:
    """The form of ``recorded.json``: per collection, system and length."""
    first = choices[0].run
    methods: dict[str, dict[str, Any]] = {}
    scores: dict[str, dict[str, float]] = {}
    for choice in choices:
        if choice.score is not None:
            name = _name(choice.run)
            for bits in map(str, choice.bits):
                methods.setdefault(name, {})[bits] = dict(choice.run.parameters)
                scores.setdefault(name, {})[bits] = round(choice.score, 6)
    return {first.data: {"digest": first.data_digest, "chosen": how, "methods": methods, "scores": scores}}


def _name(run: Run) -> str:
    return run.method if run.similarity == "pairs" else f"{run.method}/{run.similarity}"


def _open_choices(bases: Sequence[Run], together: bool) -> list[Choice]:
    """One for each run, or for all runs that differ in nothing but their length."""
    if not together:
        return [Choice(run, (run.bits,)) for run in bases]
    alike: dict[str, list[Run]] = {}
    for run in bases:
        alike.setdefault(replace(run, bits=0).digest, []).append(run)
    return [Choice(runs[0], tuple(run.bits for run in runs)) for runs in alike.values()]


def _candidates(choice: Choice, turn: int, seeds: Sequence[int]) -> Iterator[_Candidate]:
    """The values of the parameter whose turn it is, that of now first."""
    run = choice.run
    grid = list(GRIDS.get(run.method, {}).items())
    if turn >= len(grid):
        return
    name, values = grid[turn]
    defaults = system_of(replace(run, parameters={})).parameters
    now = {**defaults, **run.parameters}[name]
    for value in dict.fromkeys([now, *values]):
        changed = {**run.parameters, name: value}
        kept = {each: given for each, given in changed.items() if given != defaults[each]}
        yield _Candidate(
            {**kept, name: value},
            [
                replace(run, parameters=kept, bits=bits, seed=seed)
                for bits, seed in product(choice.bits, seeds)
            ],
        )


def _settle(
    choice: Choice, turn: int, candidates: list[_Candidate], known: Mapping[str, Result], by: str
) -> None:
    """Take the best of the candidates that could be measured."""
    trials: list[tuple[Trial, _Candidate]] = []
    for candidate in candidates:
        results = [known[run.digest] for run in candidate.runs if run.digest in known]
        if results:
            trials.append((Trial(candidate.parameters, *_score(results, by)), candidate))
    if not trials:
        return
    name = list(GRIDS[choice.run.method])[turn]
    best = pick([trial for trial, _ in trials], name, prefer_large=by == "pairs")
    chosen = next(candidate for trial, candidate in trials if trial is best)
    choice.run = replace(choice.run, parameters=chosen.runs[0].parameters)
    choice.score = best.score
    choice.trials += [trial for trial, _ in trials]


def _score(results: Sequence[Result], by: str) -> tuple[float, float]:
    """Mean over tasks, lengths and seeds, and its standard error over the queries."""
    _, metric, per_query = CRITERIA[by]
    score = fmean(value for each in results if (value := each.score(metric)) is not None)
    values = [each.per_query[task][per_query] for each in results for task in each.tasks]
    by_query = np.mean(values, axis=0)
    return score, float(by_query.std() / np.sqrt(len(by_query)))
