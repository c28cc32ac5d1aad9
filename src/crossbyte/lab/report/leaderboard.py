"""Say who is first: the best figure of each column, and sentences made from the numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from crossbyte._format import join_words
from crossbyte.lab.report.presentation import TASK_NAMES, format_figure, format_lengths, metric_name, row_name
from crossbyte.lab.report.study import Scope, System
from crossbyte.lab.score_tables import SummaryFigure


class Comparison(NamedTuple):
    """The best variant of CMCQ against the best other system, at one length."""

    bits: int
    ours: System
    our_figure: SummaryFigure
    other: System
    other_figure: SummaryFigure

    @property
    def won(self) -> bool:
        """Whether ours is first, as printed; a draw is no victory."""
        return round(self.our_figure.mean, 4) > round(self.other_figure.mean, 4)

    @property
    def is_close(self) -> bool:
        """Whether the gap is no larger than the larger spread over seeds."""
        spread = max(self.our_figure.spread or 0.0, self.other_figure.spread or 0.0)
        return abs(self.our_figure.mean - self.other_figure.mean) <= spread


def candidates(scope: Scope) -> list[System]:
    """List the systems that may be called best: coded, and taught with pairs alone."""
    return [each for each in scope.systems if each.similarity == "pairs" and scope.is_coded(each)]


def best_figure(scope: Scope, systems: Sequence[System], bits: int, task: str, metric: str) -> float | None:
    """Find the highest mean as printed, to four decimals; None if nothing was measured."""
    found = [scope.measure(system, bits, task, metric) for system in systems]
    return max((round(each.mean, 4) for each in found if each is not None), default=None)


def compare_with_others(scope: Scope, task: str, metric: str) -> list[Comparison]:
    """Compare ours with all others that learn from pairs alone, at every length where both were run."""
    rivals = candidates(scope)
    found = []
    for bits in scope.bits:
        ours = _find_best(scope, [each for each in rivals if each.is_ours], bits, task, metric)
        other = _find_best(scope, [each for each in rivals if not each.is_ours], bits, task, metric)
        if ours and other:
            found.append(Comparison(bits, *ours, *other))
    return found


def _find_best(
    scope: Scope, systems: Sequence[System], bits: int, task: str, metric: str
) -> tuple[System, SummaryFigure] | None:
    found = [(system, scope.measure(system, bits, task, metric)) for system in systems]
    known = [(system, figure) for system, figure in found if figure is not None]
    return max(known, key=lambda each: each[1].mean, default=None)


def describe_leaders(scope: Scope, metric: str, *, as_bytes: bool = True) -> list[str]:
    """Say for each task where a variant of CMCQ is first among the pairs-only systems, and where not."""
    said = []
    for task in scope.tasks:
        found = compare_with_others(scope, task, metric)
        if found:
            what = f"{TASK_NAMES[task]}, {metric_name(metric)}"
            said.append(f"{what}: {_verdict(scope, found, as_bytes)}")
    return said


def _verdict(scope: Scope, found: Sequence[Comparison], as_bytes: bool) -> str:
    won = [each for each in found if each.won]
    lost = [each for each in found if not each.won]
    if not won:
        start = "no CMCQ variant is first at any length run"
    else:
        every = "" if lost else "every length run, "
        start = f"a CMCQ variant is first of the pairs-only systems at {every}{_lengths(won, as_bytes)}"
    ending = f". CMCQ does not win at {_losses(scope, lost, as_bytes)}" if lost else ""
    return f"{start}{_describe_close_wins(won, as_bytes)}{ending}."


def _lengths(found: Sequence[Comparison], as_bytes: bool) -> str:
    return format_lengths([each.bits for each in found], as_bytes=as_bytes)


def _describe_close_wins(won: Sequence[Comparison], as_bytes: bool) -> str:
    close = [each for each in won if each.is_close]
    return f" (at {_lengths(close, as_bytes)} by no more than the spread over seeds)" if close else ""


def _losses(scope: Scope, lost: Sequence[Comparison], as_bytes: bool) -> str:
    return join_words([_loss(scope, each, as_bytes) for each in lost])


def _loss(scope: Scope, each: Comparison, as_bytes: bool) -> str:
    other = f"{row_name(scope, each.other)} {format_figure(each.other_figure.mean)}"
    ours = f"{row_name(scope, each.ours)} {format_figure(each.our_figure.mean)}"
    close = ", within the spread over seeds" if each.is_close else ""
    return f"{_lengths([each], as_bytes)} ({other} against {ours}{close})"
