"""How far long work is, on stderr: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from crossbyte.cli.output import readable_seconds
from crossbyte.progress import Progress, ProgressCallback, silent

__all__ = ["Pace", "shown"]

SECONDS_BETWEEN_LINES = 5.0
# What is counted, where it is not steps.
_UNITS = {"code": "rows"}
_LONGEST_DETAIL = 40


@contextmanager
def shown(verb: str, *, quiet: bool) -> Iterator[ProgressCallback]:
    """Give a callback whose steps are shown on stderr while the block runs."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        with _bar(verb) as callback:
            yield callback
    else:
        yield _Lines(verb)


class Pace:
    """Says of every step how far it is: how many of how many, how fast, and how long it will still take."""

    def __init__(self) -> None:
        self._stage = ""
        self._began = self._last = time.monotonic()

    def __call__(self, step: Progress) -> str:
        """Describe a step that is done now."""
        if step.stage != self._stage:  # it began when the step before it was done
            self._stage, self._began = step.stage, self._last
        self._last = time.monotonic()
        seconds = max(self._last - self._began, 1e-9)
        unit = _UNITS.get(step.stage, "steps")
        said = f"{step.done:,} of {step.total:,} {unit}"
        if 0 < step.done < step.total:
            rate = step.done / seconds
            left = readable_seconds((step.total - step.done) / rate)
            said += f", {rate:,.3g} {unit}/s" if rate < 100 else f", {rate:,.0f} {unit}/s"
            said += f", {left} left"
        return said


class _Lines:
    """Prints a line every few seconds, for logs."""

    def __init__(self, verb: str) -> None:
        self._verb, self._pace = verb, Pace()
        self._began = self._printed = time.monotonic()

    def __call__(self, step: Progress) -> None:
        said, now = self._pace(step), time.monotonic()
        if now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            since = readable_seconds(now - self._began)
            detail = f" ({step.detail})" if len(step.detail) <= _LONGEST_DETAIL else ""
            line = f"crossbyte {self._verb}: {step.stage}{detail}: {said}; {since} so far"
            print(line, file=sys.stderr, flush=True)


@contextmanager
def _bar(verb: str) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[pace]}", markup=False)
    pace = Pace()
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(verb, total=None, pace="")

        def show(step: Progress) -> None:
            said = f"{verb}: {step.stage}"
            bars.update(task, description=said, completed=step.done, total=step.total, pace=pace(step))

        yield show
