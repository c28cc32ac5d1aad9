"""``crossbyte tune``: choose the parameters of compared systems by validation."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte.cli import options
from crossbyte.cli.inputs import check_free
from crossbyte.cli.laboratory import (
    METHODS_HELP,
    DataName,
    Laboratory,
    Processes,
    Similarity,
    judge_outcome,
    parse_names,
    parse_numbers,
)
from crossbyte.cli.output import Table, emit
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.evaluation.choosing import Choice

__all__ = ["tune"]


class By(StrEnum):
    """What parameters are chosen by."""

    LABELS = "labels"
    PAIRS = "pairs"


def tune(
    data: DataName,
    out: Annotated[
        Path, typer.Option("--out", metavar="FILE", help="Where the chosen parameters are written.")
    ],
    methods: Annotated[str, typer.Option("--methods", metavar="NAMES", help=METHODS_HELP)] = "table2",
    bits: Annotated[
        str, typer.Option("--bits", metavar="N,N", help="Lengths of code, each chosen for.")
    ] = "16,32,64,128",
    by: Annotated[
        By | None,
        typer.Option(
            "--by", help="MAP@50 by labels, or recall@10 of held-out pairs; labels if there are any."
        ),
    ] = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="Scores are means over so many seeds.")] = 1,
    similarity: Annotated[
        Similarity | None,
        typer.Option("--similarity", help="What to teach systems with that can learn from either."),
    ] = None,
    together: Annotated[
        bool, typer.Option("--together", help="One choice for all lengths, by the mean over them.")
    ] = False,
    full: Annotated[bool, typer.Option("--full", help="Without the limits of slow systems.")] = False,
    overwrite: options.Overwrite = False,
    jobs: Processes = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> int:
    """Choose parameters of systems by validation, as the paper does.

    One parameter is varied while the others stay. A part of the training documents asks the rest; no query
    is looked at. Trials are kept beside FILE, so that a second call goes on where the first one ended.

    Example:
      crossbyte tune wiki.npz --methods cmfh,cmcq --bits 16,32 --out chosen.json
      crossbyte tune photos.npz --methods quantizers --by pairs --out chosen.json
    """
    from crossbyte.evaluation.choosing import CRITERIA, GRIDS, choose
    from crossbyte.evaluation.planning import Asked, plan_runs
    from crossbyte.evaluation.recorded import Recorded

    check_free(out, overwrite=overwrite)
    laboratory = Laboratory.of("tune", data, jobs, overwrite=False, quiet=quiet)
    criterion = by.value if by else "pairs" if laboratory.collection.train.labels is None else "labels"
    asked = Asked(
        methods=parse_names(methods, "--methods"),
        bits=parse_numbers(bits, "--bits"),
        protocols=(CRITERIA[criterion][0],),
        similarity=None if similarity is None else similarity.value,
        full=full,
    )
    plan = plan_runs(asked, laboratory.collection, laboratory.digest, Recorded())
    bases = [run for run in plan.runs if run.method in GRIDS]
    fixed = sorted({run.method for run in plan.runs} - set(GRIDS))
    notes = [*plan.notes, *(f"{key} has nothing to choose" for key in fixed)]
    if not bases:
        raise InvalidInput("expected systems with parameters to choose, got none: " + "; ".join(notes))
    trials = out.with_name(f"{out.name}.trials")
    choices, outcomes = choose(
        bases, range(seeds), criterion, lambda runs: laboratory.do(runs, trials), together=together
    )
    document = _write(out, choices, criterion, seeds)
    emit(document | {"notes": notes}, _text(out, choices, notes), as_json=as_json)
    return max(map(judge_outcome, outcomes))


def _write(out: Path, choices: list[Choice], criterion: str, seeds: int) -> dict[str, Any]:
    from crossbyte._fs import replace_file
    from crossbyte.evaluation.choosing import CRITERIA, recorded_form

    _, metric, _ = CRITERIA[criterion]
    how = (
        f"one parameter at a time, by the mean {metric} of both tasks on a validation part of the training "
        f"documents ({criterion}; seeds: {seeds})"
    )
    document = recorded_form(choices, how)
    replace_file(str(out), (json.dumps(document, indent=2, sort_keys=True) + "\n").encode())
    return document


def _text(out: Path, choices: list[Choice], notes: list[str]) -> list[str | Table]:
    rows = [
        [
            choice.run.method,
            ", ".join(map(str, choice.bits)),
            "–" if choice.score is None else f"{choice.score:.4f}",
            ", ".join(f"{name}={value}" for name, value in sorted(choice.run.parameters.items()))
            or "defaults",
        ]
        for choice in choices
    ]
    table = Table(("system", "bits>", "score>", "chosen"), rows)
    return [f"{out}: chosen parameters, for `crossbyte evaluate --parameters`", "", table, *notes]
