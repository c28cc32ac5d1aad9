"""How far long work is, on stderr: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from crossbyte._format import readable_seconds
from crossbyte.progress import Progress, ProgressCallback, silent

__all__ = ["Pace", "shown"]

SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_LOOKS = 0.5  # whether a line is due
# What is counted, where it is not steps.
_UNITS = {"code": "rows", "runs": "runs", "sample": "pictures", "pictures": "pictures", "texts": "texts"}
_LONGEST_DETAIL = 60


@contextmanager
def shown(verb: str, *, quiet: bool) -> Iterator[ProgressCallback]:
    """Give a callback whose steps are shown on stderr while the block runs."""
    if quiet:
        yield silent
    elif sys.stderr.isatty():
        with _bar(verb) as callback:
            yield callback
    else:
        with _Lines(verb).repeated() as callback:
            yield callback


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
        if step.total <= 1:  # a stage of one step says it all by its name
            return ""
        unit = _UNITS.get(step.stage, "steps")
        said = f"{step.done:,} of {step.total:,} {unit}"
        if 0 < step.done < step.total:
            rate = step.done / seconds
            left = readable_seconds((step.total - step.done) / rate)
            said += f", {rate:,.3g} {unit}/s" if rate < 100 else f", {rate:,.0f} {unit}/s"
            said += f", {left} left"
        return said


class _Lines:
    """Prints a line every few seconds, for logs; also while no step ends."""

    def __init__(self, verb: str) -> None:
        self._verb, self._pace = verb, Pace()
        self._began = self._printed = time.monotonic()
        self._waiting = "at work"

    def __call__(self, step: Progress) -> None:
        said = self._pace(step)
        detail = f" ({step.detail})" if 0 < len(step.detail) <= _LONGEST_DETAIL else ""
        self._waiting = f"{step.stage}{detail}{_of(step)}, at work on what is next"
        if not step.done:
            self._waiting = f"{step.stage}: at work on the first of {step.total:,}"
        self._print_if_due(f"{step.stage}{detail}{': ' if said else ''}{said}")

    @contextmanager
    def repeated(self) -> Iterator[ProgressCallback]:
        """Give this callback, and say the last step again from time to time while the block runs."""
        over = threading.Event()
        thread = threading.Thread(target=self._repeat, args=(over,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _repeat(self, over: threading.Event) -> None:
        while not over.wait(_SECONDS_BETWEEN_LOOKS):
            self._print_if_due(self._waiting)

    def _print_if_due(self, said: str) -> None:
        now = time.monotonic()
        if now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            since = readable_seconds(now - self._began)
            print(f"crossbyte {self._verb}: {said}; {since} so far", file=sys.stderr, flush=True)


def _of(step: Progress) -> str:
    """How many are done, where there are several: a stage in its middle is not done."""
    if step.total <= 1:
        return " done"
    return f": {step.done:,} of {step.total:,}{' done' if step.done >= step.total else ''}"


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
