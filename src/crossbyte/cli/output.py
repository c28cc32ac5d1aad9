"""Print what a command finds on stdout (text, tables or one JSON document), and its progress on stderr."""

from __future__ import annotations

import json
import math
import sys
import threading
import time
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import Any, NamedTuple

from crossbyte._format import plural, readable_seconds
from crossbyte.progress import Progress, ProgressCallback, ignore_progress

SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_LOOKS = 0.5  # whether a line is due
_LONGEST_DETAIL = 60
# What is counted, where it is not steps.
_UNITS = {
    "code": "rows",
    "runs": "runs",
    "sample": "pictures",
    "pictures": "pictures",
    "texts": "texts",
    "download": "MB",
}


# Results


class Table(NamedTuple):
    """Rows of cells under headings; a heading that ends in ``>`` aligns its column to the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]


def emit(document: Any, parts: Iterable[str | Table], *, as_json: bool) -> None:
    """Print a command's result: the document as JSON, or its parts as text.

    Parameters
    ----------
    document : JSON-safe object
        NumPy numbers and arrays are accepted, too; what is not finite becomes null.
    parts : iterable of str or Table
        Iterated only if text is wanted.
    as_json : bool
    """
    if as_json:
        print(json.dumps(_to_json_types(document), indent=2, allow_nan=False))
        return
    for part in parts:
        _print_text(part) if isinstance(part, str) else _print_table(part)


def describe_bytes(model: Mapping[str, Any]) -> str:
    """Say how long codes are, given the ``bits`` and the ``codes`` ("document" or "sides") of a model."""
    n_bytes = model["bits"] // 8
    if model["codes"] == "document":
        return f"{plural(n_bytes, 'byte')} per document"
    return f"{plural(n_bytes, 'byte')} per item, {2 * n_bytes} per document with both picture and text"


def describe_words(measured: Mapping[str, Any]) -> Iterator[str]:
    """Tell what words and vectors find, of an index where that was measured."""
    from crossbyte.report.model_report import words_section
    from crossbyte.report.text import render_text

    section = words_section(measured)
    if section is not None:
        yield render_text([section]).rstrip()


def escape_control(value: object) -> str:
    """Escape control characters and line ends, which a terminal would obey."""
    text = str(value)
    return text if text.isprintable() else "".join(map(_escape_letter, text))


def _escape_letter(letter: str) -> str:
    if letter.isprintable() or unicodedata.category(letter) == "Zs":  # a wide or narrow space
        return letter
    return letter.encode("unicode_escape").decode("ascii")


def _to_json_types(value: Any) -> Any:
    """Convert a value to JSON's own types."""
    if isinstance(value, dict):
        return {str(key): _to_json_types(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_to_json_types(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy's numbers and arrays
        return _to_json_types(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def _print_text(text: str) -> None:
    for line in text.rstrip("\n").split("\n"):
        print(escape_control(line))


def _print_table(table: Table) -> None:
    headings = [heading.removesuffix(">") for heading in table.headings]
    align_right = [heading.endswith(">") for heading in table.headings]
    rows = [[escape_control(cell) for cell in row] for row in table.rows]
    show = _print_rich_table if sys.stdout.isatty() else _print_plain_table
    show(headings, align_right, rows)


def _print_plain_table(headings: list[str], align_right: list[bool], rows: list[list[str]]) -> None:
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(line, widths, align_right, strict=True)
        )
        print("  ".join(cells).rstrip())


def _print_rich_table(headings: list[str], align_right: list[bool], rows: list[list[str]]) -> None:
    from rich import box, console, table, text

    shown = table.Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading, right in zip(headings, align_right, strict=True):
        shown.add_column(heading, justify="right" if right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*map(text.Text, row))  # text: brackets are no markup
    console.Console().print(shown)


# Progress


@contextmanager
def show_progress(command: str, *, quiet: bool) -> Iterator[ProgressCallback]:
    """Provide a callback whose steps are shown on stderr while the block runs."""
    if quiet:
        yield ignore_progress
    elif sys.stderr.isatty():
        with _show_bar(command) as callback:
            yield callback
    else:
        with _ProgressLines(command).repeat() as callback:
            yield callback


class Pace:
    """Describe how far every step is: n of how many, how fast, and how long it will still take."""

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


class _ProgressLines:
    """Print a line every few seconds, for logs; also while no step ends."""

    def __init__(self, command: str) -> None:
        self._command, self._pace = command, Pace()
        self._began = self._printed = time.monotonic()
        self._waiting = "at work"

    def __call__(self, step: Progress) -> None:
        said = self._pace(step)
        detail = f" ({step.detail})" if 0 < len(step.detail) <= _LONGEST_DETAIL else ""
        self._waiting = f"{step.stage}{detail}{_count_done(step)}, at work on what is next"
        if not step.done:
            self._waiting = f"{step.stage}: at work on the first of {step.total:,}"
        self._print_if_due(f"{step.stage}{detail}{': ' if said else ''}{said}")

    @contextmanager
    def repeat(self) -> Iterator[ProgressCallback]:
        """Provide this callback, and repeat the last step from time to time while the block runs."""
        over = threading.Event()
        thread = threading.Thread(target=self._repeat_until, args=(over,), daemon=True)
        thread.start()
        try:
            yield self
        finally:
            over.set()
            thread.join()

    def _repeat_until(self, over: threading.Event) -> None:
        while not over.wait(_SECONDS_BETWEEN_LOOKS):
            self._print_if_due(self._waiting)

    def _print_if_due(self, said: str) -> None:
        now = time.monotonic()
        if now - self._printed >= SECONDS_BETWEEN_LINES:
            self._printed = now
            since = readable_seconds(now - self._began)
            print(f"crossbyte {self._command}: {said}; {since} so far", file=sys.stderr, flush=True)


def _count_done(step: Progress) -> str:
    """Say how many are done, where there are several; only a whole stage is called done."""
    if step.total <= 1:
        return " done"
    return f": {step.done:,} of {step.total:,}{' done' if step.done >= step.total else ''}"


@contextmanager
def _show_bar(command: str) -> Iterator[ProgressCallback]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = TextColumn("{task.description}"), BarColumn(24), TextColumn("{task.fields[pace]}", markup=False)
    pace = Pace()
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(command, total=None, pace="")

        def show(step: Progress) -> None:
            said = f"{command}: {step.stage}"
            bars.update(task, description=said, completed=step.done, total=step.total, pace=pace(step))

        yield show


# Work on a cluster


@contextmanager
def redirect_ray_output(cluster: str | None) -> Iterator[None]:
    """Send what Ray prints about lost workers to stderr: a command's stdout may be a JSON document."""
    if cluster is None:
        yield
        return
    with redirect_stdout(sys.stderr):
        yield


@contextmanager
def connect_cluster(cluster: str | None, jobs: int | None) -> Iterator[None]:
    """Keep one connection through all calls of a command, with Ray's output on stderr."""
    from crossbyte.compute.executor import keep_connected

    with redirect_ray_output(cluster), keep_connected(cluster, jobs):
        yield
