"""Compare systems on data (``crossbyte evaluate``), and choose their parameters (``crossbyte tune``)."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from crossbyte._format import plural
from crossbyte.cli import options
from crossbyte.cli.exit_codes import DEBUG, ExitCode, describe_error, exit_code, print_error
from crossbyte.cli.inputs import check_free
from crossbyte.cli.output import Table, emit, redirect_ray_output, show_progress
from crossbyte.errors import CrossbyteError, FitInterrupted, InvalidInput
from crossbyte.lab.methods.registry import GROUPS, list_keys

if TYPE_CHECKING:
    from crossbyte.lab.datasets.collection import Collection
    from crossbyte.lab.datasets.loader import DataSource
    from crossbyte.lab.parameter_search import Choice, RecordedParameters
    from crossbyte.lab.report.study import Study
    from crossbyte.lab.results import Run
    from crossbyte.lab.run_plan import RunPlan, RunRequest
    from crossbyte.lab.runner import Outcome
    from crossbyte.lab.score_tables import QualityTable, SummaryBlock, SummaryFigure, SystemQuality
    from crossbyte.report.measurements import Estimate


_MOST_REPORTED = 5  # failures printed one by one
_METRICS = {"map@50": "MAP@50", "recall@10": "recall@10"}


class Similarity(StrEnum):
    """What systems learn from."""

    PAIRS = "pairs"
    LABELS = "labels"


class Criterion(StrEnum):
    """What parameters are chosen by."""

    LABELS = "labels"
    PAIRS = "pairs"
    CLASSES = "classes"


METHODS_HELP = (
    f"Systems with commas between them: {', '.join(list_keys())}; "
    f"or groups: {', '.join(GROUPS)} (docs/evaluation.md)."
)
"""The help of ``--methods``."""


DataName = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="A file of pairs, a published collection's folder, or generated:wiki and the like.",
    ),
]


Processes = Annotated[
    int | None, typer.Option("--jobs", min=1, help="Runs at a time; all cores if not given.")
]


# Comparing systems


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
    from crossbyte.lab.run_plan import plan_runs

    laboratory = Laboratory.open("evaluate", data, jobs, overwrite, quiet, cluster)
    has_labels = laboratory.collection.train.labels is not None
    request = _make_request(methods, bits, protocol, seeds, similarity, quick, has_labels)
    request = _add_extras(request, ablations, sensitivity, full)
    if methods is None and not has_labels and protocol is None:
        _refuse_without_effect(request, seeds, quick, parameters)
        lengths = parse_numbers(bits or "32", "--bits")
        return compare_own_pairs(laboratory, lengths, out, report=report, as_json=as_json)
    if out is None:
        raise InvalidInput("expected a folder for the results; give --out DIR")
    known = _read_recorded_parameters(parameters, laboratory.collection.name, laboratory.digest)
    plan = plan_runs(request, laboratory.collection, laboratory.digest, known)
    outcome = laboratory.run(plan.runs, out)
    pages, code = write_report(out, outcome, plan.notes) if report else ([], 0)
    _emit_outcome(out, plan, outcome, pages, as_json=as_json)
    return report_failed_runs(outcome) or code


def _make_request(
    methods: str | None,
    bits: str | None,
    protocol: str | None,
    seeds: int | None,
    similarity: Similarity | None,
    quick: bool,
    has_labels: bool,
) -> RunRequest:
    from crossbyte.lab.run_plan import RunRequest

    if quick and (bits is not None or seeds is not None):
        raise InvalidInput("--quick is one seed, 16 and 32 bits; leave out --bits and --seeds, or --quick")
    letters = parse_names(protocol or ("A" if has_labels else "B"), "--protocol")
    _check_letters(letters)
    return RunRequest(
        methods=parse_names(methods or "table2", "--methods"),
        bits=parse_numbers(bits or ("16,32" if quick else "16,32,64,128"), "--bits"),
        seeds=tuple(range(seeds or (1 if quick else 5))),
        protocols=letters,
        similarity=None if similarity is None else similarity.value,
    )


def _refuse_without_effect(
    request: RunRequest, seeds: int | None, quick: bool, parameters: Path | None
) -> None:
    """Refuse what would have no effect on the table of a user's own pairs."""
    without_effect = {
        "--similarity": request.similarity is not None,
        "--parameters": parameters is not None,
        "--ablations": request.ablations,
        "--sensitivity": request.sensitivity,
        "--full": request.full,
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


def _add_extras(request: RunRequest, ablations: bool, sensitivity: bool, full: bool) -> RunRequest:
    from dataclasses import replace

    return replace(request, ablations=ablations, sensitivity=sensitivity, full=full)


def _read_recorded_parameters(path: Path | None, name: str, digest: str) -> RecordedParameters:
    from crossbyte.lab.parameter_search import read_parameters, read_recorded

    return read_recorded(name, digest) if path is None else read_parameters(path, name, digest)


def _emit_outcome(out: Path, plan: RunPlan, outcome: Outcome, pages: list[Path], *, as_json: bool) -> None:
    from crossbyte.lab.score_tables import summarise_results

    blocks = summarise_results(outcome.results)
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
    emit(document, _describe_outcome(document, blocks, notes), as_json=as_json)


def _describe_outcome(
    document: dict[str, Any], blocks: list[SummaryBlock], notes: list[str]
) -> list[str | Table]:
    made = document["runs"] - document["found"] - len(document["failed"])
    there = f", {document['found']} were there" if document["found"] else ""
    said: list[str | Table] = [f"{document['out']}: {plural(made, 'result')} made{there}"]
    for block in blocks:
        said += ["", _format_title(block), _make_table(block)]
    said += ["", *notes] if notes else []
    return [*said, *describe_pages(map(Path, document["report"]))]


def _format_title(block: SummaryBlock) -> str:
    task, metric = block.task.replace("-", " "), _METRICS.get(block.metric, block.metric)
    seeds = {figure.n_seeds for by_bits in block.rows.values() for figure in by_bits.values()}
    said = " or ".join(map(str, sorted(seeds)))
    unit = "seed" if seeds == {1} else "seeds"
    return f"{block.data}, protocol {block.protocol}, {task}: {metric}, {said} {unit}"


def _make_table(block: SummaryBlock) -> Table:
    rows = [
        [name, *(_format_figure(by_bits.get(bits)) for bits in block.bits)]
        for name, by_bits in block.rows.items()
    ]
    chance = ["chance", *(f"{block.chance:.4f}" for _ in block.bits)]
    return Table(("system", *(f"{bits} bits>" for bits in block.bits)), [*rows, chance])


def _format_figure(figure: SummaryFigure | None) -> str:
    if figure is None:
        return "–"
    return f"{figure.mean:.4f}" + ("" if figure.spread is None else f" ±{figure.spread:.4f}")


# Comparing crossbyte with simpler systems on a user's own pairs

_NO_OTHER_TEXTS = (
    "Documents known from both halves, and keyword overlap with their own texts, are not compared: the "
    "held-out pairs have no other texts to ask with (docs/evaluation.md)."
)


def compare_own_pairs(
    laboratory: Laboratory, bits: tuple[int, ...], out: Path | None, *, report: bool, as_json: bool
) -> int:
    """Measure crossbyte and simpler systems on held-out pairs; without a folder, no results are kept."""
    from crossbyte.lab.protocols import has_other_texts
    from crossbyte.lab.score_tables import check_enough_pairs, make_quality_tables, plan_own_runs

    check_enough_pairs(len(laboratory.collection.train))
    runs = plan_own_runs(laboratory.collection, laboratory.digest, bits)
    with TemporaryDirectory(prefix="crossbyte-") as temporary, _interrupt_without_results(out):
        outcome = laboratory.run(runs, out or Path(temporary))
    notes = outcome.notes
    if not has_other_texts(laboratory.collection.query):
        notes.append(_NO_OTHER_TEXTS)
    pages, code = ([], 0) if out is None or not report else write_report(out, outcome, notes)
    tables, documents = (make_quality_tables(outcome.results, bits, protocol) for protocol in ("B", "C"))
    document = {
        "data": laboratory.collection.name,
        "out": out,
        "tables": [table.to_dict() for table in tables],
        "documents": [table.to_dict() for table in documents],
        "notes": notes,
        "report": list(map(str, pages)),
    }
    said = [part for table in (*tables, *documents) for part in _describe_quality(table)]
    written = describe_pages(pages)
    emit(document, [laboratory.collection.about, *said, *notes, *written], as_json=as_json)
    return report_failed_runs(outcome) or code


@contextmanager
def _interrupt_without_results(out: Path | None) -> Iterator[None]:
    """Turn an interruption into plain Ctrl-C where there are no results to go on from."""
    try:
        yield
    except FitInterrupted:
        if out is not None:
            raise
        raise KeyboardInterrupt from None


def _describe_quality(table: QualityTable) -> list[str | Table]:
    size, learned = plural(table.n_bits // 8, "byte"), f"learned from {plural(table.n_train, 'pair')}"
    if table.protocol == "B":
        asked = f"{size} per item, {learned}, asked among {plural(table.n_queries, 'unseen pair')}; partners"
        summary = "both directions, among the first 10"
    else:
        asked = (
            f"{size} per document known from both halves, {learned}, "
            f"{plural(table.n_queries, 'other text')} ask for {plural(table.n_items, 'unseen document')}; "
            "documents"
        )
        summary = "among the first 10"
    said: list[str | Table] = ["", f"{asked} found of 100, with 95 % intervals:"]
    for direction in table.systems[0].recall:
        said += ["", direction.replace("-", " "), _make_recall_table(table.systems, direction)]
    return [
        *said,
        "",
        summary,
        _make_gain_table(table.systems),
        "",
        table.verdict,
    ]


def _make_recall_table(systems: list[SystemQuality], direction: str) -> Table:
    depths = list(systems[0].recall[direction])
    rows = [
        [
            system.name,
            "" if system.n_bytes is None else str(system.n_bytes),
            *(_format_percent(system.recall[direction][depth]) for depth in depths),
        ]
        for system in systems
    ]
    return Table(("system", "bytes>", *(f"first {depth}>" for depth in depths)), rows)


def _make_gain_table(systems: list[SystemQuality]) -> Table:
    rows = [
        [
            system.name,
            f"{100 * system.mean_recall():.1f}",
            "" if system.gain is None else _format_percent(system.gain, signed=True),
        ]
        for system in systems
    ]
    return Table(("system", "found>", "crossbyte minus it>"), rows)


def _format_percent(estimate: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    value, low, high = (f"{100 * number:{sign}.1f}" for number in estimate)
    return value if estimate.low == estimate.high else f"{value} ({low} to {high})"


# Choosing parameters


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
        Criterion | None,
        typer.Option(
            "--by",
            help="MAP@50 by labels, recall@10 of held-out pairs, or MAP@50 by classes that the pairs show; "
            "labels if there are any.",
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
    from crossbyte.lab.parameter_search import CRITERIA, GRIDS, RecordedParameters, choose_parameters
    from crossbyte.lab.run_plan import RunRequest, plan_runs

    check_free(out, overwrite=overwrite)
    laboratory = Laboratory.open("tune", data, jobs, overwrite=False, quiet=quiet)
    criterion = by.value if by else "pairs" if laboratory.collection.train.labels is None else "labels"
    request = RunRequest(
        methods=parse_names(methods, "--methods"),
        bits=parse_numbers(bits, "--bits"),
        protocols=(CRITERIA[criterion][0],),
        similarity=None if similarity is None else similarity.value,
        full=full,
    )
    plan = plan_runs(request, laboratory.collection, laboratory.digest, RecordedParameters())
    bases = [run for run in plan.runs if run.method in GRIDS]
    fixed = sorted({run.method for run in plan.runs} - set(GRIDS))
    notes = [*plan.notes, *(f"{key} has nothing to choose" for key in fixed)]
    if not bases:
        raise InvalidInput("expected systems with parameters to choose, got none: " + "; ".join(notes))
    trials = out.with_name(f"{out.name}.trials")
    choices, outcomes = choose_parameters(
        bases, range(seeds), criterion, lambda runs: laboratory.run(runs, trials), together=together
    )
    document = _write_choices(out, choices, criterion, seeds)
    emit(document | {"notes": notes}, _describe_choices(out, choices, notes), as_json=as_json)
    return max(map(report_failed_runs, outcomes))


def _write_choices(out: Path, choices: list[Choice], criterion: str, seeds: int) -> dict[str, Any]:
    from crossbyte._fs import replace_file
    from crossbyte.lab.parameter_search import CRITERIA, to_recorded_form

    _, metric, _ = CRITERIA[criterion]
    how = (
        f"one parameter at a time, by the mean {metric} of both tasks on a validation part of the training "
        f"documents ({criterion}; seeds: {seeds})"
    )
    document = to_recorded_form(choices, how)
    replace_file(str(out), (json.dumps(document, indent=2, sort_keys=True) + "\n").encode())
    return document


def _describe_choices(out: Path, choices: list[Choice], notes: list[str]) -> list[str | Table]:
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


# Runs and reports, for both commands


class Laboratory(NamedTuple):
    """A collection of documents, and how to run systems on it."""

    command: str
    source: DataSource
    collection: Collection
    digest: str
    jobs: int | None
    overwrite: bool
    quiet: bool
    cluster: str | None = None

    @classmethod
    def open(
        cls,
        command: str,
        data: str,
        jobs: int | None,
        overwrite: bool,
        quiet: bool,
        cluster: str | None = None,
    ) -> Laboratory:
        """Read the collection, and compute its digest."""
        from crossbyte.lab.datasets.collection import collection_digest
        from crossbyte.lab.datasets.loader import DataSource

        source = DataSource(data)
        collection = source.read()
        return cls(
            command, source, collection, collection_digest(collection), jobs, overwrite, quiet, cluster
        )

    def run(self, runs: list[Run], out: Path) -> Outcome:
        """Do the runs that are not done yet, and show progress."""
        from crossbyte.lab.runner import run_all

        with show_progress(self.command, quiet=self.quiet) as callback, redirect_ray_output(self.cluster):
            return run_all(
                runs,
                self.collection,
                out,
                source=self.source,
                n_processes=_count_processes(self.jobs, self.cluster),
                cluster=self.cluster,
                again=self.overwrite,
                stage="runs",
                callback=callback,
            )


def _count_processes(jobs: int | None, cluster: str | None) -> int:
    """Choose how many runs go on at a time: as asked, or one per core, or as the cluster has room."""
    from crossbyte.compute.executor import available_cores

    if jobs is not None:
        return jobs
    return available_cores() if cluster is None else -1


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Parse names such as ``cmfh,cca-pq``."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidInput(f"{option}: expected names with commas between them, got {text!r}")
    return names


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Parse code lengths such as ``16,32``."""
    if not re.fullmatch(r"\s*[1-9]\d{0,4}\s*(,\s*[1-9]\d{0,4}\s*)*", text, re.ASCII):
        raise InvalidInput(f"{option}: expected numbers above 0, got {text!r}; give some such as 16,32")
    return tuple(sorted({int(part) for part in text.split(",")}))


def write_report(out: Path, outcome: Outcome, notes: list[str]) -> tuple[list[Path], int]:
    """Write the report, and note what it is without; a failure here leaves the results as they are."""
    if not outcome.results:
        return [], ExitCode.FINE
    from crossbyte.lab.report.study import read_study
    from crossbyte.lab.report.write import write_study

    try:
        study = read_study(out)
        notes += describe_damaged_results(study)
        return write_study(study, out), ExitCode.FINE
    except CrossbyteError as error:
        print_error(*describe_error(error))
        return [], exit_code(error)


def describe_damaged_results(study: Study) -> list[str]:
    """Name the results that a report is without, a line each."""
    return [f"left out of the report: {line}" for line in study.damaged]


def describe_pages(pages: Iterable[Path]) -> list[str]:
    """Name the pages of a report; its pictures are beside them."""
    return [f"{page}: the report" for page in pages if page.suffix in (".html", ".md")]


def report_failed_runs(outcome: Outcome) -> int:
    """Print what failed, and return the exit code of the gravest failure."""
    for each in outcome.failed[:_MOST_REPORTED]:
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            print(each.failure.trace, file=sys.stderr)
        what, what_to_do = describe_error(each.failure.error)
        print_error(f"{each.run}: {what}", what_to_do)
    if not outcome.failed:
        return ExitCode.FINE
    n_done, n_failed = len(outcome.results), len(outcome.failed)
    print_error(
        f"{plural(n_failed, 'run')} failed, {n_done} are done",
        "run the same command again: what is done is not done again",
    )
    codes = {exit_code(each.failure.error) for each in outcome.failed}
    return ExitCode.BUG if ExitCode.BUG in codes else min(codes)
