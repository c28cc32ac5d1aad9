"""Turn what was asked into a list of runs, with a line for everything that is left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from crossbyte.errors import InvalidInput, MissingExtra
from crossbyte.extras import check_installed
from crossbyte.lab.datasets.collection import Collection
from crossbyte.lab.methods import registry
from crossbyte.lab.parameter_search import RecordedParameters
from crossbyte.lab.protocols import make_trial
from crossbyte.lab.results import SIDE, Run
from crossbyte.lab.systems import (
    MOST_BITS,
    are_words,
    choose_similarity,
    compares_words,
    make_system,
    needs_faiss,
)

ABLATIONS: Mapping[str, dict[str, Any]] = {
    "gamma=0": {"correlation": 0.0},
    "lambda=0": {"alignment": 0.0},
    "C=D": {"shared_codebooks": True},
}
"""The paper's ablations of CMCQ, by the names of its figures."""

_TO_ONE = (0.001, 0.003, 0.01, 0.03, 0.1, 0.2, 0.3, 0.5, 1.0)
_TO_TEN = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)

SENSITIVITY: Mapping[str, tuple[str, tuple[float, ...]]] = {
    "gamma": ("correlation", _TO_TEN),
    "rho": ("sparsity", _TO_ONE),
    "eta": ("text_weight", _TO_TEN),
    "lambda": ("alignment", _TO_TEN),
}
"""The paper's letters, our names for them, and the values that are tried while the others stay."""

_SENSITIVITY_BITS = 32
_VARIED = "cmcq"


@dataclass(frozen=True)
class RunRequest:
    """What an evaluation is asked for.

    Attributes
    ----------
    methods : tuple of str
        Keys of systems, and names of groups.
    bits, seeds : tuple of int
    protocols : tuple of str
    similarity : str or None
    ablations, sensitivity, full : bool
    """

    methods: tuple[str, ...]
    bits: tuple[int, ...]
    seeds: tuple[int, ...] = (0,)
    protocols: tuple[str, ...] = ("A",)
    similarity: str | None = None
    ablations: bool = False
    sensitivity: bool = False
    full: bool = False


@dataclass
class RunPlan:
    """Runs to do, and what was left out and why, a line each."""

    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def plan_runs(
    asked: RunRequest, collection: Collection, digest: str, recorded: RecordedParameters
) -> RunPlan:
    """Make the list of runs; refuse, before any work, what cannot be run.

    Raises
    ------
    InvalidInput
        An unknown system, a length it does not have, a protocol that these data do not allow, a parameter
        that a system does not have.
    MissingExtra
        A system was asked for by its name, and the library it needs is not installed.
    """
    plan = RunPlan(notes=[recorded.note] if recorded.note else [])
    for protocol in asked.protocols:
        make_trial(protocol, collection)
    methods = _choose_methods(asked, collection, plan.notes)
    plan.runs += _make_runs(asked, methods, (collection.name, digest), recorded, plan.notes)
    if asked.ablations:
        plan.runs += list(_make_ablations(_vary_option(plan.runs, "--ablations")))
    if asked.sensitivity:
        make_trial("V", collection)
        plan.runs += _make_sensitivity_runs(asked, methods, (collection.name, digest), recorded, plan.notes)
    _keep_answered(plan, collection)
    return plan


def _keep_answered(plan: RunPlan, collection: Collection) -> None:
    """Keep each run once, and only if its system can answer any task of the protocol.

    Systems refuse parameters and lengths that they do not have.
    """
    places = {(run.protocol, run.variant if run.variant == SIDE else "") for run in plan.runs}
    trials = {place: make_trial(place[0], collection, place[1]) for place in places}
    systems = {run.fit_key: make_system(run) for run in (replace(run, seed=0) for run in plan.runs)}
    kept = {}
    for run in plan.runs:
        trial = trials[run.protocol, run.variant if run.variant == SIDE else ""]
        if trial.tasks_of(systems[replace(run, seed=0).fit_key]):
            kept[run.digest] = run
        else:
            how = f"{run.protocol}, variant {run.variant}" if run.variant else run.protocol
            plan.notes.append(
                f"{run.method} is left out of protocol {how}: it can answer none of its queries"
            )
    if not kept:
        raise InvalidInput(f"{plan.notes[-1]}; use another protocol")
    plan.runs, plan.notes = list(kept.values()), list(dict.fromkeys(plan.notes))


def _choose_methods(asked: RunRequest, collection: Collection, notes: list[str]) -> dict[str, str]:
    """Keys of the systems that can run, each with what it is taught with."""
    has_labels = collection.train.labels is not None
    if asked.similarity == "labels" and not has_labels:
        raise InvalidInput("--similarity labels: these data have no labels; use --similarity pairs")
    usable: dict[str, str] = {}
    refused: list[Exception] = []
    for key in registry.resolve_keys(asked.methods):
        by_name = key in asked.methods
        try:
            if needs_faiss(key):
                check_installed("faiss", f"{key} needs")
            if compares_words(key) and not are_words(collection.train.texts):
                raise InvalidInput(
                    f"{key} compares words, and these text features are not counts of words; leave it out"
                )
            usable[key] = choose_similarity(key, asked.similarity, has_labels=has_labels)
        except (InvalidInput, MissingExtra) as error:
            if by_name:
                raise
            refused.append(error)
            notes.append(f"{key} is left out: {error}")
    if not usable:
        raise refused[0]  # a group of which none can run: what holds for its first holds for it
    return usable


def _make_runs(
    asked: RunRequest,
    methods: Mapping[str, str],
    data: tuple[str, str],
    recorded: RecordedParameters,
    notes: list[str],
) -> list[Run]:
    found = []
    for (key, similarity), bits in product(methods.items(), asked.bits):
        if bits > MOST_BITS.get(key, bits) and not asked.full:
            notes.append(f"{key} with {bits} bits is left out: it would take hours; --full runs it")
            continue
        common: dict[str, Any] = {
            "similarity": similarity,
            "parameters": recorded.parameters(key, bits, similarity),
        }
        for protocol, seed in product(asked.protocols, asked.seeds):
            run = Run(*data, protocol, key, bits, seed, full=asked.full and key in MOST_BITS, **common)
            found += [run, replace(run, variant=SIDE)] if protocol == "D" else [run]
    return found


def _make_ablations(runs: Iterable[Run]) -> Iterator[Run]:
    for run, (name, changed) in product(runs, ABLATIONS.items()):
        yield replace(run, variant=name, parameters={**run.parameters, **changed})


def _make_sensitivity_runs(
    asked: RunRequest,
    methods: Mapping[str, str],
    data: tuple[str, str],
    recorded: RecordedParameters,
    notes: list[str],
) -> list[Run]:
    """Every system once on the validation part, and CMCQ with one parameter varied at a time."""
    once = replace(asked, bits=(_SENSITIVITY_BITS,), seeds=asked.seeds[:1], protocols=("V",))
    plain = _make_runs(once, methods, data, recorded, notes)
    varied = [
        replace(run, variant=f"{letter}={value:g}", parameters={**run.parameters, name: value})
        for run in _vary_option(plain, "--sensitivity")
        for letter, (name, values) in SENSITIVITY.items()
        for value in values
    ]
    return plain + varied


def _vary_option(runs: Sequence[Run], option: str) -> list[Run]:
    found = [run for run in runs if run.method == _VARIED and not run.variant]
    if not found:
        raise InvalidInput(f"{option} varies {_VARIED}, which is not among the systems; add it to --methods")
    return found
