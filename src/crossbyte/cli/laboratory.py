"""What the commands of the laboratory have in common: lists on the command line, runs, and what failed."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from crossbyte._format import plural
from crossbyte.cli.cluster import ray_on_stderr
from crossbyte.cli.failures import DEBUG, ExitCode, exit_code, say, two_lines
from crossbyte.cli.progress import shown
from crossbyte.errors import CrossbyteError, InvalidInput
from crossbyte.methods.registry import GROUPS, all_keys

if TYPE_CHECKING:
    from crossbyte.data.collections.collection import Collection
    from crossbyte.evaluation.loading import Source
    from crossbyte.evaluation.report.study import Study
    from crossbyte.evaluation.running import Outcome
    from crossbyte.evaluation.runs import Run

__all__ = [
    "METHODS_HELP",
    "Laboratory",
    "DataName",
    "Processes",
    "Similarity",
    "judge_outcome",
    "left_out",
    "parse_names",
    "parse_numbers",
    "reported",
    "said_pages",
]

_MOST_SAID = 5  # failures told one by one


class Similarity(StrEnum):
    """What systems are taught with."""

    PAIRS = "pairs"
    LABELS = "labels"


METHODS_HELP = (
    f"Systems with commas between them: {', '.join(all_keys())}; "
    f"or groups: {', '.join(GROUPS)} (docs/evaluation.md)."
)
"""What ``--methods`` takes."""

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


def parse_names(text: str, option: str) -> tuple[str, ...]:
    """Read names such as ``cmfh,cca-pq``."""
    names = tuple(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not names:
        raise InvalidInput(f"{option}: expected names with commas between them, got {text!r}")
    return names


def parse_numbers(text: str, option: str) -> tuple[int, ...]:
    """Read lengths of code such as ``16,32``."""
    if not re.fullmatch(r"\s*[1-9]\d{0,4}\s*(,\s*[1-9]\d{0,4}\s*)*", text, re.ASCII):
        raise InvalidInput(f"{option}: expected numbers above 0, got {text!r}; give some such as 16,32")
    return tuple(sorted({int(part) for part in text.split(",")}))


class Laboratory(NamedTuple):
    """A collection, and how its runs are to be done."""

    verb: str
    source: Source
    collection: Collection
    digest: str
    jobs: int | None
    overwrite: bool
    quiet: bool
    cluster: str | None = None

    @classmethod
    def of(
        cls,
        verb: str,
        data: str,
        jobs: int | None,
        overwrite: bool,
        quiet: bool,
        cluster: str | None = None,
    ) -> Laboratory:
        """Read the collection and what it is known by."""
        from crossbyte.evaluation.digests import collection_digest
        from crossbyte.evaluation.loading import Source

        source = Source(data)
        collection = source.read()
        return cls(verb, source, collection, collection_digest(collection), jobs, overwrite, quiet, cluster)

    def do(self, runs: list[Run], out: Path) -> Outcome:
        """Do what is not done yet, and show how far it is."""
        from crossbyte.evaluation.running import do_runs

        with shown(self.verb, quiet=self.quiet) as callback, ray_on_stderr(self.cluster):
            return do_runs(
                runs,
                self.collection,
                out,
                source=self.source,
                n_processes=_n_processes(self.jobs, self.cluster),
                cluster=self.cluster,
                again=self.overwrite,
                stage="runs",
                callback=callback,
            )


def _n_processes(asked: int | None, cluster: str | None) -> int:
    """Runs at a time: as many as asked for, or as there are cores here or room on a cluster."""
    from crossbyte.executors.threads import available_cores

    if asked is not None:
        return asked
    return available_cores() if cluster is None else -1


def left_out(study: Study) -> list[str]:
    """Say which results a report is without, a line each."""
    return [f"left out of the report: {line}" for line in study.damaged]


def reported(out: Path, outcome: Outcome, notes: list[str]) -> tuple[list[Path], int]:
    """Write the report, and note what it is without; what is wrong with it does not take results away."""
    if not outcome.results:
        return [], ExitCode.FINE
    from crossbyte.evaluation.report.study import read_study
    from crossbyte.evaluation.report.write import write_study

    try:
        study = read_study(out)
        notes += left_out(study)
        return write_study(study, out), ExitCode.FINE
    except CrossbyteError as error:
        say(*two_lines(error))
        return [], exit_code(error)


def said_pages(pages: Iterable[Path]) -> list[str]:
    """Name the pages of a report; its pictures are beside them."""
    return [f"{page}: the report" for page in pages if page.suffix in (".html", ".md")]


def judge_outcome(outcome: Outcome) -> int:
    """Say what failed, and give the exit code: that of the gravest failure."""
    for each in outcome.failed[:_MOST_SAID]:
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            print(each.failure.trace, file=sys.stderr)
        what, what_to_do = two_lines(each.failure.error)
        say(f"{each.run}: {what}", what_to_do)
    if not outcome.failed:
        return ExitCode.FINE
    n_done, n_failed = len(outcome.results), len(outcome.failed)
    say(
        f"{plural(n_failed, 'run')} failed, {n_done} are done",
        "run the same command again: what is done is not done again",
    )
    codes = {exit_code(each.failure.error) for each in outcome.failed}
    return ExitCode.BUG if ExitCode.BUG in codes else min(codes)
