"""Choose the parameters of a system on validation data, and keep those that were chosen.

A part of the training documents asks the rest: by labels, the mean MAP@50 of both tasks (protocol V), which
is supervision; or without labels, the recall@10 of true partners that were held out (protocol P), or the mean
MAP@50 by classes that the pairs themselves show (protocol L). One parameter is varied while the others stay,
as in the paper.

Chosen parameters are kept per collection, system and length, in ``recorded.json`` here and in what
``crossbyte tune`` writes::

    {"wiki": {"digest": "…", "chosen": "how, in words",
              "methods": {"cmfh": {"*": {"balance": 0.5}, "128": {"balance": 0.3}},
                          "cvh/labels": {"*": {}}}}}

``"*"`` holds for every length, and a length's own entry comes on top. ``"key/similarity"`` goes before
``"key"``. A digest says which features they were chosen on; on others they are not used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import product
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

import numpy as np

from crossbyte._json import parse_json
from crossbyte.errors import InvalidInput
from crossbyte.lab.results import Result, Run
from crossbyte.lab.runner import Outcome
from crossbyte.lab.systems import make_system
from crossbyte.model.params import Trial
from crossbyte.model.selection import EXTENDED_GRID, pick_trial

_Methods = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class RecordedParameters:
    """Chosen parameters for one collection.

    Attributes
    ----------
    methods : mapping
        Key of a system, or key/similarity, to length or ``"*"`` to parameters.
    source : str
        Where they come from, for people.
    note : str
        Why they are not used, or what is odd about them; empty if all is well.
    """

    methods: _Methods = field(default_factory=dict)
    source: str = "the systems' own defaults"
    note: str = ""

    def parameters(self, key: str, bits: int, similarity: str) -> dict[str, Any]:
        """Give the parameters of one system at one length; none where none were chosen."""
        by_length = self.methods.get(f"{key}/{similarity}", self.methods.get(key, {}))
        return {**by_length.get("*", {}), **by_length.get(str(bits), {})}


def read_recorded(name: str, digest: str) -> RecordedParameters:
    """Give what is recorded in the package for a collection; nothing if its contents are other ones."""
    text = files(__package__).joinpath("recorded.json").read_text(encoding="utf-8")
    known = _check_form(parse_json(text), "recorded.json").get(name)
    if known is None:
        return RecordedParameters()
    if known.get("digest") != digest:
        return RecordedParameters(
            note=f"the recorded parameters are for other features named {name}; not used"
        )
    return RecordedParameters(known["methods"], "the recorded parameters")


def read_parameters(path: Path, name: str, digest: str) -> RecordedParameters:
    """Read a user's file of the same form.

    Raises
    ------
    InvalidInput
        It is not of this form, or has nothing for this collection.
    """
    try:
        document = _check_form(parse_json(path.read_bytes().decode()), str(path))
    except (ValueError, RecursionError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(f"{path}: expected JSON, got something else ({error})") from error
    if name not in document:
        there = ", ".join(document) or "nothing"
        raise InvalidInput(
            f"{path}: expected parameters for {name!r}, got them for {there}; tune on these data"
        )
    known = document[name]
    odd = known.get("digest") not in (None, digest)
    note = f"the parameters in {path} were chosen on other features named {name}" if odd else ""
    return RecordedParameters(known["methods"], str(path), note)


def _check_form(document: Any, name: str) -> dict[str, dict[str, Any]]:
    """Refuse what is not of the form, before any run."""
    entries = document.values() if isinstance(document, dict) else [None]
    if not all(isinstance(entry, dict) and _is_methods_form(entry.get("methods")) for entry in entries):
        raise InvalidInput(
            f'{name}: expected {{"data": {{"methods": {{"key": {{"*": {{…}}}}}}}}}}, got something else; '
            "docs/evaluation.md shows the form"
        )
    return dict(document)


def _is_methods_form(methods: Any) -> bool:
    """Whether it is a mapping of mappings of mappings."""
    return isinstance(methods, dict) and all(
        isinstance(by_length, dict) and all(isinstance(each, dict) for each in by_length.values())
        for by_length in methods.values()
    )


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
        "item": ("sides", "both", "text", "image"),
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
    **dict.fromkeys(
        ("cca", "cca-itq", "cca-pq", "cca-opq", "cca-rq", "cca-lsq", "cca-middle-rq"), _CANONICAL
    ),
}
"""What is tried, by system and parameter, in the order in which parameters are searched."""

CRITERIA = {
    "labels": ("V", "map@50", "ap@50"),
    "pairs": ("P", "recall@10", "recall@10"),
    "classes": ("L", "map@50", "ap@50"),
}
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


def choose_parameters(
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
    by : {"labels", "pairs", "classes"}
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
        tried = {id(choice): list(_list_candidates(choice, turn, seeds)) for choice in choices}
        runs = [run for candidates in tried.values() for each in candidates for run in each.runs]
        outcome = do(list({run.digest: run for run in runs}.values()))
        outcomes.append(outcome)
        known = {result.run.digest: result for result in outcome.results}
        for choice in choices:
            _settle_choice(choice, turn, tried[id(choice)], known, by)
    return choices, outcomes


def to_recorded_form(choices: Sequence[Choice], how: str) -> dict[str, Any]:
    """The form of ``recorded.json``: per collection, system and length."""
    first = choices[0].run
    methods: dict[str, dict[str, Any]] = {}
    scores: dict[str, dict[str, float]] = {}
    for choice in choices:
        if choice.score is not None:
            name = _name_system(choice.run)
            for bits in map(str, choice.bits):
                methods.setdefault(name, {})[bits] = dict(choice.run.parameters)
                scores.setdefault(name, {})[bits] = round(choice.score, 6)
    return {first.data: {"digest": first.data_digest, "chosen": how, "methods": methods, "scores": scores}}


def _name_system(run: Run) -> str:
    return run.method if run.similarity == "pairs" else f"{run.method}/{run.similarity}"


def _open_choices(bases: Sequence[Run], together: bool) -> list[Choice]:
    """One for each run, or for all runs that differ in nothing but their length."""
    if not together:
        return [Choice(run, (run.bits,)) for run in bases]
    alike: dict[str, list[Run]] = {}
    for run in bases:
        alike.setdefault(replace(run, bits=0).digest, []).append(run)
    return [Choice(runs[0], tuple(run.bits for run in runs)) for runs in alike.values()]


def _list_candidates(choice: Choice, turn: int, seeds: Sequence[int]) -> Iterator[_Candidate]:
    """The values of the parameter whose turn it is, that of now first."""
    run = choice.run
    grid = list(GRIDS.get(run.method, {}).items())
    if turn >= len(grid):
        return
    name, values = grid[turn]
    defaults = make_system(replace(run, parameters={})).parameters
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


def _settle_choice(
    choice: Choice, turn: int, candidates: list[_Candidate], known: Mapping[str, Result], by: str
) -> None:
    """Take the best of the candidates that could be measured."""
    trials: list[tuple[Trial, _Candidate]] = []
    for candidate in candidates:
        results = [known[run.digest] for run in candidate.runs if run.digest in known]
        if results:
            trials.append((Trial(candidate.parameters, *_score_candidate(results, by)), candidate))
    if not trials:
        return
    name = list(GRIDS[choice.run.method])[turn]
    best = pick_trial([trial for trial, _ in trials], name, prefer_large=by == "pairs")
    chosen = next(candidate for trial, candidate in trials if trial is best)
    choice.run = replace(choice.run, parameters=chosen.runs[0].parameters)
    choice.score = best.score
    choice.trials += [trial for trial, _ in trials]


def _score_candidate(results: Sequence[Result], by: str) -> tuple[float, float]:
    """Mean over tasks, lengths and seeds, and its standard error over the queries."""
    _, metric, per_query = CRITERIA[by]
    score = fmean(value for each in results if (value := each.score(metric)) is not None)
    values = [each.per_query[task][per_query] for each in results for task in each.tasks]
    by_query = np.mean(values, axis=0)
    return score, float(by_query.std() / np.sqrt(len(by_query)))
