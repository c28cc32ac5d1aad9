"""The program: its verbs, its options, and how it ends. Imports nothing heavy: ``--help`` is quick."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from inspect import getdoc
from typing import Annotated

import typer

import crossbyte
from crossbyte.cli.failures import guarded, report

__all__ = ["VERBS", "main", "run"]

VERBS = (
    "fit",
    "add",
    "delete",
    "search",
    "explain",
    "info",
    "report",
    "verify",
    "compact",
    "backup",
    "export",
    "plan",
    "audit",
)


def main() -> None:
    """Run the program with the arguments of this process, and leave with its exit code."""
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; every error ends here as two lines on stderr."""
    _make_streams_forgiving()
    try:
        code = _program()(list(arguments) or ["--help"], standalone_mode=False, prog_name="crossbyte")
        sys.stdout.flush()  # a closed pipe is noticed here, not when the interpreter leaves
    except Exception as error:
        return report(error)
    return int(code or 0)


def _program() -> typer.Typer:
    # Without rich's markup typer needs no rich for its help, which takes half of the time with it.
    program = typer.Typer(rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False)
    program.callback(help="Search images by text and texts by image, in 2 to 16 bytes per item.")(_options)
    for name in VERBS:
        verb = getattr(import_module(f"crossbyte.cli.verbs.{name}"), name)
        program.command(name, help=_help(verb))(guarded(verb))
    return program


def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Show the version and exit.",
            is_eager=True,
            callback=lambda asked: _say_version(asked),
        ),
    ] = False,
) -> None:
    pass


def _say_version(asked: bool) -> None:
    if asked:
        typer.echo(f"crossbyte {crossbyte.__version__}")
        raise typer.Exit


def _help(verb: object) -> str:
    """Give a verb's docstring, with the mark (a backspace) that keeps the lines of its examples apart."""
    return re.sub(r"\n\n(Example:)", "\n\n\b\n\\1", getdoc(verb) or "")


def _make_streams_forgiving() -> None:
    """Let a terminal that cannot show a letter show its number: an answer never ends in the middle."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError):  # a stream that somebody put there instead
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
