"""``crossbyte evaluate``: compare systems on a collection, by the paper's protocols."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from crossbyte._format import plural
from crossbyte.cli import options
from crossbyte.cli.laboratory import (
    METHODS_HELP,
    DataName,
    Laboratory,
    Processes,
    Similarity,
    judge_outcome,
    parse_names,
    parse_numbers,
    reported,
    said_pages,
)
from crossbyte.cli.output import Table, emit
from crossbyte.cli.own_pairs import compare_own
from crossbyte.errors import InvalidInput

if TYPE_CHECKING:
    from crossbyte.evaluation.planning import Asked, Plan
    from crossbyte.evaluation.recorded import Recorded
    from crossbyte.evaluation.running import Outcome
    from crossbyte.evaluation.summary import Block, Figure

__all__ = ["evaluate"]

_METRICS = {"map@50": "MAP@50", "recall@10": "recall@10"}


def evaluate(
    data: DataName,
    methods: Annotated[
        str | None,
        typer.Option("--methods", metavar="NAMES", help=METHODS_HELP),
    ] = None,
    bits: Annotated[
        str | None, typer.Option("--bits", metavar="N,N", help="Lengths of code; 16,32,64,128 if not given.")
    ] = None,
    protocol: Annotated[
        str | None,
        typer.Option("--protocol", metavar="A,B", help="A, B, C or D; A if not given, B without labels."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, help="How many seeds, from 0; 5 if not given.")
    ] = None,
    similarity: Annotated[
        Similarity | None,
        typer.Option("--similarity", help="What to teach systems with that can learn from either."),
    ] = None,
    parameters: Annotated[
        Path | None,
        typer.Option("--parameters", metavar="FILE", help="Parameters, as `crossbyte tune` writes them."),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="One seed, 16 and 32 bits.")] = False,
    full: Annotated[bool, typer.Option("--full", help="Without the limits of slow systems.")] = False,
    ablations: Annotated[
        bool, typer.Option("--ablations", help="Also CMCQ without each of its parts, as in the paper.")
    ] = False,
    sensitivity: Annotated[
        bool,
        typer.Option("--sensitivity", help="Also vary CMCQ's parameters one by one, on validation rows."),
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("--out", metavar="DIR", help="Folder of the results; they are not made twice."),
    ] = None,
    report: Annotated[
        bool, typer.Option("--report/--no-report", help="Write tables and plots into DIR at the end.")
    ] = True,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Make results again that are there already.")
    ] = False,
    jobs: Processes = None,
    cluster: options.Cluster = None,
    quiet: options.Quiet = False,
    as_json: options.AsJson = False,
) -> int:
    """Compare systems on a collection, or on your own pairs.

    One result file per run; a second call goes on where the first one ended. Your own pairs, without labels
    and without --methods, give a table of what crossbyte and simpler systems find.

    Example:
      crossbyte evaluate wiki.npz --methods table2 --bits 16,32,64,128 --seeds 5 --out wiki
      crossbyte evaluate wiki.npz --methods cmfh,cca-rq,cmcq --quick --out quick
      crossbyte evaluate photos.npz
    """
    from crossbyte.evaluation.planning import plan_runs

    laboratory = Laboratory.of("evaluate", data, jobs, overwrite, quiet, cluster)
    has_labels = laboratory.collection.train.labels is not None
    asked = _asked(methods, bits, protocol, seeds, similarity, quick, has_labels)
    asked = _with_extras(asked, ablations, sensitivity, full)
    if methods is None and not has_labels and protocol is None:
        _refuse(asked, seeds, quick, parameters)
        lengths = parse_numbers(bits or "32", "--bits")
        return compare_own(laboratory, lengths, out, report=report, as_json=as_json)
    if out is None:
        raise InvalidInput("expected a folder for the results; give --out DIR")
    known = _recorded(parameters, laboratory.collection.name, laboratory.digest)
    plan = plan_runs(asked, laboratory.collection, laboratory.digest, known)
    outcome = laboratory.do(plan.runs, out)
    pages, code = reported(out, outcome, plan.notes) if report else ([], 0)
    _emit(out, plan, outcome, pages, as_json=as_json)
    return judge_outcome(outcome) or code


def _asked(
    methods: str | None,
    bits: str | None,
    protocol: str | None,
    seeds: int | None,
    similarity: Similarity | None,
    quick: bool,
    has_labels: bool,
) -> Asked:
    from crossbyte.evaluation.planning import Asked

    if quick and (bits is not None or seeds is not None):
        raise InvalidInput("--quick is one seed, 16 and 32 bits; leave out --bits and --seeds, or --quick")
    letters = parse_names(protocol or ("A" if has_labels else "B"), "--protocol")
    _check_letters(letters)
    return Asked(
        methods=parse_names(methods or "table2", "--methods"),
        bits=parse_numbers(bits or ("16,32" if quick else "16,32,64,128"), "--bits"),
        seeds=tuple(range(seeds or (1 if quick else 5))),
        protocols=letters,
        similarity=None if similarity is None else similarity.value,
    )


def _refuse(asked: Asked, seeds: int | None, quick: bool, parameters: Path | None) -> None:
    """Refuse what would have no effect on the table of a user's own pairs."""
    without_effect = {
        "--similarity": asked.similarity is not None,
        "--parameters": parameters is not None,
        "--ablations": asked.ablations,
        "--sensitivity": asked.sensitivity,
        "--full": asked.full,
        "--quick": quick,
        "--seeds": seeds is not None,
    }
    given = [option for option, is_given in without_effect.items() if is_given]
    if given:
        raise InvalidInput(
            f"{given[0]} has no effect on data without labels and without --methods, which give the table "
            "for your own pairs; leave it out, or name systems with --methods"
        )


