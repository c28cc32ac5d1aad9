"""What ``crossbyte evaluate`` says of a user's own pairs: systems side by side, and who wins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from crossbyte._format import plural
from crossbyte.cli.laboratory import Laboratory, judge_outcome, reported, said_pages
from crossbyte.cli.output import Table, emit
from crossbyte.errors import FitInterrupted

if TYPE_CHECKING:
    from crossbyte.evaluation.quality_table import QualityTable, SystemQuality
    from crossbyte.report.measurements import Estimate

__all__ = ["compare_own"]


def compare_own(
    laboratory: Laboratory, bits: tuple[int, ...], out: Path | None, *, report: bool, as_json: bool
) -> int:
    """Measure crossbyte and simpler systems on held-out pairs; without a folder, results are not kept."""
    from crossbyte.evaluation.quality_table import CHOSEN, check_enough, own_runs, quality_table

    check_enough(len(laboratory.collection.train))
    runs = own_runs(laboratory.collection.name, laboratory.digest, bits)
    with TemporaryDirectory(prefix="crossbyte-") as passing, _nothing_kept(out):
        outcome = laboratory.do(runs, out or Path(passing))
    notes = outcome.notes
    pages, code = ([], 0) if out is None or not report else reported(out, outcome, notes)
    measured = {result.run.bits for result in outcome.results if result.run.method == CHOSEN}
    tables = [quality_table(outcome.results, length) for length in bits if length in measured]
    document = {
        "data": laboratory.collection.name,
        "out": out,
        "tables": [table.to_dict() for table in tables],
        "notes": notes,
        "report": list(map(str, pages)),
    }
    said = [part for table in tables for part in _own_text(table)]
    written = said_pages(pages)
    emit(document, [laboratory.collection.about, *said, *notes, *written], as_json=as_json)
    return judge_outcome(outcome) or code


@contextmanager
def _nothing_kept(out: Path | None) -> Iterator[None]:
    """Make plain Ctrl-C of an interruption after which there is nothing to go on from."""
    try:
        yield
    except FitInterrupted:
        if out is not None:
            raise
        raise KeyboardInterrupt from None


def _own_text(table: QualityTable) -> list[str | Table]:
    said: list[str | Table] = [
        "",
        f"{plural(table.n_bits // 8, 'byte')} per item, learned from {plural(table.n_train, 'pair')}, asked "
        f"among {plural(table.n_queries, 'unseen pair')}; partners found of 100, with 95 % intervals:",
    ]
    for direction in table.systems[0].recall:
        said += ["", direction.replace("-", " "), _recall_table(table.systems, direction)]
    return [*said, "", "both directions, among the first 10", _gain_table(table.systems), "", table.verdict]


def _recall_table(systems: list[SystemQuality], direction: str) -> Table:
    depths = list(systems[0].recall[direction])
    rows = [
        [
            system.name,
            "" if system.n_bytes is None else str(system.n_bytes),
            *(_of_100(system.recall[direction][depth]) for depth in depths),
        ]
        for system in systems
    ]
    return Table(("system", "bytes>", *(f"first {depth}>" for depth in depths)), rows)


def _gain_table(systems: list[SystemQuality]) -> Table:
    rows = [
        [
            system.name,
            f"{100 * system.mean_recall():.1f}",
            "" if system.gain is None else _of_100(system.gain, signed=True),
        ]
        for system in systems
    ]
    return Table(("system", "found>", "crossbyte minus it>"), rows)


def _of_100(estimate: Estimate, *, signed: bool = False) -> str:
    sign = "+" if signed else ""
    value, low, high = (f"{100 * number:{sign}.1f}" for number in estimate)
    return value if estimate.low == estimate.high else f"{value} ({low} to {high})"