def _check_letters(letters: tuple[str, ...]) -> None:
    unknown = [letter for letter in letters if letter not in ("A", "B", "C", "D")]
    if unknown:
        raise InvalidInput(
            f"--protocol: expected A, B, C or D, got {unknown[0]!r}; docs/evaluation.md has them"
        )


def _with_extras(asked: Asked, ablations: bool, sensitivity: bool, full: bool) -> Asked:
    from dataclasses import replace

    return replace(asked, ablations=ablations, sensitivity=sensitivity, full=full)


def _recorded(path: Path | None, name: str, digest: str) -> Recorded:
    from crossbyte.evaluation.recorded import read_parameters, recorded_for

    return recorded_for(name, digest) if path is None else read_parameters(path, name, digest)


def _emit(out: Path, plan: Plan, outcome: Outcome, pages: list[Path], *, as_json: bool) -> None:
    from crossbyte.evaluation.summary import summarise

    blocks = summarise(outcome.results)
    notes = [*plan.notes, *outcome.notes]
    document = {
        "out": out,
        "runs": len(plan.runs),
        "found": outcome.n_found,
        "failed": [{"run": each.run.to_dict(), "error": each.failure.message} for each in outcome.failed],
        "notes": notes,
        "tables": [block.to_dict() for block in blocks],
        "report": list(map(str, pages)),
    }
    emit(document, _text(document, blocks, notes), as_json=as_json)


def _text(document: dict[str, Any], blocks: list[Block], notes: list[str]) -> list[str | Table]:
    made = document["runs"] - document["found"] - len(document["failed"])
    there = f", {document['found']} were there" if document["found"] else ""
    said: list[str | Table] = [f"{document['out']}: {plural(made, 'result')} made{there}"]
    for block in blocks:
        said += ["", _title(block), _table(block)]
    said += ["", *notes] if notes else []
    return [*said, *said_pages(map(Path, document["report"]))]


def _title(block: Block) -> str:
    task, metric = block.task.replace("-", " "), _METRICS.get(block.metric, block.metric)
    seeds = {figure.n_seeds for by_bits in block.rows.values() for figure in by_bits.values()}
    said = " or ".join(map(str, sorted(seeds)))
    unit = "seed" if seeds == {1} else "seeds"
    return f"{block.data}, protocol {block.protocol}, {task}: {metric}, {said} {unit}"


def _table(block: Block) -> Table:
    rows = [
        [name, *(_cell(by_bits.get(bits)) for bits in block.bits)] for name, by_bits in block.rows.items()
    ]
    chance = ["chance", *(f"{block.chance:.4f}" for _ in block.bits)]
    return Table(("system", *(f"{bits} bits>" for bits in block.bits)), [*rows, chance])


def _cell(figure: Figure | None) -> str:
    if figure is None:
        return "–"
    return f"{figure.mean:.4f}" + ("" if figure.spread is None else f" ±{figure.spread:.4f}")
